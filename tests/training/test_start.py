"""A training that goes on from a run, on a store that extends the run's."""

import json
import re
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.counts.learning import weigh
from streammach.counts.table import count_pairs
from streammach.model.model import Model
from streammach.model.shrink import of_features, plain
from streammach.parts.counts.warm_counts import LESS, RAREST, as_before, raise_totals
from streammach.planning.constraints import Constraints
from streammach.prediction.selection_metrics import measure_ids
from streammach.rows.canonical import canonicalize
from streammach.rows.pairs import NamePairs, ends
from streammach.store.dataset import Dataset
from streammach.store.holdout import hold_out, left_out, masked_blocks
from streammach.system.errors import BudgetError, MismatchError, UsageError
from streammach.training.warm_start import OLD_SHARE, begin_classes
from tests.builders import TinyData, block_of, fit, listed_lines

HASHED = {"n_buckets": 8, "n_repetitions": 4}
STILL = {"learning_rate": 1e-30, "last_passes": 0, "model_size": "full"}
OLD, NEW = 600, 500


def words(rng, n, classes):
    rows = ((c, rng.integers(300, size=4)) for c in rng.integers(classes, size=n))
    return [(f"k{c}", f"own{c} at{c} " + " ".join(f"w{j}" for j in some)) for c, some in rows]


def vw(tiny, rng, name, n, classes):
    return tiny.text(f"{name}.vw", [f"{k} |x {text}" for k, text in words(rng, n, classes)]), {}


def table(tiny, rng, name, n, classes):
    lines = ["kind,title", *(f"{k},{text}" for k, text in words(rng, n, classes))]
    return tiny.text(f"{name}.csv", lines), {"label": "kind", "text": "title"}


def lists(tiny, rng, name, n, classes):
    return tiny.text(f"{name}.vw", listed_lines(rng, n, classes)), {"multilabel": "on"}


def dense(tiny, rng, name, n, classes):
    y = rng.integers(classes, size=n)
    x = np.eye(20)[y] * 2 + rng.normal(size=(n, 20)) * 0.3
    np.save(tiny.folder / f"{name}.npy", x.astype(np.float32))
    np.save(tiny.folder / f"{name}-y.npy", y)
    return tiny.folder / f"{name}.npy", {"labels": tiny.folder / f"{name}-y.npy"}


KINDS = {"vw": vw, "table": table, "lists": lists, "dense": dense}
SHAPES = {
    "hashed": HASHED,
    "exact": {"n_buckets": 64, "n_repetitions": 1},
    "alone": {"n_repetitions": 0},
}


def day(tiny, make, name, n, classes, **options):
    source, said = make(tiny, np.random.default_rng(len(name) + n), name, n, classes)
    if options and make is not dense:
        said = {}
    store = tiny.folder / f"{name}.zarr"
    sm.convert(source, store, threads=1, **said, **options)
    return store


