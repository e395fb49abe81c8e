"""Rows in memory become the same arrays as a conversion writes, and are read as a store is."""

import numpy as np
import pytest
import scipy.sparse

from streammach.conversion.convert import convert
from streammach.conversion.memory_labels import label_values, to_labels, to_weights
from streammach.conversion.memory_rows import MemoryRows
from streammach.inputs.tables.memory_objects import to_matrix
from streammach.rows.names import Names
from streammach.store.dataset import Dataset
from streammach.store.holdout import copy_rows
from streammach.system.errors import DataError, UsageError


@pytest.fixture
def rows(rng):
    x = rng.random((300, 14)).astype(np.float32) * (rng.random((300, 14)) < 0.4)
    x[:, 5] = 0  # a column without a value
    return x


@pytest.fixture
def classes(rng):
    return rng.integers(0, 9, 300)


def held(x, y, weights=None, **options):
    return MemoryRows(to_matrix(x), to_labels(y), weights, **options).to_dataset()


def assert_same(dataset, store):
    for name in store._arrays:
        assert np.array_equal(store.array(name), dataset.array(name)), name
    facts, others = vars(dataset.facts), vars(store.facts)
    own = {"path", "digest", "held_bytes", "intake_bytes"}
    assert {n: v for n, v in facts.items() if n not in own} == {
        n: v for n, v in others.items() if n not in own
    }


@pytest.mark.parametrize("values", ["floats", "counts"])
def test_arrays_are_those_of_a_store(tmp_path, rows, classes, values):
    rows = np.round(rows * 9) if values == "counts" else rows
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", classes)
    convert(tmp_path / "x.npy", tmp_path / "s.zarr", labels=tmp_path / "y.npy", seed=3)
    dataset = held(rows, classes, seed=3)
    with Dataset.open(tmp_path / "s.zarr") as store:
        assert_same(dataset, store)
        assert dataset.labels.same_as(store.labels)
        assert dataset.features.same_as(store.features)
    assert dataset.verify() == []
    assert held(scipy.sparse.csr_array(rows), classes, seed=3).digest == dataset.digest
    assert held(scipy.sparse.csc_matrix(rows), classes, seed=3).digest == dataset.digest
    assert held(rows, classes, seed=4).digest != dataset.digest
    assert dataset.facts.held_bytes > 0
    assert dataset.facts.intake_bytes > dataset.facts.held_bytes


def test_sets_of_labels_are_those_of_a_store(tmp_path, rows, rng):
    sets = scipy.sparse.csr_matrix((rng.random((300, 6)) < 0.3).astype(np.int64))
    np.save(tmp_path / "x.npy", rows)
    scipy.sparse.save_npz(tmp_path / "y.npz", sets)
    convert(tmp_path / "x.npy", tmp_path / "s.zarr", labels=tmp_path / "y.npz", multilabel="on")
    with Dataset.open(tmp_path / "s.zarr") as store:
        assert_same(held(rows, sets), store)
        assert_same(held(rows, sets.toarray()), store)


def test_weights_of_rows(rows, classes, rng):
    weights = rng.random(300).astype(np.float32)
    dataset = held(rows, classes, weights)
    numbers, _ = dataset.origins(0, 300)
    block = dataset.rows(0, 300)
    assert np.array_equal(block.importance, weights[numbers])
    assert to_weights(np.ones(5), 5) is None
    assert np.array_equal(to_weights(2, 3), [2, 2, 2])
    for wrong in (np.ones(4), [1, -1, 1, 1, 1], [1, np.nan, 1, 1, 1]):
        with pytest.raises(DataError):
            to_weights(wrong, 5)


def test_rows_that_are_stored_are_those_of_a_conversion(tmp_path, rows, classes):
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", classes)
    convert(tmp_path / "x.npy", tmp_path / "s.zarr", labels=tmp_path / "y.npy")
    data = MemoryRows(to_matrix(rows), to_labels(classes))
    made = data.write_store(tmp_path / "folder", 10**9)
    with made as stored, Dataset.open(tmp_path / "s.zarr") as s:
        assert stored.digest == s.digest


def test_the_first_rows_as_a_store(tmp_path, rows, classes):
    dataset = held(rows, classes)
    with Dataset.open(copy_rows(dataset, tmp_path / "few", np.ones(40, bool))) as few:
        assert few.n_rows == 40
        assert few.verify() == []
        assert np.array_equal(few.rows(0, 40).features, dataset.rows(0, 40).features)
    assert dataset.first(40).digest != dataset.digest


def test_what_is_masked_is_missing():
    x, mask = np.arange(6).reshape(3, 2), np.array([[0, 0], [0, 1], [0, 0]])
    assert np.isnan(to_matrix(np.ma.masked_array(x, mask)).matrix).tolist() == mask.tolist()
    assert to_matrix(np.ma.masked_array(x)).matrix.tolist() == x.tolist()
    others = [3, None, 4], ["a", None, "b"], [True, float("nan"), False]
    for labels in (np.ma.masked_array([3, -1, 4], [0, 1, 0]), *others):
        with pytest.raises(DataError, match=r"the row has no label: row 1 \(counted from 0\)"):
            to_labels(labels)
        found = to_labels(labels, strict=False)
        assert found.kind == {"4": "int", "b": "str", "False": "bool"}[str(labels[2])]


def test_dicts_are_rows_of_named_features():
    given = to_matrix([{"a": 1, "b": 2.5}, {}, {"color": "red", "a": 0}])
    assert [given.names.raw(i) for i in range(3)] == [b"a", b"b", b"color=red"]
    assert given.matrix.toarray().tolist() == [[1, 2.5, 0], [0, 0, 0], [0, 0, 1]]
    for wrong in ([{"a": None}], [{"a": 1}, 3]):
        with pytest.raises(DataError):
            to_matrix(wrong)


