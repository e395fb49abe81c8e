"""Models, runs, checkpoints and sweeps with other content, and the checksums that belong to it."""

import json

import google_crc32c
import numpy as np

from benchmarks.faults.content_stores import CANNOT, contents, write_files
from benchmarks.faults.content_values import (
    altered_array,
    altered_document,
    resized_array,
    retyped_array,
    written,
)
from streammach.model.coding import Coded, decode, encode
from streammach.model.tensors import DTYPES, NAMES
from streammach.spec.documents import from_json

LENGTH_BYTES = 8


class Folder:
    """The files of a folder in memory, to be changed and written.

    Parameters
    ----------
    folder : Path
        A model, a run, or a sweep.
    """

    def __init__(self, folder):
        self._kept = contents(folder)
        self.files = dict(self._kept)

    def fresh(self):
        """Return the same, unchanged."""
        other = object.__new__(Folder)
        other._kept, other.files = self._kept, dict(self._kept)
        return other

    def write(self, folder):
        """Write the files into a new folder."""
        write_files(folder, self.files)

    def document(self, name):
        """Return one of its JSON documents."""
        return json.loads(self.files[name])

    def put(self, name, document):
        """Replace a document."""
        self.files[name] = written(document)


class Tensors:
    """A file of arrays: its header, the bytes of each array, and the document beside it."""

    def __init__(self, folder, document):
        self._folder, self._name = folder, document
        self._file = document.replace(".json", ".safetensors")
        self.document = folder.document(document)
        body = folder.files[self._file]
        size = LENGTH_BYTES + int.from_bytes(body[:LENGTH_BYTES], "little")
        self.header = json.loads(body[LENGTH_BYTES:size])
        self.bodies = {}
        for name, facts in self.header.items():
            a, b = facts["data_offsets"]
            self.bodies[name] = body[size + a : size + b]

    def coded(self, name):
        """Return how an array is coded, or None."""
        facts = self.document.get("coded", {}).get(name)
        return None if facts is None else from_json(json.dumps(facts).encode(), Coded)

    def array(self, name):
        """Return an array, decoded."""
        facts = self.header[name]
        array = np.frombuffer(self.bodies[name], DTYPES[facts["dtype"]]).reshape(facts["shape"])
        coded = self.coded(name)
        starts = {} if coded is None or coded.how != "lists" else {
            "count_starts": self.array("count_starts")
        }  # fmt: skip
        return array if coded is None else decode(array, coded, starts)

    def put(self, name, values):
        """Replace an array, coded as it was."""
        coded = self.coded(name)
        if coded is not None:
            starts = {"count_starts": self.array("count_starts")} if coded.how == "lists" else {}
            values, facts = encode(name, values, starts, coded.how)
            self.document["coded"][name] = {
                "dtype": facts.dtype, "shape": list(facts.shape), "how": facts.how,
                "sizes": list(facts.sizes), "unit": facts.unit,
            }  # fmt: skip
        self.put_raw(name, values)

    def put_raw(self, name, values):
        """Replace the bytes of an array, and what the header says of it."""
        self.header[name]["dtype"] = NAMES.get(values.dtype, str(values.dtype))
        self.header[name]["shape"] = list(values.shape)
        self.bodies[name] = values.tobytes()

    def close(self, *, header=None, honest=True, length=None):
        """Put file and document into the folder, with size and checksum as they are."""
        at = 0
        for name, body in self.bodies.items():
            if header is None:
                self.header[name]["data_offsets"] = [at, at + len(body)]
            at += len(body)
        text = written(self.header if header is None else header)
        text += b" " * (-len(text) % 8)
        n = len(text) if length is None else length
        file = n.to_bytes(LENGTH_BYTES, "little") + text + b"".join(self.bodies.values())
        self._folder.files[self._file] = file
        if honest:
            self.document["tensors"] = {"size": len(file), "crc32c": google_crc32c.value(file)}
        self._folder.put(self._name, self.document)


def altered_model(rng, folder, document="model.json"):
    """Change a model, or a checkpoint, in one or two places; return what was done."""
    told = []
    for _ in range(1 + int(rng.integers(7) == 0)):
        way = WAYS[rng.choice(len(WAYS), p=CHANCES)]
        try:
            told.append(f"{way.__name__.strip('_')} {way(rng, folder, document)}")
        except CANNOT:
            told.append(f"{way.__name__.strip('_')}: not any more")
    return "; ".join(told)


def _document(rng, folder, document):
    changed, what = altered_document(rng, folder.document(document))
    folder.put(document, changed)
    return what


def _part(rng, folder, document):
    """Change what stands below one key: of the spec, the arrays that are coded, the progress."""
    changed = folder.document(document)
    holders = [key for key, value in changed.items() if isinstance(value, dict | list) and value]
    key = holders[rng.integers(len(holders))]
    changed[key], what = altered_document(rng, changed[key])
    folder.put(document, changed)
    return f"{key}: {what}"


def _header(rng, folder, document):
    tensors = Tensors(folder, document)
    header, what = altered_document(rng, json.loads(json.dumps(tensors.header)))
    lengths = (None, None, None, 0, 1, 2**20, 2**31, 2**63, 2**64 - 1)
    tensors.close(header=header, length=lengths[rng.integers(len(lengths))])
    return what


def _elements(rng, folder, document):
    tensors = Tensors(folder, document)
    name = _any(rng, tensors)
    values, what = altered_array(rng, tensors.array(name))
    if rng.integers(6) == 0:
        values, what = retyped_array(rng, values) if rng.integers(2) else resized_array(rng, values)
    try:
        tensors.put(name, values)
    except CANNOT:
        tensors.put_raw(name, values)
    tensors.close(honest=bool(rng.integers(20)))
    return f"{name}: {what}"


