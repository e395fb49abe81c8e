"""A table of predictions that workers of a cluster make: ranked by ranges, written by slices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streammach.cluster.range_task import TableTask, rank_range, write_slice
from streammach.cluster.sites import MOST_ROWS, Site, Tell, add_seen, cuts, watched
from streammach.cluster.turns import Call, in_turn
from streammach.errors import MismatchError
from streammach.files.destinations import Destination
from streammach.files.folders import make_folder
from streammach.files.reading import check_free, file_pieces, sha256
from streammach.files.writing import Writer, remove_file
from streammach.prediction.asked import Ask, document_digest
from streammach.prediction.inputs import Seen
from streammach.prediction.order import record_type
from streammach.prediction.output.base import Shape
from streammach.prediction.output.kept import KeptWork
from streammach.prediction.output.registry import Output
from streammach.prediction.sorted_files import Slices, facts_of, row_bytes
from streammach.progress import Told
from streammach.rows.names import Names
from streammach.spec.types import Decoding

LEAST_ROWS = 1 << 10  # of a range, where its edges decide nothing
RANGES = "ranges"  # in what an interrupted prediction is known by: ranges, and slices of the table


@dataclass(frozen=True)
class RankedTable:
    """A table of predictions, made by the workers of a cluster."""

    site: Site
    ask: Ask
    output: Output
    work: KeptWork

    @property
    def k(self) -> int:
        """Classes a row."""
        return min(self.ask.k, self.site.place.document.spec.n_classes)

    @property
    def shape(self) -> Shape:
        """What all rows have in common; of the labels their kind alone."""
        kind = self.site.place.document.label_kind
        labels = Names(np.zeros(1, np.int64), np.zeros(0, np.uint8), kind)
        return Shape(k=self.k, labels=labels, word=self.ask.word)

    @property
    def dense(self) -> bool:
        """Whether the edges of ranges decide the last digits."""
        return self.site.place.document.dense

    def known(self) -> tuple[int, int] | None:
        """Return ranges and slices of an interrupted call; None where that is not known."""
        options = self.work.identity().get("options")
        found = options.get(RANGES) if isinstance(options, dict) else None
        if not isinstance(found, list) or len(found) != 2:
            return None
        n, slices = found
        sound = all(type(one) is int and 0 < one <= self.site.n_rows for one in found)
        return (n, slices) if sound else None

    def cut(
        self, wanted: int | None, known: tuple[int, int] | None
    ) -> tuple[list[tuple[int, int]], Slices]:
        """Return the ranges of the store's rows, and the slices of the table."""
        site, room = self.site, self.site.room
        unit = room.rows if self.dense else min(room.rows, LEAST_ROWS)
        most = min(MOST_ROWS, room.sorted_bytes // row_bytes(site.order, self.k))
        slices = Slices.of(site.order, self.k, room.sorted_bytes, site.n_workers)
        pieces = cuts(site.n_rows, site.number(wanted, most, unit), unit)
        if known is None:
            return pieces, slices
        least = cuts(site.n_rows, site.number(1, most, unit), unit)
        if wanted is not None and len(pieces) != known[0]:
            raise MismatchError(f"it was begun in {known[0]} ranges, not in {wanted}: --resume")
        if known[0] < len(least):  # there is less memory than then
            return pieces, slices
        return cuts(site.n_rows, known[0], unit), Slices.cut(site.order, known[1])

    def identity(self, pieces: Sequence[object], slices: Slices) -> dict[str, Any]:
        """Return what the table is made of: who goes on with it must have the same."""
        site = self.site
        # Products of dense rows depend, in their last digits, on how rows are cut and shared out.
        cut = [site.room.rows, site.room.values, site.threads] if self.dense else []
        facts = self.ask.facts(self.output, skip=False, device="cpu", cut=cut)
        return {
            "model": document_digest(site.place.model), "input": site.digest,
            "options": {**facts, RANGES: [len(pieces), slices.n]},
        }  # fmt: skip

    def task(self, decode: Decoding, pieces: Sequence[object], slices: Slices) -> TableTask:
        """Return what workers are told; make the folder of their files."""
        # Its name tells what is made: a worker that was given up may still write.
        name = sha256([msgspec.json.encode(self.identity(pieces, slices))])[:16]
        folder = self.work.ranges / name
        make_folder(folder)
        return TableTask(
            rows=self.site.task(decode), ask=self.ask, k=self.k, folder=str(folder), slices=slices,
            format=self.output.format.name,
        )  # fmt: skip

    def ranked(
        self, task: TableTask, pieces: list[tuple[int, int]], told: Told, tell: Tell | None
    ) -> Seen:
        """Have all ranges ranked that are not yet; return what was met in all of them."""
        seen, calls = Seen(total=self.site.n_rows), list[Call]()
        for i, (start, stop) in enumerate(pieces):
            known = facts_of(task.range_path(i), stop - start, self.k, task.slices)
            if known is not None:
                add_seen(seen, known)
            else:
                calls.append((f"rank-{i + 1}", rank_range, (task, i, start, stop)))
        left = self.site.n_rows - seen.rows
        check_free(Path(task.folder), left * record_type(self.k).itemsize, "ranks of rows")
        told("predict", seen.rows, seen.total)
        for done in watched(self.site, calls, tell):
            add_seen(seen, done.seen)
            told("predict", seen.rows, seen.total)
        return seen

    def written(self, task: TableTask, goal: Destination, n_ranges: int, told: Told) -> None:
        """Have the slices of the table written, and join them."""
        calls = [(f"write-{i + 1}", write_slice, (task, i, n_ranges)) for i in range(task.slices.n)]
        n, site = 0, self.site
        out = Writer(goal.path, temporary=self.work.appended)
        try:
            out.write(self.output.format.heading(self.shape))
            with closing(in_turn(site.client, calls, site.able)) as done:
                for i, n_rows in enumerate(done):
                    for piece in file_pieces(task.slice_path(i)):
                        out.write(piece)
                    remove_file(task.slice_path(i))
                    n += n_rows
                    told("write", n, site.n_rows)
            out.sync()
        finally:
            out.close()
