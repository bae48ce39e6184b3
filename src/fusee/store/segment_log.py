"""Fixed-size files in a row, seen as one address space (Java: MappedFile and MappedFileQueue).

Offsets are bytes from the beginning of time; segment N covers [base, base + segment_size), its name is its base.
Nothing crosses a border. Segments are made sparse; `prepare` makes the next one ahead, on a thread that may wait for
the disk. Size and name of a new segment are synced, so that one that was written to is found again; so is each removal,
so that the row has no gap whenever the machine stops.

The log itself keeps no contents and knows no records: `end_offset` is where the owner says that its data ends.
After a crash the owner finds its end and calls `truncate`, which clears everything behind it: stale bytes that
happened to look like the owner's next data would otherwise rise from the dead when the new end reaches them.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from fusee.errors import StoreCorruptError, StoreError
from fusee.store.layout import base_offset_of, segment_name

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.store.filesystem import File, FileSystem, NewGuard

# When this part of a segment is used the next one gets its blocks, if the disk has room for many more.
_USED_PART: Final = 1 / 4
_FREE_SEGMENTS_MIN: Final = 8


class Segment:
    """One file of a row."""

    __slots__ = ("base_offset", "end_offset", "file", "size")

    def __init__(self, base_offset: int, file: File) -> None:
        self.base_offset = base_offset
        self.file = file
        self.size = file.size
        self.end_offset = base_offset + file.size

    def __repr__(self) -> str:
        return f"<Segment {self.file.path}>"


class SegmentLog:
    """A row of segments."""

    def __init__(
        self,
        folder: Path,
        segment_size: int,
        files: FileSystem,
        *,
        setting: str = "",
        new_guard: NewGuard = nullcontext,
    ) -> None:
        """`setting` names the setting that gives the segment size, for error messages.

        Who calls `prepare` on a thread of its own gives a lock as `new_guard`.
        """
        self.folder = folder
        self.segment_size = segment_size
        self.end_offset = 0
        self._files = files
        self._setting = setting
        self._prepared: Segment | None = None
        self._is_closed = False
        # Held while segments are made or removed, or while it is seen to it that none is being made.
        self._changing = new_guard()
        self.segments: list[Segment] = []

    def open(self) -> None:
        """Take up the files that are there. Raises StoreError or StoreCorruptError naming the file that is wrong."""
        if self._files.exists(self.folder):
            # A process that was killed between a change of names and its sync has left this to the next one.
            self._files.sync_folder(self.folder)
        bases = [(base, name) for name in self._files.names(self.folder) if (base := base_offset_of(name)) is not None]
        try:
            for base, name in bases:
                self._take_up(base, self.folder / name, is_last=base == bases[-1][0])
        except StoreError:
            self.close()
            self.segments.clear()
            raise
        self.end_offset = self.segments[-1].end_offset if self.segments else 0

    def _take_up(self, base_offset: int, path: Path, *, is_last: bool) -> None:
        size = self._files.size(path)
        if size == 0 and is_last:
            # Made, but the machine stopped before it had its size.
            self._files.remove(path)
            return
        # The last one may be shorter: a copy that was cut off. What is missing reads as zeros.
        if size != self.segment_size and not (is_last and size < self.segment_size):
            hint = f"; set {self._setting}={size}?" if self._setting else ""
            raise StoreError(f"{path} has {size} bytes where {self.segment_size} are configured{hint}")
        if base_offset % self.segment_size:
            hint = f" ({self._setting})" if self._setting else ""
            raise StoreCorruptError(
                f"{path}: the name is no multiple of {self.segment_size}, the configured size of a file{hint}"
            )
        if self.segments and base_offset != self.segments[-1].end_offset:
            raise StoreCorruptError(
                f"{path} does not follow {self.segments[-1].file.path}: a file between them is missing. Put it back, "
                "or move the files before the gap away to give up what is in them"
            )
        self.segments.append(Segment(base_offset, self._files.open(path, size=self.segment_size)))

    @property
    def min_offset(self) -> int:
        """The first offset that is there."""
        return self.segments[0].base_offset if self.segments else self.end_offset

    def locate(self, offset: int) -> Segment | None:
        """The segment that covers this offset."""
        if not self.segments:
            return None
        index = (offset - self.segments[0].base_offset) // self.segment_size
        return self.segments[index] if 0 <= index < len(self.segments) else None

    def at_end(self) -> Segment:
        """The segment that covers `end_offset`, made if need be. A new row begins at the border below it."""
        segment = self.locate(self.end_offset)
        if segment is None:
            base = self.end_offset - self.end_offset % self.segment_size
            if self.segments and base != self.segments[-1].end_offset:
                raise StoreError(
                    f"{self.folder}: no segment at {base} can be made where the last one ends at "
                    f"{self.segments[-1].end_offset}"
                )
            with self._changing:
                if self._prepared is not None and self._prepared.base_offset == base:
                    segment, self._prepared = self._prepared, None
                else:
                    segment = self._make(base)
                self.segments.append(segment)
        return segment

    def prepare(self) -> bool:
        """Make the segment after the last one, so that rolling costs nothing; whether one was made.

        With a guard, from any thread. When the last one is being filled, blocks are set aside for the next: a writer
        that has to look for them may wait for the disk.
        """
        with self._changing:
            if self._is_closed or not self.segments:
                return False
            last, prepared = self.segments[-1], self._prepared
            is_new = prepared is None
            if prepared is None:
                prepared = self._prepared = self._make(last.end_offset)
            if self.end_offset - last.base_offset >= self.segment_size * _USED_PART:
                free = self._files.space(self.folder).free
                if free >= self.segment_size * _FREE_SEGMENTS_MIN:
                    prepared.file.set_blocks_aside()
            return is_new

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write inside one segment that is there."""
        segment = self.locate(offset)
        if segment is None or offset + len(data) > segment.end_offset:
            raise StoreError(f"{self.folder}: no segment holds [{offset}, {offset + len(data)})")
        segment.file.write(data, offset - segment.base_offset)

    def slice(self, offset: int, size: int) -> memoryview | None:
        """These bytes from where they lie; None when they are not (all) there."""
        segment = self.locate(offset)
        if segment is None or offset + size > segment.end_offset:
            return None
        start = offset - segment.base_offset
        return segment.file.view()[start : start + size]

    def truncate(self, end_offset: int) -> None:
        """End here: later segments are removed, the rest of this one is cleared; durable when this returns.

        A row that does not end at 0 keeps a segment, be it empty: its name tells where the row goes on.
        """
        with self._changing:
            self._discard_prepared()
            while self.segments and self.segments[-1].base_offset >= max(end_offset, 1):
                if len(self.segments) == 1 and self.segments[0].base_offset == end_offset:
                    break
                self._discard(self.segments.pop())
        if self.segments and end_offset < self.segments[-1].end_offset:
            last = self.segments[-1]
            last.file.clear_from(end_offset - last.base_offset)
            last.file.sync()
        self.end_offset = end_offset
        if not self.segments and end_offset > 0:
            self.at_end()

    def restart_at(self, base_offset: int) -> None:
        """Remove every segment, the last one first, and begin with an empty one here; durable when this returns."""
        if base_offset % self.segment_size:
            hint = f"; set {self._setting} as it is where they come from" if self._setting else ""
            raise StoreError(f"{self.folder}: no segment of {self.segment_size} bytes begins at {base_offset}{hint}")
        with self._changing:
            self._discard_prepared()
            while self.segments:
                self._discard(self.segments.pop())
        self.end_offset = base_offset
        self.at_end()

    def drop_head(self, offset: int) -> list[Path]:
        """Remove every segment that ends at or before this offset, never the last; which files."""
        dropped: list[Path] = []
        while len(self.segments) > 1 and self.segments[0].end_offset <= offset:
            segment = self.segments.pop(0)
            dropped.append(segment.file.path)
            self._discard(segment)
        return dropped

    def close(self) -> None:
        with self._changing:
            self._is_closed = True
            for segment in self.segments:
                segment.file.close()
            if self._prepared is not None:
                self._prepared.file.close()

    def _make(self, base_offset: int) -> Segment:
        self._files.make_folder(self.folder)
        file = self._files.open(self.folder / segment_name(base_offset), size=self.segment_size)
        # The size before the name, and both before the next segment is made: only the last file can be an empty one.
        file.sync()
        self._files.sync_folder(self.folder)
        return Segment(base_offset, file)

    def _discard_prepared(self) -> None:
        if self._prepared is not None:
            self._discard(self._prepared)
            self._prepared = None

    def _discard(self, segment: Segment) -> None:
        segment.file.close()
        self._files.remove(segment.file.path)
        # One by one: were two removals to reach the disk in the other order, a crash would leave a gap in the row.
        self._files.sync_folder(self.folder)
