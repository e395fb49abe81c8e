"""A short form of benchmarks.faults: outputs where something stands, sources that change."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]


def run(folder, *arguments):
    """Run trials; return the figures by kind."""
    command = [sys.executable, "-m", "benchmarks.faults.run", "--folder", str(folder), *arguments]
    figures = folder / "faults.json"
    done = subprocess.run(
        [*command, "--json", str(figures)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(figures.read_text())["cases"]


def test_nothing_that_is_not_ours_is_replaced(tmp_path):
    found = run(tmp_path, "--only", "destinations", "--destinations", "130")["destinations"]
    assert found["passed"] == found["trials"] == 130
    assert found["refused"] > 10
    assert found["created"] > 2
    assert found["replaced"] > 0


def test_a_source_that_changes_makes_no_other_store(tmp_path):
    found = run(tmp_path, "--only", "sources", "--sources", "30")["sources"]
    assert found["passed"] == found["trials"] == 30
    assert found["refused"] > 5
    assert found["right"] > 0
