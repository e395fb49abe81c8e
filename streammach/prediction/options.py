"""What predictions are asked for, and what they may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streammach.backends.registry import BACKENDS
from streammach.inputs.source_options import BadRowOptions
from streammach.options.estimators import rankers
from streammach.options.option_fields import option, read_numbers


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What the work may take."""

    memory: str | None = option(
        None, "Memory to work in, such as 1GB.", "SIZE", usual="2GB, or what the model needs"
    )
    threads: int | None = option(None, "Threads that compute.", usual="all cores")


@dataclass(frozen=True, kw_only=True)
class Device(Resources):
    """Where a model answers, and what that may take."""

    device: str = option("auto", "Where to compute.", words=("auto", *sorted(BACKENDS)))


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
    buckets: Path | None = option(
        None, "Write bucket probabilities of these rows, too: .npy, float32 (n, R, B).", "FILE"
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What is measured."""

    estimator: str | None = option(
        None, "How classes are ranked: with counts (blend), or by the hashed models alone.",
        words=tuple(rankers()), usual="chosen in training",
    )  # fmt: skip
    threshold: float | None = option(
        None, "Probability from which on F1 takes a label for predicted.", "P", usual="0.5",
        least=0, most=1, more="``model.threshold(precision=0.8)`` gives that of a precision.",
    )  # fmt: skip
    propensity: tuple[float, float] = option(
        (0.55, 1.5), "Constants of the propensities of labels.", "A B"
    )
    estimators: bool = option(False, "Rank by all estimators, too, side by side.")
    by: str | None = option(
        None, "Accuracy by the values of a namespace, or of a column of a table.", "NAMESPACE"
    )
    at: tuple[int, ...] = option(
        (), "Places at which precision, nDCG, recall and F1 are told: 1,10.", "LIST",
        parse=read_numbers, more="They are beside 1, 3 and 5; of rows with one label, too.",
    )  # fmt: skip
    class_table: Path | None = option(
        None, "Write precision, recall, top confusion and more by class: CSV.", "FILE",
        name="--by-class",
    )  # fmt: skip
    confusions: int = option(0, "Tell the N most frequent confusions.", "N", least=0)
    force: bool = option(
        False, "Replace an existing table of classes or list of rows that are skipped."
    )
