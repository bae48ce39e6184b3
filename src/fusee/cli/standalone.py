"""`fusee serve`: everything in one process, or one broker process per core, until told to stop."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fusee import __version__
from fusee.cli.console import Beside, ConsolePort, PasswordFile, Pipelines
from fusee.cli.serve import LogLevel, LogStyle

if TYPE_CHECKING:
    from fusee.console.config import ConsoleConfig
    from fusee.standalone import DataFolder

DEFAULT_DATA = Path("fusee-data")


def serve(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address that name server and broker listen on; 0.0.0.0 is all.")
    ] = "127.0.0.1",
    namesrv_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65_535, help="Port of the name server; 0 takes any free one.")
    ] = 9876,
    broker_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65_535, help="Port of the broker; 0 takes any free one.")
    ] = 10911,
    console_port: ConsolePort = 8080,
    console_host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of the console; wider than this machine needs a password.")
    ] = "127.0.0.1",
    with_console: Annotated[bool, typer.Option("--console/--no-console", help="Serve the console and metrics.")] = True,
    password_file: PasswordFile = None,
    pipelines: Pipelines = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Address that clients are told, when it is not the one that is listened on."
        ),
    ] = None,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Where everything is kept; made if missing.")] = (
        DEFAULT_DATA
    ),
    brokers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=26, help="Run so many brokers as one cluster, each a process of its own."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the broker; may be given many times."),
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogStyle = "text",
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
    from fusee.console.config import ConsoleConfig, find_password
    from fusee.logs import begin_logging
    from fusee.standalone import DataFolder

    begin_logging(log_level, log_format)
    folder = DataFolder(data.absolute())
    face: ConsoleConfig | None = None
    if with_console:
        face = ConsoleConfig(
            name_servers="",
            host=console_host,
            port=console_port,
            password=find_password(password_file),
            data=folder.console,
            pipelines=pipelines,
        )
    if brokers is not None:
        from fusee.cli.several_brokers import serve_several

        serve_several(
            folder,
            brokers=brokers,
            host=host,
            namesrv_port=namesrv_port,
            broker_port=broker_port,
            settings=parsed_settings(settings),
            console=face,
            on_started=first_message,
        )
        return
    folder.check_for_one()
    _serve_one(folder, host, namesrv_port, broker_port, advertise, parsed_settings(settings), face)


def _serve_one(
    folder: DataFolder,
    host: str,
    namesrv_port: int,
    broker_port: int,
    advertise: str | None,
    given: dict[str, str],
    console: ConsoleConfig | None,
) -> None:
    from fusee.broker.config import load_settings
    from fusee.service import run
    from fusee.service import serve as serve_until_told
    from fusee.standalone import Standalone, broker_flags

    flags = given | broker_flags(host, broker_port, advertise)
    loaded = load_settings(environment=os.environ, flags=flags)
    program = Standalone(folder, host=host, name_server_port=namesrv_port, settings=loaded)

    def started() -> None:
        out = Console(highlight=False, soft_wrap=True)
        broker = program.broker
        out.print(f"fusee {__version__}: data in {folder.root}", markup=False)
        out.print(f"name server listening on [bold]{program.name_server.address}[/]")
        out.print(
            f"broker [bold]{broker.config.broker_name}[/] listening on [bold]{broker.listening[0]}[/], "
            f"fast port {broker.listening[1]}; clients are told [bold]{broker.address}[/]"
        )
        if console is not None:
            from fusee.metrics import BrokerSource, NameServerSource, Source

            sources: list[Source] = [BrokerSource(broker), NameServerSource(program.name_server)]
            beside.begin(program.name_server_address, sources)
        first_message(program.name_server_address)

    beside = Beside(program, console)
    run(serve_until_told(beside, started))


def first_message(name_servers: str) -> None:
    """Print the three lines that send and read a first message."""
    out = Console(highlight=False, soft_wrap=True)
    program = program_name()
    out.print("\na first message, in another terminal:", style="dim")
    for line in (
        f"export NAMESRV_ADDR='{name_servers}'",
        f"{program} message send orders 'hello, world'",
        f"{program} message tail orders --from earliest --limit 1",
    ):
        out.print(f"  {line}", markup=False)


def program_name() -> str:
    """How this program is called from where the person is."""
    called = Path(sys.argv[0])
    if called.name != "fusee":
        return f"{shlex.quote(sys.executable)} -m fusee"
    if shutil.which("fusee") == str(called.absolute()):
        return "fusee"
    try:
        return shlex.quote(str(called.absolute().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(called.absolute()))


def parsed_settings(texts: list[str] | None) -> dict[str, str]:
    """`KEY=VALUE` of the command line, by the names of settings here."""
    from fusee.broker.config import BrokerConfig, spelled
    from fusee.config import types_of
    from fusee.store.config import StoreConfig

    known = types_of(BrokerConfig) | types_of(StoreConfig)
    names = {spelled(name): name for name in known} | {name: name for name in known}
    found: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or name not in names:
            raise typer.BadParameter(
                f"{text!r} is no KEY=VALUE of a broker's setting; `fusee broker --print-config` lists all",
                param_hint="--set",
            )
        found[names[name]] = value
    return found
