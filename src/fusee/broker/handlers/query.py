"""Looking at what is stored: by key, by place, entry by entry (Java: QueryMessageProcessor, queryConsumeQueue).

Answers are bounded: so many bytes of records, so many entries of a consume queue. Of records that are too many for one
answer the newest are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.store.consume_queue import EXTENSION_ADDRESS_MAX
from fusee.wire.bodies.stats import ConsumeQueueEntry, ConsumeQueueSlice
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.admin import QueryConsumeQueue
from fusee.wire.headers.pull import QueryMessage, QueryMessageResponse, ViewMessage
from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.broker.consumers import ConsumerTable
    from fusee.store.engine import MessageStore
    from fusee.store.query import FoundRecords
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.bodies.heartbeat import SubscriptionData
    from fusee.wire.command import Command

RECORDS_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of the records in one answer to 12; one record is always given."""

ENTRIES_MAX: Final = 20_000
"""Entries of a consume queue in one answer to 321."""

UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
UNIQUE_KEY_COUNT_MAX: Final = 32
_TAG_INDEX: Final = "T"
_TAG_EXPRESSION: Final = "TAG"


class QueryHandlers:
    """Codes 12, 33 and 321. `make_visible` brings the store's consume queues level with what was put."""

    def __init__(self, *, store: MessageStore, consumers: ConsumerTable, make_visible: Callable[[], object]) -> None:
        self._store = store
        self._consumers = consumers
        self._make_visible = make_visible

    def routes(self) -> dict[RequestCode, Handler]:
        """What is served here."""
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
            RequestCode.QUERY_CONSUME_QUEUE: self.query_consume_queue,
        }

    def query_message(self, command: Command, link: Link) -> Command:
        """12: the newest records of a topic with a key, in the order of the log."""
        header = command.read(QueryMessage)
        is_unique = (command.all_fields().get(UNIQUE_KEY_QUERY) or "").lower() == "true"
        count_max = UNIQUE_KEY_COUNT_MAX if is_unique else header.max_messages
        self._make_visible()
        query = self._store.query
        find = query.by_tag if header.index_type == _TAG_INDEX and not is_unique else query.by_key
        found = find(header.topic, header.key, count_max, header.begin_timestamp_ms, header.end_timestamp_ms)
        if not found.records:
            return command.reply(
                ResponseCode.QUERY_NOT_FOUND,
                QueryMessageResponse(index_timestamp_ms=0, index_log_offset=0),
                remark="can not find message, maybe time range not correct",
            )
        return command.reply(
            ResponseCode.SUCCESS,
            QueryMessageResponse(
                index_timestamp_ms=found.last_update_timestamp_ms, index_log_offset=found.last_update_log_offset
            ),
            body=b"".join(_newest(found)),
        )

    def view_message(self, command: Command, link: Link) -> Command:
        """33: the record at a place in the log."""
        header = command.read(ViewMessage)
        store = self._store
        # What senders were not promised yet may be cut.
        record = store.record_at(header.log_offset) if header.log_offset < store.confirmed_offset else None
        if record is None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, remark=f"can not find message by the offset, {header.log_offset}"
            )
        return command.reply(body=bytes(record))

    def query_consume_queue(self, command: Command, link: Link) -> Command:
        """321: entries of a consume queue, and what the group has to do with them."""
        header = command.read(QueryConsumeQueue)
        self._make_visible()
        queue = self._store.queues.get(header.topic or "", header.queue_id)
        if queue is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=f"{header.queue_id}@{header.topic} is not exist!")
        answer = ConsumeQueueSlice(max_queue_index=queue.next_offset, min_queue_index=queue.min_offset)
        if header.consumer_group is not None:
            subscription = self._consumers.known_subscription(header.consumer_group, queue.topic)
            answer.subscription_data = subscription
            answer.filter_data = _filter_text(header.consumer_group, queue.topic, subscription)
        first = header.queue_offset
        if not queue.min_offset <= first < queue.next_offset:
            return command.reply(remark=f"Index {first} of {header.queue_id}@{header.topic} is not exist!")
        answer.queue_data = [
            _entry(log_offset, size, tags_code)
            for _, log_offset, size, tags_code, _ in queue.units(first, min(header.count, ENTRIES_MAX))
        ]
        return command.reply(body=dumps_fastjson(answer))


def _newest(found: FoundRecords) -> Sequence[memoryview]:
    """As many of the records as fit into one answer."""
    size = 0
    for number, record in enumerate(reversed(found.records)):
        size += len(record)
        if size > RECORDS_SIZE_MAX and number > 0:
            return found.records[-number:]
    return found.records


def _entry(log_offset: int, size: int, tags_code: int) -> ConsumeQueueEntry:
    entry = ConsumeQueueEntry(log_offset=log_offset, size=size, tags_code=tags_code)
    if tags_code <= EXTENSION_ADDRESS_MAX:
        entry.msg = f"Cq extend not exist!addr: {tags_code}"
    return entry


def _filter_text(group: str, topic: str, subscription: SubscriptionData | None) -> str:
    """The filter as text; by tags there is none."""
    if subscription is None:
        return f"{group}@{topic} is not online!"
    if subscription.expression_type in (None, _TAG_EXPRESSION):
        return "null"
    return dumps_fastjson(
        {
            "clientVersion": subscription.sub_version,
            "consumerGroup": group,
            "expression": subscription.expression,
            "expressionType": subscription.expression_type,
            "topic": topic,
        }
    ).decode()
