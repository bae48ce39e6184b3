"""From queue ranges to tasks: many small queues in one, large ones divided.

A Python task costs Spark some tens of milliseconds before its first row, so one task for each queue makes small batches
slow; and one task for a large queue leaves cores idle. Ranges are laid end to end and cut into equal shares.
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
    """The ranges cut into this many tasks of equal count, each with neighbours of the order given."""
    total = sum(each.count for each in ranges)
    packed: list[tuple[QueueRange, ...]] = []
    mine: list[QueueRange] = []
    done = 0
    for each in ranges:
        rest = each
        while rest.count:
            # The boundary of the task at work, rounded so that sizes differ by one at most.
            room = total * (len(packed) + 1) // tasks - done
            taken = min(room, rest.count)
            if taken:
                mine.append(replace(rest, end_offset=rest.start_offset + taken))
                rest = replace(rest, start_offset=rest.start_offset + taken)
                done += taken
            if taken == room:
                packed.append(tuple(mine))
                mine = []
    return packed


def plan(
    ranges: Sequence[QueueRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[QueueRange, ...]]:
    """The tasks that read these ranges, each position in exactly one of them."""
    total = sum(each.count for each in ranges)
    return pack(ranges, tasks_for(total, min_partitions=min_partitions, max_records=max_records))
