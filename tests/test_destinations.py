"""What stands in the way of an output stays, and is found before anything is written."""

import os

import pytest

from streammach.conversion.convert import convert, tidy
from streammach.options.documents import to_json
from streammach.store.dataset import Dataset
from streammach.system.errors import UsageError
from tools.synthetic.files import destination_of


@pytest.mark.parametrize("name", [".", "..", "x/..", "/"])
def test_a_path_without_a_name_is_refused(name, tiny, monkeypatch):
    source = tiny.text("a.vw", tiny.lines(20, 3))
    (tiny.folder / "x").mkdir()
    monkeypatch.chdir(tiny.folder / "x")
    with pytest.raises(UsageError, match="does not end in a name"):
        convert(source, name, force=True)
    assert sorted(path.name for path in tiny.folder.iterdir()) == ["a.vw", "x"]


@pytest.mark.parametrize("force", [False, True])
def test_a_foreign_folder_with_the_name_of_an_unfinished_conversion_stays(force, tiny):
    source = tiny.text("a.vw", tiny.lines(20, 3))
    theirs = tiny.folder / ".out.partial/thesis.txt"
    theirs.parent.mkdir()
    theirs.write_text("mine")
    with pytest.raises(UsageError, match="name of an unfinished conversion"):
        convert(source, tiny.folder / "out", force=force)
    assert theirs.read_text() == "mine"


def test_what_a_conversion_left_that_was_killed_at_its_end_goes(tiny):
    source = tiny.text("a.vw", tiny.lines(20, 3))
    convert(source, tiny.folder / "out")
    left = tiny.folder / ".out.partial/runs"
    left.mkdir(parents=True)
    tidy(tiny.folder / "out")
    assert sorted(path.name for path in tiny.folder.iterdir()) == ["a.vw", "out"]


def test_two_outputs_of_one_call_are_not_the_same(tmp_path):
    with pytest.raises(UsageError, match="read as well"):
        destination_of(tmp_path / "a.vw", others=[tmp_path / "a.vw"])


def test_the_facts_of_a_store_can_be_saved_whatever_its_name_is(tiny):
    source = tiny.text("a.vw", tiny.lines(20, 3))
    out = os.fsdecode(os.fsencode(tiny.folder) + b"/\xff.zarr")
    convert(source, out)
    with Dataset.open(out) as data:
        assert b"\\\\xff.zarr" in to_json(data.facts)
