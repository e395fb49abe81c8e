"""Made-up rows with lists of labels: as many as asked for, in all forms, and learnable."""

import hashlib

import numpy as np
import pytest
from scipy import sparse

from streammach.data.convert import convert
from streammach.data.store.dataset import Dataset
from streammach.errors import UsageError
from streammach.rows.block import RowBlock
from tools.synthetic.files import write_rows
from tools.synthetic.lists import LONG, LONG_ROWS, Lists
from tools.synthetic.rows import Shape, SyntheticRows, text_pieces

COUNTS = Shape("counts", 900, 300, 40, 700, Lists(3.5, 0.1))
ACTIVATIONS = Shape("activations", 500, 200, 20, 64, Lists(2.5, 0.1))
BOTH = pytest.mark.parametrize("shape", [COUNTS, ACTIVATIONS], ids=lambda shape: shape.kind)


def block_of(rows):
    return RowBlock.concat([block.take(np.arange(block.n_rows)) for block in rows.pieces()])


def text_of(rows, **options):
    return b"".join(bytes(text) for _, text in text_pieces(rows, **options))


@BOTH
def test_rows_do_not_depend_on_the_pieces_but_on_seed_and_part(shape):
    text = text_of(SyntheticRows(shape))
    assert text == text_of(SyntheticRows(shape), piece_values=1000)
    assert text == text_of(SyntheticRows(shape), piece_values=1)
    assert text != text_of(SyntheticRows(shape, seed=1))
    assert text != text_of(SyntheticRows(shape.changed(n_test_rows=shape.n_rows), part="test"))


@pytest.mark.parametrize(
    ("shape", "digest"),
    [
        (Shape("counts", 3000, 500, 300, 900), "76f2a978ba006b59"),
        (Shape("activations", 3000, 500, 300, 900), "adb55bdaff8060f6"),
    ],
)
def test_rows_with_one_label_are_those_of_before_there_were_lists(shape, digest):
    found = hashlib.sha256(text_of(SyntheticRows(shape, seed=3))).hexdigest()
    assert found.startswith(digest)


@pytest.mark.parametrize("mean", [1, 1.5, 3.5, 20])
def test_rows_have_so_many_labels(mean):
    shape = Shape("counts", 20_000, 1, 5_000, 100, Lists(mean, 0.2), words=1)
    lengths = block_of(SyntheticRows(shape)).lists.lengths
    assert np.mean(lengths == 0) == pytest.approx(0.2, abs=0.01)
    some = lengths[lengths > 0]
    assert some.mean() == pytest.approx(mean, rel=0.03)
    if mean > 1:
        assert some.min() == 1
        share = np.mean((some > 1) & (some % LONG == 1))
        assert share > 1 / LONG_ROWS / LONG
        assert some.max() > 8 * mean


@pytest.mark.parametrize("n_classes", [1, 2, 17, 40, 300])
def test_labels_of_a_row_rise_and_training_rows_hold_each_class(n_classes):
    shape = Shape("counts", 2_000, 1, n_classes, 100, Lists(12.0), words=1)
    lists = block_of(SyntheticRows(shape)).lists
    starts, classes = lists.sorted().starts, lists.sorted().classes
    assert np.array_equal(starts, lists.starts)
    assert np.array_equal(classes, lists.classes)
    assert np.array_equal(np.unique(classes), np.arange(n_classes))
    assert lists.lengths.min() >= 1


@BOTH
@pytest.mark.parametrize("xmc", [False, True])
def test_text_is_what_python_prints(shape, xmc):
    for block, text in text_pieces(SyntheticRows(shape), xmc=xmc):
        lines = []
        for r in range(block.n_rows):
            inside = slice(block.indptr[r], block.indptr[r + 1])
            pairs = zip(block.features[inside].tolist(), block.values[inside].tolist(), strict=True)
            words = [f"{f}" if v == 1 and not xmc else f"{f}:{v:.4g}" for f, v in pairs]
            labels = ",".join(str(c + 1) for c in block.labels.part(r, r + 1).classes)
            if xmc:
                lines.append(labels + " " + " ".join(words) + "\n")
            else:
                lines.append(" ".join([f"{labels} |" if labels else "|", *words]) + "\n")
        assert bytes(text).decode() == "".join(lines)


@BOTH
def test_a_linear_classifier_learns_them(shape):
    """Sums of the training rows of each class, against all labels of the test part's rows."""
    found = []
    for part in ("train", "test"):
        block = block_of(SyntheticRows(shape, part=part))
        size = (block.n_rows, shape.n_features)
        x = np.sqrt(sparse.csr_matrix((block.values, block.features, block.indptr), size).toarray())
        lists, ones = block.lists, np.ones(block.lists.n_labels)
        size = (block.n_rows, shape.n_classes)
        found.append((x, sparse.csr_matrix((ones, lists.classes, lists.starts), size).toarray()))
    (x, y), (x_test, y_test) = found
    centre = x.mean(axis=0)
    sums = (y / y.sum(axis=0)).T @ (x - centre)
    best = np.argmax((x_test - centre) @ sums.T, axis=1)
    right = np.mean(y_test[np.arange(len(y_test)), best])
    assert right > 2.5 * y_test.mean()


def rows_of(path, tmp_path, **options):
    store = tmp_path / "rows.zarr"
    if path.suffix != ".zarr":
        convert(path, store, force=True, multilabel="on", **options)
        path = store
    with Dataset.open(path) as data:
        block = data.rows(0, data.n_rows)
        labels, names = ([n.raw(i) for i in range(len(n))] for n in (data.labels, data.features))
    out = []
    for r in range(block.n_rows):
        inside = slice(block.indptr[r], block.indptr[r + 1])
        pairs = zip(block.features[inside], block.values[inside].tolist(), strict=True)
        own = sorted(labels[c] for c in block.labels.part(r, r + 1).classes)
        out.append((own, sorted((names[f], v) for f, v in pairs)))
    return sorted(out)


@BOTH
def test_every_format_holds_the_same_rows(shape, tmp_path):
    rows = SyntheticRows(shape)
    jobs = [("a.vw", {}), ("b.gz", {"form": "xmc"}), ("a.h5", {"layout": "dense"})]
    jobs += [("b.h5", {"layout": "sparse"}), ("a.zarr", {})]
    found = []
    for name, options in jobs:
        assert write_rows(rows, tmp_path / name, **options).n_rows == shape.n_rows
        form = {"format": "xmc"} if "form" in options else {}
        found.append(rows_of(tmp_path / name, tmp_path, **form))
    assert all(other == found[0] for other in found)


def test_words_are_as_many_as_asked_for():
    for words in (5, 300):
        shape = Shape("counts", 1000, 1, 50, 2_000_000, words=words)
        block = block_of(SyntheticRows(shape.changed(lists=Lists(2.0))))
        assert block.values.sum() / 1000 - 1 == pytest.approx(words, rel=0.05)


def test_what_cannot_be_is_refused():
    for wrong in ({"mean": 0.5}, {"mean": 201}, {"mean": 2, "unlabelled": 1}):
        with pytest.raises(UsageError, match="is not from"):
            Lists(**wrong)
    with pytest.raises(UsageError, match="words"):
        COUNTS.changed(words=0.1)
    with pytest.raises(UsageError, match="words"):
        ACTIVATIONS.changed(words=20)
