"""Rows with wrong labels come first; duplicates before them, groups whole, nothing half made."""

import csv
import json
import os
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.planning import choose
from streammach.prediction import suspects as doubts
from streammach.prediction.suspects import duplicates, find_outvoted, suspects_of
from streammach.store.holdout import copy_rows, row_folds
from streammach.system.errors import Interrupted, UsageError
from streammach.system.machine import MemoryLimit
from streammach.training import out_of_fold
from tests.builders import NO_PARTS, Stop

K = 12
SMALL = {
    "folds": 2, "memory": "1GB",
    "training": sm.TrainingOptions(epochs=4, learning_rate=0.5, transform="raw"),
}  # fmt: skip
HASHED = {"n_buckets": 8, "n_repetitions": 3}


def rows_of(rng, kind, n=360):
    """Rows with a feature of each label, their labels, and which of these are wrong."""
    wrong = np.zeros(n, bool)
    wrong[rng.choice(n, n // 30, replace=False)] = True
    own = [rng.choice(K, 1 + (kind == "lists") * rng.integers(3), replace=False) for _ in range(n)]
    said = [o.copy() for o in own]
    for i in np.flatnonzero(wrong):
        said[i][0] = rng.choice(np.setdiff1d(np.arange(K), own[i]))
    if kind == "dense":
        x = rng.normal(size=(n, 16)).astype(np.float32)
        x[np.arange(n), [o[0] for o in own]] += 6
        return x, [int(s[0]) for s in said], wrong
    text = [
        " ".join([f"a{c} b{c}" for c in o] + [f"n{rng.integers(30)}", f"g^doc{i // 6}"])
        for i, o in enumerate(own)
    ]
    said = [[f"c{c}" for c in s] for s in said]
    return text, said if kind == "lists" else [s[0] for s in said], wrong


def store_of(folder, text, labels):
    lines = []
    for row, label in zip(text, labels, strict=True):
        words, _, group = row.rpartition(" g^")
        said = label if isinstance(label, str) else ",".join(label)
        lines.append(f"{said} |w {words} |g {group}\n")
    (folder / "rows.vw").write_text("".join(lines))
    sm.convert(folder / "rows.vw", folder / "rows.zarr")
    return folder / "rows.zarr"


@pytest.mark.parametrize("kind", ["sparse", "lists", "dense"])
def test_wrong_labels_come_first(rng, tmp_path, kind):
    rows, labels, wrong = rows_of(rng, kind)
    shape = sm.Constraints(**HASHED if kind == "sparse" else {}, threads=1)
    given = (rows, labels) if kind == "dense" else (store_of(tmp_path, rows, labels),)
    out = tmp_path / "found.jsonl"
    more = SMALL | ({"training": None} if kind == "dense" else {})
    found = sm.suspects(*given, out=out, constraints=shape, **more)
    table, n = found.table(), int(wrong.sum())
    assert wrong[table["row"][:n]].mean() >= 0.8
    own = [label if isinstance(label, list) else [label] for label in labels]
    for row, label, other in zip(*(table[x] for x in ("row", "label", "suggestion")), strict=True):
        assert (label is None or label in own[row], other in own[row]) == (True, False)
        assert kind == "lists" or label is not None
    assert table["log_odds"] == sorted(table["log_odds"], reverse=True)
    assert (table["log_odds"][-1] > 0, {*table["reason"]}) == (True, {"model"})
    assert [json.loads(line)["row"] for line in out.read_text().splitlines()] == table["row"]
    assert (found.n_rows, found.folds) == (len(wrong), 2)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_the_default_budget_is_that_of_a_training(rng, tmp_path, monkeypatch):
    limit, planned = MemoryLimit(6_500_000_000, "test"), []
    for module in (choose, out_of_fold):
        monkeypatch.setattr(module, "memory_limit", lambda: limit)

    def noted(*given):
        planned.append(choose.plan(*given))
        return planned[-1]

    monkeypatch.setattr(out_of_fold, "plan", noted)
    rows, labels, _ = rows_of(rng, "sparse", 120)
    store = store_of(tmp_path, rows, labels)
    shape = sm.Constraints(device="cpu", threads=1)
    usual = choose.plan(store, shape).limits.host
    sm.suspects(store, **SMALL | {"memory": None}, constraints=shape)
    assert usual == 3_000_000_000
    assert [usual - one.limits.host for one in planned] == [120 * out_of_fold.ROW_BYTES] * 2


@pytest.mark.parametrize("kind", ["sparse", "lists"])
def test_doubts_are_those_of_all_labels_ranked(rng, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(doubts, "LABEL_ODDS", 0.1)
    monkeypatch.setattr(doubts, "MISSING_ODDS", -2.0)
    rows, labels, _ = rows_of(rng, kind, 120)
    store = store_of(tmp_path, rows, labels)
    plan = sm.plan(store, memory="1GB", **HASHED)
    model = sm.Trainer(plan, SMALL["training"]).fit(store, tmp_path / "run").model
    with sm.Dataset.open(store) as data, sm.Predictor(model) as predictor:
        numbers, _ = data.origins(0, data.n_rows)
        block = replace(data.rows(0, data.n_rows), numbers=numbers)
        seen = np.arange(data.n_classes) > 0
        found, more, places = suspects_of(predictor, block, seen)
        nothing = block.with_values(np.zeros(block.nnz, np.bool_))
        unknown, further, _ = suspects_of(predictor, nothing, seen)
        assert (unknown["log_odds"].any(), len(further)) == (False, 0)
        ids, p = predictor.rank(block, K, probabilities=True)
        _, scores = predictor.rank(block, K, model.calibrated_ranking)
    assert np.array_equal(found["row"], numbers)
    assert np.array_equal(more["row"], numbers[places])
    names = ("label", "suggestion", "log_odds", "suggested_probability")
    cells = zip(places.tolist(), *(more[name].tolist() for name in names), strict=True)
    further = {(row, label, other): figures for row, label, other, *figures in cells}
    assert len(further) == len(more)
    for i, own in enumerate(np.split(block.lists.classes, block.lists.starts[1:-1])):
        by, raw = ({*zip(ids[i].tolist(), x[i].tolist(), strict=True)} for x in (p, scores))
        by, raw = dict(by), dict(raw)
        other = max(by.keys() - {*own.tolist()}, key=raw.get)
        assert (found["suggestion"][i], found["suggested_probability"][i]) == (other, by[other])
        known = sorted((c for c in own.tolist() if c > 0), key=raw.get)
        if kind == "lists":
            for c in by.keys() - {*own.tolist()}:
                odds = float(np.log(by[c] / (1 - by[c])))
                assert abs(odds + 2) < 1e-3 or ((i, -1, c) in further) == (odds > -2)
                if (i, -1, c) in further:
                    assert further.pop((i, -1, c)) == pytest.approx((odds, by[c]), abs=1e-3)
        if not known:
            assert (found["label"][i], found["log_odds"][i]) == (own[0], 0)
            continue
        against = raw[other] if kind == "sparse" else sorted(raw.values())[-1 - len(own)]
        odds = {c: model.calibration.beta * (against - raw[c]) for c in known}
        assert (found["label"][i], found["probability"][i]) == (known[0], by[known[0]])
        assert found["log_odds"][i] == pytest.approx(odds[known[0]], rel=1e-5, abs=1e-5)
        for c in known[1:] if kind == "lists" else ():
            assert ((i, c, other) in further) == (odds[c] > 0.1)
            if (i, c, other) in further:
                assert further.pop((i, c, other)) == pytest.approx((odds[c], by[other]), rel=1e-4)
    assert (further, len(more) > 0) == ({}, kind == "lists")


def test_what_is_told_of_lists_and_in_which_order():
    found = np.zeros(6, doubts.DOUBT)
    found["row"], found["label"] = range(6), [1, 1, -1, -1, 1, 1]
    found["log_odds"] = [doubts.LABEL_ODDS + 1, 3.9, doubts.MISSING_ODDS + 0.1, 2, 0.1, -1]
    found["duplicates"] = [0, 0, 0, 0, 3, 0]
    for listed, rows in ((True, [0, 2, 4]), (False, [4, 0, 1, 2, 3])):
        told = doubts.suspicious(found, listed=listed)
        assert told["row"].tolist() == rows


def test_rows_of_a_group_are_judged_together(rng, tmp_path):
    rows, labels, _ = rows_of(rng, "sparse")
    store = store_of(tmp_path, rows, labels)
    with sm.Dataset.open(store) as data:
        folds, groups = row_folds(data, 3, 0, "g")
        assert (len(np.unique(groups)), min(groups) >= 0) == (60, True)
        assert len(np.unique(np.stack([folds, groups]), axis=1).T) == 60
        assert np.ptp(np.bincount(folds)) == 0
        folds, groups = row_folds(data, 3, 0, "auto")
        counts = np.bincount(folds * K + data.array("y"), minlength=3 * K).reshape(3, K)
        assert set(groups.tolist()) == {-1}
        assert np.ptp(counts, axis=0).max() <= 1  # of each class
    fixed = {"epochs": 1, "learning_rate": 0.5, "transform": "binary"}
    by = {**SMALL, "training": sm.TrainingOptions(**fixed, hold_out_by="g")}
    out = tmp_path / "found.csv"
    found = sm.suspects(store, out=out, constraints=sm.Constraints(**HASHED), **by)
    with open(out, newline="") as file:
        lines = [*csv.DictReader(file)]
    assert [line["row"] for line in lines] == [str(row) for row in found.table()["row"]]
    again = sm.suspects(store, constraints=sm.Constraints(threads=2, **HASHED), **by)
    assert np.array_equal(found.rows, again.rows)
    assert {line["group"] == f"doc{int(line['row']) // 6}" for line in lines} == {True}


def test_duplicates_with_other_labels_come_first(rng, tmp_path):
    rows, labels, _ = rows_of(rng, "sparse")
    rows, labels = rows + ["a1 b1 n1 g^same"] * 5, labels + ["c1"] * 3 + ["c2", "c3"]
    store = store_of(tmp_path, rows, labels)
    found = sm.suspects(store, constraints=sm.Constraints(**HASHED), **SMALL).table(0, 3)
    assert {*found["row"][:2]} == {363, 364}
    assert found["reason"] == ["duplicate", "duplicate", "model"]
    assert found["duplicates"] == [3, 3, 0]


def test_outvoted_rows_are_those_that_a_loop_finds(rng, tmp_path):
    rows, labels = rng.integers(0, 20, 200).astype(np.uint64), rng.integers(0, 3, 200)
    votes = defaultdict(Counter)
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        votes[row][label] += 1
    want = []
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        most = max(votes[row].values())
        enough = most > votes[row][label] and 2 * most > sum(votes[row].values())
        want.append(most if enough else 0)
    assert find_outvoted(rows, labels.astype(np.uint64)).tolist() == want
    assert any(want)
    # Values and features tell rows apart; rows without any are no duplicates.
    lines = ["a |x u v:2\n", "b |x u v:3\n", "b |x u\n", "a |\n", "b |\n", "b |\n"]
    (tmp_path / "few.vw").write_text("".join(lines))
    sm.convert(tmp_path / "few.vw", tmp_path / "few.zarr")
    with sm.Dataset.open(tmp_path / "few.zarr") as data:
        assert not duplicates(data, np.array([-1], np.int32)).any()
    # Documents that rows come from do not tell them apart.
    with sm.Dataset.open(store_of(tmp_path, [f"x g^{i}" for i in range(5)], [*"aaabb"])) as data:
        _, groups = row_folds(data, 2, 0, "g")
        assert sorted(duplicates(data, groups)) == [0, 0, 0, 3, 3]
        assert not duplicates(data, np.full(5, -1, np.int32)).any()


@pytest.mark.parametrize("kind", ["sparse", "lists", "weighted"])
def test_a_copy_holds_the_rows_that_were_chosen(rng, tmp_path, kind):
    rows, labels, chosen = rows_of(rng, "lists" if kind == "lists" else "sparse", 90)
    if kind == "weighted":
        labels = [f"{label} {1 + i % 3}" for i, label in enumerate(labels)]
    with sm.Dataset.open(store_of(tmp_path, rows, labels)) as data:
        chosen = ~chosen
        copy = copy_rows(data, tmp_path / "copy", chosen)
        assert sm.verify(copy) == []
        with sm.Dataset.open(copy) as other:
            want, got = data.rows(0, 90).take(np.flatnonzero(chosen)), other.rows(0, chosen.sum())
            for name in ("indptr", "features", "values", "classes", "importance"):
                assert np.array_equal(getattr(want, name), getattr(got, name))
            for name in ("starts", "classes"):
                assert np.array_equal(getattr(want.lists, name), getattr(got.lists, name))
            numbers = data.origins(0, 90)[0][chosen]
            assert np.array_equal(numbers, other.origins(0, len(numbers))[0])


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"data": [{"x": 1}]}, "need labels: y"),
        ({"folds": 1}, "from 2 to 100"),
        ({"folds": 7}, "6 rows are fewer than 7 folds"),
        ({"out": "a.parquet"}, "is text"),
        ({"out": "a.csv.gz"}, "is text"),
        ({"out": "rows.vw"}, "exists already"),
        ({"out": "rows.vw", "force": True}, "did not make it"),
        ({"training": sm.TrainingOptions(validation="v")}, "those of the folds"),
        ({"training": sm.TrainingOptions(hold_out_by="none")}, "no feature has the namespace"),
        ({"training": sm.TrainingOptions(hold_out_by="g")}, "1 groups are fewer"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, monkeypatch, more, what):
    monkeypatch.chdir(tmp_path)
    store = store_of(tmp_path, ["x g^a"] * 6, ["a", "b"] * 3)
    with pytest.raises(UsageError, match=what):
        sm.suspects(**{"data": store} | more)
    assert {*os.listdir()} == {"rows.vw", "rows.zarr"}


def test_an_interrupted_search_leaves_nothing(rng, tmp_path, monkeypatch):
    rows, labels, _ = rows_of(rng, "sparse")
    store, before = store_of(tmp_path, rows, labels), {*os.listdir(tmp_path)}
    stop = Stop(monkeypatch)
    with pytest.raises(Interrupted, match="Nothing is saved"):
        sm.suspects(store, out=tmp_path / "a.csv", **SMALL, constraints=sm.Constraints(**HASHED),
                    progress=lambda *told: stop.signals and stop.ask())  # fmt: skip
    assert {*os.listdir(tmp_path)} == before


@pytest.mark.parametrize("by", ["g", "random"])
def test_a_run_tells_which_rows_were_held_out(rng, tmp_path, by):
    rows, labels, _ = rows_of(rng, "sparse")
    store = store_of(tmp_path, rows, labels)
    plan = sm.plan(store, memory="1GB", counts="off", **HASHED)
    options = sm.TrainingOptions(epochs=1, learning_rate=0.5, transform="raw", hold_out_by=by)
    run = sm.Trainer(plan, options).fit(store, tmp_path / "run")
    numbers, n = run.held_out, plan.config.batching.held_out_rows
    assert np.array_equal(numbers, np.unique(numbers))
    if by == "g":  # whole documents of six rows
        assert len(numbers) >= n
        assert {
            len(some) for some in np.split(numbers, np.flatnonzero(np.diff(numbers // 6)) + 1)
        } == {6}
    else:
        with sm.Dataset.open(store) as data:
            last = data.origins(data.n_rows - n, data.n_rows)[0]
        assert np.array_equal(numbers, np.sort(last))


def confident_joint(rows, n_classes):
    """The rows with a wrong label by the confident joint, as a loop counts them."""
    rows = [row for row in rows.tolist() if row[5] != 0]
    of, pull = [[row for row in rows if row[1] == c] for c in range(n_classes)], doubts.PULL
    mean = sum(row[3] for row in rows) / len(rows)
    least = [(sum(r[3] for r in own) + pull * mean) / (len(own) + pull) for own in of]
    joint = np.zeros((n_classes, 2))  # surely of the label, surely of another
    for _, label, other, p, q, *_ in rows:
        sure = p >= least[label]
        if other >= 0 and q >= least[other] and (q > p or not sure):
            joint[label, 1] += 1
        elif sure:
            joint[label, 0] += 1
    share = joint[:, 1].sum() / joint.sum()
    shares = (joint[:, 1] + pull * share) / (joint.sum(axis=1) + pull)
    return round(sum(float(s) * len(own) for s, own in zip(shares, of, strict=True)))


def test_expected_rows_are_those_of_the_confident_joint(rng):
    rows = np.zeros(400, doubts.DOUBT)
    rows["label"], rows["suggestion"] = rng.integers(0, 6, 400), rng.integers(-1, 6, 400)
    rows["probability"], rows["suggested_probability"] = rng.random((2, 400)) ** 2
    rows["log_odds"] = rng.normal(size=400) * (rng.random(400) < 0.9)
    assert 0 < doubts.expected_wrong(rows, 6) == confident_joint(rows, 6) < 400
    assert doubts.expected_wrong(rows[:0], 6) == 0


@pytest.mark.parametrize("listed", [False, True])
def test_as_many_are_told_as_are_expected_but_all_duplicates(listed):
    rows = np.zeros(9, doubts.DOUBT)
    rows["log_odds"], rows["label"] = np.arange(9) + 5, 1
    rows["duplicates"][:3] = 2
    told = [doubts.suspicious(rows, listed=listed, most=most) for most in (None, 5, 1)]
    assert [len(one) for one in told] == ([9, 9, 9] if listed else [9, 5, 3])
    assert (told[1]["log_odds"][-1] == 12) != listed


def noisy(rng, n=600):
    """Dense rows of which a third lie between classes, and 12 have a wrong label."""
    own = rng.integers(0, 5, n)
    x = rng.normal(size=(n, 8)).astype(np.float32)
    x[np.arange(n), own] += np.where(rng.random(n) < 0.3, 1.5, 5)
    said = own.copy()
    wrong = rng.choice(n, 12, replace=False)
    said[wrong] = (said[wrong] + 1) % 5
    return x, said, wrong


def test_fewer_rows_are_listed_than_are_possible(rng):
    x, y, wrong = noisy(rng)
    training = sm.TrainingOptions(epochs=4, learning_rate=0.1, transform="raw")
    shape = sm.Constraints(parts=NO_PARTS)
    options = {"folds": 2, "memory": "1GB", "training": training, "constraints": shape}
    all_of_them = sm.suspects(x, y, everything=True, **options)
    found = sm.suspects(x, y, **options)
    assert found.n_possible == len(all_of_them.rows) > 1.5 * len(found.rows)
    assert np.array_equal(found.rows, all_of_them.rows[: found.n_expected])
    assert np.isin(wrong, found.rows["row"]).mean() > 0.6


@pytest.mark.parametrize("kind", ["csv", "parquet", "vw"])
def test_a_file_is_read_as_a_conversion_reads_it(rng, tmp_path, kind, capsys):
    text, labels, _ = rows_of(rng, "sparse")
    rows = pd.DataFrame({"said": text, "y": labels})
    source, said = tmp_path / f"rows.{kind}", {"label": "y", "text": "said"}
    if kind == "vw":
        source.write_text("".join(f"{y} | {x}\n" for x, y in zip(text, labels, strict=True)))
        said = {}
    else:
        getattr(rows, f"to_{kind}")(source, index=False)
    shape = sm.Constraints(**HASHED, threads=1)
    store = sm.convert(source, tmp_path / "rows.zarr", **said).path
    wanted = sm.suspects(store, constraints=shape, **SMALL)
    found = sm.suspects(source, constraints=shape, **said, **SMALL)
    assert np.array_equal(found.rows, wanted.rows)
    words = [f"--{name}={value}" for name, value in said.items()]
    command = ["suspects", source, "--out", tmp_path / "s.csv", "--folds", "2", "--memory", "1GB"]
    more = ["--epochs=4", "--learning-rate=0.5", "--transform=raw", "--buckets=8", "--json"]
    command += [*more, "--repetitions=3", "--threads=1", "--progress=none", *words]
    assert main([str(word) for word in command]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["n_suspects"] == found.n_suspects
    assert (printed["n_expected"], printed["n_possible"]) == (found.n_expected, found.n_possible)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [source.name, "rows.zarr", "s.csv"]
    )


def test_a_store_has_no_options_of_files(rng, tmp_path):
    store = store_of(tmp_path, *rows_of(rng, "sparse")[:2])
    for data in (store, sm.Dataset.open(store)):
        with pytest.raises(UsageError, match="need no options of files"):
            sm.suspects(data, label="y")
