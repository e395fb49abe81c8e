"""Trackers of experiments, offline, with the real libraries where they are installed."""

import json

import numpy as np
import pandas as pd
import pytest

import streammach as sm
from streammach.frontends import trackers

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries

N = 240
X = np.eye(12, dtype=np.float32)[np.arange(N) % 12]
Y = np.arange(N) % 12
EPOCHS = {"epochs": 2, "n_buckets": 4, "n_repetitions": 2, "learning_rate": 0.5,
          "transform": "raw", "counts": "off", "linear": "off", "memory": "1GB"}  # fmt: skip


def train(*callbacks, **options):
    return sm.train(X, Y, callbacks=callbacks, **{**EPOCHS, **options})


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"file://{tmp_path}/mlflow")
    yield mlflow
    mlflow.set_tracking_uri(before)


def assert_told(run, figures, decided):
    """Figures by name, each with (epoch, value), and settings are those of a run."""
    history = run.result.history
    for name in ("loss", "accuracy", "top_5_accuracy", "peak_bytes"):
        wanted = [(one.epoch, getattr(one, name)) for one in history]
        assert [step for step, _ in figures[name]] == [step for step, _ in wanted]
        assert np.allclose([value for _, value in figures[name]], [value for _, value in wanted])
    assert np.isclose(figures["model_accuracy"][-1][1], run.result.best.accuracy)
    assert np.isclose(figures["model_bytes"][-1][1], run.model.n_bytes)
    if decided is not None:
        assert str(decided["epochs"]) == "2"
        assert decided["model"] == run.plan.config.text
        assert decided["estimator"] == run.result.estimator


def test_mlflow_has_the_figures_and_the_settings(mlflow):
    with mlflow.start_run() as active:
        run = train(trackers.track_mlflow())
    client, number = mlflow.MlflowClient(), active.info.run_id
    names = client.get_run(number).data.metrics
    histories = {name: client.get_metric_history(number, name) for name in names}
    figures = {name: [(one.step, one.value) for one in every] for name, every in histories.items()}
    assert_told(run, figures, client.get_run(number).data.params)


def test_mlflow_keeps_serves_and_gives_back_a_model(mlflow):
    frame = pd.DataFrame({"text": [f"w{i} v{i % 4}" for i in Y], "label": [f"c{i}" for i in Y]})
    model = sm.train(frame, "label", memory="1GB").model
    with mlflow.start_run():
        info = trackers.log_model(model)
    rows, wanted = frame[["text"]][:20], model.predict(frame[["text"]][:20]).tolist()
    back = trackers.load_model(info.model_uri)
    assert back.predict(rows).tolist() == wanted
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    assert loaded.predict(rows).tolist() == wanted
    server = pytest.importorskip("mlflow.pyfunc.scoring_server")
    client = pytest.importorskip("fastapi.testclient").TestClient(server.init(loaded))
    body = json.dumps({"dataframe_split": rows.to_dict("split", index=False)})
    answer = client.post("/invocations", content=body,
                         headers={"Content-Type": "application/json"})  # fmt: skip
    assert (answer.status_code, answer.json()) == (200, {"predictions": wanted})


def test_tensorboard_has_the_figures(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    run = train(trackers.track_tensorboard(tmp_path / "logs"))
    read = EventAccumulator(str(tmp_path / "logs"))
    read.Reload()
    figures = {
        name: [(one.step, float(make_ndarray(one.tensor_proto))) for one in read.Tensors(name)]
        for name in read.Tags()["tensors"]
    }
    assert_told(run, figures, None)


def test_weights_and_biases_has_the_figures_and_the_settings(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    told = []
    with wandb.init(mode="offline", dir=tmp_path, project="tests") as active:
        log = active.log

        def log_too(figures, step):
            told.append((step, figures))
            log(figures, step=step)

        monkeypatch.setattr(active, "log", log_too)
        run = train(trackers.track_wandb())
        log({"end": 1}, step=3)  # which writes the step before
        figures, summary, decided = {}, dict(active.summary), dict(active.config)
    for step, values in told:
        for name, value in values.items():
            figures.setdefault(name, []).append((step, value))
    assert_told(run, figures, decided)
    assert summary["loss"] == run.result.history[-1].loss
    assert summary["model_bytes"] == run.model.n_bytes
    assert [*tmp_path.rglob("*.wandb")]


def test_what_a_tracker_refuses_is_a_warning_and_no_end_of_the_training():
    def refuse(*what):
        raise ConnectionError("nobody\nanswers")

    with pytest.warns(UserWarning, match=r"a tracker was not told: nobody\\nanswers") as said:
        run = train(trackers.Tracker(refuse, refuse))
    assert len([one for one in said if "tracker" in str(one.message)]) == 4
    assert run.model.predict(X[:12]).tolist() == train().model.predict(X[:12]).tolist()


@pytest.mark.usefixtures("linear")
def test_linear_classifiers_and_merges_tell_their_run(tmp_path):
    told = []
    tracker = trackers.Tracker(lambda *what: told.append(what), told.append)
    run = sm.train(X, Y, memory="1GB", callbacks=[tracker])
    (figures, epoch), decided = told
    assert (epoch, figures["model_accuracy"]) == (0, run.result.best.accuracy)
    assert decided["model"] == "linear classifiers"
    again = []

    class Watcher:
        def on_run_end(self, run):
            again.append(run)

    sm.convert((X, Y), tmp_path / "store")
    with sm.Dataset.open(tmp_path / "store") as data:
        plan = sm.plan(data, n_buckets=4, n_repetitions=2, counts="off", linear="off", threads=1)
        trainer = sm.Trainer(plan, sm.TrainingOptions(epochs=1, learning_rate=0.5,
                                                      transform="raw"))  # fmt: skip
        trainer.fit_part(data, tmp_path / "part", (1, 1))
    merged = sm.merge(tmp_path / "run", [tmp_path / "part"], callbacks=[Watcher()])
    assert [one.path for one in again] == [merged.path]
