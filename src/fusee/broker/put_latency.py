"""How long puts take: the distribution of the last whole minute, its percentiles, and the longest ever.

Two sets of buckets are shown of the same measurements, as the reference shows them: thirteen coarse ones as text, and
seventy-six fine ones, within which a percentile is interpolated. Measurements are whole milliseconds and are kept as
counts by millisecond until the minute ends; what takes more than ten seconds is one count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, chain, repeat
from typing import Final

# A measurement belongs to the first label whose edge is above it; nothing and less belongs to the very first.
_LABELS: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
_LABEL_EDGES: Final = (1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)

# Upper edges of the fine buckets: (width, how many of that width), from 0 to 10 s.
_WIDTHS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1_000, 9))
_EDGES: Final = tuple(accumulate(chain.from_iterable(repeat(width, times) for width, times in _WIDTHS)))
_BEYOND_MS: Final = _EDGES[-1] + 1


class PutLatency:
    """Measurements of this minute and of the one before."""

    __slots__ = ("_counts", "_last", "_last_max_ms", "_max_ms", "longest_ms")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._max_ms = 0
        self._last: dict[int, int] | None = None
        self._last_max_ms = 0
        self.longest_ms = 0

    def add(self, count: int, elapsed_ms: int) -> None:
        """So many puts took so long."""
        if elapsed_ms > self._max_ms:
            self._max_ms = elapsed_ms
            if elapsed_ms > self.longest_ms:
                self.longest_ms = elapsed_ms
        if elapsed_ms > _BEYOND_MS:
            elapsed_ms = _BEYOND_MS
        counts = self._counts
        counts[elapsed_ms] = counts.get(elapsed_ms, 0) + count

    def turn(self) -> None:
        """A minute is over."""
        self._last, self._last_max_ms = self._counts, self._max_ms
        self._counts, self._max_ms = {}, 0

    def text(self) -> str:
        """The coarse distribution of the last minute; of the present one while it is the first."""
        counts, _ = self._shown()
        buckets = [0] * len(_LABELS)
        for elapsed_ms, count in counts.items():
            buckets[bisect_right(_LABEL_EDGES, elapsed_ms)] += count
        return "".join(f"{label}:{count} " for label, count in zip(_LABELS, buckets, strict=True))

    def percentile(self, share: float) -> float:
        """Milliseconds that this share of the puts stayed within."""
        counts, max_ms = self._shown()
        edges = (*_EDGES, max(max_ms, _BEYOND_MS))
        buckets = [0] * len(edges)
        for elapsed_ms, count in counts.items():
            buckets[bisect_left(edges, elapsed_ms)] += count
        rank = int(sum(buckets) * share)
        lower = 0
        for upper, count in zip(edges, buckets, strict=True):
            if rank <= count:
                return lower + (upper - lower) * rank / count if count else float(lower)
            rank -= count
            lower = upper
        return float(lower)

    def _shown(self) -> tuple[dict[int, int], int]:
        if self._last is None:
            return self._counts, self._max_ms
        return self._last, self._last_max_ms
