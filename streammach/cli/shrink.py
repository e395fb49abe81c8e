"""The command shrink: a smaller model from a trained one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from streammach.cli.compared import NAMES, UNITS, compared, reached, say_compared
from streammach.cli.options import (
    debug_option,
    epilog,
    json_option,
    memory_option,
    progress_option,
    threads_option,
)
from streammach.cli.output import peak_of, say, say_json, short_path
from streammach.cli.places import STORE_PATH, cache_options
from streammach.files.destinations import Destination
from streammach.machine import size_text
from streammach.progress import ProgressBar

if TYPE_CHECKING:
    from streammach.model.document import Width
    from streammach.model.model import Model
    from streammach.prediction.evaluate import Evaluation


@click.command(epilog=epilog("streammach shrink runs/odp --out small --size 200MB --on test.zarr"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", required=True, metavar="MODEL", type=click.Path(path_type=Path),
              help="Folder of the smaller model.")  # fmt: skip
@click.option("--size", metavar="SIZE", help="Most bytes of the model's files, such as 200MB.")
@click.option("--weights", type=click.Choice(["float32", "float16", "float10", "int8", "int4"]),
              help="Type of the weights, no wider than they are.  "
                   "[default: int8; dense rows as they are]")  # fmt: skip
@click.option("--repetitions", type=int, metavar="R", help="Repetitions to keep.  [default: all]")
@click.option("--pairs", type=click.IntRange(0), metavar="N",
              help="Counted pairs to keep.  [default: all]")  # fmt: skip
@click.option("--min-count", type=click.IntRange(1), metavar="M",
              help="Leave out features that fewer training rows hold.")  # fmt: skip
@click.option("--store", "trained_on", metavar="STORE", type=STORE_PATH,
              help="Training store, for --min-count.  [default: the run's]")  # fmt: skip
@click.option("--on", "store", metavar="STORE", type=STORE_PATH,
              help="Measure the model before and after on these rows.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing model.")
@memory_option
@threads_option
@cache_options
@progress_option
@json_option
@debug_option
def shrink(
    *,
    run: Path,
    out: Path,
    size: str | None,
    weights: Width | None,
    repetitions: int | None,
    pairs: int | None,
    min_count: int | None,
    trained_on: Path | None,
    store: Path | None,
    force: bool,
    memory: str | None,
    threads: int | None,
    progress: str,
    as_json: bool,
) -> None:
    """Make a smaller model from that of a run, or from a smaller one.

    Weights become int8 with a scale for each feature, and everything is compressed. With --size
    weights, repetitions and pairs that are not given are chosen so that the files fit: int4 weights
    first, then the last repetitions and the pairs of the smallest gains are left out.
    """
    from streammach.model.document import MODEL
    from streammach.model.model import Model, disk_bytes, folder_of
    from streammach.model.size import size_in_file  # compiled code loads on demand
    from streammach.training.smaller import ShrinkOptions, smaller

    stores = [path for path in (trained_on, store) if path is not None]
    Destination(out, MODEL, force=force, inputs=[folder_of(run), *stores])
    projected = _projected(run, store, memory, threads)
    found: list[Evaluation] = []
    stages = {"open": 0.5, "shrink": 3.0, "write": 1.0, **dict.fromkeys(NAMES, 5.0)}
    if store is None:
        stages = {name: stages[name] for name in ("open", "shrink", "write")}
    with ProgressBar(progress, UNITS, stages) as shown:
        shown("open", 0, 0)
        whole = Model.load(run)
        shown("shrink", 0, 0)
        small = smaller(whole, run, ShrinkOptions(
            size=size, weights=weights, repetitions=repetitions, pairs=pairs, min_count=min_count,
            store=trained_on,
        ))  # fmt: skip
        shown("write", 0, 0)
        small.save(out, force=force)
        if store is not None:
            found = reached((whole, small), store, memory=memory, threads=threads, shown=shown)
    peak = peak_of(projected)
    sizes = disk_bytes(out), disk_bytes(run), size_in_file(out).n_bytes
    if as_json:
        say_json({
            "model": str(out), "bytes": sizes[0], "bytes_before": sizes[1],
            "bytes_in_memory": sizes[2], "weights": small.stored or "float32",
            "repetitions": small.spec.n_repetitions, "pairs": small.n_pairs,
            "features": small.spec.n_features, **compared(found),
            "projected_bytes": projected, "peak_bytes": peak,
        })  # fmt: skip
        return
    say(_line(out, small, whole, sizes))
    say_compared(found, store)


def _line(out: Path, small: Model, whole: Model, sizes: tuple[int, int, int]) -> str:
    text = (
        f"{short_path(out)}: {size_text(sizes[0])} of {size_text(sizes[1])}, "
        f"{size_text(sizes[2])} in memory; {small.stored or 'float32'}, "
        f"{small.spec.n_repetitions} of {whole.spec.n_repetitions} repetitions, "
        f"{small.n_pairs:,} of {whole.n_pairs:,} pairs"
    )
    n, most = small.spec.n_features, whole.spec.n_features
    return text if n == most else f"{text}, {n:,} of {most:,} features"


def _projected(run: Path, store: Path | None, memory: str | None, threads: int | None) -> int:
    """Return the bytes of the work, which fits the memory."""
    from streammach.model.size import size_in_file  # loads on demand
    from streammach.prediction.calibrate import CANDIDATES
    from streammach.prediction.memory import room_before, shrinking_lines
    from streammach.spec.ledger import bytes_in

    if store is None:
        return bytes_in(shrinking_lines(size_in_file(run), memory), "host")
    room = room_before(
        run, "evaluate", store, CANDIDATES, memory=memory, threads=threads, smaller=True
    )
    return room.projected_bytes
