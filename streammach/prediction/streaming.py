"""The best classes of the rows of a source, a block at a time, in the order of the source."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from streammach.prediction.order import Kept, Order, Predictions, SourceOrder, after
from streammach.prediction.ranking import Ranking
from streammach.prediction.room import Room
from streammach.rows.block import RowBlock
from streammach.threads import ahead

Told = Callable[[int], None]


def ranked_source(
    rows: Iterator[RowBlock], k: int, rank: Ranking, room: Room, order: Order | None, kept: Kept,
    told: Told | None,
) -> Iterator[Predictions]:  # fmt: skip
    """Yield the best classes of rows in the order of their source."""
    if order is None:
        yield from ranked_blocks(rows, k, rank, kept.rows, None)
    else:
        put_aside = SourceOrder(order, k, room.sorted_bytes, kept.folder)
        found = ranked_blocks(rows, k, rank, put_aside.n_rows, told)
        yield from after(put_aside.sorted(found), kept.rows)
    room.done()


def ranked_blocks(
    rows: Iterator[RowBlock], k: int, rank: Ranking, first: int, told: Told | None
) -> Generator[Predictions, None, None]:
    """Yield the best classes of rows as they lie in the input, from the row `first` on."""
    done = 0
    for block in ahead(rows, "rows"):
        skipped = min(max(first - done, 0), block.n_rows)
        done += block.n_rows
        if skipped < block.n_rows:
            part = block.part(skipped, block.n_rows) if skipped else block
            assert part.numbers is not None
            yield Predictions(part.numbers, *rank(part, k), part.tags)
        if told is not None:
            told(done)
