"""Stores with other content, and the checksums that belong to it."""

import json
import os
from pathlib import Path

import numpy as np

from benchmarks.faults.content_values import (
    altered_array,
    altered_document,
    resized_array,
    retyped_array,
    written,
)
from streammach.data.store.arrays import (
    ABSENT,
    CHUNK,
    CRC_BYTES,
    INDEX_BYTES,
    SHARD_CHUNKS,
    sealed,
)
from streammach.data.store.codecs import BLOSC_HEADER, WRITTEN
from streammach.files.reading import sha256

ROOT, MANIFEST = "zarr.json", "manifest.json"
FIGURES = ("rows", "classes", "features", "nnz", "pairs", "max_row_nnz", "block_rows",
           "max_block_nnz", "columns", "seed", "format")  # fmt: skip
SIZES = (0, 1, 2, 3, 5, 40, 256, 65_536, 65_537, 10**6, 2**31 - 1, 2**31, 2**40, 2**48, 2**63 - 1)

# What comes of changing what was changed already.
CANNOT = (
    KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, RuntimeError,
    SystemError, OSError,
)  # fmt: skip


class StoreFiles:
    """The files of a store in memory, to be changed and written.

    Parameters
    ----------
    folder : Path
        A store.
    """

    def __init__(self, folder):
        self._kept = contents(folder)
        self.files = dict(self._kept)

    def fresh(self):
        """Return the same, unchanged."""
        other = object.__new__(StoreFiles)
        other._kept, other.files = self._kept, dict(self._kept)
        return other

    def document(self, name):
        """Return one of its JSON documents."""
        return json.loads(self.files[name])

    def put(self, name, document):
        """Replace a document."""
        self.files[name] = written(document)

    def root(self):
        """Return the root document, and what it says under ``streammach``."""
        document = self.document(ROOT)
        return document, document["attributes"]["streammach"]

    def arrays(self):
        """Return the names of the arrays."""
        return sorted(n.removesuffix("/c/0") for n in self.files if n.endswith("/c/0"))

    def array(self, name):
        """Return the values of an array."""
        document = self.document(f"{name}/zarr.json")
        dtype, body = np.dtype(document["data_type"]), self.files[f"{name}/c/0"]
        offset, size = (int(n) for n in _table(body)[0])
        chunk = np.empty(CHUNK, dtype)
        WRITTEN.decode(body[offset : offset + size - CRC_BYTES], chunk)
        return chunk[: document["shape"][0]]

    def put_array(self, name, values, *, said=True):
        """Replace the values of an array, and what its document says of them."""
        self.files[f"{name}/c/0"] = shard_of(values)
        if said:
            document = self.document(f"{name}/zarr.json")
            document["shape"] = [len(values)]
            document["data_type"] = str(values.dtype)
            self.put(f"{name}/zarr.json", document)

    def seal(self):
        """Have manifest and root name what the files are, where they still can."""
        try:
            manifest = self.document(MANIFEST)
            for name, facts in manifest["files"].items():
                if name in self.files:
                    body = self.files[name]
                    facts.update(size=len(body), sha256=sha256([body]),
                                 tail=int.from_bytes(body[-4:], "little"))  # fmt: skip
            for name in manifest["metadata"]:
                if name in self.files:
                    manifest["metadata"][name] = sha256([self.files[name]])
            self.files[MANIFEST] = written(manifest)
        except CANNOT:
            pass
        self.seal_root()

    def seal_root(self):
        """Have the root name the manifest and itself, where it still can."""
        try:
            text = _unmarked(self.files[ROOT].decode("utf-8", "surrogatepass"))
            digest = sha256([self.files[MANIFEST]]).encode()
            text = text.replace(b'"manifest": ""', b'"manifest": "' + digest + b'"', 1)
            check = sha256([text]).encode()
            self.files[ROOT] = text.replace(b'"check": ""', b'"check": "' + check + b'"', 1)
        except (ValueError, KeyError):
            pass

    def write(self, folder):
        """Write the files into a new folder."""
        write_files(folder, self.files)


def _unmarked(text):
    """Return the text of a root without the digests in it, whatever else it holds."""
    for name in ("manifest", "check"):
        before, found, after = text.partition(f'"{name}": "')
        if found:
            text = before + found + after[after.index('"') :]
    return text.encode("utf-8", "surrogatepass")


