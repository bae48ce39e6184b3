"""Refusals stand for a while, each by itself."""

from __future__ import annotations

from fusee.clock import ManualClock
from fusee.pipeline.refusals import REMEMBERED_S, Refusals


def test_a_refusal_stands_until_its_time_is_over() -> None:
    clock = ManualClock()
    refusals = Refusals(clock)
    assert "a" not in refusals
    refusals.add("a")
    clock.advance(REMEMBERED_S - 1)
    refusals.add(("b", 1))
    assert "a" in refusals
    clock.advance(2)
    assert "a" not in refusals
    assert ("b", 1) in refusals
