"""A store that extends another one: old rows, ids and names stay, new ones come behind."""

import json

import numpy as np
import pytest

from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.store.dataset import Dataset
from streammach.system.errors import UsageError
from tests.builders import listed_lines, rows_by_name


def vw(tiny, rng):
    def lines(n, classes, extra):
        return [f"c{rng.integers(classes)} {0.5 + i % 3} t{i}|x f{rng.integers(60)} {extra}{i % 7} "
                f"|y g:{i % 300}" for i in range(n)]  # fmt: skip

    return tiny.text("old.vw", lines(300, 20, "o")), tiny.text("new.vw", lines(90, 30, "n")), {}


def lists(tiny, rng):
    old, new = listed_lines(rng, 200, 15), listed_lines(rng, 60, 25)
    return tiny.text("old.vw", old), tiny.text("new.vw", new), {"multilabel": "on"}


def table(tiny, rng):
    def lines(n, classes):
        words = ("red", "green", "blue", *(f"w{i}" for i in range(classes)))
        rows = (f'k{rng.integers(classes)},"{" ".join(rng.choice(words, 3))}",{i % 5}'
                for i in range(n))  # fmt: skip
        return ["kind,title,size", *rows]

    said = {"label": "kind", "text": "title", "category": "size"}
    return tiny.text("old.csv", lines(200, 10)), tiny.text("new.csv", lines(70, 20)), said


def dense(tiny, rng):
    paths = []
    for name, n, classes in (("old", 120, 6), ("new", 50, 9)):
        np.save(tiny.folder / f"{name}.npy", rng.normal(size=(n, 8)).astype(np.float32))
        np.save(tiny.folder / f"y-{name}.npy", rng.integers(0, classes, n))
        paths.append(tiny.folder / f"{name}.npy")
    return *paths, {"labels": tiny.folder / "y-old.npy"}


KINDS = {"vw": vw, "lists": lists, "table": table, "dense": dense}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_old_rows_names_and_ids_stay(kind, threads, tiny, rng):
    old, new, said = KINDS[kind](tiny, rng)
    a, b, c = (tiny.folder / f"{name}.zarr" for name in "abc")
    convert(old, a, threads=threads, **said)
    if kind == "dense":
        said = {"labels": tiny.folder / "y-new.npy"}
    done = convert(new, b, extend=a, threads=threads, **(said if kind == "dense" else {}))
    convert(new, c, like=b, threads=threads, **(said if kind == "dense" else {}))
    assert rows_by_name(b) == sorted(rows_by_name(a) + rows_by_name(c), key=str)
    with Dataset.open(a) as before, Dataset.open(b) as after:
        assert not after.verify()
        for name in ("labels", "features"):
            was, now = getattr(before, name), getattr(after, name)
            assert [now.raw(i) for i in range(len(was))] == [was.raw(i) for i in range(len(was))]
        assert done.new_rows == after.n_rows - before.n_rows == after.n_rows - after.root.old_rows
        assert done.new_classes == after.n_classes - before.n_classes > 0
        assert done.new_features == after.n_features - before.n_features
        assert (after.columns.n_columns, after.root.recipe) == (
            before.columns.n_columns, before.root.recipe
        )  # fmt: skip
        numbers, _ = after.origins(0, after.n_rows)
        own, firsts = after.rows(0, after.n_rows), before.rows(0, before.n_rows)
        place = np.argsort(numbers)[: before.n_rows]
        assert np.array_equal(own.take(place).features, firsts.features)
        assert np.array_equal(own.take(place).lists.classes, firsts.lists.classes)
        assert not np.array_equal(np.sort(place), np.arange(before.n_rows))  # they are shuffled


def test_new_ids_go_by_frequency_and_rare_ones_stay_out(tiny):
    old = tiny.text("old.vw", ["b |x p q", "b |x p q", "a |x p"])
    new = tiny.text("new.vw", ["d |x r s t", "d |x r s", "c |x r p u", "b |x r"])
    convert(old, tiny.folder / "a.zarr", min_rows=2)
    convert(new, tiny.folder / "b.zarr", extend=tiny.folder / "a.zarr")
    with Dataset.open(tiny.folder / "b.zarr") as data:
        assert [data.labels[i] for i in range(4)] == ["b", "a", "d", "c"]
        assert [data.features[i] for i in range(data.n_features)] == ["x^p", "x^q", "x^r", "x^s"]
        assert data.feature_counts.tolist() == [4, 2, 4, 2]
        assert data.label_counts.tolist() == [3, 1, 2, 1]


def test_a_day_after_a_day_in_little_memory_gives_the_same_bytes(tiny, rng):
    def lines(n, first):
        rows = first + rng.integers(0, 3000, (n, 60))
        return [f"c{rng.integers(40)} |x " + " ".join(f"f{j}" for j in row) for row in rows]

    days = [tiny.text(f"{i}.vw", lines(400, 500 * i)) for i in range(3)]
    convert(days[0], tiny.folder / "d0")
    convert(days[1], tiny.folder / "d1", extend=tiny.folder / "d0")
    one = convert(days[2], tiny.folder / "d2", extend=tiny.folder / "d1", threads=1)
    two = convert(days[2], tiny.folder / "e2", extend=tiny.folder / "d1", threads=3)
    assert (one.digest, one.new_rows, one.n_rows) == (two.digest, 400, 1200)


def test_the_command_says_what_is_new_and_refuses_what_cannot_be(tiny, capsys, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    tiny.text("old.vw", ["b |x p q", "a |x p"])
    tiny.text("new.vw", ["d |x r"])
    assert main(["convert", "old.vw", "a.zarr"]) == 0
    assert main(["convert", "new.vw", "b.zarr", "--extend", "a.zarr"]) == 0
    assert "1 rows, 1 classes and 1 features are not in a.zarr" in capsys.readouterr().out
    assert main(["convert", "new.vw", "c.zarr", "--extend", "a.zarr", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["new_rows"], found["new_classes"], found["unseen_label_rows"]) == (1, 1, 0)
    with pytest.raises(UsageError, match="like, extend"):
        convert("new.vw", "d.zarr", like="a.zarr", extend="a.zarr")
    with pytest.raises(UsageError, match=r"a\.zarr"):
        convert("new.vw", "a.zarr", extend="a.zarr", force=True)
