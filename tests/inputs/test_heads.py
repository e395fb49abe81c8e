"""Rows in any number of files, at any place some without rows: one recipe, the same rows."""

import datetime as dt
import gzip
import itertools
import json
import warnings

import anndata
import h5py
import numpy as np
import pandas
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.conversion.explore import MOST_SOURCES, explore
from streammach.options.documents import encode_json
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError
from tests.builders import fit, rows_by_name
from tests.inputs.tables.builders import FORMATS, write

N = 1200
WORDS = ["shoe boot", "hat cap", "ring gem", "tea mug", "pen ink"]
# where files end; the same place twice makes a file without rows
CUTS = [(0,), (1,), (N,), (3, 999), (0, 0, 1, 1, 600), (*range(0, 40, 2), 1000, 1000)]


def rows_of(n=N):
    rng = np.random.default_rng(4)
    first = dt.date(2021, 5, 1)
    return [
        {
            "title": f"{rng.choice(WORDS)} {i % 31}",
            "label": f"L{i % 7}",
            "n": round(10.0 * (i % 7) + rng.normal(), 3),
            "when": str(first + dt.timedelta(days=int(rng.integers(900)))),
            "brand": str(rng.choice(["Acme", "Globex"])),
            "shop": "one",
        }
        for i in range(n)
    ]


ROWS = rows_of()
NAMES = list(ROWS[0])
NOTHING = {  # what files without rows hold, beside those that `write` makes of no rows
    "csv": [b"", b"\n"],
    "tsv": [b"", b"\xef\xbb\xbf"],
    "jsonl": [b"", b"\n\r\n"],
    "csv.gz": [b"", gzip.compress(b"", mtime=0)],
}


def written(folder, form, cuts):
    """Write rows into files that end at some places; return these files."""
    ends, bare, paths = [0, *cuts, len(ROWS)], itertools.cycle(NOTHING.get(form, [None])), []
    for i, (first, stop) in enumerate(itertools.pairwise(ends)):
        empty = first == stop
        if empty and form == "parquet":  # columns of no type
            path = folder / f"{i}.parquet"
            pandas.DataFrame({name: [] for name in NAMES}, dtype=object).to_parquet(path)
        else:
            path = write(ROWS[first:stop], folder, form, str(i), NAMES)
        content = next(bare)
        if empty and content is not None and i % 2:
            path.write_bytes(content)
        paths.append(path)
    return paths


def content_of(store):
    """Return the recipe of a store, its names and its rows in the order of their sources."""
    with Dataset.open(store) as data:
        block = data.rows(0, data.n_rows)
        numbers, _ = data.origins(0, data.n_rows)
        block = block.take(np.argsort(numbers))
        names = [(n.offsets.tobytes(), n.data.tobytes()) for n in (data.labels, data.features)]
        arrays = (block.indptr, block.features, block.values, block.classes, np.sort(numbers))
        return encode_json(data.root.recipe), names, [array.tobytes() for array in arrays]


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("usual")
    convert(written(folder, "jsonl", ()), folder / "s.zarr")
    return content_of(folder / "s.zarr")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("cuts", CUTS)
