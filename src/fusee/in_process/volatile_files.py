"""Files of a store that nobody will open again: written as usual, never synced.

A temporary store has no future that a sync could protect, and on a slow disk syncs are most of what starting and
stopping a broker takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.store.filesystem import File, OsFileSystem

if TYPE_CHECKING:
    from pathlib import Path


class _VolatileFile:
    """An open file; everything but `sync` is the file's own."""

    def __init__(self, file: File) -> None:
        self.path = file.path
        self.size = file.size
        self.write = file.write
        self.read = file.read
        self.write_all = file.write_all
        self.view = file.view
        self.written_ranges = file.written_ranges
        self.forget = file.forget
        self.clear_from = file.clear_from
        self.set_blocks_aside = file.set_blocks_aside
        self.close = file.close

    def sync(self) -> None:
        """Nothing."""


class VolatileFileSystem(OsFileSystem):
    """The files of this machine, without their durability."""

    def open(self, path: Path, *, size: int | None = None) -> File:
        return _VolatileFile(super().open(path, size=size))

    def sync_folder(self, folder: Path) -> None:
        """Nothing."""
