"""What a pull consumer can be told, under RocketMQ's own names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from fusee.client.consumer.assigned_queues import FetchLimits
from fusee.client.consumer.start_offset import check_consume_from
from fusee.errors import ConfigError

if TYPE_CHECKING:
    from fusee.client.consumer.start_offset import ConsumeFrom

_MIB: Final = 1024 * 1024


class PullSettings(TypedDict, total=False):
    """The settings of a pull consumer as keyword arguments; `PullOptions` says what each means."""

    consume_from: ConsumeFrom
    missing_topic: Literal["raise", "wait"]
    auto_commit: bool
    auto_commit_interval_ms: int
    poll_timeout_ms: int
    max_poll_messages: int
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_all: int
    consume_max_span: int
    broker_suspend_max_time_ms: int
    consumer_timeout_ms_when_suspend: int
    consumer_pull_timeout_ms: int
    pull_time_delay_ms_when_exception: int


_RANGES: Final[dict[str, tuple[int, int]]] = {
    "auto_commit_interval_ms": (1, 24 * 3600 * 1000),
    "poll_timeout_ms": (0, 24 * 3600 * 1000),
    "max_poll_messages": (1, 1_000_000),
    "pull_batch_size": (1, 1024),
    "pull_threshold_for_queue": (1, 65535),
    "pull_threshold_size_for_queue": (1, 1024),
    "pull_threshold_for_all": (1, 6_553_500),
    "consume_max_span": (1, 65535),
    "broker_suspend_max_time_ms": (1, 24 * 3600 * 1000),
    "consumer_timeout_ms_when_suspend": (1, 24 * 3600 * 1000),
    "consumer_pull_timeout_ms": (1, 24 * 3600 * 1000),
    "pull_time_delay_ms_when_exception": (1, 600_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """Settings of one pull consumer, with Java's names and, where only the user would notice, better defaults."""

    consume_from: ConsumeFrom = "last"
    """Where a group begins that has committed nothing."""
    missing_topic: Literal["raise", "wait"] = "raise"
    """What a topic that does not exist means at the start: an error, or that it will be made later."""
    auto_commit: bool = True
    """Whether what is done is committed without being told."""
    auto_commit_interval_ms: int = 5_000
    """How often that happens."""
    poll_timeout_ms: int = 5_000
    """How long a poll waits for a message unless it is told."""
    max_poll_messages: int = 500
    """How many messages a poll gives at most unless it is told."""
    pull_batch_size: int = 32
    """How many messages one fetch asks for. A broker gives 32 at most unless it is set up to give more."""
    pull_threshold_for_queue: int = 1_000
    """How many messages of a queue may wait here; one fetch may go beyond."""
    pull_threshold_size_for_queue: int = 100
    """How many MiB of a queue may wait here."""
    pull_threshold_for_all: int = 10_000
    """How many messages of all queues together may wait here."""
    consume_max_span: int = 2_000
    """How far the last message that waits may be from the first, in offsets."""
    broker_suspend_max_time_ms: int = 20_000
    """How long a broker holds a fetch that finds nothing."""
    consumer_timeout_ms_when_suspend: int = 30_000
    """How long to wait for the answer to such a fetch."""
    consumer_pull_timeout_ms: int = 10_000
    """How long to wait for the answer to a pull by hand, beyond the time it is held."""
    pull_time_delay_ms_when_exception: int = 1_000
    """How long to wait after a fetch that failed."""

    def __post_init__(self) -> None:
        check_consume_from(self.consume_from)
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not low <= value <= high:
                raise ConfigError(f"{name} is {value!r}; it must be a number from {low} to {high}")
        if self.missing_topic not in ("raise", "wait"):
            raise ConfigError(f'missing_topic is {self.missing_topic!r}; it must be "raise" or "wait"')
        if self.consumer_timeout_ms_when_suspend <= self.broker_suspend_max_time_ms:
            raise ConfigError(
                f"consumer_timeout_ms_when_suspend ({self.consumer_timeout_ms_when_suspend}) must be greater than "
                f"broker_suspend_max_time_ms ({self.broker_suspend_max_time_ms}), or idle fetches end in time-outs"
            )

    @property
    def limits(self) -> FetchLimits:
        """How much may be fetched ahead."""
        return FetchLimits(
            count_for_queue=self.pull_threshold_for_queue,
            bytes_for_queue=self.pull_threshold_size_for_queue * _MIB,
            span_for_queue=self.consume_max_span,
            count_for_all=self.pull_threshold_for_all,
        )


def pull_options(settings: PullSettings | dict[str, Any]) -> PullOptions:
    """The options that these keyword arguments mean. Raises ConfigError naming the one that is unknown or wrong."""
    known = {field.name for field in fields(PullOptions)}
    for name in settings:
        if name not in known:
            raise ConfigError(f"a pull consumer has no setting {name!r}; it has {', '.join(sorted(known))}")
    return PullOptions(**settings)
