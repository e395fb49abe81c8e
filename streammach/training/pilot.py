"""Short trainings on samples, within a stated time, that a plan then rests on.

Each is a whole one; transform and learning rate are those that the first one finds.
"""

from __future__ import annotations

import gc
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streammach.backends.registry import choose_device
from streammach.data.store.dataset import Dataset
from streammach.errors import Interrupted, UsageError
from streammach.files.folders import make_folder, scratch, temporary_folder
from streammach.machine import parse_seconds, time_text
from streammach.parts.registry import planned, said_of, weighed_parts
from streammach.planning.choose import plan
from streammach.planning.constraints import Constraints
from streammach.planning.cost import Cost, cost
from streammach.planning.evidence import PilotKey, model_key, pilot_key
from streammach.planning.speed import speed
from streammach.spec.config import RunConfig
from streammach.spec.facts import DataFacts
from streammach.spec.plan import Option, Pilot, Plan
from streammach.spec.training import TrainingOptions
from streammach.training.trainer import Trainer

RIVALS = 4  # models compared; more would leave each a smaller sample
FIRST_SHARE = 0.2  # of the time, for the first sample
SAFE = 0.85  # of the time that is left, for the next
MIN_ROWS = 2000
GROWTH, LEAP = 2.0, 8.0  # a next sample is so many times as large, at least and at most
MAX_HELD_OUT = 10_000
SHAPED = "a pilot chooses buckets and repetitions: leave --buckets, --repetitions and --exact out"


def pilot(
    data: Dataset | str | os.PathLike[str], within: str | float, *,
    constraints: Constraints | None = None, training: TrainingOptions | None = None,
    folder: str | os.PathLike[str] | None = None, told: Callable[[Pilot], None] | None = None,
    **options: Any,
) -> Plan:  # fmt: skip
    """Return a plan that rests on trainings of several models on samples of the rows.

    Compared are the model that would be planned without a pilot and up to three others that could
    be better by what is expected of them and its error: of other buckets, with more, fewer or no
    counts, with a closed form or without.

    Parameters
    ----------
    data : Dataset or path-like
        The store.
    within : str or float
        The time for all of it, such as ``5min``, or seconds.
    constraints : Constraints, optional
        What is fixed of the plan, but B and R; keywords otherwise.
    training : TrainingOptions, optional
        How they are trained; the training itself should have the same.
    folder : path-like, optional
        Where runs are kept meanwhile; the folder for temporary files otherwise.
    told : callable, optional
        Told each training.
    **options
        Those of :func:`streammach.planning.choose.plan`.

    Returns
    -------
    Plan
        The plan, with its ``pilots``; without any where a single model fits.

    Raises
    ------
    UsageError
        If B and R are given, the time is too short, or times on the device are not known.
    Interrupted
        After a signal; nothing is kept.
    BudgetError, DeviceError, DiskError, StoreError
        As for a plan and a training.
    """
    began, allowed = time.monotonic(), parse_seconds(within)
    constraints = Constraints.of(options, "pilot") if constraints is None else constraints
    if constraints.shaped:
        raise UsageError(SHAPED, path="--pilot")
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    pace = speed()
    work = constraints.work(dataset.facts.n_classes, timed=True)
    device, why = choose_device(constraints.device, work)
    constraints = replace(constraints, device=device)
    made = replace(plan(dataset, constraints), device_reason=why)
    rivals = _rivals(made, constraints)
    if len(rivals) < 2:
        return replace(made, reasons=(*made.reasons, "no pilot: a single model fits"))
    found: list[Pilot] = []
    with temporary_folder() if folder is None else scratch(Path(folder) / "pilot") as place:
        make_folder(place)
        run = _Pilots(
            dataset, made, constraints, training=training or TrainingOptions(), folder=place,
            pace=pace,
        )  # fmt: skip
        for one in run.rounds(rivals, began + allowed, allowed):
            found.append(one)
            if told is not None:
                told(one)
    kept = _complete(found)
    took = time_text(time.monotonic() - began)
    samples = " and ".join(f"{n:,}" for n in sorted({one.rows for one in kept}))
    reason = f"pilot of {len(rivals)} models on {samples} rows, {took}"
    chosen = plan(dataset, constraints, pilots=kept)
    return replace(chosen, reasons=(*chosen.reasons, reason), device_reason=why)


def _rivals(made: Plan, constraints: Constraints) -> list[Option]:
    """Return the planned model and the best of other kinds, those first that could be better."""
    best: dict[PilotKey, Option] = {}
    for option in sorted(made.options, key=lambda option: (not option.chosen, option.loss)):
        if constraints.allow(option):
            best.setdefault(pilot_key(option), option)
    ordered = sorted(best.values(), key=lambda o: (not o.chosen, o.loss - o.loss_error))
    return ordered[:RIVALS]


def _complete(found: Sequence[Pilot]) -> tuple[Pilot, ...]:
    last = max(one.rows for one in found)
    second = [one for one in found if one.rows == last]
    if len(second) == 1:  # nothing to compare it with
        return tuple(one for one in found if one.rows < last)
    shapes = {model_key(one) for one in second}
    return tuple(one for one in found if model_key(one) in shapes)


