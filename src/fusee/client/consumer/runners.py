"""Calls of the application's listener: on the loop, one after another or side by side, or in threads.

A runner takes work from a source (what is to be consumed next, by whatever rule of order) and tells it how it went.

`LoopRunner` is for coroutine functions. It has seats, each a task that takes work, awaits the listener itself, and
takes the next: no task and no future is made for a message. A listener that does not wait is served by a single seat
at the price of a function call; when one does wait, the loop turns, and another seat is woken if there is work. A seat
that has been at it for long lets the loop turn, so that heartbeats and pulls are not held up.

`ThreadRunner` is for plain functions, which may block. Threads take work from one queue and put results on another;
the loop is told once for all results that are there. It keeps a little more work in reach of the threads than there
are threads, so that they need not wait for the loop.

Whatever a listener raises is an answer: the message is tried again. This is one of the three places that may catch
everything.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections import deque
from queue import SimpleQueue
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from fusee.client.consumer.options import RetryLater, retry_asked
from fusee.client.hooks import ConsumeContext, ConsumeReturn, after_consume, before_consume

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from fusee.client.consumer.process_queue import Chunk
    from fusee.client.consumer.statistics import ConsumeStatistics
    from fusee.client.hooks import ConsumeHook
    from fusee.client.received import ReceivedMessage
    from fusee.client.session import Session
    from fusee.clock import Timers

    Work: TypeAlias = tuple[Chunk, int, int]
    """Messages that are consumed together: a chunk, and from where to where."""

_log = logging.getLogger(__name__)

_TURN_S: Final = 0.005
"""How long one seat may keep the loop to itself."""
_CANCEL_S: Final = 1.0
_REACH_MIN: Final = 128
_THREAD_AGAIN_S: Final = 1.0


class Source(Protocol):
    """Where work comes from, and where it goes."""

    @property
    def has_work(self) -> bool:
        """Whether `take` would find something."""

    def take(self) -> Work | None:
        """The next messages to consume, or None when there are none now."""

    def done(self, work: Work) -> None:
        """They are consumed."""

    def skipped(self, work: Work) -> None:
        """The listener was not called with them."""

    async def failed(self, work: Work, retry: RetryLater) -> None:
        """They are not consumed, and should be tried again."""


class Listener:
    """The application's function and all who watch it."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        takes_batches: bool,
        group: str,
        statistics: ConsumeStatistics,
        session: Session,
        is_ordered: bool,
        timeout_s: float,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        self.function = function
        self.takes_batches = takes_batches
        self.hooks = hooks
        self.statistics = statistics
        self._group = group
        self._clock = session.clock
        self._words = (
            ("SUCCESS", "SUSPEND_CURRENT_QUEUE_A_MOMENT") if is_ordered else ("CONSUME_SUCCESS", "RECONSUME_LATER")
        )
        self._timeout_s = timeout_s

    @property
    def is_coroutine_function(self) -> bool:
        return is_coroutine_function(self.function)

    def argument(self, work: Work) -> Any:
        """What the function is called with."""
        chunk, start, stop = work
        return chunk.messages[start:stop] if self.takes_batches else chunk.messages[start]

    def before(self, work: Work) -> ConsumeContext:
        """Tell the hooks that it begins."""
        chunk, start, stop = work
        context = ConsumeContext(
            self._group, chunk.process_queue.queue, chunk.messages[start:stop], self._clock.time_ms()
        )
        before_consume(self.hooks, context)
        return context

    def after(self, context: ConsumeContext, retry: RetryLater | None, seconds: float) -> None:
        """Tell the hooks how it went."""
        context.success = retry is None
        context.status = self._words[retry is not None]
        context.cost_ms = round(seconds * 1000)
        if retry is not None:
            context.return_type = ConsumeReturn.FAILED if retry.__cause__ is None else ConsumeReturn.EXCEPTION
        elif seconds >= self._timeout_s:
            context.return_type = ConsumeReturn.TIME_OUT
        after_consume(self.hooks, context)

    def judge(self, work: Work, error: BaseException) -> RetryLater:
        """What it means that the function raised this."""
        chunk, start, stop = work
        messages = chunk.messages[start:stop]
        if isinstance(error, RetryLater):
            _log.info("group %s: %s: %s", self._group, messages[0], error)
            return error
        retry = RetryLater(f"{type(error).__name__}: {error}")
        retry.__cause__ = error
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        _log.warning(
            "group %s: the listener failed on %s%s; it is tried again, or made a dead letter when it was the last try",
            self._group,
            messages[0],
            more,
            exc_info=error,
        )
        return retry

    def count(self, work: Work, retry: RetryLater | None, seconds: float) -> None:
        """Enter it into the statistics."""
        chunk, start, stop = work
        failed = 0 if retry is None else stop - start
        self.statistics.consumed(chunk.process_queue.queue.topic, stop - start - failed, failed, seconds)

    async def try_once(self, message: ReceivedMessage) -> object:
        """What the function answers to this one message, which moves nothing. Raises what it raises."""
        argument = [message] if self.takes_batches else message
        if self.is_coroutine_function:
            return await self.function(argument)
        answer = await asyncio.to_thread(self.function, argument)
        return await answer if inspect.isawaitable(answer) else answer


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether calling this gives a coroutine; it may be an object with a method that does."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether it is a coroutine function, not whether it is there
    )


