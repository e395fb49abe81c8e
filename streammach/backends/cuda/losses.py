"""Losses on CUDA: the joint one and those of lists of labels, and the way of losses to the host.

Kernels turn outputs of models into residuals. Their arrays: `classes` int32 (n,), or where rows
have lists of labels `starts` int32 (n + 1,), `classes` int32 (m,) and `shares` float32 (m,), what
each has of the target; `importance` float32 (n,) of the rows; `codes` uint32 (R * code_words,),
packed buckets, model by model; `scores` float32 (n * k,) and `ids` int64 (n * k,), the best classes
of each row and the sums of their logarithms; `smoothing` float32, the share of the target that is
spread evenly over classes or buckets; `z` float32 (n * stride,), outputs of all models, receives
the derivative of each row's loss times its weight; `losses` float32 (n * R,) receives losses times
the row's weight.

What a step lost is read several steps late, so that no step waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from streammach.backends.cuda.group import ModelGroup, OverOutputs
from streammach.backends.cuda.instructions import (
    bucket_function,
    compiled,
    exp,
    get,
    int64,
    log_sigmoid,
    put,
    residual,
    sigmoid,
    striding,
    warp_max,
    warp_sum,
)
from streammach.backends.cuda.kernels import LOGARITHMS, LOGITS, LOWEST, ONE, ZERO
from streammach.backends.cuda.launcher import cuda
from streammach.backends.cuda.memory import DeviceArray, DeviceMemory, buffer_bytes
from streammach.backends.cuda.prediction import CudaDecoder
from streammach.backends.cuda.shapes import WARP, ColumnTiles, code_bits
from streammach.backends.cuda.transfers import LABELS, TransferBuffer
from streammach.backends.loss import BEST_CLASSES, NOTHING, Loss
from streammach.jit import Array, Number
from streammach.spec.estimators import SUM
from streammach.spec.model import ModelSpec

BOUNDS = (WARP, 16)  # a warp a row, or a row and a model
PARTS = 1024  # sums of a step's losses, whatever the device: each in a fixed order
TOGETHER = 8  # steps whose losses are read at once
LAPS = 2  # so many of them are on their way while those before are read
SUMS = 2 * PARTS  # float32 of a step
assert BEST_CLASSES <= WARP, "a thread weighs a class"


def joint_kernel(shape: ColumnTiles, n_best: int) -> Callable[..., None]:
    """Return the kernel of the joint loss, over so many best classes; a block of a warp a row."""
    B, R, stride = shape.n_buckets, shape.n_repetitions, shape.stride
    bucket = bucket_function(code_bits(B))
    share, room = np.float32(1) / np.float32(R), n_best + 1

    def joint(
        classes: Array, importance: Array, codes: Array, code_words: int, scores: Array, ids: Array,
        smoothing: Number, z: Array, losses: Array,
    ) -> None:  # fmt: skip
        """Write the residuals of the best classes and the row's own over logarithms.

        A thread weighs a class, then adds up the columns of models of its own. Every model's loss
        is ``-ln p`` of the row's class.
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
            for r in range(t, R, WARP):
                at = row * stride + r * B
                partial += get(z, at + bucket(codes, r * code_words, label))
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
                at = first + bucket(codes, r * code_words, i)
                put(z, at, get(z, at) + get(gains, j))

    return joint


