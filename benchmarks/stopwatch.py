"""CPU microseconds per item of a function over a fixed batch, with the collector off.

The thread's own CPU time is read, not the wall clock: code that never waits costs the same on a busy machine.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS_MAX: Final = 1_000_000


def calibrated_rounds(work: Callable[[], object], seconds: float) -> int:
    """How often to call `work` so that it takes about this much CPU time."""
    work()
    rounds = 1
    while rounds < ROUNDS_MAX:
        taken_s = _timed(work, rounds)
        if taken_s >= seconds / 10:
            return max(1, min(ROUNDS_MAX, int(rounds * seconds / taken_s)))
        rounds *= 4
    return ROUNDS_MAX


def us_per_item(work: Callable[[], object], rounds: int, items: int) -> float:
    """Time of `rounds` calls, divided among the items that each call handles."""
    return _timed(work, rounds) * 1e6 / (rounds * items)


def _timed(work: Callable[[], object], rounds: int) -> float:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        start = time.thread_time()
        for _ in range(rounds):
            work()
        return time.thread_time() - start
    finally:
        if was_enabled:
            gc.enable()
