"""The messages of one queue between their pull and the commit: taken, done, and the lowest that is not (pure).

Theory of operation
-------------------
Messages come in the order of their queue and leave in any order. What may be committed is the *watermark*: every
message below it is done. With nothing unfinished that is the offset of the next pull, so that messages which nobody
wanted are passed as well.

All bookkeeping is by `Chunk`, the messages of one pull answer. A message is taken by moving `taken`, and is done when
the run of messages it was taken with is finished: below `floor` everything is done, above it `flags` has a byte per
message, made only when something finishes out of turn. So a message costs its share of a few integers, nothing is
looked up, and the watermark is worked out when somebody asks: at a pull and at a commit, not at every message.

    held    not to be handed out now: the queue is paused, or no longer ours
    taken   handed out; whoever has it will finish it, or give it back
    done    finished; the chunk leaves when all of its messages are, and its bytes are free again

A chunk handed to a loop of the application (`is_stepped`) is finished step by step: of the messages that this loop has
taken all but the last one are done. Others may have taken some before, and finish those themselves.

Once `is_dropped`, the queue belongs to somebody else, or was moved to another offset: what is still running may end,
but moves nothing any more. There is no way back; whoever gets the queue again gets a new ProcessQueue.

Java: ProcessQueue, which keeps a sorted map of messages and looks each one up.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fusee.client.received import ReceivedMessage
    from fusee.message.model import MessageQueue
    from fusee.transport.link import Link


class Chunk:
    """The messages of one pull answer."""

    __slots__ = (
        "_flags",
        "_floor",
        "_held",
        "_left",
        "_stepped_from",
        "byte_size",
        "is_stepped",
        "messages",
        "process_queue",
        "taken",
    )

    def __init__(self, process_queue: ProcessQueue, messages: list[ReceivedMessage], byte_size: int) -> None:
        self.process_queue = process_queue
        # What may be handed out. A loop over this very list ends early when its end is cut off.
        self.messages = messages
        self.byte_size = byte_size
        self.taken = 0
        self.is_stepped = False
        self._stepped_from = 0
        self._held: list[ReceivedMessage] = []
        self._floor = 0
        self._flags: bytearray | None = None
        self._left = len(messages)

    def take(self, most: int) -> tuple[int, int]:
        """Take up to `most` messages: from where to where."""
        start = self.taken
        stop = self.taken = min(start + most, len(self.messages))
        return start, stop

    def give_back(self, start: int) -> None:
        """Undo the takes from here on; they are handed out again."""
        self.taken = start
        if self.process_queue.is_held:
            self.hold()

    @property
    def has_more(self) -> bool:
        """Whether there is a message to hand out."""
        return self.taken < len(self.messages)

    def finish(self, start: int, stop: int) -> None:
        """The messages from `start` to `stop` are done."""
        if start == stop:
            return
        self._left -= stop - start
        if start == self._floor:
            if self._flags is None:
                self._floor = stop
            else:
                self._flags[start:stop] = b"\1" * (stop - start)
                found = self._flags.find(0, stop)
                self._floor = len(self._flags) if found < 0 else found
        else:
            if self._flags is None:
                self._flags = bytearray(len(self.messages) + len(self._held))
                self._flags[: self._floor] = b"\1" * self._floor
            self._flags[start:stop] = b"\1" * (stop - start)
        if not self._left:
            self.process_queue.chunk_done(self)

    def begin_steps(self) -> None:
        """A loop goes through what is not taken yet."""
        self.is_stepped = True
        self._stepped_from = self.taken

    def finish_steps(self) -> int:
        """A loop has gone through what could be handed out: all that it took is done; how many that were."""
        self.is_stepped = False
        self.finish(self._stepped_from, self.taken)
        return self.taken - self._stepped_from

    def stop_steps(self) -> int | None:
        """A loop was left at the message it had last, whose place this gives; what it had before is done."""
        self.is_stepped = False
        if self.taken <= self._stepped_from:
            return None
        current = self.taken - 1
        self.finish(self._stepped_from, current)
        return current

    def is_done(self, index: int) -> bool:
        """Whether the message at this place is finished."""
        return index < self._floor or (self._flags is not None and self._flags[index] == 1)

    def hold(self) -> None:
        """Keep back what was not taken yet."""
        if self.taken < len(self.messages):
            self._held = self.messages[self.taken :] + self._held
            del self.messages[self.taken :]

    def unhold(self) -> None:
        """Hand out again what was kept back."""
        self.messages += self._held
        self._held = []

    @property
    def unfinished(self) -> int:
        """How many messages are not done."""
        return self._left - (max(self.taken - 1 - self._stepped_from, 0) if self.is_stepped else 0)

    @property
    def low_offset(self) -> int:
        """The offset of the first message that is not done."""
        index, handed = self._first_open(), len(self.messages)
        return (self.messages[index] if index < handed else self._held[index - handed]).queue_offset

    @property
    def is_finished(self) -> bool:
        return not self._left

    def _first_open(self) -> int:
        if self.is_stepped and self._floor == self._stepped_from:
            return max(self._floor, self.taken - 1)
        return self._floor


class ProcessQueue:
    """One queue as long as this consumer has it."""

    __slots__ = (
        "_chunks",
        "_last_offset",
        "_lowest_commit",
        "byte_size",
        "is_consuming",
        "is_dropped",
        "is_held",
        "is_listed",
        "is_suspended",
        "last_consumed_at",
        "last_locked_at",
        "last_pulled_at",
        "lock_link",
        "next_offset",
        "queue",
        "unlock_tries",
        "when_drained",
        "when_freed",
    )

    def __init__(self, queue: MessageQueue, start_offset: int, now: float = 0.0) -> None:
        """`start_offset` is the first to be pulled; `now` is monotonic time."""
        self.queue = queue
        self.next_offset = start_offset
        self.byte_size = 0
        self.is_dropped = False
        self.is_held = False
        # For orderly consumption: a listener has a message of this queue, the queue rests after a failure, it stands in
        # line.
        self.is_consuming = False
        self.is_suspended = False
        self.is_listed = False
        self.last_pulled_at = now
        self.last_consumed_at = now
        self.last_locked_at = now
        # The connection on which the broker lent us the queue.
        self.lock_link: Link | None = None
        self.unlock_tries = 0
        # Called when a chunk is done, once: flow control waits for room.
        self.when_drained: Callable[[], object] | None = None
        # Called when an orderly listener has ended, once: whoever lets the queue go waits for that.
        self.when_freed: Callable[[], object] | None = None
        self._chunks: deque[Chunk] = deque()
        self._last_offset = start_offset
        self._lowest_commit = 0

    def __repr__(self) -> str:
        state = "dropped" if self.is_dropped else f"{self.count} unfinished, next {self.next_offset}"
        return f"<ProcessQueue {self.queue.topic} {self.queue.queue_id} on {self.queue.broker_name}: {state}>"

    def put(self, messages: list[ReceivedMessage], next_offset: int, byte_size: int) -> Chunk | None:
        """Take in what a pull has found; the chunk to hand out, or None when there is no message."""
        self.next_offset = next_offset
        if not messages:
            return None
        chunk = Chunk(self, messages, byte_size)
        self._last_offset = messages[-1].queue_offset
        self.byte_size += byte_size
        self._chunks.append(chunk)
        if self.is_held:
            chunk.hold()
        return chunk

    def skip_to(self, next_offset: int) -> None:
        """The queue goes on here, and there is nothing to be had below: commits need not wait for what is in hand."""
        self.next_offset = next_offset
        self._lowest_commit = max(self._lowest_commit, next_offset)

    @property
    def watermark(self) -> int:
        """The offset that may be committed: everything below it is done."""
        low = self._chunks[0].low_offset if self._chunks else self.next_offset
        return max(low, self._lowest_commit)

    @property
    def count(self) -> int:
        """How many messages are here and not done."""
        return sum(chunk.unfinished for chunk in self._chunks)

    @property
    def span(self) -> int:
        """How far the last message is from the first that is not done, in offsets."""
        return self._last_offset - self._chunks[0].low_offset if self._chunks else 0

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The offsets of the first message that is not done and of the last; None when all are done."""
        return (self._chunks[0].low_offset, self._last_offset) if self._chunks else None

    @property
    def open_chunk(self) -> Chunk | None:
        """The first chunk that has a message to hand out."""
        for chunk in self._chunks:
            if chunk.has_more:
                return chunk
        return None

    def open_chunks(self) -> Iterator[Chunk]:
        """The chunks that have a message to hand out, in order."""
        return (chunk for chunk in self._chunks if chunk.has_more)

    def hold(self) -> None:
        """Hand nothing out until `unhold`; pulls may go on."""
        self.is_held = True
        for chunk in self._chunks:
            chunk.hold()

    def unhold(self) -> None:
        """Hand out again."""
        if self.is_held and not self.is_dropped:
            self.is_held = False
            for chunk in self._chunks:
                chunk.unhold()

    def drop(self) -> None:
        """The queue is not ours any more, or not from here: hand nothing out, and let nothing move."""
        self.is_dropped = True
        self.when_drained = None
        self.hold()

    def chunk_done(self, chunk: Chunk) -> None:
        """All messages of this chunk are done. For the chunk to call."""
        self.byte_size -= chunk.byte_size
        chunks = self._chunks
        while chunks and chunks[0].is_finished:
            chunks.popleft()
        drained, self.when_drained = self.when_drained, None
        if drained is not None:
            drained()
