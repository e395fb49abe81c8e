"""Turns a budget of bytes into a model that fits it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streammach import hashing
from streammach.backends.registry import BACKENDS, fallback, on_device
from streammach.options.byte_lines import Limits, Line, bytes_in
from streammach.options.facts import DataFacts
from streammach.options.model_spec import ModelShape, ModelSpec
from streammach.options.plan import Option, Plan
from streammach.parts.registry import weighed_parts
from streammach.planning.candidates import MAX_HELD_OUT_ROWS, TIE, Candidate, Weighing, candidates
from streammach.planning.constraints import Constraints
from streammach.planning.cost import moved_bytes
from streammach.planning.data_shape import Shape
from streammach.planning.ledger import ledger
from streammach.planning.speed import known_speed
from streammach.store.dataset import Dataset
from streammach.store.label_facts import LabelFacts
from streammach.system.errors import BudgetError
from streammach.system.jit import CACHE_DIR, TRAINING_COMPILER_BYTES
from streammach.system.machine import (  # fmt: skip
    TRAINING_MEMORY,
    UNLIMITED,
    MemoryLimit,
    advise_memory,
    memory_limit,
    percent_text,
    size_text,
    time_text,
    training_budget,
)

SHOWN = 9
THREADS = 8  # of another machine, where they are not named
NOTHING_DONE = "Nothing was allocated"
# What takes less for a line of a ledger, by the field of constraints that made the line so large.
SMALLER = {
    "weights": {"n_repetitions": "fewer --repetitions", "exact": "--buckets and --repetitions"},
    "optimizer": {"optimizer": "other optimizers (--optimizer)"},
    "batches": {"batch_size": "smaller batches (--batch-size)"},
}


def plan(
    data: Dataset | DataFacts | Shape | str | os.PathLike[str],
    constraints: Constraints | None = None, **options: Any,
) -> Plan:  # fmt: skip
    """Choose a model and batch for a store that fit a budget, and account for every byte.

    Weighed are a bucket for every class, counts without hashed models, and B of 8 to 1,024 with R
    up to 4,096 columns B*R that tell all classes apart with probability 0.999; with counts of all
    pairs beside them, of a half, a quarter or an eighth, or without (sparse rows); exact weights
    with a closed form or without (dense rows). Where all features leave no room for columns that
    pay, hashed models of the most frequent ones are weighed, too. With `n_buckets` and
    `n_repetitions` that model is taken, if the budget allows it.

    Parameters
    ----------
    data : Dataset, DataFacts, Shape or path-like
        The store; or sizes of rows that are not here. This, or a `card`, makes the plan one for
        another machine, which nothing is trained by: 8 `threads`, the whole card or 12 GB.
    constraints : Constraints, optional
        What is fixed; keywords otherwise.
    **options
        The attributes of :class:`streammach.planning.constraints.Constraints`.

    Returns
    -------
    Plan
        The model with its hashes, how it is trained, and the ledger of every byte.

    Raises
    ------
    UsageError
        If the options do not go together.
    BudgetError
        If nothing fits; the message names the largest terms.
    DeviceError
        If the device cannot be used, or not for this shape.
    """
    constraints = Constraints.of(options, "plan") if constraints is None else constraints
    facts = _facts(data)
    elsewhere = not facts.digest or constraints.card is not None
    device = constraints.device
    if elsewhere and device == "auto":
        device = fallback() if constraints.card is None else next(iter(BACKENDS))
    weighing, weighed, found, why_device = on_device(
        device, replace(constraints.work(facts.n_classes), card=constraints.card),
        partial(_weigh_all, facts, constraints, elsewhere),
    )  # fmt: skip
    config = found.option.config
    model, more = _with_hashes(config.shape, constraints.seed)
    reasons = _why(found, weighed, constraints, weighing.limits.spare)
    reasons = (*_advice(found, weighing, elsewhere=elsewhere), *reasons, *found.reasons)
    if model.cut:
        share = f"{percent_text(facts.share(model.n_hashed_features))} of all values"
        asked = ", as asked" if constraints.hashed_features else ""
        n = f"{model.n_hashed_features:,} of {model.n_features:,}"
        reasons += (f"hashed models know {n} features, the most frequent ones: {share}{asked}",)
    if not model.unhashed:
        reasons += (f"{config.optimizer} for {'dense' if config.dense else 'sparse'} rows",)
    if config.dense and weighing.limits.device:
        rows, moved = config.batching.batch_size, size_text(moved_bytes(config))
        reasons += (f"{rows:,} rows a batch: a step moves {moved} of tables, however few rows",)
    if config.placement.weights != "float32":
        title = BACKENDS[config.placement.device].title
        reasons += (f"{config.placement.weights} weights, as asked: half the bytes on the {title}",)
    if config.placement.tf32:
        why = "as asked" if constraints.tf32 else "which cost no accuracy where it was measured"
        reasons += (f"products in TF32, {why}: 10 bits of each factor's fraction",)
    return Plan(
        facts=facts, model=model, config=config, ledger=found.lines,
        limits=replace(weighing.limits, spare=0),
        reasons=(*reasons, *more), device_reason=why_device,
        expected=replace(found.option, chosen=True), options=_options_to_show(found, weighed),
    )  # fmt: skip


def _weigh_all(
    facts: DataFacts, constraints: Constraints, elsewhere: bool, device: str, why: str
) -> tuple[Weighing, list[Candidate], Candidate, str]:
    host, speed = memory_limit(), known_speed()
    if elsewhere:
        host, speed = MemoryLimit(UNLIMITED, "another machine"), 1.0
        usual = BACKENDS[device].of(constraints.card).memory() or TRAINING_MEMORY[0] * 10**9
        memory = None if constraints.exact else constraints.memory or usual
        constraints = replace(constraints, threads=constraints.threads or THREADS, memory=memory)
    weighing = Weighing(
        facts=facts, constraints=constraints, device=device, speed=speed,
        limits=limits(device, constraints, host),
    )  # fmt: skip
    weighing, weighed = _roomy(weighing)
    found = _best(weighed, constraints)
    if found is None:
        raise _budget_error(weighing, weighed)
    roomy = _with_best(found, weighing)
    return weighing, [roomy if one is found else one for one in weighed], roomy, why


def _with_best(found: Candidate, weighing: Weighing) -> Candidate:
    """Let the best epoch stay on a device that has room for it: else it goes to the host."""
    config, limits = found.option.config, weighing.limits
    if not limits.device or config.placement.waves > 1:
        return found
    config = replace(config, placement=replace(config.placement, best_stays=True))
    lines = ledger(weighing.facts, config)
    if limits.overshoot(lines):
        return found
    n_bytes = bytes_in(lines, limits.where)
    return replace(
        found, lines=lines, option=replace(found.option, config=config, projected_bytes=n_bytes)
    )


def limits(device: str, constraints: Constraints, host: MemoryLimit) -> Limits:
    """Return what may be used of the host's and a device's memory, and who says so."""
    kind, memory = BACKENDS[device].of(constraints.card), constraints.memory
    own = kind.memory()
    limit = MemoryLimit(own, f"free on the {kind.title}") if own else host
    if memory is not None or not constraints.shaped:
        allowed = training_budget(memory, limit)
        limit = MemoryLimit(allowed.n_bytes, allowed.source)
    if not own:
        return Limits(host=limit.n_bytes, host_source=limit.source)
    return Limits(
        host=host.n_bytes, host_source=host.source,
        device=limit.n_bytes, device_source=limit.source,
    )  # fmt: skip


def _roomy(weighing: Weighing) -> tuple[Weighing, list[Candidate]]:
    """Weigh models beside a compiler, whether kernels are kept or not; without one if none fits."""
    for spare, fewer in itertools.product((TRAINING_COMPILER_BYTES, 0), (False, True)):
        weighing = replace(weighing, limits=replace(weighing.limits, spare=spare))
        found = candidates(weighing, fewer=fewer)
        if any(one.option.fits for one in found):
            break
    return weighing, found


def _facts(data: Dataset | DataFacts | Shape | str | os.PathLike[str]) -> DataFacts:
    if isinstance(data, DataFacts):
        return data
    if isinstance(data, Dataset | Shape):
        return data.facts
    with Dataset.open(data) as dataset:
        return LabelFacts().view(dataset).facts


def rows_held_out(path: str | os.PathLike[str]) -> int:
    """Return how many rows of a store of held-out rows are used, if they fit."""
    with Dataset.open(path) as dataset:
        return min(dataset.n_rows, MAX_HELD_OUT_ROWS)


def _best(weighed: Sequence[Candidate], constraints: Constraints) -> Candidate | None:
    fitting = [c for c in weighed if constraints.allow(c.option)]
    if not fitting:
        return None
    least = min(c.option.loss for c in fitting)
    good = [c for c in fitting if c.option.loss <= least + TIE]
    return min(good, key=lambda c: (c.option.seconds, c.option.model_bytes))


def _why(
    found: Candidate, weighed: Sequence[Candidate], constraints: Constraints, spare: int
) -> tuple[str, ...]:
    option = found.option
    shape = option.shape
    if constraints.shaped:
        if shape.unhashed:
            return ("no hashed models, as asked",)
        if not shape.exact:
            return ("buckets and repetitions as asked",)
        if constraints.n_buckets is None:
            return ("a bucket for every class, as asked",)
        many = f"{constraints.n_buckets:,} buckets are enough for one to each of"
        return (f"{many} {shape.n_classes:,} classes",)
    if shape.exact:
        return ("a bucket for every class fits: MACH, whose classes share some, is not advised",)
    if option.config.linear:
        return ("few classes and not too many rows: no class has to share a bucket",)
    loss = f"{option.loss:z.1f} points (give or take {option.loss_error:z.1f})"
    what = "a model without hashed ones" if shape.unhashed else f"{shape}"
    text = (
        f"{what} is the fastest within {TIE:g} points of the best that fits; {loss} of both "
        "accuracies are lost against a model without limit"
    )
    parts = weighed_parts(option.config)
    wider = [
        c.option for c in weighed
        if not c.option.fits and weighed_parts(c.option.config) == parts
        and c.option.loss < option.loss - TIE
    ]  # fmt: skip
    if wider:
        least = min(wider, key=lambda o: o.projected_bytes)
        text += (
            f"; {least.shape} would gain {option.loss - least.loss:z.1f} and needs "
            f"{size_text(least.projected_bytes + spare)}"
        )
    return (text,)


def _advice(found: Candidate, weighing: Weighing, *, elsewhere: bool) -> tuple[str, ...]:
    """Return what is said first: what is not measured; what is better where no class is hashed."""
    option, cpu, host = found.option, fallback(), replace(weighing.limits, device=0)
    said = ("expected of another machine, not measured",) * elsewhere
    if not option.config.dense or option.shape.exact or not weighing.constraints.open:
        return said
    there = candidates(replace(weighing, device=cpu, limits=host))
    one = min((c.option for c in there if c.option.fits), key=lambda o: o.loss, default=option)
    if not one.shape.exact or one.loss > option.loss - TIE:
        return said
    text = f"a bucket for every class loses {one.loss:z.1f} points, not {option.loss:z.1f}, on the "
    text += f"{BACKENDS[cpu].title} in {time_text(one.seconds)}, {size_text(one.projected_bytes)}"
    return (*said, f"MACH is not advised: {text}")


def _options_to_show(found: Candidate, weighed: Sequence[Candidate]) -> tuple[Option, ...]:
    """Return the options worth showing, the best first: of each B and kind its best, and others."""
    best: dict[tuple[int, tuple[str, ...], bool], Option] = {}
    for option in sorted((c.option for c in weighed), key=lambda o: (o.loss, o.seconds)):
        parts = tuple(part.name for part in weighed_parts(option.config))
        best.setdefault((option.shape.n_buckets, parts, option.fits), option)
    others = [
        o for o in best.values()
        if o is not found.option and (o.fits or not found.option.shape.exact)
    ]  # fmt: skip
    others.sort(key=lambda o: (not o.fits, o.loss, o.projected_bytes))
    chosen = replace(found.option, chosen=True)
    fitting = [o for o in others if o.fits][: SHOWN - 2]
    return (chosen, *fitting, *[o for o in others if not o.fits][: SHOWN - 1 - len(fitting)])


def _with_hashes(shape: ModelShape, seed: int) -> tuple[ModelSpec, tuple[str, ...]]:
    a, b, reasons = tuple[int, ...](), tuple[int, ...](), tuple[str, ...]()
    if not (shape.exact or shape.unhashed):
        sizes = (shape.n_classes, shape.n_buckets, shape.n_repetitions)
        a, b = hashing.draw(seed, *sizes)
        table = hashing.codes(a, b, shape.n_classes, shape.n_buckets)
        reasons = (
            f"classes not told apart: {hashing.count_collisions(table):,} pairs "
            f"(bound on the expected number {hashing.collision_chance(*sizes):z.1g})",
        )
    return ModelSpec(**vars(shape), hash_a=a, hash_b=b), reasons


def _budget_error(weighing: Weighing, weighed: Sequence[Candidate]) -> BudgetError:
    """Return the error of a plan that does not fit."""
    allowed, constraints = weighing.limits, weighing.constraints
    least = min(weighed, key=lambda c: allowed.overshoot(c.lines))
    shape = least.option.shape
    within_memory = [c.option for c in weighed if c.option.fits]
    if within_memory:
        return _too_slow(constraints, within_memory)
    where, n_bytes, source = allowed.first_violation(least.lines)
    terms = [line for line in least.lines if line.where == where][:3]
    named = ", ".join(f"{line.name} {size_text(line.n_bytes)}" for line in terms)
    what = (
        f"{shape} does not fit: it"
        if constraints.shaped
        else f"no plan fits: the smallest ({shape})"
    )
    needed = bytes_in(least.lines, where)
    more = 0 if CACHE_DIR else TRAINING_COMPILER_BYTES  # else kernels are compiled first
    advice = (
        f"use --memory {advise_memory(needed + (where == 'host') * more)} or more"
        if where == allowed.where
        else "free some"
    )
    return BudgetError(
        f"{what} needs {size_text(needed)}: {named}",
        path=f"{size_text(n_bytes)} ({source})",
        hint=f"{NOTHING_DONE}; {_nearest(weighing)}{_smaller(terms, constraints)}{advice}.",
    )


def _smaller(terms: Sequence[Line], constraints: Constraints) -> str:
    """Return what of the user's options takes less for the largest lines."""
    usual = Constraints()
    found = [
        f"{words} take less for {line.name}; or "
        for line in terms
        for option, words in SMALLER.get(line.name, {}).items()
        if getattr(constraints, option) != getattr(usual, option)
    ]
    return found[0] if found else ""


