"""Rows that Python's own generator draws, and how each format that is read writes them."""

import csv
import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

N_CLASSES, N_PLACES, N_COLUMNS = 60, 4, 8
WRONG = 0.08  # share of the rows with another row's label
WORDS = [
    *(f"own{c}_{i}" for c in range(N_CLASSES) for i in range(3)),
    *(f"pair{c}" for c in range(N_CLASSES // 2)), *(f"n{i}" for i in range(40)),
]  # fmt: skip
COLUMN_OF = {word: column for column, word in enumerate(WORDS)}


@dataclass(frozen=True)
class Row:
    """A row in all its forms: a format writes what it can say of it."""

    labels: tuple[int, ...]
    words: dict[str, int]
    place: str
    numbers: tuple[float, ...]
    importance: int = 1


def draw_rows(seed, n_rows, *, n_classes=N_CLASSES, most_labels=1):
    """Return rows whose classes can be told by their words and numbers; some labels are wrong."""
    draw = random.Random(seed)
    shared = random.Random(0)  # what is true of every sample
    centres = [[shared.gauss(0, 2) for _ in range(N_COLUMNS)] for _ in range(n_classes)]
    rows = []
    for number in range(n_rows):
        first = draw.randrange(n_classes) if number >= n_classes else number
        own = [(first + 5 * i) % n_classes for i in range(draw.randint(1, most_labels))]
        words = {}
        for label in own:
            words[f"own{label}_{draw.randrange(3)}"] = 1
            words[f"pair{label // 2}"] = 2
        words |= {f"n{i}": 1 + i % 3 for i in draw.sample(range(40), 3)}
        rows.append(
            Row(
                labels=tuple(sorted(own)),
                words=words,
                place=f"place {first % N_PLACES}",
                numbers=tuple(round(draw.gauss(x, 1), 3) for x in centres[first]),
                importance=2 if number % 9 == 4 else 1,
            )
        )
    wrong = draw.sample(range(n_rows), int(WRONG * n_rows))
    for one, other in zip(wrong, wrong[1:] + wrong[:1], strict=True):
        rows[one] = replace(rows[one], labels=rows[other].labels)
    return rows


def draw_pairs(seed, n_rows):
    """Return rows whose two labels depend on two words together: only similar rows tell them."""
    draw, rows = random.Random(seed), []
    for _ in range(n_rows):
        a, b = draw.randrange(22), draw.randrange(22)
        labels = {(7 * a + 11 * b + a * b) % N_CLASSES, (3 * a + 5 * b) % N_CLASSES}
        words = {WORDS[place]: 1 for place in (a, 40 + b, 200 + draw.randrange(40))}
        rows.append(Row(tuple(sorted(labels)), words, f"place {a % N_PLACES}", (0.0,) * N_COLUMNS))
    return rows


def label_of(row):
    return ",".join(f"class-{c}" for c in row.labels)


def vw_lines(rows):
    lines = []
    for number, row in enumerate(rows):
        weight = f" {row.importance}" if row.importance != 1 else ""
        words = " ".join(f"{w}:{v}" if v != 1 else w for w, v in row.words.items())
        place = row.place.replace(" ", "_")
        lines.append(f"{label_of(row)}{weight} 'row{number}|w {words} |place {place}")
    return lines


def write_vw(rows, path):
    path.write_text("\n".join(vw_lines(rows)) + "\n")


def write_bad_vw(rows, path):
    """Every 20th line is none: a value that is no number, two labels, or no label."""
    lines = vw_lines(rows)
    bad = ["class-1 |w n1:x", "class-1 class-2 3 |w n1", " |w n1"]
    for number in range(0, len(lines), 20):
        lines[number] = bad[number // 20 % 3]
    path.write_text("\n".join(lines) + "\n")


def write_zipped_vw(rows, path):
    path.write_bytes(gzip.compress(("\n".join(vw_lines(rows)) + "\n").encode(), mtime=0))


def columns_of(row, first=0):
    """Return the columns of a row's words and their values, as text."""
    pairs = sorted((COLUMN_OF[word] + first, value) for word, value in row.words.items())
    return " ".join(f"{column}:{value}" for column, value in pairs)


def write_svmlight(rows, path):
    lines = [f"{row.labels[0]} {columns_of(row, 1)}" for row in rows]
    path.write_text("\n".join(lines) + "\n")


def write_xmc(rows, path):
    lines = [f"{len(rows)} {len(WORDS)} {N_CLASSES}"]
    lines += [f"{','.join(map(str, row.labels))} {columns_of(row)}" for row in rows]
    path.write_text("\n".join(lines) + "\n")


def cells_of(rows):
    """Return the cells of a table's rows by column; some cells are empty."""
    return [
        {
            "label": label_of(row), "text": " ".join(row.words).replace(" pair", ", Pair", 1),
            "place": row.place if number % 11 else None,
            "size": row.numbers[0] if number % 13 else None,
        }
        for number, row in enumerate(rows)
    ]  # fmt: skip


def separated(separator):
    def write(rows, path):
        cells = cells_of(rows)
        with open(path, "w", newline="") as file:
            table = csv.DictWriter(file, cells[0], delimiter=separator, lineterminator="\n")
            table.writeheader()
            table.writerows(cells)

    return write


def write_json_lines(rows, path):
    path.write_text("".join(json.dumps(cells) + "\n" for cells in cells_of(rows)))


def write_parquet(rows, path):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(cells_of(rows)), path)


def write_arrow(rows, path):
    import pyarrow as pa

    table = pa.Table.from_pylist(cells_of(rows))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


def sparse_matrix(rows):
    places = [(i, COLUMN_OF[word]) for i, row in enumerate(rows) for word in row.words]
    values = [float(value) for row in rows for value in row.words.values()]
    shape = (len(rows), len(WORDS))
    return sp.csr_array((np.array(values, np.float32), tuple(zip(*places, strict=True))), shape)


def dense_matrix(rows):
    return np.array([row.numbers for row in rows], np.float32)


def write_labels(rows, path):
    path.write_text("".join(f"{label_of(row)}\n" for row in rows))


def write_npz(rows, path):
    sp.save_npz(path, sparse_matrix(rows))
    write_labels(rows, path.with_suffix(".labels"))


def write_npy(rows, path):
    np.save(path, dense_matrix(rows))
    write_labels(rows, path.with_suffix(".labels"))


def write_hdf5(rows, path):
    import h5py

    matrix = sparse_matrix(rows)
    with h5py.File(path, "w") as file:
        for name in ("data", "indices", "indptr"):
            file[f"X/{name}"] = getattr(matrix, name)
        file["X"].attrs["shape"] = matrix.shape
        file["y"] = [label_of(row) for row in rows]


@dataclass(frozen=True)
class Source:
    """A kind of input: its rows, how they are written, and how they are read."""

    write: Callable[[list[Row], Path], None]
    ending: str
    options: str = ""  # of a conversion
    draw: Callable[[int, int], list[Row]] = draw_rows
    labels_beside: bool = False  # in a file beside the rows
    beside: str = ""  # the option of a conversion that names another store


LISTS = partial(draw_rows, most_labels=3)
FEW = partial(draw_rows, n_classes=4)
SOURCES = {
    "vw": Source(write_vw, ".vw"),
    "vw packed": Source(write_zipped_vw, ".vw.gz", "--seed 3"),
    "vw lists": Source(write_vw, ".vw", draw=LISTS),
    "vw bad rows": Source(write_bad_vw, ".vw", "--on-bad-row skip"),
    "vw frequent features": Source(write_vw, ".vw", "--min-rows 9"),
    "vw like": Source(write_vw, ".vw", beside="--like"),
    "vw extended": Source(write_vw, ".vw", beside="--extend"),
    "svmlight": Source(write_svmlight, ".svm"),
    "xmc": Source(write_xmc, ".txt", draw=LISTS),
    "xmc pairs": Source(write_xmc, ".txt", draw=draw_pairs),
    "csv": Source(separated(","), ".csv", "--label label"),
    "csv lists": Source(separated(","), ".csv", "--label label --label-separator ,", LISTS),
    "csv letters": Source(
        separated(","), ".csv", "--label label --text text --chars 3-4 --ngrams 1", FEW
    ),
    "csv few": Source(separated(","), ".csv", "--label label", FEW),
    "tsv": Source(separated("\t"), ".tsv", "--label label"),
    "json lines": Source(write_json_lines, ".jsonl", "--label label"),
    "parquet": Source(write_parquet, ".parquet", "--label label"),
    "arrow": Source(write_arrow, ".arrow", "--label label"),
    "matrix": Source(write_npz, ".npz", labels_beside=True),
    "dense": Source(write_npy, ".npy", labels_beside=True),
    "dense few": Source(write_npy, ".npy", draw=FEW, labels_beside=True),
    "hdf5": Source(write_hdf5, ".h5"),
}
