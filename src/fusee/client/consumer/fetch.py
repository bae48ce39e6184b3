"""The series of pulls by which one queue is read, each begun when the one before is answered.

Theory of operation
-------------------
One request is under way at a time. The broker holds it until there is a message, so an idle queue costs an exchange
every 15 seconds. An answer with messages is decoded, handed on, and the next pull leaves before the first of them is
consumed: the broker works while we do. Nothing here is a task: an answer calls `_answered`, which begins the next.

    pulling -> answered -> pulling        the usual turn
       |          `-> full                so much is waiting here; goes on when a chunk is done
       |          `-> paused              goes on with `resume`
       `-> failed -> resting -> pulling   after a time that depends on the error

Each pull carries how far the queue is consumed, where the store of offsets allows it, and goes to the broker that the
last answer suggested.

Slaves. A master that cannot be reached is gone, or only we do not reach it: its slave is asked at once, and the name
servers in the meantime. A slave serves what it has when its master is away; when it is there the slave refuses, or
sends us back to it. What a slave does not have yet is waited for: offsets are the same on both, and none is skipped.
As long as no master is known, each answer of a slave that brings nothing is a reason to ask the name servers again.

Errors. A connection that broke, or cannot be made, is tried again soon and then less and less often, and the route is
asked for in case the broker has moved. A broker that does not know our subscription gets a heartbeat first. Bytes that
are no records: nothing of the answer is used, and single messages are asked for from the same offset on, so that those
before the damage get through and the damaged one is named; the queue then stands still until somebody seeks past it.

An offset outside the queue is corrected by the broker, and `moved` decides what that means. (Java: PullMessageService.)
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fusee.client.broker_calls import BrokerCalls, PullStatus, is_pull_answer, pull_answer
from fusee.client.config import ServiceState
from fusee.client.consumer.offsets import broker_address
from fusee.client.pulled import decode_pulled
from fusee.errors import ConnectError, FuseeError, MessageError, RemoteError, SubscriptionError, TransportError
from fusee.message.flags import PullSysFlag
from fusee.message.topics import is_lmq, is_retry_topic
from fusee.transport.client import DIALLED
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.pull import PullMessage
from fusee.wire.hot_encode import pull_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from fusee.client.broker_calls import PullAnswer
    from fusee.client.consumer.offsets import OffsetStore
    from fusee.client.consumer.options import ConsumerOptions
    from fusee.client.consumer.process_queue import Chunk, ProcessQueue
    from fusee.client.consumer.statistics import ConsumeStatistics
    from fusee.client.received import ReceivedMessage
    from fusee.client.session import Session
    from fusee.clock import TimerHandle
    from fusee.filter.subscription import Subscription
    from fusee.transport.link import Link
    from fusee.wire.command import Command

_log = logging.getLogger(__name__)

HOLD_MS: Final = 15_000
"""How long a broker may hold a pull (Java: BROKER_SUSPEND_MAX_TIME_MILLIS)."""
TIMEOUT_S: Final = 30.0
_FLOW_CONTROL_S: Final = 0.02
_CONNECT_AGAIN_S: Final = 0.1
_CONNECT_TOLD_AT: Final = 3
_EMPTY_AGAIN_S: Final = 0.05
_DAMAGED_AGAIN_MAX_S: Final = 30.0


class FlowLimits:
    """How much of a queue may wait here; shared by all queues of a consumer, and changed with their number."""

    __slots__ = ("byte_size", "count", "span")

    def __init__(self, *, count: int, byte_size: int, span: int | None) -> None:
        """`span` None: messages are consumed in order, so there is none."""
        self.count = count
        self.byte_size = byte_size
        self.span = span

    def is_full(self, process_queue: ProcessQueue) -> bool:
        """Whether no more of this queue should be pulled now."""
        return (
            process_queue.byte_size > self.byte_size
            or process_queue.count > self.count
            or (self.span is not None and process_queue.span > self.span)
        )


class Outbox:
    """Pulls that leave together: those begun in one turn of the loop on one connection, in one write."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames: dict[Link, list[bytes]] = {}

    def post(self, link: Link, frame: bytes) -> None:
        """Send this before the loop turns to anything else that was begun later."""
        frames = self._frames.get(link)
        if frames is not None:
            frames.append(frame)
            return
        if not self._frames:
            self._loop.call_soon(self._flush)
        self._frames[link] = [frame]

    def _flush(self) -> None:
        posted, self._frames = self._frames, {}
        for link, frames in posted.items():
            link.send_frames(frames)