def _too_slow(constraints: Constraints, fitting: Sequence[Option]) -> BudgetError:
    limit = constraints.seconds
    in_time = [o for o in fitting if limit is None or o.seconds <= limit]
    if not in_time:
        fast = min(fitting, key=lambda o: o.seconds)
        what, most, least, name = "no plan takes", limit, fast.seconds, "--time"
    else:
        fast = min(in_time, key=lambda o: o.query_seconds)
        what, name = "no plan answers a query in", "--latency"
        most, least = constraints.query_seconds, fast.query_seconds
    return BudgetError(
        f"{what} {time_text(most or 0.0)} or less: the fastest, {fast.shape}, is "
        f"expected to take {time_text(least)}",
        path=name,
        hint=f"{NOTHING_DONE}; allow more time.",
    )


def _nearest(weighing: Weighing) -> str:
    """Return one or two plans that fit where B and R were asked for, if there are any."""
    constraints = weighing.constraints
    if not constraints.shaped:
        return ""
    free = replace(constraints, n_buckets=None, n_repetitions=None, exact=False)
    roomy = replace(weighing.limits, spare=TRAINING_COMPILER_BYTES)
    found = candidates(replace(weighing, constraints=free, limits=roomy))
    fitting = [c.option for c in found if c.option.fits]
    if not fitting:
        return ""
    same = [o for o in fitting if o.shape.n_buckets == constraints.n_buckets]
    picked = [min(fitting, key=lambda o: o.loss)]
    if same:
        picked.append(max(same, key=lambda o: (
            o.shape.n_repetitions, tuple(part.size for part in weighed_parts(o.config))
        )))  # fmt: skip
    texts = {f"{o.shape} ({size_text(o.projected_bytes)})": None for o in picked}
    return f"these fit: {', '.join(texts)}; or "
