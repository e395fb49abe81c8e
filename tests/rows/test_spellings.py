"""Numbers that are spelled in several ways among names."""

import itertools
import re

import pytest

from streammach.rows.names import Names
from streammach.rows.spellings import spelled_differently

NUMBER = re.compile(r"(?:(.*)\^)?([+-]?)(\d{1,18})(\.0*)?")


def reference(names):
    """How many whole numbers of a namespace have several names."""
    groups = {}
    for name in names:
        match = NUMBER.fullmatch(name)
        if match:
            space, sign, digits, _ = match.groups()
            value = -int(digits) if sign == "-" else int(digits)
            groups.setdefault((space, value), set()).add(name)
    return sum(len(spellings) > 1 for spellings in groups.values())


@pytest.mark.parametrize(
    "names",
    [
        ["1", "01", "1.0", "+1", "x"], ["1", "2", "x"], ["01", "001"], ["01", "x"],
        ["a^1", "b^01"], ["a^1", "a^01", "b^1"], ["0", "-0", "00"], ["-1", "1.", "-01"],
        ["1.5", "1.50"], ["", "+", "-", ".", "1e3", "1000"], ["9" * 18, "0" + "9" * 18],
        ["a^^1", "a^^01", "^1", "^01"],
    ],
)  # fmt: skip
def test_spellings_of_a_number_are_found(names):
    found = spelled_differently(Names.of(names))
    assert (0 if found is None else found[0]) == reference(names)
    if found is not None:
        assert reference(found[1]) == 1
        assert set(found[1]) <= set(names)


def test_all_short_names_are_as_the_reference_says(rng):
    names = ["".join(part) for n in range(1, 5) for part in itertools.product("01+-.^", repeat=n)]
    for _ in range(200):
        chosen = rng.choice(names, 40, replace=False).tolist()
        found = spelled_differently(Names.of(chosen))
        assert (0 if found is None else found[0]) == reference(chosen)
