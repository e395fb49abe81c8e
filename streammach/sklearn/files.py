"""A fitted model as the bytes of its own files, which is how estimators are pickled."""

from __future__ import annotations

from pathlib import Path

from streammach.files.folders import make_folder, temporary_folder
from streammach.files.writing import write_atomic
from streammach.prediction.trained import Model


def model_files(model: Model) -> dict[str, bytes]:
    """Return the files of a model by name, or raise DiskError."""
    with temporary_folder() as folder:
        model.save(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def model_of(files: dict[str, bytes]) -> Model:
    """Return the model of such files.

    Parameters
    ----------
    files : dict of str to bytes
        What :func:`model_files` returned.

    Raises
    ------
    ModelError
        If they are damaged.
    DiskError
        If they cannot be written into a temporary folder.
    """
    with temporary_folder() as folder:
        make_folder(folder)
        for name, content in files.items():
            write_atomic(folder / Path(name).name, content)
        return Model.load(folder)
