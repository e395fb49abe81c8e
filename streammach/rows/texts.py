"""Lists of byte strings in two arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streammach.system.jit import Array, kernel


@dataclass(frozen=True)
class Texts:
    """Byte strings, one for each row."""

    # int64 (n + 1,): where each one starts in `data`, and where the last one ends
    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]  # uint8 (bytes,): their bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Texts:
        """Return the list of the given strings."""
        raws = list(texts)
        offsets = np.zeros(len(raws) + 1, np.int64)
        np.cumsum([len(raw) for raw in raws], out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(raws), np.uint8))

    @classmethod
    def concat(cls, parts: Sequence[Texts]) -> Texts:
        """Return the strings of all parts, one after the other."""
        before = np.cumsum([0, *(part.n_bytes for part in parts)])
        ends = [p.offsets[1:] - p.offsets[0] + b for p, b in zip(parts, before[:-1], strict=True)]
        data = [part.data[part.offsets[0] : part.offsets[-1]] for part in parts]
        return cls(np.concatenate([[0], *ends]), np.concatenate(data))

    @property
    def n_bytes(self) -> int:
        """Bytes of the strings themselves."""
        return int(self.offsets[-1] - self.offsets[0])

    def part(self, start: int, stop: int) -> Texts:
        """Return strings ``start:stop`` as views."""
        return Texts(self.offsets[start : stop + 1], self.data)

    def take(self, chosen: NDArray[np.int64]) -> Texts:
        """Return copies of the chosen strings, in that order."""
        starts = self.offsets[:-1][chosen]
        offsets = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(self.offsets[1:][chosen] - starts, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        copy_texts(self.data, starts, offsets, data)
        return Texts(offsets, data)

    def raws(self) -> list[bytes]:
        """Return the strings."""
        first = int(self.offsets[0])
        data = self.data[first : int(self.offsets[-1])].tobytes()
        ends = (self.offsets - first).tolist()
        return [data[a:b] for a, b in itertools.pairwise(ends)]


@kernel()
def copy_texts(data: Array, starts: Array, offsets: Array, out: Array) -> None:
    """Copy strings from `starts` int64 (n,) of `data` to ``offsets`` int64 (n + 1,) of `out`."""
    for i in range(starts.shape[0]):
        for q in range(offsets[i + 1] - offsets[i]):
            out[offsets[i] + q] = data[starts[i] + q]
