"""What a card reaches: copies, its L2 by reading again within one kernel, matrix products."""

import numpy as np

from benchmarks.gpu.floors import Card
from benchmarks.gpu.timing import GB, opened, times
from streammach.backends.cuda.launcher import Kernel
from streammach.backends.cuda.toolchain import cuda, get4
from streammach.backends.registry import BACKENDS

THREADS, BLOCKS = 256, 8  # of a block; of a multiprocessor
SHIFT = 37  # blocks: another part of the array in each round, so that no first-level cache has it


def read_again(array, n, rounds, out):
    """Read ``array[:n]`` float32 again and again, each time by other blocks; n is a multiple of 4.

    `out` float32 (threads of the grid,) receives sums, without which nothing would be read.
    """
    total = np.float32(0)
    thread, step = cuda.grid(1), cuda.gridsize(1)
    for r in range(rounds):
        at = 4 * ((thread + r * SHIFT * cuda.blockDim.x) % step)
        while at < n:
            x = get4(array, at)
            total += x[0] + x[1] + x[2] + x[3]
            at += 4 * step
    out[thread] = total


def cache_rate(memory, n_bytes, rounds, repeats):
    """Bytes a second at which an array of so many bytes, which the L2 holds, is read."""
    n = n_bytes // 16 * 4
    with memory.use():
        array = memory.zeros(n, np.float32)
        array.values[:] = 1
        blocks = memory.blocks(BLOCKS)
        threads = min(THREADS, memory.most_threads)
        out = memory.zeros(blocks * threads, np.float32)
    kernel = Kernel(read_again, (threads, 1))

    def read(count):
        memory.launch(kernel, blocks, threads, array, np.int64(n), np.int64(count), out)

    once = times(memory, lambda: read(1), repeats).device
    many = times(memory, lambda: read(rounds), repeats).device
    sums = np.empty(blocks * threads, np.float32)
    with memory.use():
        memory.fetch(sums, out)
    assert float(sums.astype(np.float64).sum()) == n * rounds  # everything was read
    return (rounds - 1) * 4 * n / max(many - once, 1e-9)


def facts(options):
    backend = opened(options.sparse)
    memory, n, rng = backend._memory, options.copy_bytes // 4, np.random.default_rng(0)
    m = options.product
    with memory.use():
        a, b = memory.zeros(n, np.float32), memory.zeros(n, np.float32)
        host = memory.host_array(n, np.float32)
        host[:] = 1
        x, y, z = (memory.zeros(m * m, np.float32) for _ in range(3))
        for matrix in (x, y):
            memory.send(matrix, rng.standard_normal(m * m, np.float32))
        x, y, z = (matrix.values.reshape(m, m) for matrix in (x, y, z))

    def copy():
        b.values[:] = a.values

    def seconds(work):
        return times(memory, work, options.repeats).device

    attributes = memory._device.attributes if hasattr(memory, "_device") else {}
    found = {
        "free_bytes": BACKENDS["cuda"].memory(),
        "capability": list(memory.capability),
        "multiprocessors": memory.multiprocessors,
        "l2_bytes": attributes.get("L2CacheSize", 1 << 20),
        "clock_hz": 1e3 * attributes.get("ClockRate", 1e6),
        "cache_gb_per_s": cache_rate(
            memory, options.cached_bytes, options.rounds, options.repeats
        ) / GB,
        "copy_gb_per_s": 8 * n / seconds(copy) / GB,
        "host_to_device_gb_per_s": 4 * n / seconds(lambda: memory.send(a, host)) / GB,
        "product_tflops": 2 * m**3 / seconds(lambda: memory.product(x, y, z)) / 1e12,
    }  # fmt: skip
    backend.close()
    return found


def card(options):
    """The rates of the present card, as the first stage found them; None without it."""
    found = options.found.get("facts", {})
    if "copy_gb_per_s" not in found:
        return None
    return Card(
        GB * found["copy_gb_per_s"], GB * found["cache_gb_per_s"], found["l2_bytes"],
        found["multiprocessors"] * found["clock_hz"],
    )  # fmt: skip
