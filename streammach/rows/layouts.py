"""How the arrays of a table lie in memory and in a file."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Length = Literal["features", "ends", "classes", "pairs", "wide"]
# See model.coding.Coded.
How = Literal["planes", "steps", "lists", "units", "halves", "nibbles"]
Shape = tuple[int | None, ...]  # None where any length is right


class ArrayLayout(NamedTuple):
    """How an array of a table lies: a note beside its type.

    ``shape`` gives its lengths by name: d ``features``, their d + 1 ``ends``, K ``classes``, Z
    ``pairs``, any number ``wide``; ``how`` says of what words it is made where it is coded.
    """

    shape: tuple[Length, ...]
    how: How = "planes"


def ends(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where lists of these lengths start and the last one ends: int64 (n + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)])
