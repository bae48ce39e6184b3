"""Where the log is to be cut, written down before the cutting begins (ours; the reference has no such file).

    0  int64   log offset of the cut
    8  uint32  CRC-32 of that

A cut touches many files: segments are removed, the rest of one is cleared, consume queues and index follow. When the
machine stops on the way, good records that had been synced lie behind a cleared place, which looks like damage that no
crash explains. The mark says that it was wanted, and where: opening the store does the cut again before anything else,
and removes the mark when everything derived is level. A torn mark means that nothing was cut yet.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.store.filesystem import FileSystem

_OFFSET: Final = Struct(">q")
_MARK: Final = Struct(">qI")


class Truncation:
    """The mark of a cut that is under way."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self._path = path
        self._files = files

    def begin(self, log_offset: int) -> None:
        """Say where the log is to be cut; on disk when this returns."""
        file = self._files.open(self._path, size=_MARK.size)
        try:
            file.write(_MARK.pack(log_offset, crc32(_OFFSET.pack(log_offset))), 0)
            file.sync()
        finally:
            file.close()
        self._files.sync_folder(self._path.parent)

    def pending(self) -> int | None:
        """Where the log was to be cut when the machine stopped; None when nothing is to be done."""
        if not self._files.exists(self._path):
            return None
        data = self._files.read_file(self._path)
        if len(data) != _MARK.size:
            return None
        log_offset, check = _MARK.unpack(data)
        return int(log_offset) if log_offset >= 0 and crc32(_OFFSET.pack(log_offset)) == check else None

    def finish(self) -> None:
        """The cut is done; durable when this returns."""
        if self._files.exists(self._path):
            self._files.remove(self._path)
            self._files.sync_folder(self._path.parent)
