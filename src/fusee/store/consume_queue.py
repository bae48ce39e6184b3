"""One queue of one topic: an entry of 20 bytes for each message, in queue order (Java: ConsumeQueue).

    entry:   int64 log offset | int32 size of the record | int64 tags code
    blank:           0        |      2147483647          |       0

Entry N of a queue is message N of that queue: its place is N * 20 in a row of files that are named by their first
byte. Nothing else is stored. Where a queue ends follows from the entries (the first that is not valid: log offset
below 0 or size not above 0), the first message from the log (entries below the log's min offset point to nothing).

Invariants
* Entries are in log order: their log offsets rise. Every search here is a binary search that rests on it.
* What lies behind the last entry of the last file is zero.
* A queue whose first message is not number 0 begins with blanks up to it, in the first file only. Messages that are
  missing between two others (a log segment was lost) become blanks as well, but carry the log offset where the message
  before them ended, so that log offsets keep rising. A blank is no message and counts for nothing.

Appending. Records come in log order and may come again after recovery: what the queue has (record end at or below
`max_log_offset`) is ignored. A record from further on in the log that claims a queue offset which is taken begins the
rest of the queue anew: its topic was deleted and made again. (The reference ignores it and loses the message.)

Crashes. Pages reach the disk in any order, so after an unclean stop there may be holes, and entries behind them.
`recover` reads the last three files, as the reference does, and those before them back to one that begins with an
entry known to have been synced; it goes up to the first entry that is not valid or not in log order, and clears
everything behind it, durably. A torn entry may still look good: whoever recovers truncates to what was synced and
dispatches the rest again. After a clean stop `open` finds the end by binary search and reads next to nothing.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np

from fusee.errors import StoreCorruptError
from fusee.store.file_pool import FilePool, FileRow
from fusee.store.layout import CONSUME_ENTRY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fusee.store.file_pool import PooledFile
    from fusee.store.results import Dispatched

    StoreTimeOf = Callable[[int], int | None]
    """Store time of the record at a log offset; None when it is not there."""
    Unit = tuple[int, int, int, int, int]
    """What a get needs of an entry: queue offset, log offset, size, tags code, number of messages."""

ENTRY: Final = Struct(">qiq")
ENTRY_DTYPE: Final = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
BLANK_SIZE: Final = 2_147_483_647
GAP_ENTRIES_MAX: Final = 3_000_000
"""Missing messages in a row that are bridged with blanks (60 MB)."""
RECOVERED_FILES: Final = 3
UNITS_READ: Final = 200
"""Entries that are read at a time when they are looked at one after the other."""
EXTENSION_ADDRESS_MAX: Final = -2_147_483_649
"""A tags code up to this is an address in the reference's extension file, which says nothing about the tag."""

_ENTRY_SIZE: Final = CONSUME_ENTRY_SIZE
_LOG_OFFSET: Final = Struct(">q")
_PLACE: Final = Struct(">qi")
_SCAN_COUNTS: Final = (200, 2_000, 20_000, 60_000)
NOWHERE: Final = 1 << 63
"""The log offset of no message: behind every one that there is."""


class Boundary(Enum):
    """Which message a search by time gives (Java: BoundaryType)."""

    LOWER = "lower"
    """The first that was stored at or after the time; the next one to come when there is none."""
    UPPER = "upper"
    """The last that was stored at or before the time; the first of the queue when there is none."""


def matches_tags(tags_codes: NDArray[np.int64], wanted: Collection[int]) -> NDArray[np.bool_]:
    """Which of these tags codes are wanted ones; as the reference does, by their lower 32 bits."""
    codes = tags_codes.astype(np.int64)
    found = codes <= EXTENSION_ADDRESS_MAX
    codes = codes.astype(np.int32).astype(np.int64)
    if len(wanted) <= 16:
        for code in wanted:
            found |= codes == code
    else:
        found |= np.isin(codes, np.fromiter(wanted, np.int64, len(wanted)))
    return found


