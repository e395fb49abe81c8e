"""What a model takes of the memory, known before its arrays are read, and afterwards."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from streammach.model.coding import COUNTS, PIECE_WORDS
from streammach.model.document import arrays_of, read_document
from streammach.model.loading import check_header
from streammach.model.model import Model, folder_of
from streammach.model.ours import TENSORS
from streammach.model.tensors import read_header
from streammach.spec.model import ModelSpec

WORD_BYTES = 24  # of a piece of a coded array's words while they are coded or decoded
PAIR_BYTES = 60  # of a counted pair while a model is made smaller
NAMES = ("label", "feature")


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a model takes.

    Attributes
    ----------
    spec : ModelSpec
        Its shape.
    dense, counted : bool
        Whether rows go through matrix products; whether counts stand beside.
    store : str
        Digest of the store that it was trained on.
    n_bytes : int
        Bytes of its arrays in memory, and of the file where they are mapped.
    loading : int
        Bytes taken beside these while it is loaded.
    names : tuple of (int, int)
        How many labels and features, and their bytes.
    widest, pairs : int
        Bytes of its largest array, and counted pairs.
    n_more : int
        Columns that dense rows get beyond their features.
    """

    spec: ModelSpec
    dense: bool
    counted: bool
    store: str
    n_bytes: int
    loading: int
    names: tuple[tuple[int, int], ...]
    widest: int
    pairs: int
    n_more: int = 0

    @property
    def smaller(self) -> dict[str, int]:
        """Bytes that are taken beside it while it is made smaller, by name."""
        coding = self.widest + min(self.widest, PIECE_WORDS) * WORD_BYTES
        return {
            "smaller model": self.n_bytes, "pairs": PAIR_BYTES * self.pairs, "coding": coding,
        }  # fmt: skip

    @property
    def label_bytes(self) -> float:
        """Bytes of a label's name, in the mean."""
        n, n_bytes = self.names[0]
        return n_bytes / max(n, 1)


def held_in(path: str | os.PathLike[str]) -> Held:
    """Return what the model in a folder will take; its arrays are not read.

    Parameters
    ----------
    path : path-like
        The folder of a run or of a model.

    Raises
    ------
    ModelError, DiskError
        If there is no model, or it is damaged.
    BudgetError
        If what is coded in it does not fit the memory.
    """
    folder = folder_of(path)
    document = read_document(folder, path)
    header = read_header(folder / TENSORS, document.tensors)
    check_header(folder, document, header)
    shapes = {
        name: document.coded[name].shape if name in document.coded else tensor.shape
        for name, tensor in header.items()
    }
    types = {name: dtype for name, (_, dtype) in arrays_of(document).items()}
    sizes = {
        name: math.prod(shape) * types[name].itemsize
        for name, shape in shapes.items()
        if name in types
    }
    names = tuple(
        (math.prod(shapes[f"{which}_offsets"]) - 1, sizes[f"{which}_bytes"]) for which in NAMES
    )
    copied = sum(8 * (n + 1) + n_bytes for n, n_bytes in names)  # names are taken out of the file
    coded = max((sizes[name] for name in document.coded), default=0)
    loading = 2 * coded + min(coded, PIECE_WORDS) * WORD_BYTES
    loading += document.tensors.size if coded else 0
    pairs = sum(math.prod(shapes.get(COUNTS + name, (0,))) for name in ("classes", "wide"))
    return Held(
        spec=document.spec, dense=document.dense, counted=document.hashed_weight is not None,
        store=document.store, n_bytes=sum(sizes.values()) + copied, loading=loading, names=names,
        widest=max(sizes.values()), pairs=pairs, n_more=document.n_more,
    )  # fmt: skip


def held_by(model: Model) -> Held:
    """Return what a model in memory takes."""
    names = tuple((len(n), int(n.data.nbytes)) for n in (model.labels, model.features))
    mapped = any(isinstance(a, np.memmap) for a in model.arrays().values())
    copied = sum(n.n_bytes for n in (model.labels, model.features)) if mapped else 0
    return Held(
        spec=model.spec, dense=model.dense, counted=model.counts is not None, store=model.store,
        n_bytes=model.n_bytes + copied, loading=0, names=names,
        widest=max(a.nbytes for a in model.arrays().values()), pairs=model.n_pairs,
        n_more=model.n_more,
    )  # fmt: skip
