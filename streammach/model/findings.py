"""What stages of a training found, on disk until it is done, so that another one goes on behind it.

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

from streammach.errors import DiskError, DivergedError, ModelError
from streammach.files.folders import commit_folder, make_folder, remove_folder
from streammach.files.reading import read_small, sha256
from streammach.files.writing import write_atomic
from streammach.model.model import check_finite
from streammach.model.tensors import TensorFile, read_tensors, write_tensors
from streammach.spec.documents import encoded, from_json, to_json

T = TypeVar("T")
TENSORS, DOCUMENT = "found.safetensors", "found.json"
MAX_DOCUMENT = 1 << 20
LEAST_SECONDS = 3.0  # what took less is found again as fast


class StageDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was found, what it belongs to, and the arrays' file if there are any."""

    identity: str
    found: Any
    tensors: TensorFile | None = None


class Findings:
    """What stages found."""

    def __init__(self, folder: Path, identity: str, *, lasting: bool) -> None:
        self.folder, self.identity, self.lasting = folder, identity, lasting

    def within(self, *state: object) -> Findings:
        """Return the same for what is found in a state of the training, whose digest counts."""
        identity = sha256([encoded((self.identity, *state))])
        return Findings(self.folder, identity, lasting=self.lasting)

    def once(self, name: str, kind: Any, find: Callable[[], T], *, of: object = None) -> T:
        """Return what is found; it is read where it was found before."""
        place = self._place(name, of).with_suffix(".json")
        known = self._read(place, kind)
        if known is not None:
            value: T = known[0]
            return value
        began = time.monotonic()
        found = find()
        if time.monotonic() - began >= LEAST_SECONDS:
            self.write(lambda: _write_document(place, StageDocument(
                identity=self.identity, found=found
            )))  # fmt: skip
        return found

    def save(self, name: str, value: object, arrays: dict[str, NDArray[Any]]) -> None:
        """Keep a value with arrays, in place of those that were kept before."""
        self.write(lambda: self._save(name, value, arrays))

    def load(self, name: str, kind: type[T], into: dict[str, NDArray[Any]]) -> T | None:
        """Read arrays that were kept, and return the value; None without them."""
        place = self.folder / name
        known = self._read(place / DOCUMENT, kind)
        if known is None or known[1] is None:
            return None
        try:
            read_tensors(place / TENSORS, known[1], into)
            check_finite(into)
        except (ModelError, DiskError, DivergedError):
            return None
        found: T = known[0]
        return found

    def drop(self, *names: str) -> None:
        """Remove what was kept under names, if there is any."""
        for name in names:
            remove_folder(self.folder / name)

    def _place(self, name: str, of: object) -> Path:
        return self.folder / (name if of is None else f"{name}-{sha256([encoded(of)])[:16]}")

    def _read(self, path: Path, kind: Any) -> tuple[Any, TensorFile | None] | None:
        if not self.lasting or not path.is_file():
            return None
        try:
            document = from_json(read_small(path, MAX_DOCUMENT), StageDocument)
            if document.identity != self.identity:
                return None
            return msgspec.convert(document.found, kind), document.tensors
        except (ValueError, DiskError, msgspec.ValidationError):
            return None

    def _save(self, name: str, value: object, arrays: dict[str, NDArray[Any]]) -> None:
        place, partial = self.folder / name, self.folder / f".{name}"
        remove_folder(partial)
        make_folder(partial)
        try:
            tensors = write_tensors(partial / TENSORS, arrays)
            _write_document(partial / DOCUMENT, StageDocument(
                identity=self.identity, found=value, tensors=tensors
            ))  # fmt: skip
            remove_folder(place)
            commit_folder(partial, place)
        finally:
            remove_folder(partial)

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


def _write_document(path: Path, document: StageDocument) -> None:
    write_atomic(path, to_json(document))
