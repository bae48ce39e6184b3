"""TCP whose traffic within this process is counted, so that one can tell when all of it has arrived.

Between every Link and its socket stands an `_End`. The two ends of a connection find each other by their addresses and
form a `_Wire`, which knows what is still to come:

    bytes        written at one end and not yet received at the other
    an accept    one end has connected to a door of ours, and the other has not shown up
    an end       one end has closed, and the other has not noticed

Loopback delivers all of this without anybody's doing, within microseconds; so whoever lets the loop turn until
`is_under_way` is False has waited for the kernel and not for a time. A reader that has paused is not waited for.
A connection whose other end is elsewhere (another process, another loop) is not waited for either.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fusee.transport.interfaces import Listening, Network
    from fusee.transport.link import Link

Address: TypeAlias = tuple[str, int]


class Traffic:
    """A Network on top of another."""

    def __init__(self, network: Network) -> None:
        self.moves = 0
        """Events so far: when it stands still, nothing has moved."""
        self._network = network
        self._doors: set[Address] = set()
        self._wires: dict[frozenset[Address], _Wire] = {}
        self._connecting = 0

    @property
    def is_under_way(self) -> bool:
        """Whether something was sent, opened or closed that has not arrived at its other end."""
        return self._connecting > 0 or any(wire.is_under_way for wire in self._wires.values())

    @property
    def connections(self) -> int:
        """Connections with at least one end here."""
        return len(self._wires)

    async def listen(self, link_factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Listening:
        """Open a door. Raises ConnectError."""
        listening = await self._network.listen(lambda: _End(link_factory(), self, calls=False), host, port)
        self._doors.add(listening.address)
        return _Door(listening, self)

    async def connect(self, link_factory: Callable[[], Link], host: str, port: int) -> Link:
        """Make a connection. Raises OSError."""
        made: list[Link] = []

        def factory() -> Any:
            made.append(link_factory())
            return _End(made[-1], self, calls=True)

        is_ours = (host, port) in self._doors
        self._connecting += is_ours
        try:
            await self._network.connect(factory, host, port)
        finally:
            self._connecting -= is_ours
        return made[-1]

    # For the ends

    def door_closed(self, address: Address) -> None:
        self._doors.discard(address)
        self.moves += 1
        for key, wire in list(self._wires.items()):
            if address in key and len(wire.ends) == 1:  # nobody will accept it any more
                del self._wires[key]

    def opened(self, end: _End) -> None:
        self.moves += 1
        key = frozenset((end.here, end.there))
        wire = self._wires.get(key)
        if wire is None or any(other.calls == end.calls for other in wire.ends):
            if end.calls and end.there not in self._doors:
                return
            wire = self._wires[key] = _Wire()
        wire.ends.append(end)

    def lost(self, end: _End) -> None:
        self.moves += 1
        key = frozenset((end.here, end.there))
        wire = self._wires.get(key)
        if wire is not None and end in wire.ends and wire.is_over:
            del self._wires[key]


class _Wire:
    """A connection and those of its ends that have shown up."""

    __slots__ = ("ends",)

    def __init__(self) -> None:
        self.ends: list[_End] = []

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be heard: of the other end of a caller at our door, there will."""
        return all(end.is_lost for end in self.ends) and (len(self.ends) == 2 or not self.ends[0].calls)

    @property
    def is_under_way(self) -> bool:
        if len(self.ends) == 1:
            return self.ends[0].calls
        a, b = self.ends
        if a.is_paused or b.is_paused:
            return False
        if a.is_ending or b.is_ending:
            return not (a.is_lost and b.is_lost)
        return a.sent_bytes != b.received_bytes or b.sent_bytes != a.received_bytes


class _Door:
    """A door that says when it closes."""

    def __init__(self, listening: Listening, traffic: Traffic) -> None:
        self._listening = listening
        self._traffic = traffic
        self.address = listening.address

    def close(self) -> None:
        self._listening.close()
        self._traffic.door_closed(self.address)


class _End(asyncio.Protocol):
    """One end: the protocol of a socket, and the transport of a Link."""

    def __init__(self, protocol: Any, traffic: Traffic, *, calls: bool) -> None:
        """`calls` says that this end made the connection."""
        self.calls = calls
        self.sent_bytes = 0
        self.received_bytes = 0
        self.is_paused = False
        self.is_lost = False
        self.is_ending = False
        self.here: Address = ("", 0)
        self.there: Address = ("", 0)
        self._protocol = protocol
        self._traffic = traffic
        self._transport: Any = None

    # What a socket tells

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.here = tuple(transport.get_extra_info("sockname")[:2])
        # A peer that has gone already has no name any more.
        self.there = tuple((transport.get_extra_info("peername") or ("", 0))[:2])
        self._traffic.opened(self)
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self._traffic.moves += 1
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        self._traffic.moves += 1
        stays: bool | None = self._protocol.eof_received()
        if not stays:
            self.is_ending = True
        return stays

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._traffic.moves += 1
        self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = self.is_ending = True
        self._traffic.lost(self)
        self._protocol.connection_lost(error)

    # What a Link asks

    def write(self, data: bytes) -> None:
        if not self.is_ending:
            self.sent_bytes += len(data)
            self._traffic.moves += 1
        self._transport.write(data)

    def writelines(self, list_of_data: Iterable[bytes | memoryview], /) -> None:
        parts = list(list_of_data)
        if not self.is_ending:
            self.sent_bytes += sum(len(part) for part in parts)
            self._traffic.moves += 1
        self._transport.writelines(parts)

    def close(self) -> None:
        self.is_ending = True
        self._traffic.moves += 1
        self._transport.close()

    def abort(self) -> None:
        self.is_ending = True
        self._traffic.moves += 1
        self._transport.abort()

    def pause_reading(self) -> None:
        self.is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self.is_paused = False
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        size: int = self._transport.get_write_buffer_size()
        return size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        is_closing: bool = self._transport.is_closing()
        return is_closing
