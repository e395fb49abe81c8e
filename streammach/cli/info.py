"""The command info: what a store or a run is, planned beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from streammach.cli.console import Document, say_json, say_lines
from streammach.cli.options import STORE_PATH, command
from streammach.system.files.folders import MARKER

if TYPE_CHECKING:
    from streammach.model.model import Model
    from streammach.options.model_spec import ModelSpec

Lines = list[tuple[str, str]]  # a name, and what is said of it


@command("streammach info runs/odp", cached=True)
@click.argument("path", metavar="STORE|RUN|PART|MODEL", type=STORE_PATH)
def info(*, path: Path, as_json: bool) -> None:
    """Show what a store, a run, a part of one or a model holds.

    For a run, the plan stands beside what was measured.
    """
    if (path / "part.json").exists():
        document, lines = _of_part(path)
    elif (path / "result.json").exists():
        document, lines = _of_run(path)
    elif (path / "plan.json").exists() or (path / MARKER).exists():
        document, lines = _describe_unfinished(path)
    elif (path / "model.json").exists():
        document, lines = _of_model(path)
    else:
        document, lines = _of_store(path)
    if as_json:
        say_json({**document, "lines": lines})
        return
    say_lines(lines)


def _of_store(path: Path) -> tuple[Document, Lines]:
    from streammach.cli.about import store_lines
    from streammach.store.dataset import Dataset  # loads on demand

    with Dataset.open(path) as dataset:
        root, facts = dataset.root, dataset.facts
        document = {
            "kind": "store", "path": str(path), "n_rows": facts.n_rows,
            "n_classes": facts.n_classes, "n_features": facts.n_features, "nnz": facts.nnz,
            "bytes": dataset.stored_bytes, "digest": facts.digest,
            "weighted": facts.weighted, "skipped": root.skipped, "counts": root.counts,
            "source": msgspec.to_builtins(root.source),
        }  # fmt: skip
        if root.recipe is not None:
            document["recipe"] = msgspec.to_builtins(root.recipe)
        if facts.listed:
            document |= {"n_labels": facts.n_labels, "max_row_labels": facts.max_row_labels}
        return document, store_lines(dataset)


def _of_run(path: Path) -> tuple[Document, Lines]:
    from streammach.cli.about import run_lines
    from streammach.training.run import Run  # loads on demand

    run = Run.open(path)
    model, plan, result, training = run.model, run.plan, run.result, run.settings.training
    placement = plan.config.placement
    document = {
        "kind": "run", "path": str(path), **_describe_shape(model.spec),
        "buckets": plan.n_buckets, "repetitions": plan.n_repetitions, "exact": plan.model.exact,
        **_describe_ranking(model, path), "learning_rate": training.learning_rate,
        "transform": training.transform, "whitened": training.whitened,
        "loss": training.loss, "optimizer": training.optimizer,
        "weights": placement.weights, "tf32": placement.tf32, "resident": placement.resident,
        "label_smoothing": training.label_smoothing, "batch_size": training.batch_size,
        "history": msgspec.to_builtins(result.history), "best_epoch": result.best_epoch + 1,
        "validation": msgspec.to_builtins(result.validation), "held_out": run.settings.held_out,
        "projected_bytes": result.projected_bytes, "peak_bytes": result.peak_bytes,
        "device_projected_bytes": result.device_projected_bytes,
        "device_peak_bytes": result.device_peak_bytes,
        "seconds": result.seconds, "expected_seconds": plan.expected and plan.expected.seconds,
        "reasons": run.reasons,
    }  # fmt: skip
    return document, run_lines(run, model)


def _describe_unfinished(path: Path) -> tuple[Document, Lines]:
    from streammach.cli.about import begun_lines  # loads on demand
    from streammach.training.run import opened_so_far

    plan, settings, left = opened_so_far(path)
    document: dict[str, object] = {"kind": "run", "path": str(path), "left": left}
    if plan is not None:
        document = {
            **document, **_describe_shape(plan.model), "projected_bytes": plan.projected_bytes,
            "expected_seconds": plan.expected and plan.expected.seconds,
            "reasons": (*plan.reasons, *(() if settings is None else settings.reasons)),
        }  # fmt: skip
    return document, begun_lines(path, plan, settings, left)


def _of_part(path: Path) -> tuple[Document, Lines]:
    from streammach.cli.about import part_lines  # loads on demand
    from streammach.training.run_part import RunPart

    part = RunPart.open(path)
    first, last = part.repetitions
    document = {
        "kind": "part", "path": str(path), "number": part.facts.part.number,
        "of": part.facts.part.of, "buckets": part.plan.n_buckets,
        "repetitions": part.plan.n_repetitions, "first_repetition": first + 1,
        "last_repetition": last, "store": part.facts.store, "left": part.open_work,
    }  # fmt: skip
    return document, part_lines(part)


def _of_model(path: Path) -> tuple[Document, Lines]:
    from streammach.cli.about import model_lines
    from streammach.model.model import Model  # loads on demand

    model = Model.load(path)
    document = {
        "kind": "model", "path": str(path), **_describe_shape(model.spec),
        "weights": model.width, "pairs": model.n_pairs, **_describe_ranking(model, path),
    }  # fmt: skip
    return document, model_lines(model, path)


def _describe_shape(model: ModelSpec) -> dict[str, object]:
    return {
        "buckets": model.n_buckets, "repetitions": model.n_repetitions, "exact": model.exact,
        "n_classes": model.n_classes, "n_features": model.n_features,
        "hashed_features": model.n_hashed_features,
    }  # fmt: skip


def _describe_ranking(model: Model, path: Path) -> dict[str, object]:
    from streammach.model.document import disk_bytes  # loads on demand

    return {
        "model_bytes": model.n_bytes, "counts_bytes": model.counts_bytes,
        "disk_bytes": disk_bytes(path), "estimator": model.estimator,
        "decoding": model.spec.decoding,
    }  # fmt: skip