def joint_list_kernel(shape: ColumnTiles, n_best: int) -> Callable[..., None]:
    """Return the kernel for rows with lists of labels; it is launched as :func:`joint_kernel`."""
    B, R, stride = shape.n_buckets, shape.n_repetitions, shape.stride
    bucket = bucket_function(code_bits(B))
    mean = np.float32(1) / np.float32(R)

    def joint(
        starts: Array, classes: Array, shares: Array, importance: Array, codes: Array,
        code_words: int, scores: Array, ids: Array, smoothing: Number, z: Array, losses: Array,
    ) -> None:  # fmt: skip
        """Write the residuals of the best classes and all of the row's own over logarithms.

        A thread weighs one of the best, the warp one own class after another; then a thread adds
        up the columns of models of its own. Every model's loss is the sum of ``-share ln p`` over
        the labels; `shares` receives what each adds to its columns beside the best.
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
                    for r in range(t, R, WARP):
                        at = row * stride + r * B
                        partial += get(z, at + bucket(codes, r * code_words, y))
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
            begin = row * stride + r * B
            for j in range(n_best):
                at = begin + bucket(codes, r * code_words, get(ids, row * n_best + j))
                put(z, at, get(z, at) + get(gains, j))
            for p in range(first, stop):
                at = begin + bucket(codes, r * code_words, int64(get(classes, p)))
                put(z, at, get(z, at) + get(shares, p))

    return joint


def list_kernel(shape: ColumnTiles, *, logistic: bool) -> Callable[..., None]:
    """Return the kernel of softmaxes or sigmoids; launched on a block of a warp a (row, model)."""
    B, R, stride = shape.n_buckets, shape.n_repetitions, shape.stride
    bucket = bucket_function(code_bits(B))

    def lists(
        starts: Array, classes: Array, shares: Array, importance: Array, codes: Array,
        code_words: int, smoothing: Number, z: Array, losses: Array,
    ) -> None:  # fmt: skip
        """Write the residuals of a row and a model over logarithms, or logits, and the loss.

        The loss is the sum of ``-share ln p`` over the labels; of sigmoids the binary
        cross-entropy, where a bucket's target is the sum of the shares of the row's labels in it,
        at most 1. A thread owns the columns with its number modulo 32, so none is written by two.
        """
        row, r = int64(cuda.blockIdx.x), int64(cuda.blockIdx.y)
        t = int64(cuda.threadIdx.x)
        first, stop = int64(get(starts, row)), int64(get(starts, row + 1))
        scale, at, keep = get(importance, row), row * stride + r * B, ONE - smoothing
        whole, loss = ZERO, ZERO
        for p in range(first, stop):
            whole += get(shares, p)
        if logistic:
            spread = smoothing * min(whole / np.float32(B), ONE)
            for c in range(t, B, WARP):
                x = get(z, at + c)
                loss += (ONE - spread) * x - log_sigmoid(x)
            # Each bucket of a label twice, first for the loss while `z` holds its logit.
            for turn in range(2):
                if turn == 1:
                    for c in range(t, B, WARP):
                        put(z, at + c, scale * (sigmoid(get(z, at + c)) - spread))
                for p in range(first, stop):
                    c = bucket(codes, r * code_words, int64(get(classes, p)))
                    if c % WARP == t:
                        share, before = get(shares, p), ZERO
                        for q in range(first, p):
                            if bucket(codes, r * code_words, int64(get(classes, q))) == c:
                                before += get(shares, q)
                        share = keep * (min(before + share, ONE) - min(before, ONE))
                        if turn == 0:
                            loss -= share * get(z, at + c)
                        else:
                            put(z, at + c, get(z, at + c) - scale * share)
        else:
            for p in range(first, stop):
                c = bucket(codes, r * code_words, int64(get(classes, p)))
                if c % WARP == t:
                    loss -= get(shares, p) * get(z, at + c)
            for c in range(t, B, WARP):
                put(z, at + c, scale * whole * residual(exp(get(z, at + c)), False, smoothing, B))
            for p in range(first, stop):
                c = bucket(codes, r * code_words, int64(get(classes, p)))
                if c % WARP == t:
                    put(z, at + c, get(z, at + c) - scale * get(shares, p) * keep)
        loss = warp_sum(loss)
        if t == 0:
            put(losses, row * R + r, scale * loss)

    return lists


@lru_cache(maxsize=32)
def _kernel(shape: ColumnTiles, n_best: int, *, listed: bool, logistic: bool = False) -> Any:
    """Return a kernel of the joint loss, or of each model's own where no best classes are found."""
    if n_best:
        made = (joint_list_kernel if listed else joint_kernel)(shape, n_best)
    else:
        made = list_kernel(shape, logistic=logistic)
    return compiled(made, BOUNDS)


class CudaJointLoss(OverOutputs):
    """Residuals of the joint loss, where all repetitions are on the device.

    A decoder finds the best classes; rows may have lists of labels.
    """

    begins_with = LOGARITHMS

    def __init__(
        self, memory: DeviceMemory, spec: ModelSpec, decoder: CudaDecoder, *, listed: bool
    ) -> None:
        self._memory, self._decoder, self._listed = memory, decoder, listed
        self._n_best = min(BEST_CLASSES, spec.n_classes)

    def residuals(
        self, group: ModelGroup, slot: TransferBuffer, n_rows: int, *, smoothing: np.float32,
        z: DeviceArray, losses: DeviceArray,
    ) -> None:  # fmt: skip
        """Write residuals of a slot's rows over `z`."""
        memory, stride, models = self._memory, group.shape.stride, group.n_repetitions
        kernel = _kernel(group.shape, self._n_best, listed=self._listed)
        for start, stop, scores, ids in self._decoder.found(z, SUM, n_rows, self._n_best):
            n = stop - start
            labels = [memory.view(slot["classes"], start, n)]
            if self._listed:  # their shares are used up
                starts = memory.view(slot["label_starts"], start, n + 1)
                labels = [starts, slot["label_classes"], slot["label_shares"]]
            memory.launch(
                kernel, n, WARP, *labels, memory.view(slot["importance"], start, n), group.codes,
                group.code_words, scores, ids, smoothing,
                memory.view(z, start * stride, n * stride),
                memory.view(losses, start * models, n * models),
            )  # fmt: skip


