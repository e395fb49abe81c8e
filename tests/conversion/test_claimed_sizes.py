"""Headers that claim more than a file holds, or than the memory: one line, and little is taken."""

import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from streammach.system.errors import BudgetError, DataError, UsageError
from streammach.system.machine import parse_size
from tests.builders import measured
from tests.campaigns.trials import in_a_process

MEMORY = "800MB"
MANY = 10**8
PATIENCE = 60.0  # seconds
REFUSED = {kind.exit_code for kind in (DataError, UsageError, BudgetError)}


def hdf5(folder, content, attributes=()):
    """Write datasets: arrays as they are, shapes and types of which nothing or zeros are stored."""
    with h5py.File(folder / "a.h5", "w") as file:
        for name, given in content.items():
            if isinstance(given, tuple):
                shape, dtype, chunks, *packed = given
                made = file.create_dataset(
                    name, shape, dtype, chunks=chunks, compression="gzip" if packed else None
                )
                for start in range(0, shape[0], chunks[0]) if packed else ():
                    made[start : start + chunks[0]] = 0
            else:
                file[name] = given
        for name, said in dict(attributes).items():
            file.require_group(name or "/").attrs.update(said)
    return folder / "a.h5"


def npy(folder, name, shape, dtype="<f4", n_bytes=64):
    with open(folder / name, "wb") as file:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(n_bytes))
    return folder / name


def npz(folder, shapes):
    """Write zeros, which take a thousandth of their bytes; of `True` beside a shape only 64."""
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (shape, dtype, *short) in shapes.items():
            n_bytes = 64 if short else int(np.prod(shape)) * np.dtype(dtype).itemsize
            npy(folder, "part", shape, np.dtype(dtype).str, n_bytes)
            archive.write(folder / "part", f"{name}.npy")
    return folder / "a.npz"


def folder_of_zarr(folder, **shapes):
    root = zarr.create_group(folder / "a.zarr", zarr_format=3)
    root.attrs["encoding-type"] = "anndata"
    with zarr.config.set({"array.write_empty_chunks": True}):
        for name, (shape, chunks) in shapes.items():
            made = root.create_array(name, shape=shape, chunks=chunks, dtype="f4")
            made[tuple(slice(0, n) for n in chunks)] = 0
    return folder / "a.zarr"


def arrow(folder, table):
    with pa.OSFile(str(folder / "a.arrow"), "wb") as f, pa.ipc.new_file(f, table.schema) as out:
        out.write_table(table)
    return folder / "a.arrow"


def parquet(folder, table, **options):
    pq.write_table(table, folder / "a.parquet", **options)
    return folder / "a.parquet"


def text(folder, name, body):
    (folder / name).write_text(body)
    return folder / name


def with_labels(x, labels):
    return x, ("--labels", str(labels))


Y = np.arange(4)
X = np.ones((4, 3), np.float32)
CSR = {"X/data": np.ones(4), "X/indices": np.zeros(4, int)}
ANNDATA = {"": {"encoding-type": "anndata"}, "obs": {"_index": "_index"},
           "var": {"_index": "_index"}}  # fmt: skip
