"""Stores that were damaged: verify must see it, and no read may return anything but the truth."""

import shutil

import numpy as np

from streammach.conversion.convert import convert
from streammach.store.dataset import Dataset
from streammach.store.stored_arrays import ABSENT, INDEX_BYTES, add_checksum
from streammach.system.errors import DiskError, StoreError
from tests.campaigns.trials import Failed, Verdict

WIDE_ROWS, WIDE_VALUES = 4000, 45  # so many values that arrays have several chunks


class Stores:
    """The stores that are damaged: their files and what they hold; `seed` decides the rows."""

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

    def judged(self, number, way, rng):
        """Damage a copy of a store, verify it, then read all of it."""
        source, copy = self.stores[number], self.folder / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        what, kind = way(copy, self, rng)
        silent = []
        try:
            with Dataset.open(copy) as data:
                if not data.verify(deep=True):
                    silent.append("verify --deep finds nothing")
        except StoreError:
            pass
        except Exception as error:
            if not (isinstance(error, DiskError) and "No such file" in str(error)):
                raise Failed("crashed", f"{what}: {error!r}") from None
        facts = {"read_refused": 0, "read_right": 0, kind: 1}
        try:
            right = read_all(copy) == self.content[source]
            facts["read_right"] = int(right)
            silent += ["other content is read"] * (not right)
        except (StoreError, DiskError):
            facts["read_refused"] = 1
        except Exception as error:
            raise Failed("crashed", f"{what}: {error!r}") from None
        if silent:
            raise Failed("silent_wrong", f"{what}: {', '.join(silent)}")
        return Verdict(facts=facts)


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

    def flip(copy, stores, rng):
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
        return f"bit {bit} of byte {at} of {path}", kind

    return stores.judged(trial % 2, flip, rng)


def misplaced(stores, rng, trial):
    """Cut, empty, delete, exchange or replace a file, or exchange two chunks."""
    return stores.judged(trial // len(WAYS) % 2, WAYS[trial % len(WAYS)], rng)


def _on_a_file(name, change, *, shards=False):
    """Return a way that changes the bytes of any file; None: the file goes."""

    def way(copy, stores, rng):
        files = [p for p in _files(copy) if p.parent.name == "c" or not shards]
        path = files[rng.integers(len(files))]
        body = change(path.read_bytes(), rng)
        path.unlink() if body is None else path.write_bytes(body)
        return f"{path} {name}", name

    return way


def _zeroed(body, rng):
    """Zero 512 bytes, as a sector that was lost."""
    at = int(rng.integers(max(1, len(body) - 512)))
    if not any(body[at : at + 512]):
        at = len(body) - 512  # the checksum of the table is in there
    return body[:at] + bytes(len(body[at : at + 512])) + body[at + 512 :]


def _added(copy, stores, rng):
    path = copy / ("c" if rng.integers(2) else "X/indices/c") / "7"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"0")
    return f"{path} put there", "added"


def _linked(copy, stores, rng):
    files, outside = _files(copy), copy.parent / "outside"
    path = files[rng.integers(len(files))]
    shutil.move(path, outside)
    path.symlink_to(outside)
    return f"{path} is a link", "linked"


def _swapped_files(copy, stores, rng):
    """Exchange two shards, or two documents."""
    chosen = [p for p in _files(copy) if (p.parent.name == "c") == bool(rng.integers(2))]
    bodies = [path.read_bytes() for path in chosen]
    while True:
        a, b = rng.choice(len(chosen), 2, replace=False)
        if bodies[a] != bodies[b]:
            break
    chosen[a].write_bytes(bodies[b])
    chosen[b].write_bytes(bodies[a])
    return f"{chosen[a]} and {chosen[b]} exchanged", "swapped_files"


def _of_another_store(copy, stores, rng):
    """Replace a file by the one of that name in another store."""
    other = stores.stores[2]
    names = [p.relative_to(copy) for p in _files(copy) if (other / p.relative_to(copy)).is_file()]
    names = [n for n in names if (other / n).read_bytes() != (copy / n).read_bytes()]
    name = names[rng.integers(len(names))]
    shutil.copyfile(other / name, copy / name)
    return f"{name} of another store", "of_another_store"


def _two_chunks(*, bodies):
    """Return a way that exchanges two chunks in the table of a shard, or with it their bytes."""

    def way(copy, stores, rng):
        found = []
        for path in (p for p in _files(copy) if p.parent.name == "c"):
            body = path.read_bytes()
            table = np.frombuffer(body[-INDEX_BYTES:-4], "<u8").reshape(-1, 2).copy()
            if (n := int((table[:, 0] != ABSENT).sum())) >= 2:
                found.append((path, body, table, n))
        path, body, table, n = found[rng.integers(len(found))]
        a, b = sorted(rng.choice(n, 2, replace=False).tolist())
        if bodies:
            parts = [body[o : o + s] for o, s in table.tolist() if s < len(body)]
            parts[a], parts[b] = parts[b], parts[a]
            at = 0
            for k, part in enumerate(parts):
                table[k] = at, len(part)
                at += len(part)
            body = b"".join(parts) + body[at:]
        else:
            table[[a, b]] = table[[b, a]]
        path.write_bytes(body[:-INDEX_BYTES] + add_checksum(table.tobytes()))
        name = "swapped_chunks" if bodies else "swapped_places"
        return f"chunks {a} and {b} of {path}: {name}", name

    return way


WAYS = [
    _on_a_file("cut", lambda body, rng: body[: int(rng.integers(1, len(body)))]),
    _on_a_file("emptied", lambda body, rng: b""),
    _on_a_file("deleted", lambda body, rng: None),
    _on_a_file("grown", lambda body, rng: body + bytes(int(rng.integers(1, 5000)))),
    _on_a_file("zeroed", _zeroed, shards=True),
    _added, _swapped_files, _of_another_store, _linked, _two_chunks(bodies=False),
    _two_chunks(bodies=True),
]  # fmt: skip


def _files(store):
    return sorted(path for path in store.rglob("*") if path.is_file())
