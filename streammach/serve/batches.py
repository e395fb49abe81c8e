"""Requests to a model wait in a queue; all that wait are predicted together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from streammach.serve.limits import Refused, ServiceLimits, mistake, too_late
from streammach.serve.messages import Answer
from streammach.serve.metrics import ServiceMetrics
from streammach.serve.models import Served
from streammach.serve.reading import Question

WAIT_SECONDS = 0.01


@dataclass(eq=False)
class Ticket:
    """A request in the queue of a model."""

    question: Question
    kind: tuple[object, ...]  # how its rows were read
    future: asyncio.Future[Answer]


class Lane:
    """The queue of a model: one event loop fills it, one thread predicts what it holds."""

    def __init__(self, served: Served, limits: ServiceLimits, metrics: ServiceMetrics) -> None:
        self.served, self._limits, self._metrics = served, limits, metrics
        self.waiting = 0  # rows
        self._tickets: deque[Ticket] = deque()
        self._working: asyncio.Task[None] | None = None
        self._closing = False
        metrics.waiting.labels(served.name).set_function(lambda: self.waiting)
        self._thread = ThreadPoolExecutor(1, f"serve-{served.name}")

    async def ask(self, question: Question, kind: tuple[object, ...]) -> Answer:
        """Return the answer to a question, or raise Refused."""
        n_rows, queue, seconds = len(question.rows), self._limits.queue, self._limits.deadline
        if self._closing:
            raise Refused(503, "the service is stopping", retry=1)
        if self.waiting + n_rows > queue:
            what = f"{self.waiting:,} rows wait, {queue:,} may"
            raise Refused(429, what, limit="queue", retry=1)
        self.waiting += n_rows
        ticket = Ticket(question, kind, asyncio.get_running_loop().create_future())
        self._tickets.append(ticket)
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        try:
            return await asyncio.wait_for(ticket.future, seconds)
        except TimeoutError:
            raise too_late(seconds) from None

    def swap(self, served: Served) -> None:
        """Let another model answer all that is not yet being predicted; the old one is closed."""
        self.served, former = served, self.served
        self._thread.submit(former.close)  # after what it predicts now

    def close(self, seconds: float) -> bool:
        """Answer what waits, stop; return whether that was done in time."""
        self._closing, until = True, time.monotonic() + seconds
        while self._working is not None and time.monotonic() < until:
            time.sleep(WAIT_SECONDS)
        if self._working is not None:
            return False
        closed = self._thread.submit(self.served.close)
        return not wait([closed], max(until - time.monotonic(), 0)).not_done

    async def _work(self) -> None:
        """Let the thread predict until nothing waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._tickets:
                # No name here holds them: their memory is taken as long as they are.
                _tell(await loop.run_in_executor(self._thread, self._results, self._taken()))
        finally:
            self._working = None

    def _taken(self) -> list[Ticket]:
        """Take requests of rows for one batch, one request at least."""
        tickets, rows = list[Ticket](), 0
        while self._tickets:
            more = len(self._tickets[0].question.rows)
            if tickets and rows + more > self._limits.batch:
                break
            tickets.append(self._tickets.popleft())
            rows += more
        self.waiting -= rows
        return tickets

    def _results(self, tickets: Sequence[Ticket]) -> list[tuple[Ticket, Answer | Refused]]:
        """Predict some requests together; return what each gets, in any order."""
        results = list[tuple[Ticket, Answer | Refused]]()
        alike: dict[object, list[Ticket]] = {}
        served = self.served
        for ticket in tickets:
            if ticket.kind != served.reader.kind:
                what = "the model was replaced by one that reads other rows"
                results.append((ticket, Refused(503, what, retry=1)))
            elif not ticket.future.done():
                alike.setdefault(ticket.question.together, []).append(ticket)
        for some in alike.values():
            answers = self._together(served, [ticket.question for ticket in some])
            results += zip(some, answers, strict=True)
        return results

    def _together(self, served: Served, questions: list[Question]) -> list[Answer | Refused]:
        """Return the answers to requests; where one is refused, each is predicted for itself."""
        begun = time.perf_counter()
        try:
            found = served.predicted(questions)
        except Exception as error:
            refused = error if isinstance(error, Refused) else mistake(error)
            if len(questions) == 1:
                return [refused]
            return [one for question in questions for one in self._together(served, [question])]
        rows = [row for of_one in found for row in of_one]
        seconds, unknown = time.perf_counter() - begun, sum(row.unknown for row in rows)
        self._metrics.batch(served.name, len(rows), seconds, unknown)
        return [Answer(served.name, served.version, one) for one in found]


def _tell(results: Sequence[tuple[Ticket, Answer | Refused]]) -> None:
    """Hand results to those who still wait for them."""
    for ticket, result in results:
        if ticket.future.done():
            continue
        if isinstance(result, Refused):
            ticket.future.set_exception(result)
        else:
            ticket.future.set_result(result)
