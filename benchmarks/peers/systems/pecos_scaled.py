"""PECOS XLinear on features scaled by streammach's fitted group weights."""

from functools import partial

from benchmarks.peers.scaled import WHAT, scaled_features
from benchmarks.peers.systems import pecos_xlinear
from benchmarks.peers.systems.pecos_xlinear import LISTS, PACKAGE, size

__all__ = ["LISTS", "PACKAGE", "predict", "size", "train"]

NAME = "PECOS XLinear, scaled"
SETTINGS = f"as PECOS XLinear, on {WHAT}"
train = partial(pecos_xlinear.train, features=scaled_features)
predict = partial(pecos_xlinear.predict, features=scaled_features)
