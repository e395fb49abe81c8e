"""The command info: what a store or a run is, planned beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from streammach.cli.options import debug_option, epilog, json_option
from streammach.cli.output import Document, model_bytes, say, say_json, short_path
from streammach.errors import clean
from streammach.figures import figures_text, words
from streammach.machine import size_text, time_text

if TYPE_CHECKING:
    from streammach.model.model import Model
    from streammach.spec.plan import Plan
    from streammach.training.run import Result

Lines = list[tuple[str, str]]  # a name, and what is said of it


@click.command(epilog=epilog("streammach info runs/odp"))
@click.argument("path", metavar="STORE|RUN|MODEL", type=click.Path(path_type=Path))
@json_option
@debug_option
def info(path: Path, as_json: bool) -> None:
    """Show what a store, a run or a model holds.

    For a run, the plan stands beside what was measured.
    """
    if (path / "plan.json").exists():
        document, lines = _of_run(path)
    elif (path / "model.json").exists():
        document, lines = _of_model(path)
    else:
        document, lines = _of_store(path)
    if as_json:
        say_json({**document, "lines": lines})
        return
    for name, text in lines:
        say(f"{name:<10}{text}")


def _of_store(path: Path) -> tuple[Document, Lines]:
    from streammach.data.store.dataset import Dataset  # loads on demand

    with Dataset.open(path) as dataset:
        root, facts = dataset.root, dataset.facts
        stored = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
        sources = ", ".join(
            f"{clean(s.name)} ({s.format}, {size_text(s.bytes)})" for s in root.source
        )
        lines = [
            ("store", f"{short_path(path)}: format {root.format}, complete, {size_text(stored)}"),
            ("rows", f"{facts.n_rows:,} with {facts.nnz / facts.n_rows:.3g} values each, at most "
                     f"{facts.max_row_nnz:,}; {8 * facts.value_bytes} bits a value"),
            ("classes", f"{facts.n_classes:,}; the largest has "
                        f"{100 * dataset.label_counts.max() / facts.n_rows:.2g}% of the rows"),
            ("features", f"{facts.n_features:,}; a row holds {100 * facts.density:.2g}% of them"),
            ("source", sources),
            ("digest", facts.digest),
        ]  # fmt: skip
        if facts.listed:
            mean = facts.n_labels / facts.n_rows
            lines.insert(2, ("labels", f"{mean:.3g} a row, at most {facts.max_row_labels:,}"))
        if root.recipe is not None:
            lines.append(("columns", root.recipe.said()))
        if root.skipped:
            lines.append(("skipped", ", ".join(f"{n:,} {r}" for r, n in root.skipped.items())))
        document = {
            "kind": "store", "path": str(path), "n_rows": facts.n_rows,
            "n_classes": facts.n_classes, "n_features": facts.n_features, "nnz": facts.nnz,
            "bytes": stored, "digest": facts.digest,
            "weighted": facts.weighted, "skipped": root.skipped, "counts": root.counts,
            "source": msgspec.to_builtins(root.source),
        }  # fmt: skip
        if root.recipe is not None:
            document["recipe"] = msgspec.to_builtins(root.recipe)
        if facts.listed:
            document |= {"n_labels": facts.n_labels, "max_row_labels": facts.max_row_labels}
        return document, lines


def _device_lines(plan: Plan, result: Result) -> Lines:
    from streammach.backends.registry import device_text  # loads on demand

    if not result.device_peak_bytes:
        return []
    ratio = result.device_peak_bytes / result.device_projected_bytes
    return [
        ("device", device_text(plan)),
        ("GPU", f"buffers projected {size_text(result.device_projected_bytes)}  measured "
                       f"{size_text(result.device_peak_bytes)} ({ratio:.2f})"),
    ]  # fmt: skip


def _of_run(path: Path) -> tuple[Document, Lines]:
    from streammach.training.run import Run  # loads on demand

    run = Run.open(path)
    model, plan, result, training = run.model, run.plan, run.result, run.settings.training
    ratio = result.peak_bytes / result.projected_bytes
    best, placement, listed = result.best, plan.config.placement, plan.facts.listed
    validation = "no held-out rows"
    if best is not None:
        validation = f"{figures_text(best, listed=listed)} on {run.settings.held_out}"
    lines = [
        ("run", f"{short_path(path)}: {_epochs(result)}; store {plan.facts.digest[:8]}"),
        *_model_lines(model, path),
        ("training", f"{placement.weights}, {training.text}"),
        *(("why", reason) for reason in run.reasons),
        ("memory", f"projected {size_text(result.projected_bytes)}  measured "
                   f"{size_text(result.peak_bytes)} ({ratio:.2f})"),
        *_device_lines(plan, result),
        ("time", _time(plan, result.seconds)),
        (words(listed).kind, validation),
    ]  # fmt: skip
    document = {
        "kind": "run", "path": str(path), "buckets": plan.n_buckets,
        "repetitions": plan.n_repetitions,
        "exact": plan.model.exact, "n_classes": model.spec.n_classes,
        "n_features": model.spec.n_features, "model_bytes": model.n_bytes,
        "counts_bytes": model.counts_bytes, "disk_bytes": model_bytes(path / "model"),
        "estimator": model.estimator, "learning_rate": training.learning_rate,
        "transform": training.transform, "whitened": training.whitened,
        "loss": training.loss, "optimizer": training.optimizer,
        "weights": placement.weights, "resident": placement.resident,
        "label_smoothing": training.label_smoothing, "batch_size": training.batch_size,
        "history": msgspec.to_builtins(result.history), "best_epoch": result.best_epoch + 1,
        "validation": msgspec.to_builtins(result.validation), "held_out": run.settings.held_out,
        "projected_bytes": result.projected_bytes, "peak_bytes": result.peak_bytes,
        "device_projected_bytes": result.device_projected_bytes,
        "device_peak_bytes": result.device_peak_bytes,
        "seconds": result.seconds,
        "expected_seconds": None if plan.expected is None else plan.expected.seconds,
        "reasons": run.reasons,
    }  # fmt: skip
    return document, lines


def _time(plan: Plan, seconds: float) -> str:
    """Return what a training took beside what was expected of one with everything searched."""
    text = f"measured {time_text(seconds)}"
    if plan.expected is None:
        return text
    ratio = seconds / plan.expected.seconds
    return f"expected {time_text(plan.expected.seconds)}  {text} ({ratio:.2f})"


def _epochs(result: Result) -> str:
    if not result.history:
        return "no epochs"
    return f"{len(result.history)} epochs, best {result.best_epoch + 1}"


def _of_model(path: Path) -> tuple[Document, Lines]:
    from streammach.model.model import Model  # loads on demand

    model = Model.load(path)
    document = {
        "kind": "model", "path": str(path), "buckets": model.spec.n_buckets,
        "repetitions": model.spec.n_repetitions, "exact": model.spec.exact,
        "n_classes": model.spec.n_classes, "n_features": model.spec.n_features,
        "weights": model.stored or str(model.weights.dtype), "pairs": model.n_pairs,
        "model_bytes": model.n_bytes, "counts_bytes": model.counts_bytes,
        "disk_bytes": model_bytes(path), "estimator": model.estimator,
    }  # fmt: skip
    return document, _model_lines(model, path)


def _model_lines(model: Model, path: Path) -> Lines:
    """Return what a model is, and what each part of it reached on held-out rows."""
    from streammach.model.held import held_by  # loads on demand

    spec = model.spec
    kind = model.stored or model.weights.dtype
    served = size_text(held_by(model).n_bytes)
    size = f"{size_text(model_bytes(path))} on disk, {served} in memory"
    lines = [
        ("model", f"{spec} {kind}, {spec.n_classes:,} classes, "
                  f"{spec.n_features:,} features, {size}, {model.estimator}")
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
    if model.recipe is not None:
        lines.append(("columns", model.recipe.said()))
    return lines
