"""A training that goes on from another one: its weights, on a store with more rows and names.

The run's weights are those of the known features, and its hashes those of all classes; new features
start at zero. One epoch learns from new rows and from a sample of the old ones. Rows are counted
anew, and pairs weigh as before; names of labels are weighed anew. New rows of known classes judge,
since the run has learnt from all old rows, and little is known of new classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.model.model import Model
from streammach.model.shrink import plain
from streammach.options.annotated import check_options
from streammach.options.byte_lines import Line
from streammach.options.model_spec import ModelSpec
from streammach.options.plan import Plan
from streammach.options.training import TrainingOptions, TrainSpec
from streammach.parts.switches import SWITCHES
from streammach.parts.training_record import Training
from streammach.planning.choose import plan as choose
from streammach.planning.constraints import Constraints
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from streammach.store.dataset import Dataset
from streammach.store.holdout import masked_rows
from streammach.system.errors import BudgetError, MismatchError, UsageError, clean
from streammach.system.files.reading import sha256
from streammach.system.machine import NAMED, USUAL, advise_memory, size_text
from streammach.training.run import Run

JUDGES_SHARE = 5  # one of so many new rows decides where held-out rows are not learnt from
OLD_SHARE = 1.0  # old rows that are learnt from once more, for each new one
LEAST_NEW = 100  # rows of known classes
RATE = 0.3  # of the run's, at the start
PIECE_ROWS = 4096  # of weights that are widened at a time
EXTEND = "Make one with: streammach convert NEW... OUT.zarr --extend"


@dataclass(frozen=True)
class Start:
    """What a training starts from.

    Attributes
    ----------
    model : Model
        The weights; features are told by their names, classes by their ids.
    n_known : int
        Classes with the same ids in the model and the store. Behind them both may have labels that
        no row had, of which only names are known.
    training : TrainSpec, optional
        How it was trained: so a training goes on with new rows. Without it all is chosen anew.
    memory : int, optional
        The bytes that it could take, where these were named or usual.
    new, judges : bool (n_rows,)
        Which rows of the store came after it, and which of these may decide; none without a store.
    """

    model: Model
    n_known: int
    training: TrainSpec | None = None
    memory: int | None = None
    new: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    judges: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    @classmethod
    def of(cls, run: str | os.PathLike[str], data: Dataset) -> Start:
        """Return what a training on a store that extends a run's starts from.

        Parameters
        ----------
        run : path-like
            The folder of a finished run.
        data : Dataset
            A store that was made by ``convert(..., extend=...)`` of the run's.

        Raises
        ------
        UsageError
            If there is no such run, it cannot be gone on from, or too few rows are new.
        MismatchError
            If it is not finished, or the store does not extend its store.
        ModelError, DiskError
            If the model is damaged, or cannot be read.
        """
        check_options(Start.of.__annotations__, locals())
        opened = Run.open(run)
        model = opened.model
        if data.root.options.get("extend") != model.store:
            raise MismatchError(
                f"it does not extend the store of {clean(run, 300)}",
                path=data.path, hint=f"{EXTEND} {clean(opened.plan.facts.path, 300)}",
            )  # fmt: skip
        facts, names = opened.plan.facts, data.label_names
        if facts.label_name_bytes and names is None:
            what = "it was trained with names of labels: --label-names"
            raise UsageError(what, path=run, hint="Give the same names, or newer ones.")
        # A view by such weights, or by names, has a digest of its own.
        before, now = facts.digest != model.store, data.digest != data.store_digest
        if names is not None:
            before, now = facts.weighted, data.weighted
        if before != now:
            how = "with" if before else "without"
            raise UsageError(f"it was trained {how} weights of classes: --class-weight", path=run)
        if model.linear is not None:
            raise UsageError("its linear classifiers are learnt in seconds: train anew", path=run)
        if model.projection is not None:
            raise UsageError("its dense rows have random columns: train anew", path=run)
        same = data.labels.ids_of(model.labels) == np.arange(len(model.labels))
        n_known = len(same) if same.all() else int(np.argmin(same))
        new, judges = _new_rows(data, n_known)
        if (n := int(np.count_nonzero(judges))) < LEAST_NEW:
            what = f"{n:,} rows are new and of known classes, {LEAST_NEW} are needed at least"
            raise UsageError(what, path=data.path, hint="Wait for more.")
        if not model.training.optimizer_kind.settles:  # they are not learnt from at the end
            judges[np.flatnonzero(judges)[n // JUDGES_SHARE :]] = False
        training, limits = replace(opened.settings.training, whitened=False), opened.plan.limits
        # What was free then may be no more.
        chosen = (limits.device_source or limits.host_source) in (NAMED, USUAL)
        memory = limits.device or limits.host if chosen else None
        return cls(model, n_known, training, memory, new, judges)

    @cached_property
    def identity(self) -> str:
        """Digest of what decides the result."""
        weights, size = self.model.weights, PIECE_ROWS
        pieces = (plain(self.model, slice(i, i + size)) for i in range(0, len(weights), size))
        return sha256(piece.tobytes() for piece in pieces)

    def plan(self, data: Dataset, constraints: Constraints) -> Plan:
        """Return a plan for more rows of the model's kind.

        Parameters
        ----------
        data : Dataset
            The store.
        constraints : Constraints
            What is fixed beside the shape, such as the memory.

        Raises
        ------
        UsageError
            If another shape, part or optimizer is asked for.
        BudgetError, DeviceError
            As for :func:`streammach.planning.choose.plan`.
        """
        if constraints.shaped or constraints.hashed_features:
            raise UsageError("the run has a shape: --buckets, --repetitions, --exact, --start")
        spec, model = self.spec(data.n_classes, data.n_features), self.model
        self.check({**constraints.parts, "optimizer": constraints.optimizer})
        shape: dict[str, Any] = {"n_buckets": spec.n_buckets, "n_repetitions": spec.n_repetitions}
        if spec.unhashed:
            shape["n_buckets"] = None
        parts = {one.option: one.words[2] for one in SWITCHES.values()}
        if (counts := constraints.parts.get("counts", "auto")) == "auto":
            counts = "off" if model.counts is None else "on"
        parts["counts"] = counts
        made = choose(data, replace(
            constraints, **shape, parts=parts, optimizer=model.training.optimizer,
            hashed_features=spec.n_hashed_features if spec.cut else None,
            memory=constraints.memory or self.memory,
        ))  # fmt: skip
        n_bytes = model.n_bytes + 12 * model.n_pairs + 6 * data.n_rows  # in lists, beside it; masks
        more = Line("what it starts from", "host", n_bytes)
        made = replace(made, model=spec, ledger=(*made.ledger, more))
        if made.limits.overshoot(made.ledger):
            needed = made.projected_bytes
            raise BudgetError(
                f"it needs {size_text(needed)} with the model that it starts from",
                path=f"{size_text(made.limits.host)} ({made.limits.host_source})",
                hint=f"Nothing was allocated; use --memory {advise_memory(needed)} or more.",
            )
        return made

    def spec(self, n_classes: int, n_features: int) -> ModelSpec:
        """Return the shape and the hashes for so many classes and features."""
        spec = self.model.spec
        n_buckets = n_classes if spec.exact else spec.n_buckets
        return replace(spec, n_classes=n_classes, n_features=n_features, n_buckets=n_buckets)

    def check(self, said: Mapping[str, Any]) -> None:
        """Raise UsageError for options that say something else than the run decided."""
        if (run := self.training) is None:
            return
        own = {one.option: "off" for one in SWITCHES.values() if one.option != "counts"} | {
            "loss": "joint" if run.loss == "joint" else "independent", "optimizer": run.optimizer,
            "transform": run.transform, "label_smoothing": run.label_smoothing,
            "label_loss": run.loss if run.logistic else run.label_share,
        }  # fmt: skip
        wrong = [name for name in own if said.get(name) not in (None, "auto", own[name])]
        if wrong:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
            raise UsageError(f"the run decided that already: {flags}, --start")

    def continued_training(self, options: TrainingOptions) -> TrainSpec:
        """Return how it goes on: as the run was trained, but for what is said."""
        assert self.training is not None, "it goes on"
        rate = options.learning_rate or RATE * self.training.learning_rate
        epochs = 1 if options.epochs is None else options.epochs
        return replace(self.training, epochs=epochs, learning_rate=rate, seed=options.seed)

    def reasons(self, left: NDArray[np.bool_] | None) -> tuple[str, ...]:
        """Return what is to be said of it, where rows bool (n_rows,) are not learnt from."""
        model, n = self.model, 0 if left is None else int(np.count_nonzero(~left))
        stored = model.stored or "float32"
        return (f"it starts from {stored} weights of {model.spec}: an epoch of {n:,} rows",)


def _new_rows(data: Dataset, n_known: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows a model has not seen, and which of them may decide: bool (n_rows,) each.

    A class that it does not know is learnt by counts at once, but hardly by hashed models before
    all is decided: they would seem to be worth nothing.
    """
    n, step, n_old = data.n_rows, data.facts.block_rows, data.root.old_rows
    new, judges = np.zeros((2, n), np.bool_)
    for start in range(0, n, step):
        some = slice(start, min(start + step, n))
        new[some] = data.numbers(some.start, some.stop) >= n_old
        if new[some].any():
            lists = data.rows(some.start, some.stop).lists
            judges[some] = new[some]
            judges[start + lists.rows[lists.classes >= n_known]] = False
    return new, judges


