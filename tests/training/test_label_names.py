"""Names of labels in trainings: what they bring, by every door, and what becomes of them."""

import contextlib
import io

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.model.size import size_in_file, size_in_memory
from streammach.store.dataset import Dataset
from streammach.store.label_facts import LabelFacts
from streammach.system.errors import DataError, UsageError

K, UNSEEN = 600, 40  # labels of rows, and labels that have a name alone
SYLLABLES = [f"{a}{b}{c}" for a in "bdfgklmn" for b in "aeiou" for c in "rst"]
WORDS = [a + b for a in SYLLABLES[:20] for b in SYLLABLES[20:60]]
OPTIONS = {
    "memory": "1GB", "n_buckets": 32, "n_repetitions": 2, "epochs": 1, "learning_rate": 1.0,
    "transform": "l2", "held_out_rows": 150
}  # fmt: skip


def rows_of(rng, n, labels):
    """Texts that have the words of the names of their labels, beside others, and the labels."""
    texts, lists = [], []
    for _ in range(n):
        own = rng.choice(labels, 2, replace=False)
        noise = [f"noise{i}" for i in rng.integers(0, 30, 4)]
        texts.append(" ".join(rng.permutation([*(WORDS[i] for i in own), *noise])))
        lists.append([f"l{i}" for i in own])
    return texts, lists


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    names = {f"l{i}": WORDS[i].capitalize() for i in range(K + UNSEEN)}
    texts, lists = rows_of(rng, 1200, K)
    # A word of each name that no row of the label has makes it known to the model.
    texts, lists = [*texts, *WORDS[K : K + UNSEEN]], [*lists, *[["l0"]] * UNSEEN]
    return texts, lists, names, rows_of(rng, 200, K), rows_of(rng, 60, [*range(K, K + UNSEEN)])


@pytest.fixture(scope="module")
def run(data):
    texts, lists, names, *_ = data
    with sm.train(texts, lists, label_names=names, **OPTIONS) as made:
        yield made


def precision(model, rows):
    texts, lists = rows
    best = model.predict(texts)
    return np.mean([label in own for label, own in zip(best, lists, strict=True)])


def test_names_make_predictions_of_labels_with_few_rows_better(data):
    texts, lists, names, test, _ = data
    some = texts[:450], lists[:450]
    reached = []
    for given in (None, names):
        with sm.train(*some, label_names=given, **OPTIONS) as made:
            reached.append(sm.evaluate(made.model, *test).accuracy)
            assert (made.model.names is None) == (given is None)
    assert reached[1] > reached[0] + 0.05


def test_a_model_has_the_names(data, run):
    names = data[2]
    assert any("names of labels weigh" in reason for reason in run.result.reasons)
    assert [run.model.titles[i] for i in range(3)] == [names[x] for x in run.model.labels[:3]]
    assert run.model.names.n_bytes > 0


def test_labels_without_rows_are_predicted(data, run):
    *_, unseen = data
    assert run.model.spec.n_classes == K + UNSEEN
    found = sm.evaluate(run.model, *unseen)
    assert found.n_unseen == 0
    assert found.sets.recall[5] > 0.5


def test_reasons_have_a_line_for_the_name_and_add_up(data, run):
    texts, _, names, *_ = data
    for text, row in zip(texts[:20], run.model.explain(texts[:20], k=3, n=100), strict=True):
        for why in row:
            parts = sum(one.contribution for one in why.contributions) + sum(why.lines.values())
            assert parts == pytest.approx(why.score, abs=1e-4)
            assert (why.lines["name"] > 0) == (names[why.label].lower() in text.split())


def test_smaller_and_saved_models_keep_them(run, tmp_path):
    run.model.save(tmp_path / "whole")
    for model in (run.model, sm.shrink(tmp_path / "whole", tmp_path / "small", weights="int4")):
        model.save(tmp_path / "model", force=True)
        again = sm.Model.load(tmp_path / "model")
        assert again.titles.same_as(model.titles)
        for name, array in model.names.arrays().items():
            assert np.array_equal(array, again.names.arrays()[name])
        assert size_in_file(tmp_path / "model").n_bytes == size_in_memory(again).n_bytes


