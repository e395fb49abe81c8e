"""Rows that wait are predicted together; what is too much or too late is refused; models change."""

import asyncio
import contextlib
import json
import shutil
import threading

import pytest

from streammach.frontends.serve.models import load_model, version_of
from streammach.frontends.serve.options import ServeOptions
from streammach.frontends.serve.request_rows import RequestMemory
from streammach.frontends.serve.service import Service, name_folders
from streammach.system.errors import BudgetError, ModelError, UsageError
from tests.frontends.serve.conftest import Client

pytestmark = pytest.mark.timeout(900)  # the first one may compile kernels

ROW = {"rows": [{"features": {"w^pair1": 1}}]}


class Held:
    """Holds the predictions of a service back until it is let go."""

    def __init__(self, service, monkeypatch, name="words"):
        self.sizes, self.begun, self._go = [], threading.Event(), threading.Event()
        served = service.queues[name].served
        plain = served.predict

        def predict(request, rows):
            self.sizes.append(len(rows))
            self.begun.set()
            assert self._go.wait(20)
            return plain(request, rows)

        monkeypatch.setattr(served, "predict", predict)

    def let_go(self):
        self._go.set()


@pytest.fixture
def open_service(runs):
    opened = []

    def open_it(names=("words",), folders=None, **limits):
        found = folders or {name: runs[name] for name in names}
        opened.append(Service(found, ServeOptions(threads=1, **limits)))
        return opened[-1]

    yield open_it
    for one in opened:
        one.close()


async def until(condition):
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come")


def ask(client, body=ROW, name="words"):
    return asyncio.ensure_future(client.sent("POST", f"/models/{name}/predict", json=body))


def test_what_waits_is_predicted_together(open_service, monkeypatch):
    service = open_service(batch=8)
    held, client = Held(service, monkeypatch), Client(service)
    queue = service.queues["words"]

    async def run():
        first = ask(client)
        await until(held.begun.is_set)
        others = [ask(client) for _ in range(6)]
        others.append(ask(client, {"rows": ROW["rows"] * 20}))
        others.append(ask(client))
        await until(lambda: queue.n_rows == 27)
        held.let_go()
        return await asyncio.gather(first, *others)

    answers = client.run(run())
    assert [answer.status_code for answer in answers] == [200] * 9
    assert len({answer.text for answer in answers if answer is not answers[7]}) == 1
    # All that wait up to 8 rows; a request of more rows is a batch of its own.
    assert held.sizes == [1, 6, 20, 1]


def test_a_full_queue_refuses(open_service, monkeypatch):
    service = open_service(queue=4)
    held, client = Held(service, monkeypatch), Client(service)

    async def run():
        first = ask(client)
        await until(held.begun.is_set)
        waiting = [ask(client) for _ in range(4)]
        await until(lambda: service.queues["words"].n_rows == 4)
        refused = await ask(client)
        held.let_go()
        return refused, await asyncio.gather(first, *waiting)

    refused, answers = client.run(run())
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json() == {"error": "4 rows wait, 4 may", "limit": "queue"}
    assert [answer.status_code for answer in answers] == [200] * 5
    too_large = client.post("/predict", json={"rows": ROW["rows"] * 5})
    assert (too_large.status_code, too_large.json()["limit"]) == (413, "rows")


def test_what_waits_too_long_is_refused_and_not_predicted(open_service, monkeypatch):
    service = open_service(deadline=0.3)
    held, client = Held(service, monkeypatch), Client(service)

    async def run():
        first = ask(client)
        await until(held.begun.is_set)
        late = await asyncio.gather(ask(client), ask(client))
        held.let_go()
        return [await first, *late]

    for answer in client.run(run()):
        assert (answer.status_code, answer.json()["limit"]) == (503, "deadline")
    assert client.post("/predict", json=ROW).status_code == 200
    assert held.sizes == [1, 1]


def test_a_body_that_does_not_come_is_refused(open_service):
    client = Client(open_service(deadline=0.2))

    async def body():
        yield b'{"rows":'
        await asyncio.sleep(30)

    answer = client.post("/predict", content=body())
    assert (answer.status_code, answer.json()["limit"]) == (408, "deadline")


def test_a_bad_row_harms_no_other_request(open_service, monkeypatch):
    service = open_service()
    held, client = Held(service, monkeypatch), Client(service)
    bad = {"rows": [*ROW["rows"], {"features": {"w^pair1": 3e38, "w^pair2": 3e38}}]}

    async def run():
        first = ask(client)
        await until(held.begun.is_set)
        others = [ask(client), ask(client, bad), ask(client)]
        await until(lambda: service.queues["words"].n_rows == 4)
        held.let_go()
        return await asyncio.gather(first, *others)

    answers = client.run(run())
    assert [answer.status_code for answer in answers] == [200, 200, 422, 200]
    assert "row 1 (counted from 0)" in answers[2].json()["error"]


