"""What an evaluation tells beside accuracy: calibration, classes, estimators, repetitions."""

from dataclasses import replace

import numpy as np
import pytest

from streammach.cli.about import evaluation_lines
from streammach.model.calibration import Calibration, class_probabilities
from streammach.prediction.by_class import NamespaceValues
from streammach.prediction.evaluate import evaluate
from streammach.prediction.metric_table import rankings_of
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranked_rows import RankedRows
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from streammach.system.errors import UsageError
from tests.prediction.test_calibration import plain_ece


@pytest.fixture
def path(tiny):
    """Rows with labels; some were never seen in training."""
    lines = [*tiny.lines(150, 20), "never |w own1_0", "never |w own2_0"]
    return tiny.text("t.vw", lines)


def best_and_truth(model, path, k=20):
    """Best labels, their scores, and the label of each row."""
    with Predictor(model) as predictor:
        parts = list(predictor.stream(path, k))
        labels = np.concatenate([predictor.labels(part.ids) for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    truth = np.array([line.split()[0] for line in path.read_text().splitlines()])
    return labels, scores, truth


def test_calibration_errors_are_those_of_plain_arithmetic(trained, path):
    _, model = trained
    model = replace(model, calibration=Calibration(1.3, -4.0))
    found = evaluate(model, path)
    labels, scores, truth = best_and_truth(model, path)
    known = truth != "never"
    for map_, ece in ((model.calibration, found.ece), (Calibration(), found.ece_before)):
        p, _ = class_probabilities(scores[known], 20, map_)
        right = labels[known, 0] == truth[known]
        assert ece == pytest.approx(plain_ece(p[:, 0].tolist(), right.tolist()))
    assert found.ece != found.ece_before


def test_recall_by_class_is_that_of_plain_arithmetic(trained, path):
    data, model = trained
    found = evaluate(model, path)
    labels, _, truth = best_and_truth(model, path)
    right, names = labels[:, 0] == truth, sorted(set(truth) - {"never"})
    wanted = np.mean([right[truth == name].mean() for name in names])
    assert found.macro_recall == pytest.approx(wanted)
    for i, decile in enumerate(found.recall_by_decile):  # two classes each, frequent ones first
        rows = np.isin(truth, [data.labels.label(2 * i), data.labels.label(2 * i + 1)])
        assert (decile.n_classes, decile.n_rows) == (2, rows.sum())
        assert decile.recall == pytest.approx(right[rows].mean())
    assert (np.diff(data.label_counts) <= 0).all()


def test_estimators_are_those_of_evaluations_of_their_own(trained, path):
    _, model = trained
    with Predictor(model, estimator="median") as predictor:
        found = evaluate(predictor, path, estimators=True)
        assert list(found.estimators) == rankings_of(model) == ["logsum", "mean", "median", "min"]
    for name, figures in found.estimators.items():
        with Predictor(model, estimator=name) as predictor:
            own = evaluate(predictor, path)
        assert own.estimator == name
        assert figures["accuracy"] == pytest.approx(own.accuracy)
        assert figures["top_5_accuracy"] == pytest.approx(own.top_5_accuracy)


def test_what_a_model_does_not_have_is_refused(trained, path):
    with pytest.raises(UsageError, match="'max' is not one of"):
        Predictor(trained[1], estimator="max")
    with pytest.raises(UsageError, match="no feature of the model is in the namespace q: by"):
        evaluate(trained[1], path, by="q")


def test_rows_by_the_values_of_a_namespace():
    names = Names.of(["m^a", "x", "m^b", "m^c", "mm^a", "m^never"])
    rows = [[0], [0, 2], [1, 2], [4], [], [3, 1], [2], *[[0]] * 20, *[[2]] * 30]
    right = np.array([1, 0, 1, 1, 0, 0, 1, *[1] * 20, *[0] * 30], bool)
    block = RowBlock(
        indptr=np.cumsum([0, *map(len, rows)]), features=np.concatenate(rows).astype(np.int32),
        values=np.ones(sum(map(len, rows)), np.float32), classes=np.zeros(len(rows), np.int32),
    )  # fmt: skip
    values = NamespaceValues(names, "m")
    for start, stop in ((0, 5), (5, 40), (40, len(rows))):
        best = np.where(right[start:stop], 0, 1)[:, None]  # the label is 0
        rows = RankedRows(None, block.part(start, stop), best, None)
        values.take(values.count(rows))
    found = values.slices()
    shown = [(one.value, one.n_rows, one.accuracy) for one in found.frequent]
    assert (found.by, found.n_values) == ("m", 3)
    assert shown == [("b", 32, 2 / 32), ("a", 22, 21 / 22), ("c", 1, 0.0)]
    assert [one.value for one in found.worst] == ["b", "a"]  # of 20 rows or more
    assert (found.without.n_rows, found.without.accuracy) == (2, 0.5)
    p = 21 / 22
    assert found.frequent[1].error == pytest.approx((p * (1 - p) / 22) ** 0.5)


def test_all_of_it_is_told(trained, path):
    _, model = trained
    with Predictor(model) as predictor:
        found = evaluate(predictor, path, estimators=True, by="w")
    text = "\n".join(f"{name:<12}{said}" for name, said in evaluation_lines(found))
    for part in (f"{found.ece:7.3f}  before calibration {found.ece_before:.3f}",
                 f"{found.macro_recall:14.3f}", "frequent to rare classes: ",
                 f"logsum {found.accuracy:.3f} / {found.top_5_accuracy:.3f}",
                 "values of w",
                 f"{found.by.frequent[0].accuracy:8.3f} +- "):  # fmt: skip
        assert part in text
    assert evaluate(model, path).estimators == {}


def test_without_known_labels_there_is_nothing_to_calibrate(trained, tiny):
    found = evaluate(trained[1], tiny.text("t.vw", ["never |w own1_0", "none |w own2_0"]))
    assert np.isnan([found.ece, found.ece_before, found.macro_recall, found.log_loss]).all()
    assert {decile.recall for decile in found.recall_by_decile} == {None}
