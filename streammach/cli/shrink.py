"""The command shrink: a smaller model from a trained one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streammach.cli.options import (
    debug_option,
    epilog,
    json_option,
    progress_option,
    threads_option,
)
from streammach.cli.output import Progress, say, say_json, short_path
from streammach.errors import UsageError
from streammach.files import check_output
from streammach.machine import parse_size, size_text

if TYPE_CHECKING:
    from streammach.model.model import Model
    from streammach.prediction.evaluate import Evaluation


@click.command(
    epilog=epilog("streammach shrink runs/odp --out small --memory 200MB --on test.zarr")
)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", required=True, metavar="MODEL", type=click.Path(path_type=Path),
              help="Folder of the smaller model.")  # fmt: skip
@click.option("--memory", metavar="SIZE", help="Most bytes of the model, such as 200MB.")
@click.option("--weights", type=click.Choice(["float32", "int8"]),
              help="Type of the weights.  [default: int8]")  # fmt: skip
@click.option("--repetitions", type=int, metavar="R", help="Repetitions to keep.  [default: all]")
@click.option("--pairs", type=int, metavar="N", help="Counted pairs to keep.  [default: all]")
@click.option("--on", "store", metavar="STORE", type=click.Path(path_type=Path),
              help="Measure the model before and after on these rows.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing model.")
@threads_option
@progress_option
@json_option
@debug_option
def shrink(
    run: Path,
    out: Path,
    memory: str | None,
    weights: str | None,
    repetitions: int | None,
    pairs: int | None,
    store: Path | None,
    force: bool,
    threads: int | None,
    progress: str,
    as_json: bool,
) -> None:
    """Make a smaller model from a trained one.

    Weights become int8 with a scale for each feature. With --memory, counted pairs and repetitions
    are dropped until the model fits, those of the smallest gains and the last ones first.
    """
    from streammach.model.model import Model  # compiled code loads on demand
    from streammach.model.shrink import Size, size_for
    from streammach.model.shrink import shrink as smaller

    if memory is not None and (weights, repetitions, pairs) != (None, None, None):
        raise UsageError("--memory excludes --weights, --repetitions and --pairs")
    _check_out(run, out, force=force)
    whole = Model.load(run)
    if memory is not None:
        size = size_for(whole, parse_size(memory))
    else:
        narrow = weights == "int8" or (weights is None and not whole.dense)
        kept = whole.spec.n_repetitions if repetitions is None else repetitions
        size = Size(narrow, kept, whole.n_pairs if pairs is None else max(pairs, 0))
    small = smaller(whole, size)
    small.save(out)
    reached: list[Evaluation] = []
    if store is not None:
        with Progress(progress, "rows") as shown:
            reached = [_reached(model, store, threads, shown) for model in (whole, small)]
    figures: list[Any] = [dataclasses.asdict(found) for found in reached]
    if as_json:
        before, after = figures or (None, None)
        say_json(
            {
                "model": str(out), "bytes": small.n_bytes, "bytes_before": whole.n_bytes,
                "weights": str(small.weights.dtype), "repetitions": small.spec.n_repetitions,
                "pairs": small.n_pairs, "before": before, "after": after,
            }
        )  # fmt: skip
        return
    say(
        f"{short_path(out)}: {size_text(small.n_bytes)} of {size_text(whole.n_bytes)}; "
        f"{small.spec.n_repetitions} of {whole.spec.n_repetitions} repetitions, "
        f"{small.weights.dtype}; {small.n_pairs:,} of {whole.n_pairs:,} pairs"
    )
    for name, found in zip(("before", "after"), reached, strict=False):
        say(
            f"{name:<8}P@1 {found.p_at_1:.4f}, P@5 {found.p_at_5:.4f} on {found.n_rows:,} rows of "
            f"{short_path(store)}"
        )


def _check_out(run: Path, out: Path, *, force: bool) -> None:
    """Refuse to replace anything but a model other than the one that is read."""
    check_output(out, force=force)
    if out.exists():
        if out.resolve() in (run.resolve(), (run / "model").resolve()):
            raise UsageError("a model cannot replace the one it is made from", path=str(out))
        if not (out / "model.json").is_file():
            raise UsageError("it is no model, and is not replaced", path=str(out))


def _reached(model: Model, store: Path, threads: int | None, shown: Progress) -> Evaluation:
    from streammach.prediction.evaluate import evaluate  # loads on demand
    from streammach.prediction.predictor import Predictor

    with Predictor(model, threads=threads) as predictor:
        return evaluate(predictor, store, progress=shown)
