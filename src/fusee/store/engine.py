"""The store as its users see it: put, get, flush, dispatch, query, expire (Java: DefaultMessageStore).

Wires the parts and keeps them level; the logic is in the parts. One thread uses it, except `FlushJob.run`.

A put goes: `put` (place in the log and in its queue) -> `write` (in the file) -> flush (on disk) and `dispatch` (in
consume queues and index, visible to consumers). The owner drives these steps and may group any number of puts before
each; the offsets tell how far each step has come. What a reply may promise is a comparison of numbers:
`result.end_offset <= store.written_offset` (survives the process), `<= store.flushed_offset` (survives the machine).
Where more is promised (a sync, replicas), `confirm` says how far it is true, and readers see nothing beyond.

The store of a replica has no puts: `append_records` takes the bytes of its master's log as they are, `truncate` cuts
what the master does not have, `restart_at` gives up everything to begin further on.

A store is opened for work by `open`, which recovers, and closed by `close`. A crash is the absence of `close`.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final, NoReturn

from fusee.clock import Clock, SystemClock
from fusee.errors import MessageError, StoreError, StoreFailedError, StoreFullError
from fusee.message import properties as names
from fusee.message.record import seal_record, with_crc_tail
from fusee.message.record_layout import (
    RECORD_SIZE_MIN,
    TIMESTAMP,
    TOPIC_SIZE_MAX_V1,
    body_crc,
    pack_record,
    record_size,
    store_timestamp_position,
)
from fusee.store.checkpoint import Checkpoint, mark_running
from fusee.store.commit_log import CommitLog
from fusee.store.config import StoreConfig
from fusee.store.consume_queue import Boundary
from fusee.store.dispatch import Arrivals, Dispatcher, DispatchSink, LogScanner
from fusee.store.durability import Durability, FlushJob
from fusee.store.filesystem import File, FileSystem, Lock, NewGuard, OsFileSystem
from fusee.store.index import Index
from fusee.store.layout import StorePaths
from fusee.store.new_batch import prepare_batch
from fusee.store.new_record import with_inner_base
from fusee.store.packed_batch import note_batch, note_prefixes
from fusee.store.plain_record import pack_plain_record
from fusee.store.query import RecordQuery
from fusee.store.queue_table import QueueTable
from fusee.store.reader import read_messages
from fusee.store.recovery import LogWalker, RecoveryReport, judge
from fusee.store.replicated import whole_records
from fusee.store.results import Dispatched, PutResult
from fusee.store.retention import DiskState, Retention
from fusee.store.transaction_table import TransactionTable
from fusee.store.truncation import Truncation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from fusee.message.batch import BatchElement
    from fusee.store.batch_body import BatchBody
    from fusee.store.commit_log import Around
    from fusee.store.new_record import NewRecord
    from fusee.store.recovery import Progress
    from fusee.store.results import GetResult

_TRANSACTION_TYPE: Final = 0xC
_PREPARED: Final = 0x4
_ROLLBACK: Final = 0xC
_INNER_BATCH: Final = 0x80
_UNUSUAL: Final = _TRANSACTION_TYPE | _INNER_BATCH
_HOST_FAMILIES: Final = 0x30

# How much of the log is read, by dispatch and by gets, before the mapped pages are given back: the process stays small,
# and the machine's cache keeps them.
_FORGET_BYTES: Final = 4 * 1024 * 1024
_READ_FORGET_BYTES: Final = 64 * 1024 * 1024


class MessageStore:
    """A store in a folder."""

    noted_count_min = 256  # smaller batches are dispatched together, from the log: arrays pay for many records

    def __init__(
        self,
        root: Path,
        config: StoreConfig | None = None,
        *,
        files: FileSystem | None = None,
        clock: Clock | None = None,
        new_guard: NewGuard = nullcontext,
    ) -> None:
        """Who calls `prepare` or saves the checkpoint on a thread of its own gives a lock as `new_guard`."""
        self.config = config or StoreConfig()
        self.paths = StorePaths(root)
        self._files = files or OsFileSystem()
        self._clock = clock or SystemClock()
        self.log = CommitLog(self.paths.commit_log, self.config, self._files, new_guard)
        self.queues = QueueTable(self.paths, self.config, self._files)
        self.index = Index(self.paths.index, self.config, self._files, self._clock)
        self.transactions = TransactionTable(self.paths, self.config, self._files, record_at=self.log.record_at)
        self._query = RecordQuery(self.log, self.index)
        self._arrival = Arrivals()
        sinks: list[DispatchSink] = [self.queues, self.transactions, self._arrival]
        self.dispatcher = Dispatcher(
            LogScanner(self.log, self.config.delay_ms_of),
            sinks,
            index=self.index if self.config.message_index_enable else None,
        )
        self.durability = Durability(self.log, self.config)
        self.checkpoint = Checkpoint(self.paths.checkpoint, self._files, new_guard)
        self.retention = Retention(self.config, self._files)
        self._truncation = Truncation(self.paths.truncation, self._files)
        self._lock: Lock | None = None
        # Why nothing can be put now; None when it can.
        self._refusal: StoreError | None = StoreError(f"the store in {root} is not open")
        self._seals = self.config.enabled_append_prop_crc
        self._body_size_max = self.config.max_message_size
        self._size_max = min(self.config.record_size_max, self.log.record_size_max)
        self._next_offsets: dict[tuple[str, int], int] = {}
        self._queues_lag = False
        self._derived_dirty: list[File] = []
        self._derived_flush: FlushJob | None = None
        self._derived_flushed_offset = 0
        self._unwritten: list[tuple[int, tuple[str, int], int]] = []
        self._last_timestamp_ms = 0
        self._written_timestamp_ms = 0
        self._topics: dict[str, bytes] = {}
        self._is_open = False
        # Readers see nothing beyond; None: everything that is written.
        self._confirmed_offset: int | None = None
        self._last_record_offset: int | None = None
        self._forgotten_offset = 0
        self._read_bytes = 0

    # Life

    def open(self, progress: Progress | None = None, *, repair: bool = False) -> RecoveryReport:
        """Recover what is there and begin work.

        `progress(done, total)` is called in bytes on long recoveries. Raises StoreCorruptError, naming the place, on
        damage that no crash explains; `repair` cuts the log there instead. Raises StoreError when the store is open
        elsewhere.
        """
        files, paths = self._files, self.paths
        files.make_folder(paths.root)
        self._lock = files.lock(paths.lock)
        try:
            unclean = files.exists(paths.abort)
            self.log.open()
            self.queues.open()
            self.checkpoint.load()
            report = self._recover(unclean, progress, repair)
            mark_running(paths, files)
        except BaseException:
            self._release()
            raise
        self._is_open = True
        self._refusal = None
        return report

    def close(self) -> None:
        """Write, dispatch and sync everything, and mark the stop as clean."""
        if not self._is_open:
            return
        self._is_open = False
        self._refusal = StoreError(f"the store in {self.paths.root} is closed")
        try:
            if self.durability.failure is None:
                self.write()
                self._dispatch_all()
                self.flush()
                self.flush_derived()
                self._files.remove(self.paths.abort)
                self._files.sync_folder(self.paths.root)
        finally:
            self._release()

    def reconfigure(self, config: StoreConfig) -> None:
        """Take over what can change while it is open: limits of a get, flush policy, retention."""
        self.config = self.durability.config = self.retention.config = config

    def _release(self) -> None:
        self.log.close()
        self.queues.close()
        self.index.close()
        self.transactions.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _recover(self, unclean: bool, progress: Progress | None, repair: bool) -> RecoveryReport:
        checkpoint, log = self.checkpoint, self.log
        cut_offset = self._truncation.pending()
        if cut_offset is not None:
            log.cut_again(cut_offset)
        walker = LogWalker(log, self.config, checkpoint.log_timestamp_ms if unclean else None)
        if unclean:
            safe_ms = checkpoint.recovery_timestamp_ms(index_too=self.config.message_index_safe)
            start = walker.start_after_crash(safe_ms)
            covered = self.queues.recover(verify=True, synced_offset=start)
        else:
            covered = self.queues.recover(verify=False)
            start = walker.start_after_clean_stop(covered)
        walk = walker.walk(start, progress)
        cut_bytes, cut_reason = judge(
            walk, walker, log, unclean=unclean, synced_timestamp_ms=checkpoint.log_timestamp_ms, repair=repair
        )
        log.truncate(walk.end_offset)
        # After a crash an entry behind the start may be torn and look whole: all of them are made again.
        self.queues.truncate(start if unclean else walk.end_offset)
        self.index.open(unclean=unclean, safe_timestamp_ms=checkpoint.index_timestamp_ms)
        self.index.truncate(walk.end_offset)
        self.transactions.open(unclean=unclean)
        self.transactions.truncate(walk.end_offset)
        self._drop_before(log.min_offset)
        if cut_offset is not None:
            checkpoint.cut(walk.last_timestamp_ms)
            checkpoint.save()
        self._truncation.finish()
        self.durability.start_at(walk.end_offset, walk.last_timestamp_ms)
        self._last_timestamp_ms = self._written_timestamp_ms = walk.last_timestamp_ms
        from_offset = min(covered, walk.end_offset, self.transactions.covered_offset)
        if unclean:
            from_offset = min(from_offset, start)
        if self.config.message_index_enable:
            from_offset = min(from_offset, self.index.covered_offset)
        self._derived_flushed_offset = max(from_offset, log.min_offset)
        self.dispatcher.start_at(self._derived_flushed_offset)
        self._forgotten_offset = self._derived_flushed_offset
        dispatched = self.dispatcher.run()
        self.dispatcher.run_index()
        # The walk has seen pages that may never have reached the disk: make true what the offsets now say.
        for base_offset, file in log.segments():
            if base_offset >= start:
                file.sync()
        self._next_offsets.clear()
        return RecoveryReport(unclean, start, walk.end_offset, walk.records, cut_bytes, cut_reason, dispatched)

    # Put

    def put(self, record: NewRecord) -> PutResult:
        """Give a record its place. Raises MessageError for one that breaks a limit; the store is as before then.

        Raises StoreFullError, StoreBusyError or StoreFailedError when nothing can be taken now.
        """
        if self._refusal is not None:
            raise self._refusal
        body = record.body
        properties = record.properties
        sys_flag = record.sys_flag
        key = (record.topic, record.queue_id)
        queue_offset = self._next_offsets.get(key)
        if queue_offset is None:
            queue_offset = self._next_offset(key)
        count = 1
        if sys_flag & _UNUSUAL:
            if sys_flag & _TRANSACTION_TYPE in (_PREPARED, _ROLLBACK):
                count = queue_offset = 0
            if sys_flag & _INNER_BATCH:
                count, properties = with_inner_base(properties, queue_offset)
        # Zero bytes in properties look like a tear to recovery: a checksum says that they belong there.
        seals = self._seals or 0 in properties
        if seals:
            properties = with_crc_tail(properties)
        topic = self._topics.get(record.topic)
        if topic is None:
            topic = self._topic_bytes(record.topic)
        body_size, properties_size = len(body), len(properties)
        # The topic comes with its length, of one byte unless it is a long one.
        size = RECORD_SIZE_MIN - 1 + body_size + len(topic) + properties_size
        born_host, store_host = record.born_host, record.store_host
        is_plain = (
            not sys_flag & _HOST_FAMILIES
            and len(topic) <= TOPIC_SIZE_MAX_V1 + 1
            and size <= self._size_max
            and body_size <= self._body_size_max
            and properties_size <= names.PROPERTIES_SIZE_MAX
            and len(born_host) == 8
            and len(store_host) == 8
        )
        if not is_plain:
            size = self._checked_size(sys_flag, body_size, properties_size, len(topic) - 1)
        log = self.log
        log_offset = log.place(size)
        now_ms = self._clock.time_ms()
        # Never back: order of time is order of the log, whatever happens to the clock.
        if now_ms < self._last_timestamp_ms:
            now_ms = self._last_timestamp_ms
        else:
            self._last_timestamp_ms = now_ms
        if is_plain:
            data = pack_plain_record(
                topic,
                body,
                properties,
                record.queue_id,
                record.flag,
                queue_offset,
                log_offset,
                sys_flag,
                record.born_timestamp_ms,
                born_host,
                now_ms,
                store_host,
                record.reconsume_times,
                record.prepared_transaction_offset,
            )
        else:
            data = pack_record(
                record.topic.encode(),
                body,
                properties,
                body_crc(body),
                record.queue_id,
                record.flag,
                queue_offset,
                log_offset,
                sys_flag,
                record.born_timestamp_ms,
                born_host,
                now_ms,
                store_host,
                record.reconsume_times,
                record.prepared_transaction_offset,
            )
        log.append(seal_record(data) if seals else data)
        end_offset = log_offset + size
        if count:
            self._next_offsets[key] = queue_offset + count
            self._unwritten.append((end_offset, key, count))
        return PutResult(log_offset, queue_offset, end_offset, now_ms)

    def put_batch(
        self, record: NewRecord, batch: Sequence[BatchElement] | BatchBody, *, tells_places: bool = True
    ) -> PutResult:
        """Give the messages of a batch consecutive places in one queue; all of them or none.

        `record` says what they have in common; its own body and properties are not stored. Without `tells_places` the
        result has no log offsets but the first.
        """
        if self._refusal is not None:
            raise self._refusal
        count = len(batch)
        if not count:
            raise MessageError("a batch without messages cannot be stored")
        key = (record.topic, record.queue_id)
        queue_offset = self._next_offset(key)
        topic = self._topic_bytes(record.topic)
        topic_size, sys_flag = len(topic) - 1, record.sys_flag
        total, pack = prepare_batch(
            record,
            batch,
            topic,
            seals=self._seals,
            body_size_max=self._body_size_max,
            checked=lambda body, properties: self._checked_size(sys_flag, body, properties, topic_size),
            key_prefixes=note_prefixes(record) if count >= self.noted_count_min else None,
        )
        if total > (limit := self.config.record_size_max):
            raise MessageError(f"the batch takes {total} bytes, limit {limit} (maxMessageSize); send it in parts")
        log_offset = self.log.place(total)
        now_ms = self._now_ms()
        packed = pack(queue_offset, log_offset, now_ms)
        self.log.append(packed.data)
        self._next_offsets[key] = queue_offset + count
        self._unwritten.append((log_offset + total, key, count))
        note = note_batch(self.log, packed, record, queue_offset, log_offset, now_ms, self.config.delay_ms_of)
        if note is not None:
            self.dispatcher.note(note)
        log_offsets = tuple((packed.starts[:-1] + log_offset).tolist()) if tells_places else ()
        return PutResult(log_offset, queue_offset, log_offset + total, now_ms, count, log_offsets)

    def append_records(self, data: bytes | bytearray | memoryview, log_offset: int) -> int:
        """Take what is whole of these bytes of the master's log; how many bytes, the rest is for later.

        A store without a log begins where they say. Raises StoreError when they do not go on where this log ends or
        come from a log of other segments, StoreCorruptError when they cannot be read; nothing is taken then. Raises
        StoreFullError or StoreFailedError when nothing can be taken now.
        """
        log = self.log
        if self._refusal is not None:
            raise self._refusal
        if log.min_offset == log.end_offset and (log_offset != log.end_offset or not log.segments()):
            self.restart_at(log_offset)
        if log_offset != log.end_offset:
            raise StoreError(f"replicated bytes begin at {log_offset} but this log ends at {log.end_offset}")
        found = whole_records(data, log_offset, log.segment_size)
        if not found.size:
            return 0
        log.append_raw(memoryview(data)[: found.size], log_offset)
        if found.last_position is not None:
            self._last_record_offset = log_offset + found.last_position
            self._written_timestamp_ms = found.last_timestamp_ms
            self._last_timestamp_ms = max(self._last_timestamp_ms, found.last_timestamp_ms)
        self._forget_next_offsets()
        return found.size

    @property
    def last_record_offset(self) -> int | None:
        """Where the last record of a replica's log begins, if there is one; the first time it is searched for."""
        if self._last_record_offset is None:
            self._last_record_offset = self.log.last_record_before(self.log.written_offset)
        return self._last_record_offset

    def write(self, around: Around | None = None) -> int:
        """Hand what was put to the operating system; the new written offset. `around` is that of `CommitLog.write`.

        Raises StoreFullError or StoreError: then every put behind `written_offset` is void, and its queue offset is
        given to the next one.
        """
        try:
            written = self.log.write(around)
        except StoreError as error:
            for end_offset, key, count in reversed(self._unwritten):
                if end_offset > self.log.written_offset:
                    self._next_offsets[key] -= count
            self._unwritten.clear()
            self.dispatcher.forget_notes(self.log.written_offset)
            if isinstance(error, StoreFullError):
                self._refusal = error
            raise
        self._unwritten.clear()
        self._written_timestamp_ms = self._last_timestamp_ms
        return written

    def _next_offset(self, key: tuple[str, int]) -> int:
        offset = self._next_offsets.get(key)
        if offset is None:
            if self._queues_lag:
                # What the log holds of this queue may not have been told to its consume queue yet.
                self._dispatch_all()
                self._queues_lag = False
            offset = self._next_offsets[key] = self.queues.next_offset(*key)
        return offset

    def _forget_next_offsets(self) -> None:
        self._next_offsets.clear()
        self._queues_lag = True

    def _topic_bytes(self, topic: str) -> bytes:
        """The topic behind its length in one byte, as most records have it."""
        raw = self._topics.get(topic)
        if raw is None:
            if len(self._topics) > 100_000:
                self._topics.clear()
            plain = topic.encode()
            if not plain or len(plain) > 255:
                raise MessageError(f"topic of {len(plain)} bytes; a topic has 1 to 255")
            raw = self._topics[topic] = bytes([len(plain)]) + plain
        return raw

    def _checked_size(self, sys_flag: int, body_size: int, properties_size: int, topic_size: int) -> int:
        """The size of the record of these parts. Raises MessageError naming the limit that it breaks."""
        if sys_flag & _HOST_FAMILIES or topic_size > TOPIC_SIZE_MAX_V1:
            size = record_size(sys_flag, body_size, topic_size, properties_size)
        else:
            size = RECORD_SIZE_MIN + body_size + topic_size + properties_size
        if size > self._size_max or body_size > self._body_size_max or properties_size > names.PROPERTIES_SIZE_MAX:
            if body_size > self._body_size_max:
                raise MessageError(f"message body of {body_size} bytes, limit {self._body_size_max} (maxMessageSize)")
            if properties_size > names.PROPERTIES_SIZE_MAX:
                raise MessageError(f"message properties of {properties_size} bytes, limit {names.PROPERTIES_SIZE_MAX}")
            raise MessageError(f"the message takes {size} bytes in the log, limit {self._size_max}")
        return size

    def _now_ms(self) -> int:
        # Never back: order of time is order of the log, whatever happens to the clock.
        self._last_timestamp_ms = max(self._clock.time_ms(), self._last_timestamp_ms)
        return self._last_timestamp_ms

    # Offsets: how far each step has come

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def written_offset(self) -> int:
        return self.log.written_offset

    @property
    def flushed_offset(self) -> int:
        return self.durability.flushed_offset

    @property
    def dispatched_offset(self) -> int:
        return self.dispatcher.dispatched_offset

    @property
    def confirmed_offset(self) -> int:
        """Everything before this may be read: it is as safe as senders were promised."""
        written_offset = self.log.written_offset
        return written_offset if self._confirmed_offset is None else min(self._confirmed_offset, written_offset)

    def confirm(self, log_offset: int | None) -> None:
        """Let readers see what is written before this log offset, and nothing beyond; None: all that is written."""
        self._confirmed_offset = log_offset

    # Flush and dispatch

    def begin_flush(self) -> FlushJob | None:
        """The next flush of the log, to be run on any thread and then given to `finish_flush`."""
        return self.durability.begin(self._written_timestamp_ms)

    def finish_flush(self, job: FlushJob) -> int:
        """Take over a flush that has run; the flushed offset. Raises StoreFailedError, which is final."""
        try:
            self.durability.finish(job)
        except StoreFailedError as error:
            self._refusal = error
            raise
        self.checkpoint.log_timestamp_ms = self.durability.flushed_timestamp_ms
        return self.durability.flushed_offset

    def flush(self) -> int:
        """Write and sync the log here and now."""
        self.write()
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.finish_flush(job)
        return self.durability.flushed_offset

    def dispatch(self, batches_max: int | None = None) -> int:
        """Bring consume queues, index and transactions level with what is confirmed; how many records."""
        count = self.dispatcher.run(batches_max, self._confirmed_offset)
        if self.dispatcher.index_offset - self._forgotten_offset >= _FORGET_BYTES:
            self.log.forget(self._forgotten_offset, self.dispatcher.index_offset)
            self._forgotten_offset = self.dispatcher.index_offset
        return count

    def _dispatch_all(self) -> None:
        """The same with all that is written: who counts, or removes, must not leave out what nobody may read yet."""
        self.dispatcher.run()

    def on_arrival(self, listener: Callable[[Sequence[Dispatched]], object]) -> None:
        """Call this with every batch of records that has become visible."""
        self._arrival.listeners.append(listener)

    def hold_arrivals(self) -> None:
        """Tell nobody of arrivals until `tell_arrivals`: who hears of them may want to put, and cannot now."""
        self._arrival.is_held = True

    def tell_arrivals(self) -> None:
        """Tell of what has arrived meanwhile."""
        self._arrival.tell()

    def begin_flush_derived(self, *, thorough: bool = True) -> FlushJob | None:
        """A flush of consume queues, index and transactions, up to what is dispatched; None while one is running.

        Without `thorough` the slots of the index are left for later: they are many pages, and can be made again.
        """
        self.durability.check()
        if self._derived_flush is not None:
            return None
        self.dispatcher.run_index()
        # Kept until they are synced: when one of the parts finds no space, the others have given theirs out already.
        files = self._derived_dirty
        files += self.queues.collect_dirty()
        files += self.index.collect_dirty(thorough=thorough)
        files += self.transactions.collect_dirty()
        self._derived_flush = FlushJob(
            list(files), self.dispatcher.dispatched_offset, self.dispatcher.dispatched_timestamp_ms
        )
        return self._derived_flush

    def finish_flush_derived(self, job: FlushJob) -> None:
        """Take over a flush of derived files; then the checkpoint is to be saved."""
        self._derived_flush = None
        if job.error is not None:
            self._fail(job.error)
        self._derived_dirty.clear()
        self._derived_flushed_offset = max(self._derived_flushed_offset, job.target_offset)
        if job.timestamp_ms:
            self.checkpoint.queues_timestamp_ms = max(self.checkpoint.queues_timestamp_ms, job.timestamp_ms)
            self.checkpoint.index_timestamp_ms = max(self.checkpoint.index_timestamp_ms, self.index.safe_timestamp_ms)

    def flush_derived(self) -> None:
        """Sync consume queues, index and transactions here and now, and save the checkpoint."""
        job = self.begin_flush_derived()
        if job is not None:
            job.run()
            self.finish_flush_derived(job)
            self.checkpoint.save()

    def prepare(self) -> bool:
        """Make the next log segment ahead of need; whether one was made."""
        return self.log.prepare()

    # Get and query

    @property
    def query(self) -> RecordQuery:
        """Look-ups by key and by place, of everything that is dispatched."""
        self.dispatcher.run_index()
        return self._query

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first queue offset that can still be read; 0 for a queue that is not there."""
        return self.queues.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that will become visible next."""
        return self.queues.next_offset(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER) -> int:
        """The queue offset at this store time: the first not before it, or with UPPER the last not after it."""
        return self.queues.offset_by_time(topic, queue_id, timestamp_ms, boundary, self.store_time)

    def store_time(self, log_offset: int) -> int | None:
        """Store time of the record at this log offset, in milliseconds; None when there is none."""
        record = self.log.record_at(log_offset)
        if record is None:
            return None
        (timestamp_ms,) = TIMESTAMP.unpack_from(record, store_timestamp_position(record[39]))
        return int(timestamp_ms)

    def record_at(self, log_offset: int) -> memoryview | None:
        """The whole record at this log offset, from where it lies."""
        return self.log.record_at(log_offset)

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
        """Records of a queue from an offset on, filtered by tag codes and by a predicate on raw properties."""
        result = read_messages(
            self.log,
            self.queues,
            self.config,
            topic,
            queue_id,
            queue_offset,
            max_count,
            max_bytes,
            tags_codes=tags_codes,
            predicate=predicate,
        )
        self._read_bytes += result.size
        if self._read_bytes >= _READ_FORGET_BYTES:
            self._read_bytes = 0
            self.log.forget(self.log.min_offset, self.log.written_offset)
        return result

    # Expire and truncate

    def expire(self) -> list[Path]:
        """One round of retention: remove expired segments and what points to them; which log files went."""
        segments = [file.path for _, file in self.log.segments()]
        decision = self.retention.decide(self.paths.commit_log, segments, self._clock.time_ms())
        removed: list[Path] = []
        if decision.expired:
            bases = [base for base, _ in self.log.segments()]
            removed = self.log.drop_head(self._droppable(bases[decision.expired]))
            self._drop_before(self.log.min_offset)
        state, space = self.retention.disk_state(self.paths.commit_log)
        if state is DiskState.FULL:
            full = StoreFullError(
                f"the disk of {self.paths.commit_log} has {space.free} of {space.total} bytes free: puts are refused "
                "until there is more. Free some, shorten fileReservedTime, or move the store"
            )
            if self._refusal is None:
                self._refusal = full
        elif isinstance(self._refusal, StoreFullError):
            self._refusal = None
        return removed

    def _droppable(self, log_offset: int) -> int:
        """How far towards this log offset the log may go.

        Only what consume queues have on disk: they are what tells, after a crash, which queue offsets were used. A
        flush is in order when they lag; on a full disk it may fail, and then older segments go alone.
        """
        if self._derived_flushed_offset < log_offset and self._derived_flush is None:
            with suppress(StoreFullError):
                self.flush_derived()
        return min(log_offset, self._derived_flushed_offset)

    def delete_topic(self, topic: str) -> bool:
        """Remove the consume queues of a topic, durably; whether it had any.

        Its records stay in the log until they expire, and are found by key. Its queues begin at 0 when it comes back,
        but one with records that are put and not written yet goes on behind them. A crash leaves the beginning of a
        queue, or nothing. Raises StoreFullError or StoreError when some queues could not be removed.
        """
        self._dispatch_all()  # or a record behind the removal would bring its queue back
        try:
            return self.queues.delete_topic(topic)
        finally:
            self._forget_removed()

    def delete_unused_topics(self, topics: Collection[str]) -> list[str]:
        """The same for every topic that is not one of these, nor the system's own; which topics."""
        self._dispatch_all()  # or a record behind the removal would bring its queue back
        try:
            return self.queues.remove_unused(topics)
        finally:
            self._forget_removed()

    def delete_expired_queues(self, topics: Collection[str]) -> list[tuple[str, int]]:
        """Remove what consume queues hold of records that have left the log; which queues went as a whole.

        The queues of `topics` stay, though nothing is left in them: their last file tells the number of the next
        message. (The reference removes them, and a consumer then waits behind messages that begin at 0 again.)
        """
        self._dispatch_all()  # or a record behind the removal would bring its queue back
        log_offset = self.log.min_offset
        self.queues.drop_before(log_offset)
        try:
            return self.queues.remove_expired(log_offset, topics)
        finally:
            self._forget_removed()

    def _forget_removed(self) -> None:
        unwritten = {key for _, key, _ in self._unwritten}
        for key in [key for key in self._next_offsets if self.queues.get(*key) is None and key not in unwritten]:
            del self._next_offsets[key]

    def truncate(self, log_offset: int) -> None:
        """Forget everything from this border of a record on, durably: a replica that went another way than its master.

        A crash on the way leaves the rest to the next start (`truncation`). Raises StoreFailedError when it could not
        be done wholly.
        """
        log = self.log
        last_record = log.last_record_before(log_offset)
        timestamp_ms = (self.store_time(last_record) or 0) if last_record is not None else 0
        try:
            self._truncation.begin(log_offset)
            self.checkpoint.cut(timestamp_ms)
            self.checkpoint.save()
            for part in (log, self.queues, self.index, self.transactions):
                part.truncate(log_offset)
            self._truncation.finish()
        except StoreError as error:
            self._fail(error)
        self._ended_at(log_offset, last_record, timestamp_ms)

    def restart_at(self, log_offset: int) -> None:
        """Forget everything, durably, and go on with the segment that begins here: a replica without a past.

        A crash on the way leaves the beginning of the old log, or none. Raises StoreError when no segment begins
        here, StoreFailedError when it could not be done wholly.
        """
        if log_offset % self.log.segment_size:
            raise StoreError(
                f"a log cannot begin at {log_offset} in {self.paths.commit_log}, where segments have "
                f"{self.log.segment_size} bytes: set mappedFileSizeCommitLog as it is on the master"
            )
        try:
            self.checkpoint.cut(0)
            self.checkpoint.save()
            # What is derived goes first: it can be made again from whatever a crash leaves of the log.
            for part in (self.queues, self.index, self.transactions):
                part.truncate(0)
            self.log.restart_at(log_offset)
        except StoreError as error:
            self._fail(error)
        self._ended_at(log_offset, None, 0)
        self.dispatcher.start_at(log_offset)
        self.durability.start_at(log_offset, 0)
        self._derived_flushed_offset = self._forgotten_offset = log_offset

    def _ended_at(self, log_offset: int, last_record: int | None, timestamp_ms: int) -> None:
        self.durability.cut(log_offset, timestamp_ms)
        self.dispatcher.cut(log_offset, timestamp_ms)
        self.index.safe_timestamp_ms = min(self.index.safe_timestamp_ms, timestamp_ms)
        if self._derived_flush is not None:
            self._derived_flush.cut(log_offset, timestamp_ms)
        self._derived_flushed_offset = min(self._derived_flushed_offset, log_offset)
        self._forgotten_offset = min(self._forgotten_offset, log_offset)
        self._written_timestamp_ms = timestamp_ms
        self._last_record_offset = last_record
        self._unwritten.clear()
        self._forget_next_offsets()

    def _fail(self, error: StoreError) -> NoReturn:
        """Stop for good. Raises StoreFailedError."""
        try:
            self.durability.fail(error)
        except StoreFailedError as failure:
            self._refusal = failure
            raise

    def _drop_before(self, log_offset: int) -> None:
        self.queues.drop_before(log_offset)
        self.index.drop_before(log_offset)
        self.transactions.drop_before(log_offset)
