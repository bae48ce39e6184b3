"""Many files of fixed size, few of them open: the files of consume queues, and rows of them.

A broker has thousands of consume queues and reads and writes a few hundred at a time. `FilePool` keeps at most
`open_max` of their files open and closes the ones not used lately (second chance: a file that was used since the last
look is passed over once). A `PooledFile` is a File that may be closed at any moment and opens itself when it is
needed, so nobody who holds one need care.

Closing is not syncing: what was written to a closed file is in the operating system's memory still. The pool
remembers every file with unsynced writes, open or not, until `collect_dirty` hands it out; `PooledFile.sync` opens
the file anew, so it may run on another thread while the pool closes what it likes. A file that was removed meanwhile
has nothing left to sync.

Entries are read with pread and not through views: a mapping costs a descriptor of its own and page faults, a pread of
a few hundred bytes one microsecond.

`FileRow` sees the files of one queue as one address space, as `segment_log` does for the log. Names are made and
removed one at a time, and a crash never leaves a gap between two files: a removal is followed by a sync of the folder,
and the name of a new file is on disk before there is another one; that is a matter of its first sync, which is done
beside the hot path. A gap is damage, and is reported. A file may have no bytes after a crash (made, but not yet given
its size): it counts as empty.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from fusee.errors import StoreCorruptError, StoreError
from fusee.store.layout import base_offset_of, segment_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fusee.store.filesystem import File, FileSystem


class PooledFile:
    """A file that is open only while it is used. One thread uses it, except `sync`."""

    __slots__ = ("_file", "_pool", "is_made", "is_named", "is_used", "path", "size", "unsynced_size")

    def __init__(self, path: Path, size: int, pool: FilePool, *, is_made: bool) -> None:
        self.path = path
        self.size = size
        self.is_made = is_made
        self.is_named = False
        """Whether its name is on disk for certain."""
        self.unsynced_size = 0
        self.is_used = False
        self._pool = pool
        self._file: File | None = None

    def open(self) -> File:
        """The open file, good until the pool is asked for another one; the first time, it may be made."""
        self.is_used = True
        file = self._file
        if file is None:
            self._pool.make_room()
            file = self._file = self._pool.files.open(self.path, size=None if self.is_made else self.size)
            self.is_made = True
            self._pool.opened(self)
        return file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of it, or raise StoreFullError or StoreError."""
        file = self._file or self.open()
        self.is_used = True
        # Noted before: a write that fails half-way has changed the file, too.
        if self.unsynced_size == 0:
            self._pool.unsynced.add(self)
        self.unsynced_size += len(data)
        file.write(data, position)

    def write_all(self, parts: Sequence[bytes | memoryview], position: int) -> None:
        """The same of parts that follow each other."""
        for part in parts:
            self.write(part, position)
            position += len(part)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes."""
        file = self._file or self.open()
        self.is_used = True
        return file.read(position, size)

    def view(self) -> memoryview:
        """The whole file, mapped; valid also when the pool closes it."""
        return self.open().view()

    def written_ranges(self, start: int) -> Sequence[tuple[int, int]]:
        """The parts from here on that were ever written."""
        return self.open().written_ranges(start)

    def forget(self, start: int, size: int) -> None:
        """Let go of the memory by which this part was read."""
        self.open().forget(start, size)

    def clear_from(self, position: int) -> None:
        """Make everything from this position on read as zeros; on disk after the next `sync`."""
        file = self.open()
        if self.unsynced_size == 0:
            self._pool.unsynced.add(self)
        self.unsynced_size += self.size - position
        file.clear_from(position)

    def set_blocks_aside(self) -> None:
        """Have the disk find space for all of it now."""
        self.open().set_blocks_aside()

    def sync(self) -> None:
        """Return when what was written and the name are on disk, or it is gone. From any thread. Raises StoreError."""
        files = self._pool.files
        try:
            file = files.open(self.path)
            try:
                file.sync()
            finally:
                file.close()
            self.sync_name()
        except StoreError:
            if files.exists(self.path):
                raise

    def sync_name(self) -> None:
        """Return when its name is on disk, too."""
        if not self.is_named:
            self._pool.files.sync_folder(self.path.parent)
            self.is_named = True

    def close(self) -> None:
        """Give the descriptor back; what is unsynced stays remembered."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


