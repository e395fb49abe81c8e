"""Rows of a table, and files of them in every format."""

import csv
import gzip
import json
import math
import random

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from streammach.conversion.convert import convert
from streammach.store.dataset import Dataset

COLORS = (
    "red",
    "blue",
    "grün",
    "black \U0001f600",
    'the "best", really',
    "two\nlines",
    "\uff37\uff29\uff24\uff25",
)
THINGS = {"shoes": "shoe boot sandal heel", "hats": "hat cap brim wool", "shirts": "shirt cotton"}
BRANDS = ("Acme", "Globex", "İnc^x", None)
FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow", "arrows", "csv.gz")
ROLES = {"label": "kind", "text": ["title", "body"], "category": "brand", "number": "price"}


def rows_of(n, seed=0):
    rng, out = random.Random(seed), []
    for i in range(n):
        kind = rng.choice(list(THINGS))
        words = THINGS[kind].split()
        out.append({
            "id": i, "kind": kind,
            "title": f"{rng.choice(COLORS)} {rng.choice(words)} {rng.randrange(50)}",
            "body": rng.choice([None, " ".join(rng.choices([*words, "the", "a"], k=12))]),
            "brand": rng.choice(BRANDS),
            "price": rng.choice([None, round(math.exp(rng.gauss(3, 1)), 2), 7.0]),
        })  # fmt: skip
    return out


def table_of(rows, names=None):
    table = pa.Table.from_pylist(rows)
    if not rows:
        table = pa.table({name: pa.array([], "string") for name in names})
    return table if names is None else table.select(names)


def _cell(value):
    return json.dumps(value) if isinstance(value, list | dict) else "" if value is None else value


def write(rows, folder, form, name="rows", columns=None, batch=100):
    path = folder / f"{name}.{form}"
    names = columns or list(rows[0])
    if form in ("csv", "tsv", "csv.gz"):
        delimiter = "\t" if form == "tsv" else ","
        opened = gzip.open if form == "csv.gz" else open
        with opened(path, "wt", encoding="utf-8", newline="") as file:
            out = csv.writer(file, delimiter=delimiter)
            out.writerow(names)
            out.writerows([[_cell(row[n]) for n in names] for row in rows])
    elif form == "jsonl":
        lines = (json.dumps({n: row[n] for n in names}) for row in rows)
        path.write_text("\n".join(lines), "utf-8")
    else:
        table = table_of(rows, names)
        if form == "parquet":
            pa.parquet.write_table(table, path, row_group_size=batch)
        elif form == "arrow":
            pa.feather.write_feather(table, path, chunksize=batch)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
                out.write_table(table, max_chunksize=batch)
    return path


def converted(source, out, **given):
    """Convert a table; return what was made, and the digest of the store."""
    made = convert(source, out, **given)
    with Dataset.open(out) as store:
        return made, store.digest


def features(path):
    """Return the names of the features of a store."""
    with Dataset.open(path) as store:
        return {store.features.raw(i).decode() for i in range(store.n_features)}
