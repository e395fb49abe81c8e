"""Rows of ODP's shape from their text to accuracy, on both devices."""

import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import streammach as sm
from streammach.options.training import TrainingOptions
from streammach.prediction.evaluate import evaluate

MAKER = Path(__file__).parents[2] / "tools" / "make_synthetic.py"
WAYS = {
    "cuda": ("cuda", "float32", True),
    "cuda streamed": ("cuda", "float32", False),
    "cuda bfloat16": ("cuda", "bfloat16", True),
    "cpu": ("cpu", "float32", False),
}  # device, weights, whether rows stay on the device


def whole(options):
    """A store trained on both devices with the same settings: seconds, accuracy, memory.

    The store is the user's, or made: rows like ODP's are written as text and converted.
    """
    with tempfile.TemporaryDirectory() as folder:
        place, found = Path(folder), {}
        train, test = options.store, options.test_store
        if train is None:
            train, test, found = made(place, options)
        for name, way in WAYS.items():
            found[name] = trained(place / name.replace(" ", "-"), train, test, options, *way)
    return found


def made(place, options):
    """The stores of made rows, and the seconds that writing and converting them took."""
    texts = [place / f"{part}.vw.gz" for part in ("train", "test")]
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, str(MAKER), "odp", str(texts[0]), "--test", str(texts[1]),
         *options.made, "--progress", "none"],
        check=True, capture_output=True,
    )  # fmt: skip
    written = time.perf_counter()
    train, test = place / "train.zarr", place / "test.zarr"
    sm.convert(texts[0], train)
    sm.convert(texts[1], test, like=train)
    seconds = {"text": written - began, "conversion": time.perf_counter() - written}
    return train, test, {"seconds": seconds}


def trained(folder, train, test, options, device, weights, resident):
    """One training of the two devices' settings, and what it reaches."""
    b, r = options.run_shape
    plan = sm.plan(
        train, device=device, counts="off", batch_size=options.batch_size, n_buckets=b,
        n_repetitions=r, **({} if device == "cpu" else {"weights": weights}),
    )  # fmt: skip
    if plan.config.placement.resident and not resident:
        placement = replace(plan.config.placement, resident=False)
        plan = replace(plan, config=replace(plan.config, placement=placement))
    asked = TrainingOptions(
        epochs=options.epochs, learning_rate=options.rate, transform="binary", model_size="full"
    )
    run = sm.Trainer(plan, asked).fit(train, folder)
    entry = {
        "seconds": run.result.seconds,
        "rows_per_second": run.result.history[-1].rows_per_second,
        "resident": plan.config.placement.resident,
        "device_peak_bytes": run.result.device_peak_bytes,
        "device_projected_bytes": run.result.device_projected_bytes,
    }
    if test:
        with sm.Predictor(run.model, device=device) as predictor:
            began = time.perf_counter()
            report = evaluate(predictor, test)
            entry |= {
                "accuracy": report.accuracy, "top_5_accuracy": report.top_5_accuracy,
                "evaluation_seconds": time.perf_counter() - began,
            }  # fmt: skip
    return entry