class FilePool:
    """Keeps few of many files open, and remembers which have to be synced."""

    def __init__(self, files: FileSystem, open_max: int) -> None:
        self.files = files
        self.unsynced: set[PooledFile] = set()
        self._open_max = max(open_max, 1)
        self._open: deque[PooledFile] = deque()

    @property
    def open_count(self) -> int:
        """Files that are open now."""
        return len(self._open)

    def get(self, path: Path, size: int, *, is_made: bool = False) -> PooledFile:
        """The file of this path, opened when it is used; made and given its size then unless it is there."""
        return PooledFile(path, size, self, is_made=is_made)

    def make_room(self) -> None:
        """Close files until one more may be opened."""
        open_files = self._open
        while len(open_files) >= self._open_max:
            file = open_files.popleft()
            if file.is_used:
                file.is_used = False
                open_files.append(file)
            else:
                file.close()

    def opened(self, file: PooledFile) -> None:
        """Count a file that was just opened."""
        self._open.append(file)

    def remove(self, file: PooledFile) -> None:
        """Remove a file from the disk."""
        if file.is_open:
            self._open.remove(file)
            file.close()
        self.unsynced.discard(file)
        file.unsynced_size = 0
        self.files.remove(file.path)

    def collect_dirty(self, least_size: int = 0) -> list[File]:
        """Files with at least this many unsynced bytes, to be synced by the caller; they count as clean now."""
        collected: list[File] = []
        for file in tuple(self.unsynced):
            if file.unsynced_size >= least_size:
                file.unsynced_size = 0
                self.unsynced.discard(file)
                collected.append(file)
        return collected

    def close(self) -> None:
        """Close every file. What is unsynced is up to the operating system then."""
        for file in self._open:
            file.close()
        self._open.clear()
        self.unsynced.clear()


class FileRow:
    """Files of one size in a row, seen as one address space."""

    __slots__ = ("_pool", "_setting", "base_offset", "files", "folder", "segment_size")

    def __init__(self, folder: Path, segment_size: int, pool: FilePool, *, setting: str) -> None:
        """`setting` names the setting that gives the segment size, for error messages."""
        self.folder = folder
        self.segment_size = segment_size
        self.base_offset = 0
        """The first byte that is there."""
        self.files: list[PooledFile] = []
        self._pool = pool
        self._setting = setting

    def open(self) -> None:
        """Take up the files that are there. Raises StoreError or StoreCorruptError naming the one that is wrong."""
        files, size = self._pool.files, self.segment_size
        expected = -1
        for name in files.names(self.folder):
            base = base_offset_of(name)
            if base is None:
                continue
            path = self.folder / name
            actual = files.size(path)
            if actual not in (size, 0):
                raise StoreError(
                    f"{path} has {actual} bytes where {size} are configured; set {self._setting}={actual}?"
                )
            if expected < 0:
                if base % size:
                    raise StoreError(f"{path} does not begin at a multiple of {size}; is {self._setting} right?")
                self.base_offset = base
            elif base != expected:
                raise StoreCorruptError(
                    f"{path} does not follow {self.files[-1].path.name}: a file between them is missing. Restore it, "
                    f"or remove {self.folder.parent.parent}, which is built anew from the commit log then"
                )
            self.files.append(self._pool.get(path, size, is_made=actual == size))
            expected = base + size

    @property
    def end_offset(self) -> int:
        """Where the last file ends."""
        return self.base_offset + len(self.files) * self.segment_size

    def read(self, offset: int, size: int) -> bytes:
        """These bytes, up to the border of their file; none where there is no file."""
        index, position = divmod(offset - self.base_offset, self.segment_size)
        if not 0 <= index < len(self.files):
            return b""
        return self.files[index].read(position, min(size, self.segment_size - position))

    def write(self, data: bytes, offset: int) -> None:
        """Write here, in as many files as it takes; new ones are made behind the last. Raises StoreFullError."""
        size = self.segment_size
        if not self.files:
            self.base_offset = offset - offset % size
        index, position = divmod(offset - self.base_offset, size)
        if index < len(self.files) and position + len(data) <= size:
            self.files[index].write(data, position)
            return
        view = memoryview(data)
        while view:
            if index >= len(self.files):
                self._make_file()
            part = view[: size - position]
            self.files[index].write(part, position)
            view = view[len(part) :]
            index += 1
            position = 0

    def cut(self, end_offset: int) -> PooledFile | None:
        """End here: later files are removed, the rest of this one is cleared. The file to be synced for that.

        A first file is kept though nothing is left in it, unless it is that of offset 0: it says where the row ends.
        """
        keep = -(-(end_offset - self.base_offset) // self.segment_size)
        if self.base_offset and self.files:
            keep = max(keep, 1)
        while len(self.files) > max(keep, 0):
            self._remove(-1)
        if not self.files or end_offset >= self.end_offset:
            return None
        file = self.files[-1]
        file.clear_from(max(end_offset - self.base_offset, 0) % self.segment_size)
        return file

    def drop_first(self) -> None:
        """Remove the first file."""
        self._remove(0)
        self.base_offset += self.segment_size

    def remove(self) -> None:
        """Remove every file and the folder."""
        while self.files:
            self._remove(-1)
        self.base_offset = 0
        files = self._pool.files
        if files.exists(self.folder) and not files.names(self.folder):
            files.remove_folder(self.folder)
            files.sync_folder(self.folder.parent)

    def _make_file(self) -> None:
        files = self._pool.files
        if self.files:
            self.files[-1].sync_name()
        else:
            files.make_folder(self.folder)
        file = self._pool.get(self.folder / segment_name(self.end_offset), self.segment_size)
        file.open()
        self.files.append(file)

    def _remove(self, index: int) -> None:
        # From either end, each on disk before the next: what a crash leaves is a row without gaps.
        self._pool.remove(self.files[index])
        del self.files[index]
        self._pool.files.sync_folder(self.folder)
