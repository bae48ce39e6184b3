"""Looks at bytes of another copy of the log before they are taken: only whole records in their right places.

Bytes arrive in pieces that know nothing of records. `whole_records` finds how far they are whole; what is left waits
for the rest. A log therefore never ends inside a record, and what is dispatched, reported and read again after a
reconnection is what its master had at that place.

Each record must say that it belongs where it lies, and a blank must reach to the end of its segment: anything else
means that the copies have segments of different sizes, or that this is another log. The checksums of bodies are left
to recovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from fusee.errors import RecordError, StoreCorruptError, StoreError
from fusee.message.record_layout import (
    FRAME,
    LOG_OFFSET_POSITION,
    MAGIC_BLANK,
    TIMESTAMP,
    record_bounds,
    store_timestamp_position,
)
from fusee.store.record_scan import find_records, locate_parts, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

# From about here on arrays are quicker than a loop.
_FEW: Final = 24
RECORD_SIZE_MAX: Final = 64 * 1024 * 1024
"""No request brings a larger message; a record that claims more would be waited for in memory."""


class WholeRecords(NamedTuple):
    """What of some bytes can be taken."""

    size: int
    last_position: int | None
    """Where the last record begins, blanks not counted."""
    last_timestamp_ms: int


def whole_records(data: bytes | bytearray | memoryview, log_offset: int, segment_size: int) -> WholeRecords:
    """How far these bytes, which lie at this offset of the log, are whole records and blanks.

    Raises StoreError when they cannot be part of a log with segments of this size, StoreCorruptError when a record in
    them cannot be read.
    """
    try:
        positions, stop = find_records(data)
        _check_rest(data, stop, log_offset, segment_size)
        if not len(positions):
            return WholeRecords(stop, None, 0)
        _check_borders(positions, stop, log_offset, segment_size)
        if len(positions) > _FEW:
            return _check_arrays(data, positions, stop, log_offset, segment_size)
        return _check_each(data, positions.tolist(), stop, log_offset, segment_size)
    except RecordError as error:
        raise StoreCorruptError(
            f"the bytes of a replica at log offset {log_offset} cannot be read as records: {error}. They were damaged "
            "on the way, or in the log of the master; `fusee store verify` there tells"
        ) from error


def _check_each(
    data: bytes | bytearray | memoryview, positions: list[int], stop: int, log_offset: int, segment_size: int
) -> WholeRecords:
    last: int | None = None
    for position in positions:
        size, magic = FRAME.unpack_from(data, position)
        if magic == MAGIC_BLANK:
            _check_blank(size, log_offset + position, segment_size)
            continue
        record_bounds(data, position, position + size)
        (claimed,) = TIMESTAMP.unpack_from(data, position + LOG_OFFSET_POSITION)
        if claimed != log_offset + position:
            raise _misplaced(log_offset + position, claimed)
        last = position
    return WholeRecords(stop, last, _timestamp_ms(data, last))


def _check_arrays(
    data: bytes | bytearray | memoryview,
    positions: NDArray[np.int64],
    stop: int,
    log_offset: int,
    segment_size: int,
) -> WholeRecords:
    view = np.frombuffer(data, np.uint8)
    is_blank = windows(view, ">u4")[positions + 4] == MAGIC_BLANK
    if is_blank.any():
        for position in positions[is_blank].tolist():
            _check_blank(FRAME.unpack_from(data, position)[0], log_offset + position, segment_size)
        positions = positions[~is_blank]
        if not len(positions):
            return WholeRecords(stop, None, 0)
    parts = locate_parts(data, positions)
    claimed: NDArray[Any] = parts.head["log_offset"]
    misplaced = claimed != positions + log_offset
    if misplaced.any():
        row = int(misplaced.argmax())
        raise _misplaced(log_offset + int(positions[row]), int(claimed[row]))
    last = int(positions[-1])
    return WholeRecords(stop, last, _timestamp_ms(data, last))


def _timestamp_ms(data: bytes | bytearray | memoryview, position: int | None) -> int:
    if position is None:
        return 0
    (timestamp_ms,) = TIMESTAMP.unpack_from(data, position + store_timestamp_position(data[position + 39]))
    return int(timestamp_ms)


def _check_rest(data: bytes | bytearray | memoryview, stop: int, log_offset: int, segment_size: int) -> None:
    """What is not whole must be the beginning of something that fits into its segment: or it would be waited for."""
    if len(data) - stop < FRAME.size:
        return
    size, magic = FRAME.unpack_from(data, stop)
    if magic == MAGIC_BLANK:
        _check_blank(size, log_offset + stop, segment_size)
        return
    room = segment_size - (log_offset + stop) % segment_size
    if size < FRAME.size or size > room:
        raise RecordError(f"record at {log_offset + stop}: {size} bytes, where {room} are left of the segment")
    if size > RECORD_SIZE_MAX:
        raise RecordError(f"record at {log_offset + stop}: {size} bytes, more than any message has")


def _check_borders(positions: NDArray[np.int64], stop: int, log_offset: int, segment_size: int) -> None:
    """At each border of a segment something must begin."""
    for border in range(-log_offset % segment_size, stop, segment_size):
        row = int(positions.searchsorted(border, side="right")) - 1
        if positions[row] != border:
            start = log_offset + int(positions[row])
            raise _other_segments(f"what lies at log offset {start} reaches over {log_offset + border}", segment_size)


def _check_blank(size: int, log_offset: int, segment_size: int) -> None:
    room = segment_size - log_offset % segment_size
    if size != room:
        raise _other_segments(f"a segment ends at log offset {log_offset + size}", segment_size)


def _other_segments(seen: str, segment_size: int) -> StoreError:
    return StoreError(
        f"in the log of the master {seen}, and here segments have {segment_size} bytes: their sizes differ. Set "
        "mappedFileSizeCommitLog as it is there, and let this store begin anew"
    )


def _misplaced(log_offset: int, claimed: int) -> RecordError:
    return RecordError(f"record at {log_offset}: it says that it belongs at {claimed}")
