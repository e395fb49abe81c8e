"""Small work in another process compiles what work needs later, where it may."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from streammach.system import rehearsals
from streammach.system.errors import DataError, DiskError
from streammach.system.files.folders import temporary_folder
from streammach.system.jit import kernel
from streammach.system.processes import AGAIN, run
from streammach.system.rehearsals import compile_first, compiler


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
        assert os.listdir(folder) == []
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


@pytest.mark.parametrize(
    ("ended", "kept", "done"),
    [
        ([None], [3], True), ([AGAIN, None], [3, 5], True), ([AGAIN, AGAIN], [3, 5, 5], False),
        ([DataError("bad")], [3], False), ([OSError("gone")], [3], False),
    ],
)  # fmt: skip
def test_processes_compile_one_after_another_until_all_is_kept(monkeypatch, ended, kept, done):
    folders, marks, told = [], [], []

    def run(function, most, work, folder, kind, *said, **nowhere):
        assert (function, most, work) == (
            "streammach.system.rehearsals:compile_here",
            99,
            "a.module:name",
        )
        assert (kind, said, os.listdir(folder)) == (("a kind",), (7,), [])
        folders.append(folder)
        result = ended[len(folders) - 1]
        if isinstance(result, Exception):
            raise result
        return result

    counts = iter(kept)
    monkeypatch.setattr(rehearsals, "run", run)
    monkeypatch.setattr(rehearsals, "kept_kernels", lambda: (next(counts), 0))
    monkeypatch.setattr(rehearsals, "remember_compiled_work", lambda *kind: marks.append(kind))
    monkeypatch.setattr(rehearsals, "announce_compilation", told.append)
    monkeypatch.setattr(rehearsals, "CACHE_DIR", "folder")
    assert compile_first("a.module:name", ("a kind",), 7, most=99) == done
    assert marks == [("a kind",)] * done
    assert told == [rehearsals.FIRST]
    assert len({*folders}) == len(ended)
    monkeypatch.setattr(rehearsals, "CACHE_DIR", None)
    assert not compile_first("a.module:name", ("a kind",), 7, most=99)
    assert len(told) == 1


def one_more(x):
    return x + 1


def two_more(x):
    return x + 2


def work_of_two_kernels(folder, mark):
    for function in (one_more, two_more):
        assert kernel()(function)(1) > 1
        Path(mark, function.__name__).touch()


def test_a_process_that_holds_too_much_ends_between_two_kernels(tmp_path, monkeypatch):
    kept, mark = tmp_path / "kernels", tmp_path / "done"
    mark.mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(kept))
    here, work = "streammach.system.rehearsals:compile_here", f"{__name__}:work_of_two_kernels"
    assert run(here, 1, work, "", str(mark)) == AGAIN
    assert os.listdir(mark) == ["one_more"]
    assert run(here, 1, work, "", str(mark)) is None  # the first one is kept, the second is made
    assert sorted(os.listdir(mark)) == ["one_more", "two_more"]