class EntryFiles:
    """Entries of one size in log order, in a row of files; found by their index from the beginning of time.

    What entries of every kind of queue have in common: they begin with log offset and size.
    """

    __slots__ = ("_check", "_dtype", "end", "per_file", "row", "size")

    def __init__(self, row: FileRow, dtype: np.dtype[np.void], check: Callable[[NDArray[np.void]], NDArray[np.bool_]]):
        """`check` says which entries are good as far as their own kind is concerned; each is given the one before."""
        self.row = row
        self.size = dtype.itemsize
        self.per_file = row.segment_size // dtype.itemsize
        self.end = 0
        """The index behind the last entry."""
        self._dtype = dtype
        self._check = check

    @property
    def first(self) -> int:
        """The first index that has a place in a file."""
        return self.row.base_offset // self.size

    def open(self) -> None:
        """Take up the files, and find the end by binary search: behind it nothing is valid, if the stop was clean."""
        row = self.row
        row.open()
        self.end = self.first
        for number in range(len(row.files) - 1, -1, -1):
            low = self.first + number * self.per_file
            if not self._is_valid(low):
                continue
            high = low + self.per_file
            low += 1
            # Short queues are many: gallop before halving.
            reach = low + 1
            while reach < high and self._is_valid(reach):
                low = reach + 1
                reach += reach - self.first - number * self.per_file
            high = min(high, reach)
            while low < high:
                middle = (low + high) // 2
                if self._is_valid(middle):
                    low = middle + 1
                else:
                    high = middle
            self.end = low
            return

    def recover(self, synced_offset: int) -> list[PooledFile]:
        """Read the last files, and end where an entry is not good. Gives the file that must be synced for that."""
        index = self.first + max(len(self.row.files) - RECOVERED_FILES, 0) * self.per_file
        while index > self.first and not (self._is_valid(index) and self.place_of(index)[0] < synced_offset):
            index -= self.per_file
        before: NDArray[np.void] = np.zeros(1, self._dtype)
        step = 0
        while index * self.size < self.row.end_offset:
            entries = self._array(index, _SCAN_COUNTS[step])
            step = min(step + 1, len(_SCAN_COUNTS) - 1)
            pairs = np.concatenate((before, entries))
            log_offsets = pairs["log_offset"].astype(np.int64)
            sizes = pairs["size"].astype(np.int64)
            ends = log_offsets + np.where(sizes == BLANK_SIZE, 0, sizes)
            good = (log_offsets[1:] >= ends[:-1]) & (sizes[1:] > 0) & self._check(pairs)
            if not good.all():
                index += int(good.argmin())
                break
            index += len(entries)
            before = entries[-1:]
        return self.cut(index)

    def read(self, index: int, count: int) -> bytes:
        """The bytes of these entries, up to the border of their file."""
        return self.row.read(index * self.size, min(count, self.end - index) * self.size) if index < self.end else b""

    def array(self, index: int, count: int) -> NDArray[np.void]:
        """The same as an array."""
        return np.frombuffer(self.read(index, count), self._dtype)

    def place_of(self, index: int) -> tuple[int, int]:
        """(log offset, size) of an entry that is there."""
        log_offset, size = _PLACE.unpack(self.row.read(index * self.size, _PLACE.size))
        return log_offset, size

    def write(self, data: bytes, index: int) -> None:
        """Write whole entries here, which end the row then. Raises StoreFullError or StoreError."""
        self.row.write(data, index * self.size)
        self.end = index + len(data) // self.size

    def first_at(self, log_offset: int, low: int) -> int:
        """The first entry from index `low` on whose log offset is at or above this one."""
        high = self.end
        while low < high:
            middle = (low + high) // 2
            if self.place_of(middle)[0] < log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def max_log_offset(self) -> int:
        """Where the record of the last entry ends; 0 when there is none."""
        if self.end <= self.first:
            return 0
        log_offset, size = self.place_of(self.end - 1)
        return log_offset + (0 if size == BLANK_SIZE else size)

    def cut(self, index: int) -> list[PooledFile]:
        """End at this index. Gives the file that must be synced for that."""
        file = self.row.cut(index * self.size)
        self.end = index if self.row.files else 0
        return [file] if file is not None else []

    def cut_log(self, log_offset: int) -> list[PooledFile]:
        """End before the first entry whose record ends behind this log offset."""
        index = self.first_at(log_offset, self.first)
        if index > self.first:
            start, size = self.place_of(index - 1)
            if size != BLANK_SIZE and start + size > log_offset:
                index -= 1
        return self.cut(index)

    def drop_before(self, log_offset: int) -> None:
        """Remove the files all of whose entries point before this log offset; never the last one."""
        while self.first + self.per_file < self.end and self.place_of(self.first + self.per_file - 1)[0] < log_offset:
            self.row.drop_first()

    def remove(self) -> None:
        """Remove every file."""
        self.row.remove()
        self.end = 0

    def _is_valid(self, index: int) -> bool:
        log_offset, size = self.place_of(index)
        return log_offset >= 0 and size > 0

    def _array(self, index: int, count: int) -> NDArray[np.void]:
        return np.frombuffer(self.row.read(index * self.size, count * self.size), self._dtype)


