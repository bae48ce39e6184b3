"""Consumption in order: of each queue one message after the other, on one member of the group at a time.

Theory of operation
-------------------
The broker lends each queue to one client (`LockBatch`), for 60 seconds from the last time it asked. A client asks
again every 20 seconds and stops consuming 30 seconds after the last time it was granted, long before another one can
have the queue. It also stops when the connection ends on which the lock was granted: the broker may have been started
again, and then lends every queue to whoever asks first. A queue whose lock is refused, has run out or is in doubt is
given up, with everything that was pulled of it, and taken up anew, from the committed offset, when the lock is granted
again: meanwhile another member may have gone on.

    waiting -> in line -> consuming -> done -> in line
                             |-> failed -> suspended -> in line     the same message again, and nothing behind it
                             `-> failed too often -> sent to the dead letters -> done

A queue stands in line once, and is consumed by one seat. An old call that has not ended keeps its queue from being
consumed, also when the queue was given up and taken up again meanwhile, or moved to another offset.

(Java: ConsumeMessageOrderlyService, which goes on where it was when a lost lock is granted again.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fusee.client.consumer.offsets import broker_address
from fusee.client.consumer.options import DEAD_LETTER_LEVEL
from fusee.client.consumer.runners import new_runner
from fusee.client.received import count_failure
from fusee.errors import FuseeError
from fusee.service import Periodic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fusee.client.consumer.options import ConsumerOptions, RetryLater
    from fusee.client.consumer.process_queue import Chunk, ProcessQueue
    from fusee.client.consumer.runners import Listener, Work
    from fusee.client.consumer.send_back import SendBack
    from fusee.client.session import Session
    from fusee.clock import TimerHandle
    from fusee.message.model import MessageQueue
    from fusee.transport.link import Link

_log = logging.getLogger(__name__)

LOCK_INTERVAL_S: Final = 20.0
LOCK_LEASE_S: Final = 30.0
_FIRST_LOCK_S: Final = 1.0
_IN_DOUBT_S: Final = 0.5
_SUSPEND_MIN_S: Final = 0.01
_SUSPEND_MAX_S: Final = 30.0


class Orderly:
    """What is to be consumed next, each queue in its order."""

    def __init__(
        self,
        session: Session,
        listener: Listener,
        *,
        options: ConsumerOptions,
        send_back: SendBack | None,
        is_locked: Callable[[ProcessQueue], bool],
    ) -> None:
        """Without `send_back` messages are tried for ever. `is_locked` says whether a queue is ours to consume now."""
        self._session = session
        self._options = options
        self._send_back = send_back
        self._is_locked = is_locked
        self._most = options.consume_message_batch_max_size if listener.takes_batches else 1
        # -1 is for ever
        self._tries_max = options.max_reconsume_times if options.max_reconsume_times >= 0 else None
        self._line: deque[ProcessQueue] = deque()
        self._consuming: dict[MessageQueue, ProcessQueue] = {}
        self._next: dict[MessageQueue, ProcessQueue] = {}
        self._timers: dict[ProcessQueue, TimerHandle] = {}
        self._runner = new_runner(
            session,
            self,
            listener,
            seats_max=options.consume_thread_max,
            run_in_threads=options.run_in_threads,
        )

    def start(self) -> None:
        """Begin: nothing to do."""

    async def close(self, timeout: float, caller: asyncio.Task[Any] | None = None) -> bool:
        """Hand out no more, wait for what is under way; whether it all ended in time."""
        self._line.clear()
        self._next.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        return await self._runner.close(timeout, caller)

    # What the consumer tells

    def offer(self, chunk: Chunk) -> None:
        """These messages were pulled."""
        self._enlist(chunk.process_queue)

    def resumed(self, process_queue: ProcessQueue) -> None:
        """The messages of this queue may be handed out again."""
        self._enlist(process_queue)

    def _enlist(self, process_queue: ProcessQueue) -> None:
        if (
            process_queue.is_consuming
            or process_queue.is_suspended
            or process_queue.is_dropped
            or process_queue.is_listed
            or process_queue.open_chunk is None
        ):
            return
        if process_queue.queue in self._consuming:
            self._next[process_queue.queue] = process_queue
            return
        process_queue.is_listed = True
        self._line.append(process_queue)
        self._runner.wake()

    # Source

    @property
    def has_work(self) -> bool:
        return bool(self._line)

    def take(self) -> Work | None:
        while self._line:
            process_queue = self._line.popleft()
            process_queue.is_listed = False
            chunk = process_queue.open_chunk
            if chunk is None or process_queue.is_dropped or process_queue.queue in self._consuming:
                continue
            if not self._is_locked(process_queue):
                continue
            process_queue.is_consuming = True
            self._consuming[process_queue.queue] = process_queue
            start, stop = chunk.take(self._most)
            return chunk, start, stop
        return None

    def done(self, work: Work) -> None:
        chunk, start, stop = work
        chunk.finish(start, stop)
        self._free(chunk.process_queue)

    def skipped(self, work: Work) -> None:
        chunk, start, _ = work
        chunk.give_back(start)
        self._free(chunk.process_queue)

    async def failed(self, work: Work, retry: RetryLater) -> None:
        chunk, start, stop = work
        process_queue = chunk.process_queue
        try:
            index = start
            while index < stop and not process_queue.is_dropped and await self._is_buried(chunk, index, retry):
                chunk.finish(index, index + 1)
                index += 1
            if index < stop:
                for each in chunk.messages[index:stop]:
                    count_failure(each)
                chunk.give_back(index)
                self._suspend(process_queue, retry)
        finally:
            self._free(process_queue)

    async def _is_buried(self, chunk: Chunk, index: int, retry: RetryLater) -> bool:
        """Whether this message was tried often enough, and is now among the dead letters."""
        message = chunk.messages[index]
        is_asked = retry.delay_level is not None and retry.delay_level < 0
        if self._send_back is None or not (
            is_asked or (self._tries_max is not None and message.reconsume_times >= self._tries_max)
        ):
            return False
        return await self._send_back.resend(message, DEAD_LETTER_LEVEL)

    def _suspend(self, process_queue: ProcessQueue, retry: RetryLater) -> None:
        seconds = (self._options.suspend_current_queue_time_ms if retry.suspend_ms is None else retry.suspend_ms) / 1000
        process_queue.is_suspended = True
        self._timers[process_queue] = self._session.timers.call_later(
            min(max(seconds, _SUSPEND_MIN_S), _SUSPEND_MAX_S), self._rested, process_queue
        )

    def _rested(self, process_queue: ProcessQueue) -> None:
        self._timers.pop(process_queue, None)
        process_queue.is_suspended = False
        self._enlist(process_queue)

    def _free(self, process_queue: ProcessQueue) -> None:
        """Nobody consumes this queue now: it goes to the end of the line, or the one that follows it does."""
        process_queue.is_consuming = False
        queue = process_queue.queue
        if self._consuming.get(queue) is process_queue:
            del self._consuming[queue]
        if process_queue.when_freed is not None:
            freed, process_queue.when_freed = process_queue.when_freed, None
            freed()
        if self._next:
            successor = self._next.pop(queue, None)
            if successor is not None:
                self._enlist(successor)
        self._enlist(process_queue)


class Grant(NamedTuple):
    """A queue is lent to us."""

    at: float
    link: Link


class QueueLocks:
    """The queues that the brokers lend to this client."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        held: Callable[[], Iterable[ProcessQueue]],
        lost: Callable[[ProcessQueue], object],
        confirmed: Callable[[ProcessQueue], object],
    ) -> None:
        """`held` are the queues to keep; `lost` is told of each that another member may have, `confirmed` of each
        that was in doubt and is still ours."""
        self._session = session
        self._group = group
        self._held = held
        self._lost = lost
        self._confirmed = confirmed
        self._doubted: set[ProcessQueue] = set()
        self._job = Periodic(
            session.timers, LOCK_INTERVAL_S, lambda: session.spawn(self.renew()), first_after=_FIRST_LOCK_S
        )

    def start(self) -> None:
        """Begin to ask again and again."""
        self._job.start()

    def stop(self) -> None:
        """Ask no more; what is lent stays so for the broker's minute."""
        self._job.stop()

    def is_fresh(self, process_queue: ProcessQueue) -> bool:
        """Whether no other member can have the queue now."""
        link = process_queue.lock_link
        return link is not None and link.is_open and not self._is_over(process_queue)

    def check(self, process_queue: ProcessQueue) -> bool:
        """Whether the queue may be consumed now. If not it is found out whether it is still ours, or it is lost."""
        if self.is_fresh(process_queue):
            return True
        if self._is_over(process_queue):
            self._lost(process_queue)
        else:
            self._doubt(process_queue)
        return False

    async def lock(self, queue: MessageQueue) -> Grant | None:
        """Borrow this queue; None when another member has it. Raises when the broker does not answer."""
        asked_at = self._session.clock.monotonic()
        address = await broker_address(self._session, queue)
        link = await self._session.transport.link(address)
        locked = await self._session.calls.lock(address, self._group, self._session.client_id, [queue])
        return Grant(asked_at, link) if queue in locked else None

    async def unlock(self, queue: MessageQueue) -> None:
        """Give this queue back. A broker that cannot be told lends it to others in a minute."""
        try:
            address = await broker_address(self._session, queue)
            await self._session.calls.unlock(address, self._group, self._session.client_id, [queue])
        except FuseeError as error:
            _log.info("group %s: the lock of %s could not be given back: %s", self._group, queue, error)

    async def renew(self) -> None:
        """Borrow all queues for longer, those of each broker together."""
        by_broker: dict[str, list[ProcessQueue]] = {}
        for process_queue in self._held():
            by_broker.setdefault(process_queue.queue.broker_name, []).append(process_queue)
        await asyncio.gather(*map(self._renew_on_one_broker, by_broker.values()))

    async def _renew_on_one_broker(self, process_queues: list[ProcessQueue]) -> None:
        asked_at = self._session.clock.monotonic()
        queues = [each.queue for each in process_queues]
        try:
            address = await broker_address(self._session, queues[0])
            link = await self._session.transport.link(address)
            locked = await self._session.calls.lock(address, self._group, self._session.client_id, queues)
        except FuseeError as error:
            # What is lent is lent; `is_fresh` ends it when this goes on.
            _log.info(
                "group %s: the locks on broker %s cannot be renewed: %s", self._group, queues[0].broker_name, error
            )
            return
        for process_queue in process_queues:
            if process_queue.queue in locked:
                if process_queue.lock_link is link:
                    process_queue.last_locked_at = max(process_queue.last_locked_at, asked_at)
                elif not process_queue.is_dropped:
                    self._doubt(process_queue)
            elif not process_queue.is_dropped:
                self._lost(process_queue)

    def _is_over(self, process_queue: ProcessQueue) -> bool:
        return self._session.clock.monotonic() - process_queue.last_locked_at > LOCK_LEASE_S

    def _doubt(self, process_queue: ProcessQueue) -> None:
        if process_queue not in self._doubted:
            self._doubted.add(process_queue)
            self._session.spawn(self._clear_up(process_queue))

    async def _clear_up(self, process_queue: ProcessQueue) -> None:
        """The connection on which the queue was lent to us is gone: whether another member has it, or had it."""
        try:
            while not process_queue.is_dropped:
                if self._is_over(process_queue):
                    self._lost(process_queue)
                    return
                try:
                    grant = await self.lock(process_queue.queue)
                    committed_offset = await self._committed(process_queue.queue)
                except FuseeError as error:
                    _log.debug("group %s: %s is in doubt: %s", self._group, process_queue.queue, error)
                    await self._sleep(_IN_DOUBT_S)
                else:
                    self._decide(process_queue, grant, committed_offset)
                    return
        finally:
            self._doubted.discard(process_queue)

    def _decide(self, process_queue: ProcessQueue, grant: Grant | None, committed_offset: int) -> None:
        if process_queue.is_dropped:
            return
        if grant is None or committed_offset > process_queue.watermark:
            self._lost(process_queue)
        else:
            process_queue.last_locked_at, process_queue.lock_link = grant
            self._confirmed(process_queue)

    async def _committed(self, queue: MessageQueue) -> int:
        address = await broker_address(self._session, queue)
        found = await self._session.calls.query_offset(address, self._group, queue.topic, queue.queue_id)
        return 0 if found is None else found

    async def _sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self._session.timers.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()
