"""Small models of every kind of row, and services that answer from them."""

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import threading

import httpx
import numpy as np
import pytest

import streammach as sm
from streammach.conversion.convert import convert
from streammach.frontends.serve.app import LOCAL, build_app
from streammach.frontends.serve.options import ServeOptions
from streammach.frontends.serve.service import Service
from tests.builders import TinyData

KINDS = {"novel": "love story house", "atlas": "map world sea", "cookbook": "salt oven dinner"}
URL = "http://127.0.0.1:8000"


class Client:
    """Asks a service without a port; all requests to all services are in one loop of a thread."""

    loop = None

    def __init__(self, service, *, local=True):
        self.app = build_app(service, LOCAL if local else None)

    def get(self, path, **options):
        return self.send("GET", path, **options)

    def post(self, path, **options):
        return self.send("POST", path, **options)

    def send(self, method, path, **options):
        return self.run(self.sent(method, path, **options))

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, Client.loop).result(120)

    async def sent(self, method, path, **options):
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
            return await client.request(method, path, **options)


@contextlib.contextmanager
def serving(*arguments):
    """A service in a process of its own: what it printed, and the process."""
    command = [sys.executable, "-m", "streammach", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--json", "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line), process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process, seconds=30):
    _, story = process.communicate(timeout=seconds)
    return process.returncode, story


def fitted(folder, name, **options):
    plan = sm.plan(folder / f"{name}.zarr", n_buckets=2, n_repetitions=4, threads=1, **options)
    how = sm.TrainingOptions(epochs=2, learning_rate=0.5, transform="raw")
    sm.Trainer(plan, how).fit(folder / f"{name}.zarr", folder / name)
    return folder / name


def books(folder, name, columns):
    """A CSV of books with some of its columns."""
    random.seed(1)
    lines = [",".join((*columns, "shelf"))]
    for _ in range(400):
        shelf = random.choice(list(KINDS))
        row = {
            "title": " ".join(random.choices(KINDS[shelf].split(), k=2)) + " of the year",
            "publisher": random.choice(["A & B", "Mill"]), "pages": random.randint(40, 900),
        }  # fmt: skip
        lines.append(",".join(str(row[column]) for column in columns) + f",{shelf}")
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session", autouse=True)
def loop():
    """The loop of all clients."""
    Client.loop = asyncio.new_event_loop()
    thread = threading.Thread(target=Client.loop.run_forever, daemon=True)
    thread.start()
    yield
    Client.loop.call_soon_threadsafe(Client.loop.stop)
    thread.join()
    Client.loop.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Models of VW text, of a table, of a text and of a matrix, by name."""
    folder = tmp_path_factory.mktemp("served")
    TinyData(folder, np.random.default_rng(3)).store("words.zarr", n_rows=500, n_classes=20)
    roles = {"text": "title", "category": "publisher", "number": "pages"}
    table = books(folder, "table", ("title", "publisher", "pages"))
    convert(table, folder / "table.zarr", label="shelf", **roles)
    convert(books(folder, "text", ("title",)), folder / "text.zarr", label="shelf", text="title")
    x = np.random.default_rng(4).normal(size=(300, 5)).astype(np.float32)
    np.save(folder / "X.npy", x)
    np.save(folder / "y.npy", x.argmax(axis=1))
    convert(folder / "X.npy", folder / "matrix.zarr")
    names = ("words", "table", "text", "matrix")
    return {name: fitted(folder, name) for name in names}


@pytest.fixture(scope="session")
def port(runs):
    """The port of a service in a process of its own, which has nothing to say."""
    with serving(f"words={runs['words']}") as (found, process):
        yield int(found["url"].rpartition(":")[2])
        process.terminate()
        assert ended(process) == (0, "")


@pytest.fixture(scope="session")
def service(runs):
    service = Service(runs, ServeOptions(threads=1))
    yield service
    service.close()


@pytest.fixture(scope="session")
def client(service):
    return Client(service)


@pytest.fixture
def predictor(runs):
    opened = []

    def open_it(name):
        opened.append(sm.Predictor(sm.Model.load(runs[name]), threads=1))
        return opened[-1]

    yield open_it
    for one in opened:
        one.close()
