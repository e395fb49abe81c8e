"""Texts that a user names, whatever their bytes: as the plain text, or one clear line; bounded."""

import bz2
import gzip
import lzma
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.matrices.matrix_files import load_labels
from streammach.inputs.source_options import SourceOptions
from streammach.inputs.sources import open_source
from streammach.model.label_changes import entitle, rename
from streammach.prediction.allowed import KnownLabels, labels_in
from streammach.rows.names import Names
from streammach.rows.vocabulary import Vocabulary
from streammach.store.label_facts import weigh_classes
from streammach.system.errors import BudgetError, StreammachError
from tests.model.models import model_of

# Lists name a label that the model does not know.
pytestmark = pytest.mark.filterwarnings("ignore:the model does not know")

K = 30
FEATURES, ONE_LABEL_EACH = b"2 4\n1:2 3:1\n0:1\n", b"2 3\n1:1\n2:1\n"
MARK = b"\xef\xbb\xbf"
MOST = 64 << 20  # bytes of memory that a command has for a list, in these tests
PEAK = 40 << 20  # bytes that a list of a gigabyte may take beside what is kept of it


@dataclass
class Classes:
    """What weights of classes ask a store for."""

    labels: Names
    n_classes: int = K
    listed: bool = False

    def weigh_classes(self, weights):
        return weights


def model():
    return model_of(np.random.default_rng(0), k=K)


def allowed(path):
    return KnownLabels(model()).limit_labels(labels_in(path, MOST), None).classes.tolist()


def renamed(path):
    changed, done = rename(model(), path, MOST)
    return done, changed.labels.raws(np.arange(K))


def titled(path):
    changed, done = entitle(model(), path, MOST)
    return done, changed.titles.raws(np.arange(K))


def rows_of(path, **options):
    vocabulary, found = Vocabulary(), []
    for block in open_source(path, SourceOptions(**options)).blocks(vocabulary, BadRows()):
        values = (block.indptr, block.features, block.values, block.lists.classes, block.importance)
        found += [None if one is None else one.tolist() for one in values]
    names = vocabulary.label_names(), vocabulary.feature_names()
    return found, *(one.raws(np.arange(len(one))) for one in names)


def in_folder(path, **texts):
    """Return the rows of a folder of documents, one of whose files is a text that is tried."""
    folder = path.parent / "docs"
    folder.mkdir(exist_ok=True)
    for name, text in {"a.txt": b"some words", "b.txt": b"other words", "b.key": b"two\n"}.items():
        (folder / name).write_bytes(text)
    (folder / texts["name"]).write_bytes(path.read_bytes())
    return rows_of(folder)


def matrix_rows(path, other, name):
    """Return the rows of two files of a matrix, one of which is a text that is tried."""
    beside = path.parent / "other.txt"
    beside.write_bytes(other)
    x, y = (path, beside) if name == "features" else (beside, path)
    return rows_of(x, labels=y)


# What a user may name by its path: a plain text, and what is made of it.
DOORS = {
    "--only": (b"label 3\nlabel 5\n\nnobody\n", allowed),
    "--rename": (b"label 3\tnew\n\nlabel 4\tlabel 5\n", renamed),
    "--vocabulary": (b"label 3\tthree\n<label 4>\tfour\tn\n", titled),
    "--class-weight": (
        b"label 3\t2\nlabel 4\t0.5\n",
        lambda path: weigh_classes(Classes(model().labels), path).tolist(),
    ),
    "--labels of a matrix": (
        b"one\ntwo\none\n",
        lambda path: vars(load_labels(path, "auto", 3)) | {"codes": 0},
    ),
    "NAME.txt": (b"words of a text\n", lambda path: in_folder(path, name="a.txt")),
    "NAME.tsv": (b"http://e.org/1\tone\nthree\n", lambda path: in_folder(path, name="a.tsv")),
    "NAME.key": (b"two\nthree\n", lambda path: in_folder(path, name="a.key")),
    "vw": (b"one |w x y:2\ntwo |w y\n", lambda path: rows_of(path, form="vw")),
    "svmlight": (b"1 1:2 3:4\n2 3:1\n", lambda path: rows_of(path, form="svmlight")),
    "xmc": (b"2 5 3\n0,1 1:2\n2 3:1\n", lambda path: rows_of(path, form="xmc")),
    "csv": (b"label,text\none,a b\ntwo,c\n", lambda path: rows_of(path, form="csv")),
    "tsv": (b"label\ttext\none\ta b\ntwo\tc\n", lambda path: rows_of(path, form="tsv")),
    "jsonl": (
        b'{"label": "one", "text": "a b"}\n{"label": "two", "text": "c"}\n',
        lambda path: rows_of(path, form="jsonl"),
    ),
    "features": (FEATURES, lambda path: matrix_rows(path, ONE_LABEL_EACH, "features")),
    "labels": (ONE_LABEL_EACH, lambda path: matrix_rows(path, FEATURES, "labels")),
}  # fmt: skip


