"""How the arrays of a small model lie in its file: without loss, in fewer bytes.

An array becomes words of a few bytes that are mostly small, the words become planes (all first
bytes, then all second bytes, ...), and pieces of these are compressed by Zstandard, whose Huffman
codes take close to the entropy of each plane.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, cast

import msgspec
import numpy as np
from numcodecs import Shuffle, Zstd
from numpy.typing import NDArray

from streammach.linear.late import LateLabels
from streammach.linear.weights import LinearWeights
from streammach.model.tensors import ArrayOnDisk
from streammach.rows.layouts import ArrayTable, How
from streammach.rows.neighbours import Neighbours
from streammach.rows.pairs import CountWeights, NamePairs
from streammach.system.errors import clean
from streammach.system.files.reading import ZSTD_HEADER, zstd_size
from streammach.system.threads import Workers, in_turn

PIECE_WORDS = 1 << 22  # that are compressed at once
CODERS = 4  # threads that compress, at most: each has a piece
# Of Zstandard: more is slower, and less than 2% smaller; text 7%, but with tables of 41 MB.
TEXT_LEVEL, WEIGHT_LEVEL, LEVEL = 6, 1, 3
COUNTS = "count_"  # before the names of the counts' arrays
NEAR = "near_"  # and of those of training rows beside them
LINEAR = "linear_"  # and of those of linear classifiers
LATE = "late_"  # and of classifiers that score the best classes again
NAMES = "name_"  # and of what names of labels add to counts
TABLES: dict[str, type[ArrayTable]] = {
    COUNTS: CountWeights, NEAR: Neighbours, LINEAR: LinearWeights, LATE: LateLabels,
    NAMES: NamePairs,
}  # fmt: skip
HOWS: dict[str, How] = {
    "label_offsets": "steps", "feature_offsets": "steps",
    **{prefix + name: form.how for prefix, table in TABLES.items()
       for name, (_, form) in table.forms().items()},
}  # fmt: skip
# By the arrays of lists: where these start.
LIST_STARTS = {
    name: name.partition("_")[0] + "_starts" for name, how in HOWS.items() if how == "lists"
}
LEVELS = {"label_bytes": TEXT_LEVEL, "feature_bytes": TEXT_LEVEL, "weights": WEIGHT_LEVEL}
DType = Literal["float32", "int64", "int32", "int16", "int8", "uint8"]
Bytes = NDArray[np.uint8] | ArrayOnDisk  # uint8 (n,): in memory, or in an open file


class Coded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the document says of a coded array."""

    dtype: DType  # type of the array
    shape: tuple[int, ...]  # its shape
    # what the words are: `planes` the values; `steps` the differences from the value before;
    # `lists` the same, starting anew with each list; `units` multiples of `unit` with the sign as
    # the lowest bit; `halves` float16 of float32; `nibbles` two values from -8 to 7 a byte, the
    # first in the low bits
    how: How
    sizes: tuple[int, ...]  # bytes of each compressed piece
    unit: int = 1  # of `units`; 1 otherwise


def encode(
    name: str, array: NDArray[Any], arrays: dict[str, NDArray[Any]], how: How | None = None,
    room: CodeBuffer | None = None,
) -> tuple[NDArray[np.uint8], Coded]:  # fmt: skip
    """Return the compressed bytes of an array, and what is needed to read them."""
    how = how or HOWS.get(name, "planes")
    unit = max(1, int(np.gcd.reduce(array, axis=None))) if how == "units" else 1
    codec, room = Zstd(LEVELS.get(name, LEVEL)), room or CodeBuffer()
    starts = arrays[LIST_STARTS[name]] if how == "lists" else None
    works = (partial(_compress, codec, make) for make in _pieces(array, how, unit, starts))
    sizes = tuple(room.add(piece) for piece in in_turn(room.workers, works))
    dtype = cast("DType", str(array.dtype))
    coded = Coded(dtype=dtype, shape=array.shape, how=how, sizes=sizes, unit=unit)
    return room.take_bytes(), coded


