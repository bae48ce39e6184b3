"""Memory that is all in use before much is written: a virtual machine pays for pages that its host has lent to others.

What is free on such a machine belongs to the host, and to touch a page of it for the first time takes several times as
long as to write to it. Whoever writes fresh files would be measured by that alone. A file of holes as large as what is
free, read once, fills the system's cache with pages that are given up at no cost when they are needed.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from benchmarks.process_usage import available_mb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK: Final = 8 * 1024 * 1024


@contextmanager
def full_page_cache(folder: Path) -> Iterator[None]:
    """As long as this lasts; the file takes no space on the disk."""
    path = folder / "holes"
    size = int(available_mb() * 1e6)
    try:
        with path.open("w+b", buffering=0) as file:
            file.truncate(size)
            chunk = bytearray(_CHUNK)
            for position in range(0, size, _CHUNK):
                os.preadv(file.fileno(), [chunk], position)
        yield
    finally:
        path.unlink(missing_ok=True)
