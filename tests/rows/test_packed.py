"""Packed rows: they lie as plain Python lays them, and come back."""

import numpy as np
import pytest

from streammach.backends.cpu import products
from streammach.rows.packed import PackedRows
from streammach.system import jit, simd
from tests.builders import block_of
from tests.reference import packed as reference

COLUMNS = [1, 2, 3, 7, 9, 16, 63, 64, 65, 130]


def tables(rng, columns, n=30):
    """Tables of all kinds of rows: even, sparse, around a number, with others among them, zeros."""
    shape = n, columns
    around = rng.integers(-128, 110, (n, 1)) + rng.integers(0, 16, shape)
    others = np.where(rng.random(shape) < 0.1, rng.integers(-128, 128, shape), around)
    near = rng.integers(-1, 2, shape) * (rng.random(shape) < 0.3)
    kinds = {
        "any": rng.integers(-128, 128, shape),
        "few": rng.integers(-7, 8, shape) * (rng.random(shape) < 0.05),
        "int4": rng.integers(-8, 8, shape),
        "int3": np.where(rng.random(shape) < 0.05, 60, rng.integers(-3, 4, shape)) - 40,
        "around": around, "others": others, "narrow": near + rng.integers(-127, 128, (n, 1)),
        "zeros": np.zeros(shape, np.int64),
    }  # fmt: skip
    return {name: table.clip(-128, 127).astype(np.int8) for name, table in kinds.items()}


@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_lie_as_they_should_and_come_back(rng, columns):
    for name, table in tables(rng, columns).items():
        found = PackedRows.of([table[:11], table[11:11], table[11:]], table.shape)
        wanted = [reference.packed(row) for row in table.tolist()]
        assert found.data.tolist() == [byte for row in wanted for byte in row], name
        assert np.diff(found.starts).tolist() == [len(row) for row in wanted], name
        assert np.asarray(found).tobytes() == table.tobytes(), name
        assert PackedRows.footprint([table], table.shape) == found.nbytes, name


def test_rows_of_zeros_take_nothing_but_where_they_are():
    found = PackedRows.of([np.zeros((100, 640), np.int8)], (100, 640))
    assert (len(found.data), found.nbytes, found.shape) == (0, 404, (100, 640))
    assert not np.asarray(found).any()


def test_some_rows_come_back(rng):
    table = tables(rng, 70)["others"]
    found = PackedRows.of([table], table.shape)
    for some in (slice(3, 9), np.array([5, 5, 0]), np.arange(30) % 3 == 0, slice(4, 4)):
        assert found[some].tobytes() == table[some].tobytes()
    assert (len(found), found.dtype, found.shape) == (30, table.dtype, table.shape)
    assert not PackedRows.of([], (0, 70)).nbytes - 4


@pytest.mark.parametrize("expands", [True, False])
def test_marks_become_the_next_bytes_on_any_machine(rng, monkeypatch, expands):
    monkeypatch.setattr(simd, "EXPANDS", expands)
    monkeypatch.setattr(jit, "CACHE_DIR", None)

    @jit.kernel()
    def replaced(out, data):
        return simd.replace_marked(out, np.int64(3), np.int8(-5), data, np.int64(2))

    out, data = rng.integers(-6, -3, 80).astype(np.int8), rng.integers(0, 9, 70).astype(np.uint8)
    wanted = out.copy()
    places = 3 + np.flatnonzero(out[3:67] == -5)
    wanted[places] = data[2 : 2 + len(places)]
    assert replaced(out, data) == len(places) > 9
    assert out.tolist() == wanted.tolist()


@pytest.mark.parametrize("columns", [5, 64, 200])
@pytest.mark.parametrize("kind", ["any", "few", "int4", "others", "narrow", "zeros"])
def test_logits_have_the_bits_of_those_of_plain_rows(rng, kind, columns):
    table = tables(rng, columns)[kind]
    found, rows = PackedRows.of([table], table.shape), block_of(rng, 40, 30, 5, most=21)
    bias = rng.normal(size=columns).astype(np.float32)
    given = rows.indptr, rows.features, rows.values
    plain, packed = np.zeros((2, 40, columns), np.float32)
    products.logits(*given, 0, 40, table, bias, plain)
    given = *given, found.data, found.starts, bias, np.empty((8, columns), np.int8), np.arange(8)
    for first, last in ((0, 25), (25, 40)):
        products.packed_logits(*given[:3], first, last, *given[3:], packed)
    assert plain.tobytes() == packed.tobytes()
