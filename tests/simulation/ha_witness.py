"""What broker groups promised, to whom, and what must be left of it when masters end, return or are replaced.

A message is known by its place: queue, queue offset and log offset. The witness knows a place when a sender was told of
it or a reader has seen it. When a master starts, it is told what this master has, and how the one before ended:

    stop, kill    every place that was known is there
    crash         every place below what was flushed is there; under SYNC_FLUSH, every one whose sender was told that it
                  is on the disk
    promotion     every place that the promoted slave had is there; under SYNC_MASTER, every one whose sender was told
                  that a slave has it

    lost        a place that had to survive has not
    changed     another message is in a known place
    early       under SYNC_MASTER a reader was shown what no slave has, though slaves were there to have it
    order       a message sent after another was acknowledged lies before it in their queue
    back        a committed offset gets smaller. A master that was killed or crashed may find what it had saved, not
                older than the interval of saving; one that finds more than its queue has may be put right
    apart       a slave that has caught up has another log than its master, or other queues
    endless     a send that has no outcome when its time is long over
    unread      a message that was acknowledged, and not lost by permission, is never consumed. A reader that has read
                what was lost by permission stands behind the end of its queue, and may miss what comes in its place;
                its offset there may be put right

What may be lost is forgotten when it is lost. The first promise that is broken raises `PromiseBrokenError`.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from fusee.client.results import SendStatus
from fusee.message.model import MessageQueue
from tests.simulation.witness import PromiseBrokenError

KEPT_EVENTS: Final = 60
SEND_PATIENCE_S: Final = 60.0
SAVE_INTERVAL_S: Final = 6.0
"""How old a saved offset may be: the interval of saving, and some time to do it."""


class Change(Enum):
    """How a master came to start."""

    STOP = "stop"
    KILL = "kill"
    CRASH = "crash"
    PROMOTION = "promotion"


class Promises(NamedTuple):
    """What a broker group is set up to promise."""

    sync_master: bool
    sync_flush: bool


class Place(NamedTuple):
    """Where a message lies in its group."""

    queue: MessageQueue
    queue_offset: int


class Stored(NamedTuple):
    """What lies there."""

    number: int
    log_offset: int


@dataclass
class _Known:
    """What was said of a place."""

    stored: Stored
    is_acknowledged: bool = False
    is_flushed: bool = False
    is_replicated: bool = False
    is_read: bool = False


@dataclass
class _Progress:
    """The committed offset of one queue, and how it came about."""

    committed_offset: int = -1
    most: int = -1
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=200))


class HaWitness:
    """Takes note, and objects."""

    def __init__(self, now: Callable[[], float], promises: Mapping[str, Promises]) -> None:
        """`promises` by the name of the broker group."""
        self._now = now
        self._promises = promises
        self._known: dict[Place, _Known] = {}
        self._progress: defaultdict[MessageQueue, _Progress] = defaultdict(_Progress)
        self._ends: defaultdict[MessageQueue, int] = defaultdict(lambda: -1)
        self._sends: dict[int, tuple[float, dict[MessageQueue, int]]] = {}
        self._events: deque[str] = deque(maxlen=KEPT_EVENTS)
        self._digest = hashlib.sha256()
        self.consumed: set[int] = set()
        self.acknowledged = 0
        self.reads = 0
        self.commits = 0
        self.forgiven = 0
        """Places that were lost where that was no breach."""
        self._skipped: defaultdict[MessageQueue, int] = defaultdict(int)
        self.stale_reads = 0
        """Messages that a slave showed which had not yet heard of a new master."""
        self.skipped = 0
        """Messages that readers passed over because they had read what was lost in their places."""

    # Senders

    def sending(self, number: int) -> None:
        """A message is handed to a producer."""
        self._sends[number] = (self._now(), dict(self._ends))

    def failed(self, number: int, why: str) -> None:
        """Its sender was told that it did not work, or not whether it did."""
        self._sends.pop(number, None)
        self._note(f"message {number} failed: {why}")

    def sent(
        self, number: int, queue: MessageQueue, queue_offset: int, log_offset: int, status: SendStatus, *, waited: bool
    ) -> None:
        """Its sender was told that it is stored; `waited` unless it did not want more than that."""
        _, ends = self._sends.pop(number)
        self.acknowledged += 1
        self._note(f"message {number} is {status.value} at {queue_offset} of {_name(queue)} ({log_offset})")
        before = ends.get(queue, -1)
        if queue_offset <= before <= self._ends[queue]:
            self._object(
                f"order: message {number} lies at {queue_offset} of {_name(queue)}, but {before} was acknowledged "
                "before it was sent"
            )
        self._ends[queue] = max(self._ends[queue], queue_offset)
        known = self._meet(queue, queue_offset, Stored(number, log_offset))
        known.is_acknowledged = True
        known.is_flushed = known.is_flushed or (waited and status is not SendStatus.FLUSH_DISK_TIMEOUT)
        known.is_replicated = known.is_replicated or (waited and status is SendStatus.SEND_OK)

    def check_sends(self) -> None:
        """Every send ends."""
        for number, (began, _) in self._sends.items():
            if self._now() - began > SEND_PATIENCE_S:
                self._object(f"endless: message {number} was sent at {began:.3f}, and nobody knows what came of it")

    @property
    def sends_under_way(self) -> int:
        return len(self._sends)

    # Readers

    def read(self, node: str, queue: MessageQueue, queue_offset: int, stored: Stored, *, is_early: bool) -> None:
        """A broker shows this message; `is_early` when no slave has it, and slaves are there to have it."""
        self.reads += 1
        known = self._meet(queue, queue_offset, stored)
        if not known.is_read:
            known.is_read = True
            self._note(f"{node} shows {queue_offset} of {_name(queue)} (message {stored.number})")
        if is_early and self._promises[queue.broker_name].sync_master:
            self._object(
                f"early: {node} shows message {stored.number}, {queue_offset} of {_name(queue)}, which no slave has"
            )

    def read_stale(self, node: str, queue: MessageQueue, queue_offset: int, stored: Stored) -> None:
        """A slave shows this that has not agreed with the present master yet: it may be cut."""
        known = self._known.get(Place(queue, queue_offset))
        if known is None or known.stored != stored:
            self.stale_reads += 1
            self._skipped[queue] = max(self._skipped[queue], queue_offset + 1)
            self._note(f"{node} shows {queue_offset} of {_name(queue)} (message {stored.number}), which may be cut")

    def consume(self, number: int) -> None:
        """A listener has it."""
        self.consumed.add(number)

    def committed(self, queue: MessageQueue, committed_offset: int) -> None:
        """The master has this as the group's offset now."""
        progress = self._progress[queue]
        self.commits += 1
        if committed_offset < progress.committed_offset and progress.committed_offset > self._skipped[queue]:
            self._object(
                f"back: {committed_offset} is committed in {_name(queue)}, where {progress.committed_offset} was"
            )
        if committed_offset != progress.committed_offset:
            self._note(f"{committed_offset} is committed in {_name(queue)}")
            progress.history.append((self._now(), committed_offset))
        progress.committed_offset = committed_offset
        progress.most = max(progress.most, committed_offset)

    def committed_aside(self, queue: MessageQueue, committed_offset: int) -> None:
        """A slave took this for the group; it will tell its master, or become it."""
        progress = self._progress[queue]
        progress.most = max(progress.most, committed_offset)

    # Brokers

    def master_starts(
        self,
        group: str,
        node: str,
        change: Change,
        safe_offset: int,
        *,
        ended_at: float,
        found: Mapping[Place, Stored],
        offsets: Mapping[MessageQueue, int],
    ) -> None:
        """A master has read its disk; the one before ended in this way at this time, and everything below the log
        offset had to survive that.
        """
        self._note(
            f"{node} starts as master of {group} after a {change.value}, with {len(found)} messages; what lies below "
            f"{safe_offset} must be there"
        )
        ends: defaultdict[MessageQueue, int] = defaultdict(int)
        for place in found:
            ends[place.queue] = max(ends[place.queue], place.queue_offset + 1)
        for place, known in list(self._known.items()):
            if place.queue.broker_name != group:
                continue
            there = found.get(place)
            if there == known.stored:
                continue
            if self._must_survive(known, group, change, safe_offset):
                self._object(
                    f"lost: message {known.stored.number}, {place.queue_offset} of {_name(place.queue)} at log offset "
                    f"{known.stored.log_offset}, is not on {node} ({there or 'nothing'} is), which starts as master "
                    f"after a {change.value}"
                )
            self.forgiven += 1
            if known.is_read:
                self._skipped[place.queue] = max(self._skipped[place.queue], place.queue_offset + 1)
            del self._known[place]
        for queue in list(self._ends):
            if queue.broker_name == group:
                self._ends[queue] = min(self._ends[queue], ends[queue] - 1)
                for _, before in self._sends.values():  # those under way may come into the places of what is gone
                    before[queue] = min(before.get(queue, -1), ends[queue] - 1)
        self._find_offsets(group, node, change, ended_at, offsets, ends)

    def _must_survive(self, known: _Known, group: str, change: Change, safe_offset: int) -> bool:
        promises = self._promises[group]
        if change in (Change.STOP, Change.KILL) and (known.is_acknowledged or known.is_read):
            return True
        if known.stored.log_offset < safe_offset:
            return True
        if change is Change.CRASH:
            return promises.sync_flush and known.is_flushed
        return promises.sync_master and known.is_replicated

    def _find_offsets(
        self,
        group: str,
        node: str,
        change: Change,
        ended_at: float,
        offsets: Mapping[MessageQueue, int],
        ends: Mapping[MessageQueue, int],
    ) -> None:
        for queue, progress in self._progress.items():
            if queue.broker_name != group:
                continue
            found = offsets.get(queue, -1)
            if found > progress.most:
                self._object(f"back: {node} finds {found} committed in {_name(queue)}, which nobody did")
            least = -1
            if change is Change.STOP:
                least = progress.committed_offset
            elif change is not Change.PROMOTION:
                horizon = ended_at - SAVE_INTERVAL_S
                older = [value for when, value in progress.history if when <= horizon]
                # One that was put right since then is smaller, and may have been saved by now.
                newer = [value for when, value in progress.history if when > horizon]
                least = min([older[-1], *newer]) if older else -1
            least = min(least, ends.get(queue, 0))
            if found < least:
                self._object(
                    f"back: {node} finds {found} committed in {_name(queue)} after a {change.value}, where it had to "
                    f"have saved {least}"
                )
            if found != progress.committed_offset:
                self._note(f"{node} finds {found} committed in {_name(queue)}, not {progress.committed_offset}")
            progress.committed_offset = found if found <= ends.get(queue, 0) else -1
            progress.history.clear()
            progress.history.append((self._now(), found))

    def level(self, master: str, slave: str, log: bytes, copy: bytes) -> None:
        """A slave says that it has caught up with its master."""
        if log != copy:
            at = next((i for i, (a, b) in enumerate(zip(log, copy, strict=False)) if a != b), min(len(log), len(copy)))
            self._object(
                f"apart: {slave} has caught up with {master}, but their logs, of {len(copy)} and {len(log)} bytes, "
                f"differ at {at}"
            )

    def require(self, is_true: bool, what: str) -> None:
        """Object unless it is so."""
        if not is_true:
            self._object(what)

    def happened(self, what: str) -> None:
        """Something that explains what follows."""
        self._note(what)

    # What must be at the end

    @property
    def unread(self) -> list[int]:
        """Messages that were acknowledged, and not lost by permission, and not consumed."""
        return sorted(
            known.stored.number
            for place, known in self._known.items()
            if known.is_acknowledged
            and known.stored.number not in self.consumed
            and place.queue_offset >= self._skipped[place.queue]
        )

    def check_end(self) -> None:
        """Everything that was promised is consumed."""
        self.skipped = sum(
            known.is_acknowledged and known.stored.number not in self.consumed for known in self._known.values()
        ) - len(self.unread)
        if self.unread:
            number = self.unread[0]
            place = next(place for place, known in self._known.items() if known.stored.number == number)
            self._object(
                f"unread: message {number}, {place.queue_offset} of {_name(place.queue)}, and {len(self.unread) - 1} "
                "others were acknowledged and never consumed"
            )

    @property
    def digest(self) -> str:
        """Of everything that was noted, in order: equal for equal runs."""
        return self._digest.hexdigest()[:16]

    def _meet(self, queue: MessageQueue, queue_offset: int, stored: Stored) -> _Known:
        place = Place(queue, queue_offset)
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = _Known(stored)
        elif known.stored != stored:
            self._object(f"changed: {stored} lies at {queue_offset} of {_name(queue)}, where {known.stored} was")
        return known

    def _note(self, what: str) -> None:
        line = f"{self._now():10.3f} {what}"
        self._events.append(line)
        self._digest.update(line.encode())

    def _object(self, what: str) -> None:
        last = "\n  ".join(self._events)
        raise PromiseBrokenError(f"{what}\nbefore:\n  {last}")


def _name(queue: MessageQueue) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"
