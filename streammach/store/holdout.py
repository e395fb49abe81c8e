"""Held-out rows, on which every choice is made, as like the rows to come as possible; and folds.

Rows of one document, user or file are alike: a model that learnt from some of them knows the
others. Where rows to come are of new documents, random rows flatter. So a namespace that looks like
the name of documents is looked for; else rows are random, and nobody learns from equal ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streammach.options.config import Batching
from streammach.options.training import AUTO, RANDOM, TrainingOptions
from streammach.rows.arrays import keys
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.columns import ids_of_features
from streammach.rows.names import in_namespace, namespaces
from streammach.store.dataset import Dataset
from streammach.store.root import RootFacts, check_recipe
from streammach.store.row_groups import are_documents, equal_rows, names_of_documents
from streammach.store.row_totals import Occurrences
from streammach.store.writer import StoreWriter
from streammach.system.clock import Clock, TimeOver
from streammach.system.errors import MismatchError, UsageError, clean

GROUPS_STREAM, FOLDS_STREAM = 3, 5
LEAST_OLD = 1000  # rows that are learnt from again, however few are new
LEAST_EQUAL = 8  # rows that are equal, and may be held out together, however few are held out
MOST_APART = 2  # times the rows that are wanted: they and their equals
MIN_GROUPS = 16  # larger groups than a sixteenth of the held-out rows are taken last


@dataclass(frozen=True)
class HeldOut:
    """Rows for choices."""

    # the rows, with the training store's ids, before any transform, without the features that no
    # other row of the store holds: they are new to the model. Rows of one group, if there are
    # groups, lie together. Those with importances count as many rows as tell as much as they do.
    # Where choices go by propensity, labels weigh 1 / propensity
    rows: RowBlock
    # bool (n_rows,) or None: which rows of the training store they are, and which are not learnt
    # from beside them, as equal ones; None where they come from another store
    mask: NDArray[np.bool_] | None
    origin: str  # how they were chosen, for people
    looked: bool = False  # whether they are groups that were found, and nobody asked for
    # int64 or None: places of those that decide, where other masked rows only wait; they rise
    decide: NDArray[np.int64] | None = None

    @property
    def places(self) -> NDArray[np.int64]:
        """Places in the training store of the rows that decide: int64, rising."""
        if self.mask is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.mask) if self.decide is None else self.decide


def hold_out(
    dataset: Dataset, room: Batching, options: TrainingOptions,
    among: NDArray[np.bool_] | None = None, clock: Clock | None = None,
) -> HeldOut:  # fmt: skip
    """Return the rows for choices, or raise UsageError, MismatchError, StoreError or DiskError.

    `among`, bool (n_rows,), says which of the training store's rows may be some of them: all
    otherwise. `clock` has the time to look for rows that are equal.
    """
    found = _held_out(dataset, room, options, among, clock or Clock())
    rows = found.rows
    if rows.importance is None:
        return found
    total = max(float(rows.importance.sum(dtype=np.float64)), 1e-30)
    return replace(found, rows=_round_importances(rows, total / max(rows.n_alike, 1)))


def _held_out(
    dataset: Dataset, room: Batching, options: TrainingOptions, among: NDArray[np.bool_] | None,
    clock: Clock,
) -> HeldOut:  # fmt: skip
    if options.validation is not None:
        return _from_store(dataset, room, options.validation)
    by, wanted, seed = options.hold_out_by or RANDOM, room.held_out_rows, options.seed
    some = np.ones(dataset.n_rows, np.bool_) if among is None else among
    if by not in (AUTO, RANDOM) and (
        held := _of_namespace(dataset, room, os.fsencode(by), seed, some)
    ):
        return held
    looks = by == AUTO and wanted > 0
    for namespace in names_of_documents(dataset, wanted) if looks else ():
        held = _of_namespace(dataset, room, namespace, seed, some, looks=True)
        if held is not None:
            return held
    mask, places = np.zeros(dataset.n_rows, np.bool_), np.flatnonzero(some)
    wanted = min(wanted, len(places))
    mask[places[len(places) - wanted :]] = True  # the store is shuffled
    rows, numbers = _masked_rows(dataset, room, mask)
    origin = f"{wanted:,} random rows of the training store"
    held = HeldOut(_of_known_features(rows, dataset), mask, origin)
    if not (looks and rows.n_rows):
        return held
    try:
        return _without_equals(held, dataset, (rows, numbers), clock)
    except TimeOver:
        return replace(held, origin=f"{origin} (no time was left to look for equal ones)")


def _without_equals(
    held: HeldOut, dataset: Dataset, some: tuple[RowBlock, NDArray[np.int64]], clock: Clock
) -> HeldOut:
    """Return random rows as held out, whose equals are not learnt from; fewer if these are many."""
    rows, numbers = some
    names, places, of = equal_rows(dataset, rows, numbers, clock)
    groups, sizes = np.unique(of, return_counts=True)
    few = sizes <= max(rows.n_rows / MIN_GROUPS, LEAST_EQUAL)  # rows to come are like the others
    groups, sizes = groups[few], sizes[few]
    if not len(groups):
        return held
    names = np.where(np.isin(names, groups), names, np.uint64(0))
    _, first = np.unique(names, return_index=True)
    n_apart = (names == 0).astype(np.int64)  # rows that each one adds to those not learnt from
    first = first[names[first] > 0]
    n_apart[first] = sizes[np.searchsorted(groups, names[first])]
    decides = np.cumsum(n_apart) <= MOST_APART * rows.n_rows
    mask = np.zeros(dataset.n_rows, np.bool_)
    mask[places[np.isin(of, names[decides & (names > 0)])]] = True
    mask[numbers[decides]] = True
    rows = rows.take(np.flatnonzero(decides)[np.argsort(names[decides], kind="stable")])
    origin = f"{rows.n_rows:,} random rows of the training store"
    if n_equal := int(mask.sum()) - rows.n_rows:
        origin += f", apart from {n_equal:,} that are equal to some of them"
    return HeldOut(_of_known_features(rows, dataset), mask, origin, True, numbers[decides])


def _of_namespace(
    dataset: Dataset, room: Batching, namespace: bytes, seed: int, some: NDArray[np.bool_], *,
    looks: bool = False,
) -> HeldOut | None:  # fmt: skip
    """Return some rows, all that may be, of random values of a namespace; nobody learns from these.

    None if it only looks like documents, or none of the rows has a value.
    """
    inside = in_namespace(dataset.features, namespace)
    groups = groups_of(dataset, inside, namespace)
    if not (some & (groups >= 0)).any():
        return None
    mask, count = _choose_groups(groups, some, room.held_out_rows, seed)
    rows, numbers = _masked_rows(dataset, room, mask & some)
    others = rows.with_values(~inside[rows.features]) if looks else rows
    if looks and not are_documents(dataset, others, groups[numbers]):
        return None
    rows = rows.take(np.argsort(groups[numbers], kind="stable"))
    origin = f"{rows.n_rows:,} rows of {count:,} values of namespace {clean(namespace)}"
    origin += ", which looks like documents" if looks else ""
    decide = np.sort(numbers) if len(numbers) < mask.sum() else None
    return HeldOut(_of_known_features(rows, dataset), mask, origin, looks, decide)


def _of_known_features(rows: RowBlock, dataset: Dataset) -> RowBlock:
    """Return held-out rows without the features that no other row of their store holds."""
    # In rows to come these are unknown. A group by which rows are held out is one of them.
    features, n_rows = np.unique(rows.features, return_counts=True)
    new = features[dataset.feature_counts[features] <= n_rows]
    return rows.with_values(~np.isin(rows.features, new))


def check_held_out(options: TrainingOptions) -> None:
    """Raise UsageError, StoreError or DiskError if the store of held-out rows cannot be had."""
    if options.validation is not None:
        Dataset.open(options.validation).close()


def _from_store(dataset: Dataset, room: Batching, path: str) -> HeldOut:
    with Dataset.open(path) as other:
        check_recipe(other.root, dataset.root.recipe, other.path)
        features = ids_of_features(dataset.features, dataset.columns, other.features, other.columns)
        labels = dataset.labels.labels_of(other.labels)
        nnz_rows = max(1, room.held_out_nnz * other.n_rows // max(other.nnz, 1))
        wanted = min(max(room.held_out_rows, 1), nnz_rows, other.n_rows)
        rows = canonicalize(other.rows(0, wanted), features, labels)
        if other.nnz and not rows.nnz:
            hint = "Give rows whose features have the names that those of the training have."
            raise MismatchError("the training has no feature of these rows", path=path, hint=hint)
        if dataset.weighted:
            rows = dataset.weigh_by_class(replace(rows, importance=rows.weights))
        return HeldOut(rows, None, f"{wanted:,} of {other.n_rows:,} rows of {clean(path)}")


def _masked_rows(
    dataset: Dataset, room: Batching, mask: NDArray[np.bool_]
) -> tuple[RowBlock, NDArray[np.int64]]:
    """Return the masked rows, as many as the plan has room for, and their numbers."""
    parts: list[RowBlock] = []
    numbers: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    rows = nnz = 0
    for start, stop in dataset.block_ranges():
        if not mask[start:stop].any() or rows >= room.held_out_rows:
            continue
        block = dataset.rows(start, stop)
        lengths = np.diff(block.indptr)
        chosen = np.flatnonzero(mask[start:stop])[: room.held_out_rows - rows]
        ends = np.cumsum(lengths[chosen])
        chosen = chosen[: int(np.searchsorted(ends, room.held_out_nnz - nnz, "right"))]
        parts.append(block.take(chosen))
        numbers.append(start + chosen)
        rows, nnz = rows + len(chosen), nnz + int(lengths[chosen].sum())
    return RowBlock.concat(parts), np.concatenate(numbers)


def _round_importances(rows: RowBlock, unit: float) -> RowBlock:
    """Return rows whose importances are multiples of a unit."""
    if rows.importance is None or unit == 1:
        return rows
    return replace(rows, importance=(rows.importance / unit).astype(np.float32))


def masked_blocks(
    dataset: Dataset, mask: NDArray[np.bool_] | None
) -> Iterator[tuple[RowBlock, NDArray[np.bool_]]]:
    """Yield the training store's rows, as many as each counts as, and which are masked: (n,)."""
    for start, stop in dataset.block_ranges():
        out = mask[start:stop] if mask is not None else np.zeros(stop - start, bool)
        yield _round_importances(dataset.rows(start, stop), dataset.counting.unit), out


