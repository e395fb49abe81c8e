"""Matrices of other programs with other content: HDF5, AnnData, .npz, .npy, and labels beside."""

import json
import os
import warnings
import zipfile

import h5py
import numpy as np
import scipy.sparse as sp
import zarr
import zarr.codecs

from tests.campaigns.content_values import (
    CANNOT,
    Files,
    altered,
    altered_array,
    altered_document,
    altered_file,
    any_of,
    resized_array,
    retyped_array,
    spoilt,
)

N_ROWS, N_COLUMNS, N_CLASSES = 60, 12, 5
PARTS = ("data", "indices", "indptr")
NAMES = [f"gene-{i}" for i in range(N_COLUMNS - 2)] + ["a^b", "ä"]


class Pickled:
    """What a pickle would run: it writes a file beside the trial's."""

    def __reduce__(self):
        return os.system, ("touch ../elsewhere/run-by-a-pickle",)


class Matrices:
    """Rows and labels that are written in each form, in a new folder."""

    def __init__(self, folder, rng):
        self.labels = np.arange(N_ROWS) % N_CLASSES
        x = rng.integers(0, 4, (N_ROWS, N_COLUMNS)) * (rng.random((N_ROWS, N_COLUMNS)) < 0.4)
        x[:, :N_CLASSES] += 3 * (self.labels[:, None] == np.arange(N_CLASSES))
        self.dense, self.sparse = x.astype(np.float32), sp.csr_matrix(x.astype(np.float32))
        self.folders = {}
        for form in (2, 3):
            for kind, matrix in (("dense", self.dense), ("sparse", self.sparse)):
                path = folder / f"{kind}-{form}"
                self._write_folder(path, matrix, form)
                self.folders[kind, form] = Files.of(path)

    def save_named(self, path):
        found, said = self.arrays(dense=False, named=True)
        with h5py.File(path, "w") as file:
            for name, values in found.items():
                file[name] = values
            for name, facts in said.items():
                file[name or "/"].attrs.update(facts)

    def arrays(self, *, dense, named):
        """Return the arrays of a file by their paths in it, and the attributes of its groups."""
        found, said = {}, {}
        if dense:
            found["X"] = self.dense
        else:
            found |= {f"X/{part}": getattr(self.sparse, part) for part in PARTS}
            said["X"] = {"encoding-type": "csr_matrix", "shape": np.array(self.sparse.shape)}
        if not named:
            return found | {"y": self.labels}, said
        found |= {
            "obs/cell/codes": self.labels.astype(np.int8),
            "obs/cell/categories": np.array([f"kind-{i}" for i in range(N_CLASSES)], "S8"),
            "var/_index": np.array([name.encode() for name in NAMES], "S12"),
        }
        said |= {
            "": {"encoding-type": "anndata"}, "obs": {"_index": "_index"},
            "obs/cell": {"encoding-type": "categorical"}, "var": {"_index": "_index"},
        }  # fmt: skip
        return found, said

    def _write_folder(self, path, matrix, form):
        """Write an AnnData folder as zarr-python does."""
        with zarr.config.set({"array.write_empty_chunks": True}), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            root = zarr.create_group(path, zarr_format=form)
            root.attrs.update({"encoding-type": "anndata"})
            if sp.issparse(matrix):
                group = root.create_group("X")
                group.attrs.update({"encoding-type": "csr_matrix", "shape": list(matrix.shape)})
                for part in PARTS:
                    _put(group, part, getattr(matrix, part), chunks=(64,))
            else:
                more = {"shards": (40, 12)} if form == 3 else {}
                _put(root, "X", matrix, chunks=(20, 6), **more)
            obs, var = root.create_group("obs"), root.create_group("var")
            obs.attrs.update({"_index": "_index", "column-order": ["cell"]})
            var.attrs.update({"_index": "_index", "column-order": []})
            cell = obs.create_group("cell")
            cell.attrs.update({"encoding-type": "categorical"})
            _put(cell, "codes", self.labels.astype(np.int8))
            _put(cell, "categories", np.array([f"kind-{i}" for i in range(N_CLASSES)], object))
            _put(var, "_index", np.array(NAMES, object))


def _put(group, name, values, **options):
    kind = str if values.dtype.hasobject else values.dtype
    array = group.create_array(name, shape=values.shape, dtype=kind, **options)
    array[...] = values


def altered_source(rng, matrices, where):
    """Write a source with other content; return its name, options, and what was done."""
    way = list(WAYS)[rng.choice(len(WAYS), p=np.array(list(WAYS.values())) / 100)]
    try:
        return way(rng, matrices, where)
    except CANNOT as error:  # what is there by then will do
        names = sorted(path.name for path in where.iterdir()) or ["nothing"]
        return names[0], (), f"not to be written: {type(error).__name__} {error}"[:100]


