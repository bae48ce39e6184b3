"""Ranges of a store's queues read from its files, in log order, while its owner may go on.

Who reads much of a store wants to go over the log once, whichever queues the messages are in. The entries of all queues
are arrays, merged by their place in the log; a piece of the log is read once, and only records that an entry points to
count. No record has to be found by walking, and what other topics have in between costs no more than its bytes: gaps
larger than `GAP_READ_MAX` are not even read.

An entry may point to what is not there: the tail of a log that a crash has torn, a file that its owner has removed
since. `whole_end` says up to where the entries of a queue point to whole records; whoever plans reads no further.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fusee.errors import RecordError, StoreCorruptError
from fusee.message.record import decode_record
from fusee.message.record_layout import body_crc
from fusee.store.batch_consume_queue import BATCH_ENTRY_DTYPE
from fusee.store.consume_queue import BLANK_SIZE, ENTRY_DTYPE
from fusee.store.layout import BATCH_CONSUME_ENTRY_SIZE, CONSUME_ENTRY_SIZE
from fusee.store.offline.queue_ends import entry_at
from fusee.store.record_parts import checksums
from fusee.store.record_scan import locate_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from fusee.store.offline.files import SegmentRow
    from fusee.store.record_scan import RecordParts

ENTRIES_READ: Final = 16_384
READ_SIZE: Final = 4 << 20
GAP_READ_MAX: Final = 32 << 10
_TORN_MAX: Final = 100_000


class PlacedRecords(NamedTuple):
    """Bytes of the log, and where in them the records are that count. The memory is used again for the next ones."""

    log_offset: int
    data: memoryview
    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def gathered(self) -> bytes:
        """The records alone, end to end, in memory of their own."""
        ends = (self.positions + self.sizes).tolist()
        return b"".join([self.data[start:end] for start, end in zip(self.positions.tolist(), ends, strict=True)])


class QueueEntries:
    """The entries of a range of one queue, read a few thousand at a time."""

    def __init__(self, row: SegmentRow, start_offset: int, end_offset: int) -> None:
        self._row = row
        self._next = start_offset
        self._end = end_offset
        self.log_offsets: NDArray[np.int64] = np.empty(0, np.int64)
        self.sizes: NDArray[np.int64] = np.empty(0, np.int64)

    @property
    def has_more(self) -> bool:
        """Whether entries behind those that were read are still to come."""
        return self._next < self._end

    def fill(self) -> None:
        """Read on, unless there are some that were not taken yet."""
        while not len(self.log_offsets) and self.has_more:
            count = min(self._end - self._next, ENTRIES_READ)
            raw = self._row.read(self._next * CONSUME_ENTRY_SIZE, count * CONSUME_ENTRY_SIZE)
            entries = np.frombuffer(raw, ENTRY_DTYPE, len(raw) // CONSUME_ENTRY_SIZE)
            if not len(entries):
                raise StoreCorruptError(
                    f"{self._row.folder} has no entry {self._next} any more; it had entries up to {self._end} when the "
                    "work was planned: the store has removed it, or was cut"
                )
            self._next += len(entries)
            kept = entries[entries["size"] != BLANK_SIZE]
            self.log_offsets = kept["log_offset"].astype(np.int64)
            self.sizes = kept["size"].astype(np.int64)

    def take(self, end_log_offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The entries up to this place in the log, which are not here any more then."""
        count = int(np.searchsorted(self.log_offsets, end_log_offset))
        taken = self.log_offsets[:count], self.sizes[:count]
        self.log_offsets, self.sizes = self.log_offsets[count:], self.sizes[count:]
        return taken


