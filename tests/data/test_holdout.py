"""Held-out rows: whole documents where rows have them, random rows where they have none.

A kind of data is a function that gives rows, their documents, and by what they should be held out;
a later fault is one more function.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.cli.main import main
from streammach.data.holdout import held_numbers, hold_out
from streammach.data.memory_rows import given
from streammach.data.near_kernels import HASHES, LEAST
from streammach.data.near_rows import SIGNED_BYTES, Signatures
from streammach.errors import MismatchError
from streammach.spec.config import Batching
from streammach.spec.training import TrainingOptions
from streammach.threads import Workers
from tests.builders import fit

N_CLASSES = 20
NEAR, NAMED = "groups by near-duplicates", "of namespace doc, which looks like documents"
RANDOM, ENDLESS = "random rows of the training store", "near-duplicates, in no groups that end"
APART = "random rows, apart from"
QUICK = {"epochs": 2, "learning_rate": 0.5, "transform": "binary"}


def words(rng, n, vocabulary=8000, letter="v"):
    return [f"{letter}{j}" for j in rng.choice(vocabulary, n, replace=False)]


def row(label, features, more=""):
    return f"{label} |t {' '.join(features)}{more}"


def labelled(rows, labels):
    return [f"{y} {text.split(' ', 1)[1]}" for y, text in zip(labels, rows, strict=True)]


def documents(rng, n_documents=300, each=5, *, named=False, known=0.55, first=0, lists=False):
    """Rows of documents: its label, nine in ten of its words, some of their own."""
    rows, of = [], []
    for document in range(first, first + n_documents):
        y = rng.integers(N_CLASSES)
        own = words(rng, 12) + ([f"class{y}"] if rng.random() < known else [])
        for _ in range(each):
            kept = [word for word in own if rng.random() < 0.9] or own
            label = f"c{y},c{(y + 1) % N_CLASSES}" if lists else f"c{y}"
            name = f" |doc d{document}" if named else ""
            rows.append(row(label, kept + words(rng, 3, 500, "z"), name))
            of.append(document)
    return rows, of


def near_duplicates(rng):
    return *documents(rng), NEAR


def named_documents(rng):
    return *documents(rng, named=True), NAMED


def lists_of_labels(rng):
    return *documents(rng, lists=True), NEAR


def named_lists_of_labels(rng):
    """Rows of a package share words, and each has some of the package's labels."""
    rows, of = [], []
    for package in range(100):
        own, usual = words(rng, 40), rng.choice(60, 8, replace=False)
        for _ in range(15):
            labels = ",".join(f"c{y}" for y in rng.choice(usual, 3, replace=False))
            kept = [str(word) for word in rng.choice(own, 12, replace=False)]
            rows.append(row(labels, kept, f" |doc p{package}"))
            of.append(package)
    return rows, of, NAMED


def lists_of_a_category(rng):
    """A seller's labels are those of all: its name is a feature as others are."""
    sold = rng.integers(0, 100, 1500)
    label = [",".join(f"c{y}" for y in rng.choice(60, 3, replace=False)) for _ in sold]
    rows = [row(y, words(rng, 8), f" |doc s{s}") for y, s in zip(label, sold, strict=True)]
    return rows, None, RANDOM


def some_near_duplicates(rng):
    rows, of = documents(rng, 100)
    more, alone = documents(rng, 1000, 1, first=100)
    return rows + more, of + alone, NEAR


def exact_duplicates(rng):
    rows, of = documents(rng, 500, 1)
    return rows * 3, of * 3, NEAR


def documents_of_two_labels(rng):
    rows, of = documents(rng, 300, 6)
    return labelled(rows, [f"c{i % 2 + d % 7}" for i, d in enumerate(of)]), of, NEAR


def nothing_alike(rng):
    return *documents(rng, 1500, 1), RANDOM


def few_alike(rng):
    rows, of = documents(rng, 1500, 1)
    return rows + rows[:15], of + of[:15], RANDOM


def one_feature(rng):
    """It decides the class, and comes again."""
    drawn = rng.integers(0, 300, 1500)
    return [row(f"c{j % N_CLASSES}", [f"w{j}"]) for j in drawn], drawn, RANDOM


def a_column_that_decides(rng):
    """A product and a town: products come again, in any town."""
    sold = rng.integers(0, 300, 1500)
    towns = rng.integers(0, 50, 1500)
    rows = [f"c{s % N_CLASSES} |doc p{s} |town t{t}" for s, t in zip(sold, towns, strict=True)]
    return rows, sold, RANDOM


