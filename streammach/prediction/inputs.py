"""Rows to predict, from a store or a text file, with the ids of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streammach.data.anndata_zarr import is_matrix_folder
from streammach.data.bad_rows import BadRows
from streammach.data.source_options import SourceOptions
from streammach.data.sources import open_source
from streammach.data.store.dataset import Dataset
from streammach.errors import UsageError, clean
from streammach.model.model import Model
from streammach.rows.block import RowBlock
from streammach.rows.finish import finished
from streammach.rows.vocabulary import Vocabulary

READ_VALUES = 1 << 20


@dataclass
class Seen:
    """What was met in an input.

    Attributes
    ----------
    rows : int
        Rows read.
    unseen_labels : int
        Rows whose label the model does not know.
    unknown_values : int
        Values whose feature the model does not know; they are left out.
    """

    rows: int = 0
    unseen_labels: int = 0
    unknown_values: int = 0


def is_store(path: Path) -> bool:
    """Return whether a path is a store's folder rather than a file or another folder of rows."""
    return path.is_dir() and not is_matrix_folder(path)


def rows_of(
    path: Path, model: Model, seen: Seen, *, form: str | None = None, label_needed: bool = True
) -> Iterator[RowBlock]:
    """Yield the rows of an input with the model's ids, in the input's order.

    Parameters
    ----------
    path : Path
        A store, or a file of any format that can be converted.
    model : Model
        Its labels and features give the ids; a class that it does not know is -1.
    seen : Seen
        Counts what is met.
    form : str, optional
        Format of a file.
    label_needed : bool
        Whether a row of text without a label is bad.

    Raises
    ------
    UsageError, DataError, StoreError, DiskError
        If the input cannot be read.
    """
    if not path.exists():
        raise UsageError("there is no such store or file", path=clean(path, 300))
    blocks = (
        _store_rows(path, model, seen)
        if is_store(path)
        else _text_rows(path, model, seen, form, label_needed)
    )
    for block in blocks:
        seen.rows += block.n_rows
        seen.unseen_labels += int((block.labels < 0).sum())
        yield block


def _store_rows(path: Path, model: Model, seen: Seen) -> Iterator[RowBlock]:
    with Dataset.open(path) as dataset:
        features = (
            None if dataset.digest == model.store else model.features.ids_of(dataset.features)
        )
        labels = None if dataset.digest == model.store else model.labels.ids_of(dataset.labels)
        same = features is None or np.array_equal(features, np.arange(len(features)))
        step = max(1, READ_VALUES * dataset.n_rows // dataset.nnz)
        for start in range(0, dataset.n_rows, step):
            block = dataset.rows(start, min(start + step, dataset.n_rows))
            done = finished(block, None if same else features, labels)
            seen.unknown_values += block.nnz - done.nnz
            yield done


def _text_rows(
    path: Path, model: Model, seen: Seen, form: str | None, label_needed: bool
) -> Iterator[RowBlock]:
    vocabulary = Vocabulary(model.labels, model.features, add_labels=False, add_features=False)
    bad_rows = BadRows()
    source = open_source(path, SourceOptions(form))
    for block in source.blocks(vocabulary, bad_rows, label_needed=label_needed):
        yield finished(block)
    seen.unknown_values += bad_rows.unknown_values
