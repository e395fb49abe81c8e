"""Options of the public functions with values that cannot be: one clear line, whatever they are."""

import inspect
import math

import numpy as np
import pytest

import streammach as sm
from streammach.options.annotated import TYPES
from streammach.system.errors import StreammachError, UsageError
from tests.builders import NO_PARTS

SHAPE = {"n_buckets": 4, "n_repetitions": 2}
SHORT = {"epochs": 1, "learning_rate": 0.5, "transform": "raw"}
PARTS = {"counts": "off", **NO_PARTS}
PLAIN = {**SHAPE, **SHORT, **PARTS, "threads": 1, "progress": "none"}
ODD = [
    {"text": "2", "NaN": math.nan, "huge": 10**30},
    {"none": None, "inf": math.inf, "negative": -1},
    {"list": [1], "part": 0.5, "object": object()},
]
X, Y = np.eye(6, dtype=np.float32)[np.arange(60) % 6], np.arange(60) % 6
ROWS, MORE = [{"w^f1": 1.0}], {"force": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows, a store and a run."""
    here = tmp_path_factory.mktemp("options")
    for name, labels in (("rows", 6), ("more", 7)):
        lines = [f"l{i % labels} |w f{i % 6} g{i % 4}" for i in range(60)]
        (here / f"{name}.vw").write_text("\n".join(lines) + "\n")
    sm.convert(here / "rows.vw", here / "s.zarr")
    plan = sm.plan(here / "s.zarr", **SHAPE, threads=1, counts="off")
    sm.Trainer(plan, sm.TrainingOptions(**SHORT)).fit(here / "s.zarr", here / "run")
    return here


def estimator(**options):
    quick = {**SHAPE, "epochs": 1, "learning_rate": 0.5, "options": {"transform": "raw", **PARTS}}
    return sm.MACHClassifier(**quick | options).fit(X, Y)


def suspects(data, **options):
    small = sm.Constraints(**SHAPE, parts={"counts": "off"})
    short = {"training": sm.TrainingOptions(**SHORT), "constraints": small, "folds": 2}
    return sm.suspects(data, **short | options)


def trainer(store, **options):
    return sm.Trainer(sm.plan(store, **SHAPE), **{"options": sm.TrainingOptions(**SHORT)} | options)


def watched(**options):
    return sm.train(X, Y, callbacks=[sm.callbacks.EarlyStopping(**options)], **PLAIN)


# By function: what is called with its options.
CALLS = {
    sm.convert: lambda f, o: sm.convert(f / "rows.vw", f / "o.zarr", **MORE | o),
    sm.explore: lambda f, o: sm.explore(f / "rows.vw", **o),
    sm.verify: lambda f, o: sm.verify(f / "s.zarr", **o),
    sm.Constraints: lambda f, o: sm.train(X, Y, **PLAIN | o),
    sm.TrainingOptions: lambda f, o: sm.train(X, Y, **PLAIN | o),
    sm.train: lambda f, o: sm.train(X, **{"y": Y, **PLAIN} | o),
    sm.evaluate: lambda f, o: sm.evaluate(f / "run", f / "rows.vw", **o),
    sm.metrics: lambda f, o: sm.metrics(Y, X, **o),
    sm.predict: lambda f, o: sm.predict(f / "run", f / "rows.vw", **{"out": f / "p", **MORE} | o),
    sm.Predictor: lambda f, o: sm.Predictor(sm.Model.load(f / "run"), **o),
    sm.Predictor.topk: lambda f, o: sm.Predictor(sm.Model.load(f / "run")).topk(ROWS, **o),
    sm.Predictor.query: lambda f, o: sm.Predictor(sm.Model.load(f / "run")).query(["w^f1"], **o),
    sm.Predictor.explain: lambda f, o: sm.Predictor(sm.Model.load(f / "run")).explain(ROWS, **o),
    sm.Predictor.stream: lambda f, o: [
        *sm.Predictor(sm.Model.load(f / "run")).stream(f / "rows.vw", **o)
    ],
    sm.Model.predict: lambda f, o: sm.Model.load(f / "run").predict(ROWS, **o),
    sm.Model.predict_topk: lambda f, o: sm.Model.load(f / "run").predict_topk(ROWS, **o),
    sm.Model.explain: lambda f, o: sm.Model.load(f / "run").explain(ROWS, **o),
    sm.Model.save: lambda f, o: sm.Model.load(f / "run").save(f / "m", **MORE | o),
    sm.Dataset.open: lambda f, o: sm.Dataset.open(f / "s.zarr", **o).close(),
    sm.report: lambda f, o: sm.report(f / "run", **{"out": f / "r.html", **MORE} | o),
    sm.add: lambda f, o: sm.add(f / "run", **{"rows": f / "more.vw", "out": f / "a", **MORE} | o),
    sm.shrink: lambda f, o: sm.shrink(f / "run", f / "t", **MORE | {"weights": "float16"} | o),
    sm.suspects: lambda f, o: suspects(f / "s.zarr", **o),
    sm.Trainer: lambda f, o: trainer(f / "s.zarr", **o).fit(f / "s.zarr"),
    sm.callbacks.EarlyStopping: lambda f, o: watched(**o),
    sm.MACHClassifier: lambda f, o: estimator(**o),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("values", ODD, ids=", ".join)
@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__qualname__)
def test_a_value_that_cannot_be_gives_one_clear_line(function, values, folder, monkeypatch):
    monkeypatch.chdir(folder)  # where a text is a path
    call, said = CALLS[function], []
    call(folder, {})
    # scikit-learn looks at what it knows itself
    right = (StreammachError, ValueError) if function is sm.MACHClassifier else StreammachError
    for name, option in inspect.signature(function).parameters.items():
        if option.default is option.empty or name == "parts":
            continue
        for kind, value in values.items():
            try:
                call(folder, {name: value})
            except right as error:
                said.append(str(error))
            except Exception as error:
                pytest.fail(f"{name}={kind}: {type(error).__name__}: {error}")
    assert any("is no " in line for line in said)
    assert function is sm.MACHClassifier or not any("\n" in line for line in said)


def test_so_many_threads_are_refused(folder):
    for call in (CALLS[sm.convert], CALLS[sm.train], CALLS[sm.Predictor]):
        with pytest.raises(UsageError, match="more than 4,096: threads"):
            call(folder, {"threads": 2**40})


def of_a_cluster():
    from streammach.frontends.cluster import distributed

    return [distributed.train, distributed.predict, distributed.evaluate]


@pytest.mark.parametrize("number", range(3))
def test_a_cluster_is_not_asked_for_what_cannot_be(number):
    pytest.importorskip("distributed")
    function, refused = of_a_cluster()[number], 0
    given = inspect.signature(function).parameters
    fixed = {name: "x" for name, one in given.items() if one.default is one.empty}
    for name, kind in function.__annotations__.items():
        if name in given and name not in fixed and {*kind.split(" | ")} <= TYPES.keys():
            if {"str", "int"} <= {*kind.split(" | ")}:
                continue  # a size, which has a reader of its own
            refused += 1
            with pytest.raises(UsageError, match=rf"^'.*' is no .*: {name}$"):
                function(**fixed | {name: object()})
    assert refused