def masked_rows(dataset: Dataset, mask: NDArray[np.bool_] | None) -> Iterator[RowBlock]:
    """Yield rows of the training store that are masked; blocks without any are not read."""
    if mask is None:
        return
    for start, stop in dataset.block_ranges():
        chosen = np.flatnonzero(mask[start:stop])
        if len(chosen):
            rows = dataset.rows(start, stop).take(chosen)
            yield _round_importances(rows, dataset.counting.unit)


def unmasked_rows(dataset: Dataset, mask: NDArray[np.bool_] | None) -> Iterator[RowBlock]:
    """Yield rows of the training store that are not masked: all of them without a mask."""
    every = np.ones(dataset.n_rows, np.bool_)
    return masked_rows(dataset, every if mask is None else ~mask)


def left_out(
    new: NDArray[np.bool_], held: NDArray[np.bool_] | None, share: float
) -> NDArray[np.bool_]:
    """Return which rows a training that goes on does not learn from: bool (n_rows,).

    These are held-out rows and, beyond `share` for each new one, old ones.
    """
    out = np.zeros_like(new) if held is None else held.copy()
    old = np.flatnonzero(~new & ~out)  # in a random order, as all rows of a store are
    n_new = int(np.count_nonzero(new & ~out))
    out[old[max(round(share * n_new), LEAST_OLD) :]] = True
    return out


