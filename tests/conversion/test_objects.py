"""Objects of any kind at every door: rows as in their plain form, or one line that names them."""

import contextlib
import datetime
import functools
import io
import itertools
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.inputs.tables.memory_objects import as_rows
from streammach.system.errors import StreammachError
from tests.builders import NO_PARTS, rows_by_name

pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
dataset = pytest.importorskip("pyarrow.dataset")
anndata, zarr = pytest.importorskip("anndata"), pytest.importorskip("zarr")

N = 45
RNG = np.random.default_rng(0)
LABELS = np.array([f"class {i % 3}" for i in range(N)])
X = (3 * np.eye(4)[np.arange(N) % 3] + RNG.random((N, 4))).astype(np.float32)
X *= X > 0.3
NAMES = list("abcd")
FRAME = pd.DataFrame({
    "title": [f"w{i % 3} w{i % 7}" for i in range(N)], "n": RNG.random(N).round(3),
    "label": LABELS,
})  # fmt: skip
TEXTS = FRAME["title"].tolist()
PLAN = {"epochs": 1, "n_buckets": 3, "n_repetitions": 1, "counts": "off", "threads": 1}
PARTS = {"transform": "raw", **NO_PARTS}
SHORT = {**PLAN, **PARTS, "learning_rate": 0.5, "progress": "none"}


NUMBER = itertools.count()


class Tensor:
    """An array of another library."""

    def __init__(self, values):
        self._values, self.shape = values, values.shape

    def __array__(self, dtype=None, copy=None):
        return self._values.astype(dtype or self._values.dtype)


class Lines:
    """What only iterates."""

    def __iter__(self):
        return iter([])


def cells(x=X):
    obs = pd.DataFrame({"label": pd.Categorical(LABELS)}, index=[f"cell {i}" for i in range(N)])
    return anndata.AnnData(x.copy(), obs=obs, var=pd.DataFrame(index=NAMES))


def in_hdf5():
    file = h5py.File(f"rows {next(NUMBER)}", "w", driver="core", backing_store=False)
    file["X"] = X
    return file["X"]


def in_zarr():
    array = zarr.create_array(store={}, shape=X.shape, dtype="f4")
    array[:] = X
    return array


def arrow(frame=FRAME):
    return pa.Table.from_pandas(frame, preserve_index=False)


def structured():
    return np.array([tuple(row) for row in X], [(name, "f4") for name in NAMES])


