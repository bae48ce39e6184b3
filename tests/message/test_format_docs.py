"""The worked examples of docs/formats are what the code writes and reads."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from fusee.clock import ManualClock
from fusee.message import Message
from fusee.message.batch import batch_element, join_batch, split_batch
from fusee.message.hashing import tags_code
from fusee.message.hosts import pack_host
from fusee.message.ids import UniqueIds, encode_offset_id
from fusee.message.properties import decode_properties, encode_properties
from fusee.message.record import (
    check_body_crc,
    check_record_crc,
    decode_record,
    encode_blank,
    encode_record,
    seal_record,
    with_crc_tail,
)

FORMATS = Path(__file__).parent.parent.parent / "docs" / "formats"
PAID = {"TAGS": "paid", "KEYS": "42"}


def example(page: str, name: str) -> bytes:
    """The bytes of one ```hex block, without its comments."""
    text = (FORMATS / page).read_text(encoding="utf-8")
    found = re.search(rf"^```hex {name}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no example {name!r}"
    return bytes.fromhex("".join(line.partition("#")[0] for line in found[1].splitlines()))


def test_record_example_when_decoded_says_what_the_page_says() -> None:
    data = example("record.md", "record")
    message = decode_record(data)
    check_body_crc(message)
    assert (message.store_size, message.body, message.topic) == (120, b"hello", "orders")
    assert (message.queue_id, message.queue_offset, message.log_offset) == (2, 7, 4096)
    assert (message.born_host, message.store_host) == ("192.0.2.1:50000", "192.0.2.2:10911")
    assert message.store_timestamp_ms - message.born_timestamp_ms == 5
    assert message.properties == PAID
    assert encode_record(message) == data


def test_blank_example_when_encoded_is_the_same() -> None:
    assert encode_blank(130) == example("record.md", "blank")


def test_tail_example_when_sealed_is_the_same() -> None:
    plain = decode_record(example("record.md", "record"))
    properties = with_crc_tail(plain.properties_bytes)
    assert len(properties) == 38
    sealed = seal_record(encode_record(msgspec.structs.replace(plain, properties_bytes=properties)))
    assert len(sealed) == 140
    assert sealed.endswith(example("record.md", "tail"))
    assert check_record_crc(sealed)


def test_properties_example_when_encoded_is_the_same() -> None:
    assert encode_properties(PAID) == example("message.md", "properties")
    assert decode_properties(example("message.md", "properties")) == PAID


def test_id_examples_when_encoded_are_the_same() -> None:
    assert bytes.fromhex(encode_offset_id(pack_host("192.0.2.2", 10911), 4096)) == example("message.md", "offset-id")
    month_start_ms = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1000
    maker = UniqueIds(
        clock=ManualClock(month_start_ms + 0x4F49487C),
        ip=bytes([192, 0, 2, 2]),
        pid=5364,
        seed=0x4E0E2F2A,
        timezone=UTC,
    )
    assert bytes.fromhex(maker.next_id()) == example("message.md", "unique-id")


def test_batch_example_when_joined_is_the_same() -> None:
    elements = [
        batch_element(Message.of("orders", b"one", tag="a")),
        batch_element(Message.of("orders", b"two", flag=1)),
    ]
    assert join_batch(elements) == example("message.md", "batch")
    assert split_batch(example("message.md", "batch")) == elements


def test_tag_code_example_when_computed_is_the_same() -> None:
    page = (FORMATS / "message.md").read_text(encoding="utf-8")
    assert re.search(r"tag `paid` has code\s+3433164", page)
    assert tags_code(b"paid") == 3433164
    with pytest.raises(AssertionError, match="no example"):
        example("message.md", "missing")