def held_numbers(dataset: Dataset, held: HeldOut) -> tuple[int, ...]:
    """Return the numbers, in the source, of the rows that decide; they rise."""
    places, numbers, given = held.places, list[int](), dataset.given
    for start, stop in dataset.block_ranges():
        own = places[slice(*np.searchsorted(places, (start, stop)))]
        if len(own):
            found = dataset.numbers(start, stop)[own - start]
            numbers += (found if given is None else given[found]).tolist()
    return tuple(sorted(numbers))


def groups_of(dataset: Dataset, inside: NDArray[np.bool_], namespace: bytes) -> NDArray[np.int32]:
    """Return each row's first feature of a namespace, -1 without any: int32 (n_rows,)."""
    if not inside.any():
        what = f"no feature has the namespace '{clean(namespace)}'"
        hint = f"Known are {clean(', '.join(namespaces(dataset.features)), 120) or 'none'}."
        raise UsageError(what, path="--hold-out-by", hint=hint)
    groups = np.empty(dataset.n_rows, np.int32)
    for start, stop in dataset.block_ranges():
        groups[start:stop] = dataset.rows(start, stop).first_in(inside)
    return groups


def _choose_groups(
    groups: NDArray[np.int32], some: NDArray[np.bool_], wanted: int, seed: int
) -> tuple[NDArray[np.bool_], int]:
    """Return the rows of random groups with about so many of some rows, and how many groups."""
    sizes = np.bincount(groups[some & (groups >= 0)], minlength=int(groups.max()) + 1)
    present = np.flatnonzero(sizes)
    order = present[np.argsort(keys(seed, GROUPS_STREAM, present), kind="stable")]
    large = sizes[order] > wanted / MIN_GROUPS  # none of them may stand for all
    order = np.concatenate([order[~large], order[large]])
    count = int(np.searchsorted(np.cumsum(sizes[order]), wanted)) + 1
    chosen = np.zeros(len(sizes), bool)
    chosen[order[:count]] = True
    mask = np.zeros(len(groups), bool)
    inside = groups >= 0
    mask[inside] = chosen[groups[inside]]
    if mask.all():
        raise UsageError("one value of the namespace holds all rows", path="--hold-out-by")
    return mask, min(count, len(order))


