"""Message traces as every RocketMQ client writes them: who sent and who consumed a message, when, and how it went.

A trace is text in the body of a message of the trace topic. Fields are separated by 0x01 and records ended by 0x02;
the first field says which fields follow:

    Pub             time, region, group, topic, message id, tags, keys, store host, body size, cost, message type,
                    offset id, success [, client host]
    SubBefore       time, region, group, request id, message id, retry times, keys [, client host]
    SubAfter        request id, message id, cost, success, keys, return code, time, group
    EndTransaction  time, region, group, topic, message id, tags, keys, store host, message type, transaction id,
                    state, from check
    Recall          time, region, group, topic, message id, success

What a message does not have is written as the text `null`. The trace message has the ids and keys of what it tells of
as its keys, which is how traces are found again. SubAfter without time and group, Pub without offset id and fields
behind the last one known are what other releases write, and are read as well.

The dispatcher (Java: AsyncTraceDispatcher) collects up to `batch_num` calls, or those of five seconds, and sends them
by a producer of its own that is not traced. A trace never holds up what it tells of: when the trace topic takes no
more, traces are dropped and counted. Java writes bodies beyond the limit of its own trace producer and so loses the
batch; here a batch is parted before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from fusee.client.hooks import AccessChannel, ConsumeReturn, MessageType, TransactionState
from fusee.client.results import SendStatus
from fusee.errors import FuseeError
from fusee.message import properties as names
from fusee.message.model import Message
from fusee.message.namespaces import without_namespace
from fusee.message.topics import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fusee.client.hooks import ConsumeContext, EndTransactionContext, SendContext
    from fusee.client.results import SendResult
    from fusee.client.session import Session
    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.message.ids import UniqueIds

_log = logging.getLogger(__name__)

FIELD_SEPARATOR: Final = "\x01"
RECORD_END: Final = "\x02"
DEFAULT_REGION: Final = "DefaultRegion"
CLOUD_TOPIC_PREFIX: Final = "rmq_sys_TRACE_DATA_"

BODY_SIZE_MAX: Final = 128_000
BATCH_NUM_MAX: Final = 20
WAITING_MAX: Final = 2_048
FLUSH_INTERVAL: Final = 5.0
SEND_TIMEOUT_MS: Final = 5_000

_ABSENT: Final = "null"
# The property string is limited to 32767 bytes; the rest is for what the producer adds.
_KEYS_SIZE_MAX: Final = 30_000
_IN_FLIGHT_MAX: Final = 32
# Time for more to gather when nothing was sent for long.
_GATHER: Final = 0.005


class TraceType(Enum):
    """What a record tells of."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record; which attributes mean something depends on `kind`, the others have their defaults.

    `topic` and `region_id` of a SubAfter are not written; they only say where the record belongs.
    """

    kind: TraceType
    timestamp_ms: int = 0
    region_id: str | None = ""
    group: str = ""
    topic: str = ""
    message_id: str = ""
    offset_id: str = ""
    tags: str | None = None
    keys: str | None = None
    store_host: str = ""
    client_host: str = ""
    body_size: int = 0
    cost_ms: int = 0
    message_type: MessageType = MessageType.NORMAL
    success: bool = True
    request_id: str = ""
    retry_times: int = 0
    return_code: int = ConsumeReturn.SUCCESS
    transaction_id: str | None = None
    transaction_state: TransactionState = TransactionState.UNKNOWN
    from_check: bool = False


# The format


def encode_record(record: TraceRecord, access: AccessChannel = AccessChannel.LOCAL) -> str:
    """The record as text, its end included."""
    kind = record.kind
    fields: tuple[object, ...]
    if kind is TraceType.SUB_AFTER:
        fields = (
            record.request_id,
            record.message_id,
            record.cost_ms,
            _truth(record.success),
            _text(record.keys),
            int(record.return_code),
            *((record.timestamp_ms, record.group) if access is not AccessChannel.CLOUD else ("",)),
        )
    else:
        fields = (record.timestamp_ms, _text(record.region_id), record.group, *_own_fields(record))
    return FIELD_SEPARATOR.join((kind.value, *map(str, fields))) + RECORD_END


def _own_fields(record: TraceRecord) -> tuple[object, ...]:
    kind = record.kind
    if kind is TraceType.SUB_BEFORE:
        return record.request_id, record.message_id, record.retry_times, _text(record.keys)
    if kind is TraceType.RECALL:
        return record.topic, record.message_id, _truth(record.success)
    what = (
        record.topic,
        record.message_id,
        _text(record.tags),
        _text(record.keys),
        record.store_host,
    )
    message_type = int(record.message_type)
    if kind is TraceType.PUB:
        return *what, record.body_size, record.cost_ms, message_type, record.offset_id, _truth(record.success)
    return (
        *what,
        message_type,
        _text(record.transaction_id),
        record.transaction_state.value,
        _truth(record.from_check),
    )


def trace_keys(records: Iterable[TraceRecord]) -> list[str]:
    """By which keys these records are found: ids and keys of their messages, each once."""
    keys: dict[str, None] = {}
    for record in records:
        keys[record.message_id] = None
        for key in (record.keys or "").split(names.KEY_SEPARATOR):
            keys[key] = None
    keys.pop("", None)
    return list(keys)


def decode_trace(body: bytes) -> list[TraceRecord]:
    """The records in the body of a trace message.

    Never fails: a record of an unknown kind, or one that cannot be read, is left out. (Java gives up the whole body.)
    """
    records: list[TraceRecord] = []
    for text in body.decode("utf-8", "replace").split(RECORD_END):
        kind, *fields = text.split(FIELD_SEPARATOR)
        decode = _DECODERS.get(kind)
        if decode is None:
            continue
        try:
            records.append(decode(fields))
        except (ValueError, IndexError):
            continue
    return records


def _decode_pub(fields: list[str]) -> TraceRecord:
    # 11 fields: without result; 12: the result; 13: offset id and result; more: the client's host.
    count = len(fields)
    return TraceRecord(
        kind=TraceType.PUB,
        timestamp_ms=int(fields[0]),
        region_id=_optional(fields[1]),
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        tags=_optional(fields[5]),
        keys=_optional(fields[6]),
        store_host=fields[7],
        body_size=int(fields[8]),
        cost_ms=int(fields[9]),
        message_type=MessageType(int(fields[10])),
        offset_id=fields[11] if count > 12 else "",
        success=_is_true(fields[12 if count > 12 else 11]) if count > 11 else True,
        client_host=fields[13] if count > 13 else "",
    )


def _decode_sub_before(fields: list[str]) -> TraceRecord:
    return TraceRecord(
        kind=TraceType.SUB_BEFORE,
        timestamp_ms=int(fields[0]),
        region_id=_optional(fields[1]),
        group=fields[2],
        request_id=fields[3],
        message_id=fields[4],
        retry_times=int(fields[5]),
        keys=_optional(fields[6]),
        client_host=fields[7] if len(fields) > 7 else "",
    )


def _decode_sub_after(fields: list[str]) -> TraceRecord:
    has_time = len(fields) > 7
    return TraceRecord(
        kind=TraceType.SUB_AFTER,
        request_id=fields[0],
        message_id=fields[1],
        cost_ms=int(fields[2]),
        success=_is_true(fields[3]),
        keys=_optional(fields[4]),
        return_code=int(fields[5]) if len(fields) > 5 else ConsumeReturn.SUCCESS,
        timestamp_ms=int(fields[6]) if has_time else 0,
        group=fields[7] if has_time else "",
    )


def _decode_end_transaction(fields: list[str]) -> TraceRecord:
    return TraceRecord(
        kind=TraceType.END_TRANSACTION,
        timestamp_ms=int(fields[0]),
        region_id=_optional(fields[1]),
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        tags=_optional(fields[5]),
        keys=_optional(fields[6]),
        store_host=fields[7],
        message_type=MessageType(int(fields[8])),
        transaction_id=_optional(fields[9]),
        transaction_state=TransactionState(fields[10]),
        from_check=_is_true(fields[11]),
    )


def _decode_recall(fields: list[str]) -> TraceRecord:
    return TraceRecord(
        kind=TraceType.RECALL,
        timestamp_ms=int(fields[0]),
        region_id=_optional(fields[1]),
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        success=_is_true(fields[5]),
    )


_DECODERS: Final = {
    TraceType.PUB.value: _decode_pub,
    TraceType.SUB_BEFORE.value: _decode_sub_before,
    TraceType.SUB_AFTER.value: _decode_sub_after,
    TraceType.END_TRANSACTION.value: _decode_end_transaction,
    TraceType.RECALL.value: _decode_recall,
}


def _text(value: str | None) -> str:
    return _ABSENT if value is None else value


def _optional(field: str) -> str | None:
    return None if field == _ABSENT else field


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _is_true(field: str) -> bool:
    return field.lower() == "true"


# Sending


class TraceProducer(Protocol):
    """What the dispatcher sends with: a producer that is itself not traced."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def send(self, message: Message, /, *, timeout_ms: int | None = None) -> asyncio.Future[SendResult]: ...


