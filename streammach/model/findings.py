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

from streammach.errors import DiskError, DivergedError, MismatchError, ModelError
from streammach.files.folders import make_folder, remove_folder
from streammach.files.reading import sha256
from streammach.files.writing import write_atomic
from streammach.model.model import check_finite
from streammach.model.state import RunDocument, read_state, save_state
from streammach.model.tensors import TensorFile, read_tensors
from streammach.spec.documents import encoded, to_json

T = TypeVar("T")
TENSORS, DOCUMENT = "found.safetensors", "found.json"
LEAST_SECONDS = 3.0  # what took less is found again as fast


class StageDocument(RunDocument, frozen=True, kw_only=True):
    """What a stage found."""

    found: Any


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
        suffix = "" if of is None else f"-{sha256([encoded(of)])[:16]}"
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
            check_finite(into)
        except (ModelError, DiskError, DivergedError):
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
