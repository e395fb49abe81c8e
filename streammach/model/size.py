"""What a model takes of the memory, known before its arrays are read, and afterwards."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from streammach.model import loading
from streammach.model.coding import NEAR, PIECE_WORDS
from streammach.model.document import (
    LABELS,
    TENSORS,
    TITLES,
    Document,
    arrays_of,
    folder_of,
    read_document,
)
from streammach.model.model import Model
from streammach.model.tensors import damage_error, open_tensors
from streammach.options.model_spec import ModelSpec
from streammach.options.recipe import Recipe
from streammach.rows.packed import PackedCounts, PackedRows
from streammach.system.errors import clean

PACKING_BYTES = 8 << 20  # of weights on their way


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """What a model takes."""

    spec: ModelSpec  # its shape
    # dense, counted: whether rows go through matrix products; whether counts stand beside
    dense: bool
    counted: bool
    store: str  # digest of the store that it was trained on
    n_bytes: int  # bytes of its arrays in memory
    names: tuple[tuple[int, int], tuple[int, int]]  # how many labels and features, and their bytes
    n_more: int = 0  # columns that dense rows get beyond their features
    coded: bool = False  # whether its arrays are coded in its file
    loading: int = 0  # bytes taken beside these while it is loaded
    floats: int = 0  # bytes of weights that are not coded; of a model in a file
    listed: bool = False  # whether its rows have lists of labels
    title_bytes: int = 0  # bytes of the titles of its labels
    relabelled: bool = False  # whether labels were renamed, merged or removed
    n_wide: int = 0  # features that have a gain for each class in its counts
    n_near: int = 0  # training rows beside its counts
    recipe: Recipe | None = None  # how tables are read

    @property
    def bytes_to_change(self) -> int:
        """Bytes of a model in a file and of what is taken while another one is made of it."""
        # 1.3 of weights that are floats were measured, 4.7 of counts.
        return 5 * self.n_bytes - 3 * self.floats

    @property
    def label_bytes(self) -> float:
        """Bytes of a label's name and title, in the mean."""
        n, n_bytes = self.names[0]
        return (n_bytes + self.title_bytes) / max(n, 1)


def size_in_file(path: str | os.PathLike[str]) -> ModelSize:
    """Return what the model in a folder will take: exactly, or at most where counts are packed."""
    folder = folder_of(path)
    document = read_document(path)
    spec, coded = document.spec, document.coded
    with open_tensors(folder / TENSORS, document.tensors) as arrays:
        header = {name: one.tensor for name, one in arrays.items()}
        loading.check_header(folder, document, header)
        shapes = {n: coded[n].shape if n in coded else t.shape for n, t in header.items()}
        types = {name: dtype for name, (_, dtype) in arrays_of(document).items()}
        sizes = {n: math.prod(shape) * types[n].itemsize for n, shape in shapes.items()}
        n_bytes = sum(sizes.values())
        if loading.packs_weights(document):
            try:
                n, columns = coded[loading.WEIGHTS].shape
                rows = loading.weight_rows(arrays[loading.WEIGHTS], coded[loading.WEIGHTS])
                n_bytes += PackedRows.footprint(rows, (n, columns)) - sizes[loading.WEIGHTS]
            except ValueError as error:
                raise damage_error(folder, f"the coded arrays are wrong: {clean(error)}") from None
    if loading.packs_counts(document):
        n_bytes -= PackedCounts.bytes_saved_by(
            shapes[loading.CLASSES][0], spec.n_features, spec.n_classes
        )
    names = (spec.n_classes, sizes[LABELS]), (spec.n_features, sizes["feature_bytes"])
    return ModelSize(
        spec=spec, dense=document.dense, counted=document.hashed_weight is not None,
        store=document.store, n_bytes=n_bytes, names=names, n_more=document.n_more,
        coded=document.stored is not None, loading=_loading(document, sizes),
        floats=0 if loading.WEIGHTS in coded else sizes[loading.WEIGHTS],
        listed=document.listed, relabelled=document.relabelled, title_bytes=sizes.get(TITLES, 0),
        n_wide=shapes[loading.WIDE][0] if loading.WIDE in shapes else 0, recipe=document.recipe,
        n_near=shapes[NEAR + "norms"][0] if document.near_weight is not None else 0,
    )  # fmt: skip


def _loading(document: Document, sizes: dict[str, int]) -> int:
    """Return what is taken beside a model while its arrays, of these bytes, are decoded."""
    coded = document.coded
    if not coded:
        return 0
    stay = {loading.WEIGHTS} if loading.packs_weights(document) else set()
    whole = max((sizes[name] for name in coded if name not in stay), default=0)
    pieces = max(
        min(math.prod(one.shape), PIECE_WORDS) * 5 * np.dtype(one.dtype).itemsize
        for one in coded.values()
    )  # a word as planes and as itself, and its value
    counts = sum(sizes[name] for name in loading.COUNTED) if loading.packs_counts(document) else 0
    return 2 * whole + pieces + PACKING_BYTES + counts + document.tensors.size


def size_in_memory(model: Model) -> ModelSize:
    """Return what a model in memory takes."""
    label, feature = ((len(n), n.text_bytes) for n in (model.labels, model.features))
    return ModelSize(
        spec=model.spec, dense=model.dense, counted=model.counts is not None, store=model.store,
        n_bytes=model.n_bytes, names=(label, feature), n_more=model.n_more,
        listed=model.listed, relabelled=model.says is not None,
        title_bytes=0 if model.titles is None else model.titles.text_bytes,
        n_wide=0 if model.counts is None else len(model.counts.wide), recipe=model.recipe,
        coded=model.stored is not None, n_near=0 if model.near is None else len(model.near.norms),
    )  # fmt: skip


def kept_text(small: Model, whole: Model, *, all_pairs: bool = False) -> str:
    """Return in words what a smaller model keeps of another one."""

    def part(name: str, n: int, most: int) -> list[str]:
        return [] if not most else [f"all {name}" if n == most else f"{n:,} of {most:,} {name}"]

    a, b = small.spec, whole.spec
    return ", ".join([
        f"{small.stored or small.weights.dtype} weights",
        *(part("repetitions", a.n_repetitions, b.n_repetitions) if not b.exact else ()),
        *part("pairs", whole.n_pairs if all_pairs else small.n_pairs, whole.n_pairs),
        *part("features", a.n_features, b.n_features),
    ])  # fmt: skip
