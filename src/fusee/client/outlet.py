"""The way to one broker: its connection, made when first needed, and the frames that leave together.

A send that finds the way open goes at once when nothing else is under way, and otherwise at the end of the turn of the
loop together with all others of that turn: one write instead of many. When there is no connection, or the broker does
not read, sends wait here in order, and one task opens the way for all of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fusee.client.outgoing import WaitingRoom
from fusee.client.results import Durability, SendStatus
from fusee.errors import ConnectError, ConnectionLostError, TooManyRequestsError, TransportError
from fusee.wire.codes import RequestCode
from fusee.wire.headers.send import SendMessageV2
from fusee.wire.hot_encode import SendRequests

if TYPE_CHECKING:
    from fusee.client.outgoing import Outgoing
    from fusee.client.session import Session
    from fusee.message.model import MessageQueue
    from fusee.transport.link import Link

# A broker should not have to wait for the end of a long turn before it gets something to do.
_FRAMES_TOGETHER_MAX: Final = 128
_READS_AGAIN_WITHIN: Final = 60.0
_REST: Final = 1.0
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)


class Outlet:
    """What one producer sends to one broker group."""

    __slots__ = (
        "_frames", "_loop", "_opening", "_rests_until", "_session", "_time_ms", "address", "broker_name", "in_flight",
        "is_ready", "link", "promise", "waiting",
    )  # fmt: skip

    def __init__(self, session: Session, broker_name: str) -> None:
        self._session = session
        self._time_ms = session.clock.time_ms
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        self._opening: asyncio.Task[None] | None = None
        self._rests_until = 0.0
        self.broker_name = broker_name
        self.address = session.master_address(broker_name) or ""
        self.link: Link | None = None
        self.is_ready = False
        """Whether there is a connection, and nobody waits who would have to go first."""
        self.in_flight = 0
        self.promise = Durability.MEMORY
        """What a plain success promises here, to those who wait for it."""
        self.waiting = WaitingRoom(
            f"a connection to broker {broker_name!r}", clock=session.clock, timers=session.timers
        )

    def durability(self, status: SendStatus, wait_stored: bool) -> Durability:
        """What an answer with this status promises here."""
        return self._session.durability(self.broker_name, status, wait_stored)

    def transmit(self, out: Outgoing, lane: Lane) -> bool:
        """Send this now if the way is open, and say whether it was. Raises TooManyRequestsError."""
        link = self.link
        if not self.is_ready or link is None or link.is_leaving or link.is_write_paused:
            return False
        try:
            opaque = link.begin(_SEND, out.timeout, out.answered)
        except ConnectionLostError:
            return False
        out.lane = lane
        out.link = link
        out.opaque = opaque
        body = out.body
        if out.is_plain:
            head = lane.requests.head(opaque, out.sys_flag, self._time_ms(), out.flag, out.properties, len(body))
        else:
            head = out.head(lane, opaque, self._time_ms())
        frames = self._frames
        if not frames:
            if self.in_flight == 0:
                self.in_flight = 1
                link.send_frames([head, body])
                return True
            self._loop.call_soon(self._flush)
        self.in_flight += 1
        frames.append(head)
        frames.append(body)
        if len(frames) >= _FRAMES_TOGETHER_MAX:
            self._flush()
        return True

    def park(self, out: Outgoing, lane: Lane) -> None:
        """Send this as soon as the way is open."""
        self.is_ready = False
        out.lane = lane
        self.waiting.add(out)
        self.open()

    def open(self) -> None:
        """See to it that the way is opened."""
        if self._opening is None:
            self._opening = self._session.spawn(self._open())
            self._opening.add_done_callback(self._opened)

    def open_again(self) -> bool:
        """Open it for later use, if that did not fail a moment ago; whether the last time failed."""
        if self._session.clock.monotonic() >= self._rests_until:
            self.open()
        return self._rests_until > 0.0

    @property
    def is_open(self) -> bool:
        """Whether a send would leave at once."""
        link = self.link
        return self.is_ready and link is not None and not link.is_leaving and not link.is_write_paused

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses this way."""
        return not (self.in_flight or self.waiting.sends or self._opening)

    async def connection(self) -> Link:
        """A connection to the master. Raises ConnectError."""
        address = self._session.master_address(self.broker_name)
        if address is None:
            raise self.no_master()
        link = await self._session.transport.link(address)
        self.address = address
        return link

    def no_master(self) -> ConnectError:
        """The error that nobody takes messages for this broker group."""
        return ConnectError(
            f"broker {self.broker_name!r} has no master that a name server knows; is it running and registered?"
        )

    def follow_route(self) -> None:
        """The route may have changed: leave the connection if the broker has moved."""
        address = self._session.master_address(self.broker_name)
        if address is not None and address != self.address:
            self._flush()
            self.address = address
            self.is_ready = False

    def leave(self) -> None:
        """The broker asked us to go: what is under way is finished, everything else takes a new connection."""
        if self.link is not None:
            self.link.is_leaving = True

    def close(self) -> None:
        """Nobody will send here any more."""
        self._flush()
        self.waiting.close()
        if self._opening is not None:
            self._opening.cancel()

    def _flush(self) -> None:
        frames = self._frames
        if frames:
            self._frames = []
            if self.link is not None:
                self.link.send_frames(frames)

    async def _open(self) -> None:
        try:
            link = await self.connection()
            await self._session.learn(self.broker_name)
            self._flush()
            self.promise = self.durability(SendStatus.SEND_OK, wait_stored=True)
            self.link = link
            self._rests_until = 0.0
            while True:
                if link.is_write_paused:
                    await link.writable(_READS_AGAIN_WITHIN)
                out = self.waiting.take()
                self.is_ready = True
                if out is None:
                    return
                lane = out.lane
                assert lane is not None
                try:
                    has_left = self.transmit(out, lane)
                except TooManyRequestsError as error:
                    out.owner.try_failed(out, error)
                    continue
                if not has_left:
                    self.is_ready = False
                    self.waiting.sends.appendleft(out)
                    if not link.is_write_paused:
                        raise ConnectionLostError(f"connection to {self.address} is closed", address=self.address)
                elif self.waiting.sends:
                    self.is_ready = False
        except TransportError as error:
            self._opening = None  # a retry may open it anew at once
            self._rests_until = self._session.clock.monotonic() + _REST
            for out in self.waiting.take_all():
                out.owner.try_failed(out, error)

    def _opened(self, task: asyncio.Task[None]) -> None:
        if self._opening is task:
            self._opening = None
        if task.cancelled():
            closed = ConnectionLostError(f"the way to broker {self.broker_name!r} was closed", address=self.address)
            for out in self.waiting.take_all():
                out.owner.try_failed(out, closed)


