"""Text whose first lines fill a piece of their own, and gzip streams with a changed byte."""

import gzip

import pytest

import streammach.inputs.text as text
from streammach.conversion.explore import explore
from streammach.inputs.bad_rows import BadRows
from streammach.inputs.text import TextSource
from streammach.rows.vocabulary import Vocabulary
from streammach.system.errors import DataError


def read(path, form):
    return [b.n_rows for b in TextSource(path, form).blocks(Vocabulary(), BadRows())]


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_a_header_counts_as_a_line_where_a_long_row_follows(tmp_path, monkeypatch, block_bytes):
    """The header was in a piece of its own, and its line was forgotten."""
    monkeypatch.setattr(text, "BLOCK_BYTES", block_bytes)
    long = " ".join(f"{i}:1" for i in range(60))
    path = tmp_path / "rows.txt"
    path.write_text(f"1 60 2\n0 {long}\n1 2:1\n")
    with pytest.raises(DataError, match="2 rows, the header names 1"):
        read(path, "xmc")
    path.write_text(f"2 60 2\n0 {long}\n1 x:1\n")
    with pytest.raises(DataError, match=r"index 'x' is not an integer.*line 3 byte 3"):
        read(path, "xmc")


def test_any_bit_of_a_gzip_stream_that_matters_is_told(tmp_path):
    """Some made ISA-L raise an error that is neither zlib's nor gzip's."""
    path = tmp_path / "rows.vw.gz"
    whole = gzip.compress(b"a |w x:1 y\nb |w z\n" * 3, mtime=0)
    refused = 0
    for at in range(2, len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            try:
                assert sum(read(path, "vw")) == 6
            except DataError as error:
                refused += "the gzip stream" in str(error)
    assert refused > len(whole) * 4


@pytest.mark.parametrize(
    "behind", [b"", bytes(7), bytes(1 << 17), gzip.compress(b"a |w x\n", mtime=0)]
)
def test_what_may_stand_behind_a_gzip_member_is_read_alike_everywhere(tmp_path, behind):
    path = tmp_path / "rows.vw.gz"
    path.write_bytes(gzip.compress(b"a |w x:1 y\nb |w z\n" * 3, mtime=0) + behind)
    rows = sum(read(path, "vw"))
    assert rows == 6 + (b"\x1f" in behind)
    assert explore([path]).rows == rows
