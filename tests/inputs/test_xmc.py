"""XMC text: a header that is checked, columns and labels from 0, one label a row."""

import pytest

from streammach.conversion.convert import convert
from streammach.inputs.formats.registry import guess_format
from streammach.system.errors import DataError, UsageError
from tests.conversion.test_convert import rows_by_name

GOOD = ["4 6 3", "0 0:1 5:2", "2 1:0.5", "1 3:4", "2 0:3"]


def test_rows_are_those_of_the_same_svmlight_text(tiny):
    done = convert(tiny.text("a.txt", GOOD), tiny.folder / "a")
    assert (done.formats, done.n_rows) == (("xmc",), 4)
    convert(tiny.text("b.svm", GOOD[1:]), tiny.folder / "b", format="svmlight")
    convert(tiny.text("c.gz", GOOD, zipped=True), tiny.folder / "c")
    assert rows_by_name(tiny.folder / "a") == rows_by_name(tiny.folder / "b")
    assert rows_by_name(tiny.folder / "a") == rows_by_name(tiny.folder / "c")


def test_several_labels_are_bad_or_the_first_counts(tiny):
    path = tiny.text("a.txt", ["3 6 3", "2,1 0:1", "1 3:1", "0,2,1 5:1"])
    with pytest.raises(DataError, match=r"'2,1' is several labels.*first_label.*line 2 byte 1"):
        convert(path, tiny.folder / "a", multilabel="off")
    done = convert(path, tiny.folder / "b", on_bad_row="skip", multilabel="off")
    assert (done.n_rows, sum(done.skipped.values())) == (1, 2)
    convert(path, tiny.folder / "c", first_label=True)
    assert [row[0] for row in rows_by_name(tiny.folder / "c")] == [0, 1, 2]
    with pytest.raises(UsageError, match="first_label=True"):
        convert(tiny.text("r.vw", ["a |w x"]), tiny.folder / "d", first_label=True)


def test_rows_left_out_count_as_rows(tiny):
    lines = ["3 6 3", "1 1:1", "1 9:1", "2 2:2"]
    done = convert(tiny.text("a.txt", lines), tiny.folder / "a", on_bad_row="skip")
    assert (done.n_rows, sum(done.skipped.values())) == (2, 1)


def test_the_header_holds_across_blocks(tiny, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 64)
    rows = [f"{i % 3} {i % 6}:{i}" for i in range(50)]
    long = "1 " + " ".join(f"{i}:1" for i in range(6)) + " " * 200
    done = convert(tiny.text("a.txt", ["51 6 3", *rows, long]), tiny.folder / "a")
    assert done.n_rows == 51
    with pytest.raises(DataError, match=r"index '6'.*line 53"):
        convert(tiny.text("b.txt", ["52 6 3", *rows, long, "1 6:1"]), tiny.folder / "b")


def test_the_guess_needs_a_header_and_a_row():
    assert guess_format(b"4 6 3", b"0,1 0:1") == "xmc"
    assert guess_format(b"4 6 3") is None
    assert guess_format(b"4 6 3", b"1 | x:1") is None
