"""What a consumer did, by topic, and at which rate: for an operator who asks (Java: ConsumerStatsManager)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from fusee.wire.bodies.stats import ConsumeStatus

if TYPE_CHECKING:
    from fusee.clock import Clock

_WINDOW_S: Final = 60.0
_SAMPLES_MAX: Final = 64


class _Counts:
    """Totals since the start, and what they were at moments of the last minute."""

    __slots__ = ("failed", "ok", "pull_seconds", "pulled", "pulls", "samples", "seconds")

    def __init__(self) -> None:
        self.ok = 0
        self.failed = 0
        self.seconds = 0.0
        self.pulls = 0
        self.pulled = 0
        self.pull_seconds = 0.0
        self.samples: deque[tuple[float, int, int, int]] = deque(maxlen=_SAMPLES_MAX)


class ConsumeStatistics:
    """Counts of one consumer. The numbers are totals; rates are those since about a minute ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, _Counts] = {}

    def pulled(self, topic: str, count: int, seconds: float) -> None:
        """A pull found so many messages."""
        counts = self._of(topic)
        counts.pulls += 1
        counts.pulled += count
        counts.pull_seconds += seconds

    def consumed(self, topic: str, count: int, failed: int, seconds: float) -> None:
        """So many messages were consumed in this time, and so many were not."""
        counts = self._of(topic)
        counts.ok += count
        counts.failed += failed
        counts.seconds += seconds

    def sample(self) -> None:
        """Remember where the totals are; called every few seconds."""
        now = self._clock.monotonic()
        for counts in self._topics.values():
            samples = counts.samples
            samples.append((now, counts.ok, counts.failed, counts.pulled))
            while len(samples) > 1 and now - samples[1][0] >= _WINDOW_S:
                samples.popleft()

    def status(self, topic: str) -> ConsumeStatus:
        """What an operator is told of this topic."""
        counts = self._of(topic)
        now = self._clock.monotonic()
        since, ok, failed, pulled = counts.samples[0] if counts.samples else (now, 0, 0, 0)
        span = max(now - since, 1.0)
        done = counts.ok + counts.failed
        return ConsumeStatus(
            consume_failed_messages=counts.failed,
            consume_failed_tps=(counts.failed - failed) / span,
            consume_ok_tps=(counts.ok - ok) / span,
            consume_rt_ms=1000 * counts.seconds / done if done else 0.0,
            pull_rt_ms=1000 * counts.pull_seconds / counts.pulls if counts.pulls else 0.0,
            pull_tps=(counts.pulled - pulled) / span,
        )

    def _of(self, topic: str) -> _Counts:
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = _Counts()
        return counts
