"""One model through every door: the right answer for the right row, whatever rows come from."""

import os
import warnings
from itertools import pairwise

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.cli.main import main
from streammach.inputs.source_options import SourceOptions
from streammach.options.training import TrainingOptions
from streammach.system.errors import DataError, UsageError
from tests.builders import NO_PARTS, rows_by_name
from tests.inputs.test_anndata import made as anndata_folder

N_ROWS, N_COLUMNS, N_CLASSES = 600, 300, 12
EMPTY = [4, 17, N_COLUMNS - 1]  # columns without a value in training
NAMES = [f"gene{j}" if j % 5 else f"g^{j}" for j in range(N_COLUMNS)]
NUMBERS = [str(j) for j in range(N_COLUMNS)]


@pytest.fixture
def matrix(rng):
    """Rows whose class can be told from their columns, and its name."""
    labels = rng.integers(N_CLASSES, size=N_ROWS)
    x = np.where(rng.random((N_ROWS, N_COLUMNS)) < 0.02, 1 + rng.random((N_ROWS, N_COLUMNS)), 0)
    x[np.arange(N_ROWS), labels * 2] += 3  # frequency and place of a column have nothing in common
    x[:, EMPTY] = 0
    return x.astype(np.float32), np.array([f"class {y}" for y in labels])


def trained(folder, source, **options):
    sm.convert(source, folder / "train.zarr", **options)
    plan = sm.plan(folder / "train.zarr", n_buckets=8, n_repetitions=6, counts="on", threads=1)
    trainer = sm.Trainer(plan, TrainingOptions(epochs=3, learning_rate=0.5, transform="raw"))
    return trainer.fit(folder / "train.zarr", folder / "run").model


def rows_to_predict(matrix):
    """The rows in another order, some with values in columns that were empty."""
    x, labels = matrix
    order = np.random.default_rng(1).permutation(N_ROWS)
    x = x[order].copy()
    x[::3, EMPTY] = 5
    return x, labels[order]


def with_zeros(x, rng):
    """A matrix in which some of the zeros are stored, of either sign."""
    rows = sp.csr_array(np.where((x == 0) & (rng.random(x.shape) < 0.02), np.inf, x))
    made = np.isinf(rows.data)
    rows.data[made] = np.where(rng.random(made.sum()) < 0.5, 0.0, -0.0)
    assert rows.nnz > np.count_nonzero(x)
    return rows


def vw(x, labels, names):
    """Lines with the stored values of a matrix; labels with a blank are left out."""
    lines = []
    for label, (a, b) in zip(labels, pairwise(x.indptr), strict=True):
        pairs = zip(x.indices[a:b], x.data[a:b].tolist(), strict=True)
        head = "" if " " in label else f"{label} "
        lines.append(f"{head}| " + " ".join(f"{names[j]}:{v!r}" for j, v in pairs))
    return lines


def hdf5(path, rows, labels, *, sparse):
    with h5py.File(path, "w") as file:
        file["y"] = [label.encode() for label in labels]
        if not sparse:
            file["X"] = rows.toarray()
            return
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", rows.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(rows, name)


def files(folder, x, labels, names):
    """The stored values of rows in every kind of file: name of the door, path, options."""
    folder.mkdir()
    (folder / "rows.vw").write_text("\n".join(vw(x, labels, names)) + "\n")
    yield "text", folder / "rows.vw", {}
    sp.save_npz(folder / "rows.npz", x)
    (folder / "labels.txt").write_text("\n".join(labels) + "\n")
    yield "npz", folder / "rows.npz", {"labels": folder / "labels.txt"}
    np.save(folder / "X.npy", x.toarray())
    np.save(folder / "y.npy", labels)
    yield "npy", folder / "X.npy", {}
    hdf5(folder / "dense.h5", x, labels, sparse=False)
    yield "HDF5", folder / "dense.h5", {}
    hdf5(folder / "sparse.h5", x, labels, sparse=True)
    yield "HDF5, sparse", folder / "sparse.h5", {}
    yield "AnnData", anndata_folder(folder / "a.zarr", x, 3, list(labels), names), {}


