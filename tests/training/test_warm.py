"""Kernels are compiled by another process, once for a kind of training."""

import dataclasses

import pytest

import streammach as sm
from streammach.errors import StreammachError
from streammach.training import warm as module
from streammach.training.run import Run
from streammach.training.warm import Order, warm
from streammach.training.warmed import train_a_little

OPTIONS = {"transform": "binary", "losses": ("apart",), "by": None, "validation": None}


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
    made = sm.plan(store, memory="500MB", n_buckets=4, n_repetitions=5)
    other = sm.plan(store, memory="500MB", n_buckets=8, n_repetitions=3)
    for plan in (made, made, other):
        warm(plan, store, **OPTIONS)
    assert len(orders) == 1
    warm(sm.plan(store, memory="500MB", exact=False), store, **OPTIONS)  # exact: another kind
    warm(made, store, **{**OPTIONS, "transform": None})
    warm(dataclasses.replace(made, optimizer="sgd"), store, **OPTIONS)
    warm(made, store, **{**OPTIONS, "losses": ("joint",)})
    warm(made, store, **{**OPTIONS, "by": "g"})
    warm(made, store, **{**OPTIONS, "validation": str(store)})
    assert len(orders) == 7
    assert len({order.kind for order in orders}) == 7


def test_what_failed_is_tried_again(store, told):
    orders, fails = told
    made = sm.plan(store, memory="500MB")
    fails[0] = 1
    with pytest.warns(UserWarning, match="could not be compiled beforehand: it was ended"):
        warm(made, store, **OPTIONS)
    fails[0] = 0
    warm(made, store, **OPTIONS)
    warm(made, store, **OPTIONS)
    assert len(orders) == 2


def test_where_it_would_be_of_no_use_nothing_is_started(store, told, monkeypatch):
    orders, _ = told
    made = sm.plan(store, memory="500MB")
    warm(dataclasses.replace(made, device="cuda"), store, **OPTIONS)
    monkeypatch.setenv(module.WARMING, "1")
    warm(made, store, **OPTIONS)
    monkeypatch.delenv(module.WARMING)
    monkeypatch.setattr(module, "CACHE_DIR", None)
    warm(made, store, **OPTIONS)
    assert orders == []


@pytest.mark.parametrize("by", [None, "g"])
@pytest.mark.parametrize("shape", [(4, 5), (64, 1)])
def test_the_other_process_trains_as_the_plan_would(store, told, tmp_path, monkeypatch, by, shape):
    orders, _ = told
    made = sm.plan(store, memory="500MB", n_buckets=shape[0], n_repetitions=shape[1])
    warm(made, store, **{**OPTIONS, "by": by})
    monkeypatch.setenv(module.WARMING, "1")  # what is done there
    train_a_little(elsewhere(orders[0], tmp_path / "run"))
    run = Run.open(tmp_path / "run")
    assert run.plan.model.exact == made.model.exact
    assert (run.plan.optimizer, run.plan.dense) == (made.optimizer, made.dense)
    assert (run.plan.max_pairs > 0) == (made.max_pairs > 0)
    assert ("namespace g" in run.settings.held_out) == (by == "g")


def elsewhere(order, folder):
    """The order with another folder."""
    return Order(order.store, order.validation, order.kind, str(folder))
