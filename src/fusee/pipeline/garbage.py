"""The search for garbage that Spark has its Python processes make after every task and every call."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle(pid: int) -> None:
    """Leave what this process has loaded out of the search, once for each process.

    It takes longer than a small batch: 8 ms with everything that Spark and Arrow load.
    """
    gc.freeze()
