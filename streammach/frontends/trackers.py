"""Callbacks for trackers of experiments: MLflow, also its models, TensorBoard, Weights & Biases."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import msgspec

from streammach import __version__
from streammach.model.model import Model
from streammach.system.errors import clean
from streammach.training.callbacks import State
from streammach.training.run import Run


class Tracker:
    """Tells figures of epochs and of the model, by log(figures, epoch); what a run decided, too."""

    def __init__(self, log: Callable[..., object], describe: Callable[..., object]) -> None:
        self._log, self._describe, self._epoch = log, describe, 0

    def on_epoch_end(self, state: State) -> None:
        """Tell what was measured at the end of an epoch."""
        self._epoch = state.epoch + 1
        self._tell(self._log, msgspec.to_builtins(state.history[-1]), self._epoch)

    def on_run_end(self, run: Run) -> None:
        """Tell what the model of a finished run reaches and takes, then what the run decided."""
        figures = {} if run.result.best is None else msgspec.to_builtins(run.result.best)
        figures |= {"seconds": run.result.seconds, "bytes": run.model.n_bytes}
        self._tell(self._log, {f"model_{name}": x for name, x in figures.items()}, self._epoch)
        decided = msgspec.to_builtins(run.settings.training)
        decided |= {"model": run.plan.config.text, "estimator": run.result.estimator}
        self._tell(self._describe, decided)

    def _tell(self, send: Callable[..., object], *what: object) -> None:
        try:
            send(*what)
        except Exception as error:  # of their code or network: the training goes on
            warnings.warn(f"a tracker was not told: {clean(error, 200)}", stacklevel=3)


def track_tensorboard(folder: str | os.PathLike[str]) -> Tracker:
    """Return a callback that writes scalars into a folder of TensorBoard."""
    from tensorboard.summary import Writer

    writer = Writer(os.fspath(folder))
    add = writer.add_scalar
    return Tracker(
        lambda figures, step: [add(name, value, step) for name, value in figures.items()],
        lambda decided: writer.flush(),
    )


def track_wandb() -> Tracker:
    """Return a callback for the run of Weights & Biases, which is begun where there is none."""
    import wandb

    run = wandb.run or wandb.init()
    return Tracker(lambda figures, step: run.log(figures, step=step), run.config.update)


def track_mlflow() -> Tracker:
    """Return a callback for the run of MLflow, which is begun where there is none."""
    import mlflow

    return Tracker(mlflow.log_metrics, mlflow.log_params)


def log_model(model: Model, name: str = "model", **options: Any) -> Any:
    """Log a model to MLflow, whose ``pyfunc`` answers by it; options as of its ``log_model``."""
    import mlflow

    with tempfile.TemporaryDirectory() as folder:
        model.save(path := f"{folder}/model")
        options = {"pip_requirements": [f"streammach=={__version__}"], **options}
        return mlflow.pyfunc.log_model(name=name, loader_module=__name__, data_path=path, **options)


def load_model(uri: str) -> Model:
    """Return a model that MLflow has at a URI, such as ``models:/name/1``."""
    import mlflow

    return Model.load(f"{mlflow.artifacts.download_artifacts(uri)}/data/model")


_load_pyfunc = Model.load  # what MLflow calls
