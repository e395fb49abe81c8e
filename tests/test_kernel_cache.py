"""Where compiled kernels are kept: only folders that nobody else can write are trusted."""

import os

import pytest

from streammach import kernel_cache
from streammach.kernel_cache import KEPT_FOLDERS, MARKER, cache_folder


def test_a_folder_is_made_for_a_version_of_the_compiler(tmp_path):
    one = cache_folder(str(tmp_path), "1")
    assert one == cache_folder(str(tmp_path), "1")
    assert (one / MARKER).is_file()
    assert cache_folder(str(tmp_path), "2") != one


def test_old_folders_go_and_those_of_others_stay(tmp_path):
    other = tmp_path / "kernels-of-somebody"
    other.mkdir()
    made = [cache_folder(str(tmp_path), str(n)) for n in range(KEPT_FOLDERS + 2)]
    assert sum(folder.is_dir() for folder in made) == KEPT_FOLDERS
    assert other.is_dir()


def test_a_folder_that_others_can_write_is_not_used(tmp_path):
    folder = cache_folder(str(tmp_path), "1")
    folder.chmod(0o777)
    assert cache_folder(str(tmp_path), "1") is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are no owners")
def test_the_folder_of_another_user_is_not_used_unless_it_is_root(tmp_path, monkeypatch):
    folder = cache_folder(str(tmp_path), "1")
    owner = folder.stat().st_uid
    monkeypatch.setattr(kernel_cache.os, "getuid", lambda: owner + 1)
    assert cache_folder(str(tmp_path), "1") == (folder if owner == 0 else None)


def test_a_folder_that_cannot_be_written_is_copied_for_the_process(tmp_path, monkeypatch):
    folder = cache_folder(str(tmp_path), "1")
    (folder / "kernel.nbc").write_bytes(b"code")
    monkeypatch.setattr(kernel_cache.os, "access", lambda *_: False)
    ends = []
    monkeypatch.setattr(
        kernel_cache.atexit, "register", lambda *work, **how: ends.append((work, how))
    )
    copy = cache_folder(str(tmp_path), "1")
    assert copy != folder
    assert (copy / "kernel.nbc").read_bytes() == b"code"
    (remove, *given), how = ends.pop()
    remove(*given, **how)
    assert not copy.exists()
    assert folder.is_dir()


def test_where_nothing_can_be_written_there_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    assert cache_folder(str(tmp_path / "file"), "1") is None
