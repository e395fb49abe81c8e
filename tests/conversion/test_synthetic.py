"""Made-up rows: the same whatever the pieces, of the shape that was asked for, and learnable."""

import gzip
from collections import Counter

import numpy as np
import pytest
from scipy import sparse

from streammach.conversion.convert import convert
from streammach.rows.arrays import keys
from streammach.rows.block import RowBlock
from streammach.system.errors import UsageError
from tests.builders import rows_by_name
from tools.synthetic import kernels as k
from tools.synthetic.files import destination_of, write_rows
from tools.synthetic.lists import LONG, LONG_ROWS, Lists
from tools.synthetic.rows import SHAPES, Shape, SyntheticRows, text_pieces

COUNTS = Shape("counts", 900, 300, 40, 700)
ACTIVATIONS = Shape("activations", 500, 200, 20, 64)
OF_EACH_KIND = pytest.mark.parametrize(
    "shape",
    [COUNTS, ACTIVATIONS, COUNTS.changed(lists=Lists(3.5, 0.1)),
     ACTIVATIONS.changed(lists=Lists(2.5, 0.1))],
    ids=lambda shape: shape.kind + (" lists" if shape.lists else ""),
)  # fmt: skip


def text_of(rows, **options):
    return b"".join(bytes(text) for _, text in text_pieces(rows, **options))


def block_of(rows):
    return RowBlock.concat([block.take(np.arange(block.n_rows)) for block in rows.pieces()])


def matrix_of(rows):
    """All rows as a SciPy matrix, and their classes from 0."""
    block = block_of(rows)
    size = (block.n_rows, rows.shape.n_features)
    return sparse.csr_matrix((block.values, block.features, block.indptr), size), block.classes


@OF_EACH_KIND
def test_rows_do_not_depend_on_the_pieces_but_on_seed_and_part(shape):
    text = text_of(SyntheticRows(shape))
    assert text == text_of(SyntheticRows(shape), piece_values=1000)
    assert text == text_of(SyntheticRows(shape), piece_values=1)
    assert text.count(b"\n") == shape.n_rows
    assert text != text_of(SyntheticRows(shape, seed=1))
    assert text != text_of(SyntheticRows(shape.changed(n_test_rows=shape.n_rows), part="test"))


@OF_EACH_KIND
@pytest.mark.parametrize("xmc", [False, True])
def test_text_is_what_python_prints(shape, xmc):
    for block, text in text_pieces(SyntheticRows(shape), xmc=xmc):
        lines = []
        for r in range(block.n_rows):
            inside = slice(block.indptr[r], block.indptr[r + 1])
            pairs = zip(block.features[inside].tolist(), block.values[inside].tolist(), strict=True)
            words = [f"{f}" if v == 1 and not xmc else f"{f}:{v:.4g}" for f, v in pairs]
            labels = ",".join(str(c + 1) for c in block.lists.part(r, r + 1).classes)
            if xmc:
                lines.append(labels + " " + " ".join(words) + "\n")
            else:
                lines.append(" ".join([f"{labels} |" if labels else "|", *words]) + "\n")
        assert bytes(text).decode() == "".join(lines)


def test_a_row_of_counts_is_that_of_the_plain_version():
    rows = SyntheticRows(COUNTS, part="test", seed=5)
    x, y = matrix_of(rows)
    d, classes = COUNTS.n_features, COUNTS.n_classes
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mixed(z):  # splitmix adds the golden ratio before it mixes
        return int(keys(np.array([(z - golden) & mask], np.uint64))[0])

    def drawn(state, place):
        return mixed((state + golden * (place + 1)) & mask)

    def below(bits, n):
        return ((bits >> 32) * n) >> 32

    def zipf(bits, octaves, n):
        octave = below(bits, octaves)
        found = 2**octave - 1 + ((bits & 0xFFFFFFFF) >> (32 - octave))
        return found if found < n else found >> 1

    shared = int(rows._structure)
    for row in (0, 7, 299):
        state = mixed((int(rows._stream) + golden * row) & mask)
        u = drawn(state, 0) >> 32
        label = ((u * u >> 32) * classes) >> 32
        bits = drawn(state, 1)
        own, group = (bits & 0xFFFFFFFF) // k.OWN_PARTS, classes + label // k.GROUP_CLASSES
        found = Counter()
        for t in range(k.FEWEST_TOKENS + below(bits, k.MORE_TOKENS)):
            bits, word = drawn(state, 2 * t + 2), drawn(state, 2 * t + 3)
            if bits >> 32 < own:
                owner = label if bits & 1 else group
                place = zipf(word, k.WORD_OCTAVES, k.WORDS)
                bits = drawn((shared + mixed(owner)) & mask, place)
            else:
                bits = mixed(shared ^ (golden * zipf(word, d.bit_length(), d) & mask))
            found[below(bits, d)] += 1
        got = x[row]
        assert y[row] == label
        assert dict(zip(got.indices.tolist(), got.data.tolist(), strict=True)) == found
        assert np.all(np.diff(got.indices) > 0)


