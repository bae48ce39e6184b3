"""Where a consume queue begins and ends, found without reading all of it."""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from fusee.store.batch_consume_queue import BATCH_ENTRY
from fusee.store.layout import BATCH_CONSUME_ENTRY_SIZE, CONSUME_ENTRY_SIZE

if TYPE_CHECKING:
    from fusee.store.offline.files import SegmentRow

_ENTRY: Final = Struct(">qiq")
_PRE_BLANK_SIZE: Final = 0x7FFFFFFF


class QueueEntry(NamedTuple):
    """One entry of a consume queue."""

    log_offset: int
    size: int
    tags_code: int


class QueueSpan(NamedTuple):
    """The queue offsets [min_offset, max_offset) of records that are in the log."""

    min_offset: int
    max_offset: int
    last_log_offset: int
    """Of the last entry's record; -1 when there is none."""


def entry_at(row: SegmentRow, queue_offset: int) -> QueueEntry | None:
    """The entry of this number; None when it is not there."""
    data = row.read(queue_offset * CONSUME_ENTRY_SIZE, CONSUME_ENTRY_SIZE)
    return QueueEntry(*_ENTRY.unpack(data)) if len(data) == CONSUME_ENTRY_SIZE else None


def last_entry(row: SegmentRow) -> QueueEntry | None:
    """The last entry that is written."""
    end = _written_end(row, CONSUME_ENTRY_SIZE)
    return entry_at(row, end - 1) if end is not None else None


def queue_span(row: SegmentRow, log_min_offset: int) -> QueueSpan:
    """The numbers of a plain queue, whose first entries may point to what the log has no more."""
    end = _written_end(row, CONSUME_ENTRY_SIZE)
    first = row.min_offset // CONSUME_ENTRY_SIZE
    if end is None:
        return QueueSpan(first, first, -1)

    def is_there(queue_offset: int) -> bool:
        entry = entry_at(row, queue_offset)
        return entry is not None and entry.size != _PRE_BLANK_SIZE and entry.log_offset >= log_min_offset

    last = entry_at(row, end - 1)
    start = first + bisect_left(range(first, end), True, key=is_there)
    return QueueSpan(start, end, last.log_offset if last is not None else -1)


def batch_queue_span(row: SegmentRow, log_min_offset: int) -> QueueSpan:
    """The same of a queue of batches."""
    end = _written_end(row, BATCH_CONSUME_ENTRY_SIZE)
    first = row.min_offset // BATCH_CONSUME_ENTRY_SIZE
    if end is None:
        return QueueSpan(0, 0, -1)

    def unit(number: int) -> tuple[int, ...]:
        data = row.read(number * BATCH_CONSUME_ENTRY_SIZE, BATCH_CONSUME_ENTRY_SIZE)
        return BATCH_ENTRY.unpack(data) if len(data) == BATCH_CONSUME_ENTRY_SIZE else (0,) * 8

    start = first + bisect_left(range(first, end), True, key=lambda number: unit(number)[0] >= log_min_offset)
    last = unit(end - 1)
    max_offset = last[4] + last[5]
    return QueueSpan(unit(start)[4] if start < end else max_offset, max_offset, last[0])


def _written_end(row: SegmentRow, entry_size: int) -> int | None:
    """The number behind the last entry that is not all zeros."""
    for segment in reversed(row.segments):
        written = row.last_written(segment, 0)
        if written:
            return (segment.base_offset + written - 1) // entry_size + 1
    return None
