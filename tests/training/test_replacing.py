"""A run takes the place of a former one: ended at any operation, it is finished by --resume."""

import os
import shutil
from pathlib import Path

import pytest

from streammach.system import linux
from streammach.training import replacing
from streammach.training.replacing import run_folder
from streammach.training.run import NEXT, workplace

GOLDEN = Path(__file__).parents[1] / "golden/formats-1/run"
CALLS = [(os, "replace"), (os, "rename"), (os, "unlink"), (linux, "_rename_with")]
DOCUMENTS = ("plan.json", "training.json", "log.jsonl", "result.json", "model/model.json")
MOST = 40  # operations, and more


class Ended(BaseException):
    """The process is killed."""


@pytest.fixture
def out(tmp_path):
    """A run, and within it a whole one that is to replace it, whose documents end otherwise."""
    out = tmp_path / "run"
    shutil.copytree(GOLDEN, out, ignore=shutil.ignore_patterns("model"))
    shutil.copytree(GOLDEN.with_name("model"), out / "model")
    (out / "result.json").write_text("{}")
    shutil.copytree(out, out / NEXT, ignore=shutil.ignore_patterns(NEXT))
    workplace(out).open(request="former")
    workplace(out / NEXT).open(request="new")
    for name in DOCUMENTS:
        (out / NEXT / name).write_bytes((out / name).read_bytes() + b"\n")
    return out


def ended_at(number, out, monkeypatch):
    """Let a run take its place, and end at an operation; return whether it came that far."""
    left = [number]

    def counted(call):
        def counting(*given, **named):
            if not left[0]:
                raise Ended
            left[0] -= 1
            return call(*given, **named)

        return counting

    with monkeypatch.context() as patched:
        for module, name in CALLS:
            patched.setattr(module, name, counted(getattr(module, name)))
        try:
            replacing._take_place(out / NEXT, out)
        except Ended:
            return True
    return False


def test_there_are_so_many_operations(out, monkeypatch):
    assert not ended_at(MOST, out, monkeypatch)


@pytest.mark.parametrize("number", range(MOST))
def test_it_is_finished_wherever_it_ended(number, out, monkeypatch):
    former = {name: (out / name).read_bytes() for name in DOCUMENTS}
    ended_at(number, out, monkeypatch)
    if linux.LINUX or (out / "model").exists():  # elsewhere it has no name between two steps
        model = (out / "model/model.json").read_bytes()
        assert model in (former["model/model.json"], former["model/model.json"] + b"\n")
        assert (out / "model/model.safetensors").is_file()
    if (out / "result.json").exists() and (out / "model").exists():  # else it is no finished run
        kept = {name for name in DOCUMENTS if (out / name).read_bytes() == former[name]}
        assert kept in (set(), {*DOCUMENTS})
    with run_folder(out, force=False, resume=True) as folder:
        assert folder in (out, out / NEXT)  # the second if nothing was begun: it is whole
    assert {name: (out / name).read_bytes() for name in DOCUMENTS} == {
        name: text + b"\n" for name, text in former.items()
    }
    assert not (out / NEXT).exists()
    assert workplace(out).facts()["request"] == "new"
