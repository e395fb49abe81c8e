"""Linear classifiers of sparse rows, one a class: what a model keeps of them, and their scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from streammach.rows.block import RowBlock
from streammach.rows.layouts import ArrayLayout, are_lists, ends
from streammach.rows.pairs import PairTable
from streammach.system.jit import Array, kernel
from streammach.system.threads import Workers, pieces_of

PIECES_A_THREAD = 4
LONG = 8  # weights that are gone over in the time in which a class is looked for among many


@dataclass(frozen=True, kw_only=True)
class LinearWeights(PairTable):
    """Weights of (feature, class) pairs, by feature, and how rows are scaled before.

    The value of feature f is ``u_f = scale_f v_f``, v_f = 1 where values do not count; divided by
    the length of the row it is ``x_f = u_f / sqrt(sum_g u_g^2)``. Class c scores
    ``bias_c + sum_f w_fc x_f``, and ``empty_c`` where the row has no feature that is known.
    """

    # float32 (Z,): that of each pair, in the digits of float16
    weights: Annotated[NDArray[np.float32], ArrayLayout(("pairs",), "halves")]
    # float32 (d,): what each feature's value is multiplied with, in the digits of float16
    scale: Annotated[NDArray[np.float32], ArrayLayout(("features",), "halves")]
    # float32 (K,): what a class has before any feature
    bias: Annotated[NDArray[np.float32], ArrayLayout(("classes",))]
    # float32 (K,): the scores of a row without features
    empty: Annotated[NDArray[np.float32], ArrayLayout(("classes",))]
    valued: bool = False  # whether values count; otherwise each feature of a row counts as 1

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], prefix: str, **facts: Any) -> Self:
        """Return the weights of arrays named with a prefix; ValueError if an index is wrong."""
        found = cls.of_arrays(arrays, prefix, **facts)
        lists = are_lists(found.starts, found.classes, len(found.bias))
        if not lists or len(found.weights) != len(found.classes):
            raise ValueError("the linear weights are wrong")
        return found

    @property
    def n_classes(self) -> int:
        """Number of classes, K."""
        return len(self.bias)

    def values(self, rows: RowBlock) -> NDArray[np.float32]:
        """Return the values x_f of rows' features: float32 (nnz,)."""
        return unit_values(rows, self.scale, valued=self.valued)

    def terms(
        self, features: NDArray[np.int64], values: NDArray[np.float64], classes: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what features of a row add to scores (m, k), and what classes have before (k,)."""
        x = self.scale[features] * (values if self.valued else 1.0)
        x /= np.sqrt((x * x).sum()) or 1.0
        out = np.zeros((len(features), len(classes)))
        for i, f in enumerate(features.tolist()):
            own = slice(int(self.starts[f]), int(self.starts[f + 1]))
            places = np.searchsorted(self.classes[own], classes)
            there = places < own.stop - own.start
            there[there] = self.classes[own][places[there]] == classes[there]
            out[i, there] = self.weights[own][places[there]] * x[i]
        return out, (self.bias if len(features) else self.empty)[classes].astype(np.float64)

    def largest(self, n: int) -> Self:
        """Return it with the n weights of the largest magnitude, or all."""
        size = np.abs(self.weights)
        if n >= len(size):
            return self
        kept = np.zeros(len(size), np.bool_)
        kept[np.argsort(-size, kind="stable")[:n]] = True
        lengths = np.add.reduceat(np.append(kept, False), self.starts[:-1], dtype=np.int64)
        lengths[np.diff(self.starts) == 0] = 0
        return replace(
            self, starts=ends(lengths), classes=self.classes[kept], weights=self.weights[kept]
        )


def unit_values(rows: RowBlock, scale: NDArray[np.float32], *, valued: bool) -> NDArray[np.float32]:
    """Return the features' values of rows, scaled and at unit length: float32 (nnz,)."""
    values = scale[rows.features]
    if valued:
        values = values * rows.values
    squares = np.concatenate([[0.0], np.cumsum(np.square(values, dtype=np.float64))])
    lengths = np.sqrt(np.maximum(np.diff(squares[rows.indptr]), 1e-30))
    lengths[lengths < 1e-12] = 1.0
    found: NDArray[np.float32] = values / np.repeat(lengths, np.diff(rows.indptr))
    return found.astype(np.float32)


class LinearScorer:
    """Scores classes of rows by linear classifiers."""

    def __init__(self, weights: LinearWeights, threads: int) -> None:
        self.weights, self._workers = weights, Workers(threads, "linear")

    def scores(
        self, rows: RowBlock, candidates: NDArray[np.integer[Any]] | None = None
    ) -> NDArray[np.float32]:
        """Return the scores of candidates int (n, m), of all classes otherwise: float32 (n, m).

        A row has none twice; those below 0 score 0.
        """
        w, values = self.weights, self.weights.values(rows)
        wanted = np.zeros((0, 0), np.int64) if candidates is None else candidates.astype(np.int64)
        width = w.n_classes if candidates is None else wanted.shape[1]
        out = np.empty((rows.n_rows, width), np.float32)

        def piece(first: int, last: int) -> None:
            sums = np.zeros(w.n_classes, np.float32)
            score_rows(
                rows.indptr, rows.features, values, first, last, w.starts, w.classes, w.weights,
                w.bias, w.empty, wanted, sums, out,
            )  # fmt: skip

        threads = self._workers.n_threads
        self._workers.each(piece, pieces_of(rows.n_rows, threads, a_thread=PIECES_A_THREAD))
        return out

    def close(self) -> None:
        """Stop the threads."""
        self._workers.close()


@kernel()
def score_rows(
    indptr: Array, features: Array, values: Array, first: int, last: int, starts: Array,
    classes: Array, weights: Array, bias: Array, empty: Array, wanted: Array, sums: Array,
    out: Array,
) -> None:  # fmt: skip
    """Write ``bias_c + sum_f w_fc x_f`` of rows ``first:last``, ``empty_c`` without features.

    Parameters
    ----------
    indptr, features, values, first, last : int64 (n + 1,), int32 (nnz,), float32 (nnz,), int, int
        The rows, with the values x, and which of them.
    starts, classes, weights, bias : int64 (d + 1,), int32 (Z,), float32 (Z,), float32 (K,)
        The classifiers.
    empty : float32 (K,)
        The scores of rows without features.
    wanted : int64 (n, m)
        The classes that are scored, none twice, below 0 for none; all where it has no columns.
    sums : float32 (K,)
        Scratch, zeros before and after.
    out : float32 (n, m) or (n, K)
        Receives the scores.
    """
    every = wanted.shape[1] == 0
    most = LONG * wanted.shape[1]  # weights of a feature that are gone over, not looked for
    for i in range(first, last):
        start = bias if indptr[i] < indptr[i + 1] else empty
        for p in range(indptr[i], indptr[i + 1]):
            x, a, b = values[p], starts[features[p]], starts[features[p] + 1]
            if every or b - a <= most:
                for z in range(a, b):
                    sums[classes[z]] += weights[z] * x
                continue
            for j in range(wanted.shape[1]):
                z = a + np.searchsorted(classes[a:b], wanted[i, j])
                if z < b and classes[z] == wanted[i, j]:
                    sums[wanted[i, j]] += weights[z] * x
        if every:
            for c in range(bias.shape[0]):
                out[i, c] = start[c] + sums[c]
        else:
            for j in range(wanted.shape[1]):
                c = wanted[i, j]
                out[i, j] = start[c] + sums[c] if c >= 0 else np.float32(0)
        if every:
            sums[:] = 0
            continue
        for p in range(indptr[i], indptr[i + 1]):
            a, b = starts[features[p]], starts[features[p] + 1]
            if b - a <= most:
                for z in range(a, b):
                    sums[classes[z]] = 0
        for j in range(wanted.shape[1]):
            if wanted[i, j] >= 0:
                sums[wanted[i, j]] = 0
