"""What ranges of a store's rows are ranked with: the cluster, the store, the model, the memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from streammach.cluster.range_task import RangeDone, RowsTask
from streammach.cluster.turns import Call, in_turn
from streammach.cluster.workers import Workers
from streammach.data.store.dataset import Dataset
from streammach.data.text import is_piped
from streammach.errors import UsageError, clean
from streammach.files.urls import located
from streammach.machine import size_text
from streammach.model.document import Document, read_document
from streammach.prediction.asked import document_digest
from streammach.prediction.inputs import Seen, is_store, source_order
from streammach.prediction.memory import NOTHING, Task, room_before
from streammach.prediction.order import Order
from streammach.prediction.room import Room
from streammach.spec.types import Decoding

if TYPE_CHECKING:
    from distributed import Client

RANGES_A_WORKER = 4  # so that workers end at about the same time
MOST_ROWS = 1 << 18  # of a range: what a lost worker loses
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """A store and the folder of a model, by names that all workers know."""

    store: str
    model: Path

    @cached_property
    def document(self) -> Document:
        """The model's document."""
        return read_document(self.model, self.model)


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster, what it works at, and what each worker takes."""

    client: Client
    place: Place
    digest: str
    order: Order
    room: Room
    able: list[str] | None
    n_workers: int
    threads: int

    @classmethod
    def of(
        cls, client: Client, place: Place, what: Task, best: int, memory: str | int | None,
        beside: Mapping[str, int] = NOTHING,
    ) -> Site:  # fmt: skip
        """Look at a store and at the workers; refuse what they cannot do."""
        path = located(place.store)
        if is_piped(path) or not (is_store(path) or path.exists()):
            raise UsageError("there is no such store", path=clean(path, 300))
        if not is_store(path):
            raise UsageError(
                "a cluster ranks the rows of a store alone", path=clean(path, 300),
                hint="Convert it first.",
            )  # fmt: skip
        with Dataset.open(path) as data:
            digest, n_rows, tag_bytes = data.digest, data.n_rows, data.tag_bytes
        workers = Workers(client)
        threads = max(client.nthreads().values(), default=1)
        room = room_before(
            place.model, what, path, best, memory=memory, device="cpu", threads=threads,
            beside=beside,
        )  # fmt: skip
        able = workers.able(room.projected_bytes, "a range of rows")
        return cls(
            client=client, place=place, digest=digest, room=room, able=able, threads=threads,
            order=source_order(path) or Order(n_rows, max(n_rows - 1, 0), tag_bytes),
            n_workers=len(workers) if able is None else len(able),
        )  # fmt: skip

    @property
    def n_rows(self) -> int:
        """Rows of the store."""
        return self.order.n_rows

    def number(self, wanted: int | None, most: int, unit: int) -> int:
        """Return how many ranges rows are cut into, of so many rows at most."""
        if wanted is not None and wanted < 1:
            raise UsageError("at least one range is needed: ranges")
        least = -(-self.n_rows // max(most // unit * unit, unit))
        return max(RANGES_A_WORKER * self.n_workers if wanted is None else wanted, least)

    def task(self, decode: Decoding) -> RowsTask:
        """Return what workers are told of the rows."""
        return RowsTask(
            run=str(self.place.model), document=document_digest(self.place.model),
            store=self.place.store, digest=self.digest, room=self.room, decode=decode,
        )  # fmt: skip


def cuts(n_rows: int, n: int, unit: int) -> list[tuple[int, int]]:
    """Return the first row of each of at most n ranges, and the one behind its last."""
    units = -(-n_rows // unit)
    n = max(min(n, units), 1)
    edges = [min(units * i // n * unit, n_rows) for i in range(n + 1)]
    return [*itertools.pairwise(edges)]


def watched(
    site: Site, calls: Sequence[Call], tell: Tell | None
) -> Generator[RangeDone, None, None]:
    """Yield what workers say of ranges, in order; tell in the end what each of them did."""
    by_worker: dict[str, list[int]] = {}
    with closing(in_turn(site.client, calls, site.able)) as results:
        for done in results:
            by_worker.setdefault(done.worker, []).append(done.peak_bytes)
            yield done
    for worker, peaks in sorted(by_worker.items()):
        if tell is not None:
            tell(
                f"{clean(worker)}: {len(peaks)} of {len(calls)} ranges of rows, "
                f"peak {size_text(max(peaks))}"
            )


def add_seen(seen: Seen, more: Seen) -> None:
    """Add what was met in a range to what was met before it."""
    seen.rows += more.rows
    seen.unseen_labels += more.unseen_labels
    seen.unknown_values += more.unknown_values
