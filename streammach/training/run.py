"""The folder of a run: what was decided, what was measured, the model."""

from __future__ import annotations

import os
import re
import weakref
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.model.checkpoint import Checkpoints
from streammach.model.document import DOCUMENT, not_a_model
from streammach.model.model import Model
from streammach.options.documents import from_json
from streammach.options.estimators import check_rankers
from streammach.options.figures import EpochFigures, HeldOutMetrics, TrialFigures, figures_text
from streammach.options.plan import Plan
from streammach.options.reported import FigureTable, Reported
from streammach.options.training import TrainSpec
from streammach.options.types import Amount, Count, Ranker, Share
from streammach.parts.training_record import LOG
from streammach.system.errors import DiskError, MismatchError, UsageError, clean
from streammach.system.files.destinations import Destination, known_by_mark
from streammach.system.files.reading import read_small
from streammach.system.files.workplaces import Workplace
from streammach.system.files.writing import TEMPORARY

MAX_FILE = 256 << 20  # bytes; of logs, and of 20 million numbers of held-out rows in the settings
MARK = '<meta name="generator" content="streammach">'
CARD_MARK = "---\nlibrary_name: streammach\n"
PART_OF_RUN, PARTS = "part", "distributed training"  # what markers of such folders say
PLAN, SETTINGS, RESULT = "plan.json", "training.json", "result.json"
REPORT, MODEL = "report.html", "model"
NEXT = "next"  # within a run: one that replaces it when it is whole
T = TypeVar("T")
CHECKPOINTS, KEPT = "checkpoints", "kept"  # within it: what stages found, until it is done
# What lies there: checkpoints, what was fitted first, what stages found, and what was cut off.
CHECKPOINT_FILES = re.compile(
    r"\.?step-\d+(/state\.(json|safetensors))?|\.?counts(/counts\.(json|safetensors))?|"
    r"kept(/[a-z0-9-]+\.json|/\.?[a-z]+(/(found|counts)\.(json|safetensors))?)?|"
    rf"(.*/)?({TEMPORARY.pattern}|\.[^/]+\.scratch(/.*)?)"
)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run decided before its first epoch, and why."""

    training: TrainSpec  # the training
    held_out: str  # how the held-out rows were chosen
    trials: tuple[TrialFigures, ...]  # the short trainings of the search
    reasons: tuple[str, ...]  # why, in sentences
    request: str  # digest of what was asked for; a run is resumed only with the same
    held_out_rows: tuple[Count, ...] = ()  # numbers of those rows in the source, if it is theirs
    epoch_rows: Count = 0  # rows of an epoch, where there is time for a part of one; else 0


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a finished run measured."""

    # what was measured at the end of each epoch; empty without hashed models
    history: tuple[EpochFigures, ...]
    best_epoch: Count  # the epoch whose weights were kept, from 0
    stopped: str | None  # why it ended before its last epoch
    estimator: Ranker  # how classes are ranked
    reasons: tuple[str, ...]  # why
    # accuracy and top-5 accuracy of each way to rank on the held-out rows
    validation: dict[Ranker, HeldOutMetrics]
    seconds: Amount  # time from the start of the command, or of the call, to its end
    # projected_bytes, peak_bytes: memory by the plan, and the largest resident memory measured
    projected_bytes: Count
    peak_bytes: Count
    # device_projected_bytes, device_peak_bytes: the same of the buffers in a device's own memory; 0
    # on the CPU
    device_projected_bytes: Count = 0
    device_peak_bytes: Count = 0
    stages: dict[str, Amount] = {}  # seconds of each stage of it, by name
    warnings: tuple[str, ...] = ()  # what the user should know before the model is used

    def __post_init__(self) -> None:
        check_rankers(self.estimator, *self.validation)
        if self.best_epoch > max(len(self.history) - 1, 0):
            raise ValueError("the best epoch is none of its epochs")
        if not self.projected_bytes or (self.device_peak_bytes and not self.device_projected_bytes):
            raise ValueError("no bytes are projected")

    @property
    def best(self) -> HeldOutMetrics | None:
        """What the model reached on held-out rows, if there were any."""
        found = self.validation.get(self.estimator)
        if not self.history:
            return found
        epoch = self.history[self.best_epoch]
        if found is None and epoch.accuracy is not None and epoch.top_5_accuracy is not None:
            return HeldOutMetrics(epoch.accuracy, epoch.top_5_accuracy)
        return found


