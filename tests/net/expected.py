"""What the net expects: the answers, and digests of what only the same processor gives again."""

import hashlib
import json
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numba
import numpy as np
import scipy

FILE = Path(__file__).with_name("expected.json")
EXACT, NEAR = 1e-5, 1e-3  # by how much a number may differ: same processor and libraries, others


class Recorder:
    """A plugin of pytest that takes the answers which the tests would compare."""

    def __init__(self):
        self.answers = {}


@cache
def arithmetic():
    """Return a digest of what decides how numbers are rounded: processor and libraries."""
    features = sorted(name for name, there in llvm.get_host_cpu_features().items() if there)
    parts = [llvm.get_host_cpu_name(), *features, platform.machine(), numba.__version__]
    return hashlib.sha256(
        " ".join([*parts, np.__version__, scipy.__version__]).encode()
    ).hexdigest()[:12]


def as_json(answer):
    """Return an answer as it is after it was written and read."""
    return json.loads(json.dumps(answer, default=plain))


def plain(value):
    return value.tolist() if isinstance(value, np.ndarray) else value.item()


def difference(found, wanted, most, place=""):
    """Return where two documents differ, or an empty string; numbers, also texts, may by little."""
    if isinstance(found, str) and isinstance(wanted, str) and found != wanted:
        with suppress(ValueError):
            found, wanted = float(found), float(wanted)
    numbers = isinstance(found, float) or isinstance(wanted, float)
    if numbers and None not in (found, wanted):
        same = np.isclose(found, wanted, rtol=most, atol=most)
        return "" if same else f"{place}: {found} is not {wanted}"
    if isinstance(found, dict) and isinstance(wanted, dict) and found.keys() == wanted.keys():
        pairs = [(key, found[key], wanted[key]) for key in found]
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        pairs = zip(range(len(found)), found, wanted, strict=True)
    else:
        return "" if found == wanted else f"{place}: {found!r} is not {wanted!r}"
    return next(filter(None, (difference(f, w, most, f"{place}.{k}") for k, f, w in pairs)), "")


def rounded(answer):
    """Return an answer with numbers of seven digits."""
    if isinstance(answer, float):
        return float(f"{answer:.7g}")
    if isinstance(answer, list):
        return [rounded(item) for item in answer]
    if isinstance(answer, dict):
        return {key: rounded(item) for key, item in answer.items()}
    return answer


def write(answers, digests):
    """Write the file, a case a line."""
    lines = [f"  {json.dumps(k)}: {line_of(v)}" for k, v in sorted(answers.items())]
    more = [f"  {json.dumps(k)}: {line_of(v)}" for k, v in sorted(digests.items())]
    text = '{{\n "answers": {{\n{}\n }},\n "arithmetic": "{}",\n "digests": {{\n{}\n }}\n}}\n'
    FILE.write_text(text.format(",\n".join(lines), arithmetic(), ",\n".join(more)))


def line_of(answer):
    return json.dumps(rounded(answer), sort_keys=True, separators=(",", ":"))
