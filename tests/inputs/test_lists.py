"""Rows with lists of labels: from every kind of source into a store, and batch by batch."""

import itertools
import zipfile

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.conversion.explore import explore
from streammach.conversion.request import difference_from
from streammach.inputs.source_options import SourceOptions
from streammach.store.dataset import Dataset
from streammach.store.reader import N_SLOTS, Reader
from streammach.store.root import OF_LISTS
from streammach.system.errors import DataError, StoreError, UsageError
from tests.conversion.test_convert import rows_by_name

SETTINGS = {"seed": 3, "batch_size": 32, "batch_nnz": 300, "batch_labels": 40, "pool_blocks": 2,
            "transform": "raw", "by_feature": False}  # fmt: skip
N, D, K = 500, 30, 20


def lists_by_name(path):
    """All rows of a store by their number in the source: labels, weights of labels, features."""
    with Dataset.open(path) as data:
        block, names = data.rows(0, data.n_rows), data.labels
        numbers, _ = data.origins(0, data.n_rows)
        rows = {}
        for i, number in enumerate(numbers.tolist()):
            lists = block.lists
            some = slice(lists.starts[i], lists.starts[i + 1])
            weights = np.ones(lists.n_labels) if lists.weights is None else lists.weights
            labels = {
                str(names.label(c)): float(w)
                for c, w in zip(lists.classes[some].tolist(), weights[some], strict=True)
            }
            part = slice(block.indptr[i], block.indptr[i + 1])
            pairs = zip(block.features[part], block.values[part], strict=True)
            features = {data.features.raw(f).decode(): float(v) for f, v in pairs}
            rows[number] = (labels, features)
            assert block.classes[i] == (lists.classes[some][0] if labels else -1)
        return rows


@pytest.fixture
def drawn(rng):
    """Rows as a matrix and as lists of labels, some empty."""
    x = np.where(rng.random((N, D)) < 0.2, rng.integers(1, 9, (N, D)), 0)
    x[:, 0] = 1 + np.arange(N)  # tells the rows
    labels = [
        sorted(rng.choice(K, int(rng.integers(0, 5)), replace=False).tolist()) for _ in range(N)
    ]
    return x, labels


def texts(x, labels, form, rng):
    lines = [f"{N} {D} {K}"] if form == "xmc" else []
    for row, own in zip(x, labels, strict=True):
        said = [*own, *own[:1]] if len(own) > 2 else own
        label = ",".join(map(str, rng.permutation(said).astype(int)))
        features = " ".join(f"{j}:{v}" for j, v in enumerate(row) if v)
        lines.append(f"{label} |{' ' + features}" if form == "vw" else f"{label} {features}")
    return lines


def wanted(x, labels):
    """What :func:`lists_by_name` returns for them."""
    return {
        i: ({str(c): 1.0 for c in own}, {str(j): float(v) for j, v in enumerate(row) if v})
        for i, (row, own) in enumerate(zip(x, labels, strict=True))
    }


@pytest.mark.parametrize("form", ["xmc", "svmlight", "vw"])
def test_lists_of_text_survive(form, drawn, tiny, rng):
    x, labels = drawn
    path = tiny.text("rows.txt", texts(x, labels, form, rng))
    mode = "auto" if form == "xmc" else "on"  # rows without labels are usual in XMC text alone
    done = convert(path, tiny.folder / "out", format=form, multilabel=mode)
    assert lists_by_name(tiny.folder / "out") == wanted(x, labels)
    with Dataset.open(tiny.folder / "out") as data:
        assert data.verify(deep=True) == []
        assert data.listed
        assert data.n_labels == sum(map(len, labels)) == data.label_counts.sum()
        assert data.facts.max_row_labels == max(map(len, labels))
        pairs = {(j, c) for row, own in zip(x, labels, strict=True)
                 for j in np.flatnonzero(row).tolist() for c in own}  # fmt: skip
        assert data.root.pairs == pytest.approx(len(pairs), rel=0.05)
    assert done.n_classes == len({c for own in labels for c in own})


