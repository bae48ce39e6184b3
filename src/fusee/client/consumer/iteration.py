"""Consumption by a loop of the application: `async for message in consumer`.

A loop has one chunk at a time and walks along it; a step costs a handful of instructions. Stepping on says that the
message before is done. Several loops may run at once, each with a chunk of its own; with `ordered`, chunks of one queue
go to one loop after the other.

A loop that was left (`break`, or an exception that the application caught) leaves its last message open. The next loop
to begin takes it as done, for the application went on; so does leaving the consumer's `async with` without an
exception. An exception that leaves it says that the message failed. What was not handed out stays, and the next loop
gets it.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from fusee.client.consumer.options import RetryLater
from fusee.client.consumer.runners import turn
from fusee.errors import ClientStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.client.consumer.options import ConsumerOptions
    from fusee.client.consumer.process_queue import Chunk, ProcessQueue
    from fusee.client.consumer.runners import Listener, Work
    from fusee.client.consumer.send_back import SendBack
    from fusee.client.hooks import ConsumeContext
    from fusee.client.received import ReceivedMessage
    from fusee.client.session import Session

_log = logging.getLogger(__name__)

_TURN_S: Final = 0.005


class Hand:
    """What one loop has: messages of which the last step may be under way."""

    __slots__ = ("chunk", "context", "has_arrived", "loop", "since", "task", "works")

    def __init__(self, loop: MessageLoop | BatchLoop) -> None:
        self.loop = weakref.ref(loop)
        self.chunk: Chunk | None = None
        self.works: Sequence[Work] = ()
        self.has_arrived = True
        """Whether the application was given what the last step was about."""
        self.context: ConsumeContext | None = None
        self.since = 0.0
        self.task: asyncio.Task[Any] | None = None

    @property
    def is_empty(self) -> bool:
        return self.chunk is None and not self.works


class Iteration:
    """Chunks that wait for a loop, and what loops have."""

    def __init__(
        self,
        session: Session,
        watch: Listener,
        *,
        is_ordered: bool,
        is_locked: Callable[[ProcessQueue], bool],
    ) -> None:
        """`watch` knows the hooks and the statistics; it has no function to call."""
        self._session = session
        self._watch = watch
        self._is_ordered = is_ordered
        self._is_locked = is_locked
        self._monotonic = session.clock.monotonic
        self._ready: deque[Chunk] = deque()
        self._behind: dict[ProcessQueue, deque[Chunk]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._hands: list[Hand] = []
        self._idle: asyncio.Future[None] | None = None
        self._closer: asyncio.Task[Any] | None = None
        self._turn_ends = 0.0
        self.is_closed = False

    @property
    def is_watched(self) -> bool:
        return bool(self._watch.hooks)

    def start(self) -> None:
        """Begin: nothing to do, loops come by themselves."""

    # What the consumer tells

    def offer(self, chunk: Chunk) -> None:
        """These messages were pulled."""
        if chunk.has_more:
            self._ready.append(chunk)
            self._wake()

    def resumed(self, process_queue: ProcessQueue) -> None:
        """The messages of this queue may be handed out again."""
        # All of them anew, in their order: the first may have left the line while they were held back.
        self._ready = deque(chunk for chunk in self._ready if chunk.process_queue is not process_queue)
        self._behind.pop(process_queue, None)
        for chunk in process_queue.open_chunks():
            if not chunk.is_stepped:
                self.offer(chunk)

    async def close(self, timeout: float, caller: asyncio.Task[Any] | None = None) -> bool:
        """Hand out no more, and wait for each loop to take its next step, which ends it; whether all did.

        A loop of the task that closes, the `caller`, cannot step on and is not waited for.
        """
        self.is_closed = True
        self._closer = caller
        self._ready.clear()
        self._behind.clear()
        while self._waiters:
            self._wake()
        if self._is_idle:
            return True
        self._idle = asyncio.get_running_loop().create_future()
        timer = self._session.timers.call_later(timeout, _release, self._idle)
        try:
            await self._idle
        finally:
            timer.cancel()
        return self._is_idle

    @property
    def _is_idle(self) -> bool:
        return all(
            hand.is_empty or hand.loop() is None or (hand.task is not None and hand.task is self._closer)
            for hand in self._hands
        )

    # What the end of `async with` tells

    def accept(self) -> None:
        """Everything that was handed out is done."""
        for hand in self._hands:
            self.finish(hand)

    def abandon(self) -> list[tuple[Chunk, int]]:
        """The last step of each loop is not done: the messages it was about."""
        unfinished: list[tuple[Chunk, int]] = []
        for hand in self._hands:
            if not hand.has_arrived:
                self.take_back(hand)
                continue
            if hand.context is not None:
                self._watch.after(hand.context, RetryLater("the loop was left"), self._monotonic() - hand.since)
                hand.context = None
            chunk, hand.chunk = hand.chunk, None
            if chunk is not None:
                index = chunk.stop_steps()
                if index is not None:
                    unfinished.append((chunk, index))
                self._free(chunk)
            for chunk, start, stop in hand.works:
                unfinished += [(chunk, index) for index in range(start, stop)]
                self._free(chunk)
            hand.works = ()
        return unfinished

    async def send_back(
        self, unfinished: list[tuple[Chunk, int]], send_back: SendBack, options: ConsumerOptions
    ) -> None:
        """Have these delivered again later; what no broker takes over stays unfinished."""

        async def send(chunk: Chunk, index: int) -> None:
            message = chunk.messages[index]
            if not chunk.process_queue.is_dropped and await send_back.send(message, options.delay_level(message)):
                chunk.finish(index, index + 1)

        await asyncio.gather(*(send(chunk, index) for chunk, index in unfinished))

    # What loops ask

    def begin(self, hand: Hand) -> None:
        """A loop begins; those that were left are done with what they had."""
        if self.is_closed:
            raise ClientStateError("this consumer is closed; open a new one to consume on")
        for other in self._hands:
            if other.loop() is None:
                self.finish(other)
        self._hands = [other for other in self._hands if other.loop() is not None]
        self._hands.append(hand)

    def finish(self, hand: Hand) -> None:
        """All that this loop was handed is done; the rest of its chunk goes to others."""
        if not hand.has_arrived:
            self.take_back(hand)
            return
        if hand.context is not None:
            self._watch.after(hand.context, None, self._monotonic() - hand.since)
            hand.context = None
        chunk, hand.chunk = hand.chunk, None
        if chunk is not None:
            count = chunk.finish_steps()
            topic = chunk.process_queue.queue.topic
            self._watch.statistics.consumed(topic, count, 0, self._monotonic() - hand.since)
            self._free(chunk)
            if chunk.has_more:
                self.put_back(chunk)
        for chunk, start, stop in hand.works:
            chunk.finish(start, stop)
            topic = chunk.process_queue.queue.topic
            self._watch.statistics.consumed(topic, stop - start, 0, self._monotonic() - hand.since)
            self._free(chunk)
        hand.works = ()
        if self._idle is not None and self._is_idle:
            _release(self._idle)

    def take_back(self, hand: Hand) -> None:
        """What this loop was given last did not arrive: it is handed out again, to whoever is next."""
        if hand.context is not None:
            self._watch.after(hand.context, RetryLater("it did not arrive"), self._monotonic() - hand.since)
            hand.context = None
        if hand.chunk is not None:
            hand.chunk.give_back(hand.chunk.taken - 1)
        works, hand.works, hand.has_arrived = hand.works, (), True
        self.finish(hand)
        for chunk, start, stop in reversed(works):
            if chunk.taken == stop:  # else another loop has gone on in it, and this comes again when the queue does
                chunk.give_back(start)
            self._free(chunk)
            if chunk.has_more:
                self.put_back(chunk)

    async def next_chunk(self, hand: Hand) -> Chunk:
        """A chunk with messages to hand out, waited for. Raises StopAsyncIteration once the consumer is closed."""
        hand.task = asyncio.current_task()
        if self._monotonic() > self._turn_ends:
            await turn()
            self._turn_ends = self._monotonic() + _TURN_S
        while not self.is_closed:
            chunk = self.take()
            if chunk is not None:
                hand.since = chunk.process_queue.last_consumed_at = self._monotonic()
                return chunk
            await self._wait()
            self._turn_ends = self._monotonic() + _TURN_S
        raise StopAsyncIteration

    def take(self) -> Chunk | None:
        """A chunk with messages to hand out now, if there is one."""
        while self._ready:
            chunk = self._ready.popleft()
            process_queue = chunk.process_queue
            if not chunk.has_more or chunk.is_stepped:
                continue
            if not self._is_ordered:
                return chunk
            if process_queue.is_consuming:
                self._behind.setdefault(process_queue, deque()).append(chunk)
            elif self._is_locked(process_queue):
                process_queue.is_consuming = True
                return chunk
        return None

    def put_back(self, chunk: Chunk) -> None:
        """The rest of this chunk goes to whoever is next."""
        if self.is_closed:
            return
        process_queue = chunk.process_queue
        if process_queue.is_consuming:
            self._behind.setdefault(process_queue, deque()).appendleft(chunk)
        else:
            self._ready.appendleft(chunk)
            self._wake()

    def watch(self, hand: Hand, work: Work) -> None:
        """Tell the hooks what the loop is given."""
        hand.since = self._monotonic()
        hand.context = self._watch.before(work)

    def _free(self, chunk: Chunk) -> None:
        """Another chunk of this queue may be handed out."""
        if not self._is_ordered:
            return
        process_queue = chunk.process_queue
        process_queue.is_consuming = False
        freed, process_queue.when_freed = process_queue.when_freed, None
        if freed is not None:
            freed()
        behind = self._behind.pop(process_queue, None)
        if behind is not None:
            self._ready.extendleft(reversed(behind))
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # the call was for whoever waits, not for us alone
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)


class MessageLoop:
    """One loop over messages."""

    __slots__ = ("__weakref__", "_chunk", "_hand", "_iteration")

    def __init__(self, iteration: Iteration) -> None:
        self._iteration = iteration
        self._chunk: Chunk | None = None
        self._hand = Hand(self)
        iteration.begin(self._hand)

    def __aiter__(self) -> MessageLoop:
        return self

    async def __anext__(self) -> ReceivedMessage:
        chunk = self._chunk
        if chunk is not None:
            taken = chunk.taken
            if taken < len(chunk.messages):
                chunk.taken = taken + 1
                return chunk.messages[taken]
        iteration, hand = self._iteration, self._hand
        self._chunk = None
        iteration.finish(hand)
        chunk = await iteration.next_chunk(hand)
        chunk.begin_steps()
        hand.chunk = chunk
        taken = chunk.taken
        chunk.taken = taken + 1
        if iteration.is_watched:
            return self._watched(chunk, taken)
        self._chunk = chunk
        return chunk.messages[taken]

    def take_back(self, message: ReceivedMessage) -> None:
        """Undo the last step: its message did not reach the application."""
        self._chunk = None
        self._iteration.take_back(self._hand)

    def _watched(self, chunk: Chunk, index: int) -> ReceivedMessage:
        """With hooks each message is a chunk's worth of work: they hear of every step."""
        message = chunk.messages[index]
        self._iteration.watch(self._hand, (chunk, index, index + 1))
        return message


