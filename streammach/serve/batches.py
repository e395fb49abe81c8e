"""Requests to a model wait in a queue; all that wait are predicted together, and counted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import psutil
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from streammach.serve.bodies import Question
from streammach.serve.limits import Refused, ServiceLimits, mistake, too_late
from streammach.serve.messages import Answer
from streammach.serve.models import Served

WAIT_SECONDS = 0.01
BATCHES = (1, 2, 4, 8, 16, 32, 64, 256, 1024)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
MODEL = ("model",)
T = TypeVar("T")


class ServiceMetrics:
    """What is counted of a service and of each of its models."""

    def __init__(self) -> None:
        # Not the time since when each is counted.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "streammach", "registry": self._registry}
        times = {"buckets": SECONDS, **own}
        self.requests = Counter(
            "requests_total", "Requests by route and status.", ("route", "status"), **own
        )
        self.request_seconds = Histogram(
            "request_seconds", "Time from a request for predictions to its answer.", **times
        )
        self.rows = Counter("rows_total", "Rows that were predicted.", MODEL, **own)
        self.unknown = Counter(
            "unknown_features_total", "Features of these that the model has not.", MODEL, **own
        )
        self.batch_rows = Histogram(
            "batch_rows", "Rows that were predicted together.", MODEL, buckets=BATCHES, **own
        )
        self.batch_seconds = Histogram(
            "batch_seconds", "Time of a prediction of rows together.", MODEL, **times
        )
        self.reloads = Counter(
            "reloads_total", "Times that a model was loaded again, by result.",
            ("model", "result"), **own,
        )  # fmt: skip
        self.waiting = Gauge("queue_rows", "Rows that wait.", MODEL, **own)
        self.versions = Gauge(
            "model_info", "The version of each model.", ("model", "version"), **own
        )
        memory = Gauge("resident_memory_bytes", "Memory that the process holds.", **own)
        memory.set_function(lambda: psutil.Process().memory_info().rss)

    def model(self, name: str, waiting: Callable[[], float]) -> Callable[[int, float, int], None]:
        """Count for another model, from 0; return what counts rows that were predicted together.

        It takes their number, the seconds that they took, and their unknown features.
        """
        self.waiting.labels(name).set_function(waiting)
        for result in ("done", "failed"):
            self.reloads.labels(name, result)
        rows, unknown = self.rows.labels(name), self.unknown.labels(name)
        sizes, times = self.batch_rows.labels(name), self.batch_seconds.labels(name)

        def count(n_rows: int, seconds: float, n_unknown: int) -> None:
            rows.inc(n_rows)
            unknown.inc(n_unknown)
            sizes.observe(n_rows)
            times.observe(seconds)

        return count

    def text(self) -> bytes:
        """Return all of it."""
        return generate_latest(self._registry)


class Worker:
    """A thread that does one thing after the other; no end of the process waits for it."""

    def __init__(self, name: str) -> None:
        self._inbox, self._ended = SimpleQueue[Callable[[], object]](), False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        """Do what is given; nothing here holds it, for its memory is taken while it is."""
        while not self._ended:
            self._inbox.get()()

    def give(self, work: Callable[[], object]) -> None:
        """Let it do something, that raises nothing, after all else."""
        self._inbox.put(work)

    async def do(self, work: Callable[[], T]) -> T:
        """Let it do something after all else; return what that returns."""
        future = Future[T]()
        future.set_running_or_notify_cancel()  # nobody can cancel it from now on

        def run() -> None:
            try:
                future.set_result(work())
            except Exception as error:  # raised again where it is awaited
                future.set_exception(error)

        self.give(run)
        return await asyncio.wrap_future(future)

    def close(self, seconds: float) -> bool:
        """Let it end after all else; return whether it did in time."""
        self.give(self._end)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _end(self) -> None:
        self._ended = True


@dataclass(eq=False)
class QueuedRequest:
    """A request in the queue of a model."""

    question: Question
    kind: tuple[object, ...]  # how its rows were read
    future: asyncio.Future[Answer]


Result = tuple[QueuedRequest, Answer | Refused]


class ModelQueue:
    """The queue of a model: one event loop fills it, one thread predicts what it holds."""

    def __init__(self, served: Served, limits: ServiceLimits, metrics: ServiceMetrics) -> None:
        self.served, self._limits = served, limits
        self.waiting = 0  # rows
        self._requests: deque[QueuedRequest] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None  # while the thread predicts
        self._closing = False
        self._worker = Worker(f"serve-{served.name}")
        self._count = metrics.model(served.name, lambda: self.waiting)

    async def ask(self, question: Question, kind: tuple[object, ...]) -> Answer:
        """Return the answer to a question, or raise Refused."""
        n_rows, queue, seconds = len(question.rows), self._limits.queue, self._limits.deadline
        if self._closing:
            raise Refused(503, "the service is stopping", retry=1)
        if self.waiting + n_rows > queue:
            what = f"{self.waiting:,} rows wait, {queue:,} may"
            raise Refused(429, what, limit="queue", retry=1)
        self.waiting += n_rows
        loop = asyncio.get_running_loop()
        queued = QueuedRequest(question, kind, loop.create_future())
        self._requests.append(queued)
        if self._loop is None:
            self._hand_over(loop)
        try:
            return await asyncio.wait_for(queued.future, seconds)
        except TimeoutError:
            raise too_late(seconds) from None

    def swap(self, served: Served) -> None:
        """Let another model answer all that is not yet being predicted; the old one is closed."""
        self.served, former = served, self.served
        self._worker.give(former.close)  # after what it predicts now

    def close(self, seconds: float) -> bool:
        """Answer what waits, stop; return whether that was done in time."""
        self._closing, until = True, time.monotonic() + seconds
        while self._loop and not self._loop.is_closed() and time.monotonic() < until:
            time.sleep(WAIT_SECONDS)
        self._worker.give(self.served.close)
        return self._worker.close(max(until - time.monotonic(), 0))

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the thread predict some of what waits, if anything does."""
        self._loop = loop if self._requests else None
        if self._loop is not None:
            self._worker.give(partial(self._predict, self._batch(), loop))

    def _predict(self, requests: list[QueuedRequest], loop: asyncio.AbstractEventLoop) -> None:
        results = self._results(requests)
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(self._tell, results, loop)

    def _tell(self, results: Sequence[Result], loop: asyncio.AbstractEventLoop) -> None:
        """Hand results to those who still wait for them, and what waits to the thread."""
        self._hand_over(loop)
        for queued, result in results:
            if queued.future.done():
                continue
            if isinstance(result, Refused):
                queued.future.set_exception(result)
            else:
                queued.future.set_result(result)

    def _batch(self) -> list[QueuedRequest]:
        """Take requests of rows for one batch, one request at least."""
        requests, rows = list[QueuedRequest](), 0
        while self._requests:
            more = len(self._requests[0].question.rows)
            if requests and rows + more > self._limits.batch:
                break
            requests.append(self._requests.popleft())
            rows += more
        self.waiting -= rows
        return requests

    def _results(self, requests: Sequence[QueuedRequest]) -> list[Result]:
        """Predict some requests together; return what each gets, in any order."""
        results, alike = list[Result](), dict[object, list[QueuedRequest]]()
        served = self.served
        for queued in requests:
            if queued.kind != served.reader.kind:
                what = "the model was replaced by one that reads other rows"
                results.append((queued, Refused(503, what, retry=1)))
            elif not queued.future.done():
                alike.setdefault(queued.question.together, []).append(queued)
        for some in alike.values():
            answers = self._together(served, [queued.question for queued in some])
            results += zip(some, answers, strict=True)
        return results

    def _together(self, served: Served, questions: list[Question]) -> list[Answer | Refused]:
        """Return the answers to requests; where one is refused, each is predicted for itself."""
        began = time.perf_counter()
        try:
            predictions = served.predicted(questions)
        except Exception as error:
            if len(questions) == 1:
                return [error if isinstance(error, Refused) else mistake(error)]
            return [one for question in questions for one in self._together(served, [question])]
        seconds, rows = time.perf_counter() - began, [row for one in predictions for row in one]
        self._count(len(rows), seconds, sum(row.unknown for row in rows))
        return [Answer(served.name, served.version, one) for one in predictions]
