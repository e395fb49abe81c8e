"""What rows and names like those of a sample will take in a store."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.store.arrays import CHUNK
from streammach.data.store.codecs import WRITTEN
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary, by_frequency


def packed_bytes(
    block: RowBlock, vocabulary: Vocabulary, value_type: np.dtype[Any]
) -> tuple[float, float]:
    """Return the bytes that a value and a row of the sample take in a store."""
    counts = np.bincount(block.features, minlength=vocabulary.n_features)
    rank = np.empty(len(counts), np.int32)
    rank[by_frequency(vocabulary.feature_names(), counts)] = np.arange(len(counts), dtype=np.int32)
    done = canonicalize(block, rank)
    values = _encoded(done.features) + _encoded(done.values.astype(value_type))
    rows = _encoded(done.indptr) + _encoded(done.lists.classes)
    rows += 0 if done.labels is None else _encoded(done.labels.starts)
    return values / max(1, block.nnz), rows / max(1, block.n_rows)


def _encoded(values: NDArray[Any]) -> int:
    return sum(len(WRITTEN.encode(values[a : a + CHUNK])) for a in range(0, len(values), CHUNK))


def names_bytes(names: Names, ids: NDArray[np.int32], scale: float) -> float:
    """Return the bytes of the names that so many times the rows will have.

    `ids` is int32 (n,).
    """
    # Each doubling of the rows multiplies the names by a factor that falls as it fell between the
    # quarter, the half and the whole of the sample.
    quarter, half = (len(np.unique(ids[: len(ids) // part])) for part in (4, 2))
    if not quarter or scale <= 1:
        growth = 1.0
    else:
        now, before = np.log2(len(names) / half), np.log2(half / quarter)
        falls = max(0.02, before - now)
        doublings = np.log2(scale)
        steps = min(doublings, now / falls)  # until nothing is new
        growth = 2 ** (steps * now - falls * steps * (steps + 1) / 2) if steps > 0 else 1.0
    counts = np.bincount(ids, minlength=len(names)).astype(np.int64)
    packed = sum(_encoded(part) for part in (names.offsets, names.data, counts))
    return packed * max(1.0, float(growth))
