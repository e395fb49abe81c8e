"""How fast text becomes features: megabytes a second on one thread, beside scikit-learn.

    python -m benchmarks.text_features [--text FILE] [--megabytes N] [--turns N] [--json FILE]

Cells are pieces of FILE, or of the source of Python's own library, of about 400 bytes. In turns:

- words; words and pairs; words, pairs and runs of 3 to 5 characters: each cell is normalised, cut
  and looked up, first while all names are taken in (`new`), then with names that are known, as for
  rows to predict (`known`), from cells in one buffer to rows with ids;
- sklearn: HashingVectorizer.transform of the same cells as strings, words and pairs, hashed to 2^20
  columns without names, if it is installed.

Megabytes are 10^6 bytes of cells. Rates are medians over turns.
"""

import statistics
import sysconfig
import time
from pathlib import Path

from benchmarks.machine_facts import facts, parser, report
from streammach.data.tables.cells import Cells
from streammach.data.tables.python_rows import CellRows
from streammach.data.tables.reader import TableReader
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.recipe import Column, Recipe

CELL_BYTES, PIECE_ROWS = 400, 2_500
COLUMNS = (Column(name="text", role="text"),)
TASKS = {
    "words": Recipe(columns=COLUMNS, ngrams=1),
    "words and pairs": Recipe(columns=COLUMNS, ngrams=2),
    "words, pairs, characters": Recipe(columns=COLUMNS, ngrams=2, chars=(3, 5)),
}


def cells_of(file, n_bytes):
    """Pieces of a file, or of Python's library, as strings."""
    files = [Path(file)] if file else sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    found, size = [], 0
    for path in files:
        raw = path.read_bytes()
        for start in range(0, len(raw), CELL_BYTES):
            found.append(raw[start : start + CELL_BYTES].decode("utf-8", "ignore"))
            size += len(found[-1].encode())
            if size >= n_bytes:
                return found
    return found


def pieces_of(cells):
    """The cells as rows of a table."""
    return [
        CellRows({"text": Cells.of([[c.encode()] for c in some])}, len(some))
        for start in range(0, len(cells), PIECE_ROWS)
        for some in [cells[start : start + PIECE_ROWS]]
    ]


def seconds(pieces, recipe, words):
    """Time to read all pieces, and the values that they gave."""
    reader = TableReader(recipe, words, multilabel="off", label_needed=False)
    began, values = time.perf_counter(), 0
    for rows in pieces:
        values += reader.rows(rows, 0).block.nnz
    return time.perf_counter() - began, values


def turn(pieces, megabytes, cells):
    """Rates of all tasks once."""
    found = {}
    for name, recipe in TASKS.items():
        words = Vocabulary()
        took, values = seconds(pieces, recipe, words)
        found[f"{name}, new"] = megabytes / took
        known = Vocabulary(features=words.feature_names(), add_features=False)
        took, values = seconds(pieces, recipe, known)
        found[f"{name}, known"] = megabytes / took
        found[f"{name}, values a second"] = values / took
    try:
        from sklearn.feature_extraction.text import HashingVectorizer
    except ImportError:
        return found
    vectorizer = HashingVectorizer(ngram_range=(1, 2), alternate_sign=False, norm=None)
    began = time.perf_counter()
    vectorizer.transform(cells)
    found["sklearn, words and pairs"] = megabytes / (time.perf_counter() - began)
    return found


def main():
    arguments = parser(__doc__)
    arguments.add_argument("--text", metavar="FILE")
    arguments.add_argument("--megabytes", type=float, default=20.0)
    arguments.add_argument("--turns", type=int, default=3)
    given = arguments.parse_args()
    cells = cells_of(given.text, given.megabytes * 1e6)
    pieces = pieces_of(cells)
    megabytes = sum(len(cell.encode()) for cell in cells) / 1e6
    for recipe in TASKS.values():  # compiles, loads
        seconds(pieces[:1], recipe, Vocabulary())
    turns = [turn(pieces, megabytes, cells) for _ in range(given.turns)]
    rates = {name: statistics.median(t[name] for t in turns) for name in turns[0]}
    for name, rate in rates.items():
        print(f"{name:<42}{rate:>14,.1f}")
    figures = {
        **facts("scikit-learn"), "megabytes": megabytes, "cells": len(cells),
        "not_ascii": sum(not cell.isascii() for cell in cells), "turns": given.turns,
        "megabytes_a_second": rates,
    }  # fmt: skip
    report(figures, given.json)


if __name__ == "__main__":
    main()
