"""Trains a grid of models within a budget and finds those worth their bytes."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import msgspec

from streammach.data.identity import name_of
from streammach.data.store.dataset import Dataset
from streammach.errors import BudgetError, Interrupted, MismatchError, UsageError, clean
from streammach.figures import Reached
from streammach.files.folders import locked
from streammach.files.urls import located
from streammach.files.workplaces import LOCK, Workplace
from streammach.files.writing import remove_temporaries, write_atomic
from streammach.machine import parse_size, reset_peak
from streammach.planning.choose import plan
from streammach.planning.constraints import Constraints
from streammach.prediction.evaluate import evaluate
from streammach.prediction.inputs import is_store
from streammach.prediction.predictor import Predictor
from streammach.progress import ProgressBar, Wanted
from streammach.spec.annotated import check_options
from streammach.spec.documents import to_json
from streammach.spec.estimators import check_rankers
from streammach.spec.plan import Plan
from streammach.spec.training import TrainingOptions
from streammach.spec.types import Amount, Count, Index, Ranker, Size
from streammach.stages import Stages, StageState
from streammach.training.callbacks import EarlyStopping
from streammach.training.run import Run, saved
from streammach.training.trainer import Trainer

SWEEP = "sweep.json"
BUCKETS = (32, 128)
REPETITIONS = (4, 8, 16)


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trained model of a sweep."""

    buckets: Index  # buckets, repetitions: B and R
    repetitions: Index
    run: Annotated[str, msgspec.Meta(pattern=r"^[0-9]+x[0-9]+\Z")]  # its folder, within the sweep's
    model_bytes: Size  # bytes of the model
    # projected_bytes, peak_bytes: memory of its training by the plan, and measured
    projected_bytes: Size
    peak_bytes: Count
    seconds: Amount  # time of its training
    estimator: Ranker  # how it ranks classes
    held_out: Reached | None  # on the held-out rows of its training, if there are any
    test: Reached | None  # on the sweep's test rows, if there are any
    frontier: bool = False  # whether no other point has fewer bytes and more accuracy

    def __post_init__(self) -> None:
        check_rankers(self.estimator)


