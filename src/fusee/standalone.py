"""A name server and a broker as one program, with their data in one folder: `fusee serve`.

    DIR/namesrv/kvConfig.json   what the name server keeps
    DIR/store/                  messages, in RocketMQ's own format
    DIR/console/                what the console keeps: its audit log

The folder may instead hold a cluster of several processes (`DIR/cluster/`, see `fusee.cluster`), never both: messages
of one would be out of sight while the other runs.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fusee.broker import Broker
from fusee.errors import ConfigError
from fusee.namesrv import NameServer, NameServerConfig

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.broker.config import Settings

BROKER_NAME: Final = "broker-a"
"""Fixed, not the machine's: queues are known by it, and the folder may be carried to another machine."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class DataFolder:
    """Where everything of one `fusee serve` is kept."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "store"
        self.name_server = root / "namesrv"
        self.console = root / "console"
        self.cluster = root / "cluster"

    def check_for_one(self) -> None:
        """Raises ConfigError when a cluster of processes is kept here."""
        if (self.cluster / "cluster.json").exists():
            raise ConfigError(
                f"{self.root} holds a cluster of several brokers: start it by `fusee serve --brokers N --data "
                f"{self.root}`, or give another folder by --data"
            )

    def check_for_several(self) -> None:
        """Raises ConfigError when the messages of a single broker are kept here."""
        if self.store.exists():
            raise ConfigError(
                f"{self.root} holds the messages of a single broker: start it without --brokers, or give another "
                "folder by --data"
            )


class Standalone:
    """A name server and a broker that is registered with it, in this process and on this loop."""

    def __init__(self, folder: DataFolder, *, host: str, name_server_port: int, settings: Settings) -> None:
        """Both listen on `host`; `settings` are the broker's, and decide its port and what clients are told."""
        self._folder = folder
        self.name_server = NameServer(
            NameServerConfig(
                bind_address=host,
                listen_port=name_server_port,
                kv_config_path=str(folder.name_server / "kvConfig.json"),
            )
        )
        self._settings = settings
        self._broker: Broker | None = None
        self._stack = AsyncExitStack()

    @property
    def broker(self) -> Broker:
        """The broker. Raises RuntimeError before the start."""
        if self._broker is None:
            raise RuntimeError("the broker has not been started")
        return self._broker

    @property
    def name_server_address(self) -> str:
        """`host:port` of the name server for a client on this machine."""
        return reachable(self.name_server.address)

    async def start(self) -> str:
        """Start the name server, then the broker; what clients are to be given. Raises as they do."""
        self._folder.name_server.mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.name_server.stop)
            await self.name_server.start()
            settings = self._settings
            self._broker = broker = Broker(
                replace(settings.broker, namesrv_addr=self.name_server_address),
                settings.store,
                store_path=self._folder.store,
            )
            stack.push_async_callback(broker.stop)
            await broker.start()
            self._stack = stack.pop_all()
        return self.name_server_address

    async def stop(self) -> None:
        """Stop the broker, then the name server."""
        await self._stack.aclose()


def broker_flags(host: str, port: int, advertise: str | None) -> dict[str, object]:
    """Settings of the broker that follow from where the whole listens; others come from file and environment."""
    flags: dict[str, object] = {"bind_address": host, "listen_port": port, "broker_name": BROKER_NAME}
    if not port:
        flags |= {"fast_listen_port": 0, "ha_listen_port": 0}
    if advertise is not None:
        flags["broker_ip1"] = advertise
    elif is_loopback(host):
        flags["broker_ip1"] = "127.0.0.1" if host == "localhost" else host
    return flags


def is_loopback(host: str) -> bool:
    """Whether nobody outside this machine can reach an address."""
    return host in _LOOPBACK or host.startswith("127.")


def reachable(address: str) -> str:
    """An address that is listened on, as a client on this machine reaches it."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in ("0.0.0.0", "[::]", "") else address
