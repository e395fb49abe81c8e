"""A small conversion in another process compiles what a conversion needs later."""

from types import SimpleNamespace

import pytest

from streammach.data import small_conversion
from streammach.data.small_conversion import BYTES, rehearsal, rehearse
from streammach.rows.canonical import copy_rows, sort_rows


def test_it_calls_what_follows_the_reading_and_remembers_that(tmp_path, monkeypatch):
    marks = []
    monkeypatch.setattr(small_conversion, "keep_compiled", lambda *kind: marks.append(kind))
    rehearse(str(tmp_path), ("a kind",))
    assert marks == [("rehearsal", "a kind")]
    for kernel in (copy_rows, sort_rows):
        assert any("uint8" in str(signature) for signature in kernel.signatures)


@pytest.mark.parametrize(
    ("memory", "threads", "there", "fits"),
    [(None, None, BYTES, True), ("1GB", None, BYTES, False), (None, 1, BYTES, False),
     (None, 2, BYTES - 1, False)],
)  # fmt: skip
def test_it_takes_no_memory_that_was_named(monkeypatch, memory, threads, there, fits):
    said = []
    monkeypatch.setattr(small_conversion, "compiler", lambda *_, fits: said.append(fits))
    limit = SimpleNamespace(n_bytes=there)
    monkeypatch.setattr(small_conversion, "memory_limit", lambda: limit)
    rehearsal(memory, threads)
    assert said == [fits]
