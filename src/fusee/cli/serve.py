"""Commands that run a server until they are told to stop."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console
from rich.table import Table

from fusee import __version__
from fusee.config import Loaded, camel, load
from fusee.logs import begin_logging
from fusee.namesrv import NameServer, NameServerConfig
from fusee.service import run, serve
from fusee.transport.link import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fusee.metrics import Source

MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, max=65_535, help="Serve /metrics, /health and /ready on this port; 0 takes any free one."
    ),
]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
LogStyle = Annotated[str, typer.Option(help="text, logfmt or json: one line per event.")]


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
    metrics_port: MetricsPort = None,
    log_level: LogLevel = "info",
    log_format: LogStyle = "text",
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
    begin_logging(log_level, log_format)
    server = NameServer(loaded.value)

    def started() -> None:
        out = Console(highlight=False, soft_wrap=True)
        out.print(f"fusee {__version__} name server listening on [bold]{server.address}[/]")
        if loaded.ignored:
            out.print(f"[dim]ignored settings of {config}: {', '.join(sorted(loaded.ignored))}[/]")
        if metrics_port is not None:
            from fusee.metrics import NameServerSource

            told.begin(NameServerSource(server), loaded.value.bind_address, metrics_port)

    with _Metrics() as told:
        run(serve(server, started))


def broker(
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes any free one. [0.0.0.0:10911]"),
    ] = None,
    name_servers: Annotated[
        str | None,
        typer.Option("-n", "--namesrv", metavar="HOST:PORT;...", help="Name servers to register with, joined by `;`."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", metavar="FILE", help="Settings: TOML, or RocketMQ's .properties as it is."),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where messages are kept; made if missing. [~/store]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the broker group. [this machine's name]")] = None,
    cluster: Annotated[str | None, typer.Option(help="Cluster it belongs to. [DefaultCluster]")] = None,
    broker_id: Annotated[
        int | None, typer.Option("--id", metavar="N", help="0 is the master of its group, others are slaves. [0]")
    ] = None,
    print_config: Annotated[
        bool, typer.Option("-p", "--print-config", help="Print every setting and where it came from, then exit.")
    ] = False,
    metrics_port: MetricsPort = None,
    log_level: LogLevel = "info",
    log_format: LogStyle = "text",
) -> None:
    """Run a **broker**: it keeps messages on disk, takes them from producers and serves them to consumers.

    It announces itself to every name server given. Besides its port it opens a fast one for sends, two below. The
    store folder has RocketMQ's own format: a store that a Java broker wrote is opened as it is.

    Settings come from defaults, then the file, then the environment (`FUSEE_BROKER_LISTEN_PORT=10911`), then flags.

    Example: `fusee broker -n 127.0.0.1:9876 --store ./data --name broker-a`
    """
    from fusee.broker import Broker  # late: a name server starts without loading the store
    from fusee.broker.config import load_settings, spelled

    flags: dict[str, object] = {
        "namesrv_addr": name_servers,
        "store_path": None if store is None else str(store),
        "broker_name": name,
        "broker_cluster_name": cluster,
        "broker_id": broker_id,
    }
    if broker_id:
        flags["broker_role"] = "SLAVE"
    if listen is not None:
        flags["bind_address"], flags["listen_port"] = parse_address(listen)
    if metrics_port is not None:
        flags |= {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": metrics_port}
    settings = load_settings(file=config, environment=os.environ, flags=flags)
    if print_config:
        _print_values(settings.values(), settings.origins, settings.ignored, spelled)
        return
    begin_logging(log_level, log_format)
    program = Broker(settings.broker, settings.store, store_path=Path(settings.store_path))

    def started() -> None:
        out = Console(highlight=False, soft_wrap=True)
        broker_config = program.config
        out.print(
            f"fusee {__version__} broker [bold]{broker_config.broker_name}[/] of {broker_config.broker_cluster_name} "
            f"listening on [bold]{program.listening[0]}[/], fast port {program.listening[1]}"
        )
        out.print(f"clients are told [bold]{program.address}[/]; store {settings.store_path}")
        known = program.registered
        if known:
            out.print(f"registered with {', '.join(known)}")
        missing = [address for address in broker_config.name_servers if address not in known]
        if missing:
            out.print(f"[yellow]not reached yet: {', '.join(missing)}; trying again[/]")
        if not broker_config.name_servers:
            out.print("[yellow]no name server given (-n): clients cannot find this broker by topic[/]")
        if settings.ignored:
            out.print(f"[dim]ignored settings of {config}: {', '.join(sorted(settings.ignored))}[/]")
        if broker_config.metrics_exporter_type == "PROM":
            from fusee.metrics import BrokerSource

            host = broker_config.metrics_prom_exporter_host or broker_config.bind_address
            told.begin(BrokerSource(program), host, broker_config.metrics_prom_exporter_port)

    with _Metrics() as told:
        run(serve(program, started))


class _Metrics:
    """Metrics of a server that has been started, until it has ended; loaded only when they are wanted."""

    def __init__(self) -> None:
        self._ending = ExitStack()

    def begin(self, source: Source, host: str, port: int) -> None:
        from fusee.metrics import Exposition, Looking

        exposition = Exposition(Looking(asyncio.get_running_loop(), [source]))
        address = exposition.start(host, port)
        self._ending.callback(exposition.stop)
        Console(highlight=False, soft_wrap=True).print(f"metrics on [bold]http://{address}/metrics[/]")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()


def _print_settings(loaded: Loaded[Any]) -> None:
    _print_values(dataclasses.asdict(loaded.value), loaded.origins, loaded.ignored, camel)


def _print_values(
    values: Mapping[str, Any], origins: Mapping[str, str], ignored: Sequence[str], spelled: Callable[[str], str]
) -> None:
    out = Console(highlight=False, soft_wrap=True)
    if not out.is_terminal:
        for name, value in values.items():
            out.print(f"{spelled(name)}={_plain(value)}", markup=False)
        return
    table = Table(box=None, header_style="bold")
    for column in ("setting", "value", "from"):
        table.add_column(column)
    for name, value in values.items():
        origin = origins.get(name, "default")
        style = "dim" if origin == "default" else ""
        table.add_row(name, _plain(value), origin, style=style)
    out.print(table)
    if ignored:
        out.print(f"ignored: {', '.join(sorted(ignored))}", markup=False)


def _plain(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if isinstance(value, bool) else str(value)