class TraceParty(Protocol):
    """What of a session the dispatcher uses."""

    @property
    def clock(self) -> Clock: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def unique_ids(self) -> UniqueIds: ...


def trace_group(group: str, kind: Literal["PRODUCE", "CONSUME"]) -> str:
    """The group of the producer that sends the traces of this group."""
    return f"_INNER_TRACE_PRODUCER-{group}-{kind}-1"


class TraceDispatcher:
    """Collects trace records and sends them in batches; `discarded` and `failed` count what was lost and why."""

    def __init__(
        self,
        session: TraceParty,
        producer: TraceProducer,
        *,
        trace_topic: str = TRACE_TOPIC,
        batch_num: int = 10,
        access: AccessChannel = AccessChannel.LOCAL,
    ) -> None:
        """`producer` belongs to the dispatcher from now on: it is started and closed with it."""
        self.session = session
        self.trace_topic = trace_topic
        self.access = access
        self.discarded = 0
        """Calls whose records found the queue full, or were left when the dispatcher closed."""
        self.failed = 0
        """Trace messages that could not be sent."""
        self._producer = producer
        self._batch_num = max(1, min(batch_num, BATCH_NUM_MAX))
        self._waiting: deque[Sequence[TraceRecord]] = deque()
        self._in_flight = 0
        self._last_flush: float | None = None
        self._timer: TimerHandle | None = None
        self._is_open = False
        self._is_failing = False
        self._idle: asyncio.Future[None] | None = None

    @classmethod
    def of(
        cls,
        session: Session,
        group: str,
        kind: Literal["PRODUCE", "CONSUME"],
        *,
        trace_topic: str = TRACE_TOPIC,
        batch_num: int = 10,
        access: AccessChannel = AccessChannel.LOCAL,
    ) -> TraceDispatcher:
        """The dispatcher for the traces of a producer or consumer group, with a producer of its own."""
        from fusee.client.producer import Producer

        producer = Producer(
            session,
            group=trace_group(group, kind),
            send_msg_timeout_ms=SEND_TIMEOUT_MS,
            max_message_size=BODY_SIZE_MAX,
        )
        return cls(session, producer, trace_topic=trace_topic, batch_num=batch_num, access=access)

    async def start(self) -> None:
        """Start the producer. Raises what that raises; whether the trace topic exists is found out later."""
        await self._producer.start()
        self._is_open = True

    async def close(self) -> None:
        """Send what waits, for five seconds at most, and close the producer."""
        if self._is_open:
            self._is_open = False
            self.flush()
            if self._in_flight or self._waiting:
                self._idle = asyncio.get_running_loop().create_future()
                give_up = self.session.timers.call_later(FLUSH_INTERVAL, self._wake)
                try:
                    await self._idle
                finally:
                    give_up.cancel()
            self.discarded += len(self._waiting)
            self._waiting.clear()
        await self._producer.close()

    def append(self, records: Sequence[TraceRecord]) -> bool:
        """Take the records of one call, all of one topic and region; False when they are dropped."""
        if not records:
            return False
        if not self._is_open or len(self._waiting) >= WAITING_MAX:
            self.discarded += 1
            return False
        self._waiting.append(records)
        if len(self._waiting) >= self._batch_num:
            self._pump()
        elif self._timer is None:
            now = self.session.clock.monotonic()
            due = now if self._last_flush is None else self._last_flush + FLUSH_INTERVAL
            self._timer = self.session.timers.call_later(max(due - now, _GATHER), self.flush)
        return True

    def flush(self) -> None:
        """Send what waits, as far as the limit of messages in flight lets."""
        self._pump(smallest=1)

    def _pump(self, smallest: int | None = None) -> None:
        smallest = smallest or self._batch_num
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while len(self._waiting) >= smallest and self._in_flight < _IN_FLIGHT_MAX:
            taken = [self._waiting.popleft() for _ in range(min(self._batch_num, len(self._waiting)))]
            self._last_flush = self.session.clock.monotonic()
            self._send(taken)
        if self._waiting and self._is_open:
            self._timer = self.session.timers.call_later(FLUSH_INTERVAL, self.flush)

    def _send(self, taken: list[Sequence[TraceRecord]]) -> None:
        by_place: dict[tuple[str, str], list[TraceRecord]] = {}
        for records in taken:
            first = records[0]
            trace_topic = self.trace_topic
            if self.access is AccessChannel.CLOUD:
                trace_topic = f"{CLOUD_TOPIC_PREFIX}{first.region_id}"
            by_place.setdefault((first.topic, trace_topic), []).extend(records)
        for (_, trace_topic), records in by_place.items():
            for message in self._messages(trace_topic, records):
                self._send_message(message)

    def _messages(self, trace_topic: str, records: list[TraceRecord]) -> list[Message]:
        """The records as messages, none beyond the limits of body and keys."""
        messages: list[Message] = []
        body: list[bytes] = []
        keys: dict[str, None] = {}
        body_size = keys_size = 0

        def close() -> None:
            nonlocal body, keys, body_size, keys_size
            if body:
                joined = names.KEY_SEPARATOR.join(keys)
                messages.append(Message(trace_topic, b"".join(body), {names.KEYS: joined} if joined else {}))
            body, keys, body_size, keys_size = [], {}, 0, 0

        for record in records:
            piece = encode_record(record, self.access).encode("utf-8", "replace")
            own_keys = [key for key in trace_keys((record,)) if key not in keys]
            own_size = sum(len(key.encode("utf-8", "replace")) + 1 for key in own_keys)
            if body_size + len(piece) > BODY_SIZE_MAX or keys_size + own_size > _KEYS_SIZE_MAX:
                close()
                own_keys = trace_keys((record,))
            body.append(piece)
            body_size += len(piece)
            keys.update(dict.fromkeys(own_keys))
            keys_size += own_size
        close()
        return messages

    def _send_message(self, message: Message) -> None:
        try:
            sending = self._producer.send(message, timeout_ms=SEND_TIMEOUT_MS)
        except FuseeError as error:
            self._not_sent(error)
            return
        self._in_flight += 1
        sending.add_done_callback(self._sent)

    def _sent(self, sending: asyncio.Future[SendResult]) -> None:
        self._in_flight -= 1
        if sending.cancelled():
            self.failed += 1
        elif (error := sending.exception()) is not None:
            self._not_sent(error)
        else:
            self._is_failing = False
        if self._is_open:
            if len(self._waiting) >= self._batch_num:
                self._pump()
        else:
            self.flush()
            if not self._in_flight and not self._waiting:
                self._wake()

    def _not_sent(self, error: BaseException) -> None:
        self.failed += 1
        if not self._is_failing:  # once per series: traces are many
            self._is_failing = True
            _log.warning("traces are lost, %s takes none: %s", self.trace_topic, error)

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


