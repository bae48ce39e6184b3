"""Consumption side by side: messages of a queue may overtake each other (Java: ConsumeMessageConcurrentlyService).

Chunks stand in line as they were pulled, and whoever is free takes the next messages of the first. What failed is sent
back to be delivered again later; only when a broker has taken it over is it done here. When no broker does, it stays
and is tried again here after five seconds, so a message is never given up between the two. In a broadcast group there
is nowhere to send it, and it counts as done.

A message that is in a listener for longer than `consume_timeout_min` is sent back as well: the listener may never come
back, and nothing behind the message could be committed. How that call ends is of no interest any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from fusee.client.consumer.runners import new_runner
from fusee.client.received import count_failure
from fusee.service import Periodic

if TYPE_CHECKING:
    from fusee.client.consumer.options import ConsumerOptions, RetryLater
    from fusee.client.consumer.process_queue import Chunk, ProcessQueue
    from fusee.client.consumer.runners import Listener, Work
    from fusee.client.consumer.send_back import SendBack
    from fusee.client.session import Session
    from fusee.clock import TimerHandle

_log = logging.getLogger(__name__)

_AGAIN_HERE_S: Final = 5.0
_EXPIRED_LEVEL: Final = 3


class Concurrent:
    """What is to be consumed next, in no order across the messages of a queue."""

    def __init__(
        self,
        session: Session,
        listener: Listener,
        *,
        options: ConsumerOptions,
        send_back: SendBack | None,
    ) -> None:
        """Without `send_back`, as in a broadcast group, failed messages count as done."""
        self._session = session
        self._options = options
        self._send_back = send_back
        self._most = options.consume_message_batch_max_size if listener.takes_batches else 1
        self._ready: deque[Chunk] = deque()
        self._again: deque[Work] = deque()
        # Calls, by the identity of their work: what was given up comes again as work of the same messages.
        self._expired: dict[int, Work] = {}
        self._timers: set[TimerHandle] = set()
        self._runner = new_runner(
            session,
            self,
            listener,
            seats_max=options.consume_thread_max,
            run_in_threads=options.run_in_threads,
        )
        self._timeout_s = options.consume_timeout_min * 60
        self._patrol = Periodic(session.timers, self._timeout_s, self._look_for_expired)

    def start(self) -> None:
        """Begin."""
        if self._send_back is not None:
            self._patrol.start()

    async def close(self, timeout: float, caller: asyncio.Task[Any] | None = None) -> bool:
        """Hand out no more, wait for what is under way; whether it all ended in time."""
        self._patrol.stop()
        self._ready.clear()
        self._again.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        return await self._runner.close(timeout, caller)

    # What the consumer tells

    def offer(self, chunk: Chunk) -> None:
        """These messages were pulled."""
        if chunk.has_more:
            self._ready.append(chunk)
            self._runner.wake()

    def resumed(self, process_queue: ProcessQueue) -> None:
        """The messages of this queue may be handed out again."""
        in_line = set(map(id, self._ready))
        self._ready.extend(chunk for chunk in process_queue.open_chunks() if id(chunk) not in in_line)
        self._runner.wake()

    # Source

    @property
    def has_work(self) -> bool:
        return bool(self._ready or self._again)

    def take(self) -> Work | None:
        if self._again:
            work = self._take_again()
            if work is not None:
                return work
        ready = self._ready
        while ready:
            chunk = ready[0]
            start, end = chunk.taken, len(chunk.messages)
            stop = start + self._most
            if stop >= end:
                stop = end
                ready.popleft()
            if start < stop:
                chunk.taken = stop
                return chunk, start, stop
        return None

    def done(self, work: Work) -> None:
        if self._expired and self._expired.pop(id(work), None) is not None:
            return
        chunk, start, stop = work
        chunk.finish(start, stop)

    def skipped(self, work: Work) -> None:
        """Nothing: it is not done, so it is not committed, and whoever gets the queue gets it again."""

    async def failed(self, work: Work, retry: RetryLater) -> None:
        if self._expired and self._expired.pop(id(work), None) is not None:
            return
        chunk, start, stop = work
        if chunk.process_queue.is_dropped:
            return
        again = None if retry.messages is None else set(map(id, retry.messages))
        if again is not None and not again <= set(map(id, chunk.messages[start:stop])):
            _log.warning(
                "the listener names messages that it was not given, or copies; all of its batch is tried again"
            )
            again = None
        unfinished: list[int] = []
        for index in range(start, stop):
            if again is None or id(chunk.messages[index]) in again:
                unfinished.append(index)
            else:
                chunk.finish(index, index + 1)
        if len(unfinished) == 1:
            await self._return(chunk, unfinished[0], retry.delay_level)
        else:
            await asyncio.gather(*(self._return(chunk, index, retry.delay_level) for index in unfinished))

    # Inside

    async def _return(self, chunk: Chunk, index: int, delay_level: int | None) -> None:
        """Send a message back; it is done when a broker has it, and else tried again here."""
        message = chunk.messages[index]
        if self._send_back is None:
            _log.warning("%s failed; in a broadcast group it is not tried again", message)
        elif not await self._send_back.send(
            message, self._options.delay_level(message) if delay_level is None else delay_level
        ):
            count_failure(message)
            self._later((chunk, index, index + 1))
            return
        chunk.finish(index, index + 1)

    def _later(self, work: Work) -> None:
        timer = self._session.timers.call_later(_AGAIN_HERE_S, lambda: self._due(work, timer))
        self._timers.add(timer)

    def _due(self, work: Work, timer: TimerHandle) -> None:
        self._timers.discard(timer)
        self._again.append(work)
        self._runner.wake()

    def _take_again(self) -> Work | None:
        for _ in range(len(self._again)):
            work = self._again.popleft()
            process_queue = work[0].process_queue
            if process_queue.is_held and not process_queue.is_dropped:
                self._later(work)
            elif not process_queue.is_dropped:
                return work
        return None

    def _look_for_expired(self) -> None:
        now = self._session.clock.monotonic()
        for seat in list(self._runner.seats):
            work = seat.work
            if (
                work is not None
                and now - seat.since > self._timeout_s
                and id(work) not in self._expired
                and not work[0].process_queue.is_dropped
            ):
                # From this moment, or the call might end first and its messages be finished twice.
                self._expired[id(work)] = work
                self._session.spawn(self._expire(work))

    async def _expire(self, work: Work) -> None:
        chunk, start, stop = work
        assert self._send_back is not None
        _log.warning(
            "%s is in the listener for more than %g minutes; it is sent back, so that its queue can go on",
            chunk.messages[start],
            self._options.consume_timeout_min,
        )
        for index in range(start, stop):
            if await self._send_back.send(chunk.messages[index], _EXPIRED_LEVEL):
                chunk.finish(index, index + 1)
            else:
                self._later((chunk, index, index + 1))
