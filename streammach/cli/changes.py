"""The commands that change a trained model: shrink, add classes, and change its labels."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streammach.cli.console import peak_of, say, say_json, short_path, warn_of_unknown
from streammach.cli.options import OF_TABLES, PATH, STORE_PATH, command
from streammach.cli.trainings import LabelOptions
from streammach.inputs.source_options import SourceOptions
from streammach.options.figures import figures_text
from streammach.options.option_fields import keywords_of, option
from streammach.options.types import StorePath
from streammach.prediction.options import Resources
from streammach.system.errors import UsageError
from streammach.system.files.destinations import Destination
from streammach.system.machine import budget, size_text
from streammach.system.progress import ProgressBar

if TYPE_CHECKING:
    from streammach.model.document import Width
    from streammach.model.model import Model
    from streammach.prediction.evaluate import Evaluation

NAMES = ("before", "after")
UNITS = dict.fromkeys(NAMES, "rows")  # what is counted while models are measured
MEASURED = "Measure the model before and after on these rows."


@dataclass(frozen=True, kw_only=True)
class ShrinkOptions:
    """How small a model becomes, and where it goes."""

    out: Path = option(..., "Folder of the smaller model.", "MODEL")
    size: str | None = option(None, "Most bytes of the model's files, such as 200MB.", "SIZE")
    weights: Width | None = option(
        None, "Type of the weights, no wider than they are.", usual="int8; dense rows as they are",
        words=("float32", "float16", "float10", "int8", "int4"),
    )  # fmt: skip
    repetitions: int | None = option(None, "Repetitions to keep.", "R", usual="all")
    pairs: int | None = option(None, "Counted pairs to keep.", "N", usual="all", least=0)
    min_count: int | None = option(
        None, "Leave out features that fewer training rows hold.", "M", least=1
    )
    store: StorePath | None = option(
        None, "Training store, for --min-count.", "STORE", usual="the run's"
    )
    on: StorePath | None = option(None, MEASURED, "STORE")
    force: bool = option(False, "Replace an existing model.")
    room: Resources = field(default_factory=Resources)


@dataclass(frozen=True, kw_only=True)
class AddOptions:
    """How rows of new classes are read, and where the model goes."""

    out: Path = option(..., "Folder of the model with more classes.", "MODEL")
    on: StorePath | None = option(None, MEASURED, "STORE")
    force: bool = option(False, "Replace an existing model.")
    source: SourceOptions = field(default_factory=SourceOptions)
    labels: LabelOptions = field(default_factory=LabelOptions)
    room: Resources = field(default_factory=Resources)


@dataclass(frozen=True, kw_only=True)
class LabelsOptions:
    """How labels change, and where the model goes."""

    out: Path = option(..., "Folder of the changed model.", "MODEL")
    rename: Path | None = option(
        None, "Old label, a tab, new label in each line: two with one new label are merged, one "
        "without a new label is said no more.", "FILE",
    )  # fmt: skip
    vocabulary: Path | None = option(
        None, "Label, a tab and its title in words in each line; or titles of labels 0, 1 and so "
        "on.", "FILE",
    )  # fmt: skip
    force: bool = option(False, "Replace an existing model.")
    room: Resources = field(default_factory=Resources)


@command("streammach shrink runs/odp --out small --size 200MB --on test.zarr", cached=True)
@click.argument("run", metavar="RUN", type=PATH)
def shrink(*, run: Path, options: ShrinkOptions, progress: str, as_json: bool) -> None:
    """Make a smaller model from that of a run, or from a smaller one.

    Weights become int8 with a scale for each feature, and everything is compressed. With --size
    weights, repetitions and pairs that are not given are chosen so that the files fit: int4 weights
    first, then the last repetitions and the pairs of the smallest gains are left out.
    """
    from streammach.model.document import disk_bytes
    from streammach.model.size import kept_text, size_in_file
    from streammach.training.derived import make_smaller  # compiled code loads on demand

    out, on = options.out, options.on
    stages = {"open": 0.5, "shrink": 3.0, "write": 1.0}
    if on is not None:
        stages |= dict.fromkeys(NAMES, 5.0)
    with ProgressBar(progress, UNITS, stages) as shown:
        shown("open", 0, 0)
        made = make_smaller(run, **keywords_of(options), progress=shown)
        shown("write", 0, 0)
        made.model.save(out, force=options.force)
        found = _evaluate_models((made.before, made.model), on, options.room, shown)
    small, peak = made.model, peak_of(made.projected_bytes)
    sizes = disk_bytes(out), disk_bytes(run), size_in_file(out).n_bytes
    if as_json:
        say_json({
            "model": str(out), "bytes": sizes[0], "bytes_before": sizes[1],
            "bytes_in_memory": sizes[2], "weights": small.stored or "float32",
            "repetitions": small.spec.n_repetitions, "pairs": small.n_pairs,
            "features": small.spec.n_features,
            **found, "projected_bytes": made.projected_bytes, "peak_bytes": peak,
        })  # fmt: skip
        return
    say(
        f"{short_path(out)}: {size_text(sizes[0])} of {size_text(sizes[1])}, "
        f"{size_text(sizes[2])} in memory; {kept_text(small, made.before)}"
    )
    _say_comparison(found, on)


@command("streammach add runs/odp new.vw --out more --on test.zarr", cached=True,
         without={*OF_TABLES, "class_weight"} - {"label_names"})  # fmt: skip
@click.argument("run", metavar="RUN", type=PATH)
@click.argument("source", metavar="[ROWS]", type=STORE_PATH, required=False)
def add(
    *, run: Path, source: Path | None, options: AddOptions, progress: str, as_json: bool
) -> None:
    """Add classes to a trained model, from rows of their own, or from names.

    ROWS is a store, or a labelled file of any format that can be converted; - is text on standard
    input. Rows with a label that the model does not know are used, the others are left out. A model
    that was trained with names of labels takes labels with --label-names that no row has. No
    weight changes: the known classes keep their scores of rows with known features, to the last
    bit. The model needs hashes or counts alone: where each class has weights of its own, none can
    be added.
    """
    from streammach.training.derived import add_classes  # compiled code loads on demand

    stages = {"open": 0.5, "read": 5.0, "add": 2.0, "write": 1.0}
    out, on, room, how = options.out, options.on, options.room, options.source.one()
    if on is not None:
        stages |= dict.fromkeys(NAMES, 5.0)
    with ProgressBar(progress, {"read": "rows", **UNITS}, stages) as shown:
        shown("open", 0, 0)
        found = add_classes(
            run, source, out, options=how, on=on, memory=room.memory, threads=room.threads,
            force=options.force, progress=shown, facts=options.labels.facts,
        )  # fmt: skip
        shown("write", 0, 0)
        found.model.save(out, force=options.force)
        measured = _evaluate_models((found.before, found.model), on, room, shown)
    if found.left_out:
        what = f"{found.left_out:,} rows without a new label were left out: {short_path(source)}"
        warnings.warn(what, stacklevel=2)
    warn_of_unknown(found.unknown_values, source or out)
    peak = peak_of(found.projected_bytes)
    n_added = found.model.spec.n_classes - found.before.spec.n_classes
    if as_json:
        say_json({
            "model": str(out), "classes": found.model.spec.n_classes,
            "added_classes": n_added, "rows": found.n_rows,
            "left_out_rows": found.left_out, "unknown_values": found.unknown_values,
            **measured, "projected_bytes": found.projected_bytes, "peak_bytes": peak,
        })  # fmt: skip
        return
    say(
        f"{short_path(out)}: {found.model.spec.n_classes:,} classes, {n_added:,} of them "
        f"new, from {found.n_rows:,} rows"
    )
    _say_comparison(measured, on)


@command("streammach labels runs/odp --rename changes.tsv --out renamed", without=("threads",))
@click.argument("run", metavar="RUN", type=PATH)
def labels(*, run: Path, options: LabelsOptions, progress: str, as_json: bool) -> None:
    """Rename, merge or remove labels of a trained model, and give them titles.

    No score changes. A merged label has the score of the best of its classes. Probabilities of rows
    with one label add up to 1 again; where rows have lists they stay. A name that was merged or
    removed is not given to another label. Titles stand beside labels in predictions.
    """
    from streammach.model.document import folder_of, not_a_model
    from streammach.model.label_changes import LabelChanges, entitle, rename
    from streammach.model.model import Model
    from streammach.model.size import size_in_file
    from streammach.prediction.room import changing_bytes  # compiled code loads on demand

    ways = {"renamed": (rename, options.rename), "titles": (entitle, options.vocabulary)}
    out, memory = options.out, options.room.memory
    files = [path for _, path in ways.values() if path is not None]
    if not files:
        raise UsageError("nothing is to be changed: --rename, --vocabulary")
    Destination(out, not_a_model, force=options.force, inputs=[folder_of(run), *files])
    projected, room = changing_bytes(size_in_file(run), memory), budget(memory).most
    with ProgressBar(progress, {}, {"open": 0.5, "write": 1.0}) as shown:
        shown("open", 0, 0)
        model, done = Model.load(run), LabelChanges()
        for change, path in ways.values():
            if path is not None:
                model, more = change(model, path, room - projected)
                done = dataclasses.replace(done, **{k: n for k, n in vars(more).items() if n})
        shown("write", 0, 0)
        model.save(out, force=options.force)
    found = {"model": str(out), "labels": model.n_labels, **vars(done)}
    if as_json:
        say_json(found | {"projected_bytes": projected, "peak_bytes": peak_of(projected)})
        return
    words = ", ".join(f"{n:,} {what}" for what, n in vars(done).items() if n)
    words = words.replace("titles", "with a title")
    say(f"{short_path(out)}: {model.n_labels:,} labels; {words or 'none changed'}")


def _evaluate_models(
    models: Sequence[Model], on: Path | None, room: Resources, shown: ProgressBar
) -> dict[str, Evaluation | None]:
    """Return what the models reach on the rows of --on, one after the other; None without it."""
    from streammach.prediction.evaluate import evaluate  # compiled code loads on demand
    from streammach.prediction.predictor import Predictor

    found: dict[str, Evaluation | None] = dict.fromkeys(NAMES)
    if on is None:
        return found
    for name, model in zip(NAMES, models, strict=True):

        def show_progress(_: str, done: float, total: float, stage: str = name) -> None:
            shown(stage, done, total)

        with Predictor(model, memory=room.memory, threads=room.threads) as predictor:
            found[name] = evaluate(predictor, on, progress=show_progress)
    return found


def _say_comparison(found: Mapping[str, Evaluation | None], store: Path | None) -> None:
    for name, one in found.items():
        if one is not None:
            figures = figures_text(one, listed=one.sets is not None, digits=4)
            say(f"{name:<8}{figures} on {one.n_rows:,} rows of {short_path(store)}")
