"""Messages: by key, by id, by place, by time, and what became of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fusee.admin.browse import QueueCursor, merged
from fusee.admin.fan_out import ask_all
from fusee.admin.offsets import OffsetCalls, queues_in
from fusee.admin.reach import readable_brokers, to_ms
from fusee.admin.views import BrokerAddress, ConsumerGroupView, Consumption, GroupLag, MessageStatus
from fusee.client.received import ReceivedMessage
from fusee.client.trace import decode_trace
from fusee.errors import ConfigError, ConsumerOfflineError, FuseeError, NotFoundError, RemoteFailureError
from fusee.filter.subscription import SQL92, TAG, parse_subscription
from fusee.message.ids import decode_offset_id
from fusee.message.record import decode_record, iterate_records
from fusee.message.topics import (
    TRACE_TOPIC,
)
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.pull import QueryMessage, ViewMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from fusee.client.trace import TraceRecord
    from fusee.message.model import MessageQueue

KEY_COUNT_MAX: Final = 64
BROWSE_LIMIT: Final = 1_000

_FOREVER_MS: Final = 2**63 - 1
_BY_KEY: Final = "K"
_BY_UNIQUE_KEY: Final = "U"


class _QueryMessage(QueryMessage, kw_only=True):
    """Code 12 with what Java's client adds to the header: whether the key is a unique id."""

    is_unique_key: bool = msgspec.field(name="_UNIQUE_KEY_QUERY")