class BatchLoop:
    """One loop over batches: messages that are there, up to a number, of any queues."""

    __slots__ = ("__weakref__", "_again", "_hand", "_iteration", "_most")

    def __init__(self, iteration: Iteration, most: int) -> None:
        self._again: list[ReceivedMessage] = []
        self._iteration = iteration
        self._most = most
        self._hand = Hand(self)
        iteration.begin(self._hand)

    def __aiter__(self) -> BatchLoop:
        return self

    def take_back(self, batch: list[ReceivedMessage]) -> None:
        """Undo the last step: its batch did not reach the application. The next one gives it again."""
        self._again = batch
        self._hand.has_arrived = False

    async def __anext__(self) -> list[ReceivedMessage]:
        iteration, hand = self._iteration, self._hand
        if not hand.has_arrived:
            hand.has_arrived = True
            again, self._again = self._again, []
            return again
        iteration.finish(hand)
        chunk: Chunk | None = await iteration.next_chunk(hand)
        batch: list[ReceivedMessage] = []
        works: list[Work] = []
        hand.works = works
        while chunk is not None:
            start, stop = chunk.take(self._most - len(batch))
            batch += chunk.messages[start:stop] if start or stop < len(chunk.messages) else chunk.messages
            works.append((chunk, start, stop))
            if len(batch) == self._most or iteration.is_watched:
                break
            chunk = iteration.take()
        last = works[-1][0]
        if last.has_more:
            iteration.put_back(last)
        if iteration.is_watched:
            iteration.watch(hand, works[0])
        return batch


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
