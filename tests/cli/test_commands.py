"""The commands as they are typed: results, JSON, exit codes, one line for an error."""

import gzip
import json
import subprocess
import sys

import pytest

from streammach.cli.main import COMMANDS, find_frontends, main
from streammach.options.types import MODEL_FORMAT, STORE_FORMAT
from streammach.prediction.output import TsvOutput
from tests.cli.conftest import BUDGET


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def one_line(err):
    lines = [line for line in err.splitlines() if line.startswith("streammach: error:")]
    assert len(lines) == 1, err
    assert len(lines[0]) <= 400
    assert "Traceback" not in err
    return lines[0]


def test_convert_says_what_it_made(train_text, tiny, capsys):
    code, out, err = run(
        capsys, "convert", train_text, tiny.folder / "a.zarr", "--progress", "none"
    )
    assert code == 0
    assert out.startswith(str(tiny.folder / "a.zarr")[:20]) or "a.zarr: 700 rows" in out
    assert "30 classes" in out
    assert err == ""
    code, out, _ = run(capsys, "convert", train_text, tiny.folder / "b.zarr", "--json")
    assert json.loads(out)["n_rows"] == 700
    assert "700" not in err


def test_a_label_unseen_in_training_is_one_warning(job, capsys):
    test = job / "test.vw"
    like = ["--like", job / "train.zarr", "--force"]
    code, out, err = run(capsys, "convert", test, job / "test.zarr", *like)
    assert code == 0
    assert err.count("streammach: warning:") == 1
    assert "rows carry a label that" in err
    code, out, err = run(capsys, "evaluate", job / "run", job / "test.zarr")
    assert code == 0
    assert "label never seen in training" in err
    assert "unseen labels count as wrong" in out


def test_verify_and_info_of_a_store(job, capsys):
    code, out, _ = run(capsys, "verify", job / "train.zarr", "--deep")
    assert (code, "every chunk is as written" in out) == (0, True)
    assert json.loads(run(capsys, "verify", job / "train.zarr", "--json")[1])["ok"] is True
    code, out, _ = run(capsys, "info", job / "train.zarr")
    assert (code, "700 with" in out) == (0, True)
    assert json.loads(run(capsys, "info", job / "train.zarr", "--json")[1])["n_rows"] == 700


def test_info_of_a_run_shows_planned_and_measured(job, capsys):
    code, out, _ = run(capsys, "info", job / "run")
    assert code == 0
    assert "8 x 6 float32" in out
    assert "projected" in out
    assert "measured" in out
    document = json.loads(run(capsys, "info", job / "run", "--json")[1])
    assert document["buckets"] == 8
    assert len(document["history"]) == 4


def test_plan_report_and_json(job, capsys, monkeypatch):
    monkeypatch.chdir(job)
    code, out, _ = run(capsys, "plan", "train.zarr", "--memory", "500MB")
    assert code == 0
    assert all(len(line) <= 100 for line in out.splitlines())
    for word in ("store", "device", "budget", "chosen", "why", "memory", "weights", "disk", "next"):
        assert word in out
    document = json.loads(run(capsys, "plan", job / "train.zarr", "--memory", "500MB", "--json")[1])
    assert document["chosen"]["exact"] is True
    host = [line["n_bytes"] for line in document["ledger"] if line["where"] == "host"]
    assert sum(host) == document["projected_bytes"] <= document["allowed_bytes"] == 500_000_000


def test_fit_converts_and_trains(tiny, train_text, capfd):
    held = tiny.text("held.vw", tiny.lines(150, 35, namespace=True))
    folder = tiny.folder / "fitted"
    options = ["--out", folder, *BUDGET, "--epochs", 2, "--learning-rate", 0.5, "--transform",
               "binary", "--validation", held]  # fmt: skip
    code, out, err = run(capfd, "fit", train_text, *options)
    assert (code, "held-out accuracy" in out, "700 rows" in err) == (0, True, True)
    assert {p.name for p in folder.iterdir()} >= {"train.zarr", "validation.zarr", "model"}
    held_out = json.loads(run(capfd, "info", folder, "--json")[1])["held_out"]
    assert held_out.startswith("150 of 150 rows of")  # of the file, not of the training store
    code, out, err = run(capfd, "fit", train_text, *options, "--resume", "--json")
    assert code == 0
    assert "is there already" in err
    assert json.loads(out)["best_epoch"] >= 1
    code, _, err = run(capfd, "fit", held, *options, "--resume")
    assert code == 4
    assert "has other content than what it was made from" in one_line(err)
    code, _, err = run(capfd, "fit", train_text, "--out", tiny.folder / "none", "--memory", "900TB")
    assert (code, (tiny.folder / "none").exists()) == (6, False)


def test_train_tells_its_story_and_its_result(job, capsys):
    code, out, err = run(capsys, "train", job / "train.zarr", "--out", job / "run2", *BUDGET)
    assert code == 0
    assert "projected of" in err
    assert err.count("trial ") >= 6
    assert "epoch    loss" in err
    assert "held-out accuracy" in out
    assert "learning rate" in out
    code, out, _ = run(
        capsys, "train", job / "train.zarr", "--out", job / "run3", *BUDGET, "--json",
        "--epochs", 2, "--learning-rate", 0.5, "--transform", "binary", "--hold-out-by", "g",
    )  # fmt: skip
    document = json.loads(out)
    assert document["training"]["learning_rate"] == 0.5
    assert "namespace g" in document["held_out"]
    assert len(document["history"]) == 2


