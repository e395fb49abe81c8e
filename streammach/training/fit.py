"""One training from its store to its model: open, search, epochs, finish, save.

Of a share (``--part``) only the epochs of its repetitions are trained; a merge reads those of all.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from streammach.data.identity import name_of
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, MismatchError, ModelError, clean
from streammach.files.folders import check_ours, lock_file, make_folder, remove_folder
from streammach.files.reading import check_free
from streammach.files.urls import absolute
from streammach.files.workplaces import GOES_ON, LOCK
from streammach.files.writing import remove_temporaries, write_atomic
from streammach.jit import remember_compiled_work
from streammach.machine import peak_bytes
from streammach.model.checkpoint import RunPosition
from streammach.parts.registry import switches_of
from streammach.processes import StopSignals
from streammach.spec.documents import to_json
from streammach.spec.plan import Plan
from streammach.spec.training import TrainSpec
from streammach.stages import Stages, StageState
from streammach.training.callbacks import State
from streammach.training.compare_former import compare_with_former
from streammach.training.epochs import Epochs, MergedEpochs, ShareEpochs
from streammach.training.events import Events, held_bytes
from streammach.training.finalize import finalize, gain_over_usual, lateness, warnings_of
from streammach.training.run import (
    CHECKPOINT_FILES,
    CHECKPOINTS,
    KEPT,
    NEXT,
    PLAN,
    RESULT,
    SETTINGS,
    Result,
    RunSettings,
    check_request,
    workplace,
)
from streammach.training.run_part import PART, PartFacts, RunPart, with_text_options
from streammach.training.search import decide
from streammach.training.session import FitRequest, Session
from streammach.training.time_budget import ALONE, EPOCHS, FEW_ROWS, TimeBudget

Opening = Callable[[Plan], Session]
STOPPING = "stopping; again: now"  # what is said after a signal, until its step is over


def fit(request: FitRequest, data: Dataset | str | os.PathLike[str]) -> None:
    """Do what is asked for in its folder, unless it is done there already."""
    folder, kind, plan = request.folder, request.kind, request.plan
    with ExitStack() as opened:
        dataset = data if isinstance(data, Dataset) else opened.enter_context(Dataset.open(data))
        if dataset.digest != plan.facts.digest:
            what = "the plan was made for another store, or for other weights of classes"
            raise MismatchError(what, path=dataset.path)
        finished = request.finished()
        compiling = 0 if finished else request.check(dataset.facts)
        request.begin()
        check_request(folder, request.identity, kind)
        make_folder(folder)
        opened.enter_context(lock_file(folder / LOCK, clean(folder)))
        stop = opened.enter_context(request.stop or StopSignals())
        check_request(folder, request.identity, kind)  # another process may have been here
        check_ours(folder / CHECKPOINTS, CHECKPOINT_FILES)
        if finished:  # perhaps killed before these were gone
            remove_folder(folder / CHECKPOINTS / ("" if request.share is None else KEPT))
            return
        beside = " beside the former one, which stays until it is whole"
        check_free(folder, request.disk_bytes, f"the {kind}{beside * (folder.name == NEXT)}")
        workplace(folder, kind).open(**request.facts)
        remove_temporaries(folder)
        write_atomic(folder / PLAN, to_json(plan))
        events = Events(folder, request.callbacks)
        events.log("start", plan=PLAN)
        stages = opened.enter_context(_stages(request, events, stop))
        opening = partial(Session, request, dataset, events=events, stop=stop, stages=stages)
        if request.share is None:
            with closing(opening(plan)) as session:
                _train(session, plan.projected_bytes + compiling)
        else:
            _train_share(request, opening, name_of(absolute(dataset.path)))
        if not request.resume and not request.clock.limited:  # all its stages were gone through
            remember_compiled_work(*request.kernels)


def _stages(request: FitRequest, events: Events, stop: StopSignals) -> Stages:
    """Return the stages of what is asked for, which events are told."""

    def report_state(state: StageState) -> None:
        events.stage(replace(state, note=STOPPING) if stop.requested else state)

    return Stages(report_state, request.expected_seconds(), clock=request.clock)


def _train(session: Session, projected_bytes: int) -> None:
    """Do the stages of a whole run, or of a merge, one after another while there is time."""
    request, pace = session.request, session.time_budget()
    if request.lasting and not request.clock.limited:  # else time decides what is found
        session.keep_findings()
    # What parts do without hashed models. It is let go below: no name may stay for it.
    session.clock = pace.ahead
    if session.known is None or session.plan.model.unhashed:
        session.fit_first()
    if session.first is not None:
        pace.take(session.first)
    if session.plan.model.unhashed or (session.first and not pace.hashed_fits()):
        _finish(session, pace, None, RunPosition(), projected_bytes)
        return
    if session.first:
        _save_alone(session)
    # The search for what was left open.
    settings = decide(session, pace)
    # The epochs, and back to the best one.
    session.clock = pace.epochs
    session.begin(EPOCHS)
    state, at, trained = _train_epochs(session, settings)
    # The finish: parts, ranking, calibration, the smallest form. Then all is saved. What goes on
    # from a model counts now, since that takes little.
    session.fit_first()
    spec: TrainSpec | None = trained
    if session.first and not at.history:
        spec, at = None, RunPosition()
    _finish(session, pace, spec, at, projected_bytes)
    session.events.call("on_fit_end", state)


def _train_epochs(session: Session, settings: RunSettings) -> tuple[State, RunPosition, TrainSpec]:
    """Train, or read what shares trained; what reads the rows takes no memory behind it."""
    kind = MergedEpochs if session.request.shares else Epochs
    epochs = kind(session, settings.training, settings.epoch_rows)
    state = epochs.run()
    epochs.return_to_best()
    return state, epochs.progress, epochs.spec


def _train_share(request: FitRequest, opening: Opening, store: str) -> None:
    """Decide what is not decided yet; train all epochs of a share's repetitions."""
    folder, share, plan, known = (
        request.folder,
        request.share,
        request.plan,
        request.settings_of_share,
    )
    assert share is not None
    facts = PartFacts(
        part=share,
        options=with_text_options(request.options),
        request=request.identity,
        store=store,
    )
    write_atomic(folder / PART, to_json(facts))
    if known is not None and not (folder / SETTINGS).exists():
        known = msgspec.structs.replace(known, request=request.identity)
        write_atomic(folder / SETTINGS, to_json(known))
    part = RunPart.open(folder)
    settings = part.settings
    if settings is None or part.ahead:
        with closing(opening(plan)) as session:
            session.keep_findings()
            first, last = part.repetitions
            session.trained_share = (last - first) / plan.n_repetitions
            settings = decide(session, session.time_budget())  # first: other shares may wait for it
            if part.ahead:
                session.fit_first()
                with session.stages.one(ALONE):
                    session.save_first()
    with closing(opening(share.plan(plan))) as session:
        session.begin(EPOCHS)
        epochs = ShareEpochs(session, settings.training)
        state = epochs.run()
        if epochs.progress.epoch < settings.training.epochs:
            why = f"{epochs.progress.epoch} ({epochs.progress.stopped})"
            raise Interrupted(f"ended after epoch {why}", hint=GOES_ON)
        remove_folder(folder / CHECKPOINTS / KEPT)
        session.stages.close()
        session.events.call("on_fit_end", state)
    if left := RunPart.open(folder).open_work:
        what = f"damaged: checkpoints of epochs are missing ({left})"
        raise ModelError(what, path=folder, hint="Train it again in another folder.")