def few_categories(rng):
    """A table: rows repeat since there are no more combinations."""
    drawn = rng.integers(0, 4, (1500, 4))
    rows = [row(f"c{k[0]}", [f"{n}{v}" for n, v in zip("abcd", k, strict=True)]) for k in drawn]
    return rows, None, RANDOM


def a_category_of_many_values(rng):
    """A seller has as many rows as it sells, and many have one: they come again."""
    sold = np.minimum(rng.zipf(1.5, 1500), 1000)
    rows = [row(f"c{s % N_CLASSES}", words(rng, 8), f" |doc s{s}") for s in sold]
    return rows, None, RANDOM


def names_without_classes(rng):
    """A group that says nothing of the class needs no holding out, and may be known later."""
    label = rng.integers(0, N_CLASSES, 1500)
    rows = [row(f"c{y}", words(rng, 8), f" |doc d{i // 5}") for i, y in enumerate(label)]
    return rows, None, RANDOM


def classes_that_are_documents(rng):
    """All rows of a class are alike: so are rows to come of this class."""
    rows, of = documents(rng, 150, 10, known=0)
    return labelled(rows, [f"c{d}" for d in of]), of, RANDOM


def same_words_other_labels(rng):
    """What is repeated has another label each time: to know it is of no use."""
    rows, of = documents(rng, 500, 3)
    return labelled(rows, [f"c{y}" for y in rng.integers(0, N_CLASSES, len(of))]), of, RANDOM


def a_continuum(rng):
    """Windows of one long text: each is like its neighbours, and there is no end."""
    text = [f"w{j}" for j in rng.integers(0, 3000, 2014)]
    windows = [dict.fromkeys(text[i : i + 14]) for i in range(2000)]
    rows = [row(f"c{i // 40 % N_CLASSES}", window) for i, window in enumerate(windows)]
    return rows, None, ENDLESS


def a_continuum_and_others(rng):
    """Rows that are like their neighbours decide, but nobody learns from these."""
    rows, _ = documents(rng, 1500, 1)
    return rows + a_continuum(rng)[0][:500], None, APART


KINDS = [near_duplicates, named_documents, lists_of_labels, named_lists_of_labels,
         lists_of_a_category, some_near_duplicates, exact_duplicates,
         documents_of_two_labels, nothing_alike, few_alike, one_feature, a_column_that_decides,
         few_categories, a_category_of_many_values, names_without_classes,
         classes_that_are_documents, same_words_other_labels, a_continuum,
         a_continuum_and_others]  # fmt: skip


def held_of(data, n_rows, among=None, **options):
    room = Batching(batch_size=0, batch_nnz=0, held_out_rows=n_rows, held_out_nnz=1 << 20)
    return hold_out(data, room, TrainingOptions(**options), among=among)


