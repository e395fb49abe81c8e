"""Short forms of tests.campaigns, each in a process of its own: it takes protections away."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
# Numbers of trials; what they come to at least, by name.
CAMPAIGNS = [
    ({"kills": 4, "points": 12, "flips": 20, "damages": 11, "disk": 12},
     {"points": {"resumed": 1}, "disk": {"refused": 1}}),
    ({"destinations": 130}, {"destinations": {"refused": 11, "created": 3, "replaced": 1}}),
    ({"sources": 30}, {"sources": {"refused": 6, "right": 1}}),
    ({"signals": 4}, {}),
    ({"forced": 13}, {"forced": {"kills": 12, "old": 4}}),
    ({"streams": 4}, {}),
    ({"content": 250}, {"content": {
        "stores": 21, "models": 21, "runs": 21, "sources": 21, "train_took": 6,
        "verify_refused": 21}}),
    ({"tables": 40}, {"tables": {"refused": 21, "taken": 4}}),
]  # fmt: skip


def run(folder, module, *arguments):
    figures = folder / "figures.json"
    command = [sys.executable, "-m", f"tests.campaigns.{module}", *arguments]
    done = subprocess.run(
        [*command, "--folder", str(folder), "--json", str(figures)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done, json.loads(figures.read_text())


@pytest.mark.parametrize(
    ("numbers", "least"), CAMPAIGNS, ids=[" ".join(numbers) for numbers, _ in CAMPAIGNS]
)
def test_no_trial_fails(numbers, least, tmp_path):
    given = [f"--{name}={n}" for name, n in numbers.items()]
    done, figures = run(tmp_path, "run", *given, "--only", *numbers)
    cases = figures["cases"]
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: case["trials"] for name, case in cases.items()} == numbers
    assert {name: case["passed"] for name, case in cases.items()} == numbers
    for name, facts in least.items():
        assert all(cases[name][fact] >= n for fact, n in facts.items()), cases[name]
    if "content" in cases:
        assert max(cases["content"]["peaks"].values()) <= cases["content"]["memory"]


def test_without_checksums_the_same_flips_are_not_all_seen(tmp_path):
    given = ("--only", "flips", "--flips", "20", "--mutant", "checksums")
    done, _ = run(tmp_path, "run", *given)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "silent_wrong" in done.stdout


def test_without_a_look_at_buffers_changed_tables_crash_or_invent_cells(tmp_path):
    done, _ = run(tmp_path, "run", "--only", "tables", "--tables", "40", "--mutant", "buffers")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "crashed" in done.stdout or "silent_wrong" in done.stdout


@pytest.mark.nightly
def test_a_thousand_changed_tables(tmp_path):
    done, figures = run(tmp_path, "run", "--only", "tables", "--seed", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert figures["cases"]["tables"]["passed"] == 1000


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_one_huge_row_keeps_the_budget_or_is_refused_with_one_that_is_enough(tmp_path):
    done, figures = run(tmp_path, "shapes", "--large")
    assert done.returncode == 0, done.stdout + done.stderr
    trials = figures["trials"]
    assert len(trials) > 15
    assert all(trial["refused"] <= 2 for trial in trials)
    assert any(trial["refused"] for trial in trials)
