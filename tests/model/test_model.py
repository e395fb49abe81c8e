"""Models and checkpoints on disk: whole, checked, and nothing else."""

import dataclasses
import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file

from streammach.model.checkpoint import Checkpoints, RunPosition
from streammach.model.model import Model
from streammach.model.tensors import load_tensors, open_tensors, read_tensors, write_tensors
from streammach.options.figures import EpochFigures, HeldOutMetrics
from streammach.system.errors import DivergedError, MismatchError, ModelError, UsageError
from tests.model.models import counts_of, model_of


@pytest.fixture
def model(rng):
    return model_of(rng, validation={"logsum": HeldOutMetrics(0.25, 0.5)})


def test_a_model_comes_back_as_it_was_saved(model, tmp_path):
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    for field in (
        "spec",
        "training",
        "dense",
        "estimator",
        "calibration",
        "store",
        "majority",
        "validation",
    ):
        assert getattr(again, field) == getattr(model, field)
    assert np.array_equal(again.weights, model.weights)
    assert np.array_equal(again.bias, model.bias)
    assert again.labels.same_as(model.labels)
    assert again.features.same_as(model.features)
    assert again.weights.base is None  # in memory of its own: no file is mapped
    assert not again.weights.flags.writeable


def test_what_becomes_of_the_file_changes_no_model_that_was_loaded(counted, tmp_path):
    counted.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    os.truncate(tmp_path / "model/model.safetensors", 0)  # what is mapped would end the process
    for name, array in counted.arrays().items():
        assert again.arrays()[name].tobytes() == array.tobytes()


def test_links_of_a_folder_are_not_followed(model, tmp_path):
    model.save(tmp_path / "blobs")
    (tmp_path / "model").mkdir()
    for file in (tmp_path / "blobs").iterdir():
        (tmp_path / "model" / file.name).symlink_to(file)
    with pytest.raises(ModelError, match=r"model\.json: a link, which is not followed"):
        Model.load(tmp_path / "model")


@pytest.mark.parametrize("how", ["cut short", "another one"])
def test_a_file_that_changes_while_it_is_read_is_damaged(how, tmp_path):
    values = np.arange(300_000, dtype=np.float32)
    facts = write_tensors(tmp_path / "t", {"a": values})

    def change(header):
        if how == "cut short":
            os.truncate(tmp_path / "t", 600_000)
        else:
            write_tensors(tmp_path / "other", {"a": values + 1})
            with open(tmp_path / "t", "r+b") as file:
                file.write((tmp_path / "other").read_bytes())

    with pytest.raises(ModelError, match=r"damaged: (it is cut short|size or checksum is wrong)"):
        load_tensors(tmp_path / "t", facts, change)
    facts = write_tensors(tmp_path / "t", {"a": values})
    with open_tensors(tmp_path / "t", facts) as arrays:
        assert arrays["a"][40:48].tobytes() == values[10:12].tobytes()
        os.truncate(tmp_path / "t", 600_000)
        with pytest.raises(ModelError, match="cut short"):
            arrays["a"][599_990:]


@pytest.fixture
def counted(model, rng):
    """The model with counts beside it."""
    counts = dataclasses.replace(counts_of(rng), hashed=2.5)
    return dataclasses.replace(model, counts=counts, estimator="blend")


def test_counts_come_back_as_they_were_saved(counted, tmp_path):
    counted.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert (again.estimator, again.calibrated_ranking, again.hashed_weight) == (
        "blend",
        "blend",
        2.5,
    )
    for name, array in counted.counts.arrays().items():
        assert np.array_equal(again.counts.arrays()[name], array)
    assert again.n_bytes == counted.n_bytes > counted.counts_bytes > 0


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("starts", lambda a: a[::-1].copy()),
        ("starts", lambda a: a + 1),
        ("classes", lambda a: a + 30),
        ("classes", lambda a: a - 30),
        ("classes", lambda a: a.astype(np.int64)),
        ("gains", lambda a: a[:-1]),
        ("wide_of", lambda a: a + 1),
        ("wide_of", lambda a: a - 1),
        ("wide", lambda a: a[:-1]),
        ("wide", lambda a: a[:, :-1].copy()),
        ("base", lambda a: a[:-1]),
    ],
)
def test_counts_that_lead_out_of_their_arrays_are_refused(name, change, counted, tmp_path):
    counts = dataclasses.replace(counted.counts, **{name: change(getattr(counted.counts, name))})
    dataclasses.replace(counted, counts=counts).save(tmp_path / "model")
    with pytest.raises(ModelError, match=r"the counts are wrong|wrong shape or type"):
        Model.load(tmp_path / "model")


