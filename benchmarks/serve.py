"""A service under load: requests a second, times, what is refused, lost and held.

    python -m benchmarks.serve RUN [--store TEST.zarr] [--seconds 5] [--turns 3] [--requests 20000]
        [--reloads 20] [--stops 20] [--only STAGE ...] [--json FILE]

RUN is a model of VW text. Its service runs in a process of its own, the clients in this one, on the
same machine: a client sends its next request when it has the answer to the last one. Requests hold
a row each, from the store or made of the model's features.

- load: 1, 8 and 64 clients; beside them GET /health, which is HTTP alone. Best of the turns.
- beyond: more clients than may wait (--queue 64, 16 rows a request): 200 and 429, and nothing else.
- reloads, stops: how many requests got no answer while a model is loaded again, or the service is
  stopped and closes its port. A client that finds the port closed has lost nothing.
- memory: what the service held after a tenth of --requests, and after all of them.
"""

import asyncio
import collections
import json
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.machine_facts import facts, parser, report
from streammach.model.model import Model
from streammach.store.dataset import Dataset

CLIENTS = (1, 8, 64)
BODIES, VALUES = 512, 30  # different requests; features of a row that is made up
KEPT = 1000  # answers whose bodies are kept
QUEUE, CROWD, CROWD_ROWS = 64, 64, 16


