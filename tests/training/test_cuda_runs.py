"""Whole runs on a GPU, or on the few rows that Numba's simulator can train on."""

import contextlib
import os

import numpy as np
import pytest

import streammach as sm
from streammach.backends.cpu.backend import CpuBackend
from streammach.backends.cuda import kind
from streammach.backends.cuda.device_memory import RESERVED_BYTES, UNIT, DeviceMemory
from streammach.backends.registry import BACKENDS, choose_device, open_to_predict
from streammach.cli.main import main
from streammach.conversion.convert import convert
from streammach.model.model import Model
from streammach.options.figures import HeldOutMetrics
from streammach.parts.fourier import part as fourier
from streammach.prediction.predictor import Predictor
from streammach.store.dataset import Dataset
from streammach.system.errors import BudgetError, DeviceError, Interrupted, MismatchError
from streammach.training import epochs
from streammach.training.run import Run
from tests.backends.cupy_pool import pooled
from tests.backends.late import LateMemory
from tests.builders import (
    Stop,
    TinyData,
    block_of,
    changed,
    config_of,
    model_files,
    open_backend,
    spec_of,
    stop_after,
)  # fmt: skip
from tests.builders import fit as train
from tests.simulator.memory import SimulatedMemory

try:
    choose_device("cuda")
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

FIXED = {"epochs": 2, "learning_rate": 0.5, "transform": "binary"}
MODEL = {"n_buckets": 4, "n_repetitions": 5, "counts": "off", "batch_size": 16, "threads": 1,
         "tf32": False}  # fmt: skip


def store(tmp_path_factory, n_noise):
    made = TinyData(tmp_path_factory.mktemp("cuda"), np.random.default_rng(1))
    return made.store(n_rows=70, n_classes=9, n_noise=n_noise)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return store(tmp_path_factory, 60)


@pytest.fixture(scope="module")
def plan(data):
    return sm.plan(data, device="cuda", **MODEL)


def fit(data, out, plan, *, resume=False, **options):
    return train(data, out, plan, resume=resume, **{**FIXED, **options})


@pytest.fixture(scope="module")
def run(data, plan, tmp_path_factory):
    return fit(data, tmp_path_factory.mktemp("runs") / "cuda", plan)


@pytest.fixture(scope="module")
def rows(data):
    with Dataset.open(data) as opened:
        return block_of(np.random.default_rng(2), 20, opened.facts.n_features, 9)


def test_a_run_is_that_of_the_cpu(data, plan, run, tmp_path):
    on_cpu = fit(data, tmp_path / "cpu", sm.plan(data, device="cpu", **MODEL))
    found, expected = run.model.weights, on_cpu.model.weights
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    for ours, theirs in zip(run.result.history, on_cpu.result.history, strict=True):
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)
        assert ours.accuracy == pytest.approx(theirs.accuracy)
    assert (
        run.plan.config.placement.device,
        run.plan.config.dense,
        run.plan.config.placement.resident,
    ) == ("cuda", False, True)
    assert 0 < run.result.device_peak_bytes <= run.result.device_projected_bytes
    assert on_cpu.result.device_peak_bytes == 0


@pytest.mark.skipif(os.environ.get("NUMBA_ENABLE_CUDASIM") != "1", reason="a card has its pool")
def test_the_pool_of_a_card_holds_no_more_than_planned(data, plan, tmp_path, monkeypatch):
    """Its blocks outlive buffers that trials and smaller decodings had."""
    pooled(SimulatedMemory, monkeypatch)
    monkeypatch.setattr(SimulatedMemory, "class_sets", DeviceMemory.class_sets)
    result = fit(data, tmp_path / "run", plan, epochs=1).result
    assert 0 < result.device_peak_bytes <= result.device_projected_bytes


