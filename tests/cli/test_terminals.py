"""Nothing of a file reaches a terminal as a command to it, whatever the command and the format."""

import json
import os
import sys
import tty

import pytest

from streammach.cli.main import main
from streammach.system.errors import UNSAFE
from tests.streams import read_in_thread

pytestmark = pytest.mark.timeout(900)

# A name with all that a terminal obeys, or shows as something else than it is, of each kind.
EVIL = "a\x1b[2J\x07b\x00c\u202ed\u2066e\x9bf\ufeffg\u2028h\rI"
SURE = ("--buckets", "2", "--repetitions", "2", "--epochs", "1", "--learning-rate", "0.5",
        "--transform", "raw", "--threads", "1", "--progress", "none")  # fmt: skip
FORMATS = ("tsv", "csv", "jsonl")
MODES = ((), ("--probabilities",), ("--explain", "3"), ("--json",))
PREDICT = [("predict", "run", "some.jsonl", "--threads", "1", "--out-format", form, *mode)
           for form in FORMATS for mode in MODES if mode != ("--json",)]  # fmt: skip
PROGRESS = ("predict", "explore", "verify", "evaluate", "labels", "shrink", "convert", "suspects")
# Every command that says something of labels, features, tags, columns or paths.
COMMANDS = [
    *PREDICT,
    ("predict", "run", "some.jsonl", "--out", "/dev/stdout", "--out-format", "csv"),
    ("explore", "rows.jsonl", "--label", "label"), ("info", "rows.zarr"), ("info", "run"),
    ("info", "run/model"), ("verify", "rows.zarr"),
    ("evaluate", "run", "rows.jsonl", "--by-class", "-"), ("evaluate", "run", "rows.zarr"),
    ("evaluate", "run", "rows.zarr", "--confusions", "-"), ("plan", "rows.zarr"),
    ("labels", "run", "--rename", "names.tsv", "--out", "renamed", "--force"),
    ("labels", "run", "--rename", "wrong.tsv", "--out", "renamed", "--force"),
    ("shrink", "run", "--out", "small", "--min-count", "2", "--force"),
    ("predict", "run", "some.jsonl", "--only", "wrong.tsv"),
    ("predict", "run", f"{EVIL[1:5]}.csv"),
    ("convert", "wrong.jsonl", "w.zarr", "--label", "label"),
    ("info", EVIL.replace("\x00", "")), (EVIL,), ("predict", "run", "--no-" + EVIL),
    ("suspects", "rows.zarr", "--folds", "2", "--threads", "1", "--epochs", "1",
     "--learning-rate", "0.5", "--transform", "raw"),
]  # fmt: skip


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A model whose labels, columns, features and tags are hostile."""
    folder = tmp_path_factory.mktemp("evil")
    rows = [
        {"id": f"{EVIL}{i}", "text": f"word{i % 3} {EVIL} more", f"kind{EVIL}": f"{EVIL}{i % 3}",
         "label": f"{EVIL}{i % 3}"}
        for i in range(240)
    ]  # fmt: skip
    for name, some in (("rows", rows), ("some", rows[:4])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    (folder / "names.tsv").write_text(f"{EVIL[:-2]}hI0\tother{EVIL[:5]}\n".replace("\r", ""))
    (folder / "wrong.tsv").write_text("no \x1b[2J label\u202e\tx\n")
    (folder / "wrong.jsonl").write_text('{"label": "\x1b[2J\u202e\n')
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        roles = ("--label", "label", "--text", "text", "--tag", "id")
        assert main(["convert", "rows.jsonl", "rows.zarr", *roles]) == 0
        assert main(["train", "rows.zarr", "--out", "run", *SURE]) == 0
    return folder


def on_terminal(arguments, monkeypatch):
    """Run a command whose streams are a terminal; return its exit code and what that was sent."""
    master, slave = os.openpty()
    tty.setraw(slave)  # nothing is added
    finish = read_in_thread(master)
    kept = os.dup(1)
    os.dup2(slave, 1)
    try:
        with open(slave, "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stream)
            patched.setattr(sys, "stderr", stream)
            code = main(list(arguments))
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    return code, finish()


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(map(ascii, c)) for c in COMMANDS])
@pytest.mark.parametrize("debug", [False, True])
def test_a_terminal_is_sent_no_command(command, debug, evil, monkeypatch):
    monkeypatch.chdir(evil)
    if command[0] in PROGRESS:
        command = (*command, "--progress", "none")  # whose bar is drawn with such characters
    code, said = on_terminal((*["--debug"] * debug, *command), monkeypatch)
    assert said.strip()
    assert "Traceback" not in said or debug
    assert code in (0, 2, 3)
    wrong = UNSAFE.search(said.replace("\n", "").replace("\t", ""))
    assert wrong is None, said[max(0, wrong.start() - 300) :][:400]
    if command[:-2] in PREDICT:
        assert (code, "[2J" in said) == (0, True)


@pytest.mark.parametrize("command", PREDICT, ids=[" ".join(map(ascii, c)) for c in PREDICT])
def test_a_pipe_gets_the_bytes_of_the_file(command, evil, monkeypatch, capfdbinary):
    monkeypatch.chdir(evil)
    assert main(list(command)) == 0
    printed = capfdbinary.readouterr().out
    assert main([*command, "--out", "table", "--force"]) == 0
    assert printed == (evil / "table").read_bytes()
    if "csv" in command:
        assert EVIL.encode() in printed  # as RFC 4180 has it
