"""Requests to any address: one connection each, made when first needed, shared, and made again after it was lost.

Connecting is done once for all who wait. After a failed attempt the address rests: 0.1 s, doubling to 5 s, with
jitter; calls in that time fail at once with the last cause, so that callers with another address to try are not held
up. A server that says GO_AWAY is asked again once on a fresh connection, and the old one only finishes its answers.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from fusee.errors import ConnectError, TransportError
from fusee.transport.link import Link, LinkLimits, parse_address
from fusee.transport.sweep import Sweep
from fusee.wire.codes import ResponseCode
from fusee.wire.framing import HeaderForm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.clock import Clock, Timers
    from fusee.transport.interfaces import LinkListener, Network
    from fusee.transport.router import Router
    from fusee.wire.command import Command


DIALLED: Final = "dialled"
"""The attachment of a link that says which address it was asked for; `remote_address` is what that was resolved to."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Limits and time-outs of a client, in seconds."""

    connect_timeout: float = 3.0
    request_timeout: float = 3.0
    idle_timeout: float = 120.0
    frame_timeout: float = 60.0
    backoff_first: float = 0.1
    backoff_max: float = 5.0
    link: LinkLimits = field(default_factory=LinkLimits)
    header_form: HeaderForm = HeaderForm.JSON


@dataclass(slots=True)
class _Rest:
    """An address that failed: until when it is left alone, and why."""

    failures: int
    until: float
    cause: str


