"""A model that is served: loaded, checked, and asked for the best labels of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.errors import BudgetError, DataError, ModelError, StreammachError, UsageError
from streammach.figures import Explanation
from streammach.files.reading import read_small
from streammach.machine import budget, cores
from streammach.model.document import DOCUMENT, MAX_DOCUMENT
from streammach.model.model import Model, folder_of
from streammach.model.size import size_in_file
from streammach.prediction.explain import explanations
from streammach.prediction.predictor import Predictor
from streammach.prediction.room import device_for, room_for
from streammach.rows.block import RowBlock
from streammach.serve.bodies import WORK_BYTES, Question, RequestReader, RequestRoom, Row
from streammach.serve.limits import Refused, ServiceLimits, beyond
from streammach.serve.messages import DEFAULT_K, About, ModelColumn, RowPrediction

OTHERS = "models that are served"
NOT_KEPT = (OTHERS, "requests", "values", "rows")  # of the ledger: what no model takes for itself
DIGITS = 16  # of a version
# Cells, by role; else text.
SAMPLES = {"number": 1.0, "date": "2024-01-31", "names": ["a"], "pairs": {"a": 1.0}}


@dataclass(frozen=True, kw_only=True)
class Computing:
    """Where a service computes, and with what."""

    device: str = "auto"  # `auto`, `cpu` or `cuda`
    threads: int | None = None  # threads that compute for a model; all cores otherwise
    # bytes that the process may take; 2 GB, or what the models need, otherwise
    memory: str | None = None


class Served:
    """A loaded model; one thread at a time may ask it."""

    def __init__(
        self, name: str, model: Model, version: str, limits: ServiceLimits, computing: Computing
    ) -> None:
        self.name, self.version, self._limits = name, version, limits
        self.takes = 0  # bytes that it takes, and the work on its rows
        self._predictor = Predictor(
            model, device=computing.device, threads=computing.threads, memory=computing.memory
        )
        self._plain = model.labels.kind != "bytes"
        self.reader = _reader(model, limits)
        recipe, kind = model.recipe, "features"
        if recipe is not None:
            kind = "text" if len(recipe.columns) == len(recipe.texts) == 1 else "fields"
        columns = () if recipe is None else recipe.columns
        self.about = About(
            name=name, version=version, classes=model.n_labels,
            features=len(model.features), scores=self._predictor.estimator,
            rows=kind, columns=[ModelColumn(c.name, c.role) for c in columns],
            bytes=model.n_bytes,
        )  # fmt: skip

    def predicted(self, questions: Sequence[Question]) -> list[list[RowPrediction]]:
        """Return the predictions of some questions, computed together, or raise Refused."""
        rows = [row for question in questions for row in question.rows]
        one = questions[0]
        k = max(question.k for question in questions)
        labels, values, unknown = list[list[int | str]](), list[list[float]](), list[int]()
        why, titles = list[list[Explanation]](), list[list[str] | None]()
        try:
            allowed = self._predictor.allowed(one.only, one.never, len(rows), warned=False)
            for some in _slices([size for question in questions for size in question.sizes]):
                block, strange = self._block(rows, some)
                ids, scores = self._predictor.ranked(
                    block, k, probabilities=one.probabilities, threshold=one.threshold,
                    allowed=None if allowed is None else allowed.part(some),
                )  # fmt: skip
                there = (ids >= 0).sum(axis=1).tolist()
                named = self._labels(ids, there)
                why += self._explained(one, block, ids, named, rows[some])
                titles += self._titles(ids, there)
                labels += named
                values += [row[:n] for row, n in zip(scores.tolist(), there, strict=True)]
                unknown += strange.tolist()
        except (DataError, UsageError) as error:
            raise Refused(422, error.message) from None
        except (BudgetError, MemoryError) as error:
            raise Refused(503, f"memory is short: {error}", retry=1) from None
        # Each question takes as many of them as it has rows.
        every = zip(labels, values, unknown, titles, why, strict=True)
        return [
            [
                RowPrediction(
                    best[: question.k], scores[: question.k], n + more,
                    None if words is None else words[: question.k],
                    own[: question.k] if question.explain else msgspec.UNSET,
                )
                for more, (best, scores, n, words, own) in zip(
                    question.unknown, every, strict=False
                )
            ]
            for question in questions
        ]  # fmt: skip

    def _explained(
        self, question: Question, block: RowBlock, ids: NDArray[np.int64],
        labels: list[list[int | str]], rows: list[Row],
    ) -> list[list[Explanation]]:  # fmt: skip
        """Return why labels have their scores, nothing where nobody asks; or raise Refused."""
        predictor, most = self._predictor, self._limits.explained
        explain = predictor.reasons(question.explain, calibrated=question.calibrated)
        if explain is None:
            return [[]] * block.n_rows
        if (n := block.nnz * ids.shape[1]) > most:
            raise beyond(413, f"{n:,} features that explain", most, "explained")
        reasons = explain(block, ids)
        places = predictor.rows.places(rows, reasons)
        return explanations(reasons, labels, predictor.model.features, places)

    def _block(self, rows: list[Row], some: slice) -> tuple[RowBlock, NDArray[np.int64]]:
        """Return some rows with the model's ids, and how many features of each it has not."""
        unknown = np.zeros(some.stop - some.start, np.int64)
        try:
            block = self._predictor.rows.block(rows[some], unknown=unknown)
        except DataError:
            if some.start:  # once more, for the number of the row
                self._predictor.rows.block([*[{}] * some.start, *rows[some]])
            raise
        n = np.diff(block.indptr) + unknown
        if n.max() > self._limits.features:
            row = int(n.argmax())
            what = f"row {some.start + row:,} has {int(n[row]):,} features"
            raise beyond(422, what, self._limits.features, "features")
        return block, unknown

    def _labels(self, ids: NDArray[np.int64], there: list[int]) -> list[list[int | str]]:
        """Return the first labels of class ids; what is not UTF-8 in one as its escape."""
        rows: list[list[Any]] = self._predictor.labels(ids).tolist()
        found = [row[:n] for row, n in zip(rows, there, strict=True)]
        if self._plain:
            return found
        return [[label.decode("utf-8", "backslashreplace") for label in row] for row in found]

    def _titles(self, ids: NDArray[np.int64], there: list[int]) -> list[list[str]] | list[None]:
        names = self._predictor.model.titles
        if names is None:
            return [None] * len(ids)
        raws = (names.raws(row[:n]) for row, n in zip(ids, there, strict=True))
        return [[raw.decode("utf-8", "backslashreplace") for raw in row] for row in raws]

    def warm(self) -> None:
        """Answer rows of its kind, so that all kernels are compiled."""
        model = self._predictor.model
        if model.recipe is None:
            features = model.features
            row: Row = {features.raw(0).decode("utf-8", "replace"): 1.0} if len(features) else {}
        else:
            row = {
                c.name: [1.0] * c.width or SAMPLES.get(c.role, "a") for c in model.recipe.columns
            }
        for n in (1, 3, self._limits.batch):  # one row, a few, and all that wait
            first = int(np.flatnonzero(model.says >= 0)[0]) if model.says is not None else 0
            for only in (None, [model.labels[first]]):
                zeros = [0] * n
                one = Question([row] * n, zeros, [1] * n, DEFAULT_K, False, only=only, explain=1)
                self.predicted([one])
        for some_labels in (False, True):
            self._predictor.room("rows", None, self._limits.k, some_labels=some_labels).done()

    def close(self) -> None:
        """Stop its threads."""
        self._predictor.close()


