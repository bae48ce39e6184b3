"""Fetches ahead for a pull consumer: a task for each queue held, which asks, waits for room, and tries again.

A task pulls, and the broker holds the pull until there is something to answer. It waits while its queue is paused or
enough is fetched (`AssignedQueues.may_fetch`), and after a failure: 20 ms when the broker is slowing us down, 3 s when
it is not known where to begin, else the delay of the options. It ends only by being cancelled; a seek cancels it and
starts another, so that an answer to the question before is never taken for one to the question after.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from fusee.client.broker_calls import PullStatus
from fusee.client.consumer.assigned_queues import AssignedQueue, AssignedQueues
from fusee.client.consumer.start_offset import start_offset
from fusee.client.pulled import decode_pulled
from fusee.errors import FuseeError, RemoteError, SystemBusyError, TransportError, UnavailableError
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.client.consumer.offsets import OffsetStore
    from fusee.client.consumer.pull_options import PullOptions
    from fusee.client.consumer.queue_reader import QueueReader
    from fusee.client.session import Session
    from fusee.filter.subscription import Subscription
    from fusee.message.model import MessageQueue

_log = logging.getLogger(__name__)

_FLOW_CONTROL_DELAY: Final = 0.02
_NO_START_DELAY: Final = 3.0
# A broker that may not hold the pull answers at once; asking again at once would only make both sides busy.
_UNHELD_DELAY: Final = 0.05
# So often a broker may refuse before the application hears of it.
_REFUSALS_MAX: Final = 3


class Prefetch:
    """The queues of one pull consumer and the tasks that fill them."""

    def __init__(
        self,
        session: Session,
        group: str,
        options: PullOptions,
        *,
        reader: QueueReader,
        offsets: OffsetStore,
        on_messages: Callable[[], object],
    ) -> None:
        """`on_messages` is called when there is something to take."""
        self.queues = AssignedQueues(options.limits)
        self._session = session
        self._group = group
        self._options = options
        self._reader = reader
        self._offsets = offsets
        self._on_messages = on_messages
        self._tasks: dict[AssignedQueue, asyncio.Task[Any]] = {}
        self._stalled: dict[AssignedQueue, asyncio.Future[None]] = {}
        self._finding: WeakKeyDictionary[AssignedQueue, asyncio.Lock] = WeakKeyDictionary()
        self._is_running = False

    def start(self) -> None:
        """Begin to fetch from the queues that are held already, and from others as they come."""
        self._is_running = True
        for held in self.queues:
            self._begin(held)

    async def stop(self) -> None:
        """End all fetching."""
        self._is_running = False
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add(self, queue: MessageQueue, subscription: Subscription) -> None:
        """Hold this queue and fetch from it."""
        held = self.queues.add(queue, subscription)
        if self._is_running:
            self._begin(held)

    def remove(self, queue: MessageQueue) -> AssignedQueue | None:
        """Let this queue go, if it is held; its marks are left."""
        held = self.queues.remove(queue)
        if held is not None:
            self._end(held)
        return held

    def move(self, held: AssignedQueue, queue_offset: int) -> None:
        """Go on with this queue at another offset."""
        self._end(held)
        self.queues.seek(held, queue_offset)
        if self._is_running:
            self._begin(held)

    def take_back(self, held: AssignedQueue, queue_offset: int) -> None:
        """Fetch and hand out again from here what the last take has handed out."""
        self._end(held)
        self.queues.take_back(held, queue_offset)
        if self._is_running:
            self._begin(held)

    def rechoose(self, held: AssignedQueue, subscription: Subscription) -> None:
        """Go on with this queue by another expression."""
        before = held.subscription
        if (before.expression_type, before.expression) == (subscription.expression_type, subscription.expression):
            held.subscription = subscription
            return
        self._end(held)
        self.queues.rechoose(held, subscription)
        if self._is_running:
            self._begin(held)

    def go_on(self) -> None:
        """Fetch again where there is room again; to be called after a take or a resume."""
        for held, waiter in self._stalled.items():
            if self.queues.may_fetch(held):
                wake(waiter)

    def raise_fault(self) -> None:
        """Raise the error that keeps a queue from being fetched, if trying again cannot help or has not helped."""
        for held in self.queues:
            fault = held.fault
            if fault is not None:
                if held in self._tasks:
                    held.fault = None
                raise fault

    async def find_starts(self) -> None:
        """Find out where to begin in all queues held now; one that cannot be told yet is left to its task."""
        unknown = [held for held in self.queues if held.fetch_offset is None]
        for outcome in await asyncio.gather(*map(self.find_start, unknown), return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, FuseeError):
                raise outcome

    async def find_start(self, held: AssignedQueue) -> None:
        """Find out where to begin, unless that is known by then; once for all who want to know."""
        async with self._finding.setdefault(held, asyncio.Lock()):
            if held.fetch_offset is not None:
                return
            found = await start_offset(
                self._session,
                held.queue,
                committed=await self._offsets.load(held.queue),
                consume_from=self._options.consume_from,
                reload=self._offsets.load,
            )
            if held.fetch_offset is None:
                held.move(found)

    # The task of a queue

    def _begin(self, held: AssignedQueue) -> None:
        task = self._tasks[held] = self._session.spawn(self._fetch(held))
        task.add_done_callback(lambda done: self._ended(held, done))

    def _end(self, held: AssignedQueue) -> None:
        task = self._tasks.pop(held, None)
        if task is not None:
            task.cancel()

    def _ended(self, held: AssignedQueue, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(held) is task:
            del self._tasks[held]
            error = None if task.cancelled() else task.exception()
            if error is not None:
                held.fault = FuseeError(f"fetching from {held.queue} ended with {error!r}, which is a mistake in fusee")
                held.fault.__cause__ = error

    async def _fetch(self, held: AssignedQueue) -> None:
        failures = 0
        while True:
            while not self.queues.may_fetch(held):
                await self._until_room(held)
            delay = 0.0
            try:
                if held.fetch_offset is None:
                    await self.find_start(held)
                else:
                    delay = await self._fetch_once(held, held.fetch_offset)
            except FuseeError as error:
                failures += 1
                delay = await self._after_failure(held, error, failures)
            else:
                failures = 0
                held.fault = None
            if delay:
                await self._wait(delay)

    async def _fetch_once(self, held: AssignedQueue, queue_offset: int) -> float:
        """Fetch once; how long to wait before the next time."""
        queue, wanted, clock = held.queue, held.subscription, self._session.clock
        began = clock.monotonic()
        held.last_fetch_ms = clock.time_ms()
        answer = await self._reader.pull(
            queue,
            wanted,
            queue_offset,
            self._options.pull_batch_size,
            hold_ms=self._options.broker_suspend_max_time_ms,
            timeout_ms=self._options.consumer_timeout_ms_when_suspend,
            broker_id=held.broker_id,
            is_lite=True,
        )
        held.broker_id = answer.suggested_broker_id
        if answer.status is PullStatus.FOUND:
            messages = decode_pulled(answer.body, queue.broker_name, queue.topic, wanted)
            if messages and messages[0].queue_offset < queue_offset:
                # The offset lies within a batch, which brokers give as a whole.
                messages = [message for message in messages if message.queue_offset >= queue_offset]
            self.queues.put(held, messages, answer.next_offset, len(answer.body))
            if messages and not held.is_paused:
                self._on_messages()
            return 0.0
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning(
                "group %s: %s has offsets %d to %d and not %d; going on with %d",
                self._group, queue, answer.min_offset, answer.max_offset, queue_offset, answer.next_offset,
            )  # fmt: skip
            if self.queues.correct(held, answer.next_offset) and self._options.auto_commit:
                self._offsets.update(queue, answer.next_offset)
        else:
            self.queues.put(held, [], answer.next_offset, 0)
            if self._session.master_address(queue.broker_name) is None:
                self._session.look_for_master(queue.broker_name, queue.topic)
        has_moved = answer.next_offset != queue_offset
        return 0.0 if has_moved or clock.monotonic() - began >= _UNHELD_DELAY else _UNHELD_DELAY

    async def _after_failure(self, held: AssignedQueue, error: FuseeError, failures: int) -> float:
        """Make ready for another try; how long to wait before it."""
        if isinstance(error, RemoteError) and error.code == ResponseCode.FLOW_CONTROL:
            return _FLOW_CONTROL_DELAY
        is_refusal = isinstance(error, RemoteError) and not isinstance(error, (SystemBusyError, UnavailableError))
        if not error.retryable or (is_refusal and failures >= _REFUSALS_MAX):
            held.fault = error
        if failures == 1:
            _log.warning("group %s: %s cannot be fetched now: %s", self._group, held.queue, error)
        held.broker_id = 0
        if isinstance(error, TransportError):
            name = held.queue.broker_name
            before = self._session.read_address(name)
            with contextlib.suppress(FuseeError):  # the broker is then asked again where it was
                await self._session.refresh_route(held.queue.topic)
            if self._session.read_address(name) not in (before, None):
                return 0.0  # another has taken its place
        if held.fetch_offset is None:
            return _NO_START_DELAY
        return self._options.pull_time_delay_ms_when_exception / 1000

    async def _until_room(self, held: AssignedQueue) -> None:
        waiter = self._stalled[held] = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            if self._stalled.get(held) is waiter:
                del self._stalled[held]

    async def _wait(self, seconds: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        timer = self._session.timers.call_later(seconds, wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()


def wake(waiter: asyncio.Future[None]) -> None:
    """Let the task go on that awaits this."""
    if not waiter.done():
        waiter.set_result(None)
