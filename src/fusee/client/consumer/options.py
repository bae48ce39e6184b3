"""What a consumer can be told, under RocketMQ's own names, and what a listener can answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, TypedDict

from fusee.client.received import ReceivedMessage
from fusee.errors import ConfigError

_log = logging.getLogger(__name__)

DEAD_LETTER_LEVEL: Final = -1
"""The delay level by which a message goes to its group's dead letters at once."""

DelayLevels: TypeAlias = int | Callable[[ReceivedMessage], int]
"""When a failed message is tried again: 0 leaves it to the broker, which waits longer each time; 1 to 18 is a delay
level; -1 makes it a dead letter. A function decides for each message."""


DELAY_LEVELS_SAID: Final = "it is 0 for the broker's own choice, 1 or more for a level, -1 for a dead letter"


def is_delay_level(value: object) -> bool:
    """Whether this can be a delay level; how many there are the broker knows."""
    return type(value) is int and value >= DEAD_LETTER_LEVEL


class ConsumeResult(Enum):
    """What a listener says of the messages it was given. None and True are SUCCESS, False is RETRY_LATER."""

    SUCCESS = "SUCCESS"
    RETRY_LATER = "RETRY_LATER"
    DEAD_LETTER = "DEAD_LETTER"


class RetryLater(Exception):  # noqa: N818 - it is a request, not an error; raised or returned
    """What a listener raises, or returns, to have messages delivered again and to say when.

    `messages` are those of a batch that failed; without it, all. `delay_level` is as in DelayLevels, and None leaves it
    to the consumer's setting. An orderly consumer has no delay levels: it rests `suspend_ms` and then goes on with the
    same message. Raises ConfigError for what is no level and no time.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        messages: Sequence[ReceivedMessage] | None = None,
        delay_level: int | None = None,
        suspend_ms: int | None = None,
    ) -> None:
        super().__init__(reason or "the listener asked for another try")
        if delay_level is not None and not is_delay_level(delay_level):
            raise ConfigError(f"delay_level is {delay_level!r}; {DELAY_LEVELS_SAID}")
        if suspend_ms is not None and not isinstance(suspend_ms, int | float):
            raise ConfigError(f"suspend_ms is {suspend_ms!r}; it is a number of milliseconds")
        self.messages = messages
        self.delay_level = delay_level
        self.suspend_ms = suspend_ms


class ConsumerSettings(TypedDict, total=False):
    """The settings of a consumer as keyword arguments; `ConsumerOptions` says what each means."""

    consume_thread_max: int
    consume_message_batch_max_size: int
    consume_timeout_min: float
    consume_concurrently_max_span: int
    max_reconsume_times: int
    delay_level_when_next_consume: DelayLevels
    suspend_current_queue_time_ms: int
    pull_batch_size: int
    pull_batch_size_in_bytes: int
    pull_interval_ms: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_time_delay_ms_when_exception: int
    post_subscription_when_pull: bool
    unit_mode: bool
    run_in_threads: bool | None
    missing_topic: Literal["raise", "wait"]
    await_termination_ms_when_shutdown: int


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "consume_thread_max": (1, 1000),
    "consume_message_batch_max_size": (1, 1024),
    "consume_timeout_min": (0.01, 60 * 24 * 365),
    "consume_concurrently_max_span": (1, 65535),
    "max_reconsume_times": (-1, 2**31 - 1),
    "suspend_current_queue_time_ms": (10, 30_000),
    "pull_batch_size": (1, 1024),
    "pull_batch_size_in_bytes": (1, 2**31 - 1),
    "pull_interval_ms": (0, 65535),
    "pull_threshold_for_queue": (1, 65535),
    "pull_threshold_size_for_queue": (1, 1024),
    "pull_time_delay_ms_when_exception": (1, 600_000),
    "await_termination_ms_when_shutdown": (0, 24 * 3600 * 1000),
}
_RANGES_OR_NONE: Final[dict[str, tuple[int, int]]] = {
    "pull_threshold_for_topic": (1, 6_553_500),
    "pull_threshold_size_for_topic": (1, 102_400),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Settings of one consumer, with Java's names and, where the user would not notice otherwise, its defaults."""

    consume_thread_max: int = 20
    """How many calls of the listener run at a time."""
    consume_message_batch_max_size: int = 1
    """How many messages one call of a batch listener gets at most."""
    consume_timeout_min: float = 15
    """After so long in a listener a message is sent back, so that the queue can go on without it."""
    consume_concurrently_max_span: int = 2000
    """How far the last message fetched may be from the first one unfinished, in offsets."""
    max_reconsume_times: int = -1
    """How often a message is tried again before it becomes a dead letter; -1 is 16, and in order for ever."""
    delay_level_when_next_consume: DelayLevels = 0
    """When a failed message is tried again."""
    suspend_current_queue_time_ms: int = 1000
    """How long an orderly queue rests after a failure."""
    pull_batch_size: int = 32
    """How many messages one pull asks for. A broker gives 32 at most unless it is set up to give more."""
    pull_batch_size_in_bytes: int = 256 * 1024
    """How many bytes one pull asks for."""
    pull_interval_ms: int = 0
    """How long to wait after each pull."""
    pull_threshold_for_queue: int = 1000
    """How many messages of a queue may wait here; one pull may go beyond."""
    pull_threshold_size_for_queue: int = 100
    """How many MiB of a queue may wait here."""
    pull_threshold_for_topic: int = -1
    """How many messages of all queues together; -1 sets no limit."""
    pull_threshold_size_for_topic: int = -1
    """How many MiB of all queues together; -1 sets no limit."""
    pull_time_delay_ms_when_exception: int = 3000
    """How long to wait after a pull that a broker refused."""
    post_subscription_when_pull: bool = False
    """Send the expression with every pull, not only with heartbeats."""
    unit_mode: bool = False
    run_in_threads: bool | None = None
    """Where a plain function is called as listener: in threads (None), or with False on the loop, where it must not
    block. Coroutine functions always run on the loop."""
    missing_topic: Literal["raise", "wait"] = "raise"
    """What a topic that does not exist means at the start: an error, or that it will be made later."""
    await_termination_ms_when_shutdown: int = 30_000
    """How long closing waits for listeners that are at work."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not low <= value <= high:
                raise ConfigError(f"{name} is {value!r}; it must be a number from {low} to {high}")
        for name, (low, high) in _RANGES_OR_NONE.items():
            value = getattr(self, name)
            if value != -1 and not low <= value <= high:
                raise ConfigError(f"{name} is {value!r}; it must be -1, for no limit, or from {low} to {high}")
        level = self.delay_level_when_next_consume
        if not (callable(level) or is_delay_level(level)):
            raise ConfigError(
                f"delay_level_when_next_consume is {level!r}; {DELAY_LEVELS_SAID}, or a function of the message"
            )
        if self.missing_topic not in ("raise", "wait"):
            raise ConfigError(f'missing_topic is {self.missing_topic!r}; it must be "raise" or "wait"')

    def delay_level(self, message: ReceivedMessage) -> int:
        """The delay level for the next try of this message. A function that fails leaves it to the broker."""
        level = self.delay_level_when_next_consume
        if isinstance(level, int):
            return level
        try:
            chosen = level(message)
        except Exception:  # noqa: BLE001 - a function of the user's, as the listener is
            _log.exception("delay_level_when_next_consume failed for %s; the broker chooses the delay", message)
            return 0
        if not is_delay_level(chosen):
            _log.error(
                "delay_level_when_next_consume gave %r for %s, and the broker chooses the delay: %s",
                chosen,
                message,
                DELAY_LEVELS_SAID,
            )
            return 0
        return chosen


def consumer_options(settings: ConsumerSettings | dict[str, Any]) -> ConsumerOptions:
    """The options that these keyword arguments mean. Raises ConfigError naming the one that is unknown or wrong."""
    known = {field.name for field in fields(ConsumerOptions)}
    for name in settings:
        if name not in known:
            raise ConfigError(f"a consumer has no setting {name!r}; it has {', '.join(sorted(known))}")
    return ConsumerOptions(**settings)


def retry_asked(answer: object) -> RetryLater | None:
    """The other try that a listener's answer asks for, or None when it is done.

    Whatever else a function returns says nothing about the message.
    """
    if isinstance(answer, RetryLater):
        return answer
    if answer is False or answer is ConsumeResult.RETRY_LATER:
        return RetryLater()
    if answer is ConsumeResult.DEAD_LETTER:
        return RetryLater(delay_level=DEAD_LETTER_LEVEL)
    return None
