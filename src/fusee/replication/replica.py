"""The slave's end of the log stream: follows a master and keeps a copy of its log (Java: DefaultHAClient).

States: idle (no master known) -> connecting -> comparing -> following -> waiting -> connecting ...

Comparing happens on every connection, before anything is taken: the slave asks what the master has in the place of its
own last record (`agreement`). A master of ours answers on the stream itself; one of the reference is silent there, and
is asked over its port for clients (VIEW_MESSAGE_BY_ID). Where the logs went different ways, the slave's is cut back to
what they have in common, durably, before it goes on; with nothing in common it is left alone, and the slave waits for
somebody to decide. A log that ended before the master's begins is given up for a new beginning.

Following: bytes are taken as they come, up to the last whole record, and what the log has then is reported; on a slave
that flushes synchronously, what is on its disk. An offset that does not go on where the log ends, an error of the
store, or silence for the housekeeping interval ends the connection; the next one comes after a pause that grows.

A new slave begins with the first segment of a master of ours, so that it has everything the master has; with the last
one when that is wished (syncFromLastFile), or when the master is the reference, which sends no more.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from fusee.errors import (
    ConnectError,
    ConnectionLostError,
    DivergedError,
    FuseeError,
    ProtocolError,
    RequestTimeoutError,
    StoreError,
    StoreFailedError,
    TransportError,
)
from fusee.message.record_layout import FRAME
from fusee.replication.agreement import common_end
from fusee.replication.frames import (
    HELLO,
    NO_RECORD,
    LogFacts,
    RecordFacts,
    TransferDecoder,
    decode_facts,
    decode_record_facts,
    encode_identity,
    encode_question,
    encode_report,
    facts_of,
)
from fusee.service import Periodic
from fusee.transport.link import parse_address
from fusee.wire.bodies.kv import decode_kv_table
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.pull import ViewMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.store.engine import MessageStore
    from fusee.transport.client import Client
    from fusee.transport.interfaces import ByteTransport, Network
    from fusee.transport.link import Link

_log = logging.getLogger(__name__)

_LOOK_INTERVAL: Final = 1.0
_SAID_AGAIN_AFTER: Final = 60.0
_NOT_FOUND: Final = "can not find message"


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Times in seconds."""

    heartbeat_interval: float = 5.0
    housekeeping_interval: float = 20.0
    connect_timeout: float = 3.0
    greeting_timeout: float = 1.0
    """How long a master may be silent before it is taken for one of the reference."""
    question_timeout: float = 3.0
    pause: float = 0.2
    """Before the first new attempt; doubled by each that fails."""
    pause_max: float = 5.0
    from_last_segment: bool = False


class ReplicaState(Enum):
    """What a slave is doing."""

    IDLE = "idle"
    CONNECTING = "connecting"
    COMPARING = "comparing"
    FOLLOWING = "following"
    WAITING = "waiting"
    STOPPED = "stopped"


