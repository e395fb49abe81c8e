"""Metrics of rows with lists of labels: against plain loops, and an example by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from streammach.model.calibration import Calibration, label_probabilities
from streammach.prediction import metric_table
from streammach.prediction.metric_table import METRICS, EvaluationRequest, Metric, MetricSums
from streammach.prediction.metrics import HIT_VALUES, metrics_at, propensities
from streammach.prediction.ranked_rows import ClassFacts, RankedRows
from streammach.prediction.scorer_sum import BestLabels
from streammach.prediction.selection_metrics import measure_ids
from streammach.rows.block import RowBlock
from streammach.rows.label_lists import LabelLists
from streammach.rows.names import Names

K = 12


@pytest.fixture
def drawn(rng):
    """Rankings, lists of labels with unknown ones and empty ones, counts of training."""
    ids = np.array([rng.permutation(K)[:7] for _ in range(60)])
    rows = [sorted(rng.choice(K, int(n), replace=False).tolist()) for n in rng.integers(0, 9, 60)]
    rows = [[-1] * int(rng.integers(0, 2)) + row for row in rows]
    return ids, rows, rng.integers(0, 50, K)


def by_plain_loops(ids, rows, counts, n_train):
    """All figures by name, row by row."""
    p = [1 / (1 + (math.log(n_train) - 1) * 2.5**0.55 * math.exp(-0.55 * math.log(n + 1.5)))
         for n in [*counts, 0]]  # fmt: skip
    found = {}
    for k in (1, 3, 5):
        precision = recall = f1 = ndcg = gained = best = gained_dcg = best_dcg = 0
        for first, own in zip(ids[:, :k].tolist(), rows, strict=True):
            hits = [j for j, c in enumerate(first) if c in own]
            precision += len(hits) / k
            f1 += 2 * len(hits) / (k + len(own))
            gained += sum(1 / p[first[j]] for j in hits)
            gained_dcg += sum(1 / p[first[j]] / math.log2(j + 2) for j in hits)
            largest = sorted((1 / p[c] for c in own), reverse=True)[:k]
            best += sum(largest)
            best_dcg += sum(g / math.log2(j + 2) for j, g in enumerate(largest))
            if own:
                recall += len(hits) / len(own)
                ideal = sum(1 / math.log2(j + 2) for j in range(min(k, len(own))))
                ndcg += sum(1 / math.log2(j + 2) for j in hits) / ideal
        n = len(rows)
        found |= {f"P@{k}": precision / n, f"R@{k}": recall / n, f"N@{k}": ndcg / n,
                  f"F1@{k}": f1 / n, f"PSP@{k}": gained / best,
                  f"PSN@{k}": gained_dcg / best_dcg}  # fmt: skip
    return found


def rows_with(lists):
    """Rows without features, with lists of labels."""
    n = len(lists)
    return RowBlock(
        indptr=np.zeros(n + 1, np.int64), features=np.zeros(0, np.int32),
        values=np.zeros(0, np.float32), classes=lists.first, labels=lists, numbers=np.arange(n),
    )  # fmt: skip


def summed(counts, n_train, parts, calibration=None, **asked):
    """The sums of blocks of rankings int64 (n, k), their scores, and lists of labels."""
    names = Names.of([f"label {i}" for i in range(len(counts))])
    facts = ClassFacts(names, 0, counts, n_train)
    sums = MetricSums(facts, EvaluationRequest(**asked))
    for ids, scores, lists in parts:
        p = None if calibration is None else label_probabilities(scores, calibration)
        sums.add(sums.count(RankedRows(facts, rows_with(lists), ids, BestLabels(ids, scores, p))))
    return sums


def test_figures_are_those_of_plain_loops(drawn):
    ids, rows, counts = drawn
    scores = np.zeros(ids.shape, np.float32)
    parts = [(ids[some], scores[some], LabelLists.of(rows[some]))
             for some in (slice(0, 25), slice(25, 60))]  # fmt: skip
    found = summed(counts, 1000, parts).fields()["sets"]
    assert found.by_name() == pytest.approx(by_plain_loops(ids, rows, counts, 1000))
    assert (found.n_rows, found.n_labels) == (60, sum(map(len, rows)))
    lists = LabelLists.of(rows)
    gains = 1 / propensities(np.append(counts, 0), 1000)[lists.classes]
    choices = measure_ids(rows_with(replace(lists, weights=gains.astype(np.float32))), ids)
    assert choices.accuracy == pytest.approx(found.precision[1])
    assert choices.top_5_accuracy == pytest.approx(found.precision[5])
    assert choices.selection_score == choices.psp_5 == pytest.approx(found.psp[5])
    assert measure_ids(rows_with(lists), ids).psp_5 is None


def test_tenths_go_from_rare_labels_to_frequent_ones():
    counts = np.append(np.arange(20)[::-1], np.zeros(4, np.int64))  # label 19 is the rarest
    ids = np.array([[c, 20, 21, 22, 23] for c in range(20)])
    lists = LabelLists.of([[c] if c < 10 else [c + 1 if c < 19 else 10] for c in range(20)])
    sums = summed(counts, 100, [(ids, np.zeros(ids.shape, np.float32), lists)])
    tenths = sums.fields()["sets"].decile_recall
    assert len(tenths) == 10
    assert tenths[0] == 0
    assert tenths[-1] == 1


def test_propensities_rise_with_counts_and_follow_the_paper():
    p = propensities(np.array([0, 1, 10, 1000]), 15_000)
    c = (math.log(15_000) - 1) * 2.5**0.55
    assert p[2] == pytest.approx(1 / (1 + c * math.exp(-0.55 * math.log(11.5))))
    assert (np.diff(p) > 0).all()
    assert propensities(np.array([3]), 1) == 1


def test_f1_is_that_of_plain_sets(drawn, rng):
    ids, rows, _ = drawn
    said = rng.random(ids.shape) < 0.4
    scores = np.where(said, 0, -1).astype(np.float32)
    parts = [(ids[some], scores[some], LabelLists.of(rows[some]))
             for some in (slice(0, 20), slice(20, 60))]  # fmt: skip
    sums = summed(np.ones(K, np.int64), 9, parts, Calibration())
    chosen = [set(i[s].tolist()) for i, s in zip(ids, said, strict=True)]
    right = sum(len(a & set(b)) for a, b in zip(chosen, rows, strict=True))
    total = sum(map(len, chosen)) + sum(map(len, rows))
    found = sums.fields()["f1"]
    assert found.micro == pytest.approx(2 * right / total)
    each = []
    for c in range(K):
        a = {i for i, s in enumerate(chosen) if c in s}
        b = {i for i, s in enumerate(rows) if c in s}
        if a or b:
            each.append(2 * len(a & b) / (len(a) + len(b)))
    assert found.macro == pytest.approx(np.mean(each))


def test_a_metric_is_a_function_and_a_line(drawn, monkeypatch):
    ids, rows, counts = drawn
    monkeypatch.setitem(HIT_VALUES, "hit share", lambda n, place, k: np.ones((len(n), k)) / 2)

    def rows_without_labels(sums):
        return {"empty": int(sums["hits"].n[sums["hits"].ids == 0, 0].sum())}

    monkeypatch.setattr(metric_table, "METRICS", [*METRICS, Metric(rows_without_labels)])
    sums = summed(counts, 9, [(ids, np.zeros(ids.shape, np.float32), LabelLists.of(rows))])
    assert sums.fields()["empty"] == sum(not row for row in rows)
    named = metrics_at(sums["hits"], (3,))
    assert named["hit share@3"] == pytest.approx(1.5 * named["P@3"])
