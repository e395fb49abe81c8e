"""A trained model: hashes, weights, names; its folder on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.errors import DiskError, DivergedError, ModelError, clean
from streammach.files.destinations import Destination
from streammach.files.folders import make_folder
from streammach.files.reading import read_small
from streammach.files.writing import write_atomic
from streammach.model.coding import Coded, How, decode, encode
from streammach.model.ours import DOCUMENT, MAX_DOCUMENT, MODEL, TENSORS
from streammach.model.tensors import (
    COPY_AGAIN,
    TensorFile,
    header_bytes,
    map_tensors,
    write_tensors,
)
from streammach.rows.names import Names
from streammach.rows.trained import NO_COLUMNS, TrainedColumns
from streammach.spec import ModelSpec, Ranker, TrainSpec, from_json, to_json

FORMAT = 1
CODED_FORMAT = 2  # some arrays are coded: models that were made smaller
COLUMNS_FORMAT = 3  # coded or not, of rows of a matrix, whose columns are remembered
FORMATS = (FORMAT, CODED_FORMAT, COLUMNS_FORMAT)
COUNTS = "count_"  # before the names of the counts' arrays
COLUMNS = "feature_columns"
Stored = Literal["float32", "float16", "int8", "int4"]
WEIGHTS_ARE: dict[Stored, How | None] = {"int4": "nibbles", "float16": "halves"}


class Calibration(msgspec.Struct, frozen=True):
    """How scores become probabilities.

    S is the score of a class by counts and hashed models together, or where there are no counts the
    mean logarithm of the hashed models. Then ``p_i = e^(beta S_i) / (sum_j e^(beta S_j) +
    e^other)`` over the best candidates j; what is left is spread evenly over the other classes.
    """

    beta: float = 1.0
    other: float = -30.0


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The JSON document of a model.

    Attributes
    ----------
    format : int
        Version of the format.
    spec : ModelSpec
        Shape and hashes.
    training : TrainSpec
        How it was trained; its transform is part of the model.
    dense : bool
        Whether rows go through matrix products.
    estimator : str
        How classes are ranked, chosen on held-out rows.
    calibration : Calibration
        Fitted on held-out rows.
    hashed_weight : float or None
        Weight of the hashed models beside counts; None without counts.
    store : str
        Digest of the store that it was trained on.
    label_kind, feature_kind : str
        In which type names are given back.
    majority : int
        The class with the most rows in training.
    validation : dict
        What was measured on held-out rows.
    tensors : TensorFile
        Size and checksum of the arrays' file.
    stored : str or None
        Type of the weights in the file of a model that was made smaller.
    coded : dict of str to Coded
        Its arrays that do not lie there as they are.
    n_columns : int
        Columns of the matrix that was trained on; 0 without one.
    """

    format: int
    spec: ModelSpec
    training: TrainSpec
    dense: bool
    estimator: Ranker
    calibration: Calibration
    hashed_weight: float | None
    store: str
    label_kind: str
    feature_kind: str
    majority: int
    validation: dict[str, Any]
    tensors: TensorFile
    stored: Stored | None = None
    coded: dict[str, Coded] = {}
    n_columns: int = 0


