"""A store in memory with the contract of `engine.MessageStore`: the oracle of its tests, and for tests without a disk.

Written to be obviously right, not fast: one list of records in log order, everything else computed by looking through
it. Places in the log are the same as in the file store, blanks at segment ends included, so that results can be
compared number by number. Nothing is ever on disk: `flush` only moves a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fusee.clock import Clock, SystemClock
from fusee.errors import MessageError, StoreError
from fusee.message.hashing import tags_code
from fusee.message.record import decode_record
from fusee.message.record_layout import body_crc, pack_record, record_size
from fusee.store.batch_body import BatchBody
from fusee.store.config import StoreConfig
from fusee.store.layout import CONSUME_ENTRY_SIZE
from fusee.store.results import GetResult, GetStatus, PutResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.message.batch import BatchElement
    from fusee.message.model import StoredMessage
    from fusee.store.new_record import NewRecord

_BLANK_SIZE = 8


class _Entry(NamedTuple):
    log_offset: int
    record: bytes
    message: StoredMessage
    in_queue: bool

    @property
    def end_offset(self) -> int:
        return self.log_offset + len(self.record)


class MemoryStore:
    """A store that is gone with its process."""

    def __init__(self, config: StoreConfig | None = None, *, clock: Clock | None = None) -> None:
        self.config = config or StoreConfig()
        self._clock = clock or SystemClock()
        self._entries: list[_Entry] = []
        self._last_timestamp_ms = 0
        self._min_log_offset = 0
        self.end_offset = 0
        self.written_offset = 0
        self.flushed_offset = 0
        self.dispatched_offset = 0

    # Put

    def put(self, record: NewRecord) -> PutResult:
        kind = record.sys_flag & 0xC
        in_queue = kind in (0, 8)
        topic = record.topic.encode()
        self._check(record, topic, len(record.body), len(record.properties))
        size = record_size(record.sys_flag, len(record.body), len(topic), len(record.properties))
        log_offset = self._place(size)
        queue_offset = self._next_offset(record.topic, record.queue_id) if in_queue else 0
        now_ms = self._now_ms()
        data = self._pack(record, topic, record.body, record.properties, record.flag, queue_offset, log_offset, now_ms)
        self._add(data, log_offset, in_queue)
        return PutResult(log_offset, queue_offset, log_offset + size, now_ms)

    def put_batch(
        self, record: NewRecord, batch: Sequence[BatchElement] | BatchBody, *, tells_places: bool = True
    ) -> PutResult:
        elements = batch.elements if isinstance(batch, BatchBody) else batch
        if not elements:
            raise MessageError("a batch without messages cannot be stored")
        topic = record.topic.encode()
        for element in elements:
            self._check(record, topic, len(element.body), len(element.properties_bytes))
        sizes = [
            record_size(record.sys_flag, len(element.body), len(topic), len(element.properties_bytes))
            for element in elements
        ]
        if sum(sizes) > self.config.record_size_max:
            raise MessageError(f"the batch takes {sum(sizes)} bytes")
        first = position = self._place(sum(sizes))
        queue_offset = self._next_offset(record.topic, record.queue_id)
        now_ms = self._now_ms()
        log_offsets = []
        for number, element in enumerate(elements):
            data = self._pack(
                record,
                topic,
                element.body,
                element.properties_bytes,
                element.flag,
                queue_offset + number,
                position,
                now_ms,
            )
            self._add(data, position, in_queue=True)
            log_offsets.append(position)
            position += sizes[number]
        return PutResult(
            first, queue_offset, position, now_ms, len(elements), tuple(log_offsets) if tells_places else ()
        )

    def write(self) -> int:
        self.written_offset = self.end_offset
        return self.written_offset

    def flush(self) -> int:
        self.flushed_offset = self.write()
        return self.flushed_offset

    def dispatch(self, batches_max: int | None = None) -> int:
        count = sum(1 for entry in self._entries if self.dispatched_offset <= entry.log_offset < self.written_offset)
        self.dispatched_offset = self.written_offset
        return count

    # Get and query

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first queue offset that is there; the next one when there is none."""
        queue = self._queue(topic, queue_id)
        return queue[0].message.queue_offset if queue else self.max_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that comes next."""
        ever = self._ever(topic, queue_id)
        return ever[-1].message.queue_offset + 1 if ever else 0

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int | None = None,
        tags_codes: frozenset[int] | None = None,
        predicate: Callable[[bytes], bool] | None = None,
    ) -> GetResult:
        if not self._ever(topic, queue_id):
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        if queue_offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if queue_offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, high, low, high)
        if queue_offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        config = self.config
        bytes_max = max(config.max_transfer_bytes_on_message_in_memory if max_bytes is None else max_bytes, 100)
        entries_per_segment = config.mapped_file_size_consume_queue // CONSUME_ENTRY_SIZE
        found: list[_Entry] = []
        size = 0
        next_offset = queue_offset
        for entry in self._queue(topic, queue_id):
            offset = entry.message.queue_offset
            if offset < queue_offset:
                continue
            full = found and (
                size + len(entry.record) > min(bytes_max, config.max_transfer_bytes_on_message_in_memory)
                or len(found) >= min(max_count, config.max_transfer_count_on_message_in_memory)
            )
            # As the reference does, a get looks into one consume queue segment only.
            if offset // entries_per_segment != queue_offset // entries_per_segment:
                break
            if full or (offset - queue_offset) * 20 >= max(config.max_filter_message_size, max_count * 20):
                break
            next_offset = offset + 1
            tag = entry.message.tag
            if tags_codes is not None and (tags_code(tag.encode()) if tag else 0) not in tags_codes:
                continue
            if predicate is not None and not predicate(entry.message.properties_bytes):
                continue
            found.append(entry)
            size += len(entry.record)
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(
            status,
            next_offset,
            low,
            high,
            [memoryview(entry.record) for entry in found],
            len(found),
            size,
            [entry.message.queue_offset for entry in found],
        )

    def query_key(self, topic: str, key: str) -> list[int]:
        """Log offsets of the messages of this topic that carry this key or unique key."""
        return [
            entry.log_offset
            for entry in self._visible()
            if entry.message.topic == topic and (key in entry.message.keys or key == entry.message.unique_id)
        ]

    def record_at(self, log_offset: int) -> memoryview | None:
        for entry in self._entries:
            if entry.log_offset == log_offset and entry.end_offset <= self.written_offset:
                return memoryview(entry.record)
        return None

    # Truncate, expire, crash

    def truncate(self, log_offset: int) -> None:
        self._entries = [entry for entry in self._entries if entry.log_offset < log_offset]
        self.end_offset = self.written_offset = log_offset
        self.flushed_offset = min(self.flushed_offset, log_offset)
        self.dispatched_offset = min(self.dispatched_offset, log_offset)

    def drop_before(self, log_offset: int) -> None:
        """Forget the records before this log offset; their queue offsets stay used."""
        self._min_log_offset = log_offset

    # Inside

    def _visible(self) -> list[_Entry]:
        return [
            entry
            for entry in self._entries
            if entry.log_offset >= self._min_log_offset and entry.end_offset <= self.dispatched_offset
        ]

    def _ever(self, topic: str, queue_id: int) -> list[_Entry]:
        return [
            entry
            for entry in self._entries
            if entry.in_queue
            and entry.end_offset <= self.dispatched_offset
            and entry.message.topic == topic
            and entry.message.queue_id == queue_id
        ]

    def _queue(self, topic: str, queue_id: int) -> list[_Entry]:
        return [entry for entry in self._ever(topic, queue_id) if entry.log_offset >= self._min_log_offset]

    def _next_offset(self, topic: str, queue_id: int) -> int:
        offsets = [
            entry.message.queue_offset + 1
            for entry in self._entries
            if entry.in_queue and entry.message.topic == topic and entry.message.queue_id == queue_id
        ]
        return max(offsets, default=0)

    def _place(self, size: int) -> int:
        segment = self.config.mapped_file_size_commit_log
        if size + _BLANK_SIZE > segment:
            raise StoreError(f"{size} bytes do not fit into a segment of {segment}")
        room = segment - self.end_offset % segment
        if size + _BLANK_SIZE > room:
            self.end_offset += room
        return self.end_offset

    def _add(self, data: bytes, log_offset: int, in_queue: bool) -> None:
        self._entries.append(_Entry(log_offset, data, decode_record(data), in_queue))
        self.end_offset = log_offset + len(data)

    def _check(self, record: NewRecord, topic: bytes, body_size: int, properties_size: int) -> None:
        if body_size > self.config.max_message_size:
            raise MessageError(f"message body of {body_size} bytes, limit {self.config.max_message_size}")
        size = record_size(record.sys_flag, body_size, len(topic), properties_size)
        if properties_size > 32767 or size > self.config.mapped_file_size_commit_log - _BLANK_SIZE:
            raise MessageError(f"the message takes {size} bytes")

    def _pack(
        self,
        record: NewRecord,
        topic: bytes,
        body: bytes,
        properties: bytes,
        flag: int,
        queue_offset: int,
        log_offset: int,
        now_ms: int,
    ) -> bytes:
        return pack_record(
            topic,
            body,
            properties,
            body_crc(body),
            record.queue_id,
            flag,
            queue_offset,
            log_offset,
            record.sys_flag,
            record.born_timestamp_ms,
            record.born_host,
            now_ms,
            record.store_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
        )

    def _now_ms(self) -> int:
        self._last_timestamp_ms = max(self._clock.time_ms(), self._last_timestamp_ms)
        return self._last_timestamp_ms
