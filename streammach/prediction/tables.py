"""Tables in memory as rows with a model's ids, by the recipe that the model carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.bad_rows import BadRows
from streammach.data.source_options import SourceOptions
from streammach.data.tables.memory import MemorySource
from streammach.errors import UsageError
from streammach.model.model import Model
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.types import Multilabel


class ModelTables:
    """Gives rows of tables the ids of a model's features."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._vocabulary: Vocabulary | None = None

    def block(
        self, rows: Any, unknown: NDArray[np.int64] | None = None, *, labelled: bool = False,
        bad_rows: BadRows | None = None,
    ) -> RowBlock:  # fmt: skip
        """Return a table as rows with the model's ids; what the model does not know is left out.

        `unknown` is int64 (n,).
        """
        model = self._model
        if model.recipe is None:
            raise no_recipe(None)
        vocabulary = self._vocabulary
        if vocabulary is None or labelled:
            vocabulary = Vocabulary(
                model.labels.plain() if labelled else None, model.features, add_labels=False,
                add_features=False, columns=model.columns,
            )  # fmt: skip
            self._vocabulary = None if labelled else vocabulary
        multilabel: Multilabel = "on" if model.listed else "off"
        table = MemorySource(rows, SourceOptions(recipe=model.recipe, multilabel=multilabel))
        return canonicalize(
            table.block(vocabulary, label_needed=labelled, unknown=unknown, bad_rows=bad_rows)
        )


def no_recipe(path: Path | None) -> UsageError:
    """Return what is said where a table is given to a model that was trained on none."""
    return UsageError(
        "the model was trained on no table: it has no recipe to read one",
        path=path,
        hint="Train it on a store that was converted from a table.",
    )
