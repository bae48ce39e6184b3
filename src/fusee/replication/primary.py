"""The master's end of the log stream: listens for slaves and sends each what it lacks (Java: DefaultHAService).

A slave says how far it has the log, and from there on gets it, record for record and byte for byte, as soon as it is
written. What a slave has reported is what it has (`progress`). One that has not reported for the housekeeping interval
is cut, and comes back by itself.

States of a connection: silent (no report yet, but perhaps questions: see `frames`) -> sending -> closed. Sending stops
while the slave does not read, or has had its share of this second, and goes on from the same place. A slave that
reports more than there is gets one heartbeat, which tells it where this log ends, and then the end of the connection.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fusee.errors import StoreError
from fusee.replication.frames import (
    HELLO,
    TRANSFER_BYTES_MAX,
    TRANSFER_HEAD,
    LogFacts,
    ReportDecoder,
    broker_id_of,
    encode_facts,
    encode_record_facts,
    encode_transfer,
    facts_of,
    question_of,
)
from fusee.replication.progress import ReplicaProgress, SlaveProgress
from fusee.service import Periodic
from fusee.transport.link import format_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.store.engine import MessageStore
    from fusee.transport.interfaces import ByteTransport, Listening, Network

_log = logging.getLogger(__name__)

_LOOK_INTERVAL: Final = 1.0
# What one slave may leave unread before it gets no more.
_UNREAD_BYTES: Final = 1024 * 1024
# Bytes of the log that go into one write.
_WRITE_BYTES: Final = 256 * 1024
_RECORD_QUESTIONS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class PrimarySettings:
    """Intervals in seconds, sizes in bytes, and how many slaves there may be."""

    heartbeat_interval: float = 5.0
    housekeeping_interval: float = 20.0
    slaves_max: int = 64
    transfer_bytes: int = TRANSFER_BYTES_MAX
    gap_max: int = 256 * 1024 * 1024
    bytes_per_second_max: int | None = None
    """For each slave; None is no limit."""
    pace: float = 0.0
    """What is written sooner after the last transfers than this goes together with more, when nobody waits for it."""


class _Slave(asyncio.Protocol):
    """One connection of a slave."""

    def __init__(self, primary: Primary) -> None:
        self._primary = primary
        self._decoder = ReportDecoder()
        self._transport: ByteTransport | None = None
        self._is_paused = False
        self._questions = 0
        self.has_greeted = False
        self.address = ""
        self.progress: SlaveProgress | None = None
        self.heard_at = 0.0
        self.sent_at = 0.0

    # Events of the byte stream

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_UNREAD_BYTES)
        self.address = format_address(transport.get_extra_info("peername"))
        self._primary.join(self)

    def data_received(self, data: bytes) -> None:
        words = self._decoder.feed(data)
        if not words:
            return
        if words[-1] >= 0 and (len(words) == 1 or min(words) >= 0):
            self._primary.reported(self, words[-1])
            return
        for word in words:
            if word >= 0:
                self._primary.reported(self, word)
            elif not self._answer(word):
                self.cut(f"it says {word}: not the log stream of RocketMQ")
                return

    def _answer(self, word: int) -> bool:
        """Answer what only our slaves say; False when it is nonsense."""
        if word == HELLO:
            self.has_greeted = True
            self._primary.greeted(self)
            return True
        if not self.has_greeted:
            return False
        broker_id = broker_id_of(word)
        if broker_id is not None:
            self._primary.identified(self, broker_id)
            return True
        log_offset = question_of(word)
        self._questions += 1
        if log_offset is None or self._questions > _RECORD_QUESTIONS_MAX:
            return False
        self._primary.asked(self, log_offset)
        return True

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

    def send(self, pieces: list[bytes | memoryview]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)

    def cut(self, reason: str) -> None:
        _log.warning("the connection of slave %s is cut: %s", self.address, reason)
        self._questions = _RECORD_QUESTIONS_MAX
        if self._transport is not None:
            self._transport.abort()

    def end(self, last_word: bytes, reason: str) -> None:
        """Say one thing more, and close."""
        _log.error("the connection of slave %s is ended: %s", self.address, reason)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(last_word)
            self._transport.close()


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
        on_progress: Callable[[], object] | None = None,
    ) -> None:
        """`on_progress` hears when slaves have reported, come or gone, and once a second."""
        self._store = store
        self._network = network
        self._clock = clock
        self._settings = settings or PrimarySettings()
        self._on_progress = on_progress or (lambda: None)
        self._listening: Listening | None = None
        self._slaves: dict[str, _Slave] = {}
        self.progress = ReplicaProgress(
            gap_max=self._settings.gap_max, bytes_per_second_max=self._settings.bytes_per_second_max
        )
        """How far each slave is, and how fast."""
        self._timers = timers
        self._sent_at = float("-inf")
        self._next_send: TimerHandle | None = None
        self._look = Periodic(timers, _LOOK_INTERVAL, self._keep_house)

    async def start(self, host: str, port: int) -> str:
        """Open the door; its address. Raises ConnectError."""
        self._listening = await self._network.listen(lambda: _Slave(self), host, port)
        self._look.start()
        return format_address(self._listening.address)

    def stop(self) -> None:
        """Close the door and every connection."""
        self._look.stop()
        if self._next_send is not None:
            self._next_send.cancel()
            self._next_send = None
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for slave in list(self._slaves.values()):
            slave.cut("the master stops")

    @property
    def settings(self) -> PrimarySettings:
        """May be replaced at any time."""
        return self._settings

    @settings.setter
    def settings(self, settings: PrimarySettings) -> None:
        self._settings = settings
        self.progress.gap_max = settings.gap_max
        self.progress.bytes_per_second_max = settings.bytes_per_second_max

    @property
    def slaves(self) -> Mapping[str, int]:
        """The slaves that have reported, and up to which log offset each has the log."""
        return {slave.address: slave.acknowledged_offset for slave in self.progress.slaves.values()}

    def written(self) -> None:
        """More of the log is written: send it to whoever waits for it."""
        if not self._slaves or self._next_send is not None:
            return
        pace = self._settings.pace
        if pace:
            early = self._sent_at + pace - self._clock.monotonic()
            if early > 0:
                self._next_send = self._timers.call_later(early, self._send_all)
                return
        self._send_all()

    def _send_all(self) -> None:
        self._next_send = None
        self._sent_at = self._clock.monotonic()
        for slave in self._slaves.values():
            self.send_to(slave)

    # What connections say

    def join(self, slave: _Slave) -> None:
        slave.heard_at = slave.sent_at = self._clock.monotonic()
        self._slaves[slave.address] = slave
        if len(self._slaves) > self._settings.slaves_max:
            slave.cut(f"there are {self._settings.slaves_max} slaves already, the limit")

    def leave(self, slave: _Slave) -> None:
        if self._slaves.get(slave.address) is slave:
            del self._slaves[slave.address]
        if slave.progress is not None:
            _log.info("slave %s is gone; it had the log up to %d", slave.address, slave.progress.acknowledged_offset)
            slave.progress = None
        self.progress.leave(slave.address)
        self._on_progress()

    def greeted(self, slave: _Slave) -> None:
        """A slave of ours asks what there is."""
        slave.heard_at = self._clock.monotonic()
        log = self._store.log
        slave.send([encode_facts(LogFacts(log.min_offset, log.written_offset, log.segment_size))])

    def identified(self, slave: _Slave, broker_id: int) -> None:
        """A slave of ours says which broker it is."""
        older = self.progress.identify(slave.address, broker_id)
        if older is not None and older in self._slaves:
            self._slaves[older].cut(f"broker {broker_id} has come again from {slave.address}")

    def asked(self, slave: _Slave, log_offset: int) -> None:
        """A slave of ours asks which record lies here."""
        slave.heard_at = self._clock.monotonic()
        slave.send([encode_record_facts(log_offset, facts_of(self._store.record_at(log_offset)))])

    def reported(self, slave: _Slave, log_offset: int) -> None:
        """A slave says how far it has the log; the first time, that is where it is sent from."""
        slave.heard_at = self._clock.monotonic()
        progress = slave.progress
        if progress is None:
            progress = self._begin(slave, log_offset)
            if progress is None:
                return
        if log_offset > progress.next_offset:
            slave.cut(f"it reports {log_offset} but was sent the log up to {progress.next_offset} only")
            return
        progress.acknowledged_offset = log_offset
        self._on_progress()
        if progress.next_offset < self._store.log.written_offset and self._next_send is None:
            self.send_to(slave)

    def _begin(self, slave: _Slave, log_offset: int) -> SlaveProgress | None:
        log = self._store.log
        if log_offset > log.written_offset:
            slave.end(
                encode_transfer(log.written_offset, b""),
                f"it has the log up to {log_offset}, this master only up to {log.written_offset}: they went different "
                "ways. A slave of Fusee cuts its log by itself; else empty the slave's store, or restore the master's",
            )
            return None
        start = log_offset
        if not start and not slave.has_greeted:
            # As the reference: the older segments will have expired before it matters.
            start = log.written_offset - log.written_offset % log.segment_size
        if start < log.min_offset:
            if log_offset:
                slave.cut(
                    f"it has the log up to {log_offset}, and what follows has expired here: this log begins at "
                    f"{log.min_offset}. Empty the slave's store and let it begin anew"
                )
                return None
            start = log.min_offset
        progress = slave.progress = self.progress.report(slave.address, log_offset)
        progress.next_offset = start
        _log.info("slave %s has the log up to %d, and gets it from %d", slave.address, log_offset, start)
        return progress

    def send_to(self, slave: _Slave) -> None:
        """Send what a slave lacks, as far as it reads and may."""
        progress = slave.progress
        if progress is None:
            return
        log = self._store.log
        next_offset = progress.next_offset
        transfer_bytes = self._settings.transfer_bytes
        limit = self.progress.allowance(progress)
        written_offset = log.written_offset
        end_offset = written_offset if limit is None else min(written_offset, next_offset + limit)
        while next_offset < end_offset and slave.takes_more:
            pieces: list[bytes | memoryview] = []
            batch_end = min(next_offset + _WRITE_BYTES, end_offset)
            while next_offset < batch_end:
                try:
                    data = log.chunk(next_offset, min(transfer_bytes, batch_end - next_offset))
                except StoreError as error:
                    slave.cut(f"the log cannot be read at {next_offset}: {error}")
                    return
                if not data:
                    slave.cut(
                        f"the log from {next_offset} on has expired; empty the slave's store and let it begin anew"
                    )
                    return
                pieces.append(TRANSFER_HEAD.pack(next_offset, len(data)))
                pieces.append(data)
                next_offset += len(data)
            self.progress.sent(progress, next_offset)
            slave.sent_at = self._clock.monotonic()
            slave.send(pieces)

    def _keep_house(self) -> None:
        now = self._clock.monotonic()
        self.progress.sample()
        for slave in list(self._slaves.values()):
            if now - slave.heard_at >= self._settings.housekeeping_interval:
                slave.cut(f"nothing was heard of it for {self._settings.housekeeping_interval:g} s")
                continue
            self.send_to(slave)
            progress = slave.progress
            if progress is not None and slave.takes_more and now - slave.sent_at >= self._settings.heartbeat_interval:
                slave.sent_at = now
                slave.send([encode_transfer(progress.next_offset, b"")])
        self._on_progress()
