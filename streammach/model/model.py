"""A trained model: hashes, weights, names; its folder on disk."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from streammach.linear.late import LateLabels
from streammach.linear.scorer import Linear
from streammach.model.calibration import Calibration
from streammach.model.coding import COUNTS, LATE, LINEAR, NAMES, NEAR, CodeBuffer, Coded, encode
from streammach.model.document import (
    COLUMNS,
    DOCUMENT,
    LABEL_COUNTS,
    LABEL_SAYS,
    PROJECTION,
    TENSORS,
    WEIGHTS_ARE,
    CalibrationScale,
    Document,
    Kind,
    LinearForm,
    Stored,
    folder_of,
    not_a_model,
    read_document,
)
from streammach.model.loading import (
    WEIGHTS,
    counts_in,
    decode_arrays,
    late_in,
    linear_in,
    load_arrays,
    name_pairs_in,
    names_in,
    weights_in,
)
from streammach.model.row_answers import RowAnswers
from streammach.model.tensors import (
    TensorFile,
    check_finite,
    damage_error,
    header_bytes,
    write_tensors,
)
from streammach.options.annotated import check_options
from streammach.options.documents import to_json
from streammach.options.figures import HeldOutMetrics
from streammach.options.model_spec import ModelSpec
from streammach.options.recipe import Recipe
from streammach.options.reported import Reported
from streammach.options.training import TrainSpec
from streammach.options.types import MODEL_FORMAT, Ranker
from streammach.rows.layouts import ArrayTable
from streammach.rows.names import NO_COLUMNS, Names, TrainedColumns
from streammach.rows.neighbours import Neighbours
from streammach.rows.packed import Counts, Table
from streammach.rows.pairs import CountWeights, NamePairs
from streammach.system.errors import clean
from streammach.system.files.destinations import Destination
from streammach.system.files.folders import make_folder, temporary_folder
from streammach.system.files.writing import write_atomic
from streammach.system.linux import give_back


@dataclass(frozen=True, kw_only=True, repr=False)
class Model(RowAnswers, Reported):
    """A trained model, which answers for rows in memory, from any thread.

    Attributes
    ----------
    spec : ModelSpec
        Shape and hashes.
    training : TrainSpec
        How it was trained; its transform is part of the model.
    dense : bool
        Whether rows go through matrix products.
    estimator : str
        How classes are ranked, chosen on held-out rows.
    calibration : Calibration
        How scores become probabilities.
    store : str
        Digest of the store that it was trained on.
    majority : int
        The class with the most rows in training.
    validation : dict of str to HeldOutMetrics
        What each way to rank reached on held-out rows.
    labels, features : Names
        Names by id, as a list: ``model.labels[:3]``.
    weights : float32 or int8 (d' + D, R*B), or PackedRows
        The table; packed after :meth:`load` if they are narrow. ``numpy.asarray`` gives packed ones
        as they were.
    bias : float32 (R*B,)
        The bias.
    counts : CountWeights or PackedCounts or None
        The counts beside the hashed models, packed after :meth:`load` if they are coded; None
        without.
    linear : LinearWeights, KernelWeights or None
        Linear classifiers, which are the model: no hashed models or counts stand beside.
    scale : float32 (d',) or None
        What each feature's int8 weights are multiplied with; None with float32 weights.
    stored : str or None
        Type of the weights in the file of a model that was made smaller: ``float16`` ones are
        float32 in memory, ``int4`` ones int8 from -7 to 7. Its arrays are coded; None otherwise.
    columns : TrainedColumns
        The columns of the matrix that was trained on.
    projection : float32 (d + 2, D) or None
        What gives dense rows D more columns (:class:`streammach.rows.dense.RowMap`); None where
        D is 0.
    label_counts : int64 (K,) or None
        Training rows with each label, where rows have lists of labels; None otherwise.
    n_rows : int
        Rows of the training store then; 0 otherwise.
    recipe : Recipe or None
        How rows of tables become features; None where it was trained on no table.
    says : int32 (K,) or None
        The class by whose label each class is said, -1 where it is not; None where each is by its
        own.
    late : LateLabels or None
        Classifiers that score the best classes of a row again, with their weight; None without.
    titles : Names or None
        What labels are called in words, by class id, empty where that is not known; None without.
    names : NamePairs or None
        What words of these names add to scores, as a part of `counts`; None where they add nothing.
    label_kind : str
        The type in which labels are given back: that of those it was trained on, while these are
        known; otherwise integers where all labels are, else strings. It is no part of the files.
    """

    spec: ModelSpec
    training: TrainSpec
    dense: bool
    estimator: Ranker
    calibration: Calibration
    store: str
    majority: int
    validation: dict[Ranker, HeldOutMetrics]
    labels: Names
    features: Names
    weights: Table
    bias: NDArray[np.float32]
    counts: Counts | None = None
    linear: Linear | None = None
    scale: NDArray[np.float32] | None = None
    stored: Stored | None = None
    columns: TrainedColumns = NO_COLUMNS
    projection: NDArray[np.float32] | None = None
    label_counts: NDArray[np.int64] | None = None
    n_rows: int = 0
    recipe: Recipe | None = None
    says: NDArray[np.int32] | None = None
    titles: Names | None = None
    names: NamePairs | None = None
    late: LateLabels | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays in memory, and on disk unless they are coded there."""
        return self.counts_bytes + sum(array.nbytes for array in self._arrays_with(None).values())

    @property
    def hashed_arrays(self) -> dict[str, Table]:
        """The arrays of the hashed models by name, as they are held."""
        arrays: dict[str, Table] = {"weights": self.weights, "bias": self.bias}
        more = {"scale": self.scale, PROJECTION: self.projection}
        return arrays | {name: array for name, array in more.items() if array is not None}

    @property
    def width(self) -> str:
        """Type of the weights: that of the file where the model was made smaller."""
        return self.stored or str(self.weights.dtype)

    @property
    def listed(self) -> bool:
        """Whether rows have lists of labels."""
        return self.training.label_share is not None

    @property
    def n_labels(self) -> int:
        """How many labels are said: K, or fewer where some were merged or removed."""
        if self.says is None:
            return self.spec.n_classes
        return int(np.count_nonzero(self.says == np.arange(len(self.says))))

    @property
    def n_more(self) -> int:
        """D, the columns that dense rows get beyond their features."""
        return 0 if self.projection is None else int(self.projection.shape[1])

    @property
    def counts_bytes(self) -> int:
        """Bytes of the counts."""
        return 0 if self.counts is None else self.counts.n_bytes

    @property
    def n_pairs(self) -> int:
        """Counted pairs that add something to a score."""
        return 0 if self.counts is None else self.counts.n_pairs

    @property
    def near(self) -> Neighbours | None:
        """Training rows beside the counts; None without."""
        return None if self.counts is None else self.counts.near

    @property
    def hashed_weight(self) -> float:
        """Weight of the hashed models beside counts; 0 without."""
        return 0.0 if self.counts is None else self.counts.hashed

    @property
    def calibrated_ranking(self) -> Ranker:
        """The ranking whose scores the calibration turns into probabilities."""
        return "logsum" if self.counts is None and self.linear is None else "blend"

    def save(
        self, folder: str | os.PathLike[str], *, force: bool = False,
        spare: NDArray[np.uint8] | None = None, threads: int = 1,
    ) -> None:  # fmt: skip
        """Write the model into a folder, which appears whole.

        Parameters
        ----------
        folder : path-like
            The folder.
        force : bool
            Whether a model that is there may be replaced.
        spare : uint8 (n,), optional
            Memory that nobody needs any more, for what is compressed.
        threads : int
            How many compress, four at most: each takes 25 MB.

        Raises
        ------
        UsageError
            If the folder exists and may not be replaced.
        DivergedError
            If a weight is not finite; nothing is written.
        DiskError
            If it cannot be written.
        """
        check_options(Model.save.__annotations__, locals())
        if self.stored is not None:  # arrays that are coded, which no reader looks at
            check_finite(self.arrays())
        destination = Destination(Path(folder), not_a_model, force=force)
        with destination.scratch() as partial:
            make_folder(partial)
            arrays, coded = self._code_arrays(spare, threads)
            tensors = write_tensors(partial / TENSORS, arrays)
            write_atomic(partial / DOCUMENT, to_json(self._document(tensors, coded)))
            destination.take(partial)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by their names in the file; packed ones as they were.

        ``weights`` times ``scale``, where there is one, are those of a model that was made smaller.
        The bucket of each class in each repetition is ``spec.codes()``.
        """
        counts = None if self.counts is None else self.counts.plain()
        return {name: np.asarray(array) for name, array in self._arrays_with(counts).items()}

    def _arrays_with(self, counts: CountWeights | None) -> dict[str, Table]:
        """Return the arrays by name as they are held, and those of counts."""
        near = None if counts is None else counts.near
        found = {
            **_arrays_in(self.labels, "label_"), **_arrays_in(self.features, "feature_"),
            **_arrays_in(counts, COUNTS), **self.hashed_arrays, **_arrays_in(near, NEAR),
            **_arrays_in(self.linear, LINEAR), **_arrays_in(self.late, LATE),
            COLUMNS: self.columns.positions, LABEL_COUNTS: self.label_counts, LABEL_SAYS: self.says,
            **_arrays_in(self.titles, "title_"), **_arrays_in(self.names, NAMES),
            **self.calibration.arrays,
        }  # fmt: skip
        return {name: array for name, array in found.items() if array is not None}

    def file_bytes(self, spare: NDArray[np.uint8] | None = None) -> int:
        """Return the bytes of the files that :meth:`save` writes; `spare` as there."""
        arrays, coded = self._code_arrays(spare)
        size = len(header_bytes(arrays)) + sum(array.nbytes for array in arrays.values())
        return size + len(to_json(self._document(TensorFile(size, 2**32 - 1), coded)))

    def _code_arrays(
        self, spare: NDArray[np.uint8] | None = None, threads: int = 1
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Coded]]:
        """Return the arrays as they lie in the file, and how those that are coded are."""
        if self.stored is None:
            return self.arrays(), {}
        room, arrays = CodeBuffer(spare, threads), self.arrays()
        plain = {"weights": arrays["weights"]} if self.stored == "float32" else {}
        ways = {"weights": WEIGHTS_ARE.get(self.stored)}
        found = {name: encode(name, array, arrays, ways.get(name), room)
                  for name, array in arrays.items() if name not in plain}  # fmt: skip
        coded = {name: facts for name, (_, facts) in found.items()}
        return {**plain, **{name: data for name, (data, _) in found.items()}}, coded

    def _document(self, tensors: TensorFile, coded: dict[str, Coded]) -> Document:
        scale = self.calibration
        return Document(
            format=MODEL_FORMAT, spec=self.spec, training=self.training, dense=self.dense,
            estimator=self.estimator, calibration=CalibrationScale(
                beta=scale.beta, other=scale.other, points=len(scale.stated), lead=scale.lead,
                level=scale.level, curves=scale.curves,
            ),
            hashed_weight=None if self.counts is None else self.counts.hashed, store=self.store,
            label_kind=cast("Kind", self.labels.kind),
            feature_kind=cast("Kind", self.features.kind),
            majority=self.majority, validation=self.validation, tensors=tensors,
            stored=self.stored, coded=coded, n_columns=self.columns.n_columns,
            n_more=self.n_more, n_rows=self.n_rows, recipe=self.recipe,
            relabelled=self.says is not None,
            title_kind=None if self.titles is None else cast("Kind", self.titles.kind),
            near_weight=None if self.near is None else self.near.weight,
            linear=None if self.linear is None else LinearForm.of(self.linear),
            late_weight=None if self.late is None else self.late.weight,
            named=self.names is not None,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model into memory: its weights are checked, and packed where they are coded.

        Parameters
        ----------
        path : path-like
            The folder of a run or of a model.

        Raises
        ------
        ModelError
            If there is no model, or it is damaged or of another version.
        DiskError
            If it cannot be read.
        """
        check_options(cls.load.__annotations__, {"path": path})
        folder = folder_of(path)
        document = read_document(path)
        arrays = load_arrays(folder, document)
        try:
            model = cls._of(document, arrays)
        except (KeyError, ValueError) as error:
            raise damage_error(folder, clean(error)) from None
        if document.coded:
            give_back()  # tens of megabytes of pieces
        return model

    @classmethod
    def _of(cls, document: Document, arrays: dict[str, NDArray[Any]]) -> Self:
        with ThreadPoolExecutor(1, "weights") as pool:  # packed while the others are decoded
            packed = pool.submit(weights_in, document, arrays[WEIGHTS])
            decode_arrays(document, arrays)
            scale = document.calibration
            return cls(
                spec=document.spec, training=document.training, dense=document.dense,
                estimator=document.estimator,
                calibration=Calibration(
                    scale.beta, scale.other, lead=scale.lead, level=scale.level, curves=scale.curves
                ).with_line(arrays),
                store=document.store, majority=document.majority, validation=document.validation,
                counts=counts_in(document, arrays), linear=linear_in(document, arrays),
                late=late_in(document, arrays), names=name_pairs_in(document, arrays),
                labels=names_in("label", document.label_kind, arrays),
                features=names_in("feature", document.feature_kind, arrays),
                weights=rows if (rows := packed.result()) is not None else arrays[WEIGHTS],
                bias=arrays["bias"], scale=arrays.get("scale"), stored=document.stored,
                columns=TrainedColumns(document.n_columns, arrays.get(COLUMNS)),
                projection=arrays.get(PROJECTION), label_counts=arrays.get(LABEL_COUNTS),
                n_rows=document.n_rows, recipe=document.recipe, says=arrays.get(LABEL_SAYS),
                titles=document.title_kind and names_in("title", document.title_kind, arrays),
            )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the bytes of its own files, from which pickles and copies are made."""
        with temporary_folder() as folder:
            self.save(folder)
            files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        return _restore_model, (files, self.label_kind)

    def _line(self) -> str:
        if self.linear is not None:
            return f"{self.spec.n_classes:,} linear classifiers"
        return f"{self.spec} {self.width}, {self.spec.n_classes:,} classes, {self.estimator}"


def _arrays_in(table: Names | ArrayTable | None, prefix: str) -> dict[str, NDArray[Any]]:
    return {} if table is None else table.arrays(prefix)


def _restore_model(files: dict[str, bytes], label_kind: str) -> Model:
    with temporary_folder() as folder:
        make_folder(folder)
        for name, content in files.items():
            write_atomic(folder / Path(name).name, content)
        return replace(Model.load(folder), label_kind=label_kind)
