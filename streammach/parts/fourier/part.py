"""Random Fourier features beside dense rows, as an optional part of their training.

The cosines of many random directions stand for a Gaussian kernel: a linear model of them is one
that tells classes apart whose rows lie in many places (Rahimi and Recht, 2007). The directions of
a block are orthogonal to one another, which makes fewer of them do (Yu and others, 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from streammach.options.config import PartPlan, RunConfig
from streammach.options.facts import DataFacts
from streammach.options.training import TrainSpec
from streammach.parts.base import Part
from streammach.parts.expected import RATES, WITHOUT, AccuracyDrop, Choice, PartBytes, PartTime
from streammach.parts.switches import SWITCHES
from streammach.parts.training_record import Training, Trials
from streammach.rows.dense import RowMap, expand_rows, product
from streammach.rows.transforms import transform_block
from streammach.store.holdout import unmasked_rows

NAME = "fourier"
SIZES = {4096: 0.0, 2048: 0.5, 1024: 1.5}  # D, and the points that fewer columns lose
LOST = AccuracyDrop(2.0, 2.0)  # without: 4.5 and 0 were measured
MAX_FEATURES = 2048  # of rows: more directions are not made orthogonal in a moment
ROWS_A_COLUMN = 8  # fewer rows do not fill the columns
BANDWIDTHS = (0.3, 0.6)  # tried, in units of the usual distance of two rows

RATE = 0.125  # of the rate without them: by a larger one, bandwidths that are worse look better

# Seconds of one thread of the machine of docs/planner.md.
PROJECT, COSINE = 0.011e-9, 1.5e-9  # a feature and a column of a row; a column of a row
TABLE = 0.06e-9  # a column that is added and one of the table, in a step
ROWS = 1000  # whose distances are looked at
SHARE = 3.0  # of the magnitudes of a row's features, those of its cosines together
MEAN_COSINE = 2 / np.pi  # magnitude of a cosine, in the mean
STREAM = 0x464F5552  # keeps these random numbers apart from others of the same seed


def find_obstacle(facts: DataFacts, config: RunConfig) -> str | None:
    """Return why there are no cosines, in words; None if they can be."""
    if not config.dense:
        return "rows are sparse"
    if not config.optimizer_kind.gains_by_whitening:
        return f"{config.optimizer} does not train them"
    if facts.n_features > MAX_FEATURES:
        return "there are too many features"
    return None


def list_choices(facts: DataFacts, config: RunConfig, *, sure: bool) -> Iterator[Choice]:
    """Yield with most columns, with fewer, and without."""
    enough = facts.n_rows // ROWS_A_COLUMN
    if not sure and enough < min(SIZES):
        yield WITHOUT
        return
    for size, points in SIZES.items():
        if size > enough and not sure:
            continue
        plan = PartPlan(name=NAME, size=size, basis=True, fixed=sure)
        why = f"room for {size:,} random Fourier features"
        yield Choice(plan=plan, loss=AccuracyDrop(points, points), why=why)
    if not sure:
        yield Choice(plan=None, loss=LOST)


def project_bytes(facts: DataFacts, config: RunConfig) -> PartBytes:
    """Return the bytes of finding a projection, and of the one before it."""
    d, n_more = facts.n_features, config.size_of(NAME)
    room = 4 * 8 * d * d + 6 * 8 * (d + 2) * n_more + 8 * ROWS * (ROWS + 2 * d)
    return PartBytes(memory={NAME: room}, model=4 * (config.shape.n_features + 2) * n_more)


def project_time(facts: DataFacts, config: RunConfig) -> PartTime:
    """Return the time of the columns and of their weights."""
    n_more = config.size_of(NAME)
    row = n_more * (facts.n_features * PROJECT + COSINE)
    weights = n_more * config.shape.n_columns * TABLE
    return PartTime(own_step=row + weights, trials=RATES + len(BANDWIDTHS) - 1)


def switch_on(spec: TrainSpec) -> TrainSpec:
    """Return the training with cosines, of the first bandwidth where it has none."""
    return replace(spec, bandwidth=spec.bandwidth or BANDWIDTHS[0])


def search(training: Training, trials: Trials, spec: TrainSpec) -> tuple[TrainSpec, list[str]]:
    """Return the training with them or without, at the best of some bandwidths, and why."""
    best, reasons = switch_on(spec), list[str]()
    if not spec.bandwidth and trials.climbs:
        best = replace(best, learning_rate=spec.learning_rate * RATE)
    for bandwidth in BANDWIDTHS[1:]:
        if training.clock.remaining_seconds <= 0:
            break
        other = replace(best, bandwidth=bandwidth)
        names = (f"{best.bandwidth:g}", f"{bandwidth:g}")
        better, reason = trials.better(best, other, "bandwidth", names)
        best = other if better else best
        reasons.append(reason)
    names = ("with Fourier features", "alone")
    if not spec.bandwidth:
        worse, reason = trials.better(best, spec, "rows", names)
        if worse:  # another rate would not make up for it
            return spec, [*reasons, reason]
    if trials.climbs:
        best, reason = trials.choose_rate(best, "learning rate with Fourier features")
        reasons.append(reason)
    if spec.bandwidth:
        return best, reasons
    better, reason = trials.better(spec, best, "rows", names[::-1])
    return best if better else spec, [*reasons, reason]


def map_rows(training: Training, spec: TrainSpec, before: RowMap | None) -> RowMap | None:
    """Return what gives rows more columns, beside a basis, if the training uses it."""
    n_more = training.plan.config.size_of(NAME)
    return cosine_map(training, spec, n_more, before) if spec.bandwidth else before


def cosine_map(training: Training, spec: TrainSpec, n_more: int, basis: RowMap | None) -> RowMap:
    """Return what gives the rows of a training more columns."""
    d, threads = training.dataset.n_features, training.plan.config.placement.threads
    with threadpoolctl.threadpool_limits(threads, user_api="blas"):
        x = _some_rows(training, spec)
        if basis is not None:
            plain, x = x, np.empty_like(x)
            basis.apply(plain, x)
        unit = usual_distance(x) * spec.bandwidth
        directions, phases = draw_directions(spec.seed, d, n_more)
        directions /= unit
        if basis is not None and basis.rotation is not None and basis.shift is not None:
            phases -= product(basis.shift.astype(np.float64), directions)
            directions = product(basis.rotation.astype(np.float64), directions)
        # Steps of the same rate change scores by about as much as without.
        amplitude = SHARE * float(np.abs(x).sum(axis=1).mean()) / (MEAN_COSINE * n_more)
    last = np.full(n_more, amplitude or 1.0)
    projection = np.stack([*directions, phases, last]).astype(np.float32)
    return replace(basis or RowMap(), projection=projection)


def draw_directions(seed: int, n_features: int, n_more: int) -> tuple[NDArray[np.float64], ...]:
    """Return random directions float64 (d, D), long as Gaussian ones, and phases float64 (D,)."""
    rng = np.random.default_rng([seed, STREAM])
    blocks = []
    for first in range(0, n_more, n_features):
        square, upper = np.linalg.qr(rng.standard_normal((n_features, n_features)))
        square *= np.sign(np.diag(upper))  # else directions are not spread evenly
        lengths = np.sqrt(rng.chisquare(n_features, n_features))
        blocks.append((square * lengths)[:, : n_more - first])
    return np.concatenate(blocks, axis=1), rng.uniform(0, 2 * np.pi, n_more)


def usual_distance(x: NDArray[np.float32]) -> float:
    """Return the median distance of two different rows float32 (n, d); 1 where there are none."""
    rows = x.astype(np.float64)
    squares = (rows**2).sum(axis=1)
    found = squares[:, None] + squares - 2 * product(rows, rows.T)
    apart = found[np.triu_indices(len(rows), 1)]
    apart = apart[apart > 1e-9 * max(float(squares.mean()), 1e-30)] if len(apart) else apart
    return float(np.sqrt(np.median(apart))) if len(apart) else 1.0


def _some_rows(training: Training, spec: TrainSpec) -> NDArray[np.float32]:
    """Return the first rows of the store that are not held out, after their transform."""
    found, n, data = [], 0, training.dataset
    for block in unmasked_rows(data, training.holdout.mask):
        training.check_stop()
        rows = block.part(0, min(ROWS - n, block.n_rows))
        found.append(expand_rows(transform_block(rows, spec.transform), data.n_features))
        n += rows.n_rows
        if n >= ROWS:
            break
    return np.concatenate(found)


PART = Part(
    name=NAME, switch=SWITCHES["fourier"], weighed=True, when="before",
    find_obstacle=find_obstacle, list_choices=list_choices, project_bytes=project_bytes,
    project_time=project_time, describe=lambda part: f"{part.size:,} cosines",
    switch_on=switch_on, search=search, map_rows=map_rows,
)  # fmt: skip
