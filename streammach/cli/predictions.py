"""The commands about predictions: evaluate, predict."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from streammach.cli.options import (
    debug_option,
    device_option,
    epilog,
    format_option,
    json_option,
    progress_option,
    threads_option,
)
from streammach.cli.output import Progress, say, say_json, short_path
from streammach.errors import UsageError
from streammach.files import Writer
from streammach.machine import time_text


@click.command(epilog=epilog("streammach evaluate runs/odp test.zarr"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--estimator", type=click.Choice(["blend", "mean", "min", "median", "logsum"]),
              help="How classes are ranked: with counts (blend), or by the hashed models alone.  "
                   "[default: chosen in training]")  # fmt: skip
@device_option
@threads_option
@progress_option
@json_option
@debug_option
def evaluate(
    run: Path,
    store: Path,
    estimator: str | None,
    device: str,
    threads: int | None,
    progress: str,
    as_json: bool,
) -> None:
    """Measure P@1, P@3, P@5 and log loss.

    STORE is a store or a labelled text; its labels are compared by name.
    """
    from streammach.model.model import Model  # compiled code loads on demand
    from streammach.prediction.evaluate import evaluate as measure
    from streammach.prediction.predictor import Predictor

    model = Model.load(run)
    with (
        Predictor(model, estimator=estimator, device=device, threads=threads) as predictor,
        Progress(progress, "rows") as shown,
    ):
        found = measure(predictor, store, progress=shown)
    if found.n_unseen:
        warnings.warn(
            f"{found.n_unseen:,} rows carry a label never seen in training: {short_path(store)}. "
            "They count as wrong; see n_unseen",
            stacklevel=1,
        )
    if as_json:
        say_json(dataclasses.asdict(found))
        return
    say(
        f"{short_path(run)} on {short_path(store)}: {found.n_rows:,} rows in "
        f"{time_text(found.seconds)}"
    )
    say("                P@1    P@3    P@5  log loss")
    seen = found.n_rows - found.n_unseen
    scale = found.n_rows / seen if seen else float("nan")
    hits = (found.p_at_1, found.p_at_3, found.p_at_5)
    say(
        "all rows    "
        + "".join(f"{x:7.3f}" for x in hits)
        + "         -  unseen labels count as wrong"
    )
    say("seen labels " + "".join(f"{x * scale:7.3f}" for x in hits) + f"{found.log_loss:10.3f}")
    say(f"estimator   {found.estimator}; majority class {found.majority:.4f}")
    if found.unknown_values:
        say(f"left out    {found.unknown_values:,} values of features never seen in training")


PIECE_CHARACTERS = 1 << 20


class _Pieces:
    """Hands text on to a file in large pieces."""

    def __init__(self, out: Writer) -> None:
        self._out = out
        self._held: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        """Take in some text."""
        self._held.append(text)
        self._size += len(text)
        if self._size > PIECE_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Hand on what is held."""
        self._out.write("".join(self._held).encode())
        self._held, self._size = [], 0


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO | _Pieces]:
    """Yield where predictions go: standard output, or a file that appears when it is whole."""
    if path is None:
        yield sys.stdout
        return
    with Writer(path) as out:
        pieces = _Pieces(out)
        yield pieces
        pieces.flush()
        out.commit()


ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def _cell(label: object) -> str:
    """Return a label as it may stand in a tab-separated line."""
    text = label.decode("utf-8", "surrogateescape") if isinstance(label, bytes) else str(label)
    escaped = text.translate(ESCAPES).encode("utf-8", "surrogateescape")
    return escaped.decode("utf-8", "backslashreplace")


@click.command(epilog=epilog("streammach predict runs/odp new.vw -k 5 --out new.tsv"))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("source", metavar="INPUT", type=click.Path(path_type=Path))
@click.option("-k", type=click.IntRange(min=1), default=5, show_default=True, help="Classes a row.")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path),
              help="Where to write.  [default: standard output]")  # fmt: skip
@format_option
@device_option
@threads_option
@progress_option
@json_option
@debug_option
def predict(
    run: Path,
    source: Path,
    k: int,
    out: Path | None,
    form: str | None,
    device: str,
    threads: int | None,
    progress: str,
    as_json: bool,
) -> None:
    """Write the best classes of each row.

    A line holds tab-separated: row number from 0, label, score, label, score ...

    INPUT is a text, whose rows need no labels, or a store. The score is the estimator's: a log odds
    for blend, a mean logarithm of bucket probabilities for logsum, else a probability.
    """
    from streammach.model.model import Model  # compiled code loads on demand
    from streammach.prediction.inputs import Seen
    from streammach.prediction.predictor import Predictor

    if as_json and out is None:
        raise UsageError(
            "--json needs --out: standard output holds either predictions or the object"
        )
    model, seen = Model.load(run), Seen()
    with (
        Predictor(model, device=device, threads=threads) as predictor,
        Progress(progress if out is not None else "none", "rows") as shown,
        _output(out) as target,
    ):
        for part in predictor.stream(source, k, form=form, seen=seen):
            labels = predictor.labels(part.ids)
            for i in range(len(labels)):
                pairs = zip(labels[i], part.scores[i], strict=True)
                cells = "\t".join(f"{_cell(label)}\t{score:.6g}" for label, score in pairs)
                target.write(f"{part.first_row + i}\t{cells}\n")
            shown("predict", seen.rows, 0)
    if seen.unknown_values:
        warnings.warn(
            f"{seen.unknown_values:,} values of features never seen in training were left out: "
            f"{short_path(source)}",
            stacklevel=1,
        )
    if as_json:
        say_json(
            {
                "out": str(out),
                "n_rows": seen.rows,
                "k": min(k, model.spec.n_classes),
                "estimator": predictor.estimator,
                "unknown_values": seen.unknown_values,
            }
        )
    elif out is not None:
        say(f"{short_path(out)}: {seen.rows:,} rows, {min(k, model.spec.n_classes)} classes each")
