"""Memory that is all in use before much is written: a virtual machine pays for pages that its host has lent to others.

What is free on such a machine belongs to the host, and to touch a page of it for the first time takes several times as
long as to write to it. Whoever writes fresh files would be measured by that alone. A file of holes as large as what is
free, read once, fills the system's cache with pages that are given up at no cost when they are needed. Some systems
give back what was not used for a while, so it is to be done again before each run.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from benchmarks.process_usage import available_mb, free_mb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_CHUNK: Final = 8 * 1024 * 1024


@contextmanager
def full_page_cache(folder: Path) -> Iterator[Callable[[], None]]:
    """As long as this lasts; what it gives uses what has become free since. The file takes no space on the disk."""
    path = folder / "holes"
    try:
        with path.open("w+b", buffering=0) as file:
            _read_holes(file, available_mb())
            yield lambda: _read_holes(file, free_mb())
    finally:
        path.unlink(missing_ok=True)


def _read_holes(file: IO[bytes], megabytes: float) -> None:
    begin = os.fstat(file.fileno()).st_size
    end = begin + int(megabytes * 1e6)
    file.truncate(end)
    chunk = bytearray(_CHUNK)
    for position in range(begin, end, _CHUNK):
        os.preadv(file.fileno(), [chunk], position)
