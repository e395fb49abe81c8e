"""How long explanations take, and how exact they are.

    python -m benchmarks.explain RUN=TEST ... [--rows 1000] [--json FILE]

Of the first rows of a store or a file, 3 labels each with 10 features that raise their score and 10
that lower it, on one thread: microseconds of the processor a row, and the largest distance of their
sum from the predictor's score. Then the row's feature that raises the best label most is left out:
the largest distance of what the score loses (by `logsum` and `blend` but for the other lines) from
what was said, for models that leave values as they are or make them 1, and labels that stay among
50.
"""

import time
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.machine_facts import facts, parser, report, text_of
from streammach.model.model import Model
from streammach.options.estimators import BLEND, USUAL, rankers
from streammach.prediction.explain import Explainer
from streammach.prediction.inputs import InputCounts, rows_of
from streammach.prediction.predictor import Predictor
from streammach.rows.block import RowBlock
from streammach.system.files.urls import locate

LABELS, EACH = 3, 10
LEFT_OUT, AMONG = 200, 50  # rows that lose a feature; best labels that are looked at


def first_rows(predictor, path, n):
    """The first rows of a store or a file."""
    room = predictor.room("predict", path, LABELS)
    blocks = rows_of(locate(path), predictor.model, InputCounts(), room, label_needed=False)
    return RowBlock.concat([*islice(blocks, -(-n // room.rows) + 1)]).part(0, n)


def without_best(rows, reasons):
    """The rows without the feature that raises the best label most; whether there is one."""
    raises = reasons["contributions"][:, 0] > 0
    some = np.argmax(raises, axis=1)
    best = np.take_along_axis(reasons["features"][:, 0], some[:, None], axis=1)[:, 0]
    owners = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
    return rows.with_values(rows.features != best[owners]), raises.any(axis=1), some


def left_out(predictor, why, rows, ids, name):
    """The largest distance of what scores lose from what was said."""
    rows, ids = rows.part(0, min(rows.n_rows, LEFT_OUT)), ids[:LEFT_OUT, :1]
    reasons = why.reasons(rows, ids, EACH)
    less, there, some = without_best(rows, reasons)
    order, scores = predictor.rank(less, AMONG, name)
    same = order == ids
    score, there = np.where(same, scores, 0).sum(axis=1), there & same.any(axis=1)
    said = np.take_along_axis(reasons["contributions"][:, 0], some[:, None], axis=1)[:, 0]
    lost = reasons["score"][:, 0] - score
    if name in (BLEND, USUAL):
        other = why.reasons(less, ids, EACH)
        lost -= (reasons["lines"] - other["lines"])[:, 0, :-1].sum(axis=1)
    return float(np.abs(lost - said)[there].max())


def of_ranking(predictor, rows, name):
    """What it takes and how exact it is, by a way to rank."""
    ids, scores = predictor.rank(rows, LABELS, name)
    why = Explainer(predictor.model, name)
    why.reasons(rows.part(0, 1), ids[:1], EACH)  # compiles
    began = time.thread_time()
    reasons = why.reasons(rows, ids, EACH)
    seconds = time.thread_time() - began
    total = reasons["contributions"].sum(axis=2) + reasons["lines"].sum(axis=2)
    found = {
        "us_a_row": round(1e6 * seconds / rows.n_rows),
        "sum_off": float(np.abs(total - scores).max()),
        "largest_score": float(np.abs(scores).max()),
    }
    if predictor.model.training.transform in ("raw", "binary"):
        found["left_out_off"] = left_out(predictor, why, rows, ids, name)
    return found


def main():
    arguments = parser(__doc__)
    arguments.add_argument("runs", nargs="+", metavar="RUN=TEST")
    arguments.add_argument("--rows", type=int, default=1000)
    options = arguments.parse_args()
    figures = {}
    for one in options.runs:
        run, _, test = one.partition("=")
        with Predictor(Model.load(run), threads=1, device="cpu") as predictor:
            model, rows = predictor.model, first_rows(predictor, test, options.rows)
            found = figures[Path(run).name] = {
                "model": f"{model.spec} {model.width}", "classes": model.spec.n_classes,
                "values_a_row": round(rows.nnz / rows.n_rows, 1), "rows": rows.n_rows,
            }  # fmt: skip
            for name in rankers():
                if (name != BLEND or model.counts) and (name == BLEND or not model.spec.unhashed):
                    found[name] = of_ranking(predictor, rows, name)
    figures["machine"] = facts()
    print(text_of(figures))
    report(figures, options.json)


if __name__ == "__main__":
    main()
