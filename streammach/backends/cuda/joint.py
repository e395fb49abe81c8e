"""The joint loss on CUDA: the kernel that turns logarithms into residuals, and its launches."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda

from streammach.backends.cuda.group import ModelGroup
from streammach.backends.cuda.instructions import (
    compiled,
    exp,
    get,
    int64,
    put,
    residual,
    warp_max,
    warp_sum,
)
from streammach.backends.cuda.kernels import LOGARITHMS
from streammach.backends.cuda.launch import WARP, ColumnTiles, code_bits
from streammach.backends.cuda.memory import DeviceArray, Memory
from streammach.backends.cuda.topk import Decoder
from streammach.backends.cuda.transfers import TransferBuffer
from streammach.backends.loss import BEST_CLASSES
from streammach.jit import Array, Number
from streammach.spec.estimators import SUM
from streammach.spec.model import ModelSpec

ZERO, ONE, LOWEST = np.float32(0), np.float32(1), np.float32(-np.inf)
BOUNDS = (WARP, 16)  # a warp a row
assert BEST_CLASSES <= WARP, "a thread weighs a class"


def joint_kernel(shape: ColumnTiles, bits: int, n_best: int) -> Callable[..., None]:
    """Return the kernel of the joint loss; it is launched on a block of one warp for each row.

    Parameters
    ----------
    shape : ColumnTiles
        Models and columns.
    bits : int
        Bits of a bucket in the packed codes.
    n_best : int
        How many classes were found for each row.
    """
    B, R, stride = shape.n_buckets, shape.n_repetitions, shape.stride
    per_word, mask = 32 // bits, (1 << bits) - 1
    share, room = np.float32(1) / np.float32(R), n_best + 1

    def joint(
        classes: Array,
        importance: Array,
        codes: Array,
        code_words: int,
        scores: Array,
        ids: Array,
        smoothing: Number,
        z: Array,
        losses: Array,
    ) -> None:
        """Write the residuals of the best classes and the row's own over logarithms.

        A thread weighs a class, then adds up the columns of models of its own.

        Parameters
        ----------
        classes, importance : int32 (n,), float32 (n,)
            Classes and importance of the rows.
        codes : uint32 (R * code_words,)
            Packed buckets, model by model.
        code_words : int
            Words of a model's codes.
        scores, ids : float32 (n * k,), int64 (n * k,)
            The best classes of each row, and the sums of their logarithms.
        smoothing : float32
            Share of the target that is spread evenly over the classes.
        z : float32 (n * stride,)
            Logarithms of probabilities; receives the derivative of each row's loss times its
            weight.
        losses : float32 (n * R,)
            Receives ``-ln p`` of the row's class times its weight, for every model.
        """
        row, t = int64(cuda.blockIdx.x), int64(cuda.threadIdx.x)
        gains = cuda.shared.array(room, np.float32)
        label, scale = int64(get(classes, row)), get(importance, row)
        mine, s = int64(-1), LOWEST
        if t < n_best:
            mine, s = get(ids, row * n_best + t), get(scores, row * n_best + t) * share
        own = LOWEST  # the class's own score, where it is among the best
        if mine == label:
            own = s
        own = warp_max(own)
        count = n_best
        partial = ZERO
        if own == LOWEST:
            count = n_best + 1
            word, shift = label // per_word, np.uint32(label % per_word * bits)
            for r in range(t, R, WARP):
                bucket = int64(get(codes, r * code_words + word) >> shift) & mask
                partial += get(z, row * stride + r * B + bucket)
        partial = warp_sum(partial) * share
        if own == LOWEST:
            own = partial
        top = max(warp_max(s), own)
        e, e_own = ZERO, exp(own - top)
        if t < n_best:
            e = exp(s - top)
        total = warp_sum(e)
        if count > n_best:
            total += e_own
        if t < n_best:
            put(gains, t, scale * residual(e / total, mine == label, smoothing, count))
        if t == 0:
            put(gains, n_best, scale * residual(e_own / total, True, smoothing, count))
        loss = scale * (np.float32(math.log(total)) - (own - top))
        for r in range(t, R, WARP):
            put(losses, row * R + r, loss)
        for c in range(t, stride, WARP):
            put(z, row * stride + c, ZERO)
        cuda.syncthreads()
        for r in range(t, R, WARP):
            first = row * stride + r * B
            for j in range(count):
                i = label
                if j < n_best:
                    i = get(ids, row * n_best + j)
                word, shift = i // per_word, np.uint32(i % per_word * bits)
                at = first + (int64(get(codes, r * code_words + word) >> shift) & mask)
                put(z, at, get(z, at) + get(gains, j))

    return joint


@lru_cache(maxsize=32)
def _joint(shape: ColumnTiles, bits: int, n_best: int) -> Any:
    return compiled(joint_kernel(shape, bits, n_best), BOUNDS)


class JointLoss:
    """Residuals of the joint loss, where all repetitions are on the device.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The model.
    decoder : Decoder
        Finds the best classes.

    Attributes
    ----------
    begins_with : int
        The outputs that it turns into residuals.
    """

    begins_with = LOGARITHMS

    def __init__(self, memory: Memory, spec: ModelSpec, decoder: Decoder) -> None:
        self._memory, self._decoder = memory, decoder
        self._bits, self._n_best = code_bits(spec.n_buckets), min(BEST_CLASSES, spec.n_classes)

    def residuals(
        self,
        group: ModelGroup,
        slot: TransferBuffer,
        n_rows: int,
        *,
        smoothing: np.float32,
        z: DeviceArray,
        losses: DeviceArray,
    ) -> None:
        """Write residuals of a slot's rows over the logarithms in `z`.

        Parameters
        ----------
        group : ModelGroup
            All models.
        slot : TransferBuffer
            The rows.
        n_rows : int
            How many.
        smoothing : float32
            Label smoothing.
        z : DeviceArray
            float32 (n * stride,).
        losses : DeviceArray
            float32 (n * models,): receives the losses.
        """
        memory, stride, models = self._memory, group.shape.stride, group.n_repetitions
        kernel = _joint(group.shape, self._bits, self._n_best)
        for start, stop, scores, ids in self._decoder.found(z, SUM, n_rows, self._n_best):
            n = stop - start
            memory.launch(
                kernel, n, WARP, memory.view(slot["classes"], start, n),
                memory.view(slot["importance"], start, n), group.codes, np.int64(group.code_words),
                scores, ids, smoothing, memory.view(z, start * stride, n * stride),
                memory.view(losses, start * models, n * models),
            )  # fmt: skip
