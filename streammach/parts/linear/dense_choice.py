"""Fits the classifiers of dense rows: kernels of some rows, and ridge regression in closed form."""

from __future__ import annotations

from streammach.linear.kernel_fit import MOST_CENTRES, SAMPLE, KernelFit, Rows, fit_kernel
from streammach.linear.kernel_map import find_flags
from streammach.parts.linear.choice import HELD_OUT, LinearDecision, ScoredRows, report_figure
from streammach.parts.training_record import Training
from streammach.rows.block import RowBlock
from streammach.rows.dense import expand_rows
from streammach.store.holdout import unmasked_rows

# Rows that a search is like; seconds of a product on the machine of docs/planner.md, and how much
# slower a busy one is thought to be.
SEARCHED, PRODUCT, SLOW = 30_000, 0.05e-9, 3.0
LEAST_CENTRES = 128  # however short the time is
SEARCH_SHARE = 0.5  # of the time, behind which no bandwidth is tried any more


def decide_dense(training: Training) -> LinearDecision:
    """Return classifiers that were fitted, bandwidth and ridge by rows that are not in them."""
    data, held = training.dataset, training.holdout
    few = data.n_rows <= SAMPLE and held.mask is not None
    judges = RowBlock.concat(list(unmasked_rows(data, None))) if few else held.rows.with_known_class
    mask = None if few else held.mask
    clock, most = training.clock, MOST_CENTRES
    while (
        clock.limited
        and most > LEAST_CENTRES
        and _seconds(training, most) > clock.remaining_seconds / 2
    ):
        most //= 2
    enough = SEARCH_SHARE * clock.remaining_seconds if clock.limited else 0.0
    found: KernelFit = fit_kernel(
        lambda: (_as_dense(rows, data.n_features) for rows in unmasked_rows(data, mask)),
        data.n_classes,
        held=None if few else _as_dense(judges, data.n_features),
        learn_held=held.mask is not None, missing=find_flags(data.features),
        seed=training.options.seed, check=training.check_stop, most_centres=most,
        is_over=lambda: clock.limited and clock.remaining_seconds < enough,
    )  # fmt: skip
    assert found.scores is not None, "rows judge it"
    judged, own = ScoredRows(judges, found.scores), found.weights.map
    how = ("leave-one-out" if len(own.centres) else "cross-validated") if few else HELD_OUT
    kernels = f"{len(own.centres):,} kernels of bandwidth {own.bandwidth[0]:g}"
    plain = "a linear discriminant, which is wrong less often than kernels"
    reasons = (
        f"{kernels}, ridge {found.ridge:g}" if len(own.centres) else plain,
        report_figure(training, how, judged.metrics, judges.n_rows),
    )
    return LinearDecision(lambda: found.weights, judged, reasons)


def _seconds(training: Training, n_centres: int) -> float:
    """Return about how long kernels of so many centres take, on a core that others want, too."""
    data = training.dataset
    size = min(data.n_rows, n_centres) + data.n_features
    return SLOW * (data.n_rows + SEARCHED) * size**2 * PRODUCT


def _as_dense(rows: RowBlock, n_features: int) -> Rows:
    return expand_rows(rows, n_features), rows.classes, rows.weights
