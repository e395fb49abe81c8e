"""Small work in another process compiles what work needs later, where it may."""

import tempfile
from contextlib import contextmanager

import pytest

from streammach import rehearsals
from streammach.errors import DiskError
from streammach.files.folders import temporary_folder
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


def test_work_needs_no_room_for_it(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)  # all disks are full
    with pytest.raises(DiskError, match=r"^No usable temporary .*: TMPDIR"), temporary_folder():
        pass
    monkeypatch.setattr(rehearsals, "cores", lambda: 2)
    monkeypatch.setattr(rehearsals, "compiler_bytes", lambda *kind: 1)
    monkeypatch.setattr(rehearsals, "CACHE_DIR", "folder")
    with compiler("a.module:name", ("a kind",), fits=True):
        pass
