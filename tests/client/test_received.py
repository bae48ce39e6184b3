"""A message read from the bytes that brought it says the same as the record decoded at once."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given

from fusee.client.received import ReceivedMessage, count_failure
from fusee.errors import MessageError
from fusee.message.compression import compress, compressed_sys_flag
from fusee.message.flags import CompressionType, SysFlag
from fusee.message.hosts import pack_host
from fusee.message.model import MessageQueue, StoredMessage
from fusee.message.properties import encode_properties
from fusee.message.record_layout import body_crc
from tests.message.strategies import stored_messages


def stored(
    body: bytes = b"hello",
    *,
    topic: str = "orders",
    properties: dict[str, str] | None = None,
    sys_flag: int = 0,
    queue_offset: int = 7,
    reconsume_times: int = 0,
) -> StoredMessage:
    return StoredMessage(
        topic=topic,
        queue_id=3,
        queue_offset=queue_offset,
        log_offset=4096,
        body=body,
        properties_bytes=encode_properties(properties or {}),
        flag=5,
        sys_flag=sys_flag,
        born_timestamp_ms=1_700_000_000_123,
        born_host_bytes=pack_host("10.0.0.7", 40000),
        store_timestamp_ms=1_700_000_000_456,
        store_host_bytes=pack_host("10.0.0.1", 10911),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=99,
        body_crc=body_crc(body),
    )


def received(message: StoredMessage | None = None) -> ReceivedMessage:
    return ReceivedMessage.of(message or stored(), "broker-a")


@given(stored_messages())
def test_of_when_any_record_reads_as_the_record_does(message: StoredMessage) -> None:
    got = received(message)
    assert got.queue == MessageQueue(message.topic, "broker-a", message.queue_id)
    assert (got.broker_name, got.queue_id, got.queue_offset) == ("broker-a", message.queue_id, message.queue_offset)
    assert got.log_offset == message.log_offset
    assert (got.flag, got.sys_flag) == (message.flag, message.sys_flag)
    assert got.born_timestamp_ms == message.born_timestamp_ms
    assert got.store_timestamp_ms == message.store_timestamp_ms
    assert (got.born_host, got.store_host) == (message.born_host, message.store_host)
    assert got.reconsume_times == message.reconsume_times
    assert got.prepared_transaction_offset == message.prepared_transaction_offset
    assert got.properties_bytes == message.properties_bytes
    # in either order of asking: from the bytes, and from the properties decoded before
    for _ in range(2):
        assert (got.tag, got.keys) == (message.tag, message.keys)
        assert got.properties == message.properties
    if not message.sys_flag & SysFlag.COMPRESSED:
        assert got.body == message.body
    if not message.topic.startswith("%RETRY%"):
        assert got.topic == message.topic
    again = got.stored()
    assert again == msgspec.structs.replace(message, store_size=again.store_size)


def test_message_when_looked_at_gives_what_an_application_wants() -> None:
    got = received(
        stored(
            properties={"TAGS": "paid", "KEYS": "a b", "UNIQ_KEY": "ID1", "__SHARDINGKEY": "c7", "DELAY": "4", "x": "y"}
        )
    )
    assert (got.topic, got.body, got.tag, got.keys) == ("orders", b"hello", "paid", ("a", "b"))
    assert (got.message_id, got.sharding_key, got.delay_level) == ("ID1", "c7", 4)
    assert got.properties["x"] == "y"
    assert got.born_at == datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert got.stored_at == datetime(2023, 11, 14, 22, 13, 20, 456000, UTC)
    assert got.offset_id == "0A00000100002A9F0000000000001000"
    assert "ID1 of orders, queue 3 on broker-a, offset 7" in repr(got)


def test_message_when_bare_has_no_tag_keys_or_unique_id() -> None:
    got = received()
    assert (got.tag, got.keys, got.sharding_key, got.transaction_id, got.delay_level) == (None, (), None, None, 0)
    assert got.message_id == got.offset_id


def test_topic_when_tried_again_is_the_one_it_was_sent_to() -> None:
    got = received(stored(topic="%RETRY%billing", properties={"RETRY_TOPIC": "orders"}, reconsume_times=2))
    assert got.topic == "orders"
    assert got.queue.topic == "%RETRY%billing"
    assert got.reconsume_times == 2


def test_topic_when_retry_topic_is_not_told_is_that_of_the_queue() -> None:
    assert received(stored(topic="%RETRY%billing")).topic == "%RETRY%billing"


@pytest.mark.parametrize("kind", list(CompressionType))
def test_body_when_compressed_is_plain_and_made_once(kind: CompressionType) -> None:
    plain = b"again and " * 1000
    got = received(stored(compress(plain, kind), sys_flag=compressed_sys_flag(0, kind)))
    assert got.body == plain
    assert got.body is got.body
    assert got.stored().body != plain


def test_body_when_compressed_form_is_damaged_raises() -> None:
    got = received(stored(b"not zlib", sys_flag=compressed_sys_flag(0, CompressionType.ZLIB)))
    with pytest.raises(MessageError, match="not valid ZLIB"):
        _ = got.body


def test_transaction_id_when_sent_in_a_transaction_is_told() -> None:
    assert received(stored(properties={"TRAN_MSG": "true", "UNIQ_KEY": "U"})).transaction_id == "U"


def test_count_failure_when_tried_here_adds_to_the_times() -> None:
    got = received(stored(reconsume_times=2))
    count_failure(got)
    assert got.reconsume_times == 3


def test_pickle_when_sent_elsewhere_takes_its_own_record_along() -> None:
    got = received(stored(properties={"TAGS": "paid"}))
    count_failure(got)
    copy = pickle.loads(pickle.dumps(got))
    assert (copy.body, copy.tag, copy.queue, copy.queue_offset) == (got.body, got.tag, got.queue, got.queue_offset)
    assert copy.reconsume_times == 1
    assert copy != got


def test_message_when_assigned_to_refuses() -> None:
    with pytest.raises(AttributeError):
        received().queue_offset = 1  # type: ignore[misc]


def test_delay_level_when_no_number_names_it() -> None:
    with pytest.raises(MessageError, match="'DELAY' is 'soon'"):
        _ = received(stored(properties={"DELAY": "soon"})).delay_level
