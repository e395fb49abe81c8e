"""How fast dense rows get from a store to page-locked memory, by threads.

    python -m benchmarks.dense_rows STORE [--threads 1,2] [--batch-size 4096] [--json FILE]

GB/s of entries, 8 bytes each (an id and a float32), best of several turns: blocks decoded into a
pool; rows gathered into batches and transformed; batches copied into page-locked memory (ordinary
memory here); all of it, an epoch of the reader whose batches are copied. `count` is what threads
get of the machine at all: a loop that only counts, in units of the same. Rates of all turns are in
the JSON file. A made-up store of ImageNet's shape: `python tools/make_synthetic.py imagenet`.
"""

import time

import numpy as np

from benchmarks import machine_facts
from streammach.backends.cuda.dense import DenseBuffer
from streammach.backends.cuda.memory import DeviceArray, DeviceMemory
from streammach.backends.cuda.transfers import BufferRoom
from streammach.data.reader import Reader
from streammach.data.store.dataset import Dataset
from streammach.jit import kernel
from streammach.threads import Workers, in_pieces

ENTRY = 8  # bytes
STAGES = ("count", "decode", "gather", "copy", "whole")


@kernel()
def count(n):
    """Draw so many numbers, one after the other; return the last."""
    x = np.uint64(1)
    for _ in range(n):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
    return x


class HostMemory(DeviceMemory):
    """A device that takes nothing: what is sent goes nowhere."""

    def _wrapped(self, values):
        return DeviceArray(values, None)

    def empty(self, count, dtype):
        """Return a buffer of one element."""
        return super().empty(min(count, 1), dtype)

    def send(self, target, source, at=0, *, ahead=False):
        """Do nothing."""


class Path:
    """The way of a store's rows with some threads.

    Parameters
    ----------
    data : Dataset
        The store.
    threads, batch_size : int
        How many threads; rows of a batch.
    """

    def __init__(self, data, threads, batch_size):
        facts = data.facts
        nnz = min(batch_size * facts.max_row_nnz, int(1.5 * batch_size * facts.nnz / facts.n_rows))
        self.data, self.facts = data, facts
        self.reader = Reader(
            data, seed=0, batch_size=batch_size, batch_nnz=nnz, pool_blocks=8, transform="l2",
            by_feature=False, threads=threads,
        )  # fmt: skip
        self.workers = Workers(threads, "rows") if threads > 1 else None
        self.slot = DenseBuffer(
            HostMemory(1 << 40), BufferRoom(batch_size, nnz), n_features=facts.n_features,
            workers=self.workers,
        )  # fmt: skip

    def count(self):
        """Count, each thread its part of the entries; return these."""
        in_pieces(self.workers, self.facts.nnz, lambda a, b: count(b - a))
        return self.facts.nnz

    def decode(self):
        """Decode all blocks; return how many entries that were."""
        pool, order = self.reader._pools[0], self.reader._order
        groups = [np.arange(a, min(a + 8, order.n_blocks)) for a in range(0, order.n_blocks, 8)]
        for blocks in groups:
            pool.fill(self.data, order, blocks, self.workers)
        return self.facts.nnz

    def gather(self):
        """Gather the rows of a decoded pool into batches, several times; return the entries."""
        pool, slot, entries = self.reader._pools[0], self.reader._slots[0], 0
        rng = np.random.default_rng(0)
        while entries < self.facts.nnz:
            slot.clear()
            slot.add(pool.block, rng.permutation(len(pool.rows)), "l2", self.workers)
            entries += len(slot.batch().values)
        return entries

    def copy(self):
        """Copy a batch into page-locked memory, several times; return the entries."""
        batch, entries = self.reader._slots[0].batch(), 0
        while entries < self.facts.nnz:
            entries += self.slot.load(batch)
        return entries

    def whole(self):
        """Read an epoch and copy its batches; return the entries."""
        return sum(self.slot.load(batch) for batch in self.reader.epoch(0))

    def close(self):
        """Stop the threads."""
        if self.workers is not None:
            self.workers.close()


def main():
    """Measure all stages with all numbers of threads, in turns."""
    parser = machine_facts.parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    found = {"machine": machine_facts.facts(), "batch_size": given.batch_size}
    with Dataset.open(given.store) as data:
        found |= {"rows": data.n_rows, "features": data.n_features, "entries": data.nnz}
        paths = {int(n): Path(data, int(n), given.batch_size) for n in given.threads.split(",")}
        rates = {name: {n: [] for n in paths} for name in STAGES}
        for _ in range(given.turns + 1):  # the first one compiles, and checks the rows
            for name, by_threads in rates.items():
                for n, path in paths.items():
                    began = time.perf_counter()
                    entries = getattr(path, name)()
                    by_threads[n].append(ENTRY * entries / (time.perf_counter() - began) / 1e9)
        found["gb_per_second"] = {
            name: {n: [round(rate, 2) for rate in all_turns[1:]] for n, all_turns in some.items()}
            for name, some in rates.items()
        }
        for path in paths.values():
            path.close()
    for name, some in found["gb_per_second"].items():
        best = {n: max(turns) for n, turns in some.items()}
        print(f"{name:<8}", "  ".join(f"{n} threads {best[n]:.2f} GB/s" for n in best))
    machine_facts.report(found, given.json)


if __name__ == "__main__":
    main()