def trained(store, out, shape, **options):
    made = sm.plan(store, memory="900MB", threads=1, **shape)
    return fit(store, out, made, epochs=2, **options)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Folders with the first day of a kind, and with a run of it; each is made once."""

    @cache
    def made(kind, shape, n=OLD, classes=12):
        tiny = TinyData(tmp_path_factory.mktemp("first"), np.random.default_rng(3))
        old = day(tiny, KINDS[kind], "old", n, classes)
        return old, trained(old, tiny.folder / "run", SHAPES[shape])

    return made


def gone_on(store, before, out, memory="900MB", **options):
    with Dataset.open(store) as data:
        start = sm.Start.of(before, data)
        plan = start.plan(data, Constraints(memory=memory, threads=1))
        return sm.Trainer(plan, sm.TrainingOptions(**options), start=start).fit(data, out)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_old_weights_stay_and_new_classes_are_learnt(kind, shape, first, tiny):
    if (kind, shape) == ("dense", "alone"):
        return
    make, folder = KINDS[kind], tiny.folder
    old, run = first(kind, shape)
    new = day(tiny, make, "new", NEW, 15, extend=old)
    test = day(tiny, make, "test", 90, 15, like=new)
    went = gone_on(new, run.path, folder / "went")
    still = gone_on(new, run.path, folder / "still", **STILL) if shape != "alone" else went
    with Dataset.open(new) as data:
        assert (data.n_classes, data.root.old_rows) == (went.model.spec.n_classes, OLD)
    assert went.settings.training.epochs == len(went.result.history) == (shape != "alone")
    before, after, kept = run.model, went.model, still.model
    assert (after.spec.hash_a, after.spec.hash_b) == (before.spec.hash_a, before.spec.hash_b)
    assert after.spec.n_repetitions == before.spec.n_repetitions
    if shape != "alone":
        d = [kept.features.raw(i) for i in range(len(kept.features))]
        ids = [d.index(before.features.raw(i)) for i in range(len(before.features))]
        n = before.spec.n_columns
        all_rows = slice(0, len(before.weights))
        assert np.array_equal(plain(kept, ids)[:, :n], plain(before, all_rows))
        begun = np.abs(plain(kept, ids)[:, n:]).max(initial=0) > 1e-6
        assert begun == (shape == "exact" and kind in ("vw", "table"))
    found = {name: sm.evaluate(model, test).accuracy for name, model in
             (("before", before), ("after", after))}  # fmt: skip
    assert found["after"] > found["before"] + 0.02
    told = [re.findall(r"\d\.\d{3}", text) for text in went.result.reasons if " before, " in text]
    assert len(told) == 1
    assert float(told[0][1]) == round(went.result.best.accuracy, 3)
    assert float(told[0][0]) == former_on_held_out(run, went, new)
    assert found["after"] > (0.7 if kind == "lists" else 0.8)


def former_on_held_out(run, went, store):
    """What a model reaches on the rows that another training held out, by the public functions."""
    numbers, places = set(went.held_out.tolist()), []
    with Dataset.open(store) as data:
        rows = data.rows(0, data.n_rows)
        places = [i for i, n in enumerate(data.numbers(0, data.n_rows)) if int(n) in numbers]
        ids = run.model.features.ids_of(data.features)
    rows = canonicalize(rows.take(np.array(places)), ids)
    with sm.Predictor(run.model, threads=1) as predictor:
        best = predictor.rank(rows, 5)[0]
    return round(measure_ids(rows, best).accuracy, 3)


def test_rows_of_known_and_of_new_labels_are_told_apart(first, tiny):
    old, run = first("vw", "hashed")
    new = day(tiny, vw, "new", NEW, 15, extend=old)
    test = day(tiny, vw, "test", 90, 15, like=new)
    went = gone_on(new, run.path, tiny.folder / "went", validation=str(test))
    (told,) = [text for text in went.result.reasons if " before, " in text]
    assert "rows of known labels" in told
    before, now = re.search(r"([\d.]+) before, ([\d.]+) now on rows of new labels", told).groups()
    assert float(before) == 0
    assert float(now) > 0.5


def test_the_same_bytes_for_threads_and_after_an_interruption(first, tiny):
    old, run = first("vw", "hashed")
    new = day(tiny, vw, "new", NEW, 15, extend=old)
    stop = Exception("stopped")

    class Stop:
        def on_epoch_end(self, state):
            raise stop

    def model(name, threads, resume=False, callbacks=()):
        with Dataset.open(new) as data:
            start = sm.Start.of(run.path, data)
            plan = start.plan(data, Constraints(memory="900MB", threads=threads))
            trainer = sm.Trainer(plan, sm.TrainingOptions(), start=start, callbacks=callbacks)
            trainer.fit(data, tiny.folder / name, resume=resume)
        return (tiny.folder / name / "model" / "model.safetensors").read_bytes()

    one = model("one", 1)
    assert model("two", 3) == one
    with pytest.raises(Exception, match="stopped"):
        model("late", 1, callbacks=[Stop()])
    assert model("late", 1, resume=True) == one


@pytest.mark.parametrize(
    ("kind", "n_new"), [("vw", 300), ("vw", 2400), ("lists", 900), ("dense", 400)]
)
def test_new_rows_of_known_classes_decide_and_some_old_ones_are_learnt_again(
    kind, n_new, first, tiny
):
    make, settles = KINDS[kind], kind != "dense"
    old, run = first(kind, "hashed", 2000)
    known = run.model.spec.n_classes
    store = day(tiny, make, "new", n_new, 15, extend=old)
    with Dataset.open(store) as data:
        start = sm.Start.of(run.path, data)
        made = start.plan(data, Constraints(threads=1))
        room = made.config.batching
        held = hold_out(data, room, sm.TrainingOptions(hold_out_by="random"), start.judges)
        left = left_out(start.new, held.mask, OLD_SHARE)
        numbers, _ = data.origins(0, data.n_rows)
        lists = data.rows(0, data.n_rows).lists
    new, odd = numbers >= 2000, np.unique(lists.rows[lists.classes >= known])
    may = new & ~np.isin(np.arange(len(new)), odd)
    assert made.limits.host == run.plan.limits.host == 900e6
    assert 0 < len(odd) < n_new
    assert (start.new == new).all()
    assert (start.judges <= may).all()
    assert start.judges.sum() == may.sum() // (1 if settles else 5)
    assert (held.mask <= start.judges).all()
    assert held.rows.n_rows == min(room.held_out_rows, start.judges.sum())
    assert (~left & held.mask).sum() == 0
    assert (~left & new).sum() == n_new - held.mask.sum()
    assert (~left & ~new).sum() == min(max(1000, n_new - held.mask.sum()), 2000)


def test_columns_of_new_classes_begin_with_what_their_features_add(rng):
    block, known = block_of(rng, 40, 30, 9), 6
    weights, raised = rng.random((25, 9), np.float32), rng.random(25, np.float32)
    n_rows = np.bincount(block.classes, minlength=9)
    wanted = weights.astype(np.float64)
    for i, c in enumerate(block.classes.tolist()):
        for f in block.features[block.indptr[i] : block.indptr[i + 1]].tolist():
            if c >= known and f < 25:  # others are not hashed
                wanted[f, c] += raised[f] / n_rows[c]
    begin_classes(weights, raised, [block.part(0, 25), block.part(25, 40)], n_rows, known)
    np.testing.assert_allclose(weights, wanted, rtol=1e-5)


@pytest.mark.parametrize(("kind", "piece"), [("vw", 1 << 18), ("vw", 100), ("lists", 100)])
def test_a_table_weighs_as_the_model_of_its_rows(kind, piece, tiny, monkeypatch):
    """Also for pairs that the model has lost: they add about what others of their feature do."""
    monkeypatch.setattr("streammach.parts.counts.warm_counts.PIECE_PAIRS", piece)
    store = day(tiny, KINDS[kind], "old", OLD, 12)
    model = trained(store, tiny.folder / "run", SHAPES["alone"], model_size="full").model
    with Dataset.open(store) as data:
        table = count_pairs(
            lambda: ((r, np.zeros(r.n_rows, bool)) for b, _ in masked_blocks(data, None)
                     for r, _ in b.rows_by_label()),
            data.n_features, data.n_classes, max_pairs=1 << 20, mark_bytes=1 << 20, threads=1,
        )  # fmt: skip
        whole = model.counts.plain().as_lists()
        lost = np.random.default_rng(0).random(len(whole.gains)) < 0.1
        lengths = np.add.reduceat(~lost, whole.starts[:-1]) * (np.diff(whole.starts) > 0)
        less = replace(
            whole, starts=ends(lengths), classes=whole.classes[~lost], gains=whole.gains[~lost]
        )
        features, rng, k = data.features, np.random.default_rng(2), model.spec.n_classes

        def weighed(known):
            weights = as_before(table, known, features, k)
            return weigh(table, weights).as_lists()

        ids = np.unique(rng.integers(len(model.features) * k, size=500))
        names = NamePairs(
            features=(ids // k).astype(np.int32), classes=(ids % k).astype(np.int32),
            gains=rng.integers(1, 3000, len(ids)).astype(np.int16),
            words=np.zeros(len(model.features), np.int16),
        )  # fmt: skip
        found, few = (weighed(replace(model, counts=counts)) for counts in (whole, less))
        named = weighed(replace(model, counts=whole.with_pairs(names), names=names))
        ids = model.features.ids_of(features)
        known = np.random.default_rng(1).random(len(ids)) < 0.8
        some = weighed(of_features(model, known))
    assert np.array_equal(named.gains, found.gains)  # what names add is left out
    assert np.array_equal(found.penalty, whole.penalty[ids])
    assert np.array_equal(some.penalty[known], found.penalty[known])
    assert np.isin(some.penalty, found.penalty).all()
    assert found.hashed == whole.hashed
    assert np.abs(found.base - whole.base).max() < 0.02
    wanted, kept, said, guessed = map(gains_by_pair, (whole, less, found, few))
    assert all(abs(said[pair] - gain) <= 1 for pair, gain in wanted.items())
    assert all(abs(guessed[pair] - gain) <= 1 for pair, gain in kept.items())
    more = [(guessed[pair], gain) for pair, gain in wanted.items() if pair not in kept]
    assert len(more) > 50
    assert np.corrcoef(np.transpose(more))[0, 1] > 0.3


def gains_by_pair(counts):
    features = np.repeat(np.arange(counts.n_features), np.diff(counts.starts))
    pairs = zip(features.tolist(), counts.classes.tolist(), strict=True)
    return dict(zip(pairs, counts.gains.tolist(), strict=True))


def some_words(rng, n, classes, label, own):
    """Rows of frequent words, and two of six of their class or, of every class, of none."""
    for c in rng.integers(classes, size=n):
        row = own(c) + [f"w{j}" for j in rng.integers(60, size=6)]
        yield f"{label}{c} |x {' '.join(row)} z{c % 4}"


def test_a_day_of_one_source_and_new_classes_spoils_nothing(tiny, rng):
    """Of the day's rows three in four are of new classes, which hashed models hardly learn."""

    def usual(n):
        def own(c):
            return [f"own{c}_{j}" for j in rng.integers(6, size=2 * (rng.random() < 0.7))]

        return list(some_words(rng, n, 40, "k", own))

    def store(name, lines, **options):
        sm.convert(tiny.text(f"{name}.vw", lines), tiny.folder / name, threads=1, **options)
        return tiny.folder / name

    old = store("old.zarr", usual(3000))
    run = trained(old, tiny.folder / "run", {"n_buckets": 16, "n_repetitions": 8})
    lines = usual(200) + list(some_words(rng, 600, 30, "n", lambda c: [f"doc{c}"]))
    went = gone_on(store("new.zarr", lines, extend=old), run.path, tiny.folder / "went")
    test = store("test.zarr", usual(1000), like=old)
    before, after = (sm.evaluate(model, test).accuracy for model in (run.model, went.model))
    assert after > before - 0.02
    new = went.held_out[went.held_out >= 3000] - 3000
    assert len(new) > 20
    assert all(lines[i].startswith("k") for i in new)


