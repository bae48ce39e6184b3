"""Counting, sampling and looking: by name and key, as rates, by day, and what is kept over a restart."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fusee.broker import statistics as names
from fusee.broker.daily_totals import DailyTotals, Mornings, decode_totals, encode_totals
from fusee.broker.statistics import Rates, Statistics, Windows
from fusee.clock import ManualClock
from fusee.message.topics import SCHEDULE_TOPIC
from fusee.service import Periodic
from fusee.store.filesystem import OsFileSystem
from fusee.store.saved_document import SavedDocument


def after(seconds: float, statistics: Statistics, clock: ManualClock) -> None:
    """Let time pass, with a sample every second."""
    for _ in range(round(seconds)):
        clock.advance(1)
        statistics.sample()


def busy() -> tuple[Statistics, ManualClock]:
    """Three puts of 10 messages in two queues, two gets, ten seconds ago."""
    clock = ManualClock()
    statistics = Statistics(clock, "C")
    statistics.sample()
    statistics.put("t", 0, 10, 1_000, 4)
    statistics.put("t", 0, 10, 1_000, 2)
    statistics.put("t", 1, 10, 2_000)
    statistics.got("g", "t", 0, 5, 600, False, 8)
    statistics.got("g", "t", 1, 15, 1_400, True)
    statistics.sent_back("g", "t")
    statistics.dead_letter("g", "t")
    statistics.count(names.CHANNEL_ACTIVITY, "CONNECT")
    statistics.count(names.CONSUMER_REGISTER_TIME, value=30)
    after(10, statistics, clock)
    return statistics, clock


@pytest.mark.parametrize(
    ("name", "key", "total", "average"),
    [
        (names.TOPIC_PUT_NUMS, "t", 30, 10.0),
        (names.TOPIC_PUT_SIZE, "t", 4_000, 4_000 / 3),
        (names.QUEUE_PUT_NUMS, "t@0", 20, 10.0),
        (names.QUEUE_PUT_SIZE, "t@1", 2_000, 2_000.0),
        (names.TOPIC_PUT_LATENCY, "0@t", 6, 3.0),
        (names.TOPIC_PUT_LATENCY, "1@t", 0, 0.0),
        (names.GROUP_GET_NUMS, "t@g", 20, 10.0),
        (names.GROUP_GET_SIZE, "t@g", 2_000, 1_000.0),
        (names.QUEUE_GET_NUMS, "t@1@g", 15, 15.0),
        (names.QUEUE_GET_SIZE, "t@0@g", 600, 600.0),
        (names.GROUP_GET_LATENCY, "0@t@g", 8, 8.0),
        (names.GROUP_GET_FROM_DISK_NUMS, "t@g", 15, 15.0),
        (names.GROUP_GET_FROM_DISK_SIZE, "t@g", 1_400, 1_400.0),
        (names.SNDBCK_PUT_NUMS, "t@g", 1, 1.0),
        (names.DLQ_PUT_NUMS, "t@g", 1, 1.0),
        (names.SNDBCK2DLQ_TIMES, "null@t@g@SEND_BACK_TO_DLQ", 1, 1.0),
        # The reference does not count how often, for the whole broker.
        (names.BROKER_PUT_NUMS, "C", 30, 0.0),
        (names.BROKER_GET_NUMS, "C", 20, 0.0),
        (names.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, "C", 30, 0.0),
        (names.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, "C", 20, 0.0),
        (names.BROKER_GET_FROM_DISK_NUMS, "C", 15, 0.0),
        (names.BROKER_GET_FROM_DISK_SIZE, "C", 1_400, 0.0),
        (names.CHANNEL_ACTIVITY, "CONNECT", 1, 1.0),
        (names.CONSUMER_REGISTER_TIME, "C", 30, 30.0),
    ],
)
def test_every_name_shows_what_was_counted(name: str, key: str, total: int, average: float) -> None:
    statistics, _ = busy()
    windows = statistics.windows(name, key)
    assert windows is not None
    assert windows.minute.sum == total
    assert windows.minute.per_second == pytest.approx(total / 10)
    assert windows.minute.average == pytest.approx(average)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (names.TOPIC_PUT_NUMS, "other"),
        (names.TOPIC_PUT_NUMS, "t@0"),
        (names.QUEUE_PUT_NUMS, "t@9"),
        (names.QUEUE_PUT_NUMS, "t@x"),
        (names.QUEUE_PUT_NUMS, "t@-1"),
        (names.QUEUE_GET_NUMS, "t@0"),
        (names.GROUP_GET_NUMS, "g@t"),
        (names.BROKER_PUT_NUMS, "D"),
        ("NO_SUCH_NAME", "t"),
    ],
)
def test_what_was_never_counted_is_not_there(name: str, key: str) -> None:
    statistics, _ = busy()
    assert statistics.windows(name, key) is None


def test_count_is_there_before_its_first_sample() -> None:
    statistics = Statistics(ManualClock(), "C")
    statistics.put("t", 0, 1, 100)
    assert statistics.windows(names.TOPIC_PUT_NUMS, "t") == Windows(*[(0, 0.0, 0.0)] * 3)  # type: ignore[arg-type]


def test_tps_of_topic_and_group_is_of_the_last_minute() -> None:
    statistics, clock = busy()
    assert statistics.topic_put_tps("t") == pytest.approx(3.0)
    assert statistics.group_get_tps("g", "t") == pytest.approx(2.0)
    assert statistics.topic_put_tps("other") == statistics.group_get_tps("g", "other") == 0.0
    after(50, statistics, clock)
    assert statistics.topic_put_tps("t") == pytest.approx(0.5)
    after(20, statistics, clock)
    assert statistics.topic_put_tps("t") == 0.0


def test_deleted_topic_and_group_are_forgotten_with_what_is_new_of_them() -> None:
    statistics, _ = busy()
    statistics.put("t", 7, 1, 1)
    statistics.got("g", "u", 0, 1, 1)
    statistics.topic_deleted("t")
    statistics.group_deleted("g")
    assert statistics.windows(names.TOPIC_PUT_NUMS, "t") is None
    assert statistics.windows(names.QUEUE_PUT_NUMS, "t@7") is None
    assert statistics.windows(names.GROUP_GET_NUMS, "u@g") is None
    assert statistics.windows(names.BROKER_PUT_NUMS, "C") is not None


# Rates


def test_rates_are_over_the_seconds_asked_for() -> None:
    clock = ManualClock()
    statistics = Statistics(clock, "C")
    job = Periodic(clock, names.SAMPLE_INTERVAL, statistics.sample, first_after=0)
    job.start()
    clock.advance(0)
    for _ in range(60):
        statistics.put_latency(20, 0.4)
        clock.advance(1)
    for _ in range(10):
        statistics.put_latency(2, 1)
        statistics.got("g", "t", 0, 8, 100)
        statistics.missed()
        statistics.missed()
        clock.advance(1)
    assert statistics.rates(10) == pytest.approx(Rates(2.0, 1.0, 2.0, 8.0))
    assert statistics.rates(60) == pytest.approx(Rates((50 * 20 + 20) / 60, 1 / 6, 2 / 6, 8 / 6))
    assert statistics.rates(600) is None
    clock.advance(600)
    assert statistics.rates(600) == pytest.approx(Rates(0, 0, 0, 0))


def test_rates_are_unknown_before_there_are_samples() -> None:
    statistics = Statistics(ManualClock(), "C")
    assert statistics.rates(10) is None
    statistics.sample()
    assert statistics.rates(10) is None


def test_rates_are_right_when_samples_are_ten_seconds_apart() -> None:
    clock = ManualClock()
    statistics = Statistics(clock, "C")
    for _ in range(70):
        statistics.put_latency(30, 0)
        statistics.sample()
        clock.advance(10)
    for seconds in (10, 60, 600):
        assert statistics.rates(seconds) == pytest.approx(Rates(3.0, 0, 0, 0))


def test_latency_turns_every_minute() -> None:
    clock = ManualClock()
    statistics = Statistics(clock, "C")
    statistics.put_latency(7, 12.7)
    after(60, statistics, clock)
    statistics.put_latency(1, 0)
    assert "[<=0ms]:0 " in statistics.latency.text()
    assert "[10~50ms]:7 " in statistics.latency.text()
    assert statistics.latency.longest_ms == 12
    after(60, statistics, clock)
    assert "[<=0ms]:1 " in statistics.latency.text()


# Days


def until_midnight(clock: ManualClock) -> float:
    moment = time.localtime(clock.time_ms() / 1000)
    return 86_400 - (moment.tm_hour * 3_600 + moment.tm_min * 60 + moment.tm_sec)


def test_day_turns_at_midnight_with_what_was_counted_until_then() -> None:
    clock = ManualClock()
    statistics = Statistics(clock, "C")
    statistics.put("t", 0, 100, 1)
    statistics.put(SCHEDULE_TOPIC, 2, 7, 1)
    statistics.got("g", "t", 0, 40, 1)
    assert statistics.days.put == Mornings(now=100)
    clock.advance(until_midnight(clock))
    statistics.put("t", 0, 1, 1)
    statistics.sample()
    statistics.put("t", 0, 20, 1)
    assert statistics.days.put == Mornings(now=121, today_morning=101)
    assert statistics.days.got == Mornings(now=40, today_morning=40)
    clock.advance(until_midnight(clock))
    statistics.sample()
    assert statistics.days.put == Mornings(now=121, today_morning=121, yesterday_morning=101)


def test_broker_decides_which_topics_are_of_the_system() -> None:
    statistics = Statistics(ManualClock(), "C", is_system=lambda topic: topic == "mine")
    statistics.put("mine", 0, 3, 1)
    statistics.put("yours", 0, 4, 1)
    assert statistics.days.put.now == 4


def document(folder: Path) -> SavedDocument[DailyTotals]:
    return SavedDocument(folder / "totals.json", OsFileSystem(), encode=encode_totals, decode=decode_totals)


def test_totals_go_on_after_a_restart_on_the_same_day_and_on_the_next(tmp_path: Path) -> None:
    clock = ManualClock()
    first = Statistics(clock, "C", document=document(tmp_path))
    first.load()
    first.put("t", 0, 5, 1)
    first.save()
    second = Statistics(clock, "C", document=document(tmp_path))
    second.load()
    second.put("t", 0, 2, 1)
    assert second.days.put == Mornings(now=7)
    second.save()
    clock.advance(until_midnight(clock))
    third = Statistics(clock, "C", document=document(tmp_path))
    third.load()
    assert third.days.put == Mornings(now=7, today_morning=7)


def test_totals_are_saved_only_when_they_changed(tmp_path: Path) -> None:
    statistics = Statistics(ManualClock(), "C", document=document(tmp_path))
    statistics.save()
    (tmp_path / "totals.json").unlink()
    statistics.save()
    assert not (tmp_path / "totals.json").exists()
    statistics.put("t", 0, 5, 1)
    statistics.save()
    assert (tmp_path / "totals.json").exists()


def test_without_document_nothing_is_kept() -> None:
    statistics = Statistics(ManualClock(), "C")
    statistics.load()
    statistics.save()
