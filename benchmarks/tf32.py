"""What TF32 products lose: emulated on the CPU, beside float32 with the same rows.

    python -m benchmarks.tf32 TRAIN.zarr TEST.zarr --name NAME [--shape exact,128x8]
        [--parts off,whitening,fourier,on] [--seeds 2] [--json FILE]

`nearest` rounds both factors of the products of a training step to 10 bits of fraction, as tensor
cores take them; `cut` drops the other bits instead; `basis` rounds those that bring rows to another
basis or give them cosines, too. Sums stay float32, and so does all that ranks held-out and test
rows.
"""

import contextlib
from unittest import mock

import numpy as np

from benchmarks import machine_facts
from benchmarks.batches import PARTS, begun, parser_of, reached, shape_of
from streammach.backends.cpu.steps import DenseSteps
from streammach.backends.cuda.memory import rounded
from streammach.rows.dense import product

MORE = {
    "whitening": {**PARTS["off"], "whitening": "on"},
    "fourier": {**PARTS["off"], "fourier": "on"},
}
WAYS = ("float32", "nearest", "cut", "basis")
STEP = ("streammach.backends.cpu.steps", "streammach.backends.cpu.forward")
BASIS = ("streammach.rows.dense", "streammach.rows.waves")


def cut(x):
    """Drop the last 13 bits of float32 numbers."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


class Emulation:
    """Products whose factors are rounded while a step is taken."""

    def __init__(self, way):
        self._round = {"cut": cut, "float32": None}.get(way, rounded)
        self._modules = STEP + (BASIS if way == "basis" else ())
        self._step, self._taken = DenseSteps.step, False
        self.products = 0

    @contextlib.contextmanager
    def used(self):
        """Have the CPU's backend multiply so."""
        with contextlib.ExitStack() as stack:
            if self._round is not None:
                for module in self._modules:
                    stack.enter_context(mock.patch(f"{module}.product", self._product))

                def step(*given):  # a function, which becomes a method of the steps
                    return self._in_step(*given)

                stack.enter_context(mock.patch.object(DenseSteps, "step", step))
            yield

    def _in_step(self, *given):
        self._taken = True
        try:
            return self._step(*given)
        finally:
            self._taken = False

    def _product(self, a, b, out=None):
        if self._taken:
            self.products += 1
            a, b = self._round(a), self._round(b)
        return product(a, b, out=out)


def main():
    """Train in every way; write the figures after each."""
    parser = parser_of(__doc__)
    parser.add_argument("--ways", default=",".join(WAYS))
    given = parser.parse_args()
    rows, results, runs = begun(given)
    for seed in range(given.seeds):
        for parts in given.parts.split(","):
            for shape in given.shape.split(","):
                for way in given.ways.split(","):
                    emulation = Emulation(way)
                    with emulation.used():
                        run = reached(
                            given.train, rows, {"seed": seed}, seed=seed, threads=given.threads,
                            device="cpu", **shape_of(shape), **{**PARTS, **MORE}[parts],
                        )  # fmt: skip
                    told = {"seed": seed, "shape": shape, "parts": parts, "products": way}
                    assert (way == "float32") == (not emulation.products), "nothing was rounded"
                    print(told | run, flush=True)
                    runs.append(told | run)
                    machine_facts.report(results, given.json)


if __name__ == "__main__":
    main()
