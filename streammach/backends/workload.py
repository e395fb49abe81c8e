"""What a backend's bytes depend on, beside the model."""

from __future__ import annotations

from dataclasses import dataclass

from streammach.spec import Optimizer, Weights


@dataclass(frozen=True)
class Workload:
    """What decides a backend's bytes beside the model.

    Attributes
    ----------
    optimizer : str or None
        The optimiser; None for a backend that only predicts.
    dense : bool
        Whether rows are expanded.
    batch_size, batch_nnz : int
        Most rows and values of a batch.
    threads : int
        Threads that compute on the CPU.
    waves : int
        Groups that the repetitions are trained in.
    weights : str
        Type of the weights on a device that has memory of its own.
    kept_rows, kept_nnz : int
        Rows of a store and their values that such a device keeps; zeros where they are streamed.
    whitened : bool
        Whether dense rows are whitened.
    """

    optimizer: Optimizer | None
    dense: bool
    batch_size: int
    batch_nnz: int
    threads: int
    waves: int
    weights: Weights = "float32"
    kept_rows: int = 0
    kept_nnz: int = 0
    whitened: bool = False
