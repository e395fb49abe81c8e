"""Rows a second of each stage on real rows, for each number of threads.

`busy` is the processor time of a stage as a part of what its threads could have: where it is far
below 1 they wait, where it is near 1 and the gain small they wait for memory, or share cores. The
first two stages say what the machine itself allows: arithmetic in the caches, bytes read.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.threads.material import FEW, FULL, RATE, material
from streammach.backends.cpu import kernels
from streammach.backends.registry import BACKENDS
from streammach.conversion.convert import convert
from streammach.counts.learning import weigh
from streammach.counts.pair_learning import PairLearner
from streammach.counts.scores import CountScorer
from streammach.counts.table import count_pairs
from streammach.options.estimators import ESTIMATORS, USUAL
from streammach.parts.counts.count_bytes import pair_room
from streammach.parts.counts.group_fit import start_weights
from streammach.system.threads import Workers, pieces_of

LEAST_SECONDS = 0.5  # that a repeated piece of work is timed for
CPU = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class Times:
    """Seconds of one piece of work, by the clock and of the processor."""

    def __init__(self, work, least=0.0):
        begun, worked, self.n = time.perf_counter(), time.process_time(), 0
        while not self.n or time.perf_counter() - begun < least:
            work()
            self.n += 1
        self.seconds = (time.perf_counter() - begun) / self.n
        self.worked = (time.process_time() - worked) / self.n

    def figures(self, amount, threads):
        """The amount a second, and how busy so many threads were."""
        return {"rate": amount / self.seconds, "busy": self.worked / self.seconds / threads}


def in_caches(made, threads):
    """Million values a second of a forward pass whose weights are in the caches."""
    rows = made.rows(4096)
    weights, bias = np.ones((64, 800), np.float32), np.zeros(800, np.float32)
    features, out = rows.features % 64, np.empty((4096, 800), np.float32)
    values, workers = np.ones(rows.nnz, np.float32), Workers(threads, "caches")

    def work():
        workers.each(
            lambda a, b: kernels.logits(rows.indptr, features, values, a, b, weights, bias, out),
            pieces_of(rows.n_rows, threads),
        )

    work()
    found = Times(work, LEAST_SECONDS).figures(rows.nnz / 1e6, threads)
    workers.close()
    return found


def from_memory(made, threads):
    """GB a second that are read."""
    words, workers = made.table.view(np.int64), Workers(threads, "memory")

    def work():
        workers.each(lambda a, b: words[a:b].max(), pieces_of(len(words), threads))

    work()
    found = Times(work, LEAST_SECONDS).figures(words.nbytes / 1e9, threads)
    workers.close()
    return found


def steps(made, threads, batch):
    """Steps on batches that lie in memory; and forward and backward passes, each for itself."""
    chosen = made.chosen(threads, batch)
    batches = made.batches(chosen)
    n, nnz = sum(one.n_rows for one in batches), sum(len(one.features) for one in batches)
    with made.backend(chosen) as backend:
        trains = backend._trains

        def forward():
            for one in batches:
                trains._forward(one)

        def backward():
            for one in batches:
                trains._share(one, one.n_rows)

        def work():
            for one in batches:
                backend.step(one, RATE)

        backend.step(batches[0], RATE)
        first, later = Times(work), Times(work)
        apart = {"forward": Times(forward).seconds, "backward": Times(backward).seconds}
    apart["step"] = later.seconds
    read = 4 * 800 * nnz / apart["forward"] / 1e9
    return later.figures(n, threads) | {
        "first": n / first.seconds, "forward GB/s": read,
        **{f"{name} us": 1e6 * seconds / len(batches) for name, seconds in apart.items()},
    }  # fmt: skip


def reading(made, threads):
    """The reader alone, in a second epoch; it has as many threads as a training gives it."""
    return epochs(made.reader(made.chosen(threads)), made, threads, lambda batch: None)


def reading_steps(made, threads):
    """Steps with the reader, in a second epoch."""
    chosen = made.chosen(threads)
    reader = made.reader(chosen, rows=made.amounts.epoch_rows)
    with made.backend(chosen) as backend:
        return epochs(reader, made, threads, lambda batch: backend.step(batch, RATE))


def epochs(reader, made, threads, step):
    """Two epochs: the rate of the second, that of the first, the seconds until its first batch."""

    def work(number):
        begun, waited = time.perf_counter(), 0.0
        for batch in reader.epoch(number):
            waited = waited or time.perf_counter() - begun
            step(batch)
        waits.append(waited)

    made.data._checked.clear()
    waits = []
    times = [Times(partial(work, number)) for number in range(2)]
    return times[1].figures(reader.n_rows, threads) | {
        "first": reader.n_rows / times[0].seconds, "waits": waits[0], "later waits": waits[1]
    }  # fmt: skip


def counted(made, threads):
    """The table of all pairs."""
    facts = made.data.facts
    most = pair_room(facts)
    return count_pairs(
        made.blocks, facts.n_features, facts.n_classes, max_pairs=most, mark_bytes=8 * most,
        threads=threads,
    )  # fmt: skip


def counting(made, threads):
    """Counting the pairs of the store."""
    counted(made, threads) if threads == made.threads[0] else None  # compiles, and fills caches
    return Times(lambda: counted(made, threads)).figures(made.data.n_rows, threads)


def counts_of(made):
    """A table, made once, and weights."""
    if not hasattr(made, "counts"):
        table = counted(made, max(made.threads))
        made.counts = table, start_weights(np.zeros(table.n_features, np.int32))
    return made.counts


def lessons(made, threads):
    """Learning the weights of pairs."""
    rows = made.rows(made.amounts.lessons)
    with PairLearner(*counts_of(made), threads=threads) as learner:
        learner.learn(rows.part(0, 256))
        return Times(lambda: learner.learn(rows)).figures(rows.n_rows, threads)


def scores_of_counts(made, threads):
    """The five best classes by counts."""
    rows, scorer = made.rows(made.amounts.queries), CountScorer(weigh(*counts_of(made)), threads)
    scorer.topk(rows.part(0, 256), 5)
    found = Times(lambda: scorer.topk(rows, 5)).figures(rows.n_rows, threads)
    scorer.close()
    return found


def scores_of_models(made, threads):
    """The five best classes by the hashed models, which learnt from a few rows."""
    chosen, rows = made.chosen(threads), made.rows(made.amounts.queries)
    if not hasattr(made, "weights"):
        with made.backend(chosen) as backend:
            for batch in made.batches(chosen):
                backend.step(batch, RATE)
            made.weights = {name: backend.arrays()[name] for name in ("weights", "bias")}
    backend = BACKENDS["cpu"].open(chosen.model, chosen.config, weights=made.weights)
    best = np.empty((rows.n_rows, 5), np.float32), np.empty((rows.n_rows, 5), np.int64)
    backend.rank(rows.part(0, 64), ESTIMATORS[USUAL], best[0][:64], best[1][:64])
    found = Times(lambda: backend.rank(rows, ESTIMATORS[USUAL], *best)).figures(
        rows.n_rows, threads
    )  # fmt: skip
    backend.close()
    return found


def converting(made, threads, zipped):
    """MB of text a second, from one plain text or from eight gzip files."""
    sources = made.zipped if zipped else made.text
    n_bytes = made.zipped_bytes if zipped else made.text.stat().st_size
    out = made.folder / "out.zarr"
    return Times(lambda: convert(sources, out, threads=threads, force=True)).figures(
        n_bytes / 1e6, threads
    )  # fmt: skip


STAGES = {
    "arithmetic in the caches (Mvalues/s)": in_caches,
    "memory (GB/s)": from_memory,
    "steps of 1,024 rows": lambda made, threads: steps(made, threads, 1024),
    "steps of 4,096 rows": lambda made, threads: steps(made, threads, 4096),
    "reader alone": reading,
    "steps with the reader": reading_steps,
    "lessons": lessons,
    "counting pairs": counting,
    "scores of hashed models": scores_of_models,
    "scores of counts": scores_of_counts,
    "conversion of one text (MB/s)": lambda made, threads: converting(made, threads, False),
    "conversion of 8 gzip files (MB/s)": lambda made, threads: converting(made, threads, True),
}


def real(options):
    """Figures of all stages, by the number of threads; a line for each as it comes."""
    found = {"huge pages": told(HUGE), "threads of core 0": told(CPU)}
    print(", ".join(f"{name}: {text}" for name, text in found.items()), flush=True)
    with material(FEW if options.quick else FULL, options.threads) as made:
        for name, stage in STAGES.items():
            if options.only and not any(name.startswith(one) for one in options.only):
                continue
            found[name] = {}
            for threads in options.threads:
                figures = found[name][str(threads)] = stage(made, threads)
                figures["gain"] = figures["rate"] / found[name][str(options.threads[0])]["rate"]
                said = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
                print(f"{name}, {threads} threads: {said}", flush=True)
    return found


def told(path):
    """What a file of the system says."""
    try:
        return path.read_text().strip()
    except OSError:
        return "not known"
