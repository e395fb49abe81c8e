"""A model's ways to rank side by side, and its first repetitions alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from streammach.model.model import Model
from streammach.model.shrink import TRUST, Size, shrink
from streammach.prediction.predictor import Predictor
from streammach.rows.block import RowBlock
from streammach.spec.estimators import BLEND, estimators
from streammach.spec.types import Ranker


@dataclass(frozen=True)
class Depth:
    """Accuracy of the first `n_repetitions` repetitions, by the way to rank."""

    n_repetitions: int
    accuracy: dict[Ranker, float]


def rankings_of(model: Model) -> list[Ranker]:
    """Return the ways to rank classes of a model; with R = 1 all but counts agree."""
    counted: list[Ranker] = [] if model.counts is None else [BLEND]
    if model.spec.unhashed:
        return counted
    return [*counted, *estimators()[: 1 if model.spec.n_repetitions == 1 else None]]


def first_repetitions(model: Model, n_repetitions: int) -> Model:
    """Return the model with its first repetitions and all counts."""
    total = model.spec.n_repetitions
    if n_repetitions == total:
        return model
    hashed = replace(model, counts=None)
    small = shrink(hashed, Size(model.stored or "float32", n_repetitions, 0))
    if model.counts is None:
        return small
    weight = model.counts.hashed * (n_repetitions / total) ** TRUST
    return replace(small, counts=replace(model.counts, hashed=weight))


def depth_of(predictor: Predictor, blocks: Iterable[RowBlock], names: Iterable[Ranker]) -> Depth:
    """Return the accuracy of a predictor's model on rows, by the way to rank."""
    right, n = dict.fromkeys(names, 0), 0
    for block in blocks:
        n += block.n_rows
        for name in right:
            best = predictor.topk_ids(block, 1, name)[0]
            right[name] += int(block.lists.matched(best).sum())
    accuracy = {name: count / max(n, 1) for name, count in right.items()}
    return Depth(predictor.model.spec.n_repetitions, accuracy)