class StagePoint(msgspec.Struct, frozen=True):
    """What a stage reached on held-out rows, ``t`` going on from session to session."""

    t: Amount
    accuracy: Share
    top_5_accuracy: Share
    stage: str = "hashed models"


@dataclass(frozen=True)
class RunLog:
    """What is read from a run's log, in its order."""

    stages: tuple[StagePoint, ...] = ()  # epochs of the hashed models, and what was measured beside
    held: dict[str, int] = field(default_factory=dict)  # bytes of the run's large arrays


class FolderLease:
    """A temporary folder, there as long as anybody uses this, or until it is closed."""

    def __init__(self, held: ExitStack) -> None:
        self.close = weakref.finalize(self, held.close)


@dataclass(frozen=True, repr=False)
class Run(Reported, AbstractContextManager["Run"]):
    """A finished run: its folder, what was decided, what was measured.

    Attributes
    ----------
    path : Path
        The folder.
    plan : Plan
        The plan.
    settings : RunSettings
        What was decided.
    result : Result
        What was measured.
    label_kind : str
        The type in which labels are given back, where they came from memory; else empty.
    kept : FolderLease or None
        The folder, where it is a temporary one.
    """

    path: Path
    plan: Plan
    settings: RunSettings
    result: Result
    label_kind: str = ""
    kept: FolderLease | None = field(default=None, repr=False, compare=False)

    def _line(self) -> str:
        best, result = self.result.best, self.result
        said = [repr(str(self.path)) + f": {self.plan.config.text}"]
        if result.history:
            said.append(f"epoch {result.best_epoch + 1} of {len(result.history)}")
        if best is not None:
            said.append(f"{figures_text(best, listed=self.listed)} on {self.settings.held_out}")
        return ", ".join(said)

    @property
    def listed(self) -> bool:
        """Whether rows have lists of labels."""
        return self.plan.facts.listed

    @property
    def held_out(self) -> NDArray[np.int64]:
        """Numbers of the held-out rows that decide, in the source, from 0: int64 (n,).

        They rise. Near-duplicates that wait are not among them; there are none of another store.
        """
        return np.array(self.settings.held_out_rows, np.int64)

    @property
    def history(self) -> FigureTable:
        """What was measured at the end of each epoch: columns by name."""
        names = (
            "epoch", "loss", "accuracy", "top_5_accuracy", "rows_per_second", "waited_share",
            "peak_bytes",
        )  # fmt: skip
        epochs = self.result.history
        return FigureTable({name: [getattr(one, name) for one in epochs] for name in names})

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why all of it was decided, in sentences."""
        return (*self.plan.reasons, *self.settings.reasons, *self.result.reasons)

    @property
    def model(self) -> Model:
        """The trained model, opened."""
        return replace(Model.load(self.path), label_kind=self.label_kind)

    def close(self) -> None:
        """Remove the folder, if it is a temporary one; models that were opened stay usable."""
        if self.kept is not None:
            self.kept.close()

    def __exit__(self, *exc: object) -> None:
        self.close()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """Open the folder of a finished run.

        Parameters
        ----------
        path : path-like
            The folder.

        Raises
        ------
        UsageError
            If nothing has this name.
        MismatchError
            If it is no folder of a finished run.
        """
        folder, what = Path(path), "not the folder of a finished run"
        if not os.path.lexists(folder):
            made = "Make one with: streammach train"
            raise UsageError("there is no such run", path=folder, hint=made)
        part = workplace(folder, PART_OF_RUN).facts() is not None
        hint = "It is a part of one: streammach merge RUN PART..." if part else None
        if (folder / DOCUMENT).exists():
            hint = "It is a model alone: evaluate, predict, serve and labels take it."
        plan = read_document(folder, PLAN, Plan, what, hint)
        settings = read_document(folder, SETTINGS, RunSettings, what, hint)
        return cls(folder, plan, settings, read_document(folder, RESULT, Result, what, hint))


def workplace(folder: str | os.PathLike[str], kind: str = "run") -> Workplace:
    """Return the place of a run, or of a part of one."""
    return Workplace(Path(folder), kind)


def check_not_begun(folder: Path, *, resume: bool, kind: str = "run") -> None:
    """Raise UsageError where a folder holds a run, or a part of one, that is not gone on with."""
    workplace(folder, kind).check()
    if (folder / PLAN).exists() and not resume:
        hint = "Use --resume or another --out."
        raise UsageError(f"it holds a {kind} already", path=folder, hint=hint)
    if (folder / MODEL).exists():
        Destination(folder / MODEL, not_a_model, force=True)


def read_document(folder: Path, name: str, kind: type[T], what: str, hint: str | None = None) -> T:
    """Return a document of a run's folder, or raise MismatchError, which says what this is not."""
    try:
        return from_json(read_small(folder / name, MAX_FILE), kind)
    except (ValueError, DiskError) as error:
        why = error.message if isinstance(error, DiskError) else error
        raise MismatchError(f"{what} ({clean(why, 120)})", path=folder, hint=hint) from None