def shard_of(values):
    """Return the file of an array that has one shard."""
    table, bodies, at = np.full((SHARD_CHUNKS, 2), ABSENT, np.uint64), [], 0
    values = np.ascontiguousarray(values)
    for number, start in enumerate(range(0, max(len(values), 1), CHUNK)):
        chunk = np.zeros(CHUNK, values.dtype)
        chunk[: len(values) - start] = values[start : start + CHUNK]
        bodies.append(sealed(WRITTEN.encode(chunk)))
        table[number] = at, len(bodies[-1])
        at += len(bodies[-1])
    return b"".join(bodies) + sealed(table.astype("<u8").tobytes())


def _table(body):
    return np.frombuffer(body[-INDEX_BYTES:-4], "<u8").reshape(-1, 2).copy()


def contents(folder):
    """Return the bytes of all files in a folder, by their names in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(Path(folder).rglob("*")) if path.is_file()
    }  # fmt: skip


def write_files(folder, files):
    """Write files by their names into a new folder."""
    made = set()
    for name, body in files.items():
        path = os.path.join(folder, name)
        parent = os.path.dirname(path)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        with open(path, "wb") as file:
            file.write(body)


def altered_store(rng, files):
    """Change a store in memory in one to three places; return what was done."""
    told = []
    for _ in range(1 + int(rng.integers(6) == 0) + int(rng.integers(12) == 0)):
        way = WAYS[rng.choice(len(WAYS), p=CHANCES)]
        try:
            told.append(f"{way.__name__.strip('_')} {way(rng, files)}")
        except CANNOT:
            told.append(f"{way.__name__.strip('_')}: not any more")
    if rng.integers(3) == 0:
        told.append(_mended(files))
    if rng.integers(12):
        files.seal()
    elif rng.integers(2):
        files.seal_root()
        told.append("the manifest as it was")
    else:
        told.append("no digest made anew")
    return "; ".join(told)


def _document(rng, files):
    names = sorted(n for n in files.files if n.endswith("zarr.json"))
    name = names[rng.integers(len(names))]
    changed, what = altered_document(rng, files.document(name))
    files.put(name, changed)
    return f"{name} {what}"


def _figure(rng, files):
    """Change what the root says: a figure, or anything below ``streammach``."""
    document, said = files.root()
    if rng.integers(3) == 0:
        name = FIGURES[rng.integers(len(FIGURES))]
        said[name] = int(SIZES[rng.integers(len(SIZES))])
        what = f"{name} {said[name]}"
    else:
        document["attributes"]["streammach"], what = altered_document(rng, said)
    files.put(ROOT, document)
    return what


def _manifest(rng, files):
    changed, what = altered_document(rng, files.document(MANIFEST))
    files.put(MANIFEST, changed)
    files.seal_root()
    return what


def _elements(rng, files):
    name = _any_array(rng, files)
    values, what = altered_array(rng, files.array(name))
    files.put_array(name, values)
    return f"{name}: {what}"


def _length(rng, files):
    name = _any_array(rng, files)
    values, what = resized_array(rng, files.array(name))
    files.put_array(name, values, said=bool(rng.integers(3)))
    return f"{name}: {what}"


def _type(rng, files):
    name = _any_array(rng, files)
    values, what = retyped_array(rng, files.array(name))
    files.put_array(name, values, said=bool(rng.integers(3)))
    return f"{name}: {what}"


def _everywhere(rng, files):
    """Change a number of rows, classes, features or values in every place that says it."""
    document, said = files.root()
    name = ("rows", "classes", "features", "nnz")[rng.integers(4)]
    n, some = said[name], (1, 2, said[name] - 1, said[name] + 1, said[name] * 3, *SIZES)
    m = int(some[rng.integers(len(some))])
    said[name] = m
    if name == "rows" and rng.integers(2):
        said["source"][0]["rows"] = m
    files.put(ROOT, document)
    for array in files.arrays():
        values, other = files.array(array), None
        if len(values) == n:
            other = m
        elif len(values) == n + 1:
            other = m + 1
        if other is None:
            continue
        if 0 <= other <= 4 * CHUNK:
            files.put_array(array, np.resize(values, other))
        else:
            inner = files.document(f"{array}/zarr.json")
            inner["shape"] = [other]
            files.put(f"{array}/zarr.json", inner)
    return f"{name} {m}, not {n}"


def _table_entry(rng, files):
    """Change where chunks lie in a shard, with the right checksum of the table."""
    name = _any_array(rng, files)
    body = files.files[f"{name}/c/0"]
    table = _table(body)
    some = (0, 1, 3, 19, 20, len(body), len(body) - 1, 2**32, 2**63, 2**64 - 1, 2**64 - 20,
            int(table[0, 1]) - 1, int(table[0, 1]) + 1)  # fmt: skip
    row, column = int(rng.integers(2)) * int(rng.integers(SHARD_CHUNKS)), int(rng.integers(2))
    table[row, column] = some[rng.integers(len(some))]
    files.files[f"{name}/c/0"] = body[:-INDEX_BYTES] + sealed(table.tobytes())
    return f"{name}: {table[row].tolist()} in row {row}"


def _chunk(rng, files):
    """Change bytes of an encoded chunk, with its checksum, or its header above all."""
    name = _any_array(rng, files)
    body = bytearray(files.files[f"{name}/c/0"])
    size = int(_table(body)[0, 1]) - CRC_BYTES
    if rng.integers(2):
        header = list(BLOSC_HEADER.unpack_from(body))
        at = int(rng.integers(4))
        flags = [bytes([int(n) for n in rng.integers(256, size=4)]), b"\x02\x01\x33\x04"]
        some = (0, 1, 16, header[1] - 1, header[1] * 2, size, size + 1, 2**31 - 1, 2**32 - 1)
        header[at] = flags[rng.integers(2)] if at == 0 else int(some[rng.integers(len(some))])
        BLOSC_HEADER.pack_into(body, 0, *header)
        what = f"header {header}"
    else:
        places = rng.integers(size, size=int(rng.integers(1, 9)))
        for place in places:
            body[place] = int(rng.integers(256))
        what = f"bytes {places.tolist()}"
    new = sealed(bytes(body[:size]))
    files.files[f"{name}/c/0"] = new + bytes(body[len(new) :])
    return f"{name}: {what}"


def _file(rng, files):
    """Remove, cut, add or exchange a file."""
    names = sorted(files.files)
    name, other = (names[n] for n in rng.integers(len(names), size=2))
    way = rng.integers(4)
    if way == 0:
        del files.files[name]
    elif way == 1:
        files.files[name] = files.files[name][: int(rng.integers(len(files.files[name])))]
    elif way == 2:
        files.files["X/more/c/0"] = files.files[name]
    else:
        files.files[name] = files.files[other]
    return f"{name} {('removed', 'cut', 'twice', f'is {other}')[way]}"


WAYS = (_document, _figure, _manifest, _elements, _length, _type, _everywhere, _table_entry, _chunk,
        _file)  # fmt: skip
CHANCES = np.array([10, 18, 6, 32, 6, 5, 10, 4, 6, 3]) / 100


def _any_array(rng, files):
    names = files.arrays()
    return names[rng.integers(len(names))]


def _mended(files):
    """Make the counts and the root agree with the rows, as far as they can."""
    try:
        document, said = files.root()
        indptr, labels = files.array("X/indptr"), files.array("y")
        _count(files, "features", files.array("X/indices"), said["features"])
        _count(files, "labels", labels, said["classes"])
        lengths = np.diff(indptr.astype(object))
        said["rows"], said["nnz"] = len(labels), len(files.array("X/indices"))
        said["max_row_nnz"] = int(max(lengths))
        starts, step = range(0, len(lengths), said["block_rows"]), said["block_rows"]
        said["max_block_nnz"] = max(int(sum(lengths[i : i + step])) for i in starts)
        said["source"][0]["rows"] = max(said["source"][0]["rows"], said["rows"])
        files.put(ROOT, document)
    except CANNOT:
        return "not to be mended"
    return "mended"


def _count(files, group, ids, n):
    if 0 < n <= CHUNK and len(ids) and int(ids.min()) >= 0 and int(ids.max()) < n:
        files.put_array(f"{group}/count", np.bincount(ids, minlength=n).astype(np.int64))