@pytest.mark.parametrize(
    ("interrupted", "best_stays"), [(False, True), (True, True), (True, False)]
)
def test_the_best_epoch_stays_in_memory(interrupted, best_stays, data, plan, tmp_path, monkeypatch):
    """It is written where a checkpoint is written behind it, and at the end."""
    assert plan.config.placement.best_stays
    assert ("best epoch", "device") in [(line.name, line.where) for line in plan.ledger]
    plan, written = changed(plan, best_stays=best_stays), []

    class Watching(Stop):
        def on_epoch_end(self, state):
            written.append(list((tmp_path / "run/checkpoints").glob("step*")))

    def begin(folder, plan, *callbacks, resume=False):
        scores = iter([0.1, 0.9, 0.3, 0.2][2 * resume :])
        monkeypatch.setattr(epochs, "measure_rows", lambda *_: HeldOutMetrics(next(scores), 0.0))
        given = {"callbacks": callbacks, "resume": resume, "last_passes": 0}
        return fit(data, folder, plan, epochs=4, **given)

    stop = Watching(monkeypatch, on_progress=lambda at: interrupted and at.epoch == 2)
    with contextlib.suppress(Interrupted):
        begin(tmp_path / "run", plan, stop)
    if interrupted:
        assert len(list((tmp_path / "run/checkpoints").glob("step*"))) == 2
        begin(tmp_path / "run", plan, resume=True)
    assert written == [[]] * (2 if interrupted else 4)
    expected = begin(tmp_path / "cpu", sm.plan(data, device="cpu", **MODEL))
    found = Run.open(tmp_path / "run")
    assert found.result.best_epoch == expected.result.best_epoch == 1
    most = np.abs(expected.model.weights).max()
    assert np.abs(found.model.weights - expected.model.weights).max() <= 1e-5 * most


@pytest.mark.parametrize(("transform", "first"), [("l2", None), ("l2", 20), ("auto", None)])
def test_rows_that_stay_on_the_device_give_the_bytes_of_streamed_ones(
    transform, first, data, plan, tmp_path, monkeypatch
):
    """Trials of all transforms fill the device again and again; a run may go on the other way."""
    plan = plan if first is None else sm.plan(data, device="cuda", hashed_features=first, **MODEL)
    assert plan.config.placement.resident
    streamed = changed(plan, resident=False)
    options = {"transform": transform, "epochs": 2}
    found = [fit(data, tmp_path / n, p, **options) for n, p in (("k", plan), ("s", streamed))]
    assert model_files(found[0]) == model_files(found[1])
    assert found[0].settings == found[1].settings
    for name, first, then in (("there", plan, streamed), ("back", streamed, plan)):
        stop = stop_after(4, monkeypatch)
        with pytest.raises(Interrupted):
            fit(data, tmp_path / name, first, callbacks=[stop], **options)
        monkeypatch.undo()
        resumed = fit(data, tmp_path / name, then, resume=True, **options)
        assert model_files(resumed) == model_files(found[0])


def store_of_lists(folder, n_noise):
    """A store of rows with up to three labels each, some without."""
    made, rng = TinyData(folder, np.random.default_rng(1)), np.random.default_rng(7)
    lines = []
    for _ in range(50):
        own = rng.choice(9, int(rng.integers(0, 4)), replace=False).tolist()
        noise = " ".join(f"n{j}" for j in rng.choice(n_noise, 2, replace=False))
        lines.append(f"{','.join(map(str, own))} | {' '.join(f'a{c}' for c in own)} {noise}")
    convert(made.text("lists.vw", lines), folder / "lists.zarr", multilabel="on")
    return folder / "lists.zarr"


@pytest.mark.parametrize("loss", ["auto", "joint"])
def test_lists_that_stay_on_the_device_give_the_bytes_of_streamed_ones(loss, tmp_path):
    """Trials of labels that share the target and of whole ones fill the device anew."""
    data = store_of_lists(tmp_path, 120)
    plan = sm.plan(data, device="cuda", loss=loss, **MODEL)
    assert plan.config.placement.resident
    assert not plan.config.dense
    streamed, options = changed(plan, resident=False), {"epochs": 1}
    found = [fit(data, tmp_path / n, p, **options) for n, p in (("k", plan), ("s", streamed))]
    assert model_files(found[0]) == model_files(found[1])
    assert found[0].settings == found[1].settings
    assert 0 < found[0].result.device_peak_bytes <= found[0].result.device_projected_bytes
    on_cpu = fit(data, tmp_path / "c", sm.plan(data, device="cpu", loss=loss, **MODEL), **options)
    weights, expected = (run.model.weights for run in (found[0], on_cpu))
    assert np.abs(weights - expected).max() <= 1e-4 * np.abs(expected).max()


