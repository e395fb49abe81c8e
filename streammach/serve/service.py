"""The models of a service: opened together, loaded again one by one, stopped together."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from streammach.errors import ModelError, StreammachError, UsageError, clean
from streammach.progress import tell
from streammach.serve.batches import ModelQueue, ServiceMetrics, Worker
from streammach.serve.limits import Refused, ServiceLimits, mistake
from streammach.serve.messages import About
from streammach.serve.models import Computing, Loader

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAMING = "A name has letters, digits, dots, dashes and underscores: NAME=RUN."


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


class Service:
    """Models that answer."""

    def __init__(
        self, folders: Mapping[str, Path], limits: ServiceLimits, computing: Computing
    ) -> None:
        self.folders, self.limits = dict(folders), limits
        self.metrics, self.stopping = ServiceMetrics(), False
        self.queues: dict[str, ModelQueue] = {}
        self._loader = Loader(limits, computing)
        self.room = self._loader.room  # the memory of requests
        # What takes long beside predictions: large bodies, models that are loaded again.
        self.bodies, self.loading = Worker("serve-bodies"), Worker("serve-loading")
        try:
            for name, folder in self.folders.items():
                self.queues[name] = ModelQueue(
                    self._loader.load(name, folder, self._takes), limits, self.metrics
                )
                self._settle()
        except BaseException:
            self.close(limits.grace)
            raise

    @property
    def _takes(self) -> int:
        """Bytes that the models take."""
        return sum(queue.served.takes for queue in self.queues.values())

    def _settle(self) -> None:
        """Leave to requests what the models do not take, and show their versions."""
        self._loader.settle(self._takes)
        self.metrics.versions.clear()
        for name, queue in self.queues.items():
            self.metrics.versions.labels(name, queue.served.version).set(1)

    @property
    def models(self) -> list[About]:
        """The models, as they are now."""
        return [queue.served.about for queue in self.queues.values()]

    def queue(self, name: str | None) -> ModelQueue:
        """Return the queue of a model, of the only one without a name, or raise Refused."""
        if name is None and len(self.queues) == 1:
            return next(iter(self.queues.values()))
        known = ", ".join(self.queues)
        if name is None:
            raise Refused(404, f"there are several models: /models/NAME/predict, of {known}")
        if name not in self.queues:
            raise Refused(404, f"there is no model '{clean(name, 60)}': {known}")
        return self.queues[name]

    def reload(self, name: str) -> None:
        """Load a model again and let it answer; the one before goes on where that fails."""
        result = "failed"
        try:
            folder, queue = self.folders[name], self.queues[name]
            served = self._loader.load(name, folder, self._takes)
            if not served.reader.reads_rows_of(queue.served.reader):
                served.close()
                what = "it reads other rows than the former model"
                hint = "Serve it under a name of its own, or start the service anew."
                raise ModelError(what, path=folder, hint=hint)
            queue.swap(served)
            self._settle()
            result = "done"
        finally:
            self.metrics.reloads.labels(name, result).inc()

    def reload_all(self) -> None:
        """Load all models again, and say what became of each."""
        for name, queue in self.queues.items():
            try:
                self.reload(name)
                tell(f"streammach: {name} was loaded again: version {queue.served.version}")
            except (StreammachError, MemoryError) as error:
                what: object = error if isinstance(error, StreammachError) else "out of memory"
                tell(f"streammach: warning: the former model of '{name}' stays: {clean(what, 300)}")
            except Exception as error:
                mistake(error)

    def close(self, seconds: float) -> bool:
        """Answer what waits, stop; return whether that was done in so many seconds."""
        self.stopping, until = True, time.monotonic() + seconds
        done = [queue.close(max(until - time.monotonic(), 0.1)) for queue in self.queues.values()]
        return all(done)
