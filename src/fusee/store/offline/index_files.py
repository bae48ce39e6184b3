"""Index files read from outside: header, slots and entries, in a shape that is guessed from the file itself.

`index_file` gives the layout. The numbers of slots and entries are settings that stand nowhere in the file, only their
sum does, as its size. Usually there are four entries for a slot; if that does not fit what is in the file, a full file
of the same size tells its number of entries; if there is none, the place is searched where the last entry can be: its
log offset is in the header, and the slot that its hash leads to must hold its number.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from fusee.errors import StoreError
from fusee.store.index_file import IndexShape
from fusee.store.layout import INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from fusee.store.offline.files import OfflineStore

ENTRY: Final = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
BLOCK_ENTRIES: Final = 1 << 18
LOOKUP_STEPS_MAX: Final = 1_000_000
_HEADER: Final = Struct(">qqqqii")
_ENTRY: Final = Struct(">iqii")
_SLOT: Final = Struct(">i")
_MARK: Final = Struct(">iqIi")


class IndexHeader(NamedTuple):
    """The first 40 bytes."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_log_offset: int
    end_log_offset: int
    slots_used: int
    next_number: int
    """Number that the next entry gets; 1 when there are none."""


class IndexView:
    """One index file. `shape` is None when it cannot be told."""

    def __init__(self, store: OfflineStore, path: Path) -> None:
        """Raises StoreError when it is too short for a header, FileNotFoundError when it is gone."""
        self._descriptors = store.descriptors
        self.path = path
        stat = path.stat()
        self.size = stat.st_size
        self.allocated = stat.st_blocks * 512
        data = self._read(0, _HEADER.size)
        if len(data) < _HEADER.size:
            raise StoreError(f"{path} has {self.size} bytes, too few for the header of an index file")
        self.header = IndexHeader._make(_HEADER.unpack(data))
        self.shape: IndexShape | None = None

    def _read(self, position: int, size: int) -> bytes:
        return self._descriptors.read(self.path, position, size)

    @property
    def count(self) -> int:
        """Number of the next entry, inside the file's limits."""
        return min(max(self.header.next_number, 1), self.shape.entries) if self.shape is not None else 1

    def fits(self, shape: IndexShape) -> bool:
        """Whether the first or the last entry is where the header says, if the file had this shape."""
        count = self.header.next_number
        if count <= 1:
            return True
        if count > shape.entries:
            return False
        first = self._entry(shape, 1)
        last = self._entry(shape, count - 1)
        if last is not None and last[0] >= 0 and self._slot(last[0] % shape.slots) == count - 1:
            return True
        return first is not None and first[1] == self.header.begin_log_offset and first[3] == 0 and first[0] > 0

    def search_shape(self) -> IndexShape | None:
        """Try every place where the last entry can be."""
        count = self.header.next_number
        words = (self.size - INDEX_HEADER_SIZE) // INDEX_SLOT_SIZE
        if count <= 1 or (self.size - INDEX_HEADER_SIZE) % INDEX_SLOT_SIZE:
            return None
        # Slots and words must leave a whole number of entries, so the number of slots is known modulo 5.
        slots = words % 5 or 5
        position = INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + (count - 1) * INDEX_ENTRY_SIZE
        while position < self.size:
            data = self._read(position, BLOCK_ENTRIES * INDEX_ENTRY_SIZE)
            entries = np.frombuffer(data, ENTRY, len(data) // INDEX_ENTRY_SIZE)
            if not len(entries):
                return None
            for index in np.flatnonzero((entries["log_offset"] == self.header.end_log_offset) & (entries["hash"] > 0)):
                found = slots + 5 * int(index)
                if self._slot(int(entries["hash"][index]) % found) == count - 1:
                    return IndexShape(found, (words - found) // 5)
            position += len(entries) * INDEX_ENTRY_SIZE
            slots += len(entries) * 5
        return None

    def slots(self) -> NDArray[np.int32]:
        """All slots."""
        assert self.shape is not None
        data = self._read(INDEX_HEADER_SIZE, self.shape.slots * INDEX_SLOT_SIZE)
        return np.frombuffer(data, ">i4", len(data) // INDEX_SLOT_SIZE).astype(np.int32)

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """(number of the first, entries), from entry 1 on."""
        assert self.shape is not None
        first = 1
        while first < self.count:
            position = self.shape.entries_position + first * INDEX_ENTRY_SIZE
            data = self._read(position, min(self.count - first, BLOCK_ENTRIES) * INDEX_ENTRY_SIZE)
            entries = np.frombuffer(data, ENTRY, len(data) // INDEX_ENTRY_SIZE)
            if not len(entries):
                return
            yield first, entries
            first += len(entries)

    def last_log_offset(self) -> int | None:
        """Log offset of the last entry."""
        entry = self._entry(self.shape, self.count - 1) if self.shape is not None and self.count > 1 else None
        return entry[1] if entry is not None else None

    def mark(self) -> bool | None:
        """Whether the mark in entry 0 is right; None when there is none."""
        assert self.shape is not None
        data = self._read(self.shape.entries_position, INDEX_ENTRY_SIZE)
        if len(data) < _MARK.size or not any(data):
            return None
        return bool(_MARK.unpack(data)[2] == crc32(data[:12]))

    def look_up(self, key_hash: int, steps_max: int = LOOKUP_STEPS_MAX) -> Iterator[int]:
        """Log offsets of the entries with this hash, newest first."""
        if self.shape is None:
            return
        number, limit = self._slot(key_hash % self.shape.slots), self.count
        while 0 < number < limit and steps_max > 0:
            entry = self._entry(self.shape, number)
            if entry is None:
                return
            if entry[0] == key_hash:
                yield entry[1]
            # Numbers fall along a chain, so it ends, whatever is in the file.
            limit, number = number, entry[3]
            steps_max -= 1

    def _entry(self, shape: IndexShape, number: int) -> tuple[int, int, int, int] | None:
        data = self._read(shape.entries_position + number * INDEX_ENTRY_SIZE, INDEX_ENTRY_SIZE)
        if len(data) < INDEX_ENTRY_SIZE:
            return None
        key_hash, log_offset, seconds, previous = _ENTRY.unpack(data)
        return key_hash, log_offset, seconds, previous

    def _slot(self, place: int) -> int:
        data = self._read(INDEX_HEADER_SIZE + place * INDEX_SLOT_SIZE, INDEX_SLOT_SIZE)
        return int(_SLOT.unpack(data)[0]) if len(data) == _SLOT.size else 0


def open_index(store: OfflineStore) -> tuple[list[IndexView], list[tuple[Path, str]]]:
    """The index files, oldest first, with their shapes; and those that cannot be read, with the reason."""
    views: list[IndexView] = []
    bad: list[tuple[Path, str]] = []
    for path in store.index_files():
        try:
            views.append(IndexView(store, path))
        except FileNotFoundError:
            continue  # expired while we were looking
        except StoreError as error:
            bad.append((path, str(error)))
    shapes: dict[int, IndexShape | None] = {}
    for view in views:
        if view.size not in shapes:
            shapes[view.size] = _shape_of([other for other in views if other.size == view.size])
        view.shape = shapes[view.size]
    return views, bad


def _shape_of(views: list[IndexView]) -> IndexShape | None:
    words = (views[0].size - INDEX_HEADER_SIZE) // INDEX_SLOT_SIZE
    candidates: list[IndexShape] = []
    if words % 21 == 0 and words > 0:
        candidates.append(IndexShape(words // 21, words // 21 * 4))
    entries = max(view.header.next_number for view in views)
    if entries > 1 and words - 5 * entries > 0:
        candidates.append(IndexShape(words - 5 * entries, entries))
    for shape in candidates:
        # One file may be damaged; most will not be.
        if shape.file_size == views[0].size and 2 * sum(view.fits(shape) for view in views) >= len(views):
            return shape
    for view in views:
        found = view.search_shape()
        if found is not None:
            return found
    return None
