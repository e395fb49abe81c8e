"""Fifteen kinds of bad lines in each text format: refused by name and place, or left out alone."""

import gzip
import json
import re

import pytest

from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.system.errors import DataError
from tests.conversion.test_convert import rows_by_name

GOOD = {
    "vw": [b"a |w x:1 y:2", b"c 2 |w y:3.5 |v y"],
    "svmlight": [b"1 3:1 4:2", b"4 qid:7 4:3.5 # note"],
    "xmc": [b"1 3:1 4:2", b"4 4:3.5"],
}
LONG = b"9" * 5000
# For each kind and format: the line, what is said of it, and at which byte of the line.
BAD = {
    "no label": {
        "vw": (b" |w x:1", "the line has no label", 2),
        "svmlight": (b"3:1 4:1", "the line has no label", 1),
        "xmc": (b" 3:1", "the line has no label", 2),
    },
    "label is no number": {
        "vw": (b"b:1 |w x:1", "label 'b:1' holds ':'", 1),
        "svmlight": (b"NaN 3:1", "label 'NaN' is not a finite number", 1),
        "xmc": (b"abc 3:1", "label 'abc' is not a number below", 1),
    },
    "label past its type": {
        "vw": (LONG + b" |w x:1", "name '9.*' has more than 4,095 bytes", 1),
        "svmlight": (LONG + b" 3:1", "name '9.*' has more than 4,095 bytes", 1),
        "xmc": (b"5 3:1", "label '5' is not a number below the header's number of labels", 1),
    },
    "id is text": {
        "vw": (b"b x y", "importance 'x' is not a number", 3),
        "svmlight": (b"2 a:1", "index 'a' is not an integer", 3),
        "xmc": (b"2 a:1", "index 'a' is not an integer", 3),
    },
    "id is negative": {
        "vw": (b"b -1 |w x:1", "importance '-1' is not a number of 0 or more", 3),
        "svmlight": (b"2 3:1 -3:1", "index '-3' is not an integer", 7),
        "xmc": (b"2 3:1 -3:1", "index '-3' is not an integer", 7),
    },
    "id past its type": {
        "vw": (b"b |w x:1 n" + LONG, "name 'n9.*' has more than 4,095 bytes", 10),
        "svmlight": (b"2 9999999999999999999:1", "index '9{19}' is not an integer of at most", 3),
        "xmc": (b"2 6:1", "index '6' is not below the header's number of columns", 3),
    },
    "value is missing": {
        "vw": (b"b |w x: y", "value '' is not a number", 8),
        "svmlight": (b"2 3:", "value '' is not a number", 5),
        "xmc": (b"2 3", "feature '3' has no ':value'", 3),
    },
    "value is text": {
        "vw": (b"b |w x:one", "value 'one' is not a number", 8),
        "svmlight": (b"2 3:0x10", "value '0x10' is not a number", 5),
        "xmc": (b"2 3:1_0", "value '1_0' is not a number", 5),
    },
    "value is NaN": {
        "vw": (b"b |w x:nan", "value 'nan' is not a finite float32", 8),
        "svmlight": (b"2 3:NaN", "value 'NaN' is not a finite float32", 5),
        "xmc": (b"2 3:nan", "value 'nan' is not a finite float32", 5),
    },
    "value is infinite": {
        "vw": (b"b |w x:-inf", "value '-inf' is not a finite float32", 8),
        "svmlight": (b"2 3:inf", "value 'inf' is not a finite float32", 5),
        "xmc": (b"2 3:+Infinity", "value '.Infinity' is not a finite float32", 5),
    },
    "value overflows": {
        "vw": (b"b |w x:1e999", "value '1e999' is not a finite float32", 8),
        "svmlight": (b"2 3:-3.5e38", "value '-3.5e38' is not a finite float32", 5),
        "xmc": (b"2 3:1e39", "value '1e39' is not a finite float32", 5),
    },
    "two colons": {
        "vw": (b"b |w x:1:2", "value '1:2' is not a number", 8),
        "svmlight": (b"2 3:1:2", "value '1:2' is not a number", 5),
        "xmc": (b"2 3:1:2", "value '1:2' is not a number", 5),
    },
    "NUL byte": {
        "vw": (b"b |w x\0y:1", "control byte after 'x'", 6),
        "svmlight": (b"2\x003:1", "control byte after '2'", 1),
        "xmc": (b"2 3:1\0", "control byte after '1'", 5),
    },
    "invalid UTF-8": {
        "vw": (b"b |w x:\xff", r"value '.xff' is not a number", 8),
        "svmlight": (b"2 \xff:1", r"index '.xff' is not an integer", 3),
        "xmc": (b"\xff 3:1", r"label '.xff' is not a number below", 1),
    },
    "wrong count": {
        "vw": (b"b 1 2 3 |w x", "importance '3' is not a number", 7),
        "svmlight": (b"1,2 3:1", "'1,2' is several labels", 1),
        "xmc": (b"1,2 3:1", "'1,2' is several labels", 1),
    },
    "qid or scale": {
        "vw": (b"b |w:x y", "'w:x' is not a namespace with a number as its scale", 4),
        "svmlight": (b"2 qid:x 3:1", "qid 'x' is not an integer", 7),
        "xmc": (b"2 qid: 3:1", "qid '' is not an integer", 7),
    },
}
CASES = [(kind, form) for kind, forms in BAD.items() for form in forms]


