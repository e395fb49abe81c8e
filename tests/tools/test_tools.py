"""The scripts beside the package, as a newcomer runs them."""

import json
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from importlib import util
from pathlib import Path

import pytest

from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.prediction.evaluate import evaluate
from streammach.store.dataset import Dataset
from streammach.training.run import Run
from tools.published.command import Published, command_of
from tools.synthetic.command import make as make_synthetic

TOOLS = Path(__file__).parent.parent.parent / "tools"
SMALL = Published(
    name="Small", address="http://example.org/", train_file="train.vw.gz", test_file="test.vw",
    n_rows=60, n_test_rows=20, n_classes=7, n_features=47, first_label=1,
)  # fmt: skip


def loaded(name):
    spec = util.spec_from_file_location(f"tool_{name}", TOOLS / f"{name}.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(*arguments):
    return main([str(a) for a in arguments], make_synthetic, "make_synthetic.py")


def published(known, *arguments):
    return main([str(a) for a in arguments], command_of(known, "tools/small.py"), "small.py")


@pytest.fixture
def folder(tiny):
    """The small data set as it would be downloaded: labels 1 to 7, one of the test unknown."""
    lines = [f"{1 + i % 7} | w{i % 7} n{i % 40}:2" for i in range(60)]
    tiny.text("train.vw.gz", lines, zipped=True)
    tiny.text("test.vw", lines[:20])
    return tiny.folder


def test_a_script_runs_as_it_is_typed(tmp_path):
    command = [sys.executable, str(TOOLS / "make_synthetic.py"), "odp", "a.vw", "--scale", "1e-4"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("a.vw: 108 rows, ")
    assert (tmp_path / "a.vw").read_text().count("\n") == 108


def test_convert_is_the_command(tiny, monkeypatch, capsys):
    source = tiny.text("a.vw", tiny.lines(40, 5))
    command = [sys.executable, str(TOOLS / "convert.py"), str(source), str(tiny.folder / "a.zarr")]
    subprocess.run(command, check=True, capture_output=True)
    assert main(["convert", str(source), str(tiny.folder / "b.zarr")]) == 0
    stores = [Dataset.open(tiny.folder / name) for name in ("a.zarr", "b.zarr")]
    assert stores[0].digest == stores[1].digest
    monkeypatch.setattr(sys, "argv", command[1:])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(command[1], run_name="__main__")
    assert ended.value.code == 2
    assert "it exists already" in capsys.readouterr().err


def test_both_parts_of_made_up_rows_in_one_call(tmp_path, capsys):
    options = ["--rows", 300, "--test-rows", 50, "--classes", 20, "--features", 90, "--json"]
    train, test = tmp_path / "train.vw", tmp_path / "test.vw"
    assert make("odp", train, "--test", test, *options) == 0
    done = json.loads(capsys.readouterr().out)
    assert [part["n_rows"] for part in done] == [300, 50]
    made = convert(train, tmp_path / "train.zarr")
    assert (made.n_rows, made.n_classes, made.n_features) == (300, 20, 90)
    assert convert(test, tmp_path / "test.zarr", like=tmp_path / "train.zarr").unknown_values == 0
    again = tmp_path / "again.vw"
    assert make("odp", again, "--part", "test", *options) == 0
    assert again.read_bytes() == test.read_bytes()


def test_rows_with_lists_of_labels(tmp_path, capsys):
    options = ["--rows", 300, "--classes", 20, "--features", 90, "--labels", 3.5]
    options += ["--unlabelled", 0.1, "--words", 30, "--json"]
    assert make("odp", tmp_path / "train.vw", *options) == 0
    assert json.loads(capsys.readouterr().out)[0]["nnz"] < 300 * 31
    convert(tmp_path / "train.vw", tmp_path / "train.zarr", multilabel="on")
    with Dataset.open(tmp_path / "train.zarr") as data:
        assert data.facts.listed
        assert 2.5 < data.facts.n_labels / 300 < 4
    assert make("odp", tmp_path / "a.vw", "--unlabelled", 0.1) == 2
    assert "--labels" in capsys.readouterr().err


def test_a_mistake_is_one_line_and_the_command_s_code(tmp_path, capsys):
    assert make("odp", tmp_path / "a.vw", "--part", "test", "--test", tmp_path / "b.vw") == 2
    assert make("odp", tmp_path / "a.vw", "--scale", "big") == 2
    assert make("odp", tmp_path / "none" / "a.vw", "--scale", "1e-4") == 2
    errors = capsys.readouterr().err.splitlines()
    assert [line.startswith("streammach: error: ") for line in errors] == [True] * 3
    assert not list(tmp_path.iterdir())


def test_published_rows_become_two_stores(folder, tmp_path, capsys):
    assert published(SMALL, folder, "--seed", 3) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith(": 60 rows, 7 classes, 47 features")
    assert out[-1] == "counts are those of Small as published"
    convert(folder / "train.vw.gz", folder / "same.zarr", seed=3)
    with Dataset.open(folder / "train.zarr") as a, Dataset.open(folder / "same.zarr") as b:
        assert a.digest == b.digest
    with Dataset.open(folder / "test.zarr") as test:
        assert (test.n_rows, test.n_features) == (20, 47)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_rows": 61}, "60 training rows in place of 61"),
        ({"n_test_rows": 19}, "20 test rows in place of 19"),
        ({"n_classes": 6}, "7 classes in place of 6, label '7' is not from 1 to 6"),
        ({"n_features": 48}, "47 features in place of 48"),
        ({"first_label": 2}, "label '1' is not from 2 to 8"),
    ],
)
def test_other_counts_are_one_line_and_code_3(change, words, folder, capsys):
    known = replace(SMALL, **change)
    assert published(known, folder) == 3
    lines = capsys.readouterr().err.splitlines()
    lines = [line for line in lines if line.startswith("streammach: error: ")]
    assert len(lines) == 1
    assert f"not Small as published: {words}:" in lines[0]
    more = {"n_rows", "n_features"} & change.keys()
    assert published(known, folder, "--force", "--sample") == (0 if more else 3)


