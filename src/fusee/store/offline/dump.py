"""Records of a store by topic, queue, key and time, in the order of the log or of a queue.

Where to look is decided by what is asked: a key of a topic is looked up in the index; a queue is read entry by entry;
a topic is read from all of its queues, merged into the order of the log; everything else walks the log. `scan` walks
the log in any case, for stores whose queues or index are not to be trusted.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import merge
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from fusee.errors import RecordError, StoreError
from fusee.message.properties import find_keys, find_unique_id
from fusee.message.record import decode_record
from fusee.message.record_layout import TIMESTAMP, store_timestamp_position
from fusee.store.batch_consume_queue import BATCH_ENTRY_DTYPE
from fusee.store.key_hash import index_hash
from fusee.store.layout import BATCH_CONSUME_ENTRY_SIZE, CONSUME_ENTRY_SIZE
from fusee.store.offline.check_queues import ENTRY, PRE_BLANK_SIZE
from fusee.store.offline.index_files import open_index
from fusee.store.offline.queue_ends import entry_at, queue_span
from fusee.store.offline.walk import Chunk, Damage, find_record, read_record, reason_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusee.message.model import StoredMessage
    from fusee.store.offline.files import OfflineStore, SegmentRow

TIME_MS_MAX: Final = (1 << 63) - 1
LOOKUP_MAX: Final = 1_000_000
"""Records that one key may lead to."""
_WALK_SIZE: Final = 1 << 20
_BLOCK_ENTRIES: Final = 4096


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted; all of them when nothing is said."""

    topic: str | None = None
    queue_id: int | None = None
    start: int | None = None
    """A queue offset if there is a queue, a log offset otherwise."""
    key: str | None = None
    since_ms: int = 0
    until_ms: int = TIME_MS_MAX
    """The last store time that is wanted."""
    scan: bool = False


class Unreadable(NamedTuple):
    """A place where a record was expected and none could be read."""

    file: str
    position: int
    log_offset: int
    reason: str


def select(store: OfflineStore, wanted: Selection) -> Iterator[StoredMessage | Unreadable]:
    """The records that are wanted. Raises StoreError when there is no such queue, or no record at `start`."""
    if wanted.queue_id is not None and wanted.topic is None:
        raise StoreError("a queue is one of a topic: give the topic too")
    if wanted.topic is not None and not wanted.scan:
        if wanted.key is not None and wanted.queue_id is None and wanted.start is None:
            found = _by_index(store, wanted, wanted.topic, wanted.key)
            if found is not None:
                return found
        if wanted.queue_id is not None:
            return _by_queue(store, wanted, wanted.topic, wanted.queue_id)
        return _by_topic(store, wanted, wanted.topic)
    return _by_log(store, wanted)


def _is_wanted(message: StoredMessage, wanted: Selection) -> bool:
    return (
        (wanted.topic is None or message.topic == wanted.topic)
        and (wanted.queue_id is None or message.queue_id == wanted.queue_id)
        and (wanted.key is None or _has_key(message, wanted.key))
        and wanted.since_ms <= message.store_timestamp_ms <= wanted.until_ms
    )


def _has_key(message: StoredMessage, key: str) -> bool:
    raw = key.encode("utf-8", "replace")
    if find_unique_id(message.properties_bytes) == raw:
        return True
    keys = find_keys(message.properties_bytes)
    return keys is not None and raw in keys.split(b" ")


def _read(store: OfflineStore, log_offset: int) -> StoredMessage | Unreadable:
    segment = store.log.locate(log_offset)
    file = store.relative(segment.path if segment is not None else store.log.folder)
    position = log_offset - (segment.base_offset if segment is not None else 0)
    record = read_record(store.log, log_offset)
    if record is None:
        return Unreadable(file, position, log_offset, "there is no record")
    try:
        return decode_record(record)
    except RecordError as error:
        return Unreadable(file, position, log_offset, reason_of(error))


def _by_index(
    store: OfflineStore, wanted: Selection, topic: str, key: str
) -> Iterator[StoredMessage | Unreadable] | None:
    """None when there is no index to look into."""
    views, _ = open_index(store)
    if not any(view.shape is not None for view in views):
        return None
    places: set[int] = set()
    key_hash = index_hash(topic, key)
    for view in views:
        for log_offset in view.look_up(key_hash):
            if log_offset >= store.log.min_offset:
                places.add(log_offset)
            if len(places) >= LOOKUP_MAX:
                break
    return _wanted_of(store, wanted, sorted(places))


def _wanted_of(store: OfflineStore, wanted: Selection, places: list[int]) -> Iterator[StoredMessage | Unreadable]:
    for log_offset in places:
        found = _read(store, log_offset)
        if isinstance(found, Unreadable) or _is_wanted(found, wanted):
            yield found


def _by_queue(
    store: OfflineStore, wanted: Selection, topic: str, queue_id: int
) -> Iterator[StoredMessage | Unreadable]:
    places = _queue_places(store, wanted, topic, queue_id)
    if places is None:
        known = sorted(files.queue_id for files in (*store.queues(), *store.batch_queues()) if files.topic == topic)
        if not known:
            raise _no_topic(store, topic)
        raise StoreError(f"topic {topic} has no queue {queue_id} here, it has {', '.join(map(str, known))}")
    return _follow_queue(store, wanted, places)


def _follow_queue(
    store: OfflineStore, wanted: Selection, places: Iterator[int]
) -> Iterator[StoredMessage | Unreadable]:
    for log_offset in places:
        found = _read(store, log_offset)
        if isinstance(found, Unreadable):
            yield found
        elif found.store_timestamp_ms > wanted.until_ms:
            return
        elif (wanted.key is None or _has_key(found, wanted.key)) and found.store_timestamp_ms >= wanted.since_ms:
            yield found


