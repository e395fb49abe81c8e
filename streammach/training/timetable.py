"""The stages of a training, by the names that are shown, and how long each should take."""

from __future__ import annotations

from streammach.parts.registry import planned
from streammach.planning.cost import Cost, closing, query
from streammach.spec.config import RunConfig
from streammach.spec.facts import DataFacts

COMPILING, HELD_OUT, ALONE = "compiling kernels", "held-out rows", "model of counts"
SEARCH, EPOCHS, RANKING, CALIBRATION = "search", "epochs", "ranking", "calibration"
SMALLER, LEARNING, WRITING = "smaller model", "held-out rows, learnt", "writing"
SURE = (COMPILING,)  # its time says nothing of others
COMPILATION, OPENING = 30.0, 0.3  # seconds of one thread of the reference machine


def timetable(
    facts: DataFacts, config: RunConfig, expected: Cost, *, speed: float, compiled: bool
) -> dict[str, float]:
    """Return the seconds of each stage, in their order.

    Parameters
    ----------
    facts : DataFacts
        The store.
    config : RunConfig
        How a model is trained on it.
    expected : Cost
        What that costs.
    speed : float
        How many times as fast as the reference a thread of this machine is.
    compiled : bool
        Whether all kernels are there.
    """
    scale, parts = 1 / (config.placement.threads * speed), planned(config)
    found = {} if compiled else {COMPILING: COMPILATION / speed}
    found[HELD_OUT] = OPENING
    for part in parts:
        found |= part.stages_ahead(facts, config, scale)
    if not config.shape.unhashed:
        found |= {SEARCH: expected.search, EPOCHS: expected.epochs}
    end = closing(facts, config, speed)
    for within in (True, False):
        for part in parts:
            if part.changes_weights == within:
                found |= part.stages(facts, config, scale)
        if within and not config.shape.unhashed:
            found[RANKING] = end["rank"]
    found[CALIBRATION] = config.batching.held_out_rows * query(facts, config) * scale
    return found | {SMALLER: expected.smaller, LEARNING: end["learn"], WRITING: end["write"]}
