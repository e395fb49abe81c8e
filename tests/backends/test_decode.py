"""Exact decoding: every way gives the ids and the bits of scoring all classes."""

import threading

import numpy as np
import pytest

from streammach.backends.cpu.backend import CpuBackend
from streammach.backends.cpu.decoder import Decoder
from streammach.options.estimators import MEDIAN, MINIMUM, SUM
from tests.builders import dense_block, drawn, spec_of, training
from tests.reference.decoding import SHAPES, WAYS, by_way, differences, possible, values_like

KINDS = {"sum": SUM, "min": MINIMUM, "median": MEDIAN}
MODELS = [  # K, B, R, rows, k
    (700, 32, 7, 5, 5),
    (1000, 50, 4, 64, 1),
    (1500, 300, 3, 9, 20),
    (65, 2, 9, 3, 5),
    (3000, 16, 12, 31, 5),
    (639, 200, 5, 6, 100),
    (641, 100, 1, 7, 641),
]


def decoder_of(way, spec):
    if not possible(way, spec):
        pytest.skip("the shape does not allow this way")
    return by_way(Decoder(spec), way)


def decode(found, p, kind, k):
    """Ids and scores of the k best classes."""
    scores, ids = np.empty((len(p), k), np.float32), np.empty((len(p), k), np.int64)
    for first, last in found.parts(len(p)):
        found.decode(p[first:last], KINDS[kind], scores[first:last], ids[first:last])
    return ids, scores


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("kind", ["sum", "min", "median"])
@pytest.mark.parametrize("logarithms", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_equals_scoring_all_classes(way, kind, name, logarithms, rng):
    for n_classes, n_buckets, n_repetitions, n, k in MODELS:
        spec = spec_of(n_classes, 4, n_buckets, n_repetitions, seed=int(rng.integers(1 << 30)))
        if not possible(way, spec):
            continue
        p = values_like(name, n, n_buckets, n_repetitions, rng)
        p = np.log(np.maximum(p, np.float32(1e-9))) if logarithms else p
        found, before = decoder_of(way, spec), p.copy()
        ids, scores = decode(found, p, kind, k)
        assert (p == before).all()  # it stays writable, as in predictions: one kernel
        assert differences(p, spec.codes(), n_buckets, kind, ids, scores) == []


@pytest.mark.parametrize("way", WAYS)
def test_threads_may_share_the_classes(way, rng):
    spec = spec_of(2111, 4, 20, 6)
    found, p = decoder_of(way, spec), values_like("tied", 3, 20, 6, rng)
    for k, parts in ((5, 3), (100, 40)):  # of the second only some have as many classes as k
        ids, scores = np.empty((3, k), np.int64), np.empty((3, k), np.float32)
        pieces = []

        def run(work, some, pieces=pieces):
            pieces.extend(some)
            for first, last in some:
                work(first, last)

        found.decode_shared(p, SUM, scores, ids, run, parts)
        assert len(pieces) == min(parts, 33)
        assert differences(p, spec.codes(), 20, "sum", ids, scores) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_row_does_not_depend_on_the_others(way, rng):
    found = decoder_of(way, spec_of(900, 4, 32, 6))
    p = values_like("peaked", 40, 32, 6, rng)
    ids, scores = decode(found, p, "sum", 5)
    for q in (0, 17, 39):
        alone = decode(found, p[q : q + 1], "sum", 5)
        assert alone[0][0].tolist() == ids[q].tolist()
        assert alone[1][0].tolist() == scores[q].tolist()


@pytest.mark.parametrize("way", WAYS)
def test_best_class_at_the_very_end_is_found(way):
    spec = spec_of(5000, 4, 32, 8)
    found, codes = decoder_of(way, spec), spec.codes()
    p = np.full((6, 8 * 32), 0.01, np.float32)
    for r in range(8):
        p[:, r * 32 + codes[4999, r]] = 0.5
    ids, _ = decode(found, p, "sum", 3)
    assert (ids[:, 0] == 4999).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(700, 32, 7), (2000, 300, 4)])
