"""The CUDA kernels in Numba's simulator, held to plain NumPy and to the CPU backend."""

import os
import sys
from dataclasses import replace

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("needs NUMBA_ENABLE_CUDASIM=1 (tox -e cudasim)", allow_module_level=True)

from streammach.backends.cpu.backend import CpuBackend
from streammach.backends.cuda import decode, kernels
from streammach.backends.cuda.launcher import Kernel
from streammach.backends.cuda.shapes import decode_shape
from streammach.backends.cuda.sorting import FeatureSort
from streammach.backends.cuda.sparse import SegmentBuilder
from streammach.backends.cuda.transfers import BufferRoom, DeviceRows, TransferBuffer
from streammach.options.estimators import ESTIMATORS
from streammach.options.optimizers import OPTIMIZERS
from streammach.rows.batch import BatchSlot, RowIdBatch
from streammach.rows.label_lists import LabelLists
from tests.backends.device import Device
from tests.builders import batch_of, block_of, spec_of, training
from tests.reference.decoding import topk
from tests.reference.layout import work_items
from tests.reference.mach import ReferenceMach
from tests.simulator.memory import SimulatedMemory

OUTPUTS = {False: kernels.PROBABILITIES, True: kernels.LOGARITHMS}


@pytest.fixture(autouse=True, scope="module")
def threads_take_turns_quickly():
    """The simulator polls threads that wait at barriers: three times as fast with short turns."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def close(found, expected, within=1e-5):
    """Whether two arrays agree to `within` of the largest value."""
    return np.abs(found - expected).max() <= within * np.abs(expected).max()


SHAPES = {  # K, d, B, R, columns of a tile
    "one tile": (40, 9, 8, 5, 1024),
    "odd B, models across chunks": (40, 9, 7, 3, 1024),
    "odd B, tiles of four models": (40, 9, 5, 9, 16),
    "more models than a tile, the last tile partial": (40, 9, 6, 7, 24),
    "more than a warp's columns a model": (90, 9, 37, 2, 1024),
    "more models than warps of a block": (30, 9, 16, 12, 64),
    "a bucket for every class": (9, 9, 9, 1, 1024),
    "one class": (1, 5, 4, 2, 1024),
    "codes of 16 bits": (300, 5, 300, 1, 1024),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", SHAPES)
def test_steps_equal_the_reference(name, optimizer, rng):
    n_classes, n_features, n_buckets, n_repetitions, tile = SHAPES[name]
    spec = spec_of(n_classes, n_features, n_buckets, n_repetitions)
    smoothing = 0.2 if optimizer == "adagrad" else 0.0
    how = training(optimizer=optimizer, label_smoothing=smoothing, batch_size=7, epsilon=1e-3)
    device = Device(spec, how, tile_columns=tile)
    reference = ReferenceMach(
        n_features, device.codes, spec.n_buckets, optimizer, how.epsilon, smoothing
    )
    for _ in range(3):
        block = block_of(rng, 7, n_features - 1, n_classes, values="normal")  # one is never there
        weights = rng.uniform(0.5, 2, 7).astype(np.float32)
        batch = batch_of(block, n_features, weights)
        loss = device.step(batch, 0.3)
        arrays = (block.indptr, block.features, block.values, block.classes, weights)
        assert loss == pytest.approx(reference.step(*arrays, 0.3), rel=1e-5)
    if n_classes > 1:
        assert close(device.weights, reference.W)
        assert close(device.bias, reference.b)
    assert (device.table[n_features - 1] == 0).all()  # of the feature that no row has
    assert not device.table[:, spec.n_columns :].any()


@pytest.mark.parametrize("n_features", [6, 65_535, 65_536])  # sorted in one, two, three passes
@pytest.mark.parametrize("segment", [1, 3, 128])
@pytest.mark.parametrize("n_rows", [1, 9])
def test_the_device_cuts_items_as_the_definition(segment, n_rows, n_features, rng):
    memory, room, d = SimulatedMemory(1 << 30), BufferRoom(9, 80), n_features

    def drawn(**options):
        block = block_of(rng, n_rows, 6, 5, **options)
        return replace(block, features=block.features + np.int32(d - 6))

    block = drawn()
    slot, sorter = TransferBuffer(memory, room), SegmentBuilder(memory, room, d, segment)
    for _ in range(2):  # the second time into buffers that hold the first
        entries = slot.fill(block.indptr, block.features, block.values)
        sorter.sort(slot, n_rows, block.nnz, entries)
        work = work_items(batch_of(block, d).by_feature, n_rows, d, segment)
        total = n_rows + block.nnz
        assert sorter.rows.values[:total].tolist() == work.rows.tolist()
        assert sorter.values.values[:total].tolist() == work.values.tolist()
        for items, expected in ((sorter.whole, work.whole), (sorter.joined, work.joined)):
            assert items.n_items.values[0] == len(expected.begin)
            found = (items.begin, items.end, items.feature, items.slot)
            for array, numbers in zip(found, expected, strict=True):
                assert array.values[: len(numbers)].tolist() == numbers.tolist()
        assert (sorter.slots.values[: work.n_slots] == range(work.n_slots)).all()
        block = drawn(most=3)


@pytest.mark.parametrize("most", [5, 300, 70_000])  # one, two, three passes
def test_several_warps_and_blocks_sort_stably(most, rng):
    memory, n = SimulatedMemory(1 << 30), 430
    memory.most_threads, memory._most_blocks, memory.multiprocessors = 64, 3, 3
    host = {
        "features": rng.integers(0, most, n) // rng.integers(1, 9, n),
        "rows": np.where(rng.random(n) < 0.2, -1, np.arange(n)),
        "values": np.arange(n),
    }  # fmt: skip
    entries = {
        name: memory.send_copy(a.astype(np.float32 if name == "values" else np.int32))
        for name, a in host.items()
    }
    there = np.flatnonzero(host["rows"] >= 0)
    order, nnz = there[np.argsort(host["features"][there], kind="stable")], len(there)
    sorter = FeatureSort(memory, n, most)
    rows, values = memory.empty(nnz, np.int32), memory.empty(nnz, np.float32)
    features = sorter.sort(entries, n, nnz, rows, values)
    assert features.values[:nnz].tolist() == host["features"][order].tolist()
    assert rows.values.tolist() == values.values.tolist() == order.tolist()


@pytest.mark.parametrize("most", [6, 70])
def test_rows_gathered_on_the_device_are_those_that_the_host_fills_in(most, rng):
    memory, block = SimulatedMemory(1 << 30), block_of(rng, 23, 90, 5, most=most, values="normal")
    weights = rng.uniform(0.5, 2, 23).astype(np.float32)
    whole = batch_of(block, 90, weights)
    kept = DeviceRows(memory, 23, block.nnz)
    for _ in range(2):  # the second time over the first
        kept.keep(batch_of(block.part(0, 9), 90, weights[:9]), "raw")
        assert (kept.count("raw"), kept.count("l2")) == (9, 0)
        kept.keep(batch_of(block.part(9, 23), 90, weights[9:]), "raw")
        assert kept.count("raw") == 23
        kept.keep(batch_of(block.part(0, 3), 90), "l2")
        assert (kept.count("raw"), kept.count("l2")) == (0, 3)
        kept.keep(whole, "again")
    sent = TransferBuffer(memory, BufferRoom(9, 700))
    gathered = TransferBuffer(memory, BufferRoom(9, 700, kept=True), kept)
    for n in (9, 4):
        rows = rng.permutation(23)[:n]
        lengths = np.diff(block.indptr)[rows]
        chosen = RowIdBatch(rows, np.concatenate([[0], np.cumsum(lengths)]))
        m = gathered.load(chosen)
        places = np.concatenate([np.arange(*block.indptr[r : r + 2]) for r in rows])
        assert m == sent.fill(
            chosen.indptr, block.features[places], whole.values[places],
            classes=block.classes[rows], importance=weights[rows],
        )  # fmt: skip
        counts = {"indptr": n + 1, "classes": n, "importance": n}
        for name in sent.arrays:
            count = counts.get(name, m)
            assert (gathered[name].values[:count] == sent[name].values[:count]).all(), name


def test_labels_gathered_on_the_device_are_those_that_are_sent(rng):
    memory, most = SimulatedMemory(1 << 30), 70
    lengths = [0, 40, 2, 1, 5, 0, 3, 1, 1, 7]
    lists = LabelLists.of([rng.choice(50, n, replace=False).tolist() for n in lengths])
    block = block_of(rng, 10, 90, 5).with_labels(lists)
    slot = BatchSlot(10, block.nnz, 90, by_feature=False, n_labels=most)
    slot.add(block, np.arange(10), "raw")
    whole = slot.batch()
    kept = DeviceRows(memory, 10, block.nnz, lists.n_labels)
    for _ in range(2):  # the second time over the first
        kept.keep(whole, "raw")
        kept.keep(whole, "l2")
    sent = TransferBuffer(memory, BufferRoom(9, 700, most))
    gathered = TransferBuffer(memory, BufferRoom(9, 700, most, kept=True), kept)
    for n in (9, 4):
        rows = rng.permutation(10)[:n]
        slot.clear()
        slot.add(block, rows, "raw")
        batch = slot.batch()
        sent.load(batch)
        gathered.load(RowIdBatch(rows, batch.indptr, batch.labels.starts))
        m = batch.labels.n_labels
        for name, count in {"label_starts": n + 1, "label_classes": m, "label_shares": m}.items():
            assert (gathered[name].values[:count] == sent[name].values[:count]).all(), name


def batch_rows(batch):
    """The rows of a batch as a block."""
    from streammach.rows.block import RowBlock

    return RowBlock(
        indptr=batch.indptr, features=batch.features, values=batch.values, classes=batch.classes
    )


def test_tiles_items_and_blocks_do_not_change_a_bit(rng):
    spec, how = spec_of(40, 9, 8, 4), training(batch_size=8, label_smoothing=0.1)
    batches = [batch_of(block_of(rng, 8, 9, 40), 9) for _ in range(2)]
    held = []
    for tile, blocks in ((1024, 1), (16, 3), (8, 20)):
        device = Device(spec, how, tile_columns=tile, blocks=blocks)
        losses = [device.step(batch, 0.4) for batch in batches]
        held.append((losses, device.table.tobytes(), device.squares.tobytes()))
    assert held[0] == held[1] == held[2]


def test_a_wave_of_models_gives_the_bits_of_all_of_them(rng):
    spec, how = spec_of(40, 9, 8, 4), training(batch_size=8)
    batch = batch_of(block_of(rng, 8, 9, 40), 9)
    together = Device(spec, how)
    together.step(batch, 0.4)
    for first in (0, 2):
        a, b = spec.hash_a[first : first + 2], spec.hash_b[first : first + 2]
        wave = Device(replace(spec, n_repetitions=2, hash_a=a, hash_b=b), how)
        wave.step(batch, 0.4)
        assert wave.table.tobytes() == together.table[:, 8 * first : 8 * first + 16].tobytes()
        assert wave.squares.tobytes() == together.squares[:, first : first + 2].tobytes()


@pytest.mark.parametrize("logarithms", [False, True])
def test_outputs_of_tiles_equal_the_cpus(logarithms, rng):
    name = "odd B, tiles of four models"
    n_classes, n_features, n_buckets, n_repetitions, tile = SHAPES[name]
    spec = spec_of(n_classes, n_features, n_buckets, n_repetitions)
    device = Device(spec, training(), tile_columns=tile)
    device.table[:, : spec.n_columns] = rng.normal(size=(n_features + 1, spec.n_columns)) * 2
    held = {"weights": device.weights.copy(), "bias": device.bias.copy()}
    cpu = CpuBackend(spec, dense=False, threads=1, weights=held)
    block = block_of(rng, 5, n_features, n_classes, values="normal")
    z, losses = device.outputs(block, OUTPUTS[logarithms])
    expected = cpu.outputs(block, logarithms=logarithms)
    np.testing.assert_allclose(z[:, : spec.n_columns], expected, rtol=1e-5, atol=1e-6)
    assert np.isnan(losses).all()
    cpu.close()


def best(device, p, estimator, k, *, words=2, threads=32, staged=True):
    """Ids and scores of the k best classes, from padded probabilities."""
    spec, kind = device.spec, ESTIMATORS[estimator].branch
    one_row = kind == decode.MEDIAN
    shape = decode_shape(
        spec.n_buckets, spec.n_repetitions, spec.n_classes, one_row=one_row, words=words,
        threads=threads,
    )  # fmt: skip
    if not staged:
        shape = type(shape)(**{**vars(shape), "staged": False, "rows": 1})
    n = len(p)
    keys = np.full(n * shape.n_sets, 77, np.int64)
    candidates = np.full(n * k * 4 * words, 77, np.int64)
    scores, ids = np.full(n * k, np.nan, np.float32), np.full(n * k, -7, np.int64)
    packed, sizes = device.packed.ravel(), (spec.n_classes, shape.code_words, shape.n_sets)
    scan = Kernel(decode.scan_kernel(shape, kind), shape.bounds)
    scan[(-(-n // shape.rows), shape.n_sets // threads), threads](
        p.ravel(), packed, n, *sizes, keys
    )
    select = Kernel(decode.select_kernel(shape, kind), (threads, 4))
    select[n, threads](p.ravel(), packed, keys, *sizes, k, candidates, scores, ids)
    return ids.reshape(n, k), scores.reshape(n, k)


DECODES = [  # K, B, R, rows, k
    (700, 8, 3, 9, 5),  # three sets, the last row group partial
    (259, 5, 4, 2, 5),  # K no multiple of 4, an even number of values to take the median of
    (300, 300, 1, 2, 5),  # a bucket for every class, codes of 16 bits
    (6, 2, 3, 2, 6),  # all classes, fewer than a set
    (1, 4, 2, 1, 1),
]


def as_drawn(name, shape, rng):
    """Values as models give them, and as they hardly ever do."""
    if name == "tied":
        return rng.choice(np.array([-2, -1, -0.0, 0.0], np.float32), shape)
    p = rng.random(shape, np.float32)
    return np.log(p + np.float32(1e-6)) if name == "logarithms" else p


@pytest.mark.parametrize("shape", DECODES)
@pytest.mark.parametrize("name", ["random", "tied", "logarithms"])
@pytest.mark.parametrize("estimator", ["mean", "min", "median"])
def test_top_k_equals_brute_force(estimator, name, shape, rng):
    n_classes, n_buckets, n_repetitions, n, k = shape
    spec = spec_of(n_classes, 3, n_buckets, n_repetitions)
    device = Device(spec, training())
    p = np.full((n, device.shape.stride), np.nan, np.float32)
    drawn = p[:, : spec.n_columns] = as_drawn(name, (n, spec.n_columns), rng)
    ids, scores = best(device, p, estimator, k)
    kind = {"mean": "sum"}.get(estimator, estimator)
    for q in range(n):
        expected_ids, expected = topk(drawn[q], device.codes, spec.n_buckets, kind, k)
        assert ids[q].tolist() == expected_ids.tolist()
        assert scores[q].tolist() == expected.tolist()


@pytest.mark.parametrize("estimator", ["logsum", "min", "median"])
def test_tables_too_wide_for_shared_memory_give_the_same(estimator, rng):
    spec = spec_of(200, 3, 6, 3)
    device = Device(spec, training())
    p = np.log(rng.random((3, device.shape.stride), np.float32))
    found, expected = (best(device, p, estimator, 4, staged=s) for s in (False, True))
    assert found[0].tolist() == expected[0].tolist()
    assert found[1].tolist() == expected[1].tolist()
