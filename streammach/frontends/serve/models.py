"""A model that is served: loaded within the memory, and asked for the best labels of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.frontends.serve.messages import (
    MAX_LABELS,
    About,
    ModelColumn,
    PredictRequest,
    Refused,
    RowPrediction,
)
from streammach.frontends.serve.options import ServeOptions
from streammach.frontends.serve.request_rows import MIN_REQUEST_BYTES, RequestMemory, RequestReader
from streammach.model.document import document_digest
from streammach.model.model import Model
from streammach.model.size import size_in_file
from streammach.options.figures import Explanation
from streammach.prediction.explain import explanations
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import device_for, room_for
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from streammach.system.errors import BudgetError, DataError, ModelError, UsageError
from streammach.system.machine import budget, cores

MAX_EXPLAINED = 100_000  # labels times features of their rows that a request has explained
# Cells, by role; else text.
SAMPLES = {"number": 1.0, "date": "2024-01-31", "names": ["a"], "pairs": {"a": 1.0}}


class Served:
    """A loaded model; one thread at a time may ask it."""

    def __init__(self, name: str, model: Model, version: str, options: ServeOptions) -> None:
        self.name, self.version = name, version
        self._predictor = Predictor(
            model, device=options.device, threads=options.threads, memory=options.memory
        )
        self._reader, self._batch = RequestReader(model), options.batch
        self.n_bytes = self.code_bytes = 0  # that it takes alone, and that all models share
        recipe, kind = model.recipe, "features"
        columns = () if recipe is None else recipe.columns
        if recipe is not None:
            kind = "text" if len(columns) == len(recipe.texts) == 1 else "fields"
        self.about = About(
            name=name, version=version, classes=model.n_labels,
            features=len(model.features), scores=self._predictor.estimator,
            rows=kind, columns=[ModelColumn(c.name, c.role) for c in columns],
            bytes=model.n_bytes,
        )  # fmt: skip

    def predict(self, request: PredictRequest, rows: Sequence[msgspec.Raw]) -> list[RowPrediction]:
        """Return the predictions of rows that are asked for as in a request, or raise Refused."""
        predictor, model = self._predictor, self._predictor.model
        try:
            allowed = predictor.limit_labels(request.only, request.never, len(rows), warned=False)
            read = [self._reader.read(number, raw) for number, raw in enumerate(rows)]
            values, unknown = [row for row, _ in read], np.zeros(len(rows), np.int64)
            block = predictor.rows.block(values, unknown=unknown)
            ids, scores = predictor.rank(
                block, request.k, probabilities=request.probabilities,
                threshold=request.threshold, allowed=allowed,
            )  # fmt: skip
            best = [row[row >= 0] for row in ids]
            labels: list[Any] = _texts(model.labels, best)
            if model.labels.kind == "integer":
                labels = [[int(label) for label in row] for row in labels]
            titles = _texts(model.titles, best) if model.titles else [None] * len(rows)
            reasons = self._explain(request, values, block, ids, labels)
        except (DataError, UsageError) as error:
            raise Refused(422, error.message) from None
        except RecursionError:
            raise Refused(422, "a cell is nested too deeply") from None
        except (BudgetError, MemoryError) as error:
            raise Refused(503, f"memory is short: {error}", retry=1) from None
        return [
            RowPrediction(own, score[: len(own)], n + n_fields, words, why)
            for own, score, n, (_, n_fields), words, why in zip(
                labels, scores.tolist(), unknown.tolist(), read, titles, reasons, strict=True
            )
        ]

    def _explain(
        self, request: PredictRequest, rows: list[Any], block: RowBlock, ids: NDArray[np.int64],
        labels: list[Any],
    ) -> Sequence[list[Explanation] | msgspec.UnsetType]:  # fmt: skip
        """Return why labels have their scores, where that is asked for; or raise Refused."""
        calibrated = request.probabilities or request.threshold is not None
        if not request.explain:
            return [msgspec.UNSET] * block.n_rows
        if (n := block.nnz * ids.shape[1]) > MAX_EXPLAINED:
            raise Refused.above("explained", MAX_EXPLAINED, f"{n:,} features that explain")
        scorers = self._predictor.scorers
        reasons = scorers.reasons(block, ids, request.explain, calibrated=calibrated)
        places = self._predictor.rows.places(rows, reasons)
        return explanations(reasons, labels, self._predictor.model.features, places)

    def warm(self) -> None:
        """Answer rows of its kind, so that all kernels are compiled."""
        model, row = self._predictor.model, dict[str, Any](features={})
        if model.recipe is not None:
            cells = [(c.name, [1.0] * c.width or SAMPLES.get(c.role)) for c in model.recipe.columns]
            row = {name: "a" if cell is None else cell for name, cell in cells}
        elif len(model.features):
            row = {"features": {model.features.raw(0).decode("utf-8", "replace"): 1.0}}
        raw = msgspec.Raw(msgspec.json.encode(row))
        first = int(np.flatnonzero(model.says >= 0)[0]) if model.says is not None else 0
        for n in (1, 3, self._batch):  # one row, a few, and all that wait
            for only in (None, [model.labels[first]]):
                self.predict(PredictRequest([], only=only, explain=1), [raw] * n)
        for some_labels in (False, True):
            self._predictor.room("rows", None, MAX_LABELS, some_labels=some_labels).keep_kernels()

    def close(self) -> None:
        """Stop its threads."""
        self._predictor.close()


def _texts(names: Names, ids: list[NDArray[np.int64]]) -> list[list[str]]:
    """Return the names of each row's ids as texts; what is not UTF-8 as its escape."""
    return [[raw.decode("utf-8", "backslashreplace") for raw in names.raws(row)] for row in ids]


def load_model(
    name: str, folder: Path, others: int, options: ServeOptions, memory: RequestMemory
) -> Served:
    """Return a model that has answered a row, beside others that take so many bytes; or raise."""
    size, version = size_in_file(folder), version_of(folder)
    beside = {"models that are served": others, "requests": MIN_REQUEST_BYTES}
    room = room_for(
        size, "rows", None, MAX_LABELS, device=device_for(options.device, size),
        threads=options.threads or cores(), budget=budget(options.memory), beside=beside,
        some_labels=True,
    )  # fmt: skip
    lines = {line.name: line.n_bytes for line in room.lines if line.name not in beside}
    memory.reserved = sum(n for line, n in lines.items() if line not in ("code", "values", "rows"))
    served = Served(name, Model.load(folder), version, options)
    served.n_bytes = memory.reserved - lines.get("loading", 0)
    served.code_bytes = lines["code"]
    try:
        if version_of(folder) != version:
            raise ModelError("the model changed while it was read", path=folder)
        served.warm()
    except BaseException:
        served.close()
        raise
    return served


def version_of(folder: Path) -> str:
    """Return the digest of a model's document, which holds its hashes and its weights' checksum."""
    return document_digest(folder)[:16]
