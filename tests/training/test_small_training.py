"""A small training in another process compiles what a training needs later."""

from dataclasses import replace

import pytest

import streammach as sm
from streammach.backends.cpu.kernels import share_step
from streammach.backends.cpu.products import packed_logits
from streammach.planning.ledger import kernels
from streammach.training import small_training
from streammach.training.run import Run
from streammach.training.small_training import BYTES, rehearsal, rehearse, train_few


@pytest.mark.parametrize(
    ("n_buckets", "small", "weighted", "listed"), [(0, True, False, False), (32, False, True, True)]
)
def test_it_trains_a_model_of_the_kind_and_remembers_that(
    tiny, tmp_path, monkeypatch, n_buckets, small, weighted, listed
):
    marks = []
    monkeypatch.setattr(small_training, "remember_compiled_work", lambda *kind: marks.append(kind))
    kind = {"value_bytes": 1 if small else 4, "weighted": weighted, "n_labels": 900 * listed}
    kind["n_classes"] = 400
    with tiny.dataset(n_rows=500, n_classes=80) as data:
        facts = replace(data.facts, **kind, max_row_labels=2 * listed)
    shape = {"n_buckets": n_buckets, "n_repetitions": 2} if n_buckets else {"exact": True}
    rehearse(str(tmp_path), ("a kind",), sm.plan(facts, **shape))
    made = Run.open(tmp_path / "run")
    assert "smaller model" in made.result.stages
    plan = made.plan
    facts = plan.facts
    assert (facts.value_bytes == 1, facts.weighted, facts.listed) == (small, weighted, listed)
    assert plan.n_buckets == n_buckets or plan.config.shape.exact
    assert plan.projected_bytes <= BYTES
    assert marks == [("rehearsal", "a kind")]
    said = (tmp_path / "said.tsv").read_text().splitlines()
    assert len(said) == 9  # a heading, and eight rows
    assert packed_logits.signatures
    assert any(f"array(uint{8 if n_buckets else 16}" in str(s) for s in share_step.signatures)


@pytest.fixture(scope="module")
def facts(shared):
    with shared.dataset(n_rows=600, n_classes=40) as data:
        return data.facts


@pytest.mark.parametrize(
    "asked",
    [
        {"n_repetitions": 0}, {"exact": True},
        {"n_buckets": 16, "n_repetitions": 2, "counts": "on"},
        {"n_buckets": 16, "n_repetitions": 2, "hashed_features": 40},
        {"n_buckets": 16, "n_repetitions": 2, "loss": "joint", "optimizer": "sgd", "threads": 1},
        {"exact": True, "closed_form": "on", "whitening": "on"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("held", [False, True])
def test_its_kernels_are_those_of_the_plan_that_it_is_like(facts, tmp_path, asked, held):
    facts = replace(facts, held_bytes=1000 * held)
    if "closed_form" in asked:  # every row has all features but a few
        facts = replace(facts, n_features=facts.max_row_nnz)
    plan = sm.plan(facts, **asked)
    train_few(str(tmp_path), (), plan, sm.TrainingOptions(epochs=3, hold_out_by="words"))
    made = Run.open(tmp_path / "run").plan
    assert kernels(made.facts, made.config) == kernels(plan.facts, plan.config)
    assert made.model.cut == plan.model.cut
    assert made.config.parts == () or {p.name for p in made.config.parts} == {
        p.name for p in plan.config.parts
    }


def test_it_is_done_where_memory_is_free(tiny, monkeypatch):
    asked = []
    monkeypatch.setattr(
        small_training, "compiler", lambda *of, fits: asked.append((fits, of[2].n_buckets))
    )
    with tiny.dataset(n_rows=500, n_classes=80) as data:
        plan = sm.plan(data, n_buckets=32, n_repetitions=2, threads=2)
    roomy = replace(plan, limits=replace(plan.limits, host=plan.projected_bytes + 2 * BYTES))
    tight = replace(plan, limits=replace(plan.limits, host=plan.projected_bytes + BYTES // 2))
    alone = replace(plan.config, placement=replace(plan.config.placement, threads=1))
    for made in (roomy, tight, replace(roomy, config=alone)):
        rehearsal(made)
    assert asked == [(True, 32), (False, 32), (False, 32)]
