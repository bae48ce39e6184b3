"""The `fusee` command: its tree of commands, its exit codes, its way to say what went wrong.

Exit codes: 0 done, 1 the operation failed, 2 the command line or configuration is wrong, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from fusee import __version__
from fusee.cli.cluster import app as cluster_app
from fusee.cli.serve import broker, namesrv
from fusee.cli.standalone import serve
from fusee.cli.store import app as store_app
from fusee.errors import ConfigError, FuseeError

app = typer.Typer(
    name="fusee",
    help="A distributed message queue, compatible with Apache RocketMQ on the wire and on disk.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)
app.command("serve")(serve)
app.command("namesrv")(namesrv)
app.command("broker")(broker)
app.add_typer(cluster_app, name="cluster")
app.add_typer(store_app, name="store")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fusee {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A distributed message queue, compatible with Apache RocketMQ on the wire and on disk."""


def main() -> None:
    """Run the command line; an error that a user can mend is told in one line, without a trace."""
    try:
        app()
    except FuseeError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {_escape(str(error))}")
        sys.exit(2 if isinstance(error, ConfigError) else 1)


def _escape(text: str) -> str:
    return text.replace("[", r"\[")
