"""What stores, plans, runs, models and measurements are, as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streammach.backends.registry import device_text
from streammach.cli.plan_text import plan_lines
from streammach.model.document import disk_bytes
from streammach.model.model import Model
from streammach.model.size import size_in_memory
from streammach.options.figures import HeldOutMetrics, figures_text, words
from streammach.options.plan import Plan
from streammach.options.reported import FigureTable
from streammach.prediction.by_class import Slice
from streammach.prediction.evaluate import Evaluation
from streammach.prediction.metrics import SetMetrics
from streammach.prediction.scorer_sum import Predictions
from streammach.store.dataset import Dataset
from streammach.system.errors import clean
from streammach.system.machine import number_text, percent_text, size_text, time_text
from streammach.training.run import Run, RunSettings, read_log
from streammach.training.run_part import RunPart

PLACED = {"P": "precision", "N": "nDCG", "R": "recall", "F1": "F1", "PSP": "PSP", "PSN": "PSnDCG"}
Lines = list[tuple[str, str]]  # a name, and what is said of it
SHOWN_ROWS, SHOWN_CLASSES = 10, 5  # of predictions


def text(value: Any) -> str:
    """Return the report of a record as text."""
    if isinstance(value, Plan):
        return "\n".join(plan_lines(value))
    if isinstance(value, Predictions):
        return str(predictions_table(value))
    if isinstance(value, Dataset):
        lines = store_lines(value)
    elif isinstance(value, Run):
        lines = run_lines(value)
    else:
        lines = model_lines(value) if isinstance(value, Model) else evaluation_lines(value)
    return "\n".join(f"{name:<12}{said}" for name, said in lines)


def store_lines(dataset: Dataset) -> Lines:
    """Return what a store holds."""
    root, facts, path, n_bytes = dataset.root, dataset.facts, dataset.path, dataset.stored_bytes
    kept = f"complete, {size_text(n_bytes)}" if n_bytes else "not on a disk"
    sources = ", ".join(f"{clean(s.name)} ({s.format}, {size_text(s.bytes)})" for s in root.source)
    lines = [
        ("store", f"{clean(path, 60)}: format {root.format}, {kept}"),
        ("rows", f"{facts.n_rows:,} with {number_text(facts.nnz / facts.n_rows)} values each, at "
                 f"most {facts.max_row_nnz:,}; {8 * facts.value_bytes} bits a value"),
        ("classes", f"{facts.n_classes:,}; the largest has "
                    f"{percent_text(dataset.label_counts.max() / facts.n_rows)} of the rows"),
        ("features", f"{facts.n_features:,}; a row holds {percent_text(facts.density)} of them"),
        ("source", sources),
        ("digest", facts.digest),
    ]  # fmt: skip
    if facts.listed:
        mean = facts.n_labels / facts.n_rows
        lines.insert(2, ("labels", f"{number_text(mean)} a row, at most {facts.max_row_labels:,}"))
    if root.recipe is not None:
        lines.append(("columns", root.recipe.in_words()))
    if root.skipped:
        lines.append(("skipped", ", ".join(f"{n:,} {r}" for r, n in root.skipped.items())))
    return lines


def run_lines(run: Run, model: Model | None = None) -> Lines:
    """Return what a run decided, planned beside measured."""
    plan, result, training = run.plan, run.result, run.settings.training
    ratio, device = result.peak_bytes / result.projected_bytes, []
    best, listed, n = result.best, plan.facts.listed, len(result.history)
    validation, epochs = "no held-out rows", ""
    linear = plan.config.linear
    if best is not None:
        validation = f"{figures_text(best, listed=listed)} on {run.settings.held_out}"
    if n:
        epochs = f"{n} epochs, best {result.best_epoch + 1}; "
    if result.device_peak_bytes:
        share = result.device_peak_bytes / result.device_projected_bytes
        device = [
            ("device", device_text(plan)),
            ("GPU", f"buffers projected {size_text(result.device_projected_bytes)}  measured "
                    f"{size_text(result.device_peak_bytes)} ({share:z.2f})"),
        ]  # fmt: skip
    time = f"measured {time_text(result.seconds)}"
    if plan.expected is not None:  # of a training with everything searched
        share = result.seconds / plan.expected.seconds
        time = f"expected {time_text(plan.expected.seconds)}  {time} ({share:z.2f})"
    return [
        ("run", f"{clean(run.path, 60)}: {epochs}store {plan.facts.digest[:8]}"),
        *model_lines(run.model if model is None else model, run.path),
        *([] if linear else [("training", f"{plan.config.placement.numbers}, {training.text}")]),
        *(("why", reason) for reason in run.reasons),
        ("memory", f"projected {size_text(result.projected_bytes)}  measured "
                   f"{size_text(result.peak_bytes)} ({ratio:z.2f})"),
        *device,
        ("time", time),
        (words(listed).kind, validation),
    ]  # fmt: skip


def begun_lines(path: Path, plan: Plan | None, settings: RunSettings | None, left: str) -> Lines:
    """Return what is known of a run that is not finished."""
    lines = [("run", f"{clean(path, 60)}: not finished")]
    if plan is not None:
        model, stages = plan.model, read_log(path).stages
        lines[0] = ("run", f"{lines[0][1]}; store {plan.facts.digest[:8]}")
        lines.append(
            ("model", f"{model}, {model.n_classes:,} classes, {model.n_features:,} features")
        )
        reasons = plan.reasons
        if settings is not None:
            lines.append(("training", f"{plan.config.placement.numbers}, {settings.training.text}"))
            reasons += settings.reasons
        lines += [("why", reason) for reason in reasons]
        if stages:
            reached = HeldOutMetrics(stages[-1].accuracy, stages[-1].top_5_accuracy)
            lines.append(("reached", f"{figures_text(reached, listed=plan.facts.listed)} so far"))
    return [*lines, ("left", f"{left}; its command with --resume goes on")]


def part_lines(part: RunPart) -> Lines:
    """Return what a part of a run is, and what to do with it."""
    (first, last), plan, settings = part.repetitions, part.plan, part.settings
    found = [
        ("part", f"{clean(part.path, 60)}: {part.facts.part} of a run, repetitions {first + 1} to "
                 f"{last} of {plan.n_buckets} x {plan.n_repetitions}; store "
                 f"{plan.facts.digest[:8]} ({clean(part.facts.store, 60)})"),
    ]  # fmt: skip
    if settings is not None:
        found.append(("training", f"{plan.config.placement.numbers}, {settings.training.text}"))
    if part.open_work:
        found.append(("left", f"{part.open_work}; its command with --resume goes on"))
    else:
        found.append(("next", "streammach merge RUN PART... joins all parts"))
    return found


def model_lines(model: Model, path: Path | None = None) -> Lines:
    """Return what a model is, and what each part of it reached on held-out rows."""
    spec, served = model.spec, size_text(size_in_memory(model).n_bytes)
    size = "" if path is None else f"{size_text(disk_bytes(path))} on disk, "
    kind = f"{spec} {model.width}" if model.linear is None else "linear classifiers"
    ranks = "" if model.linear else f", {model.estimator}"
    lines = [
        ("model", f"{kind}, {spec.n_classes:,} classes, "
                  f"{spec.n_features:,} features, {size}{served} in memory{ranks}")
    ]  # fmt: skip
    if model.counts is not None:
        said = [f"{model.n_pairs:,} pairs, {size_text(model.counts_bytes)}"]
        alone, both = (model.validation.get(name) for name in ("logsum", "blend"))
        if alone is not None and both is not None:
            said.append(
                f"in training held-out {figures_text(alone, listed=model.listed)} without them, "
                f"{figures_text(both, listed=model.listed)} with"
            )
        lines.append(("counts", "; ".join(said)))
    if model.linear is not None:
        n, n_bytes = model.linear.weights.size, size_text(model.linear.n_bytes)
        lines.append(("linear", f"{n:,} weights of {spec.n_classes:,} classifiers, {n_bytes}"))
    if model.recipe is not None:
        lines.append(("columns", model.recipe.in_words()))
    return lines


def evaluation_lines(found: Evaluation) -> Lines:
    """Return what a model reaches on rows."""
    lines = _class_lines(found) if found.sets is None else _set_lines(found, found.sets)
    lines += _beside_lines(found)
    if found.unknown_values:
        left_out = f"{found.unknown_values:,} values of features that the model does not know"
        lines.append(("left out", left_out))
    return lines


def _beside_lines(found: Evaluation) -> Lines:
    """Return what is told where it was asked for: estimators, values."""
    lines = []
    if found.estimators:
        both = words(found.sets is not None).both
        said = [f"{name} {each['accuracy']:z.3f} / {each['top_5_accuracy']:z.3f}"
                for name, each in found.estimators.items()]  # fmt: skip
        lines.append(("estimators", f"{', '.join(said)}  {both}"))
    if found.by is not None:
        lines.append(("by value", f"{found.by.n_values:,} values of {clean(found.by.by)}"))
        lines += _slice_lines("frequent", found.by.frequent)
        told = found.by.frequent
        lines += _slice_lines("worst", [one for one in found.by.worst if one not in told])
        if found.by.without is not None:
            lines += _slice_lines("without", (found.by.without,))
    for i, one in enumerate(found.confusions):
        pair = " -> ".join(clean(label, 40) for label in one.label_texts)
        lines.append(("" if i else "confusions",
                      f"{one.n_rows:9,} rows{100 * one.share:z7.1f}%  {pair}"))  # fmt: skip
    if found.by_class is not None and found.by_class.n_left_out:
        lines.append(("", f"{found.by_class.n_left_out:9,} rows of rare confusions, left out"))
    return lines


def _place_lines(named: Mapping[str, float]) -> Lines:
    """Return figures at places, such as P@1, as a table."""
    places = dict.fromkeys(name.partition("@")[2] for name in named)
    kinds = dict.fromkeys(name.partition("@")[0] for name in named)
    return [
        ("", "".join(f"{f'at {k}':>7}" for k in places)),
        *(
            (PLACED[kind], "".join(f"{named[f'{kind}@{k}']:z7.3f}" for k in places))
            for kind in kinds
        ),
    ]


def _slice_lines(name: str, slices: Sequence[Slice]) -> Lines:
    """Return accuracy, its standard error and rows of values, the name before the first one."""
    return [
        ("" if i else name, f"{one.accuracy:z8.3f} +- {one.error:z.3f}{one.n_rows:>11,} rows  "
                            f"{clean(one.value, 60) or '(no value that is known)'}")
        for i, one in enumerate(slices)
    ]  # fmt: skip


def _set_lines(found: Evaluation, sets: SetMetrics) -> Lines:
    """Return what is reached on rows with lists of labels."""
    assert found.f1 is not None, "it comes with them"
    return [
        *_place_lines(sets.by_name()),
        ("by tenths", " ".join(f"{x:z.3f}" for x in sets.decile_recall) + "  recall at 5"),
        ("threshold", f"{found.threshold:g}: precision {found.precision:z.3f}, recall "
                      f"{found.recall:z.3f}, F1 micro {found.f1.micro:z.3f}, macro "
                      f"{found.f1.macro:z.3f}"),
        ("ECE", f"{found.ece:z.3f} of the ten best labels of each row"),
        ("labels", f"{sets.n_labels / max(sets.n_rows, 1):z.2f} a row; estimator "
                   f"{found.estimator}"),
    ]  # fmt: skip


def _class_lines(found: Evaluation) -> Lines:
    """Return what is reached on rows with one label each."""
    seen = found.n_rows - found.n_unseen
    scale = found.n_rows / seen if seen else float("nan")
    hits = (found.accuracy, found.top_3_accuracy, found.top_5_accuracy)
    first, third, fifth = (x * scale for x in hits)
    recalls = " ".join("-" if d.recall is None else f"{d.recall:z.2f}"
                       for d in found.recall_by_decile)  # fmt: skip
    return [
        ("", "accuracy  top-3  top-5  macro recall  log loss    ECE"),
        ("all rows", f"{hits[0]:z8.3f}{hits[1]:z7.3f}{hits[2]:z7.3f}"
                     "             -         -      -  unseen labels count as wrong"),
        ("seen labels", f"{first:z8.3f}{third:z7.3f}{fifth:z7.3f}{found.macro_recall:z14.3f}"
                        f"{found.log_loss:z10.3f}{found.ece:z7.3f}  before calibration "
                        f"{found.ece_before:z.3f}"),
        ("recall at 1", f"frequent to rare classes: {recalls}"),
        ("threshold", f"{found.threshold:g}: precision {found.precision:z.3f}, recall "
                      f"{found.recall:z.3f} of best classes"),
        ("estimator", f"{found.estimator}; majority class {found.majority:z.4f}"),
        *(_place_lines(found.at) if found.at else []),
    ]  # fmt: skip


def predictions_table(found: Predictions) -> FigureTable:
    """Return the first classes of the first rows: ids and scores."""
    ids, scores = (all_[:SHOWN_ROWS, :SHOWN_CLASSES] for all_ in (found.ids, found.scores))
    best = {
        f"class {i + 1}": [
            f"{c} ({s:z.3f})"
            for c, s in zip(ids[:, i].tolist(), scores[:, i].tolist(), strict=True)
        ]
        for i in range(ids.shape[1])
    }
    return FigureTable({"row": found.rows[:SHOWN_ROWS].tolist(), **best})
