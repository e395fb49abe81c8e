"""Tells a run that streammach made from everything else, finished or not; what one has so far."""

from __future__ import annotations

import os
from pathlib import Path

from streammach.data.store.opening import STORE
from streammach.errors import DiskError, MismatchError, UsageError, clean
from streammach.files.destinations import Destination, Product, not_regular
from streammach.files.folders import MARKER, remove_folder
from streammach.files.locks import locked
from streammach.files.reading import read_small
from streammach.files.workplaces import LOCK
from streammach.files.writing import write_atomic
from streammach.model.checkpoint import Checkpoints
from streammach.model.ours import MODEL
from streammach.spec.plan import Plan
from streammach.training.events import LOG
from streammach.training.run import (
    CHECKPOINTS,
    PLAN,
    RESULT,
    SETTINGS,
    Settings,
    begun,
    decided,
    planned,
    workplace,
)

MAX_PAGE = 256 << 20
MARK = '<meta name="generator" content="streammach">'
SAVED = (".json", ".safetensors")  # what lies among checkpoints
REPORT = "report.html"


def _foreign_page(path: Path) -> str | None:
    """Return why a file is not a page of ours; None if it is."""
    why = not_regular(path)
    if why is not None:
        return why
    try:
        ours = MARK.encode() in read_small(path, MAX_PAGE)[:1000]
    except DiskError:
        ours = False
    return None if ours else "it is no page that streammach made"


PAGE = Product("a page", _foreign_page)
WITHIN = {"model": MODEL, "train.zarr": STORE, "validation.zarr": STORE, REPORT: PAGE}


def opened_so_far(folder: Path) -> tuple[Plan | None, Settings | None, str]:
    """Return an unfinished run's plan, what it decided, what is left; or raise MismatchError."""
    if workplace(folder).facts() is None:
        raise MismatchError("not the folder of a run", path=clean(folder, 300))
    if not (folder / PLAN).exists():
        return None, None, "nothing is planned yet"
    plan, settings = planned(folder), decided(folder)
    if settings is None:
        return plan, None, "nothing is decided yet"
    ends = Checkpoints(folder / CHECKPOINTS, settings.request).ends()
    return plan, settings, f"{max(ends, default=0)} of {settings.training.epochs} epochs are saved"


def foreign(folder: Path) -> str | None:
    """Return why a folder is not that of a run of ours, with nothing else in it; None if it is."""
    if folder.is_dir() and not os.listdir(folder):
        return None
    if workplace(folder).facts() is None:
        return "it is no run that streammach made"
    for place in sorted(folder.iterdir()):
        if place.name in WITHIN:
            why = WITHIN[place.name].foreign(place)
        elif place.name == CHECKPOINTS and place.is_dir():
            files = [path for path in place.rglob("*") if not path.is_dir() or path.is_symlink()]
            odd = next((f for f in files if not_regular(f) or f.suffix not in SAVED), None)
            why = None if odd is None else f"{clean(odd.name)} was not made by streammach"
        else:
            own = place.name in (PLAN, SETTINGS, RESULT, LOG, MARKER, LOCK)
            why = not_regular(place) if own else "it was not made by streammach"
        if why is not None or place.is_symlink():
            return f"{clean(place.name)} in it: {why or 'it is a link'}"
    return None


RUN = Product("a run", foreign)


def entered(folder: Path, *, resume: bool, force: bool, kind: str = "run") -> None:
    """Refuse a folder in which work may not begin, nor go on, nor replace what is there."""
    if force and (resume or kind != "run"):
        raise UsageError("a whole run is replaced, and not gone on with: --force")
    if force:
        Destination(folder, RUN, force=True)
    else:
        begun(folder, resume=resume, kind=kind)


def replaced(folder: Path) -> None:
    """Remove a run of ours that nobody works on, but for its stores, or raise StreammachError."""
    Destination(folder, RUN, force=True)
    if not (folder / MARKER).exists():
        return
    with locked(folder / LOCK, clean(folder)):
        for name in (RESULT, "model", CHECKPOINTS, SETTINGS, LOG, REPORT, PLAN):
            place = folder / name
            if place.is_dir():
                remove_folder(place)
            else:
                place.unlink(missing_ok=True)
        write_atomic(folder / MARKER, b'{"streammach":"run"}\n')  # without what was asked for