# What is traced


class SendTraceHook:
    """Tells of every message that was stored (Java: SendMessageTraceHookImpl). A failed or oneway send has no trace."""

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def before_send(self, context: SendContext) -> None:
        """Nothing: the context knows when the send began."""

    def after_send(self, context: SendContext) -> None:
        result, message = context.result, context.message
        if result is None or not result.trace_on or context.topic.startswith(self._dispatcher.trace_topic):
            return
        properties = message.properties
        self._dispatcher.append(
            (
                TraceRecord(
                    kind=TraceType.PUB,
                    timestamp_ms=context.started_ms,
                    region_id=result.region_id or DEFAULT_REGION,
                    group=without_namespace(context.group),
                    topic=without_namespace(context.topic),
                    message_id=result.message_id,
                    offset_id=result.offset_id,
                    tags=properties.get(names.TAGS),
                    keys=properties.get(names.KEYS),
                    store_host=context.broker_address,
                    body_size=len(message.body),
                    cost_ms=context.cost_ms,
                    message_type=context.message_type,
                    success=result.status is SendStatus.SEND_OK,
                ),
            )
        )


class ConsumeTraceHook:
    """Tells of every call of a listener, before and after (Java: ConsumeMessageTraceHookImpl).

    Left out are messages whose broker has traces off, and those of the trace topic, which would never end.
    """

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def before_consume(self, context: ConsumeContext) -> None:
        dispatcher = self._dispatcher
        if context.queue.topic.startswith(dispatcher.trace_topic):
            return
        traced = [message for message in context.messages if message.properties.get(names.TRACE_SWITCH) != "false"]
        if not traced:
            return
        region_id = traced[-1].properties.get(names.MSG_REGION)
        if region_id is None:
            return
        request_id = dispatcher.session.unique_ids.next_id()
        group = without_namespace(context.group)
        started_ms = context.started_ms or dispatcher.session.clock.time_ms()
        records = [
            TraceRecord(
                kind=TraceType.SUB_BEFORE,
                timestamp_ms=started_ms,
                region_id=region_id,
                group=group,
                topic=without_namespace(message.topic),
                request_id=request_id,
                message_id=message.message_id,
                retry_times=message.reconsume_times,
                keys=message.properties.get(names.KEYS),
            )
            for message in traced
        ]
        context.notes[self] = records
        dispatcher.append(records)

    def after_consume(self, context: ConsumeContext) -> None:
        records = context.notes.pop(self, None)
        if not isinstance(records, list):
            return
        now_ms = self._dispatcher.session.clock.time_ms()
        cost_ms = context.cost_ms // len(context.messages)
        self._dispatcher.append(
            [
                msgspec.structs.replace(
                    record,
                    kind=TraceType.SUB_AFTER,
                    timestamp_ms=now_ms,
                    cost_ms=cost_ms,
                    success=context.success,
                    return_code=int(context.return_type),
                )
                for record in records
            ]
        )


class EndTransactionTraceHook:
    """Tells of every decision about a transaction (Java: EndTransactionTraceHookImpl)."""

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def end_transaction(self, context: EndTransactionContext) -> None:
        message = context.message
        if message.topic.startswith(self._dispatcher.trace_topic):
            return
        properties = message.properties
        self._dispatcher.append(
            (
                TraceRecord(
                    kind=TraceType.END_TRANSACTION,
                    timestamp_ms=self._dispatcher.session.clock.time_ms(),
                    region_id=properties.get(names.MSG_REGION) or DEFAULT_REGION,
                    group=without_namespace(context.group),
                    topic=without_namespace(message.topic),
                    message_id=context.message_id,
                    tags=properties.get(names.TAGS),
                    keys=properties.get(names.KEYS),
                    store_host=context.broker_address,
                    message_type=MessageType.COMMIT,
                    transaction_id=context.transaction_id,
                    transaction_state=context.state,
                    from_check=context.from_check,
                ),
            )
        )
