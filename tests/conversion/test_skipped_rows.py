"""What a conversion leaves out: rows that are bad, and rare features."""

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.store.dataset import Dataset
from streammach.system.errors import DataError, UsageError
from tests.builders import listed_lines, names_in
from tests.conversion.test_conversion import mixed_lines, room
from tests.conversion.test_convert import rows_by_name

__all__ = ["room"]


def test_rejects_are_listed_with_their_place(tiny, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 64)
    lines = ["a |w x", "b w y |", "c |w x:nan", *["e |w y"] * 30, "|x", "f |w z"]
    done = convert(tiny.text("r.vw", lines), tiny.folder / "out", on_bad_row="skip")
    assert done.rejects == str(tiny.folder / "out.rejects.tsv")
    rows = [line.split("\t") for line in (tiny.folder / "out.rejects.tsv").read_text().splitlines()]
    assert rows[0] == ["file", "line", "byte", "reason"]
    assert [row[1:] for row in rows[1:]] == [
        ["2", "3", "importance 'w' is not a number of 0 or more"],
        ["3", "8", "value 'nan' is not a finite float32"],
        ["34", "1", "the line has no label"],
    ]
    assert convert(tiny.text("r.vw", ["a |w x"]), tiny.folder / "out", force=True).rejects is None
    assert names_in(tiny.folder) == ["out", "r.vw"]


def test_too_many_bad_rows_are_refused(tiny):
    source = tiny.text("r.vw", ["a |w x", "b", "c", "d", "e |w y"])
    with pytest.raises(DataError, match=r"3 bad rows are more than max_bad 2.*line 4"):
        convert(source, tiny.folder / "out", on_bad_row="skip", max_bad=2)
    assert convert(source, tiny.folder / "out", on_bad_row="skip", max_bad=3).n_rows == 2
    with pytest.raises(UsageError, match="max_bad"):
        convert(source, tiny.folder / "out", max_bad=2, force=True)


@pytest.mark.parametrize("piece_bytes", [1 << 20, 64])
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_that_are_not_finite_make_a_row_bad(piece_bytes, threads, tiny, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", piece_bytes)
    lines = ["b |w x:1 y:2", *["", "a |w x"] * 9, "a |w x:3e38 y x:3e38", "b", "b |w x:1 y:2"]
    source = tiny.text("r.vw", lines)
    with pytest.raises(DataError, match=r"add up to more than float32 holds.*line 20 byte 1"):
        convert(source, tiny.folder / "out", threads=threads)
    done = convert(source, tiny.folder / "out", on_bad_row="skip", threads=threads)
    assert (done.n_rows, len(done.skipped)) == (11, 2)
    listed = (tiny.folder / "out.rejects.tsv").read_text().splitlines()
    assert [line.split("\t")[1] for line in listed[1:]] == ["20", "21"]


def test_sums_of_a_matrix_that_are_not_finite_name_the_row(tiny):
    np.savez(
        tiny.folder / "m.npz", format=b"csr", shape=(3, 2), data=np.float32([1, 3e38, 3e38, 1]),
        indices=[0, 1, 1, 0], indptr=[0, 1, 3, 4], labels=np.arange(3),
    )  # fmt: skip
    with pytest.raises(DataError, match=r"row 1 \(counted from 0\).*more than float32 holds"):
        convert(tiny.folder / "m.npz", tiny.folder / "out")


def test_the_first_bad_row_is_named_whoever_reads_it(tiny, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 256)
    lines = [f"a |w x{i}" for i in range(2000)]
    lines[777], lines[778], lines[1500] = "bad", "worse", "worst"
    source = tiny.text("r.vw", lines)
    for threads in (1, 2, 4):
        with pytest.raises(DataError, match=r"label 'bad'.*line 778"):
            convert(source, tiny.folder / "out", threads=threads)
    assert names_in(tiny.folder) == ["r.vw"]


@pytest.mark.parametrize("least", [2, 20])
@pytest.mark.parametrize("listed", [False, True])
def test_rare_features_are_left_out(least, listed, tiny, room, monkeypatch):
    monkeypatch.setattr("streammach.inputs.text.BLOCK_BYTES", 4096)
    lines = listed_lines(tiny.rng, 900) if listed else mixed_lines(tiny, 900)
    lines = [line + f" |u only{i}" * (i % 3 == 0) for i, line in enumerate(lines)]
    source, few = tiny.text("r.vw", lines), tiny.folder / "few"
    how = {"multilabel": "on" if listed else "off"}
    whole, digests = convert(source, tiny.folder / "whole", **how), set()
    for n_bytes, threads in ((1 << 30, 2), (60_000, 1)):
        room(n_bytes)
        done = convert(source, few, min_rows=least, threads=threads, force=True, **how)
        digests.add(done.digest)
    assert len(digests) == 1
    with Dataset.open(tiny.folder / "whole") as data:
        counts = data.feature_counts
        rare = {data.features.raw(i) for i in np.flatnonzero(counts < least)}
    rows = rows_by_name(tiny.folder / "whole")
    wanted = [(*row[:2], tuple(v for v in row[2] if v[0] not in rare)) for row in rows]
    assert rows_by_name(few) == sorted(wanted, key=str)
    assert len(rare) >= 300
    assert (done.rare_features, done.rare_values) == (len(rare), counts[counts < least].sum())
    assert done.single_row_features == whole.single_row_features == (counts == 1).sum()
    assert done.n_features + done.rare_features == whole.n_features
    with Dataset.open(few) as data:
        assert data.verify() == []
        assert data.facts.max_row_nnz == max(len(row[2]) for row in wanted)
        assert data.root.options["min_rows"] == least


def test_columns_of_a_matrix_may_be_rare(tiny, rng):
    x = (rng.random((200, 12)) < 0.5).astype(np.float32)
    x[:, 3] = x[:, 7] = 0
    x[5, 3] = x[9, 7] = 1
    np.save(tiny.folder / "X.npy", x)
    np.save(tiny.folder / "y.npy", x[:, 0].astype(int))
    done = convert(tiny.folder / "X.npy", tiny.folder / "m.zarr", min_rows=2)
    assert (done.n_features, done.rare_features, done.rare_values) == (10, 2, 2)
    plan = sm.plan(tiny.folder / "m.zarr", exact=True)
    model = sm.Trainer(plan, sm.TrainingOptions(epochs=2)).fit(tiny.folder / "m.zarr").model
    without = x.copy()
    without[:, [3, 7]] = 0
    assert (model.predict_topk(x, 2)[1] == model.predict_topk(without, 2)[1]).all()


def test_how_many_rows_a_feature_needs_must_be_possible(tiny, capsys):
    source, out = tiny.text("r.vw", tiny.lines(90, 5)), tiny.folder / "out"
    with pytest.raises(UsageError, match="0 is too small: min_rows"):
        convert(source, out, min_rows=0)
    with pytest.raises(UsageError, match="features are those of a store: min_rows, like"):
        convert(source, out, min_rows=2, like=tiny.store())
    with pytest.raises(DataError, match="no feature occurs in 91 rows: min_rows 91"):
        convert(source, out, min_rows=91)
    lines = [f"class{i % 5} |w a b |u only{i}" for i in range(90)]
    tiny.text("r.vw", lines)
    assert main(["convert", str(source), str(out)]) == 0
    assert "90 features are of one row, 33% of the values: --min-rows 2" in capsys.readouterr().out
    assert main(["convert", str(source), str(out), "--min-rows", "2", "--force"]) == 0
    assert "left out 90 features of fewer than 2 rows, with 90 values" in capsys.readouterr().out