class Seat:
    """Who calls the listener, what with, and since when."""

    __slots__ = ("since", "work")

    def __init__(self) -> None:
        self.work: Work | None = None
        self.since = 0.0


_seat_here: Final[contextvars.ContextVar[Seat | None]] = contextvars.ContextVar("fusee_seat_here", default=None)
"""Where a listener is called, and in whatever it has begun: its seat."""


class Tally:
    """Messages of one chunk that a seat has been through, entered into the statistics together."""

    __slots__ = ("_since", "_statistics", "chunk", "count", "ended_at", "failed")

    def __init__(self, statistics: ConsumeStatistics) -> None:
        self._statistics = statistics
        self._since = 0.0
        self.chunk: Chunk | None = None
        self.count = 0
        self.failed = 0
        self.ended_at = 0.0

    def enter(self, chunk: Chunk | None = None, since: float = 0.0) -> None:
        """Enter what is here, and begin to count for this chunk."""
        if self.chunk is not None:
            process_queue = self.chunk.process_queue
            process_queue.last_consumed_at = self.ended_at
            seconds = self.ended_at - self._since
            self._statistics.consumed(process_queue.queue.topic, self.count - self.failed, self.failed, seconds)
        self.chunk = chunk
        self.count = self.failed = 0
        self._since = since


