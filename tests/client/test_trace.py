"""Traces: the text that Java 5.5.0 writes and reads, and the way there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.hooks import (
    AccessChannel,
    ConsumeContext,
    ConsumeReturn,
    EndTransactionContext,
    MessageType,
    SendContext,
    TransactionState,
)
from fusee.client.producer import Producer
from fusee.client.received import ReceivedMessage
from fusee.client.results import SendResult, SendStatus
from fusee.client.trace import (
    BODY_SIZE_MAX,
    WAITING_MAX,
    ConsumeTraceHook,
    EndTransactionTraceHook,
    SendTraceHook,
    TraceDispatcher,
    TraceRecord,
    TraceType,
    decode_trace,
    encode_record,
    trace_group,
    trace_keys,
)
from fusee.client.transaction import TransactionProducer
from fusee.clock import ManualClock
from fusee.errors import ConnectError, TopicNotFoundError
from fusee.message import properties as names
from fusee.message.ids import UniqueIds
from fusee.message.model import Message, MessageQueue, StoredMessage
from fusee.message.properties import encode_properties
from fusee.message.topics import TRACE_TOPIC
from tests.client.world import ClusterWorld, play

GOLDEN = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "golden" / "client" / "trace.jsonl").read_text().splitlines()
]
ENCODED = [case for case in GOLDEN if case["case"] == "encode"]
DECODED = [case for case in GOLDEN if case["case"] == "decode"]
QUEUE = MessageQueue("orders", "broker-a", 0)


def _records(context: dict[str, Any]) -> list[TraceRecord]:
    """The records of a context as Java holds it."""
    return [
        TraceRecord(
            kind=TraceType(context["kind"]),
            timestamp_ms=context["timestamp_ms"],
            region_id=context["region_id"],
            group=context["group"],
            cost_ms=context["cost_ms"],
            success=context["success"],
            request_id=context["request_id"],
            return_code=context["context_code"],
            topic=bean["topic"],
            message_id=bean["message_id"],
            offset_id=bean["offset_id"],
            tags=bean["tags"],
            keys=bean["keys"],
            store_host=bean["store_host"],
            retry_times=bean["retry_times"],
            body_size=bean["body_size"],
            message_type=MessageType(bean["message_type"] or 0),
            transaction_id=bean["transaction_id"],
            transaction_state=TransactionState(bean["transaction_state"] or "UNKNOW"),
            from_check=bean["from_check"],
        )
        for bean in context["beans"]
    ]


@pytest.mark.parametrize("case", ENCODED, ids=lambda case: case["context"]["kind"])
def test_encode_writes_what_java_writes(case: dict[str, Any]) -> None:
    access = AccessChannel(case["context"]["access"] or "LOCAL")
    records = _records(case["context"])
    assert "".join(encode_record(record, access) for record in records) == case["data"]
    assert sorted(trace_keys(records)) == [key for key in case["keys"] if key]


_WRITTEN_FIELDS = {
    "Pub": "timestamp_ms region_id group topic message_id tags keys store_host body_size cost_ms message_type "
    "offset_id success",
    "SubBefore": "timestamp_ms region_id group request_id message_id retry_times keys",
    "SubAfter": "request_id message_id cost_ms success keys return_code timestamp_ms group",
    "EndTransaction": "timestamp_ms region_id group topic message_id tags keys store_host message_type transaction_id "
    "transaction_state from_check",
    "Recall": "timestamp_ms region_id group topic message_id success",
}


@pytest.mark.parametrize("case", [case for case in DECODED if "contexts" in case], ids=lambda case: case["data"][:30])
def test_decode_reads_what_java_reads(case: dict[str, Any]) -> None:
    decoded = decode_trace(case["data"].encode())
    expected = [record for context in case["contexts"] for record in _records(context)]
    assert len(decoded) == len(expected)
    for ours, java in zip(decoded, expected, strict=True):
        assert ours.kind is java.kind
        for name in _WRITTEN_FIELDS[java.kind.value].split():
            value = getattr(java, name)
            assert getattr(ours, name) == (None if value == "null" else value), name


def test_decode_reads_client_host_of_older_releases() -> None:
    hosts = [record.client_host for case in DECODED for record in decode_trace(case["data"].encode())]
    assert hosts.count("10.9.9.9") == 2


def test_decode_when_one_record_is_broken_keeps_the_others() -> None:
    good = encode_record(TraceRecord(kind=TraceType.RECALL, message_id="ID"))
    for case in DECODED:
        if "error" in case:
            decoded = decode_trace((good + case["data"] + good).encode())
            # Java fails on an empty last field; here it is read
            assert [record.message_id for record in decoded if record.kind is TraceType.RECALL] == ["ID", "ID"]
    assert decode_trace(b"\xff\xfe") == []


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=12)
_ABSENT_OR_TEXT = st.none() | _TEXT.filter(lambda text: text != "null")


@given(
    st.builds(
        TraceRecord,
        kind=st.sampled_from(TraceType),
        timestamp_ms=st.integers(0, 2**62),
        region_id=_ABSENT_OR_TEXT,
        group=_TEXT,
        topic=_TEXT,
        message_id=_TEXT,
        offset_id=_TEXT,
        tags=_ABSENT_OR_TEXT,
        keys=_ABSENT_OR_TEXT,
        store_host=_TEXT,
        body_size=st.integers(0, 2**31),
        cost_ms=st.integers(0, 2**31),
        message_type=st.sampled_from(MessageType),
        success=st.booleans(),
        request_id=_TEXT,
        retry_times=st.integers(0, 16),
        return_code=st.integers(0, 4),
        transaction_id=_ABSENT_OR_TEXT,
        transaction_state=st.sampled_from(TransactionState),
        from_check=st.booleans(),
    )
)
def test_what_is_encoded_is_decoded(record: TraceRecord) -> None:
    (decoded,) = decode_trace(encode_record(record).encode())
    assert decoded.kind is record.kind
    for name in _WRITTEN_FIELDS[record.kind.value].split():
        assert getattr(decoded, name) == getattr(record, name), name


# The dispatcher


class _Outlet:
    """A producer in the hands of the test: sends are answered when it says so."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.futures: list[asyncio.Future[SendResult]] = []
        self.refuse: Exception | None = None
        self.is_held = False
        self.is_started = self.is_closed = False

    async def start(self) -> None:
        self.is_started = True

    async def close(self) -> None:
        self.is_closed = True

    def send(self, message: Message, /, *, timeout_ms: int | None = None) -> asyncio.Future[SendResult]:
        if self.refuse is not None:
            raise self.refuse
        self.sent.append(message)
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        if not self.is_held:
            future.set_result(SendResult(SendStatus.SEND_OK, "ID", "OFFSET", QUEUE, 0))
        return future

    @property
    def records(self) -> list[TraceRecord]:
        return [record for message in self.sent for record in decode_trace(message.body)]