def _hdf5(rng, matrices, where):
    named = bool(rng.integers(2))
    found, said = matrices.arrays(dense=bool(rng.integers(2)), named=named)
    told = [_altered_parts(rng, found) for _ in range(1 + int(rng.integers(5) == 0))]
    if said and rng.integers(3) == 0:
        name = any_of(rng, sorted(said))
        key = any_of(rng, sorted(said[name]))
        said[name][key] = _attribute(altered(rng, said[name][key]))
        told.append(f"attribute {name}/{key}: {str(said[name][key])[:50]!r}")
    path = where / ("in.h5ad" if named else "in.h5")
    with h5py.File(path, "w") as file:
        for name, values in found.items():
            if name in file:
                continue
            _write_dataset(rng, file, name, values)
        for name, facts in said.items():
            group = file.require_group(name or "/") if name not in found else file[name]
            for key, value in facts.items():
                try:
                    group.attrs[key] = value
                except (TypeError, ValueError, OverflowError, RuntimeError):
                    group.attrs[key] = "x"
        if rng.integers(6) == 0:
            told.append(_link(rng, file, where))
    if rng.integers(8) == 0:
        told.append(_flipped(rng, path))
    return path.name, (), "; ".join(told)


def _attribute(value):
    return json.dumps(value)[:30_000] if isinstance(value, dict | list | type(None)) else value


def _write_dataset(rng, file, name, values):
    options = {}
    if values.dtype.hasobject:
        options["dtype"] = h5py.string_dtype()
    elif values.ndim and values.size and rng.integers(3) == 0:
        options = {"chunks": True, "compression": "gzip", "shuffle": bool(rng.integers(2))}
    try:
        file.create_dataset(name, data=values, **options)
    except (TypeError, ValueError, OSError):
        file.create_dataset(name, data=np.zeros(3))


def _link(rng, file, where):
    """Have something lead elsewhere."""
    names = []
    file.visit(names.append)
    name = any_of(rng, names)
    del file[name]
    ways = (
        h5py.SoftLink("/X"), h5py.SoftLink("/nowhere"), h5py.SoftLink(f"/{name}"),
        h5py.ExternalLink("/etc/passwd", "/X"), h5py.ExternalLink("other.h5", "/X"),
    )  # fmt: skip
    way = rng.integers(len(ways) + 3)
    if way < len(ways):
        file[name] = ways[way]
    elif way == len(ways):
        file[name] = file["/"]  # a group that holds itself
    elif way == len(ways) + 1:
        file.create_dataset(name, (N_ROWS, N_COLUMNS), "f4", external=[("../../passwd", 0, 2880)])
    else:
        layout = h5py.VirtualLayout((N_ROWS, N_COLUMNS), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "X", (N_ROWS, N_COLUMNS))
        file.create_virtual_dataset(name, layout)
    return f"{name} leads elsewhere, way {way}"


def _altered_parts(rng, found):
    """Change one of some arrays, by name; return what was done."""
    names = sorted(found)
    name, way = any_of(rng, names), rng.integers(14)
    if way < 6:
        if found[name].dtype.kind in "biuf":
            found[name], what = altered_array(rng, found[name])
        else:
            found[name], what = _altered_names(rng, found[name])
    elif way == 6 and found[name].ndim:
        found[name], what = resized_array(rng, found[name])
    elif way == 7:
        try:
            found[name], what = retyped_array(rng, found[name])
        except (TypeError, ValueError):
            what = "as it was"
    elif way == 8:
        del found[name]
        what = "left out"
    elif way == 9:
        found[name], what = found[name][..., None], "with an axis more"
    elif way == 10:
        found[name], what = found[name].reshape(-1)[0] if found[name].size else found[name], "one"
        found[name] = np.asarray(found[name])
    elif way == 11:
        other = any_of(rng, names)
        found[name], what = found[other], f"is {other}"
    elif way == 12:
        found[f"{name}-more"], what = found[name], "twice"
    elif way == 6:
        what = "as it was"
    else:
        found[name], what = np.zeros((0, *found[name].shape[1:]), found[name].dtype), "empty"
    return f"{name} {what}"


def _altered_names(rng, values):
    odd = [b"", b"\x1b[2J", b"\xff\xfe", b"a" * 5000, b"a\nb", values.reshape(-1)[:1].tolist()[0],
           "\u202e".encode(), b"7", b"^", b"x" * 4096]  # fmt: skip
    out = values.astype("S6000")
    name = any_of(rng, odd)
    out.reshape(-1)[int(rng.integers(out.size))] = name
    return out, repr(name)[:40]


def _flipped(rng, path):
    body = path.read_bytes()
    places = rng.integers(len(body), size=int(rng.integers(1, 20)))
    path.write_bytes(spoilt(rng, body, places))
    return f"bytes {places[:3].tolist()}"


