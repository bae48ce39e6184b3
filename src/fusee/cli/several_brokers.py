"""`fusee serve --brokers N`: a name server and N broker processes, watched over until told to stop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fusee import __version__
from fusee.cli.beside import Beside
from fusee.cli.plain_text import bold, say
from fusee.cluster.errors import ClusterError
from fusee.cluster.local import LocalCluster
from fusee.cluster.processes import ProcessState
from fusee.errors import ConfigError
from fusee.service import run, serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.console.config import ConsoleConfig
    from fusee.standalone import DataFolder

_log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 1.0
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})


class SeveralBrokers:
    """A local cluster whose processes end with this one; one that dies is started again."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start every process and wait until they have found each other. Raises ClusterError."""
        await asyncio.to_thread(self.cluster.start)
        self._watch = asyncio.create_task(self._watch_over())

    async def stop(self) -> None:
        """End every process."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await asyncio.to_thread(self.cluster.stop)

    async def _watch_over(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            for name in self.cluster.nodes:
                if self.cluster.process_state(name) is ProcessState.GONE:
                    await self._start_again(name)

    async def _start_again(self, name: str) -> None:
        try:
            await asyncio.to_thread(self.cluster.start_node, name)
        except ClusterError as error:
            _log.error("%s ended by itself: %s", name, error)
        else:
            _log.warning("%s ended by itself and was started again; see %s", name, self.cluster.log_path(name))


def serve_several(
    folder: DataFolder,
    *,
    brokers: int,
    host: str,
    namesrv_port: int,
    broker_port: int,
    settings: dict[str, str],
    console: ConsoleConfig | None,
    on_started: Callable[[str], object],
) -> None:
    """Run them until SIGTERM or SIGINT; `on_started` is called with the name servers. Raises ConfigError."""
    if host in _EVERYWHERE:
        raise ConfigError(
            f"--host {host} with --brokers: clients are told this address, so give one of this machine that they reach"
        )
    folder.check_for_several()
    cluster = LocalCluster(
        folder.cluster,
        groups=brokers,
        replicas=1,
        name_servers=1,
        host=host,
        first_port=namesrv_port,
        first_broker_port=broker_port if namesrv_port else 0,
        settings=settings,
    )
    program = SeveralBrokers(cluster)

    def started() -> None:
        say(f"fusee {__version__}: {brokers} brokers, data in {folder.cluster}")
        for node in cluster.nodes.values():
            kind = "broker" if node.is_broker else "name server"
            say(f"{kind} {bold(node.name)} listening on {bold(node.address)}, which clients are told")
        beside.begin(cluster.name_servers)
        on_started(cluster.name_servers)

    beside = Beside(program, console)
    run(serve(beside, started))
