"""Files as a parameter: what a store asks of the operating system, and the real one.

`FileSystem` opens, lists, renames, removes and locks; `File` is an open file that is written at positions and read
through a view of the whole of it. `simulated_disk.SimulatedDisk` is the faulty twin that forgets what was not synced.

Reading is by mmap, writing by pwrite: on Linux both see the same pages, appends by pwrite do not stall on read-ahead
as stores into a fresh mapping do, and fdatasync after pwrite is twice as fast as after dirtying a mapping. A view
stays valid as long as somebody holds it, also after the file was closed or removed; so slices can be on their way to
a socket while retention deletes their segment. Views are made of the size the file has when it is opened, and
files are never made shorter by a store, so reading a view does not end in SIGBUS; `view` refuses a file that somebody
else has cut.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from fusee.errors import StoreCorruptError, StoreError, StoreFullError
from fusee.store.blocks import set_blocks_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

_CLEAR_SIZE: Final = 1 << 20
_PARTS_MAX: Final = 512
# What a thread holds while it does what another might do too: a lock, or nothing where there is one thread.
NewGuard: TypeAlias = "Callable[[], AbstractContextManager[object]]"

# A write of this size is one of many; so much is set aside for them at a time.
_LARGE_SIZE: Final = 256 * 1024
_BLOCKS_SIZE: Final = 64 * 1024 * 1024


# Not every system can let go of mapped pages; then they are the process's until memory is needed elsewhere.
_DONT_NEED: Final[int | None] = getattr(mmap, "MADV_DONTNEED", None)


class Space(NamedTuple):
    """Bytes of the disk that holds a path."""

    total: int
    free: int
    """What we may still write."""
    reserved: int = 0
    """What is free but not for us."""

    @property
    def used_ratio(self) -> float:
        """Used, of what is used or may be: as `df` and Java count it."""
        usable = self.total - self.reserved
        return 1.0 - self.free / usable if usable else 0.0


class File(Protocol):
    """An open file of fixed size."""

    @property
    def path(self) -> Path: ...

    @property
    def size(self) -> int: ...

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of it, or raise: StoreFullError when the disk is full, StoreError otherwise."""

    def write_all(self, parts: Sequence[bytes | memoryview], position: int) -> None:
        """The same of parts that follow each other; may be called from any thread."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes."""

    def view(self) -> memoryview:
        """The whole file, read-only; always what was last written."""

    def written_ranges(self, start: int) -> Sequence[tuple[int, int]]:
        """The parts from here on that were ever written, or may have been; what lies between them reads as zeros."""

    def forget(self, start: int, size: int) -> None:
        """Let go of the memory by which this part was read; it stays in the machine's cache, and readable."""

    def clear_from(self, position: int) -> None:
        """Make everything from this position on read as zeros; on disk after the next `sync`."""

    def set_blocks_aside(self) -> None:
        """Have the disk find space for all of it now, where it can; else it does when there is something to write.

        May wait for the disk. May be called from any thread, while nobody writes.
        """

    def sync(self) -> None:
        """Return when everything written is on disk. Raises StoreError.

        May be called from any thread, and also after `close`. Of a file that was removed, nothing is to be done.
        """

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock that is held."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """What a store asks of the operating system."""

    def open(self, path: Path, *, size: int | None = None) -> File:
        """Open a file; with `size`, make it if need be and give it at least that size, sparse."""

    def names(self, folder: Path) -> list[str]:
        """Names in a folder, sorted; none when there is no such folder."""

    def is_folder(self, path: Path) -> bool: ...

    def exists(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int: ...

    def modified_ms(self, path: Path) -> int: ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, durably."""

    def remove(self, path: Path) -> None:
        """Remove a file; nothing happens when there is none."""

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""

    def rename(self, source: Path, target: Path) -> None: ...

    def sync_folder(self, folder: Path) -> None:
        """Return when names made, renamed and removed in this folder are on disk."""

    def read_file(self, path: Path) -> bytes: ...

    def lock(self, path: Path) -> Lock:
        """Hold this file alone. Raises StoreError when another process has it."""

    def space(self, path: Path) -> Space: ...


