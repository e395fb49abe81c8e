"""How much accuracy a model is expected to lose by being small, from measurements on other data.

Accuracy itself depends on the data and is not guessed. What a model loses against a larger one of
the same data behaves alike on the data sets measured: columns B*R, repetitions R and buckets B cost
what :data:`FITS` says; what optional parts bring, they say themselves. A point is one of a hundred
of the mean of accuracy and top-5 accuracy, of precision at 1 and at 5 where rows have lists of
labels: there columns are worth more, since all labels of a row are looked for.
``docs/planner.md`` has the measurements, ``python -m benchmarks.planner.fit`` makes the constants.
"""

from __future__ import annotations

from streammach.parts.expected import AccuracyDrop, Fit
from streammach.spec.config import RunConfig

ENOUGH = 256  # columns from which sparse rows lose little
LISTS = Fit(columns=3.29, power=1.47, repetitions=0.65, buckets=18.53, error=0.39)  # of sparse rows
FITS = {  # by dense, of rows with one label
    False: Fit(columns=5.1, power=0.86, repetitions=73.12, buckets=18.53, error=0.41),
    True: Fit(columns=3.21, power=0.70, repetitions=1.14, buckets=93.83, error=1.18),
}

# By whether rows have lists of labels: the best mean of both accuracies, in points, on average over
# the data sets measured; how far the average of the others was off from each (root mean square);
# how many sets that is.
KNOWN = {False: (58.9, 23.4, 5), True: (28.5, 7.9, 2)}


def hashed(config: RunConfig, fit: Fit | None = None) -> AccuracyDrop:
    """Return what hashing K classes to R times B buckets loses against many columns."""
    listed = config.batching.batch_labels > 0 and not config.dense
    fit, shape = fit or (LISTS if listed else FITS[config.dense]), config.shape
    wanted = shape.n_classes if config.dense else ENOUGH
    points = fit.columns * (wanted / shape.n_columns) ** fit.power
    points += fit.repetitions / shape.n_repetitions**2 + fit.buckets / shape.n_buckets
    return AccuracyDrop(points, max(fit.error, points / 2))
