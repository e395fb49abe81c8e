"""A short form of benchmarks.faults: kills, a full or broken disk, damaged stores."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]
KINDS = {"kills": 4, "points": 12, "flips": 20, "damages": 11, "disk": 12}
SHORT = [*(f"--{name}={n}" for name, n in KINDS.items()), "--only", *KINDS]


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks.faults.run", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_no_fault_loses_or_falsifies_a_row(tmp_path):
    done = run(*SHORT, "--folder", str(tmp_path), "--json", str(tmp_path / "faults.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads((tmp_path / "faults.json").read_text())["cases"]
    assert {name: case["trials"] for name, case in cases.items()} == KINDS
    assert all(case["passed"] == case["trials"] for case in cases.values())
    assert cases["points"]["resumed"] > 0
    assert cases["disk"]["refused"] > 0


def test_without_checksums_the_same_flips_are_not_all_seen(tmp_path):
    done = run("--only", "flips", "--flips", "20", "--mutant", "checksums", "--folder", tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "silent_wrong" in done.stdout
