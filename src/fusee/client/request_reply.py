"""Asking a question by message and waiting for the answer (Java: DefaultMQProducerImpl.request, RequestFutureHolder).

    requester   sends a message with CORRELATION_ID (a fresh one), REPLY_TO_CLIENT (its client id) and TTL (how long it
                waits, in milliseconds), and remembers the correlation id
    consumer    gets it like any message, with CLUSTER added by the broker, and sends a reply to the topic
                `<cluster>_REPLY_TOPIC`: MSG_TYPE=reply and the three properties of the request
    broker      looks for a connection on which that client id produces, and pushes the reply over it (code 326)
    requester   matches the correlation id, adds ARRIVE_TIME, and answers the push with SUCCESS, even when nobody waits
                any more: a late reply is none of the replier's business

The reply may reach any broker of the cluster, so the requester has to be known to every one of them before it asks.
Java greets the brokers of the request's topic; here those of the reply topic are greeted as well, or a cluster whose
topic lives on some brokers only would lose replies. Java's replier takes any broker; ours begins with the one that had
the request, which knows the requester, and goes on to the others when that fails.

A request lives in memory only: when the requester is gone, the broker tells the replier so, and the reply is of no use.
A request that was sent twice (the first answer was lost) may be answered twice; the second reply is late.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
import zlib
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from fusee.client.content import Compression, identified, message_of, property_text
from fusee.client.payloads import encode_body
from fusee.client.received import ReceivedMessage
from fusee.client.results import STATUS_OF_CODE, SendResult
from fusee.errors import (
    ClientStateError,
    ConnectError,
    FuseeError,
    MessageError,
    RequestTimeoutError,
    SendFailedError,
    TooManyRequestsError,
)
from fusee.message import properties as names
from fusee.message.compression import COMPRESS_LEVEL, COMPRESS_THRESHOLD
from fusee.message.flags import with_host_families
from fusee.message.hosts import HOST_V4_SIZE, pack_host
from fusee.message.model import Message, MessageQueue, StoredMessage
from fusee.message.properties import encode_properties, join_properties, remove_property
from fusee.message.topics import AUTO_CREATE_TOPIC, reply_topic
from fusee.wire.codes import RequestCode
from fusee.wire.headers.send import PushReplyMessage, SendMessageResponse, SendMessageV2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fusee.client.producer import Producer
    from fusee.client.selection import Selector
    from fusee.client.session import Session
    from fusee.transport.link import Link
    from fusee.wire.command import Command

_log = logging.getLogger(__name__)

REPLY: Final = "reply"
"""The MSG_TYPE of a reply."""

REQUESTS_MAX: Final = 10_000
_REPLIES_IN_WORK_MAX: Final = 1_000
_REPLY_TRIES_MAX: Final = 3
_TOPICS_MAX: Final = 1_024
_ARRIVE_TIME: Final = names.ARRIVE_TIME.encode()
_NO_HOST: Final = bytes(HOST_V4_SIZE)


class ReplyTable:
    """The requests of one session that wait for their reply, by correlation id, and the door by which replies come."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self.late = 0
        """Replies for which nobody waited any more."""
        lane = session.router.lane("replies", _REPLIES_IN_WORK_MAX)
        session.router.add(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._take, lane)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, correlation_id: str, answer: asyncio.Future[ReceivedMessage]) -> None:
        """Expect a reply. Raises TooManyRequestsError beyond the limit."""
        if len(self._waiting) >= REQUESTS_MAX:
            raise TooManyRequestsError(
                f"{len(self._waiting)} requests wait for their reply, which is the limit; ask fewer at once, or wait "
                "less long"
            )
        self._waiting[correlation_id] = answer

    def remove(self, correlation_id: str) -> None:
        """Expect it no longer."""
        self._waiting.pop(correlation_id, None)

    def _take(self, command: Command, link: Link) -> Command:
        header = command.read(PushReplyMessage)
        message = _reply_record(header, command.body, self._session.clock.time_ms())
        correlation_id = message.properties.get(names.CORRELATION_ID, "")
        answer = self._waiting.pop(correlation_id, None)
        if answer is None or answer.done():
            self.late += 1
            _log.info("a reply from %s came too late: %s", message.born_host, correlation_id)
        else:
            answer.set_result(ReceivedMessage.of(message, header.broker_name or ""))
        return command.reply()


