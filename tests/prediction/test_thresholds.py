"""From which probability on labels have a precision or a recall: by held-out rows, by name."""

import json
from dataclasses import replace

import numpy as np
import pytest

import streammach as sm
from streammach.cli.main import main
from streammach.model.calibration import fit_calibration
from streammach.model.model import Model
from streammach.model.thresholds import LEAST_LABEL, TRUST, Curve, curves_of
from streammach.rows.label_lists import LabelLists
from streammach.system.errors import ModelError, UsageError
from tests.builders import block_of, listed_lines
from tests.model.models import model_of

LABELS = 12


def answers(rng, n=600, importance=None):
    """Rows with lists, what is said of them, and the probability of each, which is the truth."""
    ids = np.array([rng.permutation(LABELS)[:8] for _ in range(n)])
    p = np.sort(rng.random(ids.shape) ** 2, axis=1)[:, ::-1].round(2)
    there = rng.random(p.shape) < p
    own = [[*i[t].tolist(), -1] for i, t in zip(ids, there, strict=True)]  # one was never seen
    lists = LabelLists.of(own)
    rows = replace(block_of(rng, n, 9, 4), classes=lists.first, importance=importance)
    return rows.with_labels(lists), ids, p


def plain_reached(rows, ids, p, threshold, label=None):
    """How many labels are said, how many of them are right, how many there are."""
    said = right = there = 0
    for i, w in enumerate(rows.weights.tolist()):
        own = rows.lists.classes[rows.lists.starts[i] : rows.lists.starts[i + 1]].tolist()
        there += w * sum(label in (None, c) for c in own)
        for c, x in zip(ids[i].tolist(), p[i].tolist(), strict=True):
            if x > 0 and x >= threshold and label in (None, c):
                said, right = said + w, right + w * (c in own)
    return said, right, there


@pytest.mark.parametrize("weighted", [False, True])
def test_curves_are_those_of_plain_counts(weighted, rng):
    weights = rng.integers(0, 4, 600).astype(np.float32) if weighted else None
    rows, ids, p = answers(rng, importance=weights)
    common, *each = curves_of(rows, ids, p)
    assert len(common.thresholds) == 100
    assert (np.diff(common.recalls) >= 0).all()
    assert (np.diff(common.thresholds) <= 0).all()
    for place in range(0, 100, 9):
        said, right, there = plain_reached(rows, ids, p, common.thresholds[place])
        assert common.precisions[place] == pytest.approx(right / said, abs=2e-5)
        assert common.recalls[place] == pytest.approx(right / there, abs=2e-5)
    assert {curve.label for curve in each} == set(range(LABELS))
    for curve in each[:3]:
        said, right, there = plain_reached(rows, ids, p, curve.thresholds[6], curve.label)
        pull = np.interp(curve.thresholds[6], common.thresholds[::-1], common.precisions[::-1])
        wanted = (right + TRUST * pull) / (said + TRUST)
        assert curve.precisions[6] == pytest.approx(wanted, abs=1e-4)
        assert curve.recalls[6] == pytest.approx(right / there, abs=2e-5)


def test_rows_that_weigh_nothing_are_no_rows(rng):
    rows, ids, p = answers(rng, importance=(np.arange(600) < 400).astype(np.float32))
    assert curves_of(rows, ids, p) == curves_of(rows.part(0, 400), ids[:400], p[:400])
    none = replace(rows, importance=np.zeros(600, np.float32))
    assert curves_of(none, ids, p) == ()


def test_labels_with_few_right_rows_have_no_curve(rng):
    rows, ids, p = answers(rng, 110)
    right = rows.lists.match(ids)
    enough = np.flatnonzero(np.bincount(ids[right], minlength=LABELS) >= LEAST_LABEL)
    common, *each = curves_of(rows, ids, p)
    assert [curve.label for curve in each] == enough.tolist()
    assert 0 < len(each) < LABELS
    assert len(common.thresholds) == right.sum() // 10


def test_a_precision_has_its_lowest_threshold_and_a_recall_its_highest(rng):
    curve = Curve((0.9, 0.7, 0.5, 0.3), (0.8, 0.9, 0.8, 0.6), (0.1, 0.3, 0.5, 0.7))
    model = model_of(rng, calibration=replace(model_of(rng).calibration, curves=(curve,)))
    assert model.threshold(precision=0.8) == 0.5
    assert model.threshold(precision=0.85) == 0.7
    assert model.threshold(recall=0.3) == 0.7
    assert model.threshold(recall=0.31) == 0.5
    own = Curve((0.8, 0.2), (0.7, 0.6), (0.2, 0.9), label=3)
    curves = replace(model.calibration, curves=(curve, own))
    model = replace(model, calibration=curves)
    each = model.threshold(precision=0.65, per_label=True)
    assert (each[3], each[4], each.shape) == (0.8, 0.5, (model.spec.n_classes,))
    assert model.threshold(precision=0.8, per_label=True)[3] == 1
    assert model.threshold(recall=0.7, per_label=True)[3] == 0.2


