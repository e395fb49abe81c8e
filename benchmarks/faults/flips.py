"""Stores that were damaged: verify must see it, and no read may return anything but the truth."""

import os
import shutil

import numpy as np

from benchmarks.faults.work import Failed, Verdict
from streammach.data.convert import convert
from streammach.data.store.arrays import ABSENT, INDEX_BYTES, sealed
from streammach.data.store.dataset import Dataset
from streammach.errors import DiskError, StoreError

WIDE_ROWS, WIDE_VALUES = 4000, 45  # so many values that arrays have several chunks


class Stores:
    """The stores that are damaged: their files and what they hold.

    Parameters
    ----------
    folder : Path
        A new folder.
    seed : int
        Decides the rows.
    """

    def __init__(self, folder, seed):
        rng = np.random.default_rng([seed, 1])
        self.folder = folder
        self.stores = [folder / name for name in ("wide", "long", "other")]
        for number, store in enumerate(self.stores):
            source = folder / f"{store.name}.vw"
            source.write_text("\n".join(self._lines(rng, number)))
            convert(source, store, threads=1)
        self.content = {store: read_all(store) for store in self.stores}

    @staticmethod
    def _lines(rng, number):
        """Return rows: long ones; many short ones with values that do not compress; a few."""
        if number == 0:
            for _ in range(WIDE_ROWS):
                words = rng.integers(0, 3000, WIDE_VALUES)
                yield f"{rng.integers(50)} |w {' '.join(f'f{w}' for w in words)}"
        else:
            for value in rng.random(70_000 if number == 1 else 300):
                yield f"c{rng.integers(80)} {value:.3f} |w {rng.integers(20)}:{value:.7f}"

    def copy(self, number):
        """Return a copy of one of the stores, and the original."""
        source = self.stores[number]
        copy = self.folder / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        return copy, source


def read_all(store):
    """Return every row, name and count of a store, as bytes."""
    with Dataset.open(store) as data:
        block = data.rows(0, data.n_rows)
        parts = [block.indptr, block.features, block.values, block.classes]
        parts += [] if block.importance is None else [block.importance]
        for names in (data.labels, data.features):
            parts += [names.offsets, names.data, np.frombuffer(names.kind.encode(), np.uint8)]
        parts += [data.label_counts, data.feature_counts]
        return [part.tobytes() for part in parts], data.facts.n_rows, data.digest


def flipped(stores, rng, trial):
    """Flip one bit of one byte of one file."""
    copy, source = stores.copy(trial % 2)
    files = _files(copy)
    # Every second trial any byte of the store has the same chance; else any file has.
    sizes = np.array([path.stat().st_size for path in files], float)
    chances = sizes / sizes.sum() if trial % 4 < 2 else np.full(len(files), 1 / len(files))
    path = files[rng.choice(len(files), p=chances)]
    content = bytearray(path.read_bytes())
    at, bit = int(rng.integers(len(content))), int(rng.integers(8))
    content[at] ^= 1 << bit
    path.write_bytes(content)
    kind = "shards" if path.parent.name == "c" else "documents"
    return _judged(stores, copy, source, f"bit {bit} of byte {at} of {path}", kind)


def misplaced(stores, rng, trial):
    """Cut, empty, delete, exchange or replace a file, or exchange two chunks."""
    number = trial // len(WAYS) % 2
    copy, source = stores.copy(number)
    way = WAYS[trial % len(WAYS)]
    what = way(copy, stores, rng)
    return _judged(stores, copy, source, what, way.__name__.strip("_"))


def _judged(stores, copy, source, what, kind):
    """Verify the damaged copy, then read all of it."""
    silent = []
    try:
        with Dataset.open(copy) as data:
            if not data.verify(deep=True):
                silent.append("verify --deep finds nothing")
    except StoreError:
        pass
    except DiskError as error:
        if "No such file" not in str(error):
            raise Failed("crashed", f"{what}: {error!r}") from None
    except Exception as error:
        raise Failed("crashed", f"{what}: {error!r}") from None
    facts = {"read_refused": 0, "read_right": 0, kind: 1}
    try:
        right = read_all(copy) == stores.content[source]
        facts["read_right"] = int(right)
        if not right:
            silent.append("other content is read")
    except (StoreError, DiskError):
        facts["read_refused"] = 1
    except Exception as error:
        raise Failed("crashed", f"{what}: {error!r}") from None
    if silent:
        raise Failed("silent_wrong", f"{what}: {', '.join(silent)}")
    return Verdict(facts=facts)


