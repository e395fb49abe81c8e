"""A small conversion in another process, like one that is to come: it compiles what that will call.

Where there is room it goes on beside that conversion, which compiles the kernels of its format
first, two thirds of the time; the small one has rows in memory, and compiles the others meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from streammach.conversion.build import Build, ConversionOutcome, kind_of
from streammach.conversion.folder import WORK_BYTES, ConversionFolder
from streammach.conversion.intake import ROOM_FOR_BYTE, SMALL_ROOM, Intake
from streammach.conversion.memory_rows import collect_rows
from streammach.conversion.request import ConversionRequest
from streammach.inputs.source import START, Source
from streammach.inputs.source_options import BadRowOptions, ConvertOptions, SourceOptions
from streammach.inputs.sources import agree_recipe, open_source
from streammach.rows.arrays import csr_array
from streammach.store.dataset import Dataset
from streammach.system.files.urls import locate
from streammach.system.jit import compiler_bytes, remember_compiled_work
from streammach.system.linux import resident_bytes
from streammach.system.machine import budget, memory_limit
from streammach.system.rehearsals import compile_first, compiler
from streammach.system.threads import Workers

BYTES = 3_000_000_000  # what there must be for both: 2 GB, and what takes 300 MB
PIECES_ROOM = 500_000_000  # of pieces on their way, and what else is beside rows and names
ROWS, FEATURES, VALUES = 300, 300, 8  # values of a row


def rehearsal(memory: object, threads: int | None) -> AbstractContextManager[None]:
    """Have kernels of conversions compiled, if no memory was named, and not one thread."""
    fits = memory is None and threads != 1 and memory_limit().n_bytes >= BYTES
    return compiler(f"{__name__}:rehearse", ("convert",), fits=fits)


def rehearse(folder: str, kind: tuple[object, ...]) -> None:
    """Convert a few random rows in memory, and remember that it was done for a kind of work."""
    rng = np.random.default_rng(0)
    values = rng.integers(1, 4, ROWS * VALUES).astype(np.float32)
    features = rng.integers(0, FEATURES, ROWS * VALUES)
    rows = (values, features, VALUES * np.arange(ROWS + 1))
    labels = [f"c{i}" for i in rng.integers(0, ROWS // 3, ROWS)]
    collect_rows(csr_array(rows, shape=(ROWS, FEATURES)), labels).to_dataset()
    remember_compiled_work("rehearsal", *kind)


def compile_before(
    opened: Sequence[Source[Any]], options: list[SourceOptions],
    like: str | os.PathLike[str] | None, memory: str | int | float | None, n_threads: int,
) -> None:  # fmt: skip
    """Compile what a conversion calls before it takes memory, where both might not fit together.

    Pipes are read once: they are not read for it.
    """
    kind = kind_of(opened, like is not None, n_threads)
    more = compiler_bytes(*kind)
    if not more or not all(source.files() for source in opened):
        return
    most, now = budget(memory).most, resident_bytes()
    of_rows = max(SMALL_ROOM, ROOM_FOR_BYTE * sum(source.n_bytes for source in opened))
    if now + WORK_BYTES <= most < now + more + PIECES_ROOM + of_rows:
        paths = [source.path for source in opened]
        compile_first(f"{__name__}:convert_heads", kind, paths, options, like, n_threads, most=most)


def convert_heads(
    folder: str, kind: tuple[object, ...], paths: list[Path], options: list[SourceOptions],
    like: str | os.PathLike[str] | None, n_threads: int,
) -> None:  # fmt: skip
    """Convert the first rows of sources, in memory and with rows that are put aside."""
    recipe = None
    if like is not None:
        with Dataset.open(like) as known:
            recipe = known.root.recipe
    for build in (Build, _BuildOfSpills):
        opened = [_head(open_source(p, o)) for p, o in zip(paths, options, strict=True)]
        bad_rows = BadRowOptions(on_bad_row="skip")
        request = ConversionRequest(
            asked=ConvertOptions(like=None if like is None else locate(like), bad_rows=bad_rows),
            options=agree_recipe(opened, options, recipe), n_threads=n_threads,
        )  # fmt: skip
        made = ConversionFolder(Path(folder, build.__name__))
        made.prepare(b"{}")
        build(opened, made, request).run(resume=False)


class _BuildOfSpills(Build):
    def _write(self, intake: Intake, workers: Workers) -> ConversionOutcome:
        intake.spill()
        return super()._write(intake, workers)


def _head(source: Source[Any]) -> Source[Any]:
    """Return a source of the first piece alone, whatever it promised."""
    pieces = source.pieces
    source.pieces = lambda begin=START: islice(pieces(begin), 1)  # type: ignore[method-assign]
    source.check_end = lambda *_: None  # type: ignore[method-assign]
    return source
