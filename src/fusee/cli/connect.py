"""How commands reach a cluster: which name servers, one event loop a command, interruption, names to complete.

An interrupted command (Ctrl-C) leaves nothing half open: its work is cancelled, the connection is closed, what was
done is told, and the exit code is 130.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from fusee.cli.render import note
from fusee.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from fusee.connection import Connection

T = TypeVar("T")

DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
INTERRUPTED: Final = 130
_HINT: Final = "; start one with `fusee serve`, or name another with --namesrv or NAMESRV_ADDR"

NameServers = Annotated[
    str,
    typer.Option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT;...",
        envvar="NAMESRV_ADDR",
        help="Name servers of the cluster, joined by `;`.",
    ),
]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="NAME", help="Only the brokers of this cluster.")]
Broker = Annotated[
    str | None, typer.Option("--broker", metavar="NAME|HOST:PORT", help="Only this broker, by name or address.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


def run(
    name_servers: str,
    work: Callable[[Connection], Awaitable[T]],
    *,
    interrupted: Callable[[], str] | None = None,
    **settings: Any,
) -> T:
    """Do some work with a connection to the cluster. `interrupted` says what was done when the user ends it early."""
    from fusee.connection import connect

    async def connected() -> T:
        try:
            connection = await connect(name_servers, **settings)
        except ConnectError as error:
            raise ConnectError(f"{error}{_HINT}") from error
        try:
            return await work(connection)
        finally:
            await connection.close()

    return run_alone(connected(), interrupted=interrupted)


def run_alone(work: Coroutine[Any, Any, T], *, interrupted: Callable[[], str] | None = None) -> T:
    """The same for work that makes its own connections."""
    from fusee.service import run as run_on_loop

    with _quiet():
        try:
            return run_on_loop(work)
        except KeyboardInterrupt:
            note("interrupted" + (f": {interrupted()}" if interrupted else ""), style="yellow")
            raise typer.Exit(INTERRUPTED) from None


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed. Where nobody can answer, `--yes` must be given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "this cannot be undone, and there is no terminal to ask at; give --yes, or look first with --dry-run",
            param_hint="--yes",
        )
    try:
        is_wanted = typer.confirm(question, err=True)
    except typer.Abort:
        note("\ninterrupted: nothing was done", style="yellow")
        raise typer.Exit(INTERRUPTED) from None
    if not is_wanted:
        note("nothing was done")
        raise typer.Exit(1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let errors speak for themselves: the client's log would tell them a second time."""
    log = logging.getLogger("fusee")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


# Completion of names

_COMPLETION_TIMEOUT: Final = 1.0


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin so; none when the cluster does not answer at once."""
    return _names(ctx, incomplete, lambda connection: connection.admin.list_topics())


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Consumer groups that begin so."""
    return _names(ctx, incomplete, lambda connection: connection.admin.list_groups())


def complete_broker(ctx: typer.Context, incomplete: str) -> list[str]:
    """Brokers whose name begins so."""

    async def names(connection: Connection) -> tuple[str, ...]:
        return tuple(broker.broker_name for broker in await connection.admin.brokers())

    return _names(ctx, incomplete, names)


def _names(ctx: typer.Context, incomplete: str, ask: Callable[[Connection], Awaitable[tuple[str, ...]]]) -> list[str]:
    from fusee.connection import connect
    from fusee.errors import FuseeError
    from fusee.service import run as run_on_loop

    name_servers = ctx.params.get("name_servers") or DEFAULT_NAME_SERVER

    async def found() -> tuple[str, ...]:
        async with asyncio.timeout(_COMPLETION_TIMEOUT), connect(name_servers, connect_timeout_ms=500) as connection:
            return await ask(connection)

    with _quiet():
        try:
            names = run_on_loop(found())
        except (FuseeError, TimeoutError, OSError):
            return []
    return [name for name in names if name.startswith(incomplete)]


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topic)]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=complete_group)]
OnlyTopic = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic.", autocompletion=complete_topic),
]