class ListLoss(OverOutputs):
    """Residuals of rows with lists of labels, of any group of models, softmaxes or sigmoids."""

    def __init__(self, memory: DeviceMemory, *, logistic: bool) -> None:
        self._memory, self._logistic = memory, logistic
        self.begins_with = LOGITS if logistic else LOGARITHMS

    def residuals(
        self, group: ModelGroup, slot: TransferBuffer, n_rows: int, *, smoothing: np.float32,
        z: DeviceArray, losses: DeviceArray,
    ) -> None:  # fmt: skip
        """Write residuals of a slot's rows over `z`."""
        self._memory.launch(
            _kernel(group.shape, 0, listed=True, logistic=self._logistic),
            (n_rows, group.n_repetitions), WARP, *(slot[name] for name in LABELS),
            slot["importance"], group.codes, group.code_words, smoothing, z, losses,
        )  # fmt: skip


def sum_losses(losses: Array, count: Number, out: Array) -> None:
    """Add up losses in :data:`PARTS` sums, each of them every so many.

    What the rounding of a sum leaves out is summed beside it: two float32 hold 48 bits.

    Parameters
    ----------
    losses, count : float32 (count,), int
        The losses, and how many.
    out : float32 (2 * PARTS,)
        Receives sums, and behind them what they left out.
    """
    start, step = int64(cuda.grid(1)), int64(cuda.gridsize(1))
    for part in range(start, PARTS, step):
        total, left = np.float32(0), np.float32(0)
        for i in range(part, count, PARTS):
            x = get(losses, i)
            joined = total + x
            added = joined - total
            left += (total - (joined - added)) + (x - added)
            total = joined
        put(out, part, total)
        put(out, PARTS + part, left)


class Losses:
    """A ring of page-locked room for the sums of the losses of steps."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._sums = memory.empty(SUMS, np.float32)
        self._room = memory.page_locked(LAPS * TOGETHER * SUMS, np.float32)
        self._there = [memory.event() for _ in range(LAPS)]
        self._steps: list[int] = []  # not yet read: rows of each
        self._next = 0  # step of the ring

    @staticmethod
    def footprint() -> tuple[int, int]:
        """Return the bytes on the host and on the device."""
        return 4 * LAPS * TOGETHER * SUMS, buffer_bytes(SUMS, np.float32)

    def take(self, losses: DeviceArray, count: int, n_rows: int) -> Loss:
        """Send for a step's losses float32 (count,); return those of earlier ones that came."""
        memory, at = self._memory, self._next * SUMS
        memory.stride(striding(sum_losses), PARTS, losses, count, self._sums)
        memory.fetch_later(self._room[at : at + SUMS], self._sums)
        self._steps.append(n_rows)
        self._next = (self._next + 1) % (LAPS * TOGETHER)
        if self._next % TOGETHER:
            return NOTHING
        self._there[self._next // TOGETHER - 1].mark()
        if len(self._steps) < LAPS * TOGETHER:
            return NOTHING
        self._there[self._next // TOGETHER % LAPS].reach()
        return self._read(TOGETHER)

    def drain(self) -> Loss:
        """Wait for all steps; return the losses that were not read."""
        self._memory.wait()
        found = self._read(len(self._steps))
        self._next = 0
        return found

    def _read(self, n_steps: int) -> Loss:
        """Return the losses of the oldest steps, which are there."""
        total, rows = 0.0, 0
        first = self._next - len(self._steps)
        for i, n_rows in enumerate(self._steps[:n_steps]):
            at = (first + i) % (LAPS * TOGETHER) * SUMS
            total += float(self._room[at : at + SUMS].sum(dtype=np.float64))
            rows += n_rows
        del self._steps[:n_steps]
        return Loss(total, rows)
