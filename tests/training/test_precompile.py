"""Kernels are compiled by another process, once for a kind of training."""

import dataclasses
import os

import msgspec
import numpy as np
import pytest
import scipy.sparse

import streammach as sm
from streammach.data.given import given_rows
from streammach.data.given_labels import given_labels
from streammach.data.memory import Labelled
from streammach.errors import StreammachError
from streammach.spec.training import TrainingOptions
from streammach.training import precompile as module
from streammach.training.precompile import precompile
from streammach.training.precompile_worker import enough, take_a_little_in, train_a_little
from streammach.training.run import Run
from tests.builders import changed

SHAPE = {"memory": "500MB", "n_buckets": 4, "n_repetitions": 5}
OPTIONS = TrainingOptions(transform="binary")


@pytest.fixture
def store(tiny):
    return tiny.store("train.zarr", n_rows=700, n_classes=30, namespace=True)


@pytest.fixture
def told(monkeypatch, tmp_path):
    """What other processes would have been told; they say that they succeeded."""
    orders = []

    def run(function, order, **rest):
        assert function == f"{train_a_little.__module__}:{train_a_little.__name__}"
        orders.append(order)
        if orders_fail[0]:
            raise StreammachError("it was ended from outside")

    orders_fail = [0]
    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "CACHE_DIR", str(tmp_path))
    return orders, orders_fail


def test_each_kind_is_compiled_once(store, told):
    orders, _ = told
    made = sm.plan(store, **SHAPE)
    other = sm.plan(store, memory="500MB", n_buckets=8, n_repetitions=3)
    for plan in (made, made, other):
        precompile(plan, OPTIONS, store)
    assert len(orders) == 1
    precompile(sm.plan(store, memory="500MB"), OPTIONS, store)  # exact: another kind
    precompile(made, TrainingOptions(), store)
    precompile(changed(made, optimizer="sgd"), OPTIONS, store)
    precompile(sm.plan(store, **SHAPE, loss="joint"), OPTIONS, store)
    precompile(made, dataclasses.replace(OPTIONS, hold_out_by="g"), store)
    precompile(made, dataclasses.replace(OPTIONS, validation=str(store)), store)
    assert len(orders) == 7
    assert len({order.kernels for order in orders}) == 7


def test_of_long_rows_few_are_taken():
    assert enough(10_000, 100_000) == enough(10_000, 0) == 600
    assert enough(300, 300 * 3_000) == 100
    assert enough(40, 40 * 200_000) == 30
    assert enough(10_000, 100_000, 10_000 * 500) == 60


def test_what_failed_is_tried_again(store, told):
    orders, fails = told
    made = sm.plan(store, memory="500MB")
    fails[0] = 1
    with pytest.warns(UserWarning, match="could not be compiled beforehand: it was ended"):
        precompile(made, OPTIONS, store)
    fails[0] = 0
    precompile(made, OPTIONS, store)
    precompile(made, OPTIONS, store)
    assert len(orders) == 2


def test_where_it_would_be_of_no_use_nothing_is_started(store, told, monkeypatch):
    orders, _ = told
    made = sm.plan(store, memory="500MB")
    precompile(changed(made, device="cuda"), OPTIONS, store)
    monkeypatch.setenv(module.PRECOMPILING, "1")
    precompile(made, OPTIONS, store)
    monkeypatch.delenv(module.PRECOMPILING)
    monkeypatch.setattr(module, "CACHE_DIR", None)
    precompile(made, OPTIONS, store)
    assert orders == []


@pytest.mark.parametrize("by", [None, "g"])
@pytest.mark.parametrize("shape", [(4, 5), (64, 1)])
def test_the_other_process_trains_as_the_plan_would(store, told, tmp_path, monkeypatch, by, shape):
    orders, _ = told
    made = sm.plan(store, memory="500MB", n_buckets=shape[0], n_repetitions=shape[1])
    precompile(made, dataclasses.replace(OPTIONS, hold_out_by=by), store)
    monkeypatch.setenv(module.PRECOMPILING, "1")  # what is done there
    train_a_little(elsewhere(orders[0], tmp_path / "run"))
    run = Run.open(tmp_path / "run")
    assert run.plan.model.exact == made.model.exact
    assert (run.plan.config.optimizer, run.plan.config.dense) == (
        made.config.optimizer,
        made.config.dense,
    )
    assert (run.plan.config.size_of("counts") > 0) == (made.config.size_of("counts") > 0)
    assert ("namespace g" in run.settings.held_out) == (by == "g")


def elsewhere(order, folder):
    """The order with another folder."""
    return msgspec.structs.replace(order, folder=str(folder))


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_are_taken_in_by_another_process_first(told, sparse, listed, monkeypatch):
    orders, _ = told
    monkeypatch.setattr(module, "run", lambda function, order, **rest: orders.append(order))
    x = scipy.sparse.csr_array(np.eye(5)) if sparse else np.eye(5)
    y = np.eye(5, dtype=int) + np.eye(5, k=1, dtype=int) if listed else np.arange(5)
    for _ in range(2):
        module.precompile_intake(Labelled(given_rows(x), given_labels(y)))
    assert orders == [module.Intake(sparse=sparse, listed=listed, weighted=False)]
    try:
        take_a_little_in(orders[0])
    finally:
        del os.environ[module.PRECOMPILING]
