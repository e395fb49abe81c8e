"""The JSON document of a model, and what it says of the arrays beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import DTypeLike

from streammach.linear.kernel_map import N_KNOTS, KernelWeights
from streammach.linear.scorer import Linear
from streammach.model.calibration import RIGHT, STATED
from streammach.model.coding import COUNTS, LATE, LINEAR, NAMES, NEAR, TABLES, Coded
from streammach.model.tensors import TensorFile, damage_error
from streammach.model.thresholds import Curve
from streammach.options.documents import from_json
from streammach.options.estimators import check_rankers
from streammach.options.figures import HeldOutMetrics
from streammach.options.model_spec import ModelSpec
from streammach.options.recipe import Recipe
from streammach.options.training import TrainSpec
from streammach.options.types import MODEL_FORMAT, Amount, Count, Ranker
from streammach.rows.layouts import ArrayTable, How, Shape
from streammach.system.errors import DiskError, ModelError, UsageError, clean
from streammach.system.files.destinations import not_folder
from streammach.system.files.reading import read_facts, read_small, sha256

DOCUMENT, TENSORS = "model.json", "model.safetensors"
MAX_DOCUMENT = 4 << 20
FIELDS = {"format", "spec", "training", "tensors"}  # of every version
LABELS, LABEL_OFFSETS = "label_bytes", "label_offsets"
COLUMNS = "feature_columns"
PROJECTION = "projection"
LABEL_COUNTS, LABEL_SAYS = "label_counts", "label_says"
TITLES, TITLE_OFFSETS = "title_bytes", "title_offsets"
MOST_MORE = 2**20  # columns beyond the features
Stored = Literal["float32", "float16", "int8", "int4"]
Width = Stored | Literal["float10"]  # float16 with four bits of the mantissa, stored as float16
WEIGHTS_ARE: dict[Width, How] = {"int4": "nibbles", "float16": "halves", "float10": "halves"}
NARROW = ("int8", "int4")
Kind = Literal["integer", "utf8", "bytes"]


class CalibrationScale(msgspec.Struct, frozen=True):
    """The numbers of a calibration; see :class:`streammach.model.calibration.Calibration`."""

    beta: Amount = 1.0
    other: float = -30.0
    points: Count = 0  # of the line, which are arrays
    lead: float = 0.0
    level: float = 0.0
    curves: tuple[Curve, ...] = ()


class LinearForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How linear classifiers score: sparse rows, or dense ones with kernels beside."""

    valued: bool = False  # whether values of sparse rows count
    n_centres: Count | None = None  # kernels of dense rows; None of sparse rows

    @classmethod
    def of(cls, linear: Linear) -> LinearForm:
        """Return the form of classifiers."""
        if isinstance(linear, KernelWeights):
            return cls(n_centres=len(linear.map.centres))
        return cls(valued=linear.valued)


