"""Accuracy of the estimators on the same model: unbiased mean, min, median, log-sum."""

import time

import streammach as sm
from streammach.model.shrink import Size, shrink
from streammach.prediction.reached import top_k_hits

ESTIMATORS = {"mean": "unbiased", "median": "median", "min": "min", "logsum": "log-sum"}


def compare(model, rows, repetitions, threads):
    """Return what each estimator reaches with the first r repetitions of a model.

    Parameters
    ----------
    model : Model
        A trained model without counts.
    rows : RowBlock
        Labelled rows with the model's ids; a label of -1 counts as wrong.
    repetitions : list of int
        The r.
    threads : int
        Threads that compute.

    Returns
    -------
    list of dict
        For each r the bytes of its weights; by estimator both accuracies and microseconds a row.
    """
    found = []
    for r in repetitions:
        whole = r == model.spec.n_repetitions
        part = model if whole else shrink(model, Size("float32", n_repetitions=r, n_pairs=0))
        n_bytes = part.weights.nbytes + part.bias.nbytes
        names = ESTIMATORS if r > 1 else {"mean": "", "logsum": ""}  # one repetition: all the same
        point = {"repetitions": r, "bytes": n_bytes}
        for name in names:
            point[name] = measured(part, rows, name, threads)
        found.append(point)
    return found


def measured(model, rows, estimator, threads):
    """Return accuracy, top-5 accuracy and microseconds a row."""
    with sm.Predictor(model, estimator=estimator, threads=threads) as predictor:
        predictor.topk_ids(rows.part(0, min(10, rows.n_rows)), 5)  # loaded before the clock
        began = time.monotonic()
        ids, _ = predictor.topk_ids(rows, 5)
        seconds = time.monotonic() - began
    return {
        "p_at_1": top_k_hits(ids, rows.classes, 1) / rows.n_rows,
        "p_at_5": top_k_hits(ids, rows.classes, 5) / rows.n_rows,
        "microseconds": 1e6 * seconds / rows.n_rows,
    }
