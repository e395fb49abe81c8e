"""Rows in memory that are read as those of a store are: the same arrays, and no files."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streammach.inputs.identity import PLACE
from streammach.options.formats import STORE_FORMAT
from streammach.store.dataset import Dataset
from streammach.store.root import Root, RootFacts
from streammach.store.stored_arrays import ArrayInMemory
from streammach.store.writer import RowsWriter

ROW_BYTES = 8 + 4 + 8 + 4  # of a row: pointer, class, number, importance
FEATURE_BYTES = 4
LIST_BYTES, LABEL_BYTES = 8, 4 + 4  # of a row's list of labels, and of a label in it


class MemoryWriter(RowsWriter):
    """Takes in rows and names as a store's writer does, and holds them."""

    def __init__(
        self, value_type: type[np.generic], *, n_rows: int, nnz: int, n_labels: int, **content: Any
    ) -> None:
        self._room = {
            "X/indptr": n_rows + 1, "X/indices": nnz, "X/data": nnz, "y": n_rows, "row": n_rows,
            "y/indptr": n_rows + 1, "y/indices": n_labels, "y/data": n_labels, "weight": n_rows,
        }  # fmt: skip
        super().__init__(value_type, **content)

    def _new(self, name: str, dtype: type[np.generic]) -> ArrayInMemory:
        return ArrayInMemory(dtype, self._room[name])

    def _add(self, name: str, values: NDArray[Any]) -> None:
        self._arrays[name] = ArrayInMemory.of(values)

    def finish(self, facts: RootFacts) -> Root:
        """Return the root of the rows, with a digest of all that they are."""
        content = {**msgspec.structs.asdict(facts), "source": [], "options": {}}
        digest = hashlib.sha256(msgspec.json.encode(content, order="sorted"))
        for name, array in sorted(self._arrays.items()):
            digest.update(f"{name} {array.dtype} {array.n_values}".encode())
            digest.update(np.ascontiguousarray(array.values).data)
        return Root(
            **msgspec.structs.asdict(facts), format=STORE_FORMAT,
            complete=True, manifest=digest.hexdigest(), check="",
        )  # fmt: skip

    def release(self) -> None:
        """Do nothing: no file is open."""

    def dataset(self, root: Root) -> Dataset:
        """Return the rows, to read; `root` is what :meth:`finish` returned."""
        return Dataset(PLACE, root, self._arrays, self._documents(root))