@pytest.mark.parametrize("kind", ["without counts", "linear"])
def test_labels_that_only_a_name_tells_are_not_said_where_names_add_nothing(kind, data, request):
    texts, lists, names, *_, unseen = data
    few = [i for i, own in enumerate(lists) if own[0] in {f"l{n}" for n in range(40)}]
    some, y = [texts[i] for i in few], [lists[i][0] for i in few]
    options = OPTIONS | {"counts": "off"}
    if kind == "linear":
        request.getfixturevalue("linear")
        options = {"memory": "1GB"}
    own = {label: name for label, name in names.items() if int(label[1:]) < 42}
    with sm.train(some, y, label_names=own, **options) as made:
        model = made.model
        assert any("labels without rows are not said" in why for why in made.result.reasons)
        assert (model.linear is not None) == (kind == "linear")
        assert model.n_labels == len({*y}) < model.spec.n_classes
        assert {*model.predict([*some, *unseen[0]])} <= {*y}


N_NEW = 40  # labels that are added to a model, whose words it knows


@pytest.fixture(scope="module")
def partial_run(data, tmp_path_factory):
    """A model without the last labels, in whose rows their words stand; names of these; rows."""
    texts, lists, names, *_ = data
    gone = {f"l{i}" for i in range(K - N_NEW, K)}
    kept = [i for i, own in enumerate(lists) if not gone & {*own}]
    some = {label: name for label, name in names.items() if label not in gone}
    texts = [texts[i] for i in kept] + WORDS[K - N_NEW : K]
    lists = [lists[i] for i in kept] + [["l0"]] * N_NEW
    folder = tmp_path_factory.mktemp("partial")
    with sm.train(texts, lists, label_names=some, out=folder / "run", **OPTIONS) as made:
        assert made.model.names is not None
    return folder, {label: names[label] for label in sorted(gone)}