SPARSE = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")
# Rows of numbers without names, as the array X.
NUMBERS = {
    "array": lambda: X,
    "lists": X.tolist,
    "tuple of arrays": lambda: tuple(X),
    "images": lambda: X.reshape(N, 2, 2),
    "cubes": lambda: X.reshape(N, 2, 1, 2),
    "masked": lambda: np.ma.MaskedArray(X, X > 9),
    "matrix": lambda: np.matrix(X),
    "object rows": lambda: np.fromiter([*X], object, N),
    "columns first": lambda: np.asfortranarray(X),
    "HDF5": in_hdf5,
    "Zarr": in_zarr,
    "tensor": lambda: Tensor(X),
    **{f"{form} {kind}": lambda form=form, kind=kind: getattr(sp, f"{form}_{kind}")(X)
       for form in SPARSE for kind in ("matrix", "array")},
}  # fmt: skip
# Rows of numbers whose columns have names, as a DataFrame.
NAMED = {
    "pandas": lambda: pd.DataFrame(X, columns=NAMES),
    "polars": lambda: pl.DataFrame(X, schema=NAMES),
    "Arrow": lambda: arrow(pd.DataFrame(X, columns=NAMES)),
    "dict of arrays": lambda: dict(zip(NAMES, X.T, strict=True)),
    "structured": structured,
    "AnnData": cells,
    "AnnData, sparse": lambda: cells(sp.csc_matrix(X)),
}
# Rows of a table, as the DataFrame.
TABLES = {
    "pandas": lambda: FRAME,
    "a kind of pandas": lambda: type("Mine", (pd.DataFrame,), {})(FRAME),
    "polars": lambda: pl.from_pandas(FRAME),
    "Arrow": arrow,
    "batch": lambda: arrow().to_batches()[0],
    "reader": lambda: arrow().to_reader(),
    "list of dicts": lambda: FRAME.to_dict("records"),
    "tuple of dicts": lambda: tuple(FRAME.to_dict("records")),
    "dict of lists": lambda: FRAME.to_dict("list"),
    "dict of Series": lambda: {name: FRAME[name] for name in FRAME},
    "dict of Arrow": lambda: {name: arrow()[name] for name in FRAME},
    "dict of polars": lambda: {name: pl.from_pandas(FRAME)[name] for name in FRAME},
}
# Texts, as a list of strings.
STRINGS = {
    "list": lambda: TEXTS,
    "tuple": lambda: tuple(TEXTS),
    "array": lambda: np.array(TEXTS),
    "objects": lambda: np.array(TEXTS, object),
    "Series": lambda: FRAME["title"],
    "Index": lambda: pd.Index(TEXTS),
    "polars": lambda: pl.Series(TEXTS),
    "Arrow": lambda: pa.array(TEXTS),
    "chunks": lambda: pa.chunked_array([TEXTS]),
}
# What is refused: how to make it, and what its line says.
WRONG = {
    "None": (lambda: None, "NoneType"),
    "int": (lambda: 7, "int"),
    "text": (lambda: "no such file.csv", "str|no such file"),
    "path": (lambda: Path("nope.csv"), r"Path|nope\.csv"),
    "bytes": (lambda: b"abc", "bytes"),
    "range": (lambda: range(N), "range"),
    "set": (lambda: {1, 2}, "set"),
    "generator": (lambda: (row for row in TEXTS), r"generator|there is no such file: w0 w0"),
    "generator of lists": (lambda: (row for row in [[1, 2, 3]]), r"generator .*list\(rows\)"),
    "iterator": (lambda: iter([7]), r"list_iterator .*list\(rows\)"),
    "iterable": (Lines, "Lines"),
    "open file": (lambda: open(__file__), "TextIOWrapper .*Give its path"),  # noqa: SIM115
    "text in memory": (lambda: io.StringIO("a,b\n"), "StringIO"),
    "moment": (datetime.datetime.now, "datetime"),
    "class": (lambda: Tensor, "class Tensor"),
    "class of a library": (lambda: pl.LazyFrame, "class LazyFrame"),
    "function": (lambda: cells, "function"),
    "GroupBy": (lambda: FRAME.groupby("title"), "DataFrameGroupBy"),
    "one row": (lambda: X[0], r"ndarray \(4,\)"),
    "one number": (lambda: np.array(3.0), r"ndarray \(\)"),
    "numbers in a Series": (lambda: pd.Series([1.0, 2.0]), r"Series \(2,\)"),
    "dict of one row": (lambda: {"a": 1, "title": "b"}, "dict"),
    "dict of several lengths": (lambda: {"a": [1, 2], "b": [1]}, "dict .*1, 2"),
    "empty dict": (dict, "dict"),
    "list of None": (lambda: [None] * N, r"list of NoneType \(45,\)"),
    "list of numbers": (lambda: list(range(N)), r"list of int \(45,\)"),
    "list of frames": (lambda: [FRAME] * 2, "list of DataFrame"),
    "ragged lists": (lambda: [[1, 2], [3]] * 20, "list of list"),
    "list of sparse rows": (lambda: [sp.csr_array(X[:1])] * N, r"list of csr_array \(45,\)"),
    "stream of no rows": (lambda: pa.chunked_array([[1.5]] * N), r"ChunkedArray \(45,\)"),
}  # fmt: skip
# Of these scikit-learn takes some that are numbers elsewhere.
LAZY = {  # which convert and train read, and nothing else
    "LazyFrame": (lambda: pl.from_pandas(FRAME).lazy(), r"LazyFrame .*Give what its collect\(\)"),
    "dataset": (lambda: dataset.dataset(arrow()), r"InMemoryDataset .*its to_table\(\)"),
    "scanner": (lambda: dataset.dataset(arrow()).scanner(), r"Scanner .*its to_table\(\)"),
}
TYPED = {
    "complex": (lambda: X.astype(complex), "[Cc]omplex|ndarray"),
    "strings": (lambda: X.astype(str), "<U32|strings|ndarray"),
}


