"""`fusee.connect`: one object for everything a program does with a cluster.

    async with fusee.connect("127.0.0.1:9876") as mq:
        await mq.send("orders", b"...", tag="paid", key="42")

Connections of one event loop with the same settings share their session, so a process has one connection to each
broker however often it connects. What was made through a connection and still runs is closed with it: first the
consumers, then the producers, then the session.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack, overload
from weakref import WeakSet

from fusee.admin import Admin
from fusee.client.closing import for_closer
from fusee.client.config import DEFAULT_INSTANCE, ClientConfig, MessageModel, ServiceState, name_servers_of
from fusee.client.consumer.pull import PullConsumer
from fusee.client.consumer.push import Consumer
from fusee.client.handlers import HandlerTable
from fusee.client.producer import Producer
from fusee.client.sharing import Seams, Shared, acquire, release
from fusee.client.transaction import Transaction, TransactionProducer
from fusee.errors import ClientStateError
from fusee.message.topics import TRACE_TOPIC

if TYPE_CHECKING:
    import random
    import ssl
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from types import TracebackType

    from fusee.client.consumer.assignment import AllocateStrategy
    from fusee.client.consumer.offsets import OffsetStore
    from fusee.client.consumer.options import ConsumerSettings
    from fusee.client.consumer.push import BatchListener, MessageListener
    from fusee.client.consumer.start_offset import ConsumeFrom
    from fusee.client.handlers import OnBadPayload, RetryPolicy
    from fusee.client.hooks import ConsumeHook, EndTransactionHook, SendHook
    from fusee.client.received import ReceivedMessage
    from fusee.client.results import SendResult
    from fusee.client.selection import Selector
    from fusee.client.session import Session
    from fusee.client.subscriptions import Topics
    from fusee.client.transaction import Check, Execute, TransactionResult
    from fusee.clock import Clock, Timers
    from fusee.message.model import Message, MessageQueue
    from fusee.transport.interfaces import Network

F = TypeVar("F", bound="Callable[..., Any]")


def connect(
    name_servers: str | None = None,
    *,
    instance_name: str = DEFAULT_INSTANCE,
    unit_name: str = "",
    client_ip: str = "",
    tls: ssl.SSLContext | None = None,
    enable_trace: bool = False,
    trace_topic: str = TRACE_TOPIC,
    connect_timeout_ms: int = 3_000,
    mq_client_api_timeout_ms: int = 3_000,
    poll_name_server_interval_ms: int = 30_000,
    heartbeat_broker_interval_ms: int = 30_000,
    persist_consumer_offset_interval_ms: int = 5_000,
    network: Network | None = None,
    clock: Clock | None = None,
    timers: Timers | None = None,
    chooser: random.Random | None = None,
) -> Connection:
    """A connection to the cluster of these name servers (`host:port;host:port`, or the environment's NAMESRV_ADDR).

    Use it as `async with`, or `await` it and close it yourself. Starting raises ConnectError when no name server
    answers, naming each address and its cause. With `enable_trace` everything sent and consumed is reported to the
    trace topic, where `admin.trace` and RocketMQ's tools find it.

    `network`, `clock`, `timers` and `chooser` put the client into another world than TCP and real time: tests.
    """
    config = ClientConfig(
        name_servers=name_servers_of(name_servers),
        instance_name=instance_name,
        unit_name=unit_name,
        client_ip=client_ip,
        tls=tls,
        connect_timeout_ms=connect_timeout_ms,
        mq_client_api_timeout_ms=mq_client_api_timeout_ms,
        poll_name_server_interval_ms=poll_name_server_interval_ms,
        heartbeat_broker_interval_ms=heartbeat_broker_interval_ms,
        persist_consumer_offset_interval_ms=persist_consumer_offset_interval_ms,
    )
    seams = Seams(network=network, clock=clock, timers=timers, chooser=chooser)
    return Connection(config, seams=seams, trace_topic=trace_topic if enable_trace else "")


class ProducerSettings(TypedDict, total=False):
    """The settings of a producer as keyword arguments; `Producer` says what each means."""

    send_msg_timeout_ms: int
    send_msg_max_timeout_per_request_ms: int
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    retry_another_broker_when_not_store_ok: bool
    compress_msg_body_over_howmuch: int
    compress_level: int
    compress_type: str
    max_message_size: int
    default_topic_queue_nums: int
    create_topic_key: str
    send_latency_fault_enable: bool
    start_detector_enable: bool
    back_pressure_for_async_send_num: int
    back_pressure_for_async_send_size: int
    auto_batch: bool
    batch_linger_ms: int
    batch_max_bytes: int
    total_batch_max_bytes: int


class Connection:
    """A cluster, as one program sees it. Not for several threads: `fusee.sync` is."""

    def __init__(self, config: ClientConfig, *, seams: Seams | None = None, trace_topic: str = "") -> None:
        """Prefer `fusee.connect`."""
        self.config = config
        self.state = ServiceState.CREATE_JUST
        self._seams = seams or Seams()
        self._trace_topic = trace_topic
        self._shared_session: Shared | None = None
        self._closing: asyncio.Task[None] | None = None
        self._consumers: WeakSet[Consumer | PullConsumer] = WeakSet()
        self._producers: WeakSet[Producer | TransactionProducer] = WeakSet()
        self._handlers: HandlerTable | None = None
        self._admin: Admin | None = None

    def __repr__(self) -> str:
        return f"<Connection to {self.config.name_servers} {self.state.value}>"

    # Life

    async def start(self) -> Self:
        """Reach a name server. Raises ConnectError when none answers, ClientStateError when started before."""
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(f"this connection is {self.state.value}; make a new one with fusee.connect")
        self.state = ServiceState.START_FAILED
        shared = await acquire(self.config, self._seams, self._trace_topic)
        if self.state is not ServiceState.START_FAILED:
            await release(shared)
            raise ClientStateError("this connection was closed while it started")
        self._shared_session = shared
        self.state = ServiceState.RUNNING
        return self

    async def close(self) -> None:
        """Close what was made through this connection and still runs, then the connection. May be called again.

        Closing goes on when the wait for it is cancelled. A connection that is being started does not start.
        """
        shared = self._shared_session
        if self._closing is None:
            self.state = ServiceState.SHUTDOWN_ALREADY
            if shared is None:
                return
            with for_closer():
                self._closing = asyncio.get_running_loop().create_task(self._close(shared))
        await asyncio.shield(self._closing)

    async def _close(self, shared: Shared) -> None:
        # In the order of this list from below, each also when one before it has failed.
        async with AsyncExitStack() as stack:
            stack.push_async_callback(release, shared)
            stack.callback(setattr, self, "_shared_session", None)
            stack.push_async_callback(_close_all, self._producers)
            stack.push_async_callback(_close_all, self._consumers)
            if self._handlers is not None:
                stack.push_async_callback(self._handlers.close)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    @property
    def _shared(self) -> Shared:
        shared = self._shared_session
        if shared is None:
            raise ClientStateError(
                f"this connection is {self.state.value}; use it inside `async with fusee.connect(...) as mq`, or after "
                "`mq = await fusee.connect(...)`"
            )
        return shared

    @property
    def session(self) -> Session:
        """What this connection shares with others of the same settings: client id, routes, connections."""
        return self._shared.session

    @property
    def client_id(self) -> str:
        """Who brokers think this is."""
        return self._shared.session.client_id

    @property
    def admin(self) -> Admin:
        """Topics, groups, offsets, messages, brokers: one call for each operation."""
        if self._admin is None:
            self._admin = Admin(self._shared.session)
        return self._admin

    # Sending

    @overload
    def send(
        self,
        topic: Message,
        *,
        order_by: object = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        selector_argument: object = None,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]: ...

    @overload
    def send(
        self,
        topic: str,
        body: object,
        *,
        tag: str | None = None,
        key: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        order_by: object = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        selector_argument: object = None,
        delay_level: int = 0,
        deliver_in: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        wait_stored: bool = True,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]: ...

    def send(self, topic: str | Message, body: object = None, **options: Any) -> asyncio.Future[SendResult]:
        """Send a message by the connection's own producer; await the future for its result. See Producer.send."""
        shared = self._shared_session or self._shared
        return shared.producer.send(topic, body, **options)  # type: ignore[arg-type]

    def send_async(
        self,
        topic: str | Message,
        body: object = None,
        *,
        callback: Callable[[SendResult | None, Exception | None], object],
        **options: Any,
    ) -> None:
        """Send a message; `callback(result, error)` is called once. See Producer.send_async."""
        self._shared.producer.send_async(topic, body, callback=callback, **options)

    async def send_oneway(self, topic: str | Message, body: object = None, **options: Any) -> None:
        """Send a message and ask for no answer: it may be lost. See Producer.send_oneway."""
        await self._shared.producer.send_oneway(topic, body, **options)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        order_by: object = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send messages of one topic in one request. See Producer.send_batch."""
        return self._shared.producer.send_batch(messages, order_by=order_by, queue=queue, timeout_ms=timeout_ms)

    async def request(
        self, topic: str | Message, body: object = None, *, timeout_ms: int = 3_000, **options: Any
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it. See Requester.request."""
        return await self._shared.requester.request(topic, body, timeout_ms=timeout_ms, **options)

    async def reply(
        self,
        request: ReceivedMessage,
        body: object,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = 3_000,
    ) -> SendResult:
        """Answer a message that was sent by `request`. See Requester.reply."""
        return await self._shared.requester.reply(request, body, properties=properties, timeout_ms=timeout_ms)

    def producer(self, group: str, *, hooks: Iterable[SendHook] = (), **settings: Unpack[ProducerSettings]) -> Producer:
        """A producer with settings of its own, for `async with`; it shares the connections."""
        shared = self._shared
        producer = Producer(shared.session, group=group, hooks=(*shared.send_hooks, *hooks), **settings)
        self._producers.add(producer)
        return producer

    # Transactions

    @asynccontextmanager
    async def transaction(
        self, topic: str | Message, body: object = None, *, check: Check, group: str = "", **options: Any
    ) -> AsyncIterator[Transaction]:
        """Send a message in a transaction: leaving the block commits, an exception rolls back.

        `check(message)` answers the broker when it asks what became of a transaction whose end it was not told: True,
        False, or None for not yet known. It must find that out from what is durable, for it may be asked in another
        process than the one that sent: whoever has joined `group` (by default one for the topic) by a transaction, or
        by `transaction_producer`, which is for processes that should answer from their start. `options` are those of
        TransactionProducer.transaction.
        """
        name = topic if isinstance(topic, str) else topic.topic
        producer = await self._shared.transaction_producer(group or f"FUSEE_TRANSACTION_{name}", check)
        async with producer.transaction(topic, body, **options) as transaction:
            yield transaction

    async def send_in_transaction(
        self,
        topic: str | Message,
        body: object = None,
        argument: object = None,
        *,
        execute: Execute,
        check: Check,
        group: str = "",
        **options: Any,
    ) -> TransactionResult:
        """The same with a listener: `execute(message, argument)` is the local transaction and says how it ended."""
        name = topic if isinstance(topic, str) else topic.topic
        producer = await self._shared.transaction_producer(group or f"FUSEE_TRANSACTION_{name}", check)
        return await producer.send_in_transaction(topic, body, argument, execute=execute, **options)

    def transaction_producer(
        self,
        group: str,
        *,
        check: Check,
        execute: Execute | None = None,
        topics: Iterable[str] = (),
        check_thread_pool_max_size: int = 4,
        check_request_hold_max: int = 2_000,
        hooks: Iterable[SendHook] = (),
        end_hooks: Iterable[EndTransactionHook] = (),
        **settings: Unpack[ProducerSettings],
    ) -> TransactionProducer:
        """A producer of transactions, for `async with`. It answers for `topics` from its start."""
        shared = self._shared
        producer = TransactionProducer(
            Producer(shared.session, group=group, hooks=(*shared.send_hooks, *hooks), **settings),
            check=check,
            execute=execute,
            topics=topics,
            check_thread_pool_max_size=check_thread_pool_max_size,
            check_request_hold_max=check_request_hold_max,
            hooks=(*shared.transaction_hooks, *end_hooks),
        )
        self._producers.add(producer)
        return producer

    # Consuming

    def consumer(
        self,
        topics: Topics,
        *,
        group: str,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
        consume_from: ConsumeFrom = "last",
        ordered: bool = False,
        broadcast: bool = False,
        listener: MessageListener | None = None,
        batch_listener: BatchListener | None = None,
        concurrency: int | None = None,
        strategy: str | AllocateStrategy = "AVG",
        offsets: OffsetStore | None = None,
        on_assigned: Callable[[str, frozenset[MessageQueue]], object] | None = None,
        hooks: Sequence[ConsumeHook] = (),
        **settings: Unpack[ConsumerSettings],
    ) -> Consumer:
        """A member of a consumer group, for `async with`.

        Without a listener the messages are iterated over; the next step acknowledges the one before. A second member
        of a group in one process gets a client id, and connections, of its own.
        """
        session = self._shared.session_for(group)
        consumer = Consumer(
            session,
            topics,
            group=group,
            tags=tags,
            sql=sql,
            consume_from=consume_from,
            ordered=ordered,
            model=MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING,
            listener=listener,
            batch_listener=batch_listener,
            concurrency=concurrency,
            strategy=strategy,
            offsets=offsets,
            on_assigned=on_assigned,
            hooks=(*self._shared.consume_hooks, *hooks),
            **settings,
        )
        self._shared.add_member(consumer, session)
        self._consumers.add(consumer)
        return consumer

    def pull_consumer(
        self,
        topics: Topics | None = None,
        *,
        group: str,
        broadcast: bool = False,
        hooks: Sequence[ConsumeHook] = (),
        **options: Any,
    ) -> PullConsumer:
        """A consumer that polls, for `async with`; without topics, `subscribe` or `assign` follow. See PullConsumer."""
        session = self._shared.session_for(group)
        consumer = PullConsumer(
            session,
            topics,
            group=group,
            model=MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING,
            hooks=(*self._shared.consume_hooks, *hooks),
            **options,
        )
        self._shared.add_member(consumer, session)
        self._consumers.add(consumer)
        return consumer

    # Handlers

    def handler(
        self,
        topics: Topics,
        *,
        group: str,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
        concurrency: int = 20,
        retry: RetryPolicy | None = None,
        ordered: bool = False,
        broadcast: bool = False,
        consume_from: ConsumeFrom = "last",
        on_bad_payload: OnBadPayload = "dead_letter",
        **settings: Unpack[ConsumerSettings],
    ) -> Callable[[F], F]:
        """`@mq.handler("orders", group="billing")`: call this function with each message, its body decoded.

        The function's annotation says what the body becomes. It is called from `start_handlers`, or while `run` runs.
        See HandlerTable.handler.
        """
        return self.handlers.handler(
            topics,
            group=group,
            tags=tags,
            sql=sql,
            concurrency=concurrency,
            retry=retry,
            ordered=ordered,
            broadcast=broadcast,
            consume_from=consume_from,
            on_bad_payload=on_bad_payload,
            **settings,
        )

    @property
    def handlers(self) -> HandlerTable:
        """The handlers declared with this connection."""
        if self._handlers is None:
            self._handlers = HandlerTable(self)
        return self._handlers

    async def start_handlers(self) -> None:
        """Begin to consume with every handler declared so far; they stop with the connection."""
        await self.handlers.start()

    async def run(self) -> None:
        """Consume with every handler until this call is cancelled, or the connection is closed."""
        await self.handlers.run()


async def _close_all(made: Iterable[Any]) -> None:
    """Close these at the same time, also those that are not started, or just starting; then raise what one raised."""
    results = await asyncio.gather(*(each.close() for each in tuple(made)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
