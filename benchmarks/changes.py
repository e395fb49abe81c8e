"""What benchmarks.candidates changes: between batches, before the first, after the last.

A `Change` goes along with a training of its own. The functions of `after` change the weights of a
finished training, or how they are ranked, so one training serves them all.
"""

from dataclasses import replace
from unittest import mock

import numpy as np
import scipy.optimize

from streammach import hashing
from streammach.backends.cpu import decode
from streammach.jit import kernel
from streammach.prediction.ranking import by_hashes
from streammach.rows.batch import transformed
from streammach.training.loop import open_reader, train_epoch

CANDIDATES = 32  # classes of a row that repetitions are weighed by
PART_ROWS = 1024  # whose outputs are held at once


class Change:
    """What a candidate does between the batches and after the last; nothing by default.

    `arrays` are the backend's: weights (d, R*B), Adagrad's sums `first` (d, R).
    """

    def __init__(self, dataset):
        self.dataset = dataset

    def begin(self, backend, reader):
        """Change weights before the first batch."""

    def batch(self, arrays, done):
        """Change weights after a batch; `done`: the share of the training that is over."""

    def end(self, arrays):
        """Change weights after the training."""


class Averaged(Change):
    """The mean of the weights over the last fifth of the training, ten times taken."""

    def __init__(self, dataset):
        super().__init__(dataset)
        self.total, self.n = None, 0

    def batch(self, arrays, done):
        """Add the weights up, ten times."""
        if done > 0.8 + 0.02 * self.n:
            self.n += 1
            weights = arrays["weights"]
            self.total = weights.copy() if self.total is None else self.total + weights

    def end(self, arrays):
        """Take the mean."""
        arrays["weights"][...] = self.total / self.n


class Decayed(Change):
    """Weight decay: 10% over the whole training, the same for every weight."""

    last = 0.0

    def batch(self, arrays, done):
        """Shrink all weights a little, a hundred times."""
        if done - self.last > 0.01:
            self.last = done
            arrays["weights"] *= np.float32(0.9**0.01)


class Faded(Change):
    """Adagrad's sums halved ten times in the training."""

    last = 0.0

    def batch(self, arrays, done):
        """Halve, ten times."""
        if done - self.last > 0.1:
            self.last = done
            arrays["first"] *= np.float32(0.5)


def from_counts(share):
    """Return a Change that starts from counts.

    A weight is `share` times ``ln((n_fb + 1) / (n_f n_b / n + 1))``, where n_fb of the n training
    rows hold feature f and have a class of bucket b; the bias is `share` times ``ln((n_b + 1) /
    n)``.
    """

    class FromCounts(Change):
        def begin(self, backend, reader):
            """Count the training rows; write weights and bias."""
            arrays, spec = backend.arrays(), backend.spec
            weights, bias = arrays["weights"], arrays["bias"]
            rows = np.zeros(len(weights), np.float32)
            for batch in reader.epoch(0):
                count_buckets(
                    batch.indptr, batch.features, batch.classes, backend.codes, spec.n_buckets,
                    weights, bias, rows,
                )  # fmt: skip
            n = np.float32(reader.n_rows)
            for f in range(len(weights)):
                weights[f] = np.float32(share) * np.log((weights[f] + 1) / (rows[f] / n * bias + 1))
            bias[...] = np.float32(share) * np.log((bias + 1) / n)

    return FromCounts


@kernel()
def count_buckets(indptr, features, classes, codes, n_buckets, pairs, buckets, rows):
    """Count a batch: rows by feature and bucket, by bucket, and by feature."""
    for i in range(classes.shape[0]):
        for r in range(codes.shape[1]):
            buckets[r * n_buckets + np.int64(codes[classes[i], r])] += 1
        for p in range(indptr[i], indptr[i + 1]):
            rows[features[p]] += 1
            for r in range(codes.shape[1]):
                pairs[features[p], r * n_buckets + np.int64(codes[classes[i], r])] += 1


plain_codes = hashing.codes


def dealt(dataset):
    """Return codes where frequent classes do not share: dealt to buckets in their order."""

    def codes(a, b, n_classes, n_buckets):
        table = plain_codes(a, b, n_classes, n_buckets)
        order = np.argsort(-dataset.label_counts, kind="stable")
        rng = np.random.default_rng(0)
        for r in range(table.shape[1]):
            for start in range(0, n_classes, n_buckets):
                some = order[start : start + n_buckets]
                table[some, r] = rng.permutation(n_buckets)[: len(some)]
        return table

    return codes