def test_new_labels_of_few_rows_do_not_come_before_old_ones(tiny):
    """No label of the run is as rare: by its weights, which go by ln n, new ones would be best."""
    old = day(tiny, lists, "o", 2000, 25)
    run = trained(old, tiny.folder / "run", SHAPES["alone"])
    new, told = day(tiny, lists, "new", 300, 28, extend=old), []
    with Dataset.open(new) as data:
        start = sm.Start.of(run.path, data)
        plan = start.plan(data, Constraints(threads=1))
        callback = SimpleNamespace(on_message=told.append)
        trainer = sm.Trainer(plan, sm.TrainingOptions(), start=start, callbacks=[callback])
        went = trainer.fit(data, tiny.folder / "went")
    test, all_ = (day(tiny, lists, f"test{k}", 800, k, like=new) for k in (25, 28))
    (before, some), (after, more) = (
        [sm.evaluate(model, store).accuracy for store in (test, all_)]
        for model in (run.model, went.model)
    )
    assert (after > before - 0.02, more > some - 0.02) == (True, True)
    assert any(f"add {less:g} nats less" in str(line) for line in told for less in LESS)


def test_totals_of_new_classes_are_those_of_a_rare_old_one(rng):
    rows = rng.permutation(np.arange(1, 101))
    values = rows * rng.integers(2, 9, 100)
    table = SimpleNamespace(
        class_rows=np.append(rows, [1, 80]), class_values=np.append(values, [3, 900])
    )
    raise_totals(table, 100)
    for totals, own, new in (
        (table.class_rows, rows, [1, 80]), (table.class_values, values, [3, 900])
    ):  # fmt: skip
        assert np.array_equal(totals[:100], own)
        least, raised = totals[100], np.maximum(new, totals[100])
        assert np.array_equal(totals[100:], raised)
        below, upto = (rows[op(own, least)].sum() for op in (np.less, np.less_equal))
        assert below < RAREST * rows.sum() <= upto


