"""One send on its way: a future that knows what it carries and where it is.

    waiting (for a place, a route, a connection) -> in flight -> answered
                        ^                              |
                        +--------- tried again --------+

A send ends exactly once: with a result, with an error, or because its caller cancelled it. Whoever holds it at that
moment is told to let go of it, so a cancelled send is neither retried nor waited for; its message may still be stored,
if it had left. The answer to a send in its usual form is turned into a result right here, without a detour over the
producer: this is the hot path.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from fusee.client.results import SendResult, SendStatus
from fusee.errors import FieldError, MessageError, RequestTimeoutError
from fusee.message import properties as names
from fusee.message.model import Message, MessageQueue
from fusee.message.properties import decode_properties, encode_properties
from fusee.wire.command import Command
from fusee.wire.hot_decode import SendAnswer
from fusee.wire.hot_encode import send_request

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from fusee.client.hooks import Communication, SendContext
    from fusee.client.outlet import Lane
    from fusee.client.publication import Publication
    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.errors import TransportError
    from fusee.transport.link import Link
    from fusee.wire.headers.send import SendMessageV2

DEFAULT_REGION: Final = "DefaultRegion"
_OK: Final = SendStatus.SEND_OK


class Sender(Protocol):
    """Who is responsible for a send."""

    is_watching: bool
    """Whether somebody wants to know of every answer: hooks, or the measuring of latencies."""

    def finished(self, out: Outgoing) -> None:
        """The send is over and gives its place free."""

    def answered(self, out: Outgoing, response: Command | TransportError) -> None:
        """An answer that is not plainly a success, or that somebody watches."""

    def try_failed(self, out: Outgoing, error: Exception) -> None:
        """This try came to nothing."""


class Outgoing(asyncio.Future[SendResult]):
    """The send of one message."""

    __slots__ = (
        "body", "deadline", "is_admitted", "lane", "link", "opaque", "owner", "properties", "publication", "retries",
        "timeout", "unique_id",
    )  # fmt: skip

    owner: Sender
    publication: Publication
    body: bytes
    properties: str
    unique_id: str
    timeout: float
    """Seconds that the next try may take."""
    deadline: float
    """Monotonic time at which the caller no longer waits."""
    is_admitted: bool
    lane: Lane | None
    link: Link | None
    opaque: int
    retries: int
    """Tries that may follow the first."""

    # What most sends leave as it is.
    flag = 0
    sys_flag = 0
    wait_stored = True
    is_plain = True
    attempts: tuple[Exception, ...] = ()
    choose: Callable[[Publication], Lane] | None = None
    communication: Communication = "sync"
    started = 0.0
    message: Message | None = None
    context: SendContext | None = None
    stored: SendResult | None = None
    reconsume_times = 0
    max_reconsume_times: int | None = None
    is_in_line = False
    """Whether it waits for another send of the same order key."""
    order: Hashable = None
    """The order key whose turn it has now."""

    deliver = asyncio.Future.set_result
    refuse = asyncio.Future.set_exception

    def head(self, lane: Lane, opaque: int, born_timestamp_ms: int) -> bytes:
        """The head of the frame that carries this to the lane's queue, for what is not in the usual form."""
        return send_request(opaque, self.header(lane, born_timestamp_ms), len(self.body))

    def header(self, lane: Lane, born_timestamp_ms: int) -> SendMessageV2:
        """The header of a single message."""
        header = lane.header(born_timestamp_ms, self.sys_flag, self.flag, self.properties)
        header.reconsume_times = self.reconsume_times
        header.max_reconsume_times = self.max_reconsume_times
        return header

    def let_travel(self, added: Mapping[str, str]) -> None:
        """Send these properties with the message; what an earlier try added of the same name is replaced."""
        properties = {**decode_properties(self.properties.encode()), **added}
        self.properties = encode_properties(properties).decode()

    def take_reconsume_times(self, message: Message) -> Message:
        """A message to a retry topic tells in its header how often it was consumed; the message without that."""
        self.is_plain = False
        properties = dict(message.properties)
        times = properties.pop(names.RECONSUME_TIME, None)
        times_max = properties.pop(names.MAX_RECONSUME_TIMES, None)
        try:
            if times is not None:
                self.reconsume_times = int(times)
            if times_max is not None:
                self.max_reconsume_times = int(times_max)
        except ValueError as error:
            raise MessageError(
                f"{names.RECONSUME_TIME} and {names.MAX_RECONSUME_TIMES} are numbers: {error}"
            ) from error
        return Message(message.topic, message.body, properties, message.flag)

    def result_of(self, response: Command, status: SendStatus) -> SendResult:
        """The result that this answer means. Raises FieldError when it cannot be read."""
        fields = response.fields
        if type(fields) is not SendAnswer:
            fields = response.read(SendAnswer)
            if not fields.msg_id:
                raise FieldError("there is no msgId")
        lane = self.lane
        assert lane is not None
        queue = lane.queue
        queue_id = fields.queue_id
        return SendResult(
            status,
            self.unique_id,
            fields.msg_id,
            queue if queue_id == queue.queue_id else MessageQueue(queue.topic, queue.broker_name, queue_id),
            fields.queue_offset,
            fields.transaction_id,
            fields.region_id or DEFAULT_REGION,
            fields.trace_on != "false",
            lane.outlet.promise
            if status is _OK and self.wait_stored
            else lane.outlet.durability(status, self.wait_stored),
            fields.recall_handle,
        )

    def answered(self, response: Command | TransportError) -> None:
        """The answer has come, or never will."""
        if self.link is None:
            return  # cancelled while the failure of its connection was being told
        lane: Any = self.lane
        lane.outlet.in_flight -= 1
        self.link = None
        owner = self.owner
        if type(response) is Command and response.code == 0 and not owner.is_watching:
            try:
                result = self.result_of(response, _OK)
            except FieldError:
                owner.answered(self, response)
                return
            owner.finished(self)
            self.deliver(result)
        else:
            owner.answered(self, response)

    def cancel(self, msg: Any | None = None) -> bool:
        """Forget the send. If its message has left already, it may be stored all the same."""
        if not super().cancel(msg):
            return False
        link = self.link
        if link is not None:
            link.give_up(self.opaque)
            self.link = None
            if self.lane is not None:
                self.lane.outlet.in_flight -= 1
        self.owner.finished(self)
        return True


