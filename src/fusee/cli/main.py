"""The `fusee` command: its exit codes, its way to say what went wrong. The commands are in `tree`.

Exit codes: 0 done, 1 the operation failed, 2 the command line or configuration is wrong, 130 interrupted.
"""

from __future__ import annotations

import platform
import sys
from typing import Annotated

import typer

from fusee import __version__
from fusee.cli.tree import Tree
from fusee.compiled import form
from fusee.errors import ConfigError, FuseeError, MessageError

app = typer.Typer(
    name="fusee",
    cls=Tree,
    help="A distributed message queue, compatible with Apache RocketMQ on the wire and on disk.\n\n"
    "Commands that look at a cluster find it by `--namesrv`, by NAMESRV_ADDR, or at 127.0.0.1:9876.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fusee {__version__} ({form()}), Python {platform.python_version()}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The options of the command itself."""


def main() -> None:
    """Run the command line; an error that a user can mend is told in one line, without a trace."""
    try:
        app()
    except FuseeError as error:
        from fusee.cli.render import tell_error

        tell_error(error)
        sys.exit(2 if isinstance(error, (ConfigError, MessageError)) else 1)
