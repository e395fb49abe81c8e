"""The card of a model, in Markdown: what it is, how well it does, how to use it, its limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from streammach.cli.about import model_lines
from streammach.model.model import Model
from streammach.model.size import size_in_memory
from streammach.options.figures import TopK
from streammach.prediction.diagnose import Diagnosis
from streammach.system.errors import clean
from streammach.system.machine import size_text
from streammach.training.run import CARD_MARK, Run

USE = """```python
import streammach as sm

model = sm.Model.load("FOLDER")  # the folder of the model
labels, scores = model.predict_topk(rows, k=5)
```"""
FOLDERS = re.compile(r"(?<!\S)/(?:[^/\s]+/)+")  # of a path: a card is for others
SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#"})


def card(run: Run, model: Model, verdict: Sequence[str], diagnosis: Diagnosis | None = None) -> str:
    """Return the card of the model of a run; `verdict` is what the run came to, in sentences."""
    task = "multi-label" if model.listed else "multi-class"
    sections = {
        f"# {_text(run.path.resolve().name)}": " ".join(map(_text, verdict)),
        "## How to use it": USE + "\n\n" + _input(model),
        "## What it is": _list(f"{name}: {_text(said)}" for name, said in model_lines(model)),
        "## What it was trained on": _list(_data(run)),
        "## How well it does": _table(_figures(run, diagnosis), listed=model.listed),
        "## Limits": _list(_limits(run, model, diagnosis)),
    }
    head = f"{CARD_MARK}tags:\n- extreme-classification\n- {task}\n---"
    return "\n\n".join([head, *(f"{name}\n\n{text}" for name, text in sections.items())]) + "\n"


def _text(value: object) -> str:
    """Return text that Markdown shows as it is, without the folders of paths."""
    return FOLDERS.sub("", clean(value, 500)).translate(SPECIAL)


def _list(lines: Iterator[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _input(model: Model) -> str:
    if model.recipe is not None:
        return f"Rows are those of a table: {_text(model.recipe.in_words())}."
    return (
        f"Rows have up to {model.spec.n_features:,} features, by name or by column, with a value "
        f"each (transform: {model.training.transform})."
    )


def _data(run: Run) -> Iterator[str]:
    facts = run.plan.facts
    yield f"{facts.n_rows:,} rows, {facts.n_classes:,} classes, {facts.n_features:,} features"
    if facts.listed:
        yield f"{facts.n_labels / facts.n_rows:z.3g} labels a row"
    yield f"digest of the store: `{facts.digest}`"
    yield _text(run.settings.training.text)


def _figures(run: Run, diagnosis: Diagnosis | None) -> Iterator[tuple[str, TopK]]:
    if run.result.best is not None:
        yield f"held out: {run.settings.held_out}", run.result.best
    if diagnosis is not None:
        yield f"{diagnosis.n_rows:,} rows of {clean(diagnosis.path, 100)}", diagnosis


def _table(rows: Iterator[tuple[str, TopK]], *, listed: bool) -> str:
    first, five = ("P@1", "P@5") if listed else ("accuracy", "top-5 accuracy")
    lines = [f"| {_text(name)} | {x.accuracy:z.3f} | {x.top_5_accuracy:z.3f} |" for name, x in rows]
    if not lines:
        return "It was not measured: no rows were held out."
    return "\n".join([f"| rows | {first} | {five} |", "|---|---|---|", *lines])


def _limits(run: Run, model: Model, diagnosis: Diagnosis | None) -> Iterator[str]:
    yield "It answers with labels that it was trained on, whatever the row; it knows no other."
    yield "Features that training never saw are left out of a row."
    if run.result.best is not None:
        yield "Settings were chosen on the held-out rows, so their figures are a little too good."
    if diagnosis is None:
        yield "No test rows were measured for this card."
    yield f"A query needs {size_text(size_in_memory(model).n_bytes)} of memory for the model."