def test_what_cannot_be_gone_on_from_is_refused(first, tiny):
    other = day(tiny, vw, "other", OLD, 12)
    old, run = first("vw", "hashed")
    new, odd = day(tiny, vw, "new", NEW, 15, extend=old), day(tiny, vw, "odd", 60, 9, extend=other)
    for store in (old, odd):
        with pytest.raises(MismatchError, match="does not extend the store of"):
            gone_on(store, run.path, tiny.folder / "out")
    plan, fixed = sm.plan(old, threads=1, **HASHED), {"learning_rate": 0.5, "transform": "binary"}
    free = fit(old, tiny.folder / "free", plan, epochs=1, **fixed)
    with Dataset.open(new) as data:  # what was free then may be no more
        assert [sm.Start.of(one.path, data).memory for one in (run, free)] == [900_000_000, None]
    few = day(tiny, vw, "few", 100, 15, extend=old)
    with pytest.raises(UsageError, match="rows are new and of known classes, 100 are needed"):
        gone_on(few, run.path, tiny.folder / "out")
    with pytest.raises(BudgetError):
        gone_on(new, run.path, tiny.folder / "out", memory="100MB")
    with Dataset.open(new) as data, pytest.raises(UsageError, match="the run has a shape"):
        sm.Start.of(run.path, data).plan(data, Constraints(n_buckets=4, n_repetitions=2))
    assert not (tiny.folder / "out").exists()


