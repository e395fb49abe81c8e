"""Properties of the text formats, by hypothesis.

Rows that are printed are read again, at every block size. And no text makes a parser crash, or read
other rows than a plain parser does: documents of pieces of the grammars, numbers at the edges of
their types, and any bytes. Rows, weights, names, values and the number of bad rows are held to the
plain parser of the tests; XMC text has none, there two block sizes are held to each other. The same
documents go through gzip, whole (then rows are the same), or cut, flipped or with bytes behind
(then they are refused, or are the rows of the members before). ``HYPOTHESIS_EXAMPLES`` says how
many there are at night.
"""

import gzip
import os
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import streammach.inputs.text as parser_of_text
from streammach.inputs.bad_rows import BadRows
from streammach.inputs.text import TextSource
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError
from tests.reference import text as plain

MANY = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "2000")), deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
FEW = settings(MANY, max_examples=100, derandomize=True)
NIGHTLY = (pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(3600))
SHORT = settings(
    max_examples=50, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
MARK_OF_ORDER = b"\xef\xbb\xbf"
NUMBERS = [
    b"1", b"2.5", b"-1e-3", b"12345678.5", b"3E+2", b".5", b"7.", b"+3", b"0", b"-0", b"1e39",
    b"nan", b"-inf", b"1e", b"x", b"1e-45", b"16777217", b"340282346638528859811704183484516925440",
    b"3.4028235677973366e38", b"0.1000000000000000055511151231257827", b"1:2", b"--1", b"1e999",
    b"9" * 400, b"0." + b"0" * 300 + b"1", b"1e-400", b"1_0", b"0x10", b"1e+", b"00012",
]  # fmt: skip
MARKS = [b" ", b"\t", b"\r", b"\x0b", b"\x0c", b"|", b":", b"^", b"'", b"#", b",", b"|w ", b"|w:2 "]
WORDS = [b"a", b"w", b"qid:", b"qid:3", b"07", b"x^y", b"\xc3\xa9t", b"\xff\xfe", b"\x00", b"tag",
         b"exactly_sixteen_", b"123456789", b"9999999999999999999", b"'tag", b"\xef\xbb\xbf",
         b"1:", b":1", b"3:1", b"5:2.5", b"label"]  # fmt: skip
PIECE = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(MARKS), st.sampled_from(WORDS),
    st.binary(max_size=3).map(lambda raw: raw.replace(b"\n", b" ")),
)  # fmt: skip
NAME = st.sampled_from(WORDS)
FEATURE = st.tuples(NAME, st.sampled_from([b"", b":", b":"]), st.sampled_from(NUMBERS)).map(
    lambda part: b"".join(part[: 3 if part[1] else 1])
)
WEIGHTS = [b" |", b" 2 |", b" 0 |", b" 1e-46 t|", b" 1e9|", b" 1000000001 |", b" t|", b"|"]
LINES = {
    "vw": st.one_of(
        st.lists(PIECE, max_size=12).map(b"".join),
        st.tuples(NAME, st.sampled_from(WEIGHTS), st.lists(FEATURE)).map(
            lambda parts: parts[0] + parts[1] + b"w " + b" ".join(parts[2])
        ),
    ),
    "svmlight": st.one_of(
        st.lists(PIECE, max_size=12).map(b"".join),
        st.tuples(st.sampled_from(NUMBERS), st.lists(FEATURE)).map(
            lambda parts: parts[0] + b" " + b" ".join(parts[1])
        ),
    ),
}

WORD = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_characters=":|^'\x7f"),
    min_size=1, max_size=20,
).filter(lambda name: not name[0].isdigit() and name.isprintable())  # fmt: skip
VALUE = st.floats(width=32, allow_nan=False, allow_infinity=False)
PAIR = st.tuples(st.sampled_from(["", "w", "long namespace".replace(" ", "_")]), WORD, VALUE)
WHOLE = st.tuples(WORD, st.lists(PAIR, max_size=8))

END = st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"])
BLOCK = st.sampled_from([64, 65, 100, 257, 1 << 12, 1 << 20])
LINES["xmc"] = LINES["svmlight"]
HEADS = [b"", b"3 9 5\n", b"2 9 5\n", b"1 1 1\n", b"3 9\n", b"9" * 20 + b" 1 1\n"]  # of XMC


def documents(form):
    parts = st.tuples(st.lists(LINES[form], max_size=12), END)
    return parts.map(lambda part: b"\n".join(part[0]) + part[1])


def read(path, form, block_bytes):
    """Rows by the byte at which their line begins, and the number of bad ones."""
    vocabulary, bad, rows = Vocabulary(), BadRows(skip=True), {}
    before, parser_of_text.BLOCK_BYTES = parser_of_text.BLOCK_BYTES, block_bytes
    try:
        for block in TextSource(path, form).blocks(vocabulary, bad):
            for i in range(block.n_rows):
                part = slice(block.indptr[i], block.indptr[i + 1])
                rows[int(block.places[i])] = (
                    int(block.classes[i]), float(block.importance[i]),
                    block.features[part].tolist(), block.values[part].tolist(),
                )  # fmt: skip
    finally:
        parser_of_text.BLOCK_BYTES = before
    labels, names = vocabulary.label_names(), vocabulary.feature_names()
    found = {
        place: (labels.raw(y), weight, [names.raw(f) for f in ids], values)
        for place, (y, weight, ids, values) in rows.items()
    }
    return found, sum(bad.reasons.values())


