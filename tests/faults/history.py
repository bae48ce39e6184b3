"""What clients of a cluster saw while nodes failed, and the promises that must have held.

    lost        a message that was acknowledged is in its queue at the end, where the acknowledgement said; when the
                disk of a master is lost, that is promised only of what a slave had, as the acknowledgement tells
    undelivered a message that is in a queue at the end was handed to every group
    moved       a place in a queue holds one message for ever: whoever looks there, whenever, sees the same
    order       what one producer sent one after the other to a queue is there in that order; and a member that consumes
                in order is never handed a message while an earlier one of its queue was not
    back        a committed offset never gets smaller. A broker that died finds what it, or for a lost disk its slave,
                saved last: not less than what had been committed `SAVED_WITHIN_S` before
    duplicate   a message is stored twice only if something was wrong with one of the two brokers while it was sent (the
                producer had no answer and tried again), and handed out twice only if something was wrong with the
                broker of its queue or with the members of the group between the two
    invented    nothing is read that was not sent

A history knows nothing of clusters; it is told, and keeps a list of `violations`. Times are those of its own clock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from fusee.message.model import MessageQueue

SAVED_WITHIN_S = 25.0
"""Brokers save offsets every 5 s and slaves copy them every 10 s; a machine under load may be slower."""
AFTERMATH_S = 60.0
"""How long after a fault its consequences may show: a lock of a queue lasts so long."""
VIOLATIONS_MAX = 40
EVERYTHING = "everything"


@dataclass
class Event:
    """Something that was done to the cluster, or to its clients."""

    what: str
    touches: frozenset[str]
    """Groups of brokers, or EVERYTHING."""
    began_at: float
    ended_at: float = float("inf")
    forgets: bool = False
    """Whether brokers go on with the offsets that were saved last."""
    loses_disk: bool = False
    """Whether what only the master had is gone."""
    mended_after: float | None = None
    notes: list[str] = field(default_factory=list)

    def may_explain(self, begin: float, end: float, broker_names: AbstractSet[str]) -> bool:
        """Whether it, or its aftermath, falls between the two times and concerns one of these groups of brokers."""
        concerns = EVERYTHING in self.touches or bool(broker_names & self.touches)
        return concerns and self.began_at <= end and begin <= self.ended_at + AFTERMATH_S


@dataclass
class _Sending:
    began_at: float
    ended_at: float = float("inf")
    queue: MessageQueue | None = None
    queue_offset: int = -1
    is_replicated: bool = False


class History:
    """Takes note, and objects."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.events: list[Event] = []
        self.violations: list[str] = []
        self.duplicates: Counter[str] = Counter()
        self.set_back: Counter[str] = Counter()
        """How often offsets were found smaller than they had been, by broker, with a cause."""
        self.excused = 0
        """Acknowledged, not promised to survive a lost disk, and gone with one."""
        self.deliveries = 0
        self._sendings: dict[str, _Sending] = {}
        self._places: dict[tuple[MessageQueue, int], str] = {}
        self._places_of: defaultdict[str, set[tuple[MessageQueue, int]]] = defaultdict(set)
        self._audited: dict[tuple[MessageQueue, int], str] = {}
        self._handed_at: dict[tuple[str, MessageQueue, int], float] = {}
        self._next_in_order: defaultdict[tuple[str, MessageQueue], int] = defaultdict(int)
        self._acknowledged_last: dict[tuple[str, MessageQueue], int] = {}
        self._committed: defaultdict[tuple[str, MessageQueue], list[tuple[float, int]]] = defaultdict(list)
        self.last_acknowledged_at: dict[str, float] = {}
        self.last_replicated_at: dict[str, float] = {}
        self.last_handed_at: dict[tuple[str, str], float] = {}
        """By group of consumers and group of brokers."""

    # What is done to the cluster

    def began(self, what: str, touches: Iterable[str], *, forgets: bool = False, loses_disk: bool = False) -> Event:
        """Something begins; `ended` says when it is over."""
        event = Event(what, frozenset(touches), self.now(), forgets=forgets, loses_disk=loses_disk)
        self.events.append(event)
        return event

    def ended(self, event: Event) -> None:
        """All is as it was before."""
        event.ended_at = self.now()

    # What producers see

    def sending(self, message: str) -> None:
        """A producer begins to send this message: `producer:number`."""
        self._sendings[message] = _Sending(self.now())

    def acknowledged(self, message: str, queue: MessageQueue, queue_offset: int, *, is_replicated: bool) -> None:
        """The broker said that it has it."""
        sending = self._sendings[message]
        sending.ended_at = self.now()
        sending.queue, sending.queue_offset, sending.is_replicated = queue, queue_offset, is_replicated
        self.last_acknowledged_at[queue.broker_name] = self.now()
        if is_replicated:
            self.last_replicated_at[queue.broker_name] = self.now()
        producer = message.partition(":")[0]
        before = self._acknowledged_last.get((producer, queue), -1)
        if queue_offset <= before and not self._has_lost_disk(queue.broker_name):
            self._object(f"order: {message} is acknowledged at {queue_offset} of {_name(queue)}, after one at {before}")
        self._acknowledged_last[producer, queue] = queue_offset

    def failed(self, message: str) -> None:
        """The producer gave up: the message may be stored or not."""
        self._sendings[message].ended_at = self.now()

    # What consumers see

    def handed(self, group: str, queue: MessageQueue, queue_offset: int, message: str, *, ordered: bool) -> None:
        """A member of the group was given this message, and is done with it."""
        now = self.now()
        self.deliveries += 1
        self.last_handed_at[group, queue.broker_name] = now
        self._seen(queue, queue_offset, message, f"group {group}")
        before = self._handed_at.get((group, queue, queue_offset))
        if before is not None:
            cause = self._cause(before, now, {queue.broker_name})
            if cause is None:
                self._object(
                    f"duplicate: {message} at {queue_offset} of {_name(queue)} was handed to {group} again after "
                    f"{now - before:.1f} s, though nothing had happened to {queue.broker_name}"
                )
            else:
                self.duplicates[f"handed out again: {cause.what}"] += 1
        self._handed_at[group, queue, queue_offset] = now
        if ordered:
            expected = self._next_in_order[group, queue]
            if queue_offset > expected:
                self._object(
                    f"order: {queue_offset} of {_name(queue)} was handed to {group}, but {expected} was not yet"
                )
            self._next_in_order[group, queue] = max(expected, queue_offset + 1)

    def committed(self, group: str, queue: MessageQueue, committed_offset: int) -> None:
        """The master of the queue says that the group has committed so far."""
        now = self.now()
        seen = self._committed[group, queue]
        if seen and committed_offset < seen[-1][1]:
            since = seen[-1][0]
            deaths = [
                event
                for event in self.events
                if event.forgets and event.may_explain(since, now, {queue.broker_name}) and event.began_at >= since - 10
            ]
            floor = 0
            if deaths:
                saved_before = min(event.began_at for event in deaths) - SAVED_WITHIN_S
                floor = max((value for when, value in seen if when <= saved_before), default=0)
            if not deaths or committed_offset < floor:
                allowed = f"not below {floor}" if deaths else "no broker of the group had died"
                self._object(
                    f"back: {group} had committed {seen[-1][1]} of {_name(queue)}, and now "
                    f"{committed_offset}; {allowed}"
                )
            else:
                self.set_back[queue.broker_name] += 1
        seen.append((now, committed_offset))

    def audited(self, queue: MessageQueue, queue_offset: int, message: str) -> None:
        """At the end, this message is in this place."""
        self._audited[queue, queue_offset] = message
        self._seen(queue, queue_offset, message, "the audit")

    # What must be at the end

    def undelivered(self, groups: Iterable[str]) -> int:
        """How many acknowledged messages have not been handed to all of these groups."""
        return sum(
            (group, sending.queue, sending.queue_offset) not in self._handed_at
            for sending in self._sendings.values()
            if sending.queue is not None
            for group in groups
        )

    def check_end(self, groups: Iterable[str]) -> None:
        """After the audit of all queues."""
        for message, sending in self._sendings.items():
            queue = sending.queue
            if queue is None or self._audited.get((queue, sending.queue_offset)) == message:
                continue
            if not sending.is_replicated and self._has_lost_disk(queue.broker_name, since=sending.ended_at):
                self.excused += 1
                continue
            found = self._audited.get((queue, sending.queue_offset), "nothing")
            self._object(
                f"lost: {message} was acknowledged {sending.ended_at:.1f} s from the start at {sending.queue_offset} "
                f"of {_name(queue)}, where {found} is now"
            )
        for (queue, queue_offset), message in self._audited.items():
            for group in groups:
                if (group, queue, queue_offset) not in self._handed_at:
                    self._object(
                        f"undelivered: {message} at {queue_offset} of {_name(queue)} was never handed to {group}"
                    )
        for message, places in self._places_of.items():
            sending = self._sendings[message]
            for _ in range(len(places) - 1):
                brokers = {queue.broker_name for queue, _ in places}
                cause = self._cause(sending.began_at, sending.ended_at, brokers)
                if cause is None:
                    where = ", ".join(f"{queue_offset} of {_name(queue)}" for queue, queue_offset in sorted(places))
                    self._object(
                        f"duplicate: {message} is stored at {where}, though nothing happened while it was sent"
                    )
                else:
                    self.duplicates[f"stored again by a retry: {cause.what}"] += 1

    @property
    def attempted_count(self) -> int:
        return len(self._sendings)

    @property
    def acknowledged_count(self) -> int:
        return sum(sending.queue is not None for sending in self._sendings.values())

    @property
    def replicated_count(self) -> int:
        return sum(sending.is_replicated for sending in self._sendings.values())

    @property
    def stored_count(self) -> int:
        return len(self._audited)

    def sent_between(self, begin: float, end: float) -> tuple[int, int]:
        """How many messages were acknowledged between these times, and how many given up."""
        ended = [sending for sending in self._sendings.values() if begin <= sending.ended_at < end]
        taken = sum(sending.queue is not None for sending in ended)
        return taken, len(ended) - taken

    # Within

    def _seen(self, queue: MessageQueue, queue_offset: int, message: str, by: str) -> None:
        if message not in self._sendings:
            self._object(f"invented: {by} read {message!r} at {queue_offset} of {_name(queue)}; nobody sent it")
            return
        known = self._places.setdefault((queue, queue_offset), message)
        if known != message:
            self._object(f"moved: {by} read {message} at {queue_offset} of {_name(queue)}, where {known} was before")
        self._places_of[message].add((queue, queue_offset))

    def _cause(self, begin: float, end: float, broker_names: AbstractSet[str]) -> Event | None:
        """The last event that may explain something at one of these groups of brokers between these times."""
        return next((event for event in reversed(self.events) if event.may_explain(begin, end, broker_names)), None)

    def _has_lost_disk(self, broker_name: str, since: float = 0.0) -> bool:
        return any(
            event.loses_disk and broker_name in event.touches and event.ended_at >= since for event in self.events
        )

    def _object(self, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"{self.now():.1f} s: {what}")


def _name(queue: MessageQueue) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"
