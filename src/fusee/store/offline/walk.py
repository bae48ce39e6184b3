"""The commit log from its first record to its end, in pieces of bounded size, past damage and missing files.

`walk` yields `Chunk`s of whole records that lie end to end, a `Damage` wherever none can be read, and last a `LogEnd`.
After damage it goes on at the next record that says of itself that it belongs where it is found: 64 bits that chance
does not get right.

Where does a log end? Where nothing is written, or where what is written is no record, and no record follows behind. A
record behind counts only if it was stored no earlier than the last one before: RocketMQ cuts a torn log and leaves
what lay behind the cut, and these leftovers are older than what was appended since.

The owner may be writing. What looks like damage is therefore read again before it is believed.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fusee.errors import RecordError
from fusee.message.record_layout import (
    BLANK_SIZE_MIN,
    FRAME,
    LOG_OFFSET_POSITION,
    MAGIC_BLANK,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    TIMESTAMP,
    record_bounds,
    store_timestamp_position,
)
from fusee.store.offline.files import READ_SIZE
from fusee.store.record_scan import find_records, locate_parts, windows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from fusee.store.offline.files import SegmentFile, SegmentRow
    from fusee.store.record_scan import RecordParts

CHUNK_SIZE: Final = 8 << 20
RECORD_SIZE_READ_MAX: Final = 256 << 20
_MAGIC_START: Final = MAGIC_V1.to_bytes(4, "big")[:3]
_HEAD_SIZE: Final = LOG_OFFSET_POSITION + 8
_ATTEMPTS: Final = 3


class Chunk(NamedTuple):
    """Whole records, end to end. `data` is read over by the next chunk: take copies of what is to stay."""

    segment: SegmentFile
    log_offset: int
    """Of the first byte of `data`."""
    data: memoryview
    parts: RecordParts

    @property
    def store_timestamps(self) -> NDArray[np.int64]:
        view = np.frombuffer(self.data, np.uint8)
        times: NDArray[np.int64] = windows(view, ">i8")[self.parts.store_timestamp_start].astype(np.int64)
        return times

    @property
    def log_offsets(self) -> NDArray[np.int64]:
        """Where the records really lie."""
        return self.parts.positions + self.log_offset


class DamageKind(Enum):
    """Why there is no record at a place."""

    BAD = "bad"
    """Something is there, but no record."""
    UNWRITTEN = "unwritten"
    """Zeros, though records follow."""
    MISSING = "missing"
    """No file covers it."""
    REMOVED = "removed"
    """The file went away while we were looking."""


class Damage(NamedTuple):
    """No record can be read from `log_offset` on; the next one is at `end_offset`."""

    kind: DamageKind
    path: Path
    position: int
    log_offset: int
    end_offset: int
    reason: str


class LogEnd(NamedTuple):
    """Nothing follows. `reason` is empty when nothing is written here, and says what is wrong otherwise."""

    path: Path
    position: int
    log_offset: int
    reason: str
    leftover_size: int
    """Bytes up to the last one behind the end that is not zero."""


class RecordPlace(NamedTuple):
    """Where a good record was found."""

    log_offset: int
    store_timestamp_ms: int


class _Stop(NamedTuple):
    """Why the records of a piece end: at the end of the file, of what was read, of what is written, or at damage."""

    position: int
    kind: DamageKind | None
    reason: str
    is_file_end: bool
    needed_size: int


def walk(row: SegmentRow, start: int | None = None, chunk_size: int = CHUNK_SIZE) -> Iterator[Chunk | Damage | LogEnd]:
    """Everything from `start`, which is the beginning of a record, to the end."""
    buffer = bytearray(chunk_size)
    offset = row.min_offset if start is None else start
    last_timestamp_ms = 0
    attempts = 0
    while True:
        segment = row.locate(offset)
        if segment is None:
            following = next((other for other in row.segments if other.base_offset > offset), None)
            if following is None:
                path = row.segments[-1].path if row else row.folder
                yield LogEnd(path, offset - (row.segments[-1].base_offset if row else 0), offset, "", 0)
                return
            yield Damage(DamageKind.MISSING, row.folder, 0, offset, following.base_offset, "no file covers it")
            offset = following.base_offset
            continue
        position = offset - segment.base_offset
        size = min(segment.size - position, len(buffer))
        size = row.read_into(segment, position, memoryview(buffer)[:size])
        data = memoryview(buffer)[:size]
        parts, stop = _records_of(data, segment.size - position, row.segment_size - position)
        if parts is not None:
            chunk = Chunk(segment, offset, data, parts)
            last_timestamp_ms = int(chunk.store_timestamps[-1])
            yield chunk
            attempts = 0
        if stop.is_file_end:
            offset = max(segment.end_offset, segment.base_offset + row.segment_size)
            continue
        offset += stop.position
        if stop.kind is None:
            if stop.needed_size > len(buffer):
                buffer = bytearray(stop.needed_size)
            continue
        attempts += 1
        if attempts < _ATTEMPTS:
            continue
        attempts = 0
        position = offset - segment.base_offset
        if not segment.path.exists():
            end = segment.end_offset
            yield Damage(DamageKind.REMOVED, segment.path, position, offset, end, "its owner has removed the file")
            offset = end
            continue
        behind = find_record(row, offset + 1)
        if behind is None or behind.store_timestamp_ms < last_timestamp_ms:
            reason = "" if stop.kind is DamageKind.UNWRITTEN else stop.reason
            yield LogEnd(segment.path, position, offset, reason, _leftover_size(row, segment, offset))
            return
        yield Damage(stop.kind, segment.path, position, offset, behind.log_offset, stop.reason)
        offset = behind.log_offset


def _records_of(data: memoryview, left: int, left_configured: int) -> tuple[RecordParts | None, _Stop]:
    """The good records at the start of a piece, and why they end. `left` bytes are left of the file."""
    found, _ = find_records(data)
    if len(found):
        magics = windows(np.frombuffer(data, np.uint8), ">u4")[found + MAGIC_POSITION]
        good = (magics == MAGIC_V1) | (magics == MAGIC_V2)
        if not good.all():
            found = found[: int(good.argmin())]
    parts = None
    if len(found):
        try:
            parts = locate_parts(data, found)
        except RecordError:
            found = found[: _first_bad(data, found)]
            if len(found):
                parts = locate_parts(data, found)
    position = int(parts.record_end[-1]) if parts is not None else 0
    return parts, _stop_at(data, position, left - position, left_configured - position)


def _first_bad(data: memoryview, positions: NDArray[np.int64]) -> int:
    for index, position in enumerate(positions.tolist()):
        try:
            record_bounds(data, position, len(data))
        except RecordError:
            return index
    return len(positions)


def _stop_at(data: memoryview, position: int, left: int, left_configured: int) -> _Stop:
    readable = len(data) - position
    if left < BLANK_SIZE_MIN:
        return _Stop(
            position, DamageKind.BAD, f"{left} bytes are left, too few for the blank that ends a file", False, 0
        )
    if readable < BLANK_SIZE_MIN:
        if position == 0:
            return _Stop(0, DamageKind.BAD, "the file ends here, though it was longer before", False, 0)
        return _Stop(position, None, "", False, 0)
    total, magic = FRAME.unpack_from(data, position)
    if total == 0 and magic == 0:
        return _Stop(position, DamageKind.UNWRITTEN, "nothing is written here, though records follow", False, 0)
    if magic == MAGIC_BLANK:
        if total in (left, left_configured):
            return _Stop(position, None, "", True, 0)
        return _Stop(
            position, DamageKind.BAD, f"the blank says {total} bytes, but {left} are left of the file", False, 0
        )
    is_known = magic in (MAGIC_V1, MAGIC_V2)
    if is_known and RECORD_SIZE_MIN <= total <= min(left, RECORD_SIZE_READ_MAX) and total > readable:
        return _Stop(position, None, "", False, total)
    try:
        record_bounds(data, position, len(data))
    except RecordError as error:
        return _Stop(position, DamageKind.BAD, reason_of(error), False, 0)
    return _Stop(position, DamageKind.BAD, "it cannot be read", False, 0)


def reason_of(error: RecordError) -> str:
    """What is wrong with a record, without the place, which counts from where the reader's buffer began."""
    text = str(error)
    return text.partition(": ")[2] if text.startswith("record at ") else text