class _Party:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = self.clock
        self.unique_ids = UniqueIds(clock=self.clock, ip=b"\x7f\0\0\x01", pid=1, seed=2)


class _Stage:
    def __init__(self, **options: Any) -> None:
        self.party = _Party()
        self.clock = self.party.clock
        self.outlet = _Outlet()
        self.dispatcher = TraceDispatcher(self.party, self.outlet, **options)


def _play(scene: Callable[[_Stage], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def run() -> None:
        stage = _Stage(**options)
        await stage.dispatcher.start()
        await scene(stage)
        await stage.dispatcher.close()
        assert stage.outlet.is_closed
        assert stage.clock.next_due is None

    asyncio.run(run())


def _recall(number: int, topic: str = "orders", **more: Any) -> tuple[TraceRecord]:
    return (
        TraceRecord(kind=TraceType.RECALL, topic=topic, message_id=f"ID{number}", region_id="DefaultRegion", **more),
    )


def test_append_when_batch_is_full_sends_it_at_once() -> None:
    async def scene(stage: _Stage) -> None:
        for number in range(10):
            assert not stage.outlet.sent
            stage.dispatcher.append(_recall(number, keys="k"))
        (message,) = stage.outlet.sent
        assert message.topic == TRACE_TOPIC
        assert message.keys == ("ID0", "k", *(f"ID{number}" for number in range(1, 10)))
        assert [record.message_id for record in decode_trace(message.body)] == [f"ID{number}" for number in range(10)]

    _play(scene)


def test_append_when_little_comes_sends_after_five_seconds() -> None:
    async def scene(stage: _Stage) -> None:
        stage.dispatcher.append(_recall(1))
        stage.clock.advance(0.01)
        assert [record.message_id for record in stage.outlet.records] == ["ID1"]
        stage.dispatcher.append(_recall(2))
        stage.clock.advance(4.9)
        assert len(stage.outlet.sent) == 1
        stage.clock.advance(0.1)
        assert [record.message_id for record in stage.outlet.records] == ["ID1", "ID2"]

    _play(scene)


def test_batch_is_parted_by_topic_and_by_region_in_the_cloud() -> None:
    async def scene(stage: _Stage) -> None:
        stage.dispatcher.append(_recall(1, "a"))
        stage.dispatcher.append(_recall(2, "b"))
        stage.dispatcher.append(_recall(3, "a"))
        stage.dispatcher.flush()
        assert [[record.message_id for record in decode_trace(message.body)] for message in stage.outlet.sent] == [
            ["ID1", "ID3"],
            ["ID2"],
        ]
        assert {message.topic for message in stage.outlet.sent} == {"rmq_sys_TRACE_DATA_DefaultRegion"}

    _play(scene, access=AccessChannel.CLOUD)


def test_batch_beyond_body_limit_is_parted() -> None:
    async def scene(stage: _Stage) -> None:
        records = [TraceRecord(kind=TraceType.SUB_AFTER, message_id="I" * 64, group="g" * 200) for _ in range(1024)]
        stage.dispatcher.append(records)
        stage.dispatcher.flush()
        assert len(stage.outlet.sent) == 3
        assert all(len(message.body) <= BODY_SIZE_MAX for message in stage.outlet.sent)
        assert all(message.keys == ("I" * 64,) for message in stage.outlet.sent)
        assert len(stage.outlet.records) == 1024

    _play(scene)


def test_batch_beyond_property_limit_is_parted() -> None:
    async def scene(stage: _Stage) -> None:
        records = [TraceRecord(kind=TraceType.SUB_AFTER, message_id=f"{number:032X}") for number in range(1024)]
        stage.dispatcher.append(records)
        stage.dispatcher.flush()
        assert len(stage.outlet.sent) == 2
        for message in stage.outlet.sent:
            assert len(encode_properties(message.properties)) < 32_000
            assert list(message.keys) == [record.message_id for record in decode_trace(message.body)]

    _play(scene)


def test_when_trace_topic_is_slow_records_wait_then_are_dropped_and_counted() -> None:
    async def scene(stage: _Stage) -> None:
        stage.outlet.is_held = True
        for number in range(320 + WAITING_MAX):
            assert stage.dispatcher.append(_recall(number))
        assert len(stage.outlet.sent) == 32
        assert not stage.dispatcher.append(_recall(9999))
        assert stage.dispatcher.discarded == 1
        stage.outlet.is_held = False
        for future in stage.outlet.futures[:32]:
            future.set_result(SendResult(SendStatus.SEND_OK, "ID", "OFFSET", QUEUE, 0))
        await asyncio.sleep(0)
        await stage.dispatcher.close()
        assert len(stage.outlet.records) == 320 + WAITING_MAX
        assert (stage.dispatcher.discarded, stage.dispatcher.failed) == (1, 0)

    _play(scene)


def test_close_when_nothing_is_answered_gives_up_after_five_seconds() -> None:
    async def scene(stage: _Stage) -> None:
        stage.outlet.is_held = True
        for number in range(330):
            stage.dispatcher.append(_recall(number))
        closing = asyncio.ensure_future(stage.dispatcher.close())
        await asyncio.sleep(0)
        stage.clock.advance(4.9)
        await asyncio.sleep(0)
        assert not closing.done()
        stage.clock.advance(0.1)
        await closing
        assert stage.dispatcher.discarded == 10
        for future in stage.outlet.futures:
            future.cancel()
        await asyncio.sleep(0)

    _play(scene)


def test_close_sends_what_waits() -> None:
    async def scene(stage: _Stage) -> None:
        stage.dispatcher.append(_recall(1))
        await stage.dispatcher.close()
        assert len(stage.outlet.records) == 1
        assert not stage.dispatcher.append(_recall(2))
        assert stage.dispatcher.discarded == 1

    _play(scene)


def test_when_trace_topic_refuses_it_is_said_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: _Stage) -> None:
        stage.outlet.is_held = True
        stage.dispatcher.append(_recall(1))
        stage.dispatcher.flush()
        stage.outlet.futures[0].set_exception(ConnectError("broker is gone"))
        await asyncio.sleep(0)
        stage.outlet.refuse = TopicNotFoundError("no trace topic", code=17)
        stage.dispatcher.append(_recall(2))
        stage.dispatcher.flush()
        assert stage.dispatcher.failed == 2
        stage.outlet.refuse, stage.outlet.is_held = None, False
        stage.dispatcher.append(_recall(3))
        stage.dispatcher.flush()
        assert len(stage.outlet.sent) == 2

    _play(scene)
    assert [record.getMessage() for record in caplog.records] == [
        "traces are lost, RMQ_SYS_TRACE_TOPIC takes none: broker is gone"
    ]


def test_group_of_trace_producer_names_whose_traces_it_sends() -> None:
    assert trace_group("producers", "PRODUCE") == "_INNER_TRACE_PRODUCER-producers-PRODUCE-1"


# What is traced


def _sent(message: Message, **result: Any) -> SendContext:
    values: dict[str, Any] = {"region_id": "eu", **result}
    return SendContext(
        "ns%producers",
        message.topic,
        message,
        QUEUE,
        "10.0.0.1:10911",
        message_type=MessageType.DELAY,
        started_ms=1_700_000_000_000,
        cost_ms=7,
        result=SendResult(values.pop("status", SendStatus.SEND_OK), "UNIQUE", "OFFSET", QUEUE, 3, **values),
    )


def _traced(send: SendContext) -> list[TraceRecord]:
    found: list[TraceRecord] = []

    async def scene(stage: _Stage) -> None:
        hook = SendTraceHook(stage.dispatcher)
        hook.before_send(send)
        hook.after_send(send)
        stage.dispatcher.flush()
        found.extend(stage.outlet.records)

    _play(scene)
    return found


def test_stored_message_is_traced() -> None:
    message = Message.of("ns%orders", b"12345", tag="paid", keys=["a", "b"])
    (record,) = _traced(_sent(message))
    assert record == TraceRecord(
        kind=TraceType.PUB,
        timestamp_ms=1_700_000_000_000,
        region_id="eu",
        group="producers",
        topic="orders",
        message_id="UNIQUE",
        offset_id="OFFSET",
        tags="paid",
        keys="a b",
        store_host="10.0.0.1:10911",
        body_size=5,
        cost_ms=7,
        message_type=MessageType.DELAY,
        success=True,
    )


def test_message_stored_but_not_flushed_is_traced_as_failed() -> None:
    (record,) = _traced(_sent(Message.of("orders", b""), status=SendStatus.FLUSH_DISK_TIMEOUT, region_id=""))
    assert (record.success, record.region_id, record.tags) == (False, "DefaultRegion", None)


def test_failed_send_and_trace_topic_and_switched_off_are_not_traced() -> None:
    message = Message.of("orders", b"")
    failed = _sent(message)
    failed.result, failed.error = None, ConnectError("gone")
    assert _traced(failed) == []
    assert _traced(_sent(message, trace_on=False)) == []
    assert _traced(_sent(Message.of(TRACE_TOPIC, b""))) == []


def _received(number: int, topic: str = "orders", region: str | None = "eu", **properties: str) -> ReceivedMessage:
    stored = StoredMessage(
        topic=topic,
        queue_id=0,
        queue_offset=number,
        log_offset=0,
        body=b"body",
        properties_bytes=encode_properties(
            {names.UNIQ_KEY: f"ID{number}", **({names.MSG_REGION: region} if region else {}), **properties}
        ),
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host_bytes=bytes(8),
        store_timestamp_ms=0,
        store_host_bytes=bytes(8),
        reconsume_times=number,
        prepared_transaction_offset=0,
        body_crc=0,
    )
    return ReceivedMessage.of(stored, "broker-a")


def test_listener_call_is_traced_before_and_after() -> None:
    async def scene(stage: _Stage) -> None:
        hook = ConsumeTraceHook(stage.dispatcher)
        messages = [_received(1, KEYS="k"), _received(2, TRACE_ON="false"), _received(3, TRACE_ON="true")]
        context = ConsumeContext("consumers", QUEUE, messages)
        hook.before_consume(context)
        stage.clock.advance(0.5)
        context.success, context.cost_ms, context.return_type = False, 500, ConsumeReturn.EXCEPTION
        hook.after_consume(context)
        stage.dispatcher.flush()
        before, after = stage.outlet.records[:2], stage.outlet.records[2:]
        assert [(record.kind, record.message_id, record.keys, record.retry_times) for record in before] == [
            (TraceType.SUB_BEFORE, "ID1", "k", 1),
            (TraceType.SUB_BEFORE, "ID3", None, 3),
        ]
        assert {(record.timestamp_ms, record.region_id, record.group) for record in before} == {
            (1_700_000_000_000, "eu", "consumers")
        }
        assert [(record.kind, record.message_id, record.cost_ms, record.success) for record in after] == [
            (TraceType.SUB_AFTER, "ID1", 166, False),
            (TraceType.SUB_AFTER, "ID3", 166, False),
        ]
        assert {(record.timestamp_ms, record.return_code) for record in after} == {(1_700_000_000_500, 2)}
        assert len({record.request_id for record in before + after}) == 1

    _play(scene)


def test_listener_call_without_region_or_of_trace_topic_is_not_traced() -> None:
    async def scene(stage: _Stage) -> None:
        hook = ConsumeTraceHook(stage.dispatcher)
        for context in (
            ConsumeContext("consumers", QUEUE, [_received(1, TRACE_ON="false")]),
            ConsumeContext("consumers", QUEUE, [_received(1, region=None)]),
            ConsumeContext("consumers", MessageQueue(TRACE_TOPIC, "broker-a", 0), [_received(1, TRACE_TOPIC)]),
        ):
            hook.before_consume(context)
            hook.after_consume(context)
        stage.dispatcher.flush()
        assert stage.outlet.sent == []

    _play(scene)


def test_end_of_transaction_is_traced() -> None:
    async def scene(stage: _Stage) -> None:
        hook = EndTransactionTraceHook(stage.dispatcher)
        message = Message.of("orders", b"", tag="paid")
        for topic in ("orders", TRACE_TOPIC):
            hook.end_transaction(
                EndTransactionContext(
                    "producers",
                    Message(topic, b"", message.properties),
                    "10.0.0.1:10911",
                    "UNIQUE",
                    "TX",
                    TransactionState.ROLLBACK,
                    from_check=True,
                )
            )
        stage.dispatcher.flush()
        (record,) = stage.outlet.records
        assert record == TraceRecord(
            kind=TraceType.END_TRANSACTION,
            timestamp_ms=1_700_000_000_000,
            region_id="DefaultRegion",
            group="producers",
            topic="orders",
            message_id="UNIQUE",
            tags="paid",
            store_host="10.0.0.1:10911",
            message_type=MessageType.COMMIT,
            transaction_id="TX",
            transaction_state=TransactionState.ROLLBACK,
            from_check=True,
        )

    _play(scene)


# All of it together


def test_life_of_a_message_is_found_in_the_trace_topic() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        session = await world.session()
        tracing = TraceDispatcher.of(session, "payments", "PRODUCE")
        producer = Producer(session, group="payments", hooks=(SendTraceHook(tracing),))

        async def check(message: ReceivedMessage) -> bool:
            return True

        transactions = TransactionProducer(producer, check=check, hooks=(EndTransactionTraceHook(tracing),))
        await world.do(transactions.start())
        await world.do(tracing.start())

        async def block() -> None:
            async with transactions.transaction("orders", b"paid", tag="t", key="42"):
                pass

        await world.do(block())
        await world.do(transactions.close())
        await world.do(tracing.close())
        await world.advance(0.1)
        (trace,) = world.stored(TRACE_TOPIC)
        (order,) = world.stored("orders")
        assert trace.keys == (order.unique_id, "42")
        sent, ended = decode_trace(trace.body)
        assert (sent.kind, sent.message_type, ended.kind) == (
            TraceType.PUB,
            MessageType.HALF,
            TraceType.END_TRANSACTION,
        )
        for record in (sent, ended):
            assert (record.message_id, record.group, record.topic) == (order.unique_id, "payments", "orders")
            assert (record.store_host, record.tags, record.keys) == ("10.0.0.1:10911", "t", "42")
            assert record.region_id == "DefaultRegion"
        assert (ended.transaction_state, ended.transaction_id) == (TransactionState.COMMIT, order.unique_id)

    play(scene)


def test_when_there_is_no_trace_topic_sending_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        session = await world.session()
        tracing = TraceDispatcher.of(session, "payments", "PRODUCE", trace_topic="MY_TRACES")
        producer = Producer(session, group="payments", hooks=(SendTraceHook(tracing),))
        await world.do(producer.start())
        await world.do(tracing.start())

        async def send() -> None:
            for number in range(25):
                await producer.send("orders", f"{number}")

        await world.do(send())
        await world.do(producer.close())
        await world.do(tracing.close())
        await world.advance(0.1)
        assert len(world.stored("orders")) == 25
        assert tracing.failed == 3

    play(scene, auto_create_topic_enable=False)
    assert "traces are lost, MY_TRACES takes none" in caplog.text
