"""streammach without counts: MACH alone."""

from benchmarks.peers.systems import streammach_full
from benchmarks.peers.systems.streammach_full import LISTS, PACKAGE, predict, size

__all__ = ["LISTS", "PACKAGE", "predict", "size", "train"]

NAME = "streammach --counts off"
SETTINGS = streammach_full.SETTINGS + "; dense rows also --closed-form off and --whitening off"


def train(task):
    """Train a run; return its model."""
    return streammach_full.train(task, counts="off", closed_form="off", whitening="off")
