"""When messages of a queue were stored, as administrators ask for it: -1 where there is no such message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fusee.store.engine import MessageStore

NO_TIME: Final = -1


def store_time_of(store: MessageStore, topic: str, queue_id: int, queue_offset: int) -> int:
    """Store time in milliseconds of this message; -1 when the queue does not have it."""
    queue = store.queues.get(topic, queue_id)
    if queue is None:
        return NO_TIME
    log_offset = queue.log_offset_of(queue_offset)
    if log_offset is None:
        return NO_TIME
    timestamp_ms = store.store_time(log_offset)
    return NO_TIME if timestamp_ms is None else timestamp_ms


def earliest_store_time(store: MessageStore, topic: str, queue_id: int) -> int:
    """Store time in milliseconds of the first message that is there; -1 when there is none."""
    return store_time_of(store, topic, queue_id, store.min_offset(topic, queue_id))
