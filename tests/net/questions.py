"""What a user can ask of a store or a model: each question gives a document that JSON can hold."""

import hashlib
import json
from dataclasses import asdict

import numpy as np
import zarr

import streammach as sm
from tests.net.products import CPU, FIXED, MORE
from tests.net.rows import SOURCES, cells_of, dense_matrix, draw_rows, label_of, sparse_matrix

OF_THE_MACHINE = {  # times, memory and places are another's elsewhere
    "seconds", "projected_bytes", "peak_bytes", "device_projected_bytes", "device_peak_bytes",
    "rows_per_second", "waited_share", "path", "out", "lines", "reasons", "rejects", "run", "plan",
    "stages", "model", "text_bytes", "expected_seconds", "bytes_in_memory", "decoding", "resident",
    "disk_bytes", "bytes_before",
}  # fmt: skip


def lasting(document):
    """Return a document without what depends on the machine."""
    if isinstance(document, list):
        return [lasting(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {k: lasting(v) for k, v in document.items() if k not in OF_THE_MACHINE}


def digest_of(array):
    array = np.ascontiguousarray(array)
    return [str(array.dtype), list(array.shape), hashlib.sha256(array).hexdigest()[:16]]


def store_content(net, name):
    """Return what the store of a source holds, read by another library, and its own digest."""
    path, _ = net.store(name)
    arrays = [array for _, array in zarr.open_group(net.folder / path, mode="r").members(None)]
    found = {a.path: digest_of(a[:]) for a in arrays if isinstance(a, zarr.Array)}
    with sm.Dataset.open(net.folder / path) as data:
        assert sm.verify(net.folder / path) == []
        names = {"labels": data.labels[:4], "features": data.features[:4]}
        return {"arrays": found, "digest": data.digest, **names}


def store_reports(net, name):
    """Return what commands print of a source and its store."""
    (store, printed), (file, labels) = net.store(name), net.file(name)
    options = SOURCES[name].options.split() if file.endswith("csv") else []
    return {
        "convert": lasting(printed), "info": lasting(net.command("info", store, "--json")),
        "explore": lasting(net.command("explore", file, *labels, *options, "--json")),
    }  # fmt: skip


def plan_of(net, name):
    """Return the plan of a budget, and of a shape that is asked for."""
    store = net.store(name)[0]
    plans = [["--memory", "400MB"], ["--memory", "2GB", "--buckets", "16", "--repetitions", "4"]]
    found = [net.command("plan", store, *words, *CPU[:2], *CPU[4:6], "--json") for words in plans]
    return [[plan["chosen"], [option["fits"] for option in plan["options"]]] for plan in found]


def model_arrays(net, name):
    """Return the digests of a model's arrays."""
    arrays = sm.Model.load(net.folder / net.run(name)[0] / "model").arrays()
    return {key: digest_of(array) for key, array in sorted(arrays.items())}


def training(net, name):
    """Return what a training prints, and what is said of its run."""
    run, printed = net.run(name)
    return {"train": lasting(printed), "info": lasting(net.command("info", run, "--json"))}


def ranked(lines):
    """Return the labels of lines of predictions, with scores or probabilities."""
    return [[line["labels"], line.get("scores", line.get("probabilities"))] for line in lines]


def predictions(net, name):
    """Return the best labels of rows with scores, and with probabilities."""
    run, file = net.run(name)[0], net.test_file(name)[0]
    return {
        "scores": ranked(net.predictions(run, file, "-k", "3")[:30]),
        "probabilities": ranked(net.predictions(run, file, "-k", "2", "--probabilities")[:15]),
    }


def some_labels(net, name):
    """Return labels from a threshold on, and of some labels: these alone, and without them."""
    run, file = net.run(name)[0], net.test_file(name)[0]
    labels = sm.Model.load(net.folder / run / "model").labels[::3]
    (net.folder / "some.txt").write_text("".join(f"{label}\n" for label in labels))
    asked = {"threshold": "0.1", "only": "some.txt", "never": "some.txt"}
    return {
        word: ranked(net.predictions(run, file, "-k", "2", f"--{word}", value)[:10])
        for word, value in asked.items()
    }


def evaluation(net, name):
    """Return all that an evaluation measures, and the head of its table of classes."""
    file, labels = net.test_file(name)
    found = net.command("evaluate", net.run(name)[0], file, *labels, "--estimators", "--at", "1,10",
                        "--by-class", "by.csv", "--confusions", "3", "--force", *CPU)  # fmt: skip
    lines = (net.folder / "by.csv").read_text().splitlines()
    return {**lasting(found), "by_class": [line.split(",") for line in lines[:5]]}


def explanations(net, name):
    """Return why a few rows get their best label."""
    run, file = net.run(name)[0], net.test_file(name)[0]
    lines = net.predictions(run, file, "-k", "1", "--explain", "2")
    return [line["explanations"] for line in lines[:5]]


def changed_model(net, name):
    """Return what a model says that was made of another one: shrunk, with more or other labels."""
    of, options = MORE[name]
    run, out, file = net.run(of)[0], f"changed-{name.replace(' ', '-')}", net.test_file(of)[0]
    (net.folder / "new.vw").write_text("".join(
        f"new-{i % 2} |w own{i % 2}_0 own{5 + i % 2}_1 n{i % 7}\n" for i in range(20)
    ))  # fmt: skip
    old = sm.Model.load(net.folder / run / "model").labels[:4]
    names = f"{old[0]}\tfirst\n{old[1]}\tjoined\n{old[2]}\tjoined\n{old[3]}\t\n"
    (net.folder / "names.tsv").write_text(names)
    verb, *words = options.split()
    printed = net.command(verb, run, *words, "--out", out, "--progress", "none", "--json")
    printed.pop("bytes", None)  # what packed weights take is the processor's
    scores = ranked(net.predictions(out, file, "-k", "3")[:12])
    return {"printed": lasting(printed), "scores": scores}


def suspects(net, name):
    """Return the rows whose labels look wrong, the most suspicious ones."""
    plan = ["--buckets", "8", "--repetitions", "4", "--counts", "on"]
    printed = net.command("suspects", net.store(name)[0], "--out", "suspects.jsonl", "--force",
                          *FIXED.split(), *plan, *CPU)  # fmt: skip
    lines = (net.folder / "suspects.jsonl").read_text().splitlines()
    return {"printed": lasting(printed), "rows": [json.loads(line) for line in lines[:10]]}


def answers_of(model, rows):
    """Return the two best labels of ten rows and their probabilities, by the estimator."""
    p = np.asarray(model.predict_proba(rows))[:10]
    best = np.argsort(-p, axis=1, kind="stable")[:, :2]
    return [
        list(model.predict(rows)[:10]),
        model.classes_[best].tolist(),
        np.take_along_axis(p, best, 1).tolist(),
    ]


def estimator(net, name):
    """Return what the estimator answers, fitted on rows in memory."""
    import pandas as pd

    forms = {
        "texts": lambda rows: [cells["text"] for cells in cells_of(rows)],
        "frame": lambda rows: pd.DataFrame(cells_of(rows)).drop(columns="label"),
        "sparse": sparse_matrix, "dense": dense_matrix,
    }  # fmt: skip
    form, _, way = name.partition(" ")
    few = {"n_classes": 4} if way == "few" else {"most_labels": 3} if way == "lists" else {}
    train, test = draw_rows(1, 300, **few), draw_rows(2, 20, **few)
    y = [[f"class-{c}" for c in row.labels] if way == "lists" else label_of(row) for row in train]
    shape = {} if way == "few" else {"n_buckets": 8, "n_repetitions": 4, "epochs": 2}
    model = sm.MACHClassifier(memory="4GB", n_jobs=1, device="cpu", **shape)
    if way == "passes":
        for i in range(0, 300, 100):
            model.partial_fit(forms[form](train[i : i + 100]), y[i : i + 100])
    else:
        model.fit(forms[form](train), y)
    return answers_of(model, forms[form](test))


def metrics(net, name):
    """Return the figures of scores that no model made."""
    lists = name == "lists"
    rng, rows = np.random.default_rng(0), draw_rows(2, 40, most_labels=3 if lists else 1)
    scores = np.round(rng.random((40, 60)), 3)
    for i, row in enumerate(rows):
        scores[i, list(row.labels)] += 0.4
    true = [list(row.labels) for row in rows] if lists else [row.labels[0] for row in rows]
    found = sm.metrics(true, scores, train=true, at=[2], confusions=2)
    figures = {k: v for k, v in asdict(found).items() if k != "by_class"}
    return lasting(json.loads(json.dumps(figures).replace("NaN", "null")))
