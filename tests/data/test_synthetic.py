"""Made-up rows: the same whatever the pieces, of the shape that was asked for, and learnable."""

import gzip
from collections import Counter

import numpy as np
import pytest
from scipy import sparse

from streammach.data.convert import convert
from streammach.data.store.dataset import Dataset
from streammach.errors import UsageError
from streammach.files.destinations import Destination
from streammach.rows.arrays import keys
from streammach.rows.label_lists import LabelLists
from tools.synthetic import kernels as k
from tools.synthetic.files import ROWS, write_rows
from tools.synthetic.rows import SHAPES, Shape, SyntheticRows, text_pieces
from tools.synthetic.text import text_lines

COUNTS = Shape("counts", 900, 300, 40, 700)
ACTIVATIONS = Shape("activations", 500, 200, 20, 64)
BOTH = pytest.mark.parametrize("shape", [COUNTS, ACTIVATIONS], ids=lambda shape: shape.kind)


def text_of(rows, **options):
    return b"".join(bytes(text) for _, text in text_pieces(rows, **options))


def matrix_of(rows):
    """All rows as a SciPy matrix, and their classes from 0."""
    parts, classes = [], []
    for block in rows.pieces():
        arrays = (block.values.copy(), block.features.copy(), block.indptr.copy())
        parts.append(sparse.csr_matrix(arrays, (block.n_rows, rows.shape.n_features)))
        classes.append(block.classes.copy())
    return sparse.vstack(parts).tocsr(), np.concatenate(classes)


@BOTH
def test_rows_do_not_depend_on_the_pieces_but_on_seed_and_part(shape):
    text = text_of(SyntheticRows(shape))
    assert text == text_of(SyntheticRows(shape), piece_values=1000)
    assert text == text_of(SyntheticRows(shape), piece_values=1)
    assert text.count(b"\n") == shape.n_rows
    assert text != text_of(SyntheticRows(shape, seed=1))
    assert text != text_of(SyntheticRows(shape.changed(n_test_rows=shape.n_rows), part="test"))


@BOTH
def test_text_is_what_python_prints(shape):
    for block, text in text_pieces(SyntheticRows(shape)):
        lines = []
        for r in range(block.n_rows):
            inside = slice(block.indptr[r], block.indptr[r + 1])
            pairs = zip(block.features[inside].tolist(), block.values[inside].tolist(), strict=True)
            words = [f"{f}" if v == 1 else f"{f}:{v:.4g}" for f, v in pairs]
            lines.append(" ".join([f"{block.classes[r] + 1} |", *words]) + "\n")
        assert bytes(text).decode() == "".join(lines)


def test_numbers_have_four_digits_as_python_rounds_them(rng):
    numbers = np.concatenate([10 ** rng.uniform(-4, 3.999, 3000), [1e-4, 0.1, 1, 9.9996, 9999]])
    values = np.array([np.float32(f"{x:.4g}") for x in numbers], np.float32)
    values = values[values != 1]
    out = np.empty(40 * len(values), np.uint8)
    indptr, features = np.array([0, len(values)]), np.arange(len(values), dtype=np.int32)
    labels = LabelLists.of([[6]])
    n = text_lines(indptr, features, values, labels.starts, labels.classes, False, out)
    words = bytes(out[:n]).decode().split()
    assert words[:2] == ["7", "|"]
    assert [w.split(":")[1] for w in words[2:]] == [f"{x:.4g}" for x in values]


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


@BOTH
def test_a_linear_classifier_learns_them(shape):
    """Sums of the training rows of each class, against its rows of the test part."""
    x, y = matrix_of(SyntheticRows(shape))
    x_test, y_test = matrix_of(SyntheticRows(shape, part="test"))
    x, x_test = (np.sqrt(m.toarray()) for m in (x, x_test))
    centre = x.mean(axis=0)
    sums = np.array([(x[y == c] - centre).mean(axis=0) for c in range(shape.n_classes)])
    right = np.mean(np.argmax((x_test - centre) @ sums.T, axis=1) == y_test)
    assert right > 8 / shape.n_classes


def rows_of(path, tmp_path):
    store = tmp_path / "rows.zarr"
    if path.suffix != ".zarr":
        convert(path, store, force=True)
        path = store
    with Dataset.open(path) as data:
        block = data.rows(0, data.n_rows)
        labels, names = ([n.raw(i) for i in range(len(n))] for n in (data.labels, data.features))
    out = []
    for r in range(block.n_rows):
        inside = slice(block.indptr[r], block.indptr[r + 1])
        pairs = zip(block.features[inside], block.values[inside].tolist(), strict=True)
        out.append((labels[block.classes[r]], sorted((names[f], v) for f, v in pairs)))
    return sorted(out)


@BOTH
def test_every_format_holds_the_same_rows(shape, tmp_path):
    rows = SyntheticRows(shape)
    jobs = [("a.vw", "auto"), ("a.vw.gz", "auto"), ("a.h5", "dense"), ("b.h5", "sparse")]
    jobs.append(("a.zarr", "auto"))
    found = []
    for name, layout in jobs:
        done = write_rows(rows, tmp_path / name, layout=layout)
        assert done.n_rows == shape.n_rows
        found.append(rows_of(tmp_path / name, tmp_path))
    assert all(other == found[0] for other in found)
    assert gzip.decompress((tmp_path / "a.vw.gz").read_bytes()) == (tmp_path / "a.vw").read_bytes()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"form": "csv"}, "format"),
        ({"layout": "wide"}, "layout"),
        ({"like": "train.zarr"}, "like"),
    ],
)
def test_what_cannot_be_written_is_refused(options, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        write_rows(SyntheticRows(COUNTS), tmp_path / "a.vw", **options)


def test_what_cannot_be_is_refused(tmp_path):
    for wrong in ({"n_rows": 0}, {"n_classes": 2**31}):
        with pytest.raises(UsageError, match="is not from 1"):
            COUNTS.changed(**wrong)
    with pytest.raises(UsageError, match="scale"):
        COUNTS.scaled(0)
    with pytest.raises(UsageError, match="seed"):
        SyntheticRows(COUNTS, seed=-1)
    (tmp_path / "a.vw").write_text("mine")
    with pytest.raises(UsageError, match="force=True"):
        write_rows(SyntheticRows(COUNTS), tmp_path / "a.vw")


def test_a_file_whose_writing_fails_does_not_appear(tmp_path):
    def fail():
        with Destination(tmp_path / "a.h5", ROWS).scratch() as made:
            made.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(tmp_path.iterdir())
