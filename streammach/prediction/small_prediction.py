"""Ranks the first rows of an input, in another process: this compiles what ranking all calls."""

from __future__ import annotations

import os

import numpy as np

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.source_options import SourceOptions
from streammach.model.model import Model
from streammach.prediction.diagnose import compile_model
from streammach.prediction.evaluate import sum_metrics
from streammach.prediction.inputs import InputCounts, Room, rows_of
from streammach.prediction.metric_table import EvaluationRequest
from streammach.prediction.predictor import Predictor
from streammach.system.files.raw_text import is_piped
from streammach.system.files.urls import locate

FEW = Room(rows=64, values=1 << 12, sorted_bytes=1 << 20, lines=())


def rank_first_rows(
    folder: str, kind: tuple[object, ...], run: str | os.PathLike[str], measured: bool,
    path: str | os.PathLike[str], options: SourceOptions, threads: int,
    some_labels: bool,
) -> None:  # fmt: skip
    """Rank a few rows with a model, and measure it on them; rows that are bad are left out."""
    del folder, kind
    model, place = Model.load(run), locate(path)
    compile_model(model)
    if is_piped(place):  # which is read once
        return
    blocks = rows_of(
        place, model, InputCounts(), FEW, options=options, label_needed=measured,
        bad_rows=BadRows(skip=True),
    )  # fmt: skip
    with Predictor(model, device="cpu", threads=threads) as predictor:
        block = next(blocks, None)
        if block is None:
            return
        if measured:
            sum_metrics(predictor, [block], EvaluationRequest(), place).fields()
            return
        first = predictor.labels(np.arange(min(2, model.spec.n_classes))).tolist()
        allowed = predictor.limit_labels(first, None) if some_labels else None
        for probabilities in (False, True):
            predictor.scorers.topk(block, 5, probabilities=probabilities, allowed=allowed)
