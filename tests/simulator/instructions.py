"""What Numba's CUDA simulator lacks, in plain Python: wide accesses, bit casts, warp exchanges.

What each does says `streammach.backends.cuda.toolchain`.
"""

import threading

import numpy as np

from streammach.backends.cuda.toolchain import cuda

STAND_INS = (
    "device", "as_device_function", "get", "put", "get2", "get2_constant", "get4", "get4_constant",
    "put2", "put4", "product", "bits_of", "float_of", "warp_sum", "warp_max", "exchanged4",
    "from_lane", "peers", "popc", "first_lane",
)  # fmt: skip


def device(function):
    """Return the function itself: the simulator calls it."""
    return function


def as_device_function(function, **names):
    """Return the function as Python runs it: compiled, its sums might be reordered."""
    return getattr(function, "py_func", function)


def compile_kernel(function, bounds):
    """Return a kernel; the simulator has no use for bounds."""
    return cuda.jit(function)


def get(a, i):
    """Return ``a[i]``, 0 <= i."""
    assert 0 <= i < len(a), (i, len(a))
    return a[i]


def put(a, i, x):
    """Write ``a[i] = x``, 0 <= i."""
    assert 0 <= i < len(a), (i, len(a))
    a[i] = x


def wide_get(n_words):
    """Return a function of an array and a multiple of `n_words`: the words there."""

    def load(a, i):
        assert i % n_words == 0, i
        assert 0 <= i <= len(a) - n_words, (i, len(a))
        return tuple([a[i + j] for j in range(n_words)])

    return load


def wide_put(n_words):
    """Return a function that writes so many words at a multiple of `n_words`."""

    def store(a, i, v):
        assert i % n_words == 0, i
        assert 0 <= i <= len(a) - n_words, (i, len(a))
        for j in range(n_words):
            a[i + j] = v[j]

    return store


get2 = get2_constant = wide_get(2)
get4 = get4_constant = wide_get(4)
put2, put4 = wide_put(2), wide_put(4)


def product(a, b):
    """Return the lower 32 bits of a product."""
    return np.uint32(int(a) * int(b) & 0xFFFFFFFF)


def bits_of(x):
    """Return the bits of a float32."""
    return np.float32(x).view(np.uint32)


def float_of(bits):
    """Return the float32 of 32 bits."""
    return np.uint32(bits).view(np.float32)


def lanes(x):
    """Return the values that the 32 threads of the caller's warp bring."""
    # Every thread of the block must arrive: the kernels are written so. Two boards in turn make one
    # barrier enough: who writes a board again has met all who read it at the other one's barrier.
    me = threading.current_thread()
    me.exchanges = turn = getattr(me, "exchanges", 0) + 1
    board = me._manager.__dict__.setdefault("_boards", ({}, {}))[turn % 2]
    board[me.thread_id] = x
    me.syncthreads()
    first = me.thread_id // 32 * 32
    return [board[first + i] for i in range(32)]


def butterfly(x, join):
    """Join the warp's values in the order of five exchanges at distances 16, 8, 4, 2, 1."""
    v = lanes(x)
    me = threading.current_thread()
    results = me._manager.__dict__.setdefault("_joined", {})
    key = (me.exchanges, me.thread_id // 32)
    if key not in results:  # the first of a warp does it for all
        while len(v) > 1:
            half = len(v) // 2
            v = [join(v[i], v[i + half]) for i in range(half)]
        results[key] = v[0]
    return results[key]


def warp_sum(x):
    """Return the sum over the warp."""
    return butterfly(x, lambda a, b: a + b)


def warp_max(x):
    """Return the largest value of the warp."""
    return butterfly(x, max)


def exchanged4(v, distance):
    """Return the four numbers of the lane whose number differs by one bit, `distance`."""
    me = threading.current_thread()
    return lanes(v)[me.thread_id % 32 ^ distance]


def from_lane(x, lane):
    """Return the number that a lane of the warp brings."""
    return lanes(x)[lane]


def peers(x, bits):
    """Return the mask of the lanes of the warp whose x, of so many bits, is the caller's."""
    assert 0 <= x < 1 << bits, (x, bits)
    return sum(1 << i for i, other in enumerate(lanes(x)) if other == x)


def popc(mask):
    """Return how many lanes a mask has."""
    return int(mask).bit_count()


def first_lane(mask):
    """Return the first lane of a mask that has some."""
    return (int(mask) & -int(mask)).bit_length() - 1
