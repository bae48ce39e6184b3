"""Counts of values by ranges, as Prometheus wants them: at most so much, for some edges, and all of them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# The reference's edges: bytes, milliseconds, seconds.
SIZE_EDGES: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
CREATE_EDGES_MS: Final = (10, 100, 1_000, 3_000, 5_000)
FINISH_EDGES_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many values were at most each edge, how many there were, and their sum."""

    edges: tuple[int, ...]
    at_most: tuple[int, ...]
    count: int
    total: float


class Histogram:
    """Values that are measured seldom."""

    __slots__ = ("_counts", "_edges", "_total")

    def __init__(self, edges: Sequence[int]) -> None:
        self._edges = tuple(edges)
        self._counts = [0] * (len(edges) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """One value."""
        self._counts[bisect_left(self._edges, value)] += 1
        self._total += value

    def distribution(self) -> Distribution:
        """All values so far."""
        *at_most, count = accumulate(self._counts)
        return Distribution(self._edges, tuple(at_most), count, self._total)


def by_bit_length(counts: Sequence[int], edges: Sequence[int], total: float) -> Distribution:
    """The same of `counts`, which has at n how many values v had `(v - 1).bit_length() == n`.

    Counting so costs one addition on the way of a message. It is exact where edges are powers of two.
    """
    sums = list(accumulate(counts))
    at_most = tuple(sums[edge.bit_length() - 1] for edge in edges)
    return Distribution(tuple(edges), at_most, sums[-1], total)
