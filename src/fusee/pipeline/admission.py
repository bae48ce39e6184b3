"""How much a micro-batch may have: from where the stream is, and what the queues hold, to where the batch ends.

Pure: what the brokers said and the time come in as values. Messages that are gone are found here too, because Spark
itself lets offsets jump forwards and backwards without a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fusee.pipeline.positions import Positions, StreamOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fusee.message.model import MessageQueue


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first offset of a queue that can be read, and the one that its next message will get.

    `is_behind` says that a slave told it, which may not have all messages yet.
    """

    min_offset: int
    max_offset: int
    is_behind: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that should be read and are gone, or never were: from `expected` up to `found`, or back to it."""

    queue: MessageQueue
    expected: int
    found: int

    def __str__(self) -> str:
        place = f"queue {self.queue.queue_id} of topic {self.queue.topic!r} on {self.queue.broker_name}"
        if self.found > self.expected:
            return f"{place} begins at {self.found} now, and {self.expected} was to be read next: messages have expired"
        return (
            f"{place} ends at {self.found} now, and {self.expected} was to be read next: the topic was made anew, or "
            "the broker has lost messages"
        )


@dataclass(frozen=True, slots=True)
class Backlog:
    """What there is to read: where each queue begins, where it ends, and what is gone."""

    start: dict[MessageQueue, int]
    end: dict[MessageQueue, int]
    losses: tuple[Loss, ...] = ()

    @property
    def counts(self) -> dict[MessageQueue, int]:
        """Places to read in each queue that has any."""
        return {queue: count for queue in self.start if (count := self.end[queue] - self.start[queue]) > 0}

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def backlog(to: Positions, bounds: Mapping[MessageQueue, Bounds], until: Positions | None = None) -> Backlog:
    """What there is to read after `to`, at most up to `until`.

    A queue that is new begins at its first message. One that is not served now stays where it is.
    """
    start, end, losses = dict(to), dict(to), []
    for queue in sorted(bounds):
        bound = bounds[queue]
        begin = to.get(queue, bound.min_offset)
        last = bound.max_offset
        if begin < bound.min_offset:
            losses.append(Loss(queue, begin, bound.min_offset))
            begin = bound.min_offset
        elif begin > last and not bound.is_behind:
            losses.append(Loss(queue, begin, last))
            begin = last
        if until is not None:
            last = min(last, until.get(queue, begin))
        start[queue] = begin
        end[queue] = max(begin, last)
    return Backlog(start, end, tuple(losses))


def share(counts: Mapping[MessageQueue, int], most: int) -> dict[MessageQueue, int]:
    """Divide `most` places among queues by what each has waiting: all of it when it fits, else exactly `most`.

    Every queue gets one place before any gets a second, so that none waits for ever beside a much longer one; where
    there are not even so many places, and for what rounding leaves over, the longest come first.
    """
    total = sum(counts.values())
    if total <= most:
        return dict(counts)
    least = 1 if most >= len(counts) else 0
    spread, waiting = most - least * len(counts), total - least * len(counts)
    shares = {queue: least + (count - least) * spread // waiting for queue, count in counts.items()}
    left = most - sum(shares.values())
    for queue in sorted(counts, key=lambda each: (shares[each] >= counts[each], -counts[each], each))[:left]:
        shares[queue] += 1
    return shares


def advance(ready: Backlog, admitted: Mapping[MessageQueue, int]) -> StreamOffset:
    """The end of a batch that takes this many places of each queue."""
    to = {queue: begin + admitted.get(queue, 0) for queue, begin in ready.start.items()}
    return StreamOffset(ready.start, to)


DEFAULT_RECORD_SIZE: Final = 1024


def places_for(size: int, counts: Mapping[MessageQueue, int], sizes: Mapping[MessageQueue, float]) -> int:
    """How many of these places are about this many bytes, by the average size of records in each queue."""
    total = sum(counts.values())
    total_size = sum(count * sizes.get(queue, DEFAULT_RECORD_SIZE) for queue, count in counts.items())
    return total if total_size <= size else max(1, int(total * size / total_size))


class Patience:
    """Holds a batch back until enough messages wait, but not for ever (minOffsetsPerTrigger, maxTriggerDelay)."""

    def __init__(self, least: int | None, delay_ms: int, now: float) -> None:
        self._least = least
        self._delay = delay_ms / 1000
        self._since = now

    def is_enough(self, count: int, now: float) -> bool:
        """Whether a batch with this many messages may begin now; it then has begun."""
        if self._least is not None and count < self._least and now - self._since < self._delay:
            return False
        self._since = now
        return True
