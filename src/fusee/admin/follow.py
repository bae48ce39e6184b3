"""Reading a topic as it grows: first what is there, in the order in which it was stored, then each message as it comes.

Like a browser this is no consumer: it belongs to no group and commits nothing. One pull is held at the broker for each
queue; what it brings waits in a bounded buffer, so a reader that is slow holds up the pulls and nothing else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fusee.admin.browse import PULL_COUNT, QueueCursor, merged
from fusee.admin.messages import MessageCalls
from fusee.admin.reach import to_ms
from fusee.client.broker_calls import PullStatus
from fusee.client.pulled import decode_pulled
from fusee.errors import FuseeError
from fusee.filter.subscription import SQL92, TAG, parse_subscription
from fusee.message.flags import PullSysFlag
from fusee.message.topics import TOOLS_CONSUMER_GROUP
from fusee.wire.headers.pull import PullMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fusee.admin.offsets import Target
    from fusee.admin.views import BrokerAddress
    from fusee.client.received import ReceivedMessage
    from fusee.filter.subscription import Subscription
    from fusee.message.model import MessageQueue

_HOLD_MS: Final = 15_000
_TIMEOUT_MS: Final = 25_000
_BUFFERED_MAX: Final = 256
_PAUSE_AFTER_ERROR: Final = 1.0


class FollowCalls(MessageCalls):
    """Messages as they come."""

    async def follow(
        self,
        topic: str,
        start: Target = "last",
        *,
        start_offset: int | None = None,
        queue: MessageQueue | None = None,
        tags: str = "*",
        sql: str | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """The messages of a topic, or of one queue, from a place on, without an end.

        The place is a time, "first" or "last", or for every queue `start_offset`. Raises TopicNotFoundError; later it
        goes on when a broker is away for a while.
        """
        subscription = parse_subscription(topic, tags if sql is None else sql, TAG if sql is None else SQL92)
        places = await self._places_of_queues(topic, queue)
        cursors, ends = await self._backlog(places, start, start_offset, subscription)
        async for message in merged(cursors):
            yield message
        arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue(_BUFFERED_MAX)
        tasks = [
            asyncio.ensure_future(self._feed(arrived, each, place, ends[each], subscription))
            for each, place in sorted(places.items())
        ]
        getting: asyncio.Future[ReceivedMessage] | None = None
        try:
            while True:
                getting = asyncio.ensure_future(arrived.get())
                await asyncio.wait([getting, *tasks], return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():
                    ended = next(task for task in tasks if task.done())
                    ended.result()  # raises: a feed ends by an error only
                yield await getting
        finally:
            for task in tasks:
                task.cancel()
            if getting is not None:
                getting.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _backlog(
        self,
        places: dict[MessageQueue, BrokerAddress],
        start: Target,
        start_offset: int | None,
        subscription: Subscription,
    ) -> tuple[list[QueueCursor], dict[MessageQueue, int]]:
        calls = self._session.calls
        cursors: list[QueueCursor] = []
        ends: dict[MessageQueue, int] = {}
        for queue, place in sorted(places.items()):
            end = ends[queue] = await calls.max_offset(place.address, queue.topic, queue.queue_id)
            if start_offset is not None:
                first = max(start_offset, await calls.min_offset(place.address, queue.topic, queue.queue_id))
            elif start == "last":
                continue
            elif start == "first":
                first = await calls.min_offset(place.address, queue.topic, queue.queue_id)
            else:
                first = await calls.search_offset(place.address, queue.topic, queue.queue_id, to_ms(start))
            ends[queue] = max(end, first)
            cursors.append(
                QueueCursor(calls, place.address, queue, start_offset=first, end_offset=end, subscription=subscription)
            )
        return cursors, ends

    async def _feed(
        self,
        arrived: asyncio.Queue[ReceivedMessage],
        queue: MessageQueue,
        place: BrokerAddress,
        next_offset: int,
        subscription: Subscription,
    ) -> None:
        while True:
            header = PullMessage(
                consumer_group=TOOLS_CONSUMER_GROUP,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=next_offset,
                max_messages=PULL_COUNT,
                sys_flag=PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND,
                commit_offset=0,
                suspend_timeout_ms=_HOLD_MS,
                subscription=subscription.expression,
                sub_version=subscription.version,
                expression_type=subscription.expression_type,
            )
            try:
                answer = await self._session.calls.pull(place.address, header, _TIMEOUT_MS)
            except FuseeError as error:
                if not error.retryable:
                    raise
                await self._pause(_PAUSE_AFTER_ERROR)
                place = await self._still_at(queue, place)
                continue
            if answer.status is PullStatus.FOUND:
                for message in decode_pulled(answer.body, queue.broker_name, queue.topic, subscription):
                    if message.queue_offset >= next_offset:
                        await arrived.put(message)
            next_offset = answer.next_offset

    async def _still_at(self, queue: MessageQueue, place: BrokerAddress) -> BrokerAddress:
        """Where the queue is now; where it was, while nobody knows."""
        try:
            return (await self._places_of_queues(queue.topic, queue))[queue]
        except FuseeError:
            return place
