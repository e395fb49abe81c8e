"""Parsing VW and svmlight text: numbers, bad lines, ends of blocks (see also tests.properties)."""

import gzip
import re

import numpy as np
import pytest

from streammach.inputs.bad_rows import BadRows
from streammach.inputs.text import BLOCK_BYTES, TextSource
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError
from tests.properties.test_text_properties import by_plain, read


def parse_lines(tmp_path, data, form="vw", *, skip=True, **options):
    """Rows by line-start byte: {place: (label, weight, [(namespace^name, value)])}, bad counts."""
    path = tmp_path / "rows.txt"
    path.write_bytes(data)
    vocabulary, bad = Vocabulary(), BadRows(skip=skip)
    rows = {}
    for block in TextSource(path, form).blocks(vocabulary, bad, **options):
        for i in range(block.n_rows):
            part = slice(block.indptr[i], block.indptr[i + 1])
            rows[int(block.places[i])] = (
                int(block.classes[i]), float(block.importance[i]),
                block.features[part].tolist(), block.values[part].tolist(),
            )  # fmt: skip
    labels, features = vocabulary.label_names(), vocabulary.feature_names()
    return {
        place: (labels.raw(y), w, [features.raw(f) for f in ids], values)
        for place, (y, w, ids, values) in rows.items()
    }, bad


GOOD_VW = [
    b"a |",
    b"a | ",
    b"a b|f x",  # b touches the bar: the tag
    b"a 'b |f x",
    b"a 2 |f x",
    b"a 2 0.5 b|f x",
    b"label |f x:1 |g x:2 | x:3",
    b"l |f:2 x:1.5",
    b"1 | 1 2:2 3:0.5 4:-1e3",
    b"one|f x".replace(b"one|", b"one |"),
]


def test_vw_grammar(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_bytes(b"\n".join(GOOD_VW))
    assert read(path, "vw", BLOCK_BYTES) == by_plain(path.read_bytes(), "vw")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0.1", 0.1), (b"1e-45", 1e-45), (b"-0.0", -0.0), (b"1.17549435e-38", 1.17549435e-38),
        (b"1e22", 1e22), (b"1e23", 1e23),
        (b"123456789012345678901234567890", 1.2345678901234568e29),
        (b"0.000000000000000000000000000000000000000000001", 1e-45),
        (b"16777217", 16777217.0), (b"5e-324", 0.0), (b"8.589973e9", 8.589973e9),
        (b"0" * 400 + b"1", 1.0), (b"1" + b"0" * 30 + b"e-30", 1.0),
    ],
)  # fmt: skip
def test_numbers_are_rounded_as_python_rounds_them(text, value, tmp_path):
    found, _ = parse_lines(tmp_path, b"a |f x:" + text, skip=False)
    got = np.float32(found[0][3][0])
    assert got.tobytes() == np.float32(value).tobytes()


def test_numbers_beside_the_middle_of_two_float32_are_rounded_right(tmp_path, rng):
    """Where float32(approximate double) would go wrong: decimal text next to a midpoint."""
    from fractions import Fraction

    texts = []
    for x in rng.random(300).astype(np.float32):
        middle = (Fraction(float(x)) + Fraction(float(np.nextafter(x, np.float32(2))))) / 2
        for nudge in (-1, 0, 1):
            near = middle + Fraction(nudge, 10**26)
            texts.append(f"{int(near * 10**27):027d}")
    lines = b"\n".join(f"a |f x:0.{t}".encode() for t in texts)
    found, _ = parse_lines(tmp_path, lines, skip=False)
    got = np.array([row[3][0] for _, row in sorted(found.items())], np.float32)
    wanted = np.array([np.float32(float(f"0.{t}")) for t in texts], np.float32)
    assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("line", "message", "byte"),
    [(b"a 1", "no '|' after label 'a'", 1), (b"a|f x", "label 'a' touches '|'", 1),
     (b"a |f :1", "a feature has no name before ':1'", 6)],
)  # fmt: skip
def test_lines_of_vw_that_are_cut_are_refused(line, message, byte, tmp_path):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        parse_lines(tmp_path, b"1 | x\n\n" + line + b"\n", skip=False)
    assert (caught.value.line, caught.value.byte) == (3, byte)