def _cut(copy, stores, rng):
    path = _any(copy, rng)
    size = int(rng.integers(1, path.stat().st_size))
    os.truncate(path, size)
    return f"{path} cut to {size} bytes"


def _emptied(copy, stores, rng):
    path = _any(copy, rng)
    os.truncate(path, 0)
    return f"{path} emptied"


def _deleted(copy, stores, rng):
    path = _any(copy, rng)
    path.unlink()
    return f"{path} deleted"


def _grown(copy, stores, rng):
    path = _any(copy, rng)
    with open(path, "ab") as file:
        file.write(bytes(int(rng.integers(1, 5000))))
    return f"{path} grown"


def _zeroed(copy, stores, rng):
    """Zero 512 bytes, as a sector that was lost."""
    path = _any(copy, rng, shards=True)
    content = bytearray(path.read_bytes())
    at = int(rng.integers(max(1, len(content) - 512)))
    if not any(content[at : at + 512]):
        at = len(content) - 512  # the checksum of the table is in there
    content[at : at + 512] = bytes(len(content[at : at + 512]))
    path.write_bytes(content)
    return f"{path} zeroed from {at}"


def _foreign(copy, stores, rng):
    path = copy / ("c" if rng.integers(2) else "X/indices/c") / "7"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"0")
    return f"{path} put there"


def _swapped_files(copy, stores, rng):
    """Exchange two shards, or two documents."""
    chosen = [p for p in _files(copy) if (p.parent.name == "c") == bool(rng.integers(2))]
    while True:
        a, b = rng.choice(len(chosen), 2, replace=False)
        one, two = chosen[a], chosen[b]
        if one.read_bytes() != two.read_bytes():
            break
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)
    return f"{one} and {two} exchanged"


def _of_another_store(copy, stores, rng):
    """Replace a file by the one of that name in another store."""
    other = stores.stores[2]
    names = [p.relative_to(copy) for p in _files(copy)]
    names = [
        n for n in names
        if (other / n).is_file() and (other / n).read_bytes() != (copy / n).read_bytes()
    ]  # fmt: skip
    name = names[rng.integers(len(names))]
    shutil.copyfile(other / name, copy / name)
    return f"{name} of another store"


def _linked(copy, stores, rng):
    path = _any(copy, rng)
    outside = copy.parent / "outside"
    shutil.copyfile(path, outside)
    path.unlink()
    path.symlink_to(outside)
    return f"{path} is a link"


def _swapped_places(copy, stores, rng):
    """Exchange two chunks in the table of a shard, with the right checksum of the table."""
    path, table, a, b = _two_chunks(copy, rng)
    table[[a, b]] = table[[b, a]]
    _write_table(path, table)
    return f"chunks {a} and {b} of {path} exchanged in its table"


def _swapped_chunks(copy, stores, rng):
    """Exchange the bytes of two chunks and their sizes, with the right checksum of the table."""
    path, table, a, b = _two_chunks(copy, rng)
    content = path.read_bytes()
    bodies = [content[o : o + s] for o, s in table.tolist() if s < len(content)]
    bodies[a], bodies[b] = bodies[b], bodies[a]
    at = 0
    for k, body in enumerate(bodies):
        table[k] = at, len(body)
        at += len(body)
    path.write_bytes(b"".join(bodies) + content[at:])
    _write_table(path, table)
    return f"chunks {a} and {b} of {path} exchanged"


WAYS = [
    _cut, _emptied, _deleted, _grown, _zeroed, _foreign, _swapped_files, _of_another_store, _linked,
    _swapped_places, _swapped_chunks,
]  # fmt: skip


def _files(store):
    return sorted(path for path in store.rglob("*") if path.is_file())


def _any(store, rng, *, shards=False):
    files = [p for p in _files(store) if p.parent.name == "c" or not shards]
    return files[rng.integers(len(files))]


def _two_chunks(store, rng):
    """Return a shard with several chunks, its table, and two of them."""
    found = []
    for path in _files(store):
        if path.parent.name == "c":
            table = np.frombuffer(path.read_bytes()[-INDEX_BYTES:-4], "<u8").reshape(-1, 2).copy()
            n = int((table[:, 0] != ABSENT).sum())
            if n >= 2:
                found.append((path, table, n))
    path, table, n = found[rng.integers(len(found))]
    a, b = sorted(rng.choice(n, 2, replace=False).tolist())
    return path, table, a, b


def _write_table(path, table):
    with open(path, "r+b") as file:
        file.seek(-INDEX_BYTES, os.SEEK_END)
        file.write(sealed(table.tobytes()))
