"""Files of a folder in memory; other values for their JSON documents, arrays and bytes."""

import json
import os
from pathlib import Path

import numpy as np

LONG, LONGER, DEEP = 5_000, 200_000, 3_000
ESCAPES = "\x1b[2J\x1b]0;mine\x07"
MARK = "@raw:"  # before text that goes into a document as it is, which need not be JSON
# What comes of changing what was changed already.
CANNOT = (
    KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, RuntimeError,
    SystemError, OSError,
)  # fmt: skip


def raw(text):
    """Return what stands in a document as this text."""
    return MARK + text


NUMBERS = (
    -1, 0, 1, 2, 3, 7, 255, 65_536, 2**31 - 1, 2**31, 2**32, 2**40, 2**48, 2**53 + 1, 2**62,
    2**63 - 1, 2**63, 2**64, 10**30, -(2**31), -(2**63), 0.5, -0.5, 1.0, 1e-320, 1e-9, 3.5e38,
    1e300, raw("NaN"), raw("Infinity"), raw("-Infinity"), raw("1e999"), raw("-1e999"), raw("1E400"),
    raw("9" * 400), raw("0." + "3" * 400), raw("01"), raw("-0"), raw("1.0e0"),
)  # fmt: skip
TEXTS = (
    "", " ", "x", "0", "None", "nan", "..", "../..", "/etc/passwd", "a/b", "a\x00b", ESCAPES,
    "\u202eabc", "\u2028", "ä" * 50, "<script>alert(1)</script>", "{}", "%s%n", "a" * LONG,
    "a" * LONGER, raw('"\\ud800"'), raw('"\\u0000"'), raw('"' + ESCAPES + '"'),
)  # fmt: skip
OTHERS = (
    None, True, False, [], {}, [[]], [1], [-1], [None], ["x"], {"a": 1}, {"": None}, [0] * 1000,
    raw("[" * DEEP + "]" * DEEP), raw("[" * 20 + "]" * 20), raw('{"a":1,"a":2}'), raw(""),
    raw("'x'"), raw("tru"), list(range(40)),
)  # fmt: skip


class Files:
    """The files of a folder in memory, by their names in it, to be changed and written."""

    def __init__(self, files):
        self.files = dict(files)

    @classmethod
    def of(cls, folder):
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})

    def fresh(self):
        """Return the same, to be changed."""
        return type(self)(self.files)

    def document(self, name):
        return json.loads(self.files[name])

    def put(self, name, document):
        self.files[name] = written(document)

    def write(self, folder):
        for name, body in self.files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(body)


def any_of(rng, some):
    return some[rng.integers(len(some))]


def several(rng, odds, ways, *given):
    """Change something in one place, and by these odds in more; return what was done.

    `ways` are the ways by their chances; each gets `rng` and what is given.
    """
    told, chances = [], np.array(list(ways.values()), float)
    for _ in range(1 + sum(int(rng.integers(n) == 0) for n in odds)):
        way = list(ways)[rng.choice(len(ways), p=chances / chances.sum())]
        try:
            told.append(f"{way.__name__.strip('_')} {way(rng, *given)}")
        except CANNOT:
            told.append(f"{way.__name__.strip('_')}: not any more")
    return "; ".join(told)


def altered_file(rng, files, names=None):
    """Remove, cut, add or exchange a file, or change bytes of it; return what was done."""
    names = sorted(files if names is None else names)
    name, other = any_of(rng, names), any_of(rng, names)
    body, way = files[name], rng.integers(7)
    if way == 0:
        del files[name]
    elif way == 1:
        files[name] = body[: int(rng.integers(1 + len(body)))]
    elif way == 2:
        first, inside, _ = name.partition("/")
        files[f"{first}/more/c/0" if inside else f"more/{name}"] = body
    elif way == 3:
        files[name] = files[other]
    elif way == 4:
        files[name] = rng.bytes(300)
    else:
        places = rng.integers(len(body) if way == 5 else min(20, len(body)), size=3)
        files[name] = spoilt(rng, body, places)
    ways = ("removed", "cut", "twice", f"is {other}", "any bytes", "other bytes", "another head")
    return f"{name} {ways[way]}"


def spoilt(rng, body, places):
    """Return bytes with others at some places."""
    out = bytearray(body)
    for place in places:
        out[place] = int(rng.integers(256))
    return bytes(out)


def written(document):
    """Return a document as JSON, or as nearly JSON as its raw texts are."""
    text = json.dumps(document, ensure_ascii=False)
    parts = text.split(f'"{MARK}')
    out = parts[0]
    for part in parts[1:]:
        inside, end = _string(part)
        out += inside + part[end:]
    return out.encode("utf-8", "surrogatepass")


def _string(part):
    """Return the string that a text begins with, whose first quote is gone, and where it ends."""
    end = 0
    while part[end] != '"':
        end += 2 if part[end] == "\\" else 1
    return json.loads(f'"{part[:end]}"'), end + 1


