"""Sending messages: awaited, by callback, oneway, in order, in batches (Java: DefaultMQProducer).

Every message gets its unique id before the first try and keeps it. A try that seemed to fail may have stored the
message all the same, when only the answer was lost; so a message can be stored twice, under one id. With
`retry_times_when_send_failed` 0 there is no second try.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, overload

from fusee.client.accumulator import Accumulator, Kind
from fusee.client.called_back import CalledBack
from fusee.client.config import ServiceState
from fusee.client.content import (
    Compression,
    identified,
    message_of,
    order_text,
    property_text,
    system_flag,
)
from fusee.client.dispatch import Dispatch
from fusee.client.latency import LatencyFaults
from fusee.client.outgoing import Outgoing
from fusee.client.outgoing_batch import GatheredBatch, OutgoingBatch, batch_properties
from fusee.client.payloads import encode_body
from fusee.client.recall import decode_recall_handle
from fusee.client.selection import place_of_key
from fusee.client.send_watch import SendWatch
from fusee.client.usual_send import UsualSends
from fusee.errors import ClientStateError, ConfigError, FuseeError, MessageError
from fusee.message import properties as names
from fusee.message.batch import check_batch
from fusee.message.compression import BODY_SIZE_MAX, COMPRESS_LEVEL, COMPRESS_THRESHOLD
from fusee.message.model import Message, MessageQueue
from fusee.message.topics import AUTO_CREATE_TOPIC, RETRY_PREFIX, validate_group, validate_send_topic
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.fields import write_fields
from fusee.wire.headers.send import RecallMessage, RecallMessageResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from types import TracebackType

    from fusee.client.called_back import Callback
    from fusee.client.hooks import SendHook
    from fusee.client.outlet import Lane
    from fusee.client.publication import Publication
    from fusee.client.results import SendResult
    from fusee.client.selection import Selector
    from fusee.client.session import Session
    from fusee.message.model import StoredMessage
    from fusee.wire.headers.transaction import CheckTransactionState

    Choice = Callable[[Publication], Lane]

_log = logging.getLogger(__name__)

DEFAULT_GROUP: Final = "FUSEE_PRODUCER"
_MIB: Final = 1024 * 1024
_FLAG_LIMIT: Final = 1 << 31
_UNSAID: Final[dict[str, object]] = {"keys": (), "flag": 0, "delay_level": 0, "wait_stored": True}


class Producer(UsualSends):
    """Sends messages to any topic. Use it as an async context manager, or start and close it."""

    def __init__(
        self,
        session: Session,
        *,
        group: str = DEFAULT_GROUP,
        send_msg_timeout_ms: int = 3_000,
        send_msg_max_timeout_per_request_ms: int = -1,
        retry_times_when_send_failed: int = 2,
        retry_times_when_send_async_failed: int = 2,
        retry_another_broker_when_not_store_ok: bool = False,
        compress_msg_body_over_howmuch: int = COMPRESS_THRESHOLD,
        compress_level: int = COMPRESS_LEVEL,
        compress_type: str = "ZLIB",
        max_message_size: int = BODY_SIZE_MAX,
        default_topic_queue_nums: int = 4,
        create_topic_key: str = AUTO_CREATE_TOPIC,
        send_latency_fault_enable: bool = False,
        start_detector_enable: bool = False,
        back_pressure_for_async_send_num: int = 1_024,
        back_pressure_for_async_send_size: int = 100 * _MIB,
        auto_batch: bool = False,
        batch_linger_ms: int = 10,
        batch_max_bytes: int = 128 * 1024,
        total_batch_max_bytes: int = 32 * _MIB,
        hooks: Iterable[SendHook] = (),
    ) -> None:
        """Options have RocketMQ's names; times are in milliseconds.

        At most `back_pressure_for_async_send_num` sends, and as many bytes of them as `..._size` says, are under way at
        once; further ones wait for a place, within their time-out. With `send_latency_fault_enable` slow and failing
        brokers are avoided for a while. With `auto_batch` messages sent at about the same time travel together, each
        with a result of its own; those that are delayed, or large enough to be compressed, still travel alone.
        """
        validate_group(group)
        for name, value, smallest in (
            ("send_msg_timeout_ms", send_msg_timeout_ms, 1),
            ("max_message_size", max_message_size, 1),
            ("default_topic_queue_nums", default_topic_queue_nums, 1),
            ("back_pressure_for_async_send_num", back_pressure_for_async_send_num, 1),
            ("back_pressure_for_async_send_size", back_pressure_for_async_send_size, 1),
            ("retry_times_when_send_failed", retry_times_when_send_failed, 0),
            ("retry_times_when_send_async_failed", retry_times_when_send_async_failed, 0),
        ):
            if value < smallest:
                raise ConfigError(f"{name} is {value}; the least is {smallest}")
        self.session = session
        self.group = group
        self.state = ServiceState.CREATE_JUST
        self.max_message_size = max_message_size
        self.transaction_checker: Callable[[str, CheckTransactionState, StoredMessage], object] | None = None
        """Answers brokers that ask how a transaction ended; set by whoever makes transactions with this producer."""
        self._timeout = send_msg_timeout_ms / 1000
        self._retries = retry_times_when_send_failed
        self._callback_retries = retry_times_when_send_async_failed
        self._compression = Compression(
            threshold=compress_msg_body_over_howmuch, level=compress_level, kind=compress_type
        )
        self._threshold = compress_msg_body_over_howmuch
        self._monotonic = session.clock.monotonic
        self._next_id = session.unique_ids.next_id
        self._loop = asyncio.get_running_loop()
        self._closing: asyncio.Task[None] | None = None
        self._dispatch = Dispatch(
            session,
            group=group,
            create_topic_key=create_topic_key,
            queue_nums=default_topic_queue_nums,
            in_flight_max=back_pressure_for_async_send_num,
            bytes_max=back_pressure_for_async_send_size,
            try_timeout=max(send_msg_max_timeout_per_request_ms, 0) / 1000,
            retries_if_unsafe=retry_another_broker_when_not_store_ok,
            watch=SendWatch(
                session,
                group=group,
                hooks=hooks,
                faults=LatencyFaults() if send_latency_fault_enable else None,
                detects=send_latency_fault_enable and start_detector_enable,
            ),
        )
        self._publications = self._dispatch.publications
        self._accumulator = (
            Accumulator(
                self._begin_gathered,
                timers=session.timers,
                linger_ms=batch_linger_ms,
                batch_max_bytes=min(batch_max_bytes, max_message_size),
                total_max_bytes=total_batch_max_bytes,
            )
            if auto_batch
            else None
        )

    def __repr__(self) -> str:
        return f"<Producer {self.group} of {self.session.client_id}, {self.state.value}>"

    # Life

    async def start(self) -> None:
        """Join the session, which must be running. Raises ClientStateError, and ConfigError when the group is taken."""
        self.session.check_running()
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(f"producer {self.group!r} is {self.state.value}; it can be started once")
        self.session.register_producer(self.group, self)
        self._dispatch.start()
        self.state = ServiceState.RUNNING

    async def close(self) -> None:
        """Send what was gathered, wait for what is under way (each within its time-out), leave the session.

        Closing goes on when the wait for it is cancelled.
        """
        if self._closing is None:
            was_running = self.state is ServiceState.RUNNING
            self.state = ServiceState.SHUTDOWN_ALREADY
            if not was_running:
                return
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._accumulator is not None:
            self._accumulator.flush()
        try:
            await self._dispatch.close()
        finally:
            await self.session.unregister_producer(self.group)

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def add_hook(self, hook: SendHook) -> None:
        """Have this hook told of every send from now on."""
        self._dispatch.add_hook(hook)

    @property
    def hooks(self) -> tuple[SendHook, ...]:
        """Who is told of every send."""
        return tuple(self._dispatch.watch.hooks)

    @property
    def in_flight(self) -> int:
        """Sends that are under way; those that wait for a place are not counted."""
        return self._dispatch.in_flight

    # Sending

    if TYPE_CHECKING:
        # The two forms of the call; both are that of `UsualSends`.
        @overload  # type: ignore[override]
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

        def send(self, topic: str | Message, body: object = None, **options: Any) -> asyncio.Future[SendResult]: ...

    def _send_alone(
        self,
        publication: Publication,
        unique_id: str,
        body: bytes,
        properties: str,
        choose: Choice | None,
        order: str | None,
        timeout: float,
    ) -> asyncio.Future[SendResult]:
        """Send a usual message in a request of its own."""
        dispatch = self._dispatch
        out = Outgoing(loop=self._loop)
        out.owner = dispatch
        out.publication = publication
        out.lane = out.link = None
        out.unique_id = unique_id
        out.properties = properties
        if len(body) >= self._threshold:
            out.body, out.sys_flag = self._compression.apply(body, 0)
        else:
            out.body = body
        if choose is not None:
            out.choose = choose
        out.retries = self._retries
        out.timeout = timeout
        out.deadline = self._monotonic() + timeout
        if choose is None:
            dispatch.begin(out)
        else:
            self._begin(out, order)
        return out

    def _send_unusual(
        self,
        topic: str | Message,
        body: object,
        order_by: object,
        queue: MessageQueue | None,
        selector: Selector | None,
        selector_argument: object,
        timeout_ms: int | None,
        options: dict[str, Any],
    ) -> asyncio.Future[SendResult]:
        """Send a message in any form; `options` are those that belong to the message alone."""
        message = self._message(topic, body, order_by, **options)
        choose = self._choice(message, order_by, queue, selector, selector_argument)
        timeout = self._timeout_of(timeout_ms)
        accumulator = self._accumulator
        if accumulator is not None:
            future = accumulator.new_future()
            if self._gather(accumulator, message, choose, order_by, timeout, future):
                return future
        out = self._outgoing(message, choose, timeout)
        self._begin(out, None if order_by is None else order_text(order_by))
        return out

    def _call_back_unusual(
        self, topic: str | Message, body: object, callback: Callback, options: dict[str, Any]
    ) -> None:
        """Send a message in any form, and call back."""
        message, choose, timeout = self._described(topic, body, **options)
        order_by = options.get("order_by")
        receiver = CalledBack(callback)
        accumulator = self._accumulator
        if accumulator is not None and self._gather(accumulator, message, choose, order_by, timeout, receiver):
            return
        out = self._outgoing(message, choose, timeout)
        out.communication = "async"
        out.retries = self._callback_retries
        self._begin(out, None if order_by is None else order_text(order_by))
        out.add_done_callback(partial(_hand_on, receiver))

    async def send_oneway(self, topic: str | Message, body: object = None, **options: Any) -> None:
        """Send a message without asking for an answer: it is written to the connection, and may be lost after that.

        Takes the options of `send`. Waits only for route and connection, and while the broker does not read.
        """
        message, choose, timeout = self._described(topic, body, **options)
        dispatch = self._dispatch
        out = self._outgoing(message, choose, timeout)
        out.communication = "oneway"
        if not out.publication.lanes:
            out.publication.adopt(await dispatch.route(message.topic))
        lane = out.lane = dispatch.lane_of(out)
        link = await lane.outlet.connection()
        await link.writable(timeout)
        watch = dispatch.watch
        watch.before_try(out, lane)
        fields = write_fields(out.header(lane, self.session.clock.time_ms()))
        try:
            link.send_oneway(Command(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=out.body))
        except FuseeError as error:
            watch.after_try(out, None, error)
            raise
        watch.after_try(out, None, None)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        order_by: object = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send these messages in one request to one queue, where they get consecutive offsets; none is stored alone.

        They have one topic, none is delayed or transactional, and together they are no larger than `max_message_size`.
        Raises MessageError otherwise.
        """
        if self.state is not ServiceState.RUNNING:
            self._refuse_state()
        check_batch(messages)
        choose = self._choice(messages[0], order_by, queue, None, None)
        if order_by is not None:
            key = {names.SHARDING_KEY: order_text(order_by)}
            messages = [message.with_properties(key) for message in messages]
        checked = [identified(self._checked(message), self._next_id()) for message in messages]
        batch = OutgoingBatch.of(checked, self._next_id(), loop=self._loop)
        if len(batch.body) > self.max_message_size:
            raise MessageError(
                f"a batch of {len(messages)} messages takes {len(batch.body)} bytes, max_message_size is "
                f"{self.max_message_size}; send it in parts"
            )
        self._own(batch, self._dispatch.publication(checked[0].topic), choose, self._timeout_of(timeout_ms))
        batch.message = Message(checked[0].topic, batch.body, batch.property_map(), 0)
        self._begin(batch, None if order_by is None else order_text(order_by))
        return batch

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of this topic can be sent to (Java: fetchPublishMessageQueues)."""
        if self.state is not ServiceState.RUNNING:
            self._refuse_state()
        validate_send_topic(topic)
        return (await self._dispatch.route(topic)).write_queues

    async def recall(self, topic: str, recall_handle: str, *, timeout_ms: int | None = None) -> str:
        """Take back a delayed message before it is delivered, by the handle of its send result; its unique id.

        Raises MessageError for a handle that is none, and the RemoteError of the broker when it does not.
        """
        if self.state is not ServiceState.RUNNING:
            self._refuse_state()
        handle = decode_recall_handle(recall_handle)
        if handle.topic != topic:
            raise MessageError(f"the recall handle is of topic {handle.topic!r}, not of {topic!r}")
        await self._dispatch.route(topic)
        address = self.session.master_address(handle.broker_name)
        if address is None:
            raise self._dispatch.outlet(handle.broker_name).no_master()
        response = await self.session.calls.request(
            address,
            RequestCode.RECALL_MESSAGE,
            RecallMessage(
                producer_group=self.group, topic=topic, recall_handle=recall_handle, broker_name=handle.broker_name
            ),
            timeout_ms=round(self._timeout_of(timeout_ms) * 1000),
            topic=topic,
        )
        return response.read(RecallMessageResponse).msg_id

    # ProducerParty

    def published_topics(self) -> Iterable[str]:
        """Topics that were sent to."""
        return self._dispatch.published_topics()

    def check_transaction(self, address: str, header: CheckTransactionState, message: StoredMessage) -> None:
        """A broker asks how a transaction ended."""
        if self.transaction_checker is None:
            _log.warning(
                "producer %s is asked about transaction %s but makes none; the broker will ask again",
                self.group,
                header.transaction_id or message.message_id,
            )
            return
        self.transaction_checker(address, header, message)

    # From arguments to a send

    def _described(
        self,
        topic: str | Message,
        body: object,
        *,
        order_by: object = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        selector_argument: object = None,
        timeout_ms: int | None = None,
        **options: Any,
    ) -> tuple[Message, Choice | None, float]:
        """What the arguments of a send mean: the message, where it goes, and the seconds it may take."""
        if self.state is not ServiceState.RUNNING:
            self._refuse_state()
        message = self._message(topic, body, order_by, **options)
        choose = self._choice(message, order_by, queue, selector, selector_argument)
        return message, choose, self._timeout_of(timeout_ms)

    def _message(self, topic: str | Message, body: object, order_by: object, **options: Any) -> Message:
        """The message meant, checked and with its id."""
        if isinstance(topic, Message):
            given = [name for name, value in {"body": body, **options}.items() if value != _UNSAID.get(name)]
            if given:
                raise MessageError(f"a Message was given, which says everything; leave out {', '.join(given)}")
            message = topic
            if order_by is not None:
                message = topic.with_properties({names.SHARDING_KEY: order_text(order_by)})
        else:
            message = message_of(topic, body, order_by=order_by, **options)
        return identified(self._checked(message), self._next_id())

    def _checked(self, message: Message) -> Message:
        body: object = message.body
        if type(body) is not bytes:
            message = Message(message.topic, encode_body(body), message.properties, message.flag)
        size = len(message.body)
        if size == 0:
            raise MessageError(f"the message for topic {message.topic!r} has an empty body, which RocketMQ refuses")
        if size > self.max_message_size:
            raise MessageError(
                f"the body has {size} bytes, max_message_size is {self.max_message_size}; send less, or raise it here "
                "and maxMessageSize on the broker"
            )
        if not -_FLAG_LIMIT <= message.flag < _FLAG_LIMIT:
            raise MessageError(f"flag is {message.flag}; it is a 32-bit number")
        return message

    def _outgoing(self, message: Message, choose: Choice | None, timeout: float) -> Outgoing:
        publication = self._dispatch.publication(message.topic)
        out = Outgoing(loop=self._loop)
        out.message = message
        out.unique_id = message.unique_id or ""
        out.wait_stored = message.wait_stored
        out.flag = message.flag
        if message.topic.startswith(RETRY_PREFIX):
            message = out.take_reconsume_times(message)
        out.properties = property_text(message)
        out.body, out.sys_flag = self._compression.apply(message.body, system_flag(message))
        self._own(out, publication, choose, timeout)
        return out

    def _own(self, out: Outgoing, publication: Publication, choose: Choice | None, timeout: float) -> None:
        out.owner = self._dispatch
        out.publication = publication
        out.lane = out.link = None
        out.is_admitted = False
        out.choose = choose
        out.retries = self._retries
        out.timeout = timeout
        out.deadline = self._monotonic() + timeout

    @staticmethod
    def _choice(
        message: Message | None,
        order_by: object,
        queue: MessageQueue | None,
        selector: Selector | None,
        argument: object,
    ) -> Choice | None:
        if (order_by is not None) + (queue is not None) + (selector is not None) > 1:
            raise MessageError("give only one of order_by, queue and selector: a message goes to one queue")
        if order_by is not None:
            return partial(_of_key, order_by)
        if queue is not None:
            return partial(_of_queue, queue)
        if selector is not None:
            assert message is not None
            return partial(_selected, selector, message, argument)
        return None

    def _timeout_of(self, timeout_ms: int | None) -> float:
        if timeout_ms is None:
            return self._timeout
        if timeout_ms <= 0:
            raise MessageError(f"timeout_ms is {timeout_ms}; it must be positive")
        return timeout_ms / 1000

    def _begin(self, out: Outgoing, order: str | None) -> None:
        dispatch, accumulator, publication = self._dispatch, self._accumulator, out.publication
        if (
            accumulator is not None
            and out.choose is not None
            and publication.lanes
            and (publication.topic, order) not in dispatch.in_order
        ):
            # It takes its turn among the batches of its queue.
            queue = out.choose(publication).queue
            out.choose = partial(_of_queue, queue)
            accumulator.flush_queue(queue)
            dispatch.begin_in_order(out, queue)
        elif order is None:
            dispatch.begin(out)
        else:
            dispatch.begin_in_order(out, order)

    def _gather(
        self,
        accumulator: Accumulator,
        message: Message,
        choose: Choice | None,
        order_by: object,
        timeout: float,
        waiting: asyncio.Future[SendResult] | CalledBack,
    ) -> bool:
        """Put the message into an automatic batch, if it may travel in one; whether it does."""
        if (
            message.is_delayed
            or message.is_transactional
            or message.topic.startswith(RETRY_PREFIX)
            or names.PRODUCER_GROUP in message.properties
            or len(message.body) >= self._threshold
        ):
            return False
        publication = self._dispatch.publication(message.topic)
        if choose is not None:
            if not publication.lanes:
                return False  # which queue it is cannot be told yet
            if order_by is not None and (message.topic, order_text(order_by)) in self._dispatch.in_order:
                return False  # those before it were sent singly
        accumulator.add(
            publication, None if choose is None else choose(publication).queue, message.wait_stored, message.tag,
            message.unique_id or "", message.flag, message.body, property_text(message),
            message.properties.get(names.KEYS), timeout, waiting,
        )  # fmt: skip
        return True

    def _begin_gathered(self, batch: GatheredBatch, kind: Kind, keys: list[str]) -> None:
        batch.unique_id = self._next_id()
        batch.wait_stored = kind.wait_stored
        batch.properties = batch_properties(batch.unique_id, wait_stored=kind.wait_stored, tag=kind.tag, keys=keys)
        choose = None if kind.queue is None else partial(_of_queue, kind.queue)
        self._own(batch, kind.publication, choose, kind.timeout)
        if self._dispatch.is_watching:
            batch.message = Message(kind.publication.topic, batch.body, batch.property_map(), 0)
        if kind.queue is None:
            self._dispatch.begin(batch)
        else:
            self._dispatch.begin_in_order(batch, kind.queue)

    def _refuse_state(self) -> NoReturn:
        raise ClientStateError(
            f"producer {self.group!r} is {self.state.value}; use it inside `async with`, or between start and close"
        )


def _of_key(key: object, publication: Publication) -> Lane:
    return publication.lanes[place_of_key(key, len(publication.lanes))]


def _of_queue(queue: MessageQueue, publication: Publication) -> Lane:
    return publication.lane_of(queue)


def _selected(selector: Selector, message: Message, argument: object, publication: Publication) -> Lane:
    try:
        queue = selector(publication.queues, message, argument)
    except Exception as error:
        raise MessageError(f"the selector failed for topic {publication.topic!r}: {error!r}") from error
    if not isinstance(queue, MessageQueue):
        raise MessageError(f"the selector gave {queue!r}; it must give one of the queues it was called with")
    return publication.lane_of(queue)


def _hand_on(receiver: CalledBack, sent: asyncio.Future[SendResult]) -> None:
    if sent.cancelled():
        receiver.set_exception(ClientStateError("the send was cancelled"))
    elif (error := sent.exception()) is not None:
        receiver.set_exception(error)
    else:
        receiver.set_result(sent.result())