def test_saving_replaces_the_old_model(model, tmp_path):
    model.save(tmp_path / "model")
    with pytest.raises(UsageError, match="it exists already"):
        dataclasses.replace(model, majority=7).save(tmp_path / "model")
    dataclasses.replace(model, majority=7).save(tmp_path / "model", force=True)
    assert Model.load(tmp_path).majority == 7
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]


def test_the_safetensors_library_reads_the_arrays(model, tmp_path):
    model.save(tmp_path / "model")
    arrays = load_file(tmp_path / "model/model.safetensors")
    assert np.array_equal(arrays["weights"], model.weights)
    assert arrays["label_bytes"].tobytes() == model.labels.data.tobytes()


@pytest.mark.parametrize("name", ["weights", "bias", "base"])
def test_numbers_that_are_not_finite_are_never_written(name, counted, tmp_path):
    getattr(counted.counts if name == "base" else counted, name).flat[5] = np.nan
    with pytest.raises(DivergedError, match=f"{name} are not finite"):
        counted.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_every_flipped_byte_is_refused(model, tmp_path, rng):
    model.save(tmp_path / "model")
    file = tmp_path / "model/model.safetensors"
    content = file.read_bytes()
    for at in rng.integers(0, len(content), 60):
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged"):
            Model.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"format": 1', '"format": 9', "format is 9, this release reads 1"),
        ('"points": 0', '"points": 2', "has not the arrays that it should: calibration_right"),
        ('"estimator": "logsum"', '"estimator": "sum"', "damaged"),
        ('"n_features": 12', '"n_features": 13', "wrong shape"),
        ('"dense": false', '"dense": NaN', "damaged"),
        ('"majority": 2', '"majority": 2, "majority": 3', "damaged"),
        ("{", "[" * 40 + "{", "damaged"),
    ],
)
def test_a_document_that_says_something_else_is_refused(old, new, message, model, tmp_path):
    model.save(tmp_path / "model")
    file = tmp_path / "model/model.json"
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(ModelError, match=message):
        Model.load(tmp_path / "model")


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="there is no trained model"):
        Model.load(tmp_path)


def hostile_headers():
    good = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    yield {"a": {**good["a"], "shape": [1 << 62]}}
    yield {"a": {**good["a"], "shape": [-2]}}
    yield {"a": {**good["a"], "data_offsets": [4, 12]}}
    yield {"a": {**good["a"], "dtype": "F64"}}
    yield {**good, "b": good["a"]}
    yield {"a": {**good["a"], "extra": 1}}


@pytest.mark.parametrize("header", list(hostile_headers()))
def test_headers_that_do_not_fit_their_file_are_refused(header, tmp_path):
    """With a right checksum: the header itself must be sound."""
    from streammach.model.tensors import TensorFile
    from streammach.system.files.reading import crc32c

    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + b"\0" * 8
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(ModelError, match="damaged"):
        load_tensors(tmp_path / "t", TensorFile(len(content), crc32c([content])), lambda _: None)


def test_tensors_are_read_only_into_arrays_of_their_shape(tmp_path):
    facts = write_tensors(tmp_path / "t", {"a": np.arange(6, dtype=np.float32).reshape(2, 3)})
    into = np.zeros((2, 3), np.float32)
    read_tensors(tmp_path / "t", facts, {"a": into})
    assert into.tolist() == [[0, 1, 2], [3, 4, 5]]
    for wrong in ({"a": np.zeros((3, 2), np.float32)}, {"b": into}, {"a": into, "b": into}):
        with pytest.raises(ModelError, match="damaged"):
            read_tensors(tmp_path / "t", facts, wrong)


def arrays_of(value):
    return {"weights": np.full((4, 3), value, np.float32), "steps": np.array([int(value)])}


