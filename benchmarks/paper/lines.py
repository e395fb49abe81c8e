"""The lines that the figure compares MACH with: OAA, LOMTree, Recall Tree, exact softmax."""

import json
import subprocess

from benchmarks.paper.grid import trained_and_measured
from streammach.errors import BudgetError, clean

PEERS = ("vw_oaa", "vw_log_multi", "vw_recall_tree")


def peer(system, train, test, folder, options):
    """Return the figures of one of Vowpal Wabbit's systems, or why there are none."""
    path = folder / f"{system}.json"
    path.unlink(missing_ok=True)
    command = [
        options.peers_python, "-m", "benchmarks.peers.run", str(train), str(test),
        "--systems", system, "--threads", str(options.threads),
        "--minutes", f"{options.line_minutes:g}",
        "--max-test", str(options.max_test), "--name", "data", "--json", str(path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"system": system, "failed": clean(said[-1], 200)}
    found = json.loads(path.read_text())["data"][system]
    path.unlink()
    return found


def exact(train, folder, rows, options):
    """Return the figures of a softmax with a bucket for every class: one-vs-all's K x d weights."""
    row = {
        "system": "exact softmax",
        "settings": "streammach --exact --counts off --closed-form off: one column a class",
    }
    try:
        found = trained_and_measured(train, folder, rows, options, exact=True)
    except BudgetError as error:
        return row | {"failed": clean(error.message, 200)}
    point = found["points"][0]
    reached = point["logsum"]
    return row | {
        "p_at_1": reached["p_at_1"], "p_at_5": reached["p_at_5"],
        "train_seconds": found["seconds"], "microseconds_a_query": reached["microseconds"],
        "model_bytes": point["bytes"],
    }  # fmt: skip
