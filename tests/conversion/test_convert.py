"""Conversion: a pure function of sources and seed, whole or not at all."""

import gzip
import re

import numpy as np
import pytest

from streammach.conversion.convert import convert
from streammach.inputs.formats.registry import guess_format
from streammach.inputs.sources import open_source
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError, LockedError, UsageError
from streammach.system.files.folders import lock_file
from tests.builders import names_in, rows_by_name


def test_rows_survive_with_their_names(tiny):
    path = tiny.text("rows.vw", ["b |w x:2 y |v x", "a 3 |w x", "a | z:0.5", "c |"])
    done = convert(path, tiny.folder / "out.zarr")
    assert (done.n_rows, done.n_classes, done.n_features, done.nnz) == (4, 3, 4, 5)
    assert rows_by_name(tiny.folder / "out.zarr") == sorted([
        ("b", 1.0, ((b"v^x", 1.0), (b"w^x", 2.0), (b"w^y", 1.0))),
        ("a", 3.0, ((b"w^x", 1.0),)),
        ("a", 1.0, ((b"z", 0.5),)),
        ("c", 1.0, ()),
    ], key=str)  # fmt: skip


def test_a_label_with_a_caret_keeps_its_name_and_is_found_again(tiny):
    path = tiny.text("rows.vw", ["a^b |w x", "^ |w x^y"])
    convert(path, tiny.folder / "out.zarr")
    assert {row[0] for row in rows_by_name(tiny.folder / "out.zarr")} == {"a^b", "^"}
    done = convert(path, tiny.folder / "test.zarr", like=tiny.folder / "out.zarr")
    assert (done.unseen_label_rows, done.unknown_values) == (0, 0)


def test_ids_go_by_frequency_ties_by_name(tiny):
    path = tiny.text("rows.vw", ["z |w c b", "z |w c", "a |w b a", "q |w c"])
    convert(path, tiny.folder / "out.zarr")
    with Dataset.open(tiny.folder / "out.zarr") as data:
        assert [data.labels.label(i) for i in range(3)] == ["z", "a", "q"]
        assert [data.features.label(i) for i in range(3)] == ["w^c", "w^b", "w^a"]
        assert data.feature_counts.tolist() == [3, 2, 1]


def test_repeated_features_are_added_up_and_counted(tiny):
    path = tiny.text("rows.vw", ["a |w x:2 y x:3 |w x", "a |w y"])
    done = convert(path, tiny.folder / "out.zarr")
    assert done.duplicates == 2
    assert ("a", 1.0, ((b"w^x", 6.0), (b"w^y", 1.0))) in rows_by_name(tiny.folder / "out.zarr")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["1", "255", "0"], np.uint8), (["1", "256"], np.float32), (["0.5"], np.float32),
        (["-1"], np.float32), (["200 x:100"], np.float32), (["200 x:55"], np.uint8),
    ],
)  # fmt: skip
def test_values_take_a_byte_where_all_fit_one(values, dtype, tiny):
    path = tiny.text("rows.vw", [f"a |w x:{v}" for v in values])
    convert(path, tiny.folder / "out.zarr")
    with Dataset.open(tiny.folder / "out.zarr") as data:
        assert data.value_type == dtype


def test_the_store_is_a_function_of_sources_and_seed(tiny):
    lines = tiny.lines(300, 20)
    plain, zipped = tiny.text("r.vw", lines), tiny.text("r2.vw", lines, zipped=True)
    digests = [
        convert(source, tiny.folder / name, seed=seed).digest
        for source, name, seed in (
            (plain, "a", 1),
            (plain, "b", 1),
            (zipped, "c", 1),
            (plain, "d", 2),
        )
    ]
    assert digests[0] == digests[1] == digests[2] != digests[3]
    assert rows_by_name(tiny.folder / "a") == rows_by_name(tiny.folder / "d")


def test_rows_are_shuffled_fully(tiny):
    lines = [f"{i} | x:{i % 200}" for i in range(4000)]
    convert(tiny.text("r.vw", lines), tiny.folder / "out")
    with Dataset.open(tiny.folder / "out") as data:
        block = data.rows(0, 4000)
        source = np.array([data.labels.label(y) for y in block.classes])
    assert sorted(source.tolist()) == list(range(4000))
    steps = np.abs(np.diff(source))
    assert 1200 < steps.mean() < 1470  # a third of the range
    assert abs(np.corrcoef(source, np.arange(4000))[0, 1]) < 0.06


def test_rows_of_the_same_byte_in_two_files_are_told_apart(tiny):
    one, two = tiny.text("1.vw", ["a | x"] * 50), tiny.text("2.vw", ["b | y"] * 50)
    done = convert([one, two], tiny.folder / "out")
    assert done.n_rows == 100
    with Dataset.open(tiny.folder / "out") as data:
        labels = data.rows(0, 100).classes
    assert 20 < np.abs(np.diff(labels)).sum() < 80  # mixed, not one file after the other


def test_test_data_use_the_ids_of_the_training_store(tiny):
    train = tiny.store(n_rows=300, n_classes=10)
    lines = ["class-3 |w own3_1 never |x noise1:2", "new |w own1_0", "class-1 |q only new"]
    done = convert(tiny.text("t.vw", lines), tiny.folder / "test.zarr", like=train)
    assert (done.unknown_values, done.unseen_label_rows) == (3, 1)
    with Dataset.open(train) as a, Dataset.open(tiny.folder / "test.zarr") as b:
        assert b.features.same_as(a.features)
        assert [b.labels.raw(i) for i in range(10)] == [a.labels.raw(i) for i in range(10)]
        assert b.labels.label(10) == "new"
    assert ("class-3", 1.0, ((b"w^own3_1", 1.0), (b"x^noise1", 2.0))) in rows_by_name(
        tiny.folder / "test.zarr"
    )


