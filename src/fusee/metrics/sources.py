"""What there is to tell about a running server: its figures, and whether it is ready for work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fusee.metrics.broker_figures import broker_figures
from fusee.metrics.name_server_figures import name_server_figures
from fusee.metrics.owners import QueueOwners

if TYPE_CHECKING:
    from fusee.broker.server import Broker
    from fusee.metrics.families import Figures
    from fusee.namesrv.server import NameServer


class Source(Protocol):
    """A server that can be looked at, on its loop."""

    async def figures(self) -> Figures: ...

    def missing(self) -> list[str]:
        """What keeps it from being ready; empty when nothing does."""


class BrokerSource:
    """A broker that has been started."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._owners = QueueOwners(broker.config.broker_name, broker.consumers, broker.clock)

    async def figures(self) -> Figures:
        return broker_figures(self._broker, await self._owners.ask())

    def missing(self) -> list[str]:
        broker = self._broker
        missing: list[str] = []
        if broker.failure is not None:
            missing.append(f"broker {broker.config.broker_name} accepts nothing: {broker.failure}")
        known = broker.registered
        if broker.config.name_servers and not known:
            missing.append(f"no name server knows broker {broker.config.broker_name} yet")
        return missing


class NameServerSource:
    """A name server that has been started."""

    def __init__(self, name_server: NameServer) -> None:
        self._name_server = name_server

    async def figures(self) -> Figures:
        return name_server_figures(self._name_server)

    def missing(self) -> list[str]:
        return []
