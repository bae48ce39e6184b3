"""From queue ranges to tasks: many small queues in one, large ones divided.

A Python task costs Spark some tens of milliseconds before its first row, so one task for each queue makes small batches
slow; and one task for a large queue leaves cores idle. So messages are cut into equal shares, whatever their queues.

The queues of a topic take turns in the log of their broker. A task therefore gets the same stretch of each of them, not
one queue after the other: what it reads lies together, and all tasks together go over the log once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fusee.pipeline.ranges import QueueRange

TASK_COUNT_LEAST: Final = 20_000
"""Messages that are worth a task of their own."""

TASK_COUNT_MOST: Final = 250_000
"""Messages after which another task costs nothing to speak of."""

TASKS_OF_SMALL_READS: Final = 4


def tasks_for(total: int, *, min_partitions: int | None = None, max_records: int | None = None) -> int:
    """Into how many tasks this many messages are divided."""
    if total <= 0:
        return 0
    worth = min(TASK_COUNT_MOST, max(TASK_COUNT_LEAST, -(-total // TASKS_OF_SMALL_READS)))
    if max_records is not None:
        worth = min(worth, max_records)
    return min(total, max(-(-total // worth), min_partitions or 1))


def pack(ranges: Sequence[QueueRange], tasks: int) -> list[tuple[QueueRange, ...]]:
    """The ranges cut into this many tasks of equal count, each with a stretch of every queue of a topic on a broker."""
    groups: dict[tuple[str, str], list[QueueRange]] = {}
    for each in ranges:
        if each.count:
            groups.setdefault((each.broker_name, each.topic), []).append(each)
    total = sum(each.count for each in ranges)
    packed: list[list[QueueRange]] = [[] for _ in range(min(tasks, total))]
    before = 0
    for group in groups.values():
        counts = [each.count for each in group]
        size = sum(counts)
        taken = [0] * len(group)
        for number, mine in enumerate(packed):
            # The boundary of this task, rounded so that sizes differ by one at most.
            end = min(max(total * (number + 1) // len(packed) - before, 0), size)
            if end == sum(taken):
                continue
            cut = _shares(counts, taken, end)
            mine += [
                replace(each, start_offset=each.start_offset + start, end_offset=each.start_offset + stop)
                for each, start, stop in zip(group, taken, cut, strict=True)
                if stop > start
            ]
            taken = cut
        before += size
    return [tuple(mine) for mine in packed]


def _shares(counts: Sequence[int], taken: Sequence[int], end: int) -> list[int]:
    """`end` messages shared among queues in proportion to what each has, none less than what was taken before."""
    size = sum(counts)
    shares = [max(before, count * end // size) for count, before in zip(counts, taken, strict=True)]
    over = sum(shares) - end
    for index, count in enumerate(counts):
        if over > 0:
            less = min(over, shares[index] - taken[index])
            shares[index] -= less
            over -= less
        elif over < 0:
            more = min(-over, count - shares[index])
            shares[index] += more
            over += more
    return shares


def plan(
    ranges: Sequence[QueueRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[QueueRange, ...]]:
    """The tasks that read these ranges, each position in exactly one of them."""
    total = sum(each.count for each in ranges)
    return pack(ranges, tasks_for(total, min_partitions=min_partitions, max_records=max_records))
