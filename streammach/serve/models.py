"""A model that is served: loaded, checked, and asked for the best labels of rows."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.errors import BudgetError, DataError, ModelError, StreammachError, UsageError, clean
from streammach.files.reading import read_small
from streammach.machine import budget, cores
from streammach.model.held import held_in
from streammach.model.loading import in_memory
from streammach.model.model import Model, folder_of
from streammach.model.ours import DOCUMENT, MAX_DOCUMENT
from streammach.prediction.memory import device_for, room_for
from streammach.prediction.predictor import Predictor
from streammach.rows.block import RowBlock
from streammach.serve.limits import Limits, Refused
from streammach.serve.messages import DEFAULT_K, About, Column, Prediction
from streammach.serve.reading import Question, Reader, Row
from streammach.spec.recipe import Recipe

DIGITS = 16  # of a version
SAMPLES = {"number": 1.0, "names": ["a"], "pairs": {"a": 1.0}}  # cells, by role; else text


@dataclass(frozen=True, kw_only=True)
class Computing:
    """Where a service computes, and with what.

    Attributes
    ----------
    device : str
        ``auto``, ``cpu`` or ``cuda``.
    threads : int or None
        Threads that compute for a model; all cores otherwise.
    memory : str or None
        Bytes that the process may take; 2 GB, or what the models need, otherwise.
    """

    device: str = "auto"
    threads: int | None = None
    memory: str | None = None


class Served:
    """A loaded model; one thread at a time may ask it.

    Parameters
    ----------
    name : str
        What it is called.
    model : Model
        The model.
    version : str
        Digest of what it was made of.
    limits, computing : Limits, Computing
        What is taken, and where it is computed.
    """

    def __init__(
        self, name: str, model: Model, version: str, limits: Limits, computing: Computing
    ) -> None:
        self.name, self.version, self._limits = name, version, limits
        self._predictor = Predictor(
            model, device=computing.device, threads=computing.threads, memory=computing.memory
        )
        self._recipe = model.recipe
        self._plain = model.labels.kind != "bytes"
        self.reader = _reader(model, limits)
        columns = [] if model.recipe is None else model.recipe.columns
        self.about = About(
            name=name, version=version, classes=model.spec.n_classes,
            features=len(model.features), scores=self._predictor.estimator,
            rows=_kind(model.recipe), columns=[Column(c.name, c.role) for c in columns],
            bytes=model.n_bytes,
        )  # fmt: skip

    def predicted(self, questions: Sequence[Question]) -> list[list[Prediction]]:
        """Return the predictions of some questions, computed together.

        Parameters
        ----------
        questions : sequence of Question
            Such as may be predicted together.

        Raises
        ------
        Refused
            If a row cannot be read; rows are numbered through all questions.
        """
        rows = [row for question in questions for row in question.rows]
        k = max(question.k for question in questions)
        try:
            block, unknown = self._block(rows)
            ids, scores = self._best(block, k, probable=questions[0].probabilities)
        except (DataError, UsageError) as error:
            raise Refused(422, error.message) from None
        except (BudgetError, MemoryError) as error:
            raise Refused(503, f"memory is short: {error}", retry=1) from None
        labels, values = self._labels(ids), scores.tolist()
        found, first = [], 0
        for question in questions:
            at = range(first, first + len(question.rows))
            found.append([
                Prediction(labels[i][: question.k], values[i][: question.k], int(unknown[i]) + more)
                for i, more in zip(at, question.unknown, strict=True)
            ])  # fmt: skip
            first = at.stop
        return found

    def _block(self, rows: list[Row]) -> tuple[RowBlock, NDArray[np.int64]]:
        """Return rows with the model's ids, and how many features of each it does not know."""
        unknown = np.zeros(len(rows), np.int64)
        block = self._predictor.block(rows, unknown=unknown)
        n = np.diff(block.indptr) + unknown
        if n.max() > self._limits.features:
            row = int(n.argmax())
            raise Refused(
                422,
                f"row {row:,} has {int(n[row]):,} features, {self._limits.features:,} are taken "
                "at most",
                limit="features",
            )
        return block, unknown

    def _best(
        self, block: RowBlock, k: int, *, probable: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k best class ids of each row, and their scores or probabilities."""
        return self._predictor.ranked(block, k, probabilities=probable)

    def _labels(self, ids: NDArray[np.int64]) -> list[list[int | str]]:
        """Return the labels of class ids; what is not UTF-8 in one as its escape."""
        found: list[list[Any]] = self._predictor.labels(ids).tolist()
        if self._plain:
            return found
        return [[label.decode("utf-8", "backslashreplace") for label in row] for row in found]

    def warm(self) -> None:
        """Answer rows of its kind, so that all kernels are compiled."""
        if self._recipe is None:
            features = self._predictor.model.features
            row: Row = {features.raw(0).decode("utf-8", "replace"): 1.0} if len(features) else {}
        else:
            row = {c.name: SAMPLES.get(c.role, "a") for c in self._recipe.columns if not c.width}
        for n in (1, 3, self._limits.batch):  # one row, a few, and all that wait
            self.predicted([Question([row] * n, [0] * n, DEFAULT_K, probabilities=False)])
        self._predictor.room("rows", None, self._limits.k).done()

    def close(self) -> None:
        """Stop its threads."""
        self._predictor.close()


class Loader:
    """Loads models, one at a time, within the memory of the process.

    Parameters
    ----------
    limits, computing : Limits, Computing
        What is taken, and where it is computed.
    """

    def __init__(self, limits: Limits, computing: Computing) -> None:
        self._limits, self._computing = limits, computing
        self._lock = threading.Lock()

    def load(self, name: str, folder: Path, beside: int) -> Served:
        """Return a model that has answered a row.

        Parameters
        ----------
        name : str
            What it is called.
        folder : Path
            The folder of a run or of a model.
        beside : int
            Bytes of the models that are loaded already.

        Raises
        ------
        ModelError, DiskError
            If there is no model, or it is damaged, or changed while it was read.
        BudgetError
            If it does not fit beside what is there.
        DeviceError
            If the device cannot be used.
        """
        with self._lock:
            return self._load(name, folder, beside)

    def _load(self, name: str, folder: Path, beside: int) -> Served:
        computing = self._computing
        held = held_in(folder)
        room_for(
            held, "rows", None, self._limits.k, device=device_for(computing.device, held),
            threads=computing.threads or cores(), budget=budget(computing.memory),
            beside={"other models": beside, "requests": self._limits.held_bytes},
        )  # fmt: skip
        version = version_of(folder)
        model = in_memory(Model.load(folder))
        if version_of(folder) != version:
            raise ModelError("the model changed while it was read", path=clean(folder, 300))
        served = Served(name, model, version, self._limits, computing)
        try:
            served.warm()
        except Refused as error:
            served.close()
            what = f"it does not answer a row ({error.reason})"
            raise ModelError(what, path=clean(folder, 300)) from None
        except StreammachError:
            served.close()
            raise
        return served


def version_of(folder: Path) -> str:
    """Return the digest of a model's document, which holds its hashes and its weights' checksum."""
    document = read_small(folder_of(folder) / DOCUMENT, MAX_DOCUMENT)
    return hashlib.sha256(document).hexdigest()[:DIGITS]


def _kind(recipe: Recipe | None) -> str:
    if recipe is None:
        return "features"
    return "text" if len(recipe.columns) == len(recipe.texts) == 1 else "fields"


def _reader(model: Model, limits: Limits) -> Reader:
    """Return what reads the rows of a model."""
    recipe = model.recipe
    if recipe is None:
        return Reader(None, places=_places(model, limits.features), limits=limits)
    columns, texts = [column.name for column in recipe.columns], recipe.texts
    return Reader(
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
