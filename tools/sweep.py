"""Trains a grid of models within a budget, and draws which of them are worth their bytes.

python tools/sweep.py train.zarr --memory 2GB --out grid --buckets 32,128 --on test.zarr
"""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

import streammach as sm
from streammach.cli.main import main
from streammach.options.option_fields import read_numbers
from streammach.system.errors import BudgetError, MismatchError, UsageError, clean

COLUMNS = ("buckets", "repetitions", "model_bytes", "peak_bytes", "seconds", "accuracy", "top_5")


class Settings(click.ParamType[Any]):
    """An option of a plan or a training, NAME=VALUE, as `sm.train` takes it."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, Any]:
        """Return the name and the value: a number where it can be one."""
        name, equals, text = value.partition("=")
        if not equals:
            self.fail(f"{value!r} has no '='", param, ctx)
        try:
            return name, json.loads(text)
        except ValueError:
            return name, text


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--memory", required=True, help="Budget of each training, such as 2GB.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the runs.")
@click.option("--buckets", type=read_numbers, default="32,128", help="Buckets B.")
@click.option(
    "--repetitions", type=read_numbers, default="4,8,16", help="Repetitions R of the grid."
)
@click.option("--on", "test", type=click.Path(path_type=Path), help="Rows to compare models on.")
@click.option("--set", "given", type=Settings(), multiple=True, help="An option of all trainings.")
def sweep(
    store: Path, memory: str, out: Path, buckets: tuple[int, ...], repetitions: tuple[int, ...],
    test: Path | None, given: tuple[tuple[str, Any], ...],
) -> None:  # fmt: skip
    """Train every B with every R that fits the budget; write OUT/sweep.json and OUT/sweep.png.

    The same command goes on where it was stopped: models that are finished are not trained again.
    """
    names = {field.name for field in fields(sm.TrainingOptions)}
    training = sm.TrainingOptions(**{n: value for n, value in given if n in names})
    fixed = {n: value for n, value in given if n not in names}
    plans, refused = {}, []
    for b, r in itertools.product(buckets, repetitions):
        try:
            plan = sm.plan(store, memory=memory, n_buckets=b, n_repetitions=r, **fixed)
            plans[plan.n_buckets, plan.n_repetitions] = plan
        except BudgetError as error:
            refused.append({"buckets": b, "repetitions": r, "reason": error.message})
    if not plans:
        raise BudgetError(f"no model of the grid fits; {refused[0]['reason']}", path="--memory")
    head = {"streammach": "sweep", "store": str(store), "memory": memory, "options": dict(given)}
    _check_folder(out, head)
    out.mkdir(parents=True, exist_ok=True)
    points: list[dict[str, Any]] = []
    document = {**head, "points": points, "refused": refused}
    _write(document, out)  # from now on the folder is known as that of a sweep
    for (b, r), plan in sorted(plans.items()):
        found = _trained(sm.Trainer(plan, training), store, out / f"{b}x{r}")
        points.append(_point(found, None if test is None else sm.evaluate(found.model, test)))
        click.echo("  ".join(f"{name} {points[-1][name]}" for name in COLUMNS))
    for point in points:
        point["frontier"] = not any(_is_better(other, point) for other in points)
    _write(document, out)
    _draw(points, "test" if test is not None else "held-out", out / "sweep.png")


def _check_folder(folder: Path, head: dict[str, Any]) -> None:
    """Refuse a folder that holds something else than a sweep of the same store and options."""
    try:
        known = json.loads((folder / "sweep.json").read_bytes())
        same = {name: known[name] for name in head} == head
    except (OSError, ValueError, TypeError, KeyError):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError("it holds no sweep, and it is not empty", path=clean(folder)) from None
        return
    if not same:
        what = "it holds a sweep of another store, budget or options"
        raise MismatchError(what, path=clean(folder), hint="Name another folder with --out.")


def _write(document: dict[str, Any], folder: Path) -> None:
    (folder / "sweep.json").write_text(json.dumps(document, indent=1) + "\n")


def _trained(trainer: sm.Trainer, store: Path, folder: Path) -> sm.Run:
    """Return the run of a point, which is trained or gone on with unless it is finished."""
    if (folder / "result.json").exists():
        return sm.Run.open(folder)
    return trainer.fit(store, folder, resume=(folder / "training.json").exists())


def _point(found: sm.Run, tested: Any) -> dict[str, Any]:
    """Return what a model takes and reaches: on test rows, or else on its held-out rows."""
    result, reached = found.result, tested or found.result.best
    return {
        "buckets": found.plan.n_buckets, "repetitions": found.plan.n_repetitions,
        "model_bytes": found.model.n_bytes, "peak_bytes": result.peak_bytes,
        "seconds": round(result.seconds, 1), "accuracy": reached and reached.accuracy,
        "top_5": reached and reached.top_5_accuracy,
    }  # fmt: skip


def _is_better(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether a model is no larger and no worse than another, and not the same in both."""
    ours, theirs = ((p["model_bytes"], -(p["accuracy"] or 0.0)) for p in (one, other))
    return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]


def _draw(points: list[dict[str, Any]], rows: str, file: Path) -> None:
    """Draw accuracy over the model's size, a line for each B, the frontier behind them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    known = [p for p in points if p["accuracy"] is not None]
    edge = sorted((p["model_bytes"] / 1e6, p["accuracy"]) for p in known if p["frontier"])
    axes.plot(*zip(*edge, strict=True), color="0.75", linewidth=5, label="frontier")
    for b in sorted({p["buckets"] for p in known}):
        own = sorted((p["model_bytes"] / 1e6, p["accuracy"]) for p in known if p["buckets"] == b)
        axes.plot(*zip(*own, strict=True), marker="o", label=f"B = {b:,}")
    for p in known:
        axes.annotate(f"R {p['repetitions']}", (p["model_bytes"] / 1e6, p["accuracy"]), (6, -10),
                      textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set(xscale="log", xlabel="model (MB)", ylabel=f"accuracy on {rows} rows")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.margins(x=0.12)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    sys.exit(main(command=sweep, name="sweep.py"))
