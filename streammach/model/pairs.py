"""The counted pairs of a model as one list, of which the largest gains are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNIT = 32  # of rounded gains, in units of 1/1024 nat
LARGEST = 32767 // UNIT * UNIT
PAIR_BYTES = 6  # in memory: class and gain
WIDE_BYTES = 2  # a class's gain where a feature has them for all classes


@dataclass(frozen=True)
class Pairs:
    """The pairs of a model's counts.

    Attributes
    ----------
    counts : dict of str to array
        The counts that they come from.
    features, classes : int32 (n,)
        Features rising, classes rising within a feature.
    gains : int16 (n,)
        What each adds.
    order : int64 (n,)
        The pairs by falling gain; of equals, the first ones first.
    """

    counts: dict[str, NDArray[Any]]
    features: NDArray[np.int32]
    classes: NDArray[np.int32]
    gains: NDArray[np.int16]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.gains)

    @classmethod
    def of(cls, counts: dict[str, NDArray[Any]], *, rounded: bool) -> Pairs:
        """Return the pairs of counts, gains rounded to :data:`UNIT` where that is asked for.

        Pairs whose gain is 0 add nothing and are left out.
        """
        features, classes, gains = _listed(counts)
        if rounded:
            gains = (np.rint(gains / np.float32(UNIT)) * UNIT).clip(-LARGEST, LARGEST)
            gains = gains.astype(np.int16)
        kept = np.flatnonzero(gains)
        features, classes, gains = features[kept], classes[kept], gains[kept]
        falling = np.argsort(-gains.astype(np.int32), kind="stable")
        return cls(counts, features, classes, gains, falling)

    def largest(self, n_pairs: int) -> dict[str, NDArray[Any]]:
        """Return the counts with so many pairs, those of the largest gains."""
        features, classes, gains = self.features, self.classes, self.gains
        if n_pairs < len(self):
            kept = np.sort(self.order[:n_pairs])
            features, classes, gains = features[kept], classes[kept], gains[kept]
        d, n_classes = len(self.counts["wide_of"]), len(self.counts["base"])
        lengths = np.bincount(features, minlength=d)
        wide = np.flatnonzero(lengths * PAIR_BYTES > n_classes * WIDE_BYTES)
        wide_of = np.full(d, -1, np.int32)
        wide_of[wide] = np.arange(len(wide))
        row = wide_of[features]
        table = np.zeros((len(wide), n_classes), np.int16)
        table[row[row >= 0], classes[row >= 0]] = gains[row >= 0]
        lengths[wide] = 0
        return {
            **self.counts, "starts": np.concatenate([[0], np.cumsum(lengths)]),
            "classes": classes[row < 0], "gains": gains[row < 0], "wide_of": wide_of,
            "wide": table,
        }  # fmt: skip


def _listed(
    counts: dict[str, NDArray[Any]],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int16]]:
    """Return feature, class and gain of every pair, features rising, classes rising within."""
    listed = np.repeat(np.arange(len(counts["wide_of"])), np.diff(counts["starts"]))
    rows, classes = np.nonzero(counts["wide"])
    owners = np.flatnonzero(counts["wide_of"] >= 0)
    owners = owners[np.argsort(counts["wide_of"][owners])]
    features = np.concatenate([listed, owners[rows]]).astype(np.int32)
    all_classes = np.concatenate([counts["classes"], classes]).astype(np.int32)
    gains = np.concatenate([counts["gains"], counts["wide"][rows, classes]])
    place = features.astype(np.int64) * len(counts["base"]) + all_classes
    order = np.argsort(place, kind="stable")
    return features[order], all_classes[order], gains[order]
