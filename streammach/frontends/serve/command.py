"""The command serve: models that answer over HTTP."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from streammach.cli.console import say, say_json
from streammach.cli.options import command
from streammach.frontends.serve.options import ServeOptions
from streammach.system.errors import UsageError
from streammach.system.machine import size_text
from streammach.system.progress import tell

if TYPE_CHECKING:
    from streammach.frontends.serve.messages import About

NEEDED = ("prometheus_client", "starlette", "uvicorn")


@command("streammach serve runs/odp --port 8000")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
def serve(*, runs: tuple[str, ...], options: ServeOptions, as_json: bool) -> None:
    """Answer requests for predictions over HTTP.

    RUN is the folder of a run or of a model, or NAME=FOLDER; a model is called by its name, or by
    that of its folder. POST /predict, or /models/NAME/predict, takes rows as JSON; the page at /
    lets you try them by hand. Ctrl-C stops the service when all that it took is answered, a
    hangup (SIGHUP) loads the models again.
    """
    try:
        from streammach.frontends.serve.process import Port  # loads on demand
        from streammach.frontends.serve.process import serve as answer
        from streammach.frontends.serve.service import name_folders
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        hint = 'Run: pip install "streammach[serve]"'
        raise UsageError(f"serve needs {', '.join(NEEDED)}", hint=hint) from None
    folders, place = name_folders(runs), Port(options.host, options.port)
    if not place.local:
        what = "may be reached from other machines; there is neither encryption nor a password"
        tell(f"streammach: warning: {options.host} {what}")

    def ready(models: list[About]) -> None:
        if as_json:
            say_json({"url": place.url, "models": [msgspec.to_builtins(one) for one in models]})
        else:
            for one in models:
                say(
                    f"{one.name:<12}{one.classes:,} classes, {one.features:,} features, "
                    f"{size_text(one.bytes)}, version {one.version}"
                )
            say(f"{place.url} is ready; Ctrl-C stops it")
        sys.stdout.flush()

    answer(folders, place, options, ready)
