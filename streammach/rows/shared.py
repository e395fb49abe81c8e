"""One vocabulary that several readers fill at the same time, each through tables of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from streammach.forks import Turn
from streammach.rows.name_table import NameTable, add_all, grown, new_table, padded
from streammach.rows.vocabulary import Vocabulary

NO_IDS = np.empty(0, np.int32)
MOST_LABELS = 1 << 19  # that a reader knows before it begins anew: few of so many come again soon


class SharedVocabulary:
    """A vocabulary behind a lock.

    The ids that new names get depend on which reader is first. What is made of the rows must
    therefore depend on names alone.
    """

    def __init__(self, whole: Vocabulary) -> None:
        self.whole = whole
        self.lock = Turn()

    def local(self, *, alone: bool) -> LocalNames:
        """Return the tables of one reader; of the only one if it is `alone`."""
        return LocalNames(self, alone=alone)


class LocalNames:
    """The tables that one reader fills, and what their ids are in the shared vocabulary.

    Tables that take in no names are not copied but used by all. Labels get their shared ids piece
    by piece, so that they need not all be in the tables of every reader.
    """

    def __init__(self, shared: SharedVocabulary, *, alone: bool) -> None:
        self._shared = shared
        self._alone = alone
        self._features = self._labels = self._spaces = NO_IDS
        whole = shared.whole
        if alone:
            self.vocabulary = whole
            return
        # what the reader fills
        self.vocabulary = Vocabulary(
            add_labels=whole.add_labels, add_features=whole.add_features, columns=whole.columns
        )
        if not whole.add_labels:
            self.vocabulary.labels = whole.labels
        if not whole.add_features:
            self.vocabulary.spaces, self.vocabulary.features = whole.spaces, whole.features

    def filling(self) -> AbstractContextManager[object]:
        """Return what must be held while the vocabulary is filled: the lock if it is the whole."""
        return self._shared.lock if self._alone else nullcontext()

    def share(self, classes: NDArray[np.int32]) -> None:
        """Put new names into the shared vocabulary, and give rows' classes its ids, in place."""
        # The ids of features stay those of this reader; `features` says what they are.
        if self._alone:
            return
        self._add_new()
        if self.vocabulary.add_labels and len(self._labels):
            known = classes >= 0
            classes[known] = self._labels[classes[known]]
            if len(self._labels) > MOST_LABELS:
                self.vocabulary.labels, self._labels = new_table(), NO_IDS

    @property
    def features(self) -> NDArray[np.int32]:
        """The shared vocabulary's id of each feature: int32 (d,)."""
        if self._alone or not self.vocabulary.add_features:
            return np.arange(self.vocabulary.n_features, dtype=np.int32)
        return self._features

    @property
    def n_bytes(self) -> int:
        """Bytes of the tables that are this reader's own."""
        return 0 if self._alone else self.vocabulary.n_bytes

    def _add_new(self) -> None:
        mine, whole = self.vocabulary, self._shared.whole
        if mine.n_labels == len(self._labels) and mine.n_features == len(self._features):
            return
        with self._shared.lock:
            if mine.add_features:
                self._spaces, whole.spaces = _merged(
                    mine.spaces, self._spaces, whole.spaces, NO_IDS
                )
                self._features, whole.features = _merged(
                    mine.features, self._features, whole.features, self._spaces
                )
            if mine.add_labels:
                self._labels, whole.labels = _merged(
                    mine.labels, self._labels, whole.labels, NO_IDS
                )


def _merged(
    table: NameTable, known: NDArray[np.int32], into: NameTable, spaces: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NameTable]:
    """Return the ids in another table of all names of one, and that table with all of them.

    `known` int32 holds the ids of the first names, `spaces` int32 those of the namespaces.
    """
    first, n = len(known), int(table.used[0])
    if first == n:
        return known, into
    start, end = int(table.starts[first]), int(table.used[1])
    into = grown(into, n - first, end - start)
    out = np.empty(n, np.int32)
    out[:first] = known
    ends, owners = table.starts[first : n + 1] - start, table.spaces[first:n].copy()
    if len(spaces):
        owners = np.append(np.int32(0), spaces + np.int32(1))[owners]
    add_all(into, padded(table.arena[start:end]), ends[:-1], ends[1:], owners, out[first:])
    return out, into
