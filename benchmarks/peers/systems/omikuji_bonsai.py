"""Omikuji's Bonsai: shallow, unbalanced trees."""

from benchmarks.peers.systems import omikuji_parabel
from benchmarks.peers.systems.omikuji_parabel import LISTS, PACKAGE, predict, size

__all__ = ["LISTS", "PACKAGE", "predict", "size", "train"]

NAME = "Omikuji Bonsai, 3 trees"
SETTINGS = "unbalanced clusters of 100, depth 3, otherwise as Parabel"


def settings(parameters):
    """Make shallow trees of unbalanced clusters, as its authors do."""
    parameters.cluster_balanced = False
    parameters.cluster_k = 100
    parameters.max_depth = 3


def train(task):
    """Train; return the model."""
    return omikuji_parabel.train(task, settings)
