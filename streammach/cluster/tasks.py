"""The tasks of a run: submitted, watched, cancelled."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streammach.cluster.part_task import PartDone, PartTask, train_part
from streammach.cluster.workers import Workers, part_bytes
from streammach.errors import Interrupted, StreammachError, clean
from streammach.files.workplaces import GOES_ON, LOCK
from streammach.machine import size_text
from streammach.training.run_part import PartNumber, RunPart

if TYPE_CHECKING:
    from distributed import Client, Future

SAVE_SECONDS = 30.0  # in which workers have left the parts' folders, if they are not lost
AGAIN_SECONDS = 0.1
WATCH_SECONDS = 0.5  # between two looks at the parts' folders


class Tasks:
    """A task for each part of a run.

    Parameters
    ----------
    client : Client
        The connection to the cluster.
    workers : Workers
        Those that it had in the beginning.
    first : PartTask
        The first part, but with the folder that holds all parts.
    tell : callable
        Given a line when a part begins, ends an epoch or is done.
    """

    def __init__(
        self, client: Client, workers: Workers, first: PartTask, tell: Callable[[str], None]
    ) -> None:
        self._client, self._workers, self._first, self._tell = client, workers, first, tell
        self._n = first.number.of
        self._paths = [Path(first.folder) / f"part-{k}" for k in range(1, self._n + 1)]
        self._futures: list[Future] = []
        self._epochs: dict[int, int] = {}  # that were told, by part
        self._done: set[int] = set()

    def run(self) -> list[Path]:
        """Train all parts; return their folders. Tasks are cancelled where that fails.

        Raises
        ------
        Interrupted
            After a signal; all can be gone on with.
        StreammachError
            What a part raised, or that workers or the scheduler were lost.
        """
        try:
            self._submit(1, self._workers.able(self._first.plan.projected_bytes))
            while len(self._done) < self._n:
                if len(self._futures) < self._n and self._decided():
                    self._submit_others()
                self._wait()
                self._look()
        except KeyboardInterrupt:
            raise Interrupted("interrupted while parts were trained", hint=GOES_ON) from None
        except StreammachError:
            raise
        except (OSError, CancelledError) as error:  # of the connection, or of all that was asked
            raise _lost() from error
        finally:
            self._cancel()
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
        key = f"part-{k}-{uuid.uuid4().hex}"  # so that a dashboard shows which
        self._futures.append(
            self._client.submit(train_part, task, pure=False, workers=able, key=key)
        )
        first, last = task.number.repetitions(task.plan.n_repetitions)
        of = task.plan.n_repetitions
        self._tell(f"part {task.number}: repetitions {first + 1} to {last} of {of}")

    def _decided(self) -> bool:
        """Return whether the first part has decided what the others need."""
        part = _opened(self._paths[0])
        return part is not None and part.settings is not None

    def _wait(self) -> None:
        """Wait until a part ends, or it is time to look."""
        from distributed import wait

        open_ones = [one for k, one in enumerate(self._futures) if k not in self._done]
        with suppress(TimeoutError):
            wait(open_ones, timeout=WATCH_SECONDS, return_when="FIRST_COMPLETED")

    def _look(self) -> None:
        """Tell how far the parts are; raise what one raised."""
        for k, future in enumerate(self._futures):
            if k in self._done:
                continue
            self._tell_epochs(k)
            if future.status == "finished":
                self._done.add(k)
                self._tell_done(k, future.result())
            elif future.status == "error":
                raise self._error(k, future.exception())
            elif future.status in ("cancelled", "lost"):
                raise _lost()

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

    def _error(self, k: int, error: BaseException | None) -> StreammachError:
        """Return what a part raised as an error of ours."""
        from distributed.scheduler import KilledWorker

        part = f"part {k + 1}/{self._n}"
        if isinstance(error, StreammachError):
            return error
        if isinstance(error, KilledWorker):
            return StreammachError(
                f"{part}: the workers that trained it were lost one after another",
                hint=f"Is their memory short? {GOES_ON}",
            )
        why = clean(f"{type(error).__name__}: {error}", 200)
        return StreammachError(f"{part} failed on a worker ({why})", hint=GOES_ON)

    def _cancel(self) -> None:
        """Give up all tasks; wait while workers save what is not done."""
        if not self._futures or self._client.status != "running":
            return
        with suppress(Exception):  # the scheduler may go at any time
            self._client.cancel(self._futures, force=True)
        until = time.monotonic() + SAVE_SECONDS
        while time.monotonic() < until and any((path / LOCK).exists() for path in self._paths):
            time.sleep(AGAIN_SECONDS)


def _lost() -> StreammachError:
    return StreammachError("the cluster's scheduler was lost, or cancelled the tasks", hint=GOES_ON)


def _opened(path: Path) -> RunPart | None:
    """Return a part as it is on disk; None where it is not begun, or a file is just written."""
    try:
        return RunPart.open(path)
    except StreammachError:
        return None
