"""The shapes of data that are measured, and rows drawn like theirs."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from streammach import hashing
from streammach.options.config import Batching, Placement, RunConfig
from streammach.options.model_spec import ModelSpec
from streammach.options.training import TrainSpec
from streammach.rows.batch import Batch
from streammach.rows.block import RowBlock
from streammach.system.machine import cores

ZIPF_SHIFT = 2.7  # Zipf-Mandelbrot, exponent 1: fits the features of linux_callee


@dataclass(frozen=True)
class Shape:
    """Rows, classes, features and values a row of a data set, and the model for it."""

    name: str
    n_rows: int
    n_classes: int
    n_features: int
    row_nnz: int
    n_buckets: int
    n_repetitions: int
    batch_size: int
    dense: bool = False

    @property
    def model(self):
        a, b = hashing.draw(0, self.n_classes, self.n_buckets, self.n_repetitions)
        return ModelSpec(
            n_classes=self.n_classes,
            n_features=self.n_features,
            n_buckets=self.n_buckets,
            n_repetitions=self.n_repetitions,
            hash_a=a,
            hash_b=b,
        )

    def config(self, *, device="cuda", **placement):
        return RunConfig(
            shape=self.model.shape, dense=self.dense, optimizer=self.training.optimizer,
            batching=Batching(batch_size=self.batch_size, batch_nnz=self.batch_nnz),
            placement=Placement(device=device, threads=cores(), **placement),
        )  # fmt: skip

    def kept(self, n_batches):
        """What is known of a store of so many batches, which a device keeps."""
        return SimpleNamespace(
            n_rows=n_batches * self.batch_size, nnz=n_batches * self.batch_nnz, n_labels=0
        )

    @property
    def training(self):
        optimizer = "adam" if self.dense else "adagrad"
        rate = 1e-3 if self.dense else 0.5
        return TrainSpec(
            epochs=1,
            batch_size=self.batch_size,
            learning_rate=rate,
            transform="raw",
            label_smoothing=0.1,
            optimizer=optimizer,
            epsilon=1.0,
            seed=0,
        )

    @property
    def batch_nnz(self):
        return self.batch_size * self.row_nnz


ODP = Shape("ODP", 1_084_404, 105_033, 422_713, 60, 32, 25, 4096)
IMAGENET = Shape("ImageNet", 12_777_062, 21_841, 6_144, 1_900, 512, 20, 1024, dense=True)
TINY = Shape("tiny", 70, 40, 12, 4, 6, 3, 7)
TINY_DENSE = Shape("tiny dense", 70, 40, 12, 4, 6, 3, 7, dense=True)


class Rows:
    """Draws rows of a shape: features by falling frequency, normal values, any class."""

    def __init__(self, shape, seed=0):
        self.shape, self._rng = shape, np.random.default_rng(seed)
        weights = 1 / (np.arange(shape.n_features) + ZIPF_SHIFT)
        self.edges = np.cumsum(weights / weights.sum())  # of the features' chances, float64 (d,)

    def _features(self, n):
        shape, rng = self.shape, self._rng
        if shape.dense:  # distinct ones in every row
            drawn = rng.random((n, shape.n_features)).argpartition(shape.row_nnz - 1, axis=1)
            return np.sort(drawn[:, : shape.row_nnz], axis=1)
        drawn = np.searchsorted(self.edges, rng.random((n, shape.row_nnz)))
        return np.sort(np.minimum(drawn, shape.n_features - 1), axis=1)

    def block(self, n):
        shape, rng = self.shape, self._rng
        indptr = np.arange(n + 1, dtype=np.int64) * shape.row_nnz
        features = self._features(n).reshape(-1).astype(np.int32)
        values = rng.normal(size=len(features)).astype(np.float32)
        classes = rng.integers(0, shape.n_classes, n, np.int32)
        return RowBlock(indptr=indptr, features=features, values=values, classes=classes)

    def batches(self, count, room=np.empty):
        """So many, in arrays that `room` makes, as a reader's."""
        out = []
        for _ in range(count):
            rows = self.block(self.shape.batch_size)
            features, values = room(rows.nnz, np.int32), room(rows.nnz, np.float32)
            features[:], values[:] = rows.features, rows.values
            out.append(Batch(
                indptr=rows.indptr, features=features, values=values,
                classes=rows.classes, importance=np.ones(rows.n_rows, np.float32),
            ))  # fmt: skip
        return out


def random_shapes(rng, count, *, largest):
    for i in range(count):
        n_classes = int(rng.integers(2, largest))
        n_buckets = int(rng.integers(2, max(3, min(n_classes, 70))))
        features = int(rng.integers(3, 60))
        yield Shape(
            f"random {i}", 1000, n_classes, features, int(rng.integers(1, min(features, 9))),
            n_buckets, int(rng.integers(1, 9)), int(rng.integers(1, 40)), dense=i % 4 == 3,
        )  # fmt: skip