@pytest.mark.parametrize("form", ["svmlight", "vw"])
def test_labels_between_commas_are_several_by_themselves(form, drawn, tiny, rng):
    x, labels = drawn
    labels = [own or [0] for own in labels]
    path = tiny.text("rows.txt", texts(x, labels, form, rng))
    convert(path, tiny.folder / "out", format=form)
    assert lists_by_name(tiny.folder / "out") == wanted(x, labels)


@pytest.mark.parametrize("form", ["xmc", "svmlight", "vw"])
def test_a_row_may_have_thousands_of_labels(form, tiny):
    own = [[1, 2], list(range(5000)), [3]]
    x = np.eye(3, 4, dtype=int)
    lines = texts(x, own, form, np.random.default_rng(0))
    lines[:1] = ["3 4 5000"] if form == "xmc" else lines[:1]
    path = tiny.text("rows.txt", lines)
    assert explore(path, format=form).rows == 3
    convert(path, tiny.folder / "out", format=form)
    assert lists_by_name(tiny.folder / "out") == wanted(x, own)


def test_a_store_is_the_same_with_little_memory_and_any_threads(drawn, tiny, rng, monkeypatch):
    x, labels = drawn
    path = tiny.text("rows.txt", texts(x, labels, "xmc", rng))
    first = convert(path, tiny.folder / "a", threads=1).digest
    monkeypatch.setattr("streammach.conversion.intake.SMALL_ROOM", 16 << 10)
    monkeypatch.setattr("streammach.conversion.intake.ROOM_FOR_BYTE", 0)
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 1 << 9)
    found = convert(path, tiny.folder / "b", threads=2)
    assert found.digest == first


def test_rows_of_one_label_before_those_of_several_are_lists_too(tiny, monkeypatch):
    monkeypatch.setattr("streammach.conversion.intake.SMALL_ROOM", 16 << 10)
    monkeypatch.setattr("streammach.conversion.intake.ROOM_FOR_BYTE", 0)
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 1 << 9)
    lines = [f"{i % 7} {i % 5}:1" for i in range(400)] + ["1,2 3:1"]
    convert(tiny.text("r.svm", lines), tiny.folder / "out")
    rows = lists_by_name(tiny.folder / "out")
    assert len(rows) == 401
    assert all(rows[i][0] == {str(i % 7): 1.0} for i in range(400))
    assert rows[400][0] == {"1": 1.0, "2": 1.0}


def test_a_store_of_single_labels_stays_what_it_is(tiny):
    lines = ["3 4 5", "1 0:1", "0 1:2", "4 3:1"]
    path = tiny.text("a.txt", lines)
    one = convert(path, tiny.folder / "a").digest
    assert convert(path, tiny.folder / "b", multilabel="off").digest == one
    root = zarr.open_group(tiny.folder / "a", mode="r").attrs["streammach"]
    assert not set(OF_LISTS) & set(root)
    convert(path, tiny.folder / "c", multilabel="on")
    assert Dataset.open(tiny.folder / "c").root.listed
    lists = [(label[0], *row) for label, *row in rows_by_name(tiny.folder / "c")]
    assert rows_by_name(tiny.folder / "a") == sorted(lists, key=str)


def test_other_programs_open_the_store(drawn, tiny, rng):
    anndata = pytest.importorskip("anndata")
    x, labels = drawn
    convert(tiny.text("rows.txt", texts(x, labels, "xmc", rng)), tiny.folder / "out")
    store = zarr.open_group(tiny.folder / "out", mode="r")
    y = anndata.io.read_elem(store["y"])
    with Dataset.open(tiny.folder / "out") as data:
        numbers, _ = data.origins(0, N)
        names = [int(data.labels.label(c)) for c in range(data.n_classes)]
    assert y.shape == (N, len(names))
    for i, number in enumerate(numbers.tolist()):
        assert sorted(names[c] for c in y[i].indices) == labels[number]


