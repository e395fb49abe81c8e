"""One training from its store to its model: open, search, epochs, finish, save.

Of a share (``--part``) only the epochs of its repetitions are trained; a merge reads those of all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial

import msgspec

from streammach.data.identity import name_of
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, MismatchError, ModelError, clean
from streammach.files.folders import check_ours, locked, make_folder, remove_folder
from streammach.files.reading import check_free
from streammach.files.urls import absolute
from streammach.files.workplaces import GOES_ON, LOCK
from streammach.files.writing import remove_temporaries, write_atomic
from streammach.jit import keep_compiled
from streammach.machine import peak_bytes
from streammach.model.checkpoint import RunPosition
from streammach.parts.registry import decided
from streammach.planning.ledger import kernels
from streammach.spec.documents import to_json
from streammach.spec.plan import Plan
from streammach.training.callbacks import State
from streammach.training.compact import Compact
from streammach.training.epochs import Epochs, MergedEpochs, ShareEpochs
from streammach.training.events import Events, held_bytes
from streammach.training.finalize import finalize, finalize_alone
from streammach.training.pace import ALONE, EPOCHS, FEW_ROWS, WRITING, Pace
from streammach.training.run import (
    CHECKPOINT_FILES,
    CHECKPOINTS,
    KEPT,
    PLAN,
    RESULT,
    SETTINGS,
    Result,
    RunSettings,
    check_request,
    workplace,
)
from streammach.training.run_part import PART, PartFacts, RunPart, named
from streammach.training.search import decide
from streammach.training.session import FitRequest, Session, opened, stages_of
from streammach.training.signals import StopSignals

Opening = Callable[[Plan], AbstractContextManager[Session]]


def fit(request: FitRequest, data: Dataset | str | os.PathLike[str]) -> None:
    """Do what is asked for in its folder, unless it is done there already."""
    folder, kind, plan = request.folder, request.kind, request.plan
    with ExitStack() as closing:
        dataset = data if isinstance(data, Dataset) else closing.enter_context(Dataset.open(data))
        if dataset.digest != plan.facts.digest:
            raise MismatchError(
                "the plan was made for another store", path=clean(dataset.path, 300)
            )
        finished = request.finished()
        compiling = 0 if finished else request.check(dataset.facts)
        request.begin()
        check_request(folder, request.identity, kind)
        make_folder(folder)
        closing.enter_context(locked(folder / LOCK, clean(folder)))
        stop = closing.enter_context(request.stop or StopSignals())
        check_request(folder, request.identity, kind)  # another process may have been here
        check_ours(folder / CHECKPOINTS, CHECKPOINT_FILES)
        if finished:
            return
        check_free(folder, request.disk_bytes, f"the {kind}")
        workplace(folder, kind).open(**request.facts)
        remove_temporaries(folder)
        write_atomic(folder / PLAN, to_json(plan))
        events = Events(folder, request.callbacks)
        events.log("start", plan=name_of(folder / PLAN))
        stages = closing.enter_context(stages_of(request, events, stop))
        opening = partial(opened, request, dataset, events=events, stop=stop, stages=stages)
        if request.share is None:
            with opening(plan) as session:
                _train(session, plan.projected_bytes + compiling)
        else:
            _train_share(request, opening, name_of(absolute(dataset.path)))
        if not request.resume and not request.clock.limited:  # all its stages were gone through
            keep_compiled(*request.kernels)
            keep_compiled(*kernels(plan.facts, plan.config))


def _train(session: Session, projected_bytes: int) -> None:
    """Do the stages of a whole run, or of a merge, one after another while there is time."""
    request, shape, pace = session.request, session.plan.model, session.pace()
    if request.lasting and not request.clock.limited:  # else time decides what is found
        session.keep_findings()
    # What parts do without hashed models. It is let go below: no name may stay for it.
    session.clock = pace.ahead
    session.work_ahead()
    pace.take(session.ahead)
    if shape.unhashed or (session.ahead and not pace.hashed_fits()):
        _finish_alone(session, pace, projected_bytes)
        return
    if session.ahead:
        _save_alone(session)
    # The search for what was left open.
    settings = decide(session, pace)
    spec = settings.training
    # The epochs, and back to the best one.
    session.clock = pace.epochs
    session.begin(EPOCHS)
    state, at = _train_epochs(session, settings)
    session.findings = session.findings.within(
        at.step, at.best_step, at.stopped, pace.judges, pace.model_size
    )
    session.read_ahead()
    if session.ahead and not at.history:
        _finish_alone(session, pace, projected_bytes)
        return
    # The finish: parts, ranking, calibration, the smallest form. Then all is saved.
    compact, reasons = finalize(session, spec, pace.model_size, judges=pace.judges)
    again = pace.again(
        at, buckets=shape.n_buckets, repetitions=shape.n_repetitions, epochs=spec.epochs,
        transform=spec.transform, learning_rate=spec.learning_rate,
        **decided(session.plan.facts, session.plan.config, spec),
    )  # fmt: skip
    _save(session, compact, (reasons, again), at, projected_bytes)
    session.events.call("on_fit_end", state)


def _train_epochs(session: Session, settings: RunSettings) -> tuple[State, RunPosition]:
    """Train, or read what shares trained; what reads the rows takes no memory behind it."""
    kind = MergedEpochs if session.request.shares else Epochs
    epochs = kind(session, settings.training)
    state = epochs.run()
    epochs.return_to_best()
    return state, epochs.progress


def _train_share(request: FitRequest, opening: Opening, store: str) -> None:
    """Decide what is not decided yet; train all epochs of a share's repetitions."""
    folder, share, plan, known = request.folder, request.share, request.plan, request.decided
    assert share is not None
    facts = PartFacts(
        part=share, options=named(request.options), request=request.identity, store=store
    )
    write_atomic(folder / PART, to_json(facts))
    if known is not None and not (folder / SETTINGS).exists():
        known = msgspec.structs.replace(known, request=request.identity)
        write_atomic(folder / SETTINGS, to_json(known))
    part = RunPart.open(folder)
    settings = part.settings
    if settings is None or part.ahead:
        with opening(plan) as session:
            session.keep_findings()
            first, last = part.repetitions
            session.trained_share = (last - first) / plan.n_repetitions
            settings = decide(session, session.pace())  # first: other shares may wait for it
            if part.ahead:
                session.work_ahead()
                with session.stages.one(ALONE):
                    session.keep_ahead()
    with opening(share.plan(plan)) as session:
        session.begin(EPOCHS)
        epochs = ShareEpochs(session, settings.training)
        state = epochs.run()
        if epochs.progress.epoch < settings.training.epochs:
            why = f"{epochs.progress.epoch} ({epochs.progress.stopped})"
            raise Interrupted(f"ended after epoch {why}", hint=GOES_ON)
        remove_folder(folder / CHECKPOINTS / KEPT)
        session.stages.close()
        session.events.call("on_fit_end", state)
    if left := RunPart.open(folder).left:
        raise ModelError(
            f"damaged: checkpoints of epochs are missing ({left})", path=clean(folder, 300),
            hint="Train it again in another folder.",
        )  # fmt: skip


