"""A server: an open door, its connections, their limits, and a clean end."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from fusee.transport.link import Link, LinkLimits, format_address
from fusee.transport.sweep import Sweep
from fusee.wire.framing import HeaderForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fusee.clock import Clock, Timers
    from fusee.transport.interfaces import LinkListener, Listening, Network
    from fusee.transport.router import Router

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits and time-outs of one server, in seconds and bytes."""

    connections_max: int = 20_000
    idle_timeout: float = 120.0
    frame_timeout: float = 60.0
    drain_timeout: float = 10.0
    link: LinkLimits = field(default_factory=LinkLimits)
    header_form: HeaderForm = HeaderForm.JSON


class _Refused(asyncio.Protocol):
    """What a connection over the limit meets."""

    def connection_made(self, transport: Any) -> None:
        transport.abort()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Server:
    """Accepts connections and hands their requests to a router."""

    def __init__(
        self,
        *,
        network: Network,
        router: Router,
        clock: Clock,
        timers: Timers,
        settings: ServerSettings | None = None,
        listeners: Sequence[LinkListener] = (),
    ) -> None:
        self._network = network
        self._router = router
        self._clock = clock
        self._timers = timers
        self._settings = settings or ServerSettings()
        self._listeners = (self, *listeners)
        self._listening: Listening | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self.links: set[Link] = set()
        self.refused_connections = 0
        self._sweep = Sweep(
            self.links,
            clock=clock,
            timers=timers,
            idle_timeout=self._settings.idle_timeout,
            frame_timeout=self._settings.frame_timeout,
            listeners=self._listeners,
        )

    @property
    def address(self) -> str:
        """`host:port` of the open door. Raises RuntimeError before `start`."""
        if self._listening is None:
            raise RuntimeError("the server has not been started")
        return format_address(self._listening.address)

    async def start(self, host: str, port: int) -> str:
        """Open the door; its address, with the port chosen when 0 was asked for."""
        self._listening = await self._network.listen(self._new_link, host, port)
        self._sweep.start()
        return self.address

    async def stop(self) -> None:
        """Close the door, let what is in flight finish within the drain time, then close every connection."""
        if self._listening is not None:
            self._listening.close()
        self._sweep.stop()
        for link in self.links:
            link.is_leaving = True
        deadline = self._clock.monotonic() + self._settings.drain_timeout
        while self._router.in_flight and self.links and self._clock.monotonic() < deadline:
            await self._pause(0.01)
        await self._router.stop()
        for link in list(self.links):
            link.close()
        while self.links and self._clock.monotonic() < deadline:
            await self._pause(0.01)
        for link in list(self.links):
            link.fail(ConnectionAbortedError("server stopped"))
        await self._empty.wait()

    async def _pause(self, seconds: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timers.call_later(seconds, _wake, waiter)
        await waiter

    def _new_link(self) -> asyncio.Protocol:
        if len(self.links) >= self._settings.connections_max:
            self.refused_connections += 1
            if self.refused_connections & (self.refused_connections - 1) == 0:
                _log.warning(
                    "connection refused: %d are open, the limit (connections_max); %d refused so far",
                    len(self.links),
                    self.refused_connections,
                )
            return _Refused()
        link = Link(
            clock=self._clock,
            timers=self._timers,
            router=self._router,
            limits=self._settings.link,
            listeners=self._listeners,
            header_form=self._settings.header_form,
        )
        return cast("asyncio.Protocol", link)

    # LinkListener

    def on_connect(self, link: Link) -> None:
        self.links.add(link)
        self._empty.clear()

    def on_close(self, link: Link) -> None:
        self.links.discard(link)
        if not self.links:
            self._empty.set()

    def on_exception(self, link: Link, error: Exception) -> None:
        _log.info("connection from %s closed: %s", link.remote_address, error)

    def on_idle(self, link: Link) -> None:
        _log.info("connection from %s closed: silent for %g s", link.remote_address, self._settings.idle_timeout)
