"""A local object storage, a proxy before it that injects faults, and readings through that."""

import contextlib
import http.client
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from streammach.system.errors import DiskError, StoreError
from streammach.system.files.objects import TRIES

BUCKET = "rows"
KEY, SECRET = "testing", "a-secret-of-nobody"  # of the local server, which checks neither
FAULTS = ("reset", "slow", "500", "503", "truncated", "wrong bytes")
REFUSALS = ("403", "404")
HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


def environment(endpoint):
    """Return the variables by which S3 clients find a local server."""
    return {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip


def _client(endpoint):
    import boto3

    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )  # fmt: skip


@contextlib.contextmanager
def served():
    """Run moto's S3 in a process of its own with an empty bucket; yield its endpoint."""
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
        client = _client(endpoint)
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield endpoint
    finally:
        server.terminate()
        server.wait()


def _wait_for(port):
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError("the local server did not start")


def uploaded(folder, endpoint, name):
    """Copy a folder into the bucket as another tool would; return its URL."""
    client = _client(endpoint)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        key = f"{name}/{file.relative_to(folder).as_posix()}"
        client.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())
    client.close()
    return f"s3://{BUCKET}/{name}"


class Proxy:
    """Passes requests on to a server, and spoils those that it is told to.

    `fault` gives the fault, or None, for the number of a request, its method and its path; a slow
    answer takes `slow` seconds.
    """

    def __init__(self, endpoint, slow=1.0):
        self.fault = lambda number, method, path: None
        self.requests = []
        self.injected = []
        self.slow = slow
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, endpoint))
        self._server.daemon_threads = True
        self._lock = threading.Lock()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reset(self, fault=None):
        """Count from 0 again, with another fault."""
        self.requests, self.injected = [], []
        self.fault = fault or (lambda number, method, path: None)

    def next_fault(self, method, path):
        """Return what is to be done to the request that just came."""
        with self._lock:
            number = len(self.requests)
            self.requests.append((method, path))
            found = self.fault(number, method, path)
            if found is not None:
                self.injected.append(found)
        return found


def _handler(proxy, endpoint):
    host = urlsplit(endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *given):
            pass

        def handle_any(self):
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

        def pass_on(self, body, fault):
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

        def answer(self, status, headers, data, short=False):
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


def spoils(kind, first, n):
    """Return the fault of so many requests from one on."""
    return lambda number, method, path: kind if first <= number < first + n else None


def outcome(load, url, cache):
    """Return what a store holds, or the line of its refusal."""
    try:
        return load(url, cache), ""
    except (DiskError, StoreError) as error:
        return None, str(error)


def fault_trials(proxy, load, url, expected, folder, trials, rng):
    """Inject a fault into each of some readings; return how many ended how, by the kind.

    A fault lasts for one request, for two, or for more than there are tries; a slow answer is one.
    """
    proxy.reset()
    load(url, folder / "first")
    places, met = len(proxy.requests), Counter()
    for trial in range(trials):
        kind = FAULTS[trial % len(FAULTS)]
        lasts = 1 if kind == "slow" else [1, 2, TRIES * 4][trial // len(FAULTS) % 3]
        proxy.reset(spoils(kind, int(rng.integers(places)), lasts))
        found, line = outcome(load, url, folder / str(trial))
        ended = "survived" if found == expected else "wrong"
        if line:
            ended = "refused" if url in line and "\n" not in line else "badly refused"
        met[ended, kind if proxy.injected else "none"] += 1
        shutil.rmtree(folder / str(trial), ignore_errors=True)
    return met