def altered_document(rng, document):
    """Change a document in one place, itself included; return it and what was done."""
    places = list(_places(document))
    path = any_of(rng, places)
    if not path:
        return altered(rng, document), "all of it"
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    key = path[-1]
    way = rng.integers(12)
    if way == 0:
        del holder[key]
        what = "removed"
    elif way == 1 and isinstance(holder, dict):
        name = "more" if rng.integers(2) else any_of(rng, TEXTS)
        holder[name] = altered(rng, holder[key])
        what = "another one beside it"
    elif way == 2 and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
        what = "renamed"
    elif way == 3:
        other = any_of(rng, places)
        holder[key] = _at(document, other) if not _inside(path, other) else None
        what = f"what stands at {_named(other)}"
    else:
        holder[key] = altered(rng, holder[key])
        what = repr(holder[key])[:60]
    return document, f"{_named(path)}: {what}"


def _places(node, path=()):
    yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _places(value, (*path, key))
    elif isinstance(node, list):
        for key, value in enumerate(node[:50]):
            yield from _places(value, (*path, key))


def _at(document, path):
    for key in path:
        document = document[key]
    return json.loads(json.dumps(document)) if isinstance(document, dict | list) else document


def _inside(path, other):
    return path[: len(other)] == other


def _named(path):
    return "/".join(str(key)[:30] for key in path)


def altered(rng, value):
    """Return another value: near the one that was, or anything."""
    if type(value) in NEAR and rng.integers(2):
        return any_of(rng, NEAR[type(value)](value))
    kinds = (NUMBERS, TEXTS, OTHERS)
    some = kinds[rng.integers(3)]
    if type(value) in (int, float) and rng.integers(2):
        some = NUMBERS
    return any_of(rng, some)


def _near_number(value):
    return (value + 1, value - 1, -value, value * 2, value // 2, value + 0.5, value * 1000,
            float(value) if abs(value) < 1e300 else 0.0, str(value), [value])  # fmt: skip


def _near_list(value):
    one = value[:1]
    return (value[:-1], value + one, value[::-1], value * 2, [value], one, one * LONG,
            [*value, None], dict(enumerate(map(str, value[:5]))))  # fmt: skip


NEAR = {
    bool: lambda value: (not value,),
    int: _near_number,
    float: _near_number,
    str: lambda value: (
        value + "x", value[:-1], value.upper(), value * 2, value + ESCAPES, value[::-1],
        [value], value + "\n", value + "0", value.encode().hex(),
    ),
    list: _near_list,
    dict: lambda value: (
        {}, list(value.values())[:9], {**value, "more": 1}, [value], list(value)[:9]
    ),
}  # fmt: skip


def altered_array(rng, values):
    """Return another array of the same type and number of axes, and what was done."""
    out = np.array(values)
    if not out.size:
        return np.ones(3 if out.ndim == 1 else out.shape, out.dtype), "filled"
    flat = out.reshape(-1)
    way = rng.integers(14)
    at = rng.integers(flat.size, size=1 if way < 7 else max(1, flat.size // 4))
    if way < 9:
        some = _odd_numbers(flat)
        with np.errstate(all="ignore"):
            flat[at] = any_of(rng, some)
        return out, f"{flat[at[0]]!r} at {at[:3].tolist()}"
    if way == 9:
        a, b = rng.integers(flat.size, size=2)
        flat[[a, b]] = flat[[b, a]]
        return out, f"{a} and {b} exchanged"
    if way == 10:
        flat[:] = flat[::-1].copy()
        return out, "turned around"
    if way == 11:
        with np.errstate(all="ignore"):
            flat[int(rng.integers(flat.size)) :] += np.asarray(rng.integers(-3, 4), flat.dtype)
        return out, "moved from some place on"
    if way == 12:
        flat[:] = np.frombuffer(rng.bytes(flat.nbytes), flat.dtype)
        return out, "any bytes"
    flat[:] = flat[0]
    return out, "all the same"


def resized_array(rng, values):
    """Return an array of another length, and what was done."""
    n = len(values)
    some = (0, 1, n - 1, n + 1, n // 2, 2 * n)
    size = max(0, int(any_of(rng, some)))
    return np.resize(values, (size, *values.shape[1:])), f"{size} items, not {n}"


TYPES = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32",
         "float64", "bool", "complex64", "S3")  # fmt: skip


def retyped_array(rng, values):
    """Return an array of another type, and what was done."""
    kind = any_of(rng, TYPES)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(kind), f"as {kind}"


def _odd_numbers(flat):
    if flat.dtype.kind == "f":
        return np.array([
            np.nan, np.inf, -np.inf, -0.0, 0.0, -1.0, 1e-45, 1e-30, 1e9, 3e38, -3e38, 0.5, 2.0**31,
        ]).astype(flat.dtype)  # fmt: skip
    if flat.dtype.kind == "b":
        return ~flat[:1]
    facts = np.iinfo(flat.dtype)
    near = [int(flat.max()) + 1, int(flat.max()), int(flat.min()) - 1, flat.size, flat.size - 1]
    some = [facts.max, facts.min, 0, 1, 2, 27, 94, -1, -2, 2**31 - 1, 2**31, 2**32 + 1, 2**48,
            10**6, facts.max - 1, *near]  # fmt: skip
    return np.array([n for n in some if facts.min <= n <= facts.max], flat.dtype)
