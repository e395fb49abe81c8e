"""The models that are weighed for a budget, each with its bytes, expected loss and time."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from msgspec import UNSET

from streammach import hashing
from streammach.backends.registry import BACKENDS
from streammach.options.byte_lines import Limits, Line, bytes_in
from streammach.options.config import Batching, Placement, RunConfig
from streammach.options.facts import DataFacts
from streammach.options.model_spec import ModelShape
from streammach.options.optimizers import USUAL
from streammach.options.plan import Option
from streammach.parts.base import Part, switch_value
from streammach.parts.expected import AccuracyDrop, Choice, Fit, sentences
from streammach.parts.registry import PARTS, parts_of_plan
from streammach.planning.constraints import Constraints
from streammach.planning.cost import SPREAD, cost, query
from streammach.planning.ledger import ledger
from streammach.system.errors import DeviceError, UsageError
from streammach.system.machine import cores

# What a model loses against a larger one of the same data, alike on the data sets measured, in
# points: hundredths of the mean of accuracy and top-5 accuracy, or of precision at 1 and 5. With
# lists of labels columns are worth more, since all labels of a row are looked for. docs/planner.md
# has the measurements, ``python -m benchmarks.planner.fit`` makes the constants.
ENOUGH = 256  # columns from which sparse rows lose little
LISTS = Fit(columns=3.29, power=1.47, repetitions=0.65, buckets=18.53, error=0.39)  # of sparse rows
FITS = {  # by dense, of rows with one label
    False: Fit(columns=5.1, power=0.86, repetitions=73.12, buckets=18.53, error=0.41),
    True: Fit(columns=3.21, power=0.70, repetitions=1.14, buckets=93.83, error=1.18),
}
# Points lost by each share of all values that is of features which hashed models do not know, by
# whether counts stand beside, which know them.
LEFT_OUT = {False: 40.0, True: 6.0}
TIE = 0.1  # points; options nearer than this to the best one are as good
DELTA = 1e-3  # accepted chance that two classes share their bucket in every repetition
DENSE_SHARE = 0.1  # from this density on, matrix products are faster than sparse loops
MIN_BATCH = 16
BATCHES_PER_EPOCH = 64  # small data get smaller batches, so that an epoch is many steps
# By dense: a batch that costs no accuracy; and the steps of an epoch from which on larger ones cost
# none: a short training of the search has a sixth of them, and few rank rates and losses wrongly.
FREE_BATCH, FREE_STEPS = {False: 1024, True: 256}, 512
POOL_BLOCKS = (8, 4, 2, 1)
BATCH_SPREAD = 1.5  # room of a batch, in mean rows
MAX_HELD_OUT_ROWS = 10_000
MAX_HELD_OUT_NNZ = 4_000_000
HELD_OUT_SHARE = 0.05
MAX_COLUMNS = 4096  # more brought nothing on the data sets measured
BUCKETS = (1024, 512, 256, 128, 64, 32, 16, 8)
REPETITIONS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True)
class Candidate:
    """A model that was weighed."""

    option: Option  # what is expected of it
    lines: tuple[Line, ...]  # its bytes by name
    reasons: tuple[str, ...]  # why it has its parts


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """What models are weighed for."""

    facts: DataFacts  # the store
    constraints: Constraints  # what the user fixed
    device: str  # where the model would be trained
    limits: Limits  # what may be used
    speed: float  # how many times as fast as the reference machine a thread is


def candidates(weighing: Weighing, *, fewer: bool = False) -> list[Candidate]:
    """Return every model worth weighing, whatever its bytes and time; at least one.

    With a limit of time each loses the points of what there is no time for. Hashed models of fewer
    features are among them where the best model that fits gains by that; with `fewer` where none
    fits, too.
    """
    facts, constraints = weighing.facts, weighing.constraints
    whole = _of_features(weighing, constraints.hashed_features)
    fixed = constraints.shaped or constraints.hashed_features is not None
    if whole[0].option.config.dense or fixed or not (fewer or any(c.option.fits for c in whole)):
        return whole
    worth = _least(whole, weighing) - TIE
    heads = [n for n in facts.heads if LEFT_OUT[True] * (1 - facts.share(n)) < worth]
    cut = [one for n in heads for one in _of_features(weighing, n)]
    cut = [one for one in cut if one.option.shape.cut and not one.option.shape.exact]
    return [*whole, *cut] if _least(cut, weighing) < worth else whole


def _least(weighed: Sequence[Candidate], weighing: Weighing) -> float:
    """Return the least loss of what may be taken."""
    allow = weighing.constraints.allow
    return min((c.option.loss for c in weighed if allow(c.option)), default=math.inf)


def _of_features(weighing: Weighing, hashed_features: int | None) -> list[Candidate]:
    """Return the models of so many features; of all for None."""
    ways, constraints = list(_ways(weighing, hashed_features)), weighing.constraints
    if constraints.weights != "float32" and ways[0].dense:
        raise UsageError(f"rows are dense: --weights {constraints.weights}")
    if constraints.hashed_features is not None and ways[0].dense:
        raise UsageError("rows are dense, and their models know all features: --features")
    if constraints.tf32 and not ways[0].dense:
        raise UsageError("rows are sparse, which are not multiplied as matrices: --tf32")
    sole = _sole(weighing, ways)
    if sole:
        return sole
    found, refused = list[Candidate](), None
    weighed = (part for part in PARTS.values() if part.weighed and not part.sole)
    options = (_choices(part, weighing, ways[0]) for part in weighed)
    for choices in itertools.product(*options):
        configs = [_with(way, choices) for way in ways]
        for buckets, repetitions in _shapes(configs[-1], weighing):
            shaped = partial(_make_config, n_buckets=buckets, n_repetitions=repetitions)
            try:
                found.append(
                    _weigh_candidate(map(shaped, configs), shaped(configs[-1]), choices, weighing)
                )
            except DeviceError as error:
                refused = error
    if refused is not None and not found:
        raise refused
    if constraints.unhashed and not found:
        what = "rows are dense" if ways[0].dense else "counts rank alone, on the CPU"
        raise UsageError(f"no model without hashed ones: {what}: --repetitions 0")
    reasons = [_refusal(one.option.config) for one in found]
    if all(reasons):  # a part that is wanted does not go with this shape
        asked = change_shape(ways[0], constraints.n_buckets or 1, constraints.n_repetitions or 1)
        raise UsageError(next(iter(reasons), _refusal(_with(asked, choices))))
    return [one for one, why in zip(found, reasons, strict=True) if not why]


def _sole(weighing: Weighing, ways: Sequence[RunConfig]) -> list[Candidate]:
    """Return the models that a part alone is, where one fits or is asked for."""
    found, asked = list[Candidate](), False
    for part in PARTS.values() if BACKENDS[weighing.device].unhashed else ():
        if not part.sole:
            continue
        word = switch_value(part, weighing.constraints.parts)
        asked |= word == "on"
        if word == "auto" and not weighing.constraints.open:
            continue
        for choice in _choices(part, weighing, ways[0]):
            if choice.plan is not None:
                alone = [replace(way, parts=(choice.plan,)) for way in ways]
                configs = [change_shape(way, 1, 0) for way in alone]
                found.append(_weigh_candidate(configs, configs[-1], [choice], weighing))
    allow = weighing.constraints.allow
    return found if asked or any(allow(one.option) for one in found) else []


def change_shape(config: RunConfig, n_buckets: int, n_repetitions: int) -> RunConfig:
    """Return how a model of other B and R is trained."""
    cut = config.shape.hashed_features if n_repetitions else UNSET
    shape = replace(
        config.shape, n_buckets=n_buckets, n_repetitions=n_repetitions, hashed_features=cut
    )
    return replace(config, shape=shape)


def drop_excluded_parts(config: RunConfig) -> RunConfig:
    """Return a configuration without parts that its shape or its place does not allow."""
    kept = {part.name for part in parts_of_plan(config) if part.reason_against(config) is None}
    return replace(
        config, parts=tuple(part for part in config.parts if part.fixed or part.name in kept)
    )


def _make_config(config: RunConfig, *, n_buckets: int, n_repetitions: int) -> RunConfig:
    return drop_excluded_parts(change_shape(config, n_buckets, n_repetitions))


def _refusal(config: RunConfig) -> str:
    reasons = ((part, part.reason_against(config)) for part in parts_of_plan(config))
    return next((f"{why}: {part.switch.option_text}" for part, why in reasons if why), "")


def _choices(part: Part, weighing: Weighing, config: RunConfig) -> list[Choice]:
    word, facts = switch_value(part, weighing.constraints.parts), weighing.facts
    if word == "off":
        return [part.without(None)]
    why = part.find_obstacle(facts, config)
    if why is None:
        return list(part.list_choices(facts, config, sure=word == "on"))
    if word == "on":
        raise UsageError(f"{why}: {part.switch.option_text}")
    return [part.without(why)]


def _with(config: RunConfig, choices: Sequence[Choice]) -> RunConfig:
    parts = tuple(choice.plan for choice in choices if choice.plan is not None)
    return replace(config, parts=(*config.parts, *parts))


def _weigh_candidate(
    configs: Iterable[RunConfig], last: RunConfig, choices: Sequence[Choice], weighing: Weighing
) -> Candidate:
    facts, limits, speed = weighing.facts, weighing.limits, weighing.speed
    config, lines = _way(configs, last, weighing)
    loss = AccuracyDrop()
    for choice in choices:
        loss += choice.loss
    if config.shape.unhashed:
        loss += next(c.alone for c in choices if c.alone is not None)
    elif config.shape.cut or not config.shape.exact:
        loss += hashing_loss(
            facts, config, next((c.fit for c in choices if c.fit is not None), None)
        )
    expected = cost(facts, config, speed)
    seconds, points = expected.within(weighing.constraints.seconds)
    loss += AccuracyDrop(points, points / 2)
    option = Option(
        config=config, projected_bytes=bytes_in(lines, limits.where),
        model_bytes=next(line.n_bytes for line in lines if line.name == "model"),
        loss=loss.points, loss_error=loss.error, seconds=seconds,
        seconds_spread=SPREAD if seconds >= expected.seconds else 1.0,
        query_seconds=query(facts, config, speed), fits=not limits.overshoot(lines),
    )  # fmt: skip
    return Candidate(option, lines, sentences(choices))


def hashing_loss(facts: DataFacts, config: RunConfig, fit: Fit | None = None) -> AccuracyDrop:
    """Return what R times B buckets over d' features lose against many columns over all."""
    listed = config.batching.batch_labels > 0 and not config.dense
    shape, beside = config.shape, fit is not None
    fit = fit or (LISTS if listed else FITS[config.dense])
    wanted = shape.n_classes if config.dense or (listed and beside) else ENOUGH
    points = 0.0
    if not shape.exact:
        points = fit.columns * (wanted / shape.n_columns) ** fit.power
        points += fit.repetitions / shape.n_repetitions**2 + fit.buckets / shape.n_buckets
    if shape.cut:
        points += LEFT_OUT[beside] * (1 - facts.share(shape.n_hashed_features))
    return AccuracyDrop(points, max(fit.error, points / 2))