class Infeasible(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A point of the grid that does not fit the budget, and why."""

    buckets: Count
    repetitions: Count
    reason: str


class Sweep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sweep found, as in its ``sweep.json``."""

    store: str  # store, digest: the training store and its content
    digest: str
    n_classes: Index
    memory: Count  # the budget in bytes
    options: dict[str, str | int | float | None]  # how every point was trained
    test: str | None  # test, test_digest: the test store, if any, and its content
    test_digest: str | None
    points: tuple[Point, ...] = ()  # those that are trained, by rising bytes of the model
    refused: tuple[Infeasible, ...] = ()  # those that do not fit
    listed: bool = False  # whether rows have lists of labels

    @property
    def tested(self) -> bool:
        """Whether points are compared on test rows: all of them have been measured there."""
        return bool(self.points) and all(point.test is not None for point in self.points)

    def point(self, plan: Plan) -> Point | None:
        """Return the finished point of a plan, if there is one."""
        shape = (plan.n_buckets, plan.n_repetitions)
        return next((p for p in self.points if (p.buckets, p.repetitions) == shape), None)

    def shape_of(self, point: Point) -> str:
        """Return the shape of a point for people."""
        exact = point.buckets == self.n_classes
        return "exact" if exact else f"{point.buckets} x {point.repetitions}"

    def compared(self, point: Point) -> Reached | None:
        """Return the figures of a point by which it is compared with the others."""
        return point.test if self.tested else point.held_out


def sweep(
    store: str | os.PathLike[str], out: str | os.PathLike[str], *, memory: str | int,
    buckets: Sequence[int] = BUCKETS, repetitions: Sequence[int] = REPETITIONS,
    test: str | os.PathLike[str] | None = None, training: TrainingOptions | None = None,
    constraints: Constraints | None = None,
    callbacks: Callable[[Plan], Sequence[object] | None] | None = None,
    told: Callable[[Point | Infeasible], None] | None = None, progress: Wanted | ProgressBar = None,
) -> Sweep:  # fmt: skip
    """Train every model of a grid that fits a budget; leave ``sweep.json`` in a folder.

    The same call goes on where an interrupted one stopped; points that are finished are not trained
    again. Another grid adds its points to those that the folder holds.

    Parameters
    ----------
    store : path-like
        The training store.
    out : path-like
        The sweep's folder, with a run for every point.
    memory : str or int
        The budget of each training.
    buckets, repetitions : sequence of int
        The grid: every B with every R. With as many buckets as classes the model is the exact one.
    test : path-like, optional
        A store or labelled text on which every point is measured.
    training : TrainingOptions, optional
        How the points are trained.
    constraints : Constraints, optional
        What else is fixed of their plans: threads, seed, optional parts.
    callbacks : callable, optional
        Gives the trainer's callbacks for a point's plan.
    told : callable, optional
        Told each point that this call finished, and those that do not fit.
    progress : bool, str, callable or ProgressBar, optional
        Whether it is told how it goes, as for :func:`streammach.train`: seconds of the training of
        a point.

    Raises
    ------
    UsageError
        If the grid is empty or a value is out of its range.
    BudgetError
        If no point fits.
    MismatchError
        If the folder holds a sweep of another store, budget or options.
    Interrupted
        After a signal, with the work saved.
    StoreError, DataError, DiskError, LockedError
        If files cannot be read or written.
    """
    check_options(sweep.__annotations__, locals())
    folder, tell = Path(out), told or (lambda found: None)
    with Dataset.open(store) as data:
        place = Workplace(folder, "sweep")
        place.check()
        constraints = replace(constraints or Constraints(), memory=parse_size(memory))
        training = replace(training or TrainingOptions(), seed=constraints.seed)
        found = _begun(folder, Sweep(
            store=name_of(store), digest=data.digest, n_classes=data.n_classes,
            memory=parse_size(memory), options={**asdict(training), **constraints.parts},
            test=None if test is None else name_of(test),
            test_digest=None if test is None else _digest(test),
            listed=data.listed,
        ))  # fmt: skip
        grid = itertools.product(sorted(set(buckets)), sorted(set(repetitions)))
        plans, refused = _plans(data, constraints, grid)
        for one in refused:
            tell(one)
        if not plans:
            raise BudgetError(f"nothing of the grid fits; {refused[0].reason}", path="--memory")
        place.open()
        found = _joined(found, found.points, (*found.refused, *refused))
        bar = progress if isinstance(progress, ProgressBar) else ProgressBar(progress, "")
        lasting = {
            f"{plan.n_buckets} x {plan.n_repetitions}": plan.expected.seconds
            for plan in plans if found.point(plan) is None and plan.expected is not None
        }  # fmt: skip

        def told_stage(state: StageState) -> None:
            if state.left_seconds is not None:  # how far a training is within the sweep
                stages.at(state.seconds, state.seconds + state.left_seconds, state.stage)

        watcher = SimpleNamespace(on_stage=told_stage)
        with locked(folder / LOCK, clean(folder)), Stages(bar.show, lasting) as stages:
            remove_temporaries(folder)
            for chosen in plans:
                name, point = f"{chosen.n_buckets} x {chosen.n_repetitions}", found.point(chosen)
                if point is None:
                    stages.begin(name)
                    given = None if callbacks is None else callbacks(chosen)
                    given = (*((EarlyStopping(),) if given is None else given), watcher)
                    point = _trained(Trainer(chosen, training, callbacks=given), data, folder)
                if test is not None and point.test is None:
                    stages.begin(f"{name}, test rows")
                    point = _measured(point, folder, test, constraints.threads)
                if point not in found.points:
                    found = _joined(found, (*found.points, point), found.refused)
                    tell(point)
                write_atomic(folder / SWEEP, to_json(found))
    return found


def open_sweep(folder: str | os.PathLike[str]) -> Sweep | None:
    """Return the sweep that a folder holds, None if it holds none, or raise MismatchError."""
    if not (Path(folder) / SWEEP).is_file():
        return None
    return saved(Path(folder), SWEEP, Sweep, f"{SWEEP} is not the file of a sweep")


def frontier(sizes: Sequence[tuple[int, float]]) -> list[bool]:
    """Return which (bytes, accuracy) are worth their bytes: none is better in one and no worse."""
    return [
        not any(b <= bytes_ and p >= accuracy and (b, p) != (bytes_, accuracy) for b, p in sizes)
        for bytes_, accuracy in sizes
    ]


def _digest(rows: str | os.PathLike[str]) -> str | None:
    """Return the digest of test rows in a store; None for those of a file."""
    place = located(rows)
    if is_store(place):
        with Dataset.open(rows) as data:
            return data.digest
    if not place.exists():
        raise UsageError("there is no such store or file", path=rows)
    return None


def _begun(folder: Path, wanted: Sweep) -> Sweep:
    """Return what the folder holds of the same sweep; test figures of other rows are dropped."""
    before = open_sweep(folder)
    if before is None:
        return wanted
    fixed, asked = (
        {name: x for name, x in one.options.items() if x not in (None, "auto")}
        for one in (before, wanted)
    )
    if fixed != asked or (before.digest, before.memory) != (wanted.digest, wanted.memory):
        what = "the folder holds a sweep of another store, budget or options"
        hint = "Use the same command as before, or another --out."
        raise MismatchError(what, path=folder, hint=hint)
    same = wanted.test_digest is not None and wanted.test_digest == before.test_digest
    points = (p if same else msgspec.structs.replace(p, test=None) for p in before.points)
    return msgspec.structs.replace(wanted, points=tuple(points), refused=before.refused)


def _plans(
    data: Dataset, constraints: Constraints, grid: Iterable[tuple[int, int]]
) -> tuple[list[Plan], list[Infeasible]]:
    plans: dict[tuple[int, int], Plan] = {}
    refused = []
    for b, r in grid:
        try:
            made = plan(data, replace(constraints, n_buckets=b, n_repetitions=r))
        except BudgetError as error:
            refused.append(Infeasible(b, r, error.message))
        else:
            plans[made.n_buckets, made.n_repetitions] = made
    if not plans and not refused:
        raise UsageError("the grid is empty: --buckets and --repetitions")
    return sorted(plans.values(), key=lambda p: p.projected_bytes), refused


def _trained(trainer: Trainer, data: Dataset, folder: Path) -> Point:
    name = f"{trainer.plan.n_buckets}x{trainer.plan.n_repetitions}"
    gc.collect()  # so that the peak is this point's own
    reset_peak()
    try:
        run = trainer.fit(data, folder / name, resume=True)
    except Interrupted as error:
        hint = "The same command goes on; finished points are not trained again."
        raise Interrupted(error.message, hint=hint) from None
    result = run.result
    return Point(
        buckets=run.plan.n_buckets, repetitions=run.plan.n_repetitions, run=name,
        model_bytes=run.model.n_bytes, projected_bytes=result.projected_bytes,
        peak_bytes=result.peak_bytes, seconds=result.seconds, estimator=result.estimator,
        held_out=result.validation.get(result.estimator), test=None,
    )  # fmt: skip


def _measured(
    point: Point, folder: Path, test: str | os.PathLike[str], threads: int | None
) -> Point:
    run = Run.open(folder / point.run)
    with Predictor(run.model, threads=threads) as predictor:
        found = evaluate(predictor, test)
    return msgspec.structs.replace(point, test=Reached(found.accuracy, found.top_5_accuracy))


def _joined(found: Sweep, points: Sequence[Point], refused: Sequence[Infeasible]) -> Sweep:
    """Return the sweep with these points, later ones in place of earlier, the frontier marked."""
    latest = {(p.buckets, p.repetitions): p for p in points}
    ordered = sorted(latest.values(), key=lambda p: (p.model_bytes, p.buckets, p.repetitions))
    others = {(one.buckets, one.repetitions): one for one in refused}
    joined = msgspec.structs.replace(
        found, points=tuple(ordered), refused=tuple(others[shape] for shape in sorted(others))
    )
    reached = [(p, one.accuracy) for p in ordered if (one := joined.compared(p)) is not None]
    marks = frontier([(p.model_bytes, accuracy) for p, accuracy in reached])
    best = {p.run for (p, _), mark in zip(reached, marks, strict=True) if mark}
    marked = (msgspec.structs.replace(p, frontier=p.run in best) for p in ordered)
    return msgspec.structs.replace(joined, points=tuple(marked))