class LoopRunner:
    """Calls a listener on the loop."""

    def __init__(self, session: Session, source: Source, listener: Listener, *, seats_max: int) -> None:
        self._session = session
        self._source = source
        self._listener = listener
        self._seats_max = seats_max
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[Any], Seat] = {}
        self._idle: list[asyncio.Future[None]] = []
        self._is_calling = False
        self._is_closing = False

    @property
    def seats(self) -> Iterable[Seat]:
        return self._tasks.values()

    def wake(self) -> None:
        """There is work."""
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                return
        if len(self._tasks) < self._seats_max and not self._is_closing:
            seat = Seat()
            task = self._session.spawn(self._work(seat))
            self._tasks[task] = seat
            task.add_done_callback(self._left)

    async def close(self, timeout: float, caller: asyncio.Task[Any] | None = None) -> bool:
        """Take no more work, wait for what is under way, and cancel it when it takes too long; whether all ended.

        A listener that closes its own consumer is the `caller`, and not waited for.
        """
        self._is_closing = True
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        tasks = [task for task, seat in self._tasks.items() if task is not caller and seat is not _seat_here.get()]
        if await ended(tasks, timeout, self._session.timers):
            return True
        for task in tasks:
            task.cancel()
        await ended(tasks, _CANCEL_S, self._session.timers)
        return False

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def _call_others(self) -> None:
        """The loop turns, so the listener waits; if there still is work, another seat may have it."""
        self._is_calling = False
        if self._source.has_work and not self._is_closing:
            self.wake()

    async def _work(self, seat: Seat) -> None:
        _seat_here.set(seat)
        source, listener, loop = self._source, self._listener, self._loop
        take, done, function, takes_batches = source.take, source.done, listener.function, listener.takes_batches
        monotonic, watched = self._session.clock.monotonic, bool(listener.hooks)
        tally = Tally(listener.statistics)
        now = monotonic()
        turn_ends = now + _TURN_S
        while not self._is_closing:
            work = take()
            if work is None:
                tally.enter()
                await self._idle_until_woken()
                now = monotonic()
                turn_ends = now + _TURN_S
                continue
            if not self._is_calling and (self._idle or len(self._tasks) < self._seats_max):
                self._is_calling = True
                loop.call_soon(self._call_others)
            chunk, start, stop = seat.work = work
            seat.since = since = now
            context = listener.before(work) if watched else None
            retry: RetryLater | None = None
            try:
                answer = function(chunk.messages[start:stop] if takes_batches else chunk.messages[start])
                if answer is not None:
                    if type(answer) is CoroutineType or inspect.isawaitable(answer):
                        answer = await answer
                    if answer is not None:
                        retry = retry_asked(answer)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    source.skipped(work)
                    raise
                retry = listener.judge(work, error)
            except Exception as error:  # noqa: BLE001 - the call of a user's listener
                retry = listener.judge(work, error)
            now = monotonic()
            if chunk is not tally.chunk:
                tally.enter(chunk, since)
            tally.count += stop - start
            tally.ended_at = now
            if context is not None:
                listener.after(context, retry, now - since)
            if retry is None:
                done(work)
            else:
                tally.failed += stop - start
                await source.failed(work, retry)
                now = monotonic()
            seat.work = None
            if now > turn_ends:
                await turn()
                now = monotonic()
                turn_ends = now + _TURN_S

    async def _idle_until_woken(self) -> None:
        waiter = self._loop.create_future()
        self._idle.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._idle:
                self._idle.remove(waiter)


