"""The tree of commands: what each is for, and where it lives; a module is loaded when its command is used.

`fusee --help` and the completion of names need the table below and nothing else, so they stay quick however many
commands there are, and a broker does not load what only people at a terminal need.
"""

from __future__ import annotations

import platform
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from fusee import __version__
from fusee.compiled import form

SERVERS: Final = "Servers"
CLUSTER: Final = "A cluster and what is in it"
TOOLS: Final = "Tools"
SPARK: Final = "Data in bulk, on Spark"


class Branch(NamedTuple):
    """One command, or one group of commands: a function or a Typer in a module of this package."""

    module: str
    attribute: str
    help: str
    panel: str


BRANCHES: Final[dict[str, Branch]] = {
    "serve": Branch("standalone", "serve", "Run **everything in one process**: name server, broker, console.", SERVERS),
    "namesrv": Branch("serve", "namesrv", "Run a **name server**: it tells clients where topics live.", SERVERS),
    "broker": Branch("serve", "broker", "Run a **broker**: it keeps messages and serves them.", SERVERS),
    "console": Branch("console", "console", "Look at any cluster **in a browser**.", SERVERS),
    "topic": Branch("topic", "app", "**Topics**: list, show, create, update, delete.", CLUSTER),
    "group": Branch("group", "app", "**Consumer groups**: members, lag by queue and owner, reset, delete.", CLUSTER),
    "message": Branch("message", "app", "**Messages**: send, tail, browse, query, and the life of one.", CLUSTER),
    "offset": Branch("offset", "app", "**Offsets** of groups: show, reset, clone; with a preview.", CLUSTER),
    "transaction": Branch(
        "transaction", "app", "**Transactions** that wait for a decision, and those given up.", CLUSTER
    ),
    "delay": Branch("delay", "app", "**Delayed messages** that wait, and when they are due.", CLUSTER),
    "dlq": Branch("dlq", "app", "**Dead letters**: list, inspect by cause, replay.", CLUSTER),
    "cluster": Branch(
        "cluster", "app", "**Clusters**: look at any one; run one on this machine, and break it on purpose.", CLUSTER
    ),
    "config": Branch("config", "app", "**Settings** of brokers and name servers, over the wire.", CLUSTER),
    "pipeline": Branch("pipeline", "app", "**Jobs on Spark**: archive, replay, audit, rebuild, stats, ...", SPARK),
    "sql": Branch("sql", "sql", "**SQL over topics**, archives, or both as one table.", SPARK),
    "doctor": Branch("doctor", "doctor", "**Find out what is wrong** with a cluster, as a client sees it.", TOOLS),
    "bench": Branch("bench", "app", "**Measure** a cluster: rates, and latency by percentile.", TOOLS),
    "store": Branch(
        "store", "app", "Look into a **store** from outside: read-only, also while a broker has it open.", TOOLS
    ),
}


def subcommands(name: str) -> typer.Typer:
    """The Typer for a branch of the tree, furnished as all of them are."""
    return typer.Typer(
        name=name,
        help=BRANCHES[name].help,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class Tree(TyperGroup):
    """The root, whose branches are loaded one by one."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._is_listing = False
        for name, branch in BRANCHES.items():
            self.add_command(TyperCommand(name, help=branch.help, rich_help_panel=branch.panel))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command itself, or while commands are only listed, what the table says of it."""
        if self._is_listing or cmd_name not in BRANCHES:
            return super().get_command(ctx, cmd_name)
        return _loaded(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from fusee.cli.front_page import show_front_page

        show_front_page(self.get_usage(ctx), self.help or "", self.get_params(ctx), BRANCHES)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The names of commands that begin so."""
        self._is_listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._is_listing = False


def _loaded(name: str) -> Any:
    branch = BRANCHES[name]
    found = getattr(import_module(f"fusee.cli.{branch.module}"), branch.attribute)
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name)(found)
    return get_command(alone)


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