@pytest.mark.parametrize(
    "shape", [COUNTS, Shape("counts", 300, 1, 300, 3), SHAPES["odp"].scaled(1e-3)]
)
def test_training_rows_hold_each_class_and_each_feature(shape):
    x, classes = matrix_of(SyntheticRows(shape))
    assert len(np.unique(classes)) == shape.n_classes
    assert len(np.unique(x.indices)) == min(shape.n_features, x.shape[1])
    assert x.has_canonical_format


def test_shapes_are_those_of_the_data():
    x, _ = matrix_of(SyntheticRows(SHAPES["odp"].changed(n_rows=3000)))
    assert 58 < x.nnz / 3000 < 62
    assert x.data.max() > 3
    x, _ = matrix_of(SyntheticRows(SHAPES["imagenet"].changed(n_rows=40)))
    assert 1850 < x.nnz / 40 < 2000
    assert x.data.min() >= 1e-4


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
    starts, classes = lists.sort().starts, lists.sort().classes
    assert np.array_equal(starts, lists.starts)
    assert np.array_equal(classes, lists.classes)
    assert np.array_equal(np.unique(classes), np.arange(n_classes))
    assert lists.lengths.min() >= 1


@OF_EACH_KIND
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
    assert right > (2.5 if shape.lists else 8) * y_test.mean()


@OF_EACH_KIND
def test_every_text_holds_the_same_rows(shape, tmp_path):
    listed = {"multilabel": "on"} if shape.lists else {}
    found = []
    for name, form in (("a.vw", "vw"), ("a.vw.gz", "vw"), ("b.gz", "xmc")):
        path, store = tmp_path / name, tmp_path / f"{name}.zarr"
        made = write_rows(SyntheticRows(shape), path, xmc=form == "xmc")
        assert made.n_rows == shape.n_rows
        convert(path, store, format=form, **listed)
        found.append(rows_by_name(store))
    assert found[1:] == found[:1] * 2
    assert gzip.decompress((tmp_path / "a.vw.gz").read_bytes()) == (tmp_path / "a.vw").read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_words_are_as_many_as_asked_for():
    for words in (5, 300):
        shape = Shape("counts", 1000, 1, 50, 2_000_000, words=words)
        block = block_of(SyntheticRows(shape.changed(lists=Lists(2.0))))
        assert block.values.sum() / 1000 - 1 == pytest.approx(words, rel=0.05)


def test_what_cannot_be_is_refused(tmp_path):
    for wrong in ({"n_rows": 0}, {"n_classes": 2**31}):
        with pytest.raises(UsageError, match="is not from 1"):
            COUNTS.changed(**wrong)
    with pytest.raises(UsageError, match="scale"):
        COUNTS.scaled(0)
    with pytest.raises(UsageError, match="seed"):
        SyntheticRows(COUNTS, seed=-1)
    for wrong in ({"mean": 0.5}, {"mean": 201}, {"mean": 2, "unlabelled": 1}):
        with pytest.raises(UsageError, match="is not from"):
            Lists(**wrong)
    for shape, words in ((COUNTS, 0.1), (ACTIVATIONS, 20)):
        with pytest.raises(UsageError, match="words"):
            shape.changed(words=words)
    for name, words in (("a.csv", "ends with none of"), ("a.vw", "exists already")):
        (tmp_path / name).write_text("mine")
        with pytest.raises(UsageError, match=words):
            write_rows(SyntheticRows(COUNTS), tmp_path / name)


def test_a_file_whose_writing_fails_does_not_appear(tmp_path):
    def fail():
        with destination_of(tmp_path / "a.vw").scratch() as made:
            made.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(tmp_path.iterdir())
