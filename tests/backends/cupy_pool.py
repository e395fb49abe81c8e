"""A model of CuPy's memory pool, whose blocks outlive buffers: what a card really gives away.

A request takes the smallest free piece that is large enough, split, or else a new block of the
device. Pieces that are given back join free neighbours of their block; a block goes back to the
device only when it is trimmed whole.
"""

import weakref

import numpy as np

from streammach.backends.cuda.device_memory import UNIT


class _Piece:
    def __init__(self, n_bytes, before=None, behind=None):
        self.n_bytes, self.before, self.behind, self.free = n_bytes, before, behind, False


class Pool:
    """The pieces of a device's memory; `total` bytes of it are the pool's."""

    def __init__(self):
        self.total, self._free = 0, []

    def take(self, n_bytes):
        """Return a piece for so many bytes."""
        n_bytes = -(-max(n_bytes, 1) // UNIT) * UNIT
        fitting = [piece for piece in self._free if piece.n_bytes >= n_bytes]
        if not fitting:
            self.total += n_bytes
            return _Piece(n_bytes)
        piece = min(fitting, key=lambda one: one.n_bytes)
        self._free.remove(piece)
        piece.free = False
        if piece.n_bytes > n_bytes:
            rest = _Piece(piece.n_bytes - n_bytes, piece, piece.behind)
            if piece.behind is not None:
                piece.behind.before = rest
            piece.n_bytes, piece.behind, rest.free = n_bytes, rest, True
            self._free.append(rest)
        return piece

    def give_back(self, piece):
        """Take a piece back."""
        piece.free = True
        if piece.behind is not None and piece.behind.free:
            self._join(piece, piece.behind)
        if piece.before is not None and piece.before.free:
            piece = piece.before
            self._free.remove(piece)
            self._join(piece, piece.behind, listed=False)
        self._free.append(piece)

    def _join(self, piece, other, *, listed=True):
        """Make one piece of two neighbours."""
        if listed:
            self._free.remove(other)
        piece.n_bytes, piece.behind = piece.n_bytes + other.n_bytes, other.behind
        if other.behind is not None:
            other.behind.before = piece

    def trim(self):
        """Give the device the blocks that are free as a whole."""
        whole = [piece for piece in self._free if piece.before is piece.behind is None]
        self.total -= sum(piece.n_bytes for piece in whole)
        self._free = [piece for piece in self._free if piece not in whole]


def pooled(memory, monkeypatch):
    """Have a class of simulated memory take its buffers from such a pool, as CuPy's does."""
    pools, empty = {}, memory.empty

    def pool_of(one):
        return pools.setdefault(id(one), Pool())

    def taken(self, count, dtype, line=""):
        array, pool = empty(self, count, dtype, line), pool_of(self)
        piece = pool.take(count * np.dtype(dtype).itemsize)
        weakref.finalize(array, pool.give_back, piece).atexit = False
        return array

    monkeypatch.setattr(memory, "empty", taken)
    monkeypatch.setattr(memory, "most_bytes", lambda self: max(self.peak, pool_of(self).total))
    monkeypatch.setattr(memory, "trim", lambda self: pool_of(self).trim())
