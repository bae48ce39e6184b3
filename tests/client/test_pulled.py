"""The body of a pull answer becomes messages, or an error, and never something in between."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.pulled import decode_pulled
from fusee.errors import MessageError, RecordError
from fusee.filter import parse_subscription
from fusee.message.batch import BatchElement, join_batch
from fusee.message.compression import compress, compressed_sys_flag
from fusee.message.flags import CompressionType, SysFlag, is_inner_batch
from fusee.message.model import MessageQueue, StoredMessage
from fusee.message.record import encode_record, iterate_records
from fusee.message.record_layout import record_bounds
from tests.client.test_received import stored
from tests.message.strategies import mutated, stored_messages

INNER = SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
plain_messages = stored_messages().filter(lambda message: not is_inner_batch(message.sys_flag))


def joined(messages: list[StoredMessage]) -> bytes:
    return b"".join(map(encode_record, messages))


@given(st.lists(plain_messages, max_size=8))
def test_decode_when_any_records_gives_each_of_them(messages: list[StoredMessage]) -> None:
    body = joined(messages)
    got = decode_pulled(body, "broker-a", "orders")
    assert [each.stored() for each in got] == list(iterate_records(body))
    for one, message in zip(got, messages, strict=True):
        assert one.queue == MessageQueue("orders", "broker-a", message.queue_id)
        assert (one.queue_offset, one.log_offset) == (message.queue_offset, message.log_offset)
        assert one.properties == message.properties


def bounds(body: bytes) -> list[tuple[int, int, int, int, int, int]]:
    """Where the records lie, by the reader that checks everything."""
    found = []
    position = 0
    while position < len(body):
        found.append((position, *record_bounds(body, position, len(body))))
        position = found[-1][-1]
    return found


@given(mutated(st.lists(plain_messages, min_size=1, max_size=4).map(joined)))
def test_decode_when_bytes_are_wrong_agrees_with_the_strict_reader(body: bytes) -> None:
    try:
        expected = bounds(body)
    except RecordError:
        with pytest.raises(MessageError):
            decode_pulled(body, "broker-a", "orders")
        return
    if any(is_inner_batch(int.from_bytes(body[at + 36 : at + 40], "big")) for at, *_ in expected):
        return
    got = decode_pulled(body, "broker-a", "orders")
    assert [(each.store_size, each.properties_bytes) for each in got] == [
        (end - at, body[properties:end]) for at, _, _, _, properties, end in expected
    ]


def test_decode_when_cut_short_hands_out_nothing() -> None:
    body = joined([stored(queue_offset=offset) for offset in range(3)])
    for end in range(1, len(body)):
        if end % (len(body) // 3):
            with pytest.raises(RecordError):
                decode_pulled(body[:end], "broker-a", "orders")
    assert decode_pulled(b"", "broker-a", "orders") == []


def test_decode_when_subscription_names_tags_leaves_out_others_of_the_same_hash() -> None:
    # "Aa" and "BB" have the same hash, so a broker gives both.
    body = joined([stored(properties={"TAGS": tag}, queue_offset=at) for at, tag in enumerate(["Aa", "BB", "Aa"])])
    body += encode_record(stored(queue_offset=3))
    wanted = parse_subscription("orders", "Aa || C")
    assert [each.queue_offset for each in decode_pulled(body, "b", "orders", wanted)] == [0, 2]
    everything = parse_subscription("orders", "*")
    assert len(decode_pulled(body, "b", "orders", everything)) == 4


def test_decode_when_tag_is_unicode_compares_text() -> None:
    body = encode_record(stored(properties={"TAGS": "bezahlt-ü"}))
    assert len(decode_pulled(body, "b", "orders", parse_subscription("orders", "bezahlt-ü"))) == 1


@pytest.mark.parametrize("is_compressed", [False, True])
def test_decode_when_inner_batch_gives_its_messages_one_by_one(is_compressed: bool) -> None:
    elements = [BatchElement(at, b"body %d" % at, b"TAGS\x01t%d\x02" % at) for at in range(3)]
    batch = stored(join_batch(elements), sys_flag=INNER, queue_offset=10, properties={"INNER_NUM": "3"})
    if is_compressed:
        kind = CompressionType.LZ4
        batch = msgspec.structs.replace(
            batch, body=compress(batch.body, kind), sys_flag=compressed_sys_flag(INNER, kind)
        )
    got = decode_pulled(encode_record(batch) + encode_record(stored(queue_offset=13)), "broker-a", "orders")
    assert [(each.queue_offset, each.body, each.tag, each.flag) for each in got] == [
        (10, b"body 0", "t0", 0),
        (11, b"body 1", "t1", 1),
        (12, b"body 2", "t2", 2),
        (13, b"hello", None, 5),
    ]
    assert [each.is_from_batch for each in got] == [True, True, True, False]
    assert {each.queue for each in got} == {MessageQueue("orders", "broker-a", 3)}


def test_decode_when_inner_batch_is_damaged_raises() -> None:
    with pytest.raises(MessageError, match="batch element at 0"):
        decode_pulled(encode_record(stored(b"no batch", sys_flag=INNER)), "broker-a", "orders")
