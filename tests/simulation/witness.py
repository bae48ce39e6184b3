"""What was sent, handed to listeners, finished and committed; and the promises that must hold at every moment.

    lost        a message that a broker acknowledged is consumed with success, by the end
    skipped     no offset is committed beyond a message whose listener has not finished; in order: not succeeded
    back        a committed offset never gets smaller. A broker that was killed before it saved finds an older one; and
                without order, of two members that commit within one exchange either may be the last
    order       in order, a message is handed out only after every earlier one of its queue was consumed with success
    alone       in order, no two members are at work on one queue. Locks end with a broker, and a call of a listener
                cannot be undone: a member may finish the message it had when the broker ended; and when a partition
                keeps it from seeing that, go on until its lease is over

A witness knows nothing of clients and brokers; it is told. The first promise that is broken raises `PromiseBrokenError`
with the last events that touched the queue.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from fusee.message.model import MessageQueue

KEPT_EVENTS = 60
LEASE_S = 30.0
"""How long a member trusts a lock."""


class PromiseBrokenError(AssertionError):
    """A promise was broken."""


@dataclass
class _Story:
    """One queue: what is finished of it, and what is committed."""

    finished: set[int] = field(default_factory=set)
    finished_through: int = 0
    """All before this offset are finished."""
    committed_offset: int = -1
    committed_at: tuple[float, str] = (-1.0, "")
    """When, and by whom."""
    at_work: dict[str, int] = field(default_factory=dict)
    """Members with a message of this queue in hand, and how many."""
    finishing: set[str] = field(default_factory=set)
    """Those who had a message when the broker ended, and with it every lock."""
    deaf_until: dict[str, float] = field(default_factory=dict)
    """Those who could not see it."""
    events: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))


class Witness:
    """Takes note, and objects."""

    def __init__(self, now: Callable[[], float], *, ordered: bool, race_s: float = 0.0) -> None:
        """`race_s` is how long an exchange with a broker takes."""
        self._now = now
        self._ordered = ordered
        self._race_s = race_s
        self._stories: defaultdict[MessageQueue, _Story] = defaultdict(_Story)
        self._digest = hashlib.sha256()
        self.acknowledged: dict[int, MessageQueue] = {}
        self.consumed: set[int] = set()
        self.deliveries = 0
        self.failures = 0
        self.commits = 0
        self.races = 0

    # What happens

    def sent(self, number: int, queue: MessageQueue, queue_offset: int) -> None:
        """The broker acknowledged this message."""
        self.acknowledged[number] = queue
        self._note(queue, f"message {number} acknowledged at {queue_offset}")

    def handed(self, member: str, queue: MessageQueue, queue_offset: int, number: int) -> None:
        """A listener is called with this message."""
        story = self._stories[queue]
        self.deliveries += 1
        self._note(queue, f"{member} is given {queue_offset} (message {number})")
        if self._ordered:
            if queue_offset > story.finished_through:
                self._object(
                    queue, f"order: {queue_offset} was given to {member}, but {story.finished_through} is not consumed"
                )
            story.finishing.discard(member)
            others = [
                other
                for other, count in story.at_work.items()
                if other != member and count and not self._is_excused(story, other)
            ]
            if self._is_excused(story, member):
                others.clear()
            if others:
                self._object(queue, f"alone: {queue_offset} was given to {member} while {others[0]} is at work")
        story.at_work[member] = story.at_work.get(member, 0) + 1

    def finished(self, member: str, queue: MessageQueue, queue_offset: int, number: int, *, succeeded: bool) -> None:
        """The listener is done with it."""
        story = self._stories[queue]
        story.at_work[member] -= 1
        self._note(queue, f"{member} {'consumed' if succeeded else 'failed'} {queue_offset} (message {number})")
        if succeeded:
            self.consumed.add(number)
        else:
            self.failures += 1
        if succeeded or not self._ordered:
            story.finished.add(queue_offset)
            while story.finished_through in story.finished:
                story.finished.remove(story.finished_through)
                story.finished_through += 1

    def gone(self, member: str) -> None:
        """This member's process ended without warning."""
        for queue, story in self._stories.items():
            if story.at_work.pop(member, 0):
                self._note(queue, f"{member} is gone with a message in hand")

    def committed(self, queue: MessageQueue, committed_offset: int, by: str) -> None:
        """A broker took this offset for the group."""
        story = self._stories[queue]
        self.commits += 1
        if committed_offset != story.committed_offset:
            self._note(queue, f"{by} commits {committed_offset}")
        if committed_offset > story.finished_through:
            self._object(
                queue, f"skipped: {by} commits {committed_offset}, but {story.finished_through} is not finished"
            )
        instant = (self._now(), by)
        if committed_offset < story.committed_offset:
            when, other = story.committed_at
            if self._ordered or self._now() - when > self._race_s + 1e-6 or other == by:
                self._object(queue, f"back: {by} commits {committed_offset} after {story.committed_offset}")
            self.races += 1
        if committed_offset != story.committed_offset:
            story.committed_at = instant
        story.committed_offset = committed_offset

    def _is_excused(self, story: _Story, member: str) -> bool:
        return member in story.finishing or self._now() < story.deaf_until.get(member, 0.0)

    def restarted(
        self, broker_name: str, offsets: Mapping[MessageQueue, int], deaf: Collection[str] = frozenset()
    ) -> None:
        """A broker was started; these offsets it found on its disk, and no others. Members that are `deaf` are parted
        from it since before it ended.
        """
        for queue, story in self._stories.items():
            if queue.broker_name == broker_name:
                found = offsets.get(queue, -1)
                self._note(queue, f"{broker_name} starts and finds {found} committed")
                story.finishing = {member for member, count in story.at_work.items() if count}
                story.deaf_until = dict.fromkeys(deaf, self._now() + LEASE_S)
                if found > story.committed_offset:
                    self._object(queue, f"back: {broker_name} finds {found}, which nobody committed")
                story.committed_offset = found

    def happened(self, what: str) -> None:
        """Something that touches every queue."""
        for queue in list(self._stories):
            self._note(queue, what)

    # What must be at the end

    @property
    def missing(self) -> list[int]:
        """Messages that are acknowledged and not yet consumed."""
        return sorted(self.acknowledged.keys() - self.consumed)

    def check_end(self) -> None:
        """Nothing was lost."""
        if self.missing:
            number = self.missing[0]
            self._object(
                self.acknowledged[number],
                f"lost: message {number} and {len(self.missing) - 1} others were acknowledged and never consumed",
            )

    @property
    def digest(self) -> str:
        """Of everything that was noted, in order: equal for equal runs."""
        return self._digest.hexdigest()[:16]

    def _note(self, queue: MessageQueue, what: str) -> None:
        line = f"{self._now():10.3f} {what}"
        self._stories[queue].events.append(line)
        self._digest.update(f"{line} {queue}\n".encode())

    def _object(self, queue: MessageQueue, what: str) -> None:
        last = "\n  ".join(self._stories[queue].events)
        raise PromiseBrokenError(f"{what}\nin {queue}, where before:\n  {last}")
