"""Work that would make the event loop wait for a disk: run one job after another in a thread, tell the loop."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_log = logging.getLogger(__name__)

T = TypeVar("T")

if TYPE_CHECKING:
    Together: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]


class Worker(Protocol):
    """Runs jobs in the order given; `done` or `failed` is called where the caller lives."""

    def run(self, job: Callable[[], T], done: Callable[[T], object], failed: Callable[[Exception], object]) -> None: ...

    def stop(self) -> None: ...


class ThreadWorker:
    """One thread beside an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    def run(self, job: Callable[[], T], done: Callable[[T], object], failed: Callable[[Exception], object]) -> None:
        def work() -> None:
            try:
                result = job()
            except Exception as error:  # noqa: BLE001 - goes to the owner of the job
                self._tell(failed, error)
            else:
                self._tell(done, result)

        self._executor.submit(work)

    def _tell(self, callback: Callable[[T], object], value: T) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, value)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            _log.debug("a job ended after its loop")

    def stop(self) -> None:
        """Finish the jobs given so far and end the thread."""
        self._executor.shutdown(wait=True)


class SecondHand:
    """A thread that does something while its owner does something else."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    def together(self, job: Callable[[], None], meanwhile: Callable[[], None]) -> None:
        """Do both; returns when both are done. Raises what either raised, first what the job did."""
        done = self._executor.submit(job)
        try:
            meanwhile()
        finally:
            done.result()

    def stop(self) -> None:
        self._executor.shutdown(wait=True)


class InlineWorker:
    """Runs each job at once, for tests and tools."""

    def run(self, job: Callable[[], T], done: Callable[[T], object], failed: Callable[[Exception], object]) -> None:
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - goes to the owner of the job
            failed(error)
        else:
            done(result)

    def stop(self) -> None:
        """Nothing is left to do."""