def row_folds(
    dataset: Dataset, n_folds: int, seed: int, by: str | None
) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Return the fold of each row, int8 (n,), and its group, int32 (n,), or raise UsageError.

    The rows of a class lie evenly in all folds, so that few classes are new to a fold's model. Rows
    of one group, which share a feature of a namespace, are in one fold; -1 stands for no group.
    """
    n, what = dataset.n_rows, "rows"
    folds, groups = np.empty(n, np.int8), np.full(n, -1, np.int32)
    order = np.argsort(_first_classes(dataset), kind="stable")  # a class's rows are in random order
    folds[order] = np.arange(n) % n_folds
    if by not in (None, AUTO, RANDOM):
        namespace = os.fsencode(by or "")
        groups = groups_of(dataset, in_namespace(dataset.features, namespace), namespace)
        inside = groups >= 0
        there, where, sizes = np.unique(groups[inside], return_inverse=True, return_counts=True)
        place = np.empty(len(there), np.int8)
        place[np.lexsort((keys(seed, FOLDS_STREAM, there), -sizes))] = (
            np.arange(len(there)) % n_folds
        )
        folds[inside] = place[where]
        n, what = len(there) + n - int(inside.sum()), "groups"
    if n < n_folds:
        raise UsageError(f"{n:,} {what} are fewer than {n_folds} folds: --folds")
    return folds, groups


def _first_classes(dataset: Dataset) -> NDArray[np.int32]:
    """Return the first class of each row: int32 (n,)."""
    if not dataset.listed:
        return dataset.array("y")
    lists = (dataset.lists(*one) for one in dataset.block_ranges())
    return np.concatenate([own.first for own in lists if own is not None])


def copy_rows(dataset: Dataset, folder: Path, chosen: NDArray[np.bool_]) -> Path:
    """Write chosen rows, bool (n,), of the first n of a store; return that, or raise DiskError.

    There is at least one, and one value among them. Counts and pairs are those of the rows;
    numbers, importances, ids and names are those of the store, tags are left out.
    """
    lists, data = dataset.lists(0, 1), dataset
    labels = None if lists is None else np.uint8 if lists.weights is None else np.float32
    writer = StoreWriter(
        folder, data.value_type.type, block_rows=data.root.block_rows, weighted=data.weighted,
        labels=labels,
    )  # fmt: skip
    counts = Occurrences(data.n_features, data.n_classes)
    for start, stop in data.block_ranges(len(chosen)):
        some = np.flatnonzero(chosen[start:stop])
        if len(some):
            block = data.rows(start, stop).take(some)
            block = replace(block, numbers=data.numbers(start, stop)[some])
            writer.write(writer.encode(writer.append_rows(block)))
            counts.add(block)
            writer.totals.pairs.add(block)
    writer.add_names("labels", data.labels, counts.labels)
    writer.add_names("features", data.features, counts.features)
    writer.add_columns(data.columns)
    said = {name: getattr(data.root, name) for name in RootFacts.__struct_fields__}
    writer.finish(RootFacts(**said | writer.totals.facts()))
    return folder
