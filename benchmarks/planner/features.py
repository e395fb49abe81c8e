"""What hashed models lose by the features that they do not know, measured beside what is expected.

    python -m benchmarks.planner.features STORE... [--counts] [--json FILE]

Each store is trained on with 32 x 8, by all features and by the most frequent ones that make up
98, 95, 90 and 80% of all values; where that is asked for with counts beside them, whose weights are
learnt from 20,000 rows. The mean of both accuracies on held-out rows, in points, is compared.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.machine_facts import facts, parser, report
from streammach.options.facts import HEADS
from streammach.options.training import TrainingOptions
from streammach.planning.candidates import LEFT_OUT
from streammach.planning.choose import plan
from streammach.store.dataset import Dataset
from streammach.training.trainer import Trainer

SHAPE = {"n_buckets": 32, "n_repetitions": 8, "threads": 1}
FIXED = {
    "epochs": 3, "transform": "binary", "learning_rate": 0.5, "model_size": "full",
    "last_passes": 0, "hold_out_by": "random",
}  # fmt: skip
FEW = {"pair_rows": 20_000, "fit_rows": 1000}


def trained(data, n_features, folder, *, counts):
    """Return both accuracies of the better way to rank, on held-out rows."""
    made = plan(data, hashed_features=n_features, counts="on" if counts else "off", **SHAPE)
    loss = {"label_loss": "shared"} if data.listed else {}
    options = TrainingOptions(**FIXED, **loss, **(FEW if counts else {}))
    found = Trainer(made, options, callbacks=()).fit(data, folder).result.validation
    ways = [found["blend"]] if counts else list(found.values())
    best = max(ways, key=lambda reached: reached.accuracy + reached.top_5_accuracy)
    return best.accuracy, best.top_5_accuracy


def measured(store, *, counts):
    """Yield a line for each share of the values."""
    with Dataset.open(store) as data, tempfile.TemporaryDirectory() as folder:
        whole, shares = None, (*HEADS, 1.0)
        sizes = zip(shares, (*data.facts.heads, data.n_features), strict=True)
        for share, n in reversed(list(sizes)):
            both = trained(data, n, Path(folder) / str(n), counts=counts)
            reached = 50 * sum(both)
            whole = reached if whole is None else whole
            yield {
                "data": store.stem, "counts": counts, "share": share, "features": n,
                "p_at_1": round(both[0], 4), "p_at_5": round(both[1], 4),
                "lost": round(whole - reached, 2),
                "expected": round(LEFT_OUT[counts] * (1 - share), 2),
            }  # fmt: skip


def main():
    arguments = parser(__doc__)
    arguments.add_argument("stores", type=Path, nargs="+")
    arguments.add_argument("--counts", action="store_true")
    given, runs = arguments.parse_args(), []
    for store in given.stores:
        for line in measured(store, counts=given.counts):
            print(line, flush=True)
            runs.append(line)
            report({"machine": facts(), "runs": runs}, given.json)


if __name__ == "__main__":
    sys.exit(main())
