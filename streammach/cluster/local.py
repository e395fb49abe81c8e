"""Processes of this machine as a cluster, each with a device."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streammach.cluster.workers import WORKER_SECONDS, check_installed
from streammach.errors import UsageError, clean

if TYPE_CHECKING:
    from distributed import Client

PRELOADED = "streammach.cluster.part_task"
# Dask's figures of itself, for pages that are not shown here, cost 2% of a core a process.
QUIET = {
    "distributed.worker.profile.enabled": False,  # looks at what is called 100 times a second
    "distributed.admin.tick.interval": "500ms",  # by which the delay of its loop is measured
    "distributed.admin.system-monitor.interval": "5s",
}
SEEN = "CUDA_VISIBLE_DEVICES"
CPU = "cpu"


@contextmanager
def started_here(devices: Sequence[str], threads: int) -> Iterator[Client]:
    """Hold a cluster of processes on this machine, one for each device."""
    check_installed()
    import dask
    from distributed import Client, LocalCluster

    class Processes(LocalCluster):  # type: ignore[misc]
        """Processes of which each has a device."""

        def new_worker_spec(self) -> dict[Any, Any]:
            """Return the next process, by its name."""
            ((name, spec),) = super().new_worker_spec().items()
            device, options = devices[name % len(devices)], spec["options"]
            if device != CPU:
                options = options | {"env": {**(options.get("env") or {}), SEEN: device}}
            return {name: spec | {"options": options}}

    n = len(devices)
    with (
        dask.config.set(QUIET),
        Processes(
            n_workers=0, threads_per_worker=max(threads // n, 1), processes=True, memory_limit=0,
            dashboard_address=None, host="127.0.0.1", preload=[PRELOADED],
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            silence_logs=logging.ERROR,
        ) as cluster,
    ):  # fmt: skip
        cluster.scale(n)
        with Client(cluster) as client:
            client.wait_for_workers(n, timeout=WORKER_SECONDS)
            yield client


def devices_of(text: str) -> tuple[str, ...]:
    """Return the devices of a list, which are CPUs or GPUs, or raise UsageError."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name != CPU and not (name.isascii() and name.isdecimal() and len(name) < 5):
            raise UsageError(
                f"'{clean(name)}' is no device of a list such as cpu,cpu or 0,1: --devices"
            )
    numbers = [int(name) for name in names if name != CPU]
    if numbers and len(numbers) < len(names):
        raise UsageError("a run is trained on CPUs or on GPUs, not on both: --devices")
    if len({*numbers}) < len(numbers):
        raise UsageError("a GPU is there twice: --devices")
    seen = [one.strip() for one in os.environ.get(SEEN, "").split(",") if one.strip()]
    if seen and numbers and max(numbers) >= len(seen):
        raise UsageError(f"{SEEN} names {len(seen)} GPUs, no number {max(numbers)}: --devices")
    return tuple(seen[n] if seen else str(n) for n in numbers) or names
