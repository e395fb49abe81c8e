"""Connections: requests of odd shapes over a real port, and connections that ask nothing."""

import contextlib
import json
import resource
import socket
import urllib.error
import urllib.request

import pytest
import uvicorn
from uvicorn.server import ServerState

from streammach.serve.connections import OTHER_HANDLES, Connection, ConnectionLimit
from tests.serve.test_process import asked_once, ended, serving, text

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

ROWS = json.dumps({"rows": [{"features": {"w^pair1": 1}}]}).encode()
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def post(body, *headers, path=b"/predict", host=b"localhost"):
    named = [b"host: " + host, *headers]
    return b"POST %s HTTP/1.1\r\n%s\r\n\r\n%s" % (path, b"\r\n".join(named), body)


def sized(body, *headers, **more):
    return post(body, b"content-length: %d" % len(body), *headers, **more)


def chunked(body, *headers):
    whole = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    return post(whole, b"transfer-encoding: chunked", *headers)


BLANK = b" " * 9_000_000
# What is sent; the statuses of the answers, in their order; what the first says, and whether the
# connection is closed then. A fault that is found is a line more.
SHAPES = {
    "rows": (sized(ROWS) + HEALTH, [200, 200], b"predictions", False),
    "rows in chunks": (chunked(ROWS) + HEALTH, [200, 200], b"predictions", False),
    "a body past the limit": (sized(BLANK), [413], b"body_bytes", False),
    "the same in chunks": (chunked(BLANK), [413], b"body_bytes", False),
    "the same for no path": (sized(BLANK, path=b"/x"), [404], b"not found", False),
    "the same for another host": (sized(BLANK, host=b"evil.com"), [403], b"is not this", True),
    "the same, not sent": (
        post(b"", b"content-length: 9000000", b"expect: 100-continue"), [413], b"body_", True),
    "two lengths in two ways": (
        post(b"0\r\n\r\n" + HEALTH, b"content-length: 5", b"transfer-encoding: chunked"), [400],
        b"both a content length and a transfer encoding", True),
    "the same, the other way": (
        post(b"5\r\nhello\r\n0\r\n\r\n" + HEALTH, b"transfer-encoding: chunked",
             b"content-length: 3"), [400], b"both a content length", True),
    "two lengths": (post(b"{}", b"content-length: 1", b"content-length: 2"), [400], b"", True),
    "a slash at the end": (HEALTH.replace(b"health", b"health/"), [404], b"not found", False),
    "the same, another host": (
        HEALTH.replace(b"health", b"health/").replace(b"localhost", b"evil.com"), [403],
        b"'evil.com' is not this one", True),
    "no path, another host": (
        HEALTH.replace(b"health", b"x").replace(b"localhost", b"evil.com"), [403], b"is not", True),
    "another method, another host": (
        HEALTH.replace(b"GET", b"PUT").replace(b"localhost", b"evil.com"), [403], b"is not", True),
    "a row alone": (sized(b'{"features": {"a": 1}}'), [422], b'{\\"rows\\": [ROW, ...]}', False),
    "another field alone": (sized(b'{"title": "a"}'), [422], b'{\\"rows\\": [ROW, ...]}', False),
    "a list of rows": (sized(b'[{"features": {}}]'), [422], b'{\\"rows\\": [ROW, ...]}', False),
    "a text": (sized(b'"some words"'), [422], b'{\\"rows\\": [ROW, ...]}', False),
}  # fmt: skip


