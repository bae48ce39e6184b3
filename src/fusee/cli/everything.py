"""What `fusee serve` does: everything in one process, or one broker process per core, until told to stop.

Nothing here needs the libraries of the command line: a server that runs for months does not carry them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fusee import __version__
from fusee.cli.beside import Beside
from fusee.cli.plain_text import bold, dim, say
from fusee.errors import ConfigError

if TYPE_CHECKING:
    from fusee.cli.plain_command import ServeOptions
    from fusee.console.config import ConsoleConfig
    from fusee.metrics import Source
    from fusee.standalone import DataFolder


def serve_everything(options: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError, and as servers do that cannot start."""
    # Set before NumPy is loaded, which makes threads for linear algebra; a broker does none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from fusee.console.config import ConsoleConfig, find_password
    from fusee.logs import begin_logging
    from fusee.standalone import DataFolder

    begin_logging(options.log_level, options.log_format)
    folder = DataFolder(options.data.absolute())
    face: ConsoleConfig | None = None
    if options.with_console:
        face = ConsoleConfig(
            name_servers="",
            host=options.console_host,
            port=options.console_port,
            password=find_password(options.password_file),
            data=folder.console,
            pipelines=options.pipelines,
        )
    settings = parsed_settings(options.settings)
    if options.brokers is not None:
        from fusee.cli.several_brokers import serve_several

        serve_several(
            folder,
            brokers=options.brokers,
            host=options.host,
            namesrv_port=options.namesrv_port,
            broker_port=options.broker_port,
            settings=settings,
            console=face,
            on_started=first_message,
        )
        return
    folder.check_for_one()
    _serve_one(folder, options, settings, face)


def _serve_one(folder: DataFolder, options: ServeOptions, given: dict[str, str], console: ConsoleConfig | None) -> None:
    from fusee.broker.config import load_settings
    from fusee.service import run, serve
    from fusee.standalone import Standalone, broker_flags

    flags = given | broker_flags(options.host, options.broker_port, options.advertise)
    loaded = load_settings(environment=os.environ, flags=flags)
    program = Standalone(folder, host=options.host, name_server_port=options.namesrv_port, settings=loaded)

    def sources() -> list[Source]:
        from fusee.metrics import BrokerSource, NameServerSource

        return [BrokerSource(program.broker), NameServerSource(program.name_server)]

    def started() -> None:
        broker = program.broker
        say(f"fusee {__version__}: data in {folder.root}")
        say(f"name server listening on {bold(program.name_server.address)}")
        say(
            f"broker {bold(broker.config.broker_name)} listening on {bold(broker.listening[0])}, "
            f"fast port {broker.listening[1]}; clients are told {bold(broker.address)}"
        )
        beside.begin(program.name_server_address, sources)
        first_message(program.name_server_address)

    beside = Beside(program, console)
    run(serve(beside, started))


def first_message(name_servers: str) -> None:
    """Print the three lines that send and read a first message."""
    program = program_name()
    say(dim("\na first message, in another terminal:"))
    for line in (
        f"export NAMESRV_ADDR='{name_servers}'",
        f"{program} message send orders 'hello, world'",
        f"{program} message tail orders --from earliest --limit 1",
    ):
        say(f"  {line}")


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


def parsed_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """`KEY=VALUE` of the command line, by the names of settings here. Raises ConfigError."""
    if not texts:
        return {}
    from fusee.broker.config import BrokerConfig, spelled
    from fusee.config import types_of
    from fusee.store.config import StoreConfig

    known = types_of(BrokerConfig) | types_of(StoreConfig)
    names = {spelled(name): name for name in known} | {name: name for name in known}
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or name not in names:
            raise ConfigError(
                f"--set {text!r} is no KEY=VALUE of a broker's setting; `fusee broker --print-config` lists all"
            )
        found[names[name]] = value
    return found
