"""Arrays and documents of a run on disk until it is done, and what its stages found.

A document is for one training and one state of its weights. What is damaged or of another one is
found anew; where the disk is full, the training goes on and keeps nothing.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from numpy.typing import NDArray

from streammach.model.tensors import TensorFile, read_tensors, write_tensors
from streammach.options.documents import encode_json, from_json, to_json
from streammach.system.errors import DiskError, MismatchError, ModelError, clean
from streammach.system.files.folders import commit_folder, make_folder, remove_folder, scratch
from streammach.system.files.reading import read_small, sha256
from streammach.system.files.writing import write_atomic

TENSORS, DOCUMENT = "found.safetensors", "found.json"
LEAST_SECONDS = 3.0  # what took less is found again as fast
MAX_DOCUMENT = 16 << 20


class RunDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a run, whose run it is, and the file of its arrays if there are any."""

    identity: str  # digest of all that decides the result
    tensors: TensorFile | None = None


T = TypeVar("T")
D = TypeVar("D", bound=RunDocument)


def save_state(
    folder: Path, name: str, arrays: dict[str, NDArray[Any]],
    document: Callable[[TensorFile], RunDocument],
) -> None:  # fmt: skip
    """Write NAME.json and NAME.safetensors into a folder, which appears whole; or DiskError."""
    make_folder(folder.parent)
    with scratch(folder) as partial:
        make_folder(partial)
        tensors = write_tensors(partial / f"{name}.safetensors", arrays)
        write_atomic(partial / f"{name}.json", to_json(document(tensors)))
        commit_folder(partial, folder)


def read_state(path: Path, kind: type[D], identity: str, what: str) -> D:
    """Return a document of a run, or raise ModelError, or MismatchError for another run."""
    place = clean(path.parent, 300)
    try:
        document = from_json(read_small(path, MAX_DOCUMENT), kind)
    except (ValueError, DiskError) as error:
        hint = "Train again."
        raise ModelError(f"damaged {what}: {clean(error)}", path=place, hint=hint) from None
    if document.identity != identity:
        raise MismatchError(
            f"the {what} belongs to another store, plan or training", path=place,
            hint="Use the same command as before, or another --out.",
        )  # fmt: skip
    return document


class StageDocument(RunDocument, frozen=True, kw_only=True):
    """What a stage found."""

    found: Any


class Findings:
    """What stages found."""

    def __init__(self, folder: Path, identity: str, *, lasting: bool) -> None:
        self.folder, self.identity, self.lasting = folder, identity, lasting

    def within(self, *state: object) -> Findings:
        """Return the same for what is found in a state of the training, whose digest counts."""
        identity = sha256([encode_json((self.identity, *state))])
        return Findings(self.folder, identity, lasting=self.lasting)

    def once(self, name: str, kind: Any, find: Callable[[], T], *, of: object = None) -> T:
        """Return what is found; it is read where it was found before."""
        suffix = "" if of is None else f"-{sha256([encode_json(of)])[:16]}"
        place = self.folder / f"{name}{suffix}.json"
        known = self._read(place, kind)
        if known is not None:
            value: T = known[0]
            return value
        began = time.monotonic()
        found = find()
        if time.monotonic() - began >= LEAST_SECONDS:
            self.write(lambda: write_atomic(
                place, to_json(StageDocument(identity=self.identity, found=found))
            ))  # fmt: skip
        return found

    def save(self, name: str, value: object, arrays: dict[str, NDArray[Any]]) -> None:
        """Keep a value with arrays, in place of those that were kept before."""
        self.write(lambda: save_state(
            self.folder / name, "found", arrays,
            lambda tensors: StageDocument(identity=self.identity, found=value, tensors=tensors),
        ))  # fmt: skip

    def load(self, name: str, kind: type[T], into: dict[str, NDArray[Any]]) -> T | None:
        """Read arrays that were kept, and return the value; None without them."""
        place = self.folder / name
        known = self._read(place / DOCUMENT, kind)
        if known is None or known[1] is None:
            return None
        try:
            read_tensors(place / TENSORS, known[1], into)
        except (ModelError, DiskError):
            return None
        found: T = known[0]
        return found

    def drop(self, *names: str) -> None:
        """Remove what was kept under names, if there is any."""
        for name in names:
            remove_folder(self.folder / name)

    def _read(self, path: Path, kind: Any) -> tuple[Any, TensorFile | None] | None:
        if not self.lasting or not path.is_file():
            return None
        try:
            document = read_state(path, StageDocument, self.identity, "finding")
            return msgspec.convert(document.found, kind), document.tensors
        except (ModelError, MismatchError, msgspec.ValidationError):
            return None

    def write(self, write: Callable[[], None]) -> None:
        """Write something, if anything is kept; a full disk is a warning."""
        if not self.lasting:
            return
        try:
            make_folder(self.folder)
            write()
        except DiskError as error:
            with contextlib.suppress(DiskError):
                remove_folder(self.folder)
            warnings.warn(f"what was found could not be kept: {error}", stacklevel=3)