def _compress(codec: Zstd, make: Callable[[], NDArray[Any]]) -> bytes:
    words = make()
    found: bytes = codec.encode(Shuffle(words.itemsize).encode(words))
    return found


class CodeBuffer:
    """Where compressed bytes go, and the threads that compress pieces."""

    def __init__(self, spare: NDArray[np.uint8] | None = None, threads: int = 1) -> None:
        self.workers = Workers(min(threads, CODERS), "code")
        self._spare = np.zeros(0, np.uint8) if spare is None else spare
        self._n, self._own = 0, bytearray()

    def add(self, piece: bytes) -> int:
        """Take the next bytes of an array; return how many there are."""
        end = self._n + len(piece)
        if self._own or end > len(self._spare):
            self._own += piece
        else:
            self._spare[self._n : end] = np.frombuffer(piece, np.uint8)
            self._n = end
        return len(piece)

    def take_bytes(self) -> NDArray[np.uint8]:
        """Return the bytes of an array, after which those of another one may come."""
        here, self._spare = self._spare[: self._n], self._spare[self._n :]
        own, self._n, self._own = np.frombuffer(self._own, np.uint8), 0, bytearray()
        if not len(own):
            return here
        return np.concatenate([here, own]) if len(here) else own


def _pieces(
    array: NDArray[Any], how: How, unit: int, starts: NDArray[np.int64] | None
) -> Iterator[Callable[[], NDArray[Any]]]:
    """Yield what makes the words of an array, some at a time."""
    step = PIECE_WORDS * (2 if how == "nibbles" else 1)
    for start in range(0, array.size, step):
        stop = min(start + step, array.size)
        if how in ("steps", "lists"):  # a word depends on the value before it
            yield partial(_steps, array.reshape(-1), start, stop, starts)
        else:
            yield partial(_words, array, start, stop, how, unit)


