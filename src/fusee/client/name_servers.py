"""The name servers of a client: one is used as long as it answers, then the next in turn.

Name servers do not know of each other and each knows every broker, so any of them will do. A client starts at a
random one, to spread the load, stays with it, and moves round-robin when a connection cannot be made or an answer
does not come. An answer with an error code is an answer: the name server works.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from fusee.errors import ConfigError, ConnectError, TransportError
from fusee.transport.link import parse_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fusee.transport.client import Client
    from fusee.wire.command import Command


class NameServers:
    """Asks whichever name server answers."""

    def __init__(self, client: Client, addresses: Sequence[str] | str, *, chooser: random.Random | None = None) -> None:
        """`addresses` is a list, or the `host:port;host:port` of RocketMQ's configuration."""
        if isinstance(addresses, str):
            addresses = addresses.replace(",", ";").split(";")
        self._addresses = [address.strip() for address in addresses if address.strip()]
        if not self._addresses:
            raise ConfigError("no name server is given; set NAMESRV_ADDR or pass e.g. 127.0.0.1:9876")
        for address in self._addresses:
            parse_address(address)
        self._client = client
        self._current = (chooser or random.Random()).randrange(len(self._addresses))

    @property
    def current(self) -> str:
        """The name server that is asked next."""
        return self._addresses[self._current]

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    async def request(self, command: Command, timeout: float | None = None) -> Command:
        """The answer of the current name server, or of the next that answers.

        Raises ConnectError with every address and its cause when none does. `timeout` is for each attempt.
        """
        causes: list[str] = []
        for _ in range(len(self._addresses)):
            at, address = self._current, self.current
            try:
                return await self._client.request(address, command, timeout)
            except TransportError as error:
                causes.append(f"{address}: {error}")
                if self._current == at:  # someone else may have moved on meanwhile
                    self._current = (at + 1) % len(self._addresses)
        raise ConnectError(
            "no name server answers; is one running, and reachable from here? " + "; ".join(causes),
            address=";".join(self._addresses),
        )
