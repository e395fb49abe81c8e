"""How fast text becomes a store, beside programs that only parse, and how fast a store is read.

    python -m benchmarks.convert TEXT.vw [--rows N] [--float-rows N] [--turns N] [--json FILE]

Two texts: counts are the first rows of TEXT (VW, plain or gzip, values from 1e-4 to 9999), floats
are made-up activations of four digits (tools.synthetic.rows). In turns, each in a process of
its own, on plain files in the page cache, after a small file has loaded what is loaded once:

- streammach: streammach.convert of the VW text, from bytes to a durable store, with all cores;
- vw: vw --noop of the same file, which parses, hashes and keeps nothing. Its wheel has no program,
  so its Python Workspace runs with the same options; a thread parses, another passes rows on;
- streammach svmlight: streammach.convert of the same rows as svmlight, features by number;
- sklearn: sklearn.datasets.load_svmlight_file of that file, on one thread.

Then the stores, in turns in this process:

- blocks: all rows of the store, block by block, as the reader's thread reads them; the first time
  what they hold is checked, too;
- reader: an epoch of shuffled batches as a run asks for them, from files to CSR, the first time and
  later;
- reader by feature: the same with each batch's transpose;
- decode: the chunks that those blocks lie in, through numcodecs into one buffer, on one thread,
  unchecked.

Megabytes are 10^6 bytes of text. Ratios are of the same bytes (the same chunks) within a turn, and
medians over turns. What is not installed is left out.
"""

import gzip
import itertools
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numcodecs import blosc

from benchmarks.machine_facts import facts, parser, report
from streammach.conversion.convert import convert
from streammach.planning.choose import plan
from streammach.rows.block import RowBlock
from streammach.store.dataset import Dataset
from streammach.store.reader import Reader
from streammach.store.stored_arrays import CHUNK, INDEX_BYTES, SHARD_CHUNKS
from streammach.system.files.folders import remove_folder
from streammach.system.jit import kernel
from tools.synthetic.files import write_rows
from tools.synthetic.rows import SHAPES, SyntheticRows
from tools.synthetic.text import COLON, NEWLINE, SPACE, write_integer, write_number

VALUE_BYTES, LINE_BYTES = 22, 16  # of svmlight text, at most
PIECE_ROWS = 10_000
WARM = {"vw": b"1 | 1 2:0.5\n2 | 3:2\n", "svmlight": b"1 1:1 2:0.5\n2 3:2\n"}
ARRAYS = ("X/indptr", "X/indices", "X/data", "y")
STAGES = ("blocks, first", "blocks", "reader, first", "reader", "reader by feature", "decode")
SYSTEMS = {  # what runs, on which text
    "streammach": ("with_streammach", "vw"),
    "vw": ("with_vw", "vw"),
    "streammach svmlight": ("with_streammach", "svmlight"),
    "sklearn": ("with_sklearn", "svmlight"),
}
RATIOS = {"times_vw": ("vw", "streammach"), "times_sklearn": ("sklearn", "streammach svmlight")}


def with_streammach(source, folder):
    convert(source, folder / "out.zarr", force=True)


def with_vw(source, folder):
    from vowpalwabbit import Workspace

    Workspace(arg_list=["--noop", "--quiet", "--no_stdin", "-d", str(source)]).finish()


def with_sklearn(source, folder):
    from sklearn.datasets import load_svmlight_file

    load_svmlight_file(str(source))


def in_this_process(function, source, folder):
    """Seconds by the clock and of processor time that a system takes; a small file goes first."""
    run = globals()[function]
    warm = folder / f"warm{source.suffix}"
    warm.write_bytes(WARM["vw" if source.suffix == ".vw" else "svmlight"])
    run(warm, folder)
    began, worked = time.perf_counter(), time.process_time()
    run(source, folder)
    return time.perf_counter() - began, time.process_time() - worked


