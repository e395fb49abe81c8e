"""bfloat16 weights: rounded at random without bias, by bits that depend on no cut of the work."""

import os
import types
from dataclasses import replace

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("needs NUMBA_ENABLE_CUDASIM=1 (tox -e cudasim)", allow_module_level=True)

from streammach.backends.cuda import kernels
from streammach.backends.cuda.chunks import mix_bits, round_at_random, round_pair, rounding_key
from streammach.backends.cuda.group import round_into, widen_into
from streammach.options.optimizers import OPTIMIZERS
from streammach.system.jit import kernel
from tests.backends.device import Device
from tests.builders import batch_of, block_of, spec_of, training
from tests.reference import rounding

SHAPES = {  # K, d, B, R, columns of a tile
    "one tile": (40, 9, 8, 5, 1024),
    "odd B, models across chunks": (40, 9, 7, 3, 1024),
    "more models than a tile, the last tile partial": (40, 9, 6, 7, 24),
    "a bucket for every class": (9, 9, 9, 1, 1024),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_step_is_that_of_float32_rounded_by_the_definition(name, optimizer, rng):
    n_classes, n_features, n_buckets, n_repetitions, tile = SHAPES[name]
    spec = spec_of(n_classes, n_features, n_buckets, n_repetitions)
    how = training(optimizer=optimizer, batch_size=7, epsilon=1e-3, seed=5)
    narrow = Device(spec, how, tile_columns=tile, weights_are="bfloat16")
    wide = Device(spec, how, tile_columns=tile)
    rows, columns = wide.table.shape
    for step in range(1, 4):
        batch = batch_of(block_of(rng, 7, n_features - 1, n_classes, values="normal"), n_features)
        before = rounding.widened(narrow.table)
        wide.table[:] = before
        assert narrow.step(batch, 0.3) == wide.step(batch, 0.3)
        expected = rounding.rounded(wide.table, rounding.chances(5, step, rows, columns))
        touched = np.zeros(rows, bool)
        touched[[*batch.by_feature.ids, -1]] = True
        expected[~touched] = before[~touched]
        assert rounding.widened(narrow.table).tobytes() == expected.tobytes()
    assert not rounding.widened(narrow.table)[:, spec.n_columns :].any()
    assert narrow.squares.tobytes() == wide.squares.tobytes()


def test_tiles_items_blocks_and_waves_do_not_change_a_bit(rng):
    spec, how = spec_of(40, 9, 8, 4), training(batch_size=8, label_smoothing=0.1)
    batches = [batch_of(block_of(rng, 8, 9, 40), 9) for _ in range(2)]

    def trained(spec, **options):
        device = Device(spec, how, weights_are="bfloat16", **options)
        for batch in batches:
            device.step(batch, 0.4)
        return device.table

    whole = trained(spec)
    assert whole.any()
    for options in ({"tile_columns": 16, "blocks": 3}, {"tile_columns": 8, "blocks": 20}):
        assert trained(spec, **options).tobytes() == whole.tobytes()
    for first in (0, 2):
        a, b = spec.hash_a[first : first + 2], spec.hash_b[first : first + 2]
        wave = trained(replace(spec, n_repetitions=2, hash_a=a, hash_b=b), first_chunk=2 * first)
        assert wave.tobytes() == whole[:, 4 * first : 4 * first + 8].tobytes()


def test_another_seed_or_step_draws_other_bits():
    found = {int(rounding_key(seed, step)) for seed in (0, 1, 1 << 40, -3) for step in (1, 2)}
    assert len(found) == 8
    assert int(rounding_key(1 << 40, 7)) == rounding.key(1 << 40, 7)


def test_the_bits_are_the_same_as_numba_types_them(rng):
    """Numba widens where NumPy does not: uint32 times uint32 is uint64 there."""
    product = kernel(fastmath=False)(lambda a, b: np.uint32(a * b))
    bits_of = kernel(fastmath=False)(lambda x: np.float32(x).view(np.uint32))
    compiled = typed(mix_bits, product=product)
    pair = typed(round_pair, round_at_random=typed(round_at_random, bits_of=bits_of))
    for h in rng.integers(0, 1 << 32, 200, dtype=np.uint32):
        assert int(compiled(h)) == int(mix_bits(h)) == int(rounding.mixed(h))
        x, y = rng.normal(size=2).astype(np.float32)
        assert pair(x, y, h) == round_pair(x, y, h)
    for x in (np.float32(np.inf), np.float32(-np.inf)):
        assert pair(x, x, np.uint32(0xFFFFFFFF)) == round_pair(x, x, np.uint32(0))


def typed(function, **names):
    """The function as Numba compiles it, with some names replaced."""
    plain = types.FunctionType(function.__code__, {**function.__globals__, **names})
    return kernel(fastmath=False)(plain)


@pytest.mark.parametrize("x", [1 + 2**-9, -(3 + 2**-8), 1e-3, -7e-20, 2.5])
def test_rounding_is_without_bias(x, rng):
    x, n = np.float32(x), 4000
    words = [round_pair(x, -x, random) for random in rng.integers(0, 1 << 32, n, dtype=np.uint32)]
    low, high = rounding.widened(np.array(words, np.uint32)[:, None]).astype(np.float64).T
    step = 2.0 ** (np.floor(np.log2(abs(x))) - 7)  # between two bfloat16
    for found, exact in ((low, float(x)), (high, -float(x))):
        assert np.abs(found - exact).max() < step
        assert len(set(found)) == (1 if exact % step == 0 else 2)
        assert abs(found.mean() - exact) < 2 * step / np.sqrt(n)


def test_what_is_not_finite_stays_so():
    cuda_nan = np.uint32(0x7FFFFFFF).view(np.float32)
    for x in (np.float32(np.inf), np.float32(-np.inf), cuda_nan, np.float32(0)):
        word = round_pair(x, x, np.uint32(0xFFFFFFFF))
        np.testing.assert_array_equal(rounding.widened(np.array([[word]])), [[x, x]])


def test_copies_to_the_host_lose_nothing_and_back_round_to_the_nearest(rng):
    x = rng.normal(size=(5, 12)).astype(np.float32)
    x[0, :4] = 0, np.inf, 1 + 2**-8, 1 + 3 * 2**-8
    bits = np.empty((5, 12), np.uint16)
    round_into(x[:, ::-1], bits)
    assert bits.view(np.uint32).tolist() == rounding.narrowed(x[:, ::-1].copy()).tolist()
    back, again = np.empty((5, 12), np.float32), np.empty((5, 12), np.uint16)
    widen_into(bits, back)
    round_into(back, again)
    assert again.tolist() == bits.tolist()


def test_outputs_are_those_of_the_widened_weights(rng):
    spec = spec_of(40, 9, 7, 3)
    narrow = Device(spec, training(), weights_are="bfloat16")
    wide = Device(spec, training())
    narrow.table[:] = rounding.narrowed(rng.normal(size=wide.table.shape).astype(np.float32))
    wide.table[:] = rounding.widened(narrow.table)
    rows = block_of(rng, 4, 9, 40, values="normal")
    for output in (kernels.PROBABILITIES, kernels.LOGARITHMS):
        found, expected = (d.outputs(rows, output)[0] for d in (narrow, wide))
        assert found.tobytes() == expected.tobytes()