def answers(port, sent):
    """The statuses of all answers to what is sent at once, what came, and whether it is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(sent)
        one.shutdown(socket.SHUT_WR) if b"expect" in sent else None
        found, closed = b"", False
        while not closed:
            one.settimeout(1 if b"\r\n\r\n" in found and found.count(b"{") else 20)
            try:
                more = one.recv(1 << 16)
            except TimeoutError:
                break
            found, closed = found + more, not more
    heads = [part.split(b" ", 1)[0] for part in found.split(b"HTTP/1.1 ")[1:]]
    return [int(status) for status in heads], found, closed


@pytest.fixture(scope="module")
def port(runs):
    with serving(f"words={runs['words']}") as (found, process):
        yield int(found["url"].rpartition(":")[2])
        process.terminate()
        assert ended(process) == (0, "")


@pytest.mark.parametrize("shape", SHAPES)
def test_each_request_has_its_own_answer(shape, port):
    sent, wanted, says, closed = SHAPES[shape]
    found = answers(port, sent)
    assert (found[0], found[2]) == (wanted, closed), found[1][:2000]
    assert says in found[1]
    assert b"location:" not in found[1].lower()
    assert asked_once(f"http://127.0.0.1:{port}")[0] == 200


@pytest.mark.parametrize("n_bytes", [8_000_001, 20_000_000, 60_000_000])
def test_a_client_that_sends_all_before_it_reads_is_told_why(n_bytes, port):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", b" " * n_bytes)
    for _ in range(3):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        assert refused.value.code == 413
        assert json.loads(refused.value.read())["limit"] == "body_bytes"


def test_more_connections_than_handles_are_closed_the_oldest_first(runs, monkeypatch):
    most, limits = 40, resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most + OTHER_HANDLES, limits[1]))
        started = contextlib.ExitStack()
        found, process = started.enter_context(serving(f"words={runs['words']}"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with started:
        port = int(found["url"].rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(3 * most)]
        assert json.loads(text(found["url"] + "/health")) == {"status": "ok"}
        assert asked_once(found["url"])[0] == 200
        assert _is_closed(idle[0])
        idle[-1].sendall(HEALTH)
        assert b" 200 " in idle[-1].recv(1 << 16)
        process.terminate()
        code, story = ended(process)
        assert (code, story.count("\n")) == (0, 1), story
        assert f"more than {most} connections: those that ask nothing are closed" in story
        for one in idle:
            one.close()


def _is_closed(one):
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


class Loop:
    """A loop whose time is told."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def time(self):
        return self.now

    def call_at(self, when, call):
        self.timers.append(Timer(when, call))
        return self.timers[-1]

    def call_later(self, seconds, call):
        return self.call_at(self.now + seconds, call)

    def create_task(self, coroutine, **_):
        coroutine.close()  # the request is never answered
        return self

    def add_done_callback(self, _):
        pass

    def until(self, now):
        self.now = now
        due, self.timers = [t for t in self.timers if t.at <= now], [
            t for t in self.timers if t.at > now
        ]  # fmt: skip
        for timer in due:
            timer.call()


class Timer:
    def __init__(self, at, call):
        self.at, self.call = at, call

    def when(self):
        return self.at

    def cancel(self):
        self.call = lambda: None


class Transport:
    def __init__(self):
        self.closed = None

    def get_extra_info(self, _):
        return None

    def is_closing(self):
        return self.closed is not None

    def close(self):
        self.closed = "closed"

    def abort(self):
        self.closed = "aborted"

    def write(self, _):
        pass


async def nothing(scope, receive, send):
    pass


class Connections:
    """Connections of one service, most of them at a time."""

    def __init__(self, most):
        self.loop, self.state = Loop(), ServerState()
        self.config = uvicorn.Config(nothing, log_config=None, timeout_keep_alive=60)
        self.limit = ConnectionLimit(most)

    def open(self):
        one = Connection(self.config, self.state, {}, self.loop, limit=self.limit)
        one.connection_made(Transport())
        return one


# What comes at which second, and the second at which the connection is closed; None: not at all.
WAITS = {
    "nothing": ({}, 60),
    "half a head": ({5: b"GET / HTTP/1.1\r\n"}, 60),
    "a head in drops": ({n: b"GET / HTTP/1.1\r\nx: y"[n : n + 1] for n in range(18)}, 60),
    "a whole head": ({5: HEALTH}, None),
    "a head in two parts": ({5: HEALTH[:9], 50: HEALTH[9:]}, None),
    "a head and half a body": ({5: sized(ROWS)[:-9]}, None),  # whose time is told by the deadline
}


@pytest.mark.parametrize("what", WAITS)
def test_a_connection_that_asks_nothing_is_closed_in_time(what):
    pieces, closed_at = WAITS[what]
    service = Connections(10)
    one = service.open()
    for second in range(120):
        if second in pieces:
            one.data_received(pieces[second])
        service.loop.until(second)
        assert one.transport.is_closing() == (closed_at is not None and second >= closed_at)


def test_who_waits_longest_makes_room_and_who_is_answered_stays(capsys):
    service = Connections(3)
    first, second, third = service.open(), service.open(), None
    service.loop.now = 1
    third = service.open()
    first.data_received(HEALTH)
    service.loop.now = 2
    fourth = service.open()
    assert [x.transport.closed for x in (first, second, third, fourth)] == [
        None, "aborted", None, None,
    ]  # fmt: skip
    second.connection_lost(ConnectionAbortedError())
    for one in (third, fourth):
        one.data_received(HEALTH)
    assert service.open().transport.closed == "aborted"  # all others are answered just now
    assert capsys.readouterr().err.count("more than 3 connections") == 1