def content(form, lines):
    head = [b"%d 6 5" % len(lines)] if form == "xmc" else []
    return b"\n".join([*head, *lines]) + b"\n"


def read_as(form):
    """The options under which a row has one label."""
    return ["--format", form, "--multilabel", "off"]


def command(capsys, *arguments):
    code = main([*map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_a_bad_line_is_refused_by_its_place(kind, form, tmp_path, capsys):
    line, message, byte = BAD[kind][form]
    source = tmp_path / "rows.txt"
    source.write_bytes(content(form, [GOOD[form][0], line, GOOD[form][1]]))
    code, said, err = command(capsys, "convert", source, tmp_path / "o", *read_as(form))
    number = 3 if form == "xmc" else 2
    assert code == 3
    assert (said["error"]["line"], said["error"]["byte"]) == (number, byte)
    assert said["error"]["path"] == str(source)
    assert re.search(message, said["error"]["message"])
    lines = [text for text in err.splitlines() if text.startswith("streammach: error:")]
    assert len(lines) == 1
    assert f"rows.txt line {number} byte {byte}" in lines[0]
    assert [p.name for p in tmp_path.iterdir()] == ["rows.txt"]


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_a_bad_line_alone_is_left_out(kind, form, tmp_path, capsys):
    line, message, _ = BAD[kind][form]
    first, second = GOOD[form]
    good = content(form, [first, second, first])
    bad = content(form, [line, first, line, second, first, line])
    (tmp_path / "good").write_bytes(good)
    (tmp_path / "bad").write_bytes(bad)
    convert(tmp_path / "good", tmp_path / "a", format=form)
    skip = [*read_as(form), "--on-bad-row", "skip"]
    code, said, _ = command(capsys, "convert", tmp_path / "bad", tmp_path / "b", *skip)
    assert code == 0
    assert said["n_rows"] == 3
    assert list(said["skipped"].values()) == [3]
    words = max(re.split("'[^']*'", message, maxsplit=1), key=len).strip()
    assert words in next(iter(said["skipped"]))
    assert rows_by_name(tmp_path / "a") == rows_by_name(tmp_path / "b")


@pytest.mark.parametrize("form", GOOD)
def test_every_kind_is_counted_beside_the_others(form, tmp_path):
    lines = [bad[form][0] for bad in BAD.values()]
    mixed = [row for line in lines for row in (GOOD[form][0], line)]
    (tmp_path / "rows").write_bytes(content(form, mixed))
    done = convert(
        tmp_path / "rows", tmp_path / "o", format=form, multilabel="off", on_bad_row="skip"
    )
    assert done.n_rows == len(lines) == 16
    assert sum(done.skipped.values()) == 16
    assert len(done.skipped) >= 8
    assert all(reason.isprintable() and len(reason) < 80 for reason in done.skipped)


@pytest.mark.parametrize("form", GOOD)
def test_the_place_is_right_far_into_a_file(form, tmp_path):
    line, message, byte = BAD["value overflows"][form]
    lines = [GOOD[form][i % 2] for i in range(150_000)]
    lines[140_000] = line
    if form != "xmc":
        lines[5:7] = [b"", b"# note" if form == "svmlight" else b" \t"]
    (tmp_path / "rows.gz").write_bytes(gzip.compress(content(form, lines), 1))
    with pytest.raises(DataError, match=message) as caught:
        convert(tmp_path / "rows.gz", tmp_path / "o", format=form)
    assert caught.value.line == 140_001 + (form == "xmc")
    assert caught.value.byte == byte


@pytest.mark.parametrize("ending", [b"", b"\r\n"])
@pytest.mark.parametrize("form", GOOD)
def test_a_bad_last_line_is_seen_whatever_its_end(form, ending, tmp_path):
    line, message, _ = BAD["value is missing"][form]
    text = content(form, [GOOD[form][0], line]).rstrip(b"\n") + ending
    (tmp_path / "rows").write_bytes(text)
    with pytest.raises(DataError, match=message):
        convert(tmp_path / "rows", tmp_path / "o", format=form)


# Legal: the line, and the row that it is.
LEGAL = {
    "vw": [
        (b"b |w x:1 x:2 |w x", ("b", 1.0, ((b"w^x", 4.0),))),  # repeated: added up
        (b"b |w z y x", ("b", 1.0, ((b"w^x", 1.0), (b"w^y", 1.0), (b"w^z", 1.0)))),
        (b"b |", ("b", 1.0, ())),
        (b"b |w -3:1 0x1:2", ("b", 1.0, ((b"w^-3", 1.0), (b"w^0x1", 2.0)))),  # names, not numbers
        (b"b,c |w x:+1.5e0", ("b,c", 1.0, ((b"w^x", 1.5),))),
        (b"b |w x:0 y:1e-400 z:2 z:-2", ("b", 1.0, ())),
        (b"\xff |w \xfe", (b"\xff", 1.0, ((b"w^\xfe", 1.0),))),  # names are bytes
    ],
    "svmlight": [
        (b"2 3:1 3:2 3:1", (2, 1.0, ((b"3", 4.0),))),
        (b"2 9:1 4:1 3:1", (2, 1.0, ((b"3", 1.0), (b"4", 1.0), (b"9", 1.0)))),
        (b"2", (2, 1.0, ())),
        (b"2 0:1", (2, 1.0, ((b"0", 1.0),))),
        (b"2 3:-0", (2, 1.0, ())),
        (b"2 3:1 #\0 \xff x:y", (2, 1.0, ((b"3", 1.0),))),
        (b"dev 3:1", ("dev", 1.0, ((b"3", 1.0),))),
    ],
    "xmc": [
        (b"2 3:1 3:2 3:1", (2, 1.0, ((b"3", 4.0),))),
        (b"2 5:1 4:1 0:1", (2, 1.0, ((b"0", 1.0), (b"4", 1.0), (b"5", 1.0)))),
        (b"2", (2, 1.0, ())),
        (b"0 0:1", (0, 1.0, ((b"0", 1.0),))),
    ],
}


@pytest.mark.parametrize(("form", "number"), [(f, i) for f in LEGAL for i in range(len(LEGAL[f]))])
def test_what_is_odd_but_legal_is_kept(form, number, tmp_path):
    line, row = LEGAL[form][number]
    (tmp_path / "rows").write_bytes(content(form, [GOOD[form][0], line]))
    done = convert(tmp_path / "rows", tmp_path / "o", format=form, multilabel="off")
    found = rows_by_name(tmp_path / "o")
    assert done.skipped == {}
    assert done.duplicates == {0: 2, 5: form == "vw"}.get(number, 0)
    if form != "vw" and isinstance(row[0], str):  # one name that is no integer makes all text
        assert {label for label, *_ in found} == {"1", row[0]}
    assert row in found or any(r[1:] == row[1:] and str(r[0]) == str(row[0]) for r in found)


HEADERS = [
    (b"2 6 5 1", "is not the numbers of rows, columns and labels"),
    (b"1 6 5", "2 rows, the header names 1"),
    (b"3 6 5", "2 rows, the header names 3"),
    (b"2 x 5", "is not the numbers of rows"),
    (b"2 0 5", "is not the numbers of rows"),
    (b"-2 6 5", "is not the numbers of rows"),
]


@pytest.mark.parametrize(("header", "message"), HEADERS)
@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_a_wrong_header_of_xmc_text_is_never_skipped(header, message, on_bad_row, tmp_path):
    (tmp_path / "rows").write_bytes(b"\n".join([header, *GOOD["xmc"]]) + b"\n")
    with pytest.raises(DataError, match=message):
        convert(tmp_path / "rows", tmp_path / "o", format="xmc", on_bad_row=on_bad_row)
    assert [p.name for p in tmp_path.iterdir()] == ["rows"]


def test_a_file_of_bad_lines_only_is_refused(tmp_path):
    (tmp_path / "rows").write_bytes(b"b |w x:nan\n" * 5)
    with pytest.raises(DataError, match="no row could be read"):
        convert(tmp_path / "rows", tmp_path / "o", on_bad_row="skip")
