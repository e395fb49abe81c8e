"""LibMultiLabel's tree on features scaled by streammach's fitted group weights."""

from functools import partial

from benchmarks.peers.scaled import WHAT, scaled_features
from benchmarks.peers.systems import libmultilabel_tree
from benchmarks.peers.systems.libmultilabel_tree import LISTS, PACKAGE, size

__all__ = ["LISTS", "PACKAGE", "predict", "size", "train"]

NAME = "LibMultiLabel tree, scaled"
SETTINGS = f"as LibMultiLabel's tree, on {WHAT}"
train = partial(libmultilabel_tree.train, features=scaled_features)
predict = partial(libmultilabel_tree.predict, features=scaled_features)
