"""Requests to a model wait in a queue; a thread predicts all that wait together."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from streammach.errors import clean
from streammach.progress import tell
from streammach.serve.limits import Limits, Refused
from streammach.serve.messages import Answer, Prediction
from streammach.serve.metrics import ModelMetrics
from streammach.serve.models import Served
from streammach.serve.reading import Question

Result = Answer | Refused


@dataclass(eq=False)
class Job:
    """A request that waits.

    Attributes
    ----------
    question : Question
        What is asked.
    kind : tuple
        How its rows were read.
    until : float
        When it is too late, by the monotonic clock.
    loop, future
        Where its answer is waited for.
    """

    question: Question
    kind: tuple[object, ...]
    until: float
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    future: asyncio.Future[Result] = field(init=False)

    def __post_init__(self) -> None:
        """Make what its answer is waited for with."""
        self.future = self.loop.create_future()

    @property
    def n_rows(self) -> int:
        """Rows of the request."""
        return len(self.question.rows)


class Lane:
    """The queue of a model, and the thread that takes from it."""

    def __init__(self, served: Served, limits: Limits, metrics: ModelMetrics) -> None:
        self.served, self.metrics = served, metrics
        self._limits = limits
        self._jobs: deque[Job] = deque()
        self._rows = 0
        self._next: Served | None = None
        self._closing = False
        self._ready = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"serve-{served.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Rows that wait."""
        return self._rows

    async def ask(self, question: Question, kind: tuple[object, ...]) -> Answer:
        """Return the answer to a question, or raise Refused."""
        seconds = self._limits.deadline
        job = Job(question, kind, time.monotonic() + seconds)
        self._put(job)
        try:
            found = await asyncio.wait_for(job.future, seconds)
        except TimeoutError:
            raise too_late(seconds) from None
        if isinstance(found, Refused):
            raise found
        return found

    def swap(self, served: Served) -> None:
        """Let another model answer all that is not yet being predicted; the old one is closed."""
        with self._ready:
            closed, self._next = self._next, served
            self.served = served
            self._ready.notify()
        if closed is not None:
            closed.close()

    def close(self, seconds: float) -> bool:
        """Answer what waits, stop; return whether that was done in time."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _put(self, job: Job) -> None:
        with self._ready:
            if self._closing:
                raise Refused(503, "the service is stopping", retry=1)
            if self._rows + job.n_rows > self._limits.queue:
                raise Refused(
                    429, f"{self._rows:,} rows wait, {self._limits.queue:,} may", limit="queue",
                    retry=1,
                )  # fmt: skip
            self._rows += job.n_rows
            self._jobs.append(job)
            self._ready.notify()

    def _work(self) -> None:
        """Predict until closed."""
        served = self.served
        while True:
            jobs, newer = self._taken()
            if newer is not None:
                served.close()
                served = newer
            if jobs:
                self._answer(served, jobs)
                del jobs  # memory is taken for them while they are known
            elif newer is None:
                served.close()
                return

    def _taken(self) -> tuple[list[Job], Served | None]:
        """Wait for requests or another model; return both, none of either at the end."""
        with self._ready:
            while not (self._jobs or self._closing or self._next):
                self._ready.wait()
            jobs, rows = list[Job](), 0
            while self._jobs and (not jobs or rows + self._jobs[0].n_rows <= self._limits.batch):
                jobs.append(self._jobs.popleft())
                rows += jobs[-1].n_rows
            self._rows -= rows
            newer, self._next = self._next, None
        return jobs, newer

    def _answer(self, served: Served, jobs: list[Job]) -> None:
        """Predict some requests together, and tell each its answer."""
        results: list[tuple[Job, Result]] = []
        now, kind = time.monotonic(), served.reader.kind
        alike: dict[object, list[Job]] = {}
        for job in jobs:
            if now > job.until or job.future.cancelled():
                results.append((job, too_late(self._limits.deadline)))
            elif job.kind is not kind and job.kind != kind:
                results.append((job, replaced()))
            else:
                alike.setdefault(job.question.together, []).append(job)
        for some in alike.values():
            results += zip(some, self._together(served, some), strict=True)
        _tell(results)

    def _together(self, served: Served, jobs: Sequence[Job]) -> list[Result]:
        """Return the answers to requests; where one is refused, each is predicted for itself."""
        questions = [job.question for job in jobs]
        begun = time.perf_counter()
        try:
            found = served.predicted(questions)
        except Refused as error:
            if len(jobs) == 1:
                return [error]
            return [one for job in jobs for one in self._together(served, [job])]
        except Exception as error:  # a mistake of ours, that is not the end of the service
            tell(f"streammach: error: {type(error).__name__}: {clean(error, 200)}")
            if len(jobs) == 1:
                return [Refused(500, f"a mistake of streammach's: {type(error).__name__}")]
            return [one for job in jobs for one in self._together(served, [job])]
        self.metrics.batch(
            sum(len(q.rows) for q in questions), time.perf_counter() - begun, _unknown(found)
        )
        return [Answer(served.name, served.version, one) for one in found]


def _unknown(found: list[list[Prediction]]) -> int:
    return sum(row.unknown for rows in found for row in rows)


def _tell(results: Sequence[tuple[Job, Result]]) -> None:
    """Hand results to where they are waited for."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Job, Result]]] = {}
    for job, result in results:
        loops.setdefault(job.loop, []).append((job, result))
    for loop, some in loops.items():
        with suppress(RuntimeError):  # closed: nobody waits
            loop.call_soon_threadsafe(_set, some)


def _set(results: Sequence[tuple[Job, Result]]) -> None:
    for job, result in results:
        if not job.future.done():
            job.future.set_result(result)


def too_late(seconds: float) -> Refused:
    """Return what is said of a request that waited too long."""
    return Refused(503, f"there was no answer within {seconds:g} s", limit="deadline", retry=1)


def replaced() -> Refused:
    """Return what is said of a request whose rows another model would read in another way."""
    return Refused(503, "the model was replaced by one that reads other rows", retry=1)
