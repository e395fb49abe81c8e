"""Ranks the first rows of an input, in another process: this compiles what ranking all calls."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from streammach.data.bad_rows import BadRows
from streammach.data.source_options import SourceOptions
from streammach.files.raw_text import is_piped
from streammach.files.urls import locate
from streammach.model.model import Model
from streammach.prediction.diagnose import compile_model
from streammach.prediction.inputs import InputCounts, Room, rows_of
from streammach.prediction.metric_table import EvaluationRequest, MetricSums
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranked_rows import rank_rows
from streammach.rows.block import RowBlock

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
        for block in blocks:
            _rank(predictor, block, place, measured=measured, some_labels=some_labels)
            return


def _rank(
    predictor: Predictor, block: RowBlock, place: Path, *, measured: bool, some_labels: bool
) -> None:
    if measured:
        request = EvaluationRequest()
        sums = MetricSums(predictor.model, request)
        sums.add(sums.count(rank_rows(predictor, block, request.most, place)))
        sums.fields()
        return
    first = predictor.labels(np.arange(min(2, predictor.model.spec.n_classes))).tolist()
    allowed = predictor.limit_labels(first, None) if some_labels else None
    for probabilities in (False, True):
        predictor.ranking(probabilities=probabilities, allowed=allowed)(block, 5)
