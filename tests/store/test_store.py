"""The store: readable by anyone, damaged by no one in silence."""

import json
import shutil

import numpy as np
import pytest
import scipy.sparse
import zarr

from streammach.conversion.convert import convert
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from streammach.store.blobs import Folder
from streammach.store.dataset import Dataset
from streammach.store.root import RootFacts, StoredSource
from streammach.store.stored_arrays import CHUNK, ArrayReader, ArrayWriter
from streammach.store.writer import StoreWriter
from streammach.system.errors import StoreError, StreammachError, UsageError


def write_array(folder, values):
    writer = ArrayWriter(folder, values.dtype)
    for piece in np.array_split(values, 7):
        writer.append(piece)
    writer.close()
    return writer


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float32])
@pytest.mark.parametrize("n", [1, CHUNK, CHUNK * 2 + 17])
def test_shards_have_the_bytes_of_zarr_and_are_read_by_it(dtype, n, tmp_path, rng):
    values = (rng.zipf(1.3, n) % 250).astype(dtype)
    writer = write_array(tmp_path / "own", values)
    shuffle = "shuffle" if np.dtype(dtype).itemsize >= 4 and dtype != np.float32 else "bitshuffle"
    theirs = zarr.create_array(
        tmp_path / "theirs", shape=(n,), dtype=dtype, chunks=(CHUNK,), shards=(CHUNK * 256,),
        fill_value=0, compressors=[
            zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle=shuffle),
            zarr.codecs.Crc32cCodec(),
        ],
    )  # fmt: skip
    theirs[:] = values
    assert (tmp_path / "own/c/0").read_bytes() == (tmp_path / "theirs/c/0").read_bytes()
    reader = ArrayReader(Folder(tmp_path), "own", np.dtype(dtype), n, writer.files)
    assert np.array_equal(reader.read(0, n), values)
    for _ in range(20):
        a, b = sorted(rng.integers(0, n + 1, 2).tolist())
        assert np.array_equal(reader.read(a, b), values[a:b])


def test_values_run_on_across_shards(tmp_path, rng):
    values = rng.integers(0, 3, CHUNK * 256 + CHUNK + 5).astype(np.uint8)
    writer = write_array(tmp_path / "a", values)
    assert sorted(writer.files) == ["c/0", "c/1"]
    reader = ArrayReader(Folder(tmp_path), "a", values.dtype, len(values), writer.files)
    a = CHUNK * 256 - 10
    assert np.array_equal(reader.read(a, a + 20), values[a : a + 20])
    assert list(reader.verify(deep=True)) == []


def test_plain_zarr_reads_what_scipy_would_build(tiny):
    path = tiny.store()
    group = zarr.open_group(path, mode="r")
    x = group["X"]
    assert dict(x.attrs) == {
        "encoding-type": "csr_matrix", "encoding-version": "0.1.0",
        "shape": [600, group.attrs["streammach"]["features"]],
    }  # fmt: skip
    matrix = scipy.sparse.csr_matrix(
        (x["data"][:], x["indices"][:], x["indptr"][:]), x.attrs["shape"]
    )
    matrix.check_format(full_check=True)
    assert matrix.has_canonical_format
    lines = (path.parent / "train.zarr.vw").read_text().splitlines()
    assert matrix.sum() == sum(
        float(token.partition(":")[2] or 1)
        for line in lines for part in line.split("|")[1:] for token in part.split()[1:]
    )  # fmt: skip
    assert np.bincount(group["y"][:]).tolist() == group["labels/count"][:].tolist()


def test_names_counts_and_rows_come_back(tiny):
    with tiny.dataset() as data:
        names = [data.labels.label(i) for i in range(data.n_classes)]
        assert sorted(names) == sorted(f"class-{i}" for i in range(30))
        assert (np.diff(data.label_counts) <= 0).all()
        assert (np.diff(data.feature_counts) <= 0).all()
        whole = data.rows(0, data.n_rows)
        part = data.rows(100, 120)
        assert part.classes.tolist() == whole.classes[100:120].tolist()
        a, b = whole.indptr[100], whole.indptr[120]
        assert part.features.tolist() == whole.features[a:b].tolist()
        assert part.values.tolist() == whole.values[a:b].tolist()
        assert data.facts.max_row_nnz == np.diff(whole.indptr).max()


def test_a_sound_store_verifies(tiny):
    with tiny.dataset() as data:
        assert data.verify() == []


def files_of(path):
    return sorted(p for p in path.rglob("*") if p.is_file())


