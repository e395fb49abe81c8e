"""Commands where names, terminals, encodings and limits are not the usual ones."""

import io
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streammach.cli.main import main
from streammach.system import machine
from streammach.system.errors import BudgetError
from tests.builders import TinyData

QUICK = ["--epochs", "1", "--learning-rate", "0.5", "--transform", "binary", "--threads", "1"]
MODEL = ["--buckets", "4", "--repetitions", "3", "--counts", "off"]
LONG = "n" * 245  # as a name it would do, but not with what stands around it meanwhile


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A folder with odd letters that holds text, a store and a run, whose labels have them."""
    tiny = TinyData(tmp_path_factory.mktemp("übung 日"), np.random.default_rng(7))
    lines = [line.replace("class-", "klasse-ü日-") for line in tiny.lines(300, 12)]
    tiny.text("rows.vw", lines)
    tiny.text("mehr.vw", [f"neu-日 {line.partition(' ')[2]}" for line in lines[:20]])
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tiny.folder)
        assert main(["convert", "rows.vw", "日.zarr", "--progress", "none"]) == 0
        assert main(["train", "日.zarr", "--out", "lauf-ü", *MODEL, *QUICK]) == 0
    return tiny.folder


COMMANDS = [
    ["explore", "rows.vw"], ["convert", "rows.vw", "neu-ü.zarr", "--force"], ["verify", "日.zarr"],
    ["info", "日.zarr"], ["info", "lauf-ü"], ["plan", "日.zarr", *MODEL],
    ["train", "日.zarr", "--out", "lauf2-ü", *MODEL, *QUICK], ["evaluate", "lauf-ü", "日.zarr"],
    ["predict", "lauf-ü", "rows.vw"], ["shrink", "lauf-ü", "--weights", "int8", "--out", "kl-ü"],
    ["add", "lauf-ü", "mehr.vw", "--out", "mehr-ü", "--force"],
    ["report", "lauf-ü", "--out", "seite-ü.html"], ["fit", "rows.vw", "--out", "fit-ü", *QUICK],
    ["info", "fehlt-ü"], ["train", "日.zarr", "--out", "x", "--validation", "fehlt-ü", *MODEL],
]  # fmt: skip


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp037", "utf-16"])
def test_every_command_writes_in_the_encoding_of_its_output(encoding, job, monkeypatch):
    """What an encoding lacks is escaped; no command ends for it."""
    monkeypatch.chdir(job)
    for command in COMMANDS:
        outputs = io.BytesIO(), io.BytesIO()
        for name, raw in zip(("stdout", "stderr"), outputs, strict=True):
            monkeypatch.setattr(sys, name, io.TextIOWrapper(raw, encoding, write_through=True))
        as_json = "--json" if command[0] in ("info", "evaluate", "verify", "plan") else None
        code = main([*command, *filter(None, [as_json])])
        said = [raw.getvalue().decode(encoding) for raw in outputs]
        assert code == (2 if "fehlt-ü" in command else 0), (command, said[1])
        assert "Traceback" not in said[1]
        if as_json:
            json.loads(said[0])
        for name in ("lauf2-ü", "kl-ü", "fit-ü", "viele-ü"):
            shutil.rmtree(name, ignore_errors=True)
        Path("seite-ü.html").unlink(missing_ok=True)
    assert not (job / "x").exists()  # the request was refused before anything was written


def test_a_process_without_a_language_takes_odd_names(job):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment.pop("PYTHONIOENCODING", None)
    command = ["predict", "lauf-ü", "rows.vw", "--out", "pred-ü.tsv"]
    done = subprocess.run(
        [sys.executable, "-m", "streammach", *command], env=environment, cwd=job, check=False,
        capture_output=True,
    )  # fmt: skip
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    assert "klasse-ü日-" in (job / "pred-ü.tsv").read_text("utf-8")


WRITERS = [
    ["convert", "rows.vw", "{}"], ["predict", "lauf-ü", "rows.vw", "--out", "{}"],
    ["shrink", "lauf-ü", "--weights", "int8", "--out", "{}"], ["report", "lauf-ü", "--out", "{}"],
    ["add", "lauf-ü", "mehr.vw", "--out", "{}"],
]  # fmt: skip
FOLDERS = [
    ["train", "日.zarr", "--out", "{}", *MODEL, *QUICK], ["fit", "rows.vw", "--out", "{}", *QUICK],
    ["demo", "--folder", "{}"],
]  # fmt: skip


def refused(capsys, command, out):
    code = main([word.replace("{}", out) for word in command])
    error = capsys.readouterr().err.splitlines()[-1]
    return code, error


def test_a_current_folder_that_is_gone_is_named(job, tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    command = ["train", str(job / "train.zarr"), "--out", "run2", *MODEL]
    assert "No such file or directory: the current folder" in refused(capsys, command, "")[1]


@pytest.mark.parametrize("name", [LONG, "ü" * 125])
@pytest.mark.parametrize("command", WRITERS, ids=lambda words: words[0])
def test_a_name_too_long_is_refused_before_the_work(command, name, job, monkeypatch, capsys):
    monkeypatch.chdir(job)
    before = sorted(os.listdir())
    code, error = refused(capsys, command, name)
    assert code == 2
    assert "its name is too long" in error
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("command", [*WRITERS, *FOLDERS], ids=lambda words: words[0])
def test_where_nothing_can_be_made_is_said_so(command, job, monkeypatch, capsys):
    """It was taken for a store that another process writes."""
    monkeypatch.chdir(job)
    for out in ("/proc/x", "n" * 256):
        code, error = refused(capsys, command, out)
        assert code in (2, 7), error
        assert "another process" not in error
        assert "Traceback" not in error


@pytest.mark.parametrize(
    "command",
    [["verify", "no"], ["info", "no"], ["plan", "no"], ["train", "no", "--out", "x", *MODEL],
     ["evaluate", "no", "日.zarr"], ["evaluate", "lauf-ü", "no"], ["predict", "no", "rows.vw"],
     ["predict", "lauf-ü", "no"], ["shrink", "no", "--out", "x"], ["report", "no"],
     ["add", "no", "mehr.vw", "--out", "x"], ["add", "lauf-ü", "no", "--out", "x"],
     ["add", "lauf-ü", "mehr.vw", "--out", "x", "--on", "no"],
     ["convert", "rows.vw", "x", "--like", "no"],
     ["report", "lauf-ü", "--on", "no"]],
    ids=" ".join,
)  # fmt: skip
def test_what_is_not_there_is_a_wrong_call_and_no_damage(command, job, monkeypatch, capsys):
    monkeypatch.chdir(job)
    before = sorted(os.listdir())
    code, error = refused(capsys, command, "")
    assert code == 2, error
    assert "there is no" in error
    assert sorted(os.listdir()) == before


def test_an_address_space_in_which_libraries_abort_is_refused(job):
    """OpenBLAS and LLVM abort, or turn for ever, where they get no addresses."""

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    done = subprocess.run(
        [sys.executable, "-m", "streammach", "info", "日.zarr"], cwd=job, preexec_fn=limited,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 6, done.stderr
    assert "the address space is limited to 419 MB" in done.stderr
    assert "ulimit -v" in done.stderr


def test_addresses_that_are_never_filled_do_not_count_as_memory(monkeypatch):
    monkeypatch.setattr(machine, "_soft_limit", {"RLIMIT_AS": 3 << 30}.get)
    monkeypatch.setattr(machine, "processors", lambda: 4)
    limit = machine.memory_limit()
    if limit.source == "RLIMIT_AS":  # nothing smaller limits these tests
        assert limit.n_bytes == (3 << 30) - 450_000_000 - 4 * 110_000_000
    machine.check_address_space()
    monkeypatch.setattr(machine, "processors", lambda: 64)
    with pytest.raises(BudgetError, match=r"limited to 3\.2. GB, 7\.8. GB are needed"):
        machine.check_address_space()
    monkeypatch.setattr(machine, "_soft_limit", {}.get)
    machine.check_address_space()


def test_labels_and_names_of_sources_reach_no_terminal_as_they_are(tmp_path, capsys):
    name = "a\x1b[31mb\u202ec.vw"
    (tmp_path / name).write_text("\x1b]0;owned\u202e |w x\x1b[2J:1\nok |w y\n" * 3)
    assert main(["explore", str(tmp_path / name)]) in (0, 3)
    said = capsys.readouterr()
    assert main(["explore", str(tmp_path / name), "--json"]) in (0, 3)
    more = capsys.readouterr()
    for text in (said.out, said.err, more.out, more.err):
        assert "\x1b" not in text
        assert "\u202e" not in text