def test_the_same_rows_in_any_files_give_the_same_recipe_and_rows(form, cuts, usual, tmp_path):
    paths = written(tmp_path, form, cuts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert convert(paths, tmp_path / "s.zarr").n_rows == N
    assert content_of(tmp_path / "s.zarr") == usual
    if len(paths) <= MOST_SOURCES:
        assert explore(paths).rows == N


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_the_one_file_with_rows_is_looked_at_among_many(form, tmp_path):
    paths = written(tmp_path, form, (*[0] * 19, *[N] * 20))
    assert len(paths) > 2 * MOST_SOURCES
    assert explore(paths).sample_rows == N


def test_files_of_several_formats_are_one_table(usual, tmp_path):
    paths = [written(tmp_path, form, (400, 800))[i] for i, form in enumerate(FORMATS[1:4])]
    (tmp_path / "nothing.txt").touch()  # of any format
    convert([tmp_path / "nothing.txt", *paths], tmp_path / "s.zarr")
    assert content_of(tmp_path / "s.zarr") == usual


def test_a_file_of_one_row_decides_nothing(tmp_path):
    short, long = tmp_path / "short.csv", tmp_path / "long.csv"
    short.write_text("title,label\nshoes,A\n")
    long.write_text("title,label\n" + "".join(f"{r['title']},{r['label']}\n" for r in ROWS))
    for paths in ([short, long], [long, short]):
        convert(paths, tmp_path / "s.zarr", force=True)
        with Dataset.open(tmp_path / "s.zarr") as store:
            assert store.root.recipe.texts == ("title",)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_long_rows_are_cut_alike_in_any_files(form, tmp_path, monkeypatch):
    from streammach.inputs.tables import head

    monkeypatch.setattr(head, "HEAD_BYTES", 40_000)
    long = [row | {"title": row["title"] * (1 + 300 * (i % 9 == 5))} for i, row in enumerate(ROWS)]
    found = []
    for number, cuts in enumerate([(), (1,), (5,), (0, 9, 9, 15)]):
        ends = itertools.pairwise([0, *cuts, N])
        paths = [
            write(long[a:b], tmp_path, form, f"{number}-{i}", NAMES)
            for i, (a, b) in enumerate(ends)
        ]
        convert(paths, tmp_path / f"{number}.zarr")
        found.append(content_of(tmp_path / f"{number}.zarr"))
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("cuts", [(2,), (1,), (0, 2, 2), (2, 4, 6)])
def test_a_corpus_is_told_by_any_of_its_files(cuts, tmp_path):
    rows = [f"text {i} of {i % 3}\t" + f"<http://a/{i % 4}>" * (i % 2) + "\n" for i in range(12)]
    found = []
    for number, ends in enumerate(([0, 12], [0, *cuts, 12])):
        paths = [tmp_path / f"{number}-{i}.tsv" for i in range(len(ends) - 1)]
        for path, (first, stop) in zip(paths, itertools.pairwise(ends), strict=True):
            path.write_text("".join([*rows[1:], rows[0]][first:stop]))
        convert(paths, tmp_path / f"{number}.zarr")
        found.append(rows_by_name(tmp_path / f"{number}.zarr"))
    assert found[0] == found[1]


X, Y = np.arange(24.0).reshape(6, 4) % 5, np.arange(6) % 3


def cells(n):
    kinds = pandas.Categorical([f"c{y}" for y in Y[:n]], categories=["c0", "c1", "c2"])
    names = [str(i) for i in range(n)]
    return anndata.AnnData(X[:n].astype("f4"), obs=pandas.DataFrame({"kind": kinds}, index=names))


def folder_of_cells(path, n):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the next version of Zarr
        cells(n).write_zarr(path)


def documents(path, n):
    path.mkdir()
    for i in range(n):
        (path / f"{i}.txt").write_text(f"word{i} text")
        (path / f"{i}.key").write_text(f"L{Y[i]}\n")


def hdf5(path, n):
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = X[:n], Y[:n]


def npy(path, n):
    np.save(path, X[:n])
    np.save(f"{path}.labels", Y[:n])


def sparse(path, n):
    x = sp.csr_array(X[:n])
    np.savez(path, data=x.data, indices=x.indices, indptr=x.indptr, shape=x.shape, format="csr",
             y=Y[:n])  # fmt: skip


def pair(path, n):
    path.write_text(f"{n} 4\n" + "".join(f"0:1 2:{i + 1}\n" for i in range(n)))
    labels = path.with_name(f"{path.name}.labels.npy")
    labels.write_text(f"{n} 3\n" + "".join(f"{y}:1\n" for y in Y[:n]))


def lines(line, header=""):
    """Return what writes rows as lines of text."""
    return lambda path, n: path.write_text(
        header.format(n) + "".join(line.format(y, i) for i, y in enumerate(Y[:n]))
    )


OTHERS = {
    "a.vw": lines("{} | a b{}\n"), "a.svm": lines("{} 1:1 3:{}.5\n"),
    "a.xmc": lines("{} 0:1 2:{}.5\n", "{} 4 3\n"), "pair.txt": pair,
    "corpus.tsv": lines("text {1} b\t<http://a/{0}>\n"), "documents": documents,
    "a.npz": lambda path, n: np.savez(path, X=X[:n], y=Y[:n]), "sparse.npz": sparse,
    "a.npy": npy, "a.h5": hdf5,
    "a.h5ad": lambda path, n: cells(n).write_h5ad(path),
    "cells.zarr": folder_of_cells,
}  # fmt: skip
WHERE = {"a.h5ad": {"x_path": "X", "y_path": "obs/kind"}}
WHERE["cells.zarr"] = WHERE["a.h5ad"]


@pytest.mark.parametrize("kind", OTHERS)
def test_sources_without_rows_are_taken_at_any_place(kind, tmp_path):
    sources = {}
    for name, n in (("rows", len(Y)), ("none", 0), ("nothing", 0)):
        sources[name] = tmp_path / f"{name}-{kind}"
        OTHERS[kind](sources[name], n)

    def made(*names):
        paths = [sources[name] for name in names]
        labels = [path.with_name(f"{path.name}.labels.npy") for path in paths]
        labels = labels if labels[0].exists() else ()
        out = tmp_path / f"{'-'.join(names)}.zarr"
        convert(paths, out, labels=labels, **WHERE.get(kind, {}))
        return rows_by_name(out)

    usual = made("rows")
    for names in (("none", "rows"), ("rows", "none"), ("none", "rows", "nothing", "none")):
        assert made(*names) == usual
    with pytest.raises(DataError, match="it holds no rows"):
        made("none")
    with pytest.raises(DataError, match=r"none of 2 sources holds a row|it holds no rows"):
        made("none", "nothing")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a run of a table and one of text."""
    folder = tmp_path_factory.mktemp("runs")
    texts = [folder / f"{i}.vw" for i in range(3)]
    texts[1].write_text("".join(f"{row['label']} | {row['title']}\n" for row in ROWS))
    for path in (texts[0], texts[2]):
        path.touch()
    for name, paths in (("table", written(folder, "csv", (0, 1))), ("text", texts)):
        convert(paths, folder / f"{name}.zarr")
        plan = sm.plan(folder / f"{name}.zarr", n_buckets=4, n_repetitions=2, counts="off")
        options = {"epochs": 1, "learning_rate": 0.5, "transform": "binary"}
        fit(folder / f"{name}.zarr", folder / name, plan, **options)
    return folder


def test_what_is_fitted_on_files_without_rows_beside_others_is_good(runs, tmp_path):
    (path,) = written(tmp_path, "parquet", ())
    assert sm.evaluate(runs / "table", path).accuracy > 0.9


EMPTY = [
    ("table", form, content) for form in NOTHING for content in (*NOTHING[form], None)
] + [("table", form, None) for form in ("parquet", "arrow", "arrows")] + [
    ("text", "vw", b""), ("text", "vw", b"\n\n"), ("text", "svm", b"# nothing\n"),
    ("text", "vw", gzip.compress(b"\n", mtime=0)),
]  # fmt: skip


@pytest.mark.parametrize(("run", "form", "content"), EMPTY)
def test_commands_on_a_file_without_rows(run, form, content, runs, tmp_path, capsys):
    path = tmp_path / f"rows.{form}"
    if content is None:
        path = write([], tmp_path, form, columns=NAMES)
    else:
        path.write_bytes(content)
    capsys.readouterr()
    assert main(["predict", str(runs / run), str(path)]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "row" in out
    assert "Traceback" not in err
    commands = [["evaluate", runs / run, path], ["convert", path, tmp_path / "s.zarr"]]
    if content is None and form == "arrow":  # the same conversion, in a process of its own
        commands.append(["fit", path, "--out", tmp_path / "run"])
    for words in commands:
        assert main([str(word) for word in [*words, "--json"]]) == 3
        said = json.loads(capsys.readouterr().out)["error"]
        assert said["message"] in ("it holds no rows", "no row could be read")
        assert "\n" not in said["message"]
