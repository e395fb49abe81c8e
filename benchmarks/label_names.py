"""Names of labels: what they bring, with one training that has them and one that has not.

    python -m benchmarks.label_names FOLDER [--columns title] [--memory 2GB] [--first 10000]

FOLDER holds train.tsv and dev.tsv with the columns title, abstract, subjects and language, and
names.tsv, each perhaps .gz: a library's records, whose subjects are ids with blanks between, and
what the ids are called. Rows of dev from --first on are measured, all and by language; so are
labels that no training row has, a query of one row, and the bytes of both models. Figures go to
FOLDER/label_names.json too.
"""

import gzip
import time
from pathlib import Path

import numpy as np

import streammach as sm
from benchmarks.machine_facts import facts, parser, text_of

QUERIES, K = 500, 5
LANGUAGES = {"all": ("de", "en"), "German": ("de",), "English": ("en",)}


def lines_of(folder, name):
    """The cells of a file's lines."""
    plain = folder / name
    text = plain.read_text() if plain.exists() else gzip.decompress(
        (folder / f"{name}.gz").read_bytes()
    ).decode()  # fmt: skip
    return [line.split("\t") for line in text.rstrip("\n").split("\n")]


def records(folder, name, columns):
    """Rows as dicts of texts, and their labels and languages."""
    header, *cells = lines_of(folder, name)
    rows = [dict(zip(header, row, strict=True)) for row in cells]
    texts = [{column: row[column] for column in columns} for row in rows]
    return texts, [row["subjects"].split() for row in rows], [row["language"] for row in rows]


def metrics(best, labels, known):
    """P@1, P@5, F1@5, and recall at 5 of labels of training rows and of those without any."""
    hits = [[label in own for label in row] for row, own in zip(best, labels, strict=True)]
    first, five = np.mean([row[0] for row in hits]), np.array([sum(row) for row in hits])
    sizes = np.array([len(own) for own in labels])
    found = {True: [0, 0], False: [0, 0]}
    for row, own in zip(best, labels, strict=True):
        for label in own:
            found[label in known][0] += label in row
            found[label in known][1] += 1
    recall = {seen: hit / max(n, 1) for seen, (hit, n) in found.items()}
    return {
        "P@1": first, "P@5": five.mean() / K, "F1@5": (2 * five / (K + sizes)).mean(),
        "recall@5 of labels with rows": recall[True],
        "recall@5 of labels without rows": recall[False], "labels without rows": found[False][1],
        "rows": len(labels), "error of P@1": (first * (1 - first) / len(labels)) ** 0.5,
    }  # fmt: skip


def measure(options, train, test, names):
    """What a training reaches, with names or without."""
    began = time.process_time()
    with sm.train(
        *train, memory=options.memory, language=options.language, label_names=names,
        text=options.columns,
    ) as run:  # fmt: skip
        figures = {"seconds": time.process_time() - began, "reasons": list(run.result.reasons)}
        known = {label for own in train[1] for label in own}
        ids = run.model.predict_topk(test[0], k=K)[0].tolist()
        for name, languages in LANGUAGES.items():
            some = [i for i, language in enumerate(test[2]) if language in languages]
            figures[name] = metrics([ids[i] for i in some], [test[1][i] for i in some], known)
        times = []
        for row in test[0][:QUERIES]:
            began = time.perf_counter()
            run.model.predict([row])
            times.append(time.perf_counter() - began)
        figures |= {"query us": 1e6 * float(np.median(times)), "bytes": run.model.n_bytes}
    return figures


def main():
    """Measure both, and print a table."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--columns", nargs="+", default=["title"])
    arguments.add_argument("--memory", default="2GB")
    arguments.add_argument("--language", default="german")
    arguments.add_argument("--first", type=int, default=10_000, help="of the rows of dev")
    options = arguments.parse_args()
    texts, labels, _ = records(options.folder, "train.tsv", options.columns)
    test = [part[options.first :] for part in records(options.folder, "dev.tsv", options.columns)]
    names = {label: name for label, name, *_ in lines_of(options.folder, "names.tsv")}
    found = {"machine": facts(), "columns": options.columns}
    for what, own in (("without", None), ("with", names)):
        found[what] = measure(options, (texts, labels), test, own)
        print(what, text_of({k: v for k, v in found[what].items() if k != "reasons"}), flush=True)
    (options.folder / "label_names.json").write_text(text_of(found) + "\n")


if __name__ == "__main__":
    main()