def test_parts_of_dense_lists_are_those_of_the_cpu(tmp_path, monkeypatch):
    """Whitened rows with cosines and a closed form, learnt by sigmoids or a softmax."""
    monkeypatch.setattr(fourier, "SIZES", {16: 0.0})
    data = store_of_lists(tmp_path, 3)
    options = {"epochs": 1, "transform": "raw", "learning_rate": 0.01}
    words = {"whitening": "on", "closed_form": "on", "fourier": "on"}
    runs = []
    for device in ("cuda", "cpu"):
        plan = sm.plan(data, device=device, threads=1, **words)
        assert {part.name for part in plan.config.parts} >= words.keys()
        runs.append(fit(data, tmp_path / device, plan, **options))
    for name, array in runs[1].model.arrays().items():
        most = np.abs(array).max()
        assert np.abs(runs[0].model.arrays()[name] - array).max() <= 1e-3 * most, name
    assert runs[0].result.reasons[0] == runs[1].result.reasons[0]


@pytest.mark.skipif(os.environ.get("NUMBA_ENABLE_CUDASIM") != "1", reason="a simulated device")
@pytest.mark.parametrize("resident", [True, False])
def test_a_run_on_a_device_that_copies_late_gives_the_same_bytes(
    resident, data, plan, run, tmp_path, monkeypatch
):
    monkeypatch.setattr("streammach.backends.cuda.backend.DeviceMemory", LateMemory)
    late = fit(data, tmp_path / "late", changed(plan, resident=resident, waves=2))
    assert model_files(late) == model_files(run)
    assert [h.loss for h in late.result.history] == pytest.approx(
        [h.loss for h in run.result.history], rel=1e-6
    )


def test_a_model_of_one_device_is_served_on_the_other(run, rows, tmp_path):
    run.model.save(tmp_path / "copy")
    for folder in (run.path / "model", tmp_path / "copy"):
        found = []
        for device in ("cuda", "cpu"):
            with Predictor(Model.load(folder), device=device, threads=1) as predictor:
                found.append(predictor.topk(rows, 5))
        assert found[0][0].tolist() == found[1][0].tolist()
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)


@pytest.mark.parametrize("waves", [1, 3])
def test_a_run_in_waves_and_an_interrupted_one_give_the_same_bytes(
    waves, data, plan, run, tmp_path, monkeypatch
):
    in_waves = changed(plan, waves=waves)
    steps = 3 + 5 * (waves - 1)  # within the first wave, or within the second
    stop = stop_after(steps, monkeypatch)
    with pytest.raises(Interrupted, match=f"saved step {steps}"):
        fit(data, tmp_path / "run", in_waves, callbacks=[stop])
    monkeypatch.undo()
    resumed = fit(data, tmp_path / "run", in_waves, resume=True)
    assert model_files(resumed) == model_files(run)
    assert [h.loss for h in resumed.result.history] == pytest.approx(
        [h.loss for h in run.result.history], rel=1e-6
    )


def test_bfloat16_weights_take_half_and_resume_to_the_same_bytes(
    data, plan, run, tmp_path, monkeypatch
):
    narrow = sm.plan(data, device="cuda", weights="bfloat16", **MODEL)
    lines = [{x.name: x.n_bytes for x in p.ledger if x.where == "device"} for p in (plan, narrow)]
    assert 2 * lines[1].pop("weights") == pytest.approx(lines[0].pop("weights"), abs=1024)
    assert lines[1].pop("best epoch") < lines[0].pop("best epoch")
    assert lines[0] == lines[1]
    whole = fit(data, tmp_path / "whole", narrow)
    assert 0 < whole.result.device_peak_bytes <= whole.result.device_projected_bytes
    found, expected = whole.model.weights, run.model.weights
    assert not (found.view(np.uint32) & 0xFFFF).any()
    assert np.abs(found - expected).mean() < 0.01 * np.abs(expected).max()
    ours, theirs = (r.result.history[-1] for r in (whole, run))
    assert ours.loss == pytest.approx(theirs.loss, rel=0.01)
    in_waves = changed(narrow, waves=2)
    stop = stop_after(8, monkeypatch)  # within the second wave
    with pytest.raises(Interrupted):
        fit(data, tmp_path / "run", in_waves, callbacks=[stop])
    monkeypatch.undo()
    with pytest.raises(MismatchError):
        fit(data, tmp_path / "run", plan, resume=True)
    assert model_files(fit(data, tmp_path / "run", in_waves, resume=True)) == model_files(whole)


