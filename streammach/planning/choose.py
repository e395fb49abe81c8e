"""Turns a budget of bytes into a model that fits it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from streammach import hashing
from streammach.backends.base import choose_device
from streammach.data.store.dataset import Dataset
from streammach.errors import DeviceError, UsageError, clean
from streammach.machine import cores, parse_seconds, size_text
from streammach.planning.evidence import kind, weighed_again
from streammach.planning.limits import Limits, limits
from streammach.planning.options import Asked, Candidate, candidates
from streammach.planning.refusal import refused
from streammach.planning.speed import known_speed
from streammach.spec import (
    MOST,
    Budget,
    DataFacts,
    ModelSpec,
    Objective,
    Optimizer,
    Option,
    Pilot,
    Plan,
    Weights,
)

TIE = 0.1  # points; options nearer than this to the best one are as good
WORTH = 1.0  # points that the smallest and the fastest plan may lose
FACTORS = (0.25, 0.5, 2.0, 4.0)  # of the budget: what those would bring
SHOWN = 9
OPTIMIZERS: tuple[Optimizer, ...] = ("adagrad", "adam", "sgd")
WEIGHTS: tuple[Weights, ...] = ("float32", "bfloat16")
OBJECTIVES: tuple[Objective, ...] = ("accuracy", "smallest", "fastest")

W = TypeVar("W", bound=str)


def plan(
    data: Dataset | DataFacts | str | os.PathLike[str],
    *,
    memory: str | int | None = None,
    n_buckets: int | None = None,
    n_repetitions: int | None = None,
    exact: bool = False,
    batch_size: int | None = None,
    optimizer: str = "auto",
    counts: str = "auto",
    closed_form: bool = True,
    whitening: bool = True,
    time: str | float | None = None,
    latency: str | float | None = None,
    objective: str = "accuracy",
    device: str = "auto",
    weights: str = "float32",
    threads: int | None = None,
    seed: int = 0,
    pilots: Sequence[Pilot] = (),
) -> Plan:
    """Choose a model and batch for a store that fit a budget, and account for every byte.

    Weighed are a bucket for every class, and B of 8 to 1,024 with R up to 4,096 columns B*R that
    tell all classes apart with probability 0.999; with counts of all pairs beside them, of a half,
    a quarter or an eighth, or without (sparse rows); exact weights with a closed form or without
    (dense rows). With `n_buckets` and `n_repetitions` that model is taken, if the budget allows it.

    Parameters
    ----------
    data : Dataset, DataFacts or path-like
        The store.
    memory : str or int, optional
        The budget, such as ``12GB``; 2 GB otherwise, but what this machine may use where the
        model's shape is given. On a GPU it is the
        budget of the GPU's memory, and host memory may be used as far as there is any.
    n_buckets, n_repetitions : int, optional
        B and R, both or none.
    exact : bool
        Ask for a bucket for every class.
    batch_size : int, optional
        Most rows of a batch.
    optimizer : str
        ``auto`` (row-wise Adagrad for sparse rows, Adam for dense ones), ``adagrad``, ``adam`` or
        ``sgd``.
    counts : str
        ``auto``: room for counts where rows are sparse and they fit; ``on``: refuse where they do
        not fit; ``off``.
    closed_form : bool
        Room for a closed form beside exact weights of dense rows, if it fits.
    whitening : bool
        Room to whiten dense rows while they are trained on, if it fits.
    time : str or float, optional
        Most time that the training is expected to take, such as ``2h``, or seconds.
    latency : str or float, optional
        Most time that a query, one row of many, is expected to take one thread, such as ``200us``.
    objective : str
        ``accuracy``: the least expected loss, and of options that differ by less than 0.1 points
        the fastest; ``smallest``, ``fastest``: the smallest model or the shortest training among
        those expected within 1 point of the best that fits.
    device : str
        ``auto``, ``cpu`` or ``cuda``.
    weights : str
        Type of the weights while they are trained: ``float32``, or ``bfloat16`` on a GPU, half as
        large, for sparse rows.
    threads : int, optional
        Threads that compute; all cores otherwise.
    seed : int
        Decides the hashes.
    pilots : sequence of Pilot
        Trainings on samples, by which the expected losses are corrected; models of other buckets
        and kinds are not chosen then. See :func:`streammach.training.pilot.pilot`.

    Returns
    -------
    Plan
        The model with its hashes, the batch, and the ledger of every byte.

    Raises
    ------
    UsageError
        If the options do not go together.
    BudgetError
        If nothing fits; the message names the largest terms.
    DeviceError
        If the device cannot be used, or not for this shape.
    """
    facts = _facts(data)
    if not 0 <= seed <= MOST:
        raise UsageError("the seed is not an integer from 0 to 2^63 - 1: --seed")
    _check_options(memory, n_buckets, n_repetitions, exact, optimizer, counts, batch_size, threads)
    goal = _one_of(OBJECTIVES, objective, "--objective")
    of_weights = _one_of(WEIGHTS, weights, "--weights")
    chosen, why_device = choose_device(device)
    if of_weights != "float32" and chosen == "cpu":
        raise UsageError(
            f"{of_weights} weights are for a GPU, the device is the CPU ({why_device})",
            path=f"--weights {of_weights}",
        )
    shaped = exact or n_buckets is not None
    allowed = limits(chosen, memory, shaped=shaped)
    wanted = next((name for name in OPTIMIZERS if name == optimizer), None)
    asked = Asked(
        n_buckets, n_repetitions, exact, batch_size, wanted, counts, closed_form, whitening,
        chosen, threads or cores(), None if time is None else parse_seconds(time),
        None if latency is None else parse_seconds(latency), of_weights,
    )  # fmt: skip
    speed = known_speed()
    if chosen != "cpu" and (time is not None or latency is not None):
        raise UsageError("how long anything takes on a GPU is not known yet: --time, --latency")
    try:
        weighed = candidates(facts, asked, allowed, speed)
    except DeviceError as error:  # its shape cannot be launched
        if device != "auto" or of_weights != "float32":
            raise
        chosen, why_device = "cpu", error.message
        asked, allowed = replace(asked, device=chosen), limits(chosen, memory, shaped=shaped)
        weighed = candidates(facts, asked, allowed, speed)
    weighed = weighed_again(weighed, pilots, facts.n_rows)
    seen = {kind(pilot) for pilot in pilots}
    found = _best([c for c in weighed if not seen or kind(c.option) in seen], goal, asked)
    if found is None:
        raise refused(facts, asked, weighed, allowed, speed)
    made = Plan(
        facts, found.model, found.sizes.batch_size, found.sizes.batch_nnz, found.sizes.optimizer,
        found.sizes.dense, found.sizes.pool_blocks, found.sizes.validation_rows,
        found.sizes.validation_nnz, found.sizes.max_pairs, found.sizes.closed_form,
        found.sizes.whitened, chosen, found.sizes.threads, allowed.host, allowed.host_source,
        found.lines, (*_why(facts, found, weighed, asked, goal), found.beside), why_device,
        allowed.device, allowed.device_source, found.sizes.waves, found.sizes.weights,
        found.sizes.resident, goal,
        replace(found.option, chosen=True), _shown(found, weighed),
        () if asked.shaped else _budgets(facts, asked, allowed, goal, speed, pilots),
        tuple(pilots),
    )  # fmt: skip
    return _with_hashes(made, seed)


def _facts(data: Dataset | DataFacts | str | os.PathLike[str]) -> DataFacts:
    if isinstance(data, DataFacts):
        return data
    if isinstance(data, Dataset):
        return data.facts
    with Dataset.open(data) as dataset:
        return dataset.facts


def _one_of(known: tuple[W, ...], given: str, name: str) -> W:
    found = next((k for k in known if k == given), None)
    if found is None:
        raise UsageError(f"'{clean(given)}' is not one of {', '.join(known)}: {name}")
    return found


def _check_options(
    memory: str | int | None,
    n_buckets: int | None,
    n_repetitions: int | None,
    exact: bool,
    optimizer: str,
    counts: str,
    batch_size: int | None,
    threads: int | None,
) -> None:
    if (n_buckets is None) != (n_repetitions is None):
        raise UsageError("--buckets and --repetitions are given together")
    if exact and (memory is not None or n_buckets is not None):
        raise UsageError("--exact excludes --memory, --buckets and --repetitions")
    numbers = {
        "--buckets": n_buckets,
        "--repetitions": n_repetitions,
        "--batch-size": batch_size,
        "--threads": threads,
    }
    for name, value in numbers.items():
        if value is not None and value < (2 if name == "--buckets" else 1):
            raise UsageError(f"{value} is too small: {name}")
    _one_of(("auto", *OPTIMIZERS), optimizer, "--optimizer")
    _one_of(("auto", "on", "off"), counts, "--counts")


def _best(weighed: Sequence[Candidate], objective: Objective, asked: Asked) -> Candidate | None:
    """Return the candidate to take, None if none fits."""
    fitting = [c for c in weighed if asked.allows(c.option)]
    if not fitting:
        return None
    least = min(c.option.loss for c in fitting)
    slack = TIE if objective == "accuracy" else WORTH
    good = [c for c in fitting if c.option.loss <= least + slack]
    if objective == "smallest":
        return min(good, key=lambda c: (c.option.model_bytes, c.option.seconds))
    return min(good, key=lambda c: (c.option.seconds, c.option.model_bytes))


def _why(
    facts: DataFacts,
    found: Candidate,
    weighed: Sequence[Candidate],
    asked: Asked,
    objective: Objective,
) -> tuple[str, ...]:
    """Return why this shape, in sentences."""
    model, option = found.model, found.option
    if asked.shaped:
        if not model.exact:
            return ("buckets and repetitions as asked",)
        if asked.n_buckets is None:
            return ("a bucket for every class, as asked",)
        many = f"{asked.n_buckets:,} buckets are enough for one to each of {model.n_classes:,}"
        return (f"{many} classes",)
    if model.exact:
        return ("a bucket for every class fits",)
    aim = {
        "accuracy": f"the fastest within {TIE:g} points of the best that fits",
        "smallest": f"the smallest model within {WORTH:g} point of the best that fits",
        "fastest": f"the fastest within {WORTH:g} point of the best that fits",
    }[objective]
    loss = f"{option.loss:.1f} points (give or take {option.loss_error:.1f}) of P@1 and P@5"
    text = f"{facts.shape_of(option)} is {aim}; {loss} are lost against a model without limit"
    wider = [
        c.option for c in weighed
        if not c.option.fits and c.option.max_pairs == option.max_pairs
        and c.option.loss < option.loss - TIE
    ]  # fmt: skip
    if wider:
        least = min(wider, key=lambda o: o.projected_bytes)
        text += (
            f"; {facts.shape_of(least)} would gain {option.loss - least.loss:.1f} and needs "
            f"{size_text(least.projected_bytes)}"
        )
    return (text,)


def _shown(found: Candidate, weighed: Sequence[Candidate]) -> tuple[Option, ...]:
    """Return the options worth showing, the best first: of each B and kind its best, and others."""
    best: dict[tuple[int, bool, bool, bool], Option] = {}
    for candidate in weighed:
        option = candidate.option
        key = (option.n_buckets, option.max_pairs > 0, option.closed_form, option.fits)
        before = best.get(key)
        if before is None or (option.loss, option.seconds) < (before.loss, before.seconds):
            best[key] = option
    others = [
        o for o in best.values() if o is not found.option and (o.fits or not found.model.exact)
    ]
    others.sort(key=lambda o: (not o.fits, o.loss, o.projected_bytes))
    chosen = replace(found.option, chosen=True)
    fitting = [o for o in others if o.fits][: SHOWN - 2]
    return (chosen, *fitting, *[o for o in others if not o.fits][: SHOWN - 1 - len(fitting)])


def _budgets(
    facts: DataFacts,
    asked: Asked,
    allowed: Limits,
    objective: Objective,
    speed: float,
    pilots: Sequence[Pilot],
) -> tuple[Budget, ...]:
    """Return what smaller and larger budgets would bring."""
    found = []
    for factor in FACTORS:
        other = allowed.times(factor)
        weighed = weighed_again(candidates(facts, asked, other, speed), pilots, facts.n_rows)
        best = _best(weighed, objective, asked)
        found.append(Budget(other.budget, None if best is None else best.option))
    return tuple(found)


def _with_hashes(found: Plan, seed: int) -> Plan:
    model, reasons = found.model, list(found.reasons)
    reasons.append(f"{found.optimizer} for {'dense' if found.dense else 'sparse'} rows")
    if found.whitened:
        reasons.append("room to whiten rows")
    if found.weights != "float32":
        reasons.append(f"{found.weights} weights, as asked: half the bytes on the GPU")
    if not model.exact:
        shape = (model.n_classes, model.n_buckets, model.n_repetitions)
        a, b = hashing.draw(seed, *shape)
        model = ModelSpec(
            model.n_classes, model.n_features, model.n_buckets, model.n_repetitions, a, b
        )
        table = hashing.codes(a, b, model.n_classes, model.n_buckets)
        reasons.append(
            f"classes not told apart: {hashing.count_collisions(table):,} pairs "
            f"(bound on the expected number {hashing.collision_bound(*shape):.1g})"
        )
    return replace(found, model=model, reasons=tuple(reasons))
