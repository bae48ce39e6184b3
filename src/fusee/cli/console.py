"""`fusee console`: pages about any RocketMQ cluster, in a browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fusee.cli.connect import DEFAULT_NAME_SERVER, NameServers
from fusee.cli.serve import LogLevel, LogStyle

if TYPE_CHECKING:
    from fusee.console.config import ConsoleConfig

ConsolePort = Annotated[
    int,
    typer.Option("--console-port", metavar="N", min=0, max=65_535, help="Port of the console; 0 takes any free one."),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", metavar="FILE", help="The password of the console, or its hash. [FUSEE_CONSOLE_PASSWORD]"
    ),
]
Pipelines = Annotated[
    Path | None, typer.Option("--pipelines", metavar="DIR", help="Folder with checkpoints of Spark streams to show.")
]


def console(
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; wider than this machine needs a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65_535, help="Port; 0 takes any free one.")] = 8080,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the audit log is kept; in memory without it.")
    ] = None,
    password_file: PasswordFile = None,
    pipelines: Pipelines = None,
    hash_password: Annotated[
        bool, typer.Option("--hash-password", help="Ask for a password, print a line for a password file, and exit.")
    ] = False,
    log_level: LogLevel = "info",
    log_format: LogStyle = "text",
) -> None:
    """Look at **any RocketMQ cluster in a browser**: topics, groups and lag, messages and their life, dead letters.

    It needs the extra: `pip install 'fusee[console]'`. On this machine's own address everybody here may use it; bound
    wider it asks for a password. The same data are JSON under `/api`, described by `/api/openapi.json`.

    Example: `fusee console --namesrv 10.0.0.1:9876 --port 8080`
    """
    if hash_password:
        from fusee.console.auth import hash_password as hashed

        typer.echo(hashed(typer.prompt("password", hide_input=True, confirmation_prompt=True)))
        return
    from fusee.console.config import ConsoleConfig, find_password
    from fusee.logs import begin_logging
    from fusee.service import run, serve

    begin_logging(log_level, log_format)
    config = ConsoleConfig(
        name_servers=name_servers,
        host=host,
        port=port,
        password=find_password(password_file),
        data=data,
        pipelines=pipelines,
    )
    program = Face(config)
    out = Console(highlight=False, soft_wrap=True)
    run(serve(program, lambda: out.print(f"console of {name_servers} on [bold]{program.url}[/]")))


class Face:
    """A console alone, in its own thread; to be started on a loop."""

    def __init__(self, config: ConsoleConfig) -> None:
        from fusee.console.server import ConsoleServer

        self._server = ConsoleServer(config)
        self.url = ""

    async def start(self) -> None:
        """Listen, and wait until pages are served. Raises ConnectError or ConfigError."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def settle(error: Exception | None) -> None:
            if not ready.done():
                if error is None:
                    ready.set_result(None)
                else:
                    ready.set_exception(error)

        self.url = self._server.start(
            on_ready=lambda _: loop.call_soon_threadsafe(settle, None),
            on_failure=lambda error: loop.call_soon_threadsafe(settle, error),
        )
        await ready

    async def stop(self) -> None:
        """End it."""
        await asyncio.to_thread(self._server.stop)