def test_the_command_goes_on_and_replaces_own_runs_alone(tiny, capsys, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    old = day(tiny, vw, "old", OLD, 12)
    day(tiny, vw, "new", NEW, 15, extend=old)
    trained(old, "run", HASHED)
    command = ["train", "new.zarr", "--start", "run", "--out", "went", "--threads", "1"]
    command += ["--memory", "900MB", "--progress", "none"]
    assert main(command) == 0
    assert "it starts from" in capsys.readouterr().out
    assert main([*command, "--part", "1/2"]) == 2
    capsys.readouterr()
    for option in ("--transform l2", "--loss joint", "--optimizer sgd", "--label-smoothing 0.3"):
        assert main([*command, "--force", *option.split()]) == 2
        decided = f"the run decided that already: {option.split()[0]}, --start"
        assert decided in capsys.readouterr().err
    assert main(command) == 2
    (tiny.folder / "went" / "mine.txt").write_text("mine")
    assert main([*command, "--force"]) == 2
    (tiny.folder / "went" / "mine.txt").unlink()
    capsys.readouterr()
    said = Model.load("run").training  # the same may be said
    same = ["--transform", said.transform, "--loss", said.loss, "--whitening", "off"]
    assert main([*command, *same, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["training"]["epochs"] == 1
    assert Model.load("went").spec.n_classes == 15


def test_a_run_with_weights_of_classes_knows_its_store(tiny, capsys, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    old = day(tiny, vw, "old", OLD, 12)
    day(tiny, vw, "new", NEW, 15, extend=old)
    said = ["--class-weight", "balanced", "--threads", "1", "--progress", "none"]
    shape = ["--memory", "900MB", "--buckets", "8", "--repetitions", "4", "--epochs", "1"]
    assert main(["train", "old.zarr", "--out", "run", *shape, *said, "--counts", "off"]) == 0
    assert main(["train", "new.zarr", "--start", "run", "--out", "went", *said[2:]]) == 2
    assert "trained with weights of classes: --class-weight: run" in capsys.readouterr().err
    assert main(["train", "new.zarr", "--start", "run", "--out", "went", *said]) == 0
    assert Model.load("went").counts is None  # they are not begun where the run has none
    assert main(["shrink", "went", "--out", "small", "--min-count", "12"]) == 0
    assert len(Model.load("small").features) < len(Model.load("went").features)
