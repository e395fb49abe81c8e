"""Requests that are legal and cost much, one to sixteen at once: memory, and who asks meanwhile."""

import contextlib
import http.client
import itertools
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from streammach.frontends.serve.app import MAX_BODY
from streammach.system.machine import parse_size
from tests.frontends.serve.conftest import (
    runs,  # noqa: F401  (a fixture)
    serving,
)
from tests.frontends.serve.test_process import asked, connect

pytestmark = [pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(900)]

HEALTHY = 2.0  # seconds
MOST = 8_000_000  # bytes of the bodies below, of which a part is sent
PART = MAX_BODY / MOST
EXPECTED = {200, 400, 413, 422, 429, 503}


def filled(part, unit, head, tail):
    """A body of a part of the most that it may have, in which something is repeated."""
    size, (unit, head, tail) = int(part * MOST), (one.encode() for one in (unit, head, tail))
    return (head + unit * ((size - len(head) - len(tail)) // len(unit)))[:-1] + tail


def rows_of(rows, k=5):
    return ('{"rows":[' + ",".join(rows) + f'],"k":{k}}}').encode()


def features(part, n_rows, n, form, k=5):
    """Rows of features that are written in a form, each with a name of its own."""
    opened, closed = "{}" if ":" in form else "[]"
    rows = []
    for row in range(max(1, round(part * n_rows))):
        names = ",".join(form % (row * n + j) for j in range(n))
        rows.append(f'{{"features":{opened}{names}{closed}}}')
    return rows_of(rows, k)


def texts(part, text, n_rows):
    return rows_of([f'"{text}"'] * max(1, round(part * n_rows)))


def cell(part, unit, end=""):
    return filled(part, unit, '{"rows":[{"title":[', end + "]}]}")


def fields(part):
    named = ",".join(f'"{i:x}":1' for i in range(int(part * 700_000)))
    return f'{{"rows":[{{{named}}}]}}'.encode()


# A model of `runs`, and what it is asked: what is made, and of what beside the part of it.
COSTLY = {
    "names": ("words", features, 800, 850, '"%x":1'),
    "values": ("words", features, 550, 850, '"%x":1.5e3'),
    "strings": ("words", features, 450, 1100, '"%x":"rot"'),
    "lists of names": ("words", features, 800, 1100, '"%x"'),
    "long names": ("words", features, 450, 150, '"' + "n" * 90 + '%x":1'),
    "most features": ("words", features, 8, 100_000, '"%x"'),
    "most labels": ("words", features, 1024, 9, '"%x":1', 200),
    "numbers": ("words", filled, "1,", '{"rows":[{"features":[', "]}]}"),
    "rows": ("words", filled, '{"features":{}},', '{"rows":[', "]}"),
    "lists in a cell": ("table", cell, "[],"),
    "lists in lists": ("table", cell, "[[]],"),
    "dicts in a cell": ("table", cell, '{"":{"":{"":0}}},'),
    "strings in a cell": ("table", cell, '"ab",'),
    "fields": ("table", fields),
    "colons": ("text", texts, "a:b " * 1900, 1000),
    "texts": ("text", texts, "x y " * 1950, 1000),
    "long texts": ("text", texts, "x y " * 24_000, 80),
    "texts that grow": ("text", texts, "\ufdfa" * 24_000, 100),
    "escapes that grow": ("text", texts, "\\ufdfa" * 24_000, 50),
    "too much growth": ("text", texts, "\ufdfa" * 200_000, 12),
    "wide texts": ("text", texts, "a" * 780_000 + "\U0001f600", 10),
    "NaN at the end": ("table", cell, "[],", ",NaN"),
}  # fmt: skip


def body_of(what, part=PART):
    """The model that something costly is asked, and a part of it."""
    name, made, *given = COSTLY[what]
    return name, made(part, *given)


# Looks at the memory of a process, and asks whether it lives, until its input ends; in a process of
# its own, which nobody who sends large bodies holds up.
WATCH = """
import http.client, json, sys, threading, time
import psutil

process, over = psutil.Process(int(sys.argv[1])), threading.Event()
peak, slowest, late = 0, 0.0, 0.0

def health():
    global slowest
    connection = http.client.HTTPConnection(sys.argv[2], timeout=60)
    while not over.wait(0.01):
        begun = time.monotonic()
        connection.request("GET", "/health")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')
        slowest = max(slowest, time.monotonic() - begun)

asking = threading.Thread(target=health)
asking.start()
threading.Thread(target=lambda: (sys.stdin.read(), over.set())).start()
print("ready", flush=True)
before = time.monotonic()
while not over.wait(0.002):
    peak = max(peak, process.memory_info().rss)
    before, late = time.monotonic(), max(late, time.monotonic() - before - 0.002)
asking.join()
print(json.dumps([peak, slowest, late]))
"""


@contextlib.contextmanager
def watched(process, url):
    """Yield a list that gets what was seen of a process.

    The most memory, the longest time for /health, and how late the machine let the watch go on.
    """
    command = [sys.executable, "-c", WATCH, str(process.pid), url.removeprefix("http://")]
    watch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert watch.stdout.readline() == "ready\n"
    found = []
    try:
        yield found
    finally:
        out, _ = watch.communicate("", timeout=120)
    found += json.loads(out)


@pytest.fixture(scope="module", params=["2GB", "500MB"])
def served(request, runs):  # noqa: F811
    names = [f"{name}={runs[name]}" for name in ("words", "table", "text")]
    with serving(*names, "--memory", request.param, "--deadline", "60") as (found, process):
        yield found["url"], process, parse_size(request.param)


def statuses(url, bodies):
    """Send all at once; return their statuses."""

    def send(one):
        name, body = one
        with contextlib.closing(connect(url)) as connection:
            connection.timeout = 300
            try:
                status, answer, _ = asked(connection, path=f"/models/{name}/predict", body=body)
            except (BrokenPipeError, ConnectionResetError, http.client.HTTPException):
                return 413  # refused while it was sent
            assert status == 200 or "\n" not in answer["error"]
            return status

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(send, bodies))


@pytest.mark.parametrize("at_once", [1, 4, 16])
def test_costly_requests_keep_to_the_memory_and_hold_nobody_up(at_once, served):
    url, process, memory = served
    bodies = {what: body_of(what) for what in COSTLY}
    rounds = [(what, [one] * at_once) for what, one in bodies.items()]
    mixed = itertools.islice(itertools.cycle(bodies.values()), max(at_once, 2))
    for what, sent in [*rounds, ("all", list(mixed))]:
        with watched(process, url) as seen:
            found = statuses(url, sent)
        said = f"{what}: {sorted(found)} {seen[0] / 1e6:.0f} MB, {seen[1]:.2f} - {seen[2]:.2f} s"
        assert set(found) <= EXPECTED, said
        assert seen[0] <= memory, said
        assert seen[1] - seen[2] < HEALTHY, said
        small = json.dumps({"rows": [{"features": {"w^pair1": 1}}]}).encode()
        assert statuses(url, [("words", small)]) == [200]
