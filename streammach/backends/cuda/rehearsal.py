"""Kernels compiled ahead: a tiny training on a thread of its own, which does nothing else.

It is under way while the host counts, so that the first step need not wait for a compiler. Its
arrays are NumPy's and have no numbers that count; each launch compiles its kernel for the card, and
keeps it on disk, where the training that is to come finds it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streammach.backends.cuda.device_memory import CudaMemory, DeviceArray, DeviceMemory, kind_of
from streammach.backends.cuda.launcher import machine_code
from streammach.backends.protocol import Backend
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.spec.config import RunConfig
from streammach.spec.estimators import ESTIMATORS
from streammach.spec.facts import DataFacts
from streammach.spec.model_spec import ModelSpec
from streammach.spec.training import TrainSpec
from streammach.spec.types import LossKind

FEATURES, CLASSES = 8, 64  # no kernel is made for their number
ONE = np.ones(1, np.float32)


class CompilingMemory(DeviceMemory):
    """Compiles every kernel that is launched, for another device, and runs none."""

    class_sets = CudaMemory.class_sets

    def __init__(self, capability: tuple[int, int]) -> None:
        super().__init__(sys.maxsize)
        self.capability, self.ended = capability, False

    def launch(self, kernel: Any, grid: Any, threads: int, *arguments: Any) -> None:
        """Compile a kernel; raise InterruptedError after the end."""
        if self.ended:
            raise InterruptedError
        kinds = tuple(map(kind_of, arguments))
        machine_code(kernel.function, kinds, kernel.bounds, self.capability)

    def _wrap(self, values: Any) -> DeviceArray:
        return DeviceArray(values, None)


class Rehearsal:
    """A rehearsal under way, on a backend that is opened for it."""

    def __init__(
        self, opened: Callable[..., Any], spec: ModelSpec, config: RunConfig, facts: DataFacts,
        capability: tuple[int, int],
    ) -> None:  # fmt: skip
        self._opened, self._memory = opened, CompilingMemory(capability)
        self._thread = threading.Thread(
            target=self._run, args=(spec, config, facts), name="compile", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Compile no more, and wait for the kernel that is being compiled."""
        self._memory.ended = True
        self._thread.join()

    def _run(self, spec: ModelSpec, config: RunConfig, facts: DataFacts) -> None:
        # What fails here fails again where the kernel is wanted, and is said there.
        with contextlib.suppress(Exception):
            n_classes = spec.n_classes if spec.exact else min(spec.n_classes, CLASSES)
            small = replace(spec.wide(), n_classes=n_classes, n_features=FEATURES, added_codes=())
            one = replace(facts, n_rows=1, nnz=1, n_labels=int(facts.listed))
            backend = self._opened(
                small, config, facts=one, weights=None, device_bytes=0, logistic=False,
                memory=self._memory,
            )  # fmt: skip
            _rehearse(backend, config, facts)


def _rehearse(backend: Backend, config: RunConfig, facts: DataFacts) -> None:
    """Take a step by each loss that there may be, and find best classes by each estimator."""
    starts, first = np.arange(2), np.zeros(1, np.int32)
    batch: Batch | RowIdBatch = Batch(
        indptr=starts, features=first, values=ONE, classes=first, importance=ONE,
        labels=LabelLists(starts, first, ONE) if facts.listed else None,
    )  # fmt: skip
    training = TrainSpec(
        epochs=1, batch_size=1, learning_rate=1.0, transform="raw", label_smoothing=0.0,
        optimizer=config.optimizer_kind.name, epsilon=1.0, seed=0,
    )  # fmt: skip
    losses: list[LossKind] = ["independent"]
    losses += ["logistic"] if facts.listed else []
    losses += ["joint"] if config.part("joint") is not None else []
    if config.placement.resident:
        assert isinstance(batch, Batch)
        assert backend.row_cache is not None
        backend.row_cache.keep(batch, "one row")
        batch = RowIdBatch(np.zeros(1, np.int64), starts, starts if facts.listed else None)
    for loss in losses:
        backend.prepare(replace(training, loss=loss), FEATURES, None, int(facts.listed))
        backend.step(batch, 1.0)
    rows = RowBlock(indptr=starts, features=first, values=ONE, classes=first)
    for kind in ESTIMATORS.values():
        if kind.join is None:
            backend.rank(rows, kind, np.zeros((1, 1), np.float32), np.zeros((1, 1), np.int64))
