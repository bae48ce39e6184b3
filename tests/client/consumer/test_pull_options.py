"""Settings of a pull consumer: the names are known, the numbers make sense."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from fusee.client.consumer.assigned_queues import FetchLimits
from fusee.client.consumer.pull_options import PullOptions, PullSettings, pull_options
from fusee.errors import ConfigError


def test_settings_and_options_have_the_same_names() -> None:
    assert [field.name for field in fields(PullOptions)] == list(PullSettings.__annotations__)


def test_options_without_settings_are_the_defaults() -> None:
    assert pull_options({}) == PullOptions()
    assert PullOptions().limits == FetchLimits()


def test_limits_are_in_bytes() -> None:
    limits = pull_options({"pull_threshold_size_for_queue": 3, "pull_threshold_for_all": 7}).limits
    assert (limits.bytes_for_queue, limits.count_for_all) == (3 * 1024 * 1024, 7)


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"pull_batch_size": 0}, "pull_batch_size is 0; it must be a number from 1 to 1024"),
        ({"pull_batch_size": True}, "pull_batch_size is True"),
        ({"poll_timeout_ms": -1}, "poll_timeout_ms"),
        ({"consume_from": "middle"}, "consume_from"),
        ({"missing_topic": "make"}, "missing_topic"),
        ({"broker_suspend_max_time_ms": 30_000}, "must be greater than"),
        ({"autocommit": True}, "no setting 'autocommit'"),
    ],
)
def test_options_that_make_no_sense_are_refused(settings: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        pull_options(settings)