@pytest.mark.filterwarnings("ignore:Writing zarr v2", "ignore:.*infer_string")  # anndata
@pytest.mark.parametrize("kind", ["npz", "npy", "hdf5", "anndata"])
@pytest.mark.parametrize("weighted", [False, True])
def test_lists_of_a_label_matrix_survive(kind, weighted, drawn, tiny, rng):
    x, labels = drawn
    y = np.zeros((N, K), np.float32)
    for i, own in enumerate(labels):
        y[i, own] = rng.integers(1, 5, len(own)) / 4 if weighted else 1
    folder, x_csr, y_csr = tiny.folder, sp.csr_matrix(x.astype(np.float32)), sp.csr_matrix(y)
    more = {}
    if kind == "npz":
        sp.save_npz(folder / "x.npz", x_csr)
        sp.save_npz(folder / "y.npz", y_csr)
        source, more = folder / "x.npz", {"labels": folder / "y.npz"}
    elif kind == "npy":
        source = folder / "X.npy"
        np.save(source, x.astype(np.float32))
        np.save(folder / "y.npy", y)
    elif kind == "hdf5":
        source = folder / "x.h5"
        with h5py.File(source, "w") as file:
            for name, matrix in (("X", x_csr), ("y", y_csr)):
                for part in ("data", "indices", "indptr"):
                    file[f"{name}/{part}"] = getattr(matrix, part)
                file[name].attrs["shape"] = matrix.shape
    else:
        anndata = pytest.importorskip("anndata")
        source, more = folder / "x.zarr", {"y_path": "obsm/labels"}
        anndata.AnnData(X=x_csr, obsm={"labels": y_csr}).write_zarr(source)
    convert(source, folder / "out", **more)
    found = lists_by_name(folder / "out")
    assert {i: set(own) for i, (own, _) in found.items()} == {
        i: {str(c) for c in own} for i, own in enumerate(labels)
    }
    assert all(found[i][0][str(c)] == y[i, c] for i, own in enumerate(labels) for c in own)
    assert {i: len(features) for i, (_, features) in found.items()} == {
        i: int((x[i] != 0).sum()) for i in range(N)
    }


def test_one_hot_rows_have_one_label_each(tiny, rng):
    x, y = rng.random((20, 4)).astype(np.float32), rng.integers(0, 3, 20)
    np.save(tiny.folder / "X.npy", x)
    np.save(tiny.folder / "y.npy", np.eye(3)[y])
    one = convert(tiny.folder / "X.npy", tiny.folder / "a")
    np.save(tiny.folder / "y.npy", y)
    two = convert(tiny.folder / "X.npy", tiny.folder / "b")
    assert rows_by_name(tiny.folder / "a") == rows_by_name(tiny.folder / "b")
    assert not Dataset.open(tiny.folder / "a").listed
    assert one.n_classes == two.n_classes


def test_ids_of_another_store_are_kept_and_unknown_labels_follow(tiny):
    convert(tiny.text("a.svm", ["1,2 1:1", "2 2:1"]), tiny.folder / "train")
    done = convert(
        tiny.text("b.svm", ["3,2 1:1", "7 2:1"]), tiny.folder / "test", like=tiny.folder / "train"
    )
    assert done.unseen_label_rows == 2
    found = lists_by_name(tiny.folder / "test")
    assert [found[i][0] for i in range(2)] == [{"2": 1.0, "3": 1.0}, {"7": 1.0}]
    with Dataset.open(tiny.folder / "test") as data:
        assert [data.labels.label(c) for c in range(2)] == [2, 1]
    convert(tiny.text("c.svm", ["1 1:1", "2 2:1"]), tiny.folder / "single")
    with pytest.raises(DataError, match="several labels"):
        convert(tiny.folder / "b.svm", tiny.folder / "x", like=tiny.folder / "single")


