"""Exploring: what the start of a source says, in little time, whatever the source's size."""

import dataclasses
import gzip
import json

import numpy as np
import pytest
import scipy.sparse as sp

import streammach
from streammach.cli.main import main
from streammach.conversion import explore as module
from streammach.conversion.convert import convert
from streammach.conversion.explore import explore
from streammach.system.errors import DataError, UsageError
from tests.inputs.test_anndata import made
from tests.inputs.test_matrix_sources import LABELS, X, save_npz


def stored_bytes(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@pytest.fixture
def small(monkeypatch):
    """Samples of a few kB, of blocks that are smaller still."""
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(module, "SAMPLE_TEXT", 1 << 14)


def test_a_source_that_is_read_whole_is_counted(tiny):
    path = tiny.text("r.vw", [*tiny.lines(300, 20), "bad |w x:nan", "b |w x:inf"])
    found, done = explore(path), convert(path, tiny.folder / "o", on_bad_row="skip")
    assert found.exact
    assert (found.rows, found.nnz) == (done.n_rows, done.nnz) == (300, found.sample_nnz)
    assert (found.sample_classes, found.sample_features) == (done.n_classes, done.n_features)
    assert found.skipped == done.skipped == {"value ... is not a finite float32": 2}
    assert (found.label_kind, found.value_kind) == ("utf8", "uint8")
    assert found.max_row_nnz == 5
    assert found.sources[0].rows == found.sources[0].sample_rows == 302
    assert 0.5 < found.store_bytes / stored_bytes(tiny.folder / "o") < 2


@pytest.mark.parametrize("zipped", [False, True])
def test_the_rest_is_estimated_from_the_start(zipped, tiny, small):
    path = tiny.text("r.vw", tiny.lines(4000, 50), zipped=zipped)
    found, done = explore(path), convert(path, tiny.folder / "o")
    assert not found.exact
    assert 100 < found.sample_rows < 1000
    assert found.rows == pytest.approx(done.n_rows, rel=0.1)
    assert found.nnz == pytest.approx(done.nnz, rel=0.1)
    assert found.sources[0].text_bytes == pytest.approx(4000 * 60, rel=0.2)
    assert found.store_bytes == pytest.approx(stored_bytes(tiny.folder / "o"), rel=0.5)
    assert 0 < found.seconds < 60
    assert found.scratch_bytes > 8 * found.nnz


def test_the_end_of_a_large_source_is_not_read(tiny, small):
    good = "\n".join(tiny.lines(2000, 20)).encode() + b"\n"
    (tiny.folder / "r.vw").write_bytes(good + b"x |w a:nan\n" * 2000)
    assert explore(tiny.folder / "r.vw").skipped == {}
    (tiny.folder / "r.gz").write_bytes(gzip.compress(good * 9)[:-100])
    assert explore(tiny.folder / "r.gz").sample_rows < 1000


def test_bad_rows_without_end_are_not_waited_for(tiny, small, monkeypatch):
    monkeypatch.setattr(module, "MOST_READ", 1 << 15)
    path = tiny.text("r.vw", ["x |w a:nan"] * 9000)
    with pytest.raises(DataError, match=r"no row of the sample.*\(value ... is not a finite"):
        explore(path)
    found = explore(tiny.text("s.vw", ["a |w x"] + ["x |w a:nan"] * 9000))
    assert found.sample_rows == 1
    assert 0 < found.skipped["value ... is not a finite float32"] < 9000


def test_matrices_say_their_rows(tmp_path, monkeypatch):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", LABELS)
    npz = save_npz(tmp_path / "a.npz", X, y=LABELS)
    for path in (tmp_path / "X.npy", npz, made(tmp_path / "a.zarr", sp.csr_array(X))):
        found = explore(path)
        assert (found.rows, found.nnz, found.sample_features, found.exact) == (5, 7, 3, True)
        assert (found.label_kind, found.value_kind) == ("integer", "float32")
        assert found.sources[0].note != ""
    monkeypatch.setattr("streammach.inputs.matrices.matrix.PIECE_VALUES", 3)
    monkeypatch.setattr(module, "SAMPLE_VALUES", 2)
    found = explore(npz)
    assert (found.sample_rows, found.sources[0].rows, found.exact) == (3, 5, False)
    assert found.sources[0].exact


def test_several_sources_are_added_up(tiny):
    one, two = tiny.text("1.vw", ["a |w x"] * 30), tiny.text("2.svm", ["1 3:0.5 4:1"] * 20)
    found = explore([one, two])
    assert (found.rows, found.nnz, found.sample_features) == (50, 70, 3)
    assert [source.form for source in found.sources] == ["vw", "svmlight"]
    assert found.mean_row_nnz == 1.4
    assert found.value_kind == "float32"


def test_of_many_sources_some_are_read(tiny, monkeypatch):
    monkeypatch.setattr(module, "MOST_SOURCES", 3)
    paths = [tiny.text(f"{i}.vw", ["a |w x y"] * 40) for i in range(10)]
    found = explore(paths)
    assert (found.rows, found.nnz, found.sample_rows, found.exact) == (400, 800, 120, False)
    assert [source.sample_rows for source in found.sources] == [40, 0, 0, 0, 40, 0, 0, 0, 0, 40]


def test_rows_without_features_are_no_reason_to_stop(tiny):
    found = explore(tiny.text("r.vw", ["a |", "b |"]))
    assert (found.rows, found.nnz, found.sample_classes, found.sample_features) == (2, 0, 2, 0)


def test_wrong_calls_are_refused(tiny):
    with pytest.raises(UsageError, match="no such file"):
        explore(tiny.folder / "none")
    with pytest.raises(UsageError, match="no source"):
        explore([])
    with pytest.raises(UsageError, match="2 files of labels for 1 sources"):
        explore(tiny.text("r.vw", ["a |w x"]), labels=["a", "b"])
    with pytest.raises(DataError, match="store already"):
        explore(tiny.store())


def test_the_command_prints_what_it_found(tiny, capsys):
    path = tiny.text("r.vw", [*tiny.lines(60, 7), "b |w x:nan"])
    assert main(["explore", str(path)]) == 0
    out = capsys.readouterr().out
    assert ": vw, " in out
    assert "all 61 rows: 7 classes" in out
    assert "1 value ... is not a finite float32" in out
    assert "on one core" in out
    assert main(["explore", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == 60
    assert said["skipped"] == {"value ... is not a finite float32": 1}
    assert {f.name for f in dataclasses.fields(module.Exploration)} <= said.keys()
    assert main(["explore", str(tiny.folder / "none")]) == 2


def test_it_is_a_public_name(tiny):
    assert streammach.explore is explore
