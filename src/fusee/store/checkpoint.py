"""How far everything was on disk: times from which recovery goes back (Java: StoreCheckpoint).

     0  int64  store time of the last record of the commit log that was synced
     8  int64  the same for consume queues
    16  int64  the same for the index
    24  int64  master's flushed log offset, as a replica last heard it
    32  int64  log offset up to which replicas agree
    64  the same five numbers again, and their CRC-32 (ours; the reference leaves these bytes alone)
    ..  zeros to 4096

A checkpoint is saved after the sync that it speaks of, never before: one that promises too much makes recovery start
too late and lose queue entries (RocketMQ issue 678). One that promises too little only costs time.

A write may be torn at any byte, and half of one time with half of another is a time that nobody promised. So the copy
is written and synced first, then the numbers. When the copy is whole and differs, the earlier of each two numbers
counts: either the numbers are torn, or the reference has written them since. When the copy is torn, the numbers are
whole.

Numbers are changed by the thread of the store, and may be saved by another: each is true by itself at any moment.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from fusee.store.layout import CHECKPOINT_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.store.filesystem import FileSystem, NewGuard
    from fusee.store.layout import StorePaths

_FIELDS: Final = Struct(">qqqqq")
_COPY_POSITION: Final = 64
# Times are of whole groups, clocks are set back: recovery begins this much before the time that is saved.
_MARGIN_MS: Final = 3_000


class Checkpoint:
    """The saved times."""

    def __init__(self, path: Path, files: FileSystem, new_guard: NewGuard = nullcontext) -> None:
        """Who saves on a thread of its own gives a lock as `new_guard`."""
        self._path = path
        self._files = files
        self._saved: tuple[int, ...] = ()
        self._saving = new_guard()
        self.log_timestamp_ms = 0
        self.queues_timestamp_ms = 0
        self.index_timestamp_ms = 0
        self.master_flushed_offset = 0
        self.confirmed_offset = 0

    def load(self) -> None:
        """Read what is there; a missing or short file is one that promises nothing."""
        if not self._files.exists(self._path):
            return
        data = self._files.read_file(self._path)
        if len(data) < _FIELDS.size:
            return
        values = _FIELDS.unpack_from(data)
        copy = data[_COPY_POSITION : _COPY_POSITION + _FIELDS.size]
        check = data[_COPY_POSITION + _FIELDS.size : _COPY_POSITION + _FIELDS.size + 4]
        if len(check) == 4 and crc32(copy) == int.from_bytes(check, "big"):
            values = tuple(map(min, values, _FIELDS.unpack(copy)))
        (
            self.log_timestamp_ms,
            self.queues_timestamp_ms,
            self.index_timestamp_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
        ) = values

    def save(self) -> bool:
        """Write and sync what changed; whether anything had. With a guard, from any thread."""
        with self._saving:
            values = self._values()
            if values == self._saved:
                return False
            self._write(values)
            self._saved = values
            return True

    def _write(self, values: tuple[int, ...]) -> None:
        is_new = not self._files.exists(self._path)
        file = self._files.open(self._path, size=CHECKPOINT_SIZE)
        try:
            data = _FIELDS.pack(*values)
            file.write(data + crc32(data).to_bytes(4, "big"), _COPY_POSITION)
            file.sync()
            file.write(data, 0)
            file.sync()
        finally:
            file.close()
        if is_new:
            self._files.sync_folder(self._path.parent)

    def cut(self, timestamp_ms: int) -> None:
        """The log ends with a record of this time now; nothing later is promised any more."""
        self.log_timestamp_ms = min(self.log_timestamp_ms, timestamp_ms)
        self.queues_timestamp_ms = min(self.queues_timestamp_ms, timestamp_ms)
        self.index_timestamp_ms = min(self.index_timestamp_ms, timestamp_ms)

    def recovery_timestamp_ms(self, *, index_too: bool) -> int:
        """Everything stored before this was on disk, in the log and in what is made from it."""
        times = [self.log_timestamp_ms, self.queues_timestamp_ms]
        if index_too:
            times.append(self.index_timestamp_ms)
        return max(min(times) - _MARGIN_MS, 0)

    def _values(self) -> tuple[int, ...]:
        return (
            self.log_timestamp_ms,
            self.queues_timestamp_ms,
            self.index_timestamp_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
        )


def mark_running(paths: StorePaths, files: FileSystem) -> None:
    """Leave the mark that a clean stop removes: whoever finds it at the start knows of a crash (Java: abort file)."""
    files.open(paths.abort, size=0).close()
    text = str(os.getpid()).encode()
    file = files.open(paths.abort, size=len(text))
    file.write(text, 0)
    file.sync()
    file.close()
    files.sync_folder(paths.root)