def _save_alone(session: Session) -> None:
    """Write what parts did ahead, and a model of it, if no share has it; give back its memory."""
    folder = session.request.folder / "model"
    if not session.request.shares:
        with session.stages.one(ALONE):
            session.keep_ahead()
            if not folder.exists():
                finalize_alone(session, "full", judges=FEW_ROWS)[0].save(folder)
        session.model_saved = True
    session.let_go()


def _finish_alone(session: Session, pace: Pace, projected_bytes: int) -> None:
    """Finish a run whose model has no hashed ones."""
    session.findings = session.findings.within(
        "without hashed models", pace.judges, pace.model_size
    )
    compact, spec, reasons = finalize_alone(session, pace.model_size, judges=pace.judges)
    settings = RunSettings(
        training=spec, held_out=session.held.origin, trials=(), reasons=(),
        request=session.request.identity,
    )  # fmt: skip
    write_atomic(session.request.folder / SETTINGS, to_json(settings))
    again = pace.again(RunPosition(), repetitions=0)
    _save(session, compact, (reasons, again), RunPosition(), projected_bytes)


def _save(
    session: Session, compact: Compact, why: tuple[tuple[str, ...], tuple[str, ...]],
    progress: RunPosition, projected_bytes: int,
) -> None:  # fmt: skip
    """Write the model and what was measured; remove the checkpoints."""
    (reasons, again), model, folder = why, compact.model, session.request.folder
    session.begin(WRITING)
    reasons = (*reasons, *compact.save(folder / "model"), *again)
    if model.estimator in model.validation:
        session.measured("finished model", model.validation[model.estimator])
    result = Result(
        history=progress.history, best_epoch=max(progress.best_epoch, 0),
        stopped=progress.stopped, estimator=model.estimator, reasons=reasons,
        validation=model.validation, seconds=session.stages.seconds,
        stages={name: round(seconds, 3) for name, seconds in session.stages.took.items()},
        projected_bytes=projected_bytes, peak_bytes=peak_bytes(),
        device_projected_bytes=session.plan.device_buffer_bytes,
        device_peak_bytes=session.backend.device_bytes()[0],
    )  # fmt: skip
    write_atomic(folder / RESULT, to_json(result))
    remove_folder(folder / CHECKPOINTS)
    session.stages.close()
    session.events.log("memory", **held_bytes(session.backend.arrays(), session.held.rows, model))
    session.events.log(
        "end", seconds=result.seconds, peak_bytes=result.peak_bytes,
        device_peak_bytes=result.device_peak_bytes,
    )  # fmt: skip
