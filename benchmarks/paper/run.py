"""The tables and the figure of the MACH paper, made anew from a pair of stores.

    python -m benchmarks.paper.run TRAIN.zarr TEST.zarr --out FOLDER [--rows N] [--grid 8x25,32x25]

Plain MACH, without counts: accuracy against model size over a grid of B and R with the lines of
one-vs-all, LOMTree, Recall Tree and an exact softmax; training time; the estimators; the classes
that hashes cannot tell apart, counted against the theorem. FOLDER gets results.json after every
step, and at the end report.md with the tables and the figures as SVG and PNG. The same command
goes on where an interrupted one stopped, and tries lines again that have no figures.

Vowpal Wabbit's lines need `pip install vowpalwabbit`, here or in the environment of
--peers-python; figures need `pip install "streammach[report]"`.
"""

import json
import sys
import time
from pathlib import Path

from benchmarks import machine_facts
from benchmarks.paper import distinguish, grid, lines
from benchmarks.paper.sample import sampled
from streammach.data.store.dataset import Dataset
from streammach.errors import StreammachError, UsageError, clean
from streammach.files.writing import write_atomic
from streammach.rows.canonical import canonicalize

PAPER_CLASSES = 105_033  # of ODP
GRID = "8x25,32x25,128x12"


def options():
    parser = machine_facts.parser(__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of results and figures")
    parser.add_argument("--grid", default=GRID, help=f"B x R, R the largest ({GRID})")
    parser.add_argument("--rows", type=int, help="train on the first rows of the store only")
    parser.add_argument("--max-test", type=int, default=20_000, help="first rows of the test")
    parser.add_argument("--epochs", type=int, help="at most, as train --epochs")
    parser.add_argument("--memory", default="6GB", help="most for one training (6GB)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0, help="no step begins after them")
    parser.add_argument("--line-minutes", type=float, default=15.0, help="most for one line")
    parser.add_argument("--name", help="of the data; the store's otherwise")
    parser.add_argument("--note", help="a sentence for the report, such as on the machine's load")
    parser.add_argument("--peers-python", default=sys.executable, help="that has vowpalwabbit")
    given = parser.parse_args()
    given.name = given.name or given.train.stem
    return given


class Results:
    """What was measured, on disk after every step."""

    def __init__(self, path, request):
        self.path = path
        self.found = {"request": request, "steps": {}, "seconds": {}}
        if path.exists():
            self.found = json.loads(path.read_text(encoding="utf-8"))
            if self.found["request"] != request:
                raise UsageError(
                    "it holds results of other stores or options",
                    path=clean(path, 300),
                    hint="Use the same command as before, or another --out.",
                )

    def __getitem__(self, name):
        return self.found["steps"].get(name)

    def add(self, name, figures, seconds):
        self.found["steps"][name] = figures
        self.found["seconds"][name] = seconds
        self.found["machine"] = machine_facts.facts()
        self.save()

    def save(self):
        write_atomic(self.path, (machine_facts.text_of(self.found) + "\n").encode())


def request(given):
    with Dataset.open(given.train) as data, Dataset.open(given.test) as other:
        digests = {"train": data.digest, "test": other.digest}
    names = ("name", "rows", "max_test", "epochs", "grid", "threads")
    return {**digests, **{name: getattr(given, name) for name in names}}


def data_facts(given, train, test):
    with Dataset.open(given.train) as whole, Dataset.open(train) as data:
        rows = test_rows(test, given.max_test)(data)
        return {
            "rows": data.n_rows, "of_rows": whole.n_rows, "classes": data.n_classes,
            "features": data.n_features, "values_a_row": data.nnz / data.n_rows,
            "test_rows": rows.n_rows, "unseen": float((rows.classes < 0).mean()),
        }  # fmt: skip


def test_rows(test, most):
    """Return a function that gives the test's first rows with the ids of a store or a model."""

    def rows(like):
        with Dataset.open(test) as other:
            return canonicalize(
                other.rows(0, min(most, other.n_rows)),
                like.features.ids_of(other.features),
                like.labels.ids_of(other.labels),
            )

    return rows


def steps(given, results):
    """Yield (name, function) of all steps; each function returns figures."""
    runs = given.out / "runs"
    stores = [given.train, given.test]

    def sample():
        if given.rows is not None:
            stores[:] = sampled(*stores, given.out / "sample", given.rows, given.max_test)
        return data_facts(given, *stores)

    yield "data", sample
    shapes = grid.parse(given.grid)
    for classes in dict.fromkeys((results["data"]["classes"], PAPER_CLASSES)):
        for b in dict.fromkeys(b for b, _ in shapes if b < classes):
            yield f"distinguish/{classes}/{b}", lambda k=classes, b=b: distinguish.counted(k, b)
    rows = test_rows(stores[1], given.max_test)
    for b, r in shapes:
        yield (
            f"grid/{b}x{r}",
            lambda b=b, r=r: grid.trained_and_measured(
                stores[0], runs / f"{b}x{r}", rows, given, n_buckets=b, n_repetitions=r
            ),
        )
    for system in lines.PEERS:
        yield f"line/{system}", lambda s=system: lines.peer(s, *stores, given.out, given)
    yield "line/exact", lambda: lines.exact(stores[0], runs / "exact", rows, given)


def work(given, results):
    """Do the steps that are missing; return whether there was time for all."""
    given.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * given.minutes
    given.left = lambda: end - time.monotonic()
    for name, step in steps(given, results):
        known = results[name]
        if known is not None and "failed" not in known and name != "data":
            continue
        if given.left() <= 0:
            print(f"{given.minutes:g} minutes are over before {name}: the same command goes on")
            return False
        began = time.monotonic()
        figures = step()
        if known is None or "failed" in known:
            results.add(name, figures, time.monotonic() - began)
        print(f"{time.monotonic() - began:7.1f} s  {name}  {said(name, figures)}", flush=True)
    return True


def said(name, figures):
    if "failed" in figures:
        return figures["failed"]
    if name.startswith("grid/"):
        best = figures["points"][-1]
        return "accuracy " + ", ".join(
            f"{best[e]['p_at_1']:.3f} {e}" for e in ("mean", "logsum") if e in best
        )
    if name.startswith("line/"):
        return f"accuracy {figures['p_at_1']:.3f}, {figures['train_seconds']:.0f} s of training"
    if name == "data":
        return f"{figures['rows']:,} rows, {figures['classes']:,} classes"
    return f"R {figures['theorem_repetitions']} by the theorem"


def main():
    given = options()
    try:
        results = Results(given.out / "results.json", request(given))
        whole = work(given, results)
        if given.note is not None:
            results.found["note"] = given.note
            results.save()
    except StreammachError as error:
        sys.exit(str(error))
    if whole:
        from benchmarks.paper import figure, tables

        names = figure.draw(results.found, given.out)
        text = tables.section(results.found, names)
        write_atomic(given.out / "report.md", text.encode())
        print(f"written: {given.out / 'report.md'}")


if __name__ == "__main__":
    main()