class Client:
    """Connections to many addresses, used by awaiting, by callback, or oneway."""

    def __init__(
        self,
        *,
        network: Network,
        clock: Clock,
        timers: Timers,
        router: Router | None = None,
        settings: ClientSettings | None = None,
        listeners: Sequence[LinkListener] = (),
        jitter: random.Random | None = None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._timers = timers
        self._router = router
        self._settings = settings or ClientSettings()
        self._listeners = (self, *listeners)
        self._jitter = jitter or random.Random()
        self._links: dict[str, Link] = {}
        self._all_links: set[Link] = set()
        self._connecting: dict[str, asyncio.Task[Link]] = {}
        self._resting: dict[str, _Rest] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep: Sweep | None = None
        self._closed = False

    async def request(self, address: str, command: Command, timeout: float | None = None) -> Command:
        """The response from this address. Raises a TransportError when there is none; never a code as error."""
        timeout = self._settings.request_timeout if timeout is None else timeout
        deadline = self._clock.monotonic() + timeout
        link = await self.link(address)
        response = await link.request(command, self._left(deadline))
        if response.code == ResponseCode.GO_AWAY:
            self._leave(address, link)
            link = await self.link(address)
            response = await link.request(command, self._left(deadline))
        return response

    def call(
        self,
        address: str,
        command: Command,
        sink: Callable[[Command | TransportError], object],
        timeout: float | None = None,
    ) -> None:
        """Like `request`, but `sink` is called with the response or the error, once."""
        timeout = self._settings.request_timeout if timeout is None else timeout
        link = self.open_link(address)
        if link is not None:
            link.call(command, timeout, sink)
            return
        parse_address(address)

        async def connect_first() -> None:
            try:
                sink(await self.request(address, command, timeout))
            except TransportError as error:
                sink(error)

        task = asyncio.get_running_loop().create_task(connect_first())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def oneway(self, address: str, command: Command, timeout: float | None = None) -> None:
        """Send without an answer; waits only for a connection and while the peer does not read."""
        timeout = self._settings.request_timeout if timeout is None else timeout
        link = await self.link(address)
        await link.writable(timeout)
        link.send_oneway(command)

    def open_link(self, address: str) -> Link | None:
        """The connection to this address if there is one that takes requests."""
        link = self._links.get(address)
        return link if link is not None and link.is_open and not link.is_leaving else None

    async def link(self, address: str) -> Link:
        """The connection to this address, made if need be. Raises ConnectError."""
        link = self.open_link(address)
        if link is not None:
            return link
        if self._closed:
            raise ConnectError(f"cannot connect to {address}: this client is closed", address=address)
        task = self._connecting.get(address)
        if task is None:
            rest = self._resting.get(address)
            if rest is not None and self._clock.monotonic() < rest.until:
                wait = rest.until - self._clock.monotonic()
                raise ConnectError(
                    f"cannot connect to {address}: {rest.cause} ({rest.failures} attempts, next in {wait:.1f} s)",
                    address=address,
                )
            task = asyncio.get_running_loop().create_task(self._connect(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        return await asyncio.shield(task)

    @property
    def addresses(self) -> list[str]:
        """Addresses with an open connection."""
        return [address for address, link in self._links.items() if link.is_open]

    def disconnect(self, address: str) -> None:
        """Close the connection to this address, if there is one."""
        link = self._links.pop(address, None)
        if link is not None:
            link.close()

    async def close(self) -> None:
        """Close every connection; requests in flight fail with ConnectionLostError."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.stop()
        tasks = [*self._connecting.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in list(self._all_links):
            link.close()
        self._links.clear()

    async def _connect(self, address: str) -> Link:
        host, port = parse_address(address)
        timer = None
        attempt: asyncio.Task[Link] = asyncio.get_running_loop().create_task(
            self._network.connect(partial(self._new_link, address), host, port)
        )
        too_late = False

        def give_up() -> None:
            nonlocal too_late
            too_late = attempt.cancel()

        timer = self._timers.call_later(self._settings.connect_timeout, give_up)
        try:
            return await attempt
        except (OSError, UnicodeError) as error:  # a host name may have no form that can be asked for
            raise self._rest(address, getattr(error, "strerror", None) or str(error)) from error
        except asyncio.CancelledError:
            if not too_late:
                attempt.cancel()
                raise
            cause = f"no answer within {self._settings.connect_timeout:g} s"
            raise self._rest(address, cause) from None
        finally:
            timer.cancel()

    def _connected(self, address: str, task: asyncio.Task[Link]) -> None:
        self._connecting.pop(address, None)
        if task.cancelled() or task.exception() is not None:
            return
        self._resting.pop(address, None)
        link = task.result()
        if self._closed:
            link.close()
            return
        self._links[address] = link

    def _rest(self, address: str, cause: str) -> ConnectError:
        failures = self._resting[address].failures + 1 if address in self._resting else 1
        pause = min(self._settings.backoff_first * 2 ** (failures - 1), self._settings.backoff_max)
        pause *= self._jitter.uniform(0.75, 1.25)
        self._resting[address] = _Rest(failures, self._clock.monotonic() + pause, cause)
        return ConnectError(f"cannot connect to {address}: {cause}", address=address)

    def _leave(self, address: str, link: Link) -> None:
        link.is_leaving = True
        if self._links.get(address) is link:
            del self._links[address]
        if link.in_flight == 0:
            link.close()

    def _left(self, deadline: float) -> float:
        return max(deadline - self._clock.monotonic(), 0.0)

    def _new_link(self, address: str) -> Link:
        if self._sweep is None:
            self._sweep = Sweep(
                self._all_links,
                clock=self._clock,
                timers=self._timers,
                idle_timeout=self._settings.idle_timeout,
                frame_timeout=self._settings.frame_timeout,
            )
            self._sweep.start()
        link = Link(
            clock=self._clock,
            timers=self._timers,
            router=self._router,
            limits=self._settings.link,
            listeners=self._listeners,
            header_form=self._settings.header_form,
            pauses_reading=False,
        )
        link.attachments[DIALLED] = address
        return link

    # LinkListener

    def on_connect(self, link: Link) -> None:
        self._all_links.add(link)

    def on_close(self, link: Link) -> None:
        self._all_links.discard(link)

    def on_exception(self, link: Link, error: Exception) -> None:
        """Nothing: whoever waits on the link gets the error."""

    def on_idle(self, link: Link) -> None:
        """Nothing: an idle connection is simply closed."""
