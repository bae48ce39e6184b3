"""The files of a store opened for reading only, without its lock, while its owner may go on writing and deleting.

Nothing is mapped: a file that its owner cuts or removes while we read gives fewer bytes and not SIGBUS, and memory is
what the caller's buffers take. Sizes of segments are those of the files, since nobody here knows the settings that the
store was made with. The number of open descriptors is bounded, however many queues there are.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections import Counter, OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from fusee.errors import StoreError
from fusee.store.filesystem import store_error
from fusee.store.layout import BATCH_CONSUME_QUEUE, CHECKPOINT, COMMIT_LOG, CONSUME_QUEUE, StorePaths, base_offset_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DESCRIPTORS_MAX: Final = 256
READ_SIZE: Final = 1 << 20
# Java's names of what we know but do not keep in `layout`, because no part of ours writes it.
TIMER_WHEEL: Final = "timerwheel"
TIMER_LOG: Final = "timerlog"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
_MARKS: Final = (COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CHECKPOINT)


class Descriptors:
    """Open files, the least recently used of which is closed when there are too many."""

    def __init__(self, count_max: int = DESCRIPTORS_MAX) -> None:
        self._count_max = count_max
        self._open: OrderedDict[Path, int] = OrderedDict()

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file. Raises FileNotFoundError, or StoreError."""
        try:
            return os.pread(self._descriptor(path), size, position)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise store_error(error, path, size) from error

    def read_into(self, path: Path, position: int, buffer: memoryview) -> int:
        """Fill the buffer as far as the file goes; how many bytes. Raises FileNotFoundError, or StoreError."""
        done = 0
        try:
            descriptor = self._descriptor(path)
            while done < len(buffer):
                count = os.preadv(descriptor, [buffer[done:]], position + done)
                if count == 0:
                    break
                done += count
        except FileNotFoundError:
            raise
        except OSError as error:
            raise store_error(error, path, len(buffer)) from error
        return done

    def drop_if_replaced(self, path: Path) -> None:
        """Open this file anew for the next read when its name has gone to another file since. Raises OSError."""
        descriptor = self._open.get(path)
        if descriptor is not None and not os.path.samestat(os.fstat(descriptor), path.stat()):
            os.close(self._open.pop(path))

    def written_ranges(self, path: Path, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, end) that are no holes."""
        descriptor = self._descriptor(path)
        while start < end:
            try:
                start = os.lseek(descriptor, start, os.SEEK_DATA)
                hole = os.lseek(descriptor, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    return
                raise store_error(error, path, 0) from error
            if start < end:
                yield start, min(hole, end)
            start = hole

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, path: Path) -> int:
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        while len(self._open) >= self._count_max:
            os.close(self._open.popitem(last=False)[1])
        self._open[path] = descriptor
        return descriptor


class SegmentFile(NamedTuple):
    """One file of a row, as it was found."""

    base_offset: int
    path: Path
    size: int
    allocated: int
    """Bytes that it takes on disk: fewer than `size` where it has holes."""

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.size


class SegmentRow:
    """The segments in a folder as one address space. Files may be missing, short, or grow while we look."""

    def __init__(self, folder: Path, descriptors: Descriptors) -> None:
        self.folder = folder
        self.foreign: list[str] = []
        self.segments: list[SegmentFile] = []
        self._descriptors = descriptors
        for name in names_in(folder):
            base_offset = base_offset_of(name)
            stat = _stat_or_none(folder / name)
            if base_offset is None or stat is None:
                self.foreign.append(name)
            else:
                self.segments.append(SegmentFile(base_offset, folder / name, stat.st_size, stat.st_blocks * 512))
        self._bases = [segment.base_offset for segment in self.segments]
        sizes = Counter(segment.size for segment in self.segments)
        self.segment_size = max(sizes, key=lambda size: (sizes[size], size), default=0)
        """What most files have; the larger one when in doubt, because files are cut and never stretched."""

    def __bool__(self) -> bool:
        return bool(self.segments)

    @property
    def min_offset(self) -> int:
        return self._bases[0] if self._bases else 0

    @property
    def end_offset(self) -> int:
        """Where the last file ends, however much of it is written."""
        return self.segments[-1].end_offset if self.segments else 0

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def allocated(self) -> int:
        return sum(segment.allocated for segment in self.segments)

    def locate(self, offset: int) -> SegmentFile | None:
        """The segment that covers this offset."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0 or offset >= self.segments[index].end_offset:
            return None
        return self.segments[index]

    def read(self, offset: int, size: int) -> bytes:
        """These bytes, from one segment after the other; those before the first gap when something is missing."""
        parts: list[bytes] = []
        while size > 0:
            segment = self.locate(offset)
            if segment is None:
                break
            try:
                part = self._descriptors.read(
                    segment.path, offset - segment.base_offset, min(size, segment.end_offset - offset)
                )
            except FileNotFoundError:
                break
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_past_gaps(self, offset: int, size: int) -> bytes:
        """These bytes, with zeros for what is missing before the end of the row."""
        parts: list[bytes] = []
        while size > 0:
            part = self.read(offset, size)
            if not part:
                index = bisect_right(self._bases, offset)
                if index >= len(self._bases):
                    break
                part = bytes(min(size, self._bases[index] - offset))
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, segment: SegmentFile, position: int, buffer: memoryview) -> int:
        """Fill the buffer from one segment as far as it goes; how many bytes. Nothing when it was removed."""
        try:
            return self._descriptors.read_into(segment.path, position, buffer)
        except FileNotFoundError:
            return 0

    def written_ranges(self, segment: SegmentFile, position: int) -> list[tuple[int, int]]:
        """The parts of a segment behind this position that are no holes."""
        try:
            return list(self._descriptors.written_ranges(segment.path, position, segment.size))
        except FileNotFoundError:
            return []

    def last_written(self, segment: SegmentFile, position: int) -> int:
        """The position behind the last byte of a segment that is not zero; `position` when there is none behind it."""
        for start, end in reversed(self.written_ranges(segment, position)):
            at = end
            while at > start:
                piece_start = max(at - READ_SIZE, start)
                piece = self.read(segment.base_offset + piece_start, at - piece_start).rstrip(b"\0")
                if piece:
                    return piece_start + len(piece)
                at = piece_start
        return position


