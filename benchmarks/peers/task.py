"""What a system of the comparison is given: the rows of two stores, and a folder to work in."""

import itertools
import os
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse

from streammach.rows.canonical import canonicalize
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import in_namespace
from streammach.store.dataset import Dataset

K = 5  # classes that are asked for
HOLD_OUT_BY = os.environ.get("PEERS_HOLD_OUT_BY") or None
DENSE, FULL = 0.1, 0.9  # shares of values that are not 0 from which rows count as dense, as full


@dataclass(frozen=True)
class System:
    """A system of the comparison.

    `train` makes a model of a :class:`Task`, `predict` the best classes (m, up to 5) of its test
    rows, -1 for none, `size` the model's bytes. What cannot be done ends with SystemExit and why.
    """

    name: str
    package: str | None
    settings: str
    train: Callable | None = None
    predict: Callable | None = None
    size: Callable | None = None
    lists: bool = False  # whether it takes rows with lists of labels
    why_not: str | None = None  # it was not run


@dataclass
class Task:
    """Rows to train on and to predict.

    `x` (n, d) and `x_test` (m, d) are CSR with the stored values; labels are class ids from 0, -1
    in the test where training never saw them. `by_name` has the class ids in the order of the
    labels, which may say something: by the alphabet, or by number. Features of the namespace that
    streammach holds out rows by (PEERS_HOLD_OUT_BY) are left out: no test row has one. Where rows
    have lists of labels, `lists` and `lists_test` hold them, and `y` and `y_test` the first of each
    row, -1 for none.
    """

    train_store: Path
    test_store: Path
    x: scipy.sparse.csr_matrix
    y: np.ndarray
    x_test: scipy.sparse.csr_matrix
    y_test: np.ndarray
    folder: Path
    threads: int
    by_name: np.ndarray
    n_classes: int
    lists: LabelLists | None = None
    lists_test: LabelLists | None = None
    seconds: dict = field(default_factory=dict)
    processor: dict = field(default_factory=dict)

    @contextmanager
    def measured(self, what="train"):
        """Time what a system itself does, without the writing of its input or loading of code.

        By the clock, and in seconds of processor time, which other work on the machine leaves as
        they are.
        """
        began, used = time.monotonic(), processor_seconds()
        yield
        self.seconds[what] = time.monotonic() - began
        self.processor[what] = processor_seconds() - used

    @property
    def labels(self):
        """Return the training labels as a matrix (n, K) of 0 and 1, CSR."""
        n = self.x.shape[0]
        lists = LabelLists.single(self.y) if self.lists is None else self.lists
        ones = np.ones(lists.n_labels, np.float32)
        return scipy.sparse.csr_matrix((ones, lists.classes, lists.starts), (n, self.n_classes))

    @property
    def label_counts(self):
        """Return how many training rows have each label: int64 (K,)."""
        return np.bincount(self.labels.indices, minlength=self.n_classes)

    @property
    def label_names(self):
        """Return a row's labels as text, the ids between commas, for each training row."""
        if self.lists is None:
            return [str(label) for label in self.y.tolist()]
        return [",".join(map(str, row)) for row in listed(self.lists)]

    @property
    def filled(self):
        """Share of the training matrix that is not 0."""
        return self.x.nnz / np.prod(self.x.shape, dtype=float)

    @classmethod
    def open(cls, train, test, folder, threads, max_test):
        """Read two stores; the test's first rows, which are in random order."""
        with Dataset.open(train) as data, Dataset.open(test) as other:
            rows = data.rows(0, data.n_rows)
            tested = canonicalize(
                other.rows(0, min(max_test, other.n_rows)),
                data.features.ids_of(other.features),
                data.labels.ids_of(other.labels),
            )
            d = data.n_features
            out = np.zeros(d, bool)
            if HOLD_OUT_BY:
                out = in_namespace(data.features, HOLD_OUT_BY.encode())
            names = [data.labels.label(i) for i in range(len(data.labels))]
        first, last = (block.classes if block.labels is None else block.labels.first
                       for block in (rows, tested))  # fmt: skip
        return cls(
            Path(train), Path(test), matrix(rows, d, out), first.astype(np.int64),
            matrix(tested, d, out), last.astype(np.int64), Path(folder), threads,
            np.array(sorted(range(len(names)), key=names.__getitem__), np.int64),
            len(names), rows.labels, tested.labels,
        )  # fmt: skip


def listed(lists):
    classes, starts = lists.classes.tolist(), lists.starts.tolist()
    return [classes[a:b] for a, b in itertools.pairwise(starts)]


def processor_seconds():
    """Return the processor time of this process and of those it waited for."""
    return sum(os.times()[:4])


def matrix(rows, d, out):
    """Return rows as CSR (n, d) float32, without some features: bool (d,)."""
    if out.any():
        rows = rows.with_values(~out[rows.features])
    values = rows.values.astype(np.float32)
    return scipy.sparse.csr_matrix((values, rows.features, rows.indptr), shape=(rows.n_rows, d))


def binary(x):
    return scipy.sparse.csr_matrix((np.ones_like(x.data), x.indices, x.indptr), shape=x.shape)


def unit_rows(x):
    """Return the matrix with rows of length 1."""
    norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
    scale = 1 / np.maximum(norms, 1e-12)
    return (scipy.sparse.diags(scale.astype(np.float32)) @ x).tocsr().astype(np.float32)


def tf_idf(x, counted):
    """Return ``(1 + ln value) idf`` in rows of length 1; `counted`: the training matrix."""
    idf = np.log(
        counted.shape[0] / np.maximum(np.bincount(counted.indices, minlength=x.shape[1]), 1)
    )
    data = (1 + np.log(np.maximum(x.data, 1e-6))) * idf[x.indices]
    weighted = scipy.sparse.csr_matrix((data, x.indices, x.indptr), shape=x.shape)
    return unit_rows(weighted.astype(np.float32))


def tree_features(task, x):
    """Return what tree learners are usually given: tf-idf, or unit rows where values are dense."""
    return unit_rows(x) if task.filled > DENSE else tf_idf(x, task.x)


def folder_bytes(path):
    path = Path(path)
    return sum(
        f.stat().st_size for f in ([path] if path.is_file() else path.rglob("*")) if f.is_file()
    )


def write_rows(path, x, y, line, head=None):
    """Write a line a row, ``line(label, ids, values)``, after a first line where one is given.

    Labels are whatever `line` takes, one for each row.
    """
    with open(path, "w", encoding="ascii") as out:
        if head is not None:
            out.write(head + "\n")
        for i in range(x.shape[0]):
            a, b = x.indptr[i], x.indptr[i + 1]
            out.write(line(y[i], x.indices[a:b].tolist(), x.data[a:b].tolist()) + "\n")
