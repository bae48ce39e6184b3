from __future__ import annotations

import lzma
import mmap
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError, RecordError
from fusee.message import StoredMessage
from fusee.message.batch import unwrap_message
from fusee.message.compression import decompress_message
from fusee.message.flags import with_host_families
from fusee.message.record import (
    BODY_CRC_POSITION,
    BORN_HOST_POSITION,
    BORN_TIMESTAMP_POSITION,
    CRC_TAIL_SIZE,
    FLAG_POSITION,
    LOG_OFFSET_POSITION,
    MAGIC_BLANK,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    SYS_FLAG_POSITION,
    TOTAL_SIZE_POSITION,
    body_crc,
    check_body_crc,
    check_record_crc,
    decode_record,
    encode_blank,
    encode_record,
    iterate_records,
    pack_record,
    patch_record,
    read_frame,
    record_bounds,
    record_size,
    seal_record,
    store_timestamp_position,
    with_crc_tail,
)
from tests.golden import GoldenFrame, frames
from tests.message import strategies

GOLDEN = Path(__file__).parent.parent / "golden"
V4 = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"
ANSWERS = [frame for frame in frames() if frame.messages]


@cache
def golden_log() -> bytes:
    """The commit log of a store that Java closed cleanly, four files end to end, up to some zero bytes."""
    return lzma.decompress((GOLDEN / "store_records.log.xz").read_bytes())


@cache
def golden_lines() -> list[dict[str, Any]]:
    """What Java reads from that log, records and blanks in order."""
    lines = lzma.decompress((GOLDEN / "store_records.jsonl.xz").read_bytes()).splitlines()
    return [msgspec.json.decode(line) for line in lines]


