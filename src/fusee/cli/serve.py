"""Commands that run a server until they are told to stop."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fusee import __version__
from fusee.config import Loaded, camel, load
from fusee.namesrv import NameServer, NameServerConfig
from fusee.service import run, serve
from fusee.transport.link import parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def namesrv(
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes any free one. [0.0.0.0:9876]"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", metavar="FILE", help="Settings: TOML, or RocketMQ's .properties as it is."),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("-p", "--print-config", help="Print every setting and where it came from, then exit.")
    ] = False,
    kv_path: Annotated[
        str | None,
        typer.Option("--kv-path", metavar="FILE", help="Where KV configuration is kept; empty keeps it in memory."),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a **name server**: brokers announce their topics to it, clients ask it where a topic lives.

    Run several for safety: they need not know each other; give all their addresses to brokers and clients, joined
    by `;`. A name server keeps nothing but its KV configuration: brokers tell it everything again after a restart.

    Settings come from defaults, then the file, then the environment (`FUSEE_NAMESRV_LISTEN_PORT=9876`), then flags.

    Example: `fusee namesrv --listen 127.0.0.1:9876`
    """
    flags: dict[str, object] = {"kv_config_path": kv_path}
    if listen is not None:
        flags["bind_address"], flags["listen_port"] = parse_address(listen)
    loaded = load(NameServerConfig, program="namesrv", file=config, environment=os.environ, flags=flags)
    if print_config:
        _print_settings(loaded)
        return
    _log_to_stderr(log_level)
    server = NameServer(loaded.value)

    def started() -> None:
        out = Console(highlight=False, soft_wrap=True)
        out.print(f"fusee {__version__} name server listening on [bold]{server.address}[/]")
        if loaded.ignored:
            out.print(f"[dim]ignored settings of {config}: {', '.join(sorted(loaded.ignored))}[/]")

    run(serve(server, started))


def _log_to_stderr(level: str) -> None:
    if level not in _LEVELS:
        raise typer.BadParameter(f"{level!r} is none of {', '.join(_LEVELS)}", param_hint="--log-level")
    logging.basicConfig(level=_LEVELS[level], format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _print_settings(loaded: Loaded[Any]) -> None:
    out = Console(highlight=False, soft_wrap=True)
    values: Mapping[str, Any] = dataclasses.asdict(loaded.value)
    if not out.is_terminal:
        for name, value in values.items():
            out.print(f"{camel(name)}={_plain(value)}", markup=False)
        return
    table = Table(box=None, header_style="bold")
    for column in ("setting", "value", "from"):
        table.add_column(column)
    for name, value in values.items():
        origin = loaded.origins[name]
        style = "dim" if origin == "default" else ""
        table.add_row(name, _plain(value), origin, style=style)
    out.print(table)
    if loaded.ignored:
        out.print(f"ignored: {', '.join(sorted(loaded.ignored))}", markup=False)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
