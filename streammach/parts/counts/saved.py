"""Counts with weights of their own, and their file while hashed models are trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.counts.learning import GroupWeights
from streammach.counts.table import CountTable
from streammach.errors import DiskError, MismatchError, ModelError, clean
from streammach.figures import Reached
from streammach.files.folders import commit_folder, make_folder, remove_folder
from streammach.files.reading import read_small
from streammach.files.writing import write_atomic
from streammach.model.tensors import TensorFile, TensorHeader, load_tensors, write_tensors
from streammach.parts.counts.fitting import Fitted
from streammach.parts.counts.group_fit import start_weights
from streammach.spec.documents import from_json, to_json
from streammach.spec.types import Amount, Count

DOCUMENT, TENSORS = "counts.json", "counts.safetensors"
MAX_DOCUMENT = 1 << 20
TABLE = ("starts", "classes", "counts", "class_rows", "class_values")
TOTALS = ("class_rows", "class_values")
BY_GROUP = ("slope", "match", "penalty")
PAIR_BYTES = 12  # class, count and weight
FEATURE_BYTES = 16  # start, group and weight


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What counts are and reach without hashed models."""

    table: CountTable  # the counts of the rows that are not held out
    # grouped, learnt: weights by group, and those with feature and pair weights; the same where
    # these were not learnt
    grouped: GroupWeights
    learnt: GroupWeights
    reached: tuple[Reached, Reached]  # what each reaches on held-out rows
    reasons: tuple[str, ...]  # why, in sentences
    # fit_rows, pair_rows: held-out rows that were fitted on, and rows that pairs were learnt from
    fit_rows: int
    pair_rows: int
    fit_seconds: float = 0.0  # what a fit takes

    @property
    def best(self) -> Fitted:
        """The weights that reach more."""
        found = [Fitted(self.grouped, self.reached[0]), Fitted(self.learnt, self.reached[1])]
        return max(found, key=lambda fitted: fitted.reached.selection_score)


