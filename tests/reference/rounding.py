"""How bfloat16 weights are rounded at random, in plain NumPy: whole tables at once."""

import numpy as np

ALL = 0xFFFFFFFF


def mixed(h):
    """The mixer, on uint64 that hold 32 bits."""
    h = np.asarray(h, np.uint64)
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & ALL
    h = ((h ^ (h >> 15)) * 0x846CA68B) & ALL
    return h ^ (h >> 16)


def key(seed, step):
    """A step's key."""
    h = np.uint64(0)
    for part in (seed, seed >> 32, step, step >> 32):
        h = mixed(h ^ np.uint64(part & ALL))
    return h


def chances(seed, step, n_features, columns, first_chunk=0):
    """16 random bits for each weight of a table: uint64 (n_features, columns)."""
    features = np.arange(n_features, dtype=np.uint64)[:, None]
    chunks = first_chunk + np.arange(columns // 4, dtype=np.uint64)
    first = mixed(key(seed, step) ^ mixed(features ^ mixed(chunks)))
    second = mixed(first ^ np.uint64(0x9E3779B9))
    of_chunk = [first & 0xFFFF, first >> 16, second & 0xFFFF, second >> 16]
    return np.stack(of_chunk, axis=-1).reshape(n_features, columns)


def rounded(x, random):
    """Float32 numbers as bfloat16, in float32: up by a chance that makes the mean exact."""
    bits = x.view(np.uint32).astype(np.uint64)
    moved = np.where(np.isfinite(x), bits + random, bits)
    return (moved & 0xFFFF0000).astype(np.uint32).view(np.float32)


def widened(words):
    """The float32 numbers of words that hold two bfloat16 each: uint32 (n, m) to (n, 2 m)."""
    halves = words.view("<u2").astype(np.uint32) << 16
    return halves.view(np.float32).reshape(len(words), -1)


def narrowed(x):
    """Words of the nearest bfloat16, the even one of two: float32 (n, 2 m) to uint32 (n, m)."""
    bits = x.view(np.uint32).astype(np.uint64)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return nearest.astype("<u2").view("<u4")


def whole_numbers(weights, levels):
    """Narrow weights: float32 (n, m) as int8 from -levels to levels, and rows' float32 units."""
    largest = np.abs(weights).max(axis=1, initial=0)
    unit = np.maximum(largest / np.float32(levels), np.finfo(np.float32).tiny)
    unit = np.where(largest > 0, unit, np.float32(1)).astype(np.float32)
    unit = ((unit.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.rint(weights / unit[:, None]).astype(np.int8), unit


def halves(weights, *, short):
    """Weights as float16 keeps them, or with four bits of its mantissa, of equals the larger."""
    most = 63488 if short else 65504
    bits = weights.clip(-most, most).astype(np.float16).view(np.uint16)
    if short:
        bits = (bits + np.uint16(1 << 5)) >> 6 << 6
    return bits.view(np.float16).astype(np.float32)