def test_svmlight_and_vw_of_the_same_rows_give_the_same_store_content(tiny):
    vw = ["2 | 5:1 7:0.5", "1 | 5:2", "2 |"]
    svm = ["2 5:1 7:0.5 # note", "# a comment", "1 qid:3 5:2", "2 "]
    convert(tiny.text("r.vw", vw), tiny.folder / "a")
    convert(tiny.text("r.svm", svm), tiny.folder / "b")
    assert rows_by_name(tiny.folder / "a") == rows_by_name(tiny.folder / "b")


@pytest.mark.parametrize("more", range(8))
def test_the_format_is_guessed_from_the_start_of_a_long_row(more, tmp_path):
    """Wherever what is looked at ends, within a value or not."""
    row = "7" + " " * more + "".join(f" {i}:2" for i in range(1, 20_000))
    (tmp_path / "a.svm").write_text(row + "\n")
    assert open_source(tmp_path / "a.svm").form == "svmlight"


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (b"1 | a b", "vw"), (b"x |f a:1", "vw"), (b"1 3:4 5:6", "svmlight"),
        (b"-1 3:4 # x", "svmlight"), (b"1 2 3", None), (b"1,2 3:4", "svmlight"), (b"a b c", None),
    ],
)  # fmt: skip
def test_the_format_is_guessed_from_the_first_row(line, form):
    assert guess_format(line) == form


FAILING = [
    (b"", "it holds no rows"),
    (b"\n \n", "it holds no rows"),
    (b"a |w x\nb w y\n", "no '|' after label 'b'|importance 'w'"),
    (b"a |w x:1e999\n", "is not a finite float32"),
    (b"nothing here\n", "the format cannot be guessed"),
    (b"a |\nb |\n", "no row has a feature"),
    (gzip.compress(b"a |w x\n" * 999, mtime=0)[:-20], "gzip stream"),
    (gzip.compress(b"", mtime=0), "it holds no rows"),
]


@pytest.mark.parametrize(("content", "message"), FAILING)
def test_a_bad_source_leaves_nothing_behind(content, message, tmp_path):
    source = tmp_path / "rows"
    source.write_bytes(content)
    with pytest.raises(DataError, match=message):
        convert(source, tmp_path / "out.zarr")
    assert names_in(tmp_path) == ["rows"]


def test_a_failed_conversion_leaves_the_old_store_as_it_was(tiny):
    path = tiny.store()
    with Dataset.open(path) as data:
        before = data.digest
    bad = tiny.text("bad.vw", ["a |w x", "b"])
    with pytest.raises(DataError):
        convert(bad, path, force=True)
    with Dataset.open(path) as data:
        assert data.digest == before
        assert data.verify() == []


def test_an_existing_store_is_replaced_only_by_force(tiny):
    path = tiny.store()
    source = tiny.text("r.vw", ["a |w x", "b |w y"])
    with pytest.raises(UsageError, match="force=True"):
        convert(source, path)
    assert convert(source, path, force=True).n_rows == 2
    with Dataset.open(path) as data:
        assert data.n_rows == 2
    assert [n for n in names_in(tiny.folder) if n.startswith(".")] == []


def test_bad_rows_are_skipped_and_counted(tiny):
    lines = ["a |w x", "b w y |", "c |w x:nan", "d |w x:inf", "e |w y"]
    done = convert(tiny.text("r.vw", lines), tiny.folder / "out", on_bad_row="skip")
    assert done.n_rows == 2
    assert done.skipped == {
        "importance ... is not a number of 0 or more": 1,
        "value ... is not a finite float32": 2,
    }


def test_a_second_writer_is_refused(tiny):
    source = tiny.text("r.vw", ["a |w x"])
    with (
        lock_file(tiny.folder / ".out.lock", "out"),
        pytest.raises(LockedError, match="another process"),
    ):
        convert(source, tiny.folder / "out")
    assert convert(source, tiny.folder / "out").n_rows == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"on_bad_row": "ignore"}, "on_bad_row"), ({"seed": -1}, "seed"),
        ({"format": "xls"}, "'xls' is not a format"),
        ({"like": "nowhere"}, "there is no such store"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(change, message, tiny):
    source = tiny.text("r.vw", ["a |w x"])
    with pytest.raises(ValueError, match=message):
        convert(source, tiny.folder / "out", **change)


def test_missing_sources_and_folders_are_refused(tiny):
    with pytest.raises(UsageError, match="there is no such file"):
        convert(tiny.folder / "no.vw", tiny.folder / "out")
    with pytest.raises(UsageError, match="its folder does not exist"):
        convert(tiny.text("r.vw", ["a |w x"]), tiny.folder / "no" / "out")
    with pytest.raises(UsageError, match="its folder is no folder"):
        convert(tiny.text("r.vw", ["a |w x"]), tiny.folder / "r.vw" / "out")
    with pytest.raises(UsageError, match="no source"):
        convert([], tiny.folder / "out")


def test_labels_that_are_one_number_are_said_once(tiny):
    said = "1 number is spelled in several ways among the labels, such as '01' and '1'"
    lines = ["1 | a", "01 | a", "1.0 | a", "x | 7 07", "-2 | b", "1.5 | b"]
    with pytest.warns(UserWarning, match=re.escape(said)) as found:
        convert(tiny.text("a.vw", lines), tiny.folder / "out")
    assert len(found) == 1
