"""Labels of a trained model are renamed, merged, removed, and get titles: no score changes.

Classes keep their ids. A class whose label was merged is said by the label of another class, and a
label has the score of the best of its classes, and of rows with lists its probability. A class
whose label was removed is said no more; its name and that of a merged one are not given to others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from streammach.inputs.label_names import find_labels, read_label_names
from streammach.model.model import Model
from streammach.rows.names import MAX_NAME, Names
from streammach.system.errors import BudgetError, DataError, UsageError, clean
from streammach.system.files.raw_text import numbered_lines
from streammach.system.machine import UNLIMITED, size_text

COPIES = 4  # of a new name or title: in a list, joined, in the model, as it is written


@dataclass(frozen=True, kw_only=True)
class LabelChanges:
    """What became of labels."""

    renamed: int = 0  # labels that have another name
    merged: int = 0  # labels that are said by another one
    removed: int = 0  # labels that are said no more
    titles: int = 0  # labels that have a title


def rename(
    model: Model, path: str | os.PathLike[str], most_bytes: int = UNLIMITED
) -> tuple[Model, LabelChanges]:
    """Return the model with the labels that a file gives: old, a tab, new; empty for none.

    All lines hold at once. Raises DataError for a label that the model does not say, or a new name
    that was merged or removed, UsageError if no label is left, and BudgetError if new names take
    more than so many bytes.
    """
    k, index = model.spec.n_classes, model.labels.index()
    says = np.arange(k, dtype=np.int32) if model.says is None else model.says
    names, new, n_bytes = model.labels.raws(np.arange(k)), dict[int, bytes](), 0
    for number, old, name in chain.from_iterable(_pairs_in(path)):
        (i,) = index.ids([old]).tolist()
        known = i >= 0 and says[i] == i
        wrong = "it is there twice" if i in new else "" if known else "it is no label of the model"
        if wrong:
            raise DataError(f"{wrong}: '{clean(old, 60)}'", path=path, line=number)
        new[i], n_bytes = name, n_bytes + len(name)
        _check_bytes(n_bytes, most_bytes, path)
    said, first = np.arange(k, dtype=np.int32), dict[bytes, int]()  # by which class each is said
    for i in sorted(new, key=lambda i: (new[i] != names[i], i)):
        (there,) = index.ids([new[i]]).tolist() if new[i] else (-1,)
        stays = there >= 0 and says[there] == there and there not in new
        said[i] = first.setdefault(new[i], there if stays else i) if new[i] else -1
    renamed = [i for i, name in new.items() if said[i] == i and name != names[i]]
    for i in renamed:
        names[i] = new[i]
    for i in renamed:
        (there,) = index.ids([new[i]]).tolist()
        if there not in (-1, i) and names[there] == new[i]:
            what = f"a label that was merged or removed has that name: '{clean(new[i], 60)}'"
            raise DataError(what, path=path)
    says = np.where(says >= 0, said[np.maximum(says, 0)], -1).astype(np.int32)
    if (says < 0).all():
        raise UsageError("no label is left", path=path)
    majority = int(says[model.majority])
    done = LabelChanges(
        renamed=len(renamed), removed=sum(not name for name in new.values()),
        merged=len([i for i, name in new.items() if name and said[i] != i]),
    )  # fmt: skip
    return replace(
        model, labels=Names.of(names), says=says,
        majority=majority if majority >= 0 else int(says[says >= 0][0]),  # classes go by frequency
    ), done  # fmt: skip


def entitle(
    model: Model, path: str | os.PathLike[str], most_bytes: int = UNLIMITED
) -> tuple[Model, LabelChanges]:
    """Return the model with titles of its labels from a file: label, a tab, title.

    A URI may stand in angle brackets. If the first line has no tab each line is the title of the
    label that is its number, from 0, or an object with that title, as the XMC repository has them.
    What the model does not know is left out; raises UsageError if it knows no label, and
    BudgetError if titles take more than so many bytes.
    """
    names, k = read_label_names(path, known=model.labels), model.spec.n_classes
    ids = find_labels(model.labels, names.labels)
    says = ids if model.says is None else np.where(ids < 0, -1, model.says[ids])
    # The title of a merged label is none where the other one has a title.
    others = names.by_class(np.where(says == ids, -1, says)).titles(k)
    found = names.by_class(np.where(says == ids, says, -1)).titles(k, others)
    _check_bytes(found.text_bytes, most_bytes, path)
    n = int(np.count_nonzero(np.diff(found.offsets)))
    if not n:
        raise UsageError("the model knows no label of it", path=path)
    return replace(model, titles=found), LabelChanges(titles=n)


def _check_bytes(n_bytes: int, most: int, path: str | os.PathLike[str]) -> None:
    if COPIES * n_bytes > most:
        what = f"its names take more than the {size_text(most)} beside the model: --memory"
        raise BudgetError(what, path=path, hint="Give more memory, or shorter names.")


def _pairs_in(path: str | os.PathLike[str]) -> Iterator[list[tuple[int, bytes, bytes]]]:
    """Yield number, first and second cell of the lines of a file that are not empty."""
    for lines in numbered_lines(path):
        pairs = []
        for number, line in lines:
            label, tab, rest = line.partition(b"\t")
            second = rest.partition(b"\t")[0].strip()
            if not tab or not label or len(second) > MAX_NAME:
                what = f"it is not a label, a tab and a name: '{clean(line, 60)}'"
                raise DataError(what, path=path, line=number)
            pairs.append((number, label, second))
        yield pairs
