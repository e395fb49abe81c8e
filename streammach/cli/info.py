"""The command info: what a store or a run is, planned beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streammach.cli.options import debug_option, epilog, json_option
from streammach.cli.output import say, say_json, short_path
from streammach.machine import size_text, time_text

if TYPE_CHECKING:
    from streammach.model.model import Model


@click.command(epilog=epilog("streammach info runs/odp"))
@click.argument("path", metavar="STORE|RUN", type=click.Path(path_type=Path))
@json_option
@debug_option
def info(path: Path, as_json: bool) -> None:
    """Show what a store or a run holds.

    For a run, the plan stands beside what was measured.
    """
    document = _run_document(path) if (path / "plan.json").exists() else _store_document(path)
    if as_json:
        say_json(document)
        return
    for name, text in document["lines"]:
        say(f"{name:<10}{text}")


def _store_document(path: Path) -> dict[str, Any]:
    from streammach.data.store.dataset import Dataset  # loads on demand

    with Dataset.open(path) as dataset:
        root, facts = dataset.root, dataset.facts
        stored = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
        sources = ", ".join(
            f"{s['name']} ({s['format']}, {size_text(s['bytes'])})" for s in root.source
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
        if root.skipped:
            lines.append(("skipped", ", ".join(f"{n:,} {r}" for r, n in root.skipped.items())))
        return {
            "kind": "store", "path": str(path), "n_rows": facts.n_rows,
            "n_classes": facts.n_classes, "n_features": facts.n_features, "nnz": facts.nnz,
            "bytes": stored, "digest": facts.digest,
            "weighted": facts.weighted, "skipped": root.skipped, "counts": root.counts,
            "source": root.source, "lines": lines,
        }  # fmt: skip


def _run_document(path: Path) -> dict[str, Any]:
    from streammach.training.run import Run  # loads on demand

    run = Run.open(path)
    model, plan, result, training = run.model, run.plan, run.result, run.settings.training
    shape = "exact" if plan.model.exact else f"{plan.n_buckets} x {plan.n_repetitions}"
    ratio = result.peak_bytes / result.projected_bytes
    best = result.validation.get(result.estimator, result.history[result.best_epoch])
    validation = (
        f"P@1 {best['p_at_1']:.3f}, P@5 {best['p_at_5']:.3f} on {run.settings.held_out}"
        if "p_at_1" in best
        else "no held-out rows"
    )
    counts = [] if model.counts is None else [("counts", _counts_text(model))]
    lines = [
        ("run", f"{short_path(path)}: {len(result.history)} epochs, best {result.best_epoch + 1}; "
                f"store {plan.facts.digest[:8]}"),
        ("model", f"{shape} float32, {model.spec.n_classes:,} classes, {model.spec.n_features:,} "
                  f"features, {size_text(model.n_bytes)}, {model.estimator}"),
        *counts,
        ("training", f"{training.optimizer}, rate {training.learning_rate:.3g}, "
                     f"{training.transform} values, smoothing {training.label_smoothing:g}, "
                     f"batch {training.batch_size:,}"),
        *(("why", reason) for reason in (*plan.reasons, *run.settings.reasons, *result.reasons)),
        ("memory", f"projected {size_text(result.projected_bytes)}  measured "
                   f"{size_text(result.peak_bytes)} ({ratio:.2f})"),
        ("time", f"{time_text(result.seconds)}"),
        ("accuracy", validation),
    ]  # fmt: skip
    return {
        "kind": "run", "path": str(path), "buckets": plan.n_buckets,
        "repetitions": plan.n_repetitions,
        "exact": plan.model.exact, "n_classes": model.spec.n_classes,
        "n_features": model.spec.n_features, "model_bytes": model.n_bytes,
        "counts_bytes": model.counts_bytes,
        "estimator": model.estimator, "learning_rate": training.learning_rate,
        "transform": training.transform, "optimizer": training.optimizer,
        "label_smoothing": training.label_smoothing, "batch_size": training.batch_size,
        "history": result.history, "best_epoch": result.best_epoch + 1,
        "validation": result.validation, "held_out": run.settings.held_out,
        "projected_bytes": result.projected_bytes, "peak_bytes": result.peak_bytes,
        "seconds": result.seconds, "reasons": [text for name, text in lines if name == "why"],
        "lines": lines,
    }  # fmt: skip


def _counts_text(model: Model) -> str:
    """Return how large the counts are and what each part reaches on held-out rows."""
    assert model.counts is not None
    alone, both = (model.validation[name] for name in ("logsum", "blend"))
    pairs = len(model.counts["classes"])
    return (
        f"{pairs:,} pairs, {size_text(model.counts_bytes)}; held-out P@1 / P@5 "
        f"{alone['p_at_1']:.3f} / {alone['p_at_5']:.3f} without them, "
        f"{both['p_at_1']:.3f} / {both['p_at_5']:.3f} with"
    )