_TABLES: Final[WeakKeyDictionary[Session, ReplyTable]] = WeakKeyDictionary()


def reply_table(session: Session) -> ReplyTable:
    """The one table of this session."""
    table = _TABLES.get(session)
    if table is None:
        table = _TABLES[session] = ReplyTable(session)
    return table


class Requester:
    """Sends requests by a producer and waits for the replies; also replies to requests that were received."""

    def __init__(self, producer: Producer) -> None:
        """`producer` is started and closed by its owner."""
        self._session = producer.session
        self._producer = producer
        self._table = reply_table(producer.session)
        self._compression = Compression(threshold=COMPRESS_THRESHOLD, level=COMPRESS_LEVEL, kind="ZLIB")
        self._answers: set[asyncio.Future[ReceivedMessage]] = set()
        self._reachable_since: dict[str, float] = {}
        self._is_closed = False

    async def close(self) -> None:
        """Let go of every request that still waits: it raises ClientStateError."""
        self._is_closed = True
        for answer in list(self._answers):
            if not answer.done():
                answer.set_exception(ClientStateError("the client was closed while the request waited for its reply"))

    async def request(
        self,
        topic: str | Message,
        body: object = None,
        *,
        timeout_ms: int = 3_000,
        tag: str | None = None,
        key: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        order_by: object = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        selector_argument: object = None,
    ) -> ReceivedMessage:
        """The reply to this message, which must come within `timeout_ms` of the call.

        Raises RequestTimeoutError when none came (the request may have been consumed all the same), what
        `Producer.send` raises when it could not be sent, and TooManyRequestsError. Cancelled, it forgets the request.
        """
        if self._is_closed:
            raise ClientStateError("this client is closed; requests need an open connection")
        if not isinstance(topic, Message):
            topic = message_of(
                topic, body, tag=tag, key=key, keys=keys, properties=properties, flag=flag, order_by=order_by
            )
        correlation_id = str(uuid.UUID(int=self._session.random.getrandbits(128), version=4))
        message = topic.with_properties(
            {
                names.CORRELATION_ID: correlation_id,
                names.REPLY_TO_CLIENT: self._session.client_id,
                names.TTL: str(timeout_ms),
            }
        )
        answer: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._table.put(correlation_id, answer)
        self._answers.add(answer)
        deadline = self._session.clock.monotonic() + timeout_ms / 1000
        sending = self._session.spawn(
            self._send(
                message,
                answer,
                deadline,
                order_by=order_by,
                queue=queue,
                selector=selector,
                selector_argument=selector_argument,
            )
        )
        timer = self._session.timers.call_later(timeout_ms / 1000, self._expire, message, answer, sending, timeout_ms)
        try:
            return await answer
        finally:
            timer.cancel()
            self._answers.discard(answer)
            self._table.remove(correlation_id)
            if not sending.done():
                sending.cancel()

    def _expire(
        self,
        message: Message,
        answer: asyncio.Future[ReceivedMessage],
        sending: asyncio.Task[object],
        timeout_ms: int,
    ) -> None:
        if answer.done():
            return
        if sending.done():
            text = (
                f"the request to {message.topic!r} was stored, but no reply came within {timeout_ms} ms; see whether a "
                "consumer of the topic is running, and whether it replies"
            )
        else:
            text = (
                f"the request to {message.topic!r} could not be sent within {timeout_ms} ms; see whether its broker is "
                "running, or wait longer"
            )
        answer.set_exception(RequestTimeoutError(text, topic=message.topic))

    async def _send(
        self,
        message: Message,
        answer: asyncio.Future[ReceivedMessage],
        deadline: float,
        *,
        order_by: object,
        queue: MessageQueue | None,
        selector: Selector | None,
        selector_argument: object,
    ) -> None:
        try:
            await self._become_reachable(message.topic)
            left_ms = max(1, round((deadline - self._session.clock.monotonic()) * 1000))
            await self._producer.send(
                message,
                order_by=order_by,
                queue=queue,
                selector=selector,
                selector_argument=selector_argument,
                timeout_ms=left_ms,
            )
        except FuseeError as error:
            if not answer.done():
                answer.set_exception(error)

    # Being known to the brokers that will push

    async def _become_reachable(self, topic: str) -> None:
        """Be a producer known to every broker by which a reply may come; once for all, then looked after."""
        session = self._session
        since = self._reachable_since.get(topic)
        now = session.clock.monotonic()
        if since is None:
            await session.publish_route(topic)
            await self._find_reply_brokers(topic)
            await session.heartbeat_all()
            if len(self._reachable_since) >= _TOPICS_MAX:
                self._reachable_since.clear()
            self._reachable_since[topic] = session.clock.monotonic()
        elif now - since >= session.config.poll_name_server_interval_ms / 1000:
            self._reachable_since[topic] = now
            session.spawn(self._greet_new_brokers(topic))

    async def _greet_new_brokers(self, topic: str) -> None:
        if await self._find_reply_brokers(topic):
            await self._session.heartbeat_all()

    async def _find_reply_brokers(self, topic: str) -> bool:
        """Ask for the routes of the reply topics; whether one is new."""
        route = self._session.cached_route(topic)
        clusters = {broker.cluster for broker in route.data.broker_datas} if route is not None else set()
        changed = False
        for cluster in sorted(clusters):
            try:
                changed |= await self._session.refresh_route(reply_topic(cluster))
            except FuseeError as error:
                # Brokers of the request's own topic are known in any case, and most clusters have no others.
                _log.info("no route to the replies of cluster %s: %s", cluster, error)
        return changed

    # The other side

    async def reply(
        self,
        request: ReceivedMessage,
        body: object,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = 3_000,
    ) -> SendResult:
        """Answer a request that was received; done when the requester has the reply.

        Raises MessageError when the message is no request, TransportError or RemoteError when the reply cannot be
        delivered: the requester is gone, or no broker knows it. After several tries that is a SendFailedError.
        """
        if self._is_closed:
            raise ClientStateError("this client is closed; replies need an open connection")
        message = identified(reply_message(request, body, properties=properties), self._session.unique_ids.next_id())
        size = len(message.body)
        if not 0 < size <= self._producer.max_message_size:
            raise MessageError(
                f"a reply of {size} bytes cannot be sent; it has one at least, and at most max_message_size="
                f"{self._producer.max_message_size}"
            )
        deadline = self._session.clock.monotonic() + timeout_ms / 1000
        attempts: list[FuseeError] = []
        for queue in await self._reply_queues(message.topic, request.broker_name):
            left_ms = round((deadline - self._session.clock.monotonic()) * 1000)
            if left_ms <= 0:
                break
            try:
                return await self._send_reply(message, queue, left_ms)
            except FuseeError as error:
                attempts.append(error)
                if not error.retryable:
                    break
        if not attempts:
            raise RequestTimeoutError(f"no broker for the reply was found within {timeout_ms} ms", topic=message.topic)
        if len(attempts) == 1:
            raise attempts[0]
        causes = "; ".join(f"{number}. {error}" for number, error in enumerate(attempts, 1))
        raise SendFailedError(
            f"the reply to {request.message_id} was sent {len(attempts)} times in vain: {causes}",
            attempts=tuple(attempts),
            topic=message.topic,
        )

    async def _reply_queues(self, topic: str, first: str) -> list[MessageQueue]:
        """A queue of each broker to try in turn, the one that had the request first."""
        queues = list((await self._session.publish_route(topic)).write_queues)
        self._session.random.shuffle(queues)
        queues.sort(key=lambda queue: queue.broker_name != first)
        by_broker: dict[str, MessageQueue] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, queue)
        return list(by_broker.values())[:_REPLY_TRIES_MAX]

    async def _send_reply(self, message: Message, queue: MessageQueue, timeout_ms: int) -> SendResult:
        session = self._session
        address = session.master_address(queue.broker_name)
        if address is None:
            raise ConnectError(f"broker {queue.broker_name!r} has no master that a name server knows")
        body, sys_flag = self._compression.apply(message.body, 0)
        response = await session.calls.request(
            address,
            RequestCode.SEND_REPLY_MESSAGE_V2,
            SendMessageV2(
                producer_group=self._producer.group,
                topic=message.topic,
                default_topic=AUTO_CREATE_TOPIC,
                default_topic_queue_nums=4,
                queue_id=queue.queue_id,
                sys_flag=sys_flag,
                born_timestamp_ms=session.clock.time_ms(),
                flag=message.flag,
                properties=property_text(message),
                reconsume_times=0,
                unit_mode=False,
                batch=False,
                broker_name=queue.broker_name,
            ),
            body=body,
            timeout_ms=timeout_ms,
            accept=STATUS_OF_CODE,
            topic=message.topic,
        )
        stored = response.read(SendMessageResponse)
        status = STATUS_OF_CODE[response.code]
        return SendResult(
            status=status,
            message_id=message.unique_id or "",
            offset_id=stored.msg_id,
            queue=MessageQueue(message.topic, queue.broker_name, stored.queue_id),
            queue_offset=stored.queue_offset,
            durability=session.durability(queue.broker_name, status, True),
        )


