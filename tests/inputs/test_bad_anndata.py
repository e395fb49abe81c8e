"""Folders of Zarr that are refused: damaged, hostile, or of other kinds."""

import json
import os
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from numcodecs import Delta, GZip, Zstd, blosc
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.system.errors import DataError, UsageError
from tests.inputs.test_anndata import CELLS, PLAIN, made, put
from tests.inputs.test_matrix_sources import X


def edit(path, **changes):
    document = json.loads(path.read_text())
    for name, value in changes.items():
        document[name] = value
    path.write_text(json.dumps(document))


def linked_chunk(path):
    chunk = path / "X/data/c/0"
    chunk.rename(path.parent / "secret")
    chunk.symlink_to(path.parent / "secret")


def linked_folder(path):
    (path / "X").rename(path.parent / "moved")
    (path / "X").symlink_to(path.parent / "moved")


def linked_metadata(path):
    (path / "zarr.json").rename(path.parent / "z.json")
    (path / "zarr.json").symlink_to(path.parent / "z.json")


def pipe(path):
    (path / "X/data/c/0").unlink()
    os.mkfifo(path / "X/data/c/0")


def replaced(name, **options):
    """An array written anew with other options."""

    def change(path):
        root = zarr.open_group(path)
        values = root[name][...]
        del root[name]
        with zarr.config.set(PLAIN), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            put(root, name, options.get("values", values), **options.get("to", {}))

    return change


def grid(size):
    return {"name": "regular", "configuration": {"chunk_shape": [size]}}


def bomb(body):
    def change(path):
        numbers = {"name": "bytes", "configuration": {"endian": "little"}}
        edit(path / "X/data/zarr.json", codecs=[numbers, body[0]])
        (path / "X/data/c/0").write_bytes(body[1])

    return change


BLOSC_BOMB = bytearray(blosc.compress(bytes(64), b"lz4", 5, 1))
BLOSC_BOMB[4:8] = (1 << 31).to_bytes(4, "little")


ZSTD, GZIP, BLOSC = (
    codec.to_dict() for codec in (ZstdCodec(), GzipCodec(), BloscCodec(typesize=4))
)


NO_SIZE = b"\x28\xb5\x2f\xfd\x00\x58" + bytes(8)


def text(name, content):
    return lambda path: (path / name).write_text(content)


def attributes(name, **changes):
    return lambda path: edit(path / name / "zarr.json", attributes=changes)


def chunk(name, change):
    def apply(path):
        file = path / name
        file.write_bytes(change(file.read_bytes()))

    return apply