class ConsumeQueue:
    """The messages of one queue, by their number."""

    __slots__ = ("_files", "_min_log_offset", "max_log_offset", "min_offset", "next_offset", "queue_id", "topic")

    entry_size: Final = CONSUME_ENTRY_SIZE

    def __init__(self, topic: str, queue_id: int, folder: Path, segment_size: int, pool: FilePool) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        """The first message whose record is in the log; `next_offset` when there is none."""
        self.next_offset = 0
        """The number of the next message; one more than the last one there."""
        self.max_log_offset = 0
        """Where the record of the last message ends."""
        row = FileRow(folder, segment_size, pool, setting="mappedFileSizeConsumeQueue")
        self._files = EntryFiles(row, ENTRY_DTYPE, _always_good)
        # Of the entry at min_offset, so that retention passes over a queue without reading it.
        self._min_log_offset = NOWHERE

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}/{self.queue_id} [{self.min_offset}, {self.next_offset})>"

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

    def _set_limits(self, min_offset: int) -> None:
        self.next_offset = self._files.end
        self.max_log_offset = self._files.max_log_offset()
        self._set_min(min_offset)

    def _set_min(self, queue_offset: int) -> None:
        """Begin with this message, or the first behind it that is no blank."""
        files = self._files
        queue_offset = max(queue_offset, files.first)
        step = 0
        while queue_offset < self.next_offset:
            log_offset, size = files.place_of(queue_offset)
            if size != BLANK_SIZE:
                self.min_offset = queue_offset
                self._min_log_offset = log_offset
                return
            entries = files.array(queue_offset, _SCAN_COUNTS[step])
            step = min(step + 1, len(_SCAN_COUNTS) - 1)
            messages = np.flatnonzero(entries["size"] != BLANK_SIZE)
            queue_offset += int(messages[0]) if len(messages) else len(entries)
        self.min_offset = self.next_offset
        self._min_log_offset = NOWHERE

    # Appending

    def append(self, records: Sequence[Dispatched]) -> None:
        """Add an entry for each of these records of this queue, in log order, that is not there yet.

        Raises StoreFullError or StoreError; the queue has none of what failed then, and the records may come again.
        """
        pack = ENTRY.pack
        start = next_offset = self.next_offset
        max_log_offset = self.max_log_offset
        parts: list[bytes] = []
        for record in records:
            log_offset = record.log_offset
            end = log_offset + record.size
            if end <= max_log_offset:
                continue
            if record.queue_offset != next_offset:
                self._write(start, parts, max_log_offset)
                self._jump(record.queue_offset, log_offset)
                start = next_offset = record.queue_offset
                parts = []
            parts.append(pack(log_offset, record.size, record.tags_code))
            next_offset += 1
            max_log_offset = end
        self._write(start, parts, max_log_offset)

    def append_packed(self, queue_offset: int, entries: NDArray[np.void]) -> bool:
        """Add these entries, of consecutive messages from this number on, as they are; False when they do not fit.

        They fit when the first is the next message and lies behind everything in the log that is here.
        """
        if queue_offset != self.next_offset or int(entries["log_offset"][0]) < self.max_log_offset:
            return False
        last = entries[-1]
        self._write(queue_offset, [entries.tobytes()], int(last["log_offset"]) + int(last["size"]), len(entries))
        return True

    def _write(self, start: int, parts: list[bytes], max_log_offset: int, count: int | None = None) -> None:
        if not parts:
            return
        self._files.write(b"".join(parts), start)
        if self._min_log_offset == NOWHERE:
            (self._min_log_offset,) = _LOG_OFFSET.unpack_from(parts[0])
            self.min_offset = start
        self.next_offset = start + (len(parts) if count is None else count)
        self.max_log_offset = max_log_offset

    def _jump(self, queue_offset: int, log_offset: int) -> None:
        """Make this the next message: behind a gap, or in place of what is there."""
        files = self._files
        if queue_offset < self.next_offset:
            if queue_offset < files.first:
                files.remove()
            for file in files.cut(queue_offset):
                file.sync()
            self._set_limits(self.min_offset)
        if files.row.files:
            first, log_end = self.next_offset, self.max_log_offset
        else:
            # A new row, which begins with the file that holds this message.
            first, log_end = queue_offset - queue_offset % files.per_file, 0
        missing = queue_offset - first
        if missing > GAP_ENTRIES_MAX:
            folder = files.row.folder
            raise StoreCorruptError(
                f"{folder}: the record at log offset {log_offset} is message {queue_offset} of this queue, which ends "
                f"at {self.next_offset}: {missing} messages are missing. Remove {folder.parent.parent}, which is built "
                "anew from the commit log then"
            )
        if missing:
            files.write(ENTRY.pack(log_end, BLANK_SIZE, 0) * missing, first)
        self.next_offset = queue_offset
        if self._min_log_offset == NOWHERE:
            self.min_offset = queue_offset

    # Reading

    def read(self, queue_offset: int, count: int) -> bytes:
        """The raw entries of up to `count` messages from here to the end of the queue or of the file."""
        return self._files.read(queue_offset, count) if queue_offset >= self.min_offset else b""

    def entries(self, queue_offset: int, count: int) -> NDArray[np.void]:
        """The same as an array with the fields log_offset, size and tags_code."""
        return np.frombuffer(self.read(queue_offset, count), ENTRY_DTYPE)

    def units(self, queue_offset: int, count: int) -> Iterator[Unit]:
        """The same one after the other: queue offset, log offset, size, tags code, number of messages (1)."""
        end = min(queue_offset + count, self.next_file(queue_offset))
        while raw := self.read(queue_offset, min(end - queue_offset, UNITS_READ)) if queue_offset < end else b"":
            for log_offset, size, tags_code in ENTRY.iter_unpack(raw):
                yield queue_offset, log_offset, size, tags_code, 1
                queue_offset += 1

    def next_file(self, queue_offset: int) -> int:
        """The first message of the file behind the one of this message."""
        return queue_offset - queue_offset % self._files.per_file + self._files.per_file

    def log_offset_of(self, queue_offset: int) -> int | None:
        """Where the record of this message is; None when the queue does not have it."""
        raw = self.read(queue_offset, 1)
        return None if not raw else int(_LOG_OFFSET.unpack_from(raw)[0])

    def offset_by_time(self, timestamp_ms: int, boundary: Boundary, store_time_of: StoreTimeOf) -> int:
        """The message that a search by time gives, from `min_offset` to `next_offset`.

        Store times must rise with the log, as they do. Looks at about log2(n) records through `store_time_of`.
        """
        place_of = self._files.place_of
        last = timestamp_ms if boundary is Boundary.UPPER else timestamp_ms - 1
        low, high = self.min_offset, self.next_offset
        while low < high:
            middle = (low + high) // 2
            store_time_ms = store_time_of(place_of(middle)[0])
            if store_time_ms is None or store_time_ms <= last:
                low = middle + 1
            else:
                high = middle
        if boundary is Boundary.LOWER or low == self.min_offset:
            return low
        return low - 1

    def count_matching(self, queue_offset: int, tags_codes: Collection[int]) -> int:
        """How many messages from this one to the end have one of these tags codes."""
        count = 0
        queue_offset = max(queue_offset, self.min_offset)
        while queue_offset < self.next_offset:
            entries = self.entries(queue_offset, _SCAN_COUNTS[-1])
            wanted = matches_tags(entries["tags_code"], tags_codes) & (entries["size"] != BLANK_SIZE)
            count += int(np.count_nonzero(wanted))
            queue_offset += len(entries)
        return count

    # Forgetting

    def truncate(self, log_offset: int) -> None:
        """Forget the messages whose records end behind this log offset; durable when this returns."""
        for file in self.cut(log_offset):
            file.sync()

    def cut(self, log_offset: int) -> list[PooledFile]:
        """The same, durable when the files it gives are synced."""
        if self.max_log_offset <= log_offset:
            return []
        files = self._files.cut_log(log_offset)
        self._set_limits(min(self.min_offset, self._files.end))
        return files

    def drop_before(self, log_offset: int) -> None:
        """The log begins here now: forget messages before it, and the files that hold only such; never the last."""
        if log_offset <= self._min_log_offset:
            return
        self._files.drop_before(log_offset)
        self._set_min(self._files.first_at(log_offset, max(self.min_offset, self._files.first)))

    def remove(self) -> None:
        """Remove the queue from the disk; it is an empty one then."""
        self._files.remove()
        self._set_limits(0)


def _always_good(pairs: NDArray[np.void]) -> NDArray[np.bool_]:
    return np.ones(len(pairs) - 1, np.bool_)