def test_a_mistake_is_one_answer_and_not_the_end(open_service, monkeypatch, capsys):
    service = open_service()
    client = Client(service)
    with monkeypatch.context() as patched:
        patched.setattr(service.queues["words"].served, "predict", lambda request, rows: 1 / 0)
        answer = client.post("/predict", json=ROW)
    assert (answer.status_code, "ZeroDivisionError" in answer.json()["error"]) == (500, True)
    assert "streammach: error: ZeroDivisionError" in capsys.readouterr().err
    assert client.post("/predict", json=ROW).status_code == 200


def test_a_reload_loses_no_request(runs, open_service, tmp_path):
    folder = shutil.copytree(runs["words"], tmp_path / "words")
    service = open_service(folders={"words": folder})
    client = Client(service)
    before = client.post("/predict", json=ROW).json()
    with asking(client) as answers:
        for name in ("other", "words", "other"):
            shutil.rmtree(folder / "model")
            source = other_model(runs, tmp_path) if name == "other" else runs["words"] / "model"
            shutil.copytree(source, folder / "model")
            service.reload()
            assert service.models[0].version == version_of(folder)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["version"] for answer in answers}) == 2
    after = client.post("/predict", json=ROW).json()
    assert after["version"] == version_of(folder) != before["version"]


@contextlib.contextmanager
def asking(client):
    """Ask on some threads while a block runs; the answers."""
    done, answers = threading.Event(), []

    def asked():
        while not done.is_set():
            answers.append(client.post("/predict", json=ROW))

    threads = [threading.Thread(target=asked) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        done.set()
        for thread in threads:
            thread.join()


def other_model(runs, folder):
    place = folder / "other"
    if not place.exists():
        shutil.copytree(runs["words"] / "model", place)
        document = json.loads((place / "model.json").read_text())
        document["majority"] += 1
        (place / "model.json").write_text(json.dumps(document))
    return place


def test_a_damaged_model_leaves_the_former_one(runs, open_service, tmp_path, capsys):
    folder = shutil.copytree(runs["words"], tmp_path / "words")
    service = open_service(folders={"words": folder})
    client = Client(service)
    before = client.post("/predict", json=ROW).json()
    weights = folder / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    service.reload()
    assert "the former model of 'words' stays: damaged" in capsys.readouterr().err
    shutil.rmtree(folder)
    service.reload()
    assert client.post("/predict", json=ROW).json() == before
    counted = client.get("/metrics").text
    assert 'streammach_reloads_total{model="words",result="done"} 0.0' in counted
    assert 'streammach_reloads_total{model="words",result="failed"} 2.0' in counted


@pytest.mark.parametrize(
    ("before", "behind", "taken"),
    [
        ("text", "text", True),
        ("table", "text", False),
        ("text", "words", False),
        ("words", "text", False),
        ("words", "matrix", True),
    ],
)
def test_a_model_that_cannot_read_the_rows_of_the_former_one_is_refused(
    before, behind, taken, runs, open_service, tmp_path, capsys
):
    folder = shutil.copytree(runs[before], tmp_path / "model")
    service = open_service(folders={"a": folder})
    shutil.rmtree(folder)
    shutil.copytree(runs[behind], folder)
    service.reload()
    said = capsys.readouterr().err
    assert ("it reads other rows than the former model" in said) == (not taken)
    assert service.models[0].version == version_of(runs[behind if taken else before])


def test_models_have_names_of_their_own(tmp_path):
    for name in ("a=b", "plain"):
        (tmp_path / name).mkdir()
    found = name_folders(["runs/odp", "new=runs/other", f"{tmp_path}/a=b/../plain"])
    assert list(found) == ["odp", "new", "plain"]
    assert str(found["new"]) == "runs/other"
    for runs in (
        ["odp", "x/odp"],
        ["a b"],
        ["=x"],
        [str(tmp_path / "a=b")],
        ["a/b=run"],
        ["-x=run"],
    ):
        with pytest.raises(UsageError):
            name_folders(runs)


def test_models_fit_the_memory_together(runs):
    with pytest.raises(BudgetError, match="this model needs"):
        Service(runs, ServeOptions(threads=1, memory="200MB"))
    options, memory = ServeOptions(threads=1, memory="1GB"), RequestMemory()
    with pytest.raises(BudgetError, match="models that are served"):
        load_model("words", runs["words"], 900_000_000, options, memory)


def test_a_model_that_changes_while_it_is_read_is_refused(runs, monkeypatch):
    versions = iter(["a", "b"])
    monkeypatch.setattr(
        "streammach.frontends.serve.models.version_of", lambda folder: next(versions)
    )
    with pytest.raises(ModelError, match="changed while it was read"):
        load_model("words", runs["words"], 0, ServeOptions(threads=1), RequestMemory())