class Lane:
    """One queue of a topic as a producer uses it."""

    __slots__ = ("_batches", "_settings", "broker_name", "outlet", "queue", "requests")

    def __init__(
        self, queue: MessageQueue, outlet: Outlet, *, group: str, default_topic: str, default_topic_queue_nums: int
    ) -> None:
        self.queue = queue
        self.broker_name = queue.broker_name
        self.outlet = outlet
        self._settings = (group, default_topic, default_topic_queue_nums)
        self._batches: SendRequests | None = None
        self.requests = self._requests(batch=False)

    @property
    def batches(self) -> SendRequests:
        """The heads of batches to this queue."""
        if self._batches is None:
            self._batches = self._requests(batch=True)
        return self._batches

    def _requests(self, *, batch: bool) -> SendRequests:
        group, default_topic, default_topic_queue_nums = self._settings
        return SendRequests(
            producer_group=group,
            topic=self.queue.topic,
            default_topic=default_topic,
            default_topic_queue_nums=default_topic_queue_nums,
            queue_id=self.queue.queue_id,
            broker_name=self.broker_name,
            batch=batch,
        )

    def header(self, born_timestamp_ms: int, sys_flag: int, flag: int, properties: str) -> SendMessageV2:
        """The header of a send that is not of the usual form."""
        group, default_topic, default_topic_queue_nums = self._settings
        return SendMessageV2(
            producer_group=group,
            topic=self.queue.topic,
            default_topic=default_topic,
            default_topic_queue_nums=default_topic_queue_nums,
            queue_id=self.queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            flag=flag,
            properties=properties,
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            broker_name=self.broker_name,
        )
