"""Runs that are there: resumed, interrupted, replaced."""

import json
import shutil

import pytest

from streammach.system.machine import MemoryLimit
from tests.cli.conftest import BUDGET, FIXED
from tests.cli.test_commands import one_line, run

QUICK = ["--epochs", 1, "--counts", "off", *FIXED]


def test_resume_of_a_finished_run_gives_its_result(job, capsys):
    options = [*BUDGET, *FIXED, "--epochs", 4, "--resume", "--json"]
    code, out, _ = run(capsys, "train", job / "train.zarr", "--out", job / "run", *options)
    assert code == 0
    assert len(json.loads(out)["history"]) == 4


def test_a_run_that_goes_on_keeps_its_default_budget(job, monkeypatch, capsys):
    def host(out, *more):
        code, _, _ = run(capsys, "train", job / "train.zarr", "--out", job / out, *QUICK, *more)
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
    options = ["--out", folder, "--buckets", 4, "--repetitions", 2, *QUICK]
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
