"""Makes smaller models from trained ones: the checks, the choice and the files of ``shrink``."""

from __future__ import annotations

import os
from pathlib import Path

from streammach.data.store.dataset import Dataset
from streammach.errors import UsageError, clean
from streammach.files.destinations import Destination
from streammach.files.urls import Url, located
from streammach.machine import parse_size
from streammach.model.document import Width
from streammach.model.fit import ShrinkTarget, shrink_to
from streammach.model.model import Model, folder_of
from streammach.model.ours import MODEL
from streammach.model.shrink import LEVELS, Size, frequent, types_of
from streammach.model.shrink import shrink as made_smaller
from streammach.model.size import size_in_file
from streammach.prediction.memory import shrinking_lines
from streammach.spec.ledger import bytes_in
from streammach.training.run import Run


def shrink(
    run: str | os.PathLike[str], out: str | os.PathLike[str], *, size: str | int | None = None,
    weights: Width | None = None, repetitions: int | None = None, pairs: int | None = None,
    min_count: int | None = None, store: str | os.PathLike[str] | None = None,
    memory: str | int | None = None, force: bool = False,
) -> Model:  # fmt: skip
    """Make a smaller model from that of a run, or from a smaller one; return it.

    Parameters
    ----------
    run : path-like
        The folder of the run or the model.
    out : path-like
        Folder of the smaller model.
    size, weights, repetitions, pairs, min_count, store : optional
        Most bytes of its files, such as ``100MB``; the type of its weights; how many repetitions
        and pairs are kept; leave out features that fewer training rows hold; the training store,
        for that one, where it is not the run's. What is not given is chosen for the size; without
        it weights are int8, those of dense rows as they are, and all is kept.
    memory : str or int, optional
        Bytes that the process may take; otherwise 2 GB, or what is needed.
    force : bool
        Whether a model that is there may be replaced.

    Raises
    ------
    UsageError
        If a value is out of its range, or a path is wrong.
    BudgetError
        If the work does not fit the memory, or no model fits the size.
    ModelError, StoreError, DiskError
        If files cannot be read or written.
    """
    inputs = [folder_of(run), *([] if store is None else [located(store)])]
    Destination(Path(out), MODEL, force=force, inputs=inputs)
    bytes_in(shrinking_lines(size_in_file(run), memory), "host")  # refuses what does not fit
    small = smaller(
        Model.load(run), Path(run), size=size, weights=weights, repetitions=repetitions,
        pairs=pairs, min_count=min_count, store=store,
    )  # fmt: skip
    small.save(out, force=force)
    return small


def smaller(
    model: Model, run: Path, *, size: str | int | None = None, weights: Width | None = None,
    repetitions: int | None = None, pairs: int | None = None, min_count: int | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Model:  # fmt: skip
    """Return a smaller model, not written yet, or raise UsageError, BudgetError or StoreError."""
    if min_count is not None:
        model = _frequent(model, run, store, min_count)
    if size is not None:
        return shrink_to(model, parse_size(size), ShrinkTarget(weights, repetitions, pairs))
    known = [stored for stored in types_of(model) if model.dense or stored in LEVELS]
    most = model.spec.n_repetitions if repetitions is None else repetitions
    kept = model.n_pairs if pairs is None else pairs
    return made_smaller(model, Size(weights or known[0], most, kept))


def _frequent(
    whole: Model, run: Path, trained_on: str | os.PathLike[str] | None, least: int
) -> Model:
    """Return the model without rare features, which its training store knows."""
    store = _store_of(run) if trained_on is None else located(trained_on)
    with Dataset.open(store) as data:
        if data.facts.digest != whole.store:
            raise UsageError(
                "it is not the store that the model was trained on", path=clean(store, 300),
                hint="Name that one with --store.",
            )  # fmt: skip
        rows = data.feature_counts
        if len(rows) != whole.spec.n_features:  # some are left out already
            rows = rows[data.features.ids_of(whole.features)]
        return frequent(whole, rows, least)


def _store_of(run: Path) -> Path:
    """Return where a run says that its training store was."""
    found = located(Run.open(run).plan.facts.path) if (run / "plan.json").exists() else None
    if found is None or not (isinstance(found, Url) or found.exists()):
        raise UsageError(
            "--min-count needs the training store: --store STORE", path=clean(run, 300)
        )
    return found
