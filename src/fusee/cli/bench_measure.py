"""What a benchmark measures: a histogram of latencies in buckets of equal ratio, and how many were done each second.

A bucket is 5 % wider than the one before, so a percentile is true to 5 %, from a microsecond to an hour, in a few
hundred numbers however long the run. When a rate is asked for, a latency counts from the moment at which the message
was due to be sent: a server that stands still is charged for every message that had to wait, not for one alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fusee.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable

_RATIO: Final = math.log(1.05)
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 99.99)


class Latencies:
    """How long things took, in milliseconds."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self.min_ms = math.inf
        self.max_ms = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, milliseconds: float) -> None:
        taken = max(milliseconds, 0.001)
        bucket = int(math.log(taken * 1000) / _RATIO)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.sum_ms += taken
        self.min_ms = min(self.min_ms, taken)
        self.max_ms = max(self.max_ms, taken)

    @property
    def mean_ms(self) -> float:
        return self.sum_ms / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """The time within which so many per cent were done."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket, count in sorted(self._buckets.items()):
            seen += count
            if seen >= wanted:
                return min(max(_upper_ms(bucket), self.min_ms), self.max_ms)
        return self.max_ms if self.count else 0.0

    def percentiles(self, wanted: Iterable[float] = PERCENTILES) -> dict[str, float]:
        return {f"p{percent:g}": self.percentile(percent) for percent in wanted}

    def shape(self, rows_max: int = 16) -> list[tuple[float, float, int]]:
        """The histogram in at most so many rows: from, to, and how many."""
        if not self._buckets:
            return []
        first, last = min(self._buckets), max(self._buckets)
        step = max(math.ceil((last - first + 1) / rows_max), 1)
        return [
            (
                _upper_ms(start - 1),
                _upper_ms(start + step - 1),
                sum(self._buckets.get(bucket, 0) for bucket in range(start, start + step)),
            )
            for start in range(first, last + 1, step)
        ]


class Measured:
    """One run: what was done, what failed, and when."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.latencies = Latencies()
        self.done = 0
        self.size_bytes = 0
        self.failures: dict[str, int] = {}
        self.by_second: list[int] = []
        self._clock = SystemClock()
        self.begun = 0.0
        self.ended = 0.0

    def now(self) -> float:
        return self._clock.monotonic()

    def begin(self) -> None:
        self.begun = self.ended = self.now()

    def success(self, since: float | None, size_bytes: int) -> None:
        """One was done that began then."""
        now = self.now()
        if not self.begun:
            self.begun = now
        if since is not None:
            self.latencies.add((now - since) * 1000)
        self.done += 1
        self.size_bytes += size_bytes
        self.ended = now
        second = int(now - self.begun)
        while len(self.by_second) <= second:
            self.by_second.append(0)
        self.by_second[second] += 1

    def failure(self, error: BaseException) -> None:
        cause = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if cause in self.failures or len(self.failures) < 20:
            self.failures[cause] = self.failures.get(cause, 0) + 1

    @property
    def seconds(self) -> float:
        return max(self.ended - self.begun, 1e-6)

    @property
    def rate(self) -> float:
        """Done in a second."""
        return self.done / self.seconds if self.done > 1 else 0.0


def _upper_ms(bucket: int) -> float:
    return math.exp((bucket + 1) * _RATIO) / 1000