def begin_from_start(training: Training, start: Start) -> None:
    """Let a backend begin from the weights of another model."""
    arrays, model, data = training.backend.arrays(), start.model, training.dataset
    n_columns = start.n_known if model.spec.exact else model.spec.n_columns
    raised = begin_from(arrays, model, data.features, n_columns)
    one_label = model.spec.exact and not (data.listed or model.dense)
    if one_label and training.excluded is not None and start.training is not None:
        rows = masked_rows(data, training.new & ~training.excluded)
        begin_classes(arrays["weights"], raised, rows, data.label_counts, n_columns)


def begin_from(
    arrays: dict[str, NDArray[Any]], model: Model, features: Names, n: int
) -> NDArray[Any]:
    """Let weights of known features and the first n columns start from those of a model.

    Returns what each feature adds on average to the buckets that it raises, float32 (d',).

    Raises
    ------
    MismatchError
        If the model has another shape.
    """
    weights = arrays["weights"]
    ids = features.ids_of(model.features)[: len(model.weights)]
    raised = np.zeros(len(weights), np.float32)
    if not n <= weights.shape[1] or (n < weights.shape[1] and not model.spec.exact):
        raise MismatchError(f"the model has {n:,} columns, not {weights.shape[1]:,}")
    for start in range(0, len(ids), PIECE_ROWS):
        some = np.arange(start, min(start + PIECE_ROWS, len(ids)))
        some = some[(ids[some] >= 0) & (ids[some] < len(weights))]
        weights[ids[some], :n] = own = plain(model, some)[:, :n]
        raised[ids[some]] = np.maximum(own, 0).sum(axis=1) / np.maximum((own > 0).sum(axis=1), 1)
    if not (model.listed and model.spec.exact):  # else ln n was taken from it, for the ranking
        arrays["bias"][..., :n] = model.bias[..., :n]
    return raised


def begin_classes(
    weights: NDArray[np.float32], raised: NDArray[np.float32], rows: Iterable[RowBlock],
    n_rows: NDArray[np.int64], n_known: int,
) -> None:  # fmt: skip
    """Let columns of classes beyond the known ones begin with what features of their rows add.

    An epoch is too short for columns that begin at zero, beside trained ones. A feature that each
    row of a class has adds to it what it adds to others that it raises: `raised`, float32 (d',), as
    :func:`begin_from` returned it. `weights` float32 (d', K) are those of an exact model; `rows`
    have one label, and `n_rows` int64 (K,) are those of each class.
    """
    for block in rows:
        classes = np.repeat(block.classes, np.diff(block.indptr))
        some = (classes >= n_known) & (block.features < len(weights))
        at = block.features[some], classes[some]
        np.add.at(weights, at, raised[at[0]] / n_rows[at[1]].astype(np.float32))
