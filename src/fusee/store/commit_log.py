"""The log of all records in order of arrival, in segments (Java: CommitLog).

    segment: record record record ... blank (8 bytes: what is left, magic) zeros

A record never crosses a border: when record + 8 bytes do not fit, the rest of the segment becomes a blank and the
record goes to the start of the next one. Records are contiguous from the first segment's start.

Appending is in two steps. `append` gives a record its place and keeps its bytes; `write` hands everything gathered
to the operating system, large parts as they are and small ones together. The broker calls it once per turn of its loop;
with the transient pool a timer calls it, which is the reference's commit step. Three offsets follow each other:

    end_offset       the next record's place         >=  written_offset   readable, survives the process
                                                     >=  flushed offset   survives the machine (`durability`)

Nothing behind `written_offset` is ever handed out. When a write fails, what it left in the file is cleared, and
everything behind the last good write has no place any more: `end_offset` falls back to `written_offset`.
"""

from __future__ import annotations

import struct
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from fusee.errors import RecordError, StoreBusyError, StoreError
from fusee.message.record import encode_blank
from fusee.message.record_layout import FRAME, MAGIC_BLANK, RECORD_SIZE_MIN, record_bounds
from fusee.store.record_scan import find_records
from fusee.store.segment_log import SegmentLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from numpy.typing import NDArray

    from fusee.store.config import StoreConfig
    from fusee.store.filesystem import File, FileSystem, NewGuard

    Around: TypeAlias = Callable[[Callable[[], None]], None]

_BLANK_SIZE: Final = 8
# From here on a copy costs more than a call of the operating system.
_ALONE_SIZE_MIN: Final = 16 * 1024
# From here on it pays to have another thread write.
_AROUND_SIZE_MIN: Final = 512 * 1024
_SIZE: Final = struct.Struct(">i")


