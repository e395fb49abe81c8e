"""Counts with weights of their own, and their file while hashed models are trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streammach.counts.table import CountTable, GroupWeights
from streammach.model.findings import RunDocument, read_state, save_state
from streammach.model.tensors import TensorFile, TensorHeader, load_tensors
from streammach.options.types import Count
from streammach.parts.counts.fitting import Fitted
from streammach.parts.counts.group_fit import start_weights
from streammach.rows.layouts import are_lists, within
from streammach.system.errors import ModelError

DOCUMENT, TENSORS = "counts.json", "counts.safetensors"
TOTALS = ("class_rows", "class_values")


@dataclass(frozen=True, kw_only=True)
class SavedCounts:
    """What counts are and reach without hashed models."""

    table: CountTable  # the counts of the rows that are not held out
    # the groups of features, and what was learnt of features and pairs: empty where nothing was
    start: GroupWeights
    # grouped, learnt: weights by group, and those with feature and pair weights; the same where
    # these were not learnt
    grouped: Fitted
    learnt: Fitted
    reasons: tuple[str, ...] = ()  # why, in sentences
    # fit_rows, pair_rows: held-out rows that were fitted on, and rows that pairs were learnt from
    fit_rows: int = 0
    pair_rows: int = 0

    def weights(self, fitted: Fitted) -> GroupWeights:
        """Return the weights of one of both."""
        whole = fitted is self.learnt
        return fitted.weights(self.start if whole else start_weights(self.start.group))

    @property
    def learns(self) -> bool:
        """Whether feature and pair weights were learnt."""
        return self.learnt is not self.grouped

    @property
    def best(self) -> Fitted:
        """The weights that reach more."""
        return max(self.grouped, self.learnt, key=lambda fitted: fitted.score)


class CountsDocument(RunDocument, frozen=True, kw_only=True):
    """What is known of counts beside their arrays."""

    tensors: TensorFile
    grouped: Fitted
    learnt: Fitted | None
    reasons: tuple[str, ...]
    fit_rows: Count
    pair_rows: Count


def disk_bytes(n_pairs: int, n_features: int, n_classes: int) -> int:
    """Return the bytes of the files, about."""
    table = CountTable.footprint(features=n_features, classes=n_classes, pairs=n_pairs)
    return table + 4 * n_pairs + 8 * n_features  # weights and groups


def save(counted: SavedCounts, folder: Path, identity: str) -> None:
    """Write counts into a folder, which appears whole, or raise DiskError."""
    learnt = counted.learnt if counted.learns else None
    arrays = counted.table.arrays()
    arrays |= {name: arrays[name].view(np.int64) for name in TOTALS}  # sums of importances too
    arrays["group"] = counted.start.group
    if learnt is not None:
        arrays |= {"theta": counted.start.theta, "delta": counted.start.delta}
    save_state(
        folder, "counts", arrays,
        lambda tensors: CountsDocument(
            identity=identity, tensors=tensors, grouped=counted.grouped, learnt=learnt,
            reasons=counted.reasons, fit_rows=counted.fit_rows, pair_rows=counted.pair_rows,
        ),
    )  # fmt: skip


def load(folder: Path, identity: str, n_features: int, n_classes: int) -> SavedCounts:
    """Return the counts of a folder, or raise ModelError or MismatchError."""
    document = read_state(folder / DOCUMENT, CountsDocument, identity, "table of counts")
    learnt = document.learnt

    def check(header: TensorHeader) -> None:
        pairs = header["classes"].shape if "classes" in header else ()
        d, k = (n_features,), (n_classes,)
        weighted = "counts" in header and header["counts"].type == "float32"
        wanted = {
            "starts": ("int64", (n_features + 1,)), "classes": ("int32", pairs),
            "counts": ("float32" if weighted else "int32", pairs), "class_rows": ("int64", k),
            "class_values": ("int64", k), "group": ("int32", d),
        }  # fmt: skip
        if learnt is not None:
            wanted |= {"theta": ("float32", pairs), "delta": ("float32", d)}
        found = {name: (tensor.type, tensor.shape) for name, tensor in header.items()}
        if found != wanted or len(pairs) != 1:
            raise _damage_error(folder, "its arrays are not those of counts")

    arrays = load_tensors(folder / TENSORS, document.tensors, check)
    total = np.float64 if arrays["counts"].dtype == np.float32 else np.int64
    arrays |= {name: arrays[name].view(total) for name in TOTALS}
    table = CountTable.of_arrays(arrays)
    group = arrays["group"]
    if not (
        are_lists(table.starts, table.classes, n_classes)
        and within(group, len(document.grouped.slope)) and table.counts.min(initial=0) >= 0
    ):  # fmt: skip
        raise _damage_error(folder, "a number is out of its range")
    start, grouped = start_weights(group), document.grouped
    if learnt is not None:
        start = replace(start, theta=arrays["theta"], delta=arrays["delta"])
    return SavedCounts(
        table=table, start=start, grouped=grouped, learnt=learnt or grouped,
        reasons=document.reasons, fit_rows=document.fit_rows, pair_rows=document.pair_rows,
    )  # fmt: skip


def _damage_error(folder: Path, what: str) -> ModelError:
    hint = "Train again."
    return ModelError(f"damaged table of counts: {what}", path=folder, hint=hint)