class WaitingRoom:
    """Sends that wait in order for one thing, each until its own deadline."""

    __slots__ = ("_clock", "_due_at", "_error", "_timer", "_timers", "_what", "sends")

    def __init__(
        self, what: str, *, clock: Clock, timers: Timers, error: type[TransportError] = RequestTimeoutError
    ) -> None:
        """`what` is what they wait for, and `error` what those get whose time runs out."""
        self._what = what
        self._error = error
        self._clock = clock
        self._timers = timers
        self._timer: TimerHandle | None = None
        self._due_at = 0.0
        self.sends: deque[Outgoing] = deque()

    def add(self, out: Outgoing) -> None:
        """Wait behind those who wait already."""
        self.sends.append(out)
        if self._timer is None or out.deadline < self._due_at:
            self._arm(out.deadline)

    def take(self) -> Outgoing | None:
        """The first that still waits, its time-out no longer than what is left; None when nobody does."""
        now = self._clock.monotonic()
        while self.sends:
            out = self.sends.popleft()
            if not out.done():
                out.timeout = max(min(out.timeout, out.deadline - now), 0.0)
                if not self.sends:
                    self.close()
                return out
        self.close()
        return None

    def take_all(self) -> list[Outgoing]:
        """Everybody who waits now."""
        taken: list[Outgoing] = []
        while (out := self.take()) is not None:
            taken.append(out)
        return taken

    def close(self) -> None:
        """Watch no deadlines any more, until somebody comes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, deadline: float) -> None:
        self.close()
        self._due_at = deadline
        self._timer = self._timers.call_later(max(deadline - self._clock.monotonic(), 0.0), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        waiting = [out for out in self.sends if not out.done()]
        self.sends.clear()
        self.sends.extend(out for out in waiting if out.deadline > now)
        if self.sends:
            self._arm(min(out.deadline for out in self.sends))
        for out in waiting:
            if out.deadline <= now:
                topic = out.publication.topic
                out.owner.try_failed(
                    out, self._error(f"a message for topic {topic!r} waited in vain for {self._what}", topic=topic)
                )
