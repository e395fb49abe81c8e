"""The grids beside which the planner's choices stand, as JSON and as plots of their frontiers.

    python -m benchmarks.planner.frontier NAME=SWEEP [NAME=SWEEP ...] --json FILE   # put sweeps in
    python -m benchmarks.planner.frontier --json FILE --draw docs                   # draw them

SWEEP is the folder of a sweep; points of sparse rows that had no room for counts are left out. A
plot is accuracy on the test rows against the bytes of the model, a line for each B; points on the
broad line have no other that is smaller and better.
"""

import json
from pathlib import Path

import msgspec

from benchmarks.machine_facts import parser
from streammach.reports.drawing import as_file
from streammach.reports.run_plots import size_plot
from streammach.training.run import planned
from streammach.training.sweep import Sweep, open_sweep


def comparable(plan):
    """Whether a plan is of the kind that is compared."""
    return plan.config.dense or plan.config.size_of("counts") > 0


def put(file, name, folder):
    """Put a sweep into the file, without the paths of one machine."""
    sweep = open_sweep(folder)
    points = tuple(p for p in sweep.points if comparable(planned(Path(folder) / p.run)))
    kept = msgspec.structs.replace(sweep, store=name, test=f"{name}, test rows", points=points)
    document = json.loads(file.read_text()) if file.exists() else {}
    document[name] = msgspec.to_builtins(kept)
    file.write_text(json.dumps(document, indent=1) + "\n")


def main():
    """Put what is named into the file; draw all that it holds."""
    arguments = parser(__doc__)
    arguments.add_argument("sweeps", nargs="*", metavar="NAME=SWEEP")
    arguments.add_argument("--draw", type=Path, metavar="FOLDER")
    given = arguments.parse_args()
    if given.json is None:
        arguments.error("--json is needed")
    file = Path(given.json)
    for pair in given.sweeps:
        name, folder = pair.split("=")
        put(file, name, folder)
    if given.draw is None:
        return
    for name, document in json.loads(file.read_text()).items():
        plot = size_plot(msgspec.convert(document, Sweep))
        path = given.draw / f"planner-{name}.svg"
        path.write_text(as_file(plot.svg))
        print(f"{path}: {plot.finding}")


if __name__ == "__main__":
    main()