class Fetch:
    """Reads one queue for as long as this consumer has it."""

    def __init__(
        self,
        session: Session,
        process_queue: ProcessQueue,
        *,
        group: str,
        subscription: Callable[[], Subscription],
        options: ConsumerOptions,
        limits: FlowLimits,
        offsets: OffsetStore,
        statistics: ConsumeStatistics,
        outbox: Outbox,
        deliver: Callable[[Chunk], object],
        moved: Callable[[ProcessQueue, int], object],
    ) -> None:
        """`deliver` gets what was found; `moved` the offset that the broker names instead of one outside the queue."""
        queue = process_queue.queue
        self.process_queue = process_queue
        self.is_paused = False
        self.fault: FuseeError | None = None
        """Why the last pull came to nothing; None when one is under way."""
        self.carried_offset = 0
        """What the last pull had the broker commit; 0 when nothing."""
        self._session = session
        self._subscription = subscription
        self._options = options
        self._limits = limits
        self._offsets = offsets
        self._statistics = statistics
        self._outbox = outbox
        self._deliver = deliver
        self._moved = moved
        self._monotonic = session.clock.monotonic
        self._is_stopped = False
        self._is_careful = False
        self._broker_id = 0
        self._is_slave = False
        self._failures = 0
        self._link: Link | None = None
        self._opaque = 0
        self._timer: TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self._asked = subscription()
        self._started_at = 0.0
        self._header = PullMessage(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=process_queue.next_offset,
            max_messages=options.pull_batch_size,
            sys_flag=PullSysFlag.SUSPEND,
            commit_offset=0,
            suspend_timeout_ms=HOLD_MS,
            sub_version=0,
            max_bytes=options.pull_batch_size_in_bytes,
            broker_name=queue.broker_name,
        )

    def start(self) -> None:
        """Begin the series."""
        self._pull()

    def stop(self) -> None:
        """End it. What was handed on stays; an answer under way is not looked at."""
        self._is_stopped = True
        self.process_queue.when_drained = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._link is not None:
            self._link.give_up(self._opaque)
            self._link = None

    def pause(self) -> None:
        """Begin no other pull. The answer to the one under way is still taken in."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self.is_paused = False
        self._pull()

    @property
    def is_alive(self) -> bool:
        """Whether the series goes on by itself, or waits for `resume`."""
        return self.is_paused or self._is_busy

    @property
    def _is_busy(self) -> bool:
        return (
            self._link is not None
            or self._timer is not None
            or self._task is not None
            or self.process_queue.when_drained is not None
        )

    # One pull

    def _pull(self) -> None:
        if self._is_stopped or self.is_paused or self._is_busy:
            return
        process_queue = self.process_queue
        if self._limits.is_full(process_queue):
            process_queue.when_drained = self._pull
            return
        queue = process_queue.queue
        found = self._session.read_address(queue.broker_name, self._broker_id)
        if found is None:
            self._open(self._find_broker)
            return
        address, self._is_slave = found
        link = self._session.transport.open_link(address)
        if link is None or link.is_write_paused:
            self._open(self._connect, address)
            return
        header = self._fill(self._is_slave)
        process_queue.last_pulled_at = self._started_at = self._monotonic()
        try:
            self._opaque = link.begin(RequestCode.PULL_MESSAGE, TIMEOUT_S, self._answered)
        except TransportError as error:
            self._fail(error)
            return
        self._link = link
        self.fault = None
        self._outbox.post(link, pull_request(self._opaque, header))

    def _fill(self, is_slave: bool) -> PullMessage:
        header, process_queue = self._header, self.process_queue
        header.queue_offset = process_queue.next_offset
        header.max_messages = 1 if self._is_careful else self._options.pull_batch_size
        asked = self._subscription()
        if asked is not self._asked or header.expression_type is None:
            self._asked = asked
            header.sub_version = asked.version
            header.expression_type = asked.expression_type
            header.subscription = asked.expression if self._options.post_subscription_when_pull else None
        sys_flag = PullSysFlag.SUSPEND
        if header.subscription is not None:
            sys_flag |= PullSysFlag.SUBSCRIPTION
        offsets = self._offsets
        offsets.update(process_queue.queue, process_queue.watermark, increase_only=True)
        commit_offset = None if is_slave else offsets.pull_commit(process_queue.queue)
        if commit_offset:
            sys_flag |= PullSysFlag.COMMIT_OFFSET
        header.sys_flag = sys_flag
        header.commit_offset = self.carried_offset = commit_offset or 0
        return header

    def _answered(self, response: Command | TransportError) -> None:
        link, self._link = self._link, None
        if self._is_stopped:
            return
        try:
            if isinstance(response, TransportError):
                self._fail(response)
            elif is_pull_answer(response):
                self._take_in(pull_answer(response))
            else:
                address = link.attachments.get(DIALLED, link.remote_address) if link is not None else ""
                topic = self.process_queue.queue.topic
                if response.code == ResponseCode.GO_AWAY and link is not None:
                    link.is_leaving = True  # what is open does not count as open: the next pull connects anew
                self._fail(BrokerCalls.refusal(response, address, RequestCode.PULL_MESSAGE, topic))
        except FuseeError as error:
            self._fail(error)
        except Exception:  # noqa: BLE001 - called by the connection, which others use too
            _log.exception("the answer to a pull of %s could not be handled", self.process_queue.queue)
            self._rest(self._options.pull_time_delay_ms_when_exception / 1000)

    def _take_in(self, answer: PullAnswer) -> None:
        process_queue = self.process_queue
        now = self._monotonic()
        self._broker_id = answer.suggested_broker_id
        if self._failures and not self._is_careful:
            self._recovered()
        if answer.status is PullStatus.FOUND:
            messages = self._decode(answer.body)
            if messages is None:
                return
            next_offset = answer.next_offset
            if messages and not is_lmq(process_queue.queue.topic):
                # An inner batch is stored whole, and answers a pull of its middle from its beginning.
                if messages[0].queue_offset < process_queue.next_offset:
                    messages = [each for each in messages if each.queue_offset >= process_queue.next_offset]
                if messages:
                    next_offset = max(next_offset, messages[-1].queue_offset + 1)
            if self._is_careful:
                self._is_careful = False
                self._recovered()
            self._statistics.pulled(process_queue.queue.topic, len(messages), now - self._started_at)
            chunk = process_queue.put(messages, next_offset, len(answer.body))
            if self._options.pull_interval_ms and chunk is not None:
                self._rest(self._options.pull_interval_ms / 1000)
            else:
                self._pull()  # first, so that the broker is busy with it while we consume
            if chunk is not None:
                self._deliver(chunk)
        elif answer.status is PullStatus.OFFSET_ILLEGAL:
            self._moved(process_queue, answer.next_offset)
            if not process_queue.is_dropped:
                self._pull()
        else:
            if self._session.master_address(process_queue.queue.broker_name) is None:
                self._look_for_master()
            stays = answer.next_offset <= process_queue.next_offset
            process_queue.next_offset = max(process_queue.next_offset, answer.next_offset)
            if stays and now - self._started_at < _EMPTY_AGAIN_S:
                # Brokers hold a pull for seconds; one that does not, because it is closing, is not asked in a whirl.
                self._rest(_EMPTY_AGAIN_S)
            else:
                self._pull()

    def _decode(self, body: bytes) -> list[ReceivedMessage] | None:
        """The messages, or None when they cannot be read; the series then goes on with care."""
        queue = self.process_queue.queue
        try:
            return decode_pulled(body, queue.broker_name, queue.topic, self._asked)
        except MessageError as error:
            self._failures += 1
            self.fault = error
            if not self._is_careful:
                self._is_careful = True
                self._pull()
                return None
            _log.error(
                "queue %d of %s on broker %s cannot be read at offset %d: %s. It stands still there, and nothing is "
                "skipped; have the broker's log checked, or seek behind that offset",
                queue.queue_id,
                queue.topic,
                queue.broker_name,
                self.process_queue.next_offset,
                error,
            )
            pause = self._options.pull_time_delay_ms_when_exception / 1000
            self._rest(min(pause * self._failures, _DAMAGED_AGAIN_MAX_S))
            return None

    # What goes wrong

    def _fail(self, error: FuseeError) -> None:
        self._failures += 1
        self.fault = error
        was_slave = self._is_slave
        self._broker_id = 0  # a slave that does not serve must not be asked for ever
        longest = self._options.pull_time_delay_ms_when_exception / 1000
        # A connection that breaks takes every queue of its broker along, and is back in a moment.
        told_at = _CONNECT_TOLD_AT if isinstance(error, TransportError) else 1
        if self._failures == told_at and not is_retry_topic(self.process_queue.queue.topic):
            queue = self.process_queue.queue
            _log.warning(
                "queue %d of %s on broker %s cannot be pulled and will be tried again: %s",
                queue.queue_id,
                queue.topic,
                queue.broker_name,
                error,
            )
        if isinstance(error, RemoteError) and error.code == ResponseCode.FLOW_CONTROL:
            self._rest(_FLOW_CONTROL_S)
        elif isinstance(error, RemoteError) and error.code == ResponseCode.GO_AWAY and self._failures == 1:
            self._pull()
        elif isinstance(error, SubscriptionError) and self._failures % 2 == 1:
            self._open(self._introduce, error.address)
        elif isinstance(error, TransportError):
            if self._failures % 4 in (1, 2):
                self._look_for_master()
            slave_id = None if was_slave else self._session.slave_id(self.process_queue.queue.broker_name)
            if slave_id is not None:
                self._broker_id = slave_id
                self._rest(0.0 if self._failures == 1 else self._pause())
            else:
                self._rest(self._pause())
        elif was_slave:
            # It refuses while its master is there: that is where to go, and no failure of its own.
            self._failures = max(self._failures - 1, 1)
            self._rest(self._pause())
        else:
            self._rest(longest)

    def _pause(self) -> float:
        """How long to rest after so many failures."""
        longest = self._options.pull_time_delay_ms_when_exception / 1000
        return min(_CONNECT_AGAIN_S * float(1 << min(self._failures - 1, 10)), longest)

    def _look_for_master(self) -> None:
        queue = self.process_queue.queue
        self._session.look_for_master(queue.broker_name, queue.topic)

    def _recovered(self) -> None:
        if not is_retry_topic(self.process_queue.queue.topic):
            _log.info("%s can be pulled again after %d failures", self.process_queue.queue, self._failures)
        self._failures = 0

    def _rest(self, seconds: float) -> None:
        if not self._is_stopped and self._timer is None:
            self._timer = self._session.timers.call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._timer = None
        self._pull()

    def _open(self, work: Callable[..., Awaitable[object]], *args: str) -> None:
        """Do what must be waited for before the next pull."""
        if self._session.state is not ServiceState.RUNNING:
            self.stop()
            return
        self._task = self._session.spawn(self._opened(work, *args))

    async def _opened(self, work: Callable[..., Awaitable[object]], *args: str) -> None:
        fault: FuseeError | None = None
        try:
            await work(*args)
        except FuseeError as error:
            fault = error
        finally:
            self._task = None
        if self._is_stopped:
            return
        if fault is not None:
            self._fail(fault)
        else:
            self._pull()

    async def _find_broker(self) -> None:
        await broker_address(self._session, self.process_queue.queue)

    async def _connect(self, address: str) -> None:
        link = await self._session.transport.link(address)
        await link.writable(TIMEOUT_S)
        if not link.is_open:
            raise ConnectError(f"connection to {address} ended as soon as it was made", address=address)

    async def _introduce(self, address: str) -> None:
        await self._session.heartbeat(address)
