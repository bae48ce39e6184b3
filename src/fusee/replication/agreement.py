"""How far the log of a slave is that of its master, found by asking about few records.

A master that lost its tail, or was restored from a copy, writes other records where its slave still has the old ones.
Numbers of bytes do not tell: the master may have written as much again. What tells is a record: it carries its place,
its time and its message, so that two logs with the same record in the same place were one log up to there. (The
reference does not look, and goes on with a log that is partly one and partly the other.)

So the last record is compared. When it differs, the last one that is equal is searched by halving: first among the
records that begin segments, which lie in the same places in both logs, then among those of one segment. A log that has
not even one record in common is never cut: either copy may be the only one that is left.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from fusee.errors import DivergedError
from fusee.replication.frames import NO_RECORD, LogFacts, RecordFacts, facts_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from fusee.store.engine import MessageStore

    Ask = Callable[[int], Awaitable[RecordFacts]]
    """What the master has at a log offset."""


async def common_end(store: MessageStore, facts: LogFacts, ask: Ask) -> int:
    """The log offset up to which this log, which is not empty, is the master's; a border of a record.

    Asks once or twice when they agree, else some dozens of times. Raises DivergedError when they have no record in
    common, and whatever `ask` raises.
    """
    log = store.log
    end_offset = log.written_offset
    last = store.last_record_offset
    if last is not None and end_offset <= facts.end_offset:
        mine = facts_of(log.record_at(last))
        if await ask(last) == mine:
            record_end = last + mine.size
            # Behind the last record there may be a blank, where the master must not have a record.
            if record_end == end_offset or await ask(record_end) == NO_RECORD:
                return end_offset
            return record_end
    return await _search(store, facts, ask)


async def _search(store: MessageStore, facts: LogFacts, ask: Ask) -> int:
    log = store.log

    async def agree(log_offset: int) -> bool:
        mine = facts_of(log.record_at(log_offset))
        return mine != NO_RECORD and await ask(log_offset) == mine

    limit = min(log.written_offset, facts.end_offset)
    bases = [base for base, _ in log.segments() if facts.min_offset <= base < limit]
    found = await _last_that(agree, bases)
    if found is None:
        raise DivergedError(
            f"this log, from {log.min_offset} to {log.written_offset}, and the master's, from {facts.min_offset} to "
            f"{facts.end_offset}, have no record in common, and nothing is cut. If the master has lost its disk, this "
            "may be the only copy: make this broker the master, or copy its store there. If this is the wrong one, "
            "empty its store and it begins anew"
        )
    positions = log.record_offsets(bases[found])
    row = await _last_that(agree, positions[: bisect_left(positions, limit)])  # type: ignore[arg-type]
    assert row is not None  # the first one agrees
    record_offset = int(positions[row])
    record = log.record_at(record_offset)
    assert record is not None
    return record_offset + len(record)


async def _last_that(agree: Callable[[int], Awaitable[bool]], log_offsets: Sequence[int]) -> int | None:
    """The last of these, in order, that agrees; those before it agree as well, those behind do not."""
    low, high = 0, len(log_offsets)
    while low < high:
        middle = (low + high) // 2
        if await agree(int(log_offsets[middle])):
            low = middle + 1
        else:
            high = middle
    return low - 1 if low else None
