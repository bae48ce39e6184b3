"""The consumer: messages of subscribed topics, pulled ahead and given to a listener or to a loop of the application.

Theory of operation
-------------------
    rebalance -> acquire -> fetch -> process queue -> concurrent | orderly | a loop -> offsets
                 release <-

`Rebalance` says which queues are ours, `HeldQueues` holds them. What is done is committed: with pulls, every few
seconds, when a queue is let go, and at the end. Nothing is committed before it is done, so whatever ends this process,
what was not done comes again.

States: created -> running -> closed, or created -> failed. (Java: DefaultMQPushConsumerImpl.)
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from fusee.client.closing import closer
from fusee.client.config import DEFAULT_INSTANCE, MessageModel, ServiceState
from fusee.client.consumer.assignment import strategy as named_strategy
from fusee.client.consumer.concurrent import Concurrent
from fusee.client.consumer.held_queues import HeldQueues
from fusee.client.consumer.iteration import BatchLoop, Iteration, MessageLoop
from fusee.client.consumer.offsets import BrokerOffsets, LocalOffsets, broker_address, local_offsets_path
from fusee.client.consumer.options import (
    DELAY_LEVELS_SAID,
    ConsumerOptions,
    consumer_options,
    is_delay_level,
    retry_asked,
)
from fusee.client.consumer.orderly import Orderly
from fusee.client.consumer.rebalance import Rebalance
from fusee.client.consumer.runners import Listener
from fusee.client.consumer.running_info import running_info
from fusee.client.consumer.send_back import MAX_RECONSUME_TIMES, SendBack
from fusee.client.consumer.start_offset import check_consume_from
from fusee.client.consumer.statistics import ConsumeStatistics
from fusee.client.received import ReceivedMessage
from fusee.client.subscriptions import declared, subscription, subscriptions
from fusee.errors import ClientStateError, ConfigError, FuseeError, TopicNotFoundError
from fusee.message.topics import DEFAULT_CONSUMER_GROUP, is_retry_topic, retry_topic, validate_group
from fusee.wire.bodies.heartbeat import ConsumerData
from fusee.wire.bodies.stats import ConsumeDirectlyResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from fusee.client.consumer.assignment import AllocateStrategy
    from fusee.client.consumer.fetch import Fetch
    from fusee.client.consumer.held_queues import Consumption
    from fusee.client.consumer.offsets import OffsetStore
    from fusee.client.consumer.options import ConsumerSettings
    from fusee.client.consumer.start_offset import ConsumeFrom
    from fusee.client.hooks import ConsumeHook
    from fusee.client.session import Session
    from fusee.client.subscriptions import Expression, Topics
    from fusee.message.model import MessageQueue, StoredMessage
    from fusee.wire.bodies.stats import ConsumerRunningInfo

    MessageListener: TypeAlias = Callable[[ReceivedMessage], Any]
    BatchListener: TypeAlias = Callable[[list[ReceivedMessage]], Any]
    Place: TypeAlias = int | Literal["first", "last"] | datetime

_log = logging.getLogger(__name__)

_TOPIC_LOOKS: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
_TOPIC_LOOK_LAST: Final = 5.0


class Consumer:
    """A member of a consumer group.

    With `listener` (one message a call) or `batch_listener` (up to `consume_message_batch_max_size`) messages are given
    to that function: a coroutine function runs on the loop, a plain one in threads. It is done with a message when it
    returns; raising, or returning False, `ConsumeResult.RETRY_LATER` or `RetryLater(...)`, has it delivered again
    later.

    Without a listener the consumer is looped over, inside `async with`:

        async with consumer as messages:
            async for message in messages: ...

    where each step says that the message before is done, and an exception that leaves the `async with` has the last one
    delivered again later. `batches` loops over lists of messages instead, which is the fastest way.

    `ordered` consumes each queue in its order, one message at a time; then a failed message is tried again at once,
    and everything behind it waits.
    """

    def __init__(
        self,
        session: Session,
        topics: Topics,
        *,
        group: str,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
        listener: MessageListener | None = None,
        batch_listener: BatchListener | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        ordered: bool = False,
        consume_from: ConsumeFrom = "last",
        strategy: str | AllocateStrategy = "AVG",
        concurrency: int | None = None,
        hooks: Sequence[ConsumeHook] = (),
        offsets: OffsetStore | None = None,
        on_assigned: Callable[[str, frozenset[MessageQueue]], object] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """`concurrency` is short for `consume_thread_max`. `on_assigned` is told topic and queues when they change.

        Raises ConfigError, MessageError or FilterError when something is wrong with the arguments.
        """
        validate_group(group)
        if group == DEFAULT_CONSUMER_GROUP:
            raise ConfigError(f"the group cannot be {group!r}, which belongs to no one; choose a name for yours")
        if listener is not None and batch_listener is not None:
            raise ConfigError("give a listener or a batch_listener, not both")
        check_consume_from(consume_from)
        if concurrency is not None:
            settings["consume_thread_max"] = concurrency
        if batch_listener is not None:
            settings.setdefault("consume_message_batch_max_size", settings.get("pull_batch_size", 32))
        self.group = group
        self.model = model
        self.is_ordered = ordered
        self.options: ConsumerOptions = consumer_options(settings)
        self.state = ServiceState.CREATE_JUST
        self._session = session
        self._consume_from = consume_from
        self._on_assigned = on_assigned
        self._subscriptions = subscriptions(topics, tags=tags, sql=sql, version_ms=session.clock.time_ms())
        if model is MessageModel.CLUSTERING:
            retries = retry_topic(group)
            self._subscriptions[retries] = subscription(retries, version_ms=session.clock.time_ms())
        # What pulls name: a version that every broker has heard of.
        self._announced = dict(self._subscriptions)
        self._statistics = ConsumeStatistics(session.clock)
        self._offsets: OffsetStore = offsets or self._new_offsets()
        tries_max = self.options.max_reconsume_times
        self._send_back = SendBack(
            session,
            group,
            max_reconsume_times=MAX_RECONSUME_TIMES if tries_max < 0 else tries_max,
            unit_mode=self.options.unit_mode,
        )
        self._held = HeldQueues(
            session,
            group,
            options=self.options,
            offsets=self._offsets,
            statistics=self._statistics,
            subscription=self._announced.__getitem__,
            consume_from=consume_from,
            is_ordered=ordered,
            is_shared=model is MessageModel.CLUSTERING,
            divide_again=self.members_changed,
        )
        self._listener = Listener(
            listener or batch_listener or _nobody,
            takes_batches=batch_listener is not None,
            group=group,
            statistics=self._statistics,
            session=session,
            is_ordered=ordered,
            timeout_s=self.options.consume_timeout_min * 60,
            hooks=hooks,
        )
        self._has_listener = listener is not None or batch_listener is not None
        self._consumption: Consumption = self._new_consumption()
        self._rebalance = Rebalance(
            session,
            group,
            model=model,
            strategy=named_strategy(strategy) if isinstance(strategy, str) else strategy,
            topics=lambda: tuple(self._subscriptions),
            acquire=self._held.acquire,
            release=self._held.release,
            on_changed=self._changed,
            is_dead=self._held.is_dead,
        )
        self._started_ms = 0
        self._watch: asyncio.Task[Any] | None = None
        self._closing: asyncio.Task[Any] | None = None

    def _new_offsets(self) -> OffsetStore:
        if self.model is MessageModel.CLUSTERING:
            return BrokerOffsets(self._session, self.group)
        instance = self._session.config.instance_name
        return LocalOffsets(local_offsets_path(self.group, "" if instance == DEFAULT_INSTANCE else instance))

    def _new_consumption(self) -> Consumption:
        is_shared = self.model is MessageModel.CLUSTERING
        send_back = self._send_back if is_shared else None
        if not self._has_listener:
            return Iteration(self._session, self._listener, is_ordered=self.is_ordered, is_locked=self._held.is_locked)
        if self.is_ordered:
            return Orderly(
                self._session, self._listener, options=self.options, send_back=send_back, is_locked=self._held.is_locked
            )
        return Concurrent(self._session, self._listener, options=self.options, send_back=send_back)

    def __repr__(self) -> str:
        return f"<Consumer {self.group} {self.state.value}, {len(self._held)} queues>"

    # Life

    async def start(self) -> None:
        """Join the group and take up a share of its queues.

        Raises TopicNotFoundError when a topic does not exist (unless `missing_topic` is "wait"), ConfigError when this
        client has a consumer of the group already, ClientStateError when it was started before.
        """
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(f"the consumer of group {self.group!r} is {self.state.value}; it is started once")
        session = self._session
        await session.begin_use()
        session.register_consumer(self.group, self)
        self.state = ServiceState.START_FAILED
        try:
            await self._find_topics()
            await session.heartbeat_all()
            self._check_wanted(ServiceState.START_FAILED)
            self._started_ms = session.clock.time_ms()
            self.state = ServiceState.RUNNING
            self._consumption.start()
            self._held.start(self._consumption)
            # Whoever sends after this has a consumer: the queues are ours, and where they begin is settled.
            await self._rebalance.run_once()
        except BaseException:
            if self._closing is None:
                if self.state is ServiceState.RUNNING:
                    self.state = ServiceState.START_FAILED
                await self._leave(0.0, None)
                await session.end_use()
            raise
        self._check_wanted(ServiceState.RUNNING)
        self._rebalance.start()
        self._watch = session.spawn(self._watch_for_topics())

    async def close(self, timeout: float | None = None) -> None:
        """Wait for listeners that are at work, commit what is done, and leave the group.

        `timeout` is in seconds, by default `await_termination_ms_when_shutdown`; what is not done by then is delivered
        again to whoever gets the queue. Closing goes on when the wait for it is cancelled.
        """
        if self._closing is None:
            was_running = self.state is ServiceState.RUNNING
            self.state = ServiceState.SHUTDOWN_ALREADY
            if not was_running:
                return  # whoever is starting it finds out
            if timeout is None:
                timeout = self.options.await_termination_ms_when_shutdown / 1000
            self._closing = self._session.spawn(self._leave(timeout, closer()))
        await asyncio.shield(self._closing)
        await self._session.end_use()

    async def _leave(self, timeout: float, caller: asyncio.Task[Any] | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        # From below, each step also when one before it has failed: a member that says no good-bye keeps its queues.
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._session.unregister_consumer, self.group)
            stack.push_async_callback(self._offsets.close)
            stack.push_async_callback(self._rebalance.stop)
            stack.callback(self._held.stop)
            self._held.rest()
            if not await self._consumption.close(timeout, caller) and timeout > 0:
                _log.warning(
                    "group %s: listeners were still at work %g s after the consumer was closed; what they have will be "
                    "delivered again",
                    self.group,
                    timeout,
                )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(self._consumption, Iteration):
                await self._end_loops(self._consumption, error)
        finally:
            await self.close()

    async def _end_loops(self, iteration: Iteration, error: BaseException | None) -> None:
        """Loops were left: by an exception, which says that their last message failed, or as they should be."""
        if error is None:
            iteration.accept()
            return
        unfinished = iteration.abandon()
        # Cancelling says nothing about the message, and in order nothing may overtake it: it comes again by itself.
        if isinstance(error, Exception) and self.model is MessageModel.CLUSTERING and not self.is_ordered:
            await iteration.send_back(unfinished, self._send_back, self.options)

    # Loops

    def __aiter__(self) -> MessageLoop:
        return MessageLoop(self._loops())

    def batches(self, most: int = 32) -> BatchLoop:
        """A loop over lists of up to `most` messages, of any queues, as they are there; a step finishes a list."""
        if most < 1:
            raise ConfigError(f"a batch has at least one message, not {most}")
        return BatchLoop(self._loops(), most)

    def _loops(self) -> Iteration:
        if not isinstance(self._consumption, Iteration):
            raise ClientStateError(
                f"the consumer of group {self.group!r} has a listener, which gets the messages; make one without to "
                "loop over"
            )
        self._check_running()
        return self._consumption

    async def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Have a message delivered to the group again later, as a loop may want to; whether a broker took it over.

        `delay_level` 0 leaves the delay to the broker, -1 makes the message a dead letter.
        """
        self._check_running()
        if self.model is MessageModel.BROADCASTING:
            raise ConfigError("a broadcast group has no retry topic: each member consumes for itself")
        if not is_delay_level(delay_level):
            raise ConfigError(f"delay_level is {delay_level!r}; {DELAY_LEVELS_SAID}")
        return await self._send_back.send(message, delay_level)

    # Control

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are ours now, the retry topic's among them."""
        return frozenset(self._held)

    @property
    def faults(self) -> dict[MessageQueue, FuseeError]:
        """Queues that cannot be pulled now, and why."""
        return self._held.faults()

    def position(self, queue: MessageQueue) -> int:
        """The offset up to which this queue is done. Raises ClientStateError when it is not ours."""
        return self._fetch_of(queue).process_queue.watermark

    def pause(self, *what: MessageQueue | str) -> None:
        """Hand out and pull nothing of these queues or topics, or of all; what is with listeners goes on."""
        self._held.pause(what)

    def resume(self, *what: MessageQueue | str) -> None:
        """Go on after `pause` with these queues or topics, or with all."""
        self._held.resume(what)

    async def seek(self, queue: MessageQueue, to: Place) -> None:
        """Go on from here in this queue, and commit it: an offset, its beginning or end, or a time.

        What was pulled before is dropped; what listeners still have moves nothing. Raises ClientStateError when the
        queue is not ours, TransportError or RemoteError when its broker does not answer.
        """
        self._fetch_of(queue)
        target = await self._find_place(queue, to)
        self._fetch_of(queue)
        self._held.move(queue, target)
        failed = await self._offsets.persist([queue])
        if queue in failed:
            raise failed[queue]

    async def subscribe(self, topic: str, expression: Expression = None) -> None:
        """Consume this topic too, or by another expression. Raises as `start` does."""
        self._check_running()
        wanted = subscription(topic, expression, version_ms=self._next_version(topic))
        if self.options.missing_topic == "raise":
            await self._session.read_route(topic)
        self._subscriptions[topic] = wanted
        self._announced.setdefault(topic, wanted)
        await self._announce(topic)
        self._rebalance.request()

    def unsubscribe(self, topic: str) -> None:
        """Consume this topic no more."""
        if self._subscriptions.pop(topic, None) is not None:
            self._rebalance.request()

    def _check_running(self) -> None:
        if self.state is not ServiceState.RUNNING:
            raise ClientStateError(
                f"the consumer of group {self.group!r} is {self.state.value}; use it inside `async with`"
            )

    def _check_wanted(self, expected: ServiceState) -> None:
        if self.state is not expected:
            raise ClientStateError(f"the consumer of group {self.group!r} was closed while it started")

    def _fetch_of(self, queue: MessageQueue) -> Fetch:
        self._check_running()
        fetch = self._held.fetch_of(queue)
        if fetch is None:
            raise ClientStateError(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} is not with this member of group "
                f"{self.group!r} now; see `assignment`"
            )
        return fetch

    async def _find_place(self, queue: MessageQueue, to: Place) -> int:
        if isinstance(to, int) and not isinstance(to, bool):
            if to < 0:
                raise ConfigError(f"an offset is not negative: {to}")
            return to
        check_consume_from(to)
        calls = self._session.calls
        address = await broker_address(self._session, queue)
        if to == "first":
            return max(await calls.min_offset(address, queue.topic, queue.queue_id), 0)
        if to == "last":
            return await calls.max_offset(address, queue.topic, queue.queue_id)
        assert isinstance(to, datetime)
        timestamp_ms = round(to.timestamp() * 1000)
        return await calls.search_offset(address, queue.topic, queue.queue_id, timestamp_ms)

    # Topics

    async def _find_topics(self) -> None:
        for topic in list(self._subscriptions):
            try:
                await self._session.read_route(topic)
            except TopicNotFoundError:
                if self.options.missing_topic == "raise" and not is_retry_topic(topic):
                    raise

    async def _watch_for_topics(self) -> None:
        """Look for topics that do not exist yet, more often than routes are looked at.

        The first heartbeat makes the retry topic, and no retry shall wait for the next look; it is given up when it is
        not made. A topic that the user waits for is looked for until it is there.
        """
        looks = iter(_TOPIC_LOOKS)
        while missing := self._missing_topics():
            seconds = next(looks, 0.0)
            if not seconds:
                missing = [topic for topic in missing if not is_retry_topic(topic)]
                if not missing:
                    return
            over = asyncio.Event()
            timer = self._session.timers.call_later(seconds or _TOPIC_LOOK_LAST, over.set)
            try:
                await over.wait()
            finally:
                timer.cancel()
            for topic in missing:
                try:
                    await self._session.refresh_route(topic)
                except FuseeError as error:
                    _log.debug("group %s: no route of %s yet: %s", self.group, topic, error)

    def _missing_topics(self) -> list[str]:
        routes = {topic: self._session.cached_route(topic) for topic in self._subscriptions}
        return [topic for topic, route in routes.items() if route is None or route.is_assumed]

    def _next_version(self, topic: str) -> int:
        known = self._subscriptions.get(topic)
        return max(self._session.clock.time_ms(), known.version + 1 if known is not None else 0)

    async def _announce(self, topic: str) -> None:
        """Tell the brokers of the subscription as it is now; pulls may name it from then on."""
        await self._session.heartbeat_all()
        wanted = self._subscriptions.get(topic)
        if wanted is not None:
            self._announced[topic] = wanted

    def _changed(self, topic: str, every: frozenset[MessageQueue], ours: frozenset[MessageQueue]) -> None:
        """The queues of a topic were divided anew."""
        self._held.divide_limits()
        wanted = self._subscriptions.get(topic)
        if wanted is not None:
            self._subscriptions[topic] = replace(wanted, version=self._next_version(topic))
            self._session.spawn(self._announce(topic))
        if self._on_assigned is not None:
            try:
                self._on_assigned(topic, ours)
            except Exception:  # noqa: BLE001 - a function of the user's, as the listener is
                _log.exception("group %s: on_assigned failed", self.group)

    # ConsumerParty

    def heartbeat(self) -> ConsumerData:
        """What brokers are told of this consumer."""
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=self.model.value,
            consume_from_where=_WHERE.get(self._consume_from, "CONSUME_FROM_TIMESTAMP"),
            subscription_data_set=[declared(each) for each in self._subscriptions.values()],
            unit_mode=self.options.unit_mode,
        )

    def subscribed_topics(self) -> Iterable[str]:
        """Topics whose routes are to be kept fresh."""
        return tuple(self._subscriptions)

    def members_changed(self) -> None:
        """A member came or went."""
        self._rebalance.request()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator moved the group: go on from there."""
        moved = False
        for queue, next_offset in offsets.items():
            if queue.topic == topic and self._held.move(queue, next_offset):
                _log.warning("group %s: an operator moved %s to %d", self.group, queue, next_offset)
                moved = True
        if moved:
            self._session.spawn(self.persist_offsets())

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """How far each queue of the topic is consumed."""
        self._held.note_progress()
        return self._offsets.snapshot(topic)

    def running_info(self) -> ConsumerRunningInfo:
        """What an operator wants to see of this member."""
        process_queues = self._held.process_queues()
        return running_info(
            self._session,
            self.heartbeat(),
            process_queues=process_queues,
            offsets=self._offsets,
            statistics=self._statistics,
            options=self.options,
            is_ordered=self.is_ordered,
            started_ms=self._started_ms,
            locked={each: self._held.is_lent(each) for each in process_queues},
        )

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        """Give this one message to the listener and say how it went; it moves no offset."""
        if not self._has_listener:
            return ConsumeDirectlyResult(
                consume_result="CR_THROW_EXCEPTION",
                order=self.is_ordered,
                remark="this consumer is a loop of its application and has no listener",
            )
        started = self._session.clock.monotonic()
        remark = None
        try:
            answer = await self._listener.try_once(ReceivedMessage.of(message, broker_name))
            outcome = "CR_SUCCESS" if retry_asked(answer) is None else "CR_LATER"
        except Exception as error:  # noqa: BLE001 - the call of a user's listener
            outcome, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        return ConsumeDirectlyResult(
            consume_result=outcome,
            order=self.is_ordered,
            remark=remark,
            spent_time_ms=round((self._session.clock.monotonic() - started) * 1000),
        )

    async def persist_offsets(self) -> None:
        """Commit what is done."""
        self._statistics.sample()
        await self._held.persist()


_WHERE: Final[dict[object, str]] = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}


def _nobody(argument: object) -> None:
    """Stands for the listener of a consumer that is looped over."""
