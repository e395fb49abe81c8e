"""The command ``streammach``: its group, and the way from errors to exit codes."""

from __future__ import annotations

import difflib
import os
import platform
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points, version

import click

import streammach
from streammach.cli.console import MAX_LINE, drop_output, install_handlers, say_json
from streammach.options.types import MODEL_FORMAT, STORE_FORMAT
from streammach.system.errors import BudgetError, DiskError, StreammachError, UsageError, clean
from streammach.system.machine import check_address_space
from streammach.system.processes import INTERRUPTED, Interrupts, handle_signals
from streammach.system.progress import tell

PIPE_CLOSED = 141
COMPLETION = "_STREAMMACH_COMPLETE"  # set by the shell that asks for completions
COMMANDS = {  # by their modules, in the order of the job
    "explore": "data", "convert": "data", "verify": "data", "info": "info", "fit": "start",
    "plan": "trainings", "train": "trainings", "merge": "trainings", "evaluate": "ranks",
    "predict": "ranks", "add": "changes", "labels": "changes", "shrink": "changes",
    "suspects": "data",
    "compile": "start", "demo": "start",
}  # fmt: skip
NAMED = {"compile": "compile_"}  # whose function has another name: Python's own has this one


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the job, then those of other distributions."""
        return [*COMMANDS, *find_frontends().names]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called, or raise UsageError with one of a name like it."""
        known = self.list_commands(ctx) if args and args[0] not in COMMANDS else []
        if known and args[0] not in known and not args[0].startswith("-"):
            alike = difflib.get_close_matches(args[0], known, n=1)
            meant = f"Did you mean {alike[0]}? " if alike else ""
            hint = f"{meant}See: {ctx.command_path} --help"
            raise UsageError(f"there is no command '{clean(args[0], 60)}'", hint=hint)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name, or None."""
        command: click.Command | None = None
        if cmd_name in COMMANDS:
            module = import_module(f"streammach.cli.{COMMANDS[cmd_name]}")
            command = getattr(module, NAMED.get(cmd_name, cmd_name))
        elif cmd_name in find_frontends().names:
            command = find_frontends()[cmd_name].load()
        return command


def find_frontends() -> EntryPoints:
    """Return the commands of optional frontends, which are entry points of an installation."""
    return entry_points(group="streammach.commands")


def _say_version(context: click.Context, option: click.Parameter, asked: bool) -> None:
    """Print the version and what it runs on, if that is asked, and end."""
    del option
    if asked and not context.resilient_parsing:
        click.echo(
            f"streammach {streammach.__version__} (store format {STORE_FORMAT}, model format "
            f"{MODEL_FORMAT}, Python {platform.python_version()}, numba {version('numba')})"
        )
        context.exit()


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: streammach demo",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_say_version,
    help="Print the version and what it runs on.",
)  # fmt: skip
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def group(debug: bool) -> None:
    """Train classifiers with 100,000 classes on one machine, inside a memory budget you name."""


def main(
    arguments: list[str] | None = None, command: click.Command = group, name: str = "streammach"
) -> int:  # fmt: skip
    """Run a command with the house's signals, warnings, errors and exit codes; return the code."""
    given = sys.argv[1:] if arguments is None else arguments
    interrupts, code = Interrupts(), 0
    with install_handlers(), handle_signals(interrupts):
        try:
            if COMPLETION in os.environ:
                group.main(given, prog_name="streammach")
            # Not command.main: it turns a pipe that was closed into exit code 1.
            with command.make_context(name, list(given)) as context:
                check_address_space()
                command.invoke(context)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            code = _say_end(error, given, interrupts)
        return _flush_stdout(code)


def _say_end(error: BaseException, given: list[str], interrupts: Interrupts) -> int:
    """Say why a command ended before its end, where nothing else has; return the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):  # a command that was run by this one has said why
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    if isinstance(error, Exception) and not isinstance(error, click.Abort):
        ours = _as_ours(error)
        if interrupts.came is None or ours.exit_code == INTERRUPTED:
            return _fail(ours, given)
    tell("streammach: interrupted")  # a library may have made something else of it
    return INTERRUPTED


def _as_ours(error: Exception) -> StreammachError:
    if isinstance(error, StreammachError):
        return error
    if isinstance(error, click.ClickException):
        hint = None
        if isinstance(error, click.UsageError):
            path = error.ctx.command_path if error.ctx is not None else "streammach"
            hint = f"See: {path} --help"
        return UsageError(clean(error.format_message().rstrip("."), 300), hint=hint)
    if isinstance(error, MemoryError):
        return BudgetError(f"out of memory ({clean(error)})")
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        gone = isinstance(error, FileNotFoundError)  # of os.getcwd(), where it names no file
        unnamed = "the current folder" if gone else "standard output"
        return DiskError(what, path=clean(error.filename or unnamed))
    hint = "Run again with --debug and report it."  # a mistake of ours, said in one line
    return StreammachError(f"{type(error).__name__}: {clean(error, 200)}", hint=hint)


def _fail(error: StreammachError, given: list[str]) -> int:
    """Say what went wrong on stderr, and on stdout where JSON was asked for; return the code."""
    if "--debug" in given:
        tell(traceback.format_exc().rstrip("\n"))
    line = " ".join(error.as_command().split())
    word = "interrupted" if error.exit_code == INTERRUPTED else "error"
    text = line.removeprefix("interrupted: ") if word == "interrupted" else line
    tell(f"streammach: {word}: {clean(text, MAX_LINE)}")
    if "--json" in given:
        with suppress(OSError):  # standard output may be what cannot be written to
            say_json({"error": {
                "code": error.exit_code, "kind": error.kind, "message": error.message,
                "path": error.path, "line": error.line, "byte": error.byte, "hint": error.hint,
            }})  # fmt: skip
    return error.exit_code


def _flush_stdout(code: int) -> int:
    """Flush stdout ourselves: a reader that left is no error, a full disk is one."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        drop_output(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return PIPE_CLOSED
        if code != DiskError.exit_code:  # else it is said already
            tell(f"streammach: error: {error.strerror}: standard output")
        return DiskError.exit_code
    return code