@dataclass(frozen=True)
class Model:
    """A trained model.

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
    validation : dict
        What was measured on held-out rows.
    labels, features : Names
        Names by id.
    weights : float32 or int8 (d, R*B)
        The table; memory-mapped after :meth:`load`.
    bias : float32 (R*B,)
        The bias.
    counts : dict or None
        The counts beside the hashed models, as the arrays of
        :class:`streammach.counts.scores.CountWeights`; None without.
    hashed_weight : float
        Weight of the hashed models beside counts.
    scale : float32 (d,) or None
        What each feature's int8 weights are multiplied with; None with float32 weights.
    stored : str or None
        Type of the weights in the file of a model that was made smaller: ``float16`` ones are
        float32 in memory, ``int4`` ones int8 from -7 to 7. Its arrays are coded; None otherwise.
    columns : TrainedColumns
        The columns of the matrix that was trained on.
    """

    spec: ModelSpec
    training: TrainSpec
    dense: bool
    estimator: Ranker
    calibration: Calibration
    store: str
    majority: int
    validation: dict[str, Any]
    labels: Names
    features: Names
    weights: NDArray[Any]
    bias: NDArray[np.float32]
    counts: dict[str, NDArray[Any]] | None = None
    hashed_weight: float = 0.0
    scale: NDArray[np.float32] | None = None
    stored: Stored | None = None
    columns: TrainedColumns = NO_COLUMNS

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays in memory, and on disk unless they are coded there."""
        names = self.labels.n_bytes + self.features.n_bytes
        return sum(a.nbytes for a in self.hashed.values()) + self.counts_bytes + names

    @property
    def hashed(self) -> dict[str, NDArray[Any]]:
        """The arrays of the hashed models by name."""
        arrays = {"weights": self.weights, "bias": self.bias}
        return arrays if self.scale is None else {**arrays, "scale": self.scale}

    @property
    def counts_bytes(self) -> int:
        """Bytes of the counts."""
        return sum(a.nbytes for a in (self.counts or {}).values())

    @property
    def n_pairs(self) -> int:
        """Counted pairs that add something to a score."""
        if self.counts is None:
            return 0
        return len(self.counts["classes"]) + int(np.count_nonzero(self.counts["wide"]))

    @property
    def calibrated(self) -> Ranker:
        """The ranking whose scores the calibration turns into probabilities."""
        return "logsum" if self.counts is None else "blend"

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the model into a folder, which appears whole.

        Parameters
        ----------
        folder : path-like
            The folder.
        force : bool
            Whether a model that is there may be replaced.

        Raises
        ------
        UsageError
            If the folder exists and may not be replaced.
        DivergedError
            If a weight is not finite; nothing is written.
        DiskError
            If it cannot be written.
        """
        check_finite(self.arrays())
        destination = Destination(Path(folder), MODEL, force=force)
        with destination.scratch() as partial:
            make_folder(partial)
            arrays, coded = self._coded()
            tensors = write_tensors(partial / TENSORS, arrays)
            write_atomic(partial / DOCUMENT, to_json(self._document(tensors, coded)))
            destination.take(partial)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by their names in the file."""
        return {
            "label_offsets": self.labels.offsets, "label_bytes": self.labels.data,
            "feature_offsets": self.features.offsets, "feature_bytes": self.features.data,
            **{COUNTS + name: array for name, array in (self.counts or {}).items()}, **self.hashed,
            **({} if self.columns.positions is None else {COLUMNS: self.columns.positions}),
        }  # fmt: skip

    def file_bytes(self) -> int:
        """Return the bytes of the files that :meth:`save` writes."""
        arrays, coded = self._coded()
        size = len(header_bytes(arrays)) + sum(array.nbytes for array in arrays.values())
        return size + len(to_json(self._document(TensorFile(size, 2**32 - 1), coded)))

    def _coded(self) -> tuple[dict[str, NDArray[Any]], dict[str, Coded]]:
        """Return the arrays as they lie in the file, and how those that are coded are."""
        arrays = self.arrays()
        if self.stored is None:
            return arrays, {}
        plain = {"weights": arrays["weights"]} if self.stored == "float32" else {}
        ways = {"weights": WEIGHTS_ARE.get(self.stored)}
        found = {name: encode(name, array, arrays, ways.get(name))
                 for name, array in arrays.items() if name not in plain}  # fmt: skip
        coded = {name: facts for name, (_, facts) in found.items()}
        return {**plain, **{name: data for name, (data, _) in found.items()}}, coded

    def _document(self, tensors: TensorFile, coded: dict[str, Coded]) -> Document:
        form = CODED_FORMAT if coded else FORMAT
        if self.columns.n_columns:
            form = COLUMNS_FORMAT
        return Document(
            form, self.spec, self.training, self.dense,
            self.estimator, self.calibration,
            None if self.counts is None else self.hashed_weight, self.store, self.labels.kind,
            self.features.kind, self.majority, self.validation, tensors, self.stored, coded,
            self.columns.n_columns,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Open a model: its weights are checked and mapped, or decoded where they are coded.

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
        folder = Path(path)
        folder = folder / "model" if (folder / "model").is_dir() else folder
        document = _read_document(folder, path)
        arrays = _decoded(map_tensors(folder / TENSORS, document.tensors), document, folder)
        spec = document.spec
        shapes = {
            "weights": (spec.n_features, spec.n_columns),
            "bias": (spec.n_columns,),
            "label_offsets": (spec.n_classes + 1,),
            "feature_offsets": (spec.n_features + 1,),
        }
        types: dict[str, np.dtype[Any]] = dict.fromkeys(("weights", "bias"), np.dtype(np.float32))
        if "scale" in arrays:
            shapes["scale"] = (spec.n_features,)
            types |= {"weights": np.dtype(np.int8), "scale": np.dtype(np.float32)}
        for name, shape in shapes.items():
            found = arrays.get(name)
            if found is None or found.shape != shape or found.dtype != types.get(name, found.dtype):
                what = f"damaged: {name} has the wrong shape or type"
                raise ModelError(what, path=clean(folder, 300), hint=COPY_AGAIN)
        return cls(
            spec, document.training, document.dense, document.estimator, document.calibration,
            document.store, document.majority, document.validation,
            _names(arrays, "label", document.label_kind),
            _names(arrays, "feature", document.feature_kind),
            arrays["weights"], arrays["bias"], _counts(arrays, document, clean(folder, 300)),
            document.hashed_weight or 0.0, arrays.get("scale"), document.stored,
            TrainedColumns(document.n_columns, arrays.get(COLUMNS)),
        )  # fmt: skip

    def __repr__(self) -> str:
        shape = "exact" if self.spec.exact else f"{self.spec.n_buckets} x {self.spec.n_repetitions}"
        kind = self.weights.dtype
        return f"Model({shape} {kind}, {self.spec.n_classes:,} classes, {self.estimator})"


def check_finite(arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse arrays that hold NaN or infinity.

    Raises
    ------
    DivergedError
        Naming the array.
    """
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            rows = max(1, (4 << 20) // max(1, array[:1].nbytes))
            for start in range(0, len(array), rows):
                if not np.isfinite(array[start : start + rows]).all():
                    raise DivergedError(
                        f"the {name} are not finite", hint="Use a smaller --learning-rate."
                    )


def _read_document(folder: Path, named: str | os.PathLike[str]) -> Document:
    place = clean(named, 300)
    if not (folder / DOCUMENT).is_file():
        hint = "Make one with: streammach train"
        raise ModelError("there is no trained model", path=place, hint=hint)
    try:
        content = from_json(read_small(folder / DOCUMENT, MAX_DOCUMENT), dict[str, Any])
        found = content.get("format")
        if found not in FORMATS:
            known = f"{', '.join(map(str, FORMATS[:-1]))} and {FORMATS[-1]}"
            raise ModelError(
                f"the model's format is {clean(found)}, this release reads {known}", path=place
            )
        return msgspec.convert(content, Document)
    except (ValueError, DiskError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"damaged: {DOCUMENT}: {clean(error)}", path=place, hint=COPY_AGAIN
        ) from None


def _decoded(
    arrays: dict[str, NDArray[Any]], document: Document, folder: Path
) -> dict[str, NDArray[Any]]:
    """Return the arrays with those that are coded as they were."""
    try:
        for name, coded in document.coded.items():  # what lists need comes before them
            arrays[name] = decode(arrays[name], coded, arrays)
    except (KeyError, ValueError) as error:
        what = f"damaged: the coded arrays are wrong: {clean(error)}"
        raise ModelError(what, path=clean(folder, 300), hint=COPY_AGAIN) from None
    return arrays


def _names(arrays: dict[str, NDArray[Any]], which: str, kind: str) -> Names:
    offsets, data = np.array(arrays[f"{which}_offsets"]), np.array(arrays[f"{which}_bytes"])
    if offsets[0] != 0 or offsets[-1] != len(data) or (np.diff(offsets) < 0).any():
        raise ModelError(f"damaged: the {which}s' names are wrong", hint=COPY_AGAIN)
    return Names(offsets, data, kind)


def _counts(
    arrays: dict[str, NDArray[Any]], document: Document, place: str
) -> dict[str, NDArray[Any]] | None:
    """Return the counts' arrays, after checking that no index leads out of them."""
    if document.hashed_weight is None:
        return None
    spec = document.spec
    found = {name.removeprefix(COUNTS): a for name, a in arrays.items() if name.startswith(COUNTS)}
    pairs = found["classes"].shape if "classes" in found else (-1,)
    shapes: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
        "starts": ((spec.n_features + 1,), np.int64),
        "classes": (pairs, np.int32),
        "gains": (pairs, np.int16),
        "wide_of": ((spec.n_features,), np.int32),
        "wide": ((len(found.get("wide", ())), spec.n_classes), np.int16),
        "penalty": ((spec.n_features,), np.float32),
        "base": ((spec.n_classes,), np.float32),
        "log_values": ((spec.n_classes,), np.float32),
    }
    right = found.keys() == shapes.keys() and all(
        found[name].shape == shape and found[name].dtype == dtype
        for name, (shape, dtype) in shapes.items()
    )
    if right:
        starts, classes = found["starts"], found["classes"]
        wide_of = found["wide_of"]
        right = not len(wide_of) or (wide_of.min() >= -1 and wide_of.max() < len(found["wide"]))
        right = (
            right
            and starts[0] == 0
            and starts[-1] == len(classes)
            and not (np.diff(starts) < 0).any()
        )
        right = right and (
            not len(classes) or (classes.min() >= 0 and classes.max() < spec.n_classes)
        )
    if not right:
        raise ModelError("damaged: the counts are wrong", path=place, hint=COPY_AGAIN)
    return found
