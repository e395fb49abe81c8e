"""One row at a time: features by id or by name, and the same answers as among others."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from streammach.prediction.predictor import Predictor
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.known import LONG_ROW, KnownFeatures
from streammach.rows.names import Names, TrainedColumns
from streammach.system.errors import DataError, UsageError
from tests.builders import block_of
from tests.model.models import counts_of, model_of

D, K = 12, 30


@pytest.fixture(params=["hashed", "blend", "dense", "alone"])
def model(request, rng):
    counts = counts_of(rng, D, K) if request.param in ("blend", "alone") else None
    shape = {"n_repetitions": 0 if request.param == "alone" else 3}
    return model_of(rng, D, K, counts=counts, dense=request.param == "dense", **shape)


def rows_of(block):
    for i in range(block.n_rows):
        some = slice(block.indptr[i], block.indptr[i + 1])
        yield block.features[some], block.values[some]


@pytest.mark.parametrize("k", [1, 5, K, K + 9])
def test_a_query_is_answered_as_the_row_is_among_others(rng, model, k):
    block = block_of(rng, 20, D, K)
    with Predictor(model, threads=1) as predictor:
        labels, scores = predictor.topk(block, k)
        for i, (features, values) in enumerate(rows_of(block)):
            names = [f"f{f}" for f in features.tolist()]
            for given in (features, features.tolist(), names, np.array(names, object)):
                found, reached = predictor.query(given, values, k)
                assert found.shape == reached.shape == (min(k, K),)
                assert reached.dtype == np.float32
                np.testing.assert_allclose(reached, scores[i], rtol=1e-5)
                if not model.dense:  # whose products have other bits for other numbers of rows
                    assert found.tolist() == labels[i].tolist()
                    assert reached.tobytes() == scores[i].tobytes()


def test_unknown_and_repeated_features(rng, model):
    with Predictor(model, threads=1) as predictor:
        assert predictor.query([3, 5])[1].tobytes() == predictor.query([3, 5], [1, 1])[1].tobytes()
        expected = predictor.query([2, 7], [3.0, 1.0])
        by_name = predictor.query(["f7", "new", "f2", b"f2"], [1.0, 9.0, 1.0, 2.0])
        by_id = predictor.query(np.array([7, -1, 2, 2]), [1.0, 9.0, 1.0, 2.0])
        nothing = predictor.query(["new"]), predictor.query([]), predictor.query(np.array([], int))
    for found in (by_name, by_id):
        assert found[0].tolist() == expected[0].tolist()
        assert found[1].tobytes() == expected[1].tobytes()
    assert len({found[1].tobytes() for found in nothing}) == 1


def test_ids_of_names(rng):
    with Predictor(model_of(rng, D, K), threads=1) as predictor:
        found = predictor.ids(["f3", "new", b"f0", ""])
        assert found.tolist() == [3, -1, 0, -1]
        assert found.dtype == np.int32
        assert predictor.ids([]).tolist() == []


def test_probabilities_are_those_of_topk(rng):
    block = block_of(rng, 5, D, K)
    with Predictor(model_of(rng, D, K, counts=counts_of(rng, D, K)), threads=1) as predictor:
        labels, p = predictor.topk(block, 4, probabilities=True)
        for i, (features, values) in enumerate(rows_of(block)):
            found, own = predictor.query(features, values, 4, probabilities=True)
            assert found.tolist() == labels[i].tolist()
            assert own.tobytes() == p[i].tobytes()
    with Predictor(model_of(rng, D, K), threads=1, estimator="mean") as predictor:
        for wanted in ({"probabilities": True}, {"threshold": 0.5}):
            with pytest.raises(UsageError, match="probabilities are those of"):
                predictor.query([1], **wanted)


@pytest.mark.parametrize(
    ("features", "values", "said"),
    [
        ([0, D], None, f"{D} is no feature: the model has ids from 0 to {D - 1}"),
        ([-2], None, "-2 is no feature"),
        ([2**40], None, "is no feature"),
        ([1, 2], [1.0, np.nan], r"the value at 1 \(counted from 0\) is not a finite float32"),
        ([1, 2], [1.0], r"values have the shape \(1,\), \(2,\) is expected"),
        ([1.5], None, "features are ids"),
        (["f1", 2], None, "features are ids"),
        ("f1", None, "features are ids"),
        (b"f1", None, "features are ids"),
        ({"f1": 2.0}, None, "Values of them come second"),
        ([[1, 2]], None, "features are ids"),
    ],
)
def test_what_is_no_row_is_refused(rng, features, values, said):
    with (
        Predictor(model_of(rng, D, K), threads=1) as predictor,
        pytest.raises(DataError, match=said),
    ):
        predictor.query(features, values)


def test_threads_share_a_predictor(rng, model):
    block = block_of(rng, 30, D, K)
    rows = [([f"f{f}" for f in features.tolist()], values) for features, values in rows_of(block)]
    with Predictor(model, threads=1) as predictor:
        expected = [predictor.query(*row)[1].tobytes() for row in rows]
    with Predictor(model, threads=1) as predictor, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda row: predictor.query(*row)[1].tobytes(), rows * 5))
    assert found == expected * 5


def test_arrays_that_cannot_be_written_serve(rng, model):
    features, values = np.array([1, 4], np.int32), np.array([1, 2], np.float32)
    with Predictor(model, threads=1) as predictor:
        expected = predictor.query(features, values)[1]
        for array in (features, values):
            array.flags.writeable = False
        assert predictor.query(features, values)[1].tobytes() == expected.tobytes()


def test_a_matrix_of_one_row_is_read_as_one_of_many(rng):
    model = model_of(rng, D, K, columns=TrainedColumns(D, np.arange(D, dtype=np.int32)))
    x = rng.integers(0, 3, (6, D)).astype(np.float64)
    x[2] = 0
    with Predictor(model, threads=1) as predictor:
        labels, scores = predictor.topk(scipy.sparse.csr_array(x), 4)
        forms = (x, x.astype(np.float32), x.astype(int), scipy.sparse.csr_array(x.astype("f4")),
                 scipy.sparse.csr_matrix(x), scipy.sparse.coo_array(x))  # fmt: skip
        for form in forms:
            found = predictor.topk(form, 4)
            assert found[0].tolist() == labels.tolist()
            assert found[1].tobytes() == scores.tobytes()
            for i in range(6):
                own = form.tocsr()[[i]] if scipy.sparse.issparse(form) else form[i : i + 1]
                found = predictor.topk(own, 4)
                assert found[0].tolist() == labels[[i]].tolist()
                assert found[1].tobytes() == scores[[i]].tobytes()
        for form in (np.asarray, scipy.sparse.csr_array):
            x[4, 1] = np.inf
            with pytest.raises(DataError, match=r"row 4 \(counted from 0\): value 'inf' is not a"):
                predictor.topk(form(x), 1)


def test_labels_of_few_and_of_many_ids_are_the_same(rng):
    for names in (Names.of(range(K)), Names.of(f"l{i}" for i in range(K))):
        model = replace(model_of(rng, D, K), labels=names)
        ids = rng.integers(-1, K, (100, 7))
        with Predictor(model, threads=1) as predictor:
            for some in (ids, np.abs(ids)):
                many = predictor.labels(some)
                few = np.concatenate([predictor.labels(some[i : i + 1]) for i in range(100)])
                assert many.tolist() == few.tolist()
                expected = [names.label(i) if i >= 0 else "" for i in some.ravel().tolist()]
                assert many.ravel().tolist() == expected
        assert predictor.labels(np.abs(ids)[:1]).dtype == (
            np.int64 if names.kind == "integer" else object
        )


@pytest.mark.parametrize("m", [0, 1, 40, LONG_ROW + 7])
def test_rows_are_laid_as_blocks_are(rng, m):
    d = 300
    known = KnownFeatures(Names.of(f"f{i}" for i in range(d)))
    ids = rng.integers(-1, d, m)
    values = rng.integers(-5, 9, m).astype(np.float32)
    kept = ids >= 0
    expected = canonicalize(RowBlock(
        indptr=np.array([0, kept.sum()]), features=ids[kept].astype(np.int32), values=values[kept],
        classes=np.zeros(1, np.int32),
    ))  # fmt: skip
    found = known.row(ids, values)
    assert found.indptr.tolist() == expected.indptr.tolist()
    assert found.features.tolist() == expected.features.tolist()
    assert found.values.tolist() == expected.values.tolist()


def test_names_of_columns_with_a_separator_are_found():
    known = KnownFeatures(Names.of(["a^b", "^c^d", "e", "^x^" + "long" * 9]))
    found = known.ids(["a^b", "c^d", "e", "^c^d", "b", b"c^d", "x^" + "long" * 9])
    assert found.tolist() == [0, 1, 2, 1, -1, 1, 3]
    assert known.ids(["e", "ä", "a^b"]).tolist() == [2, -1, 0]
    assert known.ids_of(Names.of(["c^d", "?", "e"])).tolist() == [1, -1, 2]
