"""Where records begin and where their parts lie, against the walk that looks at one record at a time."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.errors import RecordError
from fusee.message.record import encode_blank, encode_record, pack_record, record_bounds
from fusee.message.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Buffer
from fusee.store.record_scan import check_stop, find_records, locate_parts, windows
from tests.message import strategies


def sized(size: int) -> bytes:
    """As much of a record as finding it takes."""
    return size.to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + bytes(size - 8)


def starts(sizes: list[int]) -> list[int]:
    return [sum(sizes[:place]) for place in range(len(sizes))]


# runs of equal sizes, short and long, as one topic's messages have them
runs = st.lists(st.tuples(st.integers(8, 120), st.integers(1, 90)), max_size=6).map(
    lambda pairs: [size for size, count in pairs for _ in range(count)]
)


@given(runs)
def test_find_when_sizes_repeat_or_not_gives_every_start(sizes: list[int]) -> None:
    data = b"".join(map(sized, sizes))
    found, stop = find_records(data)
    assert found.dtype == np.int64
    assert found.tolist() == starts(sizes)
    assert stop == len(data)


@given(runs.filter(bool), st.data())
def test_find_when_data_is_cut_stops_at_the_last_whole_record(sizes: list[int], data: st.DataObject) -> None:
    whole = b"".join(map(sized, sizes))
    cut = data.draw(st.integers(0, len(whole)))
    found, stop = find_records(whole[:cut])
    ends = [start + size for start, size in zip(starts(sizes), sizes, strict=True)]
    assert found.tolist() == [start for start, end in zip(starts(sizes), ends, strict=True) if end <= cut]
    assert stop == max([end for end in ends if end <= cut], default=0)


@given(runs.filter(bool), st.integers(-1, 3000))
def test_find_when_limited_ends_with_the_record_that_reaches_the_limit(sizes: list[int], size_max: int) -> None:
    data = b"".join(map(sized, sizes))
    position = 0
    found: list[int] = []
    while position < len(data):
        part, stop = find_records(data, position, size_max=size_max)
        assert stop == len(data) or position + size_max <= stop < position + max(size_max, 1) + 120
        assert all(position <= start < position + max(size_max, 1) for start in part.tolist())
        found += part.tolist()
        position = stop
    assert found == starts(sizes)


def test_find_when_a_run_ends_in_garbage_stops_before_it() -> None:
    data = sized(100) * 300
    for size in (0, 7, -1, -(2**31)):
        found, stop = find_records(data + size.to_bytes(4, "big", signed=True) + bytes(96))
        assert found.tolist() == list(range(0, 30000, 100))
        assert stop == 30000


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00", bytes(8), b"\xff" * 100])
def test_find_when_nothing_is_there_finds_nothing(data: bytes) -> None:
    found, stop = find_records(data)
    assert (found.tolist(), stop) == ([], 0)


def test_find_when_data_is_a_log_skips_blanks_and_takes_zeros_for_the_end() -> None:
    data = sized(100) + encode_blank(30) + bytes(22) + sized(91) + encode_blank(8) + sized(92) + bytes(64)
    found, stop = find_records(data, from_log=True)
    assert found.tolist() == [0, 130, 229]
    assert stop == len(data)
    found, stop = find_records(data)
    assert found.tolist() == [0, 100, 130, 221, 229]
    assert stop == len(data) - 64


@pytest.mark.parametrize("rest", [1, 7, 8, 5000])
def test_find_when_a_log_has_only_zeros_left_is_at_the_end(rest: int) -> None:
    found, stop = find_records(sized(100) + bytes(rest), from_log=True)
    assert (found.tolist(), stop) == ([0], 100 + rest)
    found, stop = find_records(bytes(rest), from_log=True)
    assert (found.tolist(), stop) == ([], rest)


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        (bytes(1000) + b"x", "nothing was written here, but other bytes follow"),
        (b"\x00\x00\x00\x05", "only 4 bytes"),
        (encode_blank(31) + bytes(22), "total size 31 is outside 8..30"),
        (b"\x00\x00\x00\x07" + b"\xcb\xd4\x31\x94" + b"x", "total size 7"),
        (sized(200)[:120], "total size 200"),
        (b"\x00" * 4 + b"\xff" * 8, "unknown magic 0xffffffff"),
    ],
)
def test_stop_when_a_log_goes_on_with_something_else_says_why(rest: bytes, why: str) -> None:
    data = sized(100) + rest
    found, stop = find_records(data, from_log=True)
    assert (found.tolist(), stop) == ([0], 100)
    with pytest.raises(RecordError, match=f"record at 100: .*{why}"):
        check_stop(data, stop, from_log=True)


def test_stop_when_it_is_the_end_of_the_data_is_no_error() -> None:
    check_stop(b"", 0)
    check_stop(sized(100), 100, from_log=True)


def test_windows_when_data_is_shorter_than_an_item_are_none() -> None:
    view = np.arange(5, dtype=np.uint8)
    assert windows(view, ">u4").tolist() == [0x00010203, 0x01020304]
    assert len(windows(view, ">u8")) == 0


@given(st.lists(strategies.stored_messages().map(encode_record), min_size=1, max_size=6))
def test_locate_when_records_differ_gives_the_bounds_of_each(records: list[bytes]) -> None:
    data = b"".join(records)
    positions = starts(list(map(len, records)))
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    buffers: list[Buffer] = [data, bytearray(data), memoryview(data), mapped]
    for buffer in buffers:
        parts = locate_parts(buffer, np.array(positions))
        for row, position in enumerate(positions):
            assert (
                parts.body_start[row],
                parts.body_end[row],
                parts.topic_start[row],
                parts.properties_start[row],
                parts.record_end[row],
            ) == record_bounds(data, position, len(data))
            assert parts.topic_end[row] == parts.properties_start[row] - 2
        del parts
    mapped.close()


@given(
    st.one_of(
        st.binary(min_size=91, max_size=150), strategies.mutated(strategies.stored_messages().map(encode_record))
    ),
    st.integers(-5, 120),
)
def test_locate_when_bytes_are_arbitrary_agrees_with_the_bounds_of_one(data: bytes, position: int) -> None:
    def one() -> int:
        return record_bounds(data, position, len(data))[-1]

    def many() -> int:
        return int(locate_parts(data, np.array([position])).record_end[0])

    assert outcome(many) == outcome(one)


def outcome(locate: Callable[[], int]) -> int | str:
    """The end of the record, or the words of the error."""
    try:
        return locate()
    except RecordError as error:
        return str(error)


@st.composite
def lying_records(draw: st.DrawFn) -> bytes:
    """A record whose sizes are near the truth, or near a limit, or nonsense, with more or fewer bytes behind it."""
    magic = draw(st.sampled_from([MAGIC_V1, MAGIC_V1, MAGIC_V2, MAGIC_V2, MAGIC_BLANK, 0]))
    families = draw(st.sampled_from([0, 0, 0x10, 0x20, 0x30]))
    body_size = draw(st.sampled_from([0, 1, 5, -1, -4, -(2**31), 90, 2**31 - 1]))
    topic_size = draw(st.sampled_from([0, 1, 6, 126, 127, 128, 255, 32767, 32768, 65535]))
    properties_size = draw(st.sampled_from([0, 1, 9, 32767, 32768, 65535]))
    topic_field = (
        topic_size.to_bytes(2, "big") if magic == MAGIC_V2 and draw(st.booleans()) else bytes([topic_size & 0xFF])
    )
    record = bytearray(sized(88 + 12 * (families >> 4 & 1) + 12 * (families >> 5 & 1)))
    record[4:8] = magic.to_bytes(4, "big")
    record[39] = families
    record[-4:] = body_size.to_bytes(4, "big", signed=True)
    record += bytes(min(max(body_size, 0), 100)) + topic_field + bytes(topic_size)
    record += properties_size.to_bytes(2, "big") + bytes(properties_size)
    total = len(record) + draw(st.sampled_from([0, 0, 0, 0, -1, 1, -len(record), 2**31 - 1 - len(record)]))
    if draw(st.booleans()):
        total = min(total, draw(st.integers(85, 120)))
    record[:4] = total.to_bytes(4, "big", signed=True)
    end = draw(st.sampled_from([len(record), total, total - 1, total + 1, 91, 100, 112]))
    return bytes(record[: max(end, 0)]) + bytes(draw(st.sampled_from([0, 0, 3])))


@given(lying_records())
@settings(max_examples=500)
def test_locate_when_sizes_lie_agrees_with_the_bounds_of_one(data: bytes) -> None:
    before = pack_record(b"orders", b"body", b"", 0, 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0)

    def one() -> int:
        return record_bounds(before + data, len(before), len(before) + len(data))[-1]

    def many() -> int:
        return int(locate_parts(before + data, np.array([0, len(before)])).record_end[1])

    assert outcome(many) == outcome(one)


def test_locate_when_positions_overlap_or_go_back_is_refused() -> None:
    record = pack_record(b"orders", b"body", b"", 0, 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0)
    size = len(record)
    for positions in ([0, 0], [size, 0], [0, 2 * size, size]):
        with pytest.raises(RecordError, match="in ascending order"):
            locate_parts(record * 3, np.array(positions))
