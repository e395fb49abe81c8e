"""The first training of a kind has room for a compiler, or is refused with a budget that has."""

import re

import pytest

import streammach as sm
from streammach.errors import BudgetError
from streammach.jit import TRAINING_COMPILER_BYTES as MORE
from streammach.spec.training import TrainingOptions
from streammach.training.trainer import Trainer

SHAPE = {"n_buckets": 4, "n_repetitions": 3}


def test_a_first_training_is_refused_without_room_to_compile(tiny, monkeypatch, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr("streammach.jit.CACHE_DIR", str(kept))
    store = tiny.store("train.zarr", n_rows=300, n_classes=12)
    least = sm.plan(store, **SHAPE, memory="2GB").projected_bytes
    tight, options = sm.plan(store, **SHAPE, memory=least), TrainingOptions(epochs=1)
    with pytest.raises(BudgetError, match="first training of its kind compiles") as refused:
        Trainer(tight, options).fit(store, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    advice = re.search(r"use --memory (\S+) or", refused.value.hint)[1]
    roomy = sm.plan(store, **SHAPE, memory=advice)
    assert (roomy.model, roomy.config) == (tight.model, tight.config)
    first = Trainer(roomy, options).fit(store, tmp_path / "run").result
    assert first.projected_bytes == least + MORE
    second = Trainer(tight, options).fit(store, tmp_path / "again").result  # all is kept
    assert second.projected_bytes == least
    with pytest.raises(BudgetError, match="compiles"):  # a kind of its own
        Trainer(tight, TrainingOptions(epochs=1, transform="l2")).fit(store, tmp_path / "other")