def test_added_classes_are_ranked_among_the_others(shape, way, rng):
    n_classes, n_buckets, n_repetitions = shape
    added = rng.integers(n_buckets, size=(70, n_repetitions)).astype(np.uint16)
    spec = spec_of(n_classes, 4, n_buckets, n_repetitions).with_more_classes(added)
    found = decoder_of(way, spec)
    for name in ("peaked", "tied", "random"):
        p = values_like(name, 20, n_buckets, n_repetitions, rng)
        for r in range(n_repetitions):  # of half of the rows an added class is the best
            p[:10, r * n_buckets + added[3, r]] = 1.0
        ids, scores = decode(found, p, "sum", 5)
        assert differences(p, spec.codes(), n_buckets, "sum", ids, scores) == []
        assert (ids[:10] >= n_classes).any(axis=1).all()
        best, where = np.empty((20, 5), np.float32), np.empty((20, 5), np.int64)
        found.decode_shared(p, SUM, best, where, one_by_one, 7)
        assert (where == ids).all()
        assert (best == scores).all()


def one_by_one(work, pieces):
    for first, last in pieces:
        work(first, last)


class Tampered(Decoder):
    """Has codes by which every class that need not be looked at would be the best."""

    codes = None


def test_classes_of_other_buckets_are_not_looked_at(rng):
    spec = spec_of(20_000, 4, 500, 8)
    true, p = spec.codes(), np.full((1, 8 * 500), 0.0001, np.float32)
    best = true[77].astype(int)
    p[0, np.arange(8) * 500 + best] = 0.9
    near = (true == best).any(axis=1)
    found = Tampered(spec)
    found.codes = np.where(near[:, None], true, best.astype(true.dtype))
    by_way(found, "buckets")
    ids, scores = decode(found, p, "sum", 1)
    assert ids.tolist() == [[77]]
    assert differences(p, true, 500, "sum", ids, scores) == []
    by_way(found, "one")  # which looks at all of them
    assert decode(found, p, "sum", 1)[0][0, 0] == np.flatnonzero(~near)[0]


def test_all_classes_are_looked_at_where_buckets_do_not_tell(rng):
    spec, p = spec_of(20_000, 4, 500, 8), values_like("flat", 3, 500, 8, rng)
    worst = spec.codes()[:, 0].astype(int) == p[0, :500].argmin()
    found = Tampered(spec)
    best = p[0].reshape(8, 500).argmax(axis=1).astype(np.uint16)
    found.codes = np.where(worst[:, None], best, spec.codes())
    by_way(found, "buckets")
    ids, _ = decode(found, p[:1], "sum", 5)
    assert ids[0].tolist() == np.flatnonzero(worst)[:5].tolist()


@pytest.mark.parametrize("way", WAYS)
def test_two_threads_may_ask_one_decoder(way, rng):
    found = decoder_of(way, spec_of(2000, 4, 32, 6))
    p = [values_like(name, 40, 32, 6, rng) for name in ("peaked", "flat")]
    expected = [decode(found, one, "sum", 5) for one in p]
    again = [[], []]

    def ask(i):
        again[i].extend(decode(found, p[i], "sum", 5) for _ in range(20))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(2):
        assert len(again[i]) == 20
        for ids, scores in again[i]:
            assert (ids == expected[i][0]).all()
            assert (scores == expected[i][1]).all()


def test_scores_that_are_no_numbers_are_told(rng):
    spec = spec_of(500, 4, 16, 5)
    for way in WAYS:
        if not possible(way, spec):
            continue
        p = values_like("random", 9, 16, 5, rng)
        p[4] = np.nan
        for k in (5, 500):
            ids, _ = decode(decoder_of(way, spec), p, "sum", k)
            assert (ids[4] < 0).all()
            assert (np.delete(ids, 4, axis=0) >= 0).all()