class _Stream(asyncio.Protocol):
    """One connection to a master."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._decoder = TransferDecoder()
        self._transport: ByteTransport | None = None
        self._awaited: asyncio.Future[bytes] | None = None
        self._awaited_word = 0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure: FuseeError | None = None

    # Events of the byte stream

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        replica = self._replica
        replica.heard(len(data))
        try:
            transfers = self._decoder.feed(data)
            pieces: list[tuple[int, bytes]] = []
            for log_offset, piece in transfers:
                if log_offset >= 0:
                    pieces.append((log_offset, piece))
                elif self._awaited is not None and self._awaited_word == log_offset and not self._awaited.done():
                    self._awaited.set_result(piece)
                elif log_offset != HELLO:
                    raise ProtocolError(f"a transfer at log offset {log_offset}: not the log stream of a master")
            if pieces:
                replica.transferred(pieces)
        except FuseeError as error:
            self.fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(
                ConnectionLostError("the connection to the master ended before it answered", address="")
            )

    # What the replica does with it

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes) -> None:
        # A transport that is closing may refuse to write; whoever waits hears of the end from `closed`.
        if self.is_open:
            assert self._transport is not None
            self._transport.write(data)

    def expect(self, word: int) -> asyncio.Future[bytes]:
        """What the master answers to this word."""
        self._awaited_word = word
        self._awaited = asyncio.get_running_loop().create_future()
        if self.closed.done():
            self.connection_lost(None)
        return self._awaited

    def fail(self, error: FuseeError) -> None:
        """End the connection for this reason."""
        if self.failure is None:
            self.failure = error
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Replica:
    """Keeps the log of one store level with that of a master."""

    def __init__(
        self,
        *,
        store: MessageStore,
        append: Callable[[bytes, int], int],
        network: Network,
        client: Client,
        clock: Clock,
        timers: Timers,
        broker_id: int,
        settings: ReplicaSettings | None = None,
        reports_flushed: bool = False,
        on_truncated: Callable[[], object] | None = None,
        on_failure: Callable[[StoreFailedError], object] | None = None,
    ) -> None:
        """`append(data, log_offset)` takes what is whole of some bytes, and says how many; `client` asks a master of
        the reference. With `reports_flushed`, `flushed` says how far the log is on disk, and that is reported.
        `on_truncated` hears when the log was cut, or begun anew; `on_failure` when the store has failed for good.
        """
        self._store = store
        self._append = append
        self._network = network
        self._client = client
        self._clock = clock
        self._timers = timers
        self._broker_id = broker_id
        self.settings = settings or ReplicaSettings()
        """May be replaced at any time."""
        self._reports_flushed = reports_flushed
        self._on_truncated = on_truncated or (lambda: None)
        self._on_failure = on_failure or (lambda error: None)
        self.state = ReplicaState.IDLE
        self.master_address: str | None = None
        """Where the master serves clients."""
        self.ha_address: str | None = None
        """Where it sends its log from."""
        self.failure: FuseeError | None = None
        """Why the last attempt to follow ended; None while it goes well."""
        self.truncations = 0
        """How often the log was cut, or begun anew, because it had gone another way than the master's."""
        self.truncated_bytes = 0
        self.bytes_per_second = 0
        """Bytes received in the last whole second."""
        self.last_read_ms = 0
        self.last_write_ms = 0
        self._bytes_received = 0
        self._master_end = 0
        self._stream: _Stream | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._read_at = 0.0
        self._reported_at = 0.0
        self._reported_offset = -1
        self._disk_waiter: asyncio.Future[None] | None = None
        self._said_at = 0.0
        # Where the next byte belongs; None: an empty log begins wherever the master does.
        self._next_offset: int | None = None
        # Bytes that follow the log but are no whole record yet.
        self._pieces: list[bytes] = []
        self._pieces_size = 0
        self._needed_size = 0
        self._look = Periodic(timers, _LOOK_INTERVAL, self._keep_house)

    # Life

    def start(self) -> None:
        self._look.start()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Leave the master; what was taken stays."""
        self.state = ReplicaState.STOPPED
        self._look.stop()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._stream is not None:
            self._stream.abort()
            self._stream = None

    def set_master(self, ha_address: str | None, master_address: str | None = None) -> None:
        """Follow this master from now on; None leaves an address as it is."""
        if master_address:
            self.master_address = master_address
        if not ha_address or ha_address == self.ha_address:
            return
        _log.info("the master's log comes from %s now (before: %s)", ha_address, self.ha_address or "nowhere")
        self.ha_address = ha_address
        if self._changed is not None:
            _wake(self._changed)
        if self._stream is not None:
            self._stream.abort()

    def try_now(self) -> None:
        """The master has been heard of: if it could not be reached, make the next attempt at once."""
        if isinstance(self.failure, TransportError) and self._changed is not None:
            _wake(self._changed)

    # What others see

    @property
    def is_connected(self) -> bool:
        """Whether the master is followed."""
        return self.state is ReplicaState.FOLLOWING

    @property
    def log_end(self) -> int:
        """How far the log is here."""
        return self._store.written_offset

    @property
    def lag_bytes(self) -> int | None:
        """Bytes that the master is known to have and this log has not; None while it is not followed."""
        return max(self._master_end - self._store.written_offset, 0) if self.is_connected else None

    def flushed(self, flushed_offset: int) -> None:
        """The log is on disk up to here."""
        if not self._reports_flushed:
            return
        waiter = self._disk_waiter
        if waiter is not None and flushed_offset >= self._store.written_offset:
            _wake(waiter)
        self._report()

    # What the stream says

    def heard(self, size: int) -> None:
        self._read_at = self._clock.monotonic()
        self.last_read_ms = self._clock.time_ms()
        self._bytes_received += size

    def transferred(self, transfers: list[tuple[int, bytes]]) -> None:
        """Take these parts of the log. Raises ProtocolError or StoreError when they cannot be taken."""
        if self.state is not ReplicaState.FOLLOWING:
            raise ProtocolError("the master sends its log before it was asked to: not the log stream of RocketMQ")
        next_offset = self._next_offset
        for log_offset, piece in transfers:
            if next_offset is None:
                next_offset = log_offset
            if log_offset != next_offset:
                raise ProtocolError(
                    f"the master goes on at log offset {log_offset}, this log at {next_offset}: they must be compared "
                    "again"
                )
            next_offset += len(piece)
            if piece:
                self._pieces.append(piece)
                self._pieces_size += len(piece)
        if self._pieces_size or self._next_offset is not None:
            self._next_offset = next_offset
        self._master_end = max(self._master_end, next_offset or 0)
        if self._pieces_size and self._pieces_size >= self._needed_size and next_offset is not None:
            self._take(next_offset - self._pieces_size)
        self._report()

    def _take(self, log_offset: int) -> None:
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        size = self._append(data, log_offset)
        rest = data[size:]
        self._pieces = [rest] if rest else []
        self._pieces_size = len(rest)
        # No use in looking again before the record is whole.
        self._needed_size = FRAME.unpack_from(rest)[0] if len(rest) >= FRAME.size else FRAME.size

    def _report(self, *, again: bool = False) -> None:
        if self._stream is None or self.state is not ReplicaState.FOLLOWING:
            return
        store = self._store
        log_offset = store.flushed_offset if self._reports_flushed else store.written_offset
        if log_offset <= self._reported_offset and not again:
            return
        self._reported_offset = log_offset
        self._reported_at = self._clock.monotonic()
        self.last_write_ms = self._clock.time_ms()
        self._stream.send(encode_report(log_offset))

    def _keep_house(self) -> None:
        self.bytes_per_second, self._bytes_received = self._bytes_received, 0
        stream = self._stream
        if stream is None or self.state is not ReplicaState.FOLLOWING:
            return
        now = self._clock.monotonic()
        settings = self.settings
        if now - self._read_at >= settings.housekeeping_interval:
            stream.fail(
                RequestTimeoutError(
                    f"nothing was heard of the master for {settings.housekeeping_interval:g} s",
                    address=self.ha_address or "",
                )
            )
        elif now - self._reported_at >= settings.heartbeat_interval:
            self._report(again=True)

    # Following

    async def _run(self) -> None:
        failures = 0
        while True:
            address = self.ha_address
            if address is None:
                self.state = ReplicaState.IDLE
                await self._pause(None)
                continue
            began_at = self._clock.monotonic()
            try:
                await self._follow(address)
                error: FuseeError = ConnectionLostError(f"the master {address} closed the connection", address=address)
            except FuseeError as failed:
                error = failed
            if self._stream is not None and self._stream.failure is not None:
                error = self._stream.failure
            self._forget_stream()
            if self.ha_address != address:
                failures = 0
                continue
            if self._clock.monotonic() - began_at > self.settings.pause_max:
                failures = 0
            self._say(error)
            self.failure = error
            if isinstance(error, StoreFailedError):
                self.state = ReplicaState.STOPPED
                self._on_failure(error)
                return
            self.state = ReplicaState.WAITING
            await self._pause(min(self.settings.pause * 2**failures, self.settings.pause_max))
            failures = min(failures + 1, 10)

    def _say(self, error: FuseeError) -> None:
        now = self._clock.monotonic()
        if type(error) is type(self.failure) and now - self._said_at < _SAID_AGAIN_AFTER:
            return
        self._said_at = now
        level = logging.ERROR if isinstance(error, StoreError) else logging.WARNING
        _log.log(level, "the master's log is not followed, trying again: %s", error)

    def _forget_stream(self) -> None:
        if self._stream is not None:
            self._stream.abort()
        self._stream = None
        self._pieces = []
        self._pieces_size = self._needed_size = 0
        self._next_offset = None

    async def _pause(self, seconds: float | None) -> None:
        """Wait until the master's address changes, or for so long."""
        changed = self._changed = asyncio.get_running_loop().create_future()
        timer: TimerHandle | None = None
        if seconds is not None:
            timer = self._timers.call_later(seconds, _wake, changed)
        try:
            await changed
        finally:
            self._changed = None
            if timer is not None:
                timer.cancel()

    async def _follow(self, address: str) -> None:
        """Connect, compare, and take the log until the connection ends. Raises FuseeError."""
        self.state = ReplicaState.CONNECTING
        stream = self._stream = await self._connect(address)
        self.state = ReplicaState.COMPARING
        facts = await self._greet(stream)
        start = await self._agree(stream, facts)
        await self._on_disk()
        if not stream.is_open:
            return
        self.state = ReplicaState.FOLLOWING
        self.failure = None
        self._read_at = self._clock.monotonic()
        self._reported_offset = -1
        if facts is not None:
            stream.send(encode_identity(self._broker_id))
        _log.info(
            "following %s, %s, from log offset %d on",
            address,
            "a master of Fusee" if facts is not None else "a master of the reference",
            start,
        )
        if self._is_empty:
            self._reported_at = self._clock.monotonic()
            stream.send(encode_report(start))
        else:
            self._next_offset = start
            self._report()
        await stream.closed

    async def _on_disk(self) -> None:
        """Wait until the first report, which says where to go on, is true on the disk as well."""
        if not self._reports_flushed or self._store.flushed_offset >= self._store.written_offset:
            return
        self._disk_waiter = asyncio.get_running_loop().create_future()
        try:
            await self._disk_waiter
        finally:
            self._disk_waiter = None

    async def _connect(self, address: str) -> _Stream:
        host, port = parse_address(address)
        timeout = self.settings.connect_timeout
        connecting = asyncio.ensure_future(
            self._network.connect(cast("Callable[[], Link]", self._new_stream), host, port)
        )
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            is_late = connecting.cancel()

        timer = self._timers.call_later(timeout, give_up)
        try:
            return cast("_Stream", await connecting)
        except OSError as error:
            raise ConnectError(
                f"cannot connect to the master's log at {address}: {error.strerror or error}", address=address
            ) from error
        except asyncio.CancelledError:
            if not is_late:
                connecting.cancel()
                raise
            raise ConnectError(
                f"cannot connect to the master's log at {address}: no answer within {timeout:g} s", address=address
            ) from None
        finally:
            timer.cancel()

    def _new_stream(self) -> _Stream:
        return _Stream(self)

    # Comparing

    @property
    def _is_empty(self) -> bool:
        log = self._store.log
        return log.min_offset == log.written_offset

    async def _greet(self, stream: _Stream) -> LogFacts | None:
        """What the master says of its log; None when it is one of the reference, which says nothing."""
        answer = stream.expect(HELLO)
        stream.send(encode_report(HELLO))
        try:
            return decode_facts(await self._within(self.settings.greeting_timeout, answer))
        except RequestTimeoutError:
            return None

    async def _agree(self, stream: _Stream, facts: LogFacts | None) -> int:
        """Bring the log to where the master can go on from, and say where that is."""
        if self._is_empty:
            return self._begin(facts)

        async def ask_stream(log_offset: int) -> RecordFacts:
            answer = stream.expect(-2 - log_offset)
            stream.send(encode_question(log_offset))
            return decode_record_facts(await self._within(self.settings.question_timeout, answer))

        store = self._store
        log = store.log
        is_ours = facts is not None
        if facts is None:
            facts = await self._facts_of_reference()
        elif facts.segment_size != log.segment_size:
            raise StoreError(
                f"the segments of the master's log have {facts.segment_size} bytes, here {log.segment_size}: set "
                "mappedFileSizeCommitLog as it is there, and let this store begin anew"
            )
        self._master_end = facts.end_offset
        end_offset = log.written_offset
        if end_offset < facts.min_offset:
            self._begin_anew(facts)
            return store.written_offset
        ask = ask_stream if is_ours else self._ask_reference
        common = await common_end(store, facts, ask)
        if common < end_offset:
            if not is_ours and common < facts.end_offset and await ask(common) == NO_RECORD:
                raise DivergedError(
                    f"the master has no record at log offset {common}, though its log reaches to {facts.end_offset}: "
                    "nothing is cut before it is known what it has there"
                )
            self._cut(common, facts)
        return common

    def _begin(self, facts: LogFacts | None) -> int:
        if facts is None:
            return 0
        self._master_end = facts.end_offset
        if self.settings.from_last_segment:
            return max(facts.end_offset - facts.end_offset % facts.segment_size, facts.min_offset)
        return facts.min_offset

    def _begin_anew(self, facts: LogFacts) -> None:
        store = self._store
        _log.critical(
            "this log ends at %d, and the master's begins at %d: what lies between has expired there. The log here is "
            "given up, %d bytes, and begins anew with the master's",
            store.written_offset,
            facts.min_offset,
            store.written_offset - store.log.min_offset,
        )
        self.truncations += 1
        self.truncated_bytes += store.written_offset - store.log.min_offset
        store.restart_at(facts.min_offset)
        self._on_truncated()

    def _cut(self, log_offset: int, facts: LogFacts) -> None:
        store = self._store
        size = store.written_offset - log_offset
        _log.critical(
            "this log, which ends at %d, and the master's, which ends at %d, went different ways at log offset %d: the "
            "%d bytes behind it are cut off here. What was in them is lost, unless its senders sent it again",
            store.written_offset,
            facts.end_offset,
            log_offset,
            size,
        )
        self.truncations += 1
        self.truncated_bytes += size
        store.truncate(log_offset)
        self._on_truncated()

    async def _within(self, seconds: float, answer: asyncio.Future[bytes]) -> bytes:
        def too_late() -> None:
            if not answer.done():
                answer.set_exception(
                    RequestTimeoutError(
                        f"the master did not answer on its log stream within {seconds:g} s",
                        address=self.ha_address or "",
                    )
                )

        timer = self._timers.call_later(seconds, too_late)
        try:
            return await answer
        finally:
            timer.cancel()

    # A master of the reference

    async def _facts_of_reference(self) -> LogFacts:
        answer = await self._request(Command.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, self.master_address or "", RequestCode.GET_BROKER_RUNTIME_INFO)
        table = decode_kv_table(answer.body).table
        try:
            return LogFacts(
                int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]), self._store.log.segment_size
            )
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"the master {self.master_address} does not say how far its log is: {error}") from error

    async def _ask_reference(self, log_offset: int) -> RecordFacts:
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = await self._request(Command.request(code, ViewMessage(log_offset=log_offset)))
        if answer.code == ResponseCode.SUCCESS:
            return facts_of(answer.body)
        if answer.code == ResponseCode.SYSTEM_ERROR and _NOT_FOUND in (answer.remark or ""):
            return NO_RECORD
        raise error_for(answer.code, answer.remark, self.master_address or "", code)

    async def _request(self, command: Command) -> Command:
        if self.master_address is None:
            raise ConnectError(
                "the master does not answer on its log stream, and where it serves clients is not known: no name "
                "server has told it yet",
                address=self.ha_address or "",
            )
        return await self._client.request(self.master_address, command, timeout=self.settings.question_timeout)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
