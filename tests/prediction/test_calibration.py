"""What is fitted on held-out rows, so that a stated probability is the share that is right."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from streammach.model.calibration import (
    CANDIDATES,
    Calibration,
    class_probabilities,
    fit_calibration,
    fit_line,
    own_logs,
)
from streammach.model.model import Model
from streammach.model.shrink import Size, shrink
from streammach.model.tensors import write_tensors
from streammach.prediction.metrics import BINS, count_bins, reliability
from streammach.system.errors import ModelError
from streammach.training.model_form import calibrating_rows
from tests.builders import block_of
from tests.model.models import model_of

LINE = Calibration(0.8, 2.0, (0.0, 0.25, 0.5, 1.0), (0.0, 0.125, 0.75, 1.0))


def drawn(rng, n, n_classes, *, beta=1.0, shift=0.0):
    """Best scores of rows, and labels drawn by the softmax of beta times them."""
    scores = -np.cumsum(rng.exponential(2 / np.arange(1, n_classes + 1), (n, n_classes)), axis=1)
    p = np.exp(beta * (scores - scores[:, :1]))
    p /= p.sum(axis=1, keepdims=True)
    label = np.minimum((rng.random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1), n_classes - 1)
    ids = np.broadcast_to(np.arange(n_classes), (n, n_classes))[:, :CANDIDATES]
    scores = (scores + shift * rng.normal(size=(n, 1))).astype(np.float32)
    return ids, scores[:, :CANDIDATES], label.astype(np.int32)


def fitted_on(ids, scores, classes, n_classes):
    rows = replace(block_of(np.random.default_rng(0), 9, 9, 4).take(np.zeros(len(ids), np.int64)),
                   classes=classes)  # fmt: skip
    return fit_calibration(rows, lambda *_: (ids, scores), n_classes)


def plain_ece(stated, right):
    """Rows of each of 15 ranges, one after another."""
    total = 0.0
    for i in range(BINS):
        inside = [(p, r) for p, r in zip(stated, right, strict=True)
                  if i / BINS <= p < (i + 1) / BINS or (i == BINS - 1 and p == 1)]  # fmt: skip
        if inside:
            p, r = np.mean(inside, axis=0)
            total += len(inside) * abs(p - r)
    return total / len(stated)


def test_ece_is_that_of_plain_arithmetic(rng):
    stated = np.append(rng.random(500), [0.0, 1.0])
    right = rng.random(502) < stated**2
    assert reliability(count_bins(stated, right)).ece == pytest.approx(plain_ece(stated, right))


@pytest.mark.parametrize("n_classes", [20, 200])
def test_stated_probabilities_become_the_share_that_is_right(n_classes, rng):
    """Of labels drawn by a softmax that is no power of the one that is fitted."""
    ids, scores, classes = drawn(rng, 6000, n_classes, beta=0.7, shift=2.0)
    above = scores - np.median(scores, axis=1, keepdims=True)
    scores = (scores + 0.1 * np.maximum(above, 0) ** 2).astype(np.float32)
    some, rest = slice(0, 3000), slice(3000, None)
    fitted = fitted_on(ids[some], scores[some], classes[some], n_classes)
    ece = []
    for map_ in (Calibration(), fitted):
        p, others = class_probabilities(scores[rest], n_classes, map_)
        total = p.sum(axis=1) + (n_classes - p.shape[1]) * others
        np.testing.assert_allclose(total, 1, rtol=1e-12)
        assert (np.diff(p, axis=1) <= 0).all()
        ece.append(plain_ece(p[:, 0].tolist(), (classes[rest] == 0).tolist()))
    assert fitted.stated[0] == fitted.right[0] == 0
    assert fitted.stated[-1] == fitted.right[-1] == 1
    assert 3 * ece[1] < ece[0]
    assert ece[1] < 0.04


def test_what_a_row_has_in_common_with_itself_does_not_matter(rng):
    ids, scores, classes = drawn(rng, 1500, 100)
    fitted = fitted_on(ids, scores, classes, 100)
    p, others = class_probabilities(scores, 100, fitted)
    moved, moved_others = class_probabilities(scores + np.float32(64), 100, fitted)
    np.testing.assert_allclose(moved, p, rtol=1e-3)
    np.testing.assert_allclose(moved_others, others, rtol=1e-3)


def test_few_rows_give_no_line_and_few_classes_need_none(rng):
    for n, n_classes, n_points in ((999, 60, 2), (999, 32, 0), (0, 60, 0)):
        ids, scores, classes = drawn(rng, n, n_classes)
        scores = np.sort(scores**3, axis=1)[:, ::-1]  # which a line would correct
        assert len(fitted_on(ids, scores, classes, n_classes).stated) == n_points


def test_rows_with_labels_that_are_unknown_are_left_out(rng):
    ids, scores, classes = drawn(rng, 2000, 50)
    known = rng.random(2000) < 0.8
    one = fitted_on(ids, scores, np.where(known, classes, -1).astype(np.int32), 50)
    two = fitted_on(ids[known], scores[known], classes[known], 50)
    assert replace(one, curves=()) == replace(two, curves=())
    recall = two.curves[0].recalls[-1] * known.mean()
    assert one.curves[0].recalls[-1] == pytest.approx(recall, abs=2e-5)


def test_a_line_that_does_not_help_is_not_kept(rng):
    """Labels that are drawn by what is fitted: the straight line is the best one."""
    ids, scores, classes = drawn(rng, 1000, 33, beta=1.0)
    lines = []
    for i in range(6):
        classes = drawn(np.random.default_rng(i), 1000, 33)[2]
        fitted = fitted_on(ids, scores, rng.permutation(classes), 33)
        lines.append(len(fitted.stated))
    assert 2 in lines


def plain_line(x, y):
    """Means of the blocks of an isotonic regression: neighbours that fall are pooled."""
    blocks = []
    for value, hit in sorted(zip(x, y, strict=True)):
        if blocks and blocks[-1][3] == value:  # the same value is one point
            blocks[-1] = [blocks[-1][0] + value, blocks[-1][1] + hit, blocks[-1][2] + 1, value]
        else:
            blocks.append([value, hit, 1, value])
    done = []
    for block in blocks:
        done.append(block)
        while len(done) > 1 and done[-2][1] * done[-1][2] >= done[-1][1] * done[-2][2]:
            last = done.pop()
            done[-1] = [a + b for a, b in zip(done[-1][:3], last[:3], strict=True)]
    return [(sx / n, 0.99 * sy / n + 0.01 * sx / n) for sx, sy, n, *_ in done]


def test_a_line_goes_through_the_means_of_an_isotonic_regression(rng):
    ids, scores, classes = drawn(rng, 400, 12, beta=0.5)
    right = ids == classes[:, None]
    line = fit_line(scores, right, 12, Calibration(1.3, 0.0), np.ones(len(scores)))
    q, _ = class_probabilities(scores, 12, Calibration(1.3, 0.0))
    wanted = plain_line(q.astype(np.float32).ravel().tolist(), right.ravel().tolist())
    found = list(zip(line.stated, line.right, strict=True))
    assert 3 < len(found) <= len(wanted) + 2
    np.testing.assert_allclose(found[1:-1], [p for p in wanted if 0 < p[0] < 1][: len(found) - 2],
                               rtol=1e-4, atol=1e-6)  # fmt: skip


def plain_corrected(scores, n_classes, map_):
    """The equation in the words of Calibration, one row after another, unless classes level."""
    for row in scores.astype(float).tolist():
        best = row[:CANDIDATES]
        middle = np.median(best)
        parts = [np.exp(map_.beta * (s - middle)) for s in best]
        other = np.exp(map_.other) if n_classes > len(best) else 0.0
        total = sum(parts) + other
        p = np.interp([x / total for x in parts], map_.stated, map_.right)
        if n_classes == len(best):
            yield p / p.sum()
        else:
            yield p * min(1.0, (1 - 0.5 * other / total) / p.sum())


@pytest.mark.parametrize("n_classes", [30, 2000])
@pytest.mark.parametrize("line", [LINE, replace(LINE, right=(0.0, 0.5, 0.75, 1.0))])
def test_a_line_corrects_what_is_stated(n_classes, line, rng):
    _, scores, _ = drawn(rng, 200, n_classes)
    p, others = class_probabilities(scores, n_classes, line)
    wanted = np.array(list(plain_corrected(scores, n_classes, line)))
    np.testing.assert_allclose(p[:, :4], wanted[:, :4], rtol=1e-9)
    total = p.sum(axis=1) + (n_classes - p.shape[1]) * others
    np.testing.assert_allclose(total, 1, rtol=1e-12)
    assert (np.diff(p, axis=1) <= 0).all()
    if n_classes > 32:
        assert 0 < (p.sum(axis=1) < 0.99).sum() < 200
        assert (p[:, -1] >= others).all()


def test_log_loss_is_never_infinite(rng):
    scores = np.array([[50.0, *[-50.0] * 31]], np.float32)
    for right in ([True] + [False] * 31, [False] * 32, [False] * 31 + [True]):
        for map_ in (Calibration(), LINE, Calibration(1e30, 0.0)):
            logs = own_logs(scores, np.array([right]), 1000, map_)
            assert -709 < logs[0] <= 0


def test_a_model_keeps_its_line(rng, tmp_path):
    line = replace(LINE, stated=(0.0, np.float32(0.3).item(), 1.0), right=(0.0, 0.5, 1.0))
    for stored in (None, "int8"):
        model = model_of(rng, calibration=line)
        if stored is not None:
            model = shrink(model, Size(stored, 2, 0))
        model.save(tmp_path / f"{stored}")
        again = Model.load(tmp_path / f"{stored}")
        assert again.calibration == line
        assert stored or again.n_bytes == model.n_bytes
        assert '"points": 3' in (tmp_path / f"{stored}/model.json").read_text()


@pytest.mark.parametrize(
    ("stated", "right"),
    [((0.0, 1.0), (0.0, 0.5, 1.0)), ((0.0, 0.7, 0.6, 1.0), (0.0, 0.1, 0.2, 1.0)), ((), ()),
     ((0.0, 0.5, 1.0), (0.0, 0.5, 0.9)), ((0.1, 1.0), (0.0, 1.0)), ((0.0,), (0.0,)),
     ((0.0, 0.5, 1.0), (0.0, 1.0, 1.0))],
)  # fmt: skip
def test_a_line_that_cannot_be_is_refused(stated, right, rng, tmp_path, monkeypatch):
    model = model_of(rng, calibration=LINE)
    arrays = model.arrays() | {
        "calibration_stated": np.array(stated, np.float32),
        "calibration_right": np.array(right, np.float32),
    }
    monkeypatch.setattr(
        "streammach.model.model.write_tensors", lambda path, _: write_tensors(path, arrays)
    )
    model.save(tmp_path / "model")
    with pytest.raises(ModelError, match="damaged: the line of the calibration does not rise"):
        Model.load(tmp_path / "model")


def test_rows_with_a_label_that_no_other_row_has_do_not_calibrate(rng):
    rows = replace(block_of(rng, 5, 9, 4), classes=np.array([0, 1, 2, 3, 1], np.int32))
    dataset = SimpleNamespace(label_counts=np.array([3, 2, 1, 9]))
    held = SimpleNamespace(rows=rows, mask=np.ones(15, bool))
    training = SimpleNamespace(dataset=dataset, holdout=held)
    assert calibrating_rows(training, 10_000).classes.tolist() == [0, -1, -1, 3, -1]
    held.mask = None  # rows of another store: all of these labels were seen
    assert calibrating_rows(training, 10_000).classes.tolist() == [0, 1, 2, 3, 1]
