"""What predictions are asked for, and what they may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streammach.backends.registry import BACKENDS
from streammach.data.source_options import BadRowOptions
from streammach.spec.options import option


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What the work may take."""

    memory: str | None = option(
        None, "Memory to work in, such as 1GB.", "SIZE", usual="2GB, or what the model needs"
    )


@dataclass(frozen=True, kw_only=True)
class Threads(Memory):
    """What the work may take, where threads compute."""

    threads: int | None = option(None, "Threads that compute.", usual="all cores")


@dataclass(frozen=True, kw_only=True)
class Device(Memory):
    """Where a model answers, and what that may take."""

    device: str = option("auto", "Where to compute.", words=("auto", *sorted(BACKENDS)))
    threads: int | None = option(None, "Threads that compute.", usual="all cores")


@dataclass(frozen=True, kw_only=True)
class ListedRowOptions(BadRowOptions):
    """What to do with rows that cannot be read, and where they are listed."""

    rejects: Path | None = option(
        None, "Where rows that are skipped are listed.", "FILE",
        usual="beside a table, FILE.rejects.tsv",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """What is written of each row, and where."""

    k: int = option(5, "Classes a row, at most.", name="-k --limit", least=1)
    threshold: float | None = option(
        None, "The k likeliest labels with at least this probability alone, and their "
        "probabilities as scores.", "P", least=0, most=1,
    )  # fmt: skip
    probabilities: bool = option(False, "Calibrated probabilities in place of scores.")
    explain: int = option(
        0, "Say why: of each label the N features that raise its score most and the N that lower "
        "it most, and the lines that add up to the score with them.", "N", least=0,
    )  # fmt: skip
    only: Path | None = option(None, "Labels that may be said alone, one in each line.", "FILE")
    never: Path | None = option(None, "Labels that may not be said, one in each line.", "FILE")
    out: Path | None = option(None, "Where to write.", "FILE", usual="standard output")
    out_format: str | None = option(
        None, "Format of what is written.", "tsv|csv|jsonl|parquet",
        usual="by the name of --out, else tsv",
    )  # fmt: skip
    force: bool = option(False, "Replace an existing table of predictions.")