def find_record(row: SegmentRow, log_offset: int) -> RecordPlace | None:
    """The first whole record at or behind this offset that says that it belongs where it is."""
    for segment in row.segments:
        if segment.end_offset <= log_offset:
            continue
        for start, end in row.written_ranges(segment, max(log_offset - segment.base_offset, 0)):
            position = start
            while position < end:
                # A head that begins in this piece is read whole; the next piece begins where heads were not looked at.
                piece = row.read(segment.base_offset + position, min(READ_SIZE + _HEAD_SIZE, segment.size - position))
                found = piece.find(_MAGIC_START, MAGIC_POSITION)
                while found >= 0:
                    place = _record_place(row, segment, position + found - MAGIC_POSITION)
                    if place is not None and place.log_offset >= log_offset:
                        return place
                    found = piece.find(_MAGIC_START, found + 1)
                position += READ_SIZE
    return None


def _record_place(row: SegmentRow, segment: SegmentFile, position: int) -> RecordPlace | None:
    log_offset = segment.base_offset + position
    head = row.read(log_offset, min(_HEAD_SIZE, segment.size - position))
    if len(head) < _HEAD_SIZE or TIMESTAMP.unpack_from(head, LOG_OFFSET_POSITION)[0] != log_offset:
        return None
    record = read_record(row, log_offset)
    if record is None:
        return None
    return RecordPlace(log_offset, TIMESTAMP.unpack_from(record, store_timestamp_position(record[39]))[0])


def read_record(row: SegmentRow, log_offset: int) -> bytes | None:
    """The record at this place; None when there is no whole one."""
    segment = row.locate(log_offset)
    head = row.read(log_offset, FRAME.size)
    if segment is None or len(head) < FRAME.size:
        return None
    total, _ = FRAME.unpack(head)
    if not RECORD_SIZE_MIN <= total <= min(segment.end_offset - log_offset, RECORD_SIZE_READ_MAX):
        return None
    record = row.read(log_offset, total)
    try:
        record_bounds(record, 0, len(record))
    except RecordError:
        return None
    return record


def _leftover_size(row: SegmentRow, segment: SegmentFile, log_offset: int) -> int:
    for other in reversed(row.segments):
        if other.base_offset < segment.base_offset:
            break
        start = max(log_offset - other.base_offset, 0)
        end = row.last_written(other, start)
        if end > start:
            return other.base_offset + end - log_offset
    return 0
