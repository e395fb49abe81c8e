"""How work is cut, and how tables lie in device memory: tiles, class sets, groups, packed codes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from streammach.options.model_spec import ModelShape
from streammach.system.errors import DeviceError

CHUNK = 4  # float32 columns that one thread owns: 16 bytes, the widest access
TF32_CAPABILITY = (8, 0)  # the least that multiplies in TF32
WARP = 32
THREADS, RESIDENT = 256, 8  # of a block of entries; blocks that a multiprocessor has at once
STRIDING = (THREADS, 4)  # bounds of kernels that stride over entries
ALIGNED = 8  # numbers: matrices whose rows start on 32 bytes are multiplied without a detour
MOST_THREADS = 1024  # of a block
TILE_COLUMNS = 1024  # aimed at: one thread to a chunk makes 256 threads
STAGED_BYTES = 40 << 10  # of probabilities that the scan of classes keeps there
REGISTERS = 16384  # of each of the four parts of a multiprocessor
FORWARD_REGISTERS, BACKWARD_REGISTERS = 56, 72  # what the kernels need without a spill
ADAM_REGISTERS = 80  # of the backward kernel: two more chunks are on their way


def rounded_up(n: int, unit: int) -> int:
    """Return the smallest multiple of `unit` that is not below `n`."""
    return -(-n // unit) * unit


@dataclass(frozen=True, kw_only=True)
class ColumnTiles:
    """How one row of R models of B columns is shared among threads and blocks.

    A thread owns a chunk of 4 columns, a block a tile of whole models, so that a softmax never
    leaves its block. Tiles begin where both a model and a chunk begin.
    """

    n_buckets: int  # B
    n_repetitions: int  # R
    models_per_tile: int  # the last tile may have fewer
    n_tiles: int
    chunks_per_row: int  # of a row of the table, which starts on 16 bytes
    chunks_per_tile: int
    threads: int  # of a block

    @property
    def stride(self) -> int:
        """Columns of a row in memory: R*B, rounded up to whole chunks."""
        return self.chunks_per_row * CHUNK


def launch_shape(
    n_buckets: int, n_repetitions: int, tile_columns: int = TILE_COLUMNS
) -> ColumnTiles:
    """Return how forward and backward are launched for R models of B buckets, or DeviceError."""
    # Not even the narrowest tile may fit a block: more than 4,096 buckets, or more than 4,096 in
    # the models it takes until a model begins where a chunk begins.
    step = models_step(n_buckets)
    models = max(step, tile_columns // n_buckets // step * step)
    if models >= n_repetitions or n_repetitions * n_buckets <= tile_columns * 5 // 4:
        models = n_repetitions
    chunks = -(-models * n_buckets // CHUNK)
    threads = rounded_up(max(chunks, models), WARP)
    if threads > MOST_THREADS:
        what = f"{models} x {n_buckets:,} buckets are more than a block's {MOST_THREADS * CHUNK:,}"
        hint = "Take fewer buckets, a multiple of 4, or --device cpu."
        raise DeviceError(what, path="--device cuda", hint=hint)
    return ColumnTiles(
        n_buckets=n_buckets, n_repetitions=n_repetitions, models_per_tile=models,
        n_tiles=-(-n_repetitions // models), chunks_per_tile=chunks, threads=threads,
        chunks_per_row=-(-n_repetitions * n_buckets // CHUNK),
    )  # fmt: skip


def launch_bounds(threads: int, registers: int, capability: tuple[int, int]) -> tuple[int, int]:
    """Return threads a block and blocks a multiprocessor that leave a thread its registers."""
    # Without a number of blocks the kernels that stride over features were given 100 to 240
    # registers, with too high a one they spill. Registers are given to warps, 8 a thread at a time.
    warps = threads // WARP
    most = (32 if capability == (7, 5) else 48) // warps
    blocks = 1
    for n in range(1, most + 1):
        warps_of_a_part = rounded_up(n * warps, 4) // 4
        if REGISTERS // (warps_of_a_part * WARP) // 8 * 8 >= registers:
            blocks = n
    return threads, blocks


def models_step(n_buckets: int) -> int:
    """Return how many models it takes until one begins where a chunk of columns begins."""
    return CHUNK // gcd(n_buckets, CHUNK)


@dataclass(frozen=True, kw_only=True)
class ClassSets:
    """How the scores of K classes are shared among threads and blocks.

    A thread owns a set of ``4 * words`` classes and keeps the best of them for each row it scores.
    """

    n_buckets: int  # B
    n_repetitions: int  # R
    stride: int  # columns of a row of probabilities in memory
    n_classes: int  # K
    one_row: bool  # whether a block scores a single row: the median keeps R values in registers
    words: int  # fours of classes of a set
    threads: int  # of a block
    rows: int  # whose probabilities a block scores at once
    staged: bool  # whether it keeps them in shared memory

    @property
    def code_bits(self) -> int:
        """Bits of a packed bucket."""
        return code_bits(self.n_buckets)

    @property
    def code_words(self) -> int:
        """Words of 32 bits that the codes of one model take."""
        return code_words(self.n_classes, self.n_buckets)

    @property
    def n_sets(self) -> int:
        """Number of sets, whole blocks of them."""
        return -(-self.n_classes // (4 * self.words * self.threads)) * self.threads

    @property
    def bounds(self) -> tuple[int, int]:
        """Launch bounds of scan and select; see :func:`launch_bounds`."""
        if not self.one_row:
            return self.threads, 3
        # Beyond 32 values a thread may have all registers that there are.
        return self.threads, 4 if self.n_repetitions <= WARP else 1


def decode_shape(
    n_buckets: int, n_repetitions: int, n_classes: int, *, one_row: bool, words: int = 16,
    threads: int = 256,
) -> ClassSets:  # fmt: skip
    """Return how top-k is launched; see :class:`ClassSets` for what is given."""
    columns, rows = n_buckets * n_repetitions, 1
    while not one_row and rows < 8 and 2 * rows * columns * 4 <= STAGED_BYTES:
        rows *= 2
    return ClassSets(
        n_buckets=n_buckets, n_repetitions=n_repetitions, stride=rounded_up(columns, CHUNK),
        n_classes=n_classes, one_row=one_row, words=words, threads=threads, rows=rows,
        staged=columns * 4 <= STAGED_BYTES,
    )  # fmt: skip


def code_bits(n_buckets: int) -> int:
    """Return the bits of a bucket's number in the packed table of codes."""
    return 8 if n_buckets <= 256 else 16


