"""Waiting for other processes, which live in real time: how long is left, and a breath between two looks."""

from __future__ import annotations

import select

from fusee.clock import SystemClock

_CLOCK = SystemClock()


class Patience:
    """So many seconds from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = _CLOCK.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds, never less than none."""
        return max(self._end - _CLOCK.monotonic(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.left == 0


def breathe(seconds: float) -> None:
    """Let this thread rest."""
    select.select((), (), (), seconds)
