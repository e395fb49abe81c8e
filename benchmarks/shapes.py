"""A newcomer's tables beside scikit-learn's plain baselines: 22 shapes, with usual settings.

    apt-get update && apt-get install wordnet-base
    python -m benchmarks.shapes FOLDER [--seed 0 1 2] [--shapes NAME ...] [--out NAME]

FOLDER gets the tables (``s0/iris.train.parquet``) and a line for each system that has answered:
what is there is not done again. Each (shape, system, seed) is a process of its own, which fits,
predicts the test rows, and says its accuracy and macro F1, of tags P@1 and P@5, each with its
standard error, and the processor's seconds. NAME.json and NAME.svg say how far `sm.train` and
`MACHClassifier` are from the baselines, and whether the rules hold, by shape, of each seed and of
all: at least the best linear baseline less one standard error; at least the best of any kind less
two points; at most ten times the linear one's seconds, or 10 s. Baselines have their defaults:
TF-IDF of words and pairs of words, one-hot categories, numbers imputed and standardised.
"""

import importlib
import json
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.data.shapes import SHAPES, TEXTS, Sources
from benchmarks.machine_facts import facts, parser, text_of

NOUNS = "/usr/share/wordnet/data.noun"
RESULTS = Path(__file__).parent / "results" / "first_tables"
OWN, LINEAR = ("sm.train", "MACHClassifier"), ("LogisticRegression", "LinearSVC")
NUMBERS = {"iris", "wine", "cancer", "digits", "numbers_2", "numbers_10", "numbers_missing",
           "sizes_58", "svd_10"}  # fmt: skip
SMALL = NUMBERS - {"sizes_58", "svd_10"}  # on which dear baselines are tried, too
MEMORY, K, RESAMPLES = "2GB", 5, 100
POINTS, TIMES, SECONDS = 0.02, 10, 10.0  # of the rules


def systems_of(shape):
    """The names of what is tried on a shape."""
    if shape not in NUMBERS:
        return [*OWN, "LinearSVC"]
    more = ["SVC", "HistGradientBoosting"] if shape in SMALL else []
    return [*OWN, "LogisticRegression", "10 neighbours", *more]


def baseline(system):
    """An estimator of scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC, LinearSVC

    return {
        "LinearSVC": LinearSVC, "LogisticRegression": lambda: LogisticRegression(max_iter=300),
        "10 neighbours": lambda: KNeighborsClassifier(10), "SVC": lambda: SVC(C=5),
        "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=0),
    }[system]()  # fmt: skip


def features(rows):
    """What makes numbers of a table's columns, as a user would in a few lines."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [name for name in rows if pd.api.types.is_numeric_dtype(rows[name])]
    texts = [name for name in rows if name in TEXTS and name not in numbers]
    others = [name for name in rows if name not in numbers and name not in texts]
    steps = [(name, TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), name) for name in texts]
    if others:
        steps.append(("categories", OneHotEncoder(handle_unknown="ignore"), others))
    if numbers:
        scaled = make_pipeline(SimpleImputer(), StandardScaler())
        steps.append(("numbers", scaled, numbers))
    return ColumnTransformer(steps)


def answers_of(system, shape, train, test, target):
    """What a system says of the test rows: the label, or the best five tags."""
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MultiLabelBinarizer

    import streammach as sm

    rows, new, y = train.drop(columns=target), test.drop(columns=target), train[target]
    lists = [list(tags) for tags in y] if shape == "tags" else None
    if system == "sm.train":
        model = sm.train(train, target, memory=MEMORY).model
        return model.predict(new) if lists is None else model.predict(new, K)
    if system == "MACHClassifier":
        model = sm.MACHClassifier(memory=MEMORY).fit(rows, y if lists is None else lists)
        return model.predict(new) if lists is None else model.predict_topk(new, K)[0]
    model = baseline(system)
    if lists is not None:
        tags = MultiLabelBinarizer(sparse_output=True)
        model = make_pipeline(features(rows), OneVsRestClassifier(model))
        scores = model.fit(rows, tags.fit_transform(lists)).decision_function(new)
        return tags.classes_[np.argsort(-scores, axis=1)[:, :K]]
    if system != "HistGradientBoosting":  # which takes numbers as they are
        model = make_pipeline(features(rows), model)
    return model.fit(rows, y).predict(new)


def macro_f1(true, said, weights):
    """The mean F1 of the classes that are true or said of rows: codes int (n,)."""
    n = max(true.max(), said.max()) + 1
    there, told = (np.bincount(codes, weights, n) for codes in (true, said))
    right = np.bincount(true[true == said], weights[true == said], n)
    some = there + told > 0
    return float((2 * right[some] / (there + told)[some]).mean())


