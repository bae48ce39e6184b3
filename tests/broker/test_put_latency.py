"""Buckets as the reference prints them, percentiles, and the turn of the minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.put_latency import PutLatency

NOTHING = (
    "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 "
    "[3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
)
# Upper edges, and the width of the buckets below each.
BUCKETS = ((20, 1), (50, 2), (100, 5), (200, 10), (500, 50), (1_000, 100), (10_000, 1_000))


def test_text_of_nothing_has_every_bucket() -> None:
    assert PutLatency().text() == NOTHING


@pytest.mark.parametrize(
    ("elapsed_ms", "label"),
    [
        (0, "[<=0ms]"),
        (1, "[0~10ms]"),
        (9, "[0~10ms]"),
        (10, "[10~50ms]"),
        (50, "[50~100ms]"),
        (199, "[100~200ms]"),
        (500, "[500ms~1s]"),
        (999, "[500ms~1s]"),
        (1_000, "[1~2s]"),
        (4_999, "[4~5s]"),
        (9_999, "[5~10s]"),
        (10_000, "[10s~]"),
        (99_999, "[10s~]"),
    ],
)
def test_measurement_falls_into_the_bucket_of_the_reference(elapsed_ms: int, label: str) -> None:
    latency = PutLatency()
    latency.add(3, elapsed_ms)
    assert latency.text() == NOTHING.replace(f"{label}:0", f"{label}:3")
    assert latency.longest_ms == elapsed_ms


def test_minute_that_is_over_is_shown_until_the_next_is() -> None:
    latency = PutLatency()
    latency.add(1, 0)
    latency.turn()
    latency.add(5, 20)
    assert latency.text().startswith("[<=0ms]:1 [0~10ms]:0 [10~50ms]:0")
    latency.turn()
    assert latency.text().startswith("[<=0ms]:0 [0~10ms]:0 [10~50ms]:5")
    latency.turn()
    assert latency.text() == NOTHING
    assert latency.longest_ms == 20


def test_percentile_is_interpolated_within_its_bucket() -> None:
    latency = PutLatency()
    assert latency.percentile(0.99) == 0
    latency.add(100, 0)
    assert latency.percentile(0.99) == pytest.approx(0.99)
    latency.add(100, 40)
    # Rank 198 of 200: 98 of the 100 measurements in the bucket from 38 to 40 ms.
    assert latency.percentile(0.99) == pytest.approx(38 + 2 * 0.98)


def test_percentile_beyond_ten_seconds_is_bounded_by_the_longest() -> None:
    latency = PutLatency()
    latency.add(1_000, 30_000)
    latency.add(1_000, 25_000)
    assert 10_000 < latency.percentile(0.999) <= 30_000


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=50))
def test_percentile_is_in_the_bucket_of_the_measurement_of_that_rank(measured: list[int]) -> None:
    latency = PutLatency()
    for elapsed_ms in measured:
        latency.add(1, elapsed_ms)
    true = sorted(measured)[int(len(measured) * 0.99) - 1]
    width = next(width for edge, width in BUCKETS if true <= edge)
    assert abs(latency.percentile(0.99) - true) <= width
