"""Arrow and Parquet files of which one to eight bytes were changed, converted.

A conversion may refuse such a file in one line, or take it. It may not end by a signal, say that it
made a mistake, or invent rows: a store has no more rows than were written, and where cells lie in
the file as they are, each label and each word is there in its bytes.
"""

import contextlib
import decimal
import io
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streammach.cli import main as command_line
from streammach.store.dataset import Dataset
from streammach.system.errors import BudgetError, DataError, UsageError
from tests.campaigns.trials import Failed, Fork, Verdict

N_ROWS = 120
PATIENCE = 120.0  # seconds
REFUSED = {kind.exit_code: "refused" for kind in (DataError, UsageError, BudgetError)}


def _table():
    numbers = np.arange(N_ROWS)
    words = [f"word{i:03} again{i % 7}" for i in range(N_ROWS)]
    codes = pa.array([f"kind{i % 3}" for i in range(N_ROWS)])
    lists = [[f"name{i % 5}"] * (i % 3) for i in range(N_ROWS)]
    vectors = np.arange(3 * N_ROWS, dtype=np.float32)
    pairs = [{f"key{i % 4}": 0.5 * i} for i in range(N_ROWS)]
    money = [decimal.Decimal(i) / 4 for i in range(N_ROWS)]
    return pa.table({
        "text": words, "label": [f"class{i % 5}" for i in range(N_ROWS)],
        "large": pa.array(words, pa.large_string()), "view": pa.array(words, pa.string_view()),
        "code": codes.dictionary_encode(), "list": lists,
        "vector": pa.FixedSizeListArray.from_arrays(vectors, 3),
        "pairs": pa.array(pairs, pa.map_(pa.string(), pa.float64())),
        "number": pa.array(numbers * 1.5, mask=numbers % 11 == 0), "money": money,
        "there": numbers % 2 == 0, "day": pa.array(numbers.astype("M8[D]")),
        "none": pa.nulls(N_ROWS), "bytes": pa.array([b"%04d" % i for i in numbers], pa.binary(4)),
    })  # fmt: skip


def _arrow(make, **options):
    def write(table, path):
        how = pa.ipc.IpcWriteOptions(**options)
        with pa.OSFile(str(path), "wb") as file, make(file, table.schema, options=how) as out:
            out.write_table(table, max_chunksize=50)

    return write


def _parquet(**options):
    def write(table, path):
        table = table.set_column(3, "view", table["text"])  # which it does not have
        pq.write_table(table, path, row_group_size=50, **options)

    return write


FORMS = {  # names of files, how they are written, and whether cells lie there as they are
    "file.arrow": (_arrow(pa.ipc.new_file), True),
    "stream.arrow": (_arrow(pa.ipc.new_stream), True),
    "zstd.arrow": (_arrow(pa.ipc.new_file, compression="zstd"), False),
    "lz4.arrow": (_arrow(pa.ipc.new_stream, compression="lz4"), False),
    "plain.parquet": (_parquet(compression="none", use_dictionary=False), True),
    "usual.parquet": (_parquet(), False),
    "checked.parquet": (_parquet(compression="zstd", write_page_checksum=True), False),
    "pages.parquet": (_parquet(compression="none", data_page_version="2.0", data_page_size=256,
                               write_page_index=True), True),
}  # fmt: skip
ROLES = (
    "--label", "label", "--text", "text,large,view", "--category", "code,there,bytes",
    "--names", "list,pairs", "--number", "number,vector,money", "--date", "day", "--ngrams", "1",
)  # fmt: skip


class Tables:
    """The files that are changed."""

    def __init__(self, folder, seed):
        del seed
        self.folder, self.files = folder, {}
        for name, (write, _) in FORMS.items():
            write(_table(), folder / name)
            self.files[name] = (folder / name).read_bytes()
            assert _convert(folder / name, folder / "s.zarr")[0] == 0, name  # kernels are loaded


def changed(tables, rng, trial):
    """Change bytes of a file, and convert it in a process of its own."""
    name = list(FORMS)[trial % len(FORMS)]
    raw = bytearray(tables.files[name])
    told = _change(raw, rng)
    path = tables.folder / f"trial-{name}"
    path.write_bytes(raw)
    skipped = () if trial // len(FORMS) % 2 else ("--on-bad-row", "skip")
    process = Fork(lambda tell: tell(_outcome(path, tables.folder / "s.zarr", skipped)))
    code = process.end(PATIENCE)
    what = f"{name} with {told}"
    if code != 0 or not process.told:
        raise Failed("hung" if code is None else "crashed", f"{what}: it ended by {code}")
    found = process.told[0]
    if "crash" in found or found["code"] not in (0, *REFUSED) or "\n" in found["said"].strip():
        raise Failed("crashed", f"{what}: {found.get('crash') or found}")
    words = [word.encode() for word in found["words"]] if FORMS[name][1] else []
    wrong = next((word for word in words if word not in bytes(raw)), None)
    if found["rows"] > N_ROWS or wrong is not None:
        raise Failed("silent_wrong", f"{what}: {found['rows']} rows, {wrong!r} is invented")
    return Verdict(facts={REFUSED.get(found["code"], "taken"): 1, name.rpartition(".")[2]: 1})


def _change(raw, rng):
    """Change one to eight bytes, in the metadata as often as among the cells."""
    places = rng.integers(len(raw), size=int(rng.integers(1, 4)))
    way = int(rng.integers(4))
    if way == 1:  # where numbers are small: lengths, places, types
        small = np.flatnonzero(np.frombuffer(raw, np.uint8) < 64)
        places = rng.choice(small, len(places))
    values = [int(rng.choice([0, 1, 127, 128, 255, raw[at] ^ 1 << int(rng.integers(8)),
                              int(rng.integers(256))])) for at in places]  # fmt: skip
    if way == 2:  # a number of four or eight bytes
        size = int(rng.choice([4, 8]))
        start = int(rng.integers(len(raw) - size)) // 4 * 4
        number = int(rng.choice([-1, 2**31 - 1, -5, 100_000, 2**24, -(2**31)]))
        places, values = range(start, start + size), number.to_bytes(size, "little", signed=True)
    for at, value in zip(places, values, strict=True):
        raw[at] = value
    return ", ".join(f"byte {at}: {v}" for at, v in zip(places, values, strict=True))


def _convert(path, store, more=()):
    given = ("--memory", "2GB", "--threads", "1", "--progress", "none", "--force")
    said, hidden = contextlib.redirect_stderr(io.StringIO()), io.StringIO()
    with said as told, contextlib.redirect_stdout(hidden), warnings.catch_warnings():
        code = command_line.main(["convert", str(path), str(store), *ROLES, *given, *more])
    return code, told.getvalue()


def _outcome(path, store, more):
    code, said = _convert(path, store, more)
    if code != 0:
        return {"code": code, "said": said, "rows": 0, "words": []}
    with Dataset.open(store) as data:
        names = [data.features.raw(i).decode() for i in range(data.n_features)]
        words = [name.partition("^")[2] for name in names if name.startswith(("text^", "large^"))]
        words += [data.labels.raw(i).decode() for i in range(data.n_classes)]
        return {"code": 0, "said": "", "rows": data.n_rows, "words": words}
