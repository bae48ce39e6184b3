"""The queues that one member holds: taken up, paused, moved, and let go with what is done committed.

Each has a `Fetch`, which pulls ahead, and a `ProcessQueue`, which knows what is done. A queue can change under way. It
can be let go, and belongs to others at once; it can be moved, by `seek`, by an operator or because the broker no longer
has the offset; in order, its lock can be lost. Each time the process queue is dropped, which makes whatever is still
running with its messages of no consequence, and if the queue stays ours a new one begins.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from fusee.client.consumer.fetch import Fetch, FlowLimits, Outbox
from fusee.client.consumer.orderly import Grant, QueueLocks
from fusee.client.consumer.process_queue import ProcessQueue
from fusee.client.consumer.start_offset import start_offset
from fusee.errors import FuseeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fusee.client.consumer.offsets import OffsetStore
    from fusee.client.consumer.options import ConsumerOptions
    from fusee.client.consumer.process_queue import Chunk
    from fusee.client.consumer.start_offset import ConsumeFrom
    from fusee.client.consumer.statistics import ConsumeStatistics
    from fusee.client.session import Session
    from fusee.filter.subscription import Subscription
    from fusee.message.model import MessageQueue

_log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024
_PULL_EXPIRED_S: Final = 120.0
_LET_GO_S: Final = 0.5


class Consumption(Protocol):
    """Where pulled messages go."""

    def start(self) -> None: ...

    def offer(self, chunk: Chunk) -> None: ...

    def resumed(self, process_queue: ProcessQueue) -> None: ...

    async def close(self, timeout: float, caller: asyncio.Task[Any] | None = None) -> bool: ...


class HeldQueues:
    """The queues of one member."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        options: ConsumerOptions,
        offsets: OffsetStore,
        statistics: ConsumeStatistics,
        subscription: Callable[[str], Subscription],
        consume_from: ConsumeFrom,
        is_ordered: bool,
        is_shared: bool,
        divide_again: Callable[[], object],
    ) -> None:
        """`subscription` is that of a topic as brokers know it; `divide_again` has lost queues taken up anew."""
        self._session = session
        self._group = group
        self._options = options
        self._offsets = offsets
        self._statistics = statistics
        self._subscription = subscription
        self._consume_from = consume_from
        self._is_ordered = is_ordered
        self._needs_locks = is_ordered and is_shared
        self._divide_again = divide_again
        self._consumption: Consumption | None = None
        self._fetches: dict[MessageQueue, Fetch] = {}
        self._lost: set[MessageQueue] = set()
        self._paused: set[MessageQueue | str] = set()
        self._is_all_paused = False
        self._is_resting = False
        self._is_forced = False
        self._outbox = Outbox()
        self._locks = QueueLocks(
            session, group, held=self.process_queues, lost=self._lock_lost, confirmed=self._lock_confirmed
        )
        self.limits = FlowLimits(
            count=options.pull_threshold_for_queue,
            byte_size=options.pull_threshold_size_for_queue * _MIB,
            span=None if is_ordered else options.consume_concurrently_max_span,
        )

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(tuple(self._fetches))

    def __len__(self) -> int:
        return len(self._fetches)

    def start(self, consumption: Consumption) -> None:
        """Begin to take queues up; what is pulled of them goes there."""
        self._consumption = consumption
        if self._needs_locks:
            self._locks.start()

    def rest(self) -> None:
        """Take up no more, pull no more and hand out no more; what is with listeners may end."""
        self._is_resting = True
        for fetch in self._fetches.values():
            fetch.stop()
            fetch.process_queue.hold()

    def stop(self) -> None:
        """Wait for no listener any more when queues are let go."""
        self._locks.stop()
        self._is_forced = True

    # Looking

    def fetch_of(self, queue: MessageQueue) -> Fetch | None:
        """The fetch of a queue that is ours."""
        fetch = self._fetches.get(queue)
        return fetch if fetch is not None and not fetch.process_queue.is_dropped else None

    def process_queues(self) -> list[ProcessQueue]:
        """All of them, those on their way out too."""
        return [fetch.process_queue for fetch in self._fetches.values()]

    def faults(self) -> dict[MessageQueue, FuseeError]:
        """Queues that cannot be pulled now, and why."""
        return {queue: fetch.fault for queue, fetch in self._fetches.items() if fetch.fault is not None}

    def is_lent(self, process_queue: ProcessQueue) -> bool:
        """Whether the broker has lent us this queue, as an operator wants to know."""
        return self._needs_locks and not process_queue.is_dropped and self._locks.is_fresh(process_queue)

    def is_locked(self, process_queue: ProcessQueue) -> bool:
        """Whether this queue may be consumed now."""
        return not self._needs_locks or self._locks.check(process_queue)

    def is_dead(self, queue: MessageQueue) -> bool:
        """Whether this queue must be taken up anew."""
        fetch = self._fetches.get(queue)
        if queue in self._lost or fetch is None:
            return True
        idle = self._session.clock.monotonic() - fetch.process_queue.last_pulled_at
        return idle > _PULL_EXPIRED_S and not fetch.is_alive

    def note_progress(self) -> None:
        """Tell the store of offsets what is done."""
        for queue, fetch in self._fetches.items():
            if not fetch.process_queue.is_dropped:
                self._offsets.update(queue, fetch.process_queue.watermark, increase_only=True)

    async def persist(self) -> None:
        """Commit what is done."""
        self.note_progress()
        ours = [
            queue
            for queue, fetch in self._fetches.items()
            if not self._needs_locks or self._locks.is_fresh(fetch.process_queue)
        ]
        failed = await self._offsets.persist(ours)
        for queue, error in failed.items():
            _log.info("group %s: %s is not committed yet: %s", self._group, queue, error)

    def divide_limits(self) -> None:
        """Give each queue its share of the limits that are for all together."""
        options, count = self._options, max(len(self._fetches), 1)
        if options.pull_threshold_for_topic != -1:
            self.limits.count = max(1, options.pull_threshold_for_topic // count)
        if options.pull_threshold_size_for_topic != -1:
            self.limits.byte_size = max(1, options.pull_threshold_size_for_topic // count) * _MIB

    # Pausing

    def pause(self, what: tuple[MessageQueue | str, ...]) -> None:
        """Hand out and pull nothing of these queues or topics, or of all."""
        if what:
            self._paused.update(what)
        else:
            self._is_all_paused = True
        self._follow_pauses()

    def resume(self, what: tuple[MessageQueue | str, ...]) -> None:
        """Go on with these queues or topics, or with all."""
        if what:
            self._paused.difference_update(what)
        else:
            self._paused.clear()
            self._is_all_paused = False
        self._follow_pauses()

    def _is_paused(self, queue: MessageQueue) -> bool:
        return self._is_all_paused or queue in self._paused or queue.topic in self._paused

    def _follow_pauses(self) -> None:
        for queue, fetch in self._fetches.items():
            process_queue = fetch.process_queue
            if process_queue.is_dropped:
                continue
            if self._is_paused(queue):
                fetch.pause()
                process_queue.hold()
            elif process_queue.is_held:
                process_queue.unhold()
                self._lock_confirmed(process_queue)
                fetch.resume()

    # Taking up and letting go

    async def acquire(self, queue: MessageQueue) -> bool:
        """Take up this queue: lock it if need be, and begin where the group has stopped."""
        if not self._takes_up():
            return False
        grant: Grant | None = None
        if self._needs_locks:
            grant = await self._locks.lock(queue)
            if grant is None:
                return False
        try:
            committed = await self._offsets.load(queue)
            begin = await start_offset(
                self._session,
                queue,
                committed=committed,
                consume_from=self._consume_from,
                reload=self._offsets.load,
            )
        except BaseException:
            if self._needs_locks:
                self._session.spawn(self._locks.unlock(queue))
            raise
        if self._offsets.cached(queue) is None:
            # From now on the group has a place in this queue, whatever becomes of this process: else what arrives
            # before the first commit would be lost to a group that begins behind the last message.
            self._offsets.update(queue, begin)
            await self._offsets.persist([queue])
        if not self._takes_up():
            self._offsets.remove(queue)
            if self._needs_locks:
                await self._locks.unlock(queue)
            return False
        self._lost.discard(queue)
        self._begin(queue, begin, grant)
        return True

    def _takes_up(self) -> bool:
        return not self._is_resting

    def _begin(self, queue: MessageQueue, begin: int, grant: Grant | None) -> None:
        process_queue = ProcessQueue(queue, begin, self._session.clock.monotonic())
        if grant is not None:
            process_queue.last_locked_at, process_queue.lock_link = grant
        fetch = self._fetches[queue] = Fetch(
            self._session,
            process_queue,
            group=self._group,
            subscription=lambda: self._subscription(queue.topic),
            options=self._options,
            limits=self.limits,
            offsets=self._offsets,
            statistics=self._statistics,
            outbox=self._outbox,
            deliver=self._deliver,
            moved=self._moved,
        )
        if self._is_paused(queue):
            fetch.pause()
            process_queue.hold()
        fetch.start()

    async def release(self, queue: MessageQueue) -> bool:
        """Let this queue go and commit what is done; False while it is still being consumed in order."""
        fetch = self._fetches.get(queue)
        if fetch is None:
            return True
        process_queue = fetch.process_queue
        fetch.stop()
        process_queue.drop()
        if self._is_ordered and not await self._is_let_go(process_queue):
            process_queue.unlock_tries += 1
            return False
        self._offsets.update(queue, process_queue.watermark, increase_only=True)
        failed: dict[MessageQueue, FuseeError] = {}
        if await self._may_commit(process_queue):
            failed = await self._offsets.persist([queue])
            if 0 < fetch.carried_offset < process_queue.watermark and not failed:
                # Java's broker commits what a pull carries in a thread of its own, perhaps only now: ask what stands.
                failed = await self._offsets.persist([queue])
        if queue in failed:
            _log.warning(
                "group %s: how far %s is consumed could not be committed; some messages will be delivered again: %s",
                self._group,
                queue,
                failed[queue],
            )
        self._offsets.remove(queue)
        self._fetches.pop(queue, None)
        self._lost.discard(queue)
        if self._needs_locks:
            await self._locks.unlock(queue)
        return True

    async def _may_commit(self, process_queue: ProcessQueue) -> bool:
        """Whether the group's place in this queue is ours to move: in order only with the lock in hand."""
        if not self._needs_locks or self._locks.is_fresh(process_queue):
            return True
        try:
            return await self._locks.lock(process_queue.queue) is not None
        except FuseeError as error:
            _log.info("group %s: %s is let go without a commit: %s", self._group, process_queue.queue, error)
            return False

    async def _is_let_go(self, process_queue: ProcessQueue) -> bool:
        """Wait a little for the listener that has a message of this queue; whether to wait no longer."""
        if self._is_free(process_queue):
            return True
        freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle() -> None:
            if not freed.done():
                freed.set_result(None)

        process_queue.when_freed = settle
        timer = self._session.timers.call_later(_LET_GO_S, settle)
        try:
            await freed
        finally:
            timer.cancel()
            process_queue.when_freed = None
        return self._is_free(process_queue)

    def _is_free(self, process_queue: ProcessQueue) -> bool:
        since = self._session.clock.monotonic() - process_queue.last_consumed_at
        return not process_queue.is_consuming or self._is_forced or since > self._options.consume_timeout_min * 60

    def _deliver(self, chunk: Chunk) -> None:
        assert self._consumption is not None
        self._consumption.offer(chunk)

    def move(self, queue: MessageQueue, next_offset: int) -> bool:
        """Go on from here in this queue, whatever was before; False when it is not ours. `persist` commits it."""
        fetch = self.fetch_of(queue)
        if fetch is None:
            return False
        self._offsets.update(queue, next_offset)  # first, for the next pull carries it to the broker
        self._restart(fetch, next_offset)
        return True

    def _restart(self, fetch: Fetch, begin: int) -> None:
        """Go on elsewhere in this queue: what was pulled, and what is under way, counts no more."""
        process_queue = fetch.process_queue
        fetch.stop()
        process_queue.drop()
        link = process_queue.lock_link
        grant = Grant(process_queue.last_locked_at, link) if link is not None else None
        self._begin(process_queue.queue, begin, grant)

    def _moved(self, process_queue: ProcessQueue, next_offset: int) -> None:
        """The broker says that the queue goes on elsewhere than where we are."""
        queue = process_queue.queue
        here = process_queue.next_offset
        if next_offset >= here:
            if next_offset > here and here > 0:
                _log.warning(
                    "group %s: %s goes on at %d; what was from %d on is no longer there, or an operator skipped it",
                    self._group,
                    queue,
                    next_offset,
                    here,
                )
            process_queue.skip_to(next_offset)
            self._offsets.update(queue, process_queue.watermark, increase_only=True)
            return
        _log.warning(
            "group %s: %s goes back from %d to %d: the broker has no such offset, or an operator moved the group",
            self._group,
            queue,
            here,
            next_offset,
        )
        if not process_queue.is_dropped and self.move(queue, next_offset):
            self._session.spawn(self.persist())

    def _lock_confirmed(self, process_queue: ProcessQueue) -> None:
        if self._consumption is not None:
            self._consumption.resumed(process_queue)

    def _lock_lost(self, process_queue: ProcessQueue) -> None:
        """Another member may consume this queue: forget what was pulled, and take it up anew."""
        queue = process_queue.queue
        fetch = self._fetches.get(queue)
        if fetch is None or fetch.process_queue is not process_queue:
            return
        _log.warning("group %s: the lock of %s is lost; it is taken up anew when it can be had", self._group, queue)
        fetch.stop()
        process_queue.drop()
        self._lost.add(queue)
        self._divide_again()
