"""Stores with other content, and the checksums that belong to it."""

import numpy as np

from streammach.store.stored_arrays import (
    ABSENT,
    BLOSC_HEADER,
    CHUNK,
    CRC_BYTES,
    INDEX_BYTES,
    SHARD_CHUNKS,
    add_checksum,
    compress_values,
    unpack,
)
from streammach.system.files.reading import sha256
from tests.campaigns.content_values import (
    CANNOT,
    Files,
    altered_array,
    altered_document,
    altered_file,
    any_of,
    resized_array,
    retyped_array,
    several,
    spoilt,
    written,
)

ROOT, MANIFEST = "zarr.json", "manifest.json"
FIGURES = ("rows", "classes", "features", "nnz", "pairs", "max_row_nnz", "block_rows",
           "max_block_nnz", "columns", "seed", "format")  # fmt: skip
SIZES = (0, 1, 2, 3, 5, 40, 256, 65_536, 65_537, 10**6, 2**31 - 1, 2**31, 2**40, 2**48, 2**63 - 1)


class StoreFiles(Files):
    def root(self):
        """Return the root document, and what it says under ``streammach``."""
        document = self.document(ROOT)
        return document, document["attributes"]["streammach"]

    def arrays(self):
        return sorted(n.removesuffix("/c/0") for n in self.files if n.endswith("/c/0"))

    def array(self, name):
        document = self.document(f"{name}/zarr.json")
        dtype, body = np.dtype(document["data_type"]), self.files[f"{name}/c/0"]
        offset, size = (int(n) for n in _table(body)[0])
        chunk = np.empty(CHUNK, dtype)
        unpack(body[offset : offset + size - CRC_BYTES], chunk)
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


def _unmarked(text):
    """Return the text of a root without the digests in it, whatever else it holds."""
    for name in ("manifest", "check"):
        before, found, after = text.partition(f'"{name}": "')
        if found:
            text = before + found + after[after.index('"') :]
    return text.encode("utf-8", "surrogatepass")


def shard_of(values):
    table, bodies, at = np.full((SHARD_CHUNKS, 2), ABSENT, np.uint64), [], 0
    values = np.ascontiguousarray(values)
    for number, start in enumerate(range(0, max(len(values), 1), CHUNK)):
        chunk = np.zeros(CHUNK, values.dtype)
        chunk[: len(values) - start] = values[start : start + CHUNK]
        bodies.append(add_checksum(compress_values(chunk)))
        table[number] = at, len(bodies[-1])
        at += len(bodies[-1])
    return b"".join(bodies) + add_checksum(table.astype("<u8").tobytes())


def _table(body):
    return np.frombuffer(body[-INDEX_BYTES:-4], "<u8").reshape(-1, 2).copy()


def altered_store(rng, files):
    """Change a store in memory in one to three places; return what was done."""
    told = several(rng, (6, 12), WAYS, files)
    if rng.integers(3) == 0:
        told += _mended(files)
    if rng.integers(12):
        files.seal()
    elif rng.integers(2):
        files.seal_root()
        told += "; the manifest as it was"
    else:
        told += "; no digest made anew"
    return told


def _document(rng, files):
    name = any_of(rng, sorted(n for n in files.files if n.endswith("zarr.json")))
    changed, what = altered_document(rng, files.document(name))
    files.put(name, changed)
    return f"{name} {what}"


def _figure(rng, files):
    """Change what the root says: a figure, or anything below ``streammach``."""
    document, said = files.root()
    if rng.integers(3) == 0:
        name = any_of(rng, FIGURES)
        said[name] = int(any_of(rng, SIZES))
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


def _elements(rng, files, change=altered_array):
    """Change elements of an array; or its length or type, which its document may say or not."""
    name = any_of(rng, files.arrays())
    values, what = change(rng, files.array(name))
    files.put_array(name, values, said=change is altered_array or bool(rng.integers(3)))
    return f"{name}: {what}"


def _length(rng, files):
    return _elements(rng, files, resized_array)


def _type(rng, files):
    return _elements(rng, files, retyped_array)


def _everywhere(rng, files):
    """Change a number of rows, classes, features or values in every place that says it."""
    document, said = files.root()
    name = ("rows", "classes", "features", "nnz")[rng.integers(4)]
    n, some = said[name], (1, 2, said[name] - 1, said[name] + 1, said[name] * 3, *SIZES)
    m = int(any_of(rng, some))
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
    name = any_of(rng, files.arrays())
    body = files.files[f"{name}/c/0"]
    table = _table(body)
    some = (0, 1, 3, 19, 20, len(body), len(body) - 1, 2**32, 2**63, 2**64 - 1, 2**64 - 20,
            int(table[0, 1]) - 1, int(table[0, 1]) + 1)  # fmt: skip
    row, column = int(rng.integers(2)) * int(rng.integers(SHARD_CHUNKS)), int(rng.integers(2))
    table[row, column] = any_of(rng, some)
    files.files[f"{name}/c/0"] = body[:-INDEX_BYTES] + add_checksum(table.tobytes())
    return f"{name}: {table[row].tolist()} in row {row}"


def _chunk(rng, files):
    """Change bytes of an encoded chunk, with its checksum, or its header above all."""
    name = any_of(rng, files.arrays())
    body = bytearray(files.files[f"{name}/c/0"])
    size = int(_table(body)[0, 1]) - CRC_BYTES
    if rng.integers(2):
        header = list(BLOSC_HEADER.unpack_from(body))
        at = int(rng.integers(4))
        flags = [rng.bytes(4), b"\x02\x01\x33\x04"]
        some = (0, 1, 16, header[1] - 1, header[1] * 2, size, size + 1, 2**31 - 1, 2**32 - 1)
        header[at] = any_of(rng, flags) if at == 0 else int(any_of(rng, some))
        BLOSC_HEADER.pack_into(body, 0, *header)
        what = f"header {header}"
    else:
        places = rng.integers(size, size=int(rng.integers(1, 9)))
        body = bytearray(spoilt(rng, body, places))
        what = f"bytes {places.tolist()}"
    new = add_checksum(bytes(body[:size]))
    files.files[f"{name}/c/0"] = new + bytes(body[len(new) :])
    return f"{name}: {what}"


def _file(rng, files):
    return altered_file(rng, files.files)


WAYS = {_document: 10, _figure: 18, _manifest: 6, _elements: 32, _length: 6, _type: 5,
        _everywhere: 10, _table_entry: 4, _chunk: 6, _file: 3}  # fmt: skip


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
        return "; not to be mended"
    return "; mended"


def _count(files, group, ids, n):
    if 0 < n <= CHUNK and len(ids) and int(ids.min()) >= 0 and int(ids.max()) < n:
        files.put_array(f"{group}/count", np.bincount(ids, minlength=n).astype(np.int64))
