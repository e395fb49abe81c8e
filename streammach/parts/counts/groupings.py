"""Ways to group features, so that each group has weights of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streammach.counts.footprint import MAX_GROUPS
from streammach.counts.table import CountTable
from streammach.data.store.dataset import Dataset
from streammach.rows.names import namespace_ids

NAMESPACES = MAX_GROUPS // 5 - 1
OCTAVES = 5  # of a feature's rows: below 64, 256, 1,024, 4,096, and more
ENTROPIES = 5  # of a feature's classes, in steps of 1.5 nats


def groupings(dataset: Dataset, table: CountTable) -> dict[str, NDArray[np.int32]]:
    """Return the ways to group features: names, and int32 (d,) from 0 without gaps."""
    octave = np.log2(np.maximum(dataset.feature_counts, 1) / 16) / 2
    frequency = np.clip(octave, 0, OCTAVES - 1).astype(np.int32)
    entropy = np.clip(table.entropies() / 1.5, 0, ENTROPIES - 1).astype(np.int32)
    space = namespace_ids(dataset.features, NAMESPACES)
    ways = {"frequency x entropy": frequency * ENTROPIES + entropy}
    if len(np.unique(space)) > 1:
        ways = {
            "namespace x frequency": space * OCTAVES + frequency,
            "namespace x entropy": space * ENTROPIES + entropy,
            **ways,
        }
    return {name: np.unique(way, return_inverse=True)[1].astype(np.int32)
            for name, way in ways.items()}  # fmt: skip
