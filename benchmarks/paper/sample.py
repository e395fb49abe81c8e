"""A smaller pair of stores: the first rows of a store are a random sample, since it is shuffled.

Classes and features get numbers in place of their names and only those of the sample are kept, so
that a test label that the sample does not hold counts as unseen, as it would with real data.
"""

from pathlib import Path

from benchmarks.peers.task import Task, write_rows
from streammach.data.convert import convert
from streammach.data.store.dataset import Dataset


def sampled(train, test, folder, n_rows, max_test):
    """Return two stores with the first rows of `train` and `test`, made where they are missing.

    Where `train` has no more than so many rows these are the stores themselves.
    """
    with Dataset.open(train) as data:
        if data.n_rows <= n_rows:
            return Path(train), Path(test)
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "train.zarr", folder / "test.zarr"
    if not out[1].exists():
        task = Task.open(train, test, folder, 1, max_test)
        unseen = task.n_classes  # a label that no training row has
        parts = (task.x[:n_rows], task.y[:n_rows]), (task.x_test, task.y_test)
        for target, (x, y) in zip(out, parts, strict=True):
            text = target.with_suffix(".vw")
            write_rows(text, x, [label if label >= 0 else unseen for label in y.tolist()], line)
            convert(text, target, like=None if target == out[0] else out[0], force=True)
            text.unlink()
    return out


def line(y, ids, values):
    return f"{y} | " + " ".join(f"{i}:{v:.9g}" for i, v in zip(ids, values, strict=True))
