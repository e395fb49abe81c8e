"""How many rows a training and its trials see, and how long that takes on this machine."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from streammach.backends.kinds import Rates
from streammach.options.config import RunConfig
from streammach.options.facts import DataFacts
from streammach.parts.expected import RATES
from streammach.parts.registry import bytes_of_parts, parts_of_plan, times_of_parts
from streammach.planning.speed import rates_of

EPOCHS = {False: 5, True: 12}  # of a training, by dense
SEARCH_SHARE = 0.15  # of the rows that a training passes, what the trials of its search pass
LEAST_PASSED = 30_000  # rows that a trial passes at least: fewer take no time
TRANSFORM_TRIALS = 3.0  # what the choice of a transform may take, in trials
LISTS_TRIALS = RATES + 1  # of rows with lists of labels: a softmax at its rate, by two targets
EPOCHS_POWER = 0.5  # a part of the rows needs fewer epochs to rank rates as all rows would
# Seconds of one thread on the machine of docs/planner.md, for a unit of work.
STEP = 0.8e-9  # a value and a column of a sparse training step
FORWARD = 0.22e-9  # the same of a forward pass alone
VALUE = 220e-9  # a value of a row in a pass: decoding, batches, lists by feature
# Of a dense step: a feature and a column; a column, by whether weights are exact.
DENSE, COLUMN = 0.032e-9, {False: 14.7e-9, True: 4.5e-9}
# Of finding the best classes of a row of many in a training: a row, and a class and a repetition;
# the same for all estimators together, the median being the slowest.
SCORE_ROW, SCORE = 11e-6, 0.025e-9
RANK_ROW, RANK = 70e-6, 0.13e-9
# Of a query, on one thread: a feature and a column of a dense row; a column's exponential and
# logarithm; a class and a repetition.
QUERY_DENSE, QUERY_COLUMN, QUERY_CLASS = 0.05e-9, 9e-9, 0.05e-9
# The same, whatever the threads.
START, TRIAL = 2.5, 0.1  # opening; a trial
# Of a device of its own, by its rates, as kernels reached them on an H200 (docs/gpu.md): bytes of
# memory for a value and a column of a sparse step, and of a forward pass; for a class and a
# repetition that are scored, and by all estimators. Bytes that are sent of a value, reading
# included: of a sparse row and of a dense one. Products in TF32 beside float32. Seconds of a thread
# of the host that reads a value; of a row that the host waits for.
MOVED, MOVED_FORWARD, SCORED, RANKED = 9.5, 2.8, 1.15, 6.7
SENT, SENT_DENSE, TF32_PRODUCT, READ, ASKED = 16.0, 4.0, 0.15, 80e-9, 2e-6
SPREAD = 1.5  # a factor between which and its inverse most measured times lay of what was expected
BYTE = 2e-9  # written to disk: a checkpoint an epoch, another and the model at the end
# Of dense rows: points that one epoch loses, 21 (objects) and 1 (embeddings); the share of a search
# that may be left out.
EPOCHS_POINTS, SEARCH_ELASTIC = 10.0, 0.7
# Forms of the model that are judged at the end, by fewer rows, rows that judge; a byte of the whole
# model, whose small form is compressed.
FORMS, FEW_FORMS, JUDGES, CODED = 8.0, 3.0, 10_000, 2e-9


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of a training, by stage."""

    # search, epochs, finish: of hashed models, if there are any: before, in and after the epochs
    search: float = 0.0
    epochs: float = 0.0
    finish: float = 0.0
    measuring: float = 0.0  # of the held-out rows, once in an epoch
    parts: dict[str, float]  # of parts beside them, by name
    smaller: float  # of making the model small
    # seconds of `parts`, `smaller` and, of dense rows, `search` and `epochs` that may be left out
    # where time is short
    elastic: float
    elastic_points: float  # what is lost where all of them are

    @property
    def seconds(self) -> float:
        """All of it."""
        hashed = self.search + self.epochs + self.finish
        return START + sum(self.parts.values()) + hashed + self.smaller

    def within(self, limit: float | None) -> tuple[float, float]:
        """Return the seconds of a training that is given so many, and the points that it loses.

        The rows that are learnt from first bring most: what is lost falls with the root of the
        share that there is time for.
        """
        if limit is None or self.seconds <= limit:
            return self.seconds, 0.0
        least = self.seconds - self.elastic
        if least > limit:
            return least, self.elastic_points
        share = (limit - least) / self.elastic
        return limit, self.elastic_points * (1 - math.sqrt(share))