def test_the_folder_of_the_stores_is_made_once_there_are_files(folder, tmp_path, capsys):
    out = tmp_path / "new" / "stores"
    assert published(SMALL, tmp_path / "none", "--out", out) == 2
    assert not out.parent.exists()
    assert published(SMALL, folder, "--out", out) == 0
    assert sorted(path.name for path in out.iterdir()) == ["test.zarr", "train.zarr"]


def test_the_help_has_their_own_options_alone(capsys):
    assert main(["--help"], command_of(SMALL, "small.py"), "small.py") == 0
    options = capsys.readouterr().out.partition("Options:")[2]
    shown = set(re.findall(r"^  (--[a-z-]+)", options, flags=re.M))
    assert shown == {"--out", "--train", "--test", "--sample", "--progress", "--json", "--debug",
                     "--help"}  # fmt: skip
    assert main(["convert", "--help"]) == 0
    assert "--memory SIZE" in capsys.readouterr().out


def test_skipped_rows_count(folder, capsys):
    text = (folder / "test.vw").read_text()
    (folder / "test.vw").write_text(text.replace("1 | w0", "1 | :", 1))
    assert published(SMALL, folder, "--on-bad-row", "skip", "--json") == 0
    assert json.loads(capsys.readouterr().out)["test"]["n_rows"] == 19


def test_nothing_is_begun_where_a_file_is_missing(folder, capsys):
    (folder / "test.vw").unlink()
    assert published(SMALL, folder) == 2
    assert "Get it from http://example.org/test.vw" in capsys.readouterr().err
    assert not list(folder.glob("*.zarr"))


@pytest.mark.parametrize("name", ["convert_odp", "convert_imagenet"])
def test_the_known_sets_describe_themselves(name, capsys):
    module = loaded(name)
    known = next(x for x in vars(module).values() if isinstance(x, Published))
    assert main(["--help"], command_of(known, name), name) == 0
    assert known.train_file in capsys.readouterr().out


def swept(store, out, *more):
    """Call the script that sweeps; return its code and what it leaves."""
    given = ["--memory", "600MB", "--repetitions", "2", "--set", "epochs=1", "--set", "counts=off"]
    arguments = [store, "--out", out, *given, "--set", "learning_rate=0.5", *more]
    code = main([str(word) for word in arguments], loaded("sweep").sweep, "sweep.py")
    return code, json.loads((out / "sweep.json").read_text()) if code == 0 else None


def test_a_sweep_trains_what_fits_once_and_marks_what_is_worth_its_bytes(tiny, capsys):
    store, out = tiny.store("train.zarr", n_rows=500, n_classes=30), tiny.folder / "grid"
    code, found = swept(store, out, "--buckets", "4,8")
    assert code == 0
    assert [(p["buckets"], p["repetitions"]) for p in found["points"]] == [(4, 2), (8, 2)]
    for point in found["points"]:
        own = Run.open(out / f"{point['buckets']}x2")
        assert point["model_bytes"] == own.model.n_bytes
        assert point["accuracy"] == own.result.best.accuracy
        others = [p for p in found["points"] if p["model_bytes"] < point["model_bytes"]]
        assert point["frontier"] == all(p["accuracy"] < point["accuracy"] for p in others)
    assert (out / "sweep.png").read_bytes().startswith(b"\x89PNG")
    stamp = (out / "4x2/result.json").stat().st_mtime_ns
    _, again = swept(store, out, "--buckets", "4,16", "--on", store)
    assert (out / "4x2/result.json").stat().st_mtime_ns == stamp
    assert [p["buckets"] for p in again["points"]] == [4, 16]
    assert again["points"][0]["accuracy"] == evaluate(Run.open(out / "4x2").model, store).accuracy


def test_a_sweep_leaves_alone_what_it_did_not_make(tiny, capsys):
    store, out = tiny.store("train.zarr", n_rows=500, n_classes=30), tiny.folder / "grid"
    out.mkdir()
    (out / "sweep.json").write_text("mine")
    assert swept(store, out, "--buckets", "4") == (2, None)
    assert "holds no sweep" in capsys.readouterr().err
    assert [file.name for file in out.iterdir()] == ["sweep.json"]
    (out / "sweep.json").unlink()
    assert swept(store, out, "--buckets", "4", "--memory", "100MB") == (6, None)
    assert swept(store, out, "--buckets", "4,many") == (2, None)
    assert swept(store, out, "--buckets", "4", "--set", "eps") == (2, None)
    assert swept(store, out, "--buckets", "4", "--repetitions", "500000") == (6, None)
    assert swept(store, out, "--buckets", "4")[0] == 0
    assert swept(store, out, "--buckets", "4", "--memory", "700MB") == (4, None)
