"""Reading a topic by eye: messages of a span of time, all queues merged in the order in which they were stored.

A browser is no consumer: it belongs to no group, commits nothing, and stops where the queues ended when it began. Of
each queue at most one pull is kept in memory.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from fusee.client.broker_calls import PullStatus
from fusee.client.pulled import decode_pulled
from fusee.message.flags import PullSysFlag
from fusee.message.topics import TOOLS_CONSUMER_GROUP
from fusee.wire.headers.pull import PullMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from fusee.client.broker_calls import BrokerCalls
    from fusee.client.received import ReceivedMessage
    from fusee.filter.subscription import Subscription
    from fusee.message.model import MessageQueue

PULL_COUNT: Final = 32
_PULL_TIMEOUT_MS: Final = 20_000


class QueueCursor:
    """A place in one queue that moves forward, up to an end."""

    def __init__(
        self,
        calls: BrokerCalls,
        address: str,
        queue: MessageQueue,
        *,
        start_offset: int,
        end_offset: int,
        end_ms: int | None = None,
        subscription: Subscription,
        timeout_ms: int = _PULL_TIMEOUT_MS,
    ) -> None:
        """Reads offsets from `start_offset` up to, without, `end_offset`, stored at `end_ms` at the latest."""
        self._calls = calls
        self._address = address
        self.queue = queue
        self._next_offset = start_offset
        self._end_offset = end_offset
        self._end_ms = end_ms
        self._subscription = subscription
        self._timeout_ms = timeout_ms
        self._waiting: deque[ReceivedMessage] = deque()

    async def next(self) -> ReceivedMessage | None:
        """The next message; None at the end."""
        while not self._waiting and self._next_offset < self._end_offset:
            await self._pull()
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        if self._end_ms is not None and message.store_timestamp_ms > self._end_ms:
            self._waiting.clear()
            self._next_offset = self._end_offset
            return None
        return message

    async def _pull(self) -> None:
        header = PullMessage(
            consumer_group=TOOLS_CONSUMER_GROUP,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=self._next_offset,
            max_messages=PULL_COUNT,
            sys_flag=PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_ms=0,
            subscription=self._subscription.expression,
            sub_version=self._subscription.version,
            expression_type=self._subscription.expression_type,
        )
        answer = await self._calls.pull(self._address, header, self._timeout_ms)
        if answer.status is PullStatus.FOUND:
            found = decode_pulled(answer.body, self.queue.broker_name, self.queue.topic, self._subscription)
            self._waiting.extend(
                message for message in found if self._next_offset <= message.queue_offset < self._end_offset
            )
        # A broker that sends us back, or nowhere, has nothing more for us.
        is_ahead = answer.next_offset > self._next_offset and answer.status is not PullStatus.NO_NEW_MESSAGE
        self._next_offset = answer.next_offset if is_ahead else self._end_offset


class Cursor(Protocol):
    """Messages one by one."""

    async def next(self) -> ReceivedMessage | None: ...


async def merged(cursors: Iterable[Cursor], limit: int | None = None) -> AsyncIterator[ReceivedMessage]:
    """The messages of several queues in the order in which they were stored; those of one queue keep their order.

    Of one millisecond, messages of one broker come in the order of its log.
    """
    heap: list[tuple[int, str, int, int, ReceivedMessage]] = []
    all_cursors = list(cursors)

    async def advance(number: int) -> None:
        message = await all_cursors[number].next()
        if message is not None:
            heappush(heap, (message.store_timestamp_ms, message.broker_name, message.log_offset, number, message))

    for number in range(len(all_cursors)):
        await advance(number)
    count = 0
    while heap and (limit is None or count < limit):
        *_, number, message = heappop(heap)
        yield message
        count += 1
        await advance(number)
