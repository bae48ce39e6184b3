"""Windows of accounts: against the plain algorithm of the reference, and what is forgotten."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.sampled_counts import Column, Owner, SampledCounts, Span, Window

TOPIC = Owner("put", topic="t")


def test_account_that_nobody_added_to_has_no_window() -> None:
    assert SampledCounts().window(TOPIC, Column.COUNT, Span.MINUTE) is None


def test_window_is_empty_before_the_first_sample() -> None:
    counts = SampledCounts()
    counts.add(TOPIC, (5, 100, 7, 2))
    assert counts.window(TOPIC, Column.COUNT, Span.MINUTE) == Window()


def test_young_account_began_one_step_before_its_first_sample() -> None:
    counts = SampledCounts()
    counts.sample(100.0)
    counts.add(TOPIC, (50, 1_000, 20, 4))
    counts.sample(110.0)
    assert counts.window(TOPIC, Column.COUNT, Span.MINUTE) == Window(50, 5.0, 12.5)
    assert counts.window(TOPIC, Column.SIZE, Span.MINUTE) == Window(1_000, 100.0, 250.0)
    assert counts.window(TOPIC, Column.ELAPSED, Span.MINUTE) == Window(20, 2.0, 5.0)
    counts.sample(120.0)
    assert counts.window(TOPIC, Column.COUNT, Span.MINUTE) == Window(50, 2.5, 12.5)


def test_minute_forgets_what_was_before_it() -> None:
    counts = SampledCounts()
    for step in range(10):
        counts.add(TOPIC, (step, 0, 0, 1))
        counts.sample(10.0 * step)
    # Samples 3 to 9: what was added in steps 4 to 9.
    assert counts.window(TOPIC, Column.COUNT, Span.MINUTE) == Window(39, 39 / 60, 39 / 6)


def test_window_of_idle_account_is_zero() -> None:
    counts = SampledCounts()
    counts.add(TOPIC, (5, 0, 0, 1))
    for step in range(8):
        counts.sample(10.0 * step)
    assert counts.window(TOPIC, Column.COUNT, Span.MINUTE) == Window()
    counts.add(TOPIC, (6, 0, 0, 1))
    counts.sample(80.0)
    assert counts.window(TOPIC, Column.COUNT, Span.MINUTE) == Window(6, 0.1, 6.0)


def test_hour_and_day_are_sampled_by_their_own_step() -> None:
    counts = SampledCounts()
    counts.sample(0.0)
    counts.add(TOPIC, (600, 0, 0, 1))
    counts.sample(300.0)
    assert counts.window(TOPIC, Column.COUNT, Span.HOUR) == Window()
    counts.sample(600.0)
    assert counts.window(TOPIC, Column.COUNT, Span.HOUR) == Window(600, 1.0, 600.0)
    assert counts.window(TOPIC, Column.COUNT, Span.DAY) == Window()
    counts.sample(3_600.0)
    assert counts.window(TOPIC, Column.COUNT, Span.DAY) == Window(600, 600 / 3_600, 600.0)


def test_early_timer_does_not_cost_a_step() -> None:
    counts = SampledCounts()
    counts.sample(0.0)
    assert not counts.is_due(9.0)
    assert counts.is_due(9.8)


def test_topic_and_group_take_their_accounts_with_them() -> None:
    counts = SampledCounts()
    owners = [Owner("put", "", "t"), Owner("put", "", "t", 3), Owner("get", "g", "t"), Owner("get", "g", "u")]
    for owner in owners:
        counts.add(owner, (1, 1, 1, 1))
    counts.forget_topic("t")
    assert [counts.window(owner, Column.COUNT, Span.MINUTE) is None for owner in owners] == [True, True, True, False]
    counts.forget_group("g")
    counts.forget_group("g")
    assert len(counts) == 0
    counts.sample(0.0)
    counts.add(owners[0], (2, 0, 0, 1))
    counts.sample(10.0)
    assert counts.window(owners[0], Column.COUNT, Span.MINUTE) == Window(2, 0.2, 2.0)


def test_account_idle_for_a_day_is_forgotten() -> None:
    counts = SampledCounts()
    busy = Owner("put", topic="busy")
    counts.add(TOPIC, (1, 0, 0, 1))
    for hour in range(25):
        counts.add(busy, (0, 0, 0, 1))
        counts.sample(3_600.0 * hour)
    assert counts.window(TOPIC, Column.COUNT, Span.DAY) is None
    assert counts.window(busy, Column.COUNT, Span.DAY) is not None
    counts.forget_topic("t")


def test_accounts_are_bounded_and_the_first_refusal_is_told(caplog: pytest.LogCaptureFixture) -> None:
    counts = SampledCounts(accounts_max=2)
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            counts.add(Owner("put", topic=str(number)), (1, 0, 0, 1))
    assert len(counts) == 2
    assert len(caplog.records) == 1
    counts.forget_topic("0")
    counts.add(Owner("put", topic="9"), (1, 0, 0, 1))
    assert counts.window(Owner("put", topic="9"), Column.COUNT, Span.MINUTE) == Window()


class Plain:
    """The reference's way: a sample at every step, from the one after the item was made."""

    def __init__(self) -> None:
        self.value = self.times = 0
        self.samples: list[tuple[float, int, int]] = []

    def sample(self, now: float) -> None:
        if not self.samples:
            self.samples.append((now - 10, 0, 0))
        self.samples.append((now, self.value, self.times))
        del self.samples[:-7]

    def window(self) -> Window:
        if not self.samples:
            return Window()
        (began, first, first_times), (ended, last, last_times) = self.samples[0], self.samples[-1]
        total, times = last - first, last_times - first_times
        return Window(total, total / (ended - began), total / times if times else 0.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.floats(9.6, 14)), max_size=40))
def test_windows_are_those_of_a_sample_of_every_account_at_every_step(steps: list[tuple[int, int, float]]) -> None:
    counts, plain, now = SampledCounts(), Plain(), 0.0
    for additions, value, seconds in steps:
        for _ in range(additions):
            counts.add(TOPIC, (value, 0, 0, 1))
            plain.value += value
            plain.times += 1
        now += seconds
        counts.sample(now)
        if plain.times:
            plain.sample(now)
        shown = counts.window(TOPIC, Column.COUNT, Span.MINUTE) or Window()
        assert shown == pytest.approx(plain.window())
