"""A network in memory: byte streams that obey a ManualClock and can delay, split, hold, drop and cut.

For tests and simulation. The links above are the real ones; only the bytes travel otherwise. Every delivery is a
timer of the clock, so nothing moves until the clock is advanced (`settle` advances by nothing and lets coroutines
run), and a seed gives the same run each time.

What can go wrong with a wire, per pair of hosts (`Weather`): `latency`; `chunk_max` splits what is written into
random pieces; `held` keeps bytes back until released, as a partition that heals does to TCP; `lossy` loses them for
good, so that the peer waits in vain. `cut` ends connections at once on both sides.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fusee.clock import ManualClock
    from fusee.transport.link import Link

_ROUNDS_UNTIL_QUIET: Final = 40


@dataclass(slots=True)
class Weather:
    """Conditions between two hosts; change them at any time."""

    latency: float = 0.0
    chunk_max: int = 0
    held: bool = False
    lossy: bool = False


class MemoryTransport:
    """One end of a connection in memory."""

    def __init__(
        self, network: MemoryNetwork, weather: Weather, local: tuple[str, int], remote: tuple[str, int]
    ) -> None:
        self._network = network
        self._weather = weather
        self._extra = {"sockname": local, "peername": remote}
        self._inbox: deque[bytes] = deque()
        self._outbox: deque[bytes] = deque()
        self._reading = True
        self._closing = False
        self._lost = False
        self._eof_arrived = False
        self._unread_by_peer = 0
        self._paused_protocol = False
        self._high = 64 * 1024
        self._arrival = 0.0
        self.peer: MemoryTransport | None = None
        self.protocol: Any = None

    # What a Link uses

    def write(self, data: bytes) -> None:
        if self._closing or not data:
            return
        size_max = self._weather.chunk_max
        pieces = [bytes(data)] if size_max <= 0 else list(self._network.split(bytes(data), size_max))
        self._unread_by_peer += len(data)
        self._outbox.extend(pieces)
        self._ship()
        if not self._paused_protocol and self._unread_by_peer > self._high:
            self._paused_protocol = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | memoryview], /) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._outbox.append(b"")  # the end of the stream travels behind the data
            self._ship()
            self._network.later(0.0, self._lose, None)

    def abort(self) -> None:
        self._closing = True
        self._outbox.clear()
        self._network.later(0.0, self._lose, None)
        if self.peer is not None:
            self._network.later(self._weather.latency, self.peer._lose, ConnectionResetError("reset by peer"))

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._network.later(0.0, self._hand_over)

    def get_write_buffer_size(self) -> int:
        return self._unread_by_peer

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra.get(name, default)

    # The wire

    def _ship(self) -> None:
        if self._weather.held or self.peer is None:
            return
        while self._outbox:
            piece = self._outbox.popleft()
            if self._weather.lossy and piece:
                continue
            # Never before what was sent earlier, even when the latency has dropped meanwhile.
            self._arrival = max(self._arrival, self._network.clock.monotonic() + self._weather.latency)
            self._network.later(self._arrival - self._network.clock.monotonic(), self.peer._arrive, piece)

    def _arrive(self, piece: bytes) -> None:
        if self._lost:
            return
        self._inbox.append(piece)
        self._hand_over()

    def _hand_over(self) -> None:
        while self._inbox and self._reading and not self._lost:
            piece = self._inbox.popleft()
            if not piece:
                if not self._eof_arrived:
                    self._eof_arrived = True
                    if not self.protocol.eof_received():
                        self.close()
                continue
            if self.peer is not None:
                self.peer._was_read(len(piece))
            if not self._closing:
                self.protocol.data_received(piece)

    def _was_read(self, size: int) -> None:
        self._unread_by_peer -= size
        if self._paused_protocol and not self._lost and self._unread_by_peer <= self._high // 4:
            self._paused_protocol = False
            self.protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._closing = True
            self._network.forget(self)
            self.protocol.connection_lost(error)


class _MemoryListening:
    def __init__(self, network: MemoryNetwork, address: tuple[str, int]) -> None:
        self._network = network
        self.address = address

    def close(self) -> None:
        self._network.close_door(self.address)


class MemoryNetwork:
    """Hosts by name, doors by port, weather between any two hosts."""

    def __init__(self, clock: ManualClock, seed: int = 0) -> None:
        self.clock = clock
        self._random = random.Random(seed)
        self._doors: dict[tuple[str, int], Callable[[], asyncio.Protocol]] = {}
        self._weather: dict[frozenset[str], Weather] = {}
        self._ends: dict[MemoryTransport, frozenset[str]] = {}
        self._ports = itertools.count(40_000)

    def host(self, name: str) -> MemoryHost:
        """The network as one host sees it."""
        return MemoryHost(self, name)

    def weather(self, a: str, b: str) -> Weather:
        """The conditions between two hosts, to be changed by the caller."""
        return self._weather.setdefault(frozenset((a, b)), Weather())

    def release(self, a: str, b: str) -> None:
        """End a partition made by `held`: what was kept back is delivered."""
        self.weather(a, b).held = False
        for end in self._between(a, b):
            end._ship()

    def cut(self, a: str, b: str) -> int:
        """End every connection between two hosts with a reset; how many there were."""
        ends = self._between(a, b)
        for end in ends:
            self.later(0.0, end._lose, ConnectionResetError("connection cut"))
        return len(ends) // 2

    def end_host(self, name: str) -> None:
        """End every program on this host without warning: its doors close, its connections are reset."""
        for address in [address for address in self._doors if address[0] == name]:
            self.close_door(address)
        for end, hosts in list(self._ends.items()):
            if name in hosts:
                self.later(0.0, end._lose, ConnectionResetError("the program ended"))

    async def settle(self) -> None:
        """Deliver everything that is due now and let every coroutine run until nothing moves."""
        quiet = 0
        while quiet < _ROUNDS_UNTIL_QUIET:
            due = self.clock.next_due
            if due is not None and due <= self.clock.monotonic():
                self.clock.advance(0.0)
                quiet = 0
            else:
                quiet += 1
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every timer so that coroutines see each moment."""
        target = self.clock.monotonic() + seconds
        await self.settle()
        while (due := self.clock.next_due) is not None and due <= target:
            self.clock.advance(max(due - self.clock.monotonic(), 0.0))
            await self.settle()
        self.clock.advance(max(target - self.clock.monotonic(), 0.0))
        await self.settle()

    # For the parts of this module

    def later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        self.clock.call_later(delay, callback, *args)

    def split(self, data: bytes, size_max: int) -> Iterable[bytes]:
        position = 0
        while position < len(data):
            end = position + self._random.randint(1, size_max)
            yield data[position:end]
            position = end

    def forget(self, end: MemoryTransport) -> None:
        self._ends.pop(end, None)

    def close_door(self, address: tuple[str, int]) -> None:
        self._doors.pop(address, None)

    def open_door(self, factory: Callable[[], asyncio.Protocol], address: tuple[str, int]) -> _MemoryListening:
        host, port = address
        if port == 0:
            port = next(self._ports)
        if (host, port) in self._doors:
            raise OSError(98, f"{host}:{port} is in use")
        self._doors[host, port] = factory
        return _MemoryListening(self, (host, port))

    def join(self, link_factory: Callable[[], Link], source: str, target: tuple[str, int]) -> Link:
        accept = self._doors.get(target)
        pair = frozenset((source, target[0]))
        weather = self.weather(source, target[0])
        if accept is None:
            raise ConnectionRefusedError(111, f"nothing listens on {target[0]}:{target[1]}")
        here = (source, next(self._ports))
        near = MemoryTransport(self, weather, here, target)
        far = MemoryTransport(self, weather, target, here)
        near.peer, far.peer = far, near
        near.protocol = link = link_factory()
        far.protocol = accept()
        self._ends[near] = self._ends[far] = pair
        far.protocol.connection_made(far)
        link.connection_made(near)
        return link

    def _between(self, a: str, b: str) -> list[MemoryTransport]:
        pair = frozenset((a, b))
        return [end for end, hosts in self._ends.items() if hosts == pair]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class MemoryHost:
    """A Network whose connections start at one named host."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self._network = network
        self._name = name

    async def listen(self, link_factory: Callable[[], asyncio.Protocol], host: str, port: int) -> _MemoryListening:
        return self._network.open_door(link_factory, (host, port))

    async def connect(self, link_factory: Callable[[], Link], host: str, port: int) -> Link:
        weather = self._network.weather(self._name, host)
        while weather.held or weather.lossy or weather.latency:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._network.later(weather.latency or 0.05, _wake, waiter)
            await waiter
            if not (weather.held or weather.lossy):
                break
        return self._network.join(link_factory, self._name, (host, port))
