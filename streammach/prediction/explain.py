"""Why a class has its score: what each feature of a row adds to it, from what the model keeps.

A logit is linear in the features of a row, and so are counts. By ``logsum`` and ``blend`` a feature
adds its share of the logits of the class's buckets, what counts say of the pair, and of the best
classes what their classifiers say. What the name of a label adds, since its words stand in the row,
and what labels of similar training rows gain are lines of their own,
and so is what classifiers add or take without features. What
probabilities take off all logits of a repetition is a line of its own, and so are cosines. Other
estimators are not linear: there a feature adds what the score loses when the row is without it.
All is in float64, by NumPy: few rows are explained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streammach.counts.count_kernels import STEP
from streammach.counts.neighbour_search import NeighbourSearch
from streammach.inputs.tables.word_places import Places
from streammach.linear.late import BEST
from streammach.linear.scorer import open_scorer
from streammach.model.model import Model
from streammach.options.estimators import BLEND, ESTIMATORS, MEDIAN, MINIMUM, SUM, USUAL
from streammach.options.figures import Contribution, Explanation
from streammach.options.types import Ranker
from streammach.prediction.ranking import Ranking, frequency_scores, knows_frequencies
from streammach.rows.block import RowBlock
from streammach.rows.names import Label, Names
from streammach.rows.packed import Counts, PackedCounts
from streammach.rows.transforms import transform_block
from streammach.system.errors import UsageError

# What is no feature's: of counts, of hashed models, and what the listed features leave over.
LINES = ("prior", "name", "neighbours", "classifiers", "bias", "cosines", "normaliser", "rest")
REST = LINES.index("rest")
ROUNDING = 1e-9  # what is less is no rest
MERGED = 32  # classes of one label that are compared at once
PIECE_BYTES = 1 << 20  # of weights of features that are worked on at once
# Such pieces: weights, times values, and what is between; and what long rows take.
WORK_BYTES = 4 * PIECE_BYTES + (8 << 20)
JOINS: dict[int, Callable[[Any], Any]] = {
    SUM: lambda v: v.sum(axis=1),
    MINIMUM: lambda v: v.min(axis=1),
    MEDIAN: lambda v: np.median(v, axis=1),
}
Numbers = NDArray[np.float64]
Ids = NDArray[np.int64]
Best = tuple[Ids, float]  # the classes of a row that classifiers score, and the lowest sum


class Terms(NamedTuple):
    """What the scores of k classes are made of, for a row with m features."""

    parts: Numbers  # float64 (m, k): what features add
    lines: Numbers  # float64 (L - 1, k): the lines without the rest
    scores: Numbers  # float64 (k,)


def reason_type(n: int) -> np.dtype[Any]:
    """Return how an explanation is held: n features that raise a score, n that lower it at most.

    A feature of -1 stands where there is no further one.
    """
    return np.dtype([
        ("score", "f4"), ("features", "i4", (2 * n,)), ("values", "f4", (2 * n,)),
        ("contributions", "f4", (2 * n,)), ("lines", "f4", (len(LINES),)),
    ])  # fmt: skip


class Explainer:
    """Explains the scores of a ranking by an estimator."""

    def __init__(self, model: Model, estimator: Ranker, every: Ranking | None = None) -> None:
        # `every` ranks by the estimator, which a model needs with classifiers
        self._model = model
        late = model.late is not None and estimator == model.calibrated_ranking
        self._late, self._every = model.late if late else None, every
        self._counts: Counts | None = model.counts if estimator == BLEND else None
        self._neighbours = None
        if self._counts is not None and self._counts.near is not None:
            self._neighbours = NeighbourSearch(self._counts.near, model.spec.n_classes)
        self._estimator: Ranker = estimator
        self._kind = ESTIMATORS[USUAL if estimator == BLEND else estimator]
        self._linear = self._kind.logarithms and self._kind.branch == SUM
        # what gives a row cosines, and their weights: nothing where it has none
        self._known, width = len(model.weights) - model.n_more, model.spec.n_columns
        self._projection: NDArray[Any] = np.zeros((self._known + 2, 0))
        self._more: NDArray[Any] = np.zeros((0, width))
        if model.projection is not None:
            self._projection, self._more = model.projection, model.weights[self._known :]

    def reasons(self, rows: RowBlock, ids: Ids, n: int) -> NDArray[Any]:
        """Return why rows have classes int64 (n, k): :func:`reason_type` (n, k), or UsageError.

        Rows are those before the transform. Where the id is -1 there is nothing.
        """
        if n < 1:
            raise UsageError(f"{n} features are asked for: 1 or more explain a score")
        out = np.zeros(ids.shape, reason_type(n))
        out["features"] = -1
        given = transform_block(rows, self._model.training.transform)
        best = self._best(rows)
        for i, (first, last) in enumerate(pairwise(rows.indptr.tolist())):
            there = np.flatnonzero(ids[i] >= 0)
            if len(there):
                features = given.features[first:last].astype(np.int64)
                values = given.values[first:last].astype(np.float64)
                classes = self._classes(features, values, ids[i, there], best[i])
                terms = self.terms(features, values, classes, best[i])
                for j, place in enumerate(there.tolist()):
                    _write(terms, j, features, values, out[i, place])
        return out

    def _best(self, rows: RowBlock) -> list[Best | None]:
        """Return what classifiers scored of each row, and the lowest sum; None without them."""
        if self._late is None:
            return [None] * rows.n_rows
        assert self._every is not None, "the predictor gives it"
        ids, scores = self._every(rows, BEST)
        return [*zip(ids, scores[:, -1].tolist(), strict=True)]

    def _classes(self, features: Ids, values: Numbers, labels: Ids, best: Best | None) -> Ids:
        """Return the classes by whose scores labels are ranked: the best ones that they say."""
        says, found = self._model.says, labels.copy()
        for j, label in enumerate([] if says is None else labels.tolist()):
            own = np.flatnonzero(says == label)
            if len(own) > 1:
                some = (own[i : i + MERGED] for i in range(0, len(own), MERGED))
                scores = [self.terms(features, values, classes, best).scores for classes in some]
                found[j] = own[np.concatenate(scores).argmax()]
        return found

    def terms(self, features: Ids, values: Numbers, ids: Ids, best: Best | None = None) -> Terms:
        """Return what the scores of classes int64 (k,) are made of, for transformed values (m,)."""
        found = Terms(
            np.zeros((len(features), len(ids))), np.zeros((REST, len(ids))), np.zeros(len(ids))
        )
        if self._model.linear is not None:
            parts, prior = self._model.linear.terms(features, values, ids)
            found.parts[:], found.lines[LINES.index("prior")] = parts, prior
            found.scores[:] = self._linear_scores(features, values)[ids]
            return found
        if not len(features) and knows_frequencies(self._model):
            found.scores[:] = frequency_scores(self._model, self._estimator)[ids]
            found.lines[LINES.index("prior")] = found.scores
            return found
        if not self._model.spec.unhashed:
            add = self._add_linear if self._linear else self._add_others
            known = np.flatnonzero(features < self._known)
            parts = found.parts[known]
            add(features[known], values[known], self._columns(ids), found._replace(parts=parts))
            found.parts[known] = parts
        if self._counts is not None:
            for terms in found:
                np.multiply(terms, self._counts.hashed, out=terms)
            self._add_counts(self._counts, features, ids, found)
        if self._late is not None and best is not None:
            there, line = np.isin(ids, best[0]), LINES.index("classifiers")
            own, bias = self._late.parts(features, ids)
            found.parts[:] += np.where(there, own, 0)
            found.lines[line] = np.where(there, bias, np.minimum(best[1] - found.scores, 0))
            found.scores[:] += found.lines[line] + np.where(there, own.sum(axis=0), 0)
        return found

    def _linear_scores(self, features: Ids, values: Numbers) -> NDArray[np.float32]:
        """Return the scores of all classes by linear classifiers: float32 (K,)."""
        assert self._model.linear is not None
        row = RowBlock(
            indptr=np.array([0, len(features)]), features=features.astype(np.int32),
            values=values.astype(np.float32), classes=np.full(1, -1, np.int32),
        )  # fmt: skip
        found: NDArray[np.float32] = open_scorer(self._model.linear, 1).scores(row)[0]
        return found

    def _add_counts(self, counts: Counts, features: Ids, ids: Ids, out: Terms) -> None:
        """Add what counts say: the terms of :class:`streammach.rows.pairs.CountWeights`."""
        logs = counts.log_values[ids].astype(np.float64)
        own = -counts.penalty[features].astype(np.float64)[:, None] * logs
        gains = np.array([gains_at(counts, f, ids) for f in features.tolist()]).reshape(own.shape)
        own += float(STEP) * gains
        out.lines[LINES.index("prior")] = counts.base[ids]
        out.scores[:] += counts.base[ids] + own.sum(axis=0)
        if self._model.names is not None:  # pairs may be gone from a smaller model
            named = np.where(gains != 0, self._model.names.gains_of(features, ids), 0) * float(STEP)
            out.lines[LINES.index("name")] = named.sum(axis=0)
            own -= named
        out.parts[:] += own
        if self._neighbours is not None:
            gained = self._neighbours.gains_of(features, ids)
            out.lines[LINES.index("neighbours")] = gained
            out.scores[:] += gained

    def _add_linear(self, features: Ids, values: Numbers, columns: Ids, out: Terms) -> None:
        """Add the mean logarithms of classes, whose columns are int64 (k, R), by their logits."""
        bias = self._model.bias.astype(np.float64)
        waves = self._cosine_terms(self._turns(features, values))
        z = bias + waves
        for some, added in self._contributions(features, values):
            z += added.sum(axis=0)
            out.parts[some] += added[:, columns].mean(axis=2)
        if self._model.training.logistic:
            off = np.logaddexp(0, z[columns])
        else:
            sums = np.logaddexp.reduce(z.reshape(columns.shape[1], -1), axis=1)
            off = np.broadcast_to(sums, columns.shape)
        lines = {"bias": bias[columns], "cosines": waves[columns], "normaliser": -off}
        for name, line in lines.items():
            out.lines[LINES.index(name)] += line.mean(axis=1)
        out.scores[:] += (z[columns] - off).mean(axis=1)

    def _add_others(self, features: Ids, values: Numbers, columns: Ids, out: Terms) -> None:
        """Add what the scores of classes lose when the row is without a feature."""
        bias, turns = self._model.bias.astype(np.float64), self._turns(features, values)
        z: Numbers = sum((x.sum(axis=0) for _, x in self._contributions(features, values)), bias)
        out.scores[:] += self._scores((z + self._cosine_terms(turns))[None], columns)[0]
        for some, added in self._contributions(features, values):
            left = turns - values[some, None] * self._projection[features[some]]
            without = self._scores(z - added + self._cosine_terms(left), columns)
            out.parts[some] += out.scores - without
        empty = bias + self._cosine_terms(self._projection[-2])
        out.lines[LINES.index("bias")] += self._scores(empty[None], columns)[0]

    def _scores(self, z: Numbers, columns: Ids) -> Numbers:
        """Return the estimator's scores of classes for logits float64 (p, R*B): (p, k)."""
        spec, kind, logistic = self._model.spec, self._kind, self._model.training.logistic
        each = z.reshape(len(z), spec.n_repetitions, -1)
        if logistic:
            logs = -np.logaddexp(0, -z)
        else:
            logs = (each - np.logaddexp.reduce(each, axis=2, keepdims=True)).reshape(z.shape)
        own = logs[:, columns]
        own = own if kind.logarithms else np.exp(own)
        join: Any = kind.join or JOINS[kind.branch]
        ranked = join(own.reshape(-1, spec.n_repetitions)).reshape(own.shape[:2])
        totals: Any = np.float32(1)
        if logistic and kind.unbiased:
            totals = np.exp(logs).sum(axis=1, keepdims=True) / spec.n_repetitions
        return np.asarray(kind.finished(ranked, spec, totals), np.float64)

    def _columns(self, ids: Ids) -> Ids:
        """Return the columns of classes in the table of weights: int64 (k, R)."""
        spec = self._model.spec
        if spec.exact:
            return ids[:, None]
        codes = np.concatenate([spec.codes(i, i + 1) for i in ids.tolist()]).astype(np.int64)
        return codes + np.arange(spec.n_repetitions) * spec.n_buckets

    def _contributions(self, features: Ids, values: Numbers) -> Iterator[tuple[slice, Numbers]]:
        """Yield what some features after others add to all logits: float64 (p, R*B)."""
        model, table = self._model, self._model.weights
        step = max(1, PIECE_BYTES // (8 * model.spec.n_columns))
        for start in range(0, len(features), step):
            some = slice(start, min(start + step, len(features)))
            chosen, x = features[some], values[some]
            x = x if model.scale is None else x * model.scale[chosen]
            yield some, table[chosen] * x[:, None]

    def _turns(self, features: Ids, values: Numbers) -> Numbers:
        """Return what the cosines of a row are taken of: float64 (D,)."""
        found: Numbers = _product(values, self._projection[features]) + self._projection[-2]
        return found

    def _cosine_terms(self, turns: Numbers) -> Numbers:
        """Return what cosines of (..., D) add to all logits: float64 (..., R*B)."""
        return _product(np.cos(turns) * self._projection[-1], self._more)


def gains_at(counts: Counts, feature: int, ids: Ids) -> Ids:
    """Return what the pairs of a feature and classes add, in 1/1024 nat, 0 without one: (k,)."""
    row, unit = int(counts.wide_of[feature]), 1
    some = slice(int(counts.starts[feature]), int(counts.starts[feature + 1]))
    if isinstance(counts, PackedCounts):
        unit, classes = counts.unit, np.cumsum(counts.steps[some], dtype=np.int32)
    else:
        classes = counts.classes[some]
    if row >= 0:
        gains: NDArray[Any] = counts.wide[row, ids]
    elif len(classes):
        # The last entry that is not behind a class: one before it may be a step without a pair.
        at = np.searchsorted(classes, ids.astype(np.int32), "right") - 1
        gains = np.where(classes[at] == ids, counts.gains[some][at], 0)
    else:
        gains = np.zeros(len(ids))
    return unit * gains.astype(np.int64)


def _write(terms: Terms, j: int, features: Ids, values: Numbers, out: Any) -> None:
    """Write what the terms of class j come to into a record of :func:`reason_type`."""
    parts, n = terms.parts[:, j], len(out["features"]) // 2
    order = np.argsort(-np.abs(parts), kind="stable")
    sides = order[parts[order] > 0][:n], order[parts[order] < 0][:n]
    chosen = np.concatenate(sides)
    chosen = chosen[np.argsort(-np.abs(parts[chosen]), kind="stable")]
    some = slice(0, len(chosen))
    out["features"][some], out["values"][some] = features[chosen], values[chosen]
    out["contributions"][some] = parts[chosen]
    out["lines"][:REST], out["score"] = terms.lines[:, j], terms.scores[j]
    rest = terms.scores[j] - terms.lines[:, j].sum() - parts[chosen].sum()
    out["lines"][REST] = rest if abs(rest) > ROUNDING else 0


def _product(a: Numbers, b: NDArray[Any]) -> Numbers:
    """Return ``a @ b``, whose bits do not depend on the number of threads, as those of BLAS do."""
    found: Numbers = np.einsum("...d,dc->...c", a, b)
    return found


def explanations(
    reasons: NDArray[Any], labels: Sequence[Sequence[Any]], features: Names,
    places: Sequence[Places] = (),
) -> list[list[Explanation]]:  # fmt: skip
    """Return reasons (n, k) of labels, k of each row or fewer, as records with names and places."""
    ids = np.unique(reasons["features"])
    ids = ids[ids >= 0]
    names = dict(zip(ids.tolist(), _readable(features.values(ids)), strict=True))

    def one(reason: Any, label: Any, where: Places) -> Explanation:
        every = (reason[name].tolist() for name in ("features", "values", "contributions"))
        found = [
            Contribution(names[f], x, y, tuple(where.get(str(names[f]), ())))
            for f, x, y in zip(*every, strict=True)
            if f >= 0
        ]
        lines = dict(zip(LINES, reason["lines"].tolist(), strict=True))
        return Explanation(label, float(reason["score"]), found, lines)

    return [
        [one(*pair, where) for pair in zip(own, given, strict=False)]
        for own, given, where in zip(reasons, labels, places or [{}] * len(reasons), strict=True)
    ]


def reasons_array(
    ids: Ids, reasons: NDArray[Any] | None, labels: Names, features: Names
) -> NDArray[Any]:
    """Return reasons of classes int64 (n, k) as records in an array, None of the id -1: (n, k)."""
    assert reasons is not None, "they are asked for"
    there, named, out = ids >= 0, np.full(ids.shape, None), np.full(ids.shape, None)
    named[there] = _readable(labels.values(ids[there]))
    out[:] = explanations(reasons, named.tolist(), features)
    out[~there] = None
    return out


def _readable(names: list[Label]) -> list[int | str]:
    """Return names for people: what is not UTF-8 in one as its escape."""
    return [n.decode("utf-8", "backslashreplace") if isinstance(n, bytes) else n for n in names]
