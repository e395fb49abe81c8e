"""Names of labels as pairs of the table of counts: a word of a name tells of its label.

With s a word of the name of class i, n_i words long, and N training rows of which N_s hold s, the
pair of a feature that is the word s, or holds it as a part, and of class i adds

    w ln(N / N_s) / sqrt(n_i)

to scores, with a weight w. Parts are those that letters, digits and signs separate, as in
``kmalloc_array``, and words of names within longer ones, as in compounds.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streammach.counts.count_kernels import STEP
from streammach.inputs.label_names import splitter
from streammach.inputs.tables.frame import normalize
from streammach.options.recipe import Recipe
from streammach.rows.layouts import ends
from streammach.rows.names import SEPARATOR, ClassNames, Names, Words
from streammach.rows.pairs import MOST_GAIN, NamePairs

PIECE = 1 << 14  # features that are looked at together
MOST_FEATURES = 1 << 21  # whose words are looked for: the most frequent ones
LEAST_PART, MOST_PART = 4, 40  # characters of a word of a name that is a part of a longer one
MOST_LINK = 3  # characters before, between and behind parts
MOST_WORD = 100  # characters of a word that is taken apart


class NameWords:
    """The words of names of classes."""

    def __init__(self, names: ClassNames, words: Words) -> None:
        found = dict[str, dict[int, float]]()  # by word: classes, and what a word of each weighs
        for c, own in names.words(words):
            for word in own:  # of several names the shortest one counts
                classes = found.setdefault(word, {})
                classes[c] = max(len(own) ** -0.5, classes.get(c, 0.0))
        self.ids = {word: i for i, word in enumerate(found)}
        self.starts = ends(np.array([len(own) for own in found.values()], np.int64))
        self.classes = np.fromiter(chain.from_iterable(found.values()), np.int32)
        each = (own.values() for own in found.values())
        self.shares = np.fromiter(chain.from_iterable(each), np.float32)
        self._parts = {word for word in found if LEAST_PART <= len(word) <= MOST_PART}
        lengths = defaultdict[str, set[int]](set)  # of parts, by their first characters
        for word in self._parts:
            lengths[word[:LEAST_PART]].add(len(word))
        self._lengths = dict(lengths)

    def within(self, word: str) -> list[int]:
        """Return the words of names that a word is made of but for links, by their ids."""
        if not 2 * LEAST_PART <= len(word) <= MOST_WORD:
            return []
        return [self.ids[part] for part in self._take_apart(word) if part != word]

    def _take_apart(self, word: str) -> tuple[str, ...]:
        """Return the parts that cover most characters of a word, none if it is made of others."""
        # The best parts up to each place, where the last one of them ends.
        best: list[tuple[float, tuple[str, ...]] | None] = [(0.0, ()), *[None] * len(word)]
        for i in range(len(word)):
            if (here := best[i]) is None:
                continue
            for start in range(i, min(i + MOST_LINK, len(word)) + 1):
                for n in sorted(self._lengths.get(word[start : start + LEAST_PART], ())):
                    part, there = word[start : start + n], best[min(start + n, len(word))]
                    # Half a character less for each: few long parts come before many short ones.
                    covered = here[0] + n - 0.5
                    known = len(part) == n and part in self._parts
                    if known and (there is None or covered > there[0]):
                        best[start + n] = covered, (*here[1], part)
        whole = [parts for parts in best[len(word) - MOST_LINK :] if parts is not None]
        return max(whole, key=lambda found: found[0], default=(0.0, ()))[1]


class CountedFeatures(NamedTuple):
    """The features of a store, as words of names are looked for among them."""

    names: Names  # their names, d of them
    rows: NDArray[Any]  # (d,): rows that hold each
    n_rows: float  # N, all rows
    recipe: Recipe | None  # how texts became features; None where rows came from no table

    @classmethod
    def of_model(cls, names: Names, words: NDArray[np.int16], recipe: Recipe | None) -> Self:
        """Return features with such rows that pairs of them weigh as those of a model did."""
        nats = words * float(STEP)
        n = float(np.exp(nats.max(initial=0.0)))
        return cls(names, n * np.exp(-nats), n, recipe)


def pair_names(
    features: CountedFeatures, class_names: ClassNames, n_classes: int, most: int
) -> NamePairs:
    """Return the pairs of names of classes, with a weight of 1; at most about so many.

    Frequent features come first.
    """
    words = splitter(features.recipe)
    names = NameWords(class_names, words)
    ids, own, whole = _find_words(features.names, names, None if features.recipe else words)
    rows = np.bincount(own[whole], features.rows[ids[whole]], minlength=len(names.ids))
    idf = np.log(features.n_rows / np.clip(rows, 1, features.n_rows)).astype(np.float32)
    lengths = np.diff(names.starts)[own]
    n = int(np.searchsorted(np.cumsum(lengths), most, "right"))
    own, lengths, ids = own[:n], lengths[:n], ids[:n]
    at = np.arange(lengths.sum()) - np.repeat(ends(lengths)[:-1] - names.starts[own], lengths)
    added = np.repeat(idf[own], lengths) * names.shares[at]
    keys = np.repeat(ids.astype(np.int64), lengths) * n_classes + names.classes[at]
    keys, place = np.unique(keys, return_inverse=True)
    nats = np.bincount(place, added, minlength=len(keys))
    alone = np.log(features.n_rows / np.clip(features.rows, 1, features.n_rows))
    return NamePairs(
        features=(keys // n_classes).astype(np.int32),
        classes=(keys % n_classes).astype(np.int32), gains=to_gains(nats),
        words=to_gains(alone),
    )  # fmt: skip


def to_gains(nats: NDArray[Any]) -> NDArray[np.int16]:
    """Return what pairs add in units of 1/1024 nat, cut to what an int16 holds."""
    gains: NDArray[Any] = np.clip(np.rint(nats / STEP), -MOST_GAIN, MOST_GAIN)
    return gains.astype(np.int16)


def _find_words(
    features: Names, names: NameWords, words: Words | None
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """Return features and the words of names in each, and whether it is that word: (n,) each.

    Runs of words are left out. `words` takes names of features apart that are no words of a table.
    """
    found, own, whole = array("i"), array("i"), array("b")
    for start in range(0, min(len(features), MOST_FEATURES), PIECE):
        some = np.arange(start, min(start + PIECE, len(features)))
        for f, raw in zip(some.tolist(), features.raws(some), strict=True):
            head, separator, tail = raw.partition(bytes([SEPARATOR]))
            text = (tail if separator else head).decode("utf-8", "replace")
            if " " in text:
                continue
            spelt = {text} if words is None else {normalize(text), *words(text)}
            equal = {names.ids[word] for word in spelt if word in names.ids}
            parts = {part for word in spelt for part in names.within(word)} - equal
            for ids, is_whole in ((sorted(equal), 1), (sorted(parts), 0)):
                found.extend([f] * len(ids))
                own.extend(ids)
                whole.extend([is_whole] * len(ids))
    return np.array(found, np.int32), np.array(own, np.int32), np.array(whole, np.bool_)
