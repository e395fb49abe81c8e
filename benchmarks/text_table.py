"""A table of text from file to predictions: streammach beside what people use for it.

    python -m benchmarks.data.debian_packages FOLDER
    python -m benchmarks.text_table FOLDER [--systems NAME,...] [--json FILE]

FOLDER holds train.csv and test.csv, whose column `maintainer` is the label. Each system reads the
files in a process of its own, learns on one thread and ranks five labels for each test row.
scikit-learn and fastText are given all columns of text as one. `pip install scikit-learn
fasttext-wheel pandas`. Seconds are those of the processor, from the first file to the last
prediction; a second run of this shows them without the compilation of kernels, once an
installation. Bytes are those of the model's files.
"""

import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.machine_facts import facts, parser, report

LABEL = "maintainer"
TOP = 5
MEMORY = "2GB"


def tables(folder):
    """The two tables as data frames of strings."""
    import pandas

    return [pandas.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
            for name in ("train", "test")]  # fmt: skip


def joined(table):
    """All columns but the label as one text a row."""
    return table.drop(columns=LABEL).agg(" ".join, axis=1).tolist()


def command(folder, work):
    """Two commands: fit and evaluate."""
    from streammach.cli.main import main

    run, found = str(work / "run"), work / "found.json"
    with open(os.devnull, "w") as nowhere:
        sys.stdout, before = nowhere, sys.stdout
        main(["fit", str(folder / "train.csv"), "--label", LABEL, "--memory", MEMORY, "--out", run,
              "--threads", "1", "--progress", "none"])  # fmt: skip
        with open(found, "w") as sys.stdout:
            main(["evaluate", run, str(folder / "test.csv"), "--json", "--threads", "1"])
        sys.stdout = before
    figures = json.loads(found.read_text())
    size = sum(f.stat().st_size for f in (work / "run" / "model").iterdir())
    return figures["accuracy"], figures["top_5_accuracy"], size


def python(folder, work):
    """Six lines of Python."""
    import streammach as sm

    train, test = tables(folder)
    run = sm.train(train, LABEL, memory=MEMORY, threads=1)
    best = run.model.predict(test, k=TOP)
    run.model.save(work / "model")
    size = sum(f.stat().st_size for f in (work / "model").iterdir())
    return *hits(best, test[LABEL].to_numpy()), size


def hits(best, labels):
    """Accuracy and top-5 accuracy of labels (n, 5)."""
    same = best == labels[:, None]
    return float(same[:, 0].mean()), float(same.any(axis=1).mean())


def linear(folder, work, estimator):
    """TF-IDF of words and pairs of them, and a linear classifier."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    train, test = tables(folder)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = make_pipeline(vectorizer, estimator).fit(joined(train), train[LABEL])
    scores = model.decision_function(joined(test))
    best = model.classes_[np.argsort(-scores, axis=1)[:, :TOP]]
    size = len(pickle.dumps(model))
    return *hits(best, test[LABEL].to_numpy()), size


def sgd(folder, work):
    """SGDClassifier with the logistic loss."""
    from sklearn.linear_model import SGDClassifier

    return linear(folder, work, SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0))


def svc(folder, work):
    """LinearSVC."""
    from sklearn.svm import LinearSVC

    return linear(folder, work, LinearSVC())


def fasttext(folder, work):
    """fastText with pairs of words."""
    import fasttext as library

    train, test = tables(folder)
    names = {label: f"__label__{i}" for i, label in enumerate(sorted(set(train[LABEL])))}
    lines = [f"{names[label]} {text}\n" for label, text in
             zip(train[LABEL], joined(train), strict=True)]  # fmt: skip
    (work / "train.txt").write_text("".join(lines))
    model = library.train_supervised(
        str(work / "train.txt"), wordNgrams=2, epoch=25, lr=0.5, dim=100, thread=1, verbose=0,
    )  # fmt: skip
    found, _ = model.predict(joined(test), k=TOP)
    own = test[LABEL].map(names).to_numpy()
    model.save_model(str(work / "model.bin"))
    return *hits(np.array(found), own), (work / "model.bin").stat().st_size


SYSTEMS = {
    "streammach, two commands": command, "streammach, six lines of Python": python,
    "TfidfVectorizer + LinearSVC": svc, "TfidfVectorizer + SGDClassifier": sgd,
    "fastText": fasttext,
}  # fmt: skip


def one(name, folder):
    """Run a system; print its figures."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as work:
        began, before = time.monotonic(), time.process_time()
        first, five, size = SYSTEMS[name](folder, Path(work))
    print(json.dumps({
        "accuracy": first, "top_5_accuracy": five, "seconds": time.monotonic() - began,
        "processor_seconds": time.process_time() - before, "model_bytes": size,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))  # fmt: skip


def main():
    """Run all systems, each in a process of its own."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--systems", help="names, with commas between")
    arguments.add_argument("--one", help="run this system here")
    given = arguments.parse_args()
    if given.one:
        one(given.one, given.folder)
        return
    found, environment = {}, {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    wanted = list(SYSTEMS) if given.systems is None else given.systems.split(",")
    for name in [next(s for s in SYSTEMS if word in s) for word in wanted]:
        call = [sys.executable, "-m", "benchmarks.text_table", str(given.folder), "--one", name]
        done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            print(f"{name:32} {done.stderr.strip().splitlines()[-1][:90]}")
            continue
        row = found[name] = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{name:32} accuracy {row['accuracy']:.3f}  top-5 {row['top_5_accuracy']:.3f}  "
            f"{row['processor_seconds']:6.0f} s  model {row['model_bytes'] / 1e6:8.1f} MB  "
            f"peak {row['peak_bytes'] / 1e9:5.2f} GB", flush=True
        )  # fmt: skip
    libraries = ("scikit-learn", "fasttext-wheel", "pandas", "pyarrow")
    report({"machine": facts(*libraries), "systems": found}, given.json)


if __name__ == "__main__":
    main()
