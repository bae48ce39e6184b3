"""The queues a pull consumer holds: what was fetched of each, what was handed out, and what of it is done.

A pure state machine; the fetching is `pull`'s work. Each queue has three marks that only a seek, or a broker that says
that they lie outside the queue, moves backwards:

    done_offset <= handed_offset <= fetch_offset
         |               |               |
         |               |               the next fetch begins here; messages before it wait in chunks
         |               the next poll begins here: the position of the consumer
         what may be committed: the messages before it were handed out, and the application came back for more

Messages that a filter kept away count as handed out as soon as everything before them was. A chunk is what one fetch
found; queues with chunks stand in line and each gives one chunk in its turn, so that a busy queue starves no other.

Invariants: a queue stands in line once, and only when it has a chunk and is not paused; `count` and `size` of a queue
are those of its chunks; the common total counts queues that are not paused, so that paused ones hold up nobody.

Java: AssignedMessageQueue and the request cache of DefaultLitePullConsumerImpl, which still hands out what was fetched
of a queue before it was paused, and never commits past filtered messages.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusee.client.received import ReceivedMessage
    from fusee.filter.subscription import Subscription
    from fusee.message.model import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much may lie fetched and not handed out; one more fetch may go beyond each."""

    count_for_queue: int = 1_000
    bytes_for_queue: int = 100 * 1024 * 1024
    span_for_queue: int = 2_000
    count_for_all: int = 10_000


class _Chunk:
    __slots__ = ("end_offset", "messages", "size", "taken")

    def __init__(self, messages: list[ReceivedMessage], end_offset: int, size: int) -> None:
        self.messages = messages
        self.end_offset = end_offset
        self.size = size
        self.taken = 0


class AssignedQueue:
    """One queue and its marks; they are None until it is known where to begin."""

    __slots__ = (
        "__weakref__",
        "broker_id",
        "chunks",
        "count",
        "done_offset",
        "fault",
        "fetch_offset",
        "handed_offset",
        "is_dropped",
        "is_paused",
        "last_fetch_ms",
        "last_poll_ms",
        "queue",
        "size",
        "subscription",
    )

    def __init__(self, queue: MessageQueue, subscription: Subscription) -> None:
        self.queue = queue
        self.subscription = subscription
        self.chunks: deque[_Chunk] = deque()
        self.count = 0
        self.size = 0
        self.fetch_offset: int | None = None
        self.handed_offset: int | None = None
        self.done_offset: int | None = None
        self.is_paused = False
        self.is_dropped = False
        self.broker_id = 0
        self.last_fetch_ms = 0
        self.last_poll_ms = 0
        self.fault: Exception | None = None

    def move(self, queue_offset: int) -> None:
        """Begin here, forgetting what was fetched and what is under way in the application."""
        assert not self.chunks
        self.fetch_offset = self.handed_offset = self.done_offset = queue_offset

    @property
    def first_offset(self) -> int:
        """The offset of the first message that waits."""
        chunk = self.chunks[0]
        return chunk.messages[chunk.taken].queue_offset

    @property
    def last_offset(self) -> int:
        """The offset of the last message that waits."""
        return self.chunks[-1].messages[-1].queue_offset


