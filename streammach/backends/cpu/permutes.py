"""Sums of bytes that instructions look up in tables of 64, 128 or 256 bytes, 64 at once.

They need a machine where :data:`streammach.simd.PERMUTES` is true; elsewhere they are not called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from streammach.jit import intrinsic
from streammach.simd import BYTES, INDEX, LANES, bytes_function, permute, splat, vector_at

BLOCKS = {1: 4, 4: 2}  # of 64 indices that are looked up together, by how many tables are


def _permuted(
    builder: Any, tables: Any, codes: Any, places: tuple[Any, ...], width: int, n_tables: int
) -> list[Any]:
    """Return the sums of what tables have at blocks of codes: a vector by table, then by block.

    The places are where the first table and the first code are, how far tables are from one
    another, and R: a block has 64 codes for each of R parts of a table.
    """
    table, step, first, models = places
    n_blocks, lanes = BLOCKS[n_tables], ir.Constant(INDEX, LANES)
    add = bytes_function(builder, "uadd.sat")
    nothing = ir.Constant(BYTES, [0] * LANES)
    sums = [cgutils.alloca_once_value(builder, nothing) for _ in range(n_tables * n_blocks)]
    block = builder.mul(models, lanes)
    with cgutils.for_range(builder, models) as loop:
        at = builder.add(first, builder.mul(loop.index, lanes))
        indices = []
        for _ in range(n_blocks):
            indices.append(builder.load(vector_at(builder, codes, at, BYTES), align=1))
            at = builder.add(at, block)
        place = builder.add(table, builder.mul(loop.index, ir.Constant(INDEX, width)))
        for q in range(n_tables):
            starts = [builder.add(place, ir.Constant(INDEX, x)) for x in range(0, width, LANES)]
            parts = [builder.load(vector_at(builder, tables, x, BYTES), align=1) for x in starts]
            for index, total in zip(indices, sums[q * n_blocks :], strict=False):
                found = permute(builder, parts, index)
                builder.store(builder.call(add, [builder.load(total), found]), total)
            place = builder.add(place, step)
    return [builder.load(total) for total in sums]


def permuted_within(width: int, n_tables: int) -> Callable[..., Any]:
    """Return a function for kernels that finds sums of looked-up bytes within limits.

    It needs a machine where `PERMUTES` is true.

    Parameters
    ----------
    width : int
        Bytes of a table's part: 64, 128 or 256.
    n_tables : int
        1 or 4 tables, which share the codes of 4 or 2 blocks.
    """

    @intrinsic
    def within(
        typing: Any, tables: Any, table: Any, step: Any, codes: Any, first: Any, n_repetitions: Any,
        limits: Any, limit: Any, masks: Any,
    ) -> Any:  # fmt: skip
        """Write whose sums are within their limits; return a uint64 that is 0 where none is.

        Lane j of block b has the sum of ``tables[q, r, codes[b, r, j]]`` over r in ``range(R)``,
        in uint8 and stopping at 255.

        Parameters
        ----------
        tables : uint8 (n,)
            The tables' parts, that of q and r at ``table + q * step + r * width``.
        table, step : int64
            Where the first table is, and how far they are from one another.
        codes : uint8 (n,)
            The codes, those of b and r at ``first + (b * R + r) * 64``.
        first, n_repetitions : int64
            Where the first block is, and R.
        limits : uint8 (n,)
            Limits.
        limit : int64
            Where the first table's limit is.
        masks : uint64 (8,)
            Receives, where one is within its limit, bit j of lane j for each table and block.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = [
                context.make_array(signature.args[i])(context, builder, args[i]).data
                for i in (0, 3, 6, 8)
            ]
            places = args[1], args[2], args[4], args[5]
            sums = _permuted(builder, data[0], data[1], places, width, n_tables)
            words = []
            for q in range(n_tables):
                place = builder.add(args[7], ir.Constant(INDEX, q))
                most = splat(builder, builder.load(builder.gep(data[2], [place])), BYTES)
                for total in sums[q * BLOCKS[n_tables] : (q + 1) * BLOCKS[n_tables]]:
                    words.append(builder.bitcast(builder.icmp_unsigned("<=", total, most), INDEX))
            some = words[0]
            for word in words[1:]:
                some = builder.or_(some, word)
            with builder.if_then(builder.icmp_unsigned("!=", some, ir.Constant(INDEX, 0))):
                for i, word in enumerate(words):
                    builder.store(word, builder.gep(data[3], [ir.Constant(INDEX, i)]))
            return some

        integer = types.int64
        return types.uint64(
            tables, integer, integer, codes, integer, integer, limits, integer, masks
        ), generate

    return within


def permuted_least(width: int) -> Callable[..., Any]:
    """Return a function for kernels: the smallest sum of each lane in 4 blocks and before.

    It needs a machine where `PERMUTES` is true.

    Parameters
    ----------
    width : int
        Bytes of a table's part: 64, 128 or 256.
    """

    @intrinsic
    def least(
        typing: Any, tables: Any, table: Any, codes: Any, first: Any, n_repetitions: Any, out: Any,
        start: Any,
    ) -> Any:  # fmt: skip
        """Lower 64 bytes to the sums of the same lanes where these are smaller.

        Parameters
        ----------
        tables, table, codes, first, n_repetitions : arrays and int64
            As for one table of :func:`permuted_within`.
        out : uint8 (n,)
            The bytes.
        start : int64
            Where they start.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = [
                context.make_array(signature.args[i])(context, builder, args[i]).data
                for i in (0, 2, 5)
            ]
            places = args[1], ir.Constant(INDEX, 0), args[3], args[4]
            smaller = bytes_function(builder, "umin")
            place = vector_at(builder, data[2], args[6], BYTES)
            found = builder.load(place, align=1)
            for total in _permuted(builder, data[0], data[1], places, width, 1):
                found = builder.call(smaller, [found, total])
            builder.store(found, place, align=1)
            return context.get_dummy_value()

        integer = types.int64
        return types.void(tables, integer, codes, integer, integer, out, integer), generate

    return least
