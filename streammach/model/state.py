"""Arrays and a document in a folder of a run, until another one goes on behind them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from numpy.typing import NDArray

from streammach.errors import DiskError, MismatchError, ModelError, clean
from streammach.files.folders import commit_folder, make_folder, remove_folder
from streammach.files.reading import read_small
from streammach.files.writing import write_atomic
from streammach.model.tensors import TensorFile, write_tensors
from streammach.spec.documents import from_json, to_json

MAX_DOCUMENT = 16 << 20


class RunDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a run, whose run it is, and the file of its arrays if there are any."""

    identity: str  # digest of all that decides the result
    tensors: TensorFile | None = None


D = TypeVar("D", bound=RunDocument)


def save_state(
    folder: Path, name: str, arrays: dict[str, NDArray[Any]],
    document: Callable[[TensorFile], RunDocument],
) -> None:  # fmt: skip
    """Write NAME.json and NAME.safetensors into a folder, which appears whole; or DiskError."""
    make_folder(folder.parent)
    partial = folder.with_name(f".{folder.name}")
    remove_folder(partial)
    make_folder(partial)
    try:
        tensors = write_tensors(partial / f"{name}.safetensors", arrays)
        write_atomic(partial / f"{name}.json", to_json(document(tensors)))
        commit_folder(partial, folder)
    finally:
        remove_folder(partial)


def read_state(path: Path, kind: type[D], identity: str, what: str) -> D:
    """Return a document of a run, or raise ModelError, or MismatchError for another run."""
    place = clean(path.parent, 300)
    try:
        document = from_json(read_small(path, MAX_DOCUMENT), kind)
    except (ValueError, DiskError) as error:
        raise ModelError(
            f"damaged {what}: {clean(error)}", path=place, hint="Train again."
        ) from None
    if document.identity != identity:
        raise MismatchError(
            f"the {what} belongs to another store, plan or training", path=place,
            hint="Use the same command as before, or another --out.",
        )  # fmt: skip
    return document