def same(a, b):
    names = ("indptr", "features", "values", "classes")
    return all(np.array_equal(getattr(a.rows, name), getattr(b.rows, name)) for name in names) and (
        np.array_equal(a.mask, b.mask)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_held_out_by_what_they_share(kind, tiny, rng):
    lines, of, by = kind(rng)
    sm.convert(tiny.text("a.vw", lines), tiny.folder / "a.zarr")
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        wanted = data.n_rows // 20
        held, random = held_of(data, wanted), held_of(data, wanted, hold_out_by="random")
        assert same(held, held_of(data, wanted))
        numbers = data.array("row")
    assert by in held.origin
    assert held.looked == (by != RANDOM)
    assert same(held, random) == (by in (RANDOM, ENDLESS))
    assert wanted / 2 <= held.mask.sum() <= 2 * wanted
    assert held.rows.n_rows == min(wanted, held.mask.sum()) or by == APART
    if by in (NEAR, NAMED):
        sizes = np.bincount(of)
        out = np.bincount(np.array(of)[numbers[held.mask]], minlength=len(sizes))
        assert (out[out > 0] == sizes[out > 0]).mean() > 0.9  # they are whole
        assert sizes[out > 0].mean() < 1.5 * sizes.mean()  # large ones are not preferred


@pytest.mark.parametrize("kind", KINDS)
def test_only_some_rows_may_decide_and_nobody_learns_from_rows_like_them(kind, tiny, rng):
    lines, of, by = kind(rng)
    sm.convert(tiny.text("a.vw", lines), tiny.folder / "a.zarr")
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        among, wanted = rng.random(data.n_rows) < 0.3, data.n_rows // 20
        held, numbers = held_of(data, wanted, among), data.array("row")
        random, few = (
            held_of(data, n, some, hold_out_by="random").mask
            for n, some in ((wanted, among), (data.n_rows, among & (rng.random(len(among)) < 0.1)))
        )
    decide = np.flatnonzero(held.mask) if held.decide is None else held.decide
    assert among[decide].all()
    assert 0 < held.rows.n_rows == len(decide) <= wanted
    assert (random.sum(), among[random].all()) == (wanted, True)
    assert 0 < few.sum() < among.sum()
    if by in (NEAR, NAMED) and held.looked:
        sizes, of = np.bincount(of), np.array(of)
        out = np.bincount(of[numbers[held.mask]], minlength=len(sizes))[of[numbers[decide]]]
        assert (out == sizes[of[numbers[decide]]]).mean() > 0.9  # whole, with rows that only wait


def test_nobody_learns_from_rows_that_are_like_those_that_decide(tiny, rng):
    sm.convert(tiny.text("a.vw", a_continuum_and_others(rng)[0]), tiny.folder / "a.zarr")
    shared = {}
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        n, d = data.n_rows, data.n_features
        for by in ("auto", "random"):
            held = held_of(data, n // 20, hold_out_by=by)
            learnt = data.rows(0, n).take(np.flatnonzero(~held.mask))
            decide, others = (
                sp.csr_array((np.ones(r.nnz), r.features, r.indptr), (r.n_rows, d))
                for r in (held.rows, learnt)
            )
            most = (decide @ others.T).max(axis=1).toarray().ravel()
            shared[by] = (most > 0.9 * np.diff(held.rows.indptr)).mean()
            told = held_numbers(data, held)  # of those that decide, not of those that wait
            assert len(told) == held.rows.n_rows == len({*told})
            assert {*told} <= {*data.array("row")[held.mask].tolist()}
    assert shared["random"] > 0.15
    assert shared["auto"] < 0.02


@pytest.mark.parametrize("n_rows", [1, 2, 20, 41])
def test_tiny_data_are_held_out_at_random(n_rows, tiny, rng):
    sm.convert(tiny.text("a.vw", documents(rng, n_rows, 1)[0]), tiny.folder / "a.zarr")
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        for wanted in (0, n_rows // 20, n_rows // 2):
            assert same(held_of(data, wanted), held_of(data, wanted, hold_out_by="random"))


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_dense_rows_that_are_there_several_times_stay_together(times, make, rng):
    x = np.repeat(rng.random((400, 20)).astype(np.float32), times, axis=0)
    data = given(make(x), np.repeat(rng.integers(0, 9, 400), times), None).held()
    held = held_of(data, 20 * times)
    assert (NEAR if times > 1 else RANDOM) in held.origin
    first = data.rows(0, data.n_rows).values[::20]  # the first column of each row
    assert not set(first[held.mask]) & set(first[~held.mask])


def test_signatures_are_those_of_plain_arithmetic(tiny, rng):
    """Shares of equal hashes beside the share of the bits that two rows have in common."""
    n = 120
    sm.convert(tiny.text("a.vw", documents(rng, 30, 4)[0]), tiny.folder / "a.zarr")
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        rows = data.rows(0, n)
        signatures = Signatures(data, rows)
        signs, total = signatures.of(rows)
        bits = np.where(data.feature_counts > 1, np.log2(n / data.feature_counts), 0)
        x = np.zeros((n, data.n_features))
        near = signatures.near(rows.take(np.arange(40)), np.arange(40))
    x[np.repeat(np.arange(n), np.diff(rows.indptr)), rows.features] = 1
    x *= bits
    np.testing.assert_allclose(total, x.sum(1), rtol=1e-5)
    both, either = (op(x[:, None], x[None]).sum(2) for op in (np.minimum, np.maximum))
    equal = (signs[:, None] == signs[None]).mean(2)
    error = equal - both / either
    assert abs(error.mean()) < 0.01
    assert error.std() < 0.5 / np.sqrt(HASHES)
    shared = equal / (1 + equal) * (total[:, None] + total[None])
    alike = ((equal >= LEAST) & (shared >= signatures.least))[:40].any(0)
    alike[:40] = True
    assert np.isin(near.rows, np.flatnonzero(alike)).all()
    assert len(near.rows) > 0.95 * alike.sum() > 60


def test_likeness_does_not_depend_on_threads_and_memory(tiny, rng, monkeypatch):
    """Nor on how many rows are compared at a time; with room the store is read once."""
    sm.convert(tiny.text("a.vw", documents(rng, 900, 4)[0]), tiny.folder / "a.zarr")
    found, n_read = [], []
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        numbers = np.sort(rng.choice(data.n_rows, 300, replace=False))
        known, rows = data.rows(0, data.n_rows).take(numbers), data.rows
        monkeypatch.setattr(data, "rows", lambda *of: n_read.append(of) or rows(*of))
        for workers, together, room in (
            (None, 1 << 14, 0), (Workers(1, "near"), 70, 0), (Workers(3, "near"), 100, 1 << 30),
            (None, 1 << 14, data.n_rows * SIGNED_BYTES - 1), (None, 90, data.n_rows * SIGNED_BYTES),
        ):  # fmt: skip
            monkeypatch.setattr("streammach.data.near_rows.TOGETHER", together)
            signatures, before = Signatures(data, known, workers, room=room), len(n_read)
            found += [vars(signatures.near(known, numbers)) for _ in range(2)]
            once = len(n_read) - before
            assert once == (1 if room >= data.n_rows * SIGNED_BYTES else 2)
    assert len(found[0]["rows"]) > len(numbers)
    for name, array in found[0].items():
        assert all(np.array_equal(array, other[name]) for other in found[1:])


def test_held_out_figures_are_those_of_new_documents(tiny, rng):
    sm.convert(tiny.text("a.vw", documents(rng, 900)[0]), tiny.folder / "a.zarr")
    new = tiny.text("new.vw", documents(rng, 500, first=10**6)[0])
    sm.convert(new, tiny.folder / "new.zarr", like=tiny.folder / "a.zarr")
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        plan = sm.plan(data, n_buckets=8, n_repetitions=3, counts="off", held_out_rows=1000)
        flattered = {}
        for by in ("random", "auto"):
            run = fit(data, tiny.folder / by, plan, hold_out_by=by, **QUICK)
            reached = sm.evaluate(run.model, tiny.folder / "new.zarr").accuracy
            flattered[by] = run.result.best.accuracy - reached
    assert flattered["random"] > 0.2
    assert abs(flattered["auto"]) < 0.1


def test_doors_hold_out_the_same_and_say_so(tiny, rng, capsys):
    lines, _ = documents(rng, 300)
    sm.convert(tiny.text("a.vw", lines), tiny.folder / "a.zarr")
    store, out = str(tiny.folder / "a.zarr"), str(tiny.folder / "run")
    shape = ["--buckets", "4", "--repetitions", "3", "--epochs", "1", "--counts", "off"]
    assert main(["train", store, "--out", out, *shape, "--learning-rate", "0.5"]) == 0
    said = capsys.readouterr()
    assert f"{NEAR} (" in said.out.splitlines()[-1]
    assert NEAR in said.err
    assert NEAR in sm.Run.open(out).settings.held_out
    labels, texts = zip(*(line.split(" |t ") for line in lines), strict=True)
    told = []
    quick = {"epochs": 1, "learning_rate": 0.5, "n_buckets": 4, "n_repetitions": 3,
             "callbacks": [SimpleNamespace(on_message=told.append)]}  # fmt: skip
    for by in ("auto", "random"):
        told.clear()
        run = sm.train(list(texts), labels, memory="1GB", counts="off", hold_out_by=by, **quick)
        assert (NEAR if by == "auto" else RANDOM) in run.settings.held_out
        sm.MACHClassifier(**quick, hold_out_by=by).fit(list(texts), labels)
        found = [text for text in told if text.startswith("held out") and NEAR in text]
        assert len(found) == (2 if by == "auto" else 0)


def test_an_interrupted_run_holds_out_the_same(tiny, rng):
    sm.convert(tiny.text("a.vw", documents(rng, 200)[0]), tiny.folder / "a.zarr")

    def end(*_):
        raise KeyboardInterrupt

    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        plan = sm.plan(data, n_buckets=4, n_repetitions=3, counts="off")
        whole = fit(data, tiny.folder / "whole", plan, **QUICK)
        with pytest.raises(KeyboardInterrupt):
            fit(data, tiny.folder / "run", plan, **QUICK, checkpoint_minutes=0,
                callbacks=[SimpleNamespace(on_epoch_end=end)])  # fmt: skip
        with pytest.raises(MismatchError):
            fit(data, tiny.folder / "run", plan, resume=True, hold_out_by="random", **QUICK)
        again = fit(data, tiny.folder / "run", plan, resume=True, **QUICK)
    assert NEAR in again.settings.held_out
    files = [run.path / "model/model.safetensors" for run in (whole, again)]
    assert files[0].read_bytes() == files[1].read_bytes()
