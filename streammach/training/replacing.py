"""A run that replaces a former one, which stays as it is until the new one is whole.

The new run is trained in a folder within the former one. Then its model takes the other's place in
one step, and its documents follow. What a kill leaves of that is finished by the same command with
``--resume`` in place of ``--force``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streammach.conversion.folder import ConversionFolder
from streammach.inputs.bad_rows import LIST
from streammach.model.document import document_digest, not_a_model
from streammach.parts.training_record import LOG
from streammach.store.opening import not_a_store
from streammach.system.errors import UsageError, clean
from streammach.system.files.destinations import Destination, Foreign, not_regular
from streammach.system.files.folders import (
    MARKER,
    check_ours,
    commit_folder,
    lock_file,
    remove_folder,
)
from streammach.system.files.reading import disk_errors
from streammach.system.files.workplaces import BEGUN, LOCK, Workplace
from streammach.system.files.writing import TEMPORARY, fsync_folder, remove_file, remove_temporaries
from streammach.training.run import (
    CHECKPOINT_FILES,
    CHECKPOINTS,
    MODEL,
    NEXT,
    PAGE,
    PARTS,
    PLAN,
    REPORT,
    RESULT,
    SETTINGS,
    check_not_begun,
    workplace,
)

STORES = ("train.zarr", "validation.zarr")
# Files of a run's folder, and what processes leave there that are killed: what they write goes by
# itself when the same is written again.
FILES = re.compile(
    rf"{'|'.join(map(re.escape, (PLAN, SETTINGS, RESULT, LOG, MARKER, LOCK)))}|"
    rf"{TEMPORARY.pattern}|\.({'|'.join(map(re.escape, STORES))})\.lock"
)
SCRATCH = re.compile(r"\.[^/]+\.[a-z0-9_]{8}\.scratch")


def not_a_run(folder: Path) -> str | None:
    """Return why a folder is not that of a run of ours, with nothing else in it; None if it is."""
    if folder.is_dir() and all(BEGUN.fullmatch(name) for name in os.listdir(folder)):
        return None
    if workplace(folder).facts() is None:
        return "it is no run that streammach made"
    for place in sorted(folder.iterdir()):
        foreign = not_regular if FILES.fullmatch(place.name) else WITHIN.get(place.name)
        if foreign is None and SCRATCH.fullmatch(place.name) and place.is_dir():
            continue
        why = "it was not made by streammach" if foreign is None else foreign(place)
        if why is not None or place.is_symlink():
            return f"{clean(place.name)} in it: {why or 'it is a link'}"
    return None


def _refusal(check: Callable[..., object], *given: object) -> str | None:
    """Return why a check refuses something, None if it does not."""
    try:
        check(*given)
    except UsageError as error:
        return f"{clean(Path(str(error.path)).name)}: {error.message}"
    return None


def _unfinished_store(folder: Path) -> ConversionFolder:
    """Return an unfinished conversion, by its folder."""
    return ConversionFolder(folder.with_name(folder.name[1:].removesuffix(".partial")))


WITHIN: dict[str, Foreign] = {
    MODEL: not_a_model, REPORT: PAGE, NEXT: not_a_run, **dict.fromkeys(STORES, not_a_store),
    CHECKPOINTS: lambda folder: _refusal(check_ours, folder, CHECKPOINT_FILES),
    f"{NEXT}.parts": lambda folder: _refusal(Workplace(folder, PARTS).check),
    **{f"{name}.rejects.tsv": LIST for name in STORES},
    **{
        f".{name}.partial": lambda folder: _refusal(_unfinished_store(folder).check)
        for name in STORES
    },
}  # fmt: skip


def check_run_folder(folder: Path, *, resume: bool, force: bool, kind: str = "run") -> None:
    """Refuse a folder in which work may not begin, nor go on, nor replace what is there."""
    if force and (resume or kind != "run"):
        what = "a whole run is replaced, and not gone on with: --force"
        raise UsageError(what, hint="Leave out --force to go on." if resume else None)
    if force:
        Destination(folder, not_a_run, force=True)
    else:
        check_not_begun(folder, resume=resume, kind=kind)


@contextmanager
def run_folder(out: Path, *, force: bool, resume: bool) -> Iterator[Path]:
    """Yield the folder in which a run is trained; the run is found in `out` at the end.

    The folder is another one where the run replaces a former one, with `force`, or goes on with
    what was to replace it. What is replaced is a run of ours that nobody works on.
    """
    new, moves = out / NEXT, False
    if force:
        Destination(out, not_a_run, force=True)
        moves = (out / MODEL).is_dir()
        if not moves and workplace(out).facts() is not None:
            with lock_file(out / LOCK, clean(out)):
                _clear(out)
    elif resume and (facts := workplace(new).facts()) is not None:
        moves = MODEL not in facts
        if not moves:
            with lock_file(out / LOCK, clean(out)):
                _take_place(new, out)
    if not moves:
        yield out
        return
    with lock_file(out / LOCK, clean(out)):
        if force:
            remove_folder(new)
            workplace(new).open()
        yield new
        _take_place(new, out)


def _clear(folder: Path) -> None:
    """Remove what a run's folder holds of the run; its stores stay."""
    for name in (NEXT, MODEL, CHECKPOINTS):
        remove_folder(folder / name)
    for name in (RESULT, SETTINGS, LOG, REPORT, PLAN):
        remove_file(folder / name)
    remove_temporaries(folder)
    workplace(folder).open(request=None)  # without what was asked for


def _take_place(new: Path, out: Path) -> None:
    """Give a finished run the place of the former one, or go on with that, or raise DiskError."""
    if MODEL not in (workplace(new).facts() or {}):
        workplace(new).open(**{MODEL: document_digest(new)})
    facts = workplace(new).facts() or {}
    if (new / RESULT).exists():
        remove_file(out / RESULT)  # a run is finished by it alone
        remove_file(out / REPORT)
        remove_folder(out / CHECKPOINTS)
        # Else they have changed places already; there is none between two steps (replace_folder).
        if not (out / MODEL).exists() or document_digest(out) != facts[MODEL]:
            commit_folder(new / MODEL, out / MODEL)
        workplace(out).open(request=facts["request"])
        with disk_errors(out):
            for name in (PLAN, SETTINGS, LOG, RESULT):
                if (new / name).exists():
                    os.replace(new / name, out / name)
            fsync_folder(out)
    remove_folder(new)
