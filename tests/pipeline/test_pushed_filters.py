from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThanOrEqual, Not, StringStartsWith

from fusee.message.model import MessageQueue
from fusee.pipeline.pushed_filters import CLOCK_STEP_MS, PushedFilters, in_word


def pushed(*filters: Any) -> PushedFilters:
    found = PushedFilters()
    for each in filters:
        if (condition := in_word(each)) is not None:
            found.accept(*condition)
    return found


def test_queues_that_cannot_match_are_left_out() -> None:
    found = pushed(EqualTo(("topic",), "a"), In(("queueId",), (1, 2)), StringStartsWith(("brokerName",), "east"))
    assert found.allow(MessageQueue("a", "east-1", 2))
    assert not found.allow(MessageQueue("b", "east-1", 2))
    assert not found.allow(MessageQueue("a", "west-1", 2))
    assert not found.allow(MessageQueue("a", "east-1", 3))


def test_offsets_become_one_interval() -> None:
    assert pushed(GreaterThan(("queueOffset",), 5), LessThanOrEqual(("queueOffset",), 9)).offsets == (6, 10)
    assert pushed(In(("queueOffset",), (3, 8))).offsets == (3, 9)
    assert pushed(EqualTo(("offset",), 4)).offsets == (4, 5)
    assert pushed().offsets[0] == 0


def test_times_are_widened_for_clocks_that_were_set_back() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    at = int(noon.timestamp() * 1000)
    assert pushed(EqualTo(("storeTimestamp",), noon)).times_ms == (at - CLOCK_STEP_MS, at + 1 + CLOCK_STEP_MS)
    assert pushed(EqualTo(("queueId",), 1)).times_ms is None


@pytest.mark.parametrize(
    ("option", "filters", "asked"),
    [
        ("*", [EqualTo(("tags",), "a")], "a"),
        ("*", [In(("tags",), ("a", "b"))], "a || b"),
        ("a || c", [In(("tags",), ("a", "b"))], "a"),
        ("c", [EqualTo(("tags",), "a")], None),
        ("c", [], "c"),
        ("*", [EqualTo(("tags",), "a||b")], "*"),
        ("*", [EqualTo(("tags",), " a")], "*"),
        ("*", [In(("tags",), ("a", None))], "*"),
    ],
)
def test_tags_of_option_and_query_are_one_expression(option: str, filters: list[Any], asked: str | None) -> None:
    assert pushed(*filters).tags(option) == asked


def test_what_narrows_nothing_is_left_to_spark() -> None:
    kept = pushed(
        IsNotNull(("topic",)),
        Not(EqualTo(("topic",), "a")),
        EqualTo(("body",), b"x"),
        EqualTo(("properties", "a"), "b"),
    )
    assert not kept.conditions