def test_tables_of_numbers_give_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, 2], "y": [0.5, 0]})
    assert to_matrix(frame).names.raw(1) == b"y"
    numbered = frame.rename(columns={"x": 0, "y": 1})
    assert to_matrix(numbered).names is None  # they are their places
    assert to_matrix(numbered[[1, 0]]).names.raws(np.arange(2)) == [b"1", b"0"]
    assert to_matrix(pandas.concat([numbered, numbered], axis=1)).names is None
    pytest.importorskip("pyarrow")
    for dtype in (bool, "boolean", "Int64", "Float32", "int64[pyarrow]"):
        given = to_matrix(frame.assign(x=pandas.array([1, 0], dtype)))
        assert given.matrix.tolist() == [[1, 0.5], [0, 0]]
    assert np.isnan(to_matrix(frame.assign(x=pandas.array([1, None], "Int64"))).matrix[1, 0])


@pytest.mark.parametrize("wrong", [np.ones(3), np.array([["a"]]), [["a", 1]], [[1, 2], [3]]])
def test_other_things_are_refused(wrong):
    with pytest.raises(DataError):
        to_matrix(wrong)


def test_values_and_names_that_cannot_be_are_refused(rows, classes):
    with pytest.raises(UsageError):
        to_matrix(rows, ["a"])
    with pytest.raises(DataError, match="two columns are called 'a'"):
        to_matrix(rows, ["a", *"bcdefghijklm", "a"])
    rows[3, 2] = np.nan
    with pytest.raises(DataError, match="finite"):
        held(rows, classes)
    with pytest.raises(DataError, match="299 labels"):
        held(np.nan_to_num(rows), classes[:-1])


@pytest.mark.parametrize(
    ("given", "kind", "back"),
    [
        ([3, 1, 3], "int", [3, 1, 3]),
        ([True, False], "bool", [True, False]),
        ([1.0, 2.0], "float", [1.0, 2.0]),
        (["1", "b"], "str", ["1", "b"]),
        (np.array(["1", "2"], object), "str", ["1", "2"]),
        (np.array([1, 2], object), "int", [1, 2]),
        (np.array([True, False], object), "bool", [True, False]),
        (np.array([2**63, 1], np.uint64), "uint", [2**63, 1]),
        (np.array([2**63, 1], object), "uint", [2**63, 1]),
        ([2**53 + 1, 2**53], "int", [2**53 + 1, 2**53]),
        (np.array([b"x", b"y"]), "bytes", [b"x", b"y"]),
    ],
)
def test_labels_come_back_in_their_type(given, kind, back):
    found = to_labels(given)
    assert found.kind == kind
    names = Names.of(found.raws(found.codes.tolist()))
    values = label_values(names.raws(np.arange(len(names))), kind, names.kind)
    assert values.tolist() == back
    assert all(type(a) is type(b) for a, b in zip(values.tolist(), back, strict=True))


def objects(rows):
    """An array of objects, one a row."""
    return np.fromiter(rows, object, len(rows))


pandas = pytest.importorskip("pandas")
WRAPPED = {
    "list": list,
    "tuples": lambda rows: tuple(map(tuple, rows)),
    "sets": lambda rows: [set(row) for row in rows],
    "arrays": lambda rows: [np.array(row, object) for row in rows],
    "array of objects": objects,
    "Series": pandas.Series,
    "Series of arrays": lambda rows: pandas.Series([np.array(row, object) for row in rows]),
    "column": lambda rows: pandas.DataFrame({"y": rows}),
    "Arrow": lambda rows: pytest.importorskip("pyarrow").array(rows),
    "polars": lambda rows: pytest.importorskip("polars").Series(rows),
}


@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([[6, 10], [7, 11], [6, 11]], "int"),  # of one length: no matrix of three columns
        ([[6], [7, 11, 3], []], "int"),
        ([["b", "a"], ["é"], ["a"]], "str"),
        ([[2.0, 1.0], [3.0], [1.0]], "float"),
    ],
)
def test_lists_are_lists_of_labels_in_any_wrapping(wrap, rows, kind):
    found = to_labels(WRAPPED[wrap](rows))
    lists = found.lists
    names = [{b"%d" % x if kind != "str" else x.encode() for x in row} for row in rows]
    assert [set(found.raws(lists.classes[a:b].tolist()))
            for a, b in zip(lists.starts[:-1], lists.starts[1:], strict=True)] == names  # fmt: skip
    assert found.kind == kind


def test_a_matrix_is_an_indicator_and_an_odd_list_is_named():
    for matrix in (np.eye(3), scipy.sparse.eye_array(3), pandas.DataFrame(np.eye(3))):
        assert to_labels(matrix).raws([2]) == [b"2"]
    for wrong, said in [
        ([[1], None], "row 1 .* has no list of labels: 'None'"),
        ([[1, 2], ["a"]], "all numbers or all strings: row 0"),
        ([["a"], [], ["b", 3]], "row 2 .* has '3'"),
        ([[1, 2], [float("nan")]], "row 1 "),
        ([[[1]], [[2]]], "row 0 "),
    ]:
        with pytest.raises(DataError, match=said):
            to_labels(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        [1.5],
        [""],
        [np.nan],
        ["a", np.nan],
        np.array([None, "a"], object),
        [2**63 + 1, -1],
        {"a": 1},
    ],
)
def test_labels_that_cannot_be_are_refused(wrong):
    with pytest.raises(DataError):
        to_labels(wrong)
