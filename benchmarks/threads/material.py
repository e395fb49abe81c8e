"""What the stages work on: made rows as text and as a store, and batches of them in memory."""

import gzip
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streammach.backends.registry import BACKENDS
from streammach.conversion.convert import convert
from streammach.options.training import TrainSpec
from streammach.planning.choose import plan
from streammach.rows.batch import Batch, ByFeature
from streammach.store.dataset import Dataset
from streammach.store.reader import Reader
from tools.synthetic.rows import SHAPES, SyntheticRows, text_pieces

RATE, FILES = 0.5, 8


@dataclass(frozen=True)
class Amounts:
    """How much of everything a run takes."""

    rows: int
    classes: int
    features: int
    step_rows: int  # of a pass of steps in memory
    epoch_rows: int  # of an epoch of steps with the reader
    lessons: int  # rows that pairs are learnt from
    queries: int  # rows whose best classes are found
    text_bytes: int  # of the conversion of one text
    zipped_bytes: int  # of that of several gzip files, as text
    table_bytes: int  # of what is read to see how fast memory is


FULL = Amounts(
    400_000, 80_000, 400_000, 65_536, 270_000, 10_240, 10_240, 500_000_000, 200_000_000, 1 << 30
)
FEW = Amounts(3_000, 200, 2_000, 2_048, 3_000, 512, 256, 400_000, 100_000, 1 << 22)


class Material:
    """The rows of a run: their text, their store, and what is made of these when asked for."""

    def __init__(self, amounts, folder, threads):
        self.amounts, self.threads = amounts, threads
        shape = SHAPES["odp"].changed(
            n_rows=amounts.rows, n_test_rows=1, n_classes=amounts.classes,
            n_features=amounts.features, words=36,
        )  # fmt: skip
        pieces = [bytes(text) for _, text in text_pieces(SyntheticRows(shape))]
        self.text, store = folder / "rows.vw", folder / "rows.zarr"
        n_bytes = sum(map(len, pieces))
        copies = max(1, round(amounts.text_bytes / n_bytes))
        with open(self.text, "wb") as file:
            for _ in range(copies):
                file.writelines(pieces)
        self.zipped = [folder / f"{number}.vw.gz" for number in range(FILES)]
        part = b"".join(pieces)[: amounts.zipped_bytes // FILES].rpartition(b"\n")[0] + b"\n"
        for path in self.zipped:
            path.write_bytes(gzip.compress(part, 1) if path is self.zipped[0] else
                             self.zipped[0].read_bytes())  # fmt: skip
        once = folder / "once.vw"
        with open(once, "wb") as file:
            file.writelines(pieces)
        del pieces
        convert(once, store, threads=max(threads))
        once.unlink()
        self.data, self.folder, self.zipped_bytes = Dataset.open(store), folder, FILES * len(part)
        self.table = np.ones(amounts.table_bytes, np.uint8)

    def chosen(self, threads, batch=1024):
        """The plan of 25 models of 32 buckets on so many threads."""
        return plan(
            self.data, n_buckets=32, n_repetitions=25, counts="off", device="cpu", threads=threads,
            batch_size=batch,
        )  # fmt: skip

    def reader(self, chosen, **more):
        """A reader of the store, as a training has one."""
        room = chosen.config.batching
        return Reader(
            self.data, seed=0, batch_size=room.batch_size, batch_nnz=room.batch_nnz,
            pool_blocks=room.pool_blocks, transform="binary", by_feature=True,
            threads=chosen.config.placement.threads, **more,
        )  # fmt: skip

    def batches(self, chosen):
        """Batches for a pass of steps, in memory."""
        return [
            copied(batch) for batch in self.reader(chosen, rows=self.amounts.step_rows).epoch(0)
        ]

    @contextmanager
    def backend(self, chosen):
        """A backend that is ready to train by a plan."""
        room = chosen.config.batching
        backend = BACKENDS["cpu"].open(chosen.model, chosen.config)
        training = TrainSpec(
            epochs=1, batch_size=room.batch_size, learning_rate=RATE, transform="binary",
            label_smoothing=0.1, optimizer="adagrad", epsilon=1.0, seed=0,
        )  # fmt: skip
        backend.prepare(training, room.batch_nnz)
        try:
            yield backend
        finally:
            backend.close()

    def rows(self, n):
        """The first rows of the store."""
        return self.data.rows(0, min(n, self.data.n_rows))

    def blocks(self):
        """The rows of the store; none is held out."""
        step = self.data.facts.block_rows
        for start in range(0, self.data.n_rows, step):
            block = self.data.rows(start, min(start + step, self.data.n_rows))
            yield block, np.zeros(block.n_rows, bool)


def copied(batch):
    """A batch that stays when the reader goes on."""
    arrays = {n: a.copy() for n, a in vars(batch).items() if isinstance(a, np.ndarray)}
    return replace(Batch(**arrays), by_feature=ByFeature(*(a.copy() for a in batch.by_feature)))


@contextmanager
def material(amounts, threads):
    """The rows, in a temporary folder; says how long they take to make."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        made = Material(amounts, Path(folder), threads)
        print(f"made rows: {time.perf_counter() - begun:.1f} s", flush=True)
        with made.data:
            yield made
