"""Train classifiers with 100,000 classes on one machine, inside a memory budget you name.

Public names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streammach.clock import Clock
    from streammach.cluster import distributed
    from streammach.data.convert import convert
    from streammach.data.explore import explore
    from streammach.data.store.dataset import Dataset, verify
    from streammach.model.model import Model
    from streammach.planning.choose import plan
    from streammach.planning.constraints import Constraints
    from streammach.prediction.evaluate import evaluate
    from streammach.prediction.predict import predict
    from streammach.prediction.predictor import Predictor
    from streammach.reports.pages import report
    from streammach.sklearn.classifier import MACHClassifier
    from streammach.spec.plan import Plan
    from streammach.spec.training import TrainingOptions
    from streammach.training import callbacks
    from streammach.training.added import add
    from streammach.training.pilot import pilot
    from streammach.training.rows import train
    from streammach.training.run import Run
    from streammach.training.smaller import shrink
    from streammach.training.sweep import sweep
    from streammach.training.trainer import Trainer, merge

__version__ = "0.1.0"
__all__ = [
    "Clock",
    "Constraints",
    "Dataset",
    "MACHClassifier",
    "Model",
    "Plan",
    "Predictor",
    "Run",
    "Trainer",
    "TrainingOptions",
    "add",
    "callbacks",
    "convert",
    "distributed",
    "evaluate",
    "explore",
    "merge",
    "pilot",
    "plan",
    "predict",
    "report",
    "shrink",
    "sweep",
    "train",
    "verify",
]

_HOMES = {
    "Clock": "streammach.clock",
    "Constraints": "streammach.planning.constraints",
    "Dataset": "streammach.data.store.dataset",
    "MACHClassifier": "streammach.sklearn.classifier",
    "Model": "streammach.model.model",
    "Plan": "streammach.spec.plan",
    "Predictor": "streammach.prediction.predictor",
    "Run": "streammach.training.run",
    "TrainingOptions": "streammach.spec.training",
    "Trainer": "streammach.training.trainer",
    "add": "streammach.training.added",
    "convert": "streammach.data.convert",
    "evaluate": "streammach.prediction.evaluate",
    "explore": "streammach.data.explore",
    "merge": "streammach.training.trainer",
    "pilot": "streammach.training.pilot",
    "plan": "streammach.planning.choose",
    "predict": "streammach.prediction.predict",
    "report": "streammach.reports.pages",
    "shrink": "streammach.training.smaller",
    "sweep": "streammach.training.sweep",
    "verify": "streammach.data.store.dataset",
    "train": "streammach.training.rows",
}

logging.getLogger("streammach").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name == "callbacks":
        return import_module("streammach.training.callbacks")
    if name == "distributed":
        return import_module("streammach.cluster.distributed")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streammach' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