class CommitLog:
    """Places records, writes them in groups, and finds them again."""

    def __init__(self, folder: Path, config: StoreConfig, files: FileSystem, new_guard: NewGuard = nullcontext) -> None:
        """Who calls `prepare` on a thread of its own gives a lock as `new_guard`."""
        size = self._segment_size = config.mapped_file_size_commit_log
        self._log = SegmentLog(folder, size, files, setting="mappedFileSizeCommitLog", new_guard=new_guard)
        self._gathered_max = (
            config.transient_store_pool_size * config.mapped_file_size_commit_log
            if config.transient_store_pool_enable
            else 64 * 1024 * 1024
        )
        # What has a place but is not written: runs of contiguous bytes, one per segment touched.
        self._runs: list[tuple[int, list[bytes]]] = []
        self._parts: list[bytes] = []
        self._room = 0
        self._gather_end = 0
        self._record_size_max = config.record_size_max
        self.end_offset = 0

    # Opening and ending

    def open(self) -> None:
        """Take up the segments that are there; the end is not known until `truncate` was called."""
        self._log.open()
        self.end_offset = self._log.end_offset
        self._room = 0

    def truncate(self, log_offset: int) -> None:
        """End here, durably. What was gathered and not written is given up."""
        self._forget_gathered()
        self._log.truncate(log_offset)
        self.end_offset = log_offset

    def cut_again(self, log_offset: int) -> None:
        """End at the latest here, before it is known where the log ends: a cut that a crash has stopped."""
        self._log.truncate(min(log_offset, self._log.end_offset))

    def close(self) -> None:
        self._log.close()

    @property
    def folder(self) -> Path:
        return self._log.folder

    @property
    def segment_size(self) -> int:
        return self._segment_size

    @property
    def written_offset(self) -> int:
        """Everything before this is in the file and may be read."""
        return self._log.end_offset

    @property
    def min_offset(self) -> int:
        """The first record that is still there."""
        return self._log.min_offset

    @property
    def gathered_bytes(self) -> int:
        """Bytes that have a place but are not written."""
        return self.end_offset - self._log.end_offset

    @property
    def record_size_max(self) -> int:
        """The largest record that fits into a segment."""
        return self._segment_size - _BLANK_SIZE

    # Appending

    def place(self, size: int) -> int:
        """The offset that the next `size` bytes will have; rolls to the next segment when they do not fit.

        Nothing may come between this and the `append` of those bytes. Raises StoreBusyError when too much is gathered.
        """
        if size + _BLANK_SIZE > self._room or self.end_offset > self._gather_end:
            self._make_room(size)
        return self.end_offset

    def append(self, data: bytes) -> None:
        """Keep these bytes, one or more whole records placed by `place`, for the next `write`."""
        size = len(data)
        self._parts.append(data)
        self._room -= size
        self.end_offset += size

    def append_raw(self, data: bytes | bytearray | memoryview, log_offset: int) -> None:
        """Take bytes as they are from another copy of this log; written at once.

        Raises StoreError unless they go on exactly where this log ends; an empty log begins where they say.
        """
        if self.gathered_bytes:
            raise StoreError("replicated bytes came while own records were gathered: a log has one writer")
        if not self._log.segments:
            self._log.end_offset = self.end_offset = log_offset
        if log_offset != self.end_offset:
            raise StoreError(f"replicated bytes begin at {log_offset} but this log ends at {self.end_offset}")
        view = memoryview(data)
        try:
            while view:
                room = self._segment_size - self.end_offset % self._segment_size
                self._write_run(self.end_offset, view[:room])
                view = view[room:]
                self.end_offset = self._log.end_offset
        finally:
            self._forget_gathered()

    def restart_at(self, log_offset: int) -> None:
        """Give up everything and go on at the start of this segment; durable, and a crash leaves a part of the old."""
        self._forget_gathered()
        self._log.restart_at(log_offset)
        self.end_offset = log_offset

    def write(self, around: Around | None = None) -> int:
        """Hand everything gathered to the operating system; the new written offset.

        A large write is given to `around`, which does it, and may do something else meanwhile that does not write to
        this log. Raises StoreFullError or StoreError; then the records behind `written_offset` have lost their place.
        """
        log = self._log
        if self.end_offset == log.end_offset:
            return log.end_offset
        runs, self._runs = self._runs, []
        try:
            for start, parts in runs:
                log.end_offset = start  # behind the blank of the segment before, if there was one
                if around is not None and self._write_around(start, parts, around):
                    continue
                if len(parts) == 1:
                    self._write_run(start, parts[0])
                else:
                    self._write_parts(parts)
        except BaseException:
            self._forget_gathered()
            raise
        self._start_run(self.end_offset)
        return log.end_offset

    def prepare(self) -> bool:
        """Make the next segment ahead of need; whether one was made. Slow; with a guard, from any thread."""
        return self._log.prepare()

    # Reading

    def slice(self, log_offset: int, size: int) -> memoryview | None:
        """These bytes from where they lie; None when they are not there or not written yet."""
        if log_offset + size > self._log.end_offset or log_offset < self._log.min_offset:
            return None
        return self._log.slice(log_offset, size)

    def record_at(self, log_offset: int) -> memoryview | None:
        """The whole record at this offset, its bounds checked; None when there is none."""
        head = self.slice(log_offset, RECORD_SIZE_MIN)
        if head is None:
            return None
        size, magic = FRAME.unpack_from(head)
        record = None if magic == MAGIC_BLANK or size < RECORD_SIZE_MIN else self.slice(log_offset, size)
        if record is None:
            return None
        try:
            record_bounds(record, 0, size)
        except RecordError:
            return None
        return record

    def chunk(self, log_offset: int, size_max: int) -> memoryview:
        """What is written from here on, up to `size_max` bytes and the end of the segment; empty at the end."""
        segment = self._log.locate(log_offset)
        if segment is None:
            return memoryview(b"")
        end = min(log_offset + size_max, segment.end_offset, self._log.end_offset)
        if end <= log_offset:
            return memoryview(b"")
        return segment.file.view()[log_offset - segment.base_offset : end - segment.base_offset]

    def last_record_before(self, log_offset: int) -> int | None:
        """Where the last record begins that ends at or before this border of a record; None when there is none.

        Walks through the segment from its start: not for the hot path.
        """
        for base_offset, file in reversed(self.segments()):
            if base_offset >= log_offset:
                continue
            end = min(log_offset, base_offset + self._segment_size, self._log.end_offset)
            view = file.view()[: end - base_offset]
            positions, _ = find_records(view)
            if len(positions) and FRAME.unpack_from(view, int(positions[-1]))[1] == MAGIC_BLANK:
                positions = positions[:-1]
            if len(positions):
                return base_offset + int(positions[-1])
        return None

    def record_offsets(self, base_offset: int) -> NDArray[np.int64]:
        """Where the records of the segment that begins here begin; the same cost."""
        segment = self._log.locate(base_offset)
        if segment is None:
            return np.empty(0, np.int64)
        view = self.chunk(base_offset, segment.size)
        positions, _ = find_records(view)
        if len(positions) and FRAME.unpack_from(view, int(positions[-1]))[1] == MAGIC_BLANK:
            positions = positions[:-1]
        return positions + base_offset

    def forget(self, log_offset: int, end_offset: int) -> None:
        """Let go of the memory by which this part of the log was read."""
        for base_offset, file in self.segments():
            start, stop = max(log_offset, base_offset), min(end_offset, base_offset + self._segment_size)
            if start < stop:
                file.forget(start - base_offset, stop - start)

    def next_segment(self, log_offset: int) -> int:
        """Where the segment behind the one of this offset begins."""
        return log_offset - log_offset % self._segment_size + self._segment_size

    def segments(self) -> Sequence[tuple[int, File]]:
        """(first offset, file) of every segment."""
        return [(segment.base_offset, segment.file) for segment in self._log.segments]

    def drop_head(self, log_offset: int) -> list[Path]:
        """Remove segments that end at or before this offset, never the last; which files."""
        return self._log.drop_head(log_offset)

    # Inside

    def _make_room(self, size: int) -> None:
        if size > self._segment_size - _BLANK_SIZE:
            raise StoreError(
                f"{size} bytes do not fit into a segment of {self._segment_size}; raise mappedFileSizeCommitLog"
            )
        if self.gathered_bytes > self._gathered_max - size:
            raise StoreBusyError(
                f"{self.gathered_bytes} bytes wait to be written to {self.folder}, limit {self._gathered_max}: "
                "the disk is slower than the senders"
            )
        if self._room == 0:
            self._start_run(self.end_offset)
        if size + _BLANK_SIZE > self._room:
            if self._room >= _BLANK_SIZE:
                self._parts.append(encode_blank(self._room)[:_BLANK_SIZE])
            self.end_offset += self._room
            self._start_run(self.end_offset)

    def _start_run(self, start: int) -> None:
        self._room = self._segment_size - start % self._segment_size
        self._gather_end = self._log.end_offset + self._gathered_max - self._record_size_max
        self._parts = []
        self._runs.append((start, self._parts))

    def _write_parts(self, parts: list[bytes]) -> None:
        """Write these behind each other: large ones from where they lie, small ones joined."""
        for part in _joined(parts):
            self._write_run(self._log.end_offset, part)

    def _write_around(self, start: int, parts: list[bytes], around: Around) -> bool:
        """Write these at once, if they are large; whether all are written. Else `_write_parts` finds out how far."""
        size = sum(map(len, parts))
        if size < _AROUND_SIZE_MIN:
            return False
        segment = self._log.at_end()
        try:
            around(partial(segment.file.write_all, _joined(parts), start - segment.base_offset))
        except StoreError:
            return False
        self._log.end_offset = start + size
        return True

    def _write_run(self, start: int, data: bytes | memoryview) -> None:
        if not data:
            return
        segment = self._log.at_end()
        position = start - segment.base_offset
        try:
            segment.file.write(data, position)
        except StoreError:
            # Whole records of a failed write must not come back to life when the log has gone another way.
            segment.file.clear_from(position)
            raise
        self._log.end_offset = start + len(data)

    def _forget_gathered(self) -> None:
        self._runs = []
        self._parts = []
        self._room = 0
        self.end_offset = self._log.end_offset


def _joined(parts: Sequence[bytes]) -> list[bytes]:
    """The same bytes: large parts as they are, small ones that follow each other as one."""
    joined: list[bytes] = []
    small: list[bytes] = []
    for part in parts:
        if len(part) < _ALONE_SIZE_MIN:
            small.append(part)
            continue
        if small:
            joined.append(b"".join(small))
            small.clear()
        joined.append(part)
    if small:
        joined.append(b"".join(small))
    return joined
