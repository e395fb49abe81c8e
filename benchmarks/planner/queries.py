"""How long predictions take beside what the planner expects of them, on one thread.

    python -m benchmarks.planner.queries RUN=TEST [RUN=TEST ...] [--json FILE]

The best five classes of the first 4,000 rows of each store TEST by the model of RUN, in processor
time, the best of three turns; and what `--latency` reckons with.
"""

import time

from benchmarks.machine_facts import facts, parser, report
from streammach.data.store.dataset import Dataset
from streammach.planning.cost import query
from streammach.planning.speed import speed
from streammach.prediction.predictor import Predictor
from streammach.training.run import Run

ROWS, TURNS = 4000, 3


def expected(run, *, counts):
    """Seconds of a query by the planner."""
    plan = run.plan
    config = plan.config if counts else plan.config.without("counts")
    return query(plan.facts, config, speed())


def measured(model, rows, ranker):
    """Seconds of a query."""
    with Predictor(model, estimator=ranker, threads=1) as predictor:
        predictor.topk_ids(rows, 5)  # tables are made, kernels loaded
        took = []
        for _ in range(TURNS):
            began = time.process_time()
            predictor.topk_ids(rows, 5)
            took.append(time.process_time() - began)
    return min(took) / rows.n_rows


def main():
    """Measure each, print a line."""
    arguments = parser(__doc__)
    arguments.add_argument("pairs", nargs="+", metavar="RUN=TEST")
    given = arguments.parse_args()
    lines = []
    for pair in given.pairs:
        path, test = pair.split("=")
        run = Run.open(path)
        model = run.model
        with Dataset.open(test) as data:
            rows = data.rows(0, min(ROWS, data.n_rows))
        for ranker in ["logsum", "blend"][: 1 + (model.counts is not None)]:
            line = {
                "run": path, "n_classes": model.spec.n_classes, "buckets": model.spec.n_buckets,
                "repetitions": model.spec.n_repetitions, "ranker": ranker,
                "expected_us": 1e6 * expected(run, counts=ranker == "blend"),
                "measured_us": 1e6 * measured(model, rows, ranker),
            }  # fmt: skip
            lines.append(line)
            share = line["measured_us"] / line["expected_us"]
            print(f"{path:<30} {model.spec.n_buckets:>6} x {model.spec.n_repetitions:<4} "
                  f"{ranker:<7} expected {line['expected_us']:>6.0f} us  measured "
                  f"{line['measured_us']:>6.0f} us  {share:.2f}", flush=True)  # fmt: skip
    report({"queries": lines, "machine": facts()}, given.json)


if __name__ == "__main__":
    main()