def test_rows_are_the_same_wherever_the_blocks_end(tmp_path):
    line = b"label%d |w " + b" ".join(b"f%d:%d.5" % (i, i) for i in range(300))
    data = b"\n".join(line % (i % 7) for i in range(BLOCK_BYTES * 2 // len(line)))
    found, _ = parse_lines(tmp_path, data, skip=False)
    assert len(found) == data.count(b"\n") + 1
    assert len({str(row[1:]) for row in found.values()}) == 1
    assert sorted(found) == [i for i, b in enumerate(b"\n" + data[:-1]) if b == 10]


def test_a_line_longer_than_a_block_is_read(tmp_path):
    n = BLOCK_BYTES // 4
    data = b"a |w " + b" ".join(b"name%d" % i for i in range(n)) + b"\nb |w x\n"
    found, _ = parse_lines(tmp_path, data, skip=False)
    assert [len(row[2]) for row in found.values()] == [n, 1]


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b"\n\n\n"])
def test_any_line_ending_and_a_byte_order_mark_are_read(ending, tmp_path):
    newline = ending[:2] if ending.startswith(b"\r") else b"\n"
    data = b"\xef\xbb\xbf" + newline.join([b"a |w x", b"b |w y"]) + ending
    found, _ = parse_lines(tmp_path, data, skip=False)
    assert [row[0] for row in found.values()] == [b"a", b"b"]


def test_labels_may_be_missing_where_none_is_needed(tmp_path):
    data = b"|w x\n| y\n'tag |w x\ntag|w x\nknown |w x\n"
    path = tmp_path / "rows.vw"
    path.write_bytes(data)
    blocks = list(TextSource(path, "vw").blocks(Vocabulary(), BadRows(), label_needed=False))
    assert blocks[0].classes.tolist() == [-1, -1, -1, -1, 0]


def test_unknown_features_are_dropped_and_counted_where_names_are_fixed(tmp_path):
    path = tmp_path / "rows.vw"
    path.write_bytes(b"a |w x:1 new:16777217.00000000001 y:0.100000000000000005551 |z x:4\n")
    known = Vocabulary()
    list(TextSource(path, "vw").blocks(known, BadRows()))
    fixed = Vocabulary(known.label_names(), _without(known, b"w^new"), add_features=False)
    bad = BadRows()
    (block,) = TextSource(path, "vw").blocks(fixed, bad)
    assert bad.unknown_values == 1
    assert block.values.tolist() == [1, np.float32(0.1), 4]


def _without(vocabulary, name):
    from streammach.rows.names import Names

    names = vocabulary.feature_names()
    return Names.of([names.raw(i) for i in range(len(names)) if names.raw(i) != name])


def test_tables_grow_with_the_text(tmp_path):
    lines = [f"label{i} |space{i % 300} name{i}_{'x' * (i % 40)}" for i in range(9000)]
    found, _ = parse_lines(tmp_path, "\n".join(lines).encode(), skip=False)
    names = [row[2][0].decode() for _, row in sorted(found.items())]
    assert names == [f"space{i % 300}^name{i}_{'x' * (i % 40)}" for i in range(9000)]


@pytest.mark.parametrize("cut", [3, 12, 100, -9, -1])
def test_a_truncated_gzip_stream_is_refused(cut, tmp_path):
    whole = gzip.compress(b"a |w x y z\n" * 5000, 1)
    path = tmp_path / "cut.vw.gz"
    path.write_bytes(whole[:cut])
    with pytest.raises(DataError, match="gzip stream"):
        list(TextSource(path, "vw").blocks(Vocabulary(), BadRows()))


def test_several_gzip_members_are_one_text(tmp_path):
    path = tmp_path / "many.vw.gz"
    path.write_bytes(gzip.compress(b"a |w x\nb |") + gzip.compress(b"w y\nc |w z\n"))
    (block,) = TextSource(path, "vw").blocks(Vocabulary(), BadRows())
    assert block.n_rows == 3


def test_garbage_behind_a_gzip_stream_is_refused(tmp_path):
    path = tmp_path / "rows.vw.gz"
    path.write_bytes(gzip.compress(b"a |w x\n") + b"garbage")
    with pytest.raises(DataError, match="gzip stream"):
        list(TextSource(path, "vw").blocks(Vocabulary(), BadRows()))
