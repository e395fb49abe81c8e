"""Shapes of launches, the layout of batches and the median's network: no GPU, no simulator."""

import numpy as np
import pytest

from streammach import hashing
from streammach.backends.cuda.decode import median_lines
from streammach.backends.cuda.shapes import (
    BACKWARD_REGISTERS,
    FORWARD_REGISTERS,
    decode_shape,
    launch_bounds,
    launch_shape,
    packed_codes,
)
from streammach.rows.batch import BatchSlot
from streammach.system.errors import DeviceError
from tests.builders import block_of
from tests.reference.layout import rows_in_fours, work_items

SHARED_BYTES = 48 << 10  # what a block gets without asking the driver for more
SHAPES = [(32, 25), (32, 200), (512, 20), (33, 7), (33, 300), (1, 1), (1, 5000), (7, 3), (6, 1000),
          (1024, 16), (4096, 8), (4096, 1), (3001, 1), (1000, 1000)]  # fmt: skip


@pytest.mark.parametrize(("n_buckets", "n_repetitions"), SHAPES)
def test_tiles_hold_whole_models_and_every_column_once(n_buckets, n_repetitions):
    shape = launch_shape(n_buckets, n_repetitions)
    width = shape.models_per_tile * n_buckets
    assert shape.threads <= 1024
    assert shape.threads % 32 == 0
    assert shape.threads >= max(shape.chunks_per_tile, shape.models_per_tile)
    assert shape.models_per_tile * (shape.n_tiles - 1) < n_repetitions
    assert shape.models_per_tile * shape.n_tiles >= n_repetitions
    assert shape.n_tiles == 1 or width % 4 == 0
    assert 4 * shape.chunks_per_tile >= width
    assert shape.stride % 4 == 0
    assert 0 <= shape.stride - n_buckets * n_repetitions < 4
    assert 4 * (4 * shape.chunks_per_tile + shape.models_per_tile) <= SHARED_BYTES


def test_the_papers_shape_is_one_tile_of_two_hundred_chunks():
    shape = launch_shape(32, 25)
    assert (shape.n_tiles, shape.chunks_per_tile, shape.threads) == (1, 200, 224)


@pytest.mark.parametrize("n_buckets", [4097, 1025, 2050])
def test_models_too_wide_for_a_block_are_refused(n_buckets):
    with pytest.raises(DeviceError, match="more than a block's 4,096"):
        launch_shape(n_buckets, 8)


@pytest.mark.parametrize("capability", [(6, 1), (7, 5), (8, 0), (9, 0)])
@pytest.mark.parametrize("registers", [FORWARD_REGISTERS, BACKWARD_REGISTERS])
@pytest.mark.parametrize("threads", [32, 224, 256, 1024])
def test_launch_bounds_fill_a_multiprocessor_and_no_more(threads, registers, capability):
    bound, blocks = launch_bounds(threads, registers, capability)
    assert bound == threads
    assert blocks == 1 or blocks * threads * registers <= 65536
    assert blocks * threads <= (1024 if capability == (7, 5) else 1536)
    assert blocks * threads >= 512 or threads * registers > 32768 or capability == (7, 5)


@pytest.mark.parametrize(("n_buckets", "n_repetitions"), SHAPES)
@pytest.mark.parametrize("n_classes", [1, 4095, 105_033])
def test_sets_hold_every_class_and_tables_fit_shared_memory(n_buckets, n_repetitions, n_classes):
    for one_row in (False, True):
        shape = decode_shape(n_buckets, n_repetitions, n_classes, one_row=one_row)
        assert shape.n_sets % shape.threads == 0
        assert shape.n_sets * 4 * shape.words >= n_classes
        assert shape.rows == 1 or (shape.staged and not one_row)
        if shape.staged:
            assert shape.rows * n_buckets * n_repetitions * 4 <= SHARED_BYTES
        assert shape.code_bits >= (n_buckets - 1).bit_length()


def test_eight_rows_of_the_papers_shape_are_scored_at_once():
    shape = decode_shape(32, 25, 105_033, one_row=False)
    assert (shape.rows, shape.n_sets, shape.code_words) == (8, 1792, 26_259)
    assert shape.bounds == (256, 3)