def spelled(space, name):
    """A feature's name as the parser joins it."""
    if space:
        return space + b"^" + name
    return b"^" + name if b"^" in name else name


def by_plain(data, form):
    """What :func:`read` should return, by the plain parser."""
    rows, n_bad = {}, 0
    place = 0  # behind a mark
    for line in data.removeprefix(MARK_OF_ORDER).split(b"\n"):
        blank = not plain.tokens(line)
        if not (blank or (form == "svmlight" and plain.tokens(line)[0].startswith(b"#"))):
            try:
                if CONTROL.search(line.split(b"#")[0] if form == "svmlight" else line):
                    raise plain.BadLine("a byte that no text has")
                label, weight, features = getattr(plain, form)(line)
                names = [spelled(space, name) for space, name, _ in features]
                values = [float(np.float32(value)) for _, _, value in features]
                if np.float32(weight) > 0:  # others are left out: they would change nothing
                    rows[place] = (label, float(np.float32(weight)), names, values)
            except plain.BadLine:
                n_bad += 1
        place += len(line) + 1
    return rows, n_bad


def found_in(path, form, block_bytes):
    """What :func:`read` returns, or what it says: of XMC text without its header, say."""
    try:
        return read(path, form, block_bytes)
    except DataError as error:
        return str(error)


@pytest.mark.parametrize(
    "profile", [FEW, pytest.param(MANY, marks=NIGHTLY)], ids=["few", "many"]
)  # fmt: skip
@pytest.mark.parametrize("form", LINES)
def test_rows_are_those_of_the_plain_parser(form, profile, tmp_path):
    path = tmp_path / "rows.txt"

    @profile
    @given(documents(form), st.sampled_from(HEADS), BLOCK)
    def check(data, head, block_bytes):
        text = (head if form == "xmc" else b"") + data
        assume(text[:2] not in (b"\xff\xfe", b"\xfe\xff"))  # it is told that it is UTF-16
        path.write_bytes(text)
        wanted = by_plain(text, form) if form != "xmc" else found_in(path, form, 1 << 20)
        assert found_in(path, form, block_bytes) == wanted

    check()


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_packed_text_is_what_it_holds_or_is_refused(tmp_path):
    path = tmp_path / "rows.txt"

    @MANY
    @given(
        documents("vw"), st.sampled_from(["none", "cut", "flip", "behind", "zeros", "twice"]),
        st.integers(0, 1 << 16),
    )  # fmt: skip
    def check(data, harm, where):
        assume(data[:2] not in (b"\xff\xfe", b"\xfe\xff"))  # as above
        whole = gzip.compress(data, 1, mtime=0)
        at = where % len(whole)
        harmed = {
            "none": whole, "cut": whole[:at], "behind": whole + b"more",
            "flip": whole[:at] + bytes([whole[at] ^ (1 << where % 8)]) + whole[at + 1 :],
            "zeros": whole + bytes(at), "twice": whole + whole,
        }[harm]  # fmt: skip
        wanted = {"none": data, "zeros": data, "twice": data + data}.get(harm)
        path.write_bytes(harmed)
        if not harmed.startswith(b"\x1f\x8b"):
            wanted = harmed  # text of its own
        try:
            found = read(path, "vw", 1 << 12)
        except DataError as error:
            said = str(error)
            assert wanted is None, said
            assert "gzip" in said
        else:  # some bytes of the header mean nothing: a flip there changes no row
            assert found == by_plain(data if wanted is None else wanted, "vw")

    check()


def printed(path, form, block_bytes):
    """Rows in the order of the file: (label, [(name, value)])."""
    rows, _ = read(path, form, block_bytes)
    found = [rows[place] for place in sorted(rows)]
    return [
        (label.decode(), [(name.decode(), x) for name, x in zip(names, values, strict=True)])
        for label, _, names, values in found
    ]


@SHORT
@given(rows=st.lists(WHOLE, min_size=1, max_size=20), block_bytes=st.integers(64, 4096))
def test_vw_rows_survive_printing_and_parsing(rows, block_bytes, tmp_path):
    lines = [
        label
        + " "
        + " ".join(f"|{space} {name}:{value!r}" for space, name, value in features)
        + ("" if features else "|")
        for label, features in rows
    ]
    path = tmp_path / "rows.vw"
    path.write_bytes("\n".join(lines).encode())
    wanted = [
        (label, [(f"{s}^{name}" if s else name, float(np.float32(x))) for s, name, x in features])
        for label, features in rows
    ]
    assert printed(path, "vw", block_bytes) == wanted


@SHORT
@given(
    rows=st.lists(
        st.tuples(
            st.integers(-99, 10**12),
            st.dictionaries(st.integers(0, 10**18 - 1), VALUE, max_size=8),
        ),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_svmlight_rows_survive_printing_and_parsing(rows, tmp_path):
    path = tmp_path / "rows.svm"
    lines = [f"{y} " + " ".join(f"{f}:{v!r}" for f, v in x.items()) for y, x in rows]
    path.write_text("\n".join(lines))
    wanted = [(str(y), [(str(f), float(np.float32(v))) for f, v in x.items()]) for y, x in rows]
    assert printed(path, "svmlight", 1 << 20) == wanted
