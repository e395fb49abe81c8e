"""A source is the same at the start, at the end and when a store of it is used again."""

import os
import shutil

import numpy as np
import pytest
import scipy.sparse

from streammach.conversion import folder
from streammach.conversion.convert import convert
from streammach.conversion.request import difference_from
from streammach.inputs.source_options import GUESSED, SourceOptions
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError
from tests.conversion.test_conversion import cut_off, mixed_lines


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Several pieces of little data."""
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)


def cut_short(path):
    os.truncate(path, path.stat().st_size // 2)


def grown(path):
    with open(path, "ab") as file:
        file.write(b"class-1 |w own1_1\n")


def written_again(path):
    path.write_bytes(path.read_bytes())


@pytest.mark.parametrize("change", [cut_short, grown, written_again])
@pytest.mark.parametrize("number", [0, 1])
def test_a_source_that_changes_while_it_is_read_is_refused(change, number, tiny):
    sources = [tiny.text(f"{i}.vw", tiny.lines(2000, 30)) for i in range(2)]

    def meanwhile(stage, done, total):
        if stage == "read" and not changed:
            changed.append(change(sources[number]))

    changed = []
    with pytest.raises(DataError, match="it was changed while it was read"):
        convert(sources, tiny.folder / "out", progress=meanwhile)
    assert sorted(p.name for p in tiny.folder.iterdir()) == ["0.vw", "1.vw"]


def test_a_matrix_or_its_labels_that_change_are_refused(tiny, rng, monkeypatch):
    monkeypatch.setattr("streammach.inputs.matrices.matrix.PIECE_VALUES", 500)
    matrix = scipy.sparse.random(600, 40, 0.2, "csr", np.float32, rng)
    path, labels = tiny.folder / "m.npz", tiny.folder / "y.npy"
    scipy.sparse.save_npz(path, matrix)
    np.save(labels, rng.integers(0, 9, 600))
    for file in (path, labels):
        with pytest.raises(DataError, match="it was changed while it was read"):
            convert(
                path, tiny.folder / "out", labels=[labels],
                progress=lambda stage, done, total, file=file: os.utime(file),
            )  # fmt: skip
    assert sorted(p.name for p in tiny.folder.iterdir()) == ["m.npz", "y.npy"]


def swapped(path, a, b):
    """Exchange words of the same length; bytes and time of the file stay."""
    facts = path.stat()
    path.write_bytes(path.read_bytes().replace(a, b"?").replace(b, a).replace(b"?", b))
    assert path.stat().st_size == facts.st_size
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize("changed", ["finished", "begun"])
def test_an_interrupted_conversion_of_other_content_starts_anew(changed, tiny, monkeypatch):
    monkeypatch.setattr(folder.ConversionMemory, "room", lambda self, *others: 40_000)
    sources = [tiny.text(f"{i}.vw", mixed_lines(tiny, 900)) for i in range(2)]
    cut_off(monkeypatch, 4, sources, tiny.folder / "out")
    assert len(list((tiny.folder / ".out.partial/runs").iterdir())) == 3
    swapped(sources[changed == "begun"], b"class-1 ", b"class-2 ")
    with pytest.warns(UserWarning, match="what was kept of it is read again"):
        found = convert(sources, tiny.folder / "out")
    assert not found.resumed
    assert found.digest == convert(sources, tiny.folder / "anew").digest


def test_an_interrupted_conversion_of_a_matrix_compares_its_rows(tiny, rng, monkeypatch):
    monkeypatch.setattr("streammach.inputs.matrices.matrix.PIECE_VALUES", 500)
    monkeypatch.setattr(folder.ConversionMemory, "room", lambda self, *others: 20_000)
    x = rng.integers(0, 3, (400, 30)).astype(np.float32)
    path = tiny.folder / "x.npy"
    np.save(path, x)
    np.save(tiny.folder / "y.npy", rng.integers(0, 9, 400))
    options = {"labels": [tiny.folder / "y.npy"]}
    cut_off(monkeypatch, 3, path, tiny.folder / "out", **options)
    facts = path.stat()
    x[5] = 7
    np.save(path, x)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.warns(UserWarning, match="what was kept of it is read again"):
        found = convert(path, tiny.folder / "out", **options)
    assert found.digest == convert(path, tiny.folder / "anew", **options).digest


def asked(store, sources, options=GUESSED, **changes):
    given = {"like": None, "on_bad_row": "error", "seed": 0, **changes}
    return difference_from(store, sources, [options] * len(sources), **given)


def test_a_store_is_told_from_that_of_another_request(tiny):
    source, other = (tiny.text(f"{i}.vw", tiny.lines(300, 30)) for i in range(2))
    store = tiny.folder / "s"
    convert(source, store)
    assert asked(store, [source]) is None
    assert "2 are named" in asked(store, [source, other])
    assert "another --like" in asked(store, [source], like=store)
    assert "another --on-bad-row" in asked(store, [source], on_bad_row="skip")
    assert "--seed 0" in asked(store, [source], seed=1)
    assert "other content" in asked(store, [other])
    os.utime(source)
    assert asked(store, [source]) is None  # the time alone is no other content
    swapped(source, b"class-1 ", b"class-2 ")
    assert "other content" in asked(store, [source])


def test_stores_of_equal_rows_and_other_recipes_are_not_taken_for_one_another(tiny, monkeypatch):
    for name, more in (("a", 0.0), ("b", 0.2)):  # lie in the same bins, whose edges differ
        lines = [f"w{i % 5} x,{i % 7 + more:.1f},l{i % 3}" for i in range(900)]
        (tiny.folder / f"{name}.csv").write_text("t,n,y\n" + "\n".join(lines) + "\n")
        convert(tiny.folder / f"{name}.csv", tiny.folder / name, text="t", number="n", label="y")
    a, b, new = (tiny.folder / name for name in ("a", "b", "new.csv"))
    new.write_text("t,n,y\n" + "".join(f"w1 x,{i % 70 / 10},l1\n" for i in range(2000)))
    with Dataset.open(a) as one, Dataset.open(b) as other:
        assert (one.digest, one.root.recipe) != (other.digest, other.root.recipe)
        assert one.digest == other.digest
    convert(new, tiny.folder / "s", like=a)
    assert asked(tiny.folder / "s", [new], like=a) is None
    assert "another --like" in asked(tiny.folder / "s", [new], like=b)
    monkeypatch.setattr(folder.ConversionMemory, "room", lambda self, *others: 40_000)
    cut_off(monkeypatch, 2, new, tiny.folder / "out", like=a)
    found = convert(new, tiny.folder / "out", like=b)
    assert found.digest == convert(new, tiny.folder / "anew", like=b).digest
    assert found.digest != convert(new, tiny.folder / "anew", like=a, force=True).digest


def test_labels_and_paths_of_a_matrix_are_part_of_the_request(tiny, rng):
    path = tiny.folder / "m.npz"
    matrix = scipy.sparse.random(60, 20, 0.3, "csr", np.float32, rng)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr,
             "shape": matrix.shape, "format": b"csr"}  # fmt: skip
    np.savez(path, **parts, a=rng.integers(0, 5, 60), b=rng.integers(0, 5, 60))
    store = tiny.folder / "s"
    convert(path, store, y_path="a")
    assert asked(store, [path], SourceOptions(y_path="a")) is None
    assert "another --y-path" in asked(store, [path], SourceOptions(y_path="b"))
    np.save(tiny.folder / "y.npy", np.arange(60) % 7)
    by_file = SourceOptions(labels=tiny.folder / "y.npy")
    assert "another --labels" in asked(store, [path], by_file)
    convert(path, store, labels=[tiny.folder / "y.npy"], force=True)
    assert asked(store, [path], by_file) is None
    np.save(tiny.folder / "y.npy", np.arange(60) % 8)
    assert "another --labels" in asked(store, [path], by_file)


def test_the_digest_of_a_folder_is_that_of_the_files_it_is_read_from(tiny, rng):
    folder = tiny.folder / "x.zarr"
    convert(tiny.text("s.svm", [f"{i % 5} 1:{i} 2:3" for i in range(1, 50)]), tiny.folder / "st")
    shutil.copytree(tiny.folder / "st", folder)
    import zarr

    del zarr.open_group(folder).attrs["streammach"]
    options = SourceOptions(x_path="X", y_path="y")
    convert(folder, tiny.folder / "out", x_path="X", y_path="y")
    assert asked(tiny.folder / "out", [folder], options) is None
    (folder / "labels/zarr.json").write_text("{}")  # not read
    assert asked(tiny.folder / "out", [folder], options) is None
    with open(folder / "X/data/c/0", "ab") as file:
        file.write(b"0")
    assert "other content" in asked(tiny.folder / "out", [folder], options)


def test_a_name_that_is_not_utf8_is_kept_escaped(tiny):
    source = os.fsdecode(os.fsencode(tiny.folder) + b"/\xff\xfe.vw")
    shutil.copy(tiny.text("a.vw", tiny.lines(50, 5)), source)
    convert(source, tiny.folder / "s")
    with Dataset.open(tiny.folder / "s") as data:
        assert data.root.source[0].name == "\\xff\\xfe.vw"
    assert asked(tiny.folder / "s", [source]) is None
