"""The models of a service: loaded together, asked through a queue each, and counted."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from streammach.frontends.serve.messages import About, Answer, PredictRequest, Refused
from streammach.frontends.serve.models import Served, load_model
from streammach.frontends.serve.options import ServeOptions
from streammach.frontends.serve.request_rows import MIN_REQUEST_BYTES, RequestMemory
from streammach.system.errors import ModelError, StreammachError, UsageError, clean
from streammach.system.machine import budget
from streammach.system.progress import tell

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAMING = "A name has letters, digits, dots, dashes and underscores: NAME=RUN."
BATCHES = (1, 2, 4, 8, 16, 32, 64, 256, 1024)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


def name_folders(runs: Sequence[str]) -> dict[str, Path]:
    """Return folders by the names of their models, or raise UsageError."""
    found: dict[str, Path] = {}
    for run in runs:
        name, equals, folder = run.partition("=")
        if not equals or Path(run).exists():
            name, folder = Path(run).resolve().name, run
        if not NAME.fullmatch(name):
            raise UsageError(f"'{clean(name, 60)}' cannot be the name of a model", hint=NAMING)
        if name in found:
            raise UsageError(f"two models are called '{name}'", hint=NAMING)
        found[name] = Path(folder)
    return found


class ServiceMetrics:
    """What is counted of a service and of each of its models, for Prometheus."""

    def __init__(self) -> None:
        # Not the time since when each is counted.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "streammach", "registry": self.registry}
        of_model = {"labelnames": ("model",), **own}
        self.requests = Counter("requests_total", "Requests.", ("route", "status"), **own)
        took = "Time from a request for predictions to its answer."
        self.request_seconds = Histogram("request_seconds", took, buckets=SECONDS, **own)
        together = "Rows that were predicted together."
        self.batch_rows = Histogram("batch_rows", together, buckets=BATCHES, **of_model)
        again = "Times that a model was loaded again."
        self.reloads = Counter("reloads_total", again, ("model", "result"), **own)
        self.waiting = Gauge("queue_rows", "Rows that wait.", **of_model)
        memory = Gauge("resident_memory_bytes", "Memory that the process holds.", **own)
        memory.set_function(lambda: psutil.Process().memory_info().rss)


@dataclass(eq=False)
class QueuedRequest:
    """A request in the queue of a model."""

    request: PredictRequest
    answer: asyncio.Future[Answer | Exception]


class ModelQueue:
    """The queue of a model: an event loop fills it, one thread predicts what waits."""

    def __init__(self, served: Served, options: ServeOptions, metrics: ServiceMetrics) -> None:
        self.served, self._options, self._metrics = served, options, metrics
        self.n_rows = 0  # that wait
        self._requests: deque[QueuedRequest] = deque()
        self._thread = ThreadPoolExecutor(1, f"serve-{served.name}")
        self._task: asyncio.Task[None] | None = None  # answers all that wait
        metrics.waiting.labels(served.name).set_function(lambda: self.n_rows)
        for result in ("done", "failed"):  # from 0
            metrics.reloads.labels(served.name, result)

    async def predict(self, request: PredictRequest) -> Answer:
        """Return the answer to a request, or raise Refused."""
        n_rows, most, seconds = len(request.rows), self._options.queue, self._options.deadline
        if self.n_rows + n_rows > most:
            raise Refused(429, f"{self.n_rows:,} rows wait, {most:,} may", limit="queue", retry=1)
        self.n_rows += n_rows
        queued = QueuedRequest(request, asyncio.get_running_loop().create_future())
        self._requests.append(queued)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._answer_all())
        try:
            answer = await asyncio.wait_for(queued.answer, seconds)
        except TimeoutError:
            raise Refused(503, f"no answer in {seconds:g} s", limit="deadline", retry=1) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def swap(self, served: Served) -> None:
        """Let another model answer all that is not yet being predicted; the old one is closed."""
        self.served, former = served, self.served
        self._thread.submit(former.close)  # after what it predicts now

    def close(self) -> None:
        """Stop the thread, and close the model."""
        self._thread.shutdown(cancel_futures=True)
        self.served.close()

    async def _answer_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._requests:
            batch = [one for one in self._take_batch() if not one.answer.done()]
            requests = [one.request for one in batch]
            answers = await loop.run_in_executor(self._thread, self._predict, requests)
            for queued, answer in zip(batch, answers, strict=True):
                if not queued.answer.done():  # somebody still waits
                    queued.answer.set_result(answer)

    def _take_batch(self) -> list[QueuedRequest]:
        """Take a request, and those behind it whose rows can be predicted together with its own."""
        batch = [self._requests.popleft()]
        first = batch[0].request
        n_rows, alone = len(first.rows), (first.only, first.never) != (None, None)
        while self._requests and not alone:
            request = self._requests[0].request
            n = n_rows + len(request.rows)
            if n > self._options.batch or replace(request, rows=[]) != replace(first, rows=[]):
                break
            batch.append(self._requests.popleft())
            n_rows = n
        self.n_rows -= n_rows
        return batch

    def _predict(self, requests: Sequence[PredictRequest]) -> list[Answer | Exception]:
        """Return the answers to requests; where one is refused, each is predicted for itself."""
        served, rows = self.served, [row for one in requests for row in one.rows]
        try:
            predictions = served.predict(requests[0], rows) if rows else []
        except Exception as error:
            alone = len(requests) == 1
            return [error] if alone else [self._predict([one])[0] for one in requests]
        self._metrics.batch_rows.labels(served.name).observe(len(rows))
        own = iter(predictions)
        return [
            Answer(served.name, served.version, [*islice(own, len(one.rows))]) for one in requests
        ]


class Service:
    """Models that answer."""

    def __init__(self, folders: Mapping[str, Path], options: ServeOptions) -> None:
        self.folders, self.options, self.stopping = dict(folders), options, False
        self.metrics, self.memory = ServiceMetrics(), RequestMemory()
        self.queues: dict[str, ModelQueue] = {}
        self.loading = ThreadPoolExecutor(1, "serve-loading")  # one model at a time again
        try:
            for name in self.folders:
                self.queues[name] = ModelQueue(self._load(name), options, self.metrics)
        except BaseException:
            self.close()
            raise
        self._leave_memory()

    def _leave_memory(self) -> None:
        """Leave to requests what models do not take."""
        served = [queue.served for queue in self.queues.values()]
        taken = served[0].code_bytes + sum(one.n_bytes for one in served)
        self.memory.most = max(budget(self.options.memory).n_bytes - taken, MIN_REQUEST_BYTES)
        self.memory.reserved = 0

    def _load(self, name: str, former: Served | None = None) -> Served:
        """Return a model that fits beside all others, and can take the place of the former one."""
        folder, others = self.folders[name], sum(one.served.n_bytes for one in self.queues.values())
        served = load_model(name, folder, others, self.options, self.memory)
        if former is not None and not served.about.reads_rows_of(former.about):
            served.close()
            hint = "Serve it under a name of its own, or start the service anew."
            raise ModelError("it reads other rows than the former model", path=folder, hint=hint)
        return served

    @property
    def models(self) -> list[About]:
        """The models, as they are now."""
        return [queue.served.about for queue in self.queues.values()]

    def queue(self, name: str | None) -> ModelQueue:
        """Return the queue of a model, of the only one without a name, or raise Refused."""
        if name is None and len(self.queues) == 1:
            return next(iter(self.queues.values()))
        if name in self.queues:
            return self.queues[name]
        what = "are several models" if name is None else f"is no model '{clean(name, 60)}'"
        raise Refused(404, f"there {what}: /models/NAME/predict, of {', '.join(self.queues)}")

    def reload(self) -> None:
        """Load all models again, and say what became of each; a former one stays where it fails."""
        for name, queue in self.queues.items():
            try:
                queue.swap(self._load(name, queue.served))
            except Exception as error:
                why = error if isinstance(error, StreammachError) else repr(error)
                tell(f"streammach: warning: the former model of '{name}' stays: {clean(why, 300)}")
                self.metrics.reloads.labels(name, "failed").inc()
            else:
                tell(f"streammach: {name} was loaded again: version {queue.served.version}")
                self.metrics.reloads.labels(name, "done").inc()
            self._leave_memory()

    def close(self) -> None:
        """Stop the threads, and close the models."""
        self.loading.shutdown(cancel_futures=True)
        for queue in self.queues.values():
            queue.close()
