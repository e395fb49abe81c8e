"""Outputs and best classes of rows without labels, by all groups of a model in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.group import ModelGroup
from streammach.backends.cuda.memory import UNIT, DeviceArray, Memory, buffer_bytes
from streammach.backends.cuda.products import RowTables
from streammach.backends.cuda.steps import Queries
from streammach.backends.cuda.topk import Decoder
from streammach.backends.cuda.waves import widest
from streammach.rows.block import RowBlock
from streammach.spec.estimators import EstimatorKind
from streammach.spec.model import ModelShape, ModelSpec

WAVES_BYTES = 256 << 20  # of all groups' outputs on the host, where they are computed in turn


def _joint_stride(spec: ModelShape) -> int:
    return -(-spec.n_columns // 4) * 4


def _joint_size(spec: ModelShape) -> int:
    """Return the elements of the buffer that all groups' outputs are sent back through."""
    stride = _joint_stride(spec)
    return stride * max(1, min(4096, (16 << 20) // (4 * stride)))


class Prediction:
    """What predicting needs on the device.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The model.
    codes : unsigned (K, R)
        Buckets of each class.
    waves : int
        Its groups.
    groups : callable
        Yields them one after another, each on the device until the next is asked for.
    dense : bool
        Whether rows go through matrix products.
    n_more : int
        D, how many of the model's features are columns that rows get here.

    Attributes
    ----------
    decoder : Decoder
        Finds the best classes.
    logistic : bool
        Whether each bucket has a sigmoid of its own.
    """

    def __init__(
        self,
        memory: Memory,
        spec: ModelSpec,
        codes: NDArray[Any],
        waves: int,
        groups: Callable[[], Iterator[ModelGroup]],
        *,
        dense: bool,
        n_more: int = 0,
    ) -> None:
        self._memory, self._spec, self._groups = memory, spec, groups
        self.logistic = False
        self._queries = Queries(memory, spec, widest(spec, waves), dense=dense, n_more=n_more)
        self.decoder = Decoder(memory, spec, codes)
        self._joint = memory.empty(_joint_size(spec), np.float32) if waves > 1 else None

    def use(self, tables: RowTables | None) -> None:
        """Bring dense rows to a basis from now on, or leave them plain."""
        self._queries.use(tables)

    @staticmethod
    def footprint(
        spec: ModelShape, waves: int, *, dense: bool, whitened: bool, n_more: int = 0
    ) -> dict[str, int]:
        """Return the bytes on the device, by name."""
        lines = {
            "queries": Queries.footprint(
                spec, widest(spec, waves), dense=dense, whitened=whitened, n_more=n_more
            )
            + UNIT,
            "decode": Decoder.footprint(spec),
        }
        if waves > 1:
            lines["outputs of all waves"] = buffer_bytes(_joint_size(spec), np.float32)
        return lines

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        """Return bucket probabilities, or their logarithms: float32 (n, R*B)."""
        out = np.empty((rows.n_rows, self._spec.n_columns), np.float32)
        for group in self._groups():
            columns = slice(group.first * self._spec.n_buckets, group.last * self._spec.n_buckets)
            for start, stop in self._queries.parts(rows):
                part = rows.part(start, stop)
                z = self._run(group, part, logarithms=logarithms)
                found = np.empty((stop - start, group.shape.stride), np.float32)
                self._memory.fetch(found.reshape(-1), z)
                out[start:stop, columns] = found[:, : columns.stop - columns.start]
        return out

    def _run(self, group: ModelGroup, rows: RowBlock, *, logarithms: bool) -> DeviceArray:
        return self._queries.run(group, rows, logarithms=logarithms, logistic=self.logistic)

    def rank(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        """Write the best classes of rows and what they were ranked by.

        Parameters
        ----------
        rows : RowBlock
            n rows with transformed float32 values.
        kind : EstimatorKind
            How classes are ranked.
        scores, ids : float32 (n, k), int64 (n, k)
            Receive the result, best first.
        """
        find = self._of_one_group if self._joint is None else self._of_all_groups
        find(rows, kind, scores, ids)

    def _of_one_group(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        group = next(self._groups())
        for start, stop in self._queries.parts(rows):
            part = rows.part(start, stop)
            z = self._run(group, part, logarithms=kind.logarithms)
            self.decoder.best(z, kind.branch, scores[start:stop], ids[start:stop])

    def _of_all_groups(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        """Join the groups' outputs on the host and send them back: they fit the device in parts."""
        spec, memory, joint = self._spec, self._memory, self._joint
        assert joint is not None
        stride = _joint_stride(spec)
        step = _joint_size(spec) // stride
        most = max(1, WAVES_BYTES // (4 * spec.n_columns))
        for a in range(0, rows.n_rows, most):
            b = min(a + most, rows.n_rows)
            p = self.outputs(rows.part(a, b), logarithms=kind.logarithms)
            for start in range(a, b, step):
                stop = min(start + step, b)
                padded = np.zeros((stop - start, stride), np.float32)
                padded[:, : spec.n_columns] = p[start - a : stop - a]
                memory.send(joint, padded.reshape(-1))
                memory.wait()
                self.decoder.best(joint, kind.branch, scores[start:stop], ids[start:stop])