def test_the_newest_whole_checkpoint_is_read(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c", "run")
    assert checkpoints.newest(arrays_of(0)) is None
    checkpoints.save(RunPosition(step=10, best_step=10), arrays_of(1))
    checkpoints.save(RunPosition(step=20, best_step=10), arrays_of(2))
    checkpoints.save(RunPosition(step=30, best_step=10, row=7), arrays_of(3))
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == ["step-10", "step-30"]
    into = arrays_of(0)
    assert checkpoints.newest(into).row == 7
    assert into["weights"][0, 0] == 3
    newest = tmp_path / "c/step-30/state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert checkpoints.newest(into).step == 10
    assert into["weights"][0, 0] == 1
    (tmp_path / "c/step-10/state.json").write_text("{")
    with pytest.raises(ModelError, match="damaged"):
        checkpoints.newest(into)


def test_checkpoints_of_every_epoch_can_be_kept_and_read_into_columns(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c", "run", every_epoch=True)
    done = (EpochFigures(epoch=1, loss=1.0, rows_per_second=1.0, waited_share=0.0, peak_bytes=1),)
    for epoch, row, step in ((0, 5, 4), (1, 0, 8), (1, 3, 9), (2, 0, 16), (2, 3, 17)):
        at = RunPosition(step=step, epoch=epoch, row=row, best_step=16, history=done * epoch)
        checkpoints.save(at, arrays_of(step))
    assert checkpoints.ends() == {1: 8, 2: 16}
    assert sorted(p.name for p in checkpoints.folder.iterdir()) == ["step-16", "step-17", "step-8"]
    whole = {"weights": np.zeros((4, 9), np.float32), "steps": np.zeros(1, np.int64)}
    for i, step in enumerate((16, 8)):
        part = {**whole, "weights": whole["weights"][:, 3 * i : 3 * i + 3]}
        assert checkpoints.read(step, part).epoch == 2 - i
    assert whole["weights"].tolist() == [[16.0] * 3 + [8.0] * 3 + [0.0] * 3] * 4


def test_ends_are_seen_while_another_process_removes_checkpoints(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path / "c", "run", every_epoch=True)
    done = (EpochFigures(epoch=1, loss=1.0, rows_per_second=1.0, waited_share=0.0, peak_bytes=1),)
    for epoch, row, step in ((0, 5, 4), (1, 0, 8)):
        checkpoints.save(
            RunPosition(step=step, epoch=epoch, row=row, history=done * epoch), arrays_of(1)
        )
    monkeypatch.setattr(Checkpoints, "_steps", lambda self: [4, 8, 9])  # the others are gone
    assert checkpoints.ends() == {1: 8}
    (checkpoints.folder / "step-8/state.json").unlink()
    with pytest.raises(ModelError, match="damaged checkpoint"):
        checkpoints.ends()
    monkeypatch.undo()
    checkpoints.remove()
    assert checkpoints.ends() == {}


def test_columns_are_read_some_rows_at_a_time(tmp_path, rng, monkeypatch):
    monkeypatch.setattr("streammach.model.tensors.PIECE", 100)
    monkeypatch.setattr("streammach.model.tensors.LOOKED_AT", 60)
    values = rng.random((37, 6)).astype(np.float32)
    facts = write_tensors(tmp_path / "t", {"a": values})
    into = np.zeros((37, 20), np.float32)
    read_tensors(tmp_path / "t", facts, {"a": into[:, 5:11]})
    assert into[:, 5:11].tobytes() == values.tobytes()
    assert not into[:, :5].any()
    assert not into[:, 11:].any()


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    Checkpoints(tmp_path, "run").save(RunPosition(step=1), arrays_of(1))
    with pytest.raises(MismatchError, match="another store, plan or training"):
        Checkpoints(tmp_path, "other").newest(arrays_of(0))


def test_weights_that_are_not_finite_never_become_a_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c", "run")
    checkpoints.save(RunPosition(step=1), arrays_of(1))
    with pytest.raises(DivergedError):
        checkpoints.save(
            RunPosition(step=2), {**arrays_of(2), "weights": np.array([[np.inf]], np.float32)}
        )
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["step-1"]
