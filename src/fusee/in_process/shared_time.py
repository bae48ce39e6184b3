"""One clock for the servers and clients of a process, which stands still until it is advanced.

`SharedTime` is their Clock and their Timers. `advance` runs every timer that falls due, in order of time, and lets
everything that a timer has set off come to rest before time goes on: so a program sees each moment as it would if hours
really passed, and does so the same way each time.

Very short timers group work rather than wait: several sends that leave together, a pull that is made again. They also
fire after that much real time, so that a plain send and receive needs nobody to advance the clock.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.clock import TimerHandle
    from fusee.in_process.stillness import Stillness
    from fusee.in_process.traffic import Traffic

SHORT: Final = 0.05
"""Seconds up to which a timer also fires by real time."""

_TIMERS_PER_TURN: Final = 512


class SharedTime:
    """Clock and Timers of everything on one event loop.

    (Not a `clock.ManualClock`, which cannot stop between two timers. An idle broker has some twenty timers a second,
    so what each of them costs is what an hour costs.)
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, traffic: Traffic, stillness: Stillness, *, start_ms: int
    ) -> None:
        self._loop = loop
        self._traffic = traffic
        self._stillness = stillness
        self._start_ms = start_ms
        self._now = 0.0
        self._heap: list[tuple[float, int, _Timer]] = []
        self._next_number = itertools.count().__next__
        self._turn = asyncio.Lock()

    def time_ms(self) -> int:
        return self._start_ms + round(self._now * 1000)

    def monotonic(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """Call back when the clock was advanced so far; at the end of this turn of the loop when it is 0."""
        if delay <= 0:
            return self._loop.call_soon(callback, *args)
        timer = _Timer(callback, args)
        heapq.heappush(self._heap, (self._now + delay, self._next_number(), timer))
        if delay <= SHORT:
            timer.real = self._loop.call_later(delay, timer.fire)
        return timer

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        await self._stillness.settle(self._traffic)

    async def advance(self, seconds: float) -> None:
        """Let so much time pass. Whoever calls while time is passing waits for it."""
        async with self._turn:
            await self._advance(self._now + seconds)

    async def finish(self, work: asyncio.Future[Any], seconds: float) -> None:
        """Let time pass until this is done, at most so much."""
        async with self._turn:
            target = self._now + seconds
            await self.settle()
            while not work.done() and self._heap and self._heap[0][0] <= target:
                await self._advance(self._heap[0][0])

    async def _advance(self, target: float) -> None:
        traffic, stillness, heap = self._traffic, self._stillness, self._heap
        await self.settle()
        calls, moves, timers = stillness.calls, traffic.moves, 0
        while heap and heap[0][0] <= target:
            due, _, timer = heapq.heappop(heap)
            if timer.is_over:
                continue
            if due > self._now:
                self._now = due
            timer.fire()
            timers += 1
            if (
                stillness.calls != calls
                or traffic.moves != moves
                or timers % _TIMERS_PER_TURN == 0
                or stillness.is_in_threads
            ):
                await self.settle()
                calls, moves = stillness.calls, traffic.moves
        self._now = max(self._now, target)


class _Timer:
    """A call that is to come; a short one by whichever time comes first, the clock's or the machine's."""

    __slots__ = ("_args", "_callback", "is_over", "real")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self.is_over = False
        self.real: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        self.is_over = True
        if self.real is not None:
            self.real.cancel()

    def fire(self) -> None:
        if not self.is_over:
            self.is_over = True
            if self.real is not None:
                self.real.cancel()
            self._callback(*self._args)
