"""Small data: rows with a structure that can be learnt, as text and as stores."""

import gzip
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streammach.backends.registry import BACKENDS
from streammach.conversion.convert import convert
from streammach.counts.learning import Evidence
from streammach.model.findings import Findings
from streammach.options.config import Batching, PartPlan, Placement, RunConfig
from streammach.options.model_spec import ModelSpec
from streammach.options.training import TrainingOptions, TrainSpec
from streammach.parts.training_record import Training
from streammach.planning.candidates import drop_excluded_parts
from streammach.rows.batch import BatchSlot
from streammach.rows.block import RowBlock
from streammach.store.dataset import Dataset
from streammach.store.holdout import hold_out
from streammach.system.clock import Clock
from streammach.system.processes import StopSignals
from streammach.training.trainer import Trainer

# Parts of dense rows off: nothing of these is tried.
NO_PARTS = {"whitening": "off", "fourier": "off", "closed_form": "off"}


def random_rows(rng, n_rows, n_features, *, most=6, values="counts"):
    """CSR of random rows, an empty one among them where there is room for it."""
    lengths = rng.integers(1, most + 1, n_rows)
    lengths[n_rows // 2] = 0 if n_rows > 2 else lengths[n_rows // 2]
    rows = [
        np.sort(rng.choice(n_features, k, replace=False)) for k in np.minimum(lengths, n_features)
    ]
    indptr = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    features = np.concatenate([*rows, []]).astype(np.int32)
    drawn = (
        rng.integers(1, 5, len(features)) if values == "counts" else rng.normal(size=len(features))
    )
    return indptr, features, drawn.astype(np.float32)


def block_of(rng, n_rows, n_features, n_classes, **options):
    indptr, features, values = random_rows(rng, n_rows, n_features, **options)
    classes = rng.integers(0, n_classes, n_rows).astype(np.int32)
    return RowBlock(indptr=indptr, features=features, values=values, classes=classes)


def listed_lines(rng, n_rows, n_classes=25):
    """VW text of rows whose labels can be told from two features of each; some have none."""
    out = []
    for _ in range(n_rows):
        own = rng.choice(n_classes, int(rng.integers(0, 4)), replace=False).tolist()
        words = [f"w{c}_{rng.integers(3)} p{c}" for c in own]
        noise = " ".join(f"n{j}" for j in rng.choice(40, 3, replace=False))
        out.append(f"{','.join(f'c{c}' for c in own)} |x {' '.join(words)} {noise}")
    return out


def spec_of(n_classes, n_features, n_buckets, n_repetitions, seed=0):
    """A model's shape with drawn hashes."""
    from streammach import hashing

    a, b = hashing.draw(seed, n_classes, n_buckets, n_repetitions)
    if not a:
        n_buckets, n_repetitions = n_classes, 1
    return ModelSpec(
        n_classes=n_classes,
        n_features=n_features,
        n_buckets=n_buckets,
        n_repetitions=n_repetitions,
        hash_a=a,
        hash_b=b,
    )


def training(**changes):
    """A TrainSpec for tests."""
    values = {
        "epochs": 1, "batch_size": 8, "learning_rate": 0.5, "transform": "raw",
        "label_smoothing": 0.0, "optimizer": "adagrad", "epsilon": 1e-8, "seed": 0,
    }  # fmt: skip
    return TrainSpec(**{**values, **changes})


def config_of(shape, device="cpu", *, dense=False, optimizer=None, rows=0, nnz=0, threads=1,
              waves=1, weights="float32", resident=False, basis=False, n_more=0,
              tf32=False, best_stays=False):  # fmt: skip
    """A RunConfig for tests; without an optimiser its backend predicts."""
    return RunConfig(
        shape=shape, dense=dense, optimizer=optimizer,
        batching=Batching(batch_size=rows, batch_nnz=nnz),
        placement=Placement(device=device, threads=threads, waves=waves, weights=weights,
                            resident=resident, tf32=tf32, best_stays=best_stays),
        parts=(PartPlan(name="whitening", size=n_more, basis=True),) if basis else (),
    )  # fmt: skip


def open_backend(
    device, spec, *, weights=None, device_bytes=0, facts=None, logistic=False, **config
):
    """A backend for tests, by the fields of :func:`config_of`."""
    config = config_of(spec.shape, device, **config)
    return BACKENDS[device].open(
        spec, config, facts=facts, weights=weights, device_bytes=device_bytes, logistic=logistic
    )


def drawn(rng, spec):
    shapes = {"weights": (spec.n_hashed_features, spec.n_columns), "bias": spec.n_columns}
    return {name: rng.normal(size=size).astype(np.float32) for name, size in shapes.items()}


def fit(data, out, plan, *, resume=False, callbacks=None, checkpoint_minutes=10.0, **options):
    trainer = Trainer(
        plan, TrainingOptions(**options), callbacks=callbacks,
        checkpoint_minutes=checkpoint_minutes,
    )  # fmt: skip
    return trainer.fit(data, out, resume=resume)


def model_files(run):
    """The bytes of the files of a run's model, by name."""
    return {file.name: file.read_bytes() for file in sorted((run.path / "model").iterdir())}


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def held_out(data, plan, **where):
    return hold_out(data, plan.config.batching, TrainingOptions(**where))


def packed(counted, groups):
    """The evidence of rows, from sums (n, 2 G + 1, m) and groups (n, G)."""
    held = _held_columns(groups)
    starts = np.concatenate([[0], np.cumsum(held.sum(axis=1))])
    return Evidence(counted[held], starts, groups)


def spread(found):
    """The sums (n, 2 G + 1, m) of evidence, with zeros of groups that rows do not hold."""
    held = _held_columns(found.groups)
    out = np.zeros((*held.shape, found.counted.shape[1]), np.float32)
    out[held] = found.counted[found.starts[0] : found.starts[-1]]
    return out


def _held_columns(groups):
    return np.concatenate([groups != 0, groups != 0, np.ones((len(groups), 1), bool)], axis=1)


def training_of(data, plan, holdout, check_stop=lambda: None):
    """A training that has no backend."""
    training = Training(plan=plan, options=TrainingOptions(), folder=Path(), clock=Clock())
    training.dataset, training.holdout, training.check_stop = data, holdout, check_stop
    training.findings = Findings(Path(), "", lasting=False)
    return training


def changed(plan, *, sizes=(), limits=(), **changes):
    """A plan with other fields of its configuration, sizes of parts or limits."""
    config = plan.config
    for name, value in changes.items():
        for place in ("batching", "placement"):
            record = getattr(config, place)
            if hasattr(record, name):
                config = replace(config, **{place: replace(record, **{name: value})})
                break
        else:
            config = replace(config, **{name: value})
    sizes = dict(sizes)
    parts = tuple(replace(part, size=sizes.get(part.name, part.size)) for part in config.parts)
    limits = replace(plan.limits, **dict(limits))
    return replace(plan, config=drop_excluded_parts(replace(config, parts=parts)), limits=limits)


def dense_block(x, classes=None):
    rows, columns = np.nonzero(x)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))])
    classes = np.zeros(len(x), np.int32) if classes is None else np.asarray(classes, np.int32)
    return RowBlock(
        indptr=indptr, features=columns.astype(np.int32),
        values=x[rows, columns].astype(np.float32), classes=classes,
    )  # fmt: skip


