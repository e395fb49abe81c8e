"""The commands that change a model, as they are typed: shrink and add."""

import json

from tests.cli.test_commands import one_line, run


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
