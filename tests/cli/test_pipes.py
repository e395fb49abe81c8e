"""Rows in a pipe are answered when they come; a reader that leaves ends the command quietly."""

import contextlib
import gzip
import io
import json
import os
import subprocess
import sys

import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.training.run import RESULT
from tests.inputs.tables.builders import ROLES, rows_of, write

COMMAND = [sys.executable, "-m", "streammach", "predict", "run", "-", "-k", "2"]
SMALL = ["--buckets", "4", "--repetitions", "3", "--epochs", "1", "--counts", "off",
         "--learning-rate", "0.5", "--transform", "binary", "--progress", "none"]  # fmt: skip


@pytest.fixture(scope="module")
def text(shared):
    shared.text("a.vw", shared.lines(200, 20))
    return trained(shared.folder, shared.folder / "a.vw")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder with a run of a table."""
    folder = tmp_path_factory.mktemp("table")
    return trained(folder, write(rows_of(300, seed=1), folder, "csv"), **ROLES)


def trained(folder, source, **roles):
    sm.convert(source, folder / "a.zarr", **roles)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        assert main(["train", "a.zarr", "--out", "run", *SMALL]) == 0
    return folder


def answers(folder, pieces, *options):
    """Write pieces one by one, each when the rows of the one before were answered.

    Pieces are bytes with the number of answers to wait for; if these only came at the end, this
    would wait for ever.
    """
    with subprocess.Popen(
        [*COMMAND, *options], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        found = []
        for piece, n in pieces:
            process.stdin.write(piece)
            found += [process.stdout.readline() for _ in range(n)]
        process.stdin.close()
        found.append(process.stdout.read())
        assert process.wait(60) == 0
    return b"".join(found)


def whole(folder, source, *options):
    """The answers to a file, by the command in this process."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(out):
        patched.chdir(folder)
        assert main([*COMMAND[3:5], str(source), *COMMAND[6:], *options]) == 0
    return out.getvalue().encode()


@pytest.mark.timeout(90)
@pytest.mark.parametrize("form", [(), ("--format", "vw")], ids=["guessed", "named"])
def test_lines_of_text_are_answered_when_they_come(form, text):
    lines = (text / "a.vw").read_bytes().splitlines(keepends=True)[:5]
    (text / "some.vw").write_bytes(b"".join(lines))
    pieces = [(lines[0], 2), (lines[1] + lines[2][:9], 1), (lines[2][9:] + lines[3], 2),
              (lines[4][:-1], 0)]  # fmt: skip
    assert answers(text, pieces, *form) == whole(
        text, "some.vw"
    )  # the heading comes with the first


@pytest.mark.timeout(90)
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_rows_of_a_table_are_answered_when_they_come(form, named, table):
    path = write(rows_of(4, seed=2), table, form)
    lines = [line + b"\n" for line in path.read_bytes().splitlines()]
    assert all(line.count(b'"') % 2 == 0 for line in lines)
    head = lines[: len(lines) - 4]
    pieces = [(b"".join([*head, lines[-4]]), 1), (lines[-3], 1), (lines[-2] + lines[-1], 2)]
    options = ["--out-format", "jsonl", *(["--format", form] if named else [])]
    found = answers(table, pieces, *options)
    assert found == whole(table, path, "--out-format", "jsonl")
    assert [json.loads(line)["row"] for line in found.splitlines()] == [0, 1, 2, 3]


@pytest.mark.timeout(90)
def test_a_header_that_comes_alone_or_in_parts_is_waited_for(table):
    path = write(rows_of(2, seed=2), table, "csv")
    head, first, second = path.read_bytes().splitlines(keepends=True)
    pieces = [(head[:4], 0), (head[4:], 0), (first, 1), (second, 1)]
    found = answers(table, pieces, "--format", "csv", "--out-format", "jsonl")
    assert found == whole(table, path, "--out-format", "jsonl")


def test_packed_rows_come_through_a_pipe_and_go_to_one_with_a_name(text):
    data = (text / "a.vw").read_bytes()
    done = subprocess.run([*COMMAND, "--out", "/dev/stdout"], cwd=text, input=gzip.compress(data),
                          capture_output=True, check=True)  # fmt: skip
    assert done.stdout == whole(text, "a.vw")


@pytest.mark.parametrize("form", ["tsv", "csv", "jsonl"])
def test_a_reader_that_leaves_ends_the_command_quietly(form, text):
    lines = (text / "a.vw").read_bytes() * 300
    (text / "many.vw").write_bytes(lines)
    command = [*COMMAND[:5], "many.vw", "--out-format", form]
    with subprocess.Popen(
        command, cwd=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as left:
        left.stdout.readline()
        left.stdout.close()
        assert left.stderr.read() == b""
        assert left.wait(60) == 141


@pytest.mark.timeout(90)
def test_named_pipes_give_rows_and_get_the_table(text):
    for name in ("in", "out"):
        os.mkfifo(text / name)
    with (
        subprocess.Popen(["cp", "a.vw", "in"], cwd=text),
        subprocess.Popen(["cat", "out"], cwd=text, stdout=subprocess.PIPE) as reader,
    ):
        said = whole(text, "in", "--out", "out", "--out-format", "csv", "--json")
        found = reader.stdout.read()
    assert json.loads(said)["n_rows"] == 200
    assert found == whole(text, "a.vw", "--out-format", "csv")
    assert (text / "out").is_fifo()


def test_a_reader_of_the_story_may_leave_before_it_begins(tiny):
    source = tiny.text("a.vw", tiny.lines(300, 20))
    reader, writer = os.pipe()
    os.close(reader)
    command = ["fit", str(source), "--out", str(tiny.folder / "run"), *SMALL[:-2]]
    done = subprocess.run(
        [sys.executable, "-m", "streammach", *command], stderr=writer, stdout=subprocess.PIPE,
        timeout=280, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 0
    assert b"next: streammach evaluate" in done.stdout
    assert (tiny.folder / "run" / RESULT).exists()