def batch_of(block, n_features, importance=None):
    """All rows of a block as one batch, feature by feature too."""
    slot = BatchSlot(block.n_rows, max(block.nnz, 1), n_features, by_feature=True)
    if importance is not None:
        block = replace(block, importance=importance)
    assert slot.add(block, np.arange(block.n_rows), "raw") == block.n_rows
    return slot.batch()


class Stop:
    """Asks for the end of a training, as a signal does, where something holds of a moment of it."""

    def __init__(self, patch, **moments):
        self.signals = None

        def entered(signals):
            self.signals = signals
            return signals

        patch.setattr(StopSignals, "__enter__", entered)
        for moment, holds in moments.items():
            setattr(self, moment, lambda state, holds=holds: holds(state) and self.ask())

    def ask(self):
        self.signals.requested = True


def stop_after(steps, patch):
    """What asks for the end after some batches."""
    return Stop(patch, on_progress=lambda state: state.step == steps)


def rows_by_name(store):
    """Rows of a store, sorted: label, or all of a list, importance, (feature's bytes, value)s."""
    with Dataset.open(store) as data:
        block = data.rows(0, data.n_rows)
        importance = np.ones(block.n_rows) if block.importance is None else block.importance
        rows = []
        for i in range(block.n_rows):
            part = range(block.indptr[i], block.indptr[i + 1])
            values = [(data.features.raw(block.features[p]), float(block.values[p])) for p in part]
            own = [data.labels.label(c) for c in block.lists.part(i, i + 1).classes]
            label = own[0] if block.labels is None else sorted(own, key=str)
            rows.append((label, float(importance[i]), tuple(sorted(values))))
        return sorted(rows, key=str)