class MessageCalls(OffsetCalls):
    """Messages as they are stored."""

    # Finding

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | int = 0,
        end: datetime | int = _FOREVER_MS,
        limit: int = KEY_COUNT_MAX,
        cluster: str | None = None,
    ) -> tuple[ReceivedMessage, ...]:
        """The newest messages of a topic with this key, stored in this span of time, oldest first.

        (mqadmin queryMsgByKey.) `limit` is for each broker. Nothing found is an empty answer. Raises when a broker
        does not answer: then more may be there.
        """
        return await self._query(topic, key, to_ms(begin), to_ms(end), limit, cluster, is_unique=False)

    async def messages_by_unique_id(
        self,
        topic: str,
        unique_id: str,
        *,
        begin: datetime | int = 0,
        end: datetime | int = _FOREVER_MS,
        cluster: str | None = None,
    ) -> tuple[ReceivedMessage, ...]:
        """The messages to which their producer gave this id, oldest first (mqadmin queryMsgByUniqueKey).

        More than one when the producer sent again without knowing that the first try had arrived.
        """
        return await self._query(topic, unique_id, to_ms(begin), to_ms(end), 32, cluster, is_unique=True)

    async def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message with this id, of either kind (mqadmin queryMsgById). Raises NotFoundError.

        An offset id says where the message lies. A unique id needs the topic; the two look alike, and an id is taken
        for an offset id when it names the address of a broker.
        """
        place = await self._place_of(message_id)
        if place is not None:
            return await self._view(place, message_id)
        if topic is None:
            raise ConfigError(
                f"{message_id!r} names no broker of this cluster, so it is an id that a producer gave; say in which "
                "topic to look for it"
            )
        found = await self.messages_by_unique_id(topic, message_id)
        if not found:
            raise NotFoundError(
                f"topic {topic!r} has no message with the id {message_id}; it expired, or was sent to another topic",
                code=ResponseCode.NO_MESSAGE,
                topic=topic,
            )
        return found[0]

    async def message_by_offset_id(self, offset_id: str) -> ReceivedMessage:
        """The message at the place that this id names. Raises NotFoundError, MessageError on a malformed id."""
        address = decode_offset_id(offset_id).address
        return await self._view(await self._by_address(address), offset_id)

    async def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage:
        """The message at an offset of a queue (mqadmin queryMsgByOffset). Raises NotFoundError."""
        place = await self._one_broker(queue.broker_name)
        cursor = self._cursor(place, queue, queue_offset, queue_offset + 1)
        message = await cursor.next()
        if message is None:
            calls = self._session.calls
            first = await calls.min_offset(place.address, queue.topic, queue.queue_id)
            next_offset = await calls.max_offset(place.address, queue.topic, queue.queue_id)
            raise NotFoundError(
                f"queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name} has no message at offset "
                f"{queue_offset}; there are those from {first} up to, without, {next_offset}",
                code=ResponseCode.NO_MESSAGE,
                address=place.address,
                topic=queue.topic,
            )
        return message

    async def browse(
        self,
        topic: str,
        *,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        queue: MessageQueue | None = None,
        tags: str = "*",
        sql: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """The messages of a topic, or of one queue, in the order in which they were stored (mqadmin printMsg).

        `begin` and `end` are store times, both included. Messages stored after the call are not among them. Raises
        when a broker of the topic does not answer.
        """
        subscription = parse_subscription(topic, tags if sql is None else sql, TAG if sql is None else SQL92)
        places = await self._places_of_queues(topic, queue)
        calls = self._session.calls
        cursors: list[QueueCursor] = []
        for each, place in sorted(places.items()):
            next_offset = await calls.max_offset(place.address, topic, each.queue_id)
            if begin is None:
                first = await calls.min_offset(place.address, topic, each.queue_id)
            else:
                first = await calls.search_offset(place.address, topic, each.queue_id, to_ms(begin))
            cursors.append(
                QueueCursor(
                    calls,
                    place.address,
                    each,
                    start_offset=first,
                    end_offset=next_offset,
                    end_ms=None if end is None else to_ms(end),
                    subscription=subscription,
                )
            )
        async for message in merged(cursors, limit):
            yield message

    async def messages_between(
        self,
        topic: str,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        *,
        queue: MessageQueue | None = None,
        tags: str = "*",
        sql: str | None = None,
        limit: int = BROWSE_LIMIT,
    ) -> tuple[ReceivedMessage, ...]:
        """What `browse` finds first, as a whole."""
        found = self.browse(topic, begin=begin, end=end, queue=queue, tags=tags, sql=sql, limit=limit)
        return tuple([message async for message in found])

    # What became of a message

    async def trace(
        self,
        message_id: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        begin: datetime | int = 0,
        end: datetime | int = _FOREVER_MS,
    ) -> tuple[TraceRecord, ...]:
        """Who sent and who consumed a message, as far as clients trace, in order of time (mqadmin queryMsgTraceById).

        Found by unique id, offset id or key. Raises TopicNotFoundError when nobody has traced anything yet.
        """
        found = await self.messages_by_key(trace_topic, message_id, begin=begin, end=end)
        records = {
            record: None
            for message in found
            for record in decode_trace(message.body)
            if message_id in (record.message_id, record.offset_id, *(record.keys or "").split())
        }
        return tuple(sorted(records, key=lambda record: record.timestamp_ms))

    async def message_status(self, message: ReceivedMessage) -> tuple[MessageStatus, ...]:
        """What each group that consumes the message's topic did with it, by its offsets and its subscription.

        A group that moved past the message has consumed it, or passed it over by its filter; whether its code
        succeeded brokers do not know: a message that failed is in the group's retry topic or among its dead letters.
        """
        groups = [BrokerAddress(broker_name=group, address="") for group in await self.topic_groups(message.topic)]
        answers = await ask_all(groups, lambda group: self._status(message, group.broker_name), at_once=8)
        failed = [
            MessageStatus(
                group=failure.broker_name, consumption=Consumption.NOT_TOLD, is_online=False, cause=failure.cause
            )
            for failure in answers.failures
        ]
        return tuple(sorted([*answers.values, *failed], key=lambda each: each.group))

    # Within

    async def _query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, cluster: str | None, *, is_unique: bool
    ) -> tuple[ReceivedMessage, ...]:
        header = _QueryMessage(
            topic=topic,
            key=key,
            max_messages=limit,
            begin_timestamp_ms=begin_ms,
            end_timestamp_ms=end_ms,
            index_type=_BY_UNIQUE_KEY if is_unique else _BY_KEY,
            is_unique_key=is_unique,
        )
        brokers = [place for place in await self._brokers_of(topic) if cluster is None or place.cluster == cluster]

        async def ask(place: BrokerAddress) -> list[ReceivedMessage]:
            try:
                answer = await self._ask(
                    place.address, RequestCode.QUERY_MESSAGE, header, timeout_ms=self._timeout_ms * 3
                )
            except NotFoundError:
                return []
            return [ReceivedMessage.of(record, place.broker_name) for record in iterate_records(answer.body)]

        answers = await ask_all(brokers, ask)
        answers.complete("look for the message", topic=topic)
        # The index goes by a hash of topic and key.
        found = [
            message
            for messages in answers.values
            for message in messages
            if message.queue.topic == topic and (message.message_id == key if is_unique else key in message.keys)
        ]
        return tuple(sorted(found, key=lambda message: message.store_timestamp_ms))

    async def _place_of(self, message_id: str) -> BrokerAddress | None:
        """The broker that this id names; None when it names none, or is not such an id."""
        try:
            address = decode_offset_id(message_id).address
        except FuseeError:
            return None
        return next((place for place in await self.brokers(slaves=True) if place.address == address), None)

    async def _view(self, place: BrokerAddress, offset_id: str) -> ReceivedMessage:
        header = ViewMessage(log_offset=decode_offset_id(offset_id).log_offset)
        try:
            answer = await self._ask(place.address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        except RemoteFailureError as error:
            raise NotFoundError(
                f"{place} has no message at {offset_id}: it has expired, or the id is not one of its own",
                code=ResponseCode.NO_MESSAGE,
                address=place.address,
            ) from error
        return ReceivedMessage.of(decode_record(answer.body), place.broker_name)

    def _cursor(self, place: BrokerAddress, queue: MessageQueue, start_offset: int, end_offset: int) -> QueueCursor:
        return QueueCursor(
            self._session.calls,
            place.address,
            queue,
            start_offset=start_offset,
            end_offset=end_offset,
            subscription=parse_subscription(queue.topic, "*"),
        )

    async def _places_of_queues(self, topic: str, queue: MessageQueue | None) -> dict[MessageQueue, BrokerAddress]:
        if queue is None:
            route = await self._route(topic)
            readable = {place.broker_name: place for place in readable_brokers(route.broker_datas)}
            return {each: readable[each.broker_name] for each in queues_in(topic, route)}
        if queue.topic != topic:
            raise ConfigError(f"queue {queue} is not one of topic {topic!r}")
        return {queue: await self._one_broker(queue.broker_name)}

    async def _status(self, message: ReceivedMessage, group: str) -> MessageStatus:
        online: ConsumerGroupView | None
        try:
            online = await self.consumers(group)
        except ConsumerOfflineError:
            online = None
        if online is not None and online.is_broadcast:
            return MessageStatus(group=group, consumption=Consumption.BROADCAST, is_online=True)
        progress = await self.lag(group, message.queue.topic, owners=False)
        return MessageStatus(
            group=group, consumption=_consumption(message, online, progress), is_online=online is not None
        )


def _consumption(message: ReceivedMessage, online: ConsumerGroupView | None, progress: GroupLag) -> Consumption:
    here = next((each for each in progress.queues if each.queue == message.queue), None)
    if here is None:
        return Consumption.NOT_TOLD
    if here.committed_offset <= message.queue_offset:
        return Consumption.PULLED if online is not None and online.is_pull else Consumption.WAITING
    for wanted in online.subscriptions if online is not None else ():
        if wanted.topic == message.queue.topic and wanted.expression_type == TAG:
            tags = parse_subscription(wanted.topic, wanted.expression).tags
            if tags and message.tag not in tags:
                return Consumption.FILTERED
    return Consumption.CONSUMED
