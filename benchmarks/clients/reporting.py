"""The report of a benchmark program in the words of RocketMQ: the rate of nine seconds, once there are ten."""

from __future__ import annotations

import sys
import time
from collections import deque

SNAPSHOTS = 10
REPORT_EVERY_S = 0.5


class Tally:
    """How many messages were moved, and how many requests failed."""

    def __init__(self, word: str) -> None:
        """`word` is what is done: Send or Consume."""
        self.done = 0
        self.failed = 0
        self._word = word
        self._snapshots: deque[tuple[float, int]] = deque(maxlen=SNAPSHOTS)
        self._next_snapshot = 0.0

    def report(self) -> None:
        """To be called every half second."""
        now = time.monotonic()
        if now >= self._next_snapshot:
            self._next_snapshot = now + 1.0
            self._snapshots.append((now, self.done))
        if len(self._snapshots) == SNAPSHOTS:
            since, before = self._snapshots[0]
            until, after = self._snapshots[-1]
            rate = (after - before) / (until - since)
            sys.stdout.write(f"{self._word} TPS: {rate:.0f} Failed: {self.failed} Total: {self.done}\n")
            sys.stdout.flush()