def _packed(rng, folder, document):
    """Change what a coded array is packed in, or what is said of that."""
    tensors = Tensors(folder, document)
    name = _any(rng, tensors)
    body = bytearray(tensors.bodies[name])
    places = rng.integers(max(1, len(body)), size=int(rng.integers(1, 6)))
    if rng.integers(2):
        places = np.arange(4, min(len(body), 4 + len(places)))  # the header of a frame
    for place in places[: len(body)]:
        body[place] = int(rng.integers(256))
    tensors.bodies[name] = bytes(body)
    facts = tensors.document.get("coded", {}).get(name)
    if facts is not None and rng.integers(3) == 0:
        tensors.document["coded"][name], _ = altered_document(rng, facts)
    tensors.close()
    return f"{name}: bytes {places.tolist()}"


def _without(rng, folder, document):
    """Leave an array out, add one, or exchange two."""
    tensors = Tensors(folder, document)
    name, other = _any(rng, tensors), _any(rng, tensors)
    way = rng.integers(3)
    if way == 0:
        del tensors.header[name], tensors.bodies[name]
    elif way == 1:
        tensors.header["more"], tensors.bodies["more"] = (
            dict(tensors.header[name]), tensors.bodies[name],
        )  # fmt: skip
    else:
        for parts in (tensors.header, tensors.bodies):
            parts[name], parts[other] = parts[other], parts[name]
    tensors.close()
    return f"{name} {('left out', 'twice', f'is {other}')[way]}"


def _everywhere(rng, folder, document):
    """Change a number of classes, features or buckets in every place that says it."""
    tensors = Tensors(folder, document)
    spec = tensors.document.get("spec", tensors.document)
    names = [n for n in ("n_classes", "n_features", "n_buckets", "n_repetitions") if n in spec]
    if not names:
        return _document(rng, folder, document)
    name = names[rng.integers(len(names))]
    n = spec[name]
    some = (1, 2, n - 1, n + 1, 2 * n, 2**20, 2**31 - 1, 2**33)
    m = int(some[rng.integers(len(some))])
    spec[name] = m
    for array in list(tensors.bodies):
        values = tensors.array(array)
        shape = tuple({n: m, n + 1: m + 1}.get(k, k) for k in values.shape)
        if shape != values.shape and np.prod(shape, dtype=object) <= 2**20 and min(shape) >= 0:
            tensors.put(array, np.resize(values, shape))
        elif shape != values.shape and tensors.coded(array) is not None:
            tensors.document["coded"][array]["shape"] = list(shape)
    tensors.close()
    return f"{name} {m}, not {n}"


WAYS = (_document, _part, _header, _elements, _packed, _without, _everywhere)
CHANCES = np.array([14, 24, 12, 30, 10, 4, 6]) / 100


def _any(rng, tensors):
    names = sorted(tensors.bodies)
    return names[rng.integers(len(names))]


def altered_run(rng, folder):
    """Change what the folder of a run or a sweep holds in one or two places; return what."""
    told = []
    for _ in range(1 + int(rng.integers(6) == 0)):
        try:
            told.append(_somewhere(rng, folder))
        except CANNOT:
            told.append("not any more")
    return "; ".join(told)


def _somewhere(rng, folder):
    """Change one document, the log, or a file."""
    documents = sorted(n for n in folder.files if n.endswith(".json"))
    usual = [n for n in documents if "/" not in n] or documents
    name = usual[rng.integers(len(usual))]
    way = rng.integers(12)
    if way == 0 and "log.jsonl" in folder.files:
        return f"log.jsonl {_log(rng, folder)}"
    if way == 1:
        return _file(rng, folder)
    if way < 4 and len(documents) > len(usual):
        name = documents[rng.integers(len(documents))]
        if name.endswith(("model.json", "state.json")):
            return f"{name} {altered_model(rng, folder, name)}"
    elif way < 9 and any(isinstance(v, dict | list) and v for v in _parts(folder, name)):
        return f"{name} {_part(rng, folder, name)}"
    return f"{name} {_document(rng, folder, name)}"


def _parts(folder, name):
    document = folder.document(name)
    return document.values() if isinstance(document, dict) else ()


def _log(rng, folder):
    lines = folder.files["log.jsonl"].splitlines()
    at = int(rng.integers(len(lines)))
    odd = (b"", b"{", b"null", b"\xff\xfe", b"[" * 5000, b'{"t": 1e999}', b'{"t": NaN, "event": 1}',
           b'{"event": "progress", "t": 1, "epoch": -1, "rows_per_second": 1e308}')  # fmt: skip
    what = "another line"
    if rng.integers(3) == 0:
        lines[at] = odd[rng.integers(len(odd))]
    else:
        changed, what = altered_document(rng, json.loads(lines[at]))
        lines[at] = written(changed)
    folder.files["log.jsonl"] = b"\n".join(lines) + b"\n"
    return f"line {at}: {what}"


def _file(rng, folder):
    names = sorted(folder.files)
    name, other = (names[n] for n in rng.integers(len(names), size=2))
    way = rng.integers(4)
    if way == 0:
        del folder.files[name]
    elif way == 1:
        folder.files[name] = folder.files[name][: int(rng.integers(1 + len(folder.files[name])))]
    elif way == 2:
        folder.files[name] = folder.files[other]
    else:
        folder.files[name] = rng.bytes(300)
    return f"{name} {('removed', 'cut', f'is {other}', 'any bytes')[way]}"