def through(predictor, path, k=4, **options):
    """The predictions on a file or store, as labels and scores by row number."""
    found = list(predictor.stream(path, k, options=SourceOptions(**options)))
    assert np.concatenate([part.rows for part in found]).tolist() == list(range(N_ROWS))
    ids, scores = (np.concatenate([getattr(p, name) for p in found]) for name in ("ids", "scores"))
    return predictor.labels(ids), scores


def assert_equal(found, wanted, door):
    assert found[0].tolist() == wanted[0].tolist(), door
    assert found[1].tolist() == wanted[1].tolist(), door


def shuffled(x, names, seed=3):
    order = np.random.default_rng(seed).permutation(len(names))
    return x[:, order], [names[j] for j in order]


@pytest.mark.parametrize("names", [NUMBERS, NAMES])
def test_every_door_gives_every_row_the_same_answer(names, matrix, tmp_path):
    x, labels = matrix
    named = names is NAMES
    if named:  # from AnnData, whose columns have names
        source = anndata_folder(tmp_path / "t.zarr", sp.csr_array(x), 3, list(labels), names)
    else:
        source = tmp_path / "t.npz"
        sp.save_npz(source, sp.csr_matrix(x))
        np.save(tmp_path / "t.y.npy", labels)
    model = trained(tmp_path, source, labels=[] if named else tmp_path / "t.y.npy")
    assert model.columns.n_columns == N_COLUMNS
    assert model.spec.n_features == N_COLUMNS - len(EMPTY)
    x, labels = rows_to_predict(matrix)
    with sm.Predictor(model, threads=2) as predictor:
        wanted = predictor.topk(x, 4)
        first = wanted[0][:, 0] == labels
        assert first.mean() > 0.9  # chance is 0.08
        assert_equal(predictor.topk(sp.csr_array(x), 4), wanted, "CSR")
        assert_equal(predictor.topk(sp.coo_matrix(x).astype(np.float64), 4), wanted, "COO")
        mixed, mixed_names = shuffled(x, names)
        with warnings.catch_warnings():  # neither of the order nor of columns that had no value
            warnings.simplefilter("error")
            assert_equal(predictor.topk(mixed, 4, columns=mixed_names), wanted, "names")
        doors = files(tmp_path / "rows", sp.csr_array(x), labels, names)
        for i, (door, path, options) in enumerate(doors):
            assert_equal(through(predictor, path, **options), wanted, door)
            if door == "text" or (not named and door == "AnnData"):
                continue  # the one has no labels, the other says again that it has more columns
            found = sm.evaluate(predictor, path, options=SourceOptions(**options))
            assert (found.n_rows, found.accuracy) == (N_ROWS, pytest.approx(first.mean())), door
            like = tmp_path / "train.zarr" if i % 2 == named else None  # each door in one case
            store = tmp_path / f"{path.name}.zarr"
            sm.convert(path, store, labels=options.get("labels", []), like=like)
            assert_equal(through(predictor, store), wanted, f"store of {door}, like {like}")
            found = sm.evaluate(predictor, store)
            assert found.accuracy == pytest.approx(first.mean()), f"store of {door}"
        np.save(tmp_path / "rows" / "labels.npy", labels[:3])  # labels are not looked for
        for name in ("X.npy", "dense.h5", "sparse.h5"):
            path = tmp_path / "rows" / name
            if path.suffix == ".h5":
                with h5py.File(path, "a") as file:
                    file["how"], file["who"] = file["y"][:], file["y"][:]
                    del file["y"]
            assert_equal(through(predictor, path), wanted, f"{name} without clear labels")


