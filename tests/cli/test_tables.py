"""The commands on tables, as they are typed."""

import json

import pytest

from streammach.cli.main import main
from tests.inputs.tables.builders import rows_of, write


def called(capsys, *words):
    code = main([str(word) for word in words])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.fixture
def files(tmp_path):
    train, test = rows_of(900, seed=1), rows_of(100, seed=2)
    return write(train, tmp_path, "parquet", "train"), write(test, tmp_path, "csv", "test")


def test_a_table_from_file_to_predictions(files, tmp_path, capsys):
    train, test = files
    store, run = tmp_path / "s.zarr", tmp_path / "run"
    code, out, _ = called(
        capsys, "convert", train, store, "--label", "kind", "--text", "title,body", "--category",
        "brand", "--number", "price", "--tag", "id",
    )  # fmt: skip
    assert code == 0
    assert "900 rows, 3 classes" in out
    assert "rows have no body" in out
    assert called(
        capsys, "train", store, "--out", run, "--buckets", 2, "--repetitions", 3, "--epochs", 1,
        "--learning-rate", 0.5, "--progress", "none",
    )[0] == 0  # fmt: skip
    code, out, _ = called(capsys, "evaluate", run, test, "--json")
    assert json.loads(out)["accuracy"] > 0.8
    code, out, _ = called(capsys, "predict", run, test, "-k", 2)
    lines = out.splitlines()
    assert len(lines) == 101
    assert lines[1].startswith("0\t0\t")  # its tag is its id
    code, _, err = called(capsys, "predict", run, tmp_path / "new.csv")
    assert (code, "there is no such store or file" in err) == (2, True)


def test_what_is_guessed_is_said(files, tmp_path, capsys):
    train, test = files
    code, out, _ = called(capsys, "convert", test, tmp_path / "s.zarr", "--label", "kind", "--json")
    assert json.loads(out)["notes"][0] == (
        "test.csv: label kind; text title, body; category brand; number price; not used id"
    )
    code, out, _ = called(capsys, "explore", train, "--label", "kind")
    assert code == 0
    assert "parquet" in out
    assert "all 900 rows: 3 classes" in out
    code, _, err = called(capsys, "explore", train)
    assert code == 2
    assert "which column holds the labels cannot be guessed" in err
    assert "Name it with --label. Its columns are id, kind, title, body, brand, price." in err


def test_text_alone(files, tmp_path, capsys):
    _, test = files
    code, out, err = called(
        capsys, "convert", test, tmp_path / "s.zarr", "--label", "kind", "--text"
    )
    assert code == 0
    assert "cells in quotes that span lines: 18, the first in line 15" in err
    assert "100 rows, 3 classes" in out


def test_fit_takes_a_table_and_goes_on_with_its_store(files, tmp_path, capsys):
    train, test = files
    words = [
        "fit", train, "--label", "kind", "--text", "title,body", "--out", tmp_path / "run",
        "--buckets", 2, "--repetitions", 2, "--epochs", 1, "--learning-rate", 0.5, "--transform",
        "binary", "--counts", "off", "--validation", test, "--progress", "none",
    ]  # fmt: skip
    code, _, err = called(capsys, *words)
    assert code == 0, err
    code, _, err = called(capsys, *[w if w != "title,body" else "title" for w in words], "--resume")
    assert "it was made with another --recipe" in err


def test_a_bad_row_is_one_line(files, tmp_path, capsys):
    _, test = files
    test.write_text(test.read_text("utf-8") + "1,hats,t,b,brand,many\n", "utf-8")
    words = ["convert", test, tmp_path / "s.zarr", "--label", "kind", "--number", "price",
             "--text", "title"]  # fmt: skip
    code, _, err = called(capsys, *words)
    assert code == 3
    assert err.count("\n") == 1
    assert "column price: 'many' is not a number" in err
    code, out, _ = called(capsys, *words, "--on-bad-row", "skip")
    assert code == 0
    assert "skipped 1 rows: 1 column price: ... is not a number" in out