def timed(function, source, folder):
    """The same in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(in_this_process, function, source, folder).result()


@kernel(fastmath=False)
def svmlight_lines(indptr, features, values, classes, out):
    """Write rows as svmlight text, numbers counted from 1; return the bytes."""
    p = 0
    for r in range(classes.shape[0]):
        p = write_integer(out, p, np.uint32(classes[r] + 1))
        for i in range(indptr[r], indptr[r + 1]):
            out[p] = SPACE
            p = write_integer(out, p + 1, np.uint32(features[i] + 1))
            out[p] = COLON
            p = write_number(out, p + 1, np.float64(values[i]))
        out[p] = NEWLINE
        p += 1
    return p


def write_svmlight(store, out):
    """Write a store's rows as svmlight text."""
    with Dataset.open(store) as data, open(out, "wb") as file:
        for start in range(0, data.n_rows, PIECE_ROWS):
            rows = data.rows(start, min(start + PIECE_ROWS, data.n_rows))
            if rows.nnz and not 1e-4 <= rows.values.min() <= rows.values.max() <= 9999:
                raise SystemExit(f"{store}: values are not from 1e-4 to 9999")
            text = np.empty(VALUE_BYTES * rows.nnz + LINE_BYTES * rows.n_rows, np.uint8)
            n = svmlight_lines(rows.indptr, rows.features, rows.values, rows.classes, text)
            file.write(text[:n].data)


def first_rows(source, n_rows, out):
    """Copy the first rows of a text, unpacked."""
    packed = source.suffix == ".gz"
    with (
        gzip.open(source, "rb") if packed else open(source, "rb") as lines,
        open(out, "wb") as file,
    ):
        file.writelines(itertools.islice(lines, n_rows))


def of_text(vw_text, folder, turns):
    """Figures of all systems on one text; leaves its store in the folder."""
    svmlight, store = vw_text.with_suffix(".svm"), folder / f"{vw_text.stem}.zarr"
    made = convert(vw_text, store, format="vw")
    write_svmlight(store, svmlight)
    n_bytes = {"vw": vw_text.stat().st_size, "svmlight": svmlight.stat().st_size}
    clock, processor = {}, {}
    for _, (name, (function, form)) in itertools.product(range(turns), SYSTEMS.items()):
        if clock.get(name, []) is None:
            continue
        try:
            seconds = timed(function, vw_text if form == "vw" else svmlight, folder)
        except ImportError as error:
            print(f"{name}: left out, {error}")
            clock[name] = None
            continue
        clock.setdefault(name, []).append(seconds[0])
        processor.setdefault(name, []).append(seconds[1])
    clock = {name: times for name, times in clock.items() if times}
    sizes = {name: n_bytes[SYSTEMS[name][1]] for name in clock}
    return {
        "rows": made.n_rows, "values": made.nnz, "bytes": n_bytes,
        "mb_per_second": {n: rates(sizes[n] / 1e6, clock[n]) for n in clock},
        "processor_seconds": {n: statistics.median(processor[n]) for n in clock},
        **{key: ratio(clock, *pair) for key, pair in RATIOS.items() if {*pair} <= clock.keys()},
    }  # fmt: skip


