"""Rows of an iterator: read once, the same store and model as of a file with the same rows."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.system.errors import StreammachError

N = 300
RNG = np.random.default_rng(0)
X = (RNG.random((N, 6)) * (RNG.random((N, 6)) > 0.4)).astype(np.float32)
LABELS = np.array([f"class {i % 5}" for i in range(N)])
FRAME = pd.DataFrame({
    "text": [f"w{i % 7} v{i % 11} z{i}" for i in range(N)], "number": RNG.random(N).round(3),
    "label": LABELS,
})  # fmt: skip
STARTS = range(0, N, 70)
SHORT = {
    "epochs": 1, "n_buckets": 3, "n_repetitions": 1, "counts": "off", "learning_rate": 0.5,
    "transform": "raw", "progress": False, "memory": "1GB", "linear": "off",
}  # fmt: skip


def arrow():
    return pa.Table.from_pandas(FRAME, preserve_index=False)


def pairs(kind=np.asarray):
    return ((kind(X[i : i + 70]), LABELS[i : i + 70]) for i in STARTS)


def frames():
    return (FRAME[i : i + 70] for i in STARTS)


def with_file(folder):
    """Yield rows that come once, of a table as it is in the file."""
    FRAME.to_csv(folder / "t.csv", index=False)
    yield pd.read_csv(folder / "t.csv", chunksize=40)
    yield frames()
    yield iter(arrow().to_batches(max_chunksize=33))
    yield arrow().to_reader(max_chunksize=50)
    yield (part.to_dict("records") for part in frames())
    yield (part.to_dict("list") for part in frames())


def digest_of(rows, folder, **options):
    return sm.convert(rows, folder / "store", force=True, threads=2, **options).digest


def test_pairs_give_the_store_of_a_file(tmp_path):
    np.savez(tmp_path / "x.npz", X=X, y=LABELS)
    wanted = digest_of(tmp_path / "x.npz", tmp_path)
    for rows in (pairs(), pairs(sp.csr_array), zip(np.array_split(X, 9), np.array_split(LABELS, 9),
                                                   strict=True)):  # fmt: skip
        assert digest_of(rows, tmp_path) == wanted
    named = ((pd.DataFrame(x, columns=list("abcdef")), y) for x, y in pairs())
    whole = pd.DataFrame(X, columns=list("abcdef"))
    assert digest_of(named, tmp_path) == digest_of((whole, LABELS), tmp_path)


def test_tables_give_the_store_of_a_file(tmp_path):
    every = list(with_file(tmp_path))
    wanted = digest_of(tmp_path / "t.csv", tmp_path)
    assert [digest_of(rows, tmp_path) for rows in every] == [wanted] * len(every)


def test_lists_of_labels_and_rows_by_name(tmp_path):
    lists = [[f"l{i % 3}", *(["more"] if i % 4 == 0 else [])] for i in range(N)]
    apart = ((X[i : i + 70], lists[i : i + 70]) for i in STARTS)
    assert digest_of(apart, tmp_path) == digest_of((X, lists), tmp_path)
    rows = [{"a": 1.0, f"b{i % 90}": 2.0} for i in range(N)]
    apart = ((rows[i : i + 70], LABELS[i : i + 70]) for i in STARTS)
    made = sm.convert(apart, tmp_path / "named", threads=1)
    assert (made.n_rows, made.n_features) == (N, 91)


def test_bad_rows_are_told_by_their_numbers_among_all(tmp_path):
    x = X.copy()
    x[205, 1] = np.nan
    apart = ((x[i : i + 70], LABELS[i : i + 70]) for i in STARTS)
    with pytest.raises(StreammachError, match=r"row 205 .*value 'nan'"):
        digest_of(apart, tmp_path)
    apart = ((x[i : i + 70], LABELS[i : i + 70]) for i in STARTS)
    made = sm.convert(apart, tmp_path / "s", on_bad_row="skip")
    assert (made.n_rows, sum(made.skipped.values())) == (N - 1, 1)


def test_a_column_that_an_item_lacks_is_missing_there(tmp_path):
    apart = [FRAME, FRAME.drop(columns="number")]
    made = sm.convert(iter(apart), tmp_path / "s", label="label")
    assert made.n_rows == 2 * N
    assert any("300 of 600 rows have no number" in note for note in made.notes)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "a list_iterator has no items"),
        ([{"a": 1}], "which column holds the labels cannot be guessed"),
        ([{"label": 1, "a": 2}, 7, 8], "not all rows are dictionaries"),
        ([7], "item 0 .* the type int"),
        ([["a b", "c"]], "item 0 .* the type list"),
        ([X], "item 0 .* the type ndarray"),
        ([FRAME, (X, LABELS)], "item 1 .* the type tuple of ndarray, unlike those before"),
        ([(X, LABELS), FRAME], "item 1 .* the type DataFrame, unlike those before"),
        ([(X, LABELS), (X[:, :4], LABELS)], r"item 1 .* has 4 columns, those before 6"),
        ([(X, LABELS[:9])], "9 labels for 300 rows"),
        ([(FRAME, LABELS)], "the labels of a table are a column: label"),
    ],
)
def test_a_wrong_item_is_one_line(items, said, tmp_path):
    for door in (lambda: sm.convert(iter(items), tmp_path / "s"), lambda: sm.train(iter(items))):
        with pytest.raises(StreammachError, match=said) as found:
            door()
        assert "\n" not in str(found.value)
    assert not any(tmp_path.iterdir())


def test_a_model_is_that_of_the_rows_in_memory():
    wanted = sm.train(X, LABELS, **SHORT).model
    model = sm.train(pairs(), **SHORT).model
    assert model.weights.tobytes() == wanted.weights.tobytes()
    assert model.predict(X[:9]).tolist() == wanted.predict(X[:9]).tolist()
    wanted = sm.train(FRAME, "label", **SHORT).model
    for y in ("label", None):
        model = sm.train(frames(), y, **SHORT).model
        assert model.weights.tobytes() == wanted.weights.tobytes()
    weights = {"class 0": 3.0}
    model = sm.train(pairs(), class_weight=weights, **SHORT).model
    wanted = sm.train(X, LABELS, class_weight=weights, **SHORT).model
    assert model.weights.tobytes() == wanted.weights.tobytes()


@pytest.mark.parametrize(
    ("y", "more", "said"),
    [
        (LABELS, {}, "bring it with them: y"),
        (None, {"sample_weight": np.ones(N)}, "bring it with them: sample_weight"),
        (None, {"columns": list("abcdef")}, "bring it with them: columns"),
    ],
)
def test_what_an_iterator_brings_is_not_given_beside_it(y, more, said):
    with pytest.raises(StreammachError, match=said):
        sm.train(pairs(), y, **more, **SHORT)
