"""Models, runs and checkpoints with other content, and the checksums that belong to it."""

import json

import google_crc32c
import numpy as np

from streammach.model.coding import LIST_STARTS, Coded, decode, encode
from streammach.options.documents import from_json
from tests.campaigns.content_values import (
    CANNOT,
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

LENGTH_BYTES = 8
LETTERS = {"f": "F", "i": "I", "u": "U"}  # of types in the header of a file of arrays


def _dtype(name):
    return np.dtype(bool) if name == "BOOL" else np.dtype(f"{name[0].lower()}{int(name[1:]) // 8}")


def _name(dtype):
    if dtype.kind not in LETTERS:
        return "BOOL" if dtype.kind == "b" else str(dtype)
    return f"{LETTERS[dtype.kind]}{8 * dtype.itemsize}"


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
        facts = self.document.get("coded", {}).get(name)
        return None if facts is None else from_json(json.dumps(facts).encode(), Coded)

    def array(self, name):
        facts = self.header[name]
        array = np.frombuffer(self.bodies[name], _dtype(facts["dtype"])).reshape(facts["shape"])
        coded = self.coded(name)
        starts = (
            self.array(LIST_STARTS[name]) if coded is not None and coded.how == "lists" else None
        )
        return array if coded is None else decode(array, coded, starts)

    def put(self, name, values):
        """Replace an array, coded as it was."""
        coded = self.coded(name)
        if coded is not None:
            starts = (
                {LIST_STARTS[name]: self.array(LIST_STARTS[name])} if coded.how == "lists" else {}
            )
            values, facts = encode(name, values, starts, coded.how)
            self.document["coded"][name] = {
                "dtype": facts.dtype, "shape": list(facts.shape), "how": facts.how,
                "sizes": list(facts.sizes), "unit": facts.unit,
            }  # fmt: skip
        self.put_raw(name, values)

    def put_raw(self, name, values):
        """Replace the bytes of an array, and what the header says of it."""
        self.header[name]["dtype"] = _name(values.dtype)
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
    return several(rng, (7,), WAYS, folder, document)


def _document(rng, folder, document):
    changed, what = altered_document(rng, folder.document(document))
    folder.put(document, changed)
    return what


def _part(rng, folder, document):
    """Change what stands below one key: of the spec, the arrays that are coded, the progress."""
    changed = folder.document(document)
    holders = [key for key, value in changed.items() if isinstance(value, dict | list) and value]
    key = any_of(rng, holders)
    changed[key], what = altered_document(rng, changed[key])
    folder.put(document, changed)
    return f"{key}: {what}"


def _header(rng, folder, document):
    tensors = Tensors(folder, document)
    header, what = altered_document(rng, json.loads(json.dumps(tensors.header)))
    lengths = (None, None, None, 0, 1, 2**20, 2**31, 2**63, 2**64 - 1)
    tensors.close(header=header, length=any_of(rng, lengths))
    return what


def _elements(rng, folder, document):
    tensors = Tensors(folder, document)
    name = any_of(rng, sorted(tensors.bodies))
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
    name = any_of(rng, sorted(tensors.bodies))
    body = tensors.bodies[name]
    places = rng.integers(max(1, len(body)), size=int(rng.integers(1, 6)))
    if rng.integers(2):
        places = np.arange(4, min(len(body), 4 + len(places)))  # the header of a frame
    tensors.bodies[name] = spoilt(rng, body, places[: len(body)])
    facts = tensors.document.get("coded", {}).get(name)
    if facts is not None and rng.integers(3) == 0:
        tensors.document["coded"][name], _ = altered_document(rng, facts)
    tensors.close()
    return f"{name}: bytes {places.tolist()}"


def _without(rng, folder, document):
    """Leave an array out, add one, or exchange two."""
    tensors = Tensors(folder, document)
    name, other = any_of(rng, sorted(tensors.bodies)), any_of(rng, sorted(tensors.bodies))
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
    name = any_of(rng, names)
    n = spec[name]
    some = (1, 2, n - 1, n + 1, 2 * n, 2**20, 2**31 - 1, 2**33)
    m = int(any_of(rng, some))
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


WAYS = {_document: 14, _part: 24, _header: 12, _elements: 30, _packed: 10, _without: 4,
        _everywhere: 6}  # fmt: skip


def altered_run(rng, folder):
    """Change what the folder of a run holds in one or two places; return what."""
    return several(rng, (6,), {_somewhere: 1}, folder)


def _somewhere(rng, folder):
    """Change one document, the log, or a file."""
    documents = sorted(n for n in folder.files if n.endswith(".json"))
    usual = [n for n in documents if "/" not in n] or documents
    name = any_of(rng, usual)
    way = rng.integers(12)
    if way == 0 and "log.jsonl" in folder.files:
        return f"log.jsonl {_log(rng, folder)}"
    if way == 1:
        return altered_file(rng, folder.files)
    if way < 4 and len(documents) > len(usual):
        name = any_of(rng, documents)
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
        lines[at] = any_of(rng, odd)
    else:
        changed, what = altered_document(rng, json.loads(lines[at]))
        lines[at] = written(changed)
    folder.files["log.jsonl"] = b"\n".join(lines) + b"\n"
    return f"line {at}: {what}"
