"""MACH in PyTorch: an EmbeddingBag, R softmax models, row-wise Adagrad; exact log-sum."""

import numpy as np

from benchmarks.peers.task import DENSE, K, System, binary, unit_rows
from streammach import hashing

LARGE = 1_000_000
BATCH, BLOCK = 1024, 256
RATE, SMOOTHING = 0.5, 0.1
SETTINGS = (
    f"128 x 12, 5 epochs, values cut to 1, smoothing {SMOOTHING} (32 x 25, 2 epochs from a million "
    "rows on; where rows are dense, 12 epochs, rows of one length with a mean square of 1, no "
    f"smoothing); batch {BATCH}, rate {RATE} falling to 0"
)


def features(task, x):
    """Return what the models see."""
    if task.filled <= DENSE:
        return binary(x)
    scale = np.sqrt(task.x.nnz / task.x.shape[0])
    return unit_rows(x) * np.float32(scale)


def train(task):
    from benchmarks.torch_mach import TorchMach

    large, dense, k = len(task.y) >= LARGE, task.filled > DENSE, task.n_classes
    buckets, repetitions = (32, 25) if large else (128, 12)
    epochs = 12 if dense else 2 if large else 5
    codes = hashing.codes(*hashing.draw(0, k, buckets, repetitions), k, buckets)
    x = features(task, task.x)
    with task.measured():
        model = TorchMach(
            x.shape[1], buckets, repetitions, codes, task.threads, rate=RATE,
            smoothing=0.0 if dense else SMOOTHING, epsilon=float(np.square(x.data).mean()),
        )  # fmt: skip
        for epoch in range(epochs):
            _epoch(model, x, task.y, epoch, epochs)
    return model


def _epoch(model, x, y, epoch, epochs):
    order, n = np.random.default_rng(epoch).permutation(len(y)), len(y)
    for start in range(0, n, BATCH):
        rows = order[start : start + BATCH]
        part, left = x[rows], 1 - (epoch * n + start) / (epochs * n)
        model.step(part.indptr, part.indices, y[rows], part.data, scale=left)


def predict(model, task):
    x = features(task, task.x_test)
    out = np.empty((x.shape[0], K), np.int64)
    with task.measured("predict"):
        for start in range(0, len(out), BLOCK):
            part = x[start : start + BLOCK]
            found = model.topk(part.indptr, part.indices, K, part.data)
            out[start : start + BLOCK] = found
    return out


def size(model, task):
    return 4 * (model.bag.weight.numel() + model.bias.numel())


SYSTEMS = {
    "torch_mach": System("PyTorch EmbeddingBag MACH", "torch", SETTINGS, train, predict, size)
}