def test_a_store_with_the_ids_of_another_is_known_again(tiny):
    source = tiny.text("b.svm", ["1,2 1:1", "2 2:1"])
    convert(tiny.text("a.svm", ["1,2 1:1", "2 2:1"]), tiny.folder / "train")
    convert(source, tiny.folder / "test", like=tiny.folder / "train")
    differs = difference_from(
        tiny.folder / "test",
        [source],
        [SourceOptions()],
        like=tiny.folder / "train",
        on_bad_row="error",
        seed=0,
    )
    assert differs is None


def test_a_matrix_of_labels_that_promises_more_than_it_holds_is_refused(tiny, rng):
    np.save(tiny.folder / "X.npy", rng.random((4, 3)).astype(np.float32))
    header = (
        b"\x93NUMPY\x01\x00v\x00{'descr': '<i4', 'fortran_order': False, 'shape': (1 << 40,), }"
    )
    header = header.replace(b"1 << 40", b"1099511627776").ljust(127) + b"\n"
    sp.save_npz(tiny.folder / "y.npz", sp.eye(4, format="csr"))
    with zipfile.ZipFile(tiny.folder / "y.npz") as good:
        members = {name: good.read(name) for name in good.namelist()}
    with zipfile.ZipFile(tiny.folder / "bad.npz", "w") as bad:
        for name, data in (members | {"indices.npy": header}).items():
            bad.writestr(name, data)
    with pytest.raises(DataError, match="indices has 0 bytes"):
        convert(tiny.folder / "X.npy", tiny.folder / "o", labels=tiny.folder / "bad.npz")


@pytest.mark.parametrize(
    ("form", "line", "message"),
    [
        ("svmlight", "1,,2 1:1", "'1,,2' has an empty label beside a comma"),
        ("svmlight", "1,nan 1:1", "label 'nan' is not a finite number"),
        ("xmc", "1,9 1:1", "label '9' is not a number below the header"),
        ("xmc", ",1 1:1", "'1,' |',1' has an empty label"),
        ("vw", "a,,b | x", "'a,,b' has an empty label"),
        ("vw", "a, | x", "'a,' has an empty label"),
        ("vw", " | x", "no label"),
        ("svmlight", "1:1 2:1", "no label"),
        ("vw", f"a,{'b' * 4096},c | x", "name 'bbbb[b.]*' has more than 4,095 bytes"),
    ],
)
def test_a_bad_list_is_refused(form, line, message, tiny):
    lines = [*(["1 5 5"] if form == "xmc" else []), line]
    with pytest.raises(DataError, match=message):
        convert(tiny.text("r.txt", lines), tiny.folder / "out", format=form)
    assert [p.name for p in tiny.folder.iterdir()] == ["r.txt"]


def test_options_that_exclude_one_another_are_refused(tiny, capsys):
    path = tiny.text("r.svm", ["1,2 1:1"])
    with pytest.raises(UsageError, match="first_label"):
        convert(path, tiny.folder / "o", first_label=True, multilabel="on")
    with pytest.raises(UsageError, match="not one of auto, on, off"):
        convert(path, tiny.folder / "o", multilabel="yes")
    assert main(["convert", str(path), str(tiny.folder / "o"), "--multilabel", "off"]) == 3
    assert "several labels" in capsys.readouterr().err
    with pytest.raises(DataError, match="no row has a label"):
        convert(tiny.text("n.txt", ["1 5 5", " 1:1"]), tiny.folder / "o")


def test_the_start_of_a_source_tells_its_lists(tiny, capsys):
    path = tiny.text("r.txt", ["3 5 5", "1,2,3 1:1", " 2:1", "4 3:1"])
    found = explore(path)
    assert (found.rows, found.sample_labels, found.max_row_labels) == (3, 4, 3)
    assert main(["explore", str(path)]) == 0
    assert "\nlabels    integers; 1.33 a row, at most 3\n" in capsys.readouterr().out
    convert(path, tiny.folder / "out")
    assert main(["info", str(tiny.folder / "out")]) == 0
    assert "\nlabels    1.33 a row, at most 3\n" in capsys.readouterr().out
    assert main(["explore", str(tiny.text("s.svm", tiny.lines(9, 3)))]) == 0
    assert "a row, at most" not in capsys.readouterr().out.split("labels")[1]