class TinyData:
    """Makes VW text and stores whose classes can be told from their features."""

    def __init__(self, folder, rng):
        self.folder = folder
        self.rng = rng

    def lines(self, n_rows, n_classes, *, n_noise=40, namespace=False):
        """Rows: label ``class-i``, two features of its own, three of all classes."""
        out = []
        for row in range(n_rows):
            y = int(self.rng.integers(n_classes)) if row >= n_classes else row
            own = [f"own{y}_{self.rng.integers(3)}", f"pair{y // 2}"]
            noise = [f"noise{j}:{1 + j % 3}" for j in self.rng.choice(n_noise, 3, replace=False)]
            group = f" |g group{self.rng.integers(12)}" if namespace else ""
            out.append(f"class-{y} |w {' '.join(dict.fromkeys(own))} |x {' '.join(noise)}{group}")
        return out

    def text(self, name, lines, *, zipped=False):
        path = self.folder / name
        data = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(data) if zipped else data)
        return path

    def trained(self):
        """Convert ``a.vw`` into ``a.zarr`` and train ``run`` on it, by the commands."""
        from streammach.cli.main import main

        options = ["--buckets", "8", "--repetitions", "4", "--epochs", "1", "--progress", "none",
                   "--learning-rate", "0.5", "--transform", "binary"]  # fmt: skip
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(self.folder)
            assert main(["convert", "a.vw", "a.zarr"]) == 0
            assert main(["train", "a.zarr", "--out", "run", *options]) == 0
        return self.folder

    def store(self, name="train.zarr", *, n_rows=600, n_classes=30, like=None, seed=0, **options):
        source = self.text(f"{name}.vw", self.lines(n_rows, n_classes, **options))
        convert(source, self.folder / name, like=like, seed=seed)
        return self.folder / name

    def dense_store(self, name, x, labels, *, like=None):
        lines = [
            f"{label} " + " ".join(f"{j + 1}:{v:.5g}" for j, v in enumerate(row))
            for label, row in zip(labels, x, strict=True)
        ]
        convert(self.text(f"{name}.svm", lines), self.folder / name, like=like)
        return self.folder / name

    def dataset(self, name="train.zarr", **options):
        """Convert such rows and open the store."""
        return Dataset.open(self.store(name, **options))


def measured(*command, **environment):
    """Run a command; return the most resident bytes of any of its processes, and how it ended."""
    script = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr);"
        "sys.exit(done.returncode)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, sys.executable, "-m", "streammach", *map(str, command)],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return 1024 * int(done.stderr.splitlines()[-1]), done