@pytest.mark.parametrize(("n_repetitions", "blocks"), [(25, 4), (32, 4), (33, 1)])
def test_the_median_leaves_room_for_its_values(n_repetitions, blocks):
    shape = decode_shape(8, n_repetitions, 1000, one_row=True)
    assert shape.bounds == (256, blocks)


def test_rows_in_fours_are_the_same_rows(rng):
    block = block_of(rng, 40, 30, 5, most=9)
    rows = rows_in_fours(block.indptr, block.features, block.values)
    assert (rows.indptr % 4 == 0).all()
    for i in range(block.n_rows):
        a, b = block.indptr[i : i + 2]
        c, d = rows.indptr[i : i + 2]
        assert d - c == -(-(b - a) // 4) * 4
        assert rows.features[c : c + b - a].tolist() == block.features[a:b].tolist()
        assert rows.values[c : c + b - a].tolist() == block.values[a:b].tolist()
        assert (rows.values[c + b - a : d] == 0).all()
        assert (rows.features[c + b - a : d] == block.features[b - 1]).all()


def test_rows_in_fours_of_empty_rows_are_empty():
    rows = rows_in_fours(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    assert rows.indptr.tolist() == [0, 0, 0, 0]
    assert len(rows.features) == len(rows.values) == 0


@pytest.mark.parametrize("segment", [1, 3, 4, 16, 1000])
@pytest.mark.parametrize("n_rows", [1, 5, 60])
def test_items_cover_every_entry_once_in_order(segment, n_rows, rng):
    block = block_of(rng, n_rows, 12, 5)
    slot = BatchSlot(n_rows, max(block.nnz, 1), 12, by_feature=True)
    slot.add(block, np.arange(n_rows), "raw")
    found = slot.batch().by_feature
    work = work_items(found, n_rows, 12, segment)
    assert work.rows[-n_rows:].tolist() == list(range(n_rows))
    assert (work.values[-n_rows:] == 1).all()
    whole, joined = work.whole, work.joined
    assert whole.begin.tolist() == [0, *whole.end[:-1].tolist()]
    assert whole.end[-1] == len(work.rows) == block.nnz + n_rows
    assert (whole.end - whole.begin <= segment).all()
    assert whole.slot[whole.slot >= 0].tolist() == list(range(work.n_slots))
    alone = whole.feature[whole.slot < 0].tolist()
    assert sorted(alone + joined.feature.tolist()) == [*found.ids.tolist(), 12]
    assert (joined.slot == -1).all()
    for begin, end, feature in zip(joined.begin, joined.end, joined.feature, strict=True):
        assert (whole.feature[np.isin(whole.slot, range(begin, end))] == feature).all()
    assert joined.begin.tolist() == [0, *joined.end[:-1].tolist()][: len(joined.begin)]
    assert len(joined.end) == 0 or joined.end[-1] == work.n_slots


@pytest.mark.parametrize(("n_classes", "n_buckets"), [(41, 7), (40, 256), (9, 257), (1, 1)])
def test_packed_codes_hold_every_bucket(n_classes, n_buckets, rng):
    codes = rng.integers(0, n_buckets, (n_classes, 3)).astype(hashing.code_type(n_buckets))
    packed = packed_codes(codes, n_buckets)
    shape = decode_shape(n_buckets, 3, n_classes, one_row=False)
    assert packed.shape == (3, shape.code_words)
    per_word = 32 // shape.code_bits
    i = np.arange(n_classes)
    shift = (i % per_word * shape.code_bits).astype(np.uint32)
    found = packed[:, i // per_word] >> shift & np.uint32((1 << shape.code_bits) - 1)
    assert found.T.tolist() == codes.tolist()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 25, 40])
def test_the_network_gives_the_median(n, rng):
    lines, middle = median_lines(n)
    x = rng.integers(0, 9, (n, 3000)).astype(np.float32)
    names = {f"v{r}": x[r] for r in range(n)}
    names |= {"min": np.minimum, "max": np.maximum, "HALF": np.float32(0.5)}
    exec("\n".join(lines), names)
    assert (eval(middle, names) == np.median(x, axis=0)).all()
