"""`fusee serve` on the command line: its options and its help. What it does is in `everything`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fusee.cli.console import ConsolePort, PasswordFile, Pipelines
from fusee.cli.plain_command import BROKERS_MAX, ServeOptions
from fusee.cli.serve import LogLevel, LogStyle

_DEFAULT = ServeOptions()


def serve(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address that name server and broker listen on; 0.0.0.0 is all.")
    ] = _DEFAULT.host,
    namesrv_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65_535, help="Port of the name server; 0 takes any free one.")
    ] = _DEFAULT.namesrv_port,
    broker_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65_535, help="Port of the broker; 0 takes any free one.")
    ] = _DEFAULT.broker_port,
    console_port: ConsolePort = _DEFAULT.console_port,
    console_host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of the console; wider than this machine needs a password.")
    ] = _DEFAULT.console_host,
    with_console: Annotated[
        bool, typer.Option("--console/--no-console", help="Serve the console and metrics.")
    ] = _DEFAULT.with_console,
    password_file: PasswordFile = None,
    pipelines: Pipelines = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Address that clients are told, when it is not the one that is listened on."
        ),
    ] = None,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Where everything is kept; made if missing.")] = (
        _DEFAULT.data
    ),
    brokers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=BROKERS_MAX,
            help="Run so many brokers as one cluster, each a process of its own.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the broker; may be given many times."),
    ] = None,
    log_level: LogLevel = _DEFAULT.log_level,
    log_format: LogStyle = _DEFAULT.log_format,
) -> None:
    """Run **everything in one process**: a name server, a broker and a console, ready in under a second.

    Messages are kept in `--data`, in RocketMQ's own format. Ctrl-C or SIGTERM stops it in order. Only programs on this
    machine can reach it, unless `--host` says otherwise.

    A broker uses one core. `--brokers N` runs N of them as one cluster, each in a process of its own: topics spread
    over all of them. A broker that dies is started again.

    Examples: `fusee serve`

    `fusee serve --brokers 4 --data /var/lib/fusee`

    `fusee serve --host 0.0.0.0 --advertise mq.example.com`
    """
    from fusee.cli.everything import serve_everything

    serve_everything(
        ServeOptions(
            host=host,
            namesrv_port=namesrv_port,
            broker_port=broker_port,
            console_port=console_port,
            console_host=console_host,
            with_console=with_console,
            password_file=password_file,
            pipelines=pipelines,
            advertise=advertise,
            data=data,
            brokers=brokers,
            settings=tuple(settings or ()),
            log_level=log_level,
            log_format=log_format,
        )
    )