def shown(message: StoredMessage) -> dict[str, Any]:
    """The message in the words of the golden data."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.log_offset,
        "storeSize": message.store_size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "properties": dict(message.properties),
        "body": message.body.hex(),
    }


def record(
    topic: bytes = b"orders",
    body: bytes = b"body",
    properties: bytes = b"TAGS\x01paid\x02",
    born_host: bytes = V4,
    store_host: bytes = V4,
    version: int = 1,
) -> bytes:
    return pack_record(
        topic,
        body,
        properties,
        body_crc(body),
        3,
        0,
        41,
        5000,
        with_host_families(0, born_host, store_host),
        1_700_000_000_000,
        born_host,
        1_700_000_000_001,
        store_host,
        0,
        0,
        version,
    )


def test_decode_when_java_wrote_the_log_reads_every_record_and_writes_it_back() -> None:
    log = golden_log()
    position = 0
    counts = {"record": 0, "blank": 0}
    for golden in golden_lines():
        line = dict(golden)
        kind = line.pop("kind")
        counts[kind] += 1
        size, magic = read_frame(log, position, len(log))
        assert line["commitLogOffset"] == position
        if kind == "blank":
            assert (size, magic) == (line["size"], MAGIC_BLANK)
            assert encode_blank(size) == log[position : position + 8]
        else:
            message = decode_record(log, position)
            assert f"{magic:08x}" == line.pop("magic")
            assert message.offset_id == line.pop("msgId")
            assert shown(message) == line
            assert encode_record(message) == log[position : position + size]
            check_body_crc(message)
            assert not check_record_crc(log, position)
        position += size
    assert counts == {"record": 337, "blank": 3}
    assert read_frame(log, position, len(log)) == (0, 0)


def test_unwrap_when_java_stored_inner_batches_gives_their_messages() -> None:
    log = golden_log()
    unwrapped = []
    for line in golden_lines():
        if line.get("sysFlag") == 0xC0:
            message = decode_record(log, line["commitLogOffset"])
            singles = unwrap_message(message)
            assert len(singles) == int(message.properties["INNER_NUM"])
            assert singles[0].queue_offset == int(message.properties["INNER_BASE"])
            unwrapped += singles
    assert [single.queue_offset for single in unwrapped] == list(range(len(unwrapped)))
    assert {single.tag for single in unwrapped} == {"Q"}
    assert all(single.body.startswith(b"inner batch ") for single in unwrapped)
    assert len({single.message_id for single in unwrapped}) == len(unwrapped)


@pytest.mark.parametrize("frame", ANSWERS, ids=lambda frame: frame.id)
def test_iterate_when_java_answered_reads_its_messages(frame: GoldenFrame) -> None:
    body = frame.body_bytes
    messages = list(iterate_records(body))
    assert frame.messages is not None
    assert len(messages) == len(frame.messages)
    for message, line in zip(messages, frame.messages, strict=True):
        plain = decompress_message(message)
        assert plain.message_id == line["msgId"]
        assert plain.offset_id == line.get("offsetMsgId", line["msgId"])
        assert shown(plain) == {name: value for name, value in line.items() if name not in ("msgId", "offsetMsgId")}
    assert b"".join(map(encode_record, messages)) == body


def test_golden_answers_when_counted_are_all_there() -> None:
    assert sum(len(frame.messages or ()) for frame in ANSWERS) == 192


@given(strategies.stored_messages())
def test_decode_when_encoded_gives_the_same_message(message: StoredMessage) -> None:
    data = encode_record(message)
    assert len(data) == message.store_size
    assert decode_record(data) == message
    for view in (bytearray(data), memoryview(data)):
        decoded = decode_record(view)
        assert decoded == message
        assert type(decoded.body) is type(decoded.properties_bytes) is bytes


@given(st.lists(strategies.stored_messages(), max_size=4))
def test_iterate_when_records_lie_end_to_end_gives_each(messages: list[StoredMessage]) -> None:
    data = b"".join(map(encode_record, messages))
    assert list(iterate_records(data)) == messages
    assert list(iterate_records(b"12345" + data + b"6", 5, 5 + len(data))) == messages


def test_decode_when_data_is_mapped_reads_it() -> None:
    data = record()
    with mmap.mmap(-1, 4096) as mapped:
        mapped[100 : 100 + len(data)] = data
        assert encode_record(decode_record(mapped, 100)) == data


records = strategies.stored_messages().map(encode_record)


@given(st.one_of(st.binary(max_size=150), strategies.mutated(records)), st.integers(-3, 3))
def test_decode_when_bytes_are_arbitrary_gives_a_message_or_a_record_error(data: bytes, position: int) -> None:
    for buffer in (data, memoryview(data)):
        with suppress(RecordError):
            message = decode_record(buffer, position)
            assert encode_record(message) == data[position : position + message.store_size]
        with suppress(RecordError):
            assert sum(message.store_size for message in iterate_records(buffer)) == len(data)
        with suppress(RecordError):
            check_record_crc(buffer, position)
        with suppress(RecordError):
            read_frame(buffer, position, len(buffer))


@given(records)
def test_decode_when_record_is_cut_at_any_byte_is_refused(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(RecordError, match="record at 0"):
            decode_record(data[:end])
        with pytest.raises(RecordError, match="record at 0"):
            decode_record(data, 0, end)


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (4, b"\xda\xa3\x20\xa8", "unknown magic 0xdaa320a8"),
        (4, b"\xcb\xd4\x31\x94", "blank at the end"),
        (4, b"\xda\xa3\x20\xab", "topic of"),
        (0, b"\x00\x00\x00\x5a", "total size 90"),
        (0, b"\x7f\xff\xff\xff", "total size 2147483647"),
        (0, b"\xff\xff\xff\xff", "total size -1"),
        (84, b"\xff\xff\xff\xff", "body of -1"),
        (84, b"\x7f\xff\xff\xff", "body of 2147483647"),
        (84, b"\x00\x00\x00\x03", "topic of|properties of"),
        (92, b"\x80", "topic of 128"),
        (92, b"\x05", "properties of"),
        (99, b"\xff\xff", "properties of 65535"),
        (99, b"\x00\x00", "properties of 0"),
        (39, b"\x30", "too small for its hosts"),
        (39, b"\x10", "body of"),
        (93, b"\xff", "not UTF-8"),
    ],
)
def test_decode_when_one_field_lies_says_which(place: int, value: bytes, why: str) -> None:
    data = bytearray(record())
    data[place : place + len(value)] = value
    with pytest.raises(RecordError, match=f"record at 7: .*({why})"):
        decode_record(b"1234567" + data + bytes(40), 7, 7 + len(data))


def test_iterate_when_bytes_are_left_over_gives_the_whole_ones_then_fails() -> None:
    data = record()
    found = iterate_records(data + data[:50])
    assert next(found).store_size == len(data)
    with pytest.raises(RecordError, match=f"at {len(data)}: only|at {len(data)}: total size"):
        next(found)


def test_version_when_topic_grows_past_127_bytes_becomes_2() -> None:
    short = record(topic=b"t" * 127)
    longer = record(topic=b"t" * 128)
    assert int.from_bytes(short[4:8], "big") == MAGIC_V1
    assert int.from_bytes(longer[4:8], "big") == MAGIC_V2
    assert len(longer) == len(short) + 2
    assert decode_record(longer).topic == "t" * 128
    assert decode_record(record(topic=b"t", version=2)).version == 2


def test_sizes_when_computed_are_the_published_overheads() -> None:
    assert len(record(b"", b"", b"")) == record_size(0, 0, 0, 0) == RECORD_SIZE_MIN == 91
    assert len(record(b"", b"", b"", version=2)) == record_size(0, 0, 0, 0, 2) == 92
    assert len(record(b"", b"", b"", V6)) == record_size(0x10, 0, 0, 0) == 103
    assert len(record(b"", b"", b"", V4, V6)) == record_size(0x20, 0, 0, 0) == 103
    assert len(record(b"", b"", b"", V6, V6)) == record_size(0x30, 0, 0, 0) == 115
    assert record_size(0, 0, 128, 0) == 92 + 128


def test_properties_when_at_the_limit_are_accepted_and_beyond_refused() -> None:
    assert decode_record(record(properties=bytes(32767))).properties_bytes == bytes(32767)
    with pytest.raises(MessageError, match="32768 bytes"):
        record(properties=bytes(32768))


def test_pack_when_a_part_does_not_fit_is_refused() -> None:
    with pytest.raises(MessageError, match="version 1 with a topic of 32768"):
        record(topic=bytes(32768))
    with pytest.raises(MessageError, match="version 3"):
        record(version=3)
    message = decode_record(record())
    for field, value in (("queue_id", 2**31), ("queue_offset", 2**63), ("body_crc", 2**31), ("flag", -(2**31) - 1)):
        with pytest.raises(MessageError, match="does not fit"):
            encode_record(msgspec.structs.replace(message, **{field: value}))
    with pytest.raises(MessageError, match="cannot be encoded|can be encoded"):
        encode_record(msgspec.structs.replace(message, topic="\ud800"))


@pytest.mark.parametrize("families", [0, 0x10, 0x20, 0x30])
def test_pack_when_hosts_contradict_the_flag_is_refused(families: int) -> None:
    message = decode_record(record())
    for born_host, store_host in ((V4, V4), (V6, V4), (V4, V6), (V6, V6), (b"", V4), (V4, b"")):
        changed = msgspec.structs.replace(
            message, sys_flag=families, born_host_bytes=born_host, store_host_bytes=store_host
        )
        fits = (len(born_host), len(store_host)) == (20 if families & 0x10 else 8, 20 if families & 0x20 else 8)
        if fits:
            assert decode_record(encode_record(changed)).born_host_bytes == born_host
        else:
            with pytest.raises(MessageError, match="contradict system flag"):
                encode_record(changed)


@pytest.mark.parametrize("born_host", [V4, V6])
def test_positions_when_read_lie_where_the_layout_says(born_host: bytes) -> None:
    data = record(born_host=born_host)
    message = decode_record(data)

    def number(position: int, size: int) -> int:
        return int.from_bytes(data[position : position + size], "big")

    assert number(TOTAL_SIZE_POSITION, 4) == len(data)
    assert number(MAGIC_POSITION, 4) == MAGIC_V1
    assert number(BODY_CRC_POSITION, 4) == message.body_crc
    assert number(QUEUE_ID_POSITION, 4) == 3
    assert number(FLAG_POSITION, 4) == 0
    assert number(QUEUE_OFFSET_POSITION, 8) == 41
    assert number(LOG_OFFSET_POSITION, 8) == 5000
    assert number(SYS_FLAG_POSITION, 4) == message.sys_flag
    assert number(BORN_TIMESTAMP_POSITION, 8) == 1_700_000_000_000
    assert data[BORN_HOST_POSITION:].startswith(born_host)
    assert number(store_timestamp_position(message.sys_flag), 8) == 1_700_000_000_001


def test_bounds_when_read_delimit_the_parts() -> None:
    data = record()
    body_start, body_end, topic_start, properties_start, record_end = record_bounds(data, 0, len(data))
    assert data[body_start:body_end] == b"body"
    assert data[topic_start : properties_start - 2] == b"orders"
    assert data[properties_start:record_end] == b"TAGS\x01paid\x02"
    assert record_end == len(data)


@pytest.mark.parametrize("born_host", [V4, V6])
def test_patch_when_appended_changes_exactly_the_three_fields(born_host: bytes) -> None:
    data = bytearray(record(born_host=born_host))
    before = decode_record(data)
    patch_record(data, 77, 99_000, 1_800_000_000_000)
    assert decode_record(data) == msgspec.structs.replace(
        before, queue_offset=77, log_offset=99_000, store_timestamp_ms=1_800_000_000_000
    )


def test_patch_when_it_cannot_be_done_is_refused() -> None:
    with pytest.raises(MessageError, match="cannot patch"):
        patch_record(bytearray(30), 1, 1, 1)
    with pytest.raises(MessageError, match="cannot patch"):
        patch_record(bytearray(record()), 2**63, 1, 1)


def test_body_crc_when_body_is_damaged_is_noticed() -> None:
    message = decode_record(record())
    check_body_crc(message)
    with pytest.raises(RecordError, match="log offset 5000: the body's checksum"):
        check_body_crc(msgspec.structs.replace(message, body=b"bodz"))
    check_body_crc(msgspec.structs.replace(message, body=b"", body_crc=5))
    assert body_crc(b"") == 0
    assert body_crc(b"123456789") == 0xCBF43926 & 0x7FFFFFFF


def tail_marks(size: int) -> set[int]:
    """Where the fixed bytes around the ten digits lie in a sealed record of this size."""
    return {*range(size - CRC_TAIL_SIZE, size - 11), size - 1}


@pytest.mark.parametrize("properties", [b"", b"k\x01v\x02", b"k\x01v"])
def test_record_crc_when_sealed_is_verified_and_any_change_noticed(properties: bytes) -> None:
    data = bytearray(record(properties=with_crc_tail(properties)))
    patch_record(data, 8, 9, 10)
    sealed = seal_record(data)
    assert len(sealed) == len(data)
    assert check_record_crc(sealed)
    message = decode_record(sealed)
    digits = message.properties["__CRC32#"]
    assert len(digits) == 10
    assert message.properties.get("k") == (None if not properties else "v")
    separator = len(sealed) - CRC_TAIL_SIZE - 1 if properties else None
    for place in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[place] ^= 1
        if place == separator or place in tail_marks(len(sealed)):
            assert not check_record_crc(damaged)  # reads as a record without the checksum
        else:
            with pytest.raises(RecordError):
                check_record_crc(damaged)


def test_record_crc_when_written_has_the_least_significant_digit_first() -> None:
    sealed = seal_record(record(properties=with_crc_tail(b"")))
    value = body_crc(sealed[:-CRC_TAIL_SIZE])  # the same polynomial and mask
    assert sealed[-CRC_TAIL_SIZE:] == b"__CRC32#\x01" + f"{value:010d}"[::-1].encode() + b"\x02"


def test_crc_tail_when_one_is_there_already_replaces_it() -> None:
    once = with_crc_tail(b"k\x01v\x02")
    assert once == b"k\x01v\x02__CRC32#\x010000000000\x02"
    assert with_crc_tail(once) == once


def test_seal_when_there_is_no_tail_is_refused() -> None:
    with pytest.raises(MessageError, match="no checksum tail"):
        seal_record(record())
    with pytest.raises(MessageError, match="no checksum tail"):
        seal_record(b"")


def test_record_crc_when_a_property_only_looks_like_it_is_not_one() -> None:
    assert not check_record_crc(record(properties=b"x__CRC32#\x010000000000\x02"))
    assert not check_record_crc(record(properties=b"__CRC32#\x01000000000x\x02"))


@pytest.mark.parametrize("size", [-1, 0, 7, 2**31])
def test_blank_when_size_is_impossible_is_refused(size: int) -> None:
    with pytest.raises(MessageError, match="a blank covers"):
        encode_blank(size)


def test_read_frame_when_walking_a_file_tells_records_blanks_and_emptiness() -> None:
    data = record()
    file = data + encode_blank(50) + bytes(42)
    assert read_frame(file, 0, len(file)) == (len(data), MAGIC_V1)
    assert read_frame(file, len(data), len(file)) == (50, MAGIC_BLANK)
    assert read_frame(file, len(data) + 8, len(file)) == (0, 0)
    assert read_frame(file, len(file) - 7, len(file)) == (0, 0)
    with pytest.raises(RecordError, match="unknown magic"):
        read_frame(file, 1, len(file))
    with pytest.raises(RecordError, match="total size 50 is outside 8..49"):
        read_frame(file, len(data), len(file) - 1)
    with pytest.raises(RecordError, match="outside the"):
        read_frame(file, len(file) + 1, len(file))
    with pytest.raises(RecordError, match="outside the"):
        read_frame(file, 0, len(file) + 1)