class _Descriptor:
    """An open descriptor that is closed when the last user lets go of it: also a sync under way in another thread."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _OsFile:
    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size
        self._descriptor: _Descriptor | None = _Descriptor(descriptor)
        self._view: memoryview | None = None
        self._mapped: mmap.mmap | None = None
        self._blocks_end = 0

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        if position + len(data) > self.size:
            raise StoreError(f"{self.path}: {len(data)} bytes at {position} do not fit into {self.size}")
        descriptor = self._open_descriptor()
        view = memoryview(data)
        if len(view) >= _LARGE_SIZE and position + len(view) > self._blocks_end:
            self._ask_for_blocks(descriptor.number, position)
        while view:
            try:
                written = os.pwrite(descriptor.number, view, position)
            except OSError as error:
                raise store_error(error, self.path, len(data)) from error
            view = view[written:]
            position += written

    def write_all(self, parts: Sequence[bytes | memoryview], position: int) -> None:
        total = sum(map(len, parts))
        if position + total > self.size:
            raise StoreError(f"{self.path}: {total} bytes at {position} do not fit into {self.size}")
        descriptor = self._open_descriptor()
        if total >= _LARGE_SIZE and position + total > self._blocks_end:
            self._ask_for_blocks(descriptor.number, position)
        for first in range(0, len(parts), _PARTS_MAX):
            some = parts[first : first + _PARTS_MAX]
            size = sum(map(len, some))
            try:
                written = os.pwritev(descriptor.number, some, position)
            except OSError as error:
                raise store_error(error, self.path, total) from error
            if written < size:  # all the rest then, in as many steps as it takes
                self.write(memoryview(b"".join(some))[written:], position + written)
            position += size

    def read(self, position: int, size: int) -> bytes:
        try:
            return os.pread(self._open_descriptor().number, size, position)
        except OSError as error:
            raise store_error(error, self.path, size) from error

    def view(self) -> memoryview:
        descriptor = self._open_descriptor()
        # Looked at each time, by the quickest call for it: touching a page behind the end of a file that somebody has
        # cut would end the process by SIGBUS.
        actual = os.lseek(descriptor.number, 0, os.SEEK_END)
        if actual < self.size:
            raise StoreCorruptError(
                f"{self.path} was cut from {self.size} to {actual} bytes while it was open. Stop the broker, and "
                "restore the file or let recovery cut the store there"
            )
        if self._view is None:
            if self.size == 0:
                return memoryview(b"")
            try:
                mapped = mmap.mmap(descriptor.number, self.size, mmap.MAP_SHARED, mmap.PROT_READ)
            except OSError as error:
                raise store_error(error, self.path, self.size) from error
            self._mapped = mapped
            self._view = memoryview(mapped)
        return self._view

    def written_ranges(self, start: int) -> Sequence[tuple[int, int]]:
        try:
            return list(_written_ranges(self._open_descriptor().number, start, self.size))
        except OSError as error:
            raise store_error(error, self.path, 0) from error

    def forget(self, start: int, size: int) -> None:
        mapped = self._mapped
        if mapped is not None and _DONT_NEED is not None:
            first = start - start % mmap.PAGESIZE
            mapped.madvise(_DONT_NEED, first, min(start + size, self.size) - first)

    def clear_from(self, position: int) -> None:
        descriptor = self._open_descriptor()
        # Zeros over what was written, and holes left as they are. Cutting the file and growing it again would be
        # cheaper, but a crash between the two leaves a short file, and a reader of the view meets SIGBUS.
        zeros = bytes(_CLEAR_SIZE)
        try:
            for start, end in _written_ranges(descriptor.number, position, self.size):
                for at in range(start, end, _CLEAR_SIZE):
                    self.write(memoryview(zeros)[: min(end - at, _CLEAR_SIZE)], at)
        except OSError as error:
            raise store_error(error, self.path, 0) from error

    def set_blocks_aside(self) -> None:
        if self._blocks_end < self.size and set_blocks_aside(self._open_descriptor().number, 0, self.size):
            self._blocks_end = self.size

    def sync(self) -> None:
        # Closed in the meantime: whoever collected this file for syncing still relies on it. Any descriptor of a file
        # syncs all of its pages; and a file that was removed needs it no more.
        try:
            descriptor = self._descriptor or _Descriptor(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))
            os.fdatasync(descriptor.number)
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(error, self.path, 0) from error

    def close(self) -> None:
        # The mapping lives on until the last view of it is gone.
        self._view = None
        self._mapped = None
        self._descriptor = None

    def _open_descriptor(self) -> _Descriptor:
        if self._descriptor is None:
            raise StoreError(f"{self.path}: the file was closed already")
        return self._descriptor

    def _ask_for_blocks(self, descriptor: int, position: int) -> None:
        """Have the file system set blocks aside for what follows: finding them one by one costs a third of a write.

        They read as zeros, like the hole that was there. Where this cannot be had, writing finds blocks by itself.
        """
        end = min(position + _BLOCKS_SIZE, self.size)
        self._blocks_end = end if set_blocks_aside(descriptor, position, end - position) else self.size


def _written_ranges(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that are no holes."""
    while start < end:
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
            hole = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        if start < end:
            yield start, min(hole, end)
        start = hole