class AssignedQueues:
    """The table of the queues held, and the line of those that have something to hand out."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._held: dict[MessageQueue, AssignedQueue] = {}
        self._line: deque[AssignedQueue] = deque()
        self._under_way: list[AssignedQueue] = []
        self.count = 0

    def __contains__(self, queue: object) -> bool:
        return queue in self._held

    def __iter__(self) -> Iterator[AssignedQueue]:
        return iter(tuple(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def get(self, queue: MessageQueue) -> AssignedQueue | None:
        """This queue, if it is held."""
        return self._held.get(queue)

    @property
    def has_messages(self) -> bool:
        """Whether `take` would find something."""
        return bool(self._line)

    def add(self, queue: MessageQueue, subscription: Subscription) -> AssignedQueue:
        """Hold this queue from now on."""
        held = self._held[queue] = AssignedQueue(queue, subscription)
        return held

    def remove(self, queue: MessageQueue) -> AssignedQueue | None:
        """Let this queue go with all that was fetched of it; its marks are left for a last commit."""
        held = self._held.pop(queue, None)
        if held is not None:
            self._forget_fetched(held)
            self._forget_under_way(held)
            held.is_dropped = True
        return held

    def may_fetch(self, held: AssignedQueue) -> bool:
        """Whether more of this queue should be fetched now."""
        limits = self._limits
        if held.is_paused or held.is_dropped:
            return False
        if not held.chunks:
            return self.count < limits.count_for_all
        return (
            held.count < limits.count_for_queue
            and held.size < limits.bytes_for_queue
            and held.last_offset - held.first_offset < limits.span_for_queue
            and self.count < limits.count_for_all
        )

    def put(self, held: AssignedQueue, messages: list[ReceivedMessage], next_offset: int, size: int) -> None:
        """Take in what a fetch found, perhaps nothing, and that the next one begins at `next_offset`."""
        if messages:
            held.chunks.append(_Chunk(messages, next_offset, size))
            held.count += len(messages)
            held.size += size
            if not held.is_paused:
                self.count += len(messages)
                if len(held.chunks) == 1:
                    self._line.append(held)
        elif held.chunks:
            held.chunks[-1].end_offset = next_offset
        else:
            if held.done_offset == held.handed_offset:
                held.done_offset = next_offset
            held.handed_offset = next_offset
        held.fetch_offset = next_offset

    def correct(self, held: AssignedQueue, next_offset: int) -> bool:
        """The broker has no such offset and names the one to go on from; whether that lies before it.

        What was fetched of a queue that has become shorter is no longer there.
        """
        if held.fetch_offset is not None and next_offset < held.fetch_offset:
            self.seek(held, next_offset)
            return True
        self.put(held, [], next_offset, 0)
        return False

    def take(self, limit: int) -> list[tuple[AssignedQueue, list[ReceivedMessage]]]:
        """Hand out up to so many messages, a chunk of each queue in turn."""
        found: list[tuple[AssignedQueue, list[ReceivedMessage]]] = []
        while limit > 0 and self._line:
            held = self._line.popleft()
            chunk = held.chunks[0]
            messages = chunk.messages
            if chunk.taken or len(messages) > limit:
                messages = messages[chunk.taken : chunk.taken + limit]
            chunk.taken += len(messages)
            limit -= len(messages)
            held.count -= len(messages)
            self.count -= len(messages)
            if chunk.taken == len(chunk.messages):
                held.chunks.popleft()
                held.size -= chunk.size
                held.handed_offset = chunk.end_offset
                if held.chunks:
                    self._line.append(held)
            else:
                held.handed_offset = messages[-1].queue_offset + 1
                self._line.appendleft(held)
            self._under_way.append(held)
            found.append((held, messages))
        return found

    def settle(self) -> None:
        """The application is done with everything that was handed out."""
        for held in self._under_way:
            held.done_offset = held.handed_offset
        self._under_way.clear()

    def pause(self, held: AssignedQueue) -> None:
        """Fetch and hand out no more of this queue; what was fetched is kept."""
        if not held.is_paused:
            held.is_paused = True
            self.count -= held.count
            if held.chunks:
                self._line.remove(held)

    def resume(self, held: AssignedQueue) -> None:
        """Go on after `pause`."""
        if held.is_paused:
            held.is_paused = False
            self.count += held.count
            if held.chunks:
                self._line.append(held)

    def seek(self, held: AssignedQueue, queue_offset: int) -> None:
        """Go on from here: what was fetched is dropped, and what is under way is no longer committed by itself."""
        self._forget_fetched(held)
        self._forget_under_way(held)
        held.move(queue_offset)

    def take_back(self, held: AssignedQueue, queue_offset: int) -> None:
        """Hand out again from here: the last take did not reach the application."""
        self._forget_fetched(held)
        self._forget_under_way(held)
        held.fetch_offset = held.handed_offset = queue_offset

    def rechoose(self, held: AssignedQueue, subscription: Subscription) -> None:
        """Choose by another expression from the position on; what was fetched by the old one is dropped."""
        self._forget_fetched(held)
        held.subscription = subscription
        held.fetch_offset = held.handed_offset

    def _forget_fetched(self, held: AssignedQueue) -> None:
        if held.chunks:
            if not held.is_paused:
                self.count -= held.count
                self._line.remove(held)
            held.chunks.clear()
            held.count = held.size = 0

    def _forget_under_way(self, held: AssignedQueue) -> None:
        self._under_way = [each for each in self._under_way if each is not held]
