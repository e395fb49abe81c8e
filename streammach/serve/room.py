"""The memory of requests: what a body may become, and what is left of the budget for all."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from streammach.errors import BudgetError
from streammach.machine import give_back, size_text
from streammach.serve.limits import Refused, ServiceLimits
from streammach.serve.reading import Question, RequestReader

# Bytes of what JSON is read into, for each of these characters in it: a value in a list or a dict,
# half a string, a key's place in a dict (and among names that are counted), a list, a dict.
BECOMES = {b",": 50, b'"': 28, b":": 60, b"[": 60, b"{": 90}
WIDEST = 4  # bytes of a character, where one is not ASCII
ANSWER_BYTES = 130  # of a label that is answered: its id, its score, both as objects and in JSON
# Of rows that are brought into a model's ids together: of a row of most features, or of several.
WORK_BYTES = 33_000_000
LARGE = 16_000_000  # of what is given to the system when it is free
SMALL = 1 << 16  # bytes of a body that is read in less time than handing it over takes others
WAIT_SECONDS = 0.05


def may_become(body: bytes) -> int:
    """Return the bytes that a body takes at most while it is read, and what is read of it."""
    wide = not body.isascii() or b"\\u" in body
    # What looks for keys that are there twice takes all of it as text, or writes it once more.
    texts = len(body) * (2 * WIDEST + 1 if wide else 3)
    return texts + sum(n_bytes * body.count(one) for one, n_bytes in BECOMES.items())


class RequestRoom:
    """What requests take together, and may take."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits, self._taken = limits, 0
        self.most = limits.held_bytes  # bytes that they may take
        self._lock = threading.RLock()

    def take(self, n_bytes: int) -> None:
        """Take some bytes, or raise Refused: 413 for what never fits, 503 for what does not now."""
        with self._lock:
            if n_bytes > self.most:
                what = f"the request may take {size_text(n_bytes)} of memory"
                may = f"{size_text(self.most)} may be used for requests: send fewer rows at a time"
                raise Refused(413, f"{what}, {may}, or serve with more --memory", limit="memory")
            if self._taken + n_bytes > self.most:
                what = f"memory is short: other requests take {size_text(self._taken)}"
                raise Refused(503, what, limit="memory", retry=1)
            self._taken += n_bytes

    def give(self, n_bytes: int) -> None:
        """Give back what was taken."""
        with self._lock:
            self._taken -= n_bytes
        if n_bytes > LARGE:
            give_back()

    def question(self, reader: RequestReader, body: bytes) -> Question:
        """Return what is asked, whose memory is taken until it is no more; or raise Refused."""
        taken = may_become(body)
        self.take(taken)
        collected = gc.isenabled()
        try:
            gc.disable()  # JSON has no cycles, and each look for some takes longer
            question = reader.question(body)
            more = ANSWER_BYTES * len(question.rows) * question.k
            self.take(more)
            taken += more
        except BaseException as error:
            error.__context__ = None  # frames hold what was read
            error.with_traceback(None)
            self.give(taken)
            raise error from None
        finally:
            if collected:
                gc.enable()
        weakref.finalize(question, self.give, taken)
        return question

    @contextmanager
    def without(self, n_bytes: int) -> Iterator[None]:
        """Leave so many bytes to a model while a block loads it, or raise BudgetError."""
        until = time.monotonic() + 2 * self._limits.deadline
        self.most -= n_bytes
        try:
            while self._taken > self.most:
                if time.monotonic() > until:
                    raise BudgetError("requests hold the memory that the model needs")
                time.sleep(WAIT_SECONDS)
            yield
        finally:
            self.most += n_bytes
