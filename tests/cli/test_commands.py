"""The commands as they are typed: results, JSON, exit codes, one line for an error."""

import gzip
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import COMMANDS, faces, main
from streammach.formats import MODEL_FORMAT, STORE_FORMAT
from streammach.machine import MemoryLimit
from streammach.prediction.output import TsvOutput
from tests.builders import TinyData

BUDGET = ["--buckets", "8", "--repetitions", "6"]


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


@pytest.fixture
def train_text(tiny):
    return tiny.text("train.vw.gz", tiny.lines(700, 30, namespace=True), zipped=True)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The whole job, done once: train.zarr, test.zarr and a run."""
    tiny = TinyData(tmp_path_factory.mktemp("done"), np.random.default_rng(7))
    tiny.text("train.vw.gz", tiny.lines(700, 30, namespace=True), zipped=True)
    tiny.text("test.vw", tiny.lines(200, 35, namespace=True))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tiny.folder)
        assert main(["convert", "train.vw.gz", "train.zarr"]) == 0
        assert main(["convert", "test.vw", "test.zarr", "--like", "train.zarr"]) == 0
        assert main(["train", "train.zarr", "--out", "run", *BUDGET, "--epochs", "4"]) == 0
    return tiny.folder


@pytest.fixture
def job(done, tmp_path):
    return shutil.copytree(done, tmp_path / "job")


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
    assert "of 150 rows of" in held_out  # those of the file, not of the training store
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


def test_evaluate_json_has_the_agreed_keys(job, capsys):
    for estimator in ("mean", "min", "median", "logsum"):
        options = ["--estimator", estimator, "--json"]
        code, out, _ = run(capsys, "evaluate", job / "run", job / "test.zarr", *options)
        found = json.loads(out)
        assert code == 0
        keys = {"n_rows", "accuracy", "top_3_accuracy", "top_5_accuracy", "log_loss", "seconds"}
        assert keys <= set(found)
        assert found["n_rows"] == 200
        accuracies = [found[k] for k in ("accuracy", "top_3_accuracy", "top_5_accuracy")]
        assert 0.6 < accuracies[0] <= accuracies[1] <= accuracies[2] <= 1
        assert found["estimator"] == estimator


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
    import streammach.data.store.dataset as module

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


def test_resume_of_a_finished_run_gives_its_result(job, capsys):
    options = [*BUDGET, "--epochs", 4, "--resume", "--json"]
    code, out, _ = run(capsys, "train", job / "train.zarr", "--out", job / "run", *options)
    assert code == 0
    assert len(json.loads(out)["history"]) == 4


def test_a_run_that_goes_on_keeps_its_default_budget(job, monkeypatch, capsys):
    def host(out, *more):
        code, _, _ = run(
            capsys, "train", job / "train.zarr", "--out", job / out, "--epochs", 1, *more
        )
        assert code == 0
        return json.loads((job / out / "plan.json").read_text())["limits"]["host"]

    def free(n_bytes):
        found = lambda: MemoryLimit(n_bytes, "free memory")  # noqa: E731
        monkeypatch.setattr("streammach.planning.choose.memory_limit", found)

    free(7 * 10**9)
    assert host("first") == 3 * 10**9
    free(5 * 10**9)
    (job / "first/result.json").unlink()
    assert host("first", "--resume") == 3 * 10**9
    assert host("second") == 2 * 10**9
    free(9 * 10**9)
    assert host("part", "--part", "1/2", "--buckets", 8, "--repetitions", 2) == 9 * 10**9


@pytest.mark.parametrize("command", [[], *([name] for name in (*COMMANDS, *faces().names))])
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


def test_a_reader_that_leaves_the_pipe_is_no_error(job):
    many = job / "many.vw"
    many.write_text((job / "test.vw").read_text() * 40)
    command = f"{sys.executable} -m streammach predict run many.vw | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=job, capture_output=True, check=False
    )
    assert done.returncode == 141
    assert done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_output_is_a_disk_error(job):
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "streammach", "predict", "run", "test.vw"]
        done = subprocess.run(command, cwd=job, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 7
    assert b"No space left" in done.stderr


def test_a_command_that_is_not_there_is_said_with_one_like_it(capsys):
    assert run(capsys, "trian", "x")[0] == 2
    code, _, err = run(capsys, "trian")
    hint = "Did you mean train? See: streammach --help"
    assert err == f"streammach: error: there is no command 'trian'. {hint}\n"
    assert "Did you mean" not in run(capsys, "zzz")[2]
    assert code == 2


def test_json_of_progress_is_all_there_is_on_standard_error(job, capsys):
    options = [*BUDGET, "--epochs", 1, "--learning-rate", 1, "--transform", "raw"]
    _, out, err = run(capsys, "train", job / "train.zarr", "--out", job / "rj", *options,
                      "--progress", "json", "--json")  # fmt: skip
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert {line["event"] for line in lines} >= {"progress", "validation", "end"}
    ended = [line["stage"] for line in lines if line.get("moment") == "end"]
    assert ended[-1] == "writing"
    stages = json.loads(out)["stages"]
    assert set(ended) - {"plan"} == stages.keys()
    assert sum(stages.values()) <= json.loads(out)["seconds"]
    lines = (job / "rj/log.jsonl").read_text().splitlines()
    passed = [json.loads(line)["stage"] for line in lines if '"event":"stage"' in line]
    assert set(passed) == stages.keys()


def test_progress_in_a_pipe_is_plain_lines(job, capsys, monkeypatch):
    monkeypatch.setattr("streammach.progress.PLAIN_SECONDS", 0.0)
    monkeypatch.setattr("streammach.progress.SHORT_SECONDS", 0.0)
    monkeypatch.setattr("streammach.stages.TICK_SECONDS", 1e-3)
    options = [*BUDGET, "--epochs", 1, "--learning-rate", 1, "--transform", "raw"]
    _, _, err = run(capsys, "train", job / "train.zarr", "--out", job / "r", *options)
    lines = [line for line in err.splitlines() if "epoch 1/1" in line]
    assert lines
    assert all("rows/s" in line and "\x1b" not in line and len(line) <= 100 for line in lines)
    assert any(" left" in line for line in lines)
    passed = [line.split("  ")[0].split("Z ")[1] for line in err.splitlines() if " took " in line]
    assert passed == sorted(set(passed), key=passed.index)  # each once
    assert {"counting pairs", "epochs", "ranking", "writing"} <= set(passed)
    options = [*options[:-2], "--transform", "l2", "--progress", "none"]
    _, _, err = run(capsys, "train", job / "train.zarr", "--out", job / "r2", *options)
    assert "epoch 1/1" not in err


def test_the_first_compilation_is_said(train_text, tiny):
    command = [sys.executable, "-m", "streammach", "convert", str(train_text)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tiny.folder / "kernels")}
    said = []
    for out in ("a.zarr", "b.zarr"):
        done = subprocess.run(
            [*command, str(tiny.folder / out)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append("compiling kernels" in done.stderr)
    assert said == [True, False]


def test_shrink_makes_a_smaller_model(job, capsys):
    out = job / "small"
    code, text, _ = run(capsys, "shrink", job / "run", "--out", out, "--on", job / "test.zarr")
    assert code == 0
    assert all(word in text for word in ("int8", "before  accuracy", "after   accuracy"))
    document = json.loads(run(capsys, "info", out, "--json")[1])
    assert (document["kind"], document["weights"]) == ("model", "int8")
    assert run(capsys, "evaluate", out, job / "test.zarr")[0] == 0
    again = run(capsys, "shrink", job / "run", "--out", out)
    assert (again[0], "Use --force" in one_line(again[2])) == (2, True)
    forced = ["shrink", job / "run", "--out", out, "--repetitions", 2, "--force", "--json"]
    found = json.loads(run(capsys, *forced)[1])
    files = sum(file.stat().st_size for file in out.iterdir())
    assert (found["repetitions"], found["weights"], found["bytes"]) == (2, "int8", files)
    assert found["bytes"] < found["bytes_before"]


def test_shrink_leaves_rare_features_out(job, capsys):
    whole = json.loads(run(capsys, "info", job / "run", "--json")[1])["n_features"]
    common = ["shrink", job / "run", "--out", job / "frequent", "--force", "--json"]
    options = ["--min-count", 20, "--weights", "int4"]
    store = ["--store", job / "train.zarr"]
    code, text, _ = run(capsys, *common, *options, *store, "--on", job / "test.zarr")
    found = json.loads(text)
    assert (code, found["weights"]) == (0, "int4")
    assert 0 < found["features"] < whole
    other = run(capsys, *common, *options, "--store", job / "test.zarr")
    assert (other[0], "not the store that the model was trained on" in one_line(other[2])) == (
        2,
        True,
    )
    small = run(capsys, "shrink", job / "frequent", "--out", job / "x", "--min-count", 2)
    assert (small[0], "--store" in one_line(small[2])) == (2, True)


def test_add_gives_a_model_with_more_classes(job, capsys):
    lines = [line for line in (job / "test.vw").read_text().splitlines() if "class-3" in line]
    (job / "new.vw").write_text(
        "\n".join(line.replace("class-3", "new-3") for line in lines) + "\n"
    )
    out = job / "more"
    added = ["add", job / "run", job / "new.vw", "--out", out, "--on", job / "test.zarr"]
    code, text, err = run(capsys, *added)
    head, before, after = text.splitlines()
    assert code == 0
    assert head.endswith(f": 36 classes, 6 of them new, from {len(lines)} rows")
    assert (before[:8], after[:8]) == ("before  ", "after   ")
    assert "without a new label" not in err
    assert "exists" in one_line(run(capsys, *added)[2])
    code, text, _ = run(capsys, *added, "--force", "--json")
    found = json.loads(text)
    assert (code, found["added_classes"], found["left_out_rows"]) == (0, 6, 0)
    assert found["after"]["n_rows"] == found["before"]["n_rows"] == 200
    assert "36" in run(capsys, "info", out)[1]
    code, text, _ = run(capsys, "evaluate", out, job / "new.vw", "--json")
    assert (code, json.loads(text)["n_unseen"]) == (0, 0)
    code, text, err = run(capsys, "add", job / "run", job / "train.zarr", "--out", job / "x")
    assert (code, (job / "x").exists()) == (3, False)
    assert "no row has a label" in one_line(err)
    code, _, err = run(capsys, "add", job / "run", job / "test.vw", "--out", job / "x")
    assert code == 0
    assert "rows without a new label were left out" in err


def test_shrink_replaces_nothing_but_models(job, capsys):
    for victim in ("run", "run/model", "train.zarr"):
        code, _, err = run(capsys, "shrink", job / "run", "--out", job / victim, "--force")
        assert code == 2, one_line(err)
    assert run(capsys, "info", job / "run")[0] == 0
    assert run(capsys, "verify", job / "train.zarr", "--deep")[0] == 0
    code, _, err = run(
        capsys, "shrink", job / "run", "--out", job / "x", "--size", "1KB", "--pairs", 5
    )
    assert (code, "smallest model" in one_line(err), (job / "x").exists()) == (6, True, False)


@pytest.mark.parametrize("moment", ["nothing planned", "nothing decided", "epoch 2"])
def test_info_says_what_an_interrupted_run_has(moment, job, capsys):
    run_folder = job / "run"
    for name in {"nothing planned": ("plan.json", "training.json", "model"),
                 "nothing decided": ("training.json", "model")}.get(moment, ()):  # fmt: skip
        path = run_folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (run_folder / "result.json").unlink()
    code, out, err = run(capsys, "info", run_folder)
    assert (code, err) == (0, "")
    assert "not finished" in out
    said = {"nothing planned": "nothing is planned yet", "epoch 2": "0 of 4 epochs are saved",
            "nothing decided": "nothing is decided yet"}[moment]  # fmt: skip
    assert f"{said}; its command with --resume goes on" in out
    assert ("8 x 6" in out) == (moment != "nothing planned")
    assert ("accuracy" in out) == (moment == "epoch 2" or "reached" in out)


FOREIGN = {
    "a file": lambda folder: (folder / "notes.txt").write_text("mine"),
    "a file in the model": lambda folder: (folder / "model" / "notes.txt").write_text("mine"),
    "a file among checkpoints": lambda folder: (
        (folder / "checkpoints" / "step-3").mkdir(parents=True),
        (folder / "checkpoints" / "step-3" / "thesis.tex").write_text("mine"),
    ),
    "a link": lambda folder: (folder / "train.zarr").symlink_to(folder.parent / "train.zarr"),
    "no marker": lambda folder: [(folder / name).unlink() for name in
                                 ("streammach.json", "plan.json")],
    "a store that is none": lambda folder: (folder / "train.zarr").mkdir(),
}  # fmt: skip


@pytest.mark.parametrize("command", ["train", "fit"])
@pytest.mark.parametrize("foreign", FOREIGN)
def test_force_replaces_no_run_with_anything_else_in_it(command, foreign, job, capsys):
    FOREIGN[foreign](job / "run")
    before = {path: path.read_bytes() for path in job.rglob("*") if path.is_file()}
    source = job / ("train.zarr" if command == "train" else "train.vw.gz")
    code, _, err = run(capsys, command, source, "--out", job / "run", *BUDGET, "--force")
    assert (code, "and is not replaced" in one_line(err)) == (2, True)
    assert {path: path.read_bytes() for path in job.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("command", ["train", "fit"])
def test_force_replaces_a_run_of_ours(command, job, capsys):
    source, folder = job / ("train.zarr" if command == "train" else "train.vw.gz"), job / "run"
    options = ["--out", folder, "--buckets", 4, "--repetitions", 2, "--epochs", 1]
    assert run(capsys, command, source, *options)[0] == 2
    (folder / "checkpoints" / "step-3").mkdir(parents=True)
    (folder / "checkpoints" / "step-3" / "state.json").write_text("{}")
    code, _, err = run(capsys, command, source, *options, "--force", "--resume")
    assert (code, "not gone on with: --force" in one_line(err)) == (2, True)
    before = (job / "train.zarr" / "manifest.json").read_bytes()
    for _ in range(2):  # the second time over what the first one left
        code, _, err = run(capsys, command, source, *options, "--force")
        assert code == 0, err
    assert "4 x 2" in run(capsys, "info", folder)[1]
    assert not (folder / "checkpoints").exists()
    assert (job / "train.zarr" / "manifest.json").read_bytes() == before
    if command == "fit":  # another file: its store is made anew
        other = job / "other.vw"
        other.write_text("".join(f"c{i % 3} | w{i % 3}\n" for i in range(90)))
        assert run(capsys, "fit", other, *options)[0] == 2
        code, _, err = run(capsys, "fit", other, *options, "--force")
        assert code == 0, err
        assert json.loads(run(capsys, "info", folder, "--json")[1])["n_classes"] == 3


def test_explore_says_how_far_it_is(job, capsys):
    files = [job / "test.vw", job / "train.vw.gz"]
    told = []
    sm.explore(files, progress=lambda *given: told.append(given))
    assert told == [("explore", 0, 0), ("explore", 1, 2), ("explore", 2, 2)]
    _, _, err = run(capsys, "explore", *files, "--progress", "json")
    assert json.loads(err.splitlines()[-1])["stage"] == "explore"


def test_values_are_told_once(job, capsys):
    _, out, _ = run(capsys, "evaluate", job / "run", job / "test.zarr", "--by", "w")
    rows = [line.split("rows")[1] for line in out.splitlines() if "+-" in line]
    assert len(rows) == len({*rows}) > 3


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_disk_is_named(options, job):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "streammach", "info", job / "run", *options],
                              check=False, stdout=full, stderr=subprocess.PIPE,
                              text=True)  # fmt: skip
    assert done.returncode == 7
    assert "No space left on device: standard output" in done.stderr


def test_kernels_that_are_not_compiled_are_refused(job):
    done = subprocess.run(
        [sys.executable, "-m", "streammach", "predict", job / "run", job / "test.vw"], text=True,
        check=False, capture_output=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "unset NUMBA_DISABLE_JIT" in one_line(done.stderr)