TEXT = h5py.string_dtype()
CLAIMS = {
    "hdf5: rows": lambda f: hdf5(f, {"X": ((MANY, 6), "f4", (1000, 6)),
                                     "y": ((MANY,), "i4", (1000,))}),
    "hdf5: columns": lambda f: hdf5(f, {"X": ((4, 2 * MANY), "f4", (1, 10**6)), "y": Y}),
    "hdf5: cells": lambda f: hdf5(f, {"X": ((4, 20_000, 20_000), "f4", (1, 500, 500)), "y": Y}),
    "hdf5: packed columns": lambda f: hdf5(
        f, {"X": ((2, 3 * 10**7), "f4", (1, 10**7), "gzip"), "y": Y[:2]}),
    "hdf5: labels": lambda f: hdf5(f, {"X": ((MANY // 4, 2), "u1", (10**6, 2), "gzip"),
                                       "y": ((MANY // 4,), "i4", (10**6,), "gzip")}),
    "hdf5: names of labels": lambda f: hdf5(f, {"X": X, "y": ((MANY,), TEXT, (1000,))}),
    "hdf5: row pointers": lambda f: hdf5(
        f, CSR | {"X/indptr": ((MANY,), "i8", (10**4,)), "y": Y}),
    "hdf5: packed row pointers": lambda f: hdf5(
        f, CSR | {"X/indptr": ((3 * 10**7,), "i8", (10**6,), "gzip"), "y": Y}),
    "hdf5: values": lambda f: hdf5(f, {
        "X/data": ((MANY,), "f4", (1000,)), "X/indices": ((MANY,), "i8", (1000,)),
        "X/indptr": np.array([0, 1, 2, 3, MANY]), "y": Y}),
    "h5ad: names of columns": lambda f: hdf5(f, {
        "X": X, "obs/y": Y, "obs/_index": Y, "var/_index": ((MANY,), TEXT, (1000,))}, ANNDATA),
    "h5ad: codes": lambda f: hdf5(f, {
        "X": X, "obs/y/codes": ((MANY,), "i4", (1000,)), "obs/y/categories": Y,
        "var/_index": np.array([b"a", b"b", b"c"], object)}, ANNDATA),
    "npy: rows": lambda f: npy(f, "X.npy", (MANY, 6)),
    "npy: columns": lambda f: npy(f, "X.npy", (4, 10**12)),
    "npy: labels": lambda f: with_labels(
        npy(f, "a.npy", (4, 4)), npy(f, "b.npy", (10**12,), "<i8")),
    "npz: rows": lambda f: npz(f, {"X": ((MANY, 6), "f4", True), "y": ((MANY,), "i4", True)}),
    "npz: packed rows": lambda f: npz(f, {"X": ((4, 3 * 10**7), "f4"), "y": ((4,), "i4")}),
    "npz: labels": lambda f: with_labels(npy(f, "a.npy", (4, 4)), npz(f, {
        "data": ((10**7,), "f8"), "indices": ((10**7,), "i8"), "indptr": ((5,), "i8"),
        "format": ((), "S3")})),
    "npz: format": lambda f: npz(f, {"format": ((MANY,), "S1"), "X": ((4, 3), "f4"),
                                     "y": ((4,), "i4")}),
    "zarr: rows": lambda f: folder_of_zarr(f, X=((10**12, 3), (4, 3))),
    "zarr: columns": lambda f: folder_of_zarr(f, X=((4, 10**12), (4, 3))),
    "zarr: packed columns": lambda f: folder_of_zarr(f, X=((1, 5 * 10**7), (1, 5 * 10**7))),
    "arrow: rows": lambda f: arrow(f, pa.table({"label": pa.nulls(10**9), "t": pa.nulls(10**9)})),
    "arrow: some rows": lambda f: arrow(f, pa.table({"label": pa.nulls(MANY)})),
    "parquet: rows": lambda f: parquet(f, pa.table({
        "label": pa.nulls(10**7, pa.string()), "t": pa.nulls(10**7, pa.string())})),
    "parquet: cells": lambda f: parquet(f, pa.table({
        "label": ["a"] * 400, "t": ["b " * 10**6] * 400}), compression="zstd",
        use_dictionary=False),
    "text: rows and columns": lambda f: text(
        f, "a.txt", f"{10**12} {10**12} {10**12}\n1 1:1\n2 2:1\n"),
    "text: matrix": lambda f: text(f, "X.txt", f"{10**12} {10**12}\n1:1\n"),
}  # fmt: skip


def _texts(made):
    source, more = made if isinstance(made, tuple) else (made, ())
    return [str(source), *more]


@pytest.mark.parametrize("name", CLAIMS)
def test_what_is_claimed_is_refused_in_a_line_or_read_within_the_memory(name, tmp_path):
    skip = list(CLAIMS).index(name) % 2
    made = in_a_process(lambda: {"made": _texts(CLAIMS[name](tmp_path))}, PATIENCE)["made"]
    source, *more = [*made, "--on-bad-row", "skip"] if skip else made
    options = ("--memory", MEMORY, "--threads", "1", "--progress", "none", *more)

    peak, done = measured("convert", source, tmp_path / "s.zarr", *options)
    said = done.stderr.strip().rpartition("\n")[0]  # the last line is the peak
    assert done.returncode in REFUSED, said
    assert said.startswith("streammach: error: ")
    assert "\n" not in said
    assert peak <= parse_size(MEMORY)
    assert not (tmp_path / "s.zarr").exists()