class QueueFiles(NamedTuple):
    """One consume queue: its place and its row of files."""

    topic: str
    queue_id: int
    row: SegmentRow


class OfflineStore:
    """The files of one store."""

    def __init__(self, root: Path, commit_log: Path | None = None) -> None:
        """Raises StoreError when there is no store at this path."""
        self.paths = StorePaths(root, commit_log)
        self.descriptors = Descriptors()
        try:
            is_folder = root.is_dir()
            known = is_folder and any((root / mark).exists() for mark in _MARKS)
        except OSError as error:
            raise store_error(error, root, 0) from error
        if not is_folder:
            raise StoreError(f"{root} is no folder: give the root of a store, the one that holds {COMMIT_LOG}/")
        if not known and not self.paths.commit_log.is_dir():
            hint = f"; did you mean {root.parent}?" if root.name in _MARKS else ""
            raise StoreError(f"{root} is no store: it holds none of {', '.join(_MARKS)}{hint}")
        self.log = SegmentRow(self.paths.commit_log, self.descriptors)
        self._queues: list[QueueFiles] | None = None
        self._batch_queues: list[QueueFiles] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.descriptors.close()

    @property
    def root(self) -> Path:
        return self.paths.root

    @property
    def is_unclean(self) -> bool:
        """Whether the mark of an open store is there: it is open now, or its owner did not come to close it."""
        return self.paths.abort.exists()

    def holder(self) -> int | None:
        """The process that has the store open now; 0 when it cannot be named; None when nobody has, or nobody knows.

        Asked of the system's table of locks. Opening the lock file would be simpler, but closing it again would end
        the lock if it is this very process that holds it.
        """
        stat = _stat_or_none(self.paths.lock)
        if stat is None:
            return None
        wanted = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
        try:
            table = Path("/proc/locks").read_text()
        except OSError:
            return None
        for line in table.splitlines():
            fields = line.split()
            if len(fields) > 5 and fields[1] == "POSIX" and fields[5] == wanted:
                return max(int(fields[4]), 0)
        return None

    def queues(self) -> Sequence[QueueFiles]:
        """The consume queues, by topic and number, as they were when this was first asked."""
        if self._queues is None:
            self._queues = list(self._queues_under(self.paths.consume_queues))
        return self._queues

    def batch_queues(self) -> Sequence[QueueFiles]:
        """The queues of topics whose messages are stored in batches."""
        if self._batch_queues is None:
            self._batch_queues = list(self._queues_under(self.paths.batch_consume_queues))
        return self._batch_queues

    def queue(self, topic: str, queue_id: int) -> SegmentRow:
        """The files of one consume queue, as they are now."""
        return SegmentRow(self.paths.consume_queue(topic, queue_id), self.descriptors)

    def batch_queue(self, topic: str, queue_id: int) -> SegmentRow:
        return SegmentRow(self.paths.batch_consume_queues / topic / str(queue_id), self.descriptors)

    def row(self, name: str) -> SegmentRow:
        """The segments in a folder under the root."""
        return SegmentRow(self.root / name, self.descriptors)

    def index_files(self) -> list[Path]:
        """Index files, oldest first."""
        return [self.paths.index / name for name in names_in(self.paths.index) if name.isdigit()]

    def relative(self, path: Path) -> str:
        """A path as it is told: from the root on, if it is under it."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def read_file(self, path: Path, size_max: int) -> bytes | None:
        """A small file as a whole; None when it is not there. Raises StoreError when it is larger than that."""
        try:
            if path.stat().st_size > size_max:
                raise StoreError(f"{path} is larger than the {size_max} bytes that this kind of file may have")
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise store_error(error, path, 0) from error

    def _queues_under(self, folder: Path) -> Iterator[QueueFiles]:
        for topic in names_in(folder):
            numbers = sorted(int(name) for name in names_in(folder / topic) if name.isascii() and name.isdigit())
            for queue_id in numbers:
                yield QueueFiles(topic, queue_id, SegmentRow(folder / topic / str(queue_id), self.descriptors))


def names_in(folder: Path) -> list[str]:
    """Names in a folder, sorted; none when there is no such folder."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  names are wanted, not a Path for each
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise store_error(error, folder, 0) from error


def _stat_or_none(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error(error, path, 0) from error
