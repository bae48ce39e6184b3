"""One connection, seen from either end: frames in, answers out, requests of our own in flight.

A Link is used as an asyncio Protocol, but it uses nothing of the loop: bytes come in by `data_received`, go out by the
transport's `write`, and time comes from the Clock and Timers it was given. So the same object runs over TCP, TLS
and memory, under real and manual time. A transport that asks where to read to (uvloop's does) asks `get_buffer`
and tells `buffer_updated`; large bodies then come in without a copy.

What has arrived together is worked together: every complete frame is dispatched, then the answers leave in one
write. Flow control: when the peer does not read and our write buffer is over its high mark, we stop reading its
requests; when the buffer still grows over the hard limit (pushes and late answers), the connection is cut.

States: new -> open -> (leaving) -> closed. `leaving` serves what is in flight but should get nothing new.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fusee.errors import ConfigError, ConnectionLostError, ProtocolError, TooManyRequestsError, TransportError
from fusee.wire.arrival import Scratch
from fusee.wire.codes import ResponseCode
from fusee.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, Command
from fusee.wire.exchange import Exchange
from fusee.wire.framing import FrameDecoder, FrameLimits, HeaderForm, encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.transport.interfaces import ByteTransport, LinkListener
    from fusee.transport.router import Router

# Slices of a mapped file go out from where they lie, unless they are many: handing over each costs more than a copy.
# Of very many there is no copy either: whoever asks for so much at once may never read it.
_SEPARATE_PARTS_MAX: Final = 12
_JOINED_PARTS_MAX: Final = 400

# One read at a time is under way in a thread: a transport asks for room, reads, and tells, all in one step of its loop.
_of_thread: Final = threading.local()

# Peers newer than 5.3.1 understand GO_AWAY; older ones must never get it.
GO_AWAY_VERSION_MIN = 476


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """What one connection may cost."""

    frame: FrameLimits = field(default_factory=FrameLimits)
    in_flight_max: int = 65_535
    write_buffer_high: int = 1024 * 1024
    write_buffer_max: int = 64 * 1024 * 1024


class Link:
    """One connection. It has the methods of an asyncio.Protocol, but not its class: compiled, it is a C structure."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        router: Router | None = None,
        limits: LinkLimits | None = None,
        listeners: Sequence[LinkListener] = (),
        header_form: HeaderForm = HeaderForm.JSON,
        pauses_reading: bool = True,
    ) -> None:
        self._limits = limits or LinkLimits()
        self._monotonic = clock.monotonic
        self._timers = timers
        self._router = router
        self._recall = router.recall if router is not None else None
        self._listeners = listeners
        self._form = header_form
        self._pauses_reading = pauses_reading
        self._decoder = FrameDecoder(self._limits.frame)
        self._scratch: Scratch | None = None
        self._exchange = Exchange(self._limits.in_flight_max)
        self._transport: ByteTransport | None = None
        self._deadline_timer: TimerHandle | None = None
        self._deadline_at = 0.0
        self._writable_waiters: deque[asyncio.Future[None]] = deque()
        self._write_paused = False
        self._close_error: Exception | None = None
        self.remote_address = ""
        self.local_address = ""
        self.is_open = False
        self.is_leaving = False
        self.last_activity = clock.monotonic()
        self.partial_since: float | None = None
        # What the owner of the connection keeps with it, e.g. who has registered on it.
        self.attachments: dict[str, Any] = {}

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<Link {self.local_address or '?'} - {self.remote_address or '?'} {state}>"

    # Events of the byte stream

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=self._limits.write_buffer_high)
        self.remote_address = format_address(transport.get_extra_info("peername"))
        self.local_address = format_address(transport.get_extra_info("sockname"))
        self.is_open = True
        self.last_activity = self._monotonic()
        for listener in self._listeners:
            listener.on_connect(self)

    def get_buffer(self, size_hint: int) -> memoryview:
        """Where the transport may put what has arrived."""
        scratch = self._scratch
        if scratch is None:
            scratch = self._scratch = _scratch_of_thread()
        return self._decoder.room(scratch)

    def buffer_updated(self, count: int) -> None:
        """So many bytes were put there."""
        commands = self._decoder.filled(count)
        if commands is None:
            assert self._scratch is not None
            self.data_received(self._scratch.taken(count))
        else:
            self.last_activity = self._monotonic()
            self._work(commands)

    def data_received(self, data: bytes) -> None:
        self.last_activity = self._monotonic()
        decoder = self._decoder
        if self._recall is not None and not decoder.pending_bytes and not self.is_leaving:
            known = self._recall(data)
            if known is not None:
                self.send_frames([known])
                return
        self._work(decoder.feed(data))

    def _work(self, commands: list[Command]) -> None:
        """Do what has arrived together, and answer in one write."""
        out: list[bytes | memoryview] = []
        router = self._router
        for command in commands:
            flag = command.flag
            if flag & RESPONSE_FLAG:
                self._exchange.resolve(command)
            elif router is not None:
                if self.is_leaving and self._refers_elsewhere(command):
                    answer: Any = command.reply(ResponseCode.GO_AWAY, remark="please go away")
                else:
                    answer = router.dispatch(command, self)
                if answer is not None and not flag & ONEWAY_FLAG:
                    if type(answer) is bytes:
                        out.append(answer)
                    else:
                        self._collect(answer, out)
        if out:
            self._write(out)
        decoder = self._decoder
        pending = decoder.pending_bytes
        if pending or self.partial_since is not None:
            if not pending:
                self.partial_since = None
            elif commands or self.partial_since is None:
                self.partial_since = self.last_activity
        if decoder.failure is not None:
            self.fail(decoder.failure)

    def eof_received(self) -> bool:
        # Nothing more will be asked; what is written already is still delivered by the closing transport.
        return False

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._pauses_reading and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._pauses_reading and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        while self._writable_waiters:
            waiter = self._writable_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self.is_leaving = True
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        cause = self._close_error or error
        if cause is not None:
            for listener in self._listeners:
                listener.on_exception(self, cause)
        reason = f": {cause}" if cause is not None else ""
        lost = ConnectionLostError(
            f"connection to {self.remote_address} ended before the answer came{reason}",
            address=self.remote_address,
        )
        self._exchange.fail_all(lost)
        while self._writable_waiters:
            waiter = self._writable_waiters.popleft()
            if not waiter.done():
                waiter.set_exception(lost)
        for listener in self._listeners:
            listener.on_close(self)

    # Answers and requests

    def send(self, answer: Command | bytes | list[bytes | memoryview]) -> None:
        """Send a late answer, or any encoded frame. Does nothing on a closed connection."""
        out: list[bytes | memoryview] = []
        self._collect(answer, out)
        self._write(out)

    def send_frames(self, frames: list[bytes]) -> None:
        """Send late answers that are encoded already, in one write. Does nothing on a closed connection."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if self._write_paused:
            self._check_unread()

    def send_oneway(self, command: Command) -> None:
        """Send a request that nobody answers. Raises TooManyRequestsError when the peer does not read."""
        self._check_open()
        if self._write_paused:
            raise TooManyRequestsError(
                f"{self.remote_address} does not read what we send; {self.unsent_bytes} bytes wait",
                address=self.remote_address,
            )
        command.flag |= ONEWAY_FLAG
        command.opaque = self._exchange.next_opaque()
        self._write([encode_frame(command, self._form)])

    def call(self, command: Command, timeout: float, sink: Callable[[Command | TransportError], object]) -> int:
        """Send a request; `sink` gets the response or the error, once. Returns the opaque, for `give_up`."""
        self._check_open()
        now = self._monotonic()
        opaque = command.opaque = self._exchange.begin(command.code, now, timeout, sink)
        self._write([encode_frame(command, self._form)])
        if self._deadline_timer is None or now + timeout < self._deadline_at:
            self._arm_deadline(now)
        return opaque

    def begin(self, code: int, timeout: float, sink: Callable[[Command | TransportError], object]) -> int:
        """Like `call` for a request that is encoded by hand: its opaque; `send_frames` then sends it."""
        self._check_open()
        now = self._monotonic()
        opaque = self._exchange.begin(code, now, timeout, sink)
        if self._deadline_timer is None or now + timeout < self._deadline_at:
            self._arm_deadline(now)
        return opaque

    @property
    def is_write_paused(self) -> bool:
        """Whether the peer does not read what we send; `writable` waits until it does."""
        return self._write_paused

    def give_up(self, opaque: int) -> None:
        """Forget a request made by `call` or `begin`; its sink is not called any more."""
        self._exchange.give_up(opaque)

    async def request(self, command: Command, timeout: float) -> Command:
        """Send a request and wait for its response. Raises a TransportError when none came."""
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

        def settle(result: Command | TransportError) -> None:
            if answer.done():
                return
            if isinstance(result, TransportError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        if self._write_paused:
            await self.writable(timeout)
        opaque = self.call(command, timeout, settle)
        try:
            return await answer
        finally:
            self._exchange.give_up(opaque)

    async def writable(self, timeout: float) -> None:
        """Wait until the peer reads again. Raises TooManyRequestsError when it does not in time."""
        if not self._write_paused:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writable_waiters.append(waiter)

        def too_late() -> None:
            if not waiter.done():
                waiter.set_exception(
                    TooManyRequestsError(
                        f"{self.remote_address} has not read for {timeout:g} s; {self.unsent_bytes} bytes wait",
                        address=self.remote_address,
                    )
                )

        timer = self._timers.call_later(timeout, too_late)
        try:
            await waiter
        finally:
            timer.cancel()

    @property
    def in_flight(self) -> int:
        """Requests of ours that wait for their answer."""
        return len(self._exchange)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incoming frame whose rest has not arrived."""
        return self._decoder.pending_bytes

    def close(self) -> None:
        """Send what is written, then close."""
        if self._transport is not None:
            self._transport.close()

    def fail(self, error: Exception) -> None:
        """Close at once because of this error; listeners hear of it, other connections do not."""
        self._close_error = error
        if self._transport is None:
            return
        if isinstance(error, ProtocolError):
            # Answers to the good requests before the bad bytes are still delivered.
            self._transport.close()
        else:
            self._transport.abort()

    # Inside

    def _refers_elsewhere(self, command: Command) -> bool:
        return command.version >= GO_AWAY_VERSION_MIN and not command.is_oneway

    def _check_open(self) -> None:
        if not self.is_open or self._transport is None or self._transport.is_closing():
            raise ConnectionLostError(f"connection to {self.remote_address} is closed", address=self.remote_address)

    def _collect(self, answer: Command | bytes | list[bytes | memoryview], out: list[bytes | memoryview]) -> None:
        if type(answer) is bytes:
            out.append(answer)
        elif type(answer) is list:
            out.extend(answer)
        elif isinstance(answer, Command):
            out.append(encode_frame(answer, self._form))

    def _write(self, out: list[bytes | memoryview]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if len(out) == 1 and type(out[0]) is bytes:
            transport.write(out[0])
        elif not _SEPARATE_PARTS_MAX < len(out) < _JOINED_PARTS_MAX and memoryview in map(type, out):
            transport.writelines(out)  # slices of a mapped file go out from where they lie
        else:
            transport.write(b"".join(out))
        if self._write_paused:
            self._check_unread()

    def _check_unread(self) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() > self._limits.write_buffer_max:
            self.fail(
                TooManyRequestsError(
                    f"{self.remote_address} leaves {transport.get_write_buffer_size()} bytes unread, "
                    f"limit {self._limits.write_buffer_max}",
                    address=self.remote_address,
                )
            )

    def _arm_deadline(self, now: float) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        deadline = self._exchange.next_deadline
        if deadline is not None and self.is_open:
            self._deadline_at = deadline
            self._deadline_timer = self._timers.call_later(max(deadline - now, 0.0), self._expire)

    def _expire(self) -> None:
        now = self._monotonic()
        self._exchange.expire(now, self.remote_address)
        self._deadline_timer = None
        self._arm_deadline(now)


def _scratch_of_thread() -> Scratch:
    scratch: Scratch | None = getattr(_of_thread, "scratch", None)
    if scratch is None:
        scratch = _of_thread.scratch = Scratch()
    return scratch


def format_address(name: Any) -> str:
    """`host:port`, IPv6 in brackets; empty when the transport knows none."""
    if not isinstance(name, tuple) or len(name) < 2:
        return ""
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of `host:port` or `[v6]:port`. Raises ConfigError that says what is wrong."""
    host, separator, port = text.strip().rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"{text!r} is no address; write HOST:PORT, e.g. 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)
