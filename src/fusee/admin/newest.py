"""The newest messages of a topic: read from the end of each queue, however much lies before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.admin.browse import QueueCursor
from fusee.filter.subscription import parse_subscription

if TYPE_CHECKING:
    from fusee.admin.messages import MessageCalls
    from fusee.client.received import ReceivedMessage
    from fusee.message.model import MessageQueue


async def newest_messages(
    admin: MessageCalls, topic: str, limit: int, *, queue: MessageQueue | None = None, tags: str = "*"
) -> tuple[ReceivedMessage, ...]:
    """The newest messages of a topic, or of one queue, the oldest of them first.

    Of each queue the last `limit` are looked at; `tags` may leave fewer. Raises when a broker of the topic does not
    answer.
    """
    places = await admin._places_of_queues(topic, queue)
    calls = admin._session.calls
    subscription = parse_subscription(topic, tags)
    found: list[ReceivedMessage] = []
    for each, place in sorted(places.items()):
        end = await calls.max_offset(place.address, topic, each.queue_id)
        first = max(await calls.min_offset(place.address, topic, each.queue_id), end - limit)
        cursor = QueueCursor(calls, place.address, each, start_offset=first, end_offset=end, subscription=subscription)
        while (message := await cursor.next()) is not None:
            found.append(message)
    found.sort(key=lambda message: (message.store_timestamp_ms, message.queue, message.queue_offset))
    return tuple(found[-limit:])
