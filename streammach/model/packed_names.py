"""Names of very many labels, as they lie in the file of a small model: few are asked for at once.

Pieces of :data:`EACH` names are compressed, each with the lengths of its names before their bytes,
so that the place of a name is a division, and no label takes memory beyond its compressed bytes.
They are of deflate: a thousand names are there in a third of the time of Zstandard, whose tables
are too large for so few.
"""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from isal import igzip_lib, isal_zlib
from numpy.typing import NDArray

from streammach.errors import ModelError, clean
from streammach.model.coding import CodeBuffer, Coded
from streammach.model.tensors import damaged
from streammach.rows.names import MAX_NAME, Label, Names, kind_of, longest_part, values_of
from streammach.rows.pairs import ends as ends_of

MANY = 1 << 20  # labels from which on their names lie so
EACH = 1 << 10  # names of a piece: more are read for each label, fewer take more bytes and calls
LENGTH = np.dtype("<u2")  # of a name
LEVEL, GZIP = 6, 31  # of zlib: 9 takes twice the time for 1% less; with checksums of 32 bits
UNREADABLE: Any = igzip_lib.IsalError
KINDS = ("bytes", "utf8", "integer")  # a list is of the first one that a name needs


@dataclass(frozen=True)
class PackedNames:
    """A list of names by id that stays compressed: a name costs the reading of its piece.

    Threads may share it.
    """

    data: NDArray[np.uint8]  # uint8 (n,): the compressed pieces, one after another
    # int64 (2, m + 1): where each piece starts in `data`, and where its names start among the bytes
    # of all
    pieces: NDArray[np.int64]
    n_names: int  # n_names, each: how many names; how many a piece has, the last one fewer perhaps
    each: int
    kind: str  # as of :class:`streammach.rows.names.Names`
    place: str  # the model's folder, for messages
    _last: list[tuple[int, Names]] = field(
        init=False, default_factory=list, repr=False, compare=False
    )

    def check(self) -> None:
        """Raise ValueError unless pieces fill their bytes, and could hold so many names."""
        (starts, texts), lengths = self.pieces, np.diff(self.pieces)
        numbers = np.full(lengths.shape[1], self.each)
        numbers[-1] = self.n_names - self.each * (len(numbers) - 1)
        wrong = (lengths < 0).any(axis=0) | (lengths[1] > MAX_NAME * numbers)
        if wrong.any() or (starts[0], texts[0], starts[-1]) != (0, 0, len(self.data)):
            raise ValueError("the pieces of the labels' names do not fill their bytes")

    def __len__(self) -> int:
        return self.n_names

    def __getitem__(self, i: int) -> Label:
        """Return the name at a place, from the end where it is below 0, or raise IndexError."""
        return self.label(range(len(self))[i])

    @property
    def n_bytes(self) -> int:
        """Bytes that the list takes in memory."""
        return self.data.nbytes + self.pieces.nbytes

    @property
    def text_bytes(self) -> int:
        """Bytes of the names themselves."""
        return int(self.pieces[1, -1])

    @property
    def coded(self) -> Coded:
        """What a document says of `data`."""
        return _coded(self.data, self.text_bytes, self.each)

    def raw(self, i: int) -> bytes:
        """Return the bytes of name `i`; ModelError if they are damaged, here and below."""
        number, place = divmod(i, self.each)
        return self._piece(number).raw(place)

    def label(self, i: int) -> Label:
        """Return name `i` in the type that the user gave: int, str or bytes."""
        return values_of([self.raw(i)], self.kind)[0]

    def raws(self, ids: NDArray[np.int64]) -> list[bytes]:
        """Return the bytes of names by their ids int64 (n,)."""
        places, found = [divmod(i, self.each) for i in ids.tolist()], [b""] * len(ids)
        order = sorted(range(len(found)), key=places.__getitem__)
        for number, group in itertools.groupby(order, key=lambda i: places[i][0]):
            piece = self._piece(number)
            for i in group:
                found[i] = piece.raw(places[i][1])
        return found

    def values(self, ids: NDArray[np.int64]) -> list[Label]:
        """Return names by their ids int64 (n,), in the type that the user gave."""
        return values_of(self.raws(ids), self.kind)

    def plain(self) -> Names:
        """Return the whole list; it is not kept."""
        offsets, data = np.zeros(self.n_names + 1, np.int64), np.empty(self.text_bytes, np.uint8)
        for number in range(self.pieces.shape[1] - 1):
            names, start = self._read(number), int(self.pieces[1, number])
            n = number * self.each
            offsets[n : n + len(names.offsets)] = names.offsets + start
            data[start : start + len(names.data)] = names.data
        return Names(offsets, data, self.kind)

    def sound(self) -> bool:
        """Return whether the list is what it says, as :meth:`streammach.rows.names.Names.sound`."""
        kinds = set()
        for number in range(self.pieces.shape[1] - 1):
            names = self._read(number)
            if longest_part(names.offsets, names.data) > MAX_NAME:
                return False
            kinds.add(kind_of(names.offsets, names.data))
        return next(kind for kind in KINDS if kind in kinds) == self.kind

    def _piece(self, number: int) -> Names:
        """Return the names of a piece, the last one of which is kept: one often follows another."""
        for known, names in self._last[:]:
            if known == number:
                return names
        names = self._read(number)
        self._last[:] = [(number, names)]
        return names

    def _read(self, number: int) -> Names:
        """Decompress a piece."""
        n = min(self.each, self.n_names - number * self.each)
        (start, stop), (begin, end) = self.pieces[:, number : number + 2].tolist()
        size, unpacking = LENGTH.itemsize * n + end - begin, isal_zlib.decompressobj(GZIP)
        try:
            content = bytearray(unpacking.decompress(self.data[start:stop].tobytes(), size + 1))
        except UNREADABLE as error:
            raise self._wrong(clean(error)) from None
        if len(content) != size or not unpacking.eof:
            raise self._wrong("a piece has the wrong length")
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(np.frombuffer(content, LENGTH, n), out=offsets[1:])
        text = np.frombuffer(content, np.uint8, offset=LENGTH.itemsize * n)
        if offsets[-1] != len(text):
            raise self._wrong("lengths do not add up")
        return Names(offsets, text, self.kind)

    def _wrong(self, what: str) -> ModelError:
        return damaged(self.place, f"the labels' names are wrong: {what}")


LabelNames = Names | PackedNames


def pack_names(
    names: LabelNames, room: CodeBuffer
) -> tuple[NDArray[np.uint8], Coded, NDArray[np.int64]]:
    """Return names as they lie in a file, what the document says, and where pieces start."""
    if isinstance(names, PackedNames):
        return names.data, names.coded, names.pieces
    sizes, firsts = [], np.append(np.arange(0, len(names), EACH), len(names))
    for first, last in itertools.pairwise(firsts.tolist()):
        offsets = names.offsets[first : last + 1]
        packing = zlib.compressobj(LEVEL, wbits=GZIP)
        lengths = packing.compress(np.diff(offsets).astype(LENGTH).tobytes())
        text = packing.compress(names.data[offsets[0] : offsets[-1]].tobytes())
        sizes.append(room.add(lengths + text + packing.flush()))
    data = room.taken()
    pieces = np.stack([ends_of(np.array(sizes, np.int64)), names.offsets[firsts]])
    return data, _coded(data, names.text_bytes, EACH), pieces


def _coded(data: NDArray[np.uint8], text_bytes: int, each: int) -> Coded:
    return Coded(dtype="uint8", shape=(text_bytes,), how="names", sizes=(len(data),), unit=each)
