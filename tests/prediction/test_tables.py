import warnings
from contextlib import nullcontext

import numpy as np
import pandas
import pytest
import scipy.sparse

import streammach as sm
from streammach.conversion.convert import convert
from streammach.model.model import Model
from streammach.prediction.evaluate import evaluate
from streammach.prediction.predictor import Predictor
from streammach.system.errors import DataError, MismatchError, UsageError
from tests.inputs.tables.builders import FORMATS, ROLES, rows_of, table_of, write

TRAIN, TEST = rows_of(900, seed=1), rows_of(200, seed=2)
SHUFFLED = ["price", "brand", "kind", "title", "id", "body"]


def trained(folder, table, **roles):
    convert(table, folder / "train.zarr", **roles)
    return fitted(folder)


def fitted(folder):
    plan = sm.plan(folder / "train.zarr", n_buckets=2, n_repetitions=4, counts="on", threads=1)
    options = sm.TrainingOptions(epochs=2, learning_rate=0.5)
    sm.Trainer(plan, options).fit(folder / "train.zarr", folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return trained(folder, write(TRAIN, folder, "csv"), chars="3-4", **ROLES)


@pytest.fixture(scope="module")
def predictor(run):
    with Predictor(Model.load(run)) as found:
        yield found


@pytest.fixture(scope="module")
def usual(predictor, tmp_path_factory):
    """Return ids and scores of the rows as JSON lines."""
    return streamed(predictor, write(TEST, tmp_path_factory.mktemp("usual"), "jsonl"))


def streamed(predictor, path, k=3):
    parts = list(predictor.stream(path, k))
    return np.concatenate([p.ids for p in parts]), np.concatenate([p.scores for p in parts])


def test_labels_of_a_table_can_be_named_by_their_column(predictor):
    table = pandas.DataFrame(TEST)
    named, given = (evaluate(predictor, table, y) for y in ("kind", table["kind"]))
    assert named.accuracy == given.accuracy
    assert named.n_rows == given.n_rows == len(TEST)
    with pytest.raises(UsageError, match=r"labels of the column 'kind': 'brand'"):
        evaluate(predictor, table, "brand")
    with pytest.raises(DataError, match="the matrix's columns none"):
        evaluate(predictor, scipy.sparse.eye(200, format="csr"), table["kind"])


@pytest.mark.parametrize("columns", [None, SHUFFLED], ids=["as trained", "shuffled"])
@pytest.mark.parametrize("form", FORMATS)
def test_files_give_the_same_ids_and_scores(form, columns, predictor, usual, tmp_path):
    ids, scores = streamed(predictor, write(TEST, tmp_path, form, columns=columns))
    assert np.array_equal(ids, usual[0])
    assert np.array_equal(scores, usual[1])


@pytest.mark.parametrize(
    "table",
    [
        lambda: TEST, lambda: pandas.DataFrame(TEST), lambda: table_of(TEST),
        lambda: pandas.DataFrame(TEST)[SHUFFLED], lambda: table_of(TEST).select(SHUFFLED),
        lambda: pytest.importorskip("polars").DataFrame(TEST).select(SHUFFLED),
        lambda: [dict(reversed(list(row.items()))) for row in TEST],
        lambda: [{k: v for k, v in row.items() if v is not None and k != "kind"} for row in TEST],
    ],
)  # fmt: skip
def test_tables_in_memory_give_the_same_ids_and_scores(table, predictor, usual):
    labels, scores = predictor.topk(table(), 3)
    assert np.array_equal(labels, predictor.labels(usual[0]))
    assert np.array_equal(scores, usual[1])


def test_the_store_of_the_rows_gives_the_same(predictor, usual, tmp_path, run):
    convert(write(TEST, tmp_path, "csv"), tmp_path / "t.zarr", like=run.parent / "train.zarr")
    ids, scores = streamed(predictor, tmp_path / "t.zarr")
    assert np.array_equal(ids, usual[0])
    assert np.array_equal(scores, usual[1])


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_tables_are_evaluated(form, predictor, tmp_path, run):
    path = write(TEST, tmp_path, form)
    convert(path, tmp_path / "t.zarr", like=run.parent / "train.zarr")
    found, known = evaluate(predictor, path), evaluate(predictor, tmp_path / "t.zarr")
    assert found.accuracy == known.accuracy > 0.8
    assert found.n_rows == known.n_rows == len(TEST)
    assert found.unknown_values == known.unknown_values + 0 or found.unknown_values > 0


def test_rows_to_predict_need_no_labels_and_no_order(predictor, usual, tmp_path):
    columns = ["price", "body", "title", "brand"]
    for form in ("csv", "parquet"):
        ids, _ = streamed(predictor, write(TEST, tmp_path, form, columns=columns))
        assert np.array_equal(ids, usual[0])
    with pytest.raises(UsageError, match="no column 'kind'"):
        evaluate(predictor, tmp_path / "rows.csv")


def test_columns_that_are_missing_or_new_are_said(predictor, tmp_path):
    rows = [{"title": r["title"], "brand": r["brand"], "colour": "x"} for r in TEST]
    expected = None
    for form in ("csv", "parquet", "arrow", "jsonl"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = streamed(predictor, write(rows, tmp_path, form))
        texts = [str(w.message) for w in said]
        assert "columns body, price of the recipe are not there" in texts[0]
        assert "column colour was not there in training and is not used" in texts[1]
        expected = expected or found
        assert np.array_equal(found[1], expected[1])
    with pytest.warns(UserWarning, match="body, price"), pytest.warns(UserWarning, match="colour"):
        _, scores = predictor.topk(pandas.DataFrame(rows), 3)
    assert np.array_equal(scores, expected[1])
    with pytest.raises(DataError, match="none of the columns of the recipe"):
        predictor.topk([{"colour": "x"}])


def test_strings_are_rows_of_the_one_text(tmp_path, predictor):
    rows = [{"title": row["title"], "kind": row["kind"]} for row in TRAIN]
    run = trained(tmp_path, rows, label="kind")
    texts = [row["title"] for row in TEST]
    with Predictor(Model.load(run)) as found:
        _, scores = found.topk(texts, 2)
        assert np.array_equal(scores, found.topk([{"title": t} for t in texts], 2)[1])
        assert np.array_equal(scores, found.topk(pandas.DataFrame({"title": texts}), 2)[1])
        path = write([{"title": t} for t in texts], tmp_path, "jsonl")
        assert np.array_equal(scores, streamed(found, path, 2)[1])
    with pytest.raises(UsageError, match="strings are rows where one column of text is read"):
        predictor.topk(texts)


@pytest.mark.parametrize("odd", [{"price": 7}, {"ngrams": 1}, {}])
def test_a_store_whose_table_became_other_features_is_refused(odd, tmp_path):
    rows = [{"title": f"red w{i % 2}", "price": i % 9, "kind": "ab"[i % 2]} for i in range(60)]
    roles = {"label": "kind", "text": "title", "number": "price"}
    convert(rows, tmp_path / "train.zarr", **roles)
    more = {name: odd[name] for name in odd if name == "ngrams"}
    others = [row | {name: odd[name] * row[name] for name in odd if name in row} for row in rows]
    convert(others, tmp_path / "other.zarr", **roles, **more)
    plan = sm.plan(tmp_path / "train.zarr", n_buckets=2, n_repetitions=2)
    run = sm.Trainer(plan, sm.TrainingOptions(epochs=1)).fit(tmp_path / "train.zarr")
    options = sm.TrainingOptions(epochs=1, validation=tmp_path / "other.zarr")
    for ask in (
        lambda: sm.evaluate(run.model, tmp_path / "other.zarr"),
        lambda: sm.predict(run.model, tmp_path / "other.zarr", tmp_path / "best.csv"),
        lambda: sm.Trainer(plan, options).fit(tmp_path / "train.zarr"),
    ):
        with pytest.raises(MismatchError, match="became other") if odd else nullcontext():
            ask()


def test_a_model_of_no_table_reads_none(tiny, tmp_path):
    tiny.store()
    run = fitted(tmp_path)
    assert b"recipe" not in (run / "model" / "model.json").read_bytes()
    with Predictor(Model.load(run)) as found:
        with pytest.raises(UsageError, match="trained on no table"):
            found.topk(pandas.DataFrame(TEST))
        with pytest.raises(UsageError, match="trained on no table"):
            found.topk(["some text"])
        named = evaluate(found, [{"w^own1_0": 1.0, "strange": 2.0}, {"other": 1.0}], ["a", "b"])
        assert named.unknown_values == 2
        with pytest.raises(DataError, match="is no number and no string"):  # features by name
            found.topk(TEST)
        with pytest.raises(UsageError, match="trained on no table"):
            list(found.stream(write(TEST, tmp_path, "csv")))
