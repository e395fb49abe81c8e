"""Parts of a run on a GPU, or in Numba's simulator: merged, they have the bytes of one run."""

import os

import pytest

import streammach as sm
from streammach.backends.registry import choose_device
from streammach.cli.main import main
from streammach.frontends.cluster import workers
from streammach.system.errors import DeviceError, UsageError
from tests.builders import changed, model_files
from tests.training.test_cuda_runs import FIXED, MODEL, store

try:
    choose_device("cuda")
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with sm.Dataset.open(store(tmp_path_factory, 60)) as opened:
        yield opened


@pytest.fixture(scope="module")
def plan(data):
    return sm.plan(data, device="cuda", **MODEL)


@pytest.fixture(scope="module")
def joint(data, plan, tmp_path_factory):
    trainer = sm.Trainer(plan, sm.TrainingOptions(**FIXED))
    return trainer.fit(data, tmp_path_factory.mktemp("joint") / "run")


@pytest.mark.parametrize("waves", [1, 3])
def test_merged_parts_have_the_bytes_of_one_run(waves, data, plan, joint, tmp_path):
    trainer = sm.Trainer(changed(plan, waves=waves), sm.TrainingOptions(**FIXED))
    parts = [trainer.fit_part(data, tmp_path / f"part{k}", (k, 2)) for k in (1, 2)]
    assert [part.n_groups for part in parts] == ([1, 2] if waves == 3 else [1, 1])
    merged = sm.merge(tmp_path / "run", [part.path for part in parts])
    assert model_files(merged) == model_files(joint)
    assert merged.result.validation == joint.result.validation


def test_a_part_in_bfloat16_is_refused(data, plan, tmp_path):
    trainer = sm.Trainer(changed(plan, weights="bfloat16"), sm.TrainingOptions(**FIXED))
    with pytest.raises(UsageError, match="bfloat16 weights are rounded by their places"):
        trainer.fit_part(data, tmp_path / "part", (1, 2))


def test_processes_of_this_machine_with_a_gpu_each(data, joint, tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed", reason="needs dask.distributed")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    shape = [
        f"--{name.replace('n_', '').replace('_', '-')}={value}"
        for name, value in MODEL.items()
        if name != "tf32"
    ]
    fixed = ["--epochs=2", "--learning-rate=0.5", "--transform=binary", "--progress=none"]
    train = ["train", str(data.path), "--out", str(tmp_path / "run"), "--no-tf32", *shape, *fixed]
    devices = "0"
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        devices = "0,1"
        monkeypatch.setattr(workers, "PRELOADED", "tests.simulator")
    assert main([*train, "--devices", devices]) == 0, capsys.readouterr().err
    assert model_files(sm.Run.open(tmp_path / "run")) == model_files(joint)
