"""Where a consumer begins in a queue that was given to it (Java: RebalancePushImpl.computePullFromWhere).

    committed    there, whatever else is asked for
    retry topic  at the first message that is left: all of them were sent back by this group
    "first"      at the first message that is left
    "last"       behind the last message
    a time       at the first message stored then or later

A broker that does not answer, or answers with an error, ends in that error: the queue is taken up later. No failure is
ever read as "nothing was committed", which would skip messages or repeat all of them.

Otherwise than Java: "first" asks for the first offset, where Java begins at 0 and is corrected after ten seconds; a
retry topic begins at its first message also when consuming from a time, where Java skips what was sent back before
the first look; and "last" looks again for a committed offset once it sees that the queue is not empty, because a
broker names 0 for a young queue with messages, and the first may have come between the two questions.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from fusee.client.consumer.offsets import broker_address
from fusee.errors import ConfigError, RemoteFailureError
from fusee.message.topics import is_retry_topic
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fusee.client.session import Session
    from fusee.message.model import MessageQueue

ConsumeFrom: TypeAlias = Literal["first", "last"] | datetime | int
"""Where a group begins that has committed nothing; a number is milliseconds since 1970."""


def check_consume_from(consume_from: ConsumeFrom) -> None:
    """Raise ConfigError when this is no place to begin at."""
    is_time = isinstance(consume_from, datetime) or (
        isinstance(consume_from, int) and not isinstance(consume_from, bool) and consume_from >= 0
    )
    if not is_time and consume_from not in ("first", "last"):
        raise ConfigError(
            f'consume_from is {consume_from!r}; give "first", "last", a datetime, or milliseconds since 1970'
        )


async def start_offset(
    session: Session,
    queue: MessageQueue,
    *,
    committed: int | None,
    consume_from: ConsumeFrom,
    reload: Callable[[MessageQueue], Awaitable[int | None]] | None = None,
) -> int:
    """The offset to begin at, where `committed` is what `OffsetStore.load` gave and `reload` asks it again.

    Raises TransportError or RemoteError when that cannot be found out now.
    """
    if committed is not None:
        return committed
    address = await broker_address(session, queue)
    calls, topic, queue_id = session.calls, queue.topic, queue.queue_id
    if consume_from == "first" or is_retry_topic(topic):
        # A queue without messages may say -1.
        return max(await calls.min_offset(address, topic, queue_id), 0)
    if consume_from == "last":
        end = await calls.max_offset(address, topic, queue_id)
        if end > 0 and reload is not None:
            committed = await reload(queue)
        found = end if committed is None else committed
    else:
        found = await calls.search_offset(address, topic, queue_id, _milliseconds(consume_from))
    if found < 0:
        raise RemoteFailureError(
            f"broker {address} names {found} as the offset to begin at in queue {queue_id} of topic {topic!r}",
            code=ResponseCode.SYSTEM_ERROR,
            address=address,
            topic=topic,
        )
    return found


def _milliseconds(time: datetime | int) -> int:
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else time