def _way(
    configs: Iterable[RunConfig], last: RunConfig, weighing: Weighing
) -> tuple[RunConfig, tuple[Line, ...]]:
    """Return the first way that fits; else the last, which needs the least of a device."""
    facts, limits = weighing.facts, weighing.limits
    least = ledger(facts, last)
    over_device = bytes_in(least, "device") > limits.device
    if over_device or (limits.overshoot(least) and not limits.device):
        return last, least
    tried = ((config, ledger(facts, config)) for config in configs)
    fitting = ((config, lines) for config, lines in tried if not limits.overshoot(lines))
    return next(fitting, (last, least))


def _ways(weighing: Weighing, few: int | None) -> Iterator[RunConfig]:
    """Yield the ways to run an exact model, the best first.

    Streamed rows, more waves, smaller pools and batches, at last without parts that are not
    weighed.
    """
    facts, constraints, device = weighing.facts, weighing.constraints, weighing.device
    kind, dense = BACKENDS[device].of(constraints.card), facts.density >= DENSE_SHARE
    usual = _batch(facts.n_rows, kind.batch[dense], dense=dense)
    batches = [usual >> i for i in range(8) if usual >> i >= MIN_BATCH]
    rows = min(MAX_HELD_OUT_ROWS, int(facts.n_rows * HELD_OUT_SHARE))
    if constraints.held_out_rows is not None:
        rows = min(constraints.held_out_rows, facts.n_rows - 1)
    mean, mean_labels = facts.nnz / facts.n_rows, facts.n_labels / facts.n_rows
    if constraints.batch_size:
        batches = [min(constraints.batch_size, facts.n_rows)]
    tf32 = constraints.tf32
    if tf32 is None:
        tf32 = dense and kind.tf32 is not None and kind.tf32()
    shape = ModelShape(
        n_classes=facts.n_classes, n_features=facts.n_features,
        n_buckets=facts.n_classes, n_repetitions=1,
        hashed_features=UNSET if few is None or few >= facts.n_features else few,
    )  # fmt: skip
    first = RunConfig(
        shape=shape, dense=dense,
        optimizer=USUAL[dense] if constraints.optimizer == "auto" else constraints.optimizer,
        batching=Batching(batch_size=batches[0], batch_nnz=0),
        placement=Placement(
            device=device, threads=constraints.threads or cores(), weights=constraints.weights,
            tf32=tf32, card=constraints.card or UNSET,
        ),
    )  # fmt: skip
    others = (_choices(part, weighing, first) for part in PARTS.values() if not part.weighed)
    ways = list(
        itertools.product(batches, POOL_BLOCKS, range(1, kind.max_waves + 1), kind.resident)
    )
    if dense:  # another wave brings all rows to the device once more: smaller batches cost less
        ways.sort(key=lambda way: way[2])
    for choices, (batch, pool, waves, resident) in itertools.product(
        itertools.product(*others), ways
    ):
        nnz = max(facts.max_row_nnz, int(BATCH_SPREAD * batch * mean) + 1)
        labels = max(facts.max_row_labels, int(BATCH_SPREAD * batch * mean_labels) + 1)
        batching = Batching(
            batch_size=batch, batch_nnz=min(nnz, batch * facts.max_row_nnz), pool_blocks=pool,
            held_out_rows=rows, held_out_nnz=min(MAX_HELD_OUT_NNZ, rows * facts.max_row_nnz),
            batch_labels=min(labels, batch * facts.max_row_labels),
        )  # fmt: skip
        placement = replace(first.placement, waves=waves, resident=resident)
        yield _with(replace(first, batching=batching, placement=placement), choices)