@pytest.mark.parametrize(
    ("asked", "said"),
    [({}, "one of both"), ({"precision": 0.5, "recall": 0.5}, "one of both"),
     ({"precision": 0.0}, "0.0 is no share above 0"), ({"recall": 1.1}, "1.1 is no share"),
     ({"recall": float("nan")}, "nan is no share"),
     ({"precision": 0.95}, "no threshold has a precision of 0.95.*The highest is 0.900"),
     ({"recall": 0.8}, "no threshold has a recall of 0.8.*The highest is 0.700")],
)  # fmt: skip
def test_what_cannot_be_is_one_line(asked, said, rng):
    curve = Curve((0.9, 0.3), (0.9, 0.6), (0.1, 0.7))
    model = model_of(rng, calibration=replace(model_of(rng).calibration, curves=(curve,)))
    with pytest.raises(UsageError, match=said):
        model.threshold(**asked)
    with pytest.raises(UsageError, match="no held-out rows tell a recall"):
        model_of(rng).threshold(recall=0.5)


def test_a_model_keeps_its_curves_and_refuses_others(rng, tmp_path):
    rows, ids, p = answers(rng)
    scores = np.log(p + 0.01).astype(np.float32)
    fitted = fit_calibration(rows, lambda *_: (ids, scores), LABELS)
    model = model_of(rng, k=LABELS, calibration=replace(fitted, lead=0.0, level=0.0))
    model.save(tmp_path / "model")
    assert Model.load(tmp_path / "model").calibration == model.calibration
    document = tmp_path / "model/model.json"
    for change in ({"label": LABELS}, {"recalls": []}):
        content = json.loads(document.read_text())
        content["calibration"]["curves"][1] |= change
        (tmp_path / "model/model.json").write_text(json.dumps(content))
        with pytest.raises(ModelError, match="a curve"):
            Model.load(tmp_path / "model")


@pytest.fixture(scope="module", params=["lists", "one label"])
def run(request, tmp_path_factory):
    """A run on rows with lists or with one label each, and rows like its own."""
    folder, rng = tmp_path_factory.mktemp("run"), np.random.default_rng(5)
    lines = [line for line in listed_lines(rng, 1600) if not line.startswith(" ")]
    if request.param == "one label":
        lines = [f"c{i % 9} |x w{i % 9 if rng.random() < 0.7 else 1} n{i % 5}" for i in range(1200)]
    for name, part in (("train", lines[:800]), ("test", lines[800:])):
        (folder / f"{name}.vw").write_text("\n".join(part) + "\n")
    options = ["--memory", "1GB", "--repetitions", "2", "--buckets", "16", "--epochs", "3",
               "--learning-rate", "0.5", "--transform", "binary"]  # fmt: skip
    assert main(["convert", str(folder / "train.vw"), str(folder / "train.zarr")]) == 0
    assert main(["train", str(folder / "train.zarr"), "--out", str(folder / "run"), *options]) == 0
    return folder


def said(capsys, *words):
    code = main([str(word) for word in words])
    return code, capsys.readouterr()


def test_commands_take_a_precision_or_a_recall(run, capsys):
    model, test = Model.load(run / "run"), run / "test.vw"
    for name in ("precision", "recall"):
        threshold = model.threshold(**{name: 0.6})
        code, out = said(capsys, "evaluate", run / "run", test, f"--{name}", 0.6, "--json")
        found = json.loads(out.out)
        assert (code, found["threshold"]) == (0, threshold)
        assert found[name] == pytest.approx(0.6, abs=0.15) or found[name] > 0.6
        wanted = sm.evaluate(model, test, threshold=threshold)
        assert (found["precision"], found["recall"]) == (wanted.precision, wanted.recall)
        tables = []
        for asked in (("--threshold", threshold), (f"--{name}", 0.6)):
            table = run / "best.tsv"
            words = ("predict", run / "run", test, *asked, "--out", table, "--force")
            assert said(capsys, *words)[0] == 0
            tables.append(table.read_text())
        assert tables[0] == tables[1]
    code, out = said(capsys, "evaluate", run / "run", test)
    assert "threshold   0.5: precision" in out.out


def test_commands_refuse_two_of_them_and_what_is_not_reached(run, capsys):
    test = run / "test.vw"
    for command in ("evaluate", "predict"):
        words = command, run / "run", test, "--threshold", 0.5, "--precision", 0.8
        code, out = said(capsys, *words)
        assert (code, "--threshold and --precision: name one of them" in out.err) == (2, True)
        code, out = said(capsys, command, run / "run", test, "--recall", 2)
        assert (code, "2.0 is no share above 0" in out.err) == (2, True)