def _by_topic(store: OfflineStore, wanted: Selection, topic: str) -> Iterator[StoredMessage | Unreadable]:
    queue_ids = sorted({files.queue_id for files in (*store.queues(), *store.batch_queues()) if files.topic == topic})
    rows = [_queue_places(store, wanted, topic, queue_id) for queue_id in queue_ids]
    if not rows:
        raise _no_topic(store, topic)
    return _follow_queue(store, wanted, merge(*(row for row in rows if row is not None)))


def _no_topic(store: OfflineStore, topic: str) -> StoreError:
    topics = sorted({files.topic for files in (*store.queues(), *store.batch_queues())})
    shown = ", ".join(topics[:20]) + (", ..." if len(topics) > 20 else "")
    return StoreError(f"no consume queue of topic {topic} here; there are {shown or 'none at all'}")


def _queue_places(store: OfflineStore, wanted: Selection, topic: str, queue_id: int) -> Iterator[int] | None:
    """Log offsets of the records of a queue, from where the selection starts. None when there is no such queue."""
    row = store.queue(topic, queue_id)
    if row:
        span = queue_span(row, store.log.min_offset)
        start = span.min_offset
        if wanted.start is not None and wanted.queue_id is not None:
            start = max(wanted.start, start)
        elif wanted.start is not None:
            start += bisect_left(
                range(span.min_offset, span.max_offset), wanted.start, key=lambda number: _log_offset(row, number)
            )
        if wanted.since_ms:
            numbers = range(start, span.max_offset)
            start += bisect_left(numbers, wanted.since_ms, key=lambda number: _time_at(store, _log_offset(row, number)))
        return _entry_places(row, start)
    row = store.batch_queue(topic, queue_id)
    return _unit_places(store, row, wanted) if row else None


def _log_offset(row: SegmentRow, queue_offset: int) -> int:
    entry = entry_at(row, queue_offset)
    return entry.log_offset if entry is not None else -1


def _time_at(store: OfflineStore, log_offset: int) -> int:
    record = read_record(store.log, log_offset)
    if record is None:
        return -1
    time_ms: int = TIMESTAMP.unpack_from(record, store_timestamp_position(record[39]))[0]
    return time_ms


def _entry_places(row: SegmentRow, queue_offset: int) -> Iterator[int]:
    while True:
        data = row.read(queue_offset * CONSUME_ENTRY_SIZE, _BLOCK_ENTRIES * CONSUME_ENTRY_SIZE)
        entries = np.frombuffer(data, ENTRY, len(data) // CONSUME_ENTRY_SIZE)
        for log_offset, size in zip(entries["log_offset"].tolist(), entries["size"].tolist(), strict=True):
            if size == 0:
                return
            if size != PRE_BLANK_SIZE:
                yield log_offset
        if not len(entries):
            return
        queue_offset += len(entries)


def _unit_places(store: OfflineStore, row: SegmentRow, wanted: Selection) -> Iterator[int]:
    start = wanted.start or 0
    offset = row.min_offset
    while True:
        data = row.read(offset, _BLOCK_ENTRIES * BATCH_CONSUME_ENTRY_SIZE)
        units = np.frombuffer(data, BATCH_ENTRY_DTYPE, len(data) // BATCH_CONSUME_ENTRY_SIZE)
        for unit in units:
            if unit["size"] == 0:
                return
            # A batch is given whole when any of its messages is wanted.
            end = int(unit["base_offset"]) + int(unit["count"])
            behind_start = end > start if wanted.queue_id is not None else unit["log_offset"] >= start
            if behind_start and unit["log_offset"] >= store.log.min_offset:
                yield int(unit["log_offset"])
        if not len(units):
            return
        offset += len(units) * BATCH_CONSUME_ENTRY_SIZE


def _by_log(store: OfflineStore, wanted: Selection) -> Iterator[StoredMessage | Unreadable]:
    log = store.log
    start = log.min_offset
    if wanted.start is not None and wanted.queue_id is None:
        start = max(wanted.start, log.min_offset)
        if start < log.end_offset and read_record(log, start) is None:
            behind = find_record(log, start)
            hint = f"; the next one is at {behind.log_offset}" if behind is not None else ""
            raise StoreError(f"no record begins at log offset {start}{hint}")
    elif wanted.since_ms:
        # The last file that begins before the time; the clock may have been set back, so files are not bisected.
        for segment in log.segments:
            if 0 <= _time_at(store, segment.base_offset) < wanted.since_ms:
                start = segment.base_offset
    return _walk_log(store, wanted, start)


def _walk_log(store: OfflineStore, wanted: Selection, start: int) -> Iterator[StoredMessage | Unreadable]:
    topic = wanted.topic.encode() if wanted.topic is not None else None
    first_number = wanted.start if wanted.queue_id is not None and wanted.start is not None else 0
    for event in walk(store.log, start, _WALK_SIZE):
        if isinstance(event, Chunk):
            parts, data = event.parts, event.data
            for row, position in enumerate(parts.positions.tolist()):
                if topic is not None and bytes(data[int(parts.topic_start[row]) : int(parts.topic_end[row])]) != topic:
                    continue
                try:
                    message = decode_record(data, position, int(parts.record_end[row]))
                except RecordError as error:
                    log_offset = event.log_offset + position
                    file = store.relative(event.segment.path)
                    yield Unreadable(file, log_offset - event.segment.base_offset, log_offset, reason_of(error))
                    continue
                if message.store_timestamp_ms > wanted.until_ms:
                    return
                if _is_wanted(message, wanted) and message.queue_offset >= first_number:
                    yield message
        elif isinstance(event, Damage) or event.reason:
            yield Unreadable(store.relative(event.path), event.position, event.log_offset, event.reason)
