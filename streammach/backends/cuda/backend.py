"""The CUDA backend: what lies where, and what runs when.

The device holds one group of repetitions: all of them where they fit. The others rest in host
arrays of the whole model. A step is: rows to the device, forward pass, sorting, backward pass,
losses back. Nothing waits for it: copies to the device run beside the kernels of the batch before,
and losses are read several steps later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.backends.cuda.chunks import rounding_key
from streammach.backends.cuda.decode import CudaDecoder
from streammach.backends.cuda.dense_rows import CudaDenseSteps, Products
from streammach.backends.cuda.device_memory import RESERVED_BYTES, DeviceMemory
from streammach.backends.cuda.footprint import fewest_groups
from streammach.backends.cuda.group import Host, ModelGroup, Rule
from streammach.backends.cuda.losses import CudaSteps, Losses
from streammach.backends.cuda.prediction import CudaPrediction, query_rows
from streammach.backends.cuda.shapes import group_edges, packed_codes, widest
from streammach.backends.cuda.sparse import CudaSparseSteps
from streammach.backends.cuda.transfers import BufferRoom, DeviceRows
from streammach.backends.protocol import NOTHING, Loss, Ranked, WeightRows
from streammach.options.config import RunConfig
from streammach.options.estimators import EstimatorKind
from streammach.options.facts import DataFacts
from streammach.options.model_spec import ModelSpec
from streammach.options.training import TrainSpec
from streammach.rows.batch import Batch, RowIdBatch
from streammach.rows.block import RowBlock
from streammach.rows.dense import RowMap
from streammach.rows.packed import Table
from streammach.system.threads import Workers


class CudaBackend(Ranked):
    """Trains and applies R softmax models with Numba's CUDA kernels, CuPy and cuBLAS.

    How it is opened, and what weights may be, says :class:`streammach.backends.kinds.Open`; with
    ``projection`` float32 (d + 2, D) rows get D more columns, and weights have d + D rows.
    """

    def __init__(
        self, spec: ModelSpec, config: RunConfig, *, facts: DataFacts | None,
        weights: Mapping[str, Table] | None, device_bytes: int, logistic: bool,
    ) -> None:  # fmt: skip
        placement = config.placement
        assert not (config.dense and placement.weights == "bfloat16"), "products take float32"
        self.spec, self.dense, self.logistic = spec, config.dense, logistic
        weights = weights or {
            "weights": np.zeros((spec.n_hashed_features, spec.n_columns), np.float32),
            "bias": np.zeros(spec.n_columns, np.float32),
        }
        more = None
        if "projection" in weights:
            more = RowMap(projection=np.asarray(weights["projection"]))
        self._scale = np.asarray(weights["scale"]) if "scale" in weights else None
        self._host: Host = {name: weights[name] for name in ("weights", "bias")}
        self._ahead = False  # whether the device holds newer numbers than the host
        self._applied = ""  # what other weights the device has, see apply()
        n_more = 0 if more is None else more.n_more
        self._wide = spec.wide(n_more)  # with the table's rows
        waves = placement.waves
        if config.optimizer is None:  # it only predicts
            waves = fewest_groups(
                spec.shape, dense=self.dense, device_bytes=device_bytes, n_more=n_more
            )
        self._edges = group_edges(spec, waves)
        self.n_waves, self._most = len(self._edges), widest(spec, waves)
        self._best_stays = placement.best_stays and self.n_waves == 1  # the best epoch
        self._best_steps = 0  # that it had taken
        self._weights_are, self._tf32 = placement.weights, placement.tf32
        self._steps = np.zeros(1, np.int64)  # of the host's arrays; the device is ahead of them
        self._n_steps = self._wave_steps = 0
        self._training: TrainSpec | None = None
        self._basis: RowMap | None = None
        self._forget_buffers()
        self._memory = memory = DeviceMemory(max(device_bytes - RESERVED_BYTES, 0))
        if self._tf32:
            memory.check_tf32()
        self._workers = Workers(placement.threads, "rows")
        self.codes = spec.codes()
        with memory.use():
            self._codes = memory.send_copy(packed_codes(self.codes, spec.n_buckets))
            self._decoder = CudaDecoder(memory, spec, self._codes)
            self._group = self._new_group()
            self._group.take(*self._edges[0])
            self._group.copy(self._host, to_host=False)
            self.row_cache = None
            if placement.resident:
                assert facts is not None, "rows that are kept are those of a store"
                ids = config.needs_ids(facts)
                self.row_cache = DeviceRows(
                    memory, facts.n_rows, facts.nnz, facts.n_labels, ids=ids
                )
            if more is not None:
                self._use(more)

    def _forget_buffers(self) -> None:
        """Let go what depends on sizes of batches and rows; what is there goes before new comes."""
        self._trains: CudaSteps | None = None
        self._losses: Losses | None = None
        self._predicts: CudaPrediction | None = None
        self._products: Products | None = None  # of dense rows
        self._room = BufferRoom(0, 0)

    def host_room(self, count: int, dtype: Any) -> NDArray[Any]:
        """Return a host array for rows of batches: page-locked for dense rows, sent from there."""
        if not self.dense or self.row_cache is not None:
            return np.empty(count, dtype)
        with self._memory.use():
            return self._memory.host_array(count, dtype)

    def prepare(
        self, training: TrainSpec, batch_nnz: int, basis: RowMap | None = None,
        batch_labels: int = 0,
    ) -> None:  # fmt: skip
        """Make ready to train from zero weights; buffers of an earlier call are used again."""
        self._training, self.logistic = training, training.logistic
        self.drain_losses()  # of an earlier training
        self._widen(0 if basis is None else basis.n_more)
        shapes = training.optimizer_kind.shapes(self._wide)
        weights = {name: self._host[name] for name in ("weights", "bias")}
        state = {n: a for n, a in self._host.items() if n in shapes and a.shape == shapes[n]}
        if state.keys() != shapes.keys():
            state = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        self._host = {**weights, **state}
        if self.n_waves > 1:
            for array in self._host.values():
                array[:] = 0
            self._host["bias"][:] = training.start_bias
        self._n_steps = self._wave_steps = 0
        with self._memory.use():
            self._group.keep_state(training.optimizer)
            self._group.take(*self._edges[0])
            self._group.start(training.start_bias)
            self._ahead = True
            kept = self.row_cache is not None
            room = BufferRoom(training.batch_size, batch_nnz, batch_labels, kept)
            if self._room != room:
                self._forget_buffers()
                self._memory.trim()  # else the pool keeps blocks that fit nothing
                self._room = room
            self._prediction()  # it must fit when an epoch has been trained
            if self._trains is None:
                self._trains, self._losses = self._new_steps(), Losses(self._memory)
            self._use(basis)
            joint = training.loss == "joint"
            assert not joint or self.n_waves == 1, "the joint loss needs all repetitions at once"
            self._trains.choose_loss(self._decoder if joint else None, logistic=training.logistic)

    def _new_steps(self) -> CudaSteps:
        given = (self._memory, self._wide, self._most, self._room, self.row_cache)
        if self._products is None:
            return CudaSparseSteps(*given)
        return CudaDenseSteps(*given, self._products, n_more=self._n_more, tf32=self._tf32)

    def unwhiten_weights(self) -> None:
        """Turn weights for rows in another basis into those for plain rows, if there is one."""
        if self._basis is None or self._basis.rotation is None:
            return
        host = self.arrays()
        self._basis.unwhiten_weights(host["weights"], host["bias"])
        with self._memory.use():
            self._use(self._basis.plain)
        self.restore()

    @property
    def keeps_best(self) -> bool:
        """Whether the host's arrays stay while the device trains: it has all groups."""
        return self.n_waves == 1

    @property
    def _n_more(self) -> int:
        """D, the columns that rows have beyond their features."""
        return self._wide.n_features - self.spec.n_hashed_features

    def _widen(self, n_more: int) -> None:
        """Make the tables those of rows with D more columns, if they are not."""
        if n_more == self._n_more:
            return
        self._wide = self.spec.wide(n_more)
        shape = (self._wide.n_features, self.spec.n_columns)
        self._host = {"weights": np.zeros(shape, np.float32), "bias": self._host["bias"]}
        with self._memory.use():
            self._forget_buffers()
            del self._group
            self._memory.trim()
            self._group = self._new_group()

    def _new_group(self) -> ModelGroup:
        return ModelGroup(
            self._memory, self._wide, self._codes, self._most, self._weights_are, self._workers,
            best_stays=self._best_stays,
        )  # fmt: skip

    def _use(self, basis: RowMap | None) -> None:
        """Bring dense rows to a basis from now on, or leave them plain."""
        self._basis = basis
        self._prediction()
        if self._products is not None:
            self._products.use(basis)

    def select_wave(self, wave: int, done: int = 0) -> None:
        """Turn to a wave of an epoch; `done` of its batches were trained before."""
        if wave and not done:
            self._n_steps -= self._wave_steps  # every wave takes the steps of the first
        self._wave_steps = done
        with self._memory.use():
            self._turn_to(wave)

    def step(self, batch: Batch | RowIdBatch, rate: float) -> Loss:
        """Have the device train on one batch; return the losses that are known now."""
        training, steps, losses = self._training, self._trains, self._losses
        assert training is not None, "prepare() comes first"
        assert steps is not None
        assert losses is not None
        self._n_steps += 1
        self._wave_steps += 1
        number = self._n_steps
        rate, epsilon = training.optimizer_kind.corrected(rate, training.epsilon, number)
        rule = Rule(
            smoothing=np.float32(training.label_smoothing), rate=np.float32(rate),
            epsilon=np.float32(epsilon), key=rounding_key(training.seed, number),
        )  # fmt: skip
        with self._memory.use():
            self._ahead = True
            sums = steps.step(self._group, batch, rule)
            return losses.take(sums, batch.n_rows * self._group.n_repetitions, batch.n_rows)

    def drain_losses(self) -> Loss:
        """Wait for all steps; return the losses that none of them returned."""
        if self._losses is None:
            return NOTHING
        with self._memory.use():
            return self._losses.drain()

    def outputs(self, rows: RowBlock, *, logarithms: bool) -> NDArray[np.float32]:
        with self._memory.use():
            return self._prediction().outputs(self._scale_values(rows), logarithms=logarithms)

    def rank(
        self, rows: RowBlock, kind: EstimatorKind, scores: NDArray[Any], ids: NDArray[Any]
    ) -> None:
        with self._memory.use():
            self._prediction().rank(self._scale_values(rows), kind, scores, ids)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return weights and optimiser state on the host, as they are now."""
        if self._ahead:
            with self._memory.use():
                self._group.copy(self._host, to_host=True)
            self._ahead = False
        return self._by_name(self._n_steps)

    def _by_name(self, steps: int) -> dict[str, NDArray[Any]]:
        """Return the host's arrays, which are those after so many steps."""
        self._steps[0] = steps
        arrays = {**self._host, "steps": self._steps}
        if self._basis is not None and self._basis.projection is not None:
            arrays["projection"] = self._basis.projection
        return arrays

    def restore(self) -> None:
        """Take over what was written into the arrays that :meth:`arrays` returned."""
        with self._memory.use():
            self._group.copy(self._host, to_host=False)
        self._ahead, self._applied, self._n_steps = False, "", int(self._steps[0])

    def keep_best(self) -> None:
        """Hold weights and state as they are now: on the device, or else in the host's arrays."""
        self._best_steps = self._n_steps
        if self._best_stays:
            with self._memory.use():
                self._group.keep_best()
        else:
            self.arrays()

    def best_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was held last, in the arrays that :meth:`arrays` returns: they are lent."""
        if self._best_stays:
            with self._memory.use():
                self._group.exchange()
                self._group.copy(self._host, to_host=True)
                self._group.exchange()
            self._ahead = True
        return self._by_name(self._best_steps)

    def return_to_best(self) -> None:
        """Go on from what was held last; the present weights are lost."""
        if self._best_stays:
            self._group.exchange()
            self._ahead, self._applied, self._n_steps = True, "", self._best_steps
        else:
            self._steps[0] = self._best_steps
            self.restore()

    def apply(self, weights: WeightRows | None, name: str = "") -> bool:
        """Predict by other weights until the trained ones are given back: None."""
        if self.n_waves > 1 or self._weights_are != "float32":
            return False
        if name != self._applied:
            host = self.arrays()
            table = host["weights"] if weights is None else weights
            with self._memory.use():
                self._group.copy({"weights": table, "bias": host["bias"]}, to_host=False)
            self._applied = name
        return True

    def device_bytes(self) -> tuple[int, int]:
        """Return the most bytes of device memory that buffers took, and what they may take."""
        return self._memory.most_bytes(), self._memory.limit

    def close(self) -> None:
        """Give the device's memory back."""
        self._workers.close()
        self._memory.wait()  # copies may be on their way from the room that goes now
        self._forget_buffers()
        self.row_cache = None
        del self._group, self._decoder, self._codes
        self._memory.trim()

    def _turn_to(self, wave: int) -> None:
        first, last = self._edges[wave]
        if self._group.first == first:
            return
        if self._ahead:
            self._group.copy(self._host, to_host=True)
        self._group.take(first, last)
        self._group.copy(self._host, to_host=False)
        self._ahead = False

    def _scale_values(self, rows: RowBlock) -> RowBlock:
        """Return rows cut at d', their values carrying the scale of int8 weights."""
        rows = self.cut(rows)
        if self._scale is None:
            return rows
        return replace(rows, values=rows.values * self._scale[rows.features])

    def _prediction(self) -> CudaPrediction:
        if self._predicts is None:
            memory, spec, waves = self._memory, self._wide, self.n_waves
            if self.dense:
                n_rows = max(self._room.n_rows, query_rows(spec, waves, dense=True))
                self._products = Products(memory, spec, n_rows, self._n_more, whitened=False)
            self._predicts = CudaPrediction(
                memory, spec, self._decoder, waves, self._groups, self._products, self._n_more
            )
        self._predicts.logistic = self.logistic
        return self._predicts

    def _groups(self) -> Iterator[ModelGroup]:
        """Bring one group after another to the device."""
        for wave in range(self.n_waves):
            self._turn_to(wave)
            yield self._group
