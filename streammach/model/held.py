"""What a model takes of the memory, known before its arrays are read, and afterwards."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

import numpy as np

from streammach.errors import clean
from streammach.model.coding import COUNTS, PIECE_WORDS
from streammach.model.document import LABELS, Document, arrays_of, read_document
from streammach.model.loading import check_header
from streammach.model.model import Model, folder_of
from streammach.model.ours import TENSORS
from streammach.model.packed_names import PackedNames
from streammach.model.packing import CLASSES, WIDE, packed_bytes, packed_in
from streammach.model.shrink import PAIR_BYTES
from streammach.model.tensors import damaged, lying
from streammach.spec.model import ModelSpec

WORD_BYTES = 24  # of a piece of an array's words while they are coded
PAIR_WORD_BYTES = 36  # of a piece of the words of pairs while they are decoded
PACKING_BYTES = 8 << 20  # of weights on their way
PAIR_ARRAYS = {"classes": 4, "wide": 2}  # and their bytes a pair


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a model takes."""

    spec: ModelSpec  # its shape
    # dense, counted: whether rows go through matrix products; whether counts stand beside
    dense: bool
    counted: bool
    store: str  # digest of the store that it was trained on
    n_bytes: int  # bytes of its arrays in memory
    names: tuple[tuple[int, int], tuple[int, int]]  # how many labels and features, and their bytes
    n_more: int = 0  # columns that dense rows get beyond their features
    loading: int = 0  # bytes taken beside these while it is loaded
    # bytes taken beside these while a smaller model is made of it, by name; of a model in a file
    smaller: dict[str, int] = field(default_factory=dict)
    listed: bool = False  # whether its rows have lists of labels
    n_wide: int = 0  # features that have a gain for each class in its counts
    # bytes of the list of all labels where it has to be made, since their names are packed
    labels: int = 0

    @property
    def label_bytes(self) -> float:
        """Bytes of a label's name, in the mean."""
        n, n_bytes = self.names[0]
        return n_bytes / max(n, 1)


def held_in(path: str | os.PathLike[str]) -> Held:
    """Return what the model in a folder will take; but for what will be packed nothing is read."""
    folder = folder_of(path)
    document = read_document(folder, path)
    packed = packed_in(document)
    with lying(folder / TENSORS, document.tensors) as arrays:
        header = {name: one.tensor for name, one in arrays.items()}
        check_header(folder, document, header)
        try:
            found = packed_bytes({name: arrays[name] for name in packed}, document)
        except ValueError as error:
            raise damaged(folder, f"the coded arrays are wrong: {clean(error)}") from None
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
    spec = document.spec
    names = (spec.n_classes, sizes[LABELS]), (spec.n_features, sizes["feature_bytes"])
    plain = sum(sizes.values())
    labels = _list_bytes(*names[0]) if document.packs_names else 0
    return Held(
        spec=spec, dense=document.dense, counted=document.hashed_weight is not None,
        store=document.store, n_bytes=plain - sum(sizes[name] for name in packed) + found,
        names=names, n_more=document.n_more, loading=_loading(document, sizes),
        smaller=_smaller(sizes, plain + labels), labels=labels, listed=document.n_rows > 0,
        n_wide=shapes[WIDE][0] if WIDE in shapes else 0,
    )  # fmt: skip


def _list_bytes(n: int, n_bytes: int) -> int:
    """Return what a list of so many names of so many bytes takes."""
    return 8 * (n + 1) + n_bytes


def _loading(document: Document, sizes: dict[str, int]) -> int:
    """Return what is taken beside a model while its arrays, of these bytes, are decoded."""
    packed, coded = packed_in(document), document.coded
    whole = max((sizes[name] for name in coded if name not in packed - {WIDE}), default=0)
    pieces = [
        min(math.prod(facts.shape), PIECE_WORDS)
        * (PAIR_WORD_BYTES if name == CLASSES else 5 * np.dtype(facts.dtype).itemsize)
        for name, facts in coded.items()
    ]  # a word as planes and as itself, and those of the next piece; a pair with its gain
    return 2 * whole + max(pieces) + PACKING_BYTES + document.tensors.size if coded else 0


def _smaller(sizes: dict[str, int], plain: int) -> dict[str, int]:
    """Return what is taken beside a model while a smaller one is made of it, by name."""
    pairs = sum(sizes.get(COUNTS + name, 0) // n for name, n in PAIR_ARRAYS.items())
    widest = max(sizes.values())
    coding = widest + min(widest, PIECE_WORDS) * WORD_BYTES
    return {"smaller model": plain, "pairs": PAIR_BYTES * pairs, "coding": coding}


def held_by(model: Model) -> Held:
    """Return what a model in memory takes."""
    label, feature = ((len(n), n.text_bytes) for n in (model.labels, model.features))
    return Held(
        spec=model.spec, dense=model.dense, counted=model.counts is not None, store=model.store,
        n_bytes=model.n_bytes, names=(label, feature), n_more=model.n_more,
        listed=model.listed, n_wide=0 if model.counts is None else len(model.counts.wide),
        labels=_list_bytes(*label) if isinstance(model.labels, PackedNames) else 0,
    )  # fmt: skip