def chunks_of(store):
    """Open file, offset, bytes and type of each chunk that reading all blocks decodes, in order."""
    with Dataset.open(store) as data:
        indptr, step, n = data.array("X/indptr"), data.root.block_rows, data.n_rows
        types = {name: data.array(name)[:1].dtype for name in ARRAYS}
        tables = {name: table_of(store / name) for name in ARRAYS}
    found = []
    for start in range(0, n, step):
        stop = min(start + step, n)
        values = (int(indptr[start]), int(indptr[stop]))
        ranges = {"X/indptr": (start, stop + 1), "X/indices": values, "X/data": values}
        for name in ARRAYS:
            first, end = ranges.get(name, (start, stop))
            found += [
                (*tables[name][chunk], types[name])
                for chunk in range(first // CHUNK, -(-end // CHUNK))
            ]
    return found


def table_of(folder):
    """Open file, offset and bytes of each chunk of an array."""
    found = []
    for shard in range(len(list((folder / "c").iterdir()))):
        path = folder / "c" / str(shard)
        handle = os.open(path, os.O_RDONLY)
        table = os.pread(handle, INDEX_BYTES, path.stat().st_size - INDEX_BYTES)
        index = np.frombuffer(table[:-4], "<u8").reshape(SHARD_CHUNKS, 2)
        found += [(handle, int(o), int(n)) for o, n in index]
    return found


def decode(chunks):
    """Decode chunks one after the other into one buffer for each type."""
    buffers = {dtype: np.empty(CHUNK, dtype) for _, _, _, dtype in chunks}
    for handle, offset, size, dtype in chunks:
        blosc.decompress(os.pread(handle, size, offset), buffers[dtype])


def epoch(data, chosen, number, *, by_feature, anew=False):
    """Read one epoch with a new reader, made beforehand; return the seconds."""
    if anew:
        data._checked.clear()
    room = chosen.config.batching
    reader = Reader(
        data, seed=0, batch_size=room.batch_size, batch_nnz=room.batch_nnz,
        pool_blocks=room.pool_blocks, transform="raw", by_feature=by_feature,
    )  # fmt: skip
    began = time.perf_counter()
    rows = sum(batch.n_rows for batch in reader.epoch(number))
    seconds = time.perf_counter() - began
    assert rows == data.n_rows
    return seconds


def blocks(data, *, anew=False):
    """Read all rows block by block into the same arrays; return the seconds.

    They are checked if they are read `anew`, as for the first time.
    """
    if anew:
        data._checked.clear()
    most, step = data.root.max_block_nnz, data.facts.block_rows
    features, values = np.empty(most, np.int32), np.empty(most, data.value_type)
    classes = np.empty(step, np.int32)
    began = time.perf_counter()
    for start in range(0, data.n_rows, step):
        n = min(step, data.n_rows - start)
        pointers = data.pointers(start, start + n)
        nnz = int(pointers[-1] - pointers[0])
        rows = RowBlock(
            indptr=pointers, features=features[:nnz], values=values[:nnz], classes=classes[:n]
        )
        data.read_into(start, pointers, rows)
    return time.perf_counter() - began


def of_store(store, turns):
    """Figures of reading one store."""
    chunks = chunks_of(store)
    clock = {name: [] for name in STAGES}
    with Dataset.open(store) as data:
        chosen = plan(data, n_buckets=32, n_repetitions=25)
        for turn in range(turns + 1):
            found = {
                "blocks, first": blocks(data, anew=True),
                "blocks": blocks(data),
                "reader, first": epoch(data, chosen, turn, by_feature=False, anew=True),
                "reader": epoch(data, chosen, turn, by_feature=False),
                "reader by feature": epoch(data, chosen, turn, by_feature=True),
            }
            began = time.perf_counter()
            decode(chunks)
            found["decode"] = time.perf_counter() - began
            for name, seconds in found.items() if turn else ():  # the first turn only warms up
                clock[name].append(seconds)
        for handle in {chunk[0] for chunk in chunks}:
            os.close(handle)
        return {
            "rows": data.n_rows, "values": data.nnz, "bytes": sum(chunk[2] for chunk in chunks),
            "batch": chosen.config.batching.batch_size,
            "rows_per_second": {n: rates(data.n_rows, times) for n, times in clock.items()},
            "blocks_share_of_decode": ratio(clock, "decode", "blocks"),
            "reader_share_of_decode": ratio(clock, "decode", "reader"),
            "first_over_later": {
                name: ratio(clock, f"{name}, first", name) for name in ("blocks", "reader")
            },
        }  # fmt: skip


def rates(amount, times):
    return {"best": amount / min(times), "median": amount / statistics.median(times)}


def ratio(clock, a, b):
    """Median over turns of the time of `a` over that of `b`."""
    return statistics.median(x / y for x, y in zip(clock[a], clock[b], strict=True))


def main():
    arguments = parser(__doc__)
    arguments.add_argument("text", type=Path, help="VW text, plain or gzip")
    arguments.add_argument("--rows", type=int, default=300_000, help="first rows of TEXT")
    arguments.add_argument("--float-rows", type=int, default=10_000, help="rows of float text")
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--folder", help="where scratch files lie, on the disk to be measured")
    options = arguments.parse_args()
    figures = {"text": options.text.name, "turns": options.turns}
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch)
        first_rows(options.text, options.rows, folder / "counts.vw")
        shape = SHAPES["imagenet"].changed(n_rows=options.float_rows)
        write_rows(SyntheticRows(shape), folder / "floats.vw")
        for name in ("counts", "floats"):
            text = of_text(folder / f"{name}.vw", folder, options.turns)
            store = of_store(folder / f"{name}.zarr", options.turns)
            figures[name] = {"text": text, "store": store}
            print(name, json.dumps(figures[name]), flush=True)
            remove_folder(folder / f"{name}.zarr")
    figures["machine"] = facts("vowpalwabbit", "scikit-learn")
    report(figures, options.json)


if __name__ == "__main__":
    main()
