"""What a service counts, in a registry of its own, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

BATCHES = (1, 2, 4, 8, 16, 32, 64, 256, 1024)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
MODEL = ("model",)


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
