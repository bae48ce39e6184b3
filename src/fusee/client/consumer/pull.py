"""A consumer that is asked for messages: `poll` what was fetched ahead, or `pull` one queue by hand.

Queues come to it in one of two ways, never both: by `subscribe`, when the members of its group divide the queues of
topics among them, or by `assign`, when the application says which. Each queue has a task that fetches ahead within
limits; `poll` takes from what it found. A `poll` says that the application is done with the messages of the one before:
that much is committed at intervals, when a queue is lost, and at the end. With `auto_commit=False` only `commit` does.

A fetch that fails is tried again for as long as the queue is held. When trying again cannot help, or a broker keeps
refusing, and nothing else came, `poll` raises the cause.

(Java: DefaultLitePullConsumer, and DefaultMQPullConsumer for `pull`. Otherwise than there: a paused queue is not handed
out, a queue that is lost is committed up to what was done, and filtered messages are passed.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from fusee.client.config import DEFAULT_INSTANCE, MessageModel, ServiceState
from fusee.client.consumer.assignment import strategy as strategy_named
from fusee.client.consumer.offsets import BrokerOffsets, LocalOffsets, local_offsets_path
from fusee.client.consumer.prefetch import Prefetch, wake
from fusee.client.consumer.pull_options import pull_options
from fusee.client.consumer.queue_reader import QueueReader
from fusee.client.consumer.rebalance import Rebalance
from fusee.client.hooks import ConsumeContext, after_consume, before_consume
from fusee.client.pulled import decode_pulled
from fusee.client.subscriptions import Sql, declared, subscription, subscriptions
from fusee.errors import ClientStateError, ConfigError, TopicNotFoundError
from fusee.message.topics import DEFAULT_CONSUMER_GROUP, validate_group
from fusee.service import Periodic
from fusee.wire.bodies.heartbeat import ConsumerData
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.stats import ConsumeDirectlyResult, ConsumerRunningInfo, ProcessQueueInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from fusee.client.broker_calls import PullStatus
    from fusee.client.consumer.assigned_queues import AssignedQueue
    from fusee.client.consumer.assignment import AllocateStrategy
    from fusee.client.consumer.offsets import OffsetStore
    from fusee.client.consumer.pull_options import PullSettings
    from fusee.client.hooks import ConsumeHook
    from fusee.client.received import ReceivedMessage
    from fusee.client.session import Session
    from fusee.client.subscriptions import Topics
    from fusee.filter.subscription import Subscription
    from fusee.message.model import MessageQueue, StoredMessage

_log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024


class _Way(Enum):
    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"


@dataclass(frozen=True, slots=True)
class PullResult:
    """What one pull found; the next one begins at `next_offset`."""

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class PullConsumer:
    """A member of a group that polls, or a reader of queues by hand.

    One task polls; everything else may be called by any. Use it as `async with`: leaving commits what was polled, an
    exception leaves the messages of the last poll to be delivered again.
    """

    def __init__(
        self,
        session: Session,
        topics: Topics | None = None,
        *,
        group: str,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        strategy: str | AllocateStrategy = "AVG",
        on_assigned: Callable[[str, frozenset[MessageQueue]], object] | None = None,
        offset_store: OffsetStore | None = None,
        hooks: Sequence[ConsumeHook] = (),
        **settings: Unpack[PullSettings],
    ) -> None:
        """With `topics` the consumer is subscribed from the start. `settings` are those of `PullOptions`.

        `on_assigned` is called with a topic and the queues of it that are now this consumer's, whenever members of the
        group divide them anew. Raises ConfigError, MessageError or FilterError when arguments are wrong.
        """
        validate_group(group)
        if group == DEFAULT_CONSUMER_GROUP:
            raise ConfigError(f"group {group!r} is the system's default; choose a name of your own")
        self.group = group
        self.model = model
        self.options = pull_options(settings)
        self.state = ServiceState.CREATE_JUST
        self.session = session
        self._owns_session = False
        self._clock = session.clock
        self._hooks = tuple(hooks)
        self._way: _Way | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._offsets: OffsetStore = offset_store or _offsets_of(session, group, model)
        self._reader = QueueReader(session, group)
        self._prefetch = Prefetch(
            session,
            group,
            self.options,
            reader=self._reader,
            offsets=self._offsets,
            on_messages=self._has_messages,
        )
        self._queues = self._prefetch.queues
        self._rebalance = Rebalance(
            session,
            group,
            model=model,
            strategy=strategy_named(strategy) if isinstance(strategy, str) else strategy,
            topics=lambda: tuple(self._subscriptions),
            acquire=self._acquire,
            release=self._release,
            on_changed=self._assignment_changed,
        )
        self._on_assigned = on_assigned
        self._watched: dict[str, tuple[frozenset[MessageQueue], Callable[[str, frozenset[MessageQueue]], object]]] = {}
        self._polling: asyncio.Future[None] | None = None
        self._committing: asyncio.Task[Any] | None = None
        self._commits = Periodic(session.timers, self.options.auto_commit_interval_ms / 1000, self._commit_soon)
        self._closing: asyncio.Task[Any] | None = None
        self._started_ms = 0
        if topics is not None:
            self._choose(_Way.SUBSCRIBE)
            self._subscriptions = subscriptions(topics, tags=tags, sql=sql, version_ms=self._clock.time_ms())
        elif tags is not None or sql is not None:
            raise ConfigError("tags or sql are given without topics; name the topics they choose from")

    def __repr__(self) -> str:
        return f"<PullConsumer {self.group} {self.state.value}, {len(self._queues)} queues>"

    # Life

    async def start(self) -> None:
        """Join the group and begin to fetch.

        Raises TopicNotFoundError when a topic does not exist (unless `missing_topic="wait"`), ConnectError when no
        name server answers, ConfigError when the session has a consumer of this group already. A session that was
        not started is started, and closed with the consumer.
        """
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(
                f"the consumer of group {self.group!r} is {self.state.value}; it can be started once"
            )
        self._owns_session = self.session.state is ServiceState.CREATE_JUST
        if not self._owns_session:
            self.session.check_running()
        self.state = ServiceState.START_FAILED
        if self._owns_session:
            await self.session.start()
        self.session.register_consumer(self.group, self)
        try:
            await self._learn_routes({*self._subscriptions, *(held.queue.topic for held in self._queues)})
            self._check_wanted(ServiceState.START_FAILED)
            self.state = ServiceState.RUNNING
            self._started_ms = self._clock.time_ms()
            self.session.route_listeners.append(self._route_changed)
            await self.session.heartbeat_all()
            self._check_wanted(ServiceState.RUNNING)
            if self.options.auto_commit:
                self._commits.start()
            self._prefetch.start()
            if self._way is _Way.SUBSCRIBE:
                self._rebalance.start()
                await self._rebalance.run_once()
            # Whoever sends after this has a consumer: where the queues begin is settled.
            await self._prefetch.find_starts()
            self._check_wanted(ServiceState.RUNNING)
        except BaseException:
            if self._closing is None:
                if self.state is ServiceState.RUNNING:
                    self.state = ServiceState.START_FAILED
                await self._end()
                await self._end_session()
            raise

    async def close(self, *, commit: bool = True) -> None:
        """Commit what is done, leave the group and stop fetching. May be called again, and before `start`.

        The messages of the last `poll` are taken for done; with `commit=False` they are delivered again. Without
        `auto_commit` nothing is committed that `commit` did not. Closing goes on when the wait for it is cancelled.
        """
        if self._closing is None:
            was_running = self.state is ServiceState.RUNNING
            self.state = ServiceState.SHUTDOWN_ALREADY
            if not was_running:
                return  # whoever is starting it finds out
            if commit:
                self._queues.settle()
            self._closing = self.session.spawn(self._end())
        await asyncio.shield(self._closing)
        await self._end_session()

    async def _end_session(self) -> None:
        if self._owns_session:
            await self.session.close()

    async def _end(self) -> None:
        self._commits.stop()
        if self._route_changed in self.session.route_listeners:
            self.session.route_listeners.remove(self._route_changed)
        if self._polling is not None:
            wake(self._polling)
        try:
            await self._rebalance.stop()
            await self._release_all(held.queue for held in self._queues)
        finally:
            await self._prefetch.stop()
            if self._committing is not None:
                self._committing.cancel()
                await asyncio.gather(self._committing, return_exceptions=True)
            await self.session.unregister_consumer(self.group)
            await self._offsets.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(commit=error is None)

    def _check_wanted(self, expected: ServiceState) -> None:
        if self.state is not expected:
            raise ClientStateError(f"the consumer of group {self.group!r} was closed while it started")

    def _check_running(self) -> None:
        self.session.check_running()
        if self.state is not ServiceState.RUNNING:
            raise ClientStateError(
                f"the consumer of group {self.group!r} is {self.state.value}; use it inside `async with`, or between "
                "start and close"
            )

    async def _learn_routes(self, topics: Iterable[str]) -> None:
        for topic in sorted(topics):
            try:
                await self.session.read_route(topic)
            except TopicNotFoundError:
                if self.options.missing_topic == "raise":
                    raise

    # Which queues

    async def subscribe(
        self, topics: Topics, *, tags: str | Iterable[str] | None = None, sql: str | None = None
    ) -> None:
        """Consume these topics too, together with the other members of the group.

        A topic that was subscribed before gets the new expression. Raises as `start` does, and ClientStateError when
        queues were assigned by hand.
        """
        if self.state is not ServiceState.CREATE_JUST:
            self._check_running()
        wanted = subscriptions(topics, tags=tags, sql=sql, version_ms=self._clock.time_ms())
        if self.state is ServiceState.RUNNING:
            await self._learn_routes(wanted)
        first = self._choose(_Way.SUBSCRIBE)
        self._subscriptions.update(wanted)
        for held in self._queues:
            if held.queue.topic in wanted:
                self._prefetch.rechoose(held, wanted[held.queue.topic])
        if self.state is ServiceState.RUNNING:
            await self.session.heartbeat_all()
            if first:
                self._rebalance.start()
            await self._rebalance.run_once()

    async def unsubscribe(self, topic: str) -> None:
        """Leave the queues of this topic to the other members of the group."""
        if self._subscriptions.pop(topic, None) is not None and self.state is ServiceState.RUNNING:
            await self.session.heartbeat_all()
            await self._rebalance.run_once()

    async def assign(
        self, queues: Iterable[MessageQueue], *, tags: str | Iterable[str] | None = None, sql: str | None = None
    ) -> None:
        """Consume exactly these queues, whatever other members of the group do.

        Those that are held already go on where they are. Raises ClientStateError after `subscribe`.
        """
        if self.state is not ServiceState.CREATE_JUST:
            self._check_running()
        if tags is not None and sql is not None:
            raise ConfigError("give tags or sql, not both: a subscription has one expression")
        if tags is not None and not isinstance(tags, str):
            tags = tuple(tags)
        wanted = dict.fromkeys(queues)
        expression = tags if sql is None else Sql(sql)
        now = self._clock.time_ms()
        chosen = {topic: subscription(topic, expression, version_ms=now) for topic in {each.topic for each in wanted}}
        self._choose(_Way.ASSIGN)
        if self.state is ServiceState.RUNNING:
            await self._learn_routes(chosen)
            self._check_running()
        lost = [held.queue for held in self._queues if held.queue not in wanted]
        for queue in wanted:
            held = self._queues.get(queue)
            if held is not None:
                self._prefetch.rechoose(held, chosen[queue.topic])
            else:
                self._prefetch.add(queue, chosen[queue.topic])
        await self._release_all(lost)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now."""
        return frozenset(held.queue for held in self._queues)

    async def queues(self, topic: str) -> frozenset[MessageQueue]:
        """All queues of a topic that can be read. Raises TopicNotFoundError."""
        self._check_running()
        await self.session.refresh_route(topic)
        return frozenset((await self.session.read_route(topic)).read_queues)

    async def watch_queues(
        self, topic: str, listener: Callable[[str, frozenset[MessageQueue]], object]
    ) -> frozenset[MessageQueue]:
        """The queues of a topic; from now on the listener is called with topic and queues whenever they change.

        For those who `assign`. A topic has one listener, the last one given.
        """
        found = await self.queues(topic)
        self._watched[topic] = (found, listener)
        return found

    def _choose(self, way: _Way) -> bool:
        """Whether this is the first time; raises when it was the other way before."""
        if self._way not in (None, way):
            raise ClientStateError(
                f"the consumer of group {self.group!r} cannot {way.value}: it got its queues the other way before; use "
                "another consumer for that"
            )
        is_first = self._way is None
        self._way = way
        return is_first

    def _route_changed(self, topic: str) -> None:
        watched = self._watched.get(topic)
        route = self.session.cached_route(topic)
        if watched is not None and route is not None:
            before, listener = watched
            now = frozenset(route.read_queues)
            if now != before:
                self._watched[topic] = (now, listener)
                _tell(listener, topic, now)

    def _assignment_changed(self, topic: str, every: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        if self._on_assigned is not None:
            _tell(self._on_assigned, topic, mine)

    async def _acquire(self, queue: MessageQueue) -> bool:
        chosen = self._subscriptions.get(queue.topic)
        if chosen is None or self.state is not ServiceState.RUNNING:
            return False
        if queue not in self._queues:
            self._prefetch.add(queue, chosen)
        return True

    async def _release(self, queue: MessageQueue) -> bool:
        await self._release_all((queue,))
        return True

    async def _release_all(self, queues: Iterable[MessageQueue]) -> None:
        """Let queues go: commit what is done, and forget the rest. What cannot be committed is delivered again."""
        released = [held for queue in queues if (held := self._prefetch.remove(queue)) is not None]
        for held in released:
            self._note_done(held)
        lost = [held.queue for held in released]
        failed = await self._offsets.persist(lost)
        for queue, error in failed.items():
            _log.warning(
                "group %s: %s was let go without a commit, and will be consumed again in part: %s",
                self.group, queue, error,
            )  # fmt: skip
        for queue in lost:
            if queue not in self._queues:
                self._offsets.remove(queue)

    # Messages

    async def poll(self, timeout_ms: int | None = None, max_messages: int | None = None) -> list[ReceivedMessage]:
        """The next messages, in the order of each queue; none when no message came in time.

        The messages of the poll before count as done. Raises ClientStateError when nothing is subscribed or assigned,
        when another task polls, or when the consumer is closed meanwhile. When no message came, raises the error that
        keeps a queue from being fetched if trying again cannot help, or has not. Cancelling it loses no message.
        """
        self._check_running()
        if self._way is None:
            raise ClientStateError(f"the consumer of group {self.group!r} has no queues; subscribe or assign first")
        if self._polling is not None:
            raise ClientStateError("another task polls this consumer; let one task poll and share out the messages")
        timeout_ms = self.options.poll_timeout_ms if timeout_ms is None else timeout_ms
        max_messages = self.options.max_poll_messages if max_messages is None else max_messages
        if timeout_ms < 0 or max_messages <= 0:
            raise ConfigError(f"cannot poll {max_messages} messages within {timeout_ms} ms; give positive numbers")
        self._queues.settle()
        if not self._queues.has_messages and timeout_ms:
            self._polling = asyncio.get_running_loop().create_future()
            timer = self.session.timers.call_later(timeout_ms / 1000, wake, self._polling)
            try:
                await self._polling
            finally:
                timer.cancel()
                self._polling = None
            self._check_running()
        taken = self._queues.take(max_messages)
        if not taken:
            self._prefetch.raise_fault()
            return []
        now = self._clock.time_ms()
        for held, messages in taken:
            held.last_poll_ms = now
            if self._hooks:
                self._tell_hooks(held.queue, messages, now)
        self._prefetch.go_on()
        if len(taken) == 1:
            return taken[0][1]
        return [message for _, messages in taken for message in messages]

    def _take_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand these, the messages of the last poll, out again: they did not reach the application."""
        first: dict[MessageQueue, int] = {}
        for message in messages:
            first.setdefault(message.queue, message.queue_offset)
        for queue, queue_offset in first.items():
            held = self._queues.get(queue)
            if held is not None:
                self._prefetch.take_back(held, queue_offset)

    def _has_messages(self) -> None:
        if self._polling is not None:
            wake(self._polling)

    def _tell_hooks(self, queue: MessageQueue, messages: list[ReceivedMessage], now: int) -> None:
        context = ConsumeContext(self.group, queue, messages, started_ms=now)
        before_consume(self._hooks, context)
        context.success = True
        context.status = "CONSUME_SUCCESS"
        after_consume(self._hooks, context)

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        max_messages: int = 32,
        *,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
        wait_ms: int = 0,
    ) -> PullResult:
        """What one queue holds at an offset; with `wait_ms` the broker waits so long for a message.

        Neither subscription nor assignment is needed, and no position moves. Raises TransportError or RemoteError
        when the broker does not answer, RecordError when its answer is damaged.
        """
        self._check_running()
        if queue_offset < 0 or max_messages <= 0:
            raise ConfigError(f"cannot pull {max_messages} messages at offset {queue_offset}; both must be positive")
        wanted = subscription(queue.topic, tags if sql is None else Sql(sql), version_ms=self._clock.time_ms())
        answer = await self._reader.pull(
            queue,
            wanted,
            queue_offset,
            max_messages,
            hold_ms=wait_ms,
            timeout_ms=wait_ms + self.options.consumer_pull_timeout_ms,
        )
        messages = decode_pulled(answer.body, queue.broker_name, queue.topic, wanted)
        if self._hooks and messages:
            self._tell_hooks(queue, messages, self._clock.time_ms())
        return PullResult(answer.status, messages, answer.next_offset, answer.min_offset, answer.max_offset)

    def pause(self, *queues: MessageQueue) -> None:
        """Fetch and hand out no more of these queues; what was fetched is kept. All queues when none is named."""
        for held in self._named(queues):
            self._queues.pause(held)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues after `pause`. All queues when none is named."""
        for held in self._named(queues):
            self._queues.resume(held)
        self._prefetch.go_on()
        if self._queues.has_messages:
            self._has_messages()

    @property
    def paused(self) -> frozenset[MessageQueue]:
        """The queues that are paused."""
        return frozenset(held.queue for held in self._queues if held.is_paused)

    def _named(self, queues: tuple[MessageQueue, ...]) -> Iterable[AssignedQueue]:
        return map(self._assigned, queues) if queues else self._queues

    def _assigned(self, queue: MessageQueue) -> AssignedQueue:
        held = self._queues.get(queue)
        if held is None:
            raise ClientStateError(
                f"queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name} is not assigned to this consumer"
                + (", or no longer: the members of the group have divided the queues anew" if self._rebalances else "")
            )
        return held

    @property
    def _rebalances(self) -> bool:
        return self._way is _Way.SUBSCRIBE

    # Where in the queues

    async def seek(self, queue: MessageQueue, to: int | Literal["first", "last"] | datetime) -> None:
        """Go on with an assigned queue at an offset, its first or last one, or at a time.

        What was fetched is dropped. Raises ConfigError when the queue has no such offset.
        """
        self._check_running()
        self._assigned(queue)
        if to == "first":
            queue_offset = await self._reader.min_offset(queue)
        elif to == "last":
            queue_offset = await self._reader.max_offset(queue)
        elif isinstance(to, datetime):
            queue_offset = await self.offset_for_timestamp(queue, to)
        elif isinstance(to, int):
            first, end = await asyncio.gather(self._reader.min_offset(queue), self._reader.max_offset(queue))
            if not first <= to <= end:
                raise ConfigError(
                    f"cannot seek offset {to} in queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name}, "
                    f"which has {first} to {end}"
                )
            queue_offset = to
        else:
            raise ConfigError(f'cannot seek {to!r}; give an offset, "first", "last" or a datetime')
        if self._offsets.cached(queue) is None:
            await self._offsets.load(queue)  # only what is known to lie behind is taken back by a commit
        self._prefetch.move(self._assigned(queue), queue_offset)
        if self.options.auto_commit:
            self._offsets.update(queue, queue_offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the first message that is left."""
        await self.seek(queue, "first")

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that will come."""
        await self.seek(queue, "last")

    async def position(self, queue: MessageQueue) -> int:
        """The offset of an assigned queue with which the next poll goes on."""
        self._check_running()
        held = self._assigned(queue)
        if held.handed_offset is None:
            await self._prefetch.find_start(held)
        assert held.handed_offset is not None
        return held.handed_offset

    async def committed(self, queue: MessageQueue) -> int | None:
        """How far the group has committed this queue, None when it has not.

        Brokers say 0 for a group that has committed nothing yet of a queue that is still young.
        """
        self._check_running()
        cached = self._offsets.cached(queue)
        return cached if cached is not None else await self._offsets.load(queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset of a queue that can still be read."""
        self._check_running()
        return await self._reader.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        self._check_running()
        return await self._reader.max_offset(queue)

    async def offset_for_timestamp(self, queue: MessageQueue, time: datetime | int) -> int:
        """The first offset of a queue stored at this time or later; a number is milliseconds since 1970."""
        self._check_running()
        timestamp_ms = round(time.timestamp() * 1000) if isinstance(time, datetime) else time
        return await self._reader.offset_at(queue, timestamp_ms)

    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """When the first message of a queue that can still be read was stored, in milliseconds since 1970."""
        self._check_running()
        return await self._reader.earliest_store_time(queue)

    # Commits

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Commit that messages are done: all that were polled, those of some queues, or up to offsets of your own.

        An offset is the next one to consume. Unless `persist`, the brokers are told later, at the interval of the
        session. Raises ClientStateError for queues that are not, or no longer, this consumer's, after the others were
        committed; and the cause when a broker could not be told.
        """
        self._check_running()
        if isinstance(offsets, Mapping):
            wanted = dict(offsets)
            if any(next_offset < 0 for next_offset in wanted.values()):
                raise ConfigError(f"an offset is negative in {wanted!r}; commit the next offset to consume")
            strange = [queue for queue in wanted if self._way is not None and queue not in self._queues]
        else:
            named = list(self.assignment if offsets is None else offsets)
            strange = [queue for queue in named if queue not in self._queues]
            wanted = {
                held.queue: held.handed_offset
                for held in self._queues
                if held.queue in named and held.handed_offset is not None
            }
        ours = [queue for queue in wanted if queue not in strange]
        for queue in ours:
            if self._offsets.cached(queue) is None:
                await self._offsets.load(queue)  # only what is known to lie behind is taken back
            self._offsets.update(queue, wanted[queue])
        if persist:
            for error in (await self._offsets.persist(ours)).values():
                raise error
        for queue in strange:
            self._assigned(queue)

    def _note_done(self, held: AssignedQueue) -> None:
        if self.options.auto_commit and held.done_offset is not None:
            # Never back: a commit by hand may be ahead. Whoever goes back on purpose says so when he does.
            self._offsets.update(held.queue, held.done_offset, increase_only=True)

    def _commit_soon(self) -> None:
        if self._committing is None or self._committing.done():
            self._committing = self.session.spawn(self._commit_done())

    async def _commit_done(self) -> None:
        for held in self._queues:
            self._note_done(held)
        await self.persist_offsets()

    # ConsumerParty

    def heartbeat(self) -> ConsumerData:
        """What brokers are told of this consumer."""
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            message_model=self.model.value,
            subscription_data_set=[declared(each) for each in self._subscriptions.values()],
        )

    def subscribed_topics(self) -> Iterable[str]:
        """Topics whose routes are kept fresh."""
        return {*self._subscriptions, *self._watched, *(held.queue.topic for held in self._queues)}

    def members_changed(self) -> None:
        """Divide the queues again soon."""
        if self._rebalances:
            self._rebalance.request()

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Go on from offsets that an operator chose."""
        if self.state is not ServiceState.RUNNING:
            return
        for queue, queue_offset in offsets.items():
            held = self._queues.get(queue)
            if held is not None and queue.topic == topic:
                self._prefetch.move(held, queue_offset)
                self._offsets.update(queue, queue_offset)

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """How far each queue of the topic is consumed."""
        return {
            held.queue: held.done_offset
            for held in self._queues
            if held.queue.topic == topic and held.done_offset is not None
        }

    def running_info(self) -> ConsumerRunningInfo:
        """What an operator wants to see of this member."""
        return ConsumerRunningInfo(
            properties={
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_NAMESERVER_ADDR": ";".join(self.session.name_servers.addresses),
                "autoCommit": str(self.options.auto_commit).lower(),
                "consumerGroup": self.group,
                "messageModel": self.model.value,
                "pullBatchSize": str(self.options.pull_batch_size),
            },
            subscription_set=[declared(each) for each in self._subscriptions.values()],
            queues={
                QueueRef(
                    topic=held.queue.topic, broker_name=held.queue.broker_name, queue_id=held.queue.queue_id
                ): ProcessQueueInfo(
                    cached_msg_count=held.count,
                    cached_msg_min_offset=held.first_offset if held.chunks else 0,
                    cached_msg_max_offset=held.last_offset if held.chunks else 0,
                    cached_msg_size_in_mib=held.size // _MIB,
                    commit_offset=self._offsets.cached(held.queue) or 0,
                    last_pull_timestamp=held.last_fetch_ms,
                    last_consume_timestamp=held.last_poll_ms,
                )
                for held in self._queues
            },
        )

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        """Refused: there is no listener that could be given the message."""
        return ConsumeDirectlyResult(
            consume_result="CR_THROW_EXCEPTION", remark=f"group {self.group} polls; it has no listener to consume with"
        )

    async def persist_offsets(self) -> None:
        """Tell the brokers how far was committed; those that cannot be told now are told the next time."""
        failed = await self._offsets.persist([held.queue for held in self._queues])
        for queue, error in failed.items():
            _log.info("group %s: %s is not committed yet: %s", self.group, queue, error)


def _offsets_of(session: Session, group: str, model: MessageModel) -> OffsetStore:
    if model is MessageModel.CLUSTERING:
        return BrokerOffsets(session, group)
    instance = session.config.instance_name
    return LocalOffsets(local_offsets_path(group, "" if instance == DEFAULT_INSTANCE else instance))


def _tell(listener: Callable[..., object], *arguments: object) -> None:
    try:
        listener(*arguments)
    except Exception:  # noqa: BLE001 - the call of a user's listener
        _log.exception("a listener of queues failed; consumption goes on")
