"""Times of work on a device: its own, by events around many launches, and the host's."""

import statistics
import time
from dataclasses import dataclass

from benchmarks.gpu.shapes import Shape
from streammach.backends.registry import BACKENDS

GB = 1e9
QUEUED = 10  # launches between two events


@dataclass(frozen=True)
class Times:
    """Seconds of some work: on the device, and of the host that asks for it.

    Where the host's are nearly as many, the device waits for the host.
    """

    device: float
    host: float


def times(memory, work, repeats, warm=2, queued=QUEUED):
    """Times of some work, the median of several turns of so many calls each.

    In the simulator, which has no events, both are wall time.
    """
    stream = getattr(memory, "_stream", None)
    device, host = [], []
    with memory.use():
        for i in range(warm + repeats):
            memory.wait()
            marks = None if stream is None else [memory.xp.cuda.Event() for _ in range(2)]
            began = time.perf_counter()
            if marks:
                marks[0].record(stream)
            for _ in range(queued):
                work()
            asked = time.perf_counter() - began
            if marks:
                marks[1].record(stream)
            memory.wait()
            took = time.perf_counter() - began
            if marks:
                took = memory.xp.cuda.get_elapsed_time(*marks) / 1e3
            if i >= warm:
                device.append(took / queued)
                host.append(asked / queued)
    return Times(statistics.median(device), statistics.median(host))


def opened(shape: Shape, *, limit=0, keep=0, **placement):
    """A backend that is ready to train, with room for so many batches that stay there."""
    config = shape.config(resident=keep > 0, **placement)
    backend = BACKENDS["cuda"].open(shape.model, config, facts=shape.kept(keep), device_bytes=limit)
    backend.prepare(shape.training, shape.batch_nnz)
    return backend