def test_predict_writes_tab_separated_lines(job, capsys):
    code, out, _ = run(capsys, "predict", job / "run", job / "test.vw", "-k", 3)
    head, *lines = (line.split("\t") for line in out.splitlines())
    assert code == 0
    assert head == ["row", "tag", "label_1", "score_1", "label_2", "score_2", "label_3", "score_3"]
    assert [int(line[0]) for line in lines] == list(range(200))
    assert {(len(line), line[1]) for line in lines} == {(8, "")}
    assert all(line[2].startswith("class-") for line in lines)
    scores = [[float(x) for x in line[3::2]] for line in lines]
    assert all(s == sorted(s, reverse=True) for s in scores)
    predicted = ["predict", job / "run", job / "test.vw", "-k", 3, "--out", job / "p.tsv"]
    assert run(capsys, *predicted)[0] == 0
    assert (job / "p.tsv").read_text() == out
    options = ["-k", 3, "--out", job / "p2.tsv", "--json"]
    document = json.loads(run(capsys, "predict", job / "run", job / "test.zarr", *options)[1])
    assert document["n_rows"] == 200
    assert (job / "p2.tsv").read_text() == out  # in the order of the source


def test_labels_stay_in_their_column_and_send_nothing_to_a_terminal():
    cell = TsvOutput().cell
    assert cell(b"a\tb\\c\nd") == "a\\tb\\\\c\\nd"
    assert cell(b"\xff") == "\\xff"
    assert cell("\x1b[31m\u202e".encode()) == "\\x1b[31m\\u202e"


FAILURES = [
    ("malformed", b"a |w x\nb |w y:z\n", 3, "value 'z' is not a number"),
    (
        "truncated",
        gzip.compress(b"a |w x\n" * 9000, mtime=0)[:-9],
        3,
        "gzip stream ends before its end mark",
    ),
    ("empty", b"", 3, "it holds no rows"),
    ("nameless", b"|w x\n", 3, "the line has no label"),
]


@pytest.mark.parametrize(("name", "content", "code", "message"), FAILURES)
def test_a_bad_file_is_one_line_and_no_store(name, content, code, message, tmp_path, capsys):
    source = tmp_path / name
    source.write_bytes(content)
    for options in ([], ["--json"]):
        found = run(capsys, "convert", source, tmp_path / "out.zarr", *options)
        assert found[0] == code
        assert message in one_line(found[2])
        assert sorted(p.name for p in tmp_path.iterdir()) == [name]
        if options:
            assert json.loads(found[1])["error"]["kind"] == "bad-data"
        else:
            assert found[1] == ""


def test_exit_codes(job, capsys, monkeypatch):
    store, out = job / "train.zarr", job / "new"
    cases = [
        (2, ["convert", job / "nothing.vw", out]),
        (2, ["convert", job / "test.vw", store]),
        (2, ["train", store]),
        (2, ["train", store, "--out", job / "run", *BUDGET]),
        (2, ["plan", store, "--memory", "lots"]),
        (2, ["nonsense"]),
        (2, ["train", store, "--out", out, "--buckets", "8"]),
        (2, ["predict", job / "run", job / "test.vw", "--json"]),
        (4, ["verify", job / "run"]),
        (4, ["evaluate", store, store]),
        (4, ["info", job]),
        (5, ["train", store, "--out", out, *BUDGET, "--device", "cuda"]),
        (6, ["plan", store, "--memory", "100MB"]),
        (6, ["train", store, "--out", out, "--memory", "100MB"]),
    ]
    for code, arguments in cases:
        found = run(capsys, *arguments)
        assert found[0] == code, arguments
        one_line(found[2])
        assert not out.exists()


def test_a_mistake_of_ours_is_one_line_too(job, capsys, monkeypatch):
    import streammach.store.dataset as module

    monkeypatch.setattr(module.Dataset, "verify", lambda self, **_: 1 / 0)
    code, _, err = run(capsys, "verify", job / "train.zarr")
    assert code == 1
    assert "ZeroDivisionError" in one_line(err)
    code, _, err = run(capsys, "verify", job / "train.zarr", "--debug")
    assert "Traceback" in err


def test_damage_is_found_by_verify(job, capsys):
    victim = job / "train.zarr/X/data/c/0"
    content = bytearray(victim.read_bytes())
    content[50] ^= 1
    victim.write_bytes(content)
    assert run(capsys, "verify", job / "train.zarr")[0] == 4  # a small file: read when it is opened
    code, _, err = run(capsys, "verify", job / "train.zarr", "--deep")
    assert code == 4
    assert "digest is wrong" in one_line(err)


@pytest.mark.parametrize(
    "command", [[], *([name] for name in (*COMMANDS, *find_frontends().names))]
)
def test_help_has_an_example(command, capsys):
    code, out, _ = run(capsys, *command, "--help")
    assert code == 0
    assert "Example:" in out
    assert "streammach" in out


def test_version_names_the_formats(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert f"store format {STORE_FORMAT}, model format {MODEL_FORMAT}" in out


def shell(*arguments, cwd, **options):
    command = [sys.executable, "-m", "streammach", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False, **options)


def test_a_command_that_is_not_there_is_said_with_one_like_it(capsys):
    assert run(capsys, "trian", "x")[0] == 2
    code, _, err = run(capsys, "trian")
    hint = "Did you mean train? See: streammach --help"
    assert err == f"streammach: error: there is no command 'trian'. {hint}\n"
    assert "Did you mean" not in run(capsys, "zzz")[2]
    assert code == 2
