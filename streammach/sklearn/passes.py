"""What `partial_fit` keeps between calls: a stream, its labels, and how rows become its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.files.folders import make_folder, temporary_folder
from streammach.model.model import Model
from streammach.model.tensors import TensorFile, read_tensors, write_tensors
from streammach.prediction.in_memory import MatrixRows
from streammach.rows.block import RowBlock
from streammach.rows.known import KnownFeatures
from streammach.rows.names import Names
from streammach.rows.trained import TrainedColumns
from streammach.sklearn.classes import Targets, label_names
from streammach.sklearn.fitting import Parameters, seed_of, threads_of
from streammach.sklearn.rows import LIBRARY_BYTES, Rows
from streammach.spec.optimizers import USUAL
from streammach.spec.training import TrainSpec
from streammach.training.stream import WEIGHTS, Stream, begun

BATCH = 256  # rows, where no other size is given
DENSE_SHARE = 0.1  # from this density of the first batch on, rows go through matrix products
CONSTANT = {"adam": 0.5, "adagrad": 1.0}  # of the usual rate, which falls to 0 in other trainings
FILE = "state.safetensors"
SEVERAL = "rows have sets of labels: partial_fit takes one label a row"


class Passes:
    """A model that learns from call to call."""

    def __init__(self, model: Model, threads: int) -> None:
        self.stream = Stream(model, threads)
        self._rows = MatrixRows(KnownFeatures(model.features), model.columns)

    @classmethod
    def begin(
        cls, given: Parameters, rows: Rows, labels: NDArray[Any], names: Names | None
    ) -> Passes:
        """Begin with the first rows, whose first batch decides what is not given.

        `labels` is array (K,).
        """
        size, d = given["batch_size"] or BATCH, int(rows.x.shape[1])
        first = Rows(rows.x[:size], rows.targets)
        scale = first.scale()
        dense = scale.n_values / d >= DENSE_SHARE
        kind = USUAL[dense]
        training = TrainSpec(
            epochs=1, batch_size=size,
            learning_rate=given["learning_rate"] or CONSTANT[kind] * scale.rate(kind),
            transform="raw", label_smoothing=0.0, optimizer=kind, epsilon=scale.epsilon(kind),
            seed=seed_of(given["random_state"]),
        )  # fmt: skip
        columns = TrainedColumns(d, None if names is None else np.arange(d, dtype=np.int32))
        features = Names.of(range(d)) if names is None else names
        model = begun(
            label_names(labels), features, columns, training, dense=dense,
            shape=(given["n_buckets"], given["n_repetitions"]), memory=given["memory"],
            libraries_bytes=LIBRARY_BYTES,
        )  # fmt: skip
        return cls(model, threads_of(given["n_jobs"]))

    def learn(self, rows: Rows, codes: NDArray[np.int64]) -> float:
        """Learn from rows whose classes have these ids, int64 (n,); return their mean loss."""
        block: RowBlock = self._rows.block(rows.x)
        weights = None if rows.weights is None else rows.weights.astype(np.float32)
        return self.stream.learn(
            replace(block, classes=codes.astype(np.int32), importance=weights)
        )  # fmt: skip

    def saved(self) -> tuple[bytes, TensorFile]:
        """Return the optimiser's state as the bytes of a file, and what it is told by."""
        arrays = {name: a for name, a in self.stream.arrays.items() if name not in WEIGHTS}
        with temporary_folder() as folder:
            make_folder(folder)
            facts = write_tensors(folder / FILE, arrays)
            return (folder / FILE).read_bytes(), facts

    def restore(self, content: bytes, facts: TensorFile) -> None:
        """Take over what :meth:`saved` returned, or raise ModelError."""
        arrays = {name: a for name, a in self.stream.arrays.items() if name not in WEIGHTS}
        with temporary_folder() as folder:
            make_folder(folder)
            Path(folder / FILE).write_bytes(content)
            read_tensors(folder / FILE, facts, arrays)


def new_labels(
    known: NDArray[Any] | None, targets: Targets, announced: Any
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return all labels by id, and the id of each row's: new ones in the order in which they come.

    `known` is array (K,) or None.
    """
    if targets.codes is None:
        raise ValueError(SEVERAL)
    own = targets.classes
    order = np.unique(targets.codes, return_index=True)[1]
    met = own[targets.codes[np.sort(order)]]
    if known is None:
        known = met[:0] if announced is None else np.unique(np.asarray(announced))
    if len(known) and known.dtype.kind != own.dtype.kind and not {"O", "U"} >= {
        known.dtype.kind, own.dtype.kind
    } and not {"i", "u"} >= {known.dtype.kind, own.dtype.kind}:  # fmt: skip
        raise ValueError(f"labels have the type {own.dtype}, those before {known.dtype}: y")
    known_places = {label: i for i, label in enumerate(known.tolist())}
    more = [label for label in met.tolist() if label not in known_places]
    labels = known
    if more:
        labels = np.concatenate([known, np.array(more, own.dtype)]) if len(known) else met
    ids = {label: i for i, label in enumerate(labels.tolist())}
    codes = np.array([ids[label] for label in own.tolist()], np.int64)[targets.codes]
    return labels, codes
