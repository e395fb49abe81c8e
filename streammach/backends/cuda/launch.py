"""Shapes of launches: how columns are cut into tiles and classes into sets. Needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from streammach.errors import DeviceError

CHUNK = 4  # float32 columns that one thread owns: 16 bytes, the widest access
WARP = 32
THREADS, RESIDENT = 256, 8  # of a block of entries; blocks that a multiprocessor has at once
MOST_THREADS = 1024  # of a block
TILE_COLUMNS = 1024  # aimed at: one thread to a chunk makes 256 threads
SHARED_BYTES = 48 << 10  # what a block gets without asking the driver for more
STAGED_BYTES = 40 << 10  # of probabilities that the scan of classes keeps there
REGISTERS = 16384  # of each of the four parts of a multiprocessor
FORWARD_REGISTERS, BACKWARD_REGISTERS = 56, 72  # what the kernels need without a spill


def rounded_up(n: int, unit: int) -> int:
    """Return the smallest multiple of `unit` that is not below `n`."""
    return -(-n // unit) * unit


@dataclass(frozen=True, kw_only=True)
class ColumnTiles:
    """How one row of R models of B columns is shared among threads and blocks.

    A thread owns a chunk of 4 columns, a block a tile of whole models, so that a softmax never
    leaves its block. Tiles begin where both a model and a chunk begin.

    Attributes
    ----------
    n_buckets, n_repetitions : int
        B and R.
    models_per_tile, n_tiles : int
        Models of one tile; the last tile may have fewer.
    chunks_per_row, chunks_per_tile : int
        Chunks of a row of the table, which starts on 16 bytes, and of a tile.
    threads : int
        Threads of a block.
    """

    n_buckets: int
    n_repetitions: int
    models_per_tile: int
    n_tiles: int
    chunks_per_row: int
    chunks_per_tile: int
    threads: int

    @property
    def stride(self) -> int:
        """Columns of a row in memory: R*B, rounded up to whole chunks."""
        return self.chunks_per_row * CHUNK


def launch_shape(
    n_buckets: int, n_repetitions: int, tile_columns: int = TILE_COLUMNS
) -> ColumnTiles:
    """Return how forward and backward are launched for R models of B buckets.

    Parameters
    ----------
    n_buckets, n_repetitions : int
        B and R.
    tile_columns : int
        Columns of a tile, aimed at.

    Raises
    ------
    DeviceError
        If not even the narrowest tile fits a block: more than 4,096 buckets, or more than 4,096 in
        the models it takes until a model begins where a chunk begins.
    """
    step = CHUNK // gcd(n_buckets, CHUNK)
    models = max(step, tile_columns // n_buckets // step * step)
    if models >= n_repetitions or n_repetitions * n_buckets <= tile_columns * 5 // 4:
        models = n_repetitions
    chunks = -(-models * n_buckets // CHUNK)
    threads = rounded_up(max(chunks, models), WARP)
    if threads > MOST_THREADS:
        raise DeviceError(
            f"{models} x {n_buckets:,} buckets are more than a block's {MOST_THREADS * CHUNK:,}",
            path="--device cuda",
            hint="Take fewer buckets, a multiple of 4, or --device cpu.",
        )
    return ColumnTiles(
        n_buckets=n_buckets, n_repetitions=n_repetitions, models_per_tile=models,
        n_tiles=-(-n_repetitions // models), chunks_per_tile=chunks, threads=threads,
        chunks_per_row=-(-n_repetitions * n_buckets // CHUNK),
    )  # fmt: skip


def launch_bounds(threads: int, registers: int, capability: tuple[int, int]) -> tuple[int, int]:
    """Return threads a block and blocks a multiprocessor that leave a thread its registers.

    Without a number of blocks the kernels that stride over features were given 100 to 240
    registers, with too high a one they spill. Registers are given to warps, 8 a thread at a time.

    Parameters
    ----------
    threads, registers : int
        Threads of a block; registers that each needs.
    capability : tuple of int
        The GPU's compute capability, (9, 0) for example.
    """
    warps = threads // WARP
    most = (32 if capability == (7, 5) else 48) // warps
    blocks = 1
    for n in range(1, most + 1):
        warps_of_a_part = rounded_up(n * warps, 4) // 4
        if REGISTERS // (warps_of_a_part * WARP) // 8 * 8 >= registers:
            blocks = n
    return threads, blocks


@dataclass(frozen=True, kw_only=True)
class ClassSets:
    """How the scores of K classes are shared among threads and blocks.

    A thread owns a set of ``4 * words`` classes and keeps the best of them for each row it scores.

    Attributes
    ----------
    n_buckets, n_repetitions, stride : int
        B, R, and the columns of a row of probabilities in memory.
    n_classes : int
        K.
    code_bits : int
        Bits of a bucket in the packed table of codes: 8 or 16.
    rows : int
        Rows whose probabilities a block scores at once.
    staged : bool
        Whether it keeps them in shared memory.
    words : int
        Fours of classes of a set.
    threads : int
        Threads of a block.
    """

    n_buckets: int
    n_repetitions: int
    stride: int
    n_classes: int
    code_bits: int
    rows: int
    staged: bool
    words: int
    threads: int

    @property
    def n_sets(self) -> int:
        """Number of sets, whole blocks of them."""
        return -(-self.n_classes // (4 * self.words * self.threads)) * self.threads

    @property
    def code_words(self) -> int:
        """Words of 32 bits that the codes of one model take."""
        return rounded_up(self.n_classes, 4) * self.code_bits // 32


def decode_shape(
    n_buckets: int,
    n_repetitions: int,
    n_classes: int,
    *,
    one_row: bool,
    words: int = 16,
    threads: int = 256,
) -> ClassSets:
    """Return how top-k is launched.

    Parameters
    ----------
    n_buckets, n_repetitions, n_classes : int
        B, R and K.
    one_row : bool
        Whether a block scores a single row: the median keeps R values in registers.
    words, threads : int
        Fours of classes of a set; threads of a block.
    """
    columns = n_buckets * n_repetitions
    rows = 1
    while not one_row and rows < 8 and 2 * rows * columns * 4 <= STAGED_BYTES:
        rows *= 2
    return ClassSets(
        n_buckets=n_buckets, n_repetitions=n_repetitions, stride=rounded_up(columns, CHUNK),
        n_classes=n_classes, code_bits=code_bits(n_buckets), rows=rows,
        staged=columns * 4 <= STAGED_BYTES, words=words, threads=threads,
    )  # fmt: skip


def decode_bounds(shape: ClassSets, *, one_row: bool) -> tuple[int, int]:
    """Return the launch bounds of scan and select; see :func:`launch_bounds`.

    Parameters
    ----------
    shape : ClassSets
        Their shape.
    one_row : bool
        Whether a thread keeps R values in registers, as for the median: beyond 32 of them it may
        have all registers that there are.
    """
    if not one_row:
        return shape.threads, 3
    return shape.threads, 4 if shape.n_repetitions <= WARP else 1


def code_bits(n_buckets: int) -> int:
    """Return the bits of a bucket's number in the packed table of codes."""
    return 8 if n_buckets <= 256 else 16