def test_dense_rows_in_waves_resume_to_the_same_bytes(tmp_path_factory, tmp_path, monkeypatch):
    """Waves of dense rows are matrix products of other shapes: the same to rounding."""
    data = store(tmp_path_factory, 10)
    whole = sm.plan(data, device="cuda", closed_form="off", **MODEL)
    assert whole.config.dense
    plan = changed(whole, waves=2)
    undisturbed = fit(data, tmp_path / "whole", plan)
    stop = stop_after(8, monkeypatch)
    with pytest.raises(Interrupted):
        fit(data, tmp_path / "run", plan, callbacks=[stop])
    monkeypatch.undo()
    resumed = fit(data, tmp_path / "run", plan, resume=True)
    assert model_files(resumed) == model_files(undisturbed)
    together = fit(data, tmp_path / "together", whole).model.weights
    assert np.abs(resumed.model.weights - together).max() <= 1e-4 * np.abs(together).max()


@pytest.mark.parametrize("n_noise", [10, 60])
def test_threads_of_the_host_change_no_byte(n_noise, tmp_path_factory, tmp_path):
    data = store(tmp_path_factory, n_noise)
    plan = changed(sm.plan(data, device="cuda", closed_form="off", **MODEL), resident=False)
    assert plan.config.dense == (n_noise == 10)
    runs = [fit(data, tmp_path / str(n), changed(plan, threads=n)) for n in (1, 3)]
    assert model_files(runs[0]) == model_files(runs[1])


def test_a_run_in_tf32_is_resumed_as_one_alone(tmp_path_factory, tmp_path, monkeypatch):
    data = store(tmp_path_factory, 10)
    plain, fast = (
        sm.plan(data, device="cuda", closed_form="off", **{**MODEL, "tf32": tf32})
        for tf32 in (False, True)
    )
    whole = [fit(data, tmp_path / f"whole-{i}", plan) for i, plan in enumerate((plain, fast))]
    float32, tf32 = (run.model.weights for run in whole)
    assert 0 < np.abs(float32 - tf32).max() < 0.05 * np.abs(float32).max()
    stop = stop_after(8, monkeypatch)
    with pytest.raises(Interrupted):
        fit(data, tmp_path / "run", fast, callbacks=[stop])
    monkeypatch.undo()
    with pytest.raises(MismatchError):
        fit(data, tmp_path / "run", plain, resume=True)
    assert model_files(fit(data, tmp_path / "run", fast, resume=True)) == model_files(whole[1])


