"""What is checked, and made in a folder, before a training begins."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from streammach.backends.registry import BACKENDS
from streammach.options.byte_lines import bytes_in
from streammach.options.documents import encode_json, to_json
from streammach.options.training import PROPENSITY
from streammach.parts.registry import parts_of_plan
from streammach.parts.training_record import Training
from streammach.planning.ledger import kernels
from streammach.store.dataset import Dataset
from streammach.store.holdout import check_held_out
from streammach.store.label_facts import LabelFacts
from streammach.system.errors import BudgetError, MismatchError, StreammachError, UsageError, clean
from streammach.system.files.folders import check_ours, lock_file, make_folder, remove_folder
from streammach.system.files.reading import check_free, sha256
from streammach.system.files.workplaces import LOCK
from streammach.system.files.writing import remove_temporaries, write_atomic
from streammach.system.jit import TRAINING_COMPILER_BYTES, compiler_bytes, remember_compiled_work
from streammach.system.machine import advise_memory, size_text
from streammach.system.rehearsals import compile_first
from streammach.system.stages import Stages
from streammach.training.run import (
    CHECKPOINT_FILES,
    CHECKPOINTS,
    KEPT,
    NEXT,
    PART_OF_RUN,
    PLAN,
    RESULT,
    check_not_begun,
    check_request,
    workplace,
)
from streammach.training.run_part import COUNT, RunPart, RunTraining, settings_of
from streammach.training.time_budget import expect_stages

SMALL = "streammach.training.small_training:train_few"  # which trains, as this does
LISTS_ALONE = "It is for lists of labels."


@contextmanager
def open_training(training: RunTraining, data: Dataset | str | os.PathLike[str]) -> Iterator[bool]:
    """Open the rows, the folder and the log of a training, if all that is said of it can be done.

    Yields whether there is something to do: all may be done in the folder already.
    """
    plan = training.plan
    with ExitStack() as opened:
        if not isinstance(data, Dataset):
            data = LabelFacts().view(opened.enter_context(Dataset.open(data)))
        training.dataset = data
        if plan.elsewhere or data.digest != plan.facts.digest:
            what = "the plan was made for another store, machine, or weights or names of classes"
            raise MismatchError(what, path=data.path)
        finished, needed_kernels = _is_finished(training), _find_kernels(training)
        training.projected_bytes = plan.projected_bytes
        if not finished:
            _check_training(training)
            training.projected_bytes += _compile_kernels(training, needed_kernels)
        training.identity = _identify(training)
        opened.enter_context(_open_folder(training))
        if finished:  # perhaps killed before these were gone
            kept = "" if training.shard is None else KEPT
            remove_folder(training.folder / CHECKPOINTS / kept)
        else:
            _begin_folder(training)
            training.began = time.monotonic()
            training.log("start", plan=PLAN)
            stages = Stages(training.report_stage, expect_stages(training), clock=training.clock)
            training.stages = opened.enter_context(stages)
        yield not finished
        if not (finished or training.resume or training.clock.limited):
            remember_compiled_work(*needed_kernels)  # all stages were gone through


def _check_training(training: RunTraining) -> None:
    """Raise UsageError for options that do not go with the rows, the plan or one another."""
    options, config, facts = training.options, training.plan.config, training.dataset.facts
    check_held_out(options)
    if options.label_loss != "auto" and not facts.listed:
        raise UsageError("each row has one label: --label-loss", hint=LISTS_ALONE)
    if options.optimise == PROPENSITY and not facts.listed:
        raise UsageError("each row has one label: --optimise propensity", hint=LISTS_ALONE)
    if config.linear and options.of_epochs is not None:
        what = f"linear classifiers are learnt to the end, not in epochs: {options.of_epochs}"
        raise UsageError(what, hint="Plan with --linear off.")
    joint = config.part("joint")
    if options.label_loss == "logistic" and joint is not None and joint.fixed:
        raise UsageError("the joint loss has no sigmoids: --label-loss logistic, --loss joint")
    if training.shard is not None:
        training.shard.check(training.plan, options)
        if training.clock.limited:
            raise UsageError("what a time allows differs from part to part: --time with --part")
        if training.start is not None:
            raise UsageError("a part starts from no other model: --part")
    needed = not any(part.measure_untrained for part in parts_of_plan(config))
    if options.epochs == 0 and (needed or not config.batching.held_out_rows):
        raise UsageError("at least one epoch is needed: --epochs")
    if training.decided_in is not None:
        training.decided = settings_of(training.decided_in, training.plan, options)


def _find_kernels(training: RunTraining) -> tuple[object, ...]:
    """Return what decides which kernels are compiled for a training."""
    options, plan = training.options, training.plan
    return (
        *kernels(plan.facts, plan.config), training.shard is None, len(training.shards) > 0,
        options.transform, options.hold_out_by, options.validation is None,
    )  # fmt: skip


def _compile_kernels(training: Training, needed_kernels: tuple[object, ...]) -> int:
    """Return the bytes that compiling takes beside the plan; 0 where it could be done before."""
    plan, limits = training.plan, training.plan.limits
    if not BACKENDS[plan.config.placement.device].keeps_kernels:
        return 0
    more = compiler_bytes(*needed_kernels, n_bytes=TRAINING_COMPILER_BYTES)
    needed = plan.projected_bytes + more
    if not more or needed <= limits.host:
        return more
    if not compile_first(SMALL, needed_kernels, plan, training.options, most=limits.host):
        raise BudgetError(
            f"no compiled kernels can be kept, and compiling them takes {size_text(more)}: "
            f"it needs {size_text(needed)}",
            path=f"{size_text(limits.host)} ({limits.host_source})",
            hint=f"Nothing was allocated; use --memory {advise_memory(needed)} or more.",
        )
    return 0


def _identify(training: RunTraining) -> str:
    """Return the digest of all that decides the result: the store, the plan, the options."""
    plan, options = training.plan, msgspec.to_builtins(training.options)
    if (path := training.options.validation) is not None:
        with Dataset.open(path) as held_out:
            options["validation"] = held_out.digest
    decisive = [plan.facts.digest, plan.model, plan.config.decisive, options]
    if training.start is not None:
        decisive.append(training.start.identity)
    return sha256([encode_json(decisive)])


def _is_finished(training: RunTraining) -> bool:
    """Return whether all is done in the folder already, and gone on with."""
    if not training.resume or training.shard is None:
        return training.resume and (training.folder / RESULT).exists()
    try:
        return not RunPart.open(training.folder).open_work
    except StreammachError:
        return False


@contextmanager
def _open_folder(training: RunTraining) -> Iterator[None]:
    """Make and lock the folder, and listen for signals; refuse one that holds something else."""
    folder, shard = training.folder, training.shard
    kind = "run" if shard is None else PART_OF_RUN
    check_not_begun(folder, resume=training.resume, kind=kind)
    if shard is not None:
        known = (workplace(folder, kind).facts() or {}).get(COUNT, str(shard))
        if known != str(shard):
            what = f"it is part {clean(known, 20)} of a run, not {shard}"
            raise MismatchError(what, path=folder)
    check_request(folder, training.identity, kind)
    make_folder(folder)
    with lock_file(folder / LOCK, clean(folder)), training.stop:
        check_request(folder, training.identity, kind)  # another process may have been here
        check_ours(folder / CHECKPOINTS, CHECKPOINT_FILES)
        yield


def _begin_folder(training: RunTraining) -> None:
    """Write what a folder holds from its beginning on, if the disk has room for the rest."""
    folder, plan, shard = training.folder, training.plan, training.shard
    kind, number, merged = "run", {}, training.shards
    lines = [x for x in plan.ledger if not merged or x.name == "model"]  # no checkpoints of a merge
    n_bytes = bytes_in(lines, "disk")
    if shard is not None:
        kind, number = PART_OF_RUN, {COUNT: str(shard)}
        n_bytes = shard.disk_bytes(plan, training.options.epochs)
    beside = " beside the former one, which stays until it is whole"
    check_free(folder, n_bytes, f"the {kind}{beside * (folder.name == NEXT)}")
    workplace(folder, kind).open(request=training.identity, **number)
    remove_temporaries(folder)
    write_atomic(folder / PLAN, to_json(plan))
