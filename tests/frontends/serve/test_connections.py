"""Connections: requests of odd shapes over a real port."""

import json
import socket
import urllib.error
import urllib.request

import pytest

from tests.frontends.serve.test_process import asked_once

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

ROWS = json.dumps({"rows": [{"features": {"w^pair1": 1}}]}).encode()
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


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
    "the same for no path": (sized(BLANK, path=b"/x"), [405], b"not allowed", False),
    "the same for another host": (sized(BLANK, host=b"evil.com"), [403], b"is not this", False),
    "two lengths in two ways": (
        post(b"0\r\n\r\n" + HEALTH, b"content-length: 5", b"transfer-encoding: chunked"), [400],
        b"both a content length and a transfer encoding", True),
    "the same, the other way": (
        post(b"5\r\nhello\r\n0\r\n\r\n" + HEALTH, b"transfer-encoding: chunked",
             b"content-length: 3"), [400], b"both a content length", True),
    "two lengths": (post(b"{}", b"content-length: 1", b"content-length: 2"), [400], b"", True),
    "a slash at the end": (HEALTH.replace(b"health", b"health/"), [404], b"not found", False),
    "the same, another host": (
        HEALTH.replace(b"localhost", b"evil.com"), [403], b"'evil.com' is not this one", False),
    "no path, another host": (
        HEALTH.replace(b"health", b"x").replace(b"localhost", b"evil.com"), [404], b"not", False),
    "another method, another host": (
        HEALTH.replace(b"GET", b"PUT").replace(b"localhost", b"evil.com"), [405], b"not", False),
    "a row alone": (sized(b'{"features": {"a": 1}}'), [422], b'{\\"rows\\": [ROW, ...]}', False),
    "another field alone": (sized(b'{"title": "a"}'), [422], b'{\\"rows\\": [ROW, ...]}', False),
    "a list of rows": (sized(b'[{"features": {}}]'), [422], b'{\\"rows\\": [ROW, ...]}', False),
    "a text": (sized(b'"some words"'), [422], b'{\\"rows\\": [ROW, ...]}', False),
}  # fmt: skip


def answers(port, sent, *, stays):
    """The statuses of all answers to what is sent at once, and what came.

    A connection that stays gets a last request, behind whose answer it is closed.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
        one.sendall(sent)
        found = one.recv(1 << 16)
        one.sendall(LAST) if stays else None
        while more := one.recv(1 << 16):
            found += more
    heads = [part.split(b" ", 1)[0] for part in found.split(b"HTTP/1.1 ")[1:]]
    return [int(status) for status in heads], found


@pytest.mark.parametrize("shape", SHAPES)
def test_each_request_has_its_own_answer(shape, port):
    sent, wanted, says, closed = SHAPES[shape]
    statuses, found = answers(port, sent, stays=not closed)
    assert statuses == (wanted if closed else [*wanted, 200]), found[:2000]
    assert says in found
    assert b"location:" not in found.lower()
    assert asked_once(f"http://127.0.0.1:{port}")[0] == 200


@pytest.mark.parametrize("n_bytes", [8_000_001, 20_000_000, 60_000_000])
def test_a_client_that_sends_all_before_it_reads_is_told_why(n_bytes, port):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", b" " * n_bytes)
    for _ in range(3):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        with refused.value as answer:
            assert answer.code == 413
            assert json.loads(answer.read())["limit"] == "body_bytes"
