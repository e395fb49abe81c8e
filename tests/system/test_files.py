"""Files and folders that are whole or absent, also after a process was killed."""

import errno
import os
from pathlib import Path

import filelock
import pytest

from streammach.system import linux
from streammach.system.errors import DiskError, UsageError
from streammach.system.files import folders, writing
from streammach.system.files.destinations import Destination
from streammach.system.files.folders import MARKER, SCRATCH, commit_folder, remove_folder, scratch
from tests.builders import names_in


def left_by_a_killed_process(folder, marker=SCRATCH):
    """A scratch folder whose owner is gone."""
    (folder / "content/inside").mkdir(parents=True)
    (folder / ".content.0123abcd.tmp").touch()
    (folder / MARKER).write_bytes(marker)


def test_what_a_killed_process_left_of_a_removed_folder_goes_with_the_next(tmp_path):
    for name in (".a.0123abcd.scratch", ".a.0123abce.scratch", ".b.0123abcd.scratch"):
        left_by_a_killed_process(tmp_path / name)
    (tmp_path / ".a.01234567.scratch").mkdir()  # killed before it had its marker
    (tmp_path / "a/inside").mkdir(parents=True)
    remove_folder(tmp_path / "a")
    assert names_in(tmp_path) == [".b.0123abcd.scratch"]
    left_by_a_killed_process(tmp_path / ".a.0123abcd.scratch")
    remove_folder(tmp_path / "a")
    assert names_in(tmp_path) == [".b.0123abcd.scratch"]
    remove_folder(tmp_path / "no" / "such")
    (tmp_path / "b").touch()
    with pytest.raises(UsageError, match="exists already"):  # what was killed at its very end
        Destination(tmp_path / "b", lambda path: None)
    assert names_in(tmp_path) == ["b"]


@pytest.mark.parametrize("name", ["rename", "fsync"])
def test_a_folder_that_cannot_be_removed_is_told(tmp_path, monkeypatch, name):
    def failing(*_):
        raise OSError(errno.EIO, "it is broken")

    (tmp_path / "a").mkdir()
    monkeypatch.setattr(os, name, failing)
    with pytest.raises(DiskError, match="it is broken"):
        remove_folder(tmp_path / "a")


def test_folders_that_only_have_such_a_name_stay(tmp_path):
    (tmp_path / ".a.users000.scratch").mkdir()
    (tmp_path / ".a.users000.scratch/thesis.txt").touch()
    left_by_a_killed_process(tmp_path / ".a.marked00.scratch", b"{}")
    (tmp_path / "elsewhere").mkdir()
    left_by_a_killed_process(tmp_path / "elsewhere/.x")
    (tmp_path / ".a.linked00.scratch").symlink_to(tmp_path / "elsewhere/.x")
    before = sorted(tmp_path.rglob("*"))
    with scratch(tmp_path / "a"):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_a_scratch_folder_in_use_is_not_taken_for_one_that_was_left(tmp_path):
    with scratch(tmp_path / "a") as mine:
        mine.write_text("mine")
        with scratch(tmp_path / "a") as other:
            assert other != mine
        assert mine.read_text() == "mine"
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("atomic", [True, False])
def test_a_folder_that_cannot_take_its_name_leaves_the_old_one(atomic, tmp_path, monkeypatch):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    if not atomic:
        monkeypatch.setattr(linux, "_rename_with", lambda a, b, flags: False)
    rename = os.rename

    def failing(a, b):
        if a == tmp_path / "new":
            raise OSError(errno.EIO, "broken")
        rename(a, b)

    if not atomic:
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", failing)
            with pytest.raises(DiskError, match="broken"):
                commit_folder(tmp_path / "new", tmp_path / "old")
        assert (tmp_path / "old/file").read_text() == "old"
    commit_folder(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old/file").read_text() == "new"
    assert (tmp_path / "new/file").read_text() == "old"


@pytest.mark.parametrize("atomic", [True, False])
def test_a_name_that_is_taken_is_not_taken_away(atomic, tmp_path, monkeypatch):
    (tmp_path / "new").mkdir()
    (tmp_path / "taken").write_text("theirs")
    if not atomic:
        monkeypatch.setattr(linux, "_rename_with", lambda a, b, flags: False)
    with pytest.raises(FileExistsError):
        linux.rename_new(tmp_path / "new", tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "theirs"


def test_temporary_files_are_removed_and_others_stay(tmp_path):
    folder = tmp_path / "store/c"
    folder.mkdir(parents=True)
    for name in (".zarr.json.0123abcd.tmp", "zarr.json", ".notes.tmp"):
        (folder / name).touch()
    (tmp_path / ".run-000001.fedcba98.tmp").touch()
    writing.remove_temporaries(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [".notes.tmp", "c", "store", "zarr.json"]


def test_a_temporary_file_follows_no_link_and_takes_no_name_that_is_there(tmp_path, monkeypatch):
    (tmp_path / "theirs").write_text("theirs")
    monkeypatch.setattr(writing.secrets, "token_hex", lambda n: "0123abcd")
    (tmp_path / ".a.0123abcd.tmp").symlink_to(tmp_path / "theirs")
    with pytest.raises(DiskError):
        writing.write_atomic(tmp_path / "a", b"x")
    assert (tmp_path / "theirs").read_text() == "theirs"


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("n", [1, 4, 5])
def test_a_scratch_folder_that_another_process_removes_is_made_again(
    n, locked, tmp_path, monkeypatch
):
    acquire, taken = filelock.FileLock.acquire, []

    def lost(lock, *given, **options):  # before it is locked, it is taken for one that was left
        if len(taken) == n:
            return acquire(lock, *given, **options)
        taken.append(lock.lock_file)
        os.rmdir(os.path.dirname(lock.lock_file))
        error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        raise filelock.Timeout(lock.lock_file) if locked else error

    monkeypatch.setattr(filelock.FileLock, "acquire", lost)
    if n == folders.SCRATCH_TRIES:
        with pytest.raises(DiskError), scratch(tmp_path / "a"):
            pass
    else:
        with scratch(tmp_path / "a") as mine:
            assert mine.parent.is_dir()
            assert len(taken) == len(set(taken)) == n
    assert names_in(tmp_path) == []


def test_a_full_disk_leaves_no_scratch_folder(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DiskError, match="No space left"), scratch(tmp_path / "a"):
        raise AssertionError("never reached")
    assert names_in(tmp_path) == []
