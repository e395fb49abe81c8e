"""docs/store-format.md holds: other programs read a store as it says, and get the source's rows."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from streammach.conversion.convert import convert
from streammach.options.types import STORE_FORMAT
from streammach.store.root import OF_LISTS, Root
from streammach.store.stored_arrays import CHUNK, SHARD_CHUNKS, shuffle_of
from streammach.store.writer import ARRAY_ENCODING, _encode, array_of, group_of

PAGE = Path(__file__).parents[2] / "docs" / "store-format.md"
MASK = 2**64 - 1


def mix(x):
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def key(seed, source, place):
    return mix((mix((mix(seed) + source) & MASK) + place) & MASK)


def ranked(names):
    """Names by falling count, ties by their bytes."""
    counts = {name: names.count(name) for name in names}
    return sorted(counts, key=lambda name: (-counts[name], name))


def made(folder, rng, *, whole=True, seed=5):
    """A store, and what the page says that it holds: matrix, labels, names in their order."""
    texts, rows = [], []
    for source in range(2):
        place, lines = 0, []
        for _ in range(150):
            label = b"l%d" % rng.integers(12) if rng.random() < 0.9 else b"\xc3\xa4"
            names = [b"w^f%d" % j for j in rng.choice(40, rng.integers(0, 6), replace=False)]
            values = [int(v) if whole else v / 8 for v in rng.integers(0, 255, len(names)).tolist()]
            pairs = zip(names, values, strict=True)
            features = b" ".join(b"%s:%s" % (n[2:], repr(v).encode()) for n, v in pairs)
            lines.append(b"%s |w %s" % (label, features))
            names = [name for name, value in zip(names, values, strict=True) if value]
            rows.append((key(seed, source, place), label, names, [v for v in values if v]))
            place += len(lines[-1]) + 1
        texts.append(folder / f"{source}.vw")
        texts[-1].write_bytes(b"\n".join(lines) + b"\n")
    done = convert(texts, folder / "out.zarr", seed=seed)
    rows.sort(key=lambda row: row[0])
    labels = ranked([label for _, label, _, _ in rows])
    features = ranked([name for _, _, names, _ in rows for name in names])
    at = [
        (i, features.index(n), v) for i, r in enumerate(rows) for n, v in zip(*r[2:], strict=True)
    ]
    i, j, v = (np.array(part) for part in zip(*at, strict=True))
    matrix = sp.csr_array((v.astype(np.float32), (i, j)), shape=(len(rows), len(features)))
    return done, matrix, [labels.index(row[1]) for row in rows], labels, features


def names_of(group):
    ends, data = group["offsets"][:], group["bytes"][:].tobytes()
    return [data[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("whole", [True, False])
def test_plain_zarr_finds_the_rows_of_the_source(whole, tmp_path, rng):
    done, matrix, classes, labels, features = made(tmp_path, rng, whole=whole)
    store = zarr.open_group(tmp_path / "out.zarr", mode="r")
    part = store["X"]
    found = sp.csr_array(
        (part["data"][:], part["indices"][:], part["indptr"][:]), shape=part.attrs["shape"]
    )
    assert found.has_canonical_format
    assert part["data"].dtype == (np.uint8 if whole else np.float32)
    assert np.array_equal(found.toarray(), matrix.toarray())
    assert found.nnz == matrix.nnz == done.nnz  # values of 0 are none
    assert store["y"][:].tolist() == classes
    assert names_of(store["labels"]) == labels
    assert names_of(store["features"]) == features
    assert store["labels"].attrs["kind"] == store["features"].attrs["kind"] == "utf8"
    assert store["labels/count"][:].tolist() == np.bincount(classes).tolist()
    assert store["features/count"][:].tolist() == np.diff(matrix.tocsc().indptr).tolist()


@pytest.mark.parametrize("whole", [True, False])
def test_anndata_finds_the_rows_of_the_source(whole, tmp_path, rng):
    anndata = pytest.importorskip("anndata")
    _, matrix, classes, *_ = made(tmp_path, rng, whole=whole)
    store = zarr.open_group(tmp_path / "out.zarr", mode="r")
    found = anndata.io.read_elem(store["X"])
    assert found.format == "csr"
    assert np.array_equal(found.toarray(), matrix.toarray())
    some = anndata.io.sparse_dataset(store["X"])[20:30]
    assert np.array_equal(some.toarray(), matrix[20:30].toarray())
    assert anndata.io.read_elem(store["y"]).tolist() == classes


def documents(store):
    return {f.parent.relative_to(store).as_posix(): json.loads(f.read_text())
            for f in store.rglob("zarr.json")}  # fmt: skip


def test_metadata_are_those_of_the_page(tmp_path, rng):
    made(tmp_path, rng)
    page = PAGE.read_text()
    found = documents(tmp_path / "out.zarr")
    root = found.pop(".")["attributes"]["streammach"]
    assert f"Format number: {STORE_FORMAT}." in page
    table = page[page.index("## The root document") : page.index("## The manifest")]
    said = {
        name
        for row in re.findall(r"^\| ([a-z_, ]+) \|", table, re.MULTILINE)
        for name in row.split(", ")
    } - {"field"}
    assert said == set(Root.__struct_fields__)
    assert set(root) == said - {*OF_LISTS, "recipe"}
    for name, document in found.items():
        if document["node_type"] == "group":
            assert name in ("X", "labels", "features")
            continue
        assert name.partition("/")[0] in ("X", "y", "row", "labels", "features")
        assert document["chunk_grid"]["configuration"]["chunk_shape"] == [16777216]
        (sharding,) = document["codecs"]
        inner = sharding["configuration"]
        assert (inner["chunk_shape"], inner["index_location"]) == ([65536], "end")
        assert [c["name"] for c in inner["codecs"]] == ["bytes", "blosc", "crc32c"]
        wide = document["data_type"] in ("int64", "int32")
        blosc = inner["codecs"][1]["configuration"]
        assert blosc == {
            "typesize": np.dtype(document["data_type"]).itemsize, "cname": "lz4", "clevel": 5,
            "shuffle": "shuffle" if wide else "bitshuffle", "blocksize": 0,
        }  # fmt: skip


def test_the_files_are_those_of_the_page(tmp_path, rng):
    made(tmp_path, rng)
    store = tmp_path / "out.zarr"
    manifest = json.loads((store / "manifest.json").read_text())
    files = {f.relative_to(store).as_posix() for f in store.rglob("*") if f.is_file()}
    assert files == {"zarr.json", "manifest.json", *manifest["files"], *manifest["metadata"]}
    assert list(manifest["files"]) == sorted(manifest["files"])
    for name, facts in manifest["files"].items():
        body = (store / name).read_bytes()
        assert (len(body), int.from_bytes(body[-4:], "little")) == (facts["size"], facts["tail"])
        table = np.frombuffer(body[-4100:-4], "<u8").reshape(256, 2)
        used = table[table[:, 0] != MASK]
        assert used[:, 0].tolist() == [0, *np.cumsum(used[:, 1]).tolist()[:-1]]
        assert int(used[:, 1].sum()) == len(body) - 4100


def test_the_example_of_the_page_runs(tmp_path, rng, monkeypatch):
    pytest.importorskip("anndata")
    _, matrix, classes, labels, _ = made(tmp_path, rng)
    (tmp_path / "out.zarr").rename(tmp_path / "train.zarr")
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(import anndata.*?)```", PAGE.read_text(), re.DOTALL)
    found = {}
    exec(code[1], found)
    assert np.array_equal(found["matrix"].toarray(), matrix.toarray())
    assert (found["classes"].tolist(), found["names"]) == (classes, labels)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.float32])
def test_documents_are_those_that_zarr_writes(dtype):
    kept = {}
    store, dtype = zarr.storage.MemoryStore(kept), np.dtype(dtype)
    said = {"streammach": {"source": ["\u00fc \u65e5"], "weight": 0.5, "none": None}}
    zarr.create_group(store, attributes=said)
    zarr.create_array(
        store, name="a", shape=(70_000,), dtype=dtype, chunks=(CHUNK,), fill_value=0,
        shards=(CHUNK * SHARD_CHUNKS,), attributes=ARRAY_ENCODING,
        compressors=[
            zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle=shuffle_of(dtype)),
            zarr.codecs.Crc32cCodec(),
        ],
    )  # fmt: skip
    group, array = (json.loads(kept[name].to_bytes()) for name in ("zarr.json", "a/zarr.json"))
    group.pop("consolidated_metadata", None)  # null, as zarr 3.1.2 has it
    assert json.loads(_encode(group_of(said))) == group
    assert json.loads(_encode(array_of(70_000, dtype))) == array