def members(text):
    half = len(text) // 2
    return gzip.compress(text[:half]) + gzip.compress(text[half:]) + bytes(5)


SAME = {
    "byte-order mark": lambda text: MARK + text,
    "CRLF": lambda text: text.replace(b"\n", b"\r\n"),
    "no newline at the end": lambda text: text.removesuffix(b"\n"),
    "gzip": gzip.compress,
    "gzip of several members": members,
    "gzip of a mark and CRLF": lambda text: gzip.compress(MARK + text.replace(b"\n", b"\r\n")),
}
WRONG = {
    "UTF-16": (lambda text: text.decode().encode("utf-16"), "it is UTF-16"),
    "gzip of UTF-16": (lambda text: gzip.compress(text.decode().encode("utf-16")), "it is UTF-16"),
    "cut gzip": (lambda text: gzip.compress(text)[:-9], "the gzip stream ends before its end mark"),
    "changed gzip": (
        lambda text: gzip.compress(text)[:12] + b"\xff\xff" + gzip.compress(text)[14:],
        "the gzip stream",
    ),
    "bzip2": (bz2.compress, "it is packed, and not with gzip"),
    "xz": (lzma.compress, "it is packed, and not with gzip"),
}


@pytest.mark.parametrize("form", SAME)
@pytest.mark.parametrize("door", DOORS)
def test_a_text_is_the_same_in_any_wrapping(door, form, tmp_path):
    text, read = DOORS[door]
    made = []
    for name, data in (("plain", text), ("tried", SAME[form](text))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_bytes(data)
        made.append(read(tmp_path / name / "text"))
    assert made[0] == made[1]


@pytest.mark.parametrize("form", WRONG)
@pytest.mark.parametrize("door", DOORS)
def test_a_text_that_cannot_be_read_is_one_clear_line(door, form, tmp_path):
    text, read = DOORS[door]
    damage, said = WRONG[form]
    (tmp_path / "text").write_bytes(damage(text))
    with pytest.raises(StreammachError, match=said) as caught:
        read(tmp_path / "text")
    assert caught.value.exit_code == 3
    name = door.replace("NAME", "a") if door.startswith("NAME") else "text"
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def repeated(line, n):
    """Return what makes a gzip of a line that comes again and again."""
    return lambda: gzip.compress(line * n)


def distinct():
    return gzip.compress(b"".join(b"%07d" % i * 60 + b"\n" for i in range(1 << 18)))


# Texts that are much larger than their files, and what becomes of them.
LARGE = {
    "--only": (repeated(b"ab\n", 3 << 20), "no label that the model knows", 2),
    "--only, distinct": (distinct, "its labels take more than 67.1 MB: memory", 6),
    "--only, a long line": (repeated(b"ab", 9 << 20), "a line is longer than 8 MiB", 3),
    "--only, long labels": (
        repeated(b"ab" * 5000 + b"\n", 9000), "a label has more than 4,095 bytes: 'abab", 3,
    ),
    "--rename": (repeated(b"ab\tcd\n", 2 << 20), "it is no label of the model: 'ab'", 3),
    "--vocabulary": (repeated(b"ab\tcd\n", 1 << 20), "the model knows no label of it", 2),
    "--class-weight": (repeated(b"ab\t1\n", 2 << 20), "no row has the label 'ab'", 3),
    "--labels of a matrix": (repeated(b"ab\n", 3 << 20), "more than 3 labels for 3 rows", 3),
    "NAME.txt": (repeated(b"ab\n", 9 << 20), "'a.txt' has more than 8 MiB", 3),
    "NAME.tsv": (repeated(b"ab\n", 3 << 20), "'a.tsv' has more than 1 MiB", 3),
    "NAME.key": (repeated(b"\n", 9 << 20), "'a.key' has more than 1 MiB", 3),
}  # fmt: skip


@pytest.mark.parametrize("door", LARGE)
def test_a_text_that_is_much_larger_than_its_file_is_bounded(door, tmp_path):
    pack, said, code = LARGE[door]
    data = pack()
    read = DOORS[door.partition(",")[0]][1]
    path = tmp_path / "text"
    path.write_bytes(DOORS[door.partition(",")[0]][0])
    read(path)  # what is loaded once
    path.write_bytes(data)
    assert len(data) < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(StreammachError, match=said) as caught:
            read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.exit_code == code
    assert peak < PEAK + MOST * isinstance(caught.value, BudgetError)


@pytest.mark.parametrize("change", [rename, entitle])
def test_names_are_counted_against_the_memory(change, tmp_path):
    line = b"label %d\t" + b"x" * 4000 + b"%d\n"
    (tmp_path / "names.tsv").write_bytes(b"".join(line % (i, i) for i in range(K)))
    assert change(model(), tmp_path / "names.tsv", 500_000)[1]
    with pytest.raises(BudgetError, match="its names take more than the 400 kB beside the model"):
        change(model(), tmp_path / "names.tsv", 400_000)
