"""A plain record is the record that `pack_record` packs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message.record import body_crc, pack_record
from fusee.store.plain_record import pack_plain_record

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOST = st.binary(min_size=8, max_size=8)
NUMBERS = ("queue_id", "flag", "queue_offset", "log_offset", "sys_flag", "born", "stored", "times", "prepared")


def packed(numbers: dict[str, int], properties: bytes = b"") -> bytes:
    of = dict.fromkeys(NUMBERS, 0) | numbers
    topic, body, host = b"T", b"b", bytes(8)
    return pack_plain_record(
        bytes([len(topic)]) + topic,
        body,
        properties,
        of["queue_id"],
        of["flag"],
        of["queue_offset"],
        of["log_offset"],
        of["sys_flag"],
        of["born"],
        host,
        of["stored"],
        host,
        of["times"],
        of["prepared"],
    )


@given(
    st.binary(min_size=1, max_size=127),
    st.binary(max_size=300),
    st.binary(max_size=300),
    INT32,
    INT32,
    INT64,
    INT64,
    st.integers(0, 0xF),
    INT64,
    HOST,
    INT64,
    HOST,
    INT32,
    INT64,
)
def test_plain_record_is_that_of_pack_record(
    topic: bytes,
    body: bytes,
    properties: bytes,
    queue_id: int,
    flag: int,
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
    numbers = (queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, born_host, stored_ms, store_host, times)
    plain = pack_plain_record(bytes([len(topic)]) + topic, body, properties, *numbers, prepared)
    assert plain == pack_record(topic, body, properties, body_crc(body), *numbers, prepared)


def test_longest_properties_fit() -> None:
    properties = b"p" * 32767
    assert packed({}, properties).endswith(b"\x7f\xff" + properties)


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1])
def test_number_that_does_not_fit_is_refused(field: str, value: int) -> None:
    with pytest.raises(MessageError, match="does not fit its field"):
        packed({field: value})


@pytest.mark.parametrize("field", ["queue_id", "flag", "sys_flag", "times"])
def test_number_of_four_bytes_that_does_not_fit_is_refused(field: str) -> None:
    with pytest.raises(MessageError, match="does not fit its field"):
        packed({field: 1 << 31})
