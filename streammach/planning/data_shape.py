"""The sizes of rows that are not here, and what a plan takes for known of them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from streammach.options.annotated import check_record
from streammach.options.facts import HEADS, DataFacts
from streammach.store.row_totals import block_rows
from streammach.system.errors import UsageError, clean

# Features and classes are taken to be as frequent as 1 / (rank + SHIFT), as the features of callees
# are, and independent, so that there are more pairs than in most data.
SHIFT, STEPS = 2.7, 64  # STEPS: frequencies at which pairs are counted
LONGEST, NAME_BYTES = 4.0, 24  # of a row, in mean rows; of a name with its offset
MOST_ROWS, MOST_IDS = 10**12, 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of rows that are not here, for :func:`streammach.plan`.

    Attributes
    ----------
    rows, classes, features : int
        Their numbers.
    values : float
        Values of a row on average, those that are not 0; of dense rows, as many as features.
    labels : float
        Labels of a row on average, where rows have lists of them.
    """

    rows: int
    classes: int
    features: int
    values: float
    labels: float = 1.0

    def __post_init__(self) -> None:
        check_record(self)
        n_values, n_labels = self.rows * self.values, self.rows * self.labels
        for name, least, most in (
            ("rows", 2, MOST_ROWS), ("values", 0.01, self.features), ("labels", 1, self.classes),
            ("features", 1, min(n_values, MOST_IDS)), ("classes", 2, min(n_labels, MOST_IDS)),
        ):  # fmt: skip
            if not least <= getattr(self, name) <= most:
                raise UsageError(f"{name} are not from {least:,} to {most:z,.0f}")

    @classmethod
    def of_text(cls, text: str) -> Shape:
        """Return a shape in words: ``rows=1000,classes=30,features=200,values=5``, or dense."""
        words = dict(word.strip().partition("=")[::2] for word in text.split(","))
        if words.get("values") == "dense":
            words["values"] = words.get("features", "")
        try:
            return cls(**{name: msgspec.json.decode(number) for name, number in words.items()})
        except (TypeError, ValueError) as error:
            what = getattr(error, "message", f"'{clean(text)}' is no shape")
            hint = "Write rows=N,classes=N,features=N,values=N."
            raise UsageError(what, path="--shape", hint=hint) from None

    @property
    def facts(self) -> DataFacts:
        """What is taken for known of a store of this shape."""
        n, d, k, mean = self.rows, self.features, self.classes, self.values
        whole, nnz, listed = mean == d, round(n * mean), self.labels > 1
        often, shares = (1 / (np.arange(1, m + 1) + SHIFT) for m in (d, k))
        counts = np.full(d, float(n)) if whole else np.clip(nnz * often / often.sum(), 1, n)
        often, shares = np.geomspace(counts.min(), counts.max(), STEPS), shares / shares.sum()
        classes = [-np.expm1(-shares * times * self.labels).sum() for times in often]
        pairs, sums = np.interp(counts, often, classes) * (not whole), np.cumsum(counts)
        in_block, labels = block_rows(n, nnz), min(k, int(LONGEST * self.labels)) * listed
        return DataFacts(
            path="none yet, guessed", digest="", n_rows=n, n_classes=k, n_features=d, nnz=nnz,
            n_pairs=int(pairs.sum()), max_row_nnz=d if whole else min(d, int(LONGEST * mean) + 1),
            block_rows=in_block, max_block_nnz=round(in_block * mean), value_bytes=4,
            weighted=False, names_bytes=NAME_BYTES * (d + k), max_row_labels=labels,
            row_postings=int((pairs * counts).sum() / n), n_labels=round(n * self.labels) * listed,
            max_block_labels=in_block * labels,
            heads=tuple((np.searchsorted(sums, sums[-1] * np.array(HEADS)) + 1).tolist()),
        )  # fmt: skip