def cost(facts: DataFacts, config: RunConfig, speed: float = 1.0) -> Cost:
    """Return the expected time of a training with nothing given but its budget."""
    by_name = times_of_parts(facts, config)
    works = list(by_name.values())
    scale = 1 / (config.placement.threads * speed)
    elastic = sum(work.elastic * scale + work.elastic_fixed for work in works)
    smaller = making_smaller(facts, config, JUDGES, speed)
    weights = 4.0 * config.weight_rows * config.shape.n_columns
    elastic += smaller
    points = sum(work.elastic_points for work in works)
    beside = {name: work.finish * scale + work.fixed for name, work in by_name.items()}
    written = weights * BYTE
    if config.shape.unhashed:
        return Cost(parts=beside, smaller=smaller, elastic=elastic, elastic_points=points)
    device = rates_of(config.placement.device, config.placement.card)
    alone, scored, ranked = _hashed_seconds(facts, config, scale)
    slower = 1.0 if device is None else alone / _step(facts, config)  # than threads of the CPU
    step = alone = alone + slower * sum(work.step for work in works)
    n, held, epochs = facts.n_rows, config.batching.held_out_rows, EPOCHS[config.dense]
    measure = held * (step / 3 + scored)
    tried = [(_own_trials(facts), alone)]
    for work in works:
        step += slower * work.own_step
        tried.append((work.trials, alone + slower * work.own_step))
    trials = search_trials(facts, config)
    rows, passes = trial(n, epochs, trials)
    search = sum(times * (rows * passes * of + measure) for times, of in tried)
    search += sum(work.search for work in works)
    finish = held * (step + ranked)
    kept = written  # the best epoch: on disk, or in the memory of the host
    if device is not None and config.placement.waves == 1:
        kept = weights * device.copied
    epoch = (n * step + measure) * scale + kept
    if config.dense:
        needed = not any(part.measure_untrained for part in parts_of_plan(config))
        elastic += (epochs - needed) * epoch + (SEARCH_ELASTIC if needed else 1) * search * scale
        points += EPOCHS_POINTS * needed
    return Cost(
        search=search * scale + trials * TRIAL,
        epochs=epochs * epoch,
        finish=finish * scale + 2 * written, measuring=measure * scale, parts=beside,
        smaller=smaller, elastic=elastic, elastic_points=points,
    )  # fmt: skip


def moved_bytes(config: RunConfig) -> int:
    """Return the bytes of weights, gradient and optimiser that a dense step moves."""
    table = 4 * (config.weight_rows + 1) * config.shape.n_columns
    return 5 * table + 2 * config.optimizer_kind.n_bytes(config.wide)


def search_trials(facts: DataFacts, config: RunConfig) -> float:
    """Return about how many trials a search takes."""
    return _own_trials(facts) + sum(part.trials for part in times_of_parts(facts, config).values())


def _own_trials(facts: DataFacts) -> float:
    return RATES + TRANSFORM_TRIALS + LISTS_TRIALS * facts.listed


def making_smaller(facts: DataFacts, config: RunConfig, judges: int, speed: float = 1.0) -> float:
    """Return the seconds that it takes to choose the smallest form of a model, and to code it."""
    rows, threads = min(config.batching.held_out_rows, judges), config.placement.threads
    n_bytes = 4.0 * config.weight_rows * config.shape.n_columns
    n_bytes += sum(part.model for part in bytes_of_parts(facts, config).values())
    forms = FORMS if judges >= JUDGES else FEW_FORMS
    return forms * rows * query(facts, config, speed) / threads + CODED * n_bytes


def values_of(facts: DataFacts, config: RunConfig) -> float:
    """Return about how many values a row has that hashed models know."""
    shape = config.shape
    return facts.nnz / facts.n_rows * (facts.share(shape.n_hashed_features) if shape.cut else 1.0)


