"""The joint loss on CUDA: the kernel that turns logarithms into residuals, and its launches."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

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
from streammach.backends.cuda.target import cuda
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
        cuda.syncthreads()  # all have read the logarithms: exchanges order no memory
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


def joint_list_kernel(shape: ColumnTiles, bits: int, n_best: int) -> Callable[..., None]:
    """Return the kernel for rows with lists of labels; it is launched as :func:`joint_kernel`.

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
    mean = np.float32(1) / np.float32(R)

    def joint(
        starts: Array,
        classes: Array,
        shares: Array,
        importance: Array,
        codes: Array,
        code_words: int,
        scores: Array,
        ids: Array,
        smoothing: Number,
        z: Array,
        losses: Array,
    ) -> None:
        """Write the residuals of the best classes and all of the row's own over logarithms.

        A thread weighs one of the best, the warp one own class after another; then a thread adds
        up the columns of models of its own.

        Parameters
        ----------
        starts, classes : int32 (n + 1,), int32 (m,)
            The labels of each row.
        shares : float32 (m,)
            What each has of the target; receives what it adds to its columns beside the best.
        importance : float32 (n,)
            Importance of the rows.
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
            Receives the sum of ``-share ln p`` over the labels, times the row's weight, for every
            model.
        """
        row, t = int64(cuda.blockIdx.x), int64(cuda.threadIdx.x)
        gains = cuda.shared.array(n_best, np.float32)
        first, stop = int64(get(starts, row)), int64(get(starts, row + 1))
        mine, s, target = int64(-1), LOWEST, ZERO
        if t < n_best:
            mine, s = get(ids, row * n_best + t), get(scores, row * n_best + t) * mean
        top, scale = warp_max(s), get(importance, row)
        e = ZERO
        if t < n_best:
            e = exp(s - top)
        count, whole, total, right = n_best, ZERO, warp_sum(e), ZERO
        # Each label twice: first for the sums of the row, then for what it adds to its columns.
        for turn in range(2):
            for p in range(first, stop):
                y, score, partial = int64(get(classes, p)), LOWEST, ZERO
                if mine == y:
                    score = s
                score = warp_max(score)  # where it is among the best
                beside = score == LOWEST
                if beside:
                    word, shift = y // per_word, np.uint32(y % per_word * bits)
                    for r in range(t, R, WARP):
                        bucket = int64(get(codes, r * code_words + word) >> shift) & mask
                        partial += get(z, row * stride + r * B + bucket)
                partial = warp_sum(partial) * mean
                if beside:
                    score = min(partial, top)
                own = exp(score - top)
                if turn == 0:
                    share = get(shares, p)
                    whole += share
                    right += share * (score - top)
                    if beside:
                        total += own
                        count += 1
                    if mine == y:
                        target = share
                elif t == 0:
                    share = (ONE - smoothing) * get(shares, p)
                    gain = scale * (whole * residual(own / total, False, smoothing, count) - share)
                    put(shares, p, gain if beside else ZERO)
            cuda.syncthreads()
        if t < n_best:
            target = (ONE - smoothing) * target
            put(gains, t, scale * (whole * residual(e / total, False, smoothing, count) - target))
        loss = scale * (whole * np.float32(math.log(total)) - right)
        for r in range(t, R, WARP):
            put(losses, row * R + r, loss)
        for c in range(t, stride, WARP):
            put(z, row * stride + c, ZERO)
        cuda.syncthreads()
        for r in range(t, R, WARP):
            at = row * stride + r * B
            for j in range(n_best):
                i = get(ids, row * n_best + j)
                word = get(codes, r * code_words + i // per_word)
                bucket = int64(word >> np.uint32(i % per_word * bits)) & mask
                put(z, at + bucket, get(z, at + bucket) + get(gains, j))
            for p in range(first, stop):
                i = int64(get(classes, p))
                word = get(codes, r * code_words + i // per_word)
                bucket = int64(word >> np.uint32(i % per_word * bits)) & mask
                put(z, at + bucket, get(z, at + bucket) + get(shares, p))

    return joint


@lru_cache(maxsize=32)
def _joint(shape: ColumnTiles, bits: int, n_best: int, listed: bool) -> Any:
    made = joint_list_kernel if listed else joint_kernel
    return compiled(made(shape, bits, n_best), BOUNDS)


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
    listed : bool
        Whether rows have lists of labels.

    Attributes
    ----------
    begins_with : int
        The outputs that it turns into residuals.
    """

    begins_with = LOGARITHMS

    def __init__(
        self, memory: Memory, spec: ModelSpec, decoder: Decoder, *, listed: bool = False
    ) -> None:
        self._memory, self._decoder, self._listed = memory, decoder, listed
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
        kernel = _joint(group.shape, self._bits, self._n_best, self._listed)
        for start, stop, scores, ids in self._decoder.found(z, SUM, n_rows, self._n_best):
            n = stop - start
            memory.launch(
                kernel, n, WARP, *self._labels(slot, start, n),
                memory.view(slot["importance"], start, n), group.codes, np.int64(group.code_words),
                scores, ids, smoothing, memory.view(z, start * stride, n * stride),
                memory.view(losses, start * models, n * models),
            )  # fmt: skip

    def _labels(self, slot: TransferBuffer, start: int, n: int) -> tuple[DeviceArray, ...]:
        """Return the classes of n rows, or their lists of labels, whose shares are used up."""
        if not self._listed:
            return (self._memory.view(slot["classes"], start, n),)
        starts = self._memory.view(slot["label_starts"], start, n + 1)
        return starts, slot["label_classes"], slot["label_shares"]
