"""The tasks of a run: submitted, watched, cancelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streammach.cluster.at_work import AtWork
from streammach.cluster.part_task import PartDone, PartTask, train_part
from streammach.cluster.workers import Workers, part_bytes
from streammach.errors import Interrupted, StreammachError, clean
from streammach.files.workplaces import GOES_ON
from streammach.machine import size_text
from streammach.training.run_part import PartNumber, RunPart

if TYPE_CHECKING:
    from distributed import Client


class Tasks:
    """A task for each part of a run."""

    def __init__(
        self, client: Client, workers: Workers, first: PartTask, tell: Callable[[str], None]
    ) -> None:
        self._workers, self._first, self._tell = workers, first, tell
        self._n = first.number.of
        self._paths = [Path(first.folder) / f"part-{k}" for k in range(1, self._n + 1)]
        self._tasks = AtWork(client, GOES_ON)
        self._given = 0
        self._epochs: dict[int, int] = {}  # that were told, by part
        self._done: set[int] = set()

    def run(self) -> list[Path]:
        """Train all parts; return their folders. Tasks are cancelled where that fails."""
        try:
            with self._tasks.watched():
                self._submit(1, self._workers.able(self._first.plan.projected_bytes))
                while len(self._done) < self._n:
                    if self._given < self._n and self._decided():
                        self._submit_others()
                    self._look(dict(self._tasks.ended()))
        except KeyboardInterrupt:
            raise Interrupted("interrupted while parts were trained", hint=GOES_ON) from None
        finally:
            self._tasks.leave()
        return list(self._paths)

    def _submit_others(self) -> None:
        """Submit all parts but the first, which has decided."""
        task = self._first
        able = self._workers.able(part_bytes(task.plan, PartNumber(self._n, self._n), task.options))
        for k in range(2, self._n + 1):
            self._submit(k, able)

    def _submit(self, k: int, able: list[str] | None) -> None:
        """Submit a part, to some of the workers or to all."""
        task = replace(
            self._first, number=PartNumber(k, self._n), folder=str(self._paths[k - 1]),
            settings=str(self._paths[0]) if k > 1 else None,
        )  # fmt: skip
        self._tasks.give(k - 1, f"part {task.number}", train_part, task, able=able)
        self._given += 1
        first, last = task.number.repetitions(task.plan.n_repetitions)
        of = task.plan.n_repetitions
        self._tell(f"part {task.number}: repetitions {first + 1} to {last} of {of}")

    def _decided(self) -> bool:
        """Return whether the first part has decided what the others need."""
        part = _opened(self._paths[0])
        return part is not None and part.settings is not None

    def _look(self, ended: dict[int, PartDone | StreammachError]) -> None:
        """Tell how far the parts are, of which some ended; raise what one raised."""
        for k in range(self._given):
            if k not in self._done:
                self._tell_epochs(k)
        for k, found in ended.items():
            if isinstance(found, StreammachError):
                raise found
            self._done.add(k)
            self._tell_done(k, found)

    def _tell_epochs(self, k: int) -> None:
        """Tell the epochs of a part that have ended since it was last asked."""
        part = _opened(self._paths[k])
        if part is None or part.settings is None:
            return
        n, epochs = len(part.checkpoints.ends()), part.settings.training.epochs
        if n > self._epochs.get(k, 0):
            self._epochs[k] = n
            self._tell(f"part {part.facts.part}: epoch {n} of {epochs}")

    def _tell_done(self, k: int, done: PartDone) -> None:
        """Tell who trained a part to its end."""
        self._tell(
            f"part {k + 1}/{self._n}: done by {clean(done.worker)}, "
            f"peak {size_text(done.peak_bytes)}"
        )


def _opened(path: Path) -> RunPart | None:
    """Return a part as it is on disk; None where it is not begun, or a file is just written."""
    try:
        return RunPart.open(path)
    except StreammachError:
        return None
