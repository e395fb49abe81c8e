"""One training, read from top to bottom: its stages in their order, from a store to a model.

A shard (``--part``) trains the epochs of its repetitions alone; a merge reads those of all shards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import msgspec

from streammach.backends.registry import BACKENDS
from streammach.inputs.identity import name_of
from streammach.model.findings import Findings
from streammach.options.documents import to_json
from streammach.options.plan import Plan
from streammach.parts.registry import parts_of_plan
from streammach.parts.training_record import Training
from streammach.store.dataset import Dataset
from streammach.store.holdout import hold_out, left_out
from streammach.system.errors import Interrupted, ModelError
from streammach.system.files.folders import remove_folder
from streammach.system.files.urls import absolute
from streammach.system.files.workplaces import GOES_ON
from streammach.system.files.writing import write_atomic
from streammach.training.epochs import Epochs
from streammach.training.finalize import finalize, finish
from streammach.training.run import CHECKPOINTS, KEPT, SETTINGS
from streammach.training.run_checks import open_training
from streammach.training.run_part import PART, PartFacts, RunPart, RunTraining, with_text_options
from streammach.training.search import decide_settings, weigh_rows
from streammach.training.time_budget import (
    ALONE,
    EPOCHS,
    FEW_ROWS,
    HELD_OUT,
    LOOKING_SHARE,
    TimeBudget,
)
from streammach.training.warm_start import OLD_SHARE


def train_run(training: RunTraining, data: Dataset | str | os.PathLike[str]) -> None:
    """Go through the stages of a run, or of a merge, one after another while there is time."""
    unhashed = training.plan.model.unhashed
    with open_training(training, data) as has_work:
        if not has_work:
            return
        with _rows_and_backend(training, training.plan):
            budget = TimeBudget(training.plan, training.options, training.clock, training.stages)
            # What ranks without hashed models. It is let go below: no name may stay for it.
            training.clock = budget.first
            if training.known is None or unhashed:
                _fit_first(training)
            if training.first is not None:
                budget.take(training.first)
            if unhashed or (training.first and not budget.hashed_fits()):
                finish(training, budget)
                return
            try:
                if training.first is not None and not training.shards:
                    _save_first_model(training)
                training.forget_first()
                # The search for what was left open.
                settings, trials = decide_settings(training, budget)
            except KeyboardInterrupt:
                if not training.ends_early or not (training.first or training.saved):
                    raise
                training.finishing = True
                if training.first is None:
                    _fit_first(training)
                finish(training, budget)
                return
            # The epochs, and back to the best one. What reads the rows takes no memory behind it.
            training.clock = budget.epochs
            training.begin_stage(EPOCHS)
            epochs = Epochs(training, settings.training, rows=settings.epoch_rows, trials=trials)
            state = epochs.run()
            epochs.return_to_best()
            spec, position = epochs.spec, epochs.progress
            del epochs
            training.finishing = True
            # The finish: parts, ranking, calibration, the smallest form. Then all is saved. What
            # goes on from a model counts now, since that takes little.
            _fit_first(training)
            if training.first is not None and not position.history:
                finish(training, budget)
            else:
                finish(training, budget, spec, position)
            training.call("on_fit_end", state)


def train_shard(training: RunTraining, data: Dataset | str | os.PathLike[str]) -> None:
    """Decide what is not decided yet, here or by another shard; train all epochs of a shard."""
    folder, plan, number = training.folder, training.plan, training.shard
    assert number is not None, "it is one of several"
    with open_training(training, data) as has_work:
        if not has_work:
            return
        facts = PartFacts(
            part=number, options=with_text_options(training.options), request=training.identity,
            store=name_of(absolute(training.dataset.path)),
        )  # fmt: skip
        write_atomic(folder / PART, to_json(facts))
        other = training.decided
        if other is not None and not (folder / SETTINGS).exists():
            other = msgspec.structs.replace(other, request=training.identity)
            write_atomic(folder / SETTINGS, to_json(other))
        shard = RunPart.open(folder)
        settings = shard.settings
        if settings is None or shard.first:
            with _rows_and_backend(training, plan):
                first, last = shard.repetitions
                training.trained_share = (last - first) / plan.n_repetitions
                budget = TimeBudget(plan, training.options, training.clock, training.stages)
                settings, _ = decide_settings(training, budget)  # other shards may wait for it
                if shard.first:
                    _fit_first(training)
                    with training.stages.one(ALONE):
                        _save_first(training)
                training.forget_first()
        with _rows_and_backend(training, number.plan(plan)):
            training.begin_stage(EPOCHS)
            epochs = Epochs(training, settings.training)
            state = epochs.run()
            if epochs.progress.epoch < settings.training.epochs:
                why = f"{epochs.progress.epoch} ({epochs.progress.stopped})"
                raise Interrupted(f"ended after epoch {why}", hint=GOES_ON)
            remove_folder(folder / CHECKPOINTS / KEPT)
            training.stages.close()
            training.call("on_fit_end", state)
        if left := RunPart.open(folder).open_work:
            what = f"damaged: checkpoints of epochs are missing ({left})"
            raise ModelError(what, path=folder, hint="Train it again in another folder.")


@contextmanager
def _rows_and_backend(training: RunTraining, plan: Plan) -> Iterator[None]:
    """Hold rows out and open a backend for a plan; give back what it has in the end."""
    training.plan, training.clock, stages = plan, training.whole_clock, training.stages
    data, options, place = training.dataset, training.options, plan.config.placement
    training.begin_stage(HELD_OUT)
    # For a run that goes on behind its stages; with a limit, time decides what they find.
    training.findings = Findings(
        training.folder / CHECKPOINTS / KEPT, training.identity,
        lasting=training.lasting and not training.clock.limited,
    )  # fmt: skip
    start = training.start
    if start is not None and start.training is None:  # all is chosen anew
        start = None
    looking, among = training.clock.share(LOOKING_SHARE), None if start is None else start.judges
    holdout = hold_out(data, plan.config.batching, options, among, looking)
    training.excluded = holdout.mask
    if start is not None:
        training.known, training.n_known, training.new = start.model, start.n_known, start.new
        training.excluded = left_out(start.new, holdout.mask, OLD_SHARE)
    training.holdout = replace(holdout, rows=weigh_rows(holdout.rows, data, options))
    training.backend = BACKENDS[place.device].open(
        plan.model, plan.config, facts=plan.facts, device_bytes=plan.limits.device
    )
    with closing(training.backend):
        if holdout.looked:
            training.report(f"held out {holdout.origin}")
        # How long rows were looked at says nothing of other stages.
        stages.expect({HELD_OUT: 1 + stages.took[HELD_OUT]})
        yield


def _fit_first(training: RunTraining) -> None:
    """Fit what ranks without hashed models, or read it: a merge from its first shard."""
    folder, identity = training.folder, training.identity
    if training.shards:
        folder, identity = training.shards[0].path, training.shards[0].facts.request
    for part in parts_of_plan(training.plan.config):
        if part.fit_first is not None:
            place = folder / CHECKPOINTS / part.name
            training.first = part.fit_first(training, place, identity)


def _save_first(training: Training) -> None:
    """Write what was fitted first, and let go what was kept until then; or raise DiskError."""
    if (first := training.first) is None:
        return
    folder = training.folder / CHECKPOINTS / first.name
    if first.save is not None and not folder.is_dir():
        first.save(folder, training.identity)
    training.findings.drop(*first.unfinished)


def _save_first_model(training: Training) -> None:
    """Write what was fitted first, and a model of it, which stands until the run's own does."""
    with training.stages.one(ALONE):
        _save_first(training)
        if not (training.folder / "model").exists():
            training.interim = True
            finalize(training, None, "full", FEW_ROWS)
            training.interim = False
    training.saved = "a model without hashed ones is saved"
