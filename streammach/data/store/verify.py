"""Checks that a store is what was written."""

from __future__ import annotations

import os

from streammach.data.store.dataset import Dataset
from streammach.progress import Wanted


def verify(
    store: str | os.PathLike[str], *, deep: bool = True, progress: Wanted = None
) -> list[str]:
    """Return a line for each thing that is wrong with a store; none if it is what was written.

    Parameters
    ----------
    store : path-like
        The store.
    deep : bool
        Whether every byte is read, every chunk decoded and every row checked; else only metadata,
        the sizes of files and the index of each.
    progress : bool, str or callable, optional
        Whether it is told how it goes: True or ``auto``, ``bar``, ``plain``, ``json``; or what is
        called with (stage, done, total).

    Raises
    ------
    UsageError, StoreError, DiskError
        If it cannot be opened as a store.
    """
    with Dataset.open(store) as dataset:
        return dataset.verify(deep=deep, progress=progress)
