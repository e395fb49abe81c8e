"""The commands demo and compile: what comes first on a machine."""

from __future__ import annotations

import time
from pathlib import Path

import click

from streammach.cli.options import debug_option, epilog, json_option
from streammach.cli.output import say, say_json, short_path
from streammach.errors import DiskError, without_secrets
from streammach.machine import size_text, time_text
from streammach.progress import tell


@click.command(epilog=epilog("streammach demo"))
@click.option("--folder", metavar="DIR", type=click.Path(path_type=Path),
              default="streammach-demo", show_default=True,
              help="Where data and model are made.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an earlier demo there.")
@json_option
@debug_option
def demo(folder: Path, force: bool, as_json: bool) -> None:
    """Do the whole job on a real data set.

    The job is to guess the next identifier of Python code. The data are made from this Python's own
    standard library; nothing is downloaded. Every command is shown before it runs.
    """
    from streammach.demo import run_demo  # loads on demand

    figures = run_demo(folder, quiet=as_json, force=force)
    if as_json:
        say_json(figures)


@click.command(name="compile", epilog=epilog("streammach compile runs/odp"))
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
@debug_option
def compile_(runs: tuple[Path, ...], as_json: bool) -> None:
    """Compile what predictions need, and keep it.

    Kernels are compiled at their first call and kept in a folder of the user's. In an image of a
    container, or after an installation, do it once beforehand for each RUN or model: the first
    answer comes at once then. Kernels are kept for this processor and these versions of Python,
    Numba and streammach; set NUMBA_CACHE_DIR for a folder of your own.
    """
    from streammach.jit import CACHE_DIR, kept_kernels  # loads numba
    from streammach.model.model import Model
    from streammach.prediction.diagnose import compile_model

    if CACHE_DIR is None:
        raise DiskError(
            "there is no folder in which only this user can write: kernels cannot be kept",
            hint="Name one with the environment variable NUMBA_CACHE_DIR.",
        )
    began = time.monotonic()
    for run in runs:
        tell(f"compiling for {without_secrets(short_path(run))}")
        compile_model(Model.load(run))
    seconds, (n_kernels, n_bytes) = time.monotonic() - began, kept_kernels()
    if as_json:
        say_json({
            "folder": CACHE_DIR, "kernels": n_kernels, "bytes": n_bytes, "seconds": seconds,
        })  # fmt: skip
        return
    say(
        f"{n_kernels:,} compiled kernels, {size_text(n_bytes)}, in {CACHE_DIR}; took "
        f"{time_text(seconds)}"
    )