def test_labels_with_names_alone_are_added_and_predicted(partial_run, tmp_path):
    folder, new = partial_run
    rows = rows_of(np.random.default_rng(8), 80, [*range(K - N_NEW, K)])
    (tmp_path / "new.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in new.items()))
    words = ["add", str(folder / "run"), "--label-names", str(tmp_path / "new.tsv")]
    assert main([*words, "--out", str(tmp_path / "more")]) == 0
    before, model = sm.Model.load(folder / "run"), sm.Model.load(tmp_path / "more")
    k = before.spec.n_classes
    assert [*model.labels][k:] == [*new]
    assert dict(zip([*model.labels], [*model.titles], strict=True)).items() >= new.items()
    found = sm.evaluate(model, *rows)
    assert found.n_unseen == 0
    assert found.sets.recall[5] > 0.5
    # The others keep their scores, and reasons have a line for the new names.
    known = rows_of(np.random.default_rng(8), 20, K - N_NEW)[0]
    for text in known:
        old, now = (dict(zip(*map(np.ravel, one.predict_topk([text], n)), strict=True))
                    for one, n in ((before, 2), (model, 50)))  # fmt: skip
        assert old == {label: now[label] for label in old}
    for row in model.explain(rows[0][:9], k=2):
        for why in row:
            parts = sum(one.contribution for one in why.contributions) + sum(why.lines.values())
            assert parts == pytest.approx(why.score, abs=1e-4)
    assert any(why.lines["name"] > 0 for [why] in model.explain(rows[0][:9]))
    sm.shrink(tmp_path / "more", tmp_path / "small", weights="int4")
    label, name = next(iter(new.items()))
    added = sm.add(tmp_path / "small", label_names={"another": name})
    assert {*added.predict([name.lower()], 2)[0]} == {"another", label}


def test_names_of_added_labels_with_rows_make_them_better(partial_run, tmp_path):
    folder, new = partial_run
    rng = np.random.default_rng(9)
    texts, lists = rows_of(rng, N_NEW, [*range(K - N_NEW, K)])
    table = "".join(f"{b}\t{' '.join(a)}\n" for a, b in zip(lists, texts, strict=True))
    (tmp_path / "new.tsv").write_text("text\ty\n" + table)
    sm.convert(
        tmp_path / "new.tsv", tmp_path / "new.zarr", text="text", label="y", label_separator=" "
    )
    test = rows_of(rng, 80, [*range(K - N_NEW, K)])
    half = dict([*new.items()][: N_NEW // 2]) | {"beyond": f"{WORDS[0]} {WORDS[1]}"}
    reached = []
    for names in (None, half, new | half):
        model = sm.add(folder / "run", tmp_path / "new.zarr", label_names=names)
        assert ("beyond" in [*model.labels]) == (names is not None)
        reached.append(sm.evaluate(model, *test).accuracy)
    assert reached[0] < reached[1] < reached[2]


@pytest.mark.parametrize(
    ("trained", "names", "message"),
    [
        ("with", None, "neither rows nor names of new labels"),
        ("without", {"new": "x"}, "does not know what words of names weigh"),
        ("with", {7: "x"}, None),
    ],
)
def test_names_that_cannot_be_added_are_refused(trained, names, message, partial_run, tmp_path):
    folder, _ = partial_run
    run = folder / "run"
    if trained == "without":
        with sm.train(
            [*WORDS[:300]],
            [f"l{i % 9}" for i in range(300)],
            n_repetitions=0,
            memory="1GB",
            linear="off",
        ) as made:
            made.model.save(run := tmp_path / "run")
    if message is None:
        with pytest.warns(UserWarning, match="1 new labels have no name with a known word"):
            sm.add(run, label_names=names)
        return
    with pytest.raises(UsageError, match=message):
        sm.add(run, label_names=names)


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """A folder with the rows as a store, and with a file of the names."""
    tmp_path = tmp_path_factory.mktemp("files")
    texts, lists, names, *_ = data
    table = "text\tsubjects\n" + "".join(
        f"{text}\t{' '.join(own)}\n" for text, own in zip(texts, lists, strict=True)
    )
    (tmp_path / "rows.tsv").write_text(table)
    (tmp_path / "names.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in names.items()))
    convert = ["convert", str(tmp_path / "rows.tsv"), str(tmp_path / "t.zarr")]
    assert main([*convert, "--label", "subjects", "--label-separator", " ", "--text", "text"]) == 0
    return tmp_path


def command(files, *more):
    return [
        "train", str(files / "t.zarr"), "--memory", "1GB", "--buckets", "32", "--repetitions", "2",
        "--epochs", "1", "--learning-rate", "1", "--transform", "l2",
        *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def named(files):
    """A run of the command with the names, and what it says."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        words = "--out", str(files / "whole"), "--label-names", str(files / "names.tsv")
        assert main(command(files, *words)) == 0
    return files / "whole", said.getvalue()


def test_a_command_and_the_function_make_the_same_model(files, named, data):
    out, said = named
    assert "names of labels weigh" in said
    texts, lists, *_ = data
    options = {name: value for name, value in OPTIONS.items() if name != "held_out_rows"}
    with sm.train(texts, lists, label_names=files / "names.tsv", **options) as made:
        own, model = made.model, sm.Model.load(out)
        assert [*model.predict(texts[:50])] == [*own.predict(texts[:50])]
        for name, array in own.names.arrays().items():
            assert np.array_equal(array, model.names.arrays()[name])


def test_parts_and_merges_are_told_the_names(files, named, tmp_path, capsys):
    names = "--label-names", str(files / "names.tsv")
    for part in "12":
        out = str(tmp_path / f"part{part}")
        assert main(command(files, "--out", out, "--part", f"{part}/2", *names)) == 0
    parts = [str(tmp_path / "part1"), str(tmp_path / "part2")]
    assert main(["merge", str(tmp_path / "wrong"), *parts]) == 4
    assert "another store" in capsys.readouterr().err
    assert main(["merge", str(tmp_path / "merged"), *parts, *names]) == 0
    whole, merged = sm.Model.load(named[0]), sm.Model.load(tmp_path / "merged")
    for name, array in whole.arrays().items():
        assert np.array_equal(array, merged.arrays()[name]), name


@pytest.mark.parametrize("shape", ["hashed", "exact", "counts"])
def test_a_training_that_goes_on_weighs_names_anew(shape, files, data, tmp_path, capsys):
    """Some labels of which only names were known have rows now, and new ones have names alone."""
    _, _, names, test, unseen = data
    rng, newer = np.random.default_rng(11), names | {"new": WORDS[-1]}
    texts, lists = rows_of(rng, 600, [*range(300), *range(K, K + 20)])
    rows = "".join(f"{a}\t{' '.join(b)}\n" for a, b in zip(texts, lists, strict=True))
    (tmp_path / "more.tsv").write_text(f"text\tsubjects\n{rows}{WORDS[-1]} more\tmet\n")
    (tmp_path / "newer.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in newer.items()))
    run, old, new = str(tmp_path / "run"), str(files / "t.zarr"), str(tmp_path / "new.zarr")
    first = command(files, "--out", run, "--label-names", str(files / "names.tsv"))
    at = first.index("--buckets")  # and the repetitions behind them
    first[at : at + 4] = {
        "hashed": ["--buckets", "32", "--repetitions", "2"],
        "counts": ["--repetitions", "0"],
        "exact": ["--buckets", "1024", "--repetitions", "1"],
    }[shape]
    assert main(first) == 0
    assert main(["convert", str(tmp_path / "more.tsv"), new, "--extend", old]) == 0
    start = ["train", new, "--start", run, "--out", str(tmp_path / "went"), "--memory", "1GB"]
    capsys.readouterr()
    assert main(start) == 2
    assert "it was trained with names of labels: --label-names: " in capsys.readouterr().err
    assert main([*start, "--label-names", str(tmp_path / "newer.tsv")]) == 0
    assert "names of labels weigh" in capsys.readouterr().out
    before, model = sm.Model.load(run), sm.Model.load(tmp_path / "went")
    assert model.spec.exact == before.spec.exact == (shape == "exact")
    assert {*model.labels} == {*before.labels, "new", "met"}
    assert [*model.labels].index("l620") != [*before.labels].index("l620")
    known, now = (sm.evaluate(one, *test).accuracy for one in (before, model))
    assert now > known - 0.03
    assert sm.evaluate(model, *rows_of(rng, 100, range(K, K + 20))).sets.recall[5] > 0.9
    assert sm.evaluate(model, *unseen).sets.recall[5] > 0.5
    assert model.predict([f"{WORDS[-1]} noise1"], 5)[0].tolist().count("new") == 1


def test_labels_are_names_themselves(data):
    texts, lists, names, *_ = data
    lists = [[names[label] for label in own] for own in lists]
    with sm.train(texts, lists, label_names="labels", **OPTIONS) as made:
        assert made.model.names is not None
        assert {*made.model.labels} == {label for own in lists for label in own}
        assert [*made.model.titles] == [*made.model.labels]


def test_one_label_a_row_and_the_estimator(data):
    texts, lists, names, *_ = data
    y = [own[0] for own in lists]
    with sm.train(texts, y, label_names=names, linear="off", **OPTIONS) as made:
        assert made.model.spec.n_classes == K + UNSEEN  # labels of some names have no row, too
        estimator = sm.MACHClassifier(
            memory="1GB", n_buckets=32, n_repetitions=2, epochs=1, learning_rate=1.0,
            label_names=names, options={"transform": "l2", "held_out_rows": 150, "linear": "off"},
        ).fit(texts, y)  # fmt: skip
    assert len(estimator.classes_) == len({*y}) == estimator.model_.spec.n_classes
    assert estimator.model_.titles is not None


def test_a_view_says_what_it_is(files, data):
    _, _, names, *_ = data
    with Dataset.open(files / "t.zarr") as plain:
        view, n = LabelFacts(names=names).view(plain), plain.n_classes
        assert view.n_classes == K + UNSEEN
        assert view.digest != plain.digest == view.store_digest
        assert not view.label_counts[n:].any()
        assert view.facts.label_name_bytes > 0 == plain.facts.label_name_bytes
        first = view.first(100)
        assert first.label_names is view.label_names
        assert first.n_classes == K + UNSEEN
        other = LabelFacts(names=names | {"l0": "another"}).view(plain)
        assert other.digest != view.digest
        assert LabelFacts(names=names, add=False).view(plain).n_classes == n


def test_labels_that_are_integers_stay_integers(data):
    texts, lists, *_ = data
    y = [int(own[0][1:]) for own in lists]
    names = {label: f"name {label}" for label in y}
    with pytest.raises(UsageError, match="'other' is no integer, as other labels are"):
        sm.train(texts, y, label_names=names | {"other": "x"}, **OPTIONS)
    with sm.train(texts, y, label_names=names | {7_000: "x"}, linear="off", **OPTIONS) as made:
        assert made.model.predict(texts[:5]).dtype.kind == "i"
        assert 7_000 in [*made.model.labels]


@pytest.mark.parametrize(
    ("names", "language", "message"),
    [
        ({"other": "x"}, None, "no label of the rows has a name there"),
        (None, "de", "a language of names without names"),
        ({"l0": 3}, None, "no text and no list of texts"),
        ({"x" * 5000: "long", "l0": "x"}, None, "has no byte, or more than 4,095"),
        (7, None, "int is no file, no mapping"),
        ({"l0": "x"}, 3, "label_language|no language"),
    ],
)
def test_names_that_cannot_be_are_refused_in_a_line(names, language, message, data):
    texts, lists, *_ = data
    with pytest.raises((UsageError, DataError), match=message):
        sm.train(texts, lists, label_names=names, label_language=language, **OPTIONS)
