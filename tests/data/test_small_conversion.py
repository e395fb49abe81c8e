"""A small conversion in another process compiles what a conversion needs later."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from streammach.data import small_conversion
from streammach.data.small_conversion import BYTES, compiler, rehearsal, rehearse
from streammach.rows.canonical import copy_rows, sort_rows


def test_it_calls_what_follows_the_reading_and_remembers_that(tmp_path, monkeypatch):
    marks = []
    monkeypatch.setattr(small_conversion, "keep_compiled", lambda *kind: marks.append(kind))
    rehearse(str(tmp_path), ("a kind",))
    assert marks == [("rehearsal", "a kind")]
    for kernel in (copy_rows, sort_rows):
        assert any("uint8" in str(signature) for signature in kernel.signatures)


@pytest.mark.parametrize(
    ("fits", "cores", "left", "folder", "begun"),
    [
        (True, 2, 1, "folder", True), (False, 2, 1, "folder", False),
        (True, 1, 1, "folder", False), (True, 2, 0, "folder", False), (True, 2, 1, None, False),
    ],
)  # fmt: skip
def test_another_process_works_where_it_may_and_is_needed(
    monkeypatch, fits, cores, left, folder, begun
):
    at_work = []

    @contextmanager
    def beside(function, folder, kind, *said):
        at_work.append((function, kind, said))
        yield
        at_work.clear()

    monkeypatch.setattr(small_conversion, "beside", beside)
    monkeypatch.setattr(small_conversion, "cores", lambda: cores)
    monkeypatch.setattr(small_conversion, "compiler_bytes", lambda *kind: left)
    monkeypatch.setattr(small_conversion, "CACHE_DIR", folder)
    with compiler("a.module:name", ("a kind",), 7, fits=fits):
        assert at_work == ([("a.module:name", ("a kind",), (7,))] if begun else [])
    assert at_work == []


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
