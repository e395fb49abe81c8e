"""Where the words of a text stand that became features, to show them there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streammach.inputs.tables.frame import (
    ALONE,
    ASCII,
    LAST_CODE,
    PART,
    kinds_of_characters,
    normalize,
)
from streammach.inputs.tokenizers import Change, changes_of
from streammach.options.recipe import CHARS, Recipe

MOST_CHARACTERS = 100_000  # of a text in which places are looked for
MOST_PLACES = 20  # of a feature
Word = tuple[str, int, int]  # in its normal form; where it starts and stops in its text
Places = dict[str, list[tuple[int, int]]]  # by the names of features


def add_places(rows: Any, recipe: Recipe, out: list[Places]) -> None:
    """Add where features stand in the cells of each row, in characters from 0 on.

    `rows` are a table or a list of strings or dicts, `out` has the names of the features of each. A
    word that its normal form breaks up has no place, and no word of a very long text.
    """
    changes = changes_of(recipe)
    for column in recipe.columns:
        if column.role == "text":
            for places, cell in zip(out, _cells(rows, column.name, len(out)), strict=True):
                if isinstance(cell, str) and len(cell) <= MOST_CHARACTERS:
                    words = list(words_in(cell, *changes))
                    _add_runs(words, column.namespace, recipe.ngrams, places)
                    if recipe.chars is not None:
                        _add_characters(words, column.namespace + CHARS, recipe.chars, places)


def words_in(
    text: str, tokens: Change | None = None, stemmed: Change | None = None
) -> Iterator[Word]:
    """Yield the words of a text: letters, digits and marks, each ideograph is one; or tokens."""
    stem = stemmed or str
    start = 0
    if tokens is not None:
        for word in tokens(text).split():
            if (at := text.find(word, start)) >= 0:
                start = at + len(word)
                yield stem(normalize(word)), at, start
        return
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds = kinds_of_characters(ASCII if text.isascii() else LAST_CODE)[codes]
    alone, part = kinds == ALONE, np.pad(kinds == PART, 1)
    starts = np.flatnonzero(alone | (part[1:-1] & ~part[:-2]))
    stops = np.flatnonzero(alone | (part[1:-1] & ~part[2:])) + 1
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield stem(normalize(text[start:stop])), start, stop


def _cells(rows: Any, name: str, n_rows: int) -> list[Any]:
    """Return the cells of a column; a string is the only one of its row."""
    if isinstance(rows, list | tuple):
        return [row if isinstance(row, str) else row.get(name) for row in rows]
    there = name in getattr(rows, "column_names", getattr(rows, "columns", ()))
    return list(np.asarray(rows[name], object)) if there else [None] * n_rows


def _add_runs(words: list[Word], space: str, most: int, out: Places) -> None:
    """Add the places of runs of words."""
    for n in range(1, most + 1):
        for i in range(len(words) - n + 1):
            run = words[i : i + n]
            name = " ".join(word for word, _, _ in run)
            _add(out, f"{space}^{name}", run[0][1], run[-1][2])


def _add_characters(words: list[Word], space: str, chars: tuple[int, int], out: Places) -> None:
    """Add the places of runs of characters within words that are as long as in their text."""
    for word, start, stop in words:
        whole, first = f" {word} ", start - 1
        least = min(chars[0], len(whole))
        for n in range(least, chars[1] + 1 if len(word) == stop - start else least):
            for i in range(len(whole) - n + 1):
                place = max(first + i, start), min(first + i + n, stop)
                _add(out, f"{space}^{whole[i : i + n]}", *place)


def _add(out: Places, name: str, start: int, stop: int) -> None:
    places = out.get(name)
    if places is not None and len(places) < MOST_PLACES:
        places.append((start, stop))
