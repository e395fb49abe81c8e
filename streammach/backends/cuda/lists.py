"""The losses of rows with lists of labels on CUDA: from outputs of models to residuals."""

from __future__ import annotations

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
    log_sigmoid,
    put,
    residual,
    sigmoid,
    warp_sum,
)
from streammach.backends.cuda.kernels import LOGARITHMS, LOGITS
from streammach.backends.cuda.launch import WARP, ColumnTiles, code_bits
from streammach.backends.cuda.memory import DeviceArray, Memory
from streammach.backends.cuda.target import cuda
from streammach.backends.cuda.transfers import TransferBuffer
from streammach.jit import Array, Number
from streammach.spec.model import ModelSpec

ZERO, ONE = np.float32(0), np.float32(1)
BOUNDS = (WARP, 16)  # a warp for a row and a model


def list_kernel(shape: ColumnTiles, bits: int) -> Callable[..., None]:
    """Return the kernel; it is launched on a block of one warp for each (row, model).

    Parameters
    ----------
    shape : ColumnTiles
        Models and columns.
    bits : int
        Bits of a bucket in the packed codes.
    """
    B, R, stride = shape.n_buckets, shape.n_repetitions, shape.stride
    per_word, mask = 32 // bits, (1 << bits) - 1

    def lists(
        starts: Array,
        classes: Array,
        shares: Array,
        importance: Array,
        codes: Array,
        code_words: int,
        smoothing: Number,
        z: Array,
        losses: Array,
    ) -> None:
        """Write the residuals of a row and a model over logarithms, and the loss.

        A thread owns the columns with its number modulo 32, so none is written by two.

        Parameters
        ----------
        starts, classes, shares : int32 (n + 1,), int32 (m,), float32 (m,)
            The labels of each row, and what each has of the target.
        importance : float32 (n,)
            Importance of the rows.
        codes : uint32 (R * code_words,)
            Packed buckets, model by model.
        code_words : int
            Words of a model's codes.
        smoothing : float32
            Share of the target that is spread evenly over the buckets.
        z : float32 (n * stride,)
            Logarithms of probabilities; receives the derivative of each row's loss times its
            weight.
        losses : float32 (n * R,)
            Receives the sum of ``-share ln p`` over the labels, times the row's weight.
        """
        row, r = int64(cuda.blockIdx.x), int64(cuda.blockIdx.y)
        t = int64(cuda.threadIdx.x)
        first, stop = int64(get(starts, row)), int64(get(starts, row + 1))
        scale, at = get(importance, row), row * stride + r * B
        whole, own = ZERO, ZERO
        for p in range(first, stop):
            y, share = int64(get(classes, p)), get(shares, p)
            word = get(codes, r * code_words + y // per_word)
            bucket = int64(word >> np.uint32(y % per_word * bits)) & mask
            whole += share
            if bucket % WARP == t:
                own += share * get(z, at + bucket)
        own = warp_sum(own)
        if t == 0:
            put(losses, row * R + r, -scale * own)
        for c in range(t, B, WARP):
            put(z, at + c, scale * whole * residual(exp(get(z, at + c)), False, smoothing, B))
        for p in range(first, stop):
            y, share = int64(get(classes, p)), get(shares, p)
            word = get(codes, r * code_words + y // per_word)
            bucket = int64(word >> np.uint32(y % per_word * bits)) & mask
            if bucket % WARP == t:
                put(z, at + bucket, get(z, at + bucket) - scale * share * (ONE - smoothing))

    return lists


def logistic_kernel(shape: ColumnTiles, bits: int) -> Callable[..., None]:
    """Return the kernel where each bucket has a sigmoid; it is launched as :func:`list_kernel`.

    Parameters
    ----------
    shape : ColumnTiles
        Models and columns.
    bits : int
        Bits of a bucket in the packed codes.
    """
    B, R, stride = shape.n_buckets, shape.n_repetitions, shape.stride
    per_word, mask = 32 // bits, (1 << bits) - 1

    def logistic(
        starts: Array,
        classes: Array,
        shares: Array,
        importance: Array,
        codes: Array,
        code_words: int,
        smoothing: Number,
        z: Array,
        losses: Array,
    ) -> None:
        """Write the residuals of a row and a model over logits, and the binary cross-entropy.

        A bucket's target is the sum of the shares of the row's labels in it, at most 1.

        Parameters
        ----------
        starts, classes, shares : int32 (n + 1,), int32 (m,), float32 (m,)
            The labels of each row, and what each has of the target.
        importance : float32 (n,)
            Importance of the rows.
        codes : uint32 (R * code_words,)
            Packed buckets, model by model.
        code_words : int
            Words of a model's codes.
        smoothing : float32
            Share of the target that is spread evenly over the buckets.
        z : float32 (n * stride,)
            Logits; receives the derivative of each row's loss times its weight.
        losses : float32 (n * R,)
            Receives the sum of the losses of the buckets, times the row's weight.
        """
        row, r = int64(cuda.blockIdx.x), int64(cuda.blockIdx.y)
        t = int64(cuda.threadIdx.x)
        first, stop = int64(get(starts, row)), int64(get(starts, row + 1))
        scale, at, keep = get(importance, row), row * stride + r * B, ONE - smoothing
        whole = ZERO
        for p in range(first, stop):
            whole += get(shares, p)
        spread = smoothing * min(whole / np.float32(B), ONE)
        loss = ZERO
        for c in range(t, B, WARP):
            x = get(z, at + c)
            loss += (ONE - spread) * x - log_sigmoid(x)
        # Each bucket of a label twice, first for the loss while `z` holds its logit.
        for turn in range(2):
            if turn == 1:
                for c in range(t, B, WARP):
                    put(z, at + c, scale * (sigmoid(get(z, at + c)) - spread))
            for p in range(first, stop):
                y = int64(get(classes, p))
                word = get(codes, r * code_words + y // per_word)
                bucket = int64(word >> np.uint32(y % per_word * bits)) & mask
                if bucket % WARP == t:
                    share, before = get(shares, p), ZERO
                    for q in range(first, p):
                        y = int64(get(classes, q))
                        word = get(codes, r * code_words + y // per_word)
                        if int64(word >> np.uint32(y % per_word * bits)) & mask == bucket:
                            before += get(shares, q)
                    share = keep * (min(before + share, ONE) - min(before, ONE))
                    if turn == 0:
                        loss -= share * get(z, at + bucket)
                    else:
                        put(z, at + bucket, get(z, at + bucket) - scale * share)
        loss = warp_sum(loss)
        if t == 0:
            put(losses, row * R + r, scale * loss)

    return logistic


@lru_cache(maxsize=32)
def _lists(shape: ColumnTiles, bits: int, logistic: bool) -> Any:
    made = logistic_kernel if logistic else list_kernel
    return compiled(made(shape, bits), BOUNDS)


class ListLoss:
    """Residuals of rows with lists of labels, of any group of models.

    Parameters
    ----------
    memory : Memory
        The device's.
    spec : ModelSpec
        The model.
    logistic : bool
        Whether each bucket has a sigmoid of its own.

    Attributes
    ----------
    begins_with : int
        The outputs that it turns into residuals.
    """

    def __init__(self, memory: Memory, spec: ModelSpec, *, logistic: bool) -> None:
        self._memory, self._bits, self._logistic = memory, code_bits(spec.n_buckets), logistic
        self.begins_with = LOGITS if logistic else LOGARITHMS

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
        """Write residuals of a slot's rows over the outputs in `z`.

        Parameters
        ----------
        group : ModelGroup
            The models.
        slot : TransferBuffer
            The rows, with their labels.
        n_rows : int
            How many.
        smoothing : float32
            Label smoothing.
        z : DeviceArray
            float32 (n * stride,).
        losses : DeviceArray
            float32 (n * models,): receives the losses.
        """
        self._memory.launch(
            _lists(group.shape, self._bits, self._logistic), (n_rows, group.n_repetitions), WARP,
            slot["label_starts"], slot["label_classes"], slot["label_shares"], slot["importance"],
            group.codes, np.int64(group.code_words), smoothing, z, losses,
        )  # fmt: skip