def _npz(rng, matrices, where):
    parts = {name: getattr(matrices.sparse, name) for name in PARTS}
    parts |= {"shape": np.array(matrices.sparse.shape), "format": np.array(b"csr")}
    parts["labels"] = matrices.labels
    if rng.integers(2):
        parts["labels"] = np.array([f"kind-{i}" for i in matrices.labels])
    told = [_altered_parts(rng, parts) for _ in range(1 + int(rng.integers(5) == 0))]
    if rng.integers(10) == 0:
        name = any_of(rng, sorted(parts))
        parts[name] = np.array([Pickled()], object)
        told.append(f"{name} is a pickle")
    path = where / "in.npz"
    (np.savez_compressed if rng.integers(2) else np.savez)(path, **parts)
    if rng.integers(6) == 0:
        told.append(_flipped(rng, path))
    elif rng.integers(8) == 0:
        told.append(_header_in(rng, path))
    return path.name, (), "; ".join(told)


def _header_in(rng, path):
    """Change the header of an array in an archive, whose checksum is made anew."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = any_of(rng, sorted(members))
    members[name] = _other_header(rng, members[name])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, body in members.items():
            archive.writestr(member, body)
    return f"header of {name}: {members[name][10:90]!r}"


SHAPES = (
    "(-1,)", "()", "(0,)", "(2**40,)", "(1, 2, 3)", "(99999999999, 12)", "(60, 2147483648)",
    "(9223372036854775807,)", "(True,)", "(1.5,)", "x", "(60, -12)", "(4294967296, 4294967296)",
)  # fmt: skip
ORDERS = ("False", "True", "None")
KINDS = (
    "'<f4'", "'|O'", "'<c16'", "'<U9'", "'|V8'", "'<M8[ns]'", "[('a', '<f4')]", "'>f8'", "'f4,f4'",
    "'|S0'", "'<U0'", "'(2,)f4'", "object", "__import__('os')",
)  # fmt: skip


def _other_header(rng, body):
    """Return the bytes of a .npy array with another header."""
    shape, kind, order = (any_of(rng, some) for some in (SHAPES, KINDS, ORDERS))
    given = body[10 : 10 + int.from_bytes(body[8:10], "little")].decode("latin-1")
    if rng.integers(2):
        text = given.replace(given[given.index("(") : given.rindex(")") + 1], shape)
    else:
        text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text = text.strip() + " " * (53 - len(text) % 64 % 53) + "\n"
    version = body[6:8] if rng.integers(6) else bytes([int(rng.integers(5)), 0])
    start = 10 + int.from_bytes(body[8:10], "little")
    return body[:6] + version + len(text).to_bytes(2, "little") + text.encode() + body[start:]


def _npy(rng, matrices, where):
    parts = {"in": matrices.dense, "labels": matrices.labels}
    if rng.integers(3) == 0:
        parts["labels"] = np.array([f"kind-{i}" for i in matrices.labels])
    told = _altered_parts(rng, parts)
    if rng.integers(12) == 0:
        parts["in" if rng.integers(2) else "labels"] = np.array([Pickled()], object)
        told = "a pickle"
    for name in ("in", "labels"):
        if name in parts:
            np.save(where / f"{name}.npy", parts[name], allow_pickle=True)
    if rng.integers(3) == 0:
        path = where / ("in.npy", "labels.npy")[rng.integers(2)]
        if path.exists() and rng.integers(2):
            told = f"{path.name}: {_flipped(rng, path)}"
        elif path.exists():
            body = _other_header(rng, path.read_bytes())
            path.write_bytes(body)
            told = f"{path.name}: {body[10:90]!r}"
    labels = ("--labels", "labels.npy") if (where / "labels.npy").exists() else ()
    return "in.npy", labels, told


def _folder(rng, matrices, where):
    """Write an AnnData folder with other documents or chunks."""
    key = any_of(rng, sorted(matrices.folders))
    files = matrices.folders[key].fresh()
    told = [_altered_member(rng, files) for _ in range(1 + int(rng.integers(5) == 0))]
    files.write(where / "in.zarr")
    if rng.integers(12) == 0:
        name = any_of(rng, sorted(files.files))
        (where / "in.zarr" / name).unlink()
        (where / "in.zarr" / name).symlink_to("/etc/passwd")
        told.append(f"{name} is a link")
    return "in.zarr", (), f"{key}: {'; '.join(told)}"


def _altered_member(rng, files):
    documents = sorted(n for n in files.files if n.rpartition("/")[2] in (
        "zarr.json", ".zarray", ".zattrs", ".zgroup"))  # fmt: skip
    if not rng.integers(4) or not documents:
        return altered_file(rng, files.files, files.files.keys() - set(documents))
    name = any_of(rng, documents)
    changed, what = altered_document(rng, files.document(name))
    files.put(name, changed)
    return f"{name} {what}"


WAYS = {_hdf5: 35, _npz: 25, _npy: 15, _folder: 25}
