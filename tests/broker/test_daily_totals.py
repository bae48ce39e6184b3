"""The turn of the day: what morning and yesterday are then."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from fusee.broker.daily_totals import DailyTotals, Mornings, day_of, decode_totals, encode_totals


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_day_turns_at_local_midnight(in_berlin: None) -> None:
    # 2023-11-15 00:00 in Berlin is 2023-11-14 23:00 UTC.
    midnight_ms = 1_700_002_800_000
    assert day_of(midnight_ms) == day_of(midnight_ms - 1) + 1
    assert day_of(midnight_ms + 86_400_000 - 1) == day_of(midnight_ms)


def test_next_day_makes_now_the_morning_and_the_morning_yesterday() -> None:
    totals = DailyTotals(100, put=Mornings(now=30, today_morning=10, yesterday_morning=4))
    assert totals.turn(101)
    assert totals.put == Mornings(now=30, today_morning=30, yesterday_morning=10)


def test_days_of_silence_leave_nothing_to_yesterday() -> None:
    totals = DailyTotals(100, got=Mornings(now=30, today_morning=10, yesterday_morning=4))
    assert totals.turn(103)
    assert totals.got == Mornings(now=30, today_morning=30, yesterday_morning=30)


@pytest.mark.parametrize("day", [100, 99])
def test_same_day_and_clock_set_back_change_nothing(day: int) -> None:
    totals = DailyTotals(100, put=Mornings(now=30, today_morning=10))
    assert not totals.turn(day)
    assert totals == DailyTotals(100, put=Mornings(now=30, today_morning=10))


def test_document_reads_back() -> None:
    totals = DailyTotals(100, put=Mornings(1, 2, 3), got=Mornings(4, 5, 6))
    assert decode_totals(encode_totals(totals)) == totals


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"day":"x"}', b"{}"])
def test_damaged_document_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):
        decode_totals(content)