def _flat(array: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
    if array.flags.c_contiguous:
        return array.reshape(-1)[start:stop]
    width = array.shape[1]
    first = start // width
    rows: NDArray[Any] = array[first : -(-stop // width)].reshape(-1)
    return rows[start - first * width : stop - first * width]


def decode(
    data: NDArray[np.uint8], coded: Coded, starts: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return the array that :func:`encode` was given, bit for bit; `starts` are those of lists."""
    n, dtype = math.prod(coded.shape), np.dtype(coded.dtype)
    pieces = _places(data, coded)
    words = np.empty(_n_words(coded), _word_type(dtype, coded.how))
    for i, (a, b) in enumerate(pieces):
        _fill(words[i * PIECE_WORDS : (i + 1) * PIECE_WORDS], data[a:b])
    return values_of(words, n, coded, starts).reshape(coded.shape)


def words_in(data: Bytes, coded: Coded) -> Iterator[NDArray[Any]]:
    """Yield what :func:`encode` compressed, piece by piece; `data` is uint8 (n,)."""
    n, word = _n_words(coded), _word_type(np.dtype(coded.dtype), coded.how)
    for number, (start, stop) in enumerate(_places(data, coded)):
        words = np.empty(min(PIECE_WORDS, n - number * PIECE_WORDS), word)
        _fill(words, data[start:stop])
        yield words


def _n_words(coded: Coded) -> int:
    n = math.prod(coded.shape)
    return -(-n // 2) if coded.how == "nibbles" else n


def _places(data: Bytes, coded: Coded) -> list[tuple[int, int]]:
    """Return where each piece starts and ends; ValueError if they are not what they should be."""
    if min(coded.shape, default=0) < 0 or not 0 < coded.unit < 1 << 15:
        raise ValueError("the shape or unit of a coded array cannot be")
    n_words, word = _n_words(coded), _word_type(np.dtype(coded.dtype), coded.how)
    if sum(coded.sizes) != len(data) or len(coded.sizes) != -(-n_words // PIECE_WORDS):
        raise ValueError("the pieces of a coded array do not fill it")
    ends = list(itertools.accumulate(coded.sizes, initial=0))
    pieces = list(itertools.pairwise(ends))
    for i, (a, b) in enumerate(pieces):  # before anything is allocated
        expected = min(PIECE_WORDS, n_words - i * PIECE_WORDS) * word.itemsize
        head = data[a : min(b, a + ZSTD_HEADER)].tobytes()
        if min(coded.sizes) < 0 or zstd_size(head) != expected:
            raise ValueError("a piece of a coded array has the wrong length")
    return pieces


def _fill(words: NDArray[Any], piece: NDArray[np.uint8]) -> None:
    one = words.itemsize == 1  # a plane is what the words are
    planes = words.view(np.uint8) if one else np.empty(words.nbytes, np.uint8)
    try:
        Zstd().decode(np.ascontiguousarray(piece), planes)
    except (RuntimeError, ValueError) as error:
        raise ValueError(clean(error)) from None
    if not one:
        Shuffle(words.itemsize).decode(planes, words)


def _word_type(dtype: np.dtype[Any], how: How) -> np.dtype[Any]:
    if how == "halves":
        return np.dtype(np.float16)
    if how == "nibbles":
        return np.dtype(np.uint8)
    return np.dtype(f"u{dtype.itemsize}") if how == "units" else dtype


def _words(array: NDArray[Any], start: int, stop: int, how: How, unit: int) -> NDArray[Any]:
    """Return what the planes are made of, where each value stands for itself."""
    flat = np.ascontiguousarray(_flat(array, start, stop))
    if how == "units":
        small = flat // flat.dtype.type(unit)
        sign = small >> (8 * flat.itemsize - 1)
        folded: NDArray[Any] = ((small << 1) ^ sign).view(f"u{flat.itemsize}")
        return folded
    if how == "halves":
        return flat.astype(np.float16)
    if how == "nibbles":
        even = np.append(flat, np.int8(0)) if len(flat) % 2 else flat
        bytes_ = even.view(np.uint8)
        packed: NDArray[Any] = (bytes_[::2] & 15) | (bytes_[1::2] << 4)
        return packed
    return flat


def values_of(
    words: NDArray[Any], n: int, coded: Coded, starts: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return the values that words were made of."""
    dtype = np.dtype(coded.dtype)
    if coded.how == "steps":
        return np.cumsum(words, dtype=dtype)
    if coded.how == "lists":
        return _from_list_steps(words, starts)
    if coded.how == "units":
        half = (words >> 1).view(dtype)
        values: NDArray[Any] = (half ^ -(words & 1).view(dtype)) * dtype.type(coded.unit)
        return values
    if coded.how == "halves":
        return words.astype(dtype)
    if coded.how == "nibbles":
        wide = words.astype("<u2")
        wide |= wide << 4
        wide &= 0x0F0F
        numbers = wide.view(np.int8)  # from 0 on, in the order of the numbers
        numbers ^= np.int8(8)
        numbers -= np.int8(8)
        return numbers[:n]
    return words


def _steps(
    flat: NDArray[Any], start: int, stop: int, starts: NDArray[np.int64] | None
) -> NDArray[Any]:
    """Return some values, each less the one before it; the first of a list stays."""
    before = flat[start - 1] if start else flat.dtype.type(0)
    steps: NDArray[Any] = np.diff(flat[start:stop], prepend=before)
    if starts is not None:
        a, b = np.searchsorted(starts, (start, stop))
        first = starts[a:b]  # those of empty lists are of the list behind them, too
        steps[first - start] = flat[first]
    return steps


def _from_list_steps(steps: NDArray[Any], starts: NDArray[Any] | None) -> NDArray[Any]:
    """Return the classes; sums wrap around, and so do the differences of what they pass."""
    if starts is None or not len(starts) or starts[0] != 0 or starts[-1] != len(steps):
        raise ValueError("the starts of the lists are wrong")
    lengths = np.diff(starts)
    if (lengths < 0).any():
        raise ValueError("the starts of the lists are wrong")
    classes = np.cumsum(steps, dtype=steps.dtype, out=steps)
    before = np.append(classes, steps.dtype.type(0))[starts[:-1] - 1]
    classes -= np.repeat(before, lengths)
    return classes
