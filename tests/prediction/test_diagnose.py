"""What a model does by stated probability, class frequency and repetitions."""

import numpy as np
import pytest

import streammach as sm
from streammach.model.shrink import Size, shrink
from streammach.prediction.diagnose import diagnose
from streammach.prediction.evaluate import evaluate
from streammach.prediction.metrics import FIRST, deciles, macro_recall
from streammach.system.errors import UsageError


@pytest.fixture(scope="module")
def made(run_and_rows):
    return run_and_rows[0].model, run_and_rows[1]


@pytest.fixture(scope="module")
def found(made):
    return diagnose(*made)


def test_all_rows_agree_with_evaluate(made, found):
    model, test = made
    whole = sm.evaluate(model, test)
    assert (found.n_rows, found.n_unseen) == (whole.n_rows, whole.n_unseen)
    assert found.n_unseen > 0
    assert (found.accuracy, found.top_5_accuracy) == pytest.approx(
        (whole.accuracy, whole.top_5_accuracy)
    )
    known = found.n_rows - found.n_unseen
    assert sum(d.n_rows for d in found.recall_by_decile) == known
    assert sum(d.n_classes for d in found.recall_by_decile) == model.spec.n_classes
    right = sum(d.n_rows * (d.recall or 0) for d in found.recall_by_decile)
    assert right == pytest.approx(found.n_rows * found.accuracy)
    for part in (found.before, found.reliability):
        assert sum(b.n_rows for b in part.bins) == known
        assert sum(b.n_rows * b.right for b in part.bins) == pytest.approx(right)


def test_the_last_depth_is_the_whole_model(made, found):
    whole, test = made
    small = shrink(whole, Size("int4", 4, 200))
    for model, of, counts in ((whole, found, [1, 2, 4, 6]), (small, None, [1, 2, 4])):
        depths = (of or diagnose(model, test)).depths
        assert [depth.n_repetitions for depth in depths] == counts
        for name, p_at_1 in depths[-1].accuracy.items():
            with sm.Predictor(model, estimator=name) as predictor:
                assert p_at_1 == pytest.approx(evaluate(predictor, test).accuracy)
    alone = [depth.accuracy["logsum"] for depth in found.depths]
    assert alone[-1] > alone[0]


def test_only_the_first_rows_are_used(made):
    model, test = made
    found = diagnose(model, test, rows=70)
    assert (found.n_rows, found.depth_rows) == (70, 70)
    with sm.Dataset.open(test) as data, sm.Predictor(model) as predictor:
        block = data.rows(0, 70)
        ids, _ = predictor.rank(block, 1)
    assert found.accuracy == (ids[:, 0] == block.classes).mean()
    with pytest.raises(UsageError, match="no such store"):
        diagnose(model, test.with_name("nothing"))


def test_groups_of_classes_by_hand():
    there, right = np.zeros((2, 25), np.int32)
    there[[0, 9, 24]], right[[0, 9]] = [2, 1, 1], 1
    found = deciles(there, right)
    assert macro_recall(there, right) == pytest.approx((0.5 + 1 + 0) / 3)
    assert sum(d.n_classes for d in found) == 25
    assert [(d.n_rows, d.recall) for d in found] == [
        (2, 0.5), (0, None), (0, None), (1, 1.0), *[(0, None)] * 5, (1, 0.0),
    ]  # fmt: skip
    nothing = np.zeros(3, np.int32)
    assert [d.n_classes for d in deciles(nothing, nothing)] == [1, 1, 1]
    assert np.isnan(macro_recall(nothing, nothing))


@pytest.fixture(scope="module")
def listed(run_and_lists):
    return run_and_lists[0].model, run_and_lists[1]


@pytest.fixture(scope="module")
def of_lists(listed):
    return diagnose(*listed)


def test_lists_agree_with_evaluate(listed, of_lists):
    (model, test), found = listed, of_lists
    whole = sm.evaluate(model, test)
    assert (found.n_rows, found.n_unseen) == (200, whole.n_unseen)
    assert found.n_unseen > 0
    assert found.sets == whole.sets
    assert (found.accuracy, found.top_5_accuracy) == (whole.accuracy, whole.top_5_accuracy)
    recalls = [tenth.recall for tenth in found.tenths]
    assert recalls == pytest.approx(whole.sets.decile_recall)
    assert sum(tenth.n_rows for tenth in found.tenths) == found.sets.n_labels - found.n_unseen
    assert all(a.most <= b.least for a, b in zip(found.tenths, found.tenths[1:], strict=False))
    for name, p_at_1 in found.depths[-1].accuracy.items():
        with sm.Predictor(model, estimator=name) as predictor:
            assert p_at_1 == pytest.approx(evaluate(predictor, test).accuracy)


def test_groups_of_rows_are_all_rows(of_lists):
    found = of_lists
    assert [(group.least, group.most) for group in found.by_labels] == [(i, i) for i in range(4)]
    for name in ("P@1", "P@5", "N@5", "R@5"):
        mean = sum(group.n_rows * group.figures[name] for group in found.by_labels) / 200
        assert mean == pytest.approx(found.sets.by_name()[name])
    sizes = np.repeat(range(4), [group.n_rows for group in found.by_labels])
    assert found.possible == {
        f"P@{k}": pytest.approx(np.minimum(sizes, k).mean() / k) for k in (1, 3, 5)
    }
    bins = found.reliability.bins
    assert sum(b.n_rows for b in bins) == 200 * FIRST
    assert 0 < found.likely.n_rows < 200 * 32
    assert found.likely.stated >= 0.5
    assert found.likely.right > 0.5


def test_blocks_of_lists_add_up(listed, monkeypatch):
    model, test = listed
    found = diagnose(model, test, rows=150)
    monkeypatch.setattr("streammach.prediction.room.READ_ROWS", 7)
    again = diagnose(model, test, rows=150)
    assert found.n_rows == 150
    for group, other in zip(found.by_labels, again.by_labels, strict=True):
        assert (other.least, other.n_rows) == (group.least, group.n_rows)
        assert other.figures == pytest.approx(group.figures)
    assert again.sets.by_name() == pytest.approx(found.sets.by_name())
    assert again.reliability.ece == pytest.approx(found.reliability.ece)


def test_lists_are_refused_where_the_model_knows_none(made, listed):
    with pytest.raises(UsageError, match="lists of labels"):
        diagnose(made[0], listed[1])
