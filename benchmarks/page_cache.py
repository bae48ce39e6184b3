"""Memory that is all in use before much is written: a virtual machine pays for pages that its host has lent to others.

What is free on such a machine belongs to the host, and to touch a page of it for the first time takes ten times as long
as to write to it. Whoever writes fresh files would be measured by that alone. A file of holes as large as what is
free, read once, fills the system's cache with pages that are given up at no cost when they are needed. Some systems
give back what was not used for a while, so it is done again before each run.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from benchmarks.process_usage import available_mb, free_mb

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_CHUNK: Final = 8 * 1024 * 1024


class FullPageCache:
    """As long as this is open; its file takes no space on the disk."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "holes"
        self._stack = ExitStack()
        self._end = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._path.unlink, missing_ok=True)
            self._file = stack.enter_context(self._path.open("w+b", buffering=0))
            self._read_more(available_mb())
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def refill(self) -> None:
        """Use what has become free since."""
        self._read_more(free_mb())

    def _read_more(self, megabytes: float) -> None:
        begin, self._end = self._end, self._end + int(megabytes * 1e6)
        self._file.truncate(self._end)
        chunk = bytearray(_CHUNK)
        for position in range(begin, self._end, _CHUNK):
            os.preadv(self._file.fileno(), [chunk], position)