def test_values_of_0_that_a_source_writes_are_none(matrix, tmp_path, rng):
    x, labels = matrix[0], np.char.replace(matrix[1], " ", "_")
    rows, plain = with_zeros(x, rng), sp.csr_array(x)
    shape = {"n_buckets": 8, "n_repetitions": 4, "epochs": 1, "counts": "on", "threads": 1}
    models = [sm.train(some, labels, transform="binary", **shape).model for some in (plain, rows)]
    assert models[0].store == models[1].store  # digests of all that rows are
    with sm.Predictor(models[1]) as predictor:
        wanted = predictor.topk(x, 4)
        assert_equal(predictor.topk(rows, 4), wanted, "CSR")
        few = [predictor.topk(rows[[i]], 4) for i in range(30)]
        assert_equal(
            [np.concatenate(own) for own in zip(*few, strict=True)],
            [part[:30] for part in wanted],
            "single rows",
        )
        dicts = [
            dict(zip(rows.indices[a:b].astype(str), rows.data[a:b], strict=True))
            for a, b in pairwise(rows.indptr)
        ]
        assert_equal(predictor.topk(dicts, 4), wanted, "dicts")
        stores = []
        for door, path, options in files(tmp_path / "rows", rows, labels, NUMBERS):
            assert_equal(through(predictor, path, **options), wanted, door)
            done = sm.convert(path, tmp_path / "out.zarr", **options, force=True)
            stores.append((done.n_features, done.nnz, rows_by_name(tmp_path / "out.zarr")))
            assert stores[-1] == stores[0], door
    assert stores[0][1] == np.count_nonzero(x)


TRUTH = {"values": bool, "lower": lambda v: str(v).lower(), "texts": str}


@pytest.mark.parametrize("table", ["", "array", "column"])
@pytest.mark.parametrize("spelled", TRUTH)
def test_a_truth_value_is_one_label_however_it_is_spelled(spelled, table, tmp_path, rng):
    pandas = pytest.importorskip("pandas")
    truth = rng.random(300) < 0.5
    x = np.stack([truth, ~truth, rng.random(300)], axis=1).astype(np.float32)
    words = np.array([f"{'yes' if v else 'no'} w{i % 9}" for i, v in enumerate(truth.tolist())])
    options = {"n_buckets": 2, "n_repetitions": 2, "epochs": 2, "counts": "off", "threads": 1,
               "learning_rate": 0.5, "transform": "raw", "loss": "independent",
               **NO_PARTS}  # fmt: skip

    def rows_of(spelling):
        labels = np.array([TRUTH[spelling](v) for v in truth.tolist()])
        if table == "column":
            return pandas.DataFrame({"t": words, "y": labels}), "y"
        return (pandas.DataFrame({"t": words}) if table else x), labels

    weights = set()
    for other, name in zip(TRUTH, ("true", "True", True), strict=True):
        more = {"validation": rows_of(other), "class_weight": {name: 2.0}}
        run = sm.train(*rows_of(spelled), **more, **options)
        assert run.result.history[-1].accuracy > 0.9, other
        weights.add(run.model.weights.tobytes())
        assert sm.evaluate(run.model, *rows_of(other)).accuracy > 0.9, other
        if not table:
            np.save(tmp_path / "X.npy", x)
            np.save(tmp_path / "y.npy", rows_of(other)[1])
            sm.convert(tmp_path / "X.npy", tmp_path / "x.zarr", force=True)
            for path in ("X.npy", "x.zarr"):
                assert sm.evaluate(run.model, tmp_path / path).accuracy > 0.9, (other, path)
    assert len(weights) == 1


def test_a_matrix_of_another_width_is_refused(matrix, tmp_path):
    x, labels = matrix
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "y.npy", labels)
    model = trained(tmp_path, tmp_path / "X.npy")
    np.save(tmp_path / "wide.npy", np.hstack([x, x]))
    with sm.Predictor(model) as predictor:
        for wrong in (x[:, :-1], np.hstack([x, x])):
            said = f"has {wrong.shape[1]} columns, 300 were trained on.*columns=NAMES"
            with pytest.raises(DataError, match=said):
                predictor.topk(wrong)
        with pytest.raises(DataError, match=r"600 columns, 300 were trained on: .*wide.npy"):
            list(predictor.stream(tmp_path / "wide.npy"))
        with pytest.raises(DataError, match="no column has the name of a feature"):
            predictor.topk(x, columns=[f"other{j}" for j in range(N_COLUMNS)])
        with pytest.raises(DataError, match="299 names for 300 columns"):
            predictor.topk(x, columns=NUMBERS[1:])
        with pytest.raises(DataError, match="two columns have the name of one feature"):
            predictor.topk(x, columns=["0", *NUMBERS[:-1]])
        with pytest.raises(UsageError, match="dicts name their values: columns"):
            sm.train([{"0": 1.0}, {"1": 1.0}], ["a", "b"], columns=NUMBERS)


