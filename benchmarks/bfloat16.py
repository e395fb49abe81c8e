"""What bfloat16 weights lose: emulated on the CPU, beside float32 with the same batches.

    python -m benchmarks.bfloat16 TRAIN.zarr TEST.zarr [--shape 32x25] [--json FILE]

After each step the rows of the table that it touched are rounded as the CUDA backend rounds them:
by its hash, from its float32 sums. `nearest` rounds to the nearest instead, for comparison: steps
smaller than half of the last place are then lost.
"""

import time
from pathlib import Path

import numpy as np

import streammach as sm
from benchmarks.machine_facts import facts, parser, report
from streammach.backends.cpu.backend import CpuBackend
from streammach.backends.cuda.weights import rounding_key
from streammach.data.store.dataset import Dataset
from streammach.jit import kernel
from streammach.prediction.evaluate import measure
from streammach.prediction.ranking import by_hashes
from streammach.spec import TrainSpec
from streammach.training.holdout import HeldOut
from streammach.training.loop import open_reader, train_epoch

WAYS = ("float32", "bfloat16", "nearest")


@kernel(inline=True)
def mixed(h):
    """The rounding hash's mixer, on 64 bits that hold 32."""
    h = ((h ^ (h >> np.uint64(16))) * np.uint64(0x7FEB352D)) & np.uint64(0xFFFFFFFF)
    h = ((h ^ (h >> np.uint64(15))) * np.uint64(0x846CA68B)) & np.uint64(0xFFFFFFFF)
    return h ^ (h >> np.uint64(16))


@kernel()
def round_rows(bits, rows, numbers, key, nearest):
    """Round rows of float32 bits uint32 (n, m) to bfloat16; `numbers` as in a table."""
    for i in range(len(rows)):
        for j in range(bits.shape[1]):
            x = np.uint64(bits[rows[i], j])
            place = np.uint64(j // 4)
            random = mixed(np.uint64(key) ^ mixed(np.uint64(numbers[i]) ^ mixed(place)))
            if j % 4 >= 2:
                random = mixed(random ^ np.uint64(0x9E3779B9))
            up = random >> np.uint64(16) if j % 2 else random & np.uint64(0xFFFF)
            if nearest:
                up = np.uint64(0x7FFF) + ((x >> np.uint64(16)) & np.uint64(1))
            bits[rows[i], j] = np.uint32((x + up) & np.uint64(0xFFFF0000))


class Rounded(CpuBackend):
    """The CPU's backend, whose weights are rounded after each step."""

    nearest = False

    def step(self, batch, rate):
        loss, held = super().step(batch, rate), self.arrays()
        key = rounding_key(self._training.seed, int(held["steps"][0]))
        ids, bias = batch.by_feature.ids, np.zeros(1, np.int32)
        round_rows(held["weights"].view(np.uint32), ids, ids, key, self.nearest)
        last = np.full(1, self.spec.n_features, np.int32)
        round_rows(held["bias"].view(np.uint32)[None], bias, last, key, self.nearest)
        return loss


def trained(data, test, plan, training, way):
    """P@1 and P@5 on test rows, and the loss of the last epoch, of a training."""
    kind = CpuBackend if way == "float32" else Rounded
    backend = kind(plan.model, dense=False, threads=plan.threads)
    backend.nearest = way == "nearest"
    backend.prepare(training, plan.batch_nnz)
    held = HeldOut(test, None, "test")
    reader = open_reader(data, plan, backend, training, held)
    began = time.perf_counter()
    for epoch in range(training.epochs):
        loss = sum(s.loss.total for s in train_epoch(backend, reader, training, epoch))
    found = measure(test, by_hashes(backend, "logsum", training.transform))
    backend.close()
    return {
        "p_at_1": found.p_at_1, "p_at_5": found.p_at_5,
        "loss": loss / (reader.n_rows * plan.n_repetitions),
        "seconds": time.perf_counter() - began,
    }  # fmt: skip


def main():
    arguments = parser(__doc__)
    arguments.add_argument("train")
    arguments.add_argument("test")
    arguments.add_argument("--shape", default="32x25", help="B x R")
    arguments.add_argument("--epochs", type=int, default=5)
    arguments.add_argument("--rate", type=float, default=0.5)
    arguments.add_argument("--batch-size", type=int, default=1024)
    arguments.add_argument("--rows", type=int, default=10_000, help="most test rows")
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--threads", type=int, default=1)
    options = arguments.parse_args()
    buckets, repetitions = (int(n) for n in options.shape.split("x"))
    names = {name: Path(getattr(options, name)).name for name in ("train", "test")}
    asked = {k: v for k, v in vars(options).items() if k != "json"} | names
    found = {"machine": facts(), "options": asked, "runs": []}
    with Dataset.open(options.train) as data, Dataset.open(options.test) as other:
        test = other.rows(0, min(options.rows, other.n_rows))
        for seed in range(options.seeds):
            plan = sm.plan(
                data, n_buckets=buckets, n_repetitions=repetitions, counts="off", device="cpu",
                batch_size=options.batch_size, threads=options.threads, seed=seed,
            )  # fmt: skip
            training = TrainSpec(
                options.epochs, plan.batch_size, options.rate, "binary", 0.1, "adagrad", 1.0, seed
            )
            for way in WAYS:
                entry = {"seed": seed, "weights": way, **trained(data, test, plan, training, way)}
                print(
                    f"seed {seed}  {way:<9} P@1 {entry['p_at_1']:.4f}  P@5 {entry['p_at_5']:.4f}  "
                    f"loss {entry['loss']:.4f}  {entry['seconds']:.0f} s", flush=True,
                )  # fmt: skip
                found["runs"].append(entry)
                report(found, options.json)


if __name__ == "__main__":
    main()
