"""Slow and failing brokers are avoided for as long as the table says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.latency import ISOLATION_MS, LATENCY_STEPS_MS, LatencyFaults, isolation_ms


@pytest.mark.parametrize(
    ("latency_ms", "expected_ms"),
    [
        (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 2_000), (1_799, 2_000), (1_800, 5_000), (3_000, 6_000),
        (5_000, 10_000), (10_000, 10_000), (14_999, 10_000), (15_000, 30_000), (1e9, 30_000),
    ],
)  # fmt: skip
def test_isolation_follows_the_table(latency_ms: float, expected_ms: int) -> None:
    assert isolation_ms(latency_ms) == expected_ms


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_isolation_grows_with_latency(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert isolation_ms(low) <= isolation_ms(high)
    assert len(LATENCY_STEPS_MS) == len(ISOLATION_MS)


def test_unknown_broker_is_available_and_reachable() -> None:
    faults = LatencyFaults()
    assert faults.is_available("a", 0.0)
    assert faults.is_reachable("a")
    assert faults.latency_ms("a") is None


def test_slow_answer_isolates_until_its_time_is_over() -> None:
    faults = LatencyFaults()
    faults.update("a", 600, now=10.0)
    assert not faults.is_available("a", 11.999)
    assert faults.is_available("a", 12.0)
    assert faults.is_available("b", 10.0)
    assert faults.latency_ms("a") == 600


def test_failure_counts_as_ten_seconds() -> None:
    faults = LatencyFaults()
    faults.update("a", 1, now=0.0, failed=True)
    assert not faults.is_available("a", 9.999)
    assert faults.is_available("a", 10.0)


def test_quick_answer_does_not_end_isolation() -> None:
    faults = LatencyFaults()
    faults.update("a", 16_000, now=0.0)
    faults.update("a", 1, now=1.0)
    faults.update("a", 600, now=2.0)
    assert not faults.is_available("a", 29.0)
    assert faults.is_available("a", 30.0)


def test_unreachable_broker_is_checked_every_two_seconds_until_found() -> None:
    faults = LatencyFaults()
    faults.update("a", 1, now=0.0, failed=True, reachable=False)
    faults.update("b", 1, now=0.0)
    assert not faults.is_reachable("a")
    assert faults.due_for_check(0.0) == ["a"]
    assert faults.due_for_check(1.0) == []
    assert faults.due_for_check(2.0) == ["a"]
    faults.found_reachable("a")
    faults.found_reachable("nobody")
    assert faults.is_reachable("a")
    assert faults.due_for_check(9.0) == []


def test_brokers_that_no_route_names_are_forgotten() -> None:
    faults = LatencyFaults()
    faults.update("a", 16_000, now=0.0)
    faults.update("b", 16_000, now=0.0)
    faults.keep_only(["b"])
    assert faults.is_available("a", 0.0)
    assert not faults.is_available("b", 0.0)


def test_table_of_brokers_is_bounded() -> None:
    faults = LatencyFaults()
    for number in range(5_000):
        faults.update(f"broker-{number}", 16_000, now=0.0)
    assert faults.is_available("broker-0", 0.0)
    assert not faults.is_available("broker-4999", 0.0)