def _save_alone(session: Session) -> None:
    """Write what parts did ahead, and a model of it, if no share has it; give back its memory."""
    if not session.request.shares:
        with session.stages.one(ALONE):
            session.save_first()
            if not (session.request.folder / "model").exists():
                session.interim = True
                finalize(session, None, "full", FEW_ROWS)
                session.interim = False
        session.saved = "a model without hashed ones is saved"
    session.let_go()


def _finish(
    session: Session,
    pace: TimeBudget,
    spec: TrainSpec | None,
    at: RunPosition,
    projected_bytes: int,
) -> None:
    """Make the model, without hashed ones where there is no training; save what was measured."""
    shape, folder = session.plan.model, session.request.folder
    pace.finish(hashed=spec is not None)
    session.clock = pace.end
    stage = ("without hashed models",) if spec is None else (at.step, at.best_step, at.stopped)
    session.findings = session.findings.within(*stage, pace.judges, pace.model_size)
    model, reasons = finalize(session, spec, pace.model_size, pace.judges)
    linear = session.plan.config.part("linear") is not None
    options: dict[str, Any] = {"linear": "on"} if linear else {"repetitions": 0}
    if spec is None:
        settings = session.settings(model.training, trials=(), reasons=())
        write_atomic(folder / SETTINGS, to_json(settings))
    else:
        options = {
            "buckets": shape.n_buckets, "repetitions": shape.n_repetitions, "epochs": spec.epochs,
            "transform": spec.transform, "learning_rate": spec.learning_rate,
            **switches_of(session.plan.facts, session.plan.config, spec),
        }  # fmt: skip
    reasons = (
        *gain_over_usual(session, model),
        *reasons,
        *lateness(session),
        *pace.again(at, **options),
    )
    reasons += compare_with_former(session, model)
    if model.estimator in model.validation:
        session.note_metrics("finished model", model.validation[model.estimator])
    said = warnings_of(session, model)
    result = Result(
        history=at.history, best_epoch=max(at.best_epoch, 0),
        stopped=at.stopped, estimator=model.estimator, reasons=reasons,
        validation=model.validation, seconds=session.stages.seconds,
        stages={name: round(seconds, 3) for name, seconds in session.stages.took.items()},
        projected_bytes=projected_bytes, peak_bytes=peak_bytes(),
        device_projected_bytes=session.plan.device_buffer_bytes,
        device_peak_bytes=session.backend.device_bytes()[0], warnings=said,
    )  # fmt: skip
    write_atomic(folder / RESULT, to_json(result))
    remove_folder(folder / CHECKPOINTS)
    session.stages.close()
    for text in said:
        session.events.log("warning", text=text)
        warnings.warn(text, stacklevel=2)
    session.events.log("memory", **held_bytes(session.backend.arrays(), session.held.rows, model))
    session.events.log(
        "end", seconds=result.seconds, peak_bytes=result.peak_bytes,
        device_peak_bytes=result.device_peak_bytes,
    )  # fmt: skip
