"""What this release wrote, kept, and how it was made.

    cd tests/golden && python make.py      # only when the number of a format changes

From the same sixty rows: ``store`` (VW text), ``model``, ``smaller`` (coded weights), ``lists`` (a
store of rows with lists of labels) and ``listed`` (its model), ``added`` (the smaller model with
classes added after the training), ``calibrated`` (the model with a line that corrects
probabilities), ``named`` (the smaller model with packed names, as those of a million labels are),
``columns`` (a model of a matrix, whose columns have names, with random Fourier features) and
``run`` (a training that was interrupted in its second epoch, with its plan and its checkpoint).
``expected.json`` has what they answer. Nothing here is run by the tests.
"""

import contextlib
import dataclasses
import json
import random
import shutil
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import streammach as sm
from streammach.options.documents import from_json
from streammach.options.training import TrainingOptions

HERE = Path(__file__).parent
FOLDER = HERE / "formats-1"
TRAINING = {"epochs": 3, "learning_rate": 0.5, "transform": "log1p"}
SHAPE = {"n_buckets": 4, "n_repetitions": 3, "counts": "on", "threads": 1}
LABELS = ["dev_err", "x 7".replace(" ", "_"), "7", "année", "日", "last"]


def rows():
    """Sixty rows of VW text: tags, importances, namespaces, an empty row."""
    r = random.Random(29)
    lines = []
    for i in range(60):
        y = r.randrange(6) if i > 5 else i
        noise = " ".join(f"n{j}:{r.randrange(1, 9) / 4}" for j in r.sample(range(300), 3))
        weight = " 2" if i % 7 == 3 else ""
        own = "" if i == 11 else f"w own{y} pair{y // 2}:1.5 |x {noise}"
        lines.append(f"{LABELS[y]}{weight} 'row{i}|{own}")
    return "\n".join(lines) + "\n"


def matrix():
    """Sixty rows of ten columns, one of them empty, and their labels."""
    rng = np.random.default_rng(29)
    y = rng.integers(4, size=60)
    x = np.where(rng.random((60, 10)) < 0.3, rng.integers(1, 9, (60, 10)) / 4, 0)
    x[np.arange(60), y] += 3
    x[:, 7] = 0
    return x.astype(np.float32), [f"kind {i}" for i in y]


def lists():
    """The sixty rows with a second label each."""
    out = rows()
    for i, label in enumerate(LABELS):
        out = out.replace(f"{label} ", f"{label},{LABELS[i - 1]} ")
    return out


def train(store, out, **options):
    return sm.Trainer(sm.plan(store, **{**SHAPE, **options}), TrainingOptions(**TRAINING)).fit(
        store, out
    )


def make(folder):
    """Write what this version writes, and what it finds in it."""
    from streammach.model.shrink import Size, shrink

    folder.mkdir()
    Path("rows.vw").write_text(rows())
    sm.convert("rows.vw", folder / "store")
    model = train(folder / "store", "made-run").model
    model.save(folder / "model")
    shrink(model, Size("int8", 2, 20)).save(folder / "smaller")
    Path("made.vw").write_text(lists())
    sm.convert("made.vw", folder / "lists")
    train(folder / "lists", "made-run-lists").model.save(folder / "listed")
    x, labels = matrix()
    sp.save_npz("made.npz", sp.csr_matrix(x))
    Path("made.txt").write_text("\n".join(labels) + "\n")
    sm.convert("made.npz", "made-columns", labels="made.txt")
    from streammach.parts.fourier import part

    part.SIZES = {16: 0.0}
    more = train("made-columns", "made-run-columns", counts="auto", fourier="on")
    more.model.save(folder / "columns")
    add(folder)
    interrupt(folder)
    calibrate(model, folder / "calibrated")
    expected = {name: content(folder / name) for name in ("store", "lists")}
    expected |= {path.parent.name: answers(path.parent) for path in folder.glob("*/model.json")}
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


def calibrate(model, out):
    """Save a model with a line of a calibration, which so few rows do not give."""
    from streammach.model.calibration import Calibration

    line = (0.0, 0.125, 0.5, 0.75, 1.0), (0.0, 0.25, 0.375, 0.875, 1.0)
    dataclasses.replace(model, calibration=Calibration(0.75, 1.5, *line)).save(out)


def add(folder):
    few = rows().splitlines()[:20]
    Path("made-new.vw").write_text("".join(
        f"{'neu' if i % 2 else 'été'} |{line.partition('|')[2]}\n" for i, line in enumerate(few)
    ))  # fmt: skip
    sm.add(folder / "smaller", "made-new.vw", folder / "added", threads=1)


def interrupt(folder):
    """Leave a run as a signal in its second epoch does."""
    from streammach.system.errors import Interrupted
    from streammach.system.processes import StopSignals

    stop, entered = [], StopSignals.__enter__
    StopSignals.__enter__ = lambda signals: stop.append(signals) or entered(signals)

    class Stop:
        def on_progress(self, state):
            stop[-1].requested = state.epoch == 2

    trainer = sm.Trainer(
        sm.plan(folder / "store", **SHAPE), TrainingOptions(**TRAINING), callbacks=[Stop()]
    )
    with contextlib.suppress(Interrupted):
        trainer.fit(folder / "store", folder / "run")


def answers(path):
    """Labels and scores of a model of text on rows.vw, of another on the matrix.

    Of a calibrated one probabilities, in place of scores.
    """
    model = sm.Model.load(path)
    with sm.Predictor(model, device="cpu", threads=1) as predictor:
        if path.name == "columns":
            labels, scores = predictor.topk(sp.csr_array(matrix()[0]), 3)
        else:
            calibrated = path.name == "calibrated"
            found = list(predictor.stream(HERE / "rows.vw", 3, probabilities=calibrated))
            labels = np.concatenate([predictor.labels(part.ids) for part in found])
            scores = np.concatenate([part.scores for part in found])
    return {"labels": labels.tolist(), "scores": np.round(scores, 5).tolist()}


def content(path):
    """Digest and rows of a store: label, importance, and names with values, in stored order."""
    with sm.Dataset.open(path) as store:
        block, names, labels = store.rows(0, store.n_rows), store.features, store.labels
        weights = np.ones(block.n_rows) if block.importance is None else block.importance
        found = []
        for i in range(block.n_rows):
            part = slice(block.indptr[i], block.indptr[i + 1])
            values = [float(v) for v in block.values[part]]
            pairs = zip(
                [names.raw(int(f)).decode() for f in block.features[part]], values, strict=True
            )
            own = block.lists.part(i, i + 1).classes.tolist()
            said = ",".join(labels.raw(c).decode() for c in own)
            found.append([said, float(weights[i]), sorted(pairs)])
        return {"digest": store.digest, "rows": json.loads(json.dumps(found))}


def resumed(folder, out):
    """The model of an interrupted run, gone on with in a copy of its folder."""
    shutil.copytree(folder / "run", out)
    plan = from_json((out / "plan.json").read_bytes(), sm.Plan)
    trainer = sm.Trainer(plan, TrainingOptions(**TRAINING))
    return trainer.fit(folder / "store", out, resume=True).model


if __name__ == "__main__":
    make(Path("formats-1"))
