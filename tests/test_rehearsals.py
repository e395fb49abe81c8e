"""Small work in another process compiles what work needs later, where it may."""

from contextlib import contextmanager

import pytest

from streammach import rehearsals
from streammach.rehearsals import compiler


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

    monkeypatch.setattr(rehearsals, "beside", beside)
    monkeypatch.setattr(rehearsals, "cores", lambda: cores)
    monkeypatch.setattr(rehearsals, "compiler_bytes", lambda *kind: left)
    monkeypatch.setattr(rehearsals, "CACHE_DIR", folder)
    with compiler("a.module:name", ("a kind",), 7, fits=fits):
        assert at_work == ([("a.module:name", ("a kind",), (7,))] if begun else [])
    assert at_work == []