@pytest.fixture
def listed(drawn, tiny, rng, monkeypatch):
    """A store of lists in several blocks, and its rows."""
    monkeypatch.setattr("streammach.store.row_totals.BLOCK_VALUES", 500)
    x, labels = drawn
    convert(tiny.text("rows.txt", texts(x, labels, "xmc", rng)), tiny.folder / "out")
    with Dataset.open(tiny.folder / "out") as data:
        assert data.facts.block_rows < N / 3
        yield data


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("pool_blocks", [1, 2, 99])
def test_batches_hold_every_row_with_its_labels_once(listed, shared, pool_blocks):
    reader = Reader(listed, **{**SETTINGS, "pool_blocks": pool_blocks}, shared=shared)
    whole = listed.rows(0, N)
    of_row = {
        (*whole.features[a:b].tolist(), *whole.values[a:b].tolist()): i
        for i, (a, b) in enumerate(itertools.pairwise(whole.indptr))
    }
    for epoch in range(2):
        seen = []
        for batch in reader.epoch(epoch):
            assert batch.labels.n_labels <= SETTINGS["batch_labels"]
            for i in range(batch.n_rows):
                part = slice(batch.indptr[i], batch.indptr[i + 1])
                key = (*batch.features[part].tolist(), *batch.values[part].tolist())
                some = slice(batch.labels.starts[i], batch.labels.starts[i + 1])
                own = whole.labels.part(of_row[key], of_row[key] + 1)
                assert batch.labels.classes[some].tolist() == own.classes.tolist()
                share = 1 / max(own.n_labels, 1) if shared else 1
                assert batch.labels.weights[some] == pytest.approx(share)
                seen.append(key)
        assert len(seen) == N
        assert set(seen) == set(of_row)


def test_the_footprint_has_the_labels(listed):
    names = ("batch_size", "batch_nnz", "pool_blocks", "by_feature", "batch_labels")
    given = {name: SETTINGS[name] for name in names}
    stated = Reader.footprint(listed.facts, **given)
    without = Reader.footprint(listed.facts, **{**given, "batch_labels": 0})
    assert stated["batches"] - without["batches"] == N_SLOTS * (8 * 33 + 8 * 40)
    reader = Reader(listed, **SETTINGS)
    held = sum(a.nbytes for slot in reader._slots for a in slot._rows.values())
    assert stated["batches"] == held


def test_the_first_rows_are_a_store_of_their_own(listed):
    some = listed.first(123)
    block = some.rows(0, 123)
    assert some.n_labels == block.labels.n_labels == some.label_counts.sum()
    assert some.facts.n_labels == some.n_labels


def test_the_first_rows_have_lists_too_where_none_has_a_label(tiny):
    lines = ["1001 5 5", *(f" {i % 5}:1" for i in range(1000)), "3,4 2:1"]
    convert(tiny.text("r.txt", lines), tiny.folder / "out", seed=1)
    with Dataset.open(tiny.folder / "out") as data:
        some = data.first(100)
        assert some.label_counts.sum() == 0
        assert some.facts.listed
        assert some.rows(0, 100).lists.n_labels == 0


@pytest.mark.parametrize("name", ["y/indptr", "y/indices"])
def test_labels_that_cannot_be_are_refused(name, listed, monkeypatch):
    read = type(listed._arrays[name]).read

    def wrong(array, start, stop, *rest):
        found = read(array, start, stop, *rest)
        if array is listed._arrays[name]:
            found = found.copy()
            found[len(found) // 2] += 10_000
            for look in rest[1:]:
                look(found)
        return found

    monkeypatch.setattr(type(listed._arrays[name]), "read", wrong)
    with pytest.raises(StoreError, match="labels of rows"):
        listed.rows(0, 100)
