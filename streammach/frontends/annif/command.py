"""The command annif: Annif's own command line, with streammach among its backends."""

import click

from streammach.cli.options import epilog
from streammach.system.errors import UsageError


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=epilog("streammach annif train my-project corpus.tsv.gz"),
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGUMENT]...")
def annif(arguments: tuple[str, ...]) -> None:
    """Run Annif, which suggests subjects, with streammach among its backends.

    Commands and their arguments are Annif's own; without any it lists them.
    """
    try:
        from annif.cli import cli
    except ImportError as error:
        hint = "Run: pip install 'streammach[annif]'"
        raise UsageError(f"Annif is not installed ({error})", hint=hint) from None
    from streammach.frontends.annif.backend import register  # needs Annif

    register()
    cli.main(list(arguments), prog_name="streammach annif")
