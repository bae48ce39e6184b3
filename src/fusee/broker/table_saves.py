"""Saves the tables of a broker in a worker thread: at once when something changed, or from time to time.

One save of a table runs at a time; what changes meanwhile goes into the next one. `settled` waits until everything
that had changed is on disk, for answers that promise it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.broker.worker import Worker
    from fusee.clock import TimerHandle, Timers

_log = logging.getLogger(__name__)

_RETRY_DELAY: Final = 5.0


class SavedTable(Protocol):
    """A table with a file."""

    @property
    def is_dirty(self) -> bool: ...

    def begin_save(self) -> Callable[[], None] | None: ...

    def save(self) -> None: ...


class TableSaves:
    """The saves of one table."""

    def __init__(
        self, table: SavedTable, *, name: str, worker: Worker, timers: Timers, saves_at_once: bool = True
    ) -> None:
        """`saves_at_once`: a change made during a save begins the next one; else somebody calls `begin` regularly."""
        self._table = table
        self._saves_at_once = saves_at_once
        self._name = name
        self._worker = worker
        self._timers = timers
        self._is_running = False
        self.failure: Exception | None = None
        """Why the last save has failed; None when it has not."""
        self._is_stopped = False
        self._retry: TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def stop(self) -> None:
        """Begin nothing more; what is under way ends by itself."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def begin(self) -> None:
        """Save what has changed, unless that is under way."""
        if self._is_running or self._is_stopped:
            return
        job = self._table.begin_save()
        if job is not None:
            self._is_running = True
            self._worker.run(job, self._done, self._failed)

    async def settled(self) -> None:
        """Wait until everything that has changed by now is on disk, or could not be saved."""
        if self._is_running:
            await self._next_end()
        self.begin()
        if self._is_running:
            await self._next_end()

    def _next_end(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def _done(self, _: None) -> None:
        self.failure = None
        self._end()
        if self._saves_at_once and self._table.is_dirty:
            self.begin()

    def _failed(self, error: Exception) -> None:
        self.failure = error
        _log.error("%s could not be saved, and will be tried again in %g s: %s", self._name, _RETRY_DELAY, error)
        self._end()
        if self._retry is None and not self._is_stopped:
            self._retry = self._timers.call_later(_RETRY_DELAY, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self.begin()

    def _end(self) -> None:
        self._is_running = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