class Service:
    """The command in a process of its own."""

    def __init__(self, run, *options):
        command = [sys.executable, "-m", "streammach", "serve", f"model={run}", "--port", "0"]
        self.process = subprocess.Popen([*command, "--json", *options], stdout=subprocess.PIPE)
        self.port = int(json.loads(self.process.stdout.readline())["url"].rpartition(":")[2])

    def stop(self):
        """Exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code


class Client(asyncio.Protocol):
    """Sends requests over a connection, one after another, and notes what becomes of each."""

    def __init__(self, requests, until, out):
        self._requests, self._until, self._out = requests, until, out
        self._buffer, self._sent = b"", None
        self.ended = asyncio.get_running_loop().create_future()
        self.closes = False

    def connection_made(self, transport):
        self._transport = transport
        self._next()

    def data_received(self, data):
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        size = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(rest) < size:
            return
        kept = rest if len(self._out) < KEPT else b""
        self._out.append((int(head[9:12]), time.perf_counter() - self._sent, kept))
        self._buffer, self._sent = b"", None
        self.closes = b"connection: close" in lower
        if self.closes or self._until():
            self._transport.close()
        else:
            self._next()

    def connection_lost(self, error):
        if self._sent is not None:
            self._out.append((0, 0.0, b""))  # a request without an answer
        if not self.ended.done():
            self.ended.set_result(None)

    def _next(self):
        self._sent = time.perf_counter()
        self._transport.write(next(self._requests))


async def client(port, requests, until, out):
    """Ask until told to end, or until the port is closed."""
    while not until():
        try:
            _, one = await asyncio.get_running_loop().create_connection(
                lambda: Client(requests, until, out), "127.0.0.1", port
            )
        except OSError:
            return
        await one.ended
        if not one.closes:
            return


async def crowd(port, requests, n, until, beside=None):
    out = []
    own = [client(port, requests, until, out) for _ in range(n)]
    await asyncio.gather(*own, *([] if beside is None else [beside]))
    return out


def after(seconds):
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() > end


def cycle(bodies, path="/predict"):
    requests = [request(body, path) for body in bodies]
    while True:
        yield from requests


def request(body, path="/predict", method="POST"):
    return (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


def once(port, one):
    found = asyncio.run(crowd(port, iter([one]), 1, lambda n=[]: bool(n) or n.append(1)))
    return found[0][0], found[0][2]


def metric(port, name):
    text = once(port, request(b"", "/metrics", "GET"))[1].decode()
    return int(float(text.split(f"\nstreammach_{name} ")[1].split("\n")[0]))


def resident(port):
    return metric(port, "resident_memory_bytes")


def reloaded(port):
    return metric(port, 'reloads_total{model="model",result="done"}')


def rows_of(run, store):
    if store is not None:
        with Dataset.open(store) as data:
            names, block = data.features, data.rows(0, min(BODIES, data.n_rows))
        return [
            {names.raw(f).decode(): float(x) for f, x in zip(block.features[a:b].tolist(),
                                                             block.values[a:b], strict=True)}
            for a, b in zip(block.indptr[:-1], block.indptr[1:], strict=True)
        ]  # fmt: skip
    names, rng = Model.load(run).features, np.random.default_rng(0)
    drawn = (len(names) * rng.random((BODIES, VALUES)) ** 3).astype(int)  # the first are frequent
    return [{names.raw(i).decode(): 1.0 for i in row} for row in drawn.tolist()]


def body_of(*rows):
    return json.dumps({"rows": [{"features": row} for row in rows], "k": 5}).encode()


def times(found, seconds):
    """Rate and times of requests that were answered."""
    took = [t for status, t, _ in found if status == 200]
    hundredths = statistics.quantiles(took, n=100)
    return {
        "requests_per_second": len(took) / seconds, "p50_ms": 1e3 * hundredths[49],
        "p99_ms": 1e3 * hundredths[98], "others": len(found) - len(took),
    }  # fmt: skip


def load(run, bodies, seconds, turns):
    """Rates and times, by clients: the best turn of each."""
    service, found = Service(run), {}
    get = request(b"", "/health", "GET")
    for _ in range(turns):
        for n in CLIENTS:
            for what, requests in (("predict", cycle(bodies)), ("health", iter(lambda: get, None))):
                out = asyncio.run(crowd(service.port, requests, n, after(seconds)))
                one = times(out, seconds)
                key = f"{what}, {n} clients"
                best = found.setdefault(key, one)
                found[key] = max(best, one, key=lambda x: x["requests_per_second"])
                print(key, {name: round(x, 2) for name, x in one.items()}, flush=True)
    assert service.stop() == 0
    return found


def beyond(run, rows, seconds):
    """Statuses where more rows come than may wait."""
    service = Service(run, "--queue", str(QUEUE))
    bodies = [body_of(*rows[i : i + CROWD_ROWS]) for i in range(0, len(rows) - CROWD_ROWS, 7)]
    out = asyncio.run(crowd(service.port, cycle(bodies), CROWD, after(seconds)))
    assert service.stop() == 0
    counts = collections.Counter(status for status, _, _ in out)
    return {str(status): n for status, n in sorted(counts.items())}


def reloads(run, bodies, times_):
    """Requests that were answered, and lost, while the model is loaded again and again."""
    service, took = Service(run), []

    async def again():
        for n in range(1, times_ + 1):
            began = time.perf_counter()
            service.process.send_signal(signal.SIGHUP)
            while await asyncio.to_thread(reloaded, service.port) < n:
                await asyncio.sleep(0.01)
            took.append(time.perf_counter() - began)

    out = asyncio.run(crowd(service.port, cycle(bodies), 8, lambda: len(took) == times_, again()))
    assert service.stop() == 0
    answered = sum(status == 200 for status, _, _ in out)
    return {
        "reloads": len(took), "answered": answered, "lost": len(out) - answered,
        "seconds_a_reload": statistics.median(took),
    }  # fmt: skip


def stops(run, bodies, times_):
    """Requests that were answered, and lost, while services are stopped."""
    answered = lost = clean = 0
    took = []
    for _ in range(times_):
        service = Service(run)

        async def stop(service=service):
            await asyncio.sleep(0.5)
            service.process.send_signal(signal.SIGTERM)

        begun = time.perf_counter()
        out = asyncio.run(crowd(service.port, cycle(bodies), 8, after(30), stop()))
        clean += service.process.wait(30) == 0
        took.append(time.perf_counter() - begun - 0.5)
        service.process.stdout.close()
        answered += sum(status == 200 for status, _, _ in out)
        lost += sum(status != 200 for status, _, _ in out)
    return {
        "stops": times_, "exit_code_0": clean, "answered": answered, "lost": lost,
        "seconds_a_stop": statistics.median(took),
    }  # fmt: skip


def memory(run, bodies, n):
    service, left = Service(run), [n]
    at = {"requests": n, "bytes_at_start": resident(service.port)}

    def until():
        left[0] -= 1
        return left[0] < 0

    for share, name in ((0.1, "bytes_after_a_tenth"), (0.9, "bytes_at_the_end")):
        left[0], begun = int(share * n), time.perf_counter()
        out = asyncio.run(crowd(service.port, cycle(bodies), 64, until))
        at[name] = resident(service.port)
        at["others"] = at.get("others", 0) + sum(status != 200 for status, _, _ in out)
        at["requests_per_second"] = len(out) / (time.perf_counter() - begun)
        print(name, at[name], flush=True)
        del out
    assert service.stop() == 0
    return at


def main():
    arguments = parser(__doc__)
    arguments.add_argument("run")
    arguments.add_argument("--store")
    arguments.add_argument("--seconds", type=float, default=5)
    arguments.add_argument("--turns", type=int, default=3)
    arguments.add_argument("--requests", type=int, default=20_000)
    arguments.add_argument("--reloads", type=int, default=20)
    arguments.add_argument("--stops", type=int, default=20)
    arguments.add_argument("--only", nargs="*", metavar="STAGE", help="others stay in the file")
    given = arguments.parse_args()
    rows = rows_of(given.run, given.store)
    bodies = [body_of(row) for row in rows]
    figures = {}
    if given.only and given.json and Path(given.json).exists():
        figures = json.loads(Path(given.json).read_text())
    figures |= {"facts": facts("starlette", "uvicorn", "httptools"), "run": Path(given.run).name}
    figures["bytes_a_request"] = statistics.mean(map(len, bodies))
    figures["features_a_row"] = statistics.mean(map(len, rows))
    for name, work in (
        ("load", lambda: load(given.run, bodies, given.seconds, given.turns)),
        ("beyond", lambda: beyond(given.run, rows, given.seconds)),
        ("reloads", lambda: reloads(given.run, bodies, given.reloads)),
        ("stops", lambda: stops(given.run, bodies, given.stops)),
        ("memory", lambda: memory(given.run, bodies, given.requests)),
    ):
        if given.only and name not in given.only:
            continue
        figures[name] = work()
        print(name, json.dumps(figures[name]), flush=True)
        report(figures, given.json)


if __name__ == "__main__":
    main()
