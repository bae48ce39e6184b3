"""Records as the batches Spark takes, against the same messages one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.errors import RecordError
from fusee.message.batch import BatchElement, join_batch
from fusee.message.compression import compress, compressed_sys_flag, decompress_message
from fusee.message.flags import CompressionType, SysFlag, TransactionType
from fusee.message.ids import encode_offset_id
from fusee.message.model import StoredMessage
from fusee.message.properties import encode_properties
from fusee.message.record import decode_record, encode_record
from fusee.pipeline.batches import cut_records, record_batches
from fusee.pipeline.schema import COLUMNS, KAFKA_COLUMNS, arrow_schema
from tests.message import strategies

NAMES = tuple(column.name for column in COLUMNS)
KAFKA_NAMES = tuple(column.name for column in KAFKA_COLUMNS)
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def message(queue_offset: int = 0, body: bytes = b"body", **changes: Any) -> StoredMessage:
    properties = changes.pop("properties", {})
    record = StoredMessage(
        topic="orders",
        queue_id=2,
        queue_offset=queue_offset,
        log_offset=1000 * queue_offset,
        body=body,
        properties_bytes=encode_properties(properties),
        flag=0,
        sys_flag=0,
        born_timestamp_ms=1_700_000_000_123,
        born_host_bytes=HOST,
        store_timestamp_ms=1_700_000_000_456,
        store_host_bytes=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
    )
    return decode_record(encode_record(msgspec.structs.replace(record, **changes)))


def table(messages: list[StoredMessage], names: tuple[str, ...] = NAMES, **options: Any) -> pa.Table:
    given = [encode_record(each) for each in messages]
    batches = list(record_batches(given, names, broker_name="broker-a", **options))
    assert all(batch.schema.equals(arrow_schema(names)) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, arrow_schema(names))


def moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def place(record: StoredMessage) -> str:
    return (record.store_host_bytes + record.log_offset.to_bytes(8, "big", signed=True)).hex().upper()


def test_every_column() -> None:
    sent = message(
        7,
        b"value",
        properties={
            "KEYS": "k1 k2",
            "TAGS": "a",
            "UNIQ_KEY": "AB" * 16,
            "DELAY": "3",
            "TIMER_DELIVER_MS": "1700000000999",
            "colour": "red",
        },
        flag=5,
        reconsume_times=2,
        prepared_transaction_offset=9,
        sys_flag=TransactionType.COMMIT.value,
    )
    (row,) = table([sent]).to_pylist()
    assert row == {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 2,
        "queueOffset": 7,
        "logOffset": 7000,
        "keys": "k1 k2",
        "tags": "a",
        "body": b"value",
        "properties": list(sent.properties.items()),
        "bornTimestamp": moment(1_700_000_000_123),
        "storeTimestamp": moment(1_700_000_000_456),
        "bornHost": "127.0.0.1:10911",
        "storeHost": "127.0.0.1:10911",
        "reconsumeTimes": 2,
        "sysFlag": 8,
        "flag": 5,
        "msgId": "AB" * 16,
        "preparedTransactionOffset": 9,
        "transactionId": "AB" * 16,
        "delayLevel": 3,
        "deliverAt": moment(1_700_000_000_999),
    }


def test_a_message_without_properties() -> None:
    (row,) = table([message(1)]).to_pylist()
    assert row["msgId"] == encode_offset_id(HOST, 1000)
    assert row["properties"] == []
    assert [row[name] for name in ("keys", "tags", "transactionId", "delayLevel", "deliverAt")] == [None] * 5


def test_the_columns_of_kafka() -> None:
    (row,) = table([message(4, b"v", properties={"KEYS": "k"})], KAFKA_NAMES).to_pylist()
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 2,
        "offset": 4,
        "timestamp": moment(1_700_000_000_456),
        "timestampType": 1,
        "headers": [{"key": "KEYS", "value": b"k"}],
    }


def test_numbers_that_are_none_are_null() -> None:
    rows = table([message(1, properties={"DELAY": "soon"}), message(2, properties={"DELAY": "2"})]).to_pylist()
    assert [row["delayLevel"] for row in rows] == [None, 2]


def test_compressed_bodies_are_plain() -> None:
    body = b"0123456789" * 1000
    packed = message(1, compress(body, CompressionType.ZSTD), sys_flag=compressed_sys_flag(0, CompressionType.ZSTD))
    (row,) = table([packed], ("body", "sysFlag")).to_pylist()
    assert row == {"body": body, "sysFlag": compressed_sys_flag(0, CompressionType.ZSTD) & ~SysFlag.COMPRESSED}


@pytest.mark.parametrize("count", [1, 100])
def test_an_inner_batch_is_as_many_rows(count: int) -> None:
    elements = [BatchElement(number, b"%d" % number, encode_properties({"TAGS": "a"})) for number in range(3)]
    batch = message(50, join_batch(elements), sys_flag=SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)
    rows = table([message(number) for number in range(count)] + [batch], ("queueOffset", "body", "tags")).to_pylist()
    assert rows[count:] == [{"queueOffset": 50 + n, "body": b"%d" % n, "tags": "a"} for n in range(3)]
    cut = cut_records(encode_record(batch), 51, 52)
    assert decode_record(bytes(cut)).body == b"1"


@pytest.mark.parametrize("count", [5, 200])
def test_only_wanted_tags_stay(count: int) -> None:
    sent = [message(number, properties={"TAGS": ("Aa", "BB")[number % 2]}) for number in range(count)]
    rows = table(sent, ("queueOffset",), tags={"BB"}).to_pylist()
    assert [row["queueOffset"] for row in rows] == list(range(1, count, 2))


def test_batches_are_about_as_large_as_asked() -> None:
    records = b"".join(encode_record(message(number, b"x" * 900)) for number in range(5000))
    batches = list(record_batches([records], ("body",), broker_name="b", batch_size=100_000))
    assert 40 <= len(batches) <= 60
    small = [encode_record(message(number, b"x" * 900)) for number in range(1000)]
    sizes = [batch.num_rows for batch in record_batches(small, ("body",), broker_name="b", batch_size=100_000)]
    assert sum(sizes) == 1000
    assert len(sizes) <= 12
    assert list(record_batches([], ("body",), broker_name="b")) == []


def test_what_is_no_record_is_an_error() -> None:
    good = encode_record(message())
    for bad in (good[:-1], good + b"\0" * 30, good * 2000 + b"junk"):
        with pytest.raises(RecordError):
            list(record_batches([bad], ("body",), broker_name="b"))


@settings(max_examples=40, deadline=None)
@given(st.lists(strategies.stored_messages(), min_size=1, max_size=4), st.sampled_from([1, 60]))
def test_rows_equal_the_messages(drawn: list[StoredMessage], times: int) -> None:
    messages = [decode_record(encode_record(each)) for each in drawn] * times
    try:
        plain = [decompress_message(each, size_max=1 << 26) for each in messages]
    except Exception:  # noqa: BLE001  what cannot be decompressed is no row
        with pytest.raises(RecordError):
            table(messages)
        return
    if any(each.sys_flag & 0xC0 == 0xC0 for each in plain):
        return
    rows = table(messages, ("topic", "queueOffset", "body", "keys", "tags", "msgId", "bornHost")).to_pylist()
    assert rows == [
        {
            "topic": each.topic,
            "queueOffset": each.queue_offset,
            "body": each.body,
            "keys": each.properties.get("KEYS"),
            "tags": each.properties.get("TAGS"),
            "msgId": each.properties.get("UNIQ_KEY") or place(each),
            "bornHost": each.born_host,
        }
        for each in plain
    ]
