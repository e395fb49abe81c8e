"""The kernels of a training step on CUDA: forward with softmax and residual, backward with update.

A thread owns a chunk of 4 columns of one row and walks that row's entries; a block owns one row of
the batch (forward) or one item of a feature's entries (backward) in one tile of whole models. No
atomics: every sum has one owner and a fixed order, so the bits depend neither on the schedule nor
on how many models share a tile or a wave.

Arrays are flat. `stride` is the columns of a row in memory (:class:`ColumnTiles`); the bias is row
d of the table. Kernels are made for one shape: sizes known to the compiler unroll loops and keep
what is indexed in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from streammach.backends.cuda.chunks import (
    CODINGS,
    adam4,
    add4,
    gather_words,
    less4,
    log_sigmoid4,
    moments4,
    sigmoid4,
    spread,
    squares4,
)
from streammach.backends.cuda.instructions import (
    adagrad_step,
    bucket_function,
    exp,
    int64,
    residual,
)
from streammach.backends.cuda.shapes import CHUNK, WARP, ColumnTiles, code_bits
from streammach.backends.cuda.toolchain import (
    cuda,
    exchanged4,
    from_lane,
    get,
    get4,
    get4_constant,
    put,
    put4,
    warp_max,
    warp_sum,
)
from streammach.options.optimizers import ADAGRAD, ADAM, ADAM_DECAYS
from streammach.options.types import Weights
from streammach.system.jit import Array, Number

# What a forward pass gives: residuals, or outputs of the softmax of each model; the last three look
# at each column alone.
RESIDUALS, PROBABILITIES, LOGARITHMS, LOGITS, SIGMOIDS, LOG_SIGMOIDS = range(6)
ZERO, ONE = np.float32(0), np.float32(1)
LOWEST = np.float32(-np.inf)
NOTHING = (ZERO, ZERO, ZERO, ZERO)  # a chunk


def forward_kernel(
    shape: ColumnTiles, *, residuals: bool, dense: bool = False, weights_are: Weights = "float32"
) -> Callable[..., None]:
    """Return the forward kernel of a shape; it is launched on (rows, tiles) blocks."""
    # It gives RESIDUALS, or any of the other outputs above. Of `dense` rows the logits are in `z`
    # already, from a matrix product. Rows run fastest, so that all read one slab of columns and its
    # hot rows stay in cache.
    fetch, widen = CODINGS[weights_are].fetch_constant, CODINGS[weights_are].widen
    B, R, per_tile = shape.n_buckets, shape.n_repetitions, shape.models_per_tile
    chunks_per_row, chunks_per_tile, stride = (
        shape.chunks_per_row, shape.chunks_per_tile, shape.stride,
    )  # fmt: skip
    columns, warps = chunks_per_tile * CHUNK, shape.threads // WARP
    rounds, bucket = -(-per_tile // warps), bucket_function(code_bits(B))

    def forward(
        indptr: Array, features: Array, values: Array, classes: Array, importance: Array,
        codes: Array, weights: Array, code_words: int, bias_row: int, smoothing: Number,
        output: int, z: Array, losses: Array,
    ) -> None:  # fmt: skip
        """Write ``bias + x W`` and its softmax for one row and tile: residual or probabilities.

        Arrays that a variant does not read may be anything.

        Parameters
        ----------
        indptr, features, values, classes, importance : int32, int32, float32, int32, float32
            The rows (:class:`streammach.backends.cuda.transfers.TransferBuffer`).
        codes : uint32 (R * code_words,)
            Packed buckets, model by model.
        weights : float32 ((d + 1) * stride,) or uint32 ((d + 1) * stride / 2,)
            The table; its last row, d, is the bias.
        code_words, bias_row, smoothing, output : int, int, float32, int
            Words of a model's codes; d; label smoothing; what is wanted.
        z : float32 (n * stride,)
            Receives the derivative of each row's loss times its weight, or outputs; holds the
            logits when dense.
        losses : float32 (n * R,)
            Receives ``-ln p`` of the true bucket times the row's weight (RESIDUALS only).
        """
        row, tile, t = (int64(cuda.blockIdx.x), int64(cuda.blockIdx.y), int64(cuda.threadIdx.x))
        shared = cuda.shared.array(columns, np.float32)
        first = tile * chunks_per_tile
        n_chunks = min(chunks_per_tile, chunks_per_row - first)
        mine = first + min(t, n_chunks - 1)  # idle threads repeat a chunk that is there
        if dense:
            sums = get4(z, row * stride + mine * CHUNK)
        else:
            sums = widen(fetch(weights, bias_row * chunks_per_row + mine))
            stop = int64(get(indptr, row + 1))
            for j in range(int64(get(indptr, row)), stop, 4):  # four loads are under way at once
                f, x = get4_constant(features, j), get4_constant(values, j)
                w0 = fetch(weights, int64(f[0]) * chunks_per_row + mine)
                w1 = fetch(weights, int64(f[1]) * chunks_per_row + mine)
                w2 = fetch(weights, int64(f[2]) * chunks_per_row + mine)
                w3 = fetch(weights, int64(f[3]) * chunks_per_row + mine)
                sums = add4(add4(sums, x[0], widen(w0)), x[1], widen(w1))
                sums = add4(add4(sums, x[2], widen(w2)), x[3], widen(w3))
        if not residuals and output >= LOGITS:
            if output == SIGMOIDS:
                sums = sigmoid4(sums)
            if output == LOG_SIGMOIDS:
                sums = log_sigmoid4(sums)
            if t < n_chunks:
                put4(z, row * stride + mine * CHUNK, sums)
            return
        if t < n_chunks:
            spread(shared, t * CHUNK, sums)
        cuda.syncthreads()
        warp, lane = t // WARP, t % WARP
        scale = get(importance, row) if residuals else ONE
        for turn in range(rounds):  # a warp takes a model; idle warps come to each exchange too
            local = warp + turn * warps
            r = tile * per_tile + local
            live = local < per_tile and r < R
            n, o = (B if live else 0), (local * B if live else 0)
            top = LOWEST
            for c in range(lane, n, WARP):
                top = max(top, get(shared, o + c))
            top = warp_max(top)
            label = int64(-1)
            if residuals and live:
                label = bucket(codes, r * code_words, int64(get(classes, row)))
            total, own = ZERO, ZERO
            for c in range(lane, n, WARP):
                less = get(shared, o + c) - top
                e = exp(less)
                own = less if c == label else own
                if residuals or output != LOGARITHMS:
                    put(shared, o + c, e)
                total += e
            total = warp_sum(total)
            if not residuals and output == LOGARITHMS:
                if live:
                    shift = top + np.float32(math.log(total))
                    for c in range(lane, n, WARP):
                        put(shared, o + c, get(shared, o + c) - shift)
            elif live:
                inverse = ONE / total
                for c in range(lane, n, WARP):
                    p = get(shared, o + c) * inverse
                    if residuals:
                        if c == label:
                            loss = scale * (np.float32(math.log(total)) - own)
                            put(losses, row * R + r, loss)
                        p = scale * residual(p, c == label, smoothing, B)
                    put(shared, o + c, p)
        cuda.syncthreads()
        if t < n_chunks:
            put4(z, row * stride + mine * CHUNK, gather_words(shared, t * CHUNK))

    return forward


def backward_kernel(
    shape: ColumnTiles, optimizer: int, *, weights_are: Weights = "float32"
) -> Callable[..., None]:
    """Return the backward kernel of a shape; it is launched on (any number, tiles) blocks."""
    # It runs twice: over the items of the batch, with the residuals as source, and over the partial
    # sums of features that had several items, with those sums as source. Dense rows need it once:
    # their source is the gradient itself, an item a row of it.
    fetch, widen, store = (
        CODINGS[weights_are].fetch, CODINGS[weights_are].widen, CODINGS[weights_are].store,
    )  # fmt: skip
    first_decay, second_decay = map(np.float32, ADAM_DECAYS)
    B, R, per_tile = shape.n_buckets, shape.n_repetitions, shape.models_per_tile
    chunks_per_row, chunks_per_tile, stride = (
        shape.chunks_per_row, shape.chunks_per_tile, shape.stride,
    )  # fmt: skip
    warps = shape.threads // WARP
    rounds, last = -(-per_tile // warps), per_tile - 1  # a warp's models: warp, warp + warps, ...
    one_model = B % CHUNK == 0  # a chunk lies in one model
    # A model's columns are those of some lanes of one warp: no thread waits for another warp.
    in_warp, owners = B in (4, 8, 16, 32, 64), max(B // CHUNK, 1)
    room = 1 if in_warp or optimizer != ADAGRAD else chunks_per_tile * CHUNK

    def backward(
        begin: Array, end: Array, features: Array, slots: Array, n_items: Array, rows: Array,
        values: Array, source: Array, rate: Number, epsilon: Number, key: Number, first_chunk: int,
        partial: Array, accumulated: Array, second: Array, weights: Array,
    ) -> None:  # fmt: skip
        """Sum the gradient of each item; update the table's row, or put the sum aside.

        Parameters
        ----------
        begin, end, features, slots, n_items : int32 (m,), ..., int32 (1,)
            The items (:class:`streammach.backends.cuda.group.Segments`).
        rows, values : int32 (nnz,), float32 (nnz,)
            The entries.
        source : float32 (n * stride,)
            What they multiply.
        rate, epsilon : float32
            The optimiser's numbers.
        key, first_chunk : uint32, int
            What bfloat16 is rounded by: the step's key, and where in the whole model's row of
            chunks these columns begin.
        partial : float32 (slots * stride,)
            Receives the sums of items that are a part of their feature.
        accumulated : float32 ((d + 1) * R,) or ((d + 1) * stride,)
            Adagrad's sums of squares, or Adam's first moments; changed. Not used by SGD.
        second, weights : float32 ((d + 1) * stride,), or weights uint32 ((d + 1) * stride / 2,)
            Adam's second moments, not used by others, and the table; changed.
        """
        tile, t = int64(cuda.blockIdx.y), int64(cuda.threadIdx.x)
        shared = cuda.shared.array(room, np.float32)
        steps = cuda.shared.array(per_tile, np.float32)
        first = tile * chunks_per_tile
        n_chunks = min(chunks_per_tile, chunks_per_row - first)
        local = min(t, n_chunks - 1)  # idle threads repeat a chunk that is there
        place = first + local  # of the chunk in a row of the table
        mine = place * CHUNK
        warp, lane = t // WARP, t % WARP
        # Who keeps a model's sum of squares: the first of the lanes that have its columns,
        # or one lane for each of the models that its warp sums.
        head, model = lane // owners * owners, t // owners if in_warp else warp + lane * warps
        keeper = lane == head and t < n_chunks
        if not in_warp:
            keeper = lane < rounds and model < per_tile and tile * per_tile + model < R
        sums_at = tile * per_tile + model
        for item in range(int64(cuda.blockIdx.x), int64(n_items[0]), int64(cuda.gridDim.x)):
            f, slot = int64(get(features, item)), int64(get(slots, item))
            j, stop = int64(get(begin, item)), int64(get(end, item))
            w = fetch(weights, f * chunks_per_row + place)  # on its way while gradients are summed
            m = v = NOTHING
            if optimizer == ADAM:
                m = get4(accumulated, f * stride + mine)
                v = get4(second, f * stride + mine)
            before = ZERO
            if optimizer == ADAGRAD and keeper:
                before = get(accumulated, f * R + sums_at)
            g = NOTHING
            if stop - j == 1:  # most items: three loads fewer
                g = add4(
                    g, get(values, j), get4_constant(source, int64(get(rows, j)) * stride + mine)
                )
                j = stop
            while j < stop:  # four at a time; the last is repeated with the value 0
                j1, j2, j3 = min(j + 1, stop - 1), min(j + 2, stop - 1), min(j + 3, stop - 1)
                x0 = get(values, j)
                x1 = get(values, j1) if j + 1 < stop else ZERO
                x2 = get(values, j2) if j + 2 < stop else ZERO
                x3 = get(values, j3) if j + 3 < stop else ZERO
                v0 = get4_constant(source, int64(get(rows, j)) * stride + mine)
                v1 = get4_constant(source, int64(get(rows, j1)) * stride + mine)
                v2 = get4_constant(source, int64(get(rows, j2)) * stride + mine)
                v3 = get4_constant(source, int64(get(rows, j3)) * stride + mine)
                g = add4(add4(add4(add4(g, x0, v0), x1, v1), x2, v2), x3, v3)
                j += 4
            if slot >= 0:  # the same for the whole block
                if t < n_chunks:
                    put4(partial, slot * stride + mine, g)
            elif optimizer == ADAM:
                m = moments4(m, g, first_decay)
                v = moments4(v, squares4(g), second_decay)
                if t < n_chunks:
                    put4(accumulated, f * stride + mine, m)
                    put4(second, f * stride + mine, v)
                    store(
                        weights, f * chunks_per_row + place,
                        adam4(widen(w), m, v, rate, epsilon), key, f, first_chunk + place,
                    )  # fmt: skip
            else:
                k = (rate, rate, rate, rate)
                if optimizer == ADAGRAD and in_warp:
                    s, distance = squares4(g), owners // 2
                    while distance > 0:
                        o0, o1, o2, o3 = exchanged4(s, distance)
                        s = (s[0] + o0, s[1] + o1, s[2] + o2, s[3] + o3)
                        distance //= 2
                    k0 = ZERO
                    if keeper:
                        after = before + ((s[0] + s[2]) + (s[1] + s[3]))
                        put(accumulated, f * R + sums_at, after)
                        k0 = adagrad_step(rate, after, epsilon)
                    k0 = from_lane(k0, head)
                    k = (k0, k0, k0, k0)
                elif optimizer == ADAGRAD:
                    if t < n_chunks:
                        spread(shared, t * CHUNK, g)
                    cuda.syncthreads()
                    for turn in range(rounds):
                        one = warp + turn * warps
                        live = one < per_tile and tile * per_tile + one < R
                        n, o = (B if live else 0), (one * B if live else 0)
                        square = ZERO
                        for c in range(lane, n, WARP):
                            square += get(shared, o + c) * get(shared, o + c)
                        square = warp_sum(square)
                        if keeper and lane == turn:
                            after = before + square
                            put(accumulated, f * R + sums_at, after)
                            put(steps, one, adagrad_step(rate, after, epsilon))
                    cuda.syncthreads()
                    c = local * CHUNK
                    k0 = get(steps, min(c // B, last))
                    k = (k0, k0, k0, k0)
                    if not one_model:
                        k = (
                            k0, get(steps, min((c + 1) // B, last)),
                            get(steps, min((c + 2) // B, last)),
                            get(steps, min((c + 3) // B, last)),
                        )  # fmt: skip
                if t < n_chunks:
                    store(
                        weights, f * chunks_per_row + place, less4(widen(w), k, g), key, f,
                        first_chunk + place,
                    )  # fmt: skip

    return backward
