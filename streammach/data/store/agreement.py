"""Whether what a store says of its rows is what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.store.content import Numbers
from streammach.data.store.stored_rows import StoredRows
from streammach.progress import Told


def disagreements(
    data: StoredRows, said: Mapping[str, NDArray[np.int64]], step: int, told: Told
) -> Iterator[str]:
    """Yield a line for each thing that a store says of its rows and is not so; all are read.

    `said` is mapping of str to int64 (d,) and (K,).
    """
    root, n = data.root, data.root.rows
    counts, most, labels = {name: np.zeros(len(c), np.int64) for name, c in said.items()}, 0, 0
    numbers = Numbers(root.source_rows, n)
    for start in range(0, n, step):
        told("rows", start, n)
        block = data.rows(start, min(start + step, n))
        _add(counts["features"], block.features)
        _add(counts["labels"], block.lists.classes)
        labels, most = max(labels, block.lists.n_labels), max(most, block.nnz)
        origins, _ = data.origins(start, start + block.n_rows)
        numbers.take(origins)
    for name, found in counts.items():
        if not np.array_equal(found, said[name]):
            yield f"damaged: {data.path}/{name}/count does not agree with the rows"
    if numbers.twice():
        yield f"damaged: {data.path}/row: two rows have one number"
    if most > root.max_block_nnz:
        yield f"damaged: {data.path}: a block has more values than the root says"
    if data.listed and labels > root.max_block_labels:
        yield f"damaged: {data.path}: a block has more labels than the root says"


def _add(counts: NDArray[np.int64], ids: NDArray[Any]) -> None:
    counts += np.bincount(ids, minlength=len(counts))
