"""A model on a simulated device, by the kernels alone."""

import numpy as np

from streammach.backends.cuda import kernels
from streammach.backends.cuda.chunks import CODINGS, rounding_key
from streammach.backends.cuda.launcher import Kernel
from streammach.backends.cuda.shapes import launch_bounds, launch_shape, packed_codes
from tests.reference.layout import rows_in_fours, work_items

ANY_GPU = (9, 0)


class Device:
    """A model on a simulated device: arrays and launches as a backend makes them."""

    def __init__(
        self, spec, how, *, tile_columns=1024, segment=3, blocks=4, weights_are="float32",
        first_chunk=0,
    ):  # fmt: skip
        self.spec, self.how, self.segment, self.blocks = spec, how, segment, blocks
        self.first_chunk = first_chunk
        self.shape = launch_shape(spec.n_buckets, spec.n_repetitions, tile_columns)
        codes = spec.codes()
        self.codes = codes
        self.packed = packed_codes(codes, spec.n_buckets)
        coding, rows = CODINGS[weights_are], spec.n_features + 1
        self.table = np.zeros((rows, self.shape.chunks_per_row * coding.words), coding.word)
        wide = (rows, self.shape.stride) if how.optimizer_kind.per_weight else (1, 4)
        per_model = (rows, spec.n_repetitions)
        self.squares = np.zeros(per_model if how.optimizer_kind.per_model else wide, np.float32)
        self.second = np.zeros(wide, np.float32)
        self.steps = 0
        self.residuals = None
        bounds = launch_bounds(self.shape.threads, 56, ANY_GPU)
        self.forward = {
            residuals: Kernel(
                kernels.forward_kernel(self.shape, residuals=residuals, weights_are=weights_are),
                bounds,
            )
            for residuals in (False, True)
        }
        self.backward = Kernel(
            kernels.backward_kernel(self.shape, how.optimizer_kind.branch, weights_are=weights_are),
            bounds,
        )

    def outputs(self, batch, output):
        """Residuals and losses, or probabilities, of padded rows; what is not written stays NaN."""
        n, spec = len(batch.indptr) - 1, self.spec
        rows = rows_in_fours(batch.indptr, batch.features, batch.values)
        z = np.full((n, self.shape.stride), np.nan, np.float32)
        losses = np.full((n, spec.n_repetitions), np.nan, np.float32)
        importance = batch.importance if batch.importance is not None else np.ones(n, np.float32)
        self.forward[output == kernels.RESIDUALS][(n, self.shape.n_tiles), self.shape.threads](
            rows.indptr, rows.features, rows.values, batch.classes, importance,
            self.packed.ravel(), self.table.ravel(), self.packed.shape[1], spec.n_features,
            np.float32(self.how.label_smoothing), output, z.ravel(), losses.ravel(),
        )  # fmt: skip
        return z, losses

    def step(self, batch, rate):
        z, losses = self.outputs(batch, kernels.RESIDUALS)
        self.steps += 1
        corrected = self.how.optimizer_kind.corrected(rate, self.how.epsilon, self.steps)
        numbers = [np.float32(x) for x in corrected]
        numbers += [rounding_key(self.how.seed, self.steps), self.first_chunk]
        work = work_items(batch.by_feature, batch.n_rows, self.spec.n_features, self.segment)
        partial = np.full((max(work.n_slots, 1), self.shape.stride), np.nan, np.float32)
        slots = np.arange(work.n_slots, dtype=np.int32), np.ones(work.n_slots, np.float32)
        for items, entries, source in (
            (work.whole, (work.rows, work.values), z), (work.joined, slots, partial),
        ):  # fmt: skip
            if len(items.begin):
                self.backward[(self.blocks, self.shape.n_tiles), self.shape.threads](
                    *items, np.array([len(items.begin)], np.int32), *entries, source.ravel(),
                    *numbers, partial.ravel(), self.squares.ravel(), self.second.ravel(),
                    self.table.ravel(),
                )  # fmt: skip
        self.residuals = z
        return float(losses.sum(dtype=np.float64))

    @property
    def weights(self):
        return self.table[:-1, : self.spec.n_columns]

    @property
    def bias(self):
        return self.table[-1, : self.spec.n_columns]
