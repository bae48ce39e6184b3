from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message import Message, StoredMessage
from fusee.message.batch import (
    BatchElement,
    batch_element,
    check_batch,
    join_batch,
    split_batch,
    unwrap_message,
)
from fusee.message.compression import compress, compressed_sys_flag
from fusee.message.flags import CompressionType
from fusee.message.record_layout import body_crc
from tests.golden import GoldenFrame, frames
from tests.message import strategies

WIRE_BATCHES = [frame for frame in frames() if frame.batch]


def inner_batch(body: bytes, sys_flag: int = 0xC0) -> StoredMessage:
    return StoredMessage(
        topic="orders",
        queue_id=2,
        queue_offset=40,
        log_offset=1000,
        body=body,
        properties_bytes=b"INNER_NUM\x012\x02CLUSTER\x01c\x02",
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host_bytes=bytes(8),
        store_timestamp_ms=2,
        store_host_bytes=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=body_crc(body),
        store_size=300,
    )


@pytest.mark.parametrize("frame", WIRE_BATCHES, ids=lambda frame: frame.pair)
def test_split_when_java_joined_reads_its_elements_and_joins_them_again(frame: GoldenFrame) -> None:
    body = frame.body_bytes
    elements = split_batch(body)
    assert [
        {"flag": element.flag, "properties": dict(element.properties), "body": element.body.hex()}
        for element in elements
    ] == frame.batch
    assert join_batch(elements) == body


def test_golden_batches_when_counted_are_all_there() -> None:
    assert len(WIRE_BATCHES) == 4


@given(st.lists(strategies.batch_elements, max_size=5))
def test_split_when_joined_gives_the_same_elements(elements: list[BatchElement]) -> None:
    assert split_batch(join_batch(elements)) == elements


@given(
    st.one_of(
        st.binary(max_size=120),
        strategies.mutated(st.lists(strategies.batch_elements, min_size=1, max_size=3).map(join_batch)),
    )
)
def test_split_when_bytes_are_arbitrary_gives_elements_or_a_message_error(body: bytes) -> None:
    try:
        elements = split_batch(body)
    except MessageError:
        return
    assert sum(22 + len(one.body) + len(one.properties_bytes) for one in elements) == len(body)


@pytest.mark.parametrize("size", range(1, 22))
def test_split_when_bytes_are_left_over_says_where(size: int) -> None:
    with pytest.raises(MessageError, match=f"at 22: only {size} bytes are left"):
        split_batch(join_batch([BatchElement(0, b"", b"")]) + bytes(size))


@pytest.mark.parametrize(
    "element",
    [
        "00000017 00000000 00000000 00000000 00000000 0000 00",  # size one too large for its parts
        "00000015 00000000 00000000 00000000 00000000 0000",  # one too small
        "00000016 00000000 00000000 00000000 ffffffff 0000",  # body of -1
        "00000016 00000000 00000000 00000000 7fffffff 0000",  # body of 2 GiB
        "00000016 00000000 00000000 00000000 00000000 ffff",  # properties of -1
        "80000000 00000000 00000000 00000000 00000000 0000",  # negative size
        "00000000 00000000 00000000 00000000 00000000 0000",  # would never end
    ],
)
def test_split_when_an_element_lies_about_sizes_is_refused(element: str) -> None:
    with pytest.raises(MessageError, match="batch element at 0"):
        split_batch(bytes.fromhex(element))


def test_count_when_at_the_limit_is_accepted_and_beyond_refused() -> None:
    three = [BatchElement(0, b"x", b"")] * 3
    assert len(split_batch(join_batch(three, count_max=3), count_max=3)) == 3
    with pytest.raises(MessageError, match="at most 2"):
        join_batch(three, count_max=2)
    with pytest.raises(MessageError, match="at most 2"):
        split_batch(join_batch(three), count_max=2)


def test_join_when_a_part_does_not_fit_is_refused() -> None:
    assert split_batch(join_batch([BatchElement(0, b"", bytes(32767))]))
    with pytest.raises(MessageError, match="32768 bytes"):
        join_batch([BatchElement(0, b"", bytes(32768))])
    with pytest.raises(MessageError, match="does not fit"):
        join_batch([BatchElement(2**31, b"", b"")])


def test_element_when_made_of_a_message_carries_all_but_the_topic() -> None:
    element = batch_element(Message.of("orders", b"body", tag="paid", flag=7))
    assert element == BatchElement(7, b"body", b"TAGS\x01paid\x02")
    assert element.properties == {"TAGS": "paid"}


def test_check_batch_when_messages_belong_together_accepts() -> None:
    check_batch([Message.of("orders", b"1"), Message.of("orders", b"2", tag="x")])


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "at least one"),
        ([Message.of("a", b"1"), Message.of("b", b"1")], "one topic"),
        ([Message.of("a", b"1"), Message.of("a", b"1", wait_stored=False)], "wait_stored"),
        ([Message.of("a", b"1"), Message.of("a", b"1", delay_level=1)], "delayed"),
        ([Message.of("a", b"1", deliver_at_ms=5)], "delayed"),
        ([Message.of("%RETRY%g", b"1")], "retry topic"),
        ([Message("a", b"1", {"TRAN_MSG": "true"})], "transactional"),
    ],
)
def test_check_batch_when_messages_do_not_belong_together_says_why(messages: list[Message], why: str) -> None:
    with pytest.raises(MessageError, match=why):
        check_batch(messages)


def test_unwrap_when_message_is_no_batch_gives_it_back() -> None:
    message = inner_batch(b"body", sys_flag=0x40)
    assert unwrap_message(message) == [message]


@pytest.mark.parametrize("kind", [None, *CompressionType])
def test_unwrap_when_message_is_a_batch_gives_single_messages(kind: CompressionType | None) -> None:
    elements = [BatchElement(1, b"first", b"UNIQ_KEY\x01A\x02"), BatchElement(2, b"second", b"")]
    body = join_batch(elements)
    message = inner_batch(body) if kind is None else inner_batch(compress(body, kind), compressed_sys_flag(0xC0, kind))
    first, second = unwrap_message(message)
    assert (first.queue_offset, first.body, first.flag, first.message_id) == (40, b"first", 1, "A")
    assert (second.queue_offset, second.body, second.flag) == (41, b"second", 2)
    assert second.properties == {}
    assert first.sys_flag == second.sys_flag == 0
    assert second.message_id == message.offset_id
    assert first.body_crc == body_crc(b"first")
    assert msgspec.structs.replace(first, queue_offset=0).topic == "orders"


def test_unwrap_when_body_is_no_batch_is_refused() -> None:
    with pytest.raises(MessageError, match="batch element at 0"):
        unwrap_message(inner_batch(b"not a batch"))
    with pytest.raises(MessageError, match="at most 1"):
        unwrap_message(inner_batch(join_batch([BatchElement(0, b"", b"")] * 2)), count_max=1)
    with pytest.raises(MessageError, match="larger than the limit"):
        unwrap_message(
            inner_batch(
                compress(join_batch([BatchElement(0, bytes(999), b"")]), CompressionType.ZLIB),
                compressed_sys_flag(0xC0, CompressionType.ZLIB),
            ),
            size_max=500,
        )