ANSWERS = {}


def answers_of(model, plain):
    """Return what a model answers on rows in their plain form, and which share is right."""
    if plain not in ANSWERS:
        ANSWERS[plain] = answer(model, plain)
    return ANSWERS[plain]


def answer(model, plain):
    best, scores = model.predict_topk(plain(), 3)
    right = np.mean(best[:, 0] == LABELS)
    return best.tolist(), scores.tolist(), model.explain(plain(), n=2), right


def estimator(**roles):
    return sm.MACHClassifier(
        epochs=1, n_buckets=3, n_repetitions=1, learning_rate=0.5,
        options={"counts": "off", **PARTS}, n_jobs=1, **roles,
    )  # fmt: skip


@functools.cache
def answers_of_the_estimator(plain, **roles):
    """Return the estimator, fitted on rows in their plain form, and what it answers on these."""
    fitted = estimator(**roles).fit(plain(), LABELS)
    return fitted, [one.tolist() for one in fitted.predict_topk(plain(), 2)]


@functools.cache
def stored(plain, **roles):
    """Return the rows of the store of rows in their plain form."""
    with tempfile.TemporaryDirectory() as folder:
        sm.convert(plain() if roles else (plain(), LABELS), Path(folder) / "store", **roles)
        return rows_by_name(Path(folder) / "store")


@pytest.fixture(scope="module")
def models():
    """A model of each plain form."""
    made = {}
    forms = {"numbers": NUMBERS["array"], "named": NAMED["pandas"], "texts": STRINGS["list"]}
    for name, rows in forms.items():
        made[name] = sm.train(rows(), LABELS, **SHORT).model
    roles = {"text": "title", "number": "n"}
    made["table"] = sm.train(FRAME, "label", **roles, **SHORT).model
    return made


def assert_alike(model, rows, plain, y=LABELS):
    """Every door of a model gives rows the answers of those in their plain form."""
    best, scores, explanations, right = answers_of(model, plain)
    assert [one.tolist() for one in model.predict_topk(rows(), 3)] == [best, scores]
    assert model.explain(rows(), n=2) == explanations
    pairs = [(rows(), y)] if y is not None else [(rows(), LABELS), (rows(),)]
    for pair in pairs:
        found = sm.evaluate(model, *pair)
        assert (found.n_rows, found.accuracy) == (N, right)


