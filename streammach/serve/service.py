"""The models of a service: opened together, loaded again one by one, stopped together."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from streammach.errors import StreammachError, UsageError, clean
from streammach.progress import tell
from streammach.serve.batches import Lane
from streammach.serve.limits import Limits, Refused
from streammach.serve.messages import About, Reloaded
from streammach.serve.metrics import Metrics, ModelMetrics
from streammach.serve.models import Computing, Loader, Served
from streammach.serve.room import RequestRoom

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAMING = "A name has letters, digits, dots, dashes and underscores: NAME=RUN."


def named_folders(runs: Sequence[str]) -> dict[str, Path]:
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


class Service:
    """Models that answer."""

    def __init__(self, folders: Mapping[str, Path], limits: Limits, computing: Computing) -> None:
        self.folders, self.limits = dict(folders), limits
        self.metrics, self.stopping = Metrics(), False
        self.lanes: dict[str, Lane] = {}
        self._loader = Loader(limits, computing)
        self._reloading: set[str] = set()
        self._lock = threading.Lock()
        try:
            for name, folder in self.folders.items():
                counted = self.metrics.models[name] = ModelMetrics()
                self.lanes[name] = Lane(self._load(name, folder), limits, counted)
                self._settle()
        except BaseException:
            self.close(limits.grace)
            raise

    def _load(self, name: str, folder: Path) -> Served:
        return self._loader.load(name, folder, sum(one.served.takes for one in self.lanes.values()))

    def _settle(self) -> None:
        """Leave to requests what the models do not take."""
        self._loader.settle(sum(one.served.takes for one in self.lanes.values()))

    @property
    def room(self) -> RequestRoom:
        """The memory of requests."""
        return self._loader.room

    @property
    def models(self) -> list[About]:
        """The models, as they are now."""
        return [lane.served.about for lane in self.lanes.values()]

    def lane(self, name: str | None) -> Lane:
        """Return the queue of a model, of the only one without a name, or raise Refused."""
        if name is None and len(self.lanes) == 1:
            return next(iter(self.lanes.values()))
        known = ", ".join(self.lanes)
        if name is None:
            raise Refused(404, f"there are several models: /models/NAME/predict, of {known}")
        if name not in self.lanes:
            raise Refused(404, f"there is no model '{clean(name, 60)}': {known}")
        return self.lanes[name]

    def reload(self, name: str) -> Reloaded:
        """Load a model again and let it answer; the one before goes on where that fails."""
        lane = self.lane(name)
        with self._lock:
            if self.stopping or name in self._reloading:
                why = "the service is stopping" if self.stopping else "it is being loaded already"
                raise Refused(409, f"'{name}' was not loaded again: {why}", retry=1)
            self._reloading.add(name)
        result = "failed"
        try:
            former, served = lane.served.version, self._load(name, self.folders[name])
            lane.swap(served)
            self._settle()
            result = "done"
        except StreammachError as error:
            raise Refused(409, f"the former model of '{name}' stays: {error}") from None
        except MemoryError:
            raise Refused(409, f"the former model of '{name}' stays: out of memory") from None
        finally:
            lane.metrics.reloads[result] += 1
            with self._lock:
                self._reloading.discard(name)
        return Reloaded(name, served.version, former)

    def reload_all(self) -> None:
        """Load all models again, and say what became of each."""
        for name in self.lanes:
            try:
                done = self.reload(name)
                tell(f"streammach: {name} was loaded again: version {done.version}")
            except Refused as error:
                tell(f"streammach: warning: {error.reason}")
            except Exception as error:  # said; the service goes on
                tell(f"streammach: error: {type(error).__name__}: {clean(error, 200)}")

    def close(self, seconds: float) -> bool:
        """Answer what waits, stop; return whether that was done in so many seconds."""
        self.stopping, until = True, time.monotonic() + seconds
        done = [lane.close(max(until - time.monotonic(), 0.1)) for lane in self.lanes.values()]
        return all(done)

    def text(self) -> str:
        """Return what was counted, for Prometheus."""
        served = {name: lane.served.version for name, lane in self.lanes.items()}
        with suppress(RuntimeError):  # a count that came while they were listed
            return self.metrics.text(served, {n: lane.waiting for n, lane in self.lanes.items()})
        return self.metrics.text(served, {n: lane.waiting for n, lane in self.lanes.items()})
