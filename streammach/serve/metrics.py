"""What a service counts, as Prometheus reads it."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Mapping

import psutil

BATCHES = (1, 2, 4, 8, 16, 32, 64, 256, 1024)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
PREFIX = "streammach_"
Lines = Callable[[str], list[str]]  # of a name
Families = dict[tuple[str, str, str], list[Lines]]  # by name, type and meaning
KIND = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How often values lie at or below some bounds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, labels: Mapping[str, str]) -> Lines:
        """Return what gives the lines of it, by its name."""

        def lines(name: str) -> list[str]:
            found, so_far = [], 0
            for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
                so_far += count
                text = bound if isinstance(bound, str) else f"{bound:g}"
                found.append(_line(f"{name}_bucket", {**labels, "le": text}, so_far))
            return [
                *found,
                _line(f"{name}_sum", labels, self._sum),
                _line(f"{name}_count", labels, so_far),
            ]

        return lines


class ModelMetrics:
    """What is counted of a model; one thread at a time writes each."""

    def __init__(self) -> None:
        self.rows = self.unknown = 0
        self.batches, self.seconds = Histogram(BATCHES), Histogram(SECONDS)
        self.reloads: Counter[str] = Counter({"done": 0, "failed": 0})

    def batch(self, n_rows: int, seconds: float, unknown: int) -> None:
        """Count rows that were predicted together."""
        self.rows += n_rows
        self.unknown += unknown
        self.batches.add(n_rows)
        self.seconds.add(seconds)


class Metrics:
    """What is counted of a service."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds = Histogram(SECONDS)
        self.models: dict[str, ModelMetrics] = {}

    def request(self, route: str, status: int, seconds: float | None) -> None:
        """Count a request that was answered."""
        self.requests[route, status] += 1
        if seconds is not None:
            self.seconds.add(seconds)

    def text(self, versions: Mapping[str, str], waiting: Mapping[str, int]) -> str:
        """Return all of it."""
        out: list[str] = []
        for (name, kind, text), lines in {
            **self._of_requests(),
            **self._of_models(),
            **_of_now(versions, waiting),
        }.items():
            full = PREFIX + name
            out += [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
            out += [line for own in lines for line in own(full)]
        return "\n".join(out) + "\n"

    def _of_requests(self) -> Families:
        counts = {
            (("route", route), ("status", str(status))): n
            for (route, status), n in sorted(self.requests.items())
        }
        return {
            ("requests_total", "counter", "Requests by route and status."): [
                _value(dict(own), n) for own, n in counts.items()
            ],
            (
                "request_seconds",
                "histogram",
                "Time from a request for predictions to its answer.",
            ): [self.seconds.lines({})],
        }

    def _of_models(self) -> Families:
        models = [({"model": name}, one) for name, one in self.models.items()]
        return {
            ("rows_total", "counter", "Rows that were predicted."): [
                _value(own, one.rows) for own, one in models
            ],
            ("unknown_features_total", "counter", "Features of these that the model has not."): [
                _value(own, one.unknown) for own, one in models
            ],
            ("batch_rows", "histogram", "Rows that were predicted together."): [
                one.batches.lines(own) for own, one in models
            ],
            ("batch_seconds", "histogram", "Time of a prediction of rows together."): [
                one.seconds.lines(own) for own, one in models
            ],
            ("reloads_total", "counter", "Times that a model was loaded again, by result."): [
                _value({**own, "result": result}, n)
                for own, one in models
                for result, n in one.reloads.items()
            ],
        }


def _of_now(versions: Mapping[str, str], waiting: Mapping[str, int]) -> Families:
    memory = psutil.Process().memory_info().rss
    return {
        ("queue_rows", "gauge", "Rows that wait."): [
            _value({"model": name}, n) for name, n in waiting.items()
        ],
        ("model_info", "gauge", "The version of each model."): [
            _value({"model": name, "version": version}, 1) for name, version in versions.items()
        ],
        ("resident_memory_bytes", "gauge", "Memory that the process holds."): [_value({}, memory)],
    }


def _value(labels: Mapping[str, str], value: float) -> Lines:
    return lambda name: [_line(name, labels, value)]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    own = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{own}}} {value}" if own else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
