"""Parts of a run on a GPU, or in Numba's simulator: merged, they have the bytes of one run."""

import pytest

import streammach as sm
from streammach.backends.registry import choose_device
from streammach.errors import DeviceError
from tests.builders import changed
from tests.training.test_cuda_runs import FIXED, MODEL, store
from tests.training.test_training import model_bytes

try:
    choose_device("cuda")
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with sm.Dataset.open(store(tmp_path_factory, 60)) as opened:
        yield opened


@pytest.mark.parametrize("waves, weights", [(3, "float32"), (1, "bfloat16"), (1, "float32")])
def test_merged_parts_have_the_bytes_of_one_run(waves, weights, data, tmp_path):
    plan = changed(sm.plan(data, device="cuda", **MODEL), waves=waves, weights=weights)
    trainer = sm.Trainer(plan, sm.TrainingOptions(**FIXED))
    joint = trainer.fit(data, tmp_path / "joint")
    parts = [trainer.fit_part(data, tmp_path / f"part{k}", (k, 2)).path for k in (1, 2)]
    merged = sm.merge(tmp_path / "run", parts)
    assert model_bytes(merged) == model_bytes(joint)
    assert merged.result.validation == joint.result.validation