def code_words(n_classes: int, n_buckets: int) -> int:
    """Return the words of 32 bits that the codes of one model take."""
    return rounded_up(n_classes, CHUNK) * code_bits(n_buckets) // 32


def packed_codes(codes: NDArray[np.unsignedinteger], n_buckets: int) -> NDArray[np.uint32]:
    """Return buckets unsigned (K, R) model by model, four or two to a word: uint32 (R, words)."""
    n_classes, n_repetitions = codes.shape
    kind = np.dtype(np.uint8 if code_bits(n_buckets) == 8 else np.uint16)
    out = np.zeros((n_repetitions, rounded_up(n_classes, CHUNK)), kind.newbyteorder("<"))
    out[:, :n_classes] = codes.T
    return out.view(np.dtype(np.uint32).newbyteorder("<"))


def table_rows(n_features: int) -> int:
    """Return the rows of a table: one a feature, the bias, and zeros up to a multiple of eight."""
    return rounded_up(n_features + 1, ALIGNED)  # dense rows have as many columns


def stride_of(spec: ModelShape, models: int) -> int:
    """Return the columns of so many models of a spec in a row of memory."""
    return launch_shape(spec.n_buckets, models).stride


def group_edges(spec: ModelShape, n_groups: int) -> list[tuple[int, int]]:
    """Return the models of each group, ``first:last``: as even as can be, none empty."""
    # Groups begin where a chunk of columns begins, so that a model's bits do not depend on them.
    step = models_step(spec.n_buckets)
    units = -(-spec.n_repetitions // step)
    n_groups = min(n_groups, units)
    edges = [min(units * g // n_groups * step, spec.n_repetitions) for g in range(n_groups + 1)]
    return list(itertools.pairwise(edges))


def widest(spec: ModelShape, n_groups: int) -> int:
    """Return the most models of a group."""
    return max(last - first for first, last in group_edges(spec, n_groups))
