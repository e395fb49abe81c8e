"""Rows of importance 0 change nothing, and those of little importance little, by every door."""

import contextlib
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import streammach as sm
from streammach.cli.main import main
from streammach.conversion.memory_labels import to_labels
from streammach.conversion.memory_rows import MemoryRows
from streammach.frontends.sklearn.classifier import MACHClassifier
from streammach.inputs.tables.memory_objects import to_matrix
from streammach.options.config import Batching
from streammach.options.training import TrainingOptions
from streammach.store.holdout import hold_out, masked_blocks, masked_rows
from streammach.system.errors import DataError, StoreError, UsageError
from tests.builders import listed_lines

HASHED = {"n_buckets": 4, "n_repetitions": 2, "model_size": "full"}
FEW = {"epochs": 1, "transform": "raw", "learning_rate": 0.05, "memory": "900MB", "threads": 1}
ONE_LABEL = {"counts": "off", "closed_form": "off", "whitening": "off", "loss": "independent"}


def held_out(data, n):
    room = Batching(batch_size=32, batch_nnz=4096, held_out_rows=n, held_out_nnz=10**6)
    return hold_out(data, room, TrainingOptions())


PARTS = {
    "hashed": {**HASHED, **ONE_LABEL},
    "counts": {"n_repetitions": 0, "counts": "on", "model_size": "full"},
    "both": {**HASHED, "counts": "on"},
    "closed form": {"n_buckets": 9, "n_repetitions": 1, "closed_form": "on"},
}


def rows_of(rng, n=160):
    """Rows of nine classes, and a label that rows of importance 0 alone have."""
    y = rng.integers(0, 9, n)
    x = (rng.random((n, 80)) < 0.04) * rng.random((n, 80))
    x[np.arange(n), y] += 3
    w = (rng.random(n) < 0.6).astype(np.float64)
    w[:2] = 1
    x[w == 0, 75:] = 7
    return x.astype(np.float32), np.where(w > 0, y, 99), w


def as_sets(y):
    sets = np.zeros((len(y), 12), np.int64)
    sets[np.arange(len(y)), y % 12] = 1
    sets[np.arange(len(y)), (y + 1) % 11] = 1
    return sets


def frame_of(x, y):
    words = [" ".join(f"w{j}" for j in np.flatnonzero(row)) for row in x]
    return pd.DataFrame({"text": words, "c": np.where(x[:, 0] > 0.5, "a", "b"), "y": y})


def model_bytes(model, folder):
    model.save(folder)
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {file.name: file.read_bytes() for file in files}


def with_weights(to_rows, to_labels=lambda y: y):
    """Rows in memory: their weights as an array."""

    def train(given, folder, options):
        x, y, w = given
        rows = to_rows(x, y)
        # float32 has no number between 0 and 1e-45
        weights = {} if w is None else {"sample_weight": np.maximum(w, 1e-300)}
        with sm.train(rows, to_labels(y), **weights, **FEW, **options) as run:
            return model_bytes(run.model, folder)

    return train


def by_column(given, folder, options):
    """A table whose columns are labels and weights."""
    x, y, w = given
    frame = frame_of(x, y)
    if w is not None:
        frame["w"] = w
    said = {} if w is None else {"weight": "w"}
    said |= {"text": ["text"], "category": ["c"]}
    with sm.train(frame, "y", **said, **FEW, **options) as run:
        found = model_bytes(run.model, folder)
    document = json.loads(found.pop("model.json"))
    document["recipe"].pop("weight", None)
    return found | {"document": {**document, "store": "", "tensors": ""}}


def by_estimator(given, folder, options):
    """Numbers, which are merged where rows are the same."""
    x, y, w = given
    shape = {name: options[name] for name in ("n_buckets", "n_repetitions")}
    made = MACHClassifier(epochs=2, learning_rate=0.05, memory="900MB", **shape).fit(
        x, y, sample_weight=w
    )
    return model_bytes(made.model_, folder) | {"classes": made.classes_.tolist()}