class _OsLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._identity = _identity(os.fstat(descriptor))
        _held_locks.add(self._identity)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            _held_locks.discard(self._identity)


# Locks of POSIX belong to a process: a second one here would be granted, and closing it would end the first. So the
# file of a lock that this process holds must not even be opened again.
_held_locks: set[tuple[int, int]] = set()


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


class OsFileSystem:
    """The files of this machine."""

    def open(self, path: Path, *, size: int | None = None) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if size is not None else 0)
        try:
            descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            raise store_error(error, path, size or 0) from error
        try:
            actual = os.fstat(descriptor).st_size
            if size is not None and actual < size:
                os.ftruncate(descriptor, size)
                actual = size
        except OSError as error:
            os.close(descriptor)
            raise store_error(error, path, size or 0) from error
        return _OsFile(path, descriptor, actual)

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208  names are wanted, not a Path for each
        except FileNotFoundError:
            return []
        except OSError as error:
            raise store_error(error, folder, 0) from error

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return _stat(path).st_size

    def modified_ms(self, path: Path) -> int:
        return _stat(path).st_mtime_ns // 1_000_000

    def make_folder(self, path: Path) -> None:
        missing: list[Path] = []
        folder = path
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise store_error(error, folder, 0) from error
            self.sync_folder(folder.parent)

    def remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise store_error(error, path, 0) from error

    def remove_folder(self, path: Path) -> None:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(error, path, 0) from error

    def rename(self, source: Path, target: Path) -> None:
        try:
            source.rename(target)
        except OSError as error:
            raise store_error(error, source, 0) from error

    def sync_folder(self, folder: Path) -> None:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise store_error(error, folder, 0) from error

    def read_file(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise store_error(error, path, 0) from error

    def lock(self, path: Path) -> Lock:
        if path.exists() and _identity(_stat(path)) in _held_locks:
            raise _is_held(path, "this process")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise store_error(error, path, 0) from error
        try:
            # Of the file's first byte, as the reference does, so that the two do not open one store together.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(descriptor, b"lock", 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise _is_held(path, "another process") from error
            raise store_error(error, path, 0) from error
        return _OsLock(descriptor)

    def space(self, path: Path) -> Space:
        while not path.exists():
            path = path.parent
        try:
            stat = os.statvfs(path)
        except OSError as error:
            raise store_error(error, path, 0) from error
        size = stat.f_frsize
        return Space(stat.f_blocks * size, stat.f_bavail * size, (stat.f_bfree - stat.f_bavail) * size)


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise store_error(error, path, 0) from error


def _is_held(path: Path, holder: str) -> StoreError:
    return StoreError(
        f"{path} is held by {holder}: this store is open already. Stop that broker, or use another store path"
    )


def store_error(error: OSError, path: Path, size: int) -> StoreError:
    """What happened to which file, with the remedy where there is one."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFullError(
            f"no space left for {size} bytes in {path}: free some, shorten fileReservedTime, or move the store"
        )
    return StoreError(f"{path}: {error.strerror or error}")
