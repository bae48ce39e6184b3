"""A batch's body says what `split_batch` says, and packs what `pack_record` packs."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise
from struct import unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message.batch import BatchElement, join_batch, split_batch
from fusee.message.hashing import tags_code
from fusee.message.properties import decode_properties
from fusee.message.record_layout import body_crc, pack_record, record_bounds
from fusee.store.batch_body import BatchBody
from fusee.store.dispatch_batch import key_prefixes
from fusee.store.key_hash import index_hash
from tests.store.test_record_keys import PROPERTIES, expected_keys

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Room for the offsets of the records behind the first.
OFFSET = st.integers(0, 2**63 - 1_000_000)
ELEMENTS = st.lists(
    st.builds(BatchElement, INT32, st.binary(max_size=40), st.binary(max_size=20)), min_size=1, max_size=12
)
HOST = st.binary(min_size=8, max_size=8)
TOPIC = st.binary(min_size=1, max_size=127)


@given(ELEMENTS, TOPIC, INT32, OFFSET, OFFSET, st.integers(0, 0xF), INT64, HOST, INT64, HOST, INT32, INT64)
def test_packed_records_are_those_that_are_packed_one_by_one(
    elements: list[BatchElement],
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    log_offset: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    stored_ms: int,
    store_host: bytes,
    times: int,
    prepared: int,
) -> None:
    body = BatchBody(join_batch(elements))
    assert len(body) == body.count == len(elements)
    assert body.elements == elements
    assert body.body_size_largest == max(len(element.body) for element in elements)
    assert body.has_zero_properties == any(b"\0" in element.properties_bytes for element in elements)
    packed, starts, keys = body.pack(
        bytes([len(topic)]) + topic,
        queue_id,
        queue_offset,
        log_offset,
        sys_flag,
        born_ms,
        born_host,
        stored_ms,
        store_host,
        times,
        prepared,
    )
    expected, places = b"", []
    for number, element in enumerate(elements):
        places.append(log_offset + len(expected))
        expected += pack_record(
            topic,
            element.body,
            element.properties_bytes,
            body_crc(element.body),
            queue_id,
            element.flag,
            queue_offset + number,
            places[-1],
            sys_flag,
            born_ms,
            born_host,
            stored_ms,
            store_host,
            times,
            prepared,
        )
    assert packed == expected
    assert starts.tolist() == [*(place - log_offset for place in places), len(packed)]
    assert keys is None
    assert body.packed_size(len(topic)) == len(expected)


@pytest.mark.parametrize("size", [*range(66), 79, 80, 255, 256, 257, 271, 272, 319, 320, 511, 512, 1023, 1024, 4111])
def test_sums_are_those_of_the_bodies_whatever_their_size(size: int) -> None:
    bodies = [random.Random(size * 8 + shift).randbytes(size) for shift in range(8)]
    # bodies begin at places of every kind
    elements = [BatchElement(0, body, b"k" * shift) for shift, body in enumerate(bodies)]
    host = bytes(8)
    packed, starts, _ = BatchBody(join_batch(elements)).pack(b"\x01T", 1, 2, 3, 0, 4, host, 5, host, 0, 0)
    for start, body in zip(starts[:-1].tolist(), bodies, strict=True):
        body_start, body_end, *_ = record_bounds(packed, start, len(packed))
        assert packed[body_start:body_end] == body
        assert unpack_from(">I", packed, start + 8) == (body_crc(body),)


@given(st.lists(PROPERTIES, min_size=1, max_size=40))
def test_keys_are_those_of_the_decoded_texts(properties: list[bytes]) -> None:
    body = BatchBody(join_batch([BatchElement(0, b"", each) for each in properties]))
    host = bytes(8)
    _, _, keys = body.pack(b"\x01T", 1, 2, 3, 0, 4, host, 5, host, 0, 0, key_prefixes("T"))
    assert keys is not None
    tags_codes, hashes, rows = keys
    tags = [decode_properties(each).get("TAGS") for each in properties]
    assert tags_codes.tolist() == [0 if tag is None else tags_code(tag.encode()) for tag in tags]
    expected = [(code, row) for row, each in enumerate(properties) for code in expected_keys(each, "T")]
    assert list(zip(hashes.tolist(), rows.tolist(), strict=True)) == expected


def test_properties_that_are_not_ascii_are_left_to_others() -> None:
    body = BatchBody(
        join_batch([BatchElement(0, b"", b"KEYS\x01k\x02"), BatchElement(0, b"", "KEYS\x01é\x02".encode())])
    )
    host = bytes(8)
    assert body.pack(b"\x01T", 1, 2, 3, 0, 4, host, 5, host, 0, 0, key_prefixes("T"))[2] is None


def test_records_with_very_many_keys_have_them_all() -> None:
    keys = " ".join(f"k{number}" for number in range(3_000))
    body = BatchBody(join_batch([BatchElement(0, b"", f"KEYS\x01{keys}\x02".encode())] * 3))
    host = bytes(8)
    _, _, found = body.pack(b"\x01T", 1, 2, 3, 0, 4, host, 5, host, 0, 0, key_prefixes("T"))
    assert found is not None
    assert found[1].tolist() == [index_hash("T", key) for key in keys.split(" ")] * 3
    assert found[2].tolist() == sorted([0, 1, 2] * 3_000)


def outcome(data: bytes, count_max: int) -> object:
    try:
        return split_batch(data, count_max=count_max)
    except MessageError as error:
        return str(error)


def body_outcome(data: bytes, count_max: int) -> object:
    try:
        return BatchBody(data, count_max).elements
    except MessageError as error:
        return str(error)


@given(st.binary(max_size=80), st.integers(0, 3))
def test_any_bytes_are_a_batch_or_refused_as_split_batch_does(data: bytes, count_max: int) -> None:
    assert body_outcome(data, count_max) == outcome(data, count_max)


@given(ELEMENTS, st.integers(0, 10_000), st.integers(0, 255), st.integers(0, 3))
def test_batch_with_one_other_byte_is_read_or_refused_as_split_batch_does(
    elements: list[BatchElement], at: int, byte: int, cut: int
) -> None:
    data = bytearray(join_batch(elements))
    data[at % len(data)] = byte
    changed = bytes(data[: len(data) - cut])
    assert body_outcome(changed, 100) == outcome(changed, 100)


@given(ELEMENTS, st.data())
def test_what_becomes_of_the_memory_after_it_was_looked_over_changes_no_size(
    elements: list[BatchElement], data: st.DataObject
) -> None:
    memory = bytearray(join_batch(elements))
    body = BatchBody(memoryview(memory))
    sizes = [(len(element.body), len(element.properties_bytes)) for element in elements]
    memory[:] = bytes(data.draw(st.lists(st.integers(1, 255), min_size=len(memory), max_size=len(memory))))
    host = bytes(8)
    packed, starts, _ = body.pack(b"\x01T", 1, 2, 3, 0, 4, host, 5, host, 0, 0, (1, 2))
    found = []
    for start, end in pairwise(starts.tolist()):
        body_start, body_end, _, properties_start, record_end = record_bounds(packed, start, len(packed))
        assert record_end == end
        found.append((body_end - body_start, record_end - properties_start))
        (crc,) = unpack_from(">I", packed, start + 8)
        assert crc == body_crc(packed[body_start:body_end])
    assert found == sizes


def test_zero_that_comes_into_properties_later_does_not_reach_the_log() -> None:
    elements = [BatchElement(0, b"body", b"KEYS\x01k\x02"), BatchElement(0, b"body", b"KEYS\x01k\x02")]
    memory = bytearray(join_batch(elements))
    body = BatchBody(memoryview(memory))
    memory[-3] = 0
    host, reached = bytes(8), False
    # The interpreted form has its own copy, and packs what it looked over.
    with suppress(MessageError):
        packed, starts, _ = body.pack(b"\x01T", 1, 2, 3, 0, 4, host, 5, host, 0, 0)
        for start in starts[:-1].tolist():
            _, _, _, properties_start, end = record_bounds(packed, start, len(packed))
            reached = reached or 0 in packed[properties_start:end]
    assert not reached


def test_batch_that_has_fewer_messages_later_is_not_taken_for_the_same() -> None:
    memory = bytearray(join_batch([BatchElement(0, b"", b"")] * 2))
    body = BatchBody(memoryview(memory))
    memory[:] = join_batch([BatchElement(0, bytes(22), b"")])
    with suppress(MessageError):
        assert len(body.elements) == len(body) == 2


@pytest.mark.parametrize(
    "field", ["queue_id", "queue_offset", "log_offset", "sys_flag", "born", "stored", "times", "prepared"]
)
def test_number_that_does_not_fit_is_refused(field: str) -> None:
    numbers = dict.fromkeys(
        ("queue_id", "queue_offset", "log_offset", "sys_flag", "born", "stored", "times", "prepared"), 0
    )
    numbers[field] = 1 << 63
    host = bytes(8)
    body = BatchBody(join_batch([BatchElement(0, b"x", b""), BatchElement(0, b"y", b"")]))
    with pytest.raises(MessageError, match="does not fit its field"):
        body.pack(
            b"\x01T",
            numbers["queue_id"],
            numbers["queue_offset"],
            numbers["log_offset"],
            numbers["sys_flag"],
            numbers["born"],
            host,
            numbers["stored"],
            host,
            numbers["times"],
            numbers["prepared"],
        )


def test_largest_batch_is_one_that_the_record_limit_allows() -> None:
    elements = [BatchElement(number, bytes([number % 256]) * 1000, b"TAGS\x01a\x02") for number in range(500)]
    body = BatchBody(join_batch(elements))
    assert body.elements == elements
    assert body.packed_size(5) == sum(91 + 5 + 1000 + 7 for _ in elements)


@given(ELEMENTS, st.binary(max_size=4))
def test_marks_are_looked_for_in_properties_alone(elements: list[BatchElement], mark: bytes) -> None:
    body = BatchBody(join_batch(elements))
    assert body.has_in_properties(mark) == any(mark in element.properties_bytes for element in elements)
    for element in elements:
        assert body.has_in_properties(element.properties_bytes)
    assert not BatchBody(join_batch([BatchElement(0, b"DELAY", b"TAGS")])).has_in_properties(b"DELAY")