def by_pieces(given, folder, options):
    x, y, w = given
    shape = {name: options[name] for name in ("n_buckets", "n_repetitions")}
    made = MACHClassifier(memory="900MB", **shape).partial_fit(x, y, sample_weight=w)
    return model_bytes(made.model_, folder) | {"classes": made.classes_.tolist()}


def by_command(given, folder, options):
    """Text with blank lines and tags, a store, a training."""
    x, y, w = given
    text = folder.with_suffix(".vw")
    text.write_text("".join(
        f"{y[i]}{' 0' if w is not None and not w[i] else ''} 't{i % 7} |x "
        + " ".join(f"w{j}:{x[i, j]:.2f}" for j in np.flatnonzero(x[i])) + "\n"
        for i in range(len(x))
    ) + "\n\n")  # fmt: skip
    made = sm.convert(text, folder.with_suffix(".zarr"))
    assert made.weightless_rows == (0 if w is None else int((w == 0).sum()))
    words = {"n_buckets": "--buckets", "n_repetitions": "--repetitions"}
    more = [part for name, value in {**FEW, **options}.items() for part in
            (words.get(name, "--" + name.replace("_", "-")), str(value))]  # fmt: skip
    assert main(["train", made.path, "--out", str(folder), "--progress", "none", *more]) == 0
    found = {f.name: f.read_bytes() for f in sorted((folder / "model").iterdir())}
    document = json.loads(found.pop("model.json"))
    return found | {"document": {**document, "store": "", "tensors": ""}}