class _Pilots:
    """Trains rivals on samples that grow as the time allows."""

    def __init__(
        self, dataset: Dataset, made: Plan, constraints: Constraints, *, training: TrainingOptions,
        folder: Path, pace: float,
    ) -> None:  # fmt: skip
        self._dataset, self._made, self._training = dataset, made, training
        self._constraints, self._folder, self._pace = constraints, folder, pace
        self._known = False  # whether transform and rate are

    def rounds(self, rivals: Sequence[Option], end: float, allowed: float) -> Iterator[Pilot]:
        """Yield each training: of all rivals on a sample, then on larger ones as time is left."""
        least = self._round(rivals, MIN_ROWS)
        if least > SAFE * allowed:
            raise UsageError(
                f"{time_text(allowed)} are too short: samples of {MIN_ROWS:,} rows are expected to "
                f"take {time_text(least)}",
                path="--pilot",
            )
        rows, slower = max(self._rows(rivals, FIRST_SHARE * allowed), MIN_ROWS), 0.0
        while True:  # on the first sample, with nothing known yet, every rival has its turn
            began, planned = time.monotonic(), 0.0
            for rival in rivals:
                left = SAFE * (end - time.monotonic())
                if slower * self._expected(rival, rows) > max(left, 0.0):
                    return
                planned += self._round([rival], rows)
                yield self._trained(rival, rows)
                if slower:
                    slower = max(slower, (time.monotonic() - began) / planned)
            slower, before = (time.monotonic() - began) / planned, rows
            left = SAFE * (end - time.monotonic())
            rows = min(self._rows(rivals, left / slower), int(LEAP * before))
            if rows < GROWTH * before:
                return

    def _round(self, rivals: Sequence[Option], n_rows: int) -> float:
        search = 0.0 if self._known else self._cost(rivals[0], n_rows).search
        return search + sum(self._expected(one, n_rows) for one in rivals)

    def _rows(self, rivals: Sequence[Option], seconds: float) -> int:
        most = self._dataset.n_rows - self._held_out(self._dataset.n_rows)
        rows = bisect_right(range(most + 1), seconds, key=lambda n: self._round(rivals, n))
        return max(rows - 1, 0)

    def _held_out(self, n_rows: int) -> int:
        """Return the rows held out beside so many: as in the training, or a third of a few."""
        planned = self._made.config.batching.held_out_rows
        return min(planned, MAX_HELD_OUT, max(n_rows // 3, 1))

    def _expected(self, option: Option, n_rows: int) -> float:
        found = self._cost(option, n_rows)
        return found.seconds - found.search

    def _cost(self, option: Option, n_rows: int) -> Cost:
        held_out = self._held_out(n_rows)
        facts = self._made.facts.first(n_rows + held_out)
        return cost(facts, self._sampled(option.config, facts, held_out), self._pace)

    def _sampled(self, config: RunConfig, facts: DataFacts, held_out: int) -> RunConfig:
        """Return a configuration for a sample: fewer held-out rows, parts of the same share."""
        whole = self._made.facts
        parts = []
        for part in planned(config):
            for_all = config.part(part.name)
            assert for_all is not None
            parts.append(part.sampled(for_all, whole, facts))
        batching = replace(config.batching, held_out_rows=held_out)
        return replace(config, batching=batching, parts=tuple(parts))

    def _trained(self, option: Option, n_rows: int) -> Pilot:
        held_out = self._held_out(n_rows)
        sample = self._dataset.first(n_rows + held_out)
        shape = option.shape
        made = plan(sample, replace(
            self._constraints, n_buckets=shape.n_buckets if shape.n_repetitions else None,
            n_repetitions=shape.n_repetitions,
            parts=dict(said_of(option.config)), time=None, latency=None,
        ))  # fmt: skip
        wanted = self._sampled(option.config, sample.facts, held_out)
        parts = tuple(
            replace(part, size=min(part.size, wanted.size_of(part.name)))
            for part in made.config.parts
        )
        batching = replace(
            made.config.batching, held_out_rows=held_out,
            held_out_nnz=self._made.config.batching.held_out_nnz,
        )  # fmt: skip
        made = replace(made, config=replace(made.config, batching=batching, parts=parts))
        gc.collect()  # weights of the one before
        options = replace(self._training, seed=self._constraints.seed, model_size="full")
        with scratch(self._folder / "run") as out:
            try:
                run = Trainer(made, options).fit(sample, out, resume=True)
            except Interrupted as error:
                hint = "The training has not begun; the same command starts the pilot anew."
                raise Interrupted("interrupted in the pilot", hint=hint) from error
        best = run.result.validation[run.result.estimator]
        spec = run.settings.training
        if spec.epochs:
            self._training = replace(
                self._training, learning_rate=spec.learning_rate, transform=spec.transform
            )
            self._known = True
        return Pilot(
            shape=shape, parts=weighed_parts(option.config), rows=n_rows, held_out=held_out,
            accuracy=best.accuracy, top_5_accuracy=best.top_5_accuracy, seconds=run.result.seconds,
        )  # fmt: skip
