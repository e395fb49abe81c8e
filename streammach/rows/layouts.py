"""Records of arrays, which say beside each array's type how it lies in memory and in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

Length = Literal[
    "features", "ends", "classes", "pairs", "knots", "centres", "columns", "one", "any"
]  # fmt: skip
# See model.coding.Coded.
How = Literal["planes", "steps", "lists", "units", "halves", "nibbles"]
Shape = tuple[int | None, ...]  # None where any length is right


class ArrayLayout(NamedTuple):
    """How an array of a table lies: a note beside its type.

    ``shape`` gives its lengths by name: d ``features``, their d + 1 ``ends``, K ``classes``, Z
    ``pairs``, those of :class:`streammach.linear.kernel_map.KernelMap`, or ``any``; ``how`` says of
    what words it is made where it is coded.
    """

    shape: tuple[Length, ...]
    how: How = "planes"


class ArrayTable:
    """A record whose arrays have an :class:`ArrayLayout` beside their types."""

    @classmethod
    @cache
    def forms(cls) -> dict[str, tuple[np.dtype[Any], ArrayLayout]]:
        """Return type and form of each array by name, in their order in a file."""
        found = {}
        for name, hint in get_type_hints(cls, include_extras=True).items():
            if get_origin(hint) is Annotated:
                array, form = get_args(hint)
                item = get_args(array)[-1]  # of NumPy before 2.5 within its type of arrays
                found[name] = np.dtype((*get_args(item), item)[0]), form
        return found

    @classmethod
    def shapes(cls, *, features: int, **sizes: int) -> dict[str, tuple[Shape, np.dtype[Any]]]:
        """Return shape and type that each array must have, by name."""
        known = {"features": features, "ends": features + 1, **sizes}
        return {name: (tuple(map(known.get, form.shape)), dtype)
                for name, (dtype, form) in cls.forms().items()}  # fmt: skip

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays().values())

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "", **facts: Any) -> Self:
        """Return the record of arrays named with a prefix, and of what else it holds."""
        return cls(**{name: arrays[prefix + name] for name in cls.forms()}, **facts)

    def arrays(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        """Return the arrays by name, with a prefix before it."""
        return {prefix + name: getattr(self, name) for name in self.forms()}


def ends(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """Return where lists of these lengths start and the last one ends: int64 (n + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def are_lists(starts: NDArray[Any], ids: NDArray[Any], most: int) -> bool:
    """Return whether lists that start so, starts (n + 1,), are all of the ids, from 0 to `most`."""
    right = starts[0] == 0 and starts[-1] == len(ids) and not (np.diff(starts) < 0).any()
    return bool(right) and within(ids, most)


def within(ids: NDArray[Any], most: int) -> bool:
    """Return whether all ids are from 0 to below `most`."""
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < most)