KINDS = {
    "sparse": (with_weights(lambda x, y: scipy.sparse.csr_array(x)), "hashed"),
    "sparse, both": (with_weights(lambda x, y: scipy.sparse.csr_array(x)), "both"),
    "sparse, counts": (with_weights(lambda x, y: scipy.sparse.csr_array(x)), "counts"),
    "dense": (with_weights(lambda x, y: x), "hashed"),
    "dense, closed form": (with_weights(lambda x, y: x + np.float32(0.1)), "closed form"),
    "dense, sets": (with_weights(lambda x, y: x, as_sets), "hashed"),
    "sparse, sets, counts": (
        with_weights(lambda x, y: scipy.sparse.csr_array(x), as_sets), "counts"
    ),
    "strings, counts": (with_weights(lambda x, y: frame_of(x, y).text.tolist(), list), "counts"),
    "DataFrame, counts": (
        with_weights(lambda x, y: frame_of(x, y)[["text", "c"]], pd.Series), "counts"
    ),
    "table by columns": (by_column, "counts"),
    "estimator": (by_estimator, "hashed"),
    "partial_fit": (by_pieces, "hashed"),
    "command": (by_command, "counts"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_importance_0_change_no_byte(kind, tmp_path, rng):
    train, parts = KINDS[kind]
    x, y, w = rows_of(rng)
    kept = w > 0
    some = train((x, y, w), tmp_path / "some", PARTS[parts])
    without = train((x[kept], y[kept], None), tmp_path / "without", PARTS[parts])
    assert some.keys() == without.keys()
    for name, content in some.items():
        assert content == without[name], name


def right_and_wrong(w, n=200):
    """Rows whose label their features tell, and of each three with another label that count w."""
    j = np.arange(n)
    x = np.zeros((n, 49), np.float32)
    x[j, j % 40] = x[j, 40 + j % 9] = 1
    labels = np.concatenate([j % 40, *3 * [(j + 1) % 40]])
    order = np.random.default_rng(1).permutation(4 * n)
    weights = np.repeat(np.float32([1, w, w, w]), n)[order]
    return np.tile(x, (4, 1))[order], labels[order], weights, (x, j % 40)


@pytest.mark.parametrize("w", [0, 0.01])
@pytest.mark.parametrize("form", ["counts", "hashed", "dense", "closed form"])
def test_wrong_rows_of_little_importance_leave_the_right_answers(form, w):
    x, y, weights, (right, labels) = right_and_wrong(w)
    options = {"counts": {"counts": "on"}, "hashed": {"counts": "off"}, "dense": {},
               "closed form": {"closed_form": "on"}}[form]  # fmt: skip
    if form in ("dense", "closed form"):
        x, right = x + np.float32(0.01), right + np.float32(0.01)
    else:
        x, right = scipy.sparse.csr_array(x), scipy.sparse.csr_array(right)
    shape = {"n_repetitions": 0} if form == "counts" else {"n_buckets": 40, "n_repetitions": 1}
    with sm.train(x, y, sample_weight=weights, epochs=8, transform="raw", memory="900MB",
                  learning_rate=0.5 if form in ("counts", "hashed") else 0.1, **shape,
                  **options) as run:  # fmt: skip
        assert (run.model.predict(right) == labels).mean() == 1.0
        assert (run.model.counts is not None) == (form == "counts")
        assert run.result.best.accuracy > 0.97


def test_weights_of_classes_keep_counts_and_move_their_answers(rng):
    """Rows that two classes share go to the one that weighs more."""
    y = np.arange(1200) % 4
    x = np.zeros((1200, 60), np.float32)
    x[np.arange(1200), y // 2] = x[np.arange(1200), rng.integers(2, 60, 1200)] = 1
    x = scipy.sparse.csr_array(x)
    for heavy in (0, 1):
        with sm.train(x, y, class_weight={heavy: 20.0}, **FEW, **PARTS["counts"]) as run:
            assert run.model.counts is not None
            assert run.plan.config.part("counts") is not None
            assert (run.model.predict(x[np.isin(y, (0, 1))]) == heavy).mean() > 0.9


@pytest.mark.parametrize("unit", [1e-6, 0.5, 1.0, 3.0])
def test_importances_may_be_shares_of_one(unit, rng):
    """Where all are small, one of them stands for a row; held-out rows count as they tell."""
    x, y, _ = rows_of(rng)
    weights = np.full(len(y), unit, np.float32)
    weights[0] = 1e-12  # what hardly counts changes no unit
    data = MemoryRows(to_matrix(x), to_labels(y), None if unit == 1 else weights).to_dataset()
    held = held_out(data, 40)
    expected = 1.0 if unit == 1 else min(unit, 1.0)
    assert data.counting.unit == pytest.approx(expected)
    found = [rows.weights for rows, _ in masked_blocks(data, held.mask)]
    assert np.median(np.concatenate(found)) == pytest.approx(unit / expected)
    assert data.counting.labels.sum() == pytest.approx(len(y) * unit / expected, rel=0.01)
    assert held.rows.weights.sum() == pytest.approx(held.rows.n_alike)
    assert sum(r.n_rows for r in masked_rows(data, held.mask)) == 40
    assert held.rows.n_alike == pytest.approx(40, abs=1)


@pytest.mark.parametrize("w", ["1e30", "1.1e9", "-1", "nan"])
def test_what_is_too_large_is_refused_where_rows_come_in(w, tmp_path):
    text = tmp_path / "a.vw"
    text.write_text(f"a {w} |x b\nb |x c\n")
    (tmp_path / "a.csv").write_text(f"y,w,t\na,{w},b\nb,1,c\n")
    x, y = np.eye(2, dtype=np.float32), ["a", "b"]
    for made in (
        lambda: sm.convert(text, tmp_path / "a.zarr"),
        lambda: sm.convert(tmp_path / "a.csv", tmp_path / "a.zarr", label="y", weight="w"),
        lambda: sm.train(x, y, sample_weight=[float(w), 1]),
        lambda: sm.train(x, y, class_weight={"a": float(w)}),
        lambda: MACHClassifier().fit(x, y, sample_weight=[float(w), 1]),
        lambda: MACHClassifier(class_weight={"a": float(w), "b": 1}).fit(x, y),
    ):
        if w == "nan" and not (tmp_path / "a.zarr").exists():
            with contextlib.suppress(DataError):  # nothing in a cell is 1
                made()
            continue
        with pytest.raises((DataError, ValueError)) as raised:
            made()
        assert "\n" not in str(raised.value)
        assert "damaged" not in str(raised.value)


def test_the_largest_importances_verify_and_train(tmp_path, rng):
    text = tmp_path / "a.vw"
    text.write_text("".join(f"c{i % 5} 1e9 |x f{i % 5} g{i % 3}\n" for i in range(200)))
    store = sm.convert(text, tmp_path / "a.zarr").path
    with sm.Dataset.open(store) as data:
        assert data.verify() == []
    assert main(["train", store, "--out", str(tmp_path / "run"), "--epochs", "2", "--progress",
                 "none", "--buckets", "4", "--repetitions", "2"]) == 0  # fmt: skip
    assert sm.evaluate(tmp_path / "run", store).accuracy == 1.0


def test_a_store_with_larger_ones_is_refused_by_both(tmp_path):
    """Earlier releases let them in."""
    rows = sm.convert(_text(tmp_path, "a 2 |x b\nb |x c\n"), tmp_path / "a.zarr")
    with sm.Dataset.open(rows.path) as data:
        block = data.rows(0, 2)
        data._arrays["weight"].read = lambda start, stop, out=None, look=None: _read(
            np.float32([1e30, 1])[start:stop], out, look
        )
        assert block.importance.max() == 2
        with pytest.raises(StoreError, match="importances"):
            data.rows(0, 2)


def _read(found, out, look):
    if out is not None:
        out[:] = found
    if look is not None:
        look(found)
    return found


def _text(folder, content):
    path = folder / "rows.vw"
    path.write_text(content)
    return path


def test_all_rows_of_importance_0_are_one_line(tmp_path):
    with pytest.raises(DataError, match="all rows have importance 0"):
        sm.convert(_text(tmp_path, "a 0 |x b\nb 0 |x c\n"), tmp_path / "a.zarr")
    with pytest.raises(DataError, match="all weights of rows are 0"):
        sm.train(np.eye(3), [1, 2, 3], sample_weight=0)
    frame = pd.DataFrame({"t": ["a b", "c d"], "w": [1.0, 0.0]})
    with pytest.raises(UsageError, match="sample_weight"):
        sm.train(frame, [1, 2], weight="w")


def test_predictions_answer_rows_of_importance_0_and_evaluations_leave_them_out(tmp_path, rng):
    lines = listed_lines(rng, 60, 5)
    train = [f"c{i % 5} |x p{i % 5}" for i in range(60)]
    assert lines
    store = sm.convert(_text(tmp_path, "\n".join(train) + "\n"), tmp_path / "a.zarr").path
    main(["train", store, "--out", str(tmp_path / "run"), "--epochs", "1", "--progress", "none",
          "--buckets", "4", "--repetitions", "2", "--counts", "off"])  # fmt: skip
    test = tmp_path / "test.vw"
    test.write_text("c1 |x p1\nc2 0 |x p1\nc3 5 |x p3\n")
    found = sm.evaluate(tmp_path / "run", test, estimators=True)
    assert found.n_rows == 2
    by_store = sm.evaluate(tmp_path / "run", sm.convert(test, tmp_path / "t.zarr").path,
                           estimators=True)  # fmt: skip
    assert by_store.n_rows == 2
    assert (by_store.accuracy, by_store.estimators) == (found.accuracy, found.estimators)
    main(["predict", str(tmp_path / "run"), str(test), "--out", str(tmp_path / "p.tsv")])
    assert len((tmp_path / "p.tsv").read_text().splitlines()) >= 3