def figures_of(answers, truth):
    """The figures of answers, each with its standard error."""
    if np.ndim(answers) > 1:
        hits = np.array([[tag in set(tags) for tag in best]
                         for best, tags in zip(answers, truth, strict=True)])  # fmt: skip
        each = {"p1": hits[:, 0], "p5": hits.mean(axis=1)}
        return {name: [float(x.mean()), float(x.std() / len(x) ** 0.5)] for name, x in each.items()}
    answers, truth = np.asarray(answers).astype(str), np.asarray(truth).astype(str)
    _, codes = np.unique(np.concatenate([truth, answers]), return_inverse=True)
    true, said = codes[: len(truth)], codes[len(truth) :]
    n, rng = len(true), np.random.default_rng(0)
    drawn = [macro_f1(true, said, np.bincount(rng.integers(n, size=n), minlength=n).astype(float))
             for _ in range(RESAMPLES)]  # fmt: skip
    share = float((true == said).mean())
    return {
        "accuracy": [share, (share * (1 - share) / n) ** 0.5],
        "macro_f1": [macro_f1(true, said, np.ones(n)), float(np.std(drawn))],
    }


def spent():
    """Seconds of processors so far, with those of processes that have ended."""
    kinds = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in kinds)


def score(folder, shape, system, seed):
    """Fit, predict and measure; print a line."""
    warnings.simplefilter("ignore")
    train, test = (pd.read_parquet(table(folder, shape, seed, of)) for of in ("train", "test"))
    for library in ("streammach.training.trainer", "sklearn.ensemble", "sklearn.svm"):
        importlib.import_module(library)  # is nobody's time
    target, began = "tags" if shape == "tags" else "label", spent()
    found = answers_of(system, shape, train, test, target)
    seconds = round(spent() - began, 1)
    line = {"shape": shape, "system": system, "seed": seed, "rows": len(train), "seconds": seconds}
    line |= {name: [round(x, 5) for x in pair]
             for name, pair in figures_of(found, test[target]).items()}  # fmt: skip
    print(json.dumps(line))


def table(folder, shape, seed, part):
    """The path of rows."""
    return folder / f"s{seed}" / f"{shape}.{part}.parquet"


def make_tables(folder, shapes, seeds, nouns):
    """Write the tables that are not there."""
    sources = Sources(nouns)
    for seed in seeds:
        for shape in shapes:
            if table(folder, shape, seed, "test").exists():
                continue
            table(folder, shape, seed, "test").parent.mkdir(parents=True, exist_ok=True)
            parts = SHAPES[shape](sources, seed)
            for part, rows in zip(("train", "test"), parts, strict=True):
                rows.to_parquet(table(folder, shape, seed, part), index=False)


def measured(folder, shapes, seeds, limit):
    """Lines of figures: those that are there, and the others, each by a process of its own."""
    notes, known = folder / "scores.jsonl", {}
    if notes.exists():
        lines = map(json.loads, notes.read_text().splitlines())
        known = {(line["shape"], line["system"], line["seed"]): line for line in lines}
    wanted = [(shape, system, seed) for seed in seeds for shape in shapes
              for system in systems_of(shape)]  # fmt: skip
    for shape, system, seed in wanted:
        if (shape, system, seed) in known:
            continue
        command = [sys.executable, "-m", "benchmarks.shapes", folder, "--one", shape, system, seed]
        line = {"shape": shape, "system": system, "seed": seed}
        try:
            done = subprocess.run(
                [*map(str, command)], capture_output=True, text=True, timeout=limit, check=False
            )
            error = done.stderr.strip().splitlines()[-1:] or ["no answer"]
            line = line | {"error": error[0][:200]} if done.returncode else json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            line["error"] = f"no answer within {limit:g} s"
        known[shape, system, seed] = line
        with notes.open("a") as out:
            out.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
    return [known[key] for key in wanted]


def mean_of(lines, figure):
    """The mean of a figure over seeds, and its standard error."""
    pairs = np.array([line[figure] for line in lines])
    return float(pairs[:, 0].mean()), float((pairs[:, 1] ** 2).sum() ** 0.5 / len(pairs))


