"""Publishing a committed batch: copies of its staged messages into their queues, each exactly once whatever happens.

Commits are published one after the other in the order of the log, each part of a commit in its order. A turn of the
loop puts a limited number of bytes; the next begins when they are in the file. What could not be written is tried
again from there, after a while that doubles up to ten seconds.

After a crash the log itself says how far it came: the messages of a part are published in order, and each has the
part's log offset with it. So their number is what was published (`count_published`).
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fusee.broker.delay import level_count, schedule_record
from fusee.broker.rewrites import DELAY, delay_level_of, real_place
from fusee.errors import FuseeError, MessageError
from fusee.message.record import decode_record
from fusee.message.record_layout import RECORD_SIZE_MIN, TIMESTAMP, record_bounds
from fusee.message.topics import STAGED_TOPIC
from fusee.store.batch_body import BatchBody
from fusee.store.dispatch import LogScanner
from fusee.store.new_record import NewRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fusee.broker.ack_gate import PutStatus
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.staged_records import Commit
    from fusee.broker.statistics import Statistics
    from fusee.clock import TimerHandle, Timers
    from fusee.message.batch import BatchElement
    from fusee.store.engine import MessageStore
    from fusee.store.results import PutResult

_log = logging.getLogger(__name__)

_TURN_BYTES: Final = 2 * 1024 * 1024
_PIECE_BYTES: Final = 4 * 1024 * 1024
_RECORD_EXTRA: Final = 160
"""What a record has beside body, properties and topic, at most, and a little more."""
_PAUSE_FIRST: Final = 0.1
_PAUSE_MAX: Final = 10.0
_DELAY_MARK: Final = DELAY + b"\x01"
_NOTHING: Final = BatchBody(b"")


@dataclass(slots=True, eq=False)
class Publication:
    """A commit on its way."""

    commit: Commit
    commit_offset: int
    op_offset: int
    published: dict[int, int] = field(default_factory=dict)
    """How many messages of a part were in their queues when this broker started, by the part's log offset."""
    waiters: list[Callable[[PutStatus], object]] = field(default_factory=list)
    """Whom to tell when it is done."""


class _Piece(NamedTuple):
    """Messages of one part that are put together."""

    part_index: int
    end: int
    record: NewRecord
    elements: BatchBody | list[BatchElement]


