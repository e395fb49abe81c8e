"""The figures of benchmarks.paper.run as tables."""

import shlex

from benchmarks.paper import figure
from benchmarks.paper.grid import ESTIMATORS


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def both(figures):
    five = figures.get("p_at_5")
    return f"{100 * figures['p_at_1']:.1f} / " + ("-" if five is None else f"{100 * five:.1f}")


def section(results, figures):
    """Return the section of one results.json; `figures`: paths of its pictures by name."""
    return "\n".join([
        f"## {results['request']['name']}\n", intro(results),
        picture("Accuracy against model size", figures["accuracy"]), accuracy(results),
        "### Training time\n", training(results), "### Lines\n", compared(results),
        "### Estimators\n",
        picture("Accuracy and top-5 accuracy against R by estimator", figures["estimators"]),
        estimators(results), "### Classes that the hashes cannot tell apart\n",
        picture("pairs of classes with the same codes against R", figures["distinguish"]),
        distinguished(results),
    ])  # fmt: skip


def picture(text, path):
    return f"![{text}]({path})\n"


def intro(results):
    data, asked, machine = results["steps"]["data"], results["request"], results["machine"]
    part = f"the first {data['rows']:,} of {data['of_rows']:,}"
    rows = part if data["rows"] < data["of_rows"] else f"{data['rows']:,}"
    threads = "1 thread" if asked["threads"] == 1 else f"{asked['threads']} threads"
    minutes = sum(results["seconds"].values()) / 60
    error = 50 / data["test_rows"] ** 0.5
    return (
        f"Trained on {rows} rows ({data['classes']:,} classes, {data['features']:,} features, "
        f"{data['values_a_row']:.1f} values a row), tested on {data['test_rows']:,} rows, of which "
        f"{100 * data['unseen']:.1f}% have a label that training did not see and count as wrong "
        f"(standard error of an accuracy at most {error:.2f}). All steps took "
        f"{minutes:.0f} minutes with {threads} on {machine['processor']}."
        + (f" {results['note']}" if "note" in results else "")
        + f"\n\n```\n{command(asked)}\n```\n"
    )


def command(asked):
    names = ("name", "rows", "max_test", "epochs", "grid", "threads")
    given = [
        f"--{n.replace('_', '-')} {shlex.quote(str(asked[n]))}"
        for n in names
        if asked[n] is not None
    ]
    return "python -m benchmarks.paper.run TRAIN.zarr TEST.zarr --out FOLDER \\\n    " + " ".join(
        given
    )


def accuracy(results):
    """Return accuracy / top-5 by B and R, unbiased and log-sum."""
    head = ["B", "R", "weights MB", "unbiased accuracy / top-5", "log-sum accuracy / top-5"]
    rows = [
        [step["buckets"], p["repetitions"], f"{p['bytes'] / 1e6:,.1f}", both(p["mean"]),
         both(p["logsum"])]
        for step in figure.grids(results)
        for p in step["points"]
    ]  # fmt: skip
    return table(head, rows)


def training(results):
    head = [
        "B x R", "columns", "epochs", "epoch kept", "rows/s", "epochs, s", "search and the rest, s",
        "rate", "values", "memory, GB",
    ]  # fmt: skip
    rows = [
        [
            f"{s['buckets']} x {s['repetitions']}", s["buckets"] * s["repetitions"], s["epochs"],
            s["best_epoch"], f"{s['rows_per_second']:,.0f}", f"{s['epoch_seconds']:.0f}",
            f"{max(s['seconds'] - s['epoch_seconds'], 0):.0f}", f"{s['learning_rate']:.3g}",
            s["transform"], f"{s['projected_bytes'] / 1e9:.2f}",
        ]
        for s in figure.grids(results)
    ]  # fmt: skip
    return table(head, rows)


def compared(results):
    head = ["system", "accuracy / top-5", "training s", "model MB", "us a row", "settings"]
    rows = []
    for name, label in figure.LINE_NAMES.items():
        row = results["steps"].get(name)
        if row is None:
            continue
        if "failed" in row:
            rows.append([label, f"left out: {row['failed']}", "", "", "", row.get("settings", "")])
            continue
        rows.append(
            [label, both(row), f"{row['train_seconds']:.0f}", f"{row['model_bytes'] / 1e6:,.1f}",
             f"{row['microseconds_a_query']:.0f}", row["settings"]]
        )  # fmt: skip
    return table(head, rows)


def estimators(results):
    """Return both accuracies of each estimator by B and R, and the time of a row at the last R."""
    rows = []
    for step in figure.grids(results):
        for p in step["points"][1:]:
            cells = [both(p[name]) for name in ESTIMATORS]
            rows.append([step["buckets"], p["repetitions"], *cells])
        last = step["points"][-1]
        speeds = [
            f"{last[n]['microseconds']:.0f} us a row" if n in last else "" for n in ESTIMATORS
        ]
        rows.append([step["buckets"], last["repetitions"], *speeds])
    return table(["B", "R", *ESTIMATORS.values()], rows)


def distinguished(results):
    """Return counted pairs against what is expected, for the data's classes and the paper's."""
    steps = [s for name, s in results["steps"].items() if name.startswith("distinguish/")]
    rows = []
    for step in steps:
        for row in step["rows"]:
            shown = [
                f"{step['classes']:,}", step["buckets"], row["repetitions"],
                f"{row['pairs']:,.10g}", f"{row['expected']:,.3g}",
                f"{row['draws_with_pairs']} of {step['draws']}", f"{row['bound']:.2g}",
                "**R of the theorem**" if row["repetitions"] == step["theorem_repetitions"] else "",
            ]  # fmt: skip
            if row["expected"] < 1e3 and row["repetitions"] <= step["theorem_repetitions"]:
                rows.append(shown)
    head = ["K", "B", "R", "pairs, mean", "K(K-1)/2 B^-R", "draws with a pair", "bound on it", ""]
    return table(head, rows)
