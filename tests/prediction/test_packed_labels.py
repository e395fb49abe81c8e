"""A model whose labels' names are packed answers as one whose list is in memory, and reads less."""

import dataclasses
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.model import packed_names
from streammach.model.packed_names import PackedNames
from streammach.model.shrink import Size, shrink
from streammach.model.size import size_in_file
from streammach.prediction.memory import Input, room_before
from streammach.serve.limits import ServiceLimits
from streammach.serve.models import Computing, Loader
from streammach.serve.reading import Question
from tests.builders import TinyData

GB = 10**9
MODELS = ("plain", "packed")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Rows, stores, and one small model in both layouts."""
    tiny = TinyData(tmp_path_factory.mktemp("done"), np.random.default_rng(7))
    tiny.text("a.vw", tiny.lines(300, 40))
    tiny.text("b.vw", [f"new{line}" if i % 9 == 0 else line
                       for i, line in enumerate(tiny.lines(120, 40))])  # fmt: skip
    tiny.text("c.vw", [f"new{line}" for line in tiny.lines(40, 4)])
    folder = tiny.trained()
    sm.convert(folder / "b.vw", folder / "b.zarr")
    small = shrink(sm.Model.load(folder / "run"), Size("int4", 2, 20))
    small.save(folder / "plain")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("streammach.model.model.MANY", 1)
        patched.setattr(packed_names, "EACH", 4)
        small.save(folder / "packed")
    return folder


@pytest.fixture
def job(done, tmp_path, monkeypatch):
    """A copy of them in the working folder."""
    monkeypatch.chdir(shutil.copytree(done, tmp_path / "job"))
    return tmp_path / "job"


@pytest.fixture
def never_whole(monkeypatch):
    """The whole list of packed names is not to be asked for."""

    def refused(names):
        raise AssertionError("the whole list was read")

    monkeypatch.setattr(PackedNames, "plain", refused)


@pytest.mark.parametrize("source", ["a.vw", "a.zarr", "b.vw", "b.zarr"])
def test_tables_are_the_same_and_names_are_read_as_needed(job, source, never_whole, monkeypatch):
    monkeypatch.setattr("streammach.prediction.memory.READ_ROWS", 16)
    for name in ("a.tsv", "a.csv", "a.jsonl", "a.parquet"):
        for model in MODELS:
            sm.predict(model, source, f"{model}-{name}", k=3)
        plain, packed = ((job / f"{model}-{name}").read_bytes() for model in MODELS)
        assert plain == packed
        assert len(plain) > 3000


@pytest.mark.parametrize("source", ["a.vw", "a.zarr", "b.vw", "b.zarr"])
def test_figures_are_the_same(job, source):
    plain, packed = (sm.evaluate(model, source) for model in MODELS)
    assert plain.n_unseen == packed.n_unseen == (14 if source.startswith("b") else 0)
    assert dataclasses.replace(plain, seconds=0) == dataclasses.replace(packed, seconds=0)


def test_rows_in_memory_have_the_same_labels(job, never_whole):
    plain, packed = (sm.Model.load(model) for model in MODELS)
    d = len(plain.features)
    rows = sp.csr_array(sp.random(50, d, 0.2, "csr", np.float32, np.random.default_rng(1)))
    columns = [plain.features.raw(i) for i in range(d)]
    assert np.array_equal(*(m.predict(rows, columns=columns) for m in (plain, packed)))
    with sm.Predictor(plain) as first, sm.Predictor(packed) as second:
        for k in (1, 5, 40):
            found = [p.topk(rows, k, columns=columns)[0] for p in (first, second)]
            assert found[0].dtype == found[1].dtype
            assert np.array_equal(*found)
            assert np.array_equal(*(p.query([3, 4], k=k)[0] for p in (first, second)))
        ids = np.array([[3, -1], [-1, 39]])
        assert first.labels(ids).tolist() == second.labels(ids).tolist()
        assert first.labels(ids)[0, 1] == ""


def test_a_service_answers_the_same(job, never_whole):
    served = [Loader(ServiceLimits(), Computing()).load("m", job / model, 0) for model in MODELS]
    name = served[0]._predictor.model.features.raw(0).decode()
    question = Question([{name: 1.0}, {}], [0, 0], [1, 1], 5, probabilities=False)
    plain, packed = (one.predicted([question]) for one in served)
    assert plain == packed
    for one in served:
        one.close()


def test_classes_are_added_to_either(job):
    for model in MODELS:
        sm.add(model, "c.vw", f"{model}-more", threads=1)
    plain, packed = ((job / f"{model}-more/model.safetensors").read_bytes() for model in MODELS)
    assert plain == packed


def test_the_list_is_counted_where_it_is_made(job):
    plain, packed = (size_in_file(model) for model in MODELS)
    assert (plain.labels, packed.labels) == (0, 8 * 41 + packed.names[0][1])
    for source, labels, more in (
        ("b.vw", True, packed.labels), ("b.vw", False, 0), ("b.zarr", True, packed.labels),
        ("b.zarr", False, 0), ("a.zarr", True, 0),
    ):  # fmt: skip
        found = [Input.of(source, held, labels=labels).names for held in (plain, packed)]
        assert found[1] - found[0] == more
    rooms = [room_before(model, "predict", "b.zarr", 5, memory=GB) for model in MODELS]
    lines = [{line.name: line.n_bytes for line in room.lines} for room in rooms]
    names = sm.Model.load("packed").labels
    assert lines[0].pop("model") - lines[1].pop("model") == packed.labels - names.n_bytes
    assert {**lines[0], "loading": 0} == {**lines[1], "loading": 0}
