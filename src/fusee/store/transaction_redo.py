"""The redo log of the transaction table: every change of it, in log order. (Ours.)

Entries in `transaction/redo/`, 40 bytes each, big-endian:

     0  int64  log offset of the record that makes the change
     8  int64  half queue offset of the entry that changes; MARK: of the first pending one
    16  int64  store time, ms (PREPARED); MARK: end of the table, a queue offset
    24  int32  size (PREPARED), or distance to the copy (SUPERSEDED, DEFERRED)
    28  int32  hash of the producer group (PREPARED)
    32  int32  new state, see `transaction_table`; or MARK
    36  int32  check word over the nine words before it

A MARK changes nothing: every record up to its log offset was looked at. One is written with each flush that follows
something new, so that recovery need not go back to the last transaction, which may be long ago or never.

Entries are only added behind the last, and removed from both ends. After an unclean stop the log ends where a check
word or the order of log offsets first fails. A record can make several changes, so its last ones may be missing.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fusee.store.segment_log import SegmentLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fusee.store.filesystem import File, FileSystem

REDO_SIZE: Final = 40
MARK: Final = 7

_REDO_TYPE: Final = np.dtype(
    [
        ("log_offset", ">i8"),
        ("queue_offset", ">i8"),
        ("timestamp_ms", ">i8"),
        ("detail", ">i4"),
        ("group_hash", ">i4"),
        ("state", ">i4"),
        ("check", ">u4"),
    ]
)
_LOG_OFFSET: Final = Struct(">q")
_CHECK_SEED: Final = np.uint32(0x54585244)
_CHECK_FACTOR: Final = np.uint32(0x9E3779B1)
_CHUNK_ENTRIES: Final = 1 << 16


class Change(NamedTuple):
    """One entry of the redo log, without its check word."""

    log_offset: int
    queue_offset: int
    timestamp_ms: int
    detail: int
    group_hash: int
    state: int


class RedoLog:
    """Changes in log order."""

    def __init__(self, folder: Path, entries_per_segment: int, files: FileSystem) -> None:
        self._log = SegmentLog(folder, entries_per_segment * REDO_SIZE, files, setting="40 * transactionSegmentEntries")
        self._dirty: dict[File, None] = {}

    def open(self, *, unclean: bool) -> None:
        """Find the end; what is behind it goes."""
        self._log.open()
        segments = self._log.segments
        end = self._log.min_offset
        last = -1
        for segment in segments if unclean else segments[-1:]:
            end = segment.base_offset
            entries = np.frombuffer(segment.file.view(), dtype=_REDO_TYPE)
            log_offsets = entries["log_offset"].astype(np.int64)
            is_sound = (entries["check"] == _check_words(entries)) & (np.diff(log_offsets, prepend=last) >= 0)
            sound = len(entries) if is_sound.all() else int(np.argmin(is_sound))
            end += sound * REDO_SIZE
            if sound < len(entries):
                break
            last = int(log_offsets[-1])
        self._log.truncate(end)

    def append(self, changes: Sequence[Change]) -> None:
        """Write these behind the last one."""
        data = memoryview(_packed(changes))
        while data:
            segment = self._log.at_end()
            piece = data[: segment.end_offset - self._log.end_offset]
            self._log.write(piece, self._log.end_offset)
            self._dirty[segment.file] = None
            self._log.end_offset += len(piece)
            data = data[len(piece) :]

    def last(self) -> Change | None:
        """The last change."""
        if self._log.end_offset <= self._log.min_offset:
            return None
        *fields, _ = self._entries_at(self._log.end_offset - REDO_SIZE)[0].item()
        return Change(*fields)

    def first_at_or_behind(self, log_offset: int) -> int:
        """Position of the first change by a record at this log offset or behind it."""
        positions = range(self._log.min_offset, self._log.end_offset, REDO_SIZE)
        found = bisect_left(positions, log_offset, key=self._log_offset)
        return positions[found] if found < len(positions) else self._log.end_offset

    def truncate(self, log_offset: int) -> bool:
        """Forget changes by records at this log offset and behind it; whether there were any. Durable."""
        position = self.first_at_or_behind(log_offset)
        if position >= self._log.end_offset:
            return False
        self._log.truncate(position)
        self._dirty = {segment.file: None for segment in self._log.segments if segment.file in self._dirty}
        return True

    def drop_before(self, log_offset: int) -> None:
        for path in self._log.drop_head(self.first_at_or_behind(log_offset)):
            self._dirty = {file: None for file in self._dirty if file.path != path}

    def chunks(self) -> Iterator[NDArray[np.void]]:
        """All changes, some at a time."""
        position = self._log.min_offset
        while position < self._log.end_offset:
            entries = self._entries_at(position)
            yield entries
            position += len(entries) * REDO_SIZE

    def collect_dirty(self) -> list[File]:
        dirty = list(self._dirty)
        self._dirty = {}
        return dirty

    def close(self) -> None:
        self._log.close()

    def _entries_at(self, position: int) -> NDArray[np.void]:
        segment = self._log.locate(position)
        assert segment is not None
        end = min(segment.end_offset, self._log.end_offset, position + _CHUNK_ENTRIES * REDO_SIZE)
        return np.frombuffer(
            segment.file.view(),
            dtype=_REDO_TYPE,
            count=(end - position) // REDO_SIZE,
            offset=position - segment.base_offset,
        )

    def _log_offset(self, position: int) -> int:
        data = self._log.slice(position, 8)
        assert data is not None
        found: int = _LOG_OFFSET.unpack(data)[0]
        return found


def _check_words(entries: NDArray[np.void]) -> NDArray[np.uint32]:
    words = np.ascontiguousarray(entries).view(">u4").reshape(-1, REDO_SIZE // 4).astype(np.uint32)
    check = np.full(len(words), _CHECK_SEED, dtype=np.uint32)
    for column in range(REDO_SIZE // 4 - 1):
        check = (check ^ words[:, column]) * _CHECK_FACTOR
        check = (check << np.uint32(13)) | (check >> np.uint32(19))
    return check


def _packed(changes: Sequence[Change]) -> bytes:
    entries = np.array([(*change, 0) for change in changes], dtype=_REDO_TYPE)
    entries["check"] = _check_words(entries)
    return entries.tobytes()