def assert_same_model(model, run):
    assert run.model.weights.tobytes() == model.weights.tobytes()
    assert run.model.features.same_as(model.features)
    assert run.model.labels.same_as(model.labels)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize(
    ("form", "kind"), [("numbers", kind) for kind in NUMBERS] + [("named", kind) for kind in NAMED]
)
def test_matrices_of_any_kind_are_one_matrix(form, kind, models, tmp_path):
    table = {"numbers": NUMBERS, "named": NAMED}[form]
    rows, plain = table[kind], table["array" if form == "numbers" else "pandas"]
    assert_alike(models[form], rows, plain)
    assert_same_model(models[form], sm.train(rows(), LABELS, **SHORT))
    sm.convert((rows(), LABELS), tmp_path / "own")
    assert rows_by_name(tmp_path / "own") == stored(plain)
    if "AnnData" in kind:
        sm.convert(rows(), tmp_path / "guessed")
        sm.convert(rows(), tmp_path / "label", label="label")
        assert rows_by_name(tmp_path / "guessed") == stored(plain)
        assert rows_by_name(tmp_path / "label") == stored(plain)
        assert_same_model(models[form], sm.train(rows(), "label", **SHORT))
        assert sm.evaluate(models[form], rows(), "label").n_rows == N
        with pytest.raises(StreammachError, match="AnnData is no matrix"):
            sm.MACHClassifier().fit(rows(), LABELS)
        return
    fitted, wanted = answers_of_the_estimator(plain)
    assert [one.tolist() for one in fitted.predict_topk(rows(), 2)] == wanted
    found = estimator().fit(rows(), LABELS).predict_topk(rows(), 2)
    assert [one.tolist() for one in found] == wanted


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_any_kind_are_one_table(kind, models, tmp_path):
    rows, plain = TABLES[kind], TABLES["pandas"]
    assert_alike(models["table"], rows, plain, None)
    roles = {"text": "title", "number": "n"}
    assert_same_model(models["table"], sm.train(rows(), "label", **roles, **SHORT))
    sm.convert(rows(), tmp_path / "own", label="label", **roles)
    assert rows_by_name(tmp_path / "own") == stored(plain, label="label", **roles)
    if "of dicts" not in kind:  # which are features by name
        with pytest.raises(StreammachError, match="the labels of a table are a column: label"):
            sm.convert((rows(), LABELS), tmp_path / "pair")
    found = estimator(**roles).fit(rows(), LABELS).predict_topk(rows(), 2)
    assert [one.tolist() for one in found] == answers_of_the_estimator(plain, **roles)[1]


@pytest.mark.parametrize("kind", STRINGS)
def test_strings_of_any_kind_are_texts(kind, models):
    rows, plain = STRINGS[kind], STRINGS["list"]
    assert_alike(models["texts"], rows, plain)
    assert_same_model(models["texts"], sm.train(rows(), LABELS, **SHORT))
    found = estimator().fit(rows(), LABELS).predict_topk(rows(), 2)
    assert [one.tolist() for one in found] == answers_of_the_estimator(plain)[1]


def doors(models, folder):
    """What is called with rows by name, each with labels that fit them."""
    fitted, _ = answers_of_the_estimator(NUMBERS["array"])
    yield "convert", lambda rows: sm.convert(rows, folder / "s", label="label")
    yield "convert, pair", lambda rows: sm.convert((rows, LABELS), folder / "s")
    for form in ("numbers", "table"):
        model, y = models[form], LABELS if form == "numbers" else "label"
        yield f"train, {form}", lambda rows, y=y: sm.train(rows, y, **SHORT)
        yield f"predict, {form}", lambda rows, model=model: model.predict(rows)
        yield f"explain, {form}", lambda rows, model=model: model.explain(rows)
        yield f"suspects, {form}", lambda rows, y=y: sm.suspects(rows, y)
        yield f"evaluate, {form}", lambda rows, model=model: sm.evaluate(model, (rows, LABELS))
    yield "validation", lambda rows: sm.train(X, LABELS, validation=(rows, LABELS), **SHORT)
    yield "fit", lambda rows: sm.MACHClassifier(epochs=1).fit(rows, LABELS)
    yield "partial_fit", lambda rows: sm.MACHClassifier(epochs=1).partial_fit(rows, LABELS)
    yield "predict, estimator", fitted.predict


