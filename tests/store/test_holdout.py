"""Held-out rows: whole documents where they have names, else random rows apart from equal ones.

A kind of data is a function that gives rows, their documents, and by what they should be held out;
a later fault is one more function.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import streammach as sm
from streammach.cli.main import main
from streammach.conversion.memory_rows import collect_rows
from streammach.options.config import Batching
from streammach.options.training import TrainingOptions
from streammach.store.holdout import held_numbers, hold_out
from streammach.store.row_groups import equal_rows
from streammach.system.clock import Clock
from streammach.system.errors import MismatchError
from tests.builders import fit

N_CLASSES = 20
NAMED, EQUAL = "of namespace doc, which looks like documents", "that are equal to some of them"
RANDOM = "random rows of the training store"
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
    """Rows share most of their words, but no name says of which document they are."""
    return *documents(rng), RANDOM


def named_documents(rng):
    return *documents(rng, named=True), NAMED


def equal_lists_of_labels(rng):
    rows, of = documents(rng, 500, 1, lists=True)
    return rows * 3, of * 3, EQUAL


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


def some_duplicates(rng):
    rows, of = documents(rng, 1000, 1)
    return rows + rows[:300], of + of[:300], EQUAL


def exact_duplicates(rng):
    rows, of = documents(rng, 500, 1)
    return rows * 3, of * 3, EQUAL


def one_row_that_is_everywhere(rng):
    """A fifth of the rows are one text, with both labels: it decides as any other row does."""
    rows, of = documents(rng, 1200, 1, known=0)
    labels = [f"c{i % 2}" for i in range(1500)]
    return labelled(rows + rows[:1] * 300, labels), of + [0] * 300, RANDOM


def equals_with_a_number_of_their_own(rng):
    """A feature that no other row holds makes no row another one."""
    rows, of = documents(rng, 500, 1)
    return [f"{text} |id i{i}" for i, text in enumerate(rows * 3)], of * 3, EQUAL


def nothing_alike(rng):
    return *documents(rng, 1500, 1), RANDOM


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


def classes_that_are_one_row(rng):
    """All rows of a class are equal: so are rows to come of this class."""
    rows, of = documents(rng, 150, 1, known=0)
    return labelled(rows * 10, [f"c{d}" for d in of * 10]), of * 10, RANDOM


def same_words_other_labels(rng):
    rows, of = documents(rng, 500, 3, known=0)
    same = {d: text for d, text in zip(of, rows, strict=True)}
    labels = [f"c{y}" for y in rng.integers(0, N_CLASSES, len(of))]
    return labelled([same[d] for d in of], labels), of, EQUAL


KINDS = [near_duplicates, named_documents, equal_lists_of_labels, named_lists_of_labels,
         lists_of_a_category, some_duplicates, exact_duplicates, one_row_that_is_everywhere,
         equals_with_a_number_of_their_own, nothing_alike, one_feature, a_column_that_decides,
         few_categories, a_category_of_many_values, names_without_classes,
         classes_that_are_one_row, same_words_other_labels]  # fmt: skip


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
    assert same(held, random) == (by == RANDOM)
    assert wanted / 2 <= held.mask.sum() <= 2 * wanted
    assert held.rows.n_rows == min(wanted, held.mask.sum()) or (by == EQUAL and held.rows.n_rows)
    if by in (EQUAL, NAMED):
        sizes = np.bincount(of)
        out = np.bincount(np.array(of)[numbers[held.mask]], minlength=len(sizes))
        assert (out[out > 0] == sizes[out > 0]).mean() > 0.9  # they are whole
        # Large ones are not preferred.
        assert by == EQUAL or sizes[out > 0].mean() < 1.5 * sizes.mean()


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
    if by in (EQUAL, NAMED) and held.looked:
        sizes, of = np.bincount(of), np.array(of)
        out = np.bincount(of[numbers[held.mask]], minlength=len(sizes))[of[numbers[decide]]]
        assert (out == sizes[of[numbers[decide]]]).mean() > 0.9  # whole, with rows that only wait


def test_nobody_learns_from_rows_that_are_equal_to_those_that_decide(tiny, rng):
    sm.convert(tiny.text("a.vw", some_duplicates(rng)[0]), tiny.folder / "a.zarr")
    shared = {}
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        for by in ("auto", "random"):
            held = held_of(data, data.n_rows // 20, hold_out_by=by)
            rows = [frozenset(data.rows(i, i + 1).features.tolist()) for i in range(data.n_rows)]
            decide = np.flatnonzero(held.mask) if held.decide is None else held.decide
            learnt = {rows[i] for i in np.flatnonzero(~held.mask)}
            shared[by] = sum(rows[i] in learnt for i in decide)
            told = held_numbers(data, held)  # of those that decide, not of those that wait
            assert len(told) == held.rows.n_rows == len({*told})
            assert {*told} <= {*data.array("row")[held.mask].tolist()}
    assert shared["random"] > 10
    assert shared["auto"] == 0


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
    data = collect_rows(make(x), np.repeat(rng.integers(0, 9, 400), times), None).to_dataset()
    held = held_of(data, 20 * times)
    assert (EQUAL if times > 1 else RANDOM) in held.origin
    first = data.rows(0, data.n_rows).values[::20]  # the first column of each row
    assert not set(first[held.mask]) & set(first[~held.mask])


def test_equal_rows_are_those_of_a_plain_comparison(tiny, rng):
    sm.convert(tiny.text("a.vw", some_duplicates(rng)[0]), tiny.folder / "a.zarr")
    with sm.Dataset.open(tiny.folder / "a.zarr") as data:
        numbers = np.sort(rng.choice(data.n_rows, 400, replace=False))
        rows = data.rows(0, data.n_rows)
        names, places, of = equal_rows(data, rows.take(numbers), numbers, Clock())
        counts = data.feature_counts
    held = [frozenset(f for f in rows.features[a:b].tolist() if counts[f] > 1)
            for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]  # fmt: skip
    groups = {held[i]: [j for j, own in enumerate(held) if own == held[i]] for i in numbers}
    for i, name in zip(numbers, names, strict=True):
        group = groups[held[i]]
        assert (name > 0) == (len(group) > 1)
        assert not name or places[of == name].tolist() == group


def test_held_out_figures_are_those_of_new_documents(tiny, rng):
    sm.convert(tiny.text("a.vw", documents(rng, 900, named=True)[0]), tiny.folder / "a.zarr")
    new = tiny.text("new.vw", documents(rng, 500, first=10**6, named=True)[0])
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
    lines, _, _ = exact_duplicates(rng)
    sm.convert(tiny.text("a.vw", lines), tiny.folder / "a.zarr")
    store, out = str(tiny.folder / "a.zarr"), str(tiny.folder / "run")
    shape = ["--buckets", "4", "--repetitions", "3", "--epochs", "1", "--counts", "off"]
    assert main(["train", store, "--out", out, *shape, "--learning-rate", "0.5"]) == 0
    said = capsys.readouterr()
    assert EQUAL in said.out.splitlines()[-1]
    assert EQUAL in said.err
    assert EQUAL in sm.Run.open(out).settings.held_out
    labels, texts = zip(*(line.split(" |t ") for line in lines), strict=True)
    told = []
    quick = {"epochs": 1, "learning_rate": 0.5, "n_buckets": 4, "n_repetitions": 3,
             "callbacks": [SimpleNamespace(on_message=told.append)]}  # fmt: skip
    for by in ("auto", "random"):
        told.clear()
        run = sm.train(list(texts), labels, memory="1GB", counts="off", hold_out_by=by, **quick)
        assert (EQUAL if by == "auto" else RANDOM) in run.settings.held_out
        found = [text for text in told if text.startswith("held out") and EQUAL in text]
        assert len(found) == (by == "auto")


def test_an_interrupted_run_holds_out_the_same(tiny, rng):
    sm.convert(tiny.text("a.vw", exact_duplicates(rng)[0]), tiny.folder / "a.zarr")

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
    assert EQUAL in again.settings.held_out
    files = [run.path / "model/model.safetensors" for run in (whole, again)]
    assert files[0].read_bytes() == files[1].read_bytes()
