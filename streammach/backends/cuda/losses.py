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
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from streammach.backends.cuda.decode import CudaDecoder
from streammach.backends.cuda.device_memory import DeviceArray, DeviceMemory
from streammach.backends.cuda.group import ModelGroup, Rule
from streammach.backends.cuda.instructions import (
    bucket_function,
    exp,
    int64,
    log_sigmoid,
    residual,
    sigmoid,
    striding,
)
from streammach.backends.cuda.kernels import LOGARITHMS, LOGITS, LOWEST, ONE, RESIDUALS, ZERO
from streammach.backends.cuda.launcher import Kernel
from streammach.backends.cuda.shapes import WARP, ColumnTiles, code_bits, stride_of
from streammach.backends.cuda.toolchain import cuda, get, put, warp_max, warp_sum
from streammach.backends.cuda.transfers import LABELS, BufferRoom, TransferBuffer
from streammach.backends.protocol import BEST_CLASSES, NOTHING, Loss, join_losses
from streammach.options.estimators import SUM
from streammach.options.model_spec import ModelShape
from streammach.rows.batch import Batch, RowIdBatch
from streammach.system.jit import Array, Number

BOUNDS = (WARP, 16)  # a warp a row, or a row and a model
PARTS = 1024  # sums of a step's losses, whatever the device: each in a fixed order
LATE = 16  # steps whose losses are on their way
SUMS = 2 * PARTS  # float32 of a step
assert BEST_CLASSES <= WARP, "a thread weighs a class"


def joint_kernel(shape: ColumnTiles, n_best: int) -> Callable[..., None]:
    """Return the kernel of the joint loss, over so many best classes; a block of a warp a row."""
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
def _kernel(shape: ColumnTiles, n_best: int, *, logistic: bool) -> Any:
    """Return a kernel of the joint loss, or of each model's own where no best classes are found."""
    made = joint_kernel(shape, n_best) if n_best else list_kernel(shape, logistic=logistic)
    return Kernel(made, BOUNDS)


class CudaSteps(ABC):
    """Trains a group on batches; nothing waits for the device.

    The joint loss, and those of lists of labels, begin with the outputs of all models.
    """

    def __init__(
        self, memory: DeviceMemory, spec: ModelShape, models: int, room: BufferRoom
    ) -> None:
        self._memory, self._n_classes = memory, spec.n_classes
        self.z = memory.empty(room.n_rows * stride_of(spec, models), np.float32, "residuals")
        self.losses = memory.empty(room.n_rows * models, np.float32, "residuals")
        # Starts and shares of the target where each row has one label.
        self._starts = memory.numbers(room.n_rows + 1, "residuals")
        self._shares = memory.empty(room.n_rows, np.float32, "residuals")
        self._listed = room.n_labels > 0
        self.choose_loss(None, logistic=False)

    def choose_loss(self, decoder: CudaDecoder | None, *, logistic: bool) -> None:
        """Train by the joint loss, if a decoder finds its best classes, or by each model's own."""
        # The joint loss needs all repetitions on the device.
        self._decoder, self._logistic = decoder, logistic

    @abstractmethod
    def step(self, group: ModelGroup, batch: Batch | RowIdBatch, rule: Rule) -> DeviceArray:
        """Ask for a step on one batch; return where the losses of its rows and models will be."""

    def _residuals(
        self, group: ModelGroup, slot: TransferBuffer, n_rows: int, smoothing: np.float32, *,
        dense: bool,
    ) -> None:  # fmt: skip
        """Write the residuals of a slot's rows to `z`, their losses to `losses`."""
        output = RESIDUALS
        if self._decoder is not None or self._listed:
            output = LOGITS if self._logistic else LOGARITHMS
        group.forward(
            slot, n_rows, output, z=self.z, losses=self.losses, smoothing=smoothing, dense=dense
        )
        if output != RESIDUALS:
            self._residuals_of_outputs(group, slot, n_rows, smoothing)

    def _residuals_of_outputs(
        self, group: ModelGroup, slot: TransferBuffer, n_rows: int, smoothing: np.float32
    ) -> None:
        """Turn a slot's outputs in `z` into residuals, and write losses; shares are used up."""
        memory, stride, models = self._memory, group.shape.stride, group.n_repetitions
        labels = [slot[name] for name in LABELS] if self._listed else self._one_label(slot)
        n_best = 0 if self._decoder is None else min(BEST_CLASSES, self._n_classes)
        kernel = _kernel(group.shape, n_best, logistic=self._logistic)
        codes = (group.codes, group.code_words)
        if self._decoder is None:
            memory.launch(
                kernel, (n_rows, models), WARP, *labels, slot["importance"], *codes, smoothing,
                self.z, self.losses,
            )  # fmt: skip
            return
        for start, stop, scores, ids in self._decoder.some_best(self.z, SUM, n_rows, n_best):
            n = stop - start
            memory.launch(
                kernel, n, WARP, memory.view(labels[0], start, n + 1), *labels[1:],
                memory.view(slot["importance"], start, n), *codes, scores, ids, smoothing,
                memory.view(self.z, start * stride, n * stride),
                memory.view(self.losses, start * models, n * models),
            )  # fmt: skip

    def _one_label(self, slot: TransferBuffer) -> list[DeviceArray]:
        self._shares.values.fill(1)
        return [self._starts, slot["classes"], self._shares]


def sum_losses(losses: Array, count: Number, out: Array) -> None:
    """Add up losses in :data:`PARTS` sums, each of them every so many.

    What the rounding of a sum leaves out is summed beside it: two float32 hold 48 bits.

    Parameters
    ----------
    losses, count, out : float32 (count,), int, float32 (2 * PARTS,)
        `out` receives sums, and behind them what they left out.
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
        self._sums = memory.empty(SUMS, np.float32, "losses")
        self._room = memory.host_array(LATE * SUMS, np.float32)
        self._there = [memory.event() for _ in range(LATE)]
        self._steps: deque[tuple[int, int]] = deque()  # place in the ring, and rows
        self._next = 0

    def take(self, losses: DeviceArray, count: int, n_rows: int) -> Loss:
        """Send for a step's losses float32 (count,); return those of the oldest step, if late."""
        late = self._oldest() if len(self._steps) == LATE else NOTHING
        memory, place = self._memory, self._next
        memory.stride(striding(sum_losses), PARTS, losses, count, self._sums)
        memory.fetch_later(self._room[place * SUMS : (place + 1) * SUMS], self._sums)
        self._there[place].mark()
        self._steps.append((place, n_rows))
        self._next = (place + 1) % LATE
        return late

    def drain(self) -> Loss:
        """Wait for all steps; return the losses that were not read."""
        self._memory.wait()
        loss = NOTHING
        while self._steps:
            loss = join_losses(loss, self._oldest())
        return loss

    def _oldest(self) -> Loss:
        """Wait for the losses of the oldest step."""
        place, n_rows = self._steps.popleft()
        self._there[place].reach()
        sums = self._room[place * SUMS : (place + 1) * SUMS]
        return Loss(float(sums.sum(dtype=np.float64)), n_rows)
