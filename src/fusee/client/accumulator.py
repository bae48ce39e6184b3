"""Automatic batching: messages that are sent at about the same time travel together (Java: ProduceAccumulator).

Messages are gathered by kind: topic, queue if it is fixed, whether to wait for storage, time-out, and tag, because
topics whose queues are of the batch kind filter a batch as a whole. What is gathered leaves

- when it is full: a quarter of what is under way, at least 32 KiB, at most `batch_max_bytes`;
- at the end of the turn of the loop, when no batch of its kind is under way: nobody waits without need;
- when the last batch of its kind is answered, or after `batch_linger_ms`, whichever is first.

So a single sender pays no delay, and the busier the producer, the larger its batches; some are always under way while
the next is filled. (Java always waits for size or time.) Messages for a fixed queue keep their order: its batches leave
one after the other, and a message of another kind, or one that travels alone, closes the batch before it. A message
that is cancelled before its batch leaves is not sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fusee.client.gathered_entries import without_cancelled
from fusee.client.outgoing_batch import GatheredBatch
from fusee.errors import ConfigError
from fusee.message.batch import ELEMENT_SIZE_MIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.client.called_back import CalledBack
    from fusee.client.gathered_entries import Entry
    from fusee.client.publication import Publication
    from fusee.client.results import SendResult
    from fusee.clock import TimerHandle, Timers
    from fusee.message.model import MessageQueue

LINGER_MS_MAX: Final = 30_000
BATCH_BYTES_MAX: Final = 2 * 1024 * 1024
COUNT_MAX: Final = 4096

# Batches of which four are under way keep client and broker busy; of those that are smaller than a piece, more.
_PIECE_BYTES: Final = 32 * 1024
_UNDER_WAY_SHARE: Final = 4


class Kind:
    """Messages that may travel together: those gathered now, and how many batches are under way."""

    __slots__ = (
        "_accumulator", "_flush_is_due", "_under_way", "entries", "full_size", "in_flight", "keys", "publication",
        "queue", "size", "tag", "timeout", "timer", "wait_stored",
    )  # fmt: skip

    def __init__(
        self, accumulator: Accumulator, publication: Publication, queue: MessageQueue | None, wait_stored: bool,
        tag: str | None, timeout: float,
    ) -> None:  # fmt: skip
        self._accumulator = accumulator
        self.publication = publication
        self.queue = queue
        self.wait_stored = wait_stored
        self.tag = tag
        self.timeout = timeout
        self.in_flight = 0
        self.timer: TimerHandle | None = None
        self._flush_is_due = False
        self.entries: list[Entry] = []
        self.keys: list[str] = []
        self.size = 0
        self._under_way = 0
        self._find_full_size()

    def flush_soon(self) -> None:
        """Let this turn of the loop add what it has, then send."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._accumulator.loop.call_soon(self._flush_at_end_of_turn)

    def _flush_at_end_of_turn(self) -> None:
        self._flush_is_due = False
        if self.in_flight == 0:
            self.flush()

    def flush(self) -> None:
        """Send what is gathered now."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        entries, self.entries = without_cancelled(self.entries), []
        keys, self.keys = self.keys, []
        self._accumulator.held -= self.size
        self.size = 0
        if not entries:
            self._accumulator.forget_if_idle(self)
            return
        batch = GatheredBatch.joined(entries, loop=self._accumulator.loop)
        batch.over = self._over
        self.in_flight += 1
        self._under_way += len(batch.body)
        self._find_full_size()
        self._accumulator.begin(batch, self, keys)

    def _find_full_size(self) -> None:
        self.full_size = min(max(_PIECE_BYTES, self._under_way // _UNDER_WAY_SHARE), self._accumulator.batch_max_bytes)

    def _over(self, size: int) -> None:
        self.in_flight -= 1
        self._under_way -= size
        self._find_full_size()
        if self.in_flight == 0:
            # Whoever got a result now may send the next message in this very turn.
            self.flush_soon()


class Accumulator:
    """Gathers the messages of one producer."""

    def __init__(
        self,
        begin: Callable[[GatheredBatch, Kind, list[str]], None],
        *,
        timers: Timers,
        linger_ms: int,
        batch_max_bytes: int,
        total_max_bytes: int,
    ) -> None:
        """`begin` sends a batch of a kind, with these keys."""
        if not 1 <= linger_ms <= LINGER_MS_MAX:
            raise ConfigError(f"batch_linger_ms is {linger_ms}; it is 1 to {LINGER_MS_MAX}")
        if not 1 <= batch_max_bytes <= BATCH_BYTES_MAX:
            raise ConfigError(f"batch_max_bytes is {batch_max_bytes}; it is 1 to {BATCH_BYTES_MAX}")
        if total_max_bytes < batch_max_bytes:
            raise ConfigError(f"total_batch_max_bytes is {total_max_bytes}, less than batch_max_bytes")
        self.begin = begin
        self.timers = timers
        self.linger = linger_ms / 1000
        self.batch_max_bytes = batch_max_bytes
        self.held = 0
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.new_future: Callable[[], asyncio.Future[SendResult]] = self.loop.create_future
        self._total_max_bytes = total_max_bytes
        self._kinds: dict[tuple[str, MessageQueue | None, bool, str | None, float], Kind] = {}
        self._last: Kind | None = None
        # Of each fixed queue only one kind gathers at a time, so that messages keep their order.
        self._last_of_queue: dict[MessageQueue, Kind] = {}

    def add(
        self,
        publication: Publication,
        queue: MessageQueue | None,
        wait_stored: bool,
        tag: str | None,
        unique_id: str,
        flag: int,
        body: bytes,
        properties: str,
        key: str | None,
        timeout: float,
        waiting: asyncio.Future[SendResult] | CalledBack,
    ) -> None:
        """Gather a message; `waiting` gets its result."""
        kind = self._last
        # Most messages are of the kind of the one before, which is seen without making its name.
        if (
            kind is None
            or kind.publication is not publication
            or kind.queue is not queue
            or kind.tag is not tag
            or kind.wait_stored != wait_stored
            or kind.timeout != timeout
        ):
            named = (publication.topic, queue, wait_stored, tag, timeout)
            kind = self._kinds.get(named)
            if kind is None:
                kind = self._kinds[named] = Kind(self, publication, queue, wait_stored, tag, timeout)
            self._last = kind
        if queue is not None:
            before = self._last_of_queue.get(queue)
            if before is not kind:
                if before is not None:
                    before.flush()
                self._last_of_queue[queue] = kind
        size = ELEMENT_SIZE_MIN + len(body) + len(properties)
        entries = kind.entries
        if entries and kind.size + size > kind.full_size:
            kind.flush()
            entries = kind.entries
        if not entries:
            if kind.in_flight == 0:
                kind.flush_soon()
            else:
                kind.timer = self.timers.call_later(self.linger, kind.flush)
        entries.append((waiting, unique_id, flag, body, properties))
        if key is not None:
            kind.keys.append(key)
        kind.size += size
        self.held += size
        if kind.size >= kind.full_size or len(entries) >= COUNT_MAX:
            kind.flush()
        elif self.held > self._total_max_bytes:
            self.flush()

    def flush(self) -> None:
        """Send everything that is gathered."""
        for kind in list(self._kinds.values()):
            kind.flush()

    def flush_queue(self, queue: MessageQueue) -> None:
        """Send what is gathered for this queue, because something that travels alone comes behind it."""
        kind = self._last_of_queue.get(queue)
        if kind is not None:
            kind.flush()

    def forget_if_idle(self, kind: Kind) -> None:
        """Keep no kind that is not in use: tags and queues may be many."""
        named = (kind.publication.topic, kind.queue, kind.wait_stored, kind.tag, kind.timeout)
        if kind.in_flight == 0 and not kind.entries and self._kinds.get(named) is kind:
            del self._kinds[named]
            if self._last is kind:
                self._last = None
            if kind.queue is not None and self._last_of_queue.get(kind.queue) is kind:
                del self._last_of_queue[kind.queue]