class Document(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The JSON document of a model."""

    format: int  # version of the format
    spec: ModelSpec  # shape and hashes
    training: TrainSpec  # how it was trained; its transform is part of the model
    dense: bool  # whether rows go through matrix products
    estimator: Ranker  # how classes are ranked, chosen on held-out rows
    calibration: CalibrationScale  # fitted on held-out rows
    hashed_weight: Amount | None  # weight of the hashed models beside counts; None without counts
    store: str  # digest of the store that it was trained on
    label_kind: Kind  # label_kind, feature_kind: in which type names are given back
    feature_kind: Kind
    majority: Count  # the class with the most rows in training
    validation: dict[Ranker, HeldOutMetrics]  # what each way to rank reached on held-out rows
    tensors: TensorFile  # size and checksum of the arrays' file
    stored: Stored | None = None  # type of the weights in the file of a model that was made smaller
    coded: dict[str, Coded] = {}  # its arrays that do not lie there as they are
    # columns of the matrix that was trained on; 0 without one
    n_columns: Annotated[int, msgspec.Meta(ge=0, le=2**48)] = 0
    # D, the columns that dense rows get beyond their features; 0 without
    n_more: Annotated[int, msgspec.Meta(ge=0, le=MOST_MORE)] = 0
    # rows of the training store, where rows have lists of labels; 0 otherwise
    n_rows: Annotated[int, msgspec.Meta(ge=0, le=2**48)] = 0
    # how rows of tables become features; None where it was trained on no table
    recipe: Recipe | None = None
    relabelled: bool = False  # whether labels were renamed, merged or removed
    title_kind: Kind | None = None  # that of titles of labels; None without any
    near_weight: Amount | None = None  # weight of training rows beside counts; None without
    linear: LinearForm | None = None  # linear classifiers, which are the model; None without
    # weight of classifiers that score the best classes again; None without
    late_weight: Amount | None = None
    named: bool = False  # whether names of labels add to counts

    def __post_init__(self) -> None:
        """Refuse a document whose parts do not belong together."""
        check_rankers(self.estimator, *self.validation)
        if self.majority >= self.spec.n_classes:
            raise ValueError("the majority is no class")
        if self.estimator == "blend" and self.hashed_weight is None and self.linear is None:
            raise ValueError("there are no counts to blend")
        if self.linear is not None and not (self.spec.unhashed and self.hashed_weight is None):
            raise ValueError("linear classifiers do not stand beside hashed models or counts")
        if self.near_weight is not None and self.hashed_weight is None:
            raise ValueError("there are no counts for training rows to stand beside")
        if self.named and self.hashed_weight is None:
            raise ValueError("there are no counts for names of labels to add to")
        if self.n_more and not self.dense:
            raise ValueError("rows that are not dense have columns beyond the features")
        if self.listed != (self.training.label_share is not None):
            raise ValueError("the training and the rows do not both have lists of labels")
        for one in self.calibration.curves:
            whole = len(one.thresholds) == len(one.precisions) == len(one.recalls) > 0
            if not whole or one.label >= self.spec.n_classes:
                raise ValueError("a curve of the calibration is not whole, or of no label")
        if not self.coded.keys() <= arrays_of(self).keys():
            raise ValueError("an array is coded that is not there")

    @property
    def listed(self) -> bool:
        """Whether rows have lists of labels."""
        return self.n_rows > 0

    @property
    def tables(self) -> dict[str, type[ArrayTable]]:
        """The tables that it has, by the start of their arrays' names."""
        there = {
            COUNTS: self.hashed_weight is not None, NEAR: self.near_weight is not None,
            LINEAR: self.linear is not None, LATE: self.late_weight is not None, NAMES: self.named,
        }  # fmt: skip
        found = {prefix: TABLES[prefix] for prefix, has in there.items() if has}
        dense = self.linear is not None and self.linear.n_centres is not None
        return found | ({LINEAR: KernelWeights} if dense else {})


def arrays_of(document: Document) -> dict[str, tuple[Shape, np.dtype[Any]]]:
    """Return the arrays that a model must have, with shape and type in memory, by name."""
    spec, narrow = document.spec, document.stored in NARROW
    k, d, columns = spec.n_classes, spec.n_features, spec.n_columns
    first = spec.n_hashed_features
    found: dict[str, tuple[Shape, DTypeLike]] = {
        LABEL_OFFSETS: ((k + 1,), np.int64), LABELS: ((None,), np.uint8),
        "feature_offsets": ((d + 1,), np.int64), "feature_bytes": ((None,), np.uint8),
        "weights": ((first + document.n_more, columns), np.int8 if narrow else np.float32),
        "bias": ((columns,), np.float32),
    }  # fmt: skip
    if narrow:
        found["scale"] = ((first,), np.float32)
    if document.n_more:
        found[PROJECTION] = ((d + 2, document.n_more), np.float32)
    m = 0 if document.linear is None else document.linear.n_centres or 0
    kernels = {"knots": N_KNOTS, "centres": m, "columns": m + d, "one": 1}
    for prefix, table in document.tables.items():
        shapes = table.shapes(features=d, classes=k, **kernels)
        found |= {prefix + name: facts for name, facts in shapes.items()}
    if document.listed:
        found[LABEL_COUNTS] = ((k,), np.int64)
    if document.relabelled:
        found[LABEL_SAYS] = ((k,), np.int32)
    if document.title_kind is not None:
        found |= {TITLE_OFFSETS: ((k + 1,), np.int64), TITLES: ((None,), np.uint8)}
    if document.calibration.points:
        found |= dict.fromkeys((STATED, RIGHT), ((None,), np.float32))
    if document.n_columns:
        found[COLUMNS] = ((d,), np.int32)
    return {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in found.items()}


def folder_of(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a model, by its own name or by that of its run."""
    folder = Path(path)
    return folder / "model" if (folder / "model").is_dir() else folder


def disk_bytes(path: str | os.PathLike[str]) -> int:
    """Return the bytes of a model's files, in its own folder or in that of its run."""
    return sum(file.stat().st_size for file in folder_of(path).iterdir() if file.is_file())


def document_digest(path: str | os.PathLike[str]) -> str:
    """Return the digest of the document in such a folder, which names what its other file holds."""
    return sha256([read_small(folder_of(path) / DOCUMENT, MAX_DOCUMENT)])


def read_document(path: str | os.PathLike[str]) -> Document:
    """Return the document in such a folder, or raise UsageError or ModelError."""
    folder, place = folder_of(path), clean(path, 300)
    if not (folder / DOCUMENT).is_file():
        hint = "Make one with: streammach train"
        kind = ModelError if os.path.lexists(path) else UsageError
        raise kind("there is no trained model", path=place, hint=hint)
    try:
        content = from_json(read_small(folder / DOCUMENT, MAX_DOCUMENT), dict[str, object])
        found = content.get("format")
        if found != MODEL_FORMAT:
            what = f"the model's format is {clean(found)}, this release reads {MODEL_FORMAT}"
            raise ModelError(what, path=place)
        return msgspec.convert(content, Document)
    except (ValueError, DiskError) as error:
        if isinstance(error, ModelError):
            raise
        raise damage_error(place, f"{DOCUMENT}: {clean(error)}") from None


def not_a_model(path: Path) -> str | None:
    """Return why a folder is not a model of ours, with nothing else in it; None if it is."""
    why = not_folder(path, (DOCUMENT, TENSORS))
    if why is not None:
        return why
    document = read_facts(path / DOCUMENT, MAX_DOCUMENT)
    return None if document.keys() >= FIELDS else "it is no model that streammach made"
