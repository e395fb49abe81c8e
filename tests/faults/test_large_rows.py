"""One huge cell or row in each container: benchmarks.faults.large_rows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]


def test_one_huge_row_keeps_the_budget_or_is_refused_with_one_that_is_enough(tmp_path):
    command = [sys.executable, "-m", "benchmarks.faults.large_rows", "--folder", str(tmp_path)]
    command += ["--json", str(tmp_path / "rows.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    trials = json.loads((tmp_path / "rows.json").read_text())["trials"]
    assert len(trials) > 15
    assert all(trial["refused"] <= 2 for trial in trials)
    assert any(trial["refused"] for trial in trials)