class Loader:
    """Loads models, one at a time, within the memory of the process."""

    def __init__(self, limits: ServiceLimits, computing: Computing) -> None:
        self._limits, self._computing = limits, computing
        self._code = 0
        self.room = RequestRoom(limits)  # what is left for requests

    def load(self, name: str, folder: Path, beside: int) -> Served:
        """Return a model that has answered a row, where others take `beside` bytes."""
        computing, held_bytes = self._computing, self._limits.held_bytes
        held = size_in_file(folder)
        room = room_for(
            held, "rows", None, self._limits.k, device=device_for(computing.device, held),
            threads=computing.threads or cores(), budget=budget(computing.memory),
            beside={OTHERS: beside, "requests": held_bytes, "work on rows": WORK_BYTES},
            some_labels=True,
        )  # fmt: skip
        takes = {line.name: line.n_bytes for line in room.lines if line.name not in NOT_KEPT}
        self._code = takes.pop("code")
        with self.room.without(sum(takes.values()) if beside else 0):
            served = self._answering(name, folder)
        served.takes = sum(takes.values()) - takes.get("loading", 0)
        return served

    def settle(self, n_bytes: int) -> None:
        """Leave to requests what models that take so many bytes do not."""
        left = budget(self._computing.memory).n_bytes - self._code - n_bytes
        self.room.most = max(left, self._limits.held_bytes)

    def _answering(self, name: str, folder: Path) -> Served:
        version = version_of(folder)
        model = Model.load(folder)
        if version_of(folder) != version:
            raise ModelError("the model changed while it was read", path=folder)
        served = Served(name, model, version, self._limits, self._computing)
        try:
            served.warm()
        except (Refused, StreammachError) as error:
            served.close()
            if not isinstance(error, Refused):
                raise
            what = f"it does not answer a row ({error.reason})"
            raise ModelError(what, path=folder) from None
        return served


def version_of(folder: Path) -> str:
    """Return the digest of a model's document, which holds its hashes and its weights' checksum."""
    document = read_small(folder_of(folder) / DOCUMENT, MAX_DOCUMENT)
    return hashlib.sha256(document).hexdigest()[:DIGITS]


def _slices(sizes: Sequence[int]) -> Iterator[slice]:
    """Yield rows whose sizes come to no more than the work on rows may take, or one row."""
    first = taken = 0
    for number, size in enumerate(sizes):
        if number > first and taken + size > WORK_BYTES:
            yield slice(first, number)
            first, taken = number, 0
        taken += size
    yield slice(first, len(sizes))


def _reader(model: Model, limits: ServiceLimits) -> RequestReader:
    """Return what reads the rows of a model."""
    recipe = model.recipe
    if recipe is None:
        return RequestReader(None, places=_places(model, limits.features), limits=limits)
    columns, texts = [column.name for column in recipe.columns], recipe.texts
    return RequestReader(
        columns, others=(*recipe.beside, *recipe.ignored),
        text=texts[0] if len(texts) == 1 else None, limits=limits,
    )  # fmt: skip


def _places(model: Model, most: int) -> list[str] | None:
    """Return the feature of each column of the matrix that was trained on, None without one."""
    n = model.columns.n_columns
    if not 0 < n <= most or model.features.kind == "bytes":
        return None
    ids = model.columns.ids()
    if ids is None:
        return [str(i) for i in range(n)]
    return [model.features.raw(i).decode() if i >= 0 else "" for i in ids.tolist()]
