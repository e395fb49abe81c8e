"""The command serve: models that answer over HTTP."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from streammach.cli import options
from streammach.cli.arguments import Arguments, command
from streammach.cli.console import say, say_json
from streammach.errors import UsageError
from streammach.machine import size_text
from streammach.progress import tell

if TYPE_CHECKING:
    from streammach.serve.messages import About

NEEDED = ("prometheus_client", "starlette", "uvicorn")


@command("streammach serve runs/odp --port 8000")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST",
              help="Address to listen at; another one lets other machines ask.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
              help="Port to listen at; 0 finds a free one.")  # fmt: skip
@click.option("--queue", type=click.IntRange(min=1), default=1024, show_default=True, metavar="N",
              help="Rows of a model that may wait; a request beyond them is refused.")  # fmt: skip
@click.option("--max-rows", type=click.IntRange(min=1), default=1024, show_default=True,
              metavar="N", help="Rows that a request may have.")  # fmt: skip
@click.option("--deadline", type=click.FloatRange(min=0, min_open=True), default=10.0,
              show_default=True, metavar="SECONDS",
              help="Time in which a request is answered.")  # fmt: skip
@click.option("--grace", type=click.FloatRange(min=0, min_open=True), default=10.0,
              show_default=True, metavar="SECONDS",
              help="Time in which what was taken is answered at the end.")  # fmt: skip
@options.add_shared_options(options.memory_option, options.device_option, options.threads_option)
def serve(*, runs: tuple[str, ...], host: str, given: Arguments) -> None:
    """Answer requests for predictions over HTTP.

    RUN is the folder of a run or of a model, or NAME=FOLDER; a model is called by its name, or by
    that of its folder. POST /predict, or /models/NAME/predict, takes rows as JSON; the page at /
    lets you try them by hand. Ctrl-C stops the service when all that it took is answered, a
    hangup (SIGHUP) loads the models again.
    """
    try:
        from streammach.serve.messages import ServeOptions  # loads on demand
        from streammach.serve.process import Port
        from streammach.serve.process import serve as answer
        from streammach.serve.service import name_folders
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        hint = 'Run: pip install "streammach[serve]"'
        raise UsageError(f"serve needs {', '.join(NEEDED)}", hint=hint) from None
    folders, place = name_folders(runs), Port(host, given.port)
    if not place.local:
        what = "may be reached from other machines; there is neither encryption nor a password"
        tell(f"streammach: warning: {host} {what}")

    def ready(models: list[About]) -> None:
        if given.as_json:
            say_json({"url": place.url, "models": [msgspec.to_builtins(one) for one in models]})
        else:
            for one in models:
                say(
                    f"{one.name:<12}{one.classes:,} classes, {one.features:,} features, "
                    f"{size_text(one.bytes)}, version {one.version}"
                )
            say(f"{place.url} is ready; Ctrl-C stops it")
        sys.stdout.flush()

    answer(folders, place, ServeOptions(**given.of(ServeOptions)), ready)