def rules(by_system, figures):
    """Whether the rules hold for each of the own systems, and how far it is from the baselines."""
    whole = {system: lines for system, lines in by_system.items()
             if not any("error" in line for line in lines)}  # fmt: skip
    others = [system for system in whole if system not in OWN]
    found = {}
    for own in OWN:
        if own not in whole or not others:
            found[own] = {"linear": False, "any": False, "seconds": False}
            continue
        held, ahead = {"linear": True, "any": True}, {}
        for figure in figures:
            mine, error = mean_of(whole[own], figure)
            best = {s: mean_of(whole[s], figure) for s in others}
            linear = max((best[s] for s in others if s in LINEAR), default=(0.0, 0.0))
            held["linear"] &= mine >= linear[0] - linear[1]
            held["any"] &= mine >= max(x for x, _ in best.values()) - POINTS
            ahead[figure] = [
                round(mine - linear[0], 4),
                round(float(np.hypot(error, linear[1])), 4),
            ]
        cost = {s: np.mean([line["seconds"] for line in whole[s]]) for s in (own, *others)}
        least = min((cost[s] for s in others if s in LINEAR), default=0.0)
        held["seconds"] = bool(cost[own] <= max(TIMES * least, SECONDS))
        found[own] = held | {"ahead_of_linear": ahead}
    return found


def summary(lines):
    """All figures by shape and system, means over seeds, and whether the rules hold."""
    shapes = {}
    for shape in dict.fromkeys(line["shape"] for line in lines):
        own = [line for line in lines if line["shape"] == shape]
        by_system = {}
        for line in own:
            by_system.setdefault(line["system"], []).append(line)
        figures = ("p1", "p5") if shape == "tags" else ("accuracy", "macro_f1")
        shapes[shape] = {
            "systems": {
                system: next(({"error": x["error"]} for x in found if "error" in x), None) or {
                    **{f: [round(x, 4) for x in mean_of(found, f)] for f in figures},
                    "seconds": round(float(np.mean([x["seconds"] for x in found])), 1),
                }
                for system, found in by_system.items()
            },
            "rules": rules(by_system, figures),
            "by_seed": {
                str(seed): rules({system: [line for line in found if line["seed"] == seed]
                             for system, found in by_system.items()}, figures)
                for seed in sorted({line["seed"] for line in own})
            },
        }  # fmt: skip
    return shapes


def draw(shapes, path):
    """Draw how far both doors are from the best linear baseline, in points of the first figure."""
    from benchmarks.picture_files import as_file
    from streammach.frontends.reports.drawing import BLUE, DARK, GREY, ORANGE, legend_above, svg_of

    names = [*shapes][::-1]

    def on(figure):
        axes = figure.add_subplot()
        axes.axvline(0, color=DARK, linewidth=1)
        for own, color, shift in ((OWN[0], BLUE, 0.15), (OWN[1], ORANGE, -0.15)):
            points = [
                (i, *next(iter(found["ahead_of_linear"].values())))
                for i, name in enumerate(names)
                if "ahead_of_linear" in (found := shapes[name]["rules"][own])
            ]
            if points:
                i, x, error = np.array(points).T
                axes.errorbar(100 * x, i + shift, xerr=100 * error, fmt="o", color=color,
                              ecolor=GREY, markersize=4, linewidth=1, label=own)  # fmt: skip
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("points ahead of the best linear baseline")
        legend_above(axes)

    held = sum(all(found["rules"][OWN[0]][rule] for rule in ("linear", "any")) for found in
               shapes.values())  # fmt: skip
    alt = f"sm.train and MACHClassifier beside the best linear baseline on {len(shapes)} tables: "
    alt += f"both rules of figures hold for sm.train on {held}."
    path.write_text(as_file(svg_of(path.stem, on, height=1 + 0.24 * len(names), alt=alt)))


def main():
    """Measure what is not measured yet; write the table and the picture."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--seed", type=int, nargs="+", default=[0])
    arguments.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    arguments.add_argument("--out", type=Path, default=RESULTS, help="without .json and .svg")
    arguments.add_argument("--nouns", default=NOUNS, help="WordNet's file of nouns")
    arguments.add_argument("--limit", type=float, default=900.0, help="seconds of a process")
    arguments.add_argument("--one", nargs=3, help="a shape, a system and a seed, in this process")
    options = arguments.parse_args()
    if options.one:
        shape, system, seed = options.one
        score(options.folder, shape, system, int(seed))
        return
    make_tables(options.folder, options.shapes, options.seed, options.nouns)
    lines = measured(options.folder, options.shapes, options.seed, options.limit)
    shapes = summary(lines)
    held = {own: {rule: sum(found["rules"][own][rule] for found in shapes.values())
                  for rule in ("linear", "any", "seconds")} for own in OWN}  # fmt: skip
    figures = {
        "shapes": shapes, "held": held, "of": len(shapes), "seeds": options.seed, "lines": lines,
        "machine": facts("scikit-learn"),
    }  # fmt: skip
    options.out.with_suffix(".json").write_text(text_of(figures) + "\n")
    draw(shapes, options.out.with_suffix(".svg"))
    print(text_of({"held": held, "of": len(shapes)}))


if __name__ == "__main__":
    main()
