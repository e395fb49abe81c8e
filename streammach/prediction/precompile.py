"""Compiles what predictions call, before the first one: of given models, or of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from streammach import hashing
from streammach.files.folders import temporary_folder
from streammach.model.calibration import Calibration
from streammach.model.document import Stored
from streammach.model.model import Model
from streammach.model.shrink import Size, shrink
from streammach.prediction.predictor import Predictor
from streammach.rows.block import RowBlock
from streammach.rows.names import Names
from streammach.rows.pairs import CountWeights, ends
from streammach.simd import LANES
from streammach.spec.estimators import rankers
from streammach.spec.model import ModelSpec
from streammach.spec.training import TRANSFORMS, TrainSpec
from streammach.spec.types import LossKind

FEATURES, CLASSES, REPETITIONS = 40, 70, 3
FEW_BUCKETS, MANY_BUCKETS = 16, 300  # codes of a byte, and of two
BATCHES = 1, 3, LANES + 6  # rows of one query, of a few, and of more than go side by side


def compile_model(model: Model, *, all_rankers: bool = False) -> None:
    """Have all kernels compiled that predictions of a model call.

    Parameters
    ----------
    model : Model
        A model as it was loaded: whether arrays are mapped decides on kernels, too.
    all_rankers : bool
        Whether those of all estimators are, and not of the model's own alone.
    """
    names = rankers() if all_rankers else [model.estimator]
    if model.counts is None:
        names = [name for name in names if name != "blend"]
    if model.spec.unhashed:
        names = ["blend"]
    for threads in (1, 2):
        with Predictor(model, device="cpu", threads=threads) as predictor:
            for name in names:
                for n in BATCHES:
                    predictor.topk_ids(_rows(n, model.spec.n_features), 5, name)


def compile_kinds() -> Iterator[str]:
    """Have the kernels of all kinds of models compiled; yield what each kind is, before its turn.

    Raises
    ------
    DiskError
        If the models, small ones, cannot be written for the while.
    """
    with temporary_folder() as folder:
        folder.mkdir()
        for i, (what, model) in enumerate(_kinds()):
            yield what
            place = folder / str(i)
            model.save(place)
            loaded = Model.load(place)
            compile_model(loaded, all_rankers=model.stored is None)
            for transform in TRANSFORMS if i == 0 else ():
                other = replace(loaded, training=replace(loaded.training, transform=transform))
                compile_model(other)


def _kinds() -> Iterator[tuple[str, Model]]:
    """Yield small models, and what is special of each."""
    for n_buckets in (FEW_BUCKETS, MANY_BUCKETS):
        plain = _model(n_buckets)
        yield f"{n_buckets} buckets", plain
        yield f"{n_buckets} buckets, narrow weights", _narrow(plain, "int4")
        counted = replace(plain, counts=_counts(plain.spec.n_classes), estimator="blend")
        yield f"{n_buckets} buckets, counts", counted
        yield f"{n_buckets} buckets, counts, narrow weights", _narrow(counted, "int4")
        yield f"{n_buckets} buckets, a sigmoid each", _model(n_buckets, loss="logistic")
        dense = replace(plain, dense=True)
        yield f"{n_buckets} buckets, dense rows", dense
        yield f"{n_buckets} buckets, dense rows, half precision", _narrow(dense, "float16")
    yield "a bucket a class, dense rows", replace(_model(CLASSES, n_classes=CLASSES), dense=True)
    yield "counts alone", replace(_model(0), counts=_counts(CLASSES), estimator="blend")


def _model(n_buckets: int, *, n_classes: int = 0, loss: LossKind = "independent") -> Model:
    """Return a model whose weights are noise; without hashed models for 0 buckets."""
    rng = np.random.default_rng(0)
    n_classes = n_classes or max(CLASSES, 2 * n_buckets)
    hashed = 0 < n_buckets < n_classes
    a, b = hashing.draw(0, n_classes, n_buckets, REPETITIONS) if hashed else ((), ())
    spec = ModelSpec(
        n_classes=n_classes, n_features=FEATURES, n_buckets=max(n_buckets, 1),
        n_repetitions=len(a) if hashed else min(n_buckets, 1), hash_a=a, hash_b=b,
    )  # fmt: skip
    training = TrainSpec(
        epochs=1, batch_size=8, learning_rate=0.5, transform="raw", label_smoothing=0.0,
        optimizer="adagrad", epsilon=1e-8, seed=0, loss=loss,
    )  # fmt: skip
    return Model(
        spec=spec, training=training, dense=False, estimator="logsum", calibration=Calibration(),
        store="", majority=0, validation={}, labels=Names.of(range(n_classes)),
        features=Names.of(f"f{i}" for i in range(FEATURES)),
        weights=rng.normal(size=(FEATURES, spec.n_columns)).astype(np.float32),
        bias=np.zeros(spec.n_columns, np.float32),
    )  # fmt: skip


def _counts(n_classes: int) -> CountWeights:
    """Return counts with lists, and a feature whose gains stand in a column."""
    lists = [np.arange(f % 5, dtype=np.int32) for f in range(FEATURES)]
    wide_of = np.full(FEATURES, -1, np.int32)
    wide_of[0] = 0
    zeros = np.zeros(n_classes, np.float32)
    return CountWeights(
        starts=ends(np.array([len(some) for some in lists])), classes=np.concatenate(lists),
        gains=np.full(sum(map(len, lists)), 64, np.int16), wide_of=wide_of,
        wide=np.full((1, n_classes), 32, np.int16), penalty=np.zeros(FEATURES, np.float32),
        base=zeros, log_values=zeros, hashed=1.0,
    )  # fmt: skip


def _narrow(model: Model, weights: Stored) -> Model:
    """Return the model as one that was made smaller."""
    pairs = 0 if model.counts is None else model.counts.n_pairs
    return shrink(model, Size(weights, model.spec.n_repetitions, pairs))


def _rows(n: int, n_features: int) -> RowBlock:
    """Return n rows of two features each; none where there are fewer."""
    each = min(2, n_features)
    features = np.tile(np.arange(each, dtype=np.int32), n)
    return RowBlock(
        indptr=each * np.arange(n + 1, dtype=np.int64), features=features,
        values=np.ones(len(features), np.float32), classes=np.full(n, -1, np.int32),
    )  # fmt: skip
