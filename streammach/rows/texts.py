"""Lists of byte strings in two arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streammach.rows.layouts import ends
from streammach.system.jit import Array, kernel


@dataclass(frozen=True)
class Texts:
    """Byte strings, one for each row."""

    # int64 (n + 1,): where each one starts in `data`, from 0, and where the last one ends
    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]  # uint8 (bytes,): their bytes, one after another

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Texts:
        """Return the list of the given strings."""
        raws = list(texts)
        return Texts(ends([*map(len, raws)]), np.frombuffer(b"".join(raws), np.uint8))

    @staticmethod
    def of_spans(
        data: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> Texts:
        """Return copies of the strings that start and stop at places int64 (n,) of some bytes."""
        offsets = ends(stops - starts)
        out = np.empty(int(offsets[-1]), np.uint8)
        copy_texts(np.asarray(data), starts, offsets, out)
        return Texts(offsets, out)

    @staticmethod
    def concat(parts: Sequence[Texts]) -> Texts:
        """Return the strings of all parts, one after the other."""
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        return Texts(ends(lengths), np.concatenate([part.data for part in parts]))

    @property
    def text_bytes(self) -> int:
        """Bytes of the strings themselves."""
        return self.data.nbytes

    def part(self, start: int, stop: int) -> Self:
        """Return strings ``start:stop``; their bytes are a view."""
        first, last = self.offsets[[start, stop]].tolist()
        offsets = self.offsets[start : stop + 1] - first
        return replace(self, offsets=offsets, data=self.data[first:last])

    def take(self, chosen: NDArray[np.int64]) -> Self:
        """Return copies of the chosen strings, in that order."""
        found = Texts.of_spans(self.data, self.offsets[:-1][chosen], self.offsets[1:][chosen])
        return replace(self, offsets=found.offsets, data=found.data)

    def raws(self, ids: NDArray[Any] | None = None) -> list[bytes]:
        """Return the strings, or those with some ids int (n,)."""
        starts, ends = self.offsets[:-1], self.offsets[1:]
        pairs = (starts, ends) if ids is None else (starts[ids], ends[ids])
        data: Any = self.data
        view = memoryview(data)
        return [bytes(view[a:b]) for a, b in zip(*(x.tolist() for x in pairs), strict=True)]


@kernel()
def copy_texts(data: Array, starts: Array, offsets: Array, out: Array) -> None:
    """Copy strings from `starts` int64 (n,) of `data` to ``offsets`` int64 (n + 1,) of `out`."""
    for i in range(starts.shape[0]):
        for q in range(offsets[i + 1] - offsets[i]):
            out[offsets[i] + q] = data[starts[i] + q]