def test_every_flipped_byte_is_found(tiny, rng):
    """A byte anywhere in any file: open, verify or reading refuses it."""
    path = tiny.store(n_rows=80)
    for file in files_of(path):
        content = file.read_bytes()
        for at in rng.integers(0, len(content), 4):
            damaged = bytearray(content)
            damaged[at] ^= 1 << int(rng.integers(8))
            file.write_bytes(damaged)
            assert _damage_is_seen(path, at, content), (file, at)
        file.write_bytes(content)


def _damage_is_seen(path, at, content):
    try:
        with Dataset.open(path) as data:
            return bool(data.verify()) or _harmless(path, content)
    except StreammachError:
        return True


def _harmless(path, content):
    """A flip in the root document that leaves its meaning: white space, or a free text field."""
    root = path / "zarr.json"
    try:
        return content.startswith(b"{") and json.loads(root.read_bytes())["node_type"] == "group"
    except (ValueError, KeyError):
        return False


@pytest.mark.parametrize(
    "kind", ["missing", "empty", "cut", "longer", "swapped", "foreign", "link"]
)
def test_files_that_are_not_those_of_the_manifest_are_refused(kind, tiny):
    path = tiny.store()
    victim = path / "X/indices/c/0"
    content = victim.read_bytes()
    if kind == "missing":
        victim.unlink()
    elif kind == "empty":
        victim.write_bytes(b"")
    elif kind == "cut":
        victim.write_bytes(content[:-7])
    elif kind == "longer":
        victim.write_bytes(content + b"x")
    elif kind == "swapped":
        victim.write_bytes((path / "X/data/c/0").read_bytes())
    elif kind == "foreign":
        (path / "X/extra").write_bytes(b"x")
    else:
        other = path.parent / "elsewhere"
        shutil.move(victim, other)
        victim.symlink_to(other)
    with pytest.raises(StoreError, match="damaged"):
        Dataset.open(path)


def test_a_small_file_of_another_store_with_the_same_table_is_refused(tiny):
    paths = [tiny.folder / name for name in ("one", "other")]
    for path, label in zip(paths, ("aa", "aaaa"), strict=True):
        convert(tiny.text(f"{path.name}.vw", ["a |w x y", f"{label} |w x"]), path)
    names = [path / "labels/offsets/c/0" for path in paths]
    assert [name.stat().st_size for name in names] == [names[0].stat().st_size] * 2
    shutil.copyfile(names[1], names[0])
    with Dataset.open(paths[0]) as data, pytest.raises(StoreError, match="digest is wrong"):
        data.labels  # noqa: B018  # reads them


def change_root(path, **changes):
    document = json.loads((path / "zarr.json").read_text())
    document["attributes"]["streammach"].update(changes)
    (path / "zarr.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "its format is 2, this release reads 1"),
        ({"complete": False}, "not complete"),
        ({"manifest": "0" * 64}, "zarr.json was changed"),
        ({"rows": 599}, "zarr.json was changed"),
        ({"rows": "many"}, "not a store"),
    ],
)
def test_a_store_that_says_something_else_is_refused(changes, message, tiny):
    path = tiny.store()
    change_root(path, **changes)
    with pytest.raises(StoreError, match=message):
        Dataset.open(path)


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no such store"):
        Dataset.open(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"it has no zarr\.json"):
        Dataset.open(tmp_path / "empty")
    zarr.create_group(tmp_path / "plain")
    with pytest.raises(StoreError, match="not a store"):
        Dataset.open(tmp_path / "plain")


def test_rows_with_weights_keep_them(tmp_path):
    writer = StoreWriter(tmp_path / "s", np.float32, block_rows=100, weighted=True)
    writer.append_rows(RowBlock(
        indptr=np.array([0, 1, 2]), features=np.array([0, 1], np.int32),
        values=np.array([0.5, 2], np.float32), classes=np.array([1, 0], np.int32),
        importance=np.array([3, 0.25], np.float32), numbers=np.array([1, 0]),
    ))  # fmt: skip
    writer.add_names("labels", Names.of(["a", "b"]), np.array([1, 1]))
    writer.add_names("features", Names.of(["x", "y"]), np.array([1, 1]))
    source = StoredSource(name="s", format="vw", bytes=1, crc32c="", rows=2)
    writer.finish(RootFacts(
        rows=2, classes=2, features=2, nnz=2, pairs=2, max_row_nnz=1, block_rows=2,
        max_block_nnz=2, seed=0, options={}, source=[source], skipped={}, counts={},
    ))  # fmt: skip
    with Dataset.open(tmp_path / "s") as data:
        assert data.weighted
        assert data.rows(0, 2).importance.tolist() == [3, 0.25]
        assert data.verify() == []
