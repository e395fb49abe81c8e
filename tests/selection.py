"""Which tests run in the normal run, and which at night: full products, and what takes long.

A test with many cases runs those that show every pair of its values, on every device. What takes
long is listed in nightly.txt: beginnings of node ids. Of a test with "[*]" behind it all cases but
the first run at night, with "[*3]" all but three, spread evenly, with "[each]" all but a few that
show each value of each axis. In the simulator of a GPU each test of the contract has one case by
day, and all other tests run at night.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

MANY = 11  # cases of a test from which on pairs are enough
LISTED = Path(__file__).parent / "nightly.txt"
REST = re.compile(r"\[(\*(\d*)|each)\]$")  # behind a test's name: how many cases are enough
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
APART = "device"  # an axis with values that each show all pairs of the others


def listed() -> tuple[str, ...]:
    """Return the beginnings of node ids that run at night."""
    lines = LISTED.read_text("utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def enough(cases: Iterable[dict[str, object]], together: int = 2) -> list[bool]:
    """Return of each case, values by axis, whether it is one of the few that show every pair.

    With another number they show so many values together.
    """
    left = []
    for case in cases:
        apart = id(case.get(APART))  # the values of an axis are the same objects in all cases
        axes = [(name, id(value)) for name, value in sorted(case.items()) if name != APART]
        size = min(together, len(axes))
        left.append({(apart, *pair) for pair in itertools.combinations(axes, size)})
    found = [False] * len(left)
    while any(left):
        best = max(range(len(left)), key=lambda i: len(left[i]))
        shown, found[best] = left[best], True
        left = [pairs - shown for pairs in left]
    return found


def spread(n: int, n_chosen: int) -> list[bool]:
    """Return of each of n places whether it is chosen: the first and others, evenly spread."""
    chosen = {i * n // n_chosen for i in range(n_chosen)}
    return [i in chosen for i in range(n)]


def one_of_each(items: list, device: str) -> list:
    """Return a case of every test on a device: not the first, whose options are the plainest."""
    products = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and item.callspec.params.get(APART) == device:
            products[item.nodeid.partition("[")[0]].append(item)
    return [some[2 * len(some) // 3] for some in products.values()]


def at_night(items: list) -> list:
    """Return the tests that run at night alone."""
    if SIMULATED:
        some = one_of_each(items, "cuda")
        return [item for item in items if item not in some]
    products = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            products[item.nodeid.partition("[")[0]].append(item)
    more = [
        item
        for some in products.values()
        if len(some) > MANY
        for item, shows in zip(some, enough(i.callspec.params for i in some), strict=True)
        if not shows
    ]
    for name in listed():
        if rest := REST.search(name):
            some = products[name.removesuffix(rest[0])]
            if rest[1] == "each":
                by_day = enough((item.callspec.params for item in some), together=1)
            else:
                by_day = spread(len(some), int(rest[2] or 1))
            more += [item for item, shows in zip(some, by_day, strict=True) if not shows]
    return more + [item for item in items if item.nodeid.startswith(listed())]