def test_the_way_follows_shape_and_rows():
    hashed, exact = spec_of(500, 4, 16, 5), spec_of(9, 4, 9, 1)
    assert [Decoder(hashed).way(n) for n in (1, 3, 4, 64)] == ["buckets", "buckets", "tile", "tile"]
    assert [Decoder(exact).way(n) for n in (1, 64)] == ["one", "one"]


def test_rows_come_in_parts():
    found = Decoder(spec_of(500, 4, 16, 5))
    assert found.parts(200) == [(0, 64), (64, 128), (128, 192), (192, 200)]
    assert found.parts(2) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("estimator", ["mean", "min", "median", "logsum"])
@pytest.mark.parametrize("n_classes", [1, 3, 64, 65, 500])
@pytest.mark.parametrize("predicts", [False, True])
def test_more_classes_than_there_are_gives_all_of_them(predicts, estimator, n_classes, rng):
    spec = spec_of(n_classes, 6, 4, 5)
    given = drawn(rng, spec)
    backend = CpuBackend(spec, dense=False, threads=2, weights=given if predicts else None)
    if not predicts:
        backend.prepare(training(), 1000)
        backend.arrays()["weights"][:] = given["weights"]
    ids, scores = backend.topk(dense_block(rng.random((9, 6))), 700, estimator)
    assert ids.shape == scores.shape == (9, n_classes)
    assert all(sorted(row) == list(range(n_classes)) for row in ids.tolist())
    assert (np.diff(scores, axis=1) <= 0).all()
    backend.close()


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("shape", [(300, 12, 8, 5), (900, 12, 300, 2), (40, 12, 40, 1)])
def test_predictions_are_the_same_for_any_threads_and_in_every_way(dense, shape, rng):
    spec = spec_of(*shape)
    weights = drawn(rng, spec)
    rows, found, written = dense_block(rng.random((131, 12))), set(), set()
    for threads in (1, 2, 3):
        backend = CpuBackend(spec, dense=dense, threads=threads, weights=weights)
        for way in (backend.decoder.way(), *WAYS):
            if possible(way, spec):
                by_way(backend.decoder, way)
                ids, scores = backend.topk(rows, 5, "logsum")
                found.add((ids.tobytes(), scores.tobytes()))
        written.add(backend.outputs(rows, logarithms=True).tobytes())
        backend.close()
    assert len(found) == len(written) == 1


def test_a_model_that_only_predicts_holds_its_codes_once(rng):
    spec = spec_of(500, 6, 16, 5)
    weights = drawn(rng, spec)
    backend = CpuBackend(spec, dense=False, threads=1, weights=weights)
    backend.topk(dense_block(rng.random((9, 6))), 5, "logsum")
    assert backend.codes is backend.decoder.codes
    assert (backend.codes == spec.codes()).all()
    backend.close()


def test_estimates_follow_the_paper(rng):
    spec = spec_of(50, 6, 8, 5)
    backend = CpuBackend(spec, dense=False, threads=1)
    backend.prepare(training(), 1000)
    backend.arrays()["weights"][:] = rng.normal(size=(6, spec.n_columns))
    rows = dense_block(rng.random((4, 6)))
    p = backend.outputs(rows, logarithms=False).reshape(4, 5, 8)
    chosen = p[:, np.arange(5)[None, :], backend.codes[:, :]]  # (4, K, R)
    ids, scores = backend.topk(rows, 50, "mean")
    unbiased = 8 / 7 * (chosen.mean(axis=2) - 1 / 8)
    np.testing.assert_allclose(scores, np.take_along_axis(unbiased, ids, 1), atol=1e-6)
    ids, scores = backend.topk(rows, 50, "logsum")
    logs = np.log(chosen).mean(axis=2)
    np.testing.assert_allclose(scores, np.take_along_axis(logs, ids, 1), atol=1e-5)
    backend.close()