class BatchQueueEntries(QueueEntries):
    """The same of a queue of batches: its entries are few, and all are read at once."""

    def __init__(self, row: SegmentRow, start_offset: int, end_offset: int) -> None:
        super().__init__(row, 0, 0)
        raw = row.read(row.min_offset, row.end_offset - row.min_offset)
        entries = np.frombuffer(raw, BATCH_ENTRY_DTYPE, len(raw) // BATCH_CONSUME_ENTRY_SIZE)
        entries = entries[entries["size"] > 0]
        first = entries["base_offset"].astype(np.int64)
        wanted = (first < end_offset) & (first + entries["count"] > start_offset)
        self.log_offsets = entries["log_offset"][wanted].astype(np.int64)
        self.sizes = entries["size"][wanted].astype(np.int64)


def read_placed(log: SegmentRow, queues: Sequence[QueueEntries]) -> Iterator[PlacedRecords]:
    """The records of these ranges, in log order. Raises StoreCorruptError when bytes of the log are missing."""
    memory = memoryview(bytearray(READ_SIZE))
    while True:
        for queue in queues:
            queue.fill()
        queues = [queue for queue in queues if len(queue.log_offsets)]
        if not queues:
            return
        # behind the last entry that was read of a queue may come others of it
        known = min((int(queue.log_offsets[-1]) for queue in queues if queue.has_more), default=None)
        end = np.iinfo(np.int64).max if known is None else known + 1
        taken = [queue.take(end) for queue in queues]
        log_offsets = np.concatenate([each[0] for each in taken])
        sizes = np.concatenate([each[1] for each in taken])
        if len(taken) > 1:
            order = np.argsort(log_offsets, kind="stable")
            log_offsets, sizes = log_offsets[order], sizes[order]
            if (log_offsets[1:] == log_offsets[:-1]).any():
                # a record that is in several queues is one record
                log_offsets, first = np.unique(log_offsets, return_index=True)
                sizes = sizes[first]
        start = 0
        while start < len(log_offsets):
            stop = _piece_end(log, log_offsets, sizes, start)
            size = int(log_offsets[stop - 1] + sizes[stop - 1] - log_offsets[start])
            if size > len(memory):
                memory = memoryview(bytearray(size))
            yield _read_piece(log, log_offsets[start:stop], sizes[start:stop], memory[:size])
            start = stop


def _piece_end(log: SegmentRow, log_offsets: NDArray[np.int64], sizes: NDArray[np.int64], start: int) -> int:
    """Up to which record one read goes: the buffer, the file, or a large gap ends it."""
    first = int(log_offsets[start])
    segment = log.locate(first)
    limit = first + READ_SIZE if segment is None else min(first + READ_SIZE, segment.end_offset)
    stop = max(int(np.searchsorted(log_offsets, limit)), start + 1)
    ends = log_offsets[start:stop] + sizes[start:stop]
    if stop > start + 1 and ends[-1] > limit:
        stop -= 1
        ends = ends[:-1]
    gaps = np.flatnonzero(log_offsets[start + 1 : stop] - ends[:-1] > GAP_READ_MAX)
    return start + 1 + int(gaps[0]) if len(gaps) else stop


def _read_piece(
    log: SegmentRow, log_offsets: NDArray[np.int64], sizes: NDArray[np.int64], memory: memoryview
) -> PlacedRecords:
    first = int(log_offsets[0])
    segment = log.locate(first)
    got = 0 if segment is None else log.read_into(segment, first - segment.base_offset, memory)
    if got < len(memory):
        raise StoreCorruptError(
            f"{log.folder} has no bytes at log offset {first + got}, where a queue points to a record: the store has "
            "removed the file since the work was planned, or a file is missing"
        )
    return PlacedRecords(first, memory, log_offsets - first, sizes)


def check_placed(records: PlacedRecords, *, bodies: bool) -> RecordParts:
    """The parts of these records, at least one. Raises StoreCorruptError unless each is what its queue says.

    With `bodies` each must have its checksum, too.
    """
    try:
        parts = locate_parts(records.data, records.positions)
    except RecordError as error:
        raise StoreCorruptError(f"log offset {records.log_offset} and on: {error}") from error
    head = parts.head
    is_wrong = (head["store_size"] != records.sizes) | (head["log_offset"] != records.positions + records.log_offset)
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise StoreCorruptError(
            f"the record at log offset {records.log_offset + int(records.positions[row])} is not the one its queue "
            f"points to: it says log offset {int(head['log_offset'][row])} and size {int(head['store_size'][row])}"
        )
    if bodies:
        _check_bodies(records, parts)
    return parts


def _check_bodies(records: PlacedRecords, parts: RecordParts) -> None:
    found = checksums(np.frombuffer(records.data, np.uint8), parts.body_start, parts.body_end)
    # a record without a body has any checksum
    is_wrong = (found != parts.head["body_crc"]) & (parts.body_start != parts.body_end)
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise StoreCorruptError(
            f"the body of the record at log offset {records.log_offset + int(records.positions[row])} is damaged: its "
            f"checksum is {found[row]}, stored is {parts.head['body_crc'][row]}; turn the check off to read it all "
            "the same"
        )


def whole_end(log: SegmentRow, queue: SegmentRow, start_offset: int, end_offset: int) -> int:
    """The queue offset behind the last entry that points to a whole record; a crash may leave entries that do not."""
    lowest = max(start_offset, end_offset - _TORN_MAX)
    while end_offset > lowest:
        entry = entry_at(queue, end_offset - 1)
        if entry is not None and (entry.size == BLANK_SIZE or _is_whole(log, entry.log_offset, entry.size)):
            return end_offset
        end_offset -= 1
    return end_offset


def _is_whole(log: SegmentRow, log_offset: int, size: int) -> bool:
    data = log.read(log_offset, size)
    try:
        message = decode_record(data, 0)
    except RecordError:
        return False
    is_itself = message.log_offset == log_offset and message.store_size == size == len(data)
    return is_itself and (not message.body or message.body_crc == body_crc(message.body))
