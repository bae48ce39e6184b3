from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.clock import ManualClock
from fusee.errors import MessageError
from fusee.message.hosts import pack_host
from fusee.message.ids import (
    OffsetId,
    UniqueId,
    UniqueIds,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    month_bounds_ms,
)
from tests.message import strategies

IPV4 = bytes([192, 0, 2, 2])


def ms(year: int, month: int, day: int, hour: int = 0) -> int:
    return int(datetime(year, month, day, hour, tzinfo=UTC).timestamp()) * 1000


def ids(clock: ManualClock, ip: bytes = IPV4, pid: int = 0x14F4) -> UniqueIds:
    return UniqueIds(clock=clock, ip=ip, pid=pid, seed=0x4E0E2F2A, timezone=UTC)


@given(strategies.hosts, st.integers(0, 2**63 - 1))
def test_offset_id_when_encoded_decodes_to_the_same_place(host: bytes, log_offset: int) -> None:
    text = encode_offset_id(host, log_offset)
    assert decode_offset_id(text) == OffsetId(host, log_offset)
    assert decode_offset_id(text.lower()) == OffsetId(host, log_offset)
    assert str(decode_offset_id(text)) == text == text.upper()
    assert len(text) == (32 if len(host) == 8 else 56)


def test_offset_id_when_java_made_it_reads_the_same() -> None:
    place = decode_offset_id("7F00000200005169000000000005CDE6")
    assert (place.address, place.host, place.log_offset) == ("127.0.0.2:20841", ("127.0.0.2", 20841), 380390)
    assert encode_offset_id(pack_host("127.0.0.2", 20841), 380390) == "7F00000200005169000000000005CDE6"


@pytest.mark.parametrize(
    "text",
    ["", "7F", "7F0000020000516900000000000000", "G" * 32, "0" * 40, "0" * 57, " 0" * 16, "٣" * 32],
)
def test_ids_when_text_is_no_id_are_refused(text: str) -> None:
    with pytest.raises(MessageError, match="offset message id"):
        decode_offset_id(text)
    with pytest.raises(MessageError, match="unique message id"):
        decode_unique_id(text)


@given(st.text(max_size=60))
def test_ids_when_text_is_arbitrary_give_a_value_or_a_message_error(text: str) -> None:
    for decode in (decode_offset_id, decode_unique_id):
        try:
            decode(text)
        except MessageError:
            continue


def test_offset_id_when_offset_is_negative_is_refused() -> None:
    with pytest.raises(MessageError, match="outside 0"):
        encode_offset_id(bytes(8), -1)
    with pytest.raises(MessageError, match="outside 0"):
        encode_offset_id(bytes(8), 2**63)
    with pytest.raises(MessageError, match="negative log offset"):
        decode_offset_id("7F00000200005169FFFFFFFFFFFFFFFF")


def test_offset_id_when_host_has_a_wrong_length_is_refused() -> None:
    with pytest.raises(MessageError, match="not 9"):
        encode_offset_id(bytes(9), 0)


def test_unique_id_when_java_made_it_is_taken_apart() -> None:
    # a record of the captured store, born at 1794821402750 on a machine whose local time is UTC
    made = decode_unique_id("C000020214F44E0E2F2A4F49487C0000")
    assert made == UniqueId(IPV4, 0x14F4, 0x4E0E2F2A, 0x4F49487C, 0)
    assert made.time_ms(1794821403000, UTC) == pytest.approx(1794821402750, abs=2000)


def test_unique_id_when_made_like_java_has_the_same_text() -> None:
    now_ms = ms(2026, 11, 1) + 0x4F49487C
    assert ids(ManualClock(now_ms)).next_id() == "C000020214F44E0E2F2A4F49487C0000"


@given(
    st.sampled_from([4, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    st.integers(0, 2**31),
    st.integers(0, 2**32 - 1),
    st.integers(1, 200 * 365 * 86_400_000),
)
def test_unique_id_when_made_tells_its_maker_and_time(ip: bytes, pid: int, seed: int, now_ms: int) -> None:
    text = UniqueIds(clock=ManualClock(now_ms), ip=ip, pid=pid, seed=seed, timezone=UTC).next_id()
    made = decode_unique_id(text)
    assert (made.ip, made.pid, made.seed, made.counter) == (ip, pid & 0xFFFF, seed, 0)
    assert made.time_ms(now_ms + 1, UTC) == now_ms
    assert len(text) == 2 * len(ip) + 24


def test_unique_ids_when_time_stands_still_count_up() -> None:
    maker = ids(ManualClock(ms(2026, 3, 4)))
    made = [decode_unique_id(maker.next_id()) for _ in range(3)]
    assert [one.counter for one in made] == [0, 1, 2]
    assert len({one.elapsed_ms for one in made}) == 1


def test_unique_ids_when_counter_goes_around_in_one_millisecond_borrow_the_next() -> None:
    clock = ManualClock(ms(2026, 3, 4))
    maker = ids(clock)
    made = [maker.next_id() for _ in range(2 * 65536 + 10)]
    clock.jump_wall(1)
    made += [maker.next_id() for _ in range(65536)]
    assert len(set(made)) == len(made)


def test_unique_ids_when_clock_is_set_back_do_not_repeat() -> None:
    clock = ManualClock(ms(2026, 3, 4))
    maker = ids(clock)
    made = []
    for _ in range(4):
        made += [maker.next_id() for _ in range(65536 // 2)]
        clock.jump_wall(1)
        made += [maker.next_id() for _ in range(65536 // 2)]
        clock.jump_wall(-1)
    assert len(set(made)) == len(made)


def test_unique_ids_when_month_ends_start_counting_anew() -> None:
    clock = ManualClock(ms(2026, 2, 1) - 1)
    maker = ids(clock)
    last = decode_unique_id(maker.next_id())
    clock.jump_wall(1)
    first = decode_unique_id(maker.next_id())
    assert last.elapsed_ms == 31 * 86_400_000 - 1 > 2**31
    assert first.elapsed_ms == 0


def test_time_when_id_is_of_last_month_is_found_there() -> None:
    made = decode_unique_id(ids(ManualClock(ms(2025, 12, 31, 23))).next_id())
    assert made.time_ms(ms(2026, 1, 1, 1), UTC) == ms(2025, 12, 31, 23)


def test_month_bounds_when_daylight_saving_changes_are_local_midnights() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert month_bounds_ms(ms(2026, 3, 20), berlin) == (ms(2026, 2, 28, 23), ms(2026, 3, 31, 22))
    assert month_bounds_ms(ms(2026, 12, 20), berlin) == (ms(2026, 11, 30, 23), ms(2026, 12, 31, 23))


def test_month_bounds_when_local_contain_the_time() -> None:
    for now_ms in (ms(2026, 1, 15), ms(2026, 12, 15), ms(2024, 2, 29, 12)):
        start, end = month_bounds_ms(now_ms)
        assert start <= now_ms < end
        assert 27 * 86_400_000 < end - start < 32 * 86_400_000


@pytest.mark.parametrize("now_ms", [-1, 10**18])
def test_month_bounds_when_time_is_absurd_is_refused(now_ms: int) -> None:
    with pytest.raises(MessageError, match="outside the years"):
        month_bounds_ms(now_ms)


def test_unique_ids_when_arguments_are_wrong_are_refused() -> None:
    clock = ManualClock()
    for ip, pid, seed in ((bytes(5), 1, 1), (IPV4, -1, 1), (IPV4, 1, -1), (IPV4, 1, 2**32)):
        with pytest.raises(MessageError):
            UniqueIds(clock=clock, ip=ip, pid=pid, seed=seed)