class ThreadRunner:
    """Calls a listener that may block, in threads of its own."""

    def __init__(self, session: Session, source: Source, listener: Listener, *, seats_max: int) -> None:
        self._session = session
        self._source = source
        self._listener = listener
        self._seats_max = seats_max
        self._reach = max(4 * seats_max, _REACH_MIN)
        self._loop = asyncio.get_running_loop()
        self._seats: list[Seat] = []
        self._inbox: SimpleQueue[tuple[Work, ConsumeContext | None] | None] = SimpleQueue()
        self._results: deque[tuple[Work, ConsumeContext | None, object, BaseException | None, float]] = deque()
        self._is_told = False
        self._is_closing = False
        self._outstanding = 0
        self._own = 0
        self._settling: set[asyncio.Task[Any]] = set()
        self._quiet: asyncio.Future[None] | None = None

    @property
    def seats(self) -> Iterable[Seat]:
        return self._seats

    def wake(self) -> None:
        """There is work."""
        watched = bool(self._listener.hooks)
        while self._outstanding < self._reach and self._source.has_work and not self._is_closing:
            if len(self._seats) <= self._outstanding and len(self._seats) < self._seats_max:
                self._start_thread()
            if not self._seats:
                return
            work = self._source.take()
            if work is None:
                return
            self._outstanding += 1
            work[0].process_queue.last_consumed_at = self._session.clock.monotonic()
            self._inbox.put((work, self._listener.before(work) if watched else None))

    async def close(self, timeout: float, caller: asyncio.Task[Any] | None = None) -> bool:
        """Take no more work and wait for the calls under way; whether all ended. A thread cannot be cancelled.

        A listener that closes its own consumer is not waited for.
        """
        self._is_closing = True
        for _ in self._seats:
            self._inbox.put(None)
        seat = _seat_here.get()
        self._own = 1 if seat is not None and seat.work is not None and seat in self._seats else 0
        if self._outstanding <= self._own:
            return True
        self._quiet = self._loop.create_future()
        timer = self._session.timers.call_later(timeout, _release, self._quiet)
        try:
            await self._quiet
        finally:
            timer.cancel()
            for task in self._settling:
                task.cancel()
        return self._outstanding <= self._own

    def _start_thread(self) -> None:
        """Start another thread; without a first one it is tried again in a while."""
        seat = Seat()
        # Daemons: a program that ends is not held up by a listener that does not.
        thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=(self._serve, seat),
            name=f"fusee-listener-{len(self._seats) + 1}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            if not self._seats:
                _log.warning("no thread can be started for the listener, which waits: %s", error)
                self._session.timers.call_later(_THREAD_AGAIN_S, self.wake)
        else:
            self._seats.append(seat)

    def _serve(self, seat: Seat) -> None:
        """In a thread: call the listener as long as there is work."""
        listener, results, monotonic = self._listener, self._results, self._session.clock.monotonic
        function = listener.function
        _seat_here.set(seat)
        while (item := self._inbox.get()) is not None:
            work, context = item
            answer: object = None
            failure: BaseException | None = None
            since = monotonic()
            if work[0].process_queue.is_dropped or self._is_closing:
                failure = _NOT_CALLED
            else:
                seat.since, seat.work = since, work
                try:
                    answer = function(listener.argument(work))
                except BaseException as error:  # noqa: BLE001 - the call of a user's listener
                    failure = error
                seat.work = None
            results.append((work, context, answer, failure, monotonic() - since))
            if not self._is_told:
                self._is_told = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop is closed, and nobody is left to tell

    def _collect(self) -> None:
        """On the loop: what the threads have done since the last time."""
        self._is_told = False  # before looking: what is added later tells anew
        results = self._results
        while results:
            work, context, answer, failure, seconds = results.popleft()
            if failure is _NOT_CALLED:
                self._source.skipped(work)
                self._finished()
            elif failure is None and inspect.isawaitable(answer):
                self._settle(self._await(work, context, answer, seconds))
            else:
                self._judge(work, context, answer, failure, seconds)
        self.wake()

    def _judge(
        self, work: Work, context: ConsumeContext | None, answer: object, failure: BaseException | None, seconds: float
    ) -> None:
        listener = self._listener
        retry = retry_asked(answer) if failure is None else listener.judge(work, failure)
        listener.count(work, retry, seconds)
        if context is not None:
            listener.after(context, retry, seconds)
        if retry is None:
            self._source.done(work)
            self._finished()
        else:
            self._settle(self._fail(work, retry))

    async def _fail(self, work: Work, retry: RetryLater) -> None:
        try:
            await self._source.failed(work, retry)
        finally:
            self._finished()
            self.wake()

    async def _await(self, work: Work, context: ConsumeContext | None, answer: Any, seconds: float) -> None:
        """A plain function that gave something to await after all."""
        failure: BaseException | None = None
        try:
            answer = await answer
        except Exception as error:  # noqa: BLE001 - the call of a user's listener
            failure = error
        self._judge(work, context, answer, failure, seconds)

    def _settle(self, work: Any) -> None:
        task = self._session.spawn(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    def _finished(self) -> None:
        self._outstanding -= 1
        if self._outstanding <= self._own and self._quiet is not None:
            _release(self._quiet)


Runner: TypeAlias = LoopRunner | ThreadRunner

_NOT_CALLED: Final = RetryLater("not called")


def new_runner(
    session: Session, source: Source, listener: Listener, *, seats_max: int, run_in_threads: bool | None
) -> Runner:
    """The runner for this listener: threads for plain functions, unless they are said not to block."""
    in_threads = not listener.is_coroutine_function and run_in_threads is not False
    kind = ThreadRunner if in_threads else LoopRunner
    return kind(session, source, listener, seats_max=seats_max)


@coroutine
def turn() -> Generator[None, None, None]:
    """Let the loop turn once."""
    yield


async def ended(tasks: Iterable[asyncio.Task[Any]], timeout: float, timers: Timers) -> bool:
    """Wait for these tasks as long as this; whether all have ended. Cancels none."""
    open_tasks = {task for task in tasks if not task.done()}
    if not open_tasks:
        return True
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def one_less(task: asyncio.Task[Any]) -> None:
        open_tasks.discard(task)
        if not open_tasks:
            _release(over)

    for task in list(open_tasks):
        task.add_done_callback(one_less)
    timer = timers.call_later(timeout, _release, over)
    try:
        await over
    finally:
        timer.cancel()
        for task in open_tasks:
            task.remove_done_callback(one_less)
    return not open_tasks


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