def query(facts: DataFacts, config: RunConfig, speed: float = 1.0) -> float:
    """Return the seconds that a row of many takes one thread to predict; beside counts, at most."""
    shape, device = config.shape, rates_of(config.placement.device, config.placement.card)
    if device is not None:
        return _device_row(facts, config, device)[1] + ASKED
    values = (
        config.weight_rows * QUERY_DENSE if config.dense else values_of(facts, config) * FORWARD
    )
    seconds = shape.n_columns * (values + QUERY_COLUMN)
    scoring = [part.scoring for part in times_of_parts(facts, config).values()]
    usual = shape.n_classes * (1 + shape.n_repetitions) * QUERY_CLASS
    return (seconds + next((s for s in scoring if s is not None), usual)) / speed


def _hashed_seconds(
    facts: DataFacts, config: RunConfig, scale: float
) -> tuple[float, float, float]:
    """Return what a row of hashed models takes: a step, the best classes, and by all estimators.

    Seconds of one thread of the reference machine, which are multiplied with `scale`.
    """
    decoded = config.shape.n_classes * config.shape.n_repetitions
    device = rates_of(config.placement.device, config.placement.card)
    if device is None:
        ranked = RANK_ROW + RANK * decoded
        return _step(facts, config), SCORE_ROW + SCORE * decoded, ranked
    read = 0.0 if config.placement.resident else facts.nnz / facts.n_rows * READ
    step, scored = _device_row(facts, config, device)
    ranked = scored + RANKED * decoded * device.byte
    return max(step / scale, read), (scored + ASKED) / scale, (ranked + ASKED) / scale


def _device_row(facts: DataFacts, config: RunConfig, device: Rates) -> tuple[float, float]:
    """Return the seconds of a device for a row: in a step, and until its best classes are found."""
    columns, values = config.shape.n_columns, values_of(facts, config)
    decoded = SCORED * config.shape.n_classes * config.shape.n_repetitions * device.byte
    if config.dense:
        product = config.weight_rows * columns * device.product
        product *= TF32_PRODUCT if config.placement.tf32 else 1.0
        sent = SENT_DENSE * facts.n_features * device.copied / config.placement.threads
        moved = moved_bytes(config) * device.byte / config.batching.batch_size
        return max(2 * product + moved, sent), max(product, sent) + decoded
    sent = 0.0 if config.placement.resident else SENT * values * device.copied
    step = values * (columns * MOVED * device.byte + device.key) + sent
    forward = values * (columns * MOVED_FORWARD * device.byte + SENT * device.copied)
    return step, forward + decoded


def _step(facts: DataFacts, config: RunConfig) -> float:
    columns = config.shape.n_columns
    if config.dense:
        return columns * (facts.n_features * DENSE + COLUMN[config.shape.exact])
    return values_of(facts, config) * columns * STEP + facts.nnz / facts.n_rows * VALUE


@dataclass(frozen=True)
class Rung:
    """A round of successive halving: each candidate that is left passes so many rows."""

    candidates: int  # how many are left
    rows: int  # rows, epochs: of the trial of each
    epochs: int


def trial(n_rows: int, epochs: int, trials: float, most: float = math.inf) -> tuple[int, int]:
    """Return the rows and epochs of one trial of a search, which passes so many rows at most."""
    return _passing(n_rows, epochs, min(_passes_over(n_rows, epochs, trials), most))


def rungs(
    n_rows: int, epochs: int, trials: float, candidates: int, most: float = math.inf
) -> tuple[Rung, ...]:
    """Return the rounds, of as many rows each, in which half of the candidates are left out."""
    rounds = math.ceil(math.log2(candidates))
    passed = TRANSFORM_TRIALS * min(_passes_over(n_rows, epochs, trials), most) / rounds
    left = [math.ceil(candidates / 2**done) for done in range(rounds)]
    return tuple(Rung(n, *_passing(n_rows, epochs, passed / n)) for n in left)


def _passes_over(n_rows: int, epochs: int, trials: float) -> float:
    return max(SEARCH_SHARE * epochs * n_rows / trials, LEAST_PASSED)


def _passing(n_rows: int, epochs: int, passed: float) -> tuple[int, int]:
    """Return the most rows that are passed as often as they need to be, and how often that is."""

    def often(rows: int) -> int:
        return round(1 + (epochs - 1) * math.pow(rows / n_rows, EPOCHS_POWER))

    rows = bisect_right(range(n_rows + 1), passed, key=lambda rows: rows * often(rows)) - 1
    return max(rows, 1), often(max(rows, 1))
