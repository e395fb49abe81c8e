"""Tables in memory as rows with a model's ids, by the recipe that the model carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streammach.data.tables.memory import rows_of_table
from streammach.errors import UsageError
from streammach.model.model import Model
from streammach.rows.block import RowBlock
from streammach.rows.canonical import canonicalize
from streammach.rows.vocabulary import Vocabulary
from streammach.spec.types import Multilabel


class ModelTables:
    """Gives rows of tables the ids of a model's features.

    Parameters
    ----------
    model : Model
        The model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._vocabulary: Vocabulary | None = None

    def block(self, rows: Any, unknown: NDArray[np.int64] | None = None) -> RowBlock:
        """Return a table as rows without labels; what the model does not know is left out.

        Parameters
        ----------
        rows : DataFrame, Arrow table, list of dict or list of str
            The rows.
        unknown : int64 (n,), optional
            Receives how many features of each row the model does not know.

        Raises
        ------
        UsageError
            If the model was trained on no table, or strings are given and it reads other columns.
        DataError
            If a cell cannot be read, or no column of the recipe is there.
        """
        model = self._model
        if model.recipe is None:
            raise no_recipe(None)
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(
                None, model.features, add_labels=False, add_features=False,
                columns=model.columns,
            )  # fmt: skip
        multilabel: Multilabel = "on" if model.listed else "off"
        return canonicalize(
            rows_of_table(
                rows, model.recipe, self._vocabulary, multilabel=multilabel, unknown=unknown
            )
        )


def no_recipe(path: Path | None) -> UsageError:
    """Return what is said where a table is given to a model that was trained on none."""
    return UsageError(
        "the model was trained on no table: it has no recipe to read one",
        path=path,
        hint="Train it on a store that was converted from a table.",
    )