def test_a_run_goes_on_with_the_other_device(data, plan, run, tmp_path, monkeypatch):
    on_cpu = sm.plan(data, device="cpu", **MODEL)
    for name, first, then in (("there", plan, on_cpu), ("back", on_cpu, plan)):
        stop = stop_after(4, monkeypatch)
        with pytest.raises(Interrupted):
            fit(data, tmp_path / name, first, callbacks=[stop])
        monkeypatch.undo()
        resumed = fit(data, tmp_path / name, then, resume=True).model.weights
        expected = run.model.weights
        assert np.abs(resumed - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("dense", [False, True])
def test_what_stands_beside_the_weights_is_the_cpus(dense, tmp_path_factory, tmp_path):
    """A closed form on exact weights of dense rows, counts beside sparse ones."""
    data = store(tmp_path_factory, 10 if dense else 60)
    model = {"threads": 1, "tf32": False} if dense else {**MODEL, "counts": "on"}
    options = {"epochs": 1, "transform": "raw" if dense else "binary", "learning_rate": 0.1}
    runs = []
    for device in ("cuda", "cpu"):
        plan = sm.plan(data, device=device, **model)
        parts = {part.name for part in plan.config.parts}
        assert ("closed_form" in parts, "counts" in parts) == (dense, not dense)
        runs.append(fit(data, tmp_path / device, plan, **options))
    found, expected = (run.model.weights for run in runs)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    assert runs[0].result.reasons[0] == runs[1].result.reasons[0]
    assert runs[0].result.estimator == runs[1].result.estimator


def test_rows_with_cosines_are_trained_and_applied_on_both(tmp_path_factory, tmp_path, monkeypatch):
    monkeypatch.setattr(fourier, "SIZES", {16: 0.0})
    data = store(tmp_path_factory, 10)
    options = {"epochs": 1, "transform": "raw", "learning_rate": 0.1}
    runs = []
    for device in ("cuda", "cpu"):
        plan = sm.plan(
            data, device=device, threads=1, whitening="off", closed_form="off", fourier="on",
            tf32=False,
        )  # fmt: skip
        runs.append(fit(data, tmp_path / device, plan, **options))
    found, expected = (run.model for run in runs)
    assert found.n_more == expected.n_more == 16
    for name, array in expected.arrays().items():
        most = np.abs(array).max()
        assert np.abs(found.arrays()[name] - array).max() <= 1e-4 * most, name
    with Dataset.open(data) as opened:
        rows = opened.rows(0, 20)
    scores = []
    for device in ("cuda", "cpu"):
        with sm.Predictor(found, device=device) as predictor:
            scores.append(predictor.topk(rows, 3)[1])
    np.testing.assert_allclose(*scores, atol=1e-4)


def test_a_model_larger_than_the_device_is_applied_in_groups():
    rng, spec = np.random.default_rng(3), spec_of(30, 200_000, 8, 8)
    weights = {
        "weights": rng.normal(size=(spec.n_features, spec.n_columns)).astype(np.float32),
        "bias": rng.normal(size=spec.n_columns).astype(np.float32),
    }
    rows, found = block_of(rng, 5, spec.n_features, 30), []
    room = BACKENDS["cuda"].footprint(config_of(spec.shape, "cuda", waves=3), None)[1]
    for device_bytes in (0, sum(room.values())):
        backend = open_backend(
            "cuda", spec, dense=False, threads=1, weights=weights, device_bytes=device_bytes
        )
        ids, scores = backend.topk(rows, 4, "mean")
        found.append((ids.tobytes(), scores.tobytes()))
        waves, (taken, allowed) = backend.n_waves, backend.device_bytes()
        backend.close()
    assert found[0] == found[1]
    assert waves > 1
    assert taken <= allowed == sum(room.values()) - RESERVED_BYTES
    with pytest.raises(BudgetError, match="of device memory, 610 MB may be used"):
        open_backend(
            "cuda", spec, dense=False, threads=1, weights=weights, device_bytes=610_000_000
        )


def test_a_model_that_no_gpu_can_hold_is_applied_by_the_cpu_unless_asked(monkeypatch):
    small = kind.Card("Card", 610_000_000)
    monkeypatch.setattr(kind, "find_card", lambda: small)
    monkeypatch.setattr(kind, "simulated", lambda: False)
    spec = spec_of(30, 9, 8, 8)
    weights = {"weights": np.ones((9, 64), np.float32), "bias": np.ones(64, np.float32)}
    options = {"dense": False, "threads": 1, "weights": weights}
    with pytest.raises(BudgetError):
        open_to_predict("cuda", spec, **options)
    device, backend = open_to_predict("auto", spec, **options)
    assert device == "cpu"
    assert isinstance(backend, CpuBackend)
    backend.close()


def test_the_device_must_hold_what_was_planned(data, plan, tmp_path):
    named = ("weights", "optimizer", "batch", "rows of the store")  # all of them at once
    lines = {line.name: line.n_bytes for line in plan.ledger if line.where == "device"}
    short = RESERVED_BYTES + sum(lines[name] for name in named) - UNIT
    with pytest.raises(BudgetError, match=r"the device's memory is full: .* held") as refused:
        fit(data, tmp_path / "run", changed(plan, limits={"device": short}))
    assert refused.value.exit_code == 6
    assert "the last checkpoint is kept" in str(refused.value)


@pytest.mark.skipif(os.environ.get("NUMBA_ENABLE_CUDASIM") != "1", reason="the simulator's say")
def test_the_commands_take_the_simulator_when_asked(data, run, capsys):
    shape = ["--buckets", "4", "--repetitions", "5"]
    assert main(["plan", str(data), *shape]) == 0
    assert "cpu, " in (text := capsys.readouterr().out)
    assert "(CUDA is simulated)" in text
    assert main(["plan", str(data), "--device", "cuda", *shape]) == 0
    text = capsys.readouterr().out
    assert "(Numba's simulator)" in text
    assert "\nGPU      context" in text
    assert main(["plan", str(data), "--device", "cuda", "--weights", "bfloat16", *shape]) == 0
    assert "chosen   4 x 5 bfloat16, adagrad" in capsys.readouterr().out
    assert main(["plan", str(data), "--weights", "bfloat16", *shape]) == 2
    assert "bfloat16 weights are for a GPU, the device is the CPU" in capsys.readouterr().err
    assert main(["info", str(run.path)]) == 0
    text = capsys.readouterr().out
    assert "GPU       buffers projected" in text
    assert "rows kept on the GPU" in text


def test_a_command_without_a_gpu_ends_with_exit_code_5(data, monkeypatch, capsys):
    def none():
        raise kind._device_error("no GPU is visible", "Look.")

    monkeypatch.setattr(kind, "find_card", none)
    assert main(["plan", str(data), "--device", "cuda"]) == 5
    assert "no usable GPU: no GPU is visible: --device cuda. Look." in capsys.readouterr().err
