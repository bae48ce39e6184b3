"""The one event loop of a process's blocking calls, in a thread of its own.

A blocking call becomes a task of that loop, and its caller waits. The thread is started by the first call, serves
callers of all threads, and is a daemon: it keeps no program alive.

An exception that a signal raises in the waiting thread, such as Ctrl-C, cancels the task; the caller gets it when the
task has ended, or after a while when it does not. It may come when the task has ended and its result is on the way. A
call whose result must not be lost, because it is a message, or something that is open now, is made by `deliver`.
Python does not see a signal that comes just before its thread falls asleep, so the thread looks up now and then.

A fork copies the objects of the parent but not the thread. What was made before is of no use in the child, and says so
(ClientStateError); a new call gets a new loop. What the child has inherited is kept as it is and never closed there:
its sockets are the parent's.

At the end of the interpreter, when only daemon threads are left, everything still open is closed in order, in bounded
time; then the loop ends. Daemon threads that wait in a call, or make one, are left to wait: they end with the process,
and an exception would only print a traceback behind its back.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import logging
import os
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import uvloop

from fusee.errors import ClientStateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_CANCEL_PATIENCE: Final = 2.0
_CLOSE_PATIENCE: Final = 5.0
_LOOK_UP: Final = 0.5


class Call(Future[T]):
    """A call that is to be made, or under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, undo: Callable[[T], object] | None = None) -> None:
        """`undo` gets the result of a call that was given up when it was done."""
        super().__init__()
        self._loop = loop
        self._undo = undo
        self._task: asyncio.Task[None] | None = None
        self._undoing: asyncio.Future[object] | None = None
        self._is_given_up = False

    def cancel(self) -> bool:
        """End the call, unless it is done. From then on its outcome is CancelledError."""
        if not super().cancel():
            return False
        self._loop.call_soon_threadsafe(self.give_up)
        return True

    def await_end(self) -> None:
        """Until it is done. What a signal's handler raises comes out of this, and nothing else."""
        with self._condition:
            while not self.done():
                self._condition.wait(_LOOK_UP)

    # On the loop

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]], context: contextvars.Context) -> None:
        if not self._is_given_up:
            self._task = self._loop.create_task(work(), context=context)
            self._task.add_done_callback(self._ended)

    def give_up(self) -> None:
        self._is_given_up = True
        if self._task is None:
            self.fail(_ended_error())
        elif self.cancelled() or not self.done():
            self._task.cancel()
        elif super().exception() is None:
            self._take_back(super().result())

    def finish(self, result: T) -> None:
        if self._is_given_up:
            self._take_back(result)
        if not self.done() and self.set_running_or_notify_cancel():
            self.set_result(result)

    def _take_back(self, result: T) -> None:
        undo, self._undo = self._undo, None
        undoing = None if undo is None else undo(result)
        if inspect.isawaitable(undoing):
            self._undoing = asyncio.ensure_future(undoing)

    def fail(self, error: BaseException) -> None:
        if not self.done() and self.set_running_or_notify_cancel():
            self.set_exception(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before its first step
            self.fail(_ended_error())


def _ended_error() -> ClientStateError:
    return ClientStateError("the call was ended: its connection or its program closes")


class Portal:
    """An event loop in a thread, and the way into it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._open: dict[int, Callable[[], Awaitable[object]]] = {}
        self._is_closed = False
        self._is_exiting = False
        self._thread = threading.Thread(target=self._run, name="fusee-sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await the function on the loop; its result. Raises what it raises, and ClientStateError as `check`."""
        call: Call[T] = self._new_call()
        return self._wait(call, function, *args, **kwargs)

    def deliver(
        self, undo: Callable[[T], object], function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same; when a signal keeps the result from the caller, `undo` is called with it on the loop.

        That happens before anything that the caller asks for next; what `undo` gives to await is awaited then.
        """
        call: Call[T] = self._new_call(undo)
        return self._wait(call, function, *args, **kwargs)

    def _wait(self, call: Call[T], function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            self._begin(call, function, *args, **kwargs)
            call.await_end()
            if call.exception() is None:
                return call.result()
        except BaseException:
            # Not the outcome: a signal's handler has raised here, in the thread that waits.
            self._loop.call_soon_threadsafe(call.give_up)
            with suppress(WaitTimeoutError):
                call.exception(_CANCEL_PATIENCE)
            raise
        return call.result()

    def begin(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """The same without waiting: a future that any thread may wait for. Cancelling it cancels the task."""
        call: Call[T] = self._new_call()
        self._begin(call, function, *args, **kwargs)
        return call

    def _new_call(self, undo: Callable[[Any], object] | None = None) -> Call[Any]:
        self._check_end()
        self.check()
        return Call(self._loop, undo)

    def _begin(self, call: Call[T], function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> None:
        async def run() -> None:
            try:
                result = await function(*args, **kwargs)
            except asyncio.CancelledError:
                error: BaseException = _ended_error()
            except BaseException as raised:  # noqa: BLE001 - goes to the caller
                error = raised
            else:
                if not self._is_exiting:
                    call.finish(result)
                return
            if not self._is_exiting:
                call.fail(error)

        self._loop.call_soon_threadsafe(call.begin, run, contextvars.copy_context())

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function on the loop, which it must not hold up; its result. Raises as `call`."""

        async def now() -> T:
            return function(*args, **kwargs)

        return self.call(now)

    def check(self) -> None:
        """Raise ClientStateError where a blocking call cannot be made."""
        if self._pid != os.getpid():
            raise ClientStateError(
                f"this object belongs to process {self._pid} and was copied here by a fork, without its event loop; "
                "connect again in this process"
            )
        if self._is_closed:
            raise ClientStateError("this program is ending, or has closed its event loop: no more calls are taken")
        if threading.get_ident() == self._thread.ident:
            raise ClientStateError(
                "a blocking call was made on the event loop of blocking calls and would wait for itself for ever; make "
                "it in a listener that is a plain function, or await the call of the asynchronous API"
            )

    def _check_end(self) -> None:
        if self._is_exiting and threading.current_thread().daemon and self._pid == os.getpid():
            threading.Event().wait()

    def keep(self, target: object, close: Callable[[], Awaitable[object]]) -> None:
        """Call `close` at the end of the interpreter, unless `release` comes first."""
        self._open[id(target)] = close

    def release(self, target: object) -> None:
        """It is closed."""
        self._open.pop(id(target), None)

    def close(self, *, at_exit: bool = False) -> None:
        """Close everything that is open, newest first, and end the loop; at most for a few seconds.

        Whoever waits in a call gets ClientStateError, but `at_exit` nothing any more.
        """
        if self._is_closed or self._pid != os.getpid():
            return
        self._is_exiting = at_exit
        self._is_closed = True
        ended = threading.Event()
        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._close_all(ended)))
        if ended.wait(_CLOSE_PATIENCE + _CANCEL_PATIENCE):
            self._thread.join(_CANCEL_PATIENCE)

    async def _close_all(self, ended: threading.Event) -> None:
        try:
            async with asyncio.timeout(_CLOSE_PATIENCE):
                while self._open:
                    _, close = self._open.popitem()
                    try:
                        await close()
                    except Exception as error:  # noqa: BLE001 - the program ends; nobody is left to be told
                        _log.debug("closed with an error: %r", error)
        except TimeoutError:
            _log.debug("not everything was closed in time")
        me = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not me]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_CANCEL_PATIENCE)
        ended.set()
        self._loop.stop()


_portal: Portal | None = None
_lock = threading.Lock()
# Of the parent processes of a fork: letting go of them would close what is not ours.
_inherited: list[Any] = []


def portal() -> Portal:
    """The portal of this process, started if need be."""
    global _portal
    with _lock:
        if _portal is None:
            _portal = Portal()
        return _portal


def _at_exit() -> None:
    if _portal is not None:
        _portal.close(at_exit=True)


def _after_fork() -> None:
    global _portal, _lock
    _lock = threading.Lock()  # another thread may have held it when the process was copied
    if _portal is not None:
        _inherited.append(_portal)
        _portal = None


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
