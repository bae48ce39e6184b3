"""Blocks of a disk set aside for a part of a file, where the system can do so (Linux: fallocate).

Python has only `posix_fallocate`, which writes to every block where the file system cannot do it by itself.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def set_blocks_aside(descriptor: int, start: int, size: int) -> bool:
    """Whether this part of the file has blocks now; what it holds stays as it is, and holes still read as zeros."""
    fallocate = _fallocate()
    return fallocate is not None and fallocate(descriptor, 0, start, size) == 0


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    import ctypes  # only where much is written

    try:
        function = ctypes.CDLL(None).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    function.restype = ctypes.c_int
    found: Callable[[int, int, int, int], int] = function
    return found
