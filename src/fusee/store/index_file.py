"""One file of the key index: a hash table of chains, newest entry first (Java: IndexFile and IndexHeader).

Layout, big-endian; S slots (maxHashSlotNum) and N entries (maxIndexNum):

       position  size   what
              0     8   store time of the file's first record, ms
              8     8   store time of its last record, ms
             16     8   log offset of its first record
             24     8   log offset of its last record
             32     4   slots in use
             36     4   count: number that the next entry gets; 1 when empty
             40   4*S   slots: number of the newest entry whose hash falls here, 0 for none
         40+4*S  20*N   entries: hash 4, log offset 8, seconds since the first record 4, previous entry of this slot 4

Entry 0 cannot be pointed to, so the reference leaves its 20 bytes empty. Here they hold the *mark* of this program:

              0     4   count of entries that were on disk when the mark was written
              4     8   log offset of the last record that these cover
             12     4   CRC-32 of the 12 bytes before it
             16     4   zero

Theory of operation
-------------------
Entries are only ever added behind the last, so they are in log order and a batch of them is one write. Slots are
scattered; while a file takes entries, its slots live in memory (4*S bytes, those never touched cost nothing), reading
uses them there, and `collect` writes the pages that changed, with the header, which is consistent with them.

A crash can leave any part of what was written since the last sync. Nothing is believed then but the mark, which speaks
of entries that had been synced before it was written, and the header's first-record fields, which are synced when
the file is made and never change. Slots are computed anew from the entries (`repair`): they are derived from what is
derived. A file without a mark was written by the reference; the only promise there is the checkpoint's time, so entries
older than that are kept. The reference deletes the whole file instead, and does not always index its records again
(RocketMQ issues 3868 and 8007). After a clean stop header and slots are believed, whoever wrote them.

The time of a new file's first entry is 0 here; the reference counts it from the end of the file before.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import numpy as np

from fusee.errors import StoreCorruptError, StoreError
from fusee.store.index_entries import enter, leave
from fusee.store.layout import INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fusee.store.filesystem import File, FileSystem

_HEADER: Final = Struct(">qqqqii")
_ENTRY: Final = Struct(">iqii")
_LOG_OFFSET: Final = Struct(">q")
_MARK: Final = Struct(">iqI4x")
_MARK_CHECKED: Final = Struct(">iq")
_ENTRY_TYPE: Final = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_SLOTS_PER_PAGE: Final = 1024
_SCAN_ENTRIES: Final = 1 << 18


class IndexShape(NamedTuple):
    """How many slots and entries each file has."""

    slots: int
    entries: int

    @property
    def entries_position(self) -> int:
        """Where entry 0 is."""
        return INDEX_HEADER_SIZE + self.slots * INDEX_SLOT_SIZE

    @property
    def file_size(self) -> int:
        return self.entries_position + self.entries * INDEX_ENTRY_SIZE


class WalkBudget:
    """How many entries a look-up may still visit; `is_spent` when it wanted more."""

    __slots__ = ("is_spent", "steps")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.is_spent = False


class _TrackedFile:
    """A file that knows how much of what was written to it is on disk."""

    def __init__(self, inner: File) -> None:
        self._inner = inner
        self.path = inner.path
        self.size = inner.size
        self.writes = 0
        self.synced_writes = 0

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        try:
            self._inner.write(data, position)
        finally:
            # Counted when it is over: a sync on another thread counts what it certainly covers.
            self.writes += 1

    def write_all(self, parts: Sequence[bytes | memoryview], position: int) -> None:
        for part in parts:
            self.write(part, position)
            position += len(part)

    def read(self, position: int, size: int) -> bytes:
        return self._inner.read(position, size)

    def view(self) -> memoryview:
        return self._inner.view()

    def written_ranges(self, start: int) -> Sequence[tuple[int, int]]:
        return self._inner.written_ranges(start)

    def forget(self, start: int, size: int) -> None:
        self._inner.forget(start, size)

    def clear_from(self, position: int) -> None:
        try:
            self._inner.clear_from(position)
        finally:
            self.writes += 1

    def set_blocks_aside(self) -> None:
        self._inner.set_blocks_aside()

    def sync(self) -> None:
        covered = self.writes
        self._inner.sync()
        self.synced_writes = covered

    def close(self) -> None:
        self._inner.close()


class IndexFile:
    """One file. Opened on the first use and again after `release`."""

    def __init__(self, path: Path, shape: IndexShape, files: FileSystem) -> None:
        self.path = path
        self.shape = shape
        self.begin_timestamp_ms = 0
        self.end_timestamp_ms = 0
        self.begin_log_offset = 0
        self.end_log_offset = 0
        self.slots_used = 0
        self.count = 1
        self._files = files
        self._file: _TrackedFile | None = None
        self._slots: NDArray[np.int32] | None = None
        self._changed_pages: NDArray[np.bool_] | None = None
        self._is_changed = False
        # (count, last record) that the mark speaks of, and that the file had after so many writes.
        self._marked = (1, 0)
        self._collected = (1, 0)
        self._collected_writes = 0

    @classmethod
    def create(
        cls, path: Path, shape: IndexShape, files: FileSystem, *, log_offset: int, timestamp_ms: int
    ) -> IndexFile:
        """A new file that begins with this record; size and header are on disk, the name is the caller's to sync."""
        index_file = cls(path, shape, files)
        index_file.begin_timestamp_ms = index_file.end_timestamp_ms = timestamp_ms
        index_file.begin_log_offset = index_file.end_log_offset = log_offset
        index_file._collected = (1, log_offset)
        index_file._file = file = _TrackedFile(files.open(path, size=shape.file_size))
        index_file._write_header()
        index_file._write_mark(1, log_offset)
        file.sync()
        return index_file

    @classmethod
    def load(cls, path: Path, shape: IndexShape, files: FileSystem) -> IndexFile:
        """A file that is there. Raises StoreError when it has another size than the settings say."""
        size = files.size(path)
        if size != shape.file_size:
            raise StoreError(
                f"{path} has {size} bytes where {shape.file_size} follow from maxHashSlotNum={shape.slots} and "
                f"maxIndexNum={shape.entries}; set them as they were, or remove the file to have it made anew"
            )
        index_file = cls(path, shape, files)
        (
            index_file.begin_timestamp_ms,
            index_file.end_timestamp_ms,
            index_file.begin_log_offset,
            index_file.end_log_offset,
            index_file.slots_used,
            index_file.count,
        ) = _HEADER.unpack_from(index_file._view())
        index_file.count = max(index_file.count, 1)
        index_file._collected = (index_file.count, index_file.end_log_offset)
        mark = index_file._read_mark()
        if mark is None and index_file.is_full:
            # Finished by the reference: nothing more happens to it.
            mark = index_file._collected
        index_file._marked = mark or (1, index_file.begin_log_offset)
        return index_file

    # What is in it

    @property
    def is_full(self) -> bool:
        return self.count >= self.shape.entries

    @property
    def is_empty(self) -> bool:
        return self.count <= 1

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return max(self.shape.entries - self.count, 0)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to write or to sync."""
        is_synced = self._file is None or self._file.synced_writes == self._file.writes
        return is_synced and not self._is_changed and (self.count, self.end_log_offset) == self._marked

    @property
    def is_plausible(self) -> bool:
        """Whether the header can be true."""
        return (
            1 <= self.count <= self.shape.entries
            and 0 <= self.slots_used <= min(self.count - 1, self.shape.slots)
            and 0 <= self.begin_log_offset <= self.end_log_offset
            and self.begin_timestamp_ms >= 0
        )

    def is_finished(self, safe_timestamp_ms: int) -> bool:
        """Whether this file is full and was certainly on disk as it is, though the last stop was unclean."""
        if not (self.is_plausible and self.is_full):
            return False
        mark = self._read_mark()
        # Strictly: of records of the very same millisecond some may have come after the promise.
        return self.end_timestamp_ms < safe_timestamp_ms if mark is None else mark[0] == self.count

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether a record of this time span may be in it."""
        return self.end_timestamp_ms >= begin_ms and self.begin_timestamp_ms <= end_ms

    def entries(self, first: int, end: int) -> NDArray[np.void]:
        """Entries by number, as a view with the fields hash, log_offset, seconds, previous."""
        position = self.shape.entries_position + first * INDEX_ENTRY_SIZE
        return np.frombuffer(self._view(), dtype=_ENTRY_TYPE, count=end - first, offset=position)

    def first_at_or_behind(self, log_offset: int) -> int:
        """Number of the first entry of a record at this log offset or behind it; `count` when there is none."""
        return 1 + bisect_left(range(1, self.count), log_offset, key=self._log_offset)

    def walk(self, key_hash: int, begin_ms: int, end_ms: int, budget: WalkBudget) -> Iterator[int]:
        """Log offsets of entries with this hash, newest first, whose second touches the time span."""
        view = self._view()
        number = self._slot(key_hash % self.shape.slots)
        entries = self.shape.entries_position
        # Numbers fall along a chain, so it ends, whatever is in the file.
        limit = self.count
        while 0 < number < limit:
            if budget.steps <= 0:
                budget.is_spent = True
                return
            budget.steps -= 1
            entry_hash, log_offset, seconds, previous = _ENTRY.unpack_from(view, entries + number * INDEX_ENTRY_SIZE)
            time_ms = self.begin_timestamp_ms + seconds * 1000
            if seconds < 0 or time_ms + 999 < begin_ms:
                return
            if entry_hash == key_hash and time_ms <= end_ms:
                yield log_offset
            limit, number = number, previous

    # Changing it

    def append(
        self, hashes: NDArray[np.int64], log_offsets: NDArray[np.int64], timestamps_ms: NDArray[np.int64]
    ) -> None:
        """Add entries, at most `room`, in log order. When the write fails, nothing has changed."""
        slots, pages = self._loaded_slots()
        first = self.count
        entries, places, previous, new_slots = enter(
            slots, hashes, log_offsets, timestamps_ms, self.begin_timestamp_ms, first
        )
        try:
            self._opened().write(entries, self.shape.entries_position + first * INDEX_ENTRY_SIZE)
        except BaseException:
            leave(slots, places, previous)
            raise
        pages[places // _SLOTS_PER_PAGE] = True
        self.slots_used += new_slots
        self.count = first + len(hashes)
        self.cover(int(log_offsets[-1]), int(timestamps_ms[-1]))

    def cover(self, log_offset: int, timestamp_ms: int) -> None:
        """This record is the last one that was looked at, with or without keys."""
        self.end_log_offset = log_offset
        self.end_timestamp_ms = timestamp_ms
        self._is_changed = True

    def collect(self, *, thorough: bool) -> File | None:
        """Write what is kept in memory; the file if it must be synced, which must be done before the next call.

        Without `thorough`, header and slots stay in memory: enough to survive a crash, and much less to write.
        """
        file = self._opened()
        state = (self.count, self.end_log_offset)
        durable = self._marked
        if file.synced_writes == file.writes:
            durable = state
        elif file.synced_writes >= self._collected_writes:
            durable = self._collected
        if durable != self._marked:
            self._write_mark(*durable)
        if self._is_changed and (thorough or self.is_full):
            self._write_slots()
            self._write_header()
            self._is_changed = False
        if file.synced_writes == file.writes:
            return None
        self._collected = state
        self._collected_writes = file.writes
        return file

    def truncate(self, log_offset: int) -> bool:
        """Forget records at and behind this log offset, durably; False, and nothing done, when no entry would stay."""
        count = self.first_at_or_behind(log_offset)
        if count <= 1:
            return False
        self._cut(count, self._log_offset(count - 1))
        return True

    def _cut(self, count: int, end_log_offset: int) -> None:
        """Forget the entries from this number on; durable. Slots are computed from the entries that stay."""
        file = self._opened()
        # What stays must be on disk before the mark says so, and the mark before anything goes.
        file.sync()
        self._write_mark(count, end_log_offset)
        file.sync()
        self.count = count
        if end_log_offset != self.end_log_offset:
            # To the end of the second: a look-up that comes in vain does no harm, one that does not come does.
            seconds = 0 if self.is_empty else self.entries(count - 1, count)["seconds"].item()
            self.end_timestamp_ms = self.begin_timestamp_ms + seconds * 1000 + 999
            self.end_log_offset = end_log_offset
        slots = self._slots_of_entries()
        self.slots_used = int(np.count_nonzero(slots))
        stored = self._stored_slots()
        self._slots = slots
        self._changed_pages = _pages_of(np.flatnonzero(slots != stored), len(slots))
        self._write_slots()
        self._write_header()
        file.clear_from(self.shape.entries_position + count * INDEX_ENTRY_SIZE)
        file.sync()
        # What was given out to be synced before the cut must not become the next mark.
        self._collected = (count, end_log_offset)
        self._is_changed = False
        if self.is_full:
            self._slots = self._changed_pages = None

    def repair(self, safe_timestamp_ms: int) -> bool:
        """Keep what was certainly on disk before an unclean stop, and make header and slots match it; durable.

        Gives False when nothing was: then the file is of no use.
        """
        mark = self._read_mark()
        if mark is not None:
            count = self._sound_count(mark[0], None)
            if count == mark[0]:
                self._cut(*mark)
                return True
        else:
            count = self._sound_count(self.shape.entries, safe_timestamp_ms)
        self.count = count
        # The last entry before a break may be half of one, and the keys of its record may not be all there.
        return not self.is_empty and self.truncate(self._log_offset(count - 1))

    def release(self) -> None:
        """Close the file until it is used again; slots that are kept in memory stay there."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        self.release()
        self._files.remove(self.path)

    # Checking it

    def check(self) -> None:
        """Read all of it. Raises StoreCorruptError when slots, chains, order or header contradict each other."""
        if not self.is_plausible:
            raise StoreCorruptError(f"{self.path}: the header contradicts itself or the settings")
        sound = self._sound_count(self.count, None)
        if sound != self.count:
            position = self.shape.entries_position + sound * INDEX_ENTRY_SIZE
            raise StoreCorruptError(f"{self.path} at {position}: entry {sound} cannot follow the one before it")
        slots = np.zeros(self.shape.slots, dtype=np.int32)
        for first in range(1, self.count, _SCAN_ENTRIES):
            entries = self.entries(first, min(first + _SCAN_ENTRIES, self.count))
            numbers = np.arange(first, first + len(entries), dtype=np.int32)
            places = entries["hash"].astype(np.int64) % self.shape.slots
            order = np.argsort(places, kind="stable")
            previous = slots[places[order]]
            repeats = np.flatnonzero(places[order][1:] == places[order][:-1])
            previous[repeats + 1] = numbers[order][repeats]
            wrong = order[previous != entries["previous"][order]]
            if len(wrong):
                number = first + int(wrong.min())
                position = self.shape.entries_position + number * INDEX_ENTRY_SIZE
                raise StoreCorruptError(f"{self.path} at {position}: entry {number} is not linked to its chain")
            slots[places] = numbers
        stored = self._stored_slots() if self._slots is None else self._slots
        different = np.flatnonzero(stored != slots)
        if len(different):
            position = INDEX_HEADER_SIZE + int(different[0]) * INDEX_SLOT_SIZE
            raise StoreCorruptError(f"{self.path} at {position}: slot {different[0]} does not hold its newest entry")
        if self.slots_used != int(np.count_nonzero(slots)):
            raise StoreCorruptError(f"{self.path} at 32: {self.slots_used} slots in use is not what the slots say")

    # Inside

    def _opened(self) -> _TrackedFile:
        if self._file is None:
            self._file = _TrackedFile(self._files.open(self.path))
            self._collected_writes = 0
        return self._file

    def _view(self) -> memoryview:
        return self._opened().view()

    def _log_offset(self, number: int) -> int:
        position = self.shape.entries_position + number * INDEX_ENTRY_SIZE + 4
        found: int = _LOG_OFFSET.unpack_from(self._view(), position)[0]
        return found

    def _slot(self, place: int) -> int:
        if self._slots is not None:
            return int(self._slots[place])
        start = INDEX_HEADER_SIZE + place * INDEX_SLOT_SIZE
        return int.from_bytes(self._view()[start : start + INDEX_SLOT_SIZE], "big", signed=True)

    def _stored_slots(self) -> NDArray[np.int32]:
        stored = np.frombuffer(self._view(), dtype=">i4", count=self.shape.slots, offset=INDEX_HEADER_SIZE)
        return stored.astype(np.int32)

    def _loaded_slots(self) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        if self._slots is None or self._changed_pages is None:
            if self.is_empty:
                # Not read: never touched, they cost no memory.
                self._slots = np.zeros(self.shape.slots, dtype=np.int32)
            else:
                self._slots = self._stored_slots()
                self._slots[(self._slots < 0) | (self._slots >= self.count)] = 0
            self._changed_pages = np.zeros(-(-self.shape.slots // _SLOTS_PER_PAGE), dtype=np.bool_)
        return self._slots, self._changed_pages

    def _write_slots(self) -> None:
        if self._slots is None or self._changed_pages is None:
            return
        file = self._opened()
        changed = np.flatnonzero(self._changed_pages)
        if len(changed):
            borders = np.flatnonzero(np.diff(changed) != 1)
            starts = np.concatenate((changed[:1], changed[borders + 1]))
            ends = np.concatenate((changed[borders], changed[-1:])) + 1
            for start, end in zip((starts * _SLOTS_PER_PAGE).tolist(), (ends * _SLOTS_PER_PAGE).tolist(), strict=True):
                data = self._slots[start:end].astype(">i4").tobytes()
                file.write(data, INDEX_HEADER_SIZE + start * INDEX_SLOT_SIZE)
            self._changed_pages[:] = False
        if self.is_full:
            # Nothing more comes: look-ups can use the file.
            self._slots = self._changed_pages = None

    def _write_header(self) -> None:
        header = _HEADER.pack(
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_log_offset,
            self.end_log_offset,
            self.slots_used,
            self.count,
        )
        self._opened().write(header, 0)

    def _write_mark(self, count: int, end_log_offset: int) -> None:
        mark = _MARK.pack(count, end_log_offset, crc32(_MARK_CHECKED.pack(count, end_log_offset)))
        self._opened().write(mark, self.shape.entries_position)
        self._marked = (count, end_log_offset)

    def _read_mark(self) -> tuple[int, int] | None:
        count, end_log_offset, check = _MARK.unpack_from(self._view(), self.shape.entries_position)
        if check != crc32(_MARK_CHECKED.pack(count, end_log_offset)) or not 1 <= count <= self.shape.entries:
            return None
        return count, end_log_offset

    def _slots_of_entries(self) -> NDArray[np.int32]:
        slots = np.zeros(self.shape.slots, dtype=np.int32)
        for first in range(1, self.count, _SCAN_ENTRIES):
            entries = self.entries(first, min(first + _SCAN_ENTRIES, self.count))
            places = entries["hash"].astype(np.int64) % self.shape.slots
            slots[places] = np.arange(first, first + len(entries), dtype=np.int32)
        return slots

    def _sound_count(self, count: int, safe_timestamp_ms: int | None) -> int:
        """How far entries look like entries, in log order and older than this time; at most `count`."""
        log_offset = self.begin_log_offset
        for first in range(1, count, _SCAN_ENTRIES):
            entries = self.entries(first, min(first + _SCAN_ENTRIES, count))
            log_offsets = entries["log_offset"].astype(np.int64)
            numbers = np.arange(first, first + len(entries))
            is_sound = (
                (np.diff(log_offsets, prepend=log_offset) >= 0)
                & (entries["hash"] >= 0)
                & (entries["seconds"] >= 0)
                & (entries["previous"] >= 0)
                & (entries["previous"] < numbers)
            )
            if safe_timestamp_ms is not None:
                # Of an entry the second is known: all of it must lie before.
                times_ms = entries["seconds"].astype(np.int64) * 1000 + (self.begin_timestamp_ms + 999)
                is_nothing = (log_offsets == 0) & (entries["hash"] == 0)
                is_sound &= (times_ms < safe_timestamp_ms) & ~is_nothing
            if not is_sound.all():
                return first + int(np.argmin(is_sound))
            log_offset = int(log_offsets[-1])
        return count


def _pages_of(places: NDArray[np.intp], slots: int) -> NDArray[np.bool_]:
    pages = np.zeros(-(-slots // _SLOTS_PER_PAGE), dtype=np.bool_)
    pages[places // _SLOTS_PER_PAGE] = True
    return pages
