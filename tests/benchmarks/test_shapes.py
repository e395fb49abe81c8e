"""The benchmark of shapes: its figures, its rules, and what it makes tables of."""

import json

import numpy as np
import pytest

from benchmarks.data.shapes import fields_of, package, parted
from benchmarks.shapes import OWN, draw, figures_of, rules, summary, systems_of


def test_figures_are_those_of_scikit_learn(rng):
    metrics = pytest.importorskip("sklearn.metrics")
    truth = rng.integers(0, 6, 500)
    answers = np.where(rng.random(500) < 0.7, truth, rng.integers(0, 9, 500))
    found = figures_of(answers, truth)
    assert found["accuracy"][0] == pytest.approx((answers == truth).mean())
    wanted = metrics.f1_score(truth, answers, average="macro", zero_division=0)
    assert found["macro_f1"][0] == pytest.approx(wanted)
    assert 0.005 < found["macro_f1"][1] < 0.05
    tags = figures_of([["a", "b"], ["c", "d"]], [["a"], ["d", "e"]])
    assert (tags["p1"][0], tags["p5"][0]) == (0.5, 0.5)


def test_a_package_is_read_from_its_paragraph():
    text = """Package: two
Source: one (1.2)
Description: a title
Section: contrib/net
Maintainer: A B <a@b>
Tag: x::y, z,
 w
Homepage: https://www.example.org/a"""
    found = package(fields_of(text))
    assert (found["source"], found["section"], found["maintainer"]) == ("one", "net", "A B")
    assert (found["tags"], found["home"]) == (["x::y", "z", "w"], "example.org")
    assert np.isnan(found["size"])


def test_test_rows_are_a_share_of_all(rng):
    pandas = pytest.importorskip("pandas")
    train, test = parted(pandas.DataFrame({"a": range(100)}), seed=1, train=50)
    assert (len(train), len(test)) == (50, 20)
    assert not {*train["a"]} & {*test["a"]}


def lines_of(system, accuracy, seconds=1.0, shape="iris"):
    figures = {"accuracy": [accuracy, 0.01], "macro_f1": [accuracy, 0.01]}
    return [{"shape": shape, "system": system, "seed": seed, "seconds": seconds, **figures}
            for seed in (0, 1)]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "linear", "other", "expected"),
    [
        (0.90, 0.90, 0.91, (True, True)), (0.895, 0.90, 0.90, (True, True)),
        (0.89, 0.90, 0.90, (False, True)), (0.90, 0.88, 0.93, (True, False)),
    ],
)  # fmt: skip
def test_rules_are_of_one_error_and_of_two_points(own, linear, other, expected):
    by_system = {
        "sm.train": lines_of("sm.train", own), "LogisticRegression": lines_of("L", linear),
        "SVC": lines_of("SVC", other), "MACHClassifier": [{"seed": 0, "error": "none"}],
    }  # fmt: skip
    found = rules(by_system, ("accuracy", "macro_f1"))
    assert (found["sm.train"]["linear"], found["sm.train"]["any"]) == expected
    assert not found["MACHClassifier"]["any"]
    assert found["sm.train"]["seconds"]
    slow = rules(by_system | {"sm.train": lines_of("sm.train", own, 11.0)}, ("accuracy",))
    assert not slow["sm.train"]["seconds"]


def test_all_is_told_and_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    lines = [line for i, system in enumerate(systems_of("iris"))
             for line in lines_of(system, 0.9 - i / 100)]  # fmt: skip
    shapes = summary(lines)
    assert json.loads(json.dumps(shapes))["iris"]["systems"]["SVC"]["accuracy"][0] == 0.86
    assert set(shapes["iris"]["by_seed"]) == {"0", "1"}
    draw(shapes, tmp_path / "a.svg")
    assert "MACHClassifier beside" in (tmp_path / "a.svg").read_text()
    assert OWN[0] in (tmp_path / "a.svg").read_text()