def budget_of(out: Path) -> int | None:
    """Return the bytes that the plan of a run could take that goes on, None before there is one."""
    folder = out / NEXT if (out / NEXT / PLAN).exists() else out
    if not (folder / PLAN).exists():
        return None
    limits = read_document(folder, PLAN, Plan, f"damaged: {PLAN}").limits
    return limits.device or limits.host


def read_settings(folder: Path) -> RunSettings | None:
    """Return what was decided of a run, None before that; or raise MismatchError."""
    if not (folder / SETTINGS).exists():
        return None
    return read_document(folder, SETTINGS, RunSettings, f"damaged: {SETTINGS}")


def check_request(folder: Path, request: str, kind: str = "run") -> None:
    """Raise MismatchError if a run was begun with another request; nothing is written."""
    settings, facts = read_settings(folder), workplace(folder, kind).facts() or {}
    known = facts.get("request") if settings is None else settings.request
    if known not in (None, request):
        what = f"the {kind} was started with another store, plan or options"
        hint = "Use the same command as before, or another --out."
        raise MismatchError(what, path=folder, hint=hint)


PAGE = known_by_mark(MARK, "it is no page that streammach made", 1000)
CARD = known_by_mark(CARD_MARK, "it is no card that streammach made", 1000)


def opened_so_far(folder: Path) -> tuple[Plan | None, RunSettings | None, str]:
    """Return an unfinished run's plan, what it decided, what is left; or raise MismatchError."""
    if workplace(folder).facts() is None:
        raise MismatchError("not the folder of a run", path=folder)
    if not (folder / PLAN).exists():
        return None, None, "nothing is planned yet"
    plan, settings = (
        read_document(folder, PLAN, Plan, "not the folder of a run"),
        read_settings(folder),
    )
    if settings is None:
        return plan, None, "nothing is decided yet"
    ends = Checkpoints(folder / CHECKPOINTS, settings.request).ends()
    return plan, settings, f"{max(ends, default=0)} of {settings.training.epochs} epochs are saved"


def read_log(folder: Path) -> RunLog:
    """Return what a run's log says, without lines that say something else, or raise DiskError."""
    path, before, latest = folder / LOG, 0.0, 0.0
    stages, held = list[StagePoint](), dict[str, int]()
    for text in read_small(path, MAX_FILE).splitlines() if path.exists() else ():
        try:
            line = msgspec.json.decode(text, type=dict[str, Any])
            event = line["event"]
            before = latest if event == "start" else before
            latest = max(latest, before + line["t"])
            if event in ("validation", "measured"):
                stages.append(msgspec.convert(line | {"t": latest}, StagePoint))
            elif event == "memory":
                held = {name: n for name, n in line.items() if isinstance(n, int) and n >= 0}
        except (msgspec.MsgspecError, RecursionError, KeyError, TypeError):
            continue
    return RunLog(tuple(stages), held)
