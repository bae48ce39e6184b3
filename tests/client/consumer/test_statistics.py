"""Counts and rates of a consumer."""

from __future__ import annotations

import pytest

from fusee.client.consumer.statistics import ConsumeStatistics
from fusee.clock import ManualClock


def test_rates_when_sampled_are_those_of_the_last_minute() -> None:
    clock = ManualClock()
    statistics = ConsumeStatistics(clock)
    statistics.consumed("orders", 1_000_000, 0, 1.0)
    for _ in range(24):
        clock.advance(5)
        statistics.sample()
        statistics.consumed("orders", 90, 10, 0.5)
        statistics.pulled("orders", 100, 0.02)
    status = statistics.status("orders")
    # 13 rounds lie within the minute up to the last sample.
    assert status.consume_ok_tps == pytest.approx(90 * 13 / 60)
    assert status.consume_failed_tps == pytest.approx(10 * 13 / 60)
    assert status.pull_tps == pytest.approx(100 * 13 / 60)
    assert status.consume_failed_messages == 240
    assert status.pull_rt_ms == pytest.approx(20.0)


def test_status_when_nothing_happened_is_zero() -> None:
    status = ConsumeStatistics(ManualClock()).status("orders")
    assert (status.consume_ok_tps, status.consume_rt_ms, status.pull_rt_ms) == (0.0, 0.0, 0.0)
