"""Predictions and what is measured on them."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from streammach.conversion.convert import convert
from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.prediction.evaluate import choose_estimator, evaluate
from streammach.prediction.inputs import InputCounts
from streammach.prediction.predictor import Predictor
from streammach.prediction.ranking import TILTS, largest_discount
from streammach.prediction.scorer_sum import PredictionRequest
from streammach.prediction.selection_metrics import measure_ids, score_rows
from streammach.rows.label_lists import LabelLists
from streammach.system.errors import DataError, ModelError, UsageError
from tests.builders import block_of, open_backend, spec_of, training


def test_labels_come_back_by_name(trained):
    data, model = trained
    rows = data.rows(0, 50)
    with Predictor(model, threads=2) as predictor:
        labels, scores = predictor.topk(rows, 3)
    assert labels.shape == scores.shape == (50, 3)
    truth = [data.labels.label(y) for y in rows.classes]
    assert np.mean([guess == name for guess, name in zip(labels[:, 0], truth, strict=True)]) > 0.9


def test_integer_labels_come_back_as_integers(tiny):
    convert(tiny.text("r.vw", ["7 | x", "12 | y"]), tiny.folder / "s")
    from streammach.store.dataset import Dataset

    with Dataset.open(tiny.folder / "s") as data:
        spec = spec_of(2, 2, 2, 1)
        eye, zeros = np.eye(2, dtype=np.float32), np.zeros(2, np.float32)
        model = Model(
            spec=spec, training=training(), dense=False, estimator="logsum",
            calibration=Calibration(), store="d", majority=0, validation={}, labels=data.labels,
            features=data.features, weights=eye, bias=zeros,
        )  # fmt: skip
        with Predictor(model) as predictor:
            labels, _ = predictor.topk(scipy.sparse.csr_array(np.eye(2)), 1, columns=["x", "y"])
    assert labels.dtype == np.int64
    assert sorted(labels[:, 0].tolist()) == [7, 12]


@pytest.mark.parametrize("rows", [np.zeros((2, 3)), np.full((1, 1), np.nan)])
def test_wrong_matrices_are_refused(rows, trained):
    data, model = trained
    if np.isnan(rows).any():
        rows = np.full((1, data.n_features), np.nan)
    with Predictor(model) as predictor, pytest.raises(DataError):
        predictor.topk(rows)
    with (
        Predictor(model) as predictor,
        pytest.raises(DataError, match=r"have names, .* columns none\. .*columns=NAMES"),
    ):
        predictor.topk(np.zeros((2, data.n_features)))


def together(parts):
    """Predictions as lists: numbers of the rows, ids, scores, tags."""
    parts = list(parts)
    tags = [
        tag for p in parts for tag in ([b""] * len(p.rows) if p.tags is None else p.tags.raws())
    ]
    arrays = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("rows", "ids", "scores")
    )
    return [*(array.tolist() for array in arrays), tags]


def test_rows_of_a_store_have_the_numbers_and_tags_of_their_sources(trained, tiny, monkeypatch):
    _, model = trained
    lines = tiny.lines(60, 20)
    lines[7], lines[8] = "bad line", ""
    tagged = [line.replace(" |w", f" 'row{i} |w", 1) for i, line in enumerate(lines)]
    first, second = tiny.text("a.vw", tagged), tiny.text("b.vw", lines[:3])
    convert([first, second], tiny.folder / "t.zarr", on_bad_row="skip")
    with Predictor(model) as predictor:
        for room in (1 << 20, 500):
            monkeypatch.setattr("streammach.prediction.room.SORTED", room)
            rows, _, _, tags = together(predictor.stream(tiny.folder / "t.zarr", 2))
            assert rows == [n for n in range(62) if n != 7]  # the blank line is no row
            wanted = [f"row{i}" for i in range(60) if i not in (7, 8)] + [""] * 3
            assert [tag.decode() for tag in tags] == wanted


def test_rows_to_predict_need_no_labels_and_may_hold_unknown_features(trained, tiny):
    _, model = trained
    path = tiny.folder / "new.vw"
    path.write_text("|w own3_0 own3_1 never_seen\nsomething |q strange\n")
    seen = InputCounts()
    with Predictor(model) as predictor:
        (part,) = predictor.rank_input(path, PredictionRequest(k=2), seen=seen)
    assert part.ids.shape == (2, 2)
    assert (seen.rows, seen.unknown_values) == (2, 2)


def test_evaluation_counts_by_hand(trained, tiny):
    data, model = trained
    lines = [*tiny.lines(120, 20), "never |w own1_0", "never |w own2_0"]
    path = tiny.text("t.vw", lines)
    with Predictor(model, threads=1) as predictor:
        found = evaluate(predictor, path)
        guesses = [predictor.labels(p.ids) for p in predictor.stream(path, 5)]
    truth = [line.split()[0] for line in lines]
    labels = np.concatenate(guesses)
    for k, value in ((1, found.accuracy), (3, found.top_3_accuracy), (5, found.top_5_accuracy)):
        hits = [name in row[:k] for name, row in zip(truth, labels.tolist(), strict=True)]
        assert value == pytest.approx(np.mean(hits))
    assert (found.n_rows, found.n_unseen) == (122, 2)
    common = data.labels.label(model.majority)
    assert found.majority == pytest.approx(np.mean([name == common for name in truth]))


def test_evaluation_of_a_store_with_other_ids_is_the_same(trained, tiny):
    data, model = trained
    path = tiny.text("t.vw", tiny.lines(100, 25))
    convert(path, tiny.folder / "own.zarr")
    convert(path, tiny.folder / "like.zarr", like=data.path)
    with Predictor(model) as predictor:
        found = [
            evaluate(predictor, p)
            for p in (path, tiny.folder / "own.zarr", tiny.folder / "like.zarr")
        ]
    figures = [
        (f.n_rows, f.n_unseen, f.accuracy, f.top_5_accuracy, round(f.log_loss, 10)) for f in found
    ]
    assert figures[0] == figures[1] == figures[2]


def test_the_usual_estimator_stays_unless_another_is_clearly_better(rng):
    """Ranks planted in a model whose mean is right and whose log-sum one bucket spoils."""
    spec = spec_of(40, 5, 6, 4)
    backend = open_backend("cpu", spec, dense=False, threads=1)
    backend.prepare(training(), 1000)
    backend.arrays()["weights"][:] = rng.normal(size=(5, 24)).astype(np.float32)
    rows = block_of(rng, 300, 5, 40)
    chosen, found = choose_estimator(backend, rows, "raw")
    assert set(found) == {"logsum", "mean", "median", "min"}
    best = max(found.values(), key=lambda m: m.selection_score)
    p = found["logsum"].accuracy
    assert (
        chosen == "logsum"
        or best.selection_score > found["logsum"].selection_score + (p * (1 - p) / 300) ** 0.5
    )
    exact = open_backend("cpu", spec_of(4, 5, 4, 1), dense=False, threads=1)
    exact.prepare(training(), 1000)
    assert list(choose_estimator(exact, block_of(rng, 30, 5, 4), "raw")[1]) == ["logsum"]
    backend.close()
    exact.close()


def test_what_is_not_there_is_refused(trained, tiny):
    _, model = trained
    with Predictor(model) as predictor:
        with pytest.raises(UsageError, match="there is no such store or file"):
            evaluate(predictor, tiny.folder / "nothing")
        empty = tiny.folder / "empty.vw"
        empty.write_bytes(gzip.compress(b"\n"))
        with pytest.raises(DataError, match="it holds no rows"):
            evaluate(predictor, empty)
    with pytest.raises(ModelError):
        Model.load(tiny.folder)


@pytest.mark.parametrize("best_alone", [False, True])
def test_the_largest_tilt_that_rows_cannot_tell_from_the_best_is_taken(best_alone, rng):
    # Rows differ much, but the same row little: 3 of 400 that lose are no difference, 5 are one.
    rows, asked = rng.random(400) * 9, []
    lost = dict(zip(TILTS, (5, 1, 0, 2, 3, 5), strict=False))

    def scores(tilt):
        asked.append(tilt)
        return rows - (np.arange(400) < lost[tilt])

    tilt, best = largest_discount(scores, best_alone=best_alone)
    assert tilt == (0.1 if best_alone else 0.2)
    assert best == rows.mean()
    assert asked == list(TILTS[:6])
    assert largest_discount(lambda tilt: np.zeros(9), best_alone=False) == (TILTS[-1], 0.0)
    assert largest_discount(lambda tilt: np.zeros(9), best_alone=True) == (TILTS[0], 0.0)


@pytest.mark.parametrize("propensity", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_of_rows_have_the_mean_that_choices_go_by(propensity, weighted, rng):
    n, n_classes = 300, 40
    sets = [rng.choice(n_classes, rng.integers(1, 8), replace=False) for _ in range(n)]
    lists = LabelLists.of(sets)
    if propensity:
        lists = replace(lists, weights=rng.random(len(lists.classes)).astype(np.float32) + 1)
    rows = block_of(rng, n, 5, n_classes).with_labels(lists)
    if weighted:
        rows = replace(rows, importance=rng.random(n).astype(np.float32))
    ids = rng.permuted(np.tile(np.arange(n_classes), (n, 1)), axis=1)[:, :9]
    score = measure_ids(rows, ids).selection_score
    assert score_rows(rows, ids).mean() == pytest.approx(score, rel=1e-6)
