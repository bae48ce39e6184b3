from __future__ import annotations

import copy
import gc
import pickle

import msgspec
import pytest
from hypothesis import given

from fusee.errors import MessageError
from fusee.message import Message, MessageQueue, StoredMessage
from fusee.message.compression import compress, compressed_sys_flag, decompress_message
from fusee.message.flags import CompressionType
from fusee.message.hosts import pack_host
from fusee.message.properties import encode_properties
from fusee.message.record_layout import body_crc
from tests.message import strategies


def stored(properties: dict[str, str], body: bytes = b"body", sys_flag: int = 0) -> StoredMessage:
    return StoredMessage(
        topic="orders",
        queue_id=1,
        queue_offset=7,
        log_offset=255,
        body=body,
        properties_bytes=encode_properties(properties),
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host_bytes=pack_host("10.0.0.1", 4000),
        store_timestamp_ms=2,
        store_host_bytes=pack_host("10.0.0.2", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=body_crc(body),
    )


def test_message_when_described_carries_reserved_properties() -> None:
    message = Message.of(
        "orders",
        b"body",
        tag="paid",
        keys=["42", "43"],
        properties={"region": "eu"},
        flag=3,
        delay_level=2,
        sharding_key="customer-1",
        wait_stored=False,
    )
    assert message.properties == {
        "region": "eu",
        "TAGS": "paid",
        "KEYS": "42 43",
        "DELAY": "2",
        "__SHARDINGKEY": "customer-1",
        "WAIT": "false",
    }
    assert (message.topic, message.body, message.flag) == ("orders", b"body", 3)
    assert (message.tag, message.keys, message.delay_level) == ("paid", ("42", "43"), 2)
    assert (message.sharding_key, message.wait_stored, message.is_delayed) == ("customer-1", False, True)


def test_message_when_nothing_is_described_has_no_properties() -> None:
    message = Message.of("orders", b"")
    assert message.properties == {}
    assert (message.tag, message.keys, message.delay_level, message.unique_id) == (None, (), 0, None)
    assert message.wait_stored
    assert not message.is_delayed
    assert not message.is_transactional
    assert message == Message("orders", b"")


@pytest.mark.parametrize(("argument", "name"), [("delay_ms", "TIMER_DELAY_MS"), ("deliver_at_ms", "TIMER_DELIVER_MS")])
def test_message_when_delayed_by_time_uses_the_timer(argument: str, name: str) -> None:
    message = Message.of("orders", b"", **{argument: 1500})  # type: ignore[arg-type]
    assert message.properties == {name: "1500"}
    assert message.is_delayed


@pytest.mark.parametrize(
    "arguments",
    [
        {"properties": {"TAGS": "x"}},
        {"properties": {"UNIQ_KEY": "x"}},
        {"properties": {"n": ""}},
        {"properties": {"n": 5}},
        {"properties": {"n": "a\x01b"}},
        {"tag": "a\x02b"},
        {"keys": ["a b"]},
        {"keys": ["a", ""]},
        {"keys": "a\x02b"},
        {"sharding_key": "\x01"},
        {"delay_level": -1},
        {"delay_ms": -1},
        {"delay_level": 1, "delay_ms": 1},
        {"delay_ms": 1, "deliver_at_ms": 1},
    ],
)
def test_message_when_description_cannot_be_carried_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(MessageError):
        Message.of("orders", b"", **arguments)  # type: ignore[arg-type]


def test_keys_when_given_as_one_text_are_split_at_spaces() -> None:
    assert Message.of("orders", b"", keys=" 42  43 ").keys == ("42", "43")


def test_message_when_given_more_properties_is_a_new_one() -> None:
    message = Message.of("orders", b"", tag="a")
    marked = message.with_properties({"UNIQ_KEY": "ID", "TRAN_MSG": "true"})
    assert marked.unique_id == "ID"
    assert marked.is_transactional
    assert message.unique_id is None


def test_message_when_changed_in_place_refuses() -> None:
    message = Message.of("orders", b"", tag="a")
    with pytest.raises(AttributeError):
        message.topic = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        message.properties["TAGS"] = "b"  # type: ignore[index]


def test_values_when_pickled_or_copied_come_back_equal() -> None:
    message = Message.of("orders", b"x", tag="a")
    record = stored({"TAGS": "a"})
    assert record.properties == {"TAGS": "a"}
    queue = MessageQueue("orders", "broker-a", 3)
    for value in (message, record, queue):
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.copy(value) == value


def test_delay_level_when_no_number_is_refused() -> None:
    with pytest.raises(MessageError, match="'DELAY' is 'soon'"):
        _ = Message("orders", b"", {"DELAY": "soon"}).delay_level


def test_queues_when_sorted_go_by_topic_broker_and_number() -> None:
    queues = [
        MessageQueue("b", "x", 0),
        MessageQueue("a", "y", 0),
        MessageQueue("a", "x", 10),
        MessageQueue("a", "x", 2),
    ]
    assert sorted(queues) == queues[::-1]
    assert len({*queues, MessageQueue("b", "x", 0)}) == 4


def test_stored_message_when_asked_decodes_hosts_properties_and_ids() -> None:
    message = stored({"TAGS": "paid", "KEYS": "1 2", "UNIQ_KEY": "ID", "DELAY": "3", "WAIT": "False"})
    assert (message.tag, message.keys, message.unique_id, message.message_id) == (
        "paid",
        ("1", "2"),
        "ID",
        "ID",
    )
    assert (message.born_host, message.store_host) == ("10.0.0.1:4000", "10.0.0.2:10911")
    assert message.offset_id == "0A00000200002A9F00000000000000FF"
    assert (message.delay_level, message.wait_stored) == (3, False)
    assert message.properties["TAGS"] == "paid"
    assert message.properties is message.properties


def test_stored_message_when_bare_has_the_offset_id() -> None:
    message = stored({})
    assert message.message_id == message.offset_id
    assert (message.tag, message.keys, message.unique_id, message.wait_stored) == (None, (), None, True)


def test_stored_message_when_properties_were_looked_at_is_still_equal() -> None:
    first, second = stored({"a": "b"}), stored({"a": "b"})
    assert first.properties == {"a": "b"}
    assert first == second
    assert hash(first) == hash(second)


def test_stored_message_when_made_is_not_tracked_by_the_collector() -> None:
    assert not gc.is_tracked(stored({"a": "b"}))


@given(strategies.stored_messages())
def test_stored_message_when_any_tag_agrees_with_the_decoded_properties(message: StoredMessage) -> None:
    assert message.tag == message.properties.get("TAGS")
    assert message.unique_id == message.properties.get("UNIQ_KEY")


@pytest.mark.parametrize("kind", CompressionType)
def test_decompress_message_when_compressed_gives_a_plain_one(kind: CompressionType) -> None:
    packed = compress(b"plain", kind)
    message = stored({"a": "b"}, packed, compressed_sys_flag(8, kind))
    plain = decompress_message(message)
    assert plain.body == b"plain"
    assert plain.sys_flag == kind.flag | 8
    assert msgspec.structs.replace(plain, body=packed, sys_flag=message.sys_flag) == message
    assert decompress_message(plain) is plain
    with pytest.raises(MessageError, match="limit of 4 "):
        decompress_message(message, size_max=4)