def test_named_columns_follow_the_rules_of_recipes():
    pandas = pytest.importorskip("pandas")
    x = np.eye(4)[np.arange(120) % 4][:, :3] + np.random.default_rng(0).random((120, 3)) / 9
    frame = pandas.DataFrame(x, columns=list("abc")).assign(never=0.0)
    for names in ([0, 1, 2, 3], [4, 1, 2, 9]):  # numbers are names, too
        numbered = frame.set_axis(names, axis=1)
        model = sm.train(numbered, np.arange(120) % 4, epochs=2, counts="off").model
        again = model.predict(numbered[names[::-1]])
        assert again.tolist() == model.predict(numbered).tolist()
    model = sm.train(frame, np.arange(120) % 4, epochs=2, counts="off").model
    wanted = model.predict(frame[:4])
    changes = {
        "in another order": (frame[["never", "c", "b", "a"]], None),
        "without a value": (frame[list("abc")], None),
        "missing": (frame[["a", "b", "never"]], "column c not there, which counts as 0"),
        "renamed": (frame.rename(columns={"c": "C"}), "column c not there"),
        "more": (frame.assign(d=1.0, e=2.0), "columns never, d, e with a name that no feature has"),
        "renamed all": (frame.rename(columns=str.upper), DataError),
        "twice": (pandas.concat([frame, frame[["a"]]], axis=1), DataError),
        "of dicts": ([{"A": 1.0}, {"B": 1.0}], "the model knows no feature of these rows"),
    }
    for change, (rows, said) in changes.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if said is None:
                assert np.array_equal(model.predict(rows[:4]), wanted), change
            elif said is DataError:
                with pytest.raises(DataError):
                    model.predict(rows[:4])
            else:
                with pytest.raises(UserWarning, match=said):
                    model.predict(rows[:4])
    assert model.predict([{"a": 1.0, "b": 0.1, "c": 0.1}])[0] == wanted[0]  # a name may miss
    assert len(model.predict([{"a": 1.0}])) == 1


def test_a_matrix_that_is_given_stays_as_it_is(matrix, tmp_path):
    x, labels = matrix
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "y.npy", labels)
    model = trained(tmp_path, tmp_path / "X.npy")
    indices, data = np.array([3, 1, 1, 0], np.int32), np.array([1, 2, 3, 4], np.float32)
    rows = sp.csr_array((data.copy(), indices.copy(), np.array([0, 4])), (1, N_COLUMNS))
    with sm.Predictor(model) as predictor:
        summed = predictor.topk(np.array([[4, 5, 0, 1, *[0] * 296]]))
        assert_equal(predictor.topk(rows), summed, "repeated and unsorted")
    assert (rows.indices.tolist(), rows.data.tolist()) == (indices.tolist(), data.tolist())


@pytest.fixture
def job(tiny, monkeypatch):
    tiny.store(n_rows=300, n_classes=12)
    monkeypatch.chdir(tiny.folder)
    model = ["--buckets", "8", "--repetitions", "4", "--epochs", "1", "--learning-rate", "0.5"]
    train = ["train", "train.zarr", "--out", "run", *model, "--transform", "binary"]
    assert main([*train, "--progress", "none"]) == 0
    tiny.text("new.vw", tiny.lines(20, 12))
    return tiny.folder


def test_a_predictor_works_in_a_forked_child(job):
    with sm.Predictor(sm.Model.load("run"), threads=2) as predictor:
        wanted = [part.ids.tolist() for part in predictor.stream("new.vw", 3)]
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            same = [part.ids.tolist() for part in predictor.stream("new.vw", 3)] == wanted
            os.write(writer, b"same" if same else b"other")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 9) == b"same"
    with pytest.raises(UsageError, match="it was closed"):
        list(predictor.stream("new.vw", 3))
