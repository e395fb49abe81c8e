"""A model for tests of predictions."""

import numpy as np
import pytest

from streammach.model.calibration import Calibration
from streammach.model.model import Model
from streammach.rows.batch import BatchSlot
from tests.builders import TinyData, open_backend, spec_of, training


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A store, and a model of it whose weights are those of a few steps."""
    tiny = TinyData(tmp_path_factory.mktemp("trained"), np.random.default_rng(7))
    data = tiny.dataset(n_rows=400, n_classes=20)
    spec = spec_of(data.n_classes, data.n_features, 8, 6)
    how = training(batch_size=64, transform="binary", learning_rate=0.7)
    backend = open_backend("cpu", spec, dense=False, threads=1)
    backend.prepare(how, 1000)
    rows = data.rows(0, data.n_rows)
    slot = BatchSlot(64, rows.nnz, data.n_features, by_feature=True)
    for _ in range(4):
        for start in range(0, 400, 64):
            slot.clear()
            slot.add(rows, np.arange(start, min(start + 64, 400)), "binary")
            backend.step(slot.batch(), 0.7)
    model = Model(
        spec=spec, training=how, dense=False, estimator="logsum",
        calibration=Calibration(2.0, -4.0), store=data.digest,
        majority=int(data.label_counts.argmax()), validation={}, labels=data.labels,
        features=data.features, weights=backend.arrays()["weights"],
        bias=backend.arrays()["bias"],
    )  # fmt: skip
    yield data, model
    backend.close()
    data.close()
