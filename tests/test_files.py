"""Files and folders that are whole or absent, also after a process was killed."""

import errno
import os

import pytest

from streammach import files
from streammach.errors import DiskError


def test_what_a_killed_process_left_of_a_removed_folder_goes_with_the_next(tmp_path):
    for name in (".trash-1-a", ".trash-22-a", ".trash-1-b-a", ".trash-1-b", "a"):
        (tmp_path / name / "inside").mkdir(parents=True)
    files.remove_folder(tmp_path / "a")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".trash-1-b", ".trash-1-b-a"]
    (tmp_path / ".trash-3-a").mkdir()
    files.remove_folder(tmp_path / "a")
    assert not (tmp_path / ".trash-3-a").exists()
    files.remove_folder(tmp_path / "no" / "such")


def test_a_folder_that_cannot_take_its_name_leaves_the_old_one(tmp_path, monkeypatch):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    monkeypatch.setattr(files, "_exchange", lambda a, b: False)
    rename = os.rename

    def failing(a, b):
        if a == tmp_path / "new":
            raise OSError(errno.EIO, "broken")
        rename(a, b)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing)
        with pytest.raises(DiskError, match="broken"):
            files.commit_folder(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old/file").read_text() == "old"
    files.commit_folder(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old/file").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["old"]


def test_a_copied_file_is_whole_and_its_source_stays(tmp_path):
    (tmp_path / "a").write_text("text")
    (tmp_path / ".b.tmp").write_text("what a killed process left")
    assert files.copy_file(tmp_path / "a", tmp_path / "b")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "b").read_text() == "text"
    (tmp_path / "a").unlink()
    assert not files.copy_file(tmp_path / "a", tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_temporary_files_are_told_from_shards_that_are_open(tmp_path):
    folder = tmp_path / "store/c"
    folder.mkdir(parents=True)
    for name in (".0.tmp", ".zarr.json.77.tmp", "zarr.json"):
        (folder / name).touch()
    (tmp_path / ".run-000001.77.tmp").touch()
    files.remove_temporaries(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [".0.tmp", "c", "store", "zarr.json"]