class Publisher:
    """Publishes commits in order."""

    def __init__(
        self,
        *,
        writer: LogWriter,
        timers: Timers,
        store_host: bytes,
        on_published: Callable[[Publication], object],
        statistics: Statistics | None = None,
    ) -> None:
        """`on_published` is called when all messages of a commit are in the file, before the next one begins."""
        self._writer = writer
        self._store = writer.store
        self._timers = timers
        self._store_host = store_host
        self._on_published = on_published
        self._statistics = statistics
        self._levels_max = level_count(writer.store.config.message_delay_level)
        self._queue: deque[Publication] = deque()
        self._is_running = False
        self._timer: TimerHandle | None = None
        self._pause = 0.0
        self._in_flight = 0
        self._has_failed = False
        # The next message: which part of the commit, which message of the part; and the same of what is in the file.
        self._part_index = self._position = 0
        self._stored = (0, 0)
        self._head: NewRecord | None = None
        self._batch = _NOTHING
        self._may_delay = False

    def start(self, publications: Iterable[Publication]) -> None:
        """Finish these, and go on with what is added."""
        self._queue = deque(publications)
        self._is_running = True
        self._begin()
        self._publish()

    def stop(self) -> None:
        """Put nothing more; what is not published is found in the log at the next start."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, publication: Publication) -> None:
        """Publish this when those before it are."""
        self._queue.append(publication)
        if len(self._queue) == 1:
            self._begin()
            self._publish()

    def unfinished(self) -> list[Publication]:
        """What is not published, in order."""
        return list(self._queue)

    def _begin(self) -> None:
        self._part_index = self._position = 0
        self._stored = (0, 0)
        self._head = None

    def _publish(self) -> None:
        """Put what one turn may."""
        while self._queue and self._may_put():
            size_left = _TURN_BYTES
            publication = self._queue[0]
            while size_left > 0:
                piece = self._next_piece(publication.commit)
                if piece is None:
                    break
                try:
                    size_left -= self._put(piece)
                except MessageError as error:
                    # What was staged was checked: only a store with smaller limits than it had can come here.
                    _log.error("%d committed messages cannot be stored: %s", len(piece.elements), error)
                    self._position = piece.end
                except FuseeError as error:
                    self._put_off(error)
                    break
            else:
                return
            if not self._may_put():
                return
            self._queue.popleft()
            self._begin()
            self._on_published(publication)

    def _may_put(self) -> bool:
        return self._is_running and not self._in_flight and self._timer is None

    def _next_piece(self, commit: Commit) -> _Piece | None:
        """What to put next; None when everything is put."""
        while True:
            if self._head is None:
                if self._part_index == len(commit.parts):
                    return None
                self._load(commit)
            head = self._head
            assert head is not None
            start, batch = self._position, self._batch
            if start >= len(batch):
                self._part_index += 1
                self._position = 0
                self._head = None
                continue
            topic_size, size_max = len(head.topic), min(_PIECE_BYTES, self._store.config.max_message_size)
            whole_size = batch.packed_size(topic_size) + len(batch) * (_RECORD_EXTRA - RECORD_SIZE_MIN)
            if start == 0 and not self._may_delay and whole_size <= size_max:
                return _Piece(self._part_index, len(batch), head, batch)
            elements = batch.elements
            first = elements[start]
            level = (delay_level_of(first.properties_bytes) or 0) if self._may_delay else 0
            if level > 0:
                record = msgspec.structs.replace(
                    head, body=first.body, properties=first.properties_bytes, flag=first.flag
                )
                return _Piece(self._part_index, start + 1, schedule_record(record, level, self._levels_max), [first])
            size, end = 0, start
            while end < len(elements):
                element = elements[end]
                size += len(element.body) + len(element.properties_bytes) + topic_size + _RECORD_EXTRA
                if end > start and size > size_max:
                    break
                if self._may_delay and delay_level_of(element.properties_bytes):
                    break
                end += 1
            return _Piece(self._part_index, end, head, elements[start:end])

    def _load(self, commit: Commit) -> None:
        """Take the next part out of the log, without what is published of it."""
        part_offset = commit.parts[self._part_index]
        data = self._store.record_at(part_offset)
        try:
            message = None if data is None else decode_record(data)
            self._batch = _NOTHING if message is None else BatchBody(message.body)
        except MessageError:
            message = None
        place = None if message is None or message.topic != STAGED_TOPIC else real_place(message.properties_bytes)
        if message is None or place is None:
            _log.error(
                "staged messages at log offset %d, committed by %s in batch %d, are gone from the log",
                part_offset,
                commit.application,
                commit.batch_id,
            )
            self._batch = _NOTHING
            self._head = NewRecord("", 0, b"")
            return
        self._may_delay = self._batch.has_in_properties(_DELAY_MARK)
        self._position = max(self._position, self._queue[0].published.get(part_offset, 0))
        self._head = NewRecord(
            place[0],
            place[1],
            b"",
            b"",
            0,
            message.sys_flag,
            message.born_timestamp_ms,
            message.born_host_bytes,
            message.store_host_bytes,
            0,
            part_offset,
        )

    def _put(self, piece: _Piece) -> int:
        record = piece.record
        writer = self._writer
        if record is self._head:
            # A whole part is written at once, and its bytes are used again for the next.
            result = writer.put_batch(record, piece.elements, is_large=isinstance(piece.elements, BatchBody))
        else:
            result = writer.put(record)
        self._position = piece.end
        self._in_flight += 1
        writer.when_stored(result, partial(self._written, piece, result), wait=False)
        return result.end_offset - result.log_offset

    def _written(self, piece: _Piece, result: PutResult, status: PutStatus) -> None:
        self._in_flight -= 1
        if not status.is_stored:
            self._has_failed = True
        else:
            self._stored = (piece.part_index, piece.end)
            if self._statistics is not None:
                size = result.end_offset - result.log_offset
                self._statistics.put(piece.record.topic, piece.record.queue_id, len(piece.elements), size)
        if self._in_flight:
            return
        if self._has_failed:
            # A failed write makes void all that was put behind a place of the log: what is stored comes before it.
            self._has_failed = False
            self._part_index, self._position = self._stored
            self._head = None
            self._put_off("the log could not be written")
        elif self._timer is None:
            self._pause = 0.0
        self._publish()

    def _put_off(self, reason: object) -> None:
        if not self._pause:
            _log.error("a committed batch waits to be published, and is tried again: %s", reason)
        if self._timer is None and self._is_running:
            self._pause = min(max(self._pause * 2, _PAUSE_FIRST), _PAUSE_MAX)
            self._timer = self._timers.call_later(self._pause, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._publish()


def count_published(store: MessageStore, part_offsets: Iterable[int], log_offset: int) -> dict[int, int]:
    """How many messages of each of these parts lie in the log, from this log offset on."""
    counts = dict.fromkeys(part_offsets, 0)
    scanner = LogScanner(store.log)
    while counts:
        batch, next_offset = scanner.scan(log_offset)
        if next_offset == log_offset:
            break
        if batch is not None:
            first = int(batch.log_offsets[0])
            view = store.log.chunk(first, int(batch.log_offsets[-1] + batch.sizes[-1]) - first)
            for record_offset in batch.log_offsets.tolist():
                body_start = record_bounds(view, record_offset - first, len(view))[0]
                # Prepared transaction offset and the body's length stand before the body.
                (prepared,) = TIMESTAMP.unpack_from(view, body_start - 12)
                if prepared in counts:
                    counts[prepared] += 1
        log_offset = next_offset
    return {part_offset: count for part_offset, count in counts.items() if count}