def _batch(n_rows: int, fast: int, *, dense: bool) -> int:
    rows = FREE_BATCH[dense]
    while 2 * rows <= min(fast, n_rows // FREE_STEPS):
        rows *= 2
    return max(MIN_BATCH, min(rows, fast, n_rows // BATCHES_PER_EPOCH))


def _shapes(config: RunConfig, weighing: Weighing) -> Iterator[tuple[int, int]]:
    """Yield (B, R): what was asked for, or every B with some R up to the largest that fits.

    (1, 0) stands for no hashed models, where a part ranks classes without them.
    """
    classes = config.shape.n_classes
    exact = any(part.exact_only for part in parts_of_plan(config))
    constraints = weighing.constraints
    buckets, repetitions = constraints.n_buckets, constraints.n_repetitions
    if buckets is not None and repetitions and buckets < classes:
        if not exact:
            yield buckets, repetitions
        return
    unhashed = (1, 0)
    ranks = (
        any(part.fit_first for part in parts_of_plan(config)) and BACKENDS[weighing.device].unhashed
    )
    if constraints.unhashed:
        if ranks:
            yield unhashed
        return
    yield classes, 1
    if constraints.shaped or exact:
        return
    if ranks:
        yield unhashed
    for buckets in (n for n in BUCKETS if n < classes):
        enough = hashing.repetitions_for(classes, buckets, DELTA)
        most = max(_largest(config, buckets, weighing), enough)
        for repetitions in sorted({enough, most, *REPETITIONS}):
            if enough <= repetitions <= most:
                yield buckets, repetitions


def _largest(config: RunConfig, n_buckets: int, weighing: Weighing) -> int:
    """Return the most repetitions that fit, as they would run in the most modest way; 0 if none."""

    def too_many(n_repetitions: int) -> bool:
        try:
            lines = ledger(weighing.facts, change_shape(config, n_buckets, n_repetitions))
        except DeviceError:
            return True
        return weighing.limits.overshoot(lines) > 0

    return bisect_left(range(1, MAX_COLUMNS // n_buckets + 1), True, key=too_many)
