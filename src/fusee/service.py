"""Running a program: the event loop, jobs that repeat, and an orderly end by signal."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import resource
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fusee.clock import TimerHandle, Timers

_log = logging.getLogger(__name__)

T = TypeVar("T")

_FILES_MAX: Final = 1 << 20
# Of malloc.h: the numbers of two settings, and their values in bytes.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BLOCK_MAX: Final = 8 << 20
_KEPT_MAX: Final = 32 << 20


class Startable(Protocol):
    """A program that can be started and stopped."""

    async def start(self) -> object: ...

    async def stop(self) -> None: ...


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def allow_many_files() -> None:
    """Use as many open files as the system allows: each connection and each segment is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(ValueError, OSError):  # what the system does not grant is not needed to begin
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def keep_freed_memory() -> None:
    """Have blocks of some megabytes used again when they are freed, where the C library is glibc.

    By itself it gives them back at once, and the system clears every page again for the next large frame: that was a
    third of what a broker did for batches of half a megabyte. What is kept at most is small beside a store's caches.
    """
    try:
        adjust = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, which needs no such advice or knows none
        return
    adjust(_MMAP_THRESHOLD, _KEPT_BLOCK_MAX)
    adjust(_TRIM_THRESHOLD, _KEPT_MAX)


async def serve(program: Startable, on_started: Callable[[], object]) -> None:
    """Start, run until SIGTERM or SIGINT, stop in order. A second SIGINT ends the process at once."""
    allow_many_files()
    keep_freed_memory()
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()

    def interrupt() -> None:
        if asked_to_stop.is_set():
            os._exit(130)
        asked_to_stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, asked_to_stop.set)
    try:
        if not await _started(program, asked_to_stop):
            return
        # What start-up made stays; collecting around it on every cycle costs the pipelined path about 15 %.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        on_started()
        await asked_to_stop.wait()
    finally:
        await program.stop()
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


async def _started(program: Startable, asked_to_stop: asyncio.Event) -> bool:
    """Start; False when the end was asked for before that was done."""
    starting = asyncio.ensure_future(program.start())
    stopping = asyncio.ensure_future(asked_to_stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    await asyncio.wait((starting,))
    return False


class Periodic:
    """A plain function called again and again; an exception is reported and does not end the series.

    This is one of the three places that may catch everything.
    """

    def __init__(
        self, timers: Timers, interval: float, job: Callable[[], object], *, first_after: float | None = None
    ) -> None:
        self._timers = timers
        self.interval = interval
        self._first_after = interval if first_after is None else first_after
        self._job = job
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._timers.call_later(self._first_after, self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        try:
            self._job()
        except Exception:  # noqa: BLE001 - the series goes on
            _log.exception("a periodic job failed and will run again in %g s", self.interval)
        if self._timer is not None:
            self._timer = self._timers.call_later(self.interval, self._run)


def soon_of(timers: Timers) -> Callable[[Callable[[], object]], object]:
    """What runs a function when the present turn of the loop is over."""
    if isinstance(timers, asyncio.AbstractEventLoop):
        return timers.call_soon
    return lambda function: timers.call_later(0, function)