def rare_shrunk(finish):
    """A feature of n rows gets n / (n + 1) of its weights: a prior that holds rare ones back."""
    n = finish.dataset.feature_counts.astype(np.float32)
    finish.backend.arrays()["weights"][...] *= (n / (n + 1))[:, None]


def bfloat16(finish):
    """Round weights to 8 bits of mantissa, the nearest, ties to even."""
    bits = finish.backend.arrays()["weights"].view(np.uint32)
    bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    bits &= np.uint32(0xFFFF0000)


def int8(finish):
    """Round weights to 255 steps, as wide as the feature's largest weight asks."""
    weights = finish.backend.arrays()["weights"]
    scale = np.maximum(np.abs(weights).max(axis=1, keepdims=True) / 127, np.float32(1e-30))
    weights[...] = np.rint(weights / scale) * scale


def refined(passes, factor):
    """Return a function that trains on with the joint loss.

    The optimiser starts anew, at `factor` of the rate, which falls to 0.
    """

    def refine(finish):
        backend = finish.backend
        training = replace(
            finish.training, epochs=passes, loss="joint",
            learning_rate=finish.training.learning_rate * factor,
        )  # fmt: skip
        for name, array in backend.arrays().items():
            if name not in ("weights", "bias"):
                array[...] = 0
        reader = open_reader(finish.dataset, finish.plan, backend, training, finish.held)
        with mock.patch.object(backend, "_training", training):
            for epoch in range(passes):
                for _ in train_epoch(backend, reader, training, epoch):
                    pass

    return refine


def weighed(finish):
    """Return the ranking with a weight for each repetition, fitted on held-out rows.

    Softmax of ``sum_r w_r ln P_r[h_r(i)]`` over the best classes of the rows whose own is one of
    them.
    """
    backend, transform = finish.backend, finish.training.transform
    spec, held = backend.spec, finish.held.rows
    best = by_hashes(backend, "logsum", transform)(held, CANDIDATES)[0]
    chosen = np.flatnonzero((best == held.classes[:, None]).any(axis=1))
    ids, rows = best[chosen], held.take(chosen)
    own = (ids == rows.classes[:, None]).argmax(axis=1)
    columns = backend.codes[ids].astype(np.int64) + spec.n_buckets * np.arange(spec.n_repetitions)
    logs = [
        backend.outputs(transformed(rows.part(i, min(i + PART_ROWS, rows.n_rows)), transform),
                        logarithms=True)
        for i in range(0, rows.n_rows, PART_ROWS)
    ]  # fmt: skip
    flat = columns.reshape(rows.n_rows, -1)
    x = np.take_along_axis(np.concatenate(logs), flat, axis=1).reshape(columns.shape)

    def loss(w):
        z = x @ w.astype(np.float32)
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        chosen = p[np.arange(len(p)), own]
        p[np.arange(len(p)), own] -= 1
        gradient = np.einsum("nm,nmr->r", p, x)
        return -np.log(np.maximum(chosen, 1e-30)).mean(), gradient.astype(np.float64) / len(p)

    start = np.full(spec.n_repetitions, 1 / spec.n_repetitions)
    w = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B").x.astype(np.float32)

    def rank(rows, k):
        ids, scores = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
        for i in range(0, rows.n_rows, PART_ROWS):
            part = rows.part(i, min(i + PART_ROWS, rows.n_rows))
            logs = backend.outputs(transformed(part, transform), logarithms=True)
            logs *= np.repeat(w, spec.n_buckets)
            here = slice(i, i + PART_ROWS)
            backend._decode_all(logs, decode.SUM, scores[here], ids[here])
        return ids, scores

    return rank


def after(dense):
    """Return what is done after a training, by name; more of it for dense rows, which gain."""
    found = {
        "rare features shrunk": rare_shrunk, "bfloat16 weights": bfloat16, "int8 weights": int8,
        "repetitions weighed": weighed, "refined together, 1 pass, rate x 0.25": refined(1, 0.25),
        "refined together, 2 passes": refined(2, 1.0),
    }  # fmt: skip
    if dense:
        del found["rare features shrunk"]
        found["refined together, 6 passes"] = refined(6, 1.0)
        found["refined together, 6 passes, rate x 0.25"] = refined(6, 0.25)
    return found
