"""A local object storage for tests and benchmarks, and a proxy before it that injects faults."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

BUCKET = "rows"
KEY, SECRET = "testing", "a-secret-of-nobody"  # of the local server, which checks neither
FAULTS = ("reset", "slow", "500", "503", "truncated", "wrong bytes")
REFUSALS = ("403", "404")
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}

Fault = Callable[[int, str, str], "str | None"]  # number of a request, its method and path


def environment(endpoint: str) -> dict[str, str]:
    """Return the variables by which S3 clients find a local server."""
    return {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Run moto's S3 in a process of its own with an empty bucket; yield its endpoint."""
    import boto3

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port)
        endpoint = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )  # fmt: skip
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield endpoint
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError("the local server did not start")


def uploaded(folder: Path, endpoint: str, name: str) -> str:
    """Copy a folder into the bucket as another tool would; return its URL."""
    import boto3

    client = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )  # fmt: skip
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        key = f"{name}/{file.relative_to(folder).as_posix()}"
        client.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())
    client.close()
    return f"s3://{BUCKET}/{name}"


class Proxy:
    """Passes requests on to a server, and spoils those that it is told to.

    Parameters
    ----------
    endpoint : str
        The server's.
    slow : float
        Seconds of a slow answer.
    """

    def __init__(self, endpoint: str, slow: float = 1.0) -> None:
        self.fault: Fault = lambda number, method, path: None
        self.requests: list[tuple[str, str]] = []
        self.injected: list[str] = []
        self.slow = slow
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, endpoint))
        self._server.daemon_threads = True
        self._lock = threading.Lock()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reset(self, fault: Fault | None = None) -> None:
        """Count from 0 again, with another fault."""
        self.requests, self.injected = [], []
        self.fault = fault or (lambda number, method, path: None)

    def next_fault(self, method: str, path: str) -> str | None:
        """Return what is to be done to the request that just came."""
        with self._lock:
            number = len(self.requests)
            self.requests.append((method, path))
            found = self.fault(number, method, path)
            if found is not None:
                self.injected.append(found)
        return found


def _handler(proxy: Proxy, endpoint: str) -> type[BaseHTTPRequestHandler]:
    host = urlsplit(endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *given: object) -> None:
            pass

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = proxy.next_fault(self.command, self.path)
            if fault == "reset":
                self.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                self.connection.close()
                self.close_connection = True
                return
            if fault is not None and fault.isdigit():
                self.answer(int(fault), {}, b"<Error/>")
                return
            if fault == "slow":
                time.sleep(proxy.slow)
            self.pass_on(body, fault)

        def pass_on(self, body: bytes, fault: str | None) -> None:
            link = http.client.HTTPConnection(host, timeout=60)
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
                link.request(self.command, self.path, body, headers)
                answer = link.getresponse()
                data = answer.read()
                said = {k: v for k, v in answer.getheaders() if k.lower() not in HOP}
                length = answer.getheader("Content-Length")
            finally:
                link.close()
            if fault == "wrong bytes" and data:
                spoilt = bytearray(data)
                spoilt[len(data) // 2] ^= 0x55
                data = bytes(spoilt)
            if self.command == "HEAD" and length is not None:
                said["Content-Length"] = length
            self.answer(answer.status, said, data, short=fault == "truncated")

        def answer(
            self, status: int, headers: dict[str, str], data: bytes, short: bool = False
        ) -> None:
            with contextlib.suppress(OSError):  # a client that did not wait
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if short else data)
            if short:
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    return Handler
