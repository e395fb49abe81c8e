"""Whether the planner's choice is near the best of a grid, and never below a simple rule.

    python -m benchmarks.planner.grid STORE SWEEP --on TEST --budgets 800MB,1.2GB,2GB \
        --memory 3.5GB --name NAME [--transform binary --learning-rate 0.5] [--json FILE]

SWEEP is the folder of `streammach sweep STORE --out SWEEP --on TEST --memory 3.5GB`, whose points
are the grid, with the same transform and rate (searched for each where they are not given). For
every budget the plan's own B x R and the rule's, 32 with the largest R that fits, are trained into
the same folder; then accuracy of the plan stands beside the best of all points that fit the budget.
"""

import json
from pathlib import Path

from benchmarks.machine_facts import facts, parser
from streammach.data.store.dataset import Dataset
from streammach.errors import BudgetError
from streammach.planning.choose import plan
from streammach.planning.constraints import Constraints
from streammach.spec.training import TrainingOptions
from streammach.training.sweep import sweep

RULE = 32  # buckets
MOST = 128  # repetitions of the rule


def fits(data, memory, n_buckets, n_repetitions):
    """Whether a shape fits a budget with counts of all pairs."""
    try:
        found = plan(data, memory=memory, n_buckets=n_buckets, n_repetitions=n_repetitions)
    except BudgetError:
        return False
    pairs = plan(data, counts="on").config.size_of("counts") if not found.config.dense else 0
    return found.config.size_of("counts") == pairs


def ruled(data, memory):
    """The largest R that fits at B = 32; None where none does."""
    low, high = 0, MOST
    while low < high:
        middle = (low + high + 1) // 2
        if fits(data, memory, RULE, middle):
            low = middle
        else:
            high = middle - 1
    return low or None


def main():
    """Train what is missing, print a line for each budget, write the figures."""
    arguments = parser(__doc__)
    arguments.add_argument("store", type=Path)
    arguments.add_argument("sweep", type=Path)
    arguments.add_argument("--on", required=True)
    arguments.add_argument("--budgets", required=True)
    arguments.add_argument("--memory", required=True, help="the sweep's own")
    arguments.add_argument("--name", required=True)
    arguments.add_argument("--hold-out-by")
    arguments.add_argument("--transform", default="auto")
    arguments.add_argument("--learning-rate", type=float)
    arguments.add_argument("--threads", type=int)
    given = arguments.parse_args()
    training = TrainingOptions(
        learning_rate=given.learning_rate, transform=given.transform, hold_out_by=given.hold_out_by
    )
    lines = []
    with Dataset.open(given.store) as data:
        for budget in given.budgets.split(","):
            chosen = plan(data, memory=budget)
            shapes = {"plan": (chosen.n_buckets, chosen.n_repetitions)}
            if (most := ruled(data, budget)) is not None:
                shapes["rule"] = (RULE, most)
            for b, r in shapes.values():
                found = sweep(
                    given.store, given.sweep, memory=given.memory, buckets=[b], repetitions=[r],
                    test=given.on, training=training,
                    constraints=Constraints(threads=given.threads),
                )  # fmt: skip
            reached = {
                (p.buckets, p.repetitions): (p.test.accuracy, p.test.top_5_accuracy, p.seconds)
                for p in found.points
                if p.test and fits(data, budget, p.buckets, p.repetitions)
            }
            best = max(reached, key=lambda shape: reached[shape][0])
            line = {"data": given.name, "budget": budget, "points": len(reached), "best": best,
                    "best_p_at_1": reached[best][0]}  # fmt: skip
            for what, shape in shapes.items():
                line[what] = shape
                if shape in reached:
                    line[f"{what}_p_at_1"], line[f"{what}_p_at_5"], _ = reached[shape]
            lines.append(line)
            print(line, flush=True)
            if given.json:
                write(Path(given.json), given.name, lines)


def write(path, name, lines):
    """Put the lines of a data set in the place of older ones."""
    document = json.loads(path.read_text()) if path.exists() else {"machine": facts()}
    kept = [x for x in document.get("choices", []) if x["data"] != name]
    document["choices"] = kept + lines
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
