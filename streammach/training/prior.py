"""The frequency of labels in the bias of an exact model of lists: what held-out rows let go."""

from __future__ import annotations

import numpy as np

from streammach.figures import Reached
from streammach.prediction.ranking import by_hashes, largest_tilt
from streammach.prediction.reached import measure
from streammach.rows.block import RowBlock
from streammach.spec.estimators import USUAL
from streammach.spec.training import TrainSpec
from streammach.training.session import Session


def tilt_bias(session: Session, spec: TrainSpec, rows: RowBlock) -> tuple[Reached, str]:
    """Take a share of ln n_i from the bias of each class; return what is reached then, and why."""
    backend = session.backend
    held = backend.arrays()["bias"]
    bias, columns = held.copy(), backend.codes[:, 0]
    logs = np.log(np.maximum(session.dataset.counting.labels, 1)).astype(bias.dtype)
    ranking = by_hashes(backend, USUAL, spec.transform)

    def use(tilt: float) -> None:
        held[:] = bias
        held[columns] -= bias.dtype.type(tilt) * logs
        backend.restore()

    reached: dict[float, Reached] = {}

    def measured(tilt: float) -> Reached:
        use(tilt)
        reached[tilt] = measure(rows, ranking)
        return reached[tilt]

    tilt = largest_tilt(measured, rows.n_alike)
    use(tilt)
    tried = ", ".join(
        f"{t:g} {one.accuracy:.3f} / {one.top_5_accuracy:.3f}" for t, one in reached.items()
    )
    return reached[tilt], f"ln n taken from the bias {tilt:g} times: {tried}"