class Scalars(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of weights by group that belong to no group."""

    prior: float
    learnt: float
    hashed: float


class CountsDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of counts beside their arrays."""

    identity: str
    tensors: TensorFile
    grouped: Scalars
    learnt: Scalars | None
    reached: tuple[Reached, Reached]
    reasons: tuple[str, ...]
    fit_rows: Count
    pair_rows: Count
    fit_seconds: Amount


def disk_bytes(n_pairs: int, n_features: int, n_classes: int) -> int:
    """Return the bytes of the files, about."""
    return PAIR_BYTES * n_pairs + FEATURE_BYTES * n_features + 16 * n_classes


def save(counted: Counted, folder: Path, identity: str) -> None:
    """Write counts into a folder, which appears whole, or raise DiskError."""
    make_folder(folder.parent)
    partial = folder.with_name(f".{folder.name}")
    remove_folder(partial)
    make_folder(partial)
    try:
        both = counted.learnt is not counted.grouped
        document = CountsDocument(
            identity=identity, tensors=write_tensors(partial / TENSORS, _arrays(counted)),
            grouped=_scalars(counted.grouped), learnt=_scalars(counted.learnt) if both else None,
            reached=counted.reached, reasons=counted.reasons, fit_rows=counted.fit_rows,
            pair_rows=counted.pair_rows, fit_seconds=counted.fit_seconds,
        )  # fmt: skip
        write_atomic(partial / DOCUMENT, to_json(document))
        commit_folder(partial, folder)
    finally:
        remove_folder(partial)


def load(folder: Path, identity: str, n_features: int, n_classes: int) -> Counted | None:
    """Return the counts of a folder; None where there are none."""
    if not folder.is_dir():
        return None
    try:
        document = from_json(read_small(folder / DOCUMENT, MAX_DOCUMENT), CountsDocument)
    except (ValueError, DiskError) as error:
        raise _damaged(folder, clean(error)) from None
    if document.identity != identity:
        raise MismatchError(
            "the counts belong to another store, plan or training", path=clean(folder, 300),
            hint="Use the same command as before, or another --out.",
        )  # fmt: skip

    def check(header: TensorHeader) -> None:
        _check(folder, header, document, n_features, n_classes)

    return _counted(folder, document, load_tensors(folder / TENSORS, document.tensors, check))


def save_table(table: CountTable, folder: Path, identity: str) -> None:
    """Write counts without weights of their own, as :func:`save` does."""
    start, nothing = start_weights(np.zeros(table.n_features, np.int32)), Reached(0.0, 0.0)
    save(Counted(
        table=table, grouped=start, learnt=start, reached=(nothing, nothing), reasons=(),
        fit_rows=0, pair_rows=0,
    ), folder, identity)  # fmt: skip


def load_table(folder: Path, identity: str, n_features: int, n_classes: int) -> CountTable:
    """Return the counts that :func:`save_table` wrote."""
    found = load(folder, identity, n_features, n_classes)
    if found is None:
        raise _damaged(folder, "there are none")
    return found.table


def _scalars(weights: GroupWeights) -> Scalars:
    return Scalars(prior=weights.prior, learnt=weights.learnt, hashed=weights.hashed)


def _arrays(counted: Counted) -> dict[str, NDArray[Any]]:
    """Return the arrays by name; both weights have the same groups."""
    arrays = {name: getattr(counted.table, name) for name in TABLE}
    arrays |= {name: arrays[name].view(np.int64) for name in TOTALS}  # sums of importances too
    arrays["group"] = counted.grouped.group
    sets = {"grouped": counted.grouped}
    if counted.learnt is not counted.grouped:
        sets["learnt"] = counted.learnt
        arrays |= {"theta": counted.learnt.theta, "delta": counted.learnt.delta}
    return arrays | {
        f"{of}.{name}": getattr(weights, name) for of, weights in sets.items() for name in BY_GROUP
    }


def _check(
    folder: Path, header: TensorHeader, document: CountsDocument, n_features: int, n_classes: int
) -> None:
    """Refuse arrays that are not those of such counts."""
    of_pairs, groups = (
        header[name].shape if name in header else () for name in ("classes", "grouped.slope")
    )
    d, k = (n_features,), (n_classes,)
    weighted = "counts" in header and header["counts"].type == "float32"
    wanted = {
        "starts": ("int64", (n_features + 1,)), "classes": ("int32", of_pairs),
        "counts": ("float32" if weighted else "int32", of_pairs),
        "class_rows": ("int64", k), "class_values": ("int64", k),
        "group": ("int32", d), **{f"grouped.{name}": ("float32", groups) for name in BY_GROUP},
    }  # fmt: skip
    if document.learnt is not None:
        wanted |= {f"learnt.{name}": ("float32", groups) for name in BY_GROUP}
        wanted |= {"theta": ("float32", of_pairs), "delta": ("float32", d)}
    found = {name: (tensor.type, tensor.shape) for name, tensor in header.items()}
    sizes = (math.prod(of_pairs), math.prod(groups))
    if found != wanted or len(of_pairs) != 1 or len(groups) != 1 or not sizes[1]:
        raise _damaged(folder, "its arrays are not those of counts")


def _counted(folder: Path, document: CountsDocument, arrays: dict[str, NDArray[Any]]) -> Counted:
    total = np.float64 if arrays["counts"].dtype == np.float32 else np.int64
    arrays |= {name: arrays[name].view(total) for name in TOTALS}
    table = CountTable(**{name: arrays[name] for name in TABLE})
    starts, classes, group = table.starts, table.classes, arrays["group"]
    n_groups = len(arrays["grouped.slope"])
    right = (
        starts[0] == 0 and starts[-1] == len(classes) and not (np.diff(starts) < 0).any()
        and (not len(classes) or (classes.min() >= 0 and classes.max() < len(table.class_rows)))
        and (not len(group) or (group.min() >= 0 and group.max() < n_groups))
        and (not len(table.counts) or table.counts.min() >= 0)
    )  # fmt: skip
    if not right:
        raise _damaged(folder, "a number is out of its range")

    def weights(of: str, scalars: Scalars, **more: NDArray[np.float32]) -> GroupWeights:
        by_group = {name: arrays[f"{of}.{name}"] for name in BY_GROUP}
        return GroupWeights(
            group=group, **by_group, prior=scalars.prior, learnt=scalars.learnt,
            hashed=scalars.hashed, **more,
        )  # fmt: skip

    learnt = grouped = weights("grouped", document.grouped)
    if document.learnt is not None:
        learnt = weights("learnt", document.learnt, theta=arrays["theta"], delta=arrays["delta"])
    return Counted(
        table=table, grouped=grouped, learnt=learnt, reached=document.reached,
        reasons=document.reasons, fit_rows=document.fit_rows, pair_rows=document.pair_rows,
        fit_seconds=document.fit_seconds,
    )  # fmt: skip


def _damaged(folder: Path, what: str) -> ModelError:
    return ModelError(f"damaged counts: {what}", path=clean(folder, 300), hint="Train again.")
