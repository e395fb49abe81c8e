"""The stages of a training, by the names that are shown, and how long each should take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streammach.parts.expected import RATES
from streammach.parts.registry import planned
from streammach.planning.cost import BYTE, CODED, closing, cost, query, search_trials
from streammach.planning.schedule import EPOCHS as EXPECTED_EPOCHS
from streammach.planning.schedule import TRANSFORM_TRIALS
from streammach.planning.speed import known_speed
from streammach.spec.config import RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.training import TrainingOptions

if TYPE_CHECKING:
    from streammach.training.request import FitRequest

HELD_OUT, ALONE = "held-out rows", "model of counts"
SEARCH, EPOCHS, RANKING, CALIBRATION = "search", "epochs", "ranking", "calibration"
SMALLER, LEARNING, WRITING = "smaller model", "held-out rows, learnt", "writing"
CLOSING = 0.15  # seconds of the end, beside writing the model
NARROWED = 1.1e-9  # a byte of the weights, while smaller forms of them are judged
SMALL = 0.15  # of the bytes of a model, what is written of it where it is made small
FIXED_RATES = 0.6  # of the trials of parts, what is left out where the rate is given
OPENING = 0.3  # seconds of one thread of the reference machine


def timetable(
    facts: DataFacts, config: RunConfig, options: TrainingOptions, *, speed: float
) -> dict[str, float]:  # fmt: skip
    """Return the seconds of each stage, in their order."""
    scale, parts = 1 / (config.placement.threads * speed), planned(config)
    expected = cost(facts, config, speed)
    found = {HELD_OUT: OPENING}
    for part in parts:
        found |= part.stages_ahead(facts, config, scale)
    if not config.shape.unhashed:
        epochs = EXPECTED_EPOCHS[config.dense]
        share = (epochs if options.epochs is None else options.epochs) / epochs
        found[SEARCH] = expected.search * _searched(facts, config, options)
        found[EPOCHS] = expected.epochs * share
    end = closing(facts, config, speed)
    for within in (True, False):
        for part in parts:
            if part.changes_weights == within:
                found |= part.stages(facts, config, scale)
        if within and not config.shape.unhashed:
            found[RANKING] = end["rank"]
    found[CALIBRATION] = config.batching.held_out_rows * query(facts, config) * scale
    weights = 4.0 * config.weight_rows * config.shape.n_columns
    n_bytes = weights + sum(part.model_bytes(config) for part in parts)
    if options.model_size == "auto":
        found[SMALLER] = max(expected.smaller - CODED * n_bytes, 0.0) + NARROWED * weights
        n_bytes *= SMALL
    return found | {LEARNING: end["learn"], WRITING: CLOSING + BYTE * n_bytes}


def expected(request: FitRequest) -> dict[str, float]:
    """Return the seconds of each stage of what is asked for, in their order.

    What a run goes by is left out of the progress when a later stage begins.
    """
    plan, options, speed = request.plan, request.options, known_speed()
    found = timetable(plan.facts, plan.config, options, speed=speed)
    if request.share is not None:
        until, mine = list(found).index(EPOCHS), request.share.plan(plan).config
        found = dict(list(found.items())[: until + 1])
        found[EPOCHS] = timetable(plan.facts, mine, options, speed=speed)[EPOCHS]
    elif request.shares:  # they are read
        settings = request.shares[0].settings
        assert settings is not None, "it is finished"
        table = 4 * plan.config.weight_rows * plan.config.shape.n_columns
        found[EPOCHS] = settings.training.epochs * BYTE * table
    return found


def _searched(facts: DataFacts, config: RunConfig, options: TrainingOptions) -> float:
    """Return the share of the trials of a search that are left where some things are fixed."""
    trials = search_trials(facts, config)
    fixed = TRANSFORM_TRIALS * (options.fixed_transform is not None)
    if options.learning_rate is not None:
        fixed += RATES + FIXED_RATES * max(trials - RATES - TRANSFORM_TRIALS, 0.0)
    return max(1 - fixed / trials, 0.0)