def reply_message(request: ReceivedMessage, body: object, *, properties: Mapping[str, str] | None = None) -> Message:
    """The reply to a request, to be sent by any producer (Java: MessageUtil.createReplyMessage).

    Raises MessageError when the message is no request, or came by a broker that does not say its cluster.
    """
    found = {
        name: request.properties.get(name, "")
        for name in (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)
    }
    for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT):
        if not found[name]:
            raise MessageError(
                f"message {request.message_id} of {request.topic!r} is no request, it has no property {name}; reply "
                "only to messages that were sent by request()"
            )
    cluster = found.pop(names.CLUSTER)
    if not cluster:
        raise MessageError(
            f"message {request.message_id} of {request.topic!r} does not say from which cluster it came; reply to the "
            "message as it was received"
        )
    message = Message.of(reply_topic(cluster), encode_body(body), properties=properties)
    return message.with_properties(
        {names.MESSAGE_TYPE: REPLY, **{name: value for name, value in found.items() if value}}
    )


def _reply_record(header: PushReplyMessage, body: bytes, now_ms: int) -> StoredMessage:
    born_host, store_host = _host(header.born_host), _host(header.store_host)
    properties = (header.properties or "").encode("utf-8", "replace")
    properties = join_properties(
        remove_property(properties, _ARRIVE_TIME), encode_properties({names.ARRIVE_TIME: str(now_ms)})
    )
    return StoredMessage(
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=0,
        log_offset=0,
        body=body,
        properties_bytes=properties,
        flag=header.flag,
        sys_flag=with_host_families(header.sys_flag, born_host, store_host),
        born_timestamp_ms=header.born_timestamp_ms,
        born_host_bytes=born_host,
        store_timestamp_ms=header.store_timestamp_ms,
        store_host_bytes=store_host,
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body_crc=zlib.crc32(body) & 0x7FFFFFFF,
    )


def _host(text: str) -> bytes:
    """A host as Java writes it (`name/ip:port`, the name often empty); zeros when it is something else."""
    ip, _, port = text.rpartition("/")[2].rpartition(":")
    try:
        return pack_host(ip.strip("[]"), int(port))
    except (MessageError, ValueError):
        return _NO_HOST