@pytest.mark.parametrize("kind", [*WRONG, *LAZY, *TYPED])
def test_what_has_no_rows_is_named_in_one_line(kind, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, said = (WRONG | LAZY | TYPED)[kind]
    for door, call in doors(models, tmp_path):
        if kind in LAZY and door in ("convert", "train, table"):
            continue
        if kind in LAZY and door == "train, numbers":
            said = f"{said}|bring it with them: y"
        rows = make()
        with contextlib.ExitStack() as stack:
            if hasattr(rows, "close"):
                stack.callback(rows.close)
            with pytest.raises(StreammachError, match=said) as found:
                call(rows)
            assert "\n" not in str(found.value), door
            assert found.value.exit_code in (2, 3), door
    assert not any(tmp_path.iterdir())


LABELLED = ["None", "int", "bytes", "set", "generator", "open file", "class", "function"]


@pytest.mark.parametrize("kind", LABELLED)
def test_what_has_no_labels_is_named_in_one_line(kind, models):
    make, _ = WRONG[kind]
    calls = {
        "train": lambda y: sm.train(X, y, **SHORT),
        "evaluate": lambda y: sm.evaluate(models["numbers"], (X, y)),
        "fit": lambda y: sm.MACHClassifier(epochs=1).fit(X, y),
        "metrics": lambda y: sm.metrics(y, X),
    }
    for door, call in calls.items():
        y = make()
        name = type(y).__name__ if kind != "class" else "class Tensor"
        wanted = "target y is None" if (kind, door) == ("None", "fit") else name
        with contextlib.closing(y) if hasattr(y, "close") else contextlib.nullcontext():
            with pytest.raises(StreammachError, match=wanted) as found:
                call(y)
            assert "\n" not in str(found.value), door


def test_paths_are_files_however_many_and_rows_are_not(tmp_path):
    for name in ("a.vw", "b.vw"):
        (tmp_path / name).write_text("x |f u\ny |f v\n")
    names = [str(tmp_path / name) for name in ("a.vw", "b.vw")]
    for files in (names, tuple(names), iter(names), sorted(tmp_path.glob("*.vw")),
                  tmp_path.glob("*.vw")):  # fmt: skip
        assert sm.convert(files, tmp_path / "s", force=True).n_rows == 4


def test_doors_of_files_name_what_is_no_path(models, tmp_path):
    calls = {
        "predict": lambda rows: sm.predict(models["numbers"], rows, tmp_path / "p"),
        "add": lambda rows: sm.add(tmp_path, rows),
        "fit": lambda rows: sm.Trainer(sm.plan(rows)).fit(rows),
        "start": lambda rows: sm.Start.of(rows, rows),
        "explore": sm.explore, "plan": sm.plan, "model": sm.Model.load, "store": sm.Dataset.open,
    }  # fmt: skip
    for rows in (pl.from_pandas(FRAME).lazy(), FRAME, X, cells(), Tensor):
        name = "class Tensor" if rows is Tensor else type(rows).__name__
        for door, call in calls.items():
            with pytest.raises(StreammachError, match=f"^'{name}' is no .*path") as found:
                call(rows)
            assert "\n" not in str(found.value), door


def test_of_anndata_what_groups_rows_is_the_label(tmp_path):
    own = cells()
    own.obs["batch"] = pd.Categorical(["u", "v", "w"] * 15)
    with pytest.raises(StreammachError, match="the labels may be label, batch"):
        sm.convert(own, tmp_path / "s")
    with pytest.raises(StreammachError, match="obs has no column 'sort', it has: label, batch"):
        sm.convert(own, tmp_path / "s", label="sort")
    path = tmp_path / "cells.h5ad"
    own.write_h5ad(path)
    sm.convert(path, tmp_path / "file", y_path="obs/batch")
    sm.convert(own, tmp_path / "memory", label="batch")
    assert rows_by_name(tmp_path / "memory") == rows_by_name(tmp_path / "file")
    images = X.reshape(N, 2, 2)
    np.save(tmp_path / "X.npy", images)
    np.save(tmp_path / "y.npy", LABELS)
    sm.convert(tmp_path / "X.npy", tmp_path / "npy")
    sm.convert((images, LABELS), tmp_path / "images")
    assert rows_by_name(tmp_path / "images") == rows_by_name(tmp_path / "npy")


def test_rows_in_a_plain_form_stay_as_they_are():
    for rows in (X, FRAME, arrow(), FRAME.to_dict("records"), TEXTS, sp.csr_array(X)):
        again = as_rows(rows)
        assert again is rows or again == rows
