"""From what an application says to what travels."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.content import (
    Compression,
    identified,
    message_of,
    order_text,
    plain_property_text,
    property_text,
    system_flag,
)
from fusee.errors import ConfigError, MessageError
from fusee.message.compression import decompress
from fusee.message.flags import CompressionType
from fusee.message.model import Message
from fusee.message.properties import decode_properties


def test_message_has_what_was_said() -> None:
    message = message_of(
        "orders", "größe", tag="paid", key="42", properties={"region": "eu"}, flag=3, order_by=7, wait_stored=False
    )
    assert message.body == "größe".encode()
    assert (message.tag, message.keys, message.flag, message.sharding_key) == ("paid", ("42",), 3, "7")
    assert not message.wait_stored
    assert message.properties["region"] == "eu"


def test_value_becomes_json() -> None:
    assert message_of("orders", {"id": 1}).body == b'{"id":1}'


@pytest.mark.parametrize(
    ("said", "name", "value"),
    [
        ({"deliver_in": 1.5}, "TIMER_DELAY_MS", "1500"),
        ({"deliver_in": timedelta(minutes=1)}, "TIMER_DELAY_MS", "60000"),
        ({"deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, "TIMER_DELIVER_MS", "1893456000000"),
        ({"delay_level": 4}, "DELAY", "4"),
    ],
)
def test_delay_is_written_as_java_writes_it(said: dict[str, Any], name: str, value: str) -> None:
    message = message_of("orders", b"x", **said)
    assert message.properties[name] == value
    assert message.is_delayed


@pytest.mark.parametrize(
    "said",
    [
        {"delay_level": 1, "deliver_in": 1},
        {"deliver_in": -1},
        {"key": "a", "keys": ["b"]},
        {"key": "two words"},
        {"properties": {"KEYS": "a"}},
        {"order_by": ""},
    ],
)
def test_contradiction_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        message_of("orders", b"x", **said)


def test_empty_order_key_is_refused_with_the_reason() -> None:
    with pytest.raises(MessageError, match="order_by is empty"):
        order_text("")


def test_id_and_wait_are_added_once() -> None:
    message = identified(Message("orders", b"x"), "ID1")
    assert message.properties == {"UNIQ_KEY": "ID1", "WAIT": "true"}
    assert identified(message, "ID2") is message


TEXTS = st.none() | st.text(max_size=12)


@given(tag=TEXTS, key=TEXTS, order=st.none() | st.text(min_size=1, max_size=12))
def test_short_way_says_the_same_as_the_long_one_or_steps_aside(
    tag: str | None, key: str | None, order: str | None
) -> None:
    try:
        expected = identified(message_of("orders", b"x", tag=tag, key=key, order_by=order), "ID")
        text: str | None = property_text(expected)
    except MessageError:
        text = None
    try:
        short = plain_property_text("ID", tag, key, order)
    except MessageError:
        assert text is None
        return
    if short is not None:
        assert text is not None
        assert decode_properties(short.encode()) == decode_properties(text.encode())


def test_short_way_is_taken_by_a_usual_message() -> None:
    text = plain_property_text("ID", "paid", "42", "customer-7")
    assert text == "UNIQ_KEY\x01ID\x02WAIT\x01true\x02TAGS\x01paid\x02KEYS\x0142\x02__SHARDINGKEY\x01customer-7\x02"


def test_short_way_is_left_to_short_texts() -> None:
    assert plain_property_text("ID", None, "k" * 9_000, None) is None


def test_half_message_has_its_bit() -> None:
    assert system_flag(Message("orders", b"x", {"TRAN_MSG": "true"})) == 0x4
    assert system_flag(Message("orders", b"x")) == 0


@pytest.mark.parametrize("kind", list(CompressionType))
def test_large_body_is_compressed_by_each_codec(kind: CompressionType) -> None:
    body = b"abcdefgh" * 1000
    packed, sys_flag = Compression(threshold=4096, level=5, kind=kind.name.lower()).apply(body, 0x4)
    assert sys_flag == 0x4 | 0x1 | kind.flag
    assert len(packed) < len(body)
    assert decompress(packed, kind) == body


def test_body_that_is_small_or_does_not_shrink_stays_as_it_is() -> None:
    compression = Compression(threshold=100, level=5, kind="ZLIB")
    dense = bytes(range(256))
    assert compression.apply(b"a" * 99, 0) == (b"a" * 99, 0)
    assert compression.apply(dense, 0) == (dense, 0)


@pytest.mark.parametrize(
    ("kind", "level", "said"), [("SNAPPY", 5, "LZ4, ZSTD, ZLIB"), ("ZLIB", 10, "0 to 9"), ("ZSTD", 23, "0 to 22")]
)
def test_codec_or_level_that_does_not_exist_is_refused(kind: str, level: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Compression(threshold=1, level=level, kind=kind)
