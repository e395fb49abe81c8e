"""The GPU benchmark runs through in the simulator; its times mean nothing there."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("needs NUMBA_ENABLE_CUDASIM=1 (tox -e cudasim)", allow_module_level=True)

from benchmarks.gpu import __main__ as bench


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["gpu", "--simulate", *arguments])
    with pytest.raises(SystemExit) as ended:
        bench.main()
    return ended.value.code


def test_every_stage_runs_and_finds_nothing_wrong(tiny, monkeypatch, capsys):
    store = tiny.store(n_rows=60, n_classes=8, n_noise=60)
    file = tiny.folder / "gpu.json"
    code = run(
        monkeypatch, "--json", str(file), "--store", str(store), "--test-store", str(store),
        "--run-shape", "4x3", "--epochs", "1", "--batch-size", "16", "--minutes", "100",
    )  # fmt: skip
    text = capsys.readouterr().out
    assert code == 0, text
    found = json.loads(file.read_text())
    stages = {name: one for name, one in found.items() if name not in ("device", "machine")}
    assert all(one["right"] and one["verdict"] for one in stages.values()), text
    assert len(stages) == 16
    assert found["repeat"]["sha256"] != found["bfloat16 repeat"]["sha256"]
    assert (found["epoch"]["resident"], found["resident epoch"]["resident"]) == (False, True)
    whole = found["whole"]
    assert whole["cuda"]["top_5_accuracy"] == pytest.approx(whole["cpu"]["top_5_accuracy"])
    ways = ("cuda", "cuda streamed", "cuda bfloat16", "cpu")
    assert [whole[way]["resident"] for way in ways] == [True, False, True, False]
    assert "all is right" in text


def test_made_rows_go_from_text_to_accuracy(monkeypatch, capsys):
    code = run(monkeypatch, "--only", "whole", "--run-shape", "4x3", "--epochs", "1",
               "--batch-size", "32")  # fmt: skip
    text = capsys.readouterr().out
    assert code == 0, text
    assert "right whole: top-5 accuracy cuda 0." in text


def test_what_there_is_no_time_for_is_left_out(monkeypatch, capsys):
    assert run(monkeypatch, "--minutes", "0.1") == 0
    assert capsys.readouterr().out.count("left out") == 16


def test_a_stage_in_a_process_of_its_own(tmp_path):
    known = tmp_path / "known.json"
    known.write_text("{}")
    command = [sys.executable, "-m", "benchmarks.gpu", "--simulate", "--known", str(known)]
    done = subprocess.run([*command, "--only", "facts"], capture_output=True, text=True, check=True)
    (line,) = [x for x in done.stdout.splitlines() if x.startswith(bench.MARK)]
    assert json.loads(line.removeprefix(bench.MARK))["cache_gb_per_s"] > 0


def test_what_fails_is_wrong(monkeypatch, capsys):
    def find(options):
        raise ValueError("no such card")

    stage = bench.agenda(SimpleNamespace(sparse=None, dense=None))[0]
    monkeypatch.setattr(bench, "agenda", lambda options: [replace(stage, find=find)])
    assert run(monkeypatch) == 1
    assert "WRONG facts: ValueError: no such card" in capsys.readouterr().out
