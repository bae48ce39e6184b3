"""Time as a parameter: the only module that reads a clock.

`Clock` tells the time, `Timers` calls back later. `ManualClock` is both, and moves only when told, so that
time-outs, expiry and delays are tested in microseconds and simulation is deterministic.
"""

from __future__ import annotations

import heapq
import itertools
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """Tells the time: wall clock in milliseconds for what is written down, monotonic seconds for waiting."""

    def time_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class TimerHandle(Protocol):
    """A call that is still to come and can be cancelled. asyncio's own handle is one."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Calls back later. An asyncio event loop is one."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> TimerHandle: ...


class SystemClock:
    """The time of this machine."""

    __slots__ = ()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Asked for at every event of every connection: the C function itself, without a frame around it.
    monotonic = staticmethod(time.monotonic)


class _ManualTimer:
    __slots__ = ("args", "callback", "cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """A clock that stands still until `advance`, which runs every timer that falls due, in order of time."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._now = 0.0
        self._heap: list[tuple[float, int, _ManualTimer]] = []
        self._sequence = itertools.count()

    def time_ms(self) -> int:
        return self._start_ms + round(self._now * 1000)

    def monotonic(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        timer = _ManualTimer(callback, args)
        heapq.heappush(self._heap, (self._now + max(delay, 0.0), next(self._sequence), timer))
        return timer

    @property
    def next_due(self) -> float | None:
        """Monotonic time of the next timer, or None when nothing is waiting."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def advance(self, seconds: float) -> None:
        """Move time forward; timers set by timers run too when they fall within the span."""
        target = self._now + seconds
        while (due := self.next_due) is not None and due <= target:
            self._now = max(self._now, due)
            _, _, timer = heapq.heappop(self._heap)
            timer.callback(*timer.args)
        self._now = target

    def jump_wall(self, milliseconds: int) -> None:
        """Move the wall clock only, as an operator or NTP would."""
        self._start_ms += milliseconds
