"""The master's end of the log stream: listens for slaves and sends each what it lacks (Java: DefaultHAService).

A slave says how far it has the log, and from there on gets it, record for record and byte for byte, as soon as it is
written. What a slave has reported is what it has: `acknowledged_offset` is the least of them, `slaves` tells each. A
slave that has not reported for the housekeeping interval is cut, and comes back by itself.

States of a connection: silent (no report yet) -> sending -> closed. Sending stops while the slave does not read, and
goes on from the same place.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fusee.errors import ProtocolError
from fusee.replication.frames import TRANSFER_BYTES_MAX, ReportDecoder, encode_transfer
from fusee.service import Periodic
from fusee.transport.link import format_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fusee.clock import Clock, Timers
    from fusee.store.engine import MessageStore
    from fusee.transport.interfaces import ByteTransport, Listening, Network

_log = logging.getLogger(__name__)

_LOOK_INTERVAL: Final = 1.0
# What one slave may leave unread before it gets no more.
_UNREAD_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PrimarySettings:
    """Intervals in seconds, and how many slaves there may be."""

    heartbeat_interval: float = 5.0
    housekeeping_interval: float = 20.0
    slaves_max: int = 64


class _Slave(asyncio.Protocol):
    """One connection of a slave."""

    def __init__(self, primary: Primary) -> None:
        self._primary = primary
        self._decoder = ReportDecoder()
        self._transport: ByteTransport | None = None
        self._is_paused = False
        self.address = ""
        self.next_offset: int | None = None
        self.acknowledged_offset = 0
        self.heard_at = 0.0
        self.sent_at = 0.0

    # Events of the byte stream

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_UNREAD_BYTES)
        self.address = format_address(transport.get_extra_info("peername"))
        self._primary.join(self)

    def data_received(self, data: bytes) -> None:
        try:
            reports = self._decoder.feed(data)
        except ProtocolError as error:
            self.cut(str(error))
            return
        if reports:
            self._primary.reported(self, reports[-1])

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._primary.send_to(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._primary.leave(self)

    # What the primary does with it

    @property
    def takes_more(self) -> bool:
        return not self._is_paused and self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def cut(self, reason: str) -> None:
        _log.warning("the connection of slave %s is cut: %s", self.address, reason)
        if self._transport is not None:
            self._transport.abort()


class Primary:
    """Sends the log of one store to its slaves."""

    def __init__(
        self,
        *,
        store: MessageStore,
        network: Network,
        clock: Clock,
        timers: Timers,
        settings: PrimarySettings | None = None,
    ) -> None:
        self._store = store
        self._network = network
        self._clock = clock
        self._settings = settings or PrimarySettings()
        self._listening: Listening | None = None
        self._slaves: set[_Slave] = set()
        self._look = Periodic(timers, _LOOK_INTERVAL, self._keep_house)

    async def start(self, host: str, port: int) -> str:
        """Open the door; its address. Raises ConnectError."""
        self._listening = await self._network.listen(lambda: _Slave(self), host, port)
        self._look.start()
        return format_address(self._listening.address)

    def stop(self) -> None:
        """Close the door and every connection."""
        self._look.stop()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for slave in list(self._slaves):
            slave.cut("the master stops")

    @property
    def slaves(self) -> Mapping[str, int]:
        """The slaves that have reported, and up to which log offset each has the log."""
        return {slave.address: slave.acknowledged_offset for slave in self._slaves if slave.next_offset is not None}

    def written(self) -> None:
        """More of the log is written: send it to whoever waits for it."""
        for slave in self._slaves:
            self.send_to(slave)

    # What connections say

    def join(self, slave: _Slave) -> None:
        slave.heard_at = slave.sent_at = self._clock.monotonic()
        self._slaves.add(slave)
        if len(self._slaves) > self._settings.slaves_max:
            slave.cut(f"there are {self._settings.slaves_max} slaves already, the limit")

    def leave(self, slave: _Slave) -> None:
        self._slaves.discard(slave)

    def reported(self, slave: _Slave, log_offset: int) -> None:
        """A slave says how far it has the log; the first time, that is where it is sent from."""
        slave.heard_at = self._clock.monotonic()
        log = self._store.log
        if slave.next_offset is None:
            if log_offset > log.written_offset:
                slave.cut(
                    f"it has the log up to {log_offset}, this master only up to {log.written_offset}: they went "
                    "different ways. Empty the slave's store, or restore the master's"
                )
                return
            # An empty slave gets the last segment only: the older ones will have expired before it matters.
            start = log_offset or max(log.written_offset - log.written_offset % log.segment_size, log.min_offset)
            slave.next_offset = max(start, log.min_offset)
            _log.info("slave %s has the log up to %d, and gets it from %d", slave.address, log_offset, start)
        slave.acknowledged_offset = log_offset
        self.send_to(slave)

    def send_to(self, slave: _Slave) -> None:
        """Send what a slave lacks, as far as it reads."""
        log = self._store.log
        next_offset = slave.next_offset
        if next_offset is None:
            return
        while slave.takes_more and next_offset < log.written_offset:
            data = log.chunk(next_offset, TRANSFER_BYTES_MAX)
            if not data:
                slave.cut(f"the log from {next_offset} on has expired; empty the slave's store and let it begin anew")
                return
            slave.send(encode_transfer(next_offset, data))
            next_offset += len(data)
            slave.sent_at = self._clock.monotonic()
        slave.next_offset = next_offset

    def _keep_house(self) -> None:
        now = self._clock.monotonic()
        for slave in list(self._slaves):
            if now - slave.heard_at >= self._settings.housekeeping_interval:
                slave.cut(f"nothing was heard of it for {self._settings.housekeeping_interval:g} s")
            elif (
                slave.next_offset is not None
                and slave.takes_more
                and now - slave.sent_at >= self._settings.heartbeat_interval
            ):
                slave.sent_at = now
                slave.send(encode_transfer(slave.next_offset, b""))
