"""Train classifiers with 100,000 classes on one machine, inside a memory budget you name.

Public names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streammach.conversion.convert import convert
    from streammach.conversion.explore import explore
    from streammach.frontends.cluster import distributed
    from streammach.frontends.reports.pages import report
    from streammach.frontends.sklearn.classifier import MACHClassifier
    from streammach.inputs.tokenizers import tokenizer
    from streammach.model.model import Model
    from streammach.options.plan import Plan
    from streammach.options.training import TrainingOptions
    from streammach.planning.choose import plan
    from streammach.planning.constraints import Constraints
    from streammach.planning.data_shape import Shape
    from streammach.prediction.evaluate import evaluate
    from streammach.prediction.external_scores import metrics
    from streammach.prediction.predict import predict
    from streammach.prediction.predictor import Predictor
    from streammach.store.dataset import Dataset, verify
    from streammach.system.clock import Clock
    from streammach.training import callbacks
    from streammach.training.derived import add, shrink
    from streammach.training.out_of_fold import suspects
    from streammach.training.run import Run
    from streammach.training.trainer import Trainer, merge, train
    from streammach.training.warm_start import Start

__version__ = "0.1.0"
__all__ = [
    "Clock", "Constraints", "Dataset", "MACHClassifier", "Model", "Plan", "Predictor", "Run",
    "Shape", "Start", "Trainer", "TrainingOptions", "add", "callbacks", "convert", "distributed",
    "evaluate", "explore", "merge", "metrics", "plan", "predict", "report", "shrink", "suspects",
    "tokenizer", "train", "verify",
]  # fmt: skip
_HOMES = {
    "system.clock": ["Clock"], "frontends.cluster": ["distributed"],
    "conversion.convert": ["convert"], "conversion.explore": ["explore"],
    "store.dataset": ["Dataset", "verify"], "inputs.tokenizers": ["tokenizer"],
    "model.model": ["Model"], "planning.choose": ["plan"], "planning.constraints": ["Constraints"],
    "planning.data_shape": ["Shape"],
    "prediction.evaluate": ["evaluate"], "prediction.external_scores": ["metrics"],
    "prediction.predict": ["predict"], "prediction.predictor": ["Predictor"],
    "frontends.reports.pages": ["report"], "frontends.sklearn.classifier": ["MACHClassifier"],
    "options.plan": ["Plan"], "options.training": ["TrainingOptions"], "training": ["callbacks"],
    "training.derived": ["add", "shrink"], "training.run": ["Run"],
    "training.warm_start": ["Start"], "training.out_of_fold": ["suspects"],
    "training.trainer": ["Trainer", "merge", "train"],
}  # fmt: skip

logging.getLogger("streammach").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            home = import_module(f"{__name__}.{module}")
            return getattr(home, name, None) or import_module(f"{home.__name__}.{name}")
    raise AttributeError(f"module 'streammach' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
