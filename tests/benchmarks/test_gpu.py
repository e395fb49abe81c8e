"""The GPU benchmark runs through in the simulator; its times mean nothing there."""

import json
import os
import sys

import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("needs NUMBA_ENABLE_CUDASIM=1 (tox -e cudasim)", allow_module_level=True)

from benchmarks.gpu import __main__ as bench


def test_every_stage_runs_and_finds_nothing_wrong(tiny, monkeypatch, capsys):
    store = tiny.store(n_rows=60, n_classes=8, n_noise=60)
    file = tiny.folder / "gpu.json"
    arguments = ["gpu", "--simulate", "--json", str(file), "--store", str(store)]
    arguments += ["--test-store", str(store), "--run-shape", "4x3", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--batch-size", "16"])
    with pytest.raises(SystemExit) as ended:
        bench.main()
    text = capsys.readouterr().out
    assert ended.value.code == 0, text
    found = json.loads(file.read_text())
    assert not any("failed" in stage for stage in found.values() if isinstance(stage, dict)), text
    assert found["repeat"]["same"]
    assert found["bfloat16 repeat"]["same"]
    assert found["repeat"]["sha256"] != found["bfloat16 repeat"]["sha256"]
    assert (found["epoch"]["resident"], found["resident epoch"]["resident"]) == (False, True)
    assert found["correctness"]["failures"] == []
    run = found["whole run"]
    assert run["cuda"]["test_p_at_1"] == pytest.approx(run["cpu"]["test_p_at_1"])
    assert [entry["resident"] for entry in run.values() if isinstance(entry, dict)] == [
        True, False, False,
    ]  # fmt: skip
    assert "nothing wrong was found" in text
