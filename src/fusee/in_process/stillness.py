"""Knows when an event loop has nothing left to do, without waiting for a time.

While a `Stillness` is in use it stands before three methods of its loop, `call_soon`, `call_soon_threadsafe` and
`run_in_executor`, and counts: asyncio's own futures and tasks go through them as everybody does. Calls run in the order
in which they were made, so when a coroutine lets the loop turn once and finds that only its own return was put on the
loop meanwhile, nothing else was left there. Together with `traffic` that is an exact answer, where a number of
turns would be a guess; and when a timer of a manual clock has put nothing on the loop, as nearly all do, the loop need
not turn at all.

What runs in threads is waited for, up to a limit of real time: it may be the program's own, and wait for something that
comes later. An executor's jobs are known; other threads are known by a function in `at_work`, and report to the loop by
`call_soon_threadsafe` when they are done.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Final

from fusee.clock import SystemClock
from fusee.errors import FuseeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from fusee.in_process.traffic import Traffic

SETTLE_TIMEOUT: Final = 10.0
"""Seconds of real time after which something that never comes to rest is given up."""

_SHADOWED: Final = ("call_soon", "call_soon_threadsafe", "run_in_executor")
_TURNS_BETWEEN_LOOKS: Final = 64
_MOMENT: Final = 0.1


class NotSettledError(FuseeError):
    """The programs in this process do not come to rest: a loop without a pause, or a thread that waits."""


class Stillness:
    """The work of one event loop, counted. Made by `watch`, which shares it among all users of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.calls = 0
        """Callbacks put on the loop so far."""
        self.calls_by_threads = 0
        self.jobs: set[asyncio.Future[Any]] = set()
        """What runs in threads of executors."""
        self.at_work: list[Callable[[], bool]] = []
        """Whether other threads are at work, each asked at every turn."""
        self._sleeper: asyncio.Future[None] | None = None
        self._users = 0
        self._loop = loop

    def _begin(self) -> None:
        self._users += 1
        if self._users > 1:
            return
        loop = self._loop
        call_soon, call_soon_threadsafe, run_in_executor = (getattr(loop, name) for name in _SHADOWED)

        def counted_call_soon(
            callback: Callable[..., object], *args: Any, context: Context | None = None
        ) -> asyncio.Handle:
            self.calls += 1
            handle: asyncio.Handle = call_soon(callback, *args, context=context)
            return handle

        def counted_call_soon_threadsafe(
            callback: Callable[..., object], *args: Any, context: Context | None = None
        ) -> asyncio.Handle:
            handle: asyncio.Handle = call_soon_threadsafe(callback, *args, context=context)
            # After the call: who has seen the count will find the callback on the loop.
            self.calls_by_threads += 1
            if self._sleeper is not None:
                call_soon_threadsafe(self._wake)
            return handle

        def counted_run_in_executor(executor: Any, function: Callable[..., object], *args: Any) -> asyncio.Future[Any]:
            job: asyncio.Future[Any] = run_in_executor(executor, function, *args)
            self.jobs.add(job)
            job.add_done_callback(self.jobs.discard)
            return job

        vars(loop).update(
            zip(
                _SHADOWED,
                (counted_call_soon, counted_call_soon_threadsafe, counted_run_in_executor),
                strict=True,
            )
        )

    def end(self) -> None:
        """Count no more for this user; without any, the loop is as it was."""
        self._users -= 1
        if self._users == 0:
            for name in _SHADOWED:
                vars(self._loop).pop(name, None)

    async def settle(self, traffic: Traffic) -> None:
        """Let the loop turn until it has nothing left to do, threads are done and all traffic has arrived.

        Raises NotSettledError when that does not come about in `SETTLE_TIMEOUT` seconds of real time.
        """
        clock = SystemClock()
        give_up_at = clock.monotonic() + SETTLE_TIMEOUT
        turns = 0
        while True:
            calls, calls_by_threads, moves = self.calls, self.calls_by_threads, traffic.moves
            await asyncio.sleep(0)
            if self.is_in_threads:
                await self._sleep(calls_by_threads, give_up_at - clock.monotonic())
            elif (
                self.calls == calls + 1
                and self.calls_by_threads == calls_by_threads
                and traffic.moves == moves
                and not traffic.is_under_way
            ):
                return
            turns += 1
            if (turns % _TURNS_BETWEEN_LOOKS == 0 or self.is_in_threads) and clock.monotonic() >= give_up_at:
                raise self._restless()

    @property
    def is_in_threads(self) -> bool:
        """Whether something is under way in threads."""
        return any(not job.done() for job in self.jobs) or any(is_at_work() for is_at_work in self.at_work)

    async def _sleep(self, calls_by_threads: int, seconds: float) -> None:
        """Wait until a thread reports, unless one has since this count, or for so long.

        Not for longer than a moment: a thread may report by other ways, such as a lock.
        """
        self._sleeper = sleeper = asyncio.get_running_loop().create_future()
        try:
            if self.calls_by_threads == calls_by_threads:
                await asyncio.wait((sleeper,), timeout=min(max(seconds, 0.0), _MOMENT))
        finally:
            self._sleeper = None

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def _restless(self) -> NotSettledError:
        if self.is_in_threads:
            return NotSettledError(
                f"calls in threads have not ended in {SETTLE_TIMEOUT:g} s, so time cannot go on: a listener, check or "
                "job waits for something. It must not wait for this clock; let it go before time is advanced"
            )
        return NotSettledError(
            f"the event loop has not come to rest in {SETTLE_TIMEOUT:g} s: a task runs without ever waiting. It must "
            "wait for a message, an event or the clock that it was given"
        )


_watched: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Stillness] = weakref.WeakKeyDictionary()


def watch(loop: asyncio.AbstractEventLoop) -> Stillness:
    """Begin to count the work of a loop; `end` ends it."""
    stillness = _watched.get(loop)
    if stillness is None:
        stillness = _watched[loop] = Stillness(loop)
    stillness._begin()
    return stillness
