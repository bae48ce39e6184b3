"""What a consumer can be told, and what a listener can answer."""

from __future__ import annotations

from typing import Any

import pytest

from fusee.client.consumer.options import ConsumeResult, ConsumerOptions, RetryLater, consumer_options, retry_asked
from fusee.errors import ConfigError


def test_options_when_nothing_is_said_are_java_s() -> None:
    options = consumer_options({})
    assert (options.consume_thread_max, options.consume_message_batch_max_size) == (20, 1)
    assert (options.pull_batch_size, options.pull_batch_size_in_bytes) == (32, 262_144)
    assert (options.pull_threshold_for_queue, options.pull_threshold_size_for_queue) == (1000, 100)
    assert (options.consume_concurrently_max_span, options.consume_timeout_min) == (2000, 15)
    assert (options.max_reconsume_times, options.suspend_current_queue_time_ms) == (-1, 1000)


@pytest.mark.parametrize("name", ["consume_thread_max", "pull_threshold_for_queue", "consume_message_batch_max_size"])
def test_options_when_out_of_range_name_the_range(name: str) -> None:
    for wrong in (0, 10**7, True):
        with pytest.raises(ConfigError, match=f"{name} is {wrong}; it must be a number from 1 to"):
            consumer_options({name: wrong})


@pytest.mark.parametrize("answer", [None, True, ConsumeResult.SUCCESS, 0, "", 7, object()])
def test_answer_when_it_is_not_a_refusal_is_success(answer: object) -> None:
    assert retry_asked(answer) is None


def test_answer_when_a_refusal_says_how() -> None:
    later = RetryLater(delay_level=4)
    assert retry_asked(later) is later
    for answer in (False, ConsumeResult.RETRY_LATER):
        retry = retry_asked(answer)
        assert retry is not None
        assert (retry.delay_level, retry.messages) == (None, None)
    dead = retry_asked(ConsumeResult.DEAD_LETTER)
    assert dead is not None
    assert dead.delay_level == -1
    assert str(RetryLater("stock is empty")) == "stock is empty"


@pytest.mark.parametrize(
    "wrong", [{"delay_level": "3"}, {"delay_level": 1.5}, {"delay_level": -2}, {"suspend_ms": "1"}]
)
def test_retry_when_it_says_nonsense_is_refused_where_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RetryLater(**wrong)


@pytest.mark.parametrize("wrong", [-2, 1.5, "3", True, None])
def test_delay_level_when_nonsense_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="delay_level_when_next_consume is"):
        consumer_options({"delay_level_when_next_consume": wrong})


def test_options_when_made_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ConsumerOptions().pull_batch_size = 5  # type: ignore[misc]
