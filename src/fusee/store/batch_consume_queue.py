"""One queue of a topic whose records may be whole batches: an entry of 46 bytes for each record.

    int64 log offset | int32 size | int64 tags code | int64 store time | int64 base offset | int16 count |
    int32 compacted offset, -1 | int32 reserved, 0

A record of `count` messages takes the queue offsets [base, base + count). So a queue offset does not give the place of
its entry, as it does in `consume_queue`; it is found by binary search over the base offsets, which rise. Everything
else is as there: entries are in log order, files are named by their first byte, recovery and retention are the same.
The entry carries the store time, so a search by time does not go to the log.

Topics with the attribute queue.type=BatchCQ have such queues (Java: BatchConsumeQueue). A single message in such a
topic is a batch of one; the reference drops it. A search by time gives what it gives in a plain queue, as the queue
offset of the first message of a record: the reference answers the last record instead of the end when the time is
behind every record, and the first one for an upper boundary between two records.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np

from fusee.store.consume_queue import NOWHERE, UNITS_READ, Boundary, EntryFiles, matches_tags
from fusee.store.file_pool import FilePool, FileRow
from fusee.store.layout import BATCH_CONSUME_ENTRY_SIZE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fusee.store.consume_queue import StoreTimeOf, Unit
    from fusee.store.file_pool import PooledFile
    from fusee.store.results import Dispatched

BATCH_ENTRY: Final = Struct(">qiqqqhii")
BATCH_ENTRY_DTYPE: Final = np.dtype(
    [
        ("log_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_time_ms", ">i8"),
        ("base_offset", ">i8"),
        ("count", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
BATCH_COUNT_MAX: Final = 32_767
_NOT_COMPACTED: Final = -1
_SCAN_COUNT: Final = 20_000


class BatchConsumeQueue:
    """The records of one queue, by the numbers of their messages."""

    __slots__ = ("_files", "_min_log_offset", "max_log_offset", "min_offset", "next_offset", "queue_id", "topic")

    entry_size: Final = BATCH_CONSUME_ENTRY_SIZE

    def __init__(self, topic: str, queue_id: int, folder: Path, segment_size: int, pool: FilePool) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        """The first message whose record is in the log; `next_offset` when there is none."""
        self.next_offset = 0
        """The number of the next message."""
        self.max_log_offset = 0
        """Where the last record ends."""
        row = FileRow(folder, segment_size, pool, setting="mapperFileSizeBatchConsumeQueue")
        self._files = EntryFiles(row, BATCH_ENTRY_DTYPE, _check_batches)
        self._min_log_offset = NOWHERE

    def __repr__(self) -> str:
        return f"<BatchConsumeQueue {self.topic}/{self.queue_id} [{self.min_offset}, {self.next_offset})>"

    # Opening and recovery

    def open(self) -> None:
        """Take up the files and find the end; reads a few entries. Raises StoreError or StoreCorruptError."""
        self._files.open()
        self._set_limits(0)

    def recover(self, synced_offset: int = 0) -> list[PooledFile]:
        """Verify the end of the queue and cut it where it is not good. The files to sync for that.

        What points before `synced_offset` in the log is known to be on disk.
        """
        files = self._files.recover(synced_offset)
        self._set_limits(0)
        return files

    def _set_limits(self, first: int) -> None:
        files = self._files
        self.max_log_offset = files.max_log_offset()
        self.next_offset = 0
        if files.end > files.first:
            last = self._entry(files.end - 1)
            self.next_offset = last[4] + last[5]
        self._set_min(first)

    def _set_min(self, index: int) -> None:
        """Begin with the record of this entry."""
        index = max(index, self._files.first)
        if index < self._files.end:
            entry = self._entry(index)
            self._min_log_offset, self.min_offset = entry[0], entry[4]
        else:
            self._min_log_offset, self.min_offset = NOWHERE, self.next_offset

    # Appending

    def append(self, records: Sequence[Dispatched]) -> None:
        """Add an entry for each of these records of this queue, in log order, that is not there yet.

        Raises StoreFullError or StoreError; the queue has none of what failed then, and the records may come again.
        """
        next_offset = self.next_offset
        max_log_offset = self.max_log_offset
        parts: list[bytes] = []
        base_offset = 0
        for record in records:
            end = record.log_offset + record.size
            if end <= max_log_offset:
                continue
            if record.queue_offset < next_offset:
                # Taken already: the topic was deleted and made again.
                self._write(parts, base_offset, next_offset, max_log_offset)
                parts = []
                self._restart(record.queue_offset)
            count = min(max(record.batch_count, 1), BATCH_COUNT_MAX)
            if not parts:
                base_offset = record.queue_offset
            parts.append(
                BATCH_ENTRY.pack(
                    record.log_offset,
                    record.size,
                    record.tags_code,
                    record.store_timestamp_ms,
                    record.queue_offset,
                    count,
                    _NOT_COMPACTED,
                    0,
                )
            )
            next_offset = record.queue_offset + count
            max_log_offset = end
        self._write(parts, base_offset, next_offset, max_log_offset)

    def _write(self, parts: list[bytes], base_offset: int, next_offset: int, max_log_offset: int) -> None:
        if not parts:
            return
        self._files.write(b"".join(parts), self._files.end)
        if self._min_log_offset == NOWHERE:
            self._min_log_offset = int(BATCH_ENTRY.unpack(parts[0])[0])
            self.min_offset = base_offset
        self.next_offset = next_offset
        self.max_log_offset = max_log_offset

    def _restart(self, queue_offset: int) -> None:
        index = self._index_of(queue_offset)
        if index < self._files.end and self._entry(index)[4] < queue_offset:
            index += 1
        first = self._first_index()
        for file in self._files.cut(index):
            file.sync()
        self._set_limits(min(first, index))

    # Reading

    def entries(self, queue_offset: int, count: int) -> NDArray[np.void]:
        """Up to `count` entries from the one of this message to the end of the queue or of the file."""
        if not self.min_offset <= queue_offset < self.next_offset:
            return np.empty(0, BATCH_ENTRY_DTYPE)
        return self._files.array(self._index_of(queue_offset), count)

    def units(self, queue_offset: int, count: int) -> Iterator[Unit]:
        """The same one after the other: base offset, log offset, size, tags code, number of messages."""
        if not self.min_offset <= queue_offset < self.next_offset:
            return
        index = self._index_of(queue_offset)
        end = min(index + count, index - index % self._files.per_file + self._files.per_file)
        while raw := self._files.read(index, min(end - index, UNITS_READ)) if index < end else b"":
            index += len(raw) // BATCH_CONSUME_ENTRY_SIZE
            for entry in BATCH_ENTRY.iter_unpack(raw):
                yield entry[4], entry[0], entry[1], entry[2], entry[5]

    def next_file(self, queue_offset: int) -> int:
        """Where a get goes on when there is no entry: at the first message, as in the reference."""
        return 0

    def log_offset_of(self, queue_offset: int) -> int | None:
        """Where the record with this message is; None when the queue does not have it."""
        entries = self.entries(queue_offset, 1)
        return int(entries["log_offset"][0]) if len(entries) else None

    def offset_by_time(self, timestamp_ms: int, boundary: Boundary, store_time_of: StoreTimeOf | None = None) -> int:
        """The first message of the record that a search by time gives, from `min_offset` to `next_offset`."""
        last = timestamp_ms if boundary is Boundary.UPPER else timestamp_ms - 1
        first = low = self._first_index()
        high = self._files.end
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[3] <= last:
                low = middle + 1
            else:
                high = middle
        if boundary is Boundary.UPPER and low > first:
            low -= 1
        return int(self._entry(low)[4]) if low < self._files.end else self.next_offset

    def count_matching(self, queue_offset: int, tags_codes: Collection[int]) -> int:
        """How many messages from this one to the end are in records with one of these tags codes."""
        count = 0
        queue_offset = max(queue_offset, self.min_offset)
        index = self._index_of(queue_offset)
        while index < self._files.end and queue_offset < self.next_offset:
            entries = self._files.array(index, _SCAN_COUNT)
            bases = entries["base_offset"].astype(np.int64)
            counts = np.clip(bases + entries["count"] - queue_offset, 0, entries["count"])
            count += int(counts[matches_tags(entries["tags_code"], tags_codes)].sum())
            index += len(entries)
        return count

    def _entry(self, index: int) -> tuple[int, ...]:
        return BATCH_ENTRY.unpack(self._files.read(index, 1))

    def _index_of(self, queue_offset: int) -> int:
        """The last entry that begins at or before this message; the first one when none does."""
        low, high = self._files.first, self._files.end
        while high - low > 1:
            middle = (low + high) // 2
            if self._entry(middle)[4] <= queue_offset:
                low = middle
            else:
                high = middle
        return low

    def _first_index(self) -> int:
        """The entry of `min_offset`; the end when there is none."""
        return self._index_of(self.min_offset) if self.min_offset < self.next_offset else self._files.end

    # Forgetting

    def truncate(self, log_offset: int) -> None:
        """Forget the records that end behind this log offset; durable when this returns."""
        for file in self.cut(log_offset):
            file.sync()

    def cut(self, log_offset: int) -> list[PooledFile]:
        """The same, durable when the files it gives are synced."""
        if self.max_log_offset <= log_offset:
            return []
        first = self._first_index()
        files = self._files.cut_log(log_offset)
        self._set_limits(min(first, self._files.end))
        return files

    def drop_before(self, log_offset: int) -> None:
        """The log begins here now: forget records before it, and the files that hold only such; never the last."""
        if log_offset <= self._min_log_offset:
            return
        first = self._first_index()
        self._files.drop_before(log_offset)
        self._set_min(self._files.first_at(log_offset, max(first, self._files.first)))

    def remove(self) -> None:
        """Remove the queue from the disk; it is an empty one then."""
        self._files.remove()
        self._set_limits(0)


def _check_batches(pairs: NDArray[np.void]) -> NDArray[np.bool_]:
    bases = pairs["base_offset"].astype(np.int64)
    counts = pairs["count"].astype(np.int64)
    good: NDArray[np.bool_] = (counts[1:] > 0) & (bases[1:] >= bases[:-1] + counts[:-1])
    return good