NOT_READ = "zarr-python does not read it"
REFUSED = {
    "link": (linked_chunk, r"X/data/c/0 is a link.*with its files in it"),
    "linked folder": (linked_folder, "X is a link"),
    "linked metadata": (linked_metadata, "zarr.json is a link"),
    "pipe": (pipe, "X/data/c/0 is neither a file nor a folder"),
    "missing": (lambda p: (p / "X/indices/c/0").unlink(), "a chunk is missing: .*write_empty"),
    "no pointers": (lambda p: (p / "X/indptr/c/0").unlink(), "a chunk is missing"),
    "no labels' chunk": (lambda p: (p / "obs/y/c/0").unlink(), "a chunk is missing: .*obs/y"),
    "no names' chunk": (lambda p: (p / "var/gene/c/0").unlink(), "a chunk is missing: .*var"),
    "cut": (chunk("X/data/c/0", lambda b: b[:-3]), "a chunk is damaged"),
    "empty": (chunk("X/data/c/0", lambda b: b""), "a chunk is damaged"),
    "long": (chunk("X/data/c/0", lambda b: b * 9999), "a chunk is damaged"),
    "zstd bomb": (bomb((ZSTD, Zstd(1).encode(bytes(1 << 24)))), "a chunk is damaged"),
    "zstd without size": (bomb((ZSTD, NO_SIZE)), "a chunk is damaged"),
    "blosc bomb": (bomb((BLOSC, bytes(BLOSC_BOMB))), "a chunk is damaged"),
    "gzip bomb": (bomb((GZIP, GZip(1).encode(bytes(1 << 20)))), "a chunk is damaged"),
    "codec": (
        bomb(({"name": "numcodecs.pickle"}, b"")), "zarr-python does not .*numcodecs.pickle"),
    "huge chunks": (
        lambda p: edit(p / "X/data/zarr.json", chunk_grid=grid(1 << 40)),
        "chunks of 4,398,046,511,104 bytes"),
    "huge pointers": (
        lambda p: edit(p / "X/indptr/zarr.json", shape=[1 << 50]), "a chunk is missing: .*indptr"),
    "fewer values": (lambda p: edit(p / "X/data/zarr.json", shape=[5]), "indices and 5 values"),
    "shape": (attributes("X", **{"encoding-type": "csr_matrix", "shape": [5]}), "rows and columns"),
    "rows": (attributes("X", **{"encoding-type": "csr_matrix", "shape": [9, 4]}), "6 row pointers"),
    "columns": (
        attributes("X", **{"encoding-type": "csr_matrix", "shape": [5, 3]}), "4 names for 3"),
    "names": (replaced("var/gene", values=["a"] * 3), "3 names for 4 columns"),
    "empty name": (replaced("var/gene", values=["a", "", "b", "c"]), r"name 1 \(counted from 0\)"),
    "outside": (attributes("var", _index="../../secret"), "no usable name"),
    "json": (text("X/zarr.json", "{"), NOT_READ),
    "twice": (text("X/zarr.json", '{"a": 1, "a": 2}'), NOT_READ),
    "field": (lambda p: edit(p / "X/data/zarr.json", chunk_grid={}), NOT_READ),
    "transformer": (
        lambda p: edit(p / "X/data/zarr.json", storage_transformers=[{"name": "x"}]),
        "storage transformer"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_bad_folders_are_refused_and_nothing_is_made(name, tmp_path, capsys):
    change, message = REFUSED[name]
    change(made(tmp_path / "a.zarr", sp.csr_array(X)))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DataError, match=message) as caught:
        convert(tmp_path / "a.zarr", tmp_path / "out.zarr")
    assert "a.zarr" in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before
    code = main(["convert", str(tmp_path / "a.zarr"), str(tmp_path / "out.zarr")])
    assert code == caught.value.exit_code == 3
    assert capsys.readouterr().err.count("streammach: error:") == 1


OLD = {
    "objects": (lambda p: edit(p / "obs/y/.zarray", dtype="|O"), NOT_READ),
    "filter": (
        lambda p: edit(p / "X/data/.zarray", filters=[Delta("<f4").get_config()]), "codec 'delta'"),
    "codec": (lambda p: edit(p / "X/data/.zarray", compressor={"id": "pickle"}), "not .*'pickle'"),
    "fields": (lambda p: edit(p / "X/data/.zarray", dtype=[["a", "<i4"]]), NOT_READ),
    "missing": (lambda p: (p / "X/data/0").unlink(), "a chunk is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_bad_folders_of_format_2_are_refused(name, tmp_path):
    change, message = OLD[name]
    change(made(tmp_path / "a.zarr", sp.csr_array(X), form=2))
    with pytest.raises(DataError, match=message):
        convert(tmp_path / "a.zarr", tmp_path / "out.zarr", y_path="obs/y")


def test_a_row_that_is_not_there_is_refused(tmp_path):
    path = made(tmp_path / "a.zarr", X)
    edit(path / "X/zarr.json", shape=[5, 1 << 50])
    with pytest.raises(DataError, match=r"a chunk is missing: .*X"):
        convert(path, tmp_path / "out.zarr")


def test_codes_past_the_categories_are_refused(tmp_path):
    path = made(tmp_path / "a", X, labels=CELLS)
    for code, said in ((3, "holds 3 .int8., there are 3 categories"), (-2, "holds -2")):
        replaced("obs/y/codes", values=np.array([code, 0, 0, 0, 0], np.int8))(path)
        with pytest.raises(DataError, match=said):
            convert(path, tmp_path / "o")


def test_stores_and_other_folders_are_refused_in_one_line(tiny, tmp_path):
    with pytest.raises(DataError, match=r"it is a store already: .*streammach info"):
        convert(tiny.store(), tmp_path / "o.zarr")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="it holds no rows"):
        convert(tmp_path / "empty", tmp_path / "o.zarr")
    (tmp_path / "other" / "inner").mkdir(parents=True)
    with pytest.raises(DataError, match="neither AnnData nor a matrix"):
        convert(tmp_path / "other", tmp_path / "o.zarr")
    with pytest.raises(UsageError, match="it is no folder"):
        convert(tiny.text("r.vw", ["a | x"]), tmp_path / "o.zarr", format="anndata")
    path = made(tmp_path / "a", X)
    with pytest.raises(UsageError, match="it is a folder: format vw"):
        convert(path, tmp_path / "o.zarr", format="vw")
    with pytest.raises(UsageError, match=r"no matrix 'layers/z': x_path"):
        convert(path, tmp_path / "o.zarr", x_path="layers/z")
    with pytest.raises(UsageError, match=r"no matrix '\.\./a': x_path"):
        convert(path, tmp_path / "o.zarr", x_path="../a")
