"""Omikuji's Bonsai on features scaled by streammach's fitted group weights."""

from functools import partial

from benchmarks.peers.scaled import WHAT, scaled_features
from benchmarks.peers.systems import omikuji_bonsai, omikuji_parabel
from benchmarks.peers.systems.omikuji_parabel import LISTS, PACKAGE, size

__all__ = ["LISTS", "PACKAGE", "predict", "size", "train"]

NAME = "Omikuji Bonsai, 3 trees, scaled"
SETTINGS = f"as Bonsai, on {WHAT}"
train = partial(omikuji_parabel.train, change=omikuji_bonsai.settings, features=scaled_features)
predict = partial(omikuji_parabel.predict, features=scaled_features)
