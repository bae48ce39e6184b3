"""The state of every transaction, by half queue offset, and the redo log from which it is rebuilt. (Ours.)

A transaction is a record of the half topic (its *half record*); it is pending until another record says otherwise. The
records themselves are RocketMQ's, so its clients and tools work; the reference finds out what is pending by reading
both topics from a consumer offset on. Here it is looked up.

State table, `transaction/states/`: entry number q describes the half record with queue offset q. 32 bytes, big-endian:

     0  int64  log offset of the half record
     8  int64  its store time, ms
    16  int32  its size
    20  int32  Java hash of its producer group
    24  int32  state; 0 where there is no entry
    28  int32  how many entries further its next copy is; 0 for none

States:

    PREPARED    pending: asked about until somebody answers
    COMMITTED   its message is in the log (a record of type COMMIT names the half record's log offset)
    DECIDED     a record of the op topic names its queue offset, and no message was seen: rolled back
    SUPERSEDED  it was put again, with one more check counted; the copy is pending instead
    DEFERRED    the same, but the copy names this entry in TRAN_PREPARED_QUEUE_OFFSET (its producer wants to be left in
                peace for a while): the producer still answers for this one, and that decides the copy
    DISCARDED   given up after too many checks: a copy is in the topic for those

The reference deletes nothing from its half queue and writes no op record when it puts a half record again; a copy is
known by TRANSACTION_CHECK_TIMES and by the unique key that it shares with a pending one, the oldest if there are two.
An op record for a SUPERSEDED entry leaves the copy alone: it may mean the copying itself. A message that was committed
for any copy decides all of them. So nothing pending is forgotten; at worst one is asked about again.

A change goes to the redo log first (`transaction_redo`). Changed entries gather in memory and are written to the table
in order of their place. After a clean stop the redo log ends with a mark: up to which record everything was looked at,
the first pending entry, the end of the table. Without one, or after an unclean stop, the table is thrown away and made
from the redo log. The changes of its last record may not be all there; they are dropped, and come again with dispatch,
which goes on from `covered_offset`.

The entries are one run of queue offsets. A gap can only mean that the log has lost its head in between, and everything
before with it, so the table begins anew behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from fusee.errors import StoreCorruptError
from fusee.message import properties as names
from fusee.message.flags import SysFlag, TransactionType
from fusee.message.hashing import java_string_hash
from fusee.message.properties import find_property, find_tag, find_unique_id
from fusee.message.record_layout import record_bounds
from fusee.message.topics import CHECK_MAX_TIME_TOPIC, HALF_OP_TOPIC, HALF_TOPIC
from fusee.store.dispatch_batch import DispatchBatch
from fusee.store.segment_log import SegmentLog
from fusee.store.transaction_redo import MARK, Change, RedoLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fusee.store.config import StoreConfig
    from fusee.store.filesystem import File, FileSystem
    from fusee.store.layout import StorePaths
    from fusee.store.results import Dispatched

STATE_SIZE: Final = 32

_STATE: Final = Struct(">qqiiii")
_STATE_TYPE: Final = np.dtype(
    [
        ("log_offset", ">i8"),
        ("timestamp_ms", ">i8"),
        ("size", ">i4"),
        ("group_hash", ">i4"),
        ("state", ">i4"),
        ("distance", ">i4"),
    ]
)
_TRANSACTION_MASK: Final = SysFlag.TRANSACTION_MASK
_COMMIT_TYPE: Final = TransactionType.COMMIT.value
_HALF_QUEUE: Final = 0
_REMOVE_TAG: Final = b"d"
_PRODUCER_GROUP: Final = names.PRODUCER_GROUP.encode()
_CHECK_TIMES: Final = names.TRANSACTION_CHECK_TIMES.encode()
_PREPARED_QUEUE_OFFSET: Final = names.TRANSACTION_PREPARED_QUEUE_OFFSET.encode()
_UNWRITTEN_MAX: Final = 8192
_PLACES_MAX: Final = 65_536
_TOPICS: Final = frozenset({HALF_TOPIC, HALF_OP_TOPIC, CHECK_MAX_TIME_TOPIC})


class TransactionState(IntEnum):
    """What became of a transaction."""

    NONE = 0
    PREPARED = 1
    COMMITTED = 2
    DECIDED = 3
    SUPERSEDED = 4
    DEFERRED = 5
    DISCARDED = 6


# As plain numbers, which is what entries hold.
_PREPARED: Final = TransactionState.PREPARED.value
_COMMITTED: Final = TransactionState.COMMITTED.value
_DECIDED: Final = TransactionState.DECIDED.value
_SUPERSEDED: Final = TransactionState.SUPERSEDED.value
_DEFERRED: Final = TransactionState.DEFERRED.value
_DISCARDED: Final = TransactionState.DISCARDED.value
_COPIED: Final = (_SUPERSEDED, _DEFERRED)
_UNDECIDED: Final = (_PREPARED, _SUPERSEDED, _DEFERRED)


class TransactionEntry(NamedTuple):
    """One entry of the table."""

    log_offset: int
    store_timestamp_ms: int
    size: int
    group_hash: int
    state: int
    copy_distance: int


class PendingTransaction(msgspec.Struct, frozen=True, gc=False):
    """A transaction that nobody has decided; its half record is at `log_offset`."""

    queue_offset: int
    log_offset: int
    size: int
    store_timestamp_ms: int
    group_hash: int


class TransactionTable:
    """Which transactions are pending, and what became of the others."""

    def __init__(
        self,
        paths: StorePaths,
        config: StoreConfig,
        files: FileSystem,
        *,
        record_at: Callable[[int], memoryview | None],
    ) -> None:
        """`record_at` gives the whole record at a log offset: op records and half records are read there."""
        self._per_segment = config.transaction_segment_entries
        self._states = SegmentLog(
            paths.transaction_states, self._per_segment * STATE_SIZE, files, setting="32 * transactionSegmentEntries"
        )
        self._redo = RedoLog(paths.transaction_redo, self._per_segment, files)
        self._files = files
        self._record_at = record_at
        # The run of entries, with what is staged and without.
        self._begin = 0
        self._end = 0
        self._settled_end = 0
        # Half records before this have left with the log's head.
        self._min_log_offset = 0
        # Nothing before is pending; how many are, by number of segment.
        self._first_pending = 0
        self._counts: dict[int, int] = {}
        # Last record that changed something, and last record looked at.
        self._end_log_offset = -1
        self._seen_log_offset = -1
        self._needs_mark = False
        # Entries that are newer than the files: of the batch that is being taken in, and of those before.
        self._staged: dict[int, TransactionEntry] = {}
        self._changes: list[Change] = []
        self._unwritten: dict[int, TransactionEntry] = {}
        self._dirty: dict[File, None] = {}
        # Queue offsets of the last half records by log offset: most commits are about one of these.
        self._places: dict[int, int] = {}
        # Unique keys of pending ones. Made when the first copy comes; most stores never need it.
        self._pending_by_key: dict[str, list[int]] | None = None
        self._key_of: dict[int, str] = {}

    # Opening and ending

    def open(self, *, unclean: bool = True) -> None:
        """Take up what is there; after an unclean stop the table is made from the redo log.

        Raises StoreError when a file has another size than the settings say.
        """
        self._redo.open(unclean=unclean)
        self._states.open()
        last = self._redo.last()
        if unclean and last is not None and last.state != MARK:
            self._redo.truncate(last.log_offset)
            last = self._redo.last()
        if unclean or last is None or last.state != MARK or not self._matches(last):
            self._rebuild()
            return
        self._begin = self._states.min_offset // STATE_SIZE
        self._end = self._settled_end = last.timestamp_ms
        self._states.end_offset = self._end * STATE_SIZE
        self._first_pending = last.queue_offset
        self._end_log_offset = self._seen_log_offset = last.log_offset
        self._count_from(last.queue_offset)

    def close(self) -> None:
        """Let go of the files. What `collect_dirty` has not given out is as lost as in a crash."""
        self._redo.close()
        self._states.close()

    @property
    def covered_offset(self) -> int:
        """Log offset from which dispatch must go on at the latest, for nothing to be missed."""
        return max(self._end_log_offset, 0)

    # Looking up

    @property
    def pending_count(self) -> int:
        return sum(self._counts.values())

    def pending(self, limit: int, stored_before_ms: int | None = None) -> list[PendingTransaction]:
        """Transactions that nobody has decided, oldest first, at most `limit`; only those stored before this time.

        Costs a pass over those segments of the table in which something is pending.
        """
        self._write_states()
        found: list[PendingTransaction] = []
        numbers = sorted(self._counts)
        for number in numbers:
            first = max(self._first_pending, self._begin, number * self._per_segment)
            entries = self._stored(first, (number + 1) * self._per_segment)
            places = np.flatnonzero(entries["state"] == _PREPARED)
            if number == numbers[0]:
                self._first_pending = first + int(places[0])
            if stored_before_ms is not None:
                places = places[entries["timestamp_ms"][places] < stored_before_ms]
            places = places[: max(limit - len(found), 0)]
            rows = zip(places.tolist(), entries[places].tolist(), strict=True)
            found += [
                PendingTransaction(first + place, log_offset, size, timestamp_ms, group_hash)
                for place, (log_offset, timestamp_ms, size, group_hash, _, _) in rows
            ]
            if len(found) >= limit:
                break
        return found

    def entry(self, queue_offset: int) -> TransactionEntry | None:
        """The entry of the half record with this queue offset; None when there is none (any more)."""
        if not self._begin <= queue_offset < self._end:
            return None
        entry = self._entry(queue_offset)
        return entry if entry.state else None

    def find(self, log_offset: int) -> int | None:
        """Queue offset of the half record at this log offset; None when there is none (any more)."""
        place = self._places.get(log_offset)
        if place is not None and place >= self._begin:
            return place
        run = range(self._begin, self._end)
        found = bisect_left(run, log_offset, key=self._log_offset)
        if found == len(run):
            return None
        entry = self._entry(run[found])
        return run[found] if entry.log_offset == log_offset and entry.state else None

    # Taking in

    def accept(self, batch: Sequence[Dispatched]) -> None:
        """Take in what these records say about transactions, in log order; what is known already is passed over.

        When it raises, for want of space, the same batch may come again.
        """
        if not len(batch):
            return
        records: Sequence[Dispatched] = batch
        if isinstance(batch, DispatchBatch):
            last_log_offset = batch.last_log_offset
            if not batch.concerns(_TOPICS, _TRANSACTION_MASK, _COMMIT_TYPE):
                records = ()
        else:
            last_log_offset = batch[-1].log_offset
        end = self._end_log_offset
        if last_log_offset <= end:
            return
        try:
            for record in records:
                topic = record.topic
                if topic in _TOPICS:
                    if record.log_offset <= end:
                        continue
                    if topic == HALF_TOPIC:
                        if record.queue_id == _HALF_QUEUE:
                            self._prepare(record)
                    elif topic == HALF_OP_TOPIC:
                        self._decide(record)
                    else:
                        self._give_up(record)
                elif record.sys_flag & _TRANSACTION_MASK == _COMMIT_TYPE and record.log_offset > end:
                    self._commit(record)
            self._settle()
        except BaseException:
            self._staged = {}
            self._changes = []
            self._end = self._settled_end
            self._places = {}
            self._forget_keys()
            raise
        self._seen_log_offset = last_log_offset
        self._needs_mark = True

    def _prepare(self, record: Dispatched) -> None:
        queue_offset, log_offset = record.queue_offset, record.log_offset
        if queue_offset != self._end:
            self._settle()
            self._begin_anew(queue_offset)
        root = self._root_of(record)
        original = self._original_of(record) if root is None else self._last_copy(root)
        group = find_property(record.properties, _PRODUCER_GROUP)
        group_hash = java_string_hash(group.decode("utf-8", "replace")) if group else 0
        timestamp_ms, size = record.store_timestamp_ms, record.size
        self._changes.append(Change(log_offset, queue_offset, timestamp_ms, size, group_hash, _PREPARED))
        self._staged[queue_offset] = TransactionEntry(log_offset, timestamp_ms, size, group_hash, _PREPARED, 0)
        self._end = queue_offset + 1
        if len(self._places) >= _PLACES_MAX:
            self._places = {}
        self._places[log_offset] = queue_offset
        if self._pending_by_key is not None:
            self._add_key(queue_offset, record.unique_key)
        if original is None:
            return
        state = self._entry(original).state
        if state != _PREPARED:
            # Decided while it was being put again, and the copy with it.
            self._change(log_offset, queue_offset, state)
            return
        self._change(log_offset, original, _SUPERSEDED, queue_offset - original)
        if root is not None:
            self._change(log_offset, root, _DEFERRED)

    def _root_of(self, record: Dispatched) -> int | None:
        """The entry that a copy names as the one its producer answers for."""
        root = _number(find_property(record.properties, _PREPARED_QUEUE_OFFSET))
        return root if root is not None and self.entry(root) is not None else None

    def _original_of(self, record: Dispatched) -> int | None:
        """The pending entry of which this half record is a copy."""
        if find_property(record.properties, _CHECK_TIMES) is None:
            return None
        return self._oldest_with_key(record.unique_key)

    def _decide(self, record: Dispatched) -> None:
        if record.queue_id != _HALF_QUEUE or find_tag(record.properties) != _REMOVE_TAG:
            return
        data = self._record_at(record.log_offset)
        if data is None:
            raise StoreCorruptError(f"{HALF_OP_TOPIC}: the record at log offset {record.log_offset} cannot be read")
        body_start, body_end, *_ = record_bounds(data, 0, len(data))
        for text in bytes(data[body_start:body_end]).split(b","):
            queue_offset = _number(text)
            if queue_offset is None or not self._begin <= queue_offset < self._end:
                continue
            state = self._entry(queue_offset).state
            if state in _UNDECIDED:
                self._change(record.log_offset, queue_offset, _DECIDED)
                if state == _DEFERRED:
                    self._change_copies(record.log_offset, queue_offset, _DECIDED)

    def _commit(self, record: Dispatched) -> None:
        queue_offset = self.find(record.prepared_transaction_offset)
        if queue_offset is None:
            return
        # Copies of a committed message (retries, delayed deliveries) say 0, where a half message may lie.
        if record.prepared_transaction_offset == 0 and self._unique_key_at(0) != record.unique_key:
            return
        if self._entry(queue_offset).state in _UNDECIDED:
            self._change(record.log_offset, queue_offset, _COMMITTED)
        self._change_copies(record.log_offset, queue_offset, _COMMITTED)

    def _give_up(self, record: Dispatched) -> None:
        queue_offset = self._oldest_with_key(record.unique_key)
        if queue_offset is not None:
            self._change(record.log_offset, queue_offset, _DISCARDED)

    def _change_copies(self, log_offset: int, queue_offset: int, state: int) -> None:
        while distance := self._entry(queue_offset).copy_distance:
            queue_offset += distance
            if self._entry(queue_offset).state in _UNDECIDED:
                self._change(log_offset, queue_offset, state)

    def _change(self, log_offset: int, queue_offset: int, state: int, distance: int | None = None) -> None:
        old = self._entry(queue_offset)
        if distance is None:
            distance = old.copy_distance
        self._changes.append(Change(log_offset, queue_offset, 0, distance if state in _COPIED else 0, 0, state))
        self._staged[queue_offset] = old._replace(state=state, copy_distance=distance)
        self._remove_key(queue_offset)

    def _settle(self) -> None:
        """Make what is staged true, the redo log first."""
        if not self._changes:
            return
        self._redo.append(self._changes)
        self._end_log_offset = self._changes[-1].log_offset
        for queue_offset, entry in self._staged.items():
            was_pending = queue_offset < self._settled_end and self._settled_entry(queue_offset).state == _PREPARED
            self._count(queue_offset // self._per_segment, (entry.state == _PREPARED) - was_pending)
        self._unwritten.update(self._staged)
        self._settled_end = self._end
        self._staged = {}
        self._changes = []
        if len(self._unwritten) > _UNWRITTEN_MAX:
            self._write_states()

    # Keys of pending ones

    def _oldest_with_key(self, unique_key: str) -> int | None:
        if not unique_key:
            return None
        if self._pending_by_key is None:
            self._read_keys()
            assert self._pending_by_key is not None
        found = self._pending_by_key.get(unique_key)
        return found[0] if found else None

    def _read_keys(self) -> None:
        """Read the half record of everything that is pending."""
        pending = {transaction.queue_offset: transaction.log_offset for transaction in self.pending(1 << 62)}
        for queue_offset, entry in self._staged.items():
            pending.pop(queue_offset, None)
            if entry.state == _PREPARED:
                pending[queue_offset] = entry.log_offset
        self._pending_by_key = {}
        for queue_offset, log_offset in sorted(pending.items()):
            self._add_key(queue_offset, self._unique_key_at(log_offset))

    def _unique_key_at(self, log_offset: int) -> str:
        """The unique key of the record at this log offset; empty when there is none."""
        record = self._record_at(log_offset)
        if record is None:
            return ""
        *_, properties_start, end = record_bounds(record, 0, len(record))
        unique_key = find_unique_id(bytes(record[properties_start:end]))
        return unique_key.decode("utf-8", "replace") if unique_key else ""

    def _add_key(self, queue_offset: int, unique_key: str) -> None:
        if self._pending_by_key is not None and unique_key:
            self._pending_by_key.setdefault(unique_key, []).append(queue_offset)
            self._key_of[queue_offset] = unique_key

    def _remove_key(self, queue_offset: int) -> None:
        unique_key = self._key_of.pop(queue_offset, None)
        if unique_key is not None and self._pending_by_key is not None:
            left = self._pending_by_key[unique_key]
            left.remove(queue_offset)
            if not left:
                del self._pending_by_key[unique_key]

    def _forget_keys(self) -> None:
        self._pending_by_key = None
        self._key_of = {}

    # Entries

    def _entry(self, queue_offset: int) -> TransactionEntry:
        staged = self._staged.get(queue_offset)
        return staged if staged is not None else self._settled_entry(queue_offset)

    def _settled_entry(self, queue_offset: int) -> TransactionEntry:
        entry = self._unwritten.get(queue_offset)
        if entry is None:
            data = self._states.slice(queue_offset * STATE_SIZE, STATE_SIZE)
            if data is None:
                raise StoreCorruptError(f"{self._states.folder}: no entry for half queue offset {queue_offset}")
            entry = TransactionEntry(*_STATE.unpack(data))
        return entry

    def _log_offset(self, queue_offset: int) -> int:
        return self._entry(queue_offset).log_offset

    def _last_copy(self, queue_offset: int) -> int:
        while distance := self._entry(queue_offset).copy_distance:
            queue_offset += distance
        return queue_offset

    def _stored(self, first: int, end: int) -> NDArray[np.void]:
        """Entries as the files have them, at most to the end of a segment."""
        segment = self._states.locate(first * STATE_SIZE)
        assert segment is not None
        end = min(end, self._settled_end, segment.end_offset // STATE_SIZE)
        return np.frombuffer(
            segment.file.view(),
            dtype=_STATE_TYPE,
            count=end - first,
            offset=first * STATE_SIZE - segment.base_offset,
        )

    def _count(self, number: int, difference: int) -> None:
        count = self._counts.get(number, 0) + difference
        if count:
            self._counts[number] = count
        else:
            self._counts.pop(number, None)

    def _count_from(self, queue_offset: int) -> None:
        """Count the pending ones from here on; none are before."""
        self._counts = {}
        while queue_offset < self._settled_end:
            number = queue_offset // self._per_segment
            entries = self._stored(queue_offset, (number + 1) * self._per_segment)
            self._count(number, int(np.count_nonzero(entries["state"] == _PREPARED)))
            queue_offset += len(entries)

    # Files

    def _write_states(self) -> None:
        """Write the entries that changed, neighbours together."""
        run: list[bytes] = []
        start = 0
        for queue_offset in sorted(self._unwritten):
            if run and (queue_offset != start + len(run) or queue_offset % self._per_segment == 0):
                self._write_run(start, b"".join(run))
                run = []
            if not run:
                start = queue_offset
            run.append(_STATE.pack(*self._unwritten[queue_offset]))
        if run:
            self._write_run(start, b"".join(run))
        self._unwritten = {}

    def _write_run(self, queue_offset: int, data: bytes) -> None:
        """Write entries of one segment, which is made if need be."""
        states = self._states
        position = queue_offset * STATE_SIZE
        if states.end_offset < position + len(data):
            states.end_offset = position
            segment = states.at_end()
        else:
            located = states.locate(position)
            assert located is not None
            segment = located
        segment.file.write(data, position - segment.base_offset)
        self._dirty[segment.file] = None
        states.end_offset = max(states.end_offset, position + len(data))

    def _begin_anew(self, queue_offset: int) -> None:
        """Forget every entry; the next one is this."""
        self._states.truncate(0)
        for segment in self._states.segments:
            segment.file.close()
            self._files.remove(segment.file.path)
            self._files.sync_folder(self._states.folder)
        self._states.segments.clear()
        self._unwritten = {}
        self._dirty = {}
        self._counts = {}
        self._places = {}
        self._forget_keys()
        self._begin = self._end = self._settled_end = self._first_pending = queue_offset
        self._states.end_offset = queue_offset * STATE_SIZE

    def _matches(self, mark: Change) -> bool:
        """Whether the table has the entries that a mark speaks of."""
        end = mark.timestamp_ms
        if not self._states.segments:
            return end == 0
        return self._states.min_offset <= mark.queue_offset * STATE_SIZE <= end * STATE_SIZE <= self._states.end_offset

    def _rebuild(self) -> None:
        """Make the table from the redo log."""
        begin, skipped = self._last_run()
        self._begin_anew(begin)
        for changes in self._redo.chunks():
            if skipped >= len(changes):
                skipped -= len(changes)
                continue
            self._replay(changes[skipped:])
            skipped = 0
        last = self._redo.last()
        self._end_log_offset = self._seen_log_offset = -1 if last is None else last.log_offset
        self._needs_mark = last is not None and last.state != MARK
        self._end = self._settled_end
        self._count_from(self._begin)
        self._forget_head()

    def _last_run(self) -> tuple[int, int]:
        """Where the last run of half queue offsets without a gap begins, and how many changes lie before that."""
        begin = position = skipped = 0
        expected = -1
        for changes in self._redo.chunks():
            places = np.flatnonzero(changes["state"] == _PREPARED)
            if len(places):
                queue_offsets = changes["queue_offset"][places].astype(np.int64)
                breaks = np.flatnonzero(np.diff(queue_offsets, prepend=expected) != 1)
                if len(breaks):
                    begin = int(queue_offsets[breaks[-1]])
                    skipped = position + int(places[breaks[-1]])
                expected = int(queue_offsets[-1])
            position += len(changes)
        return begin, skipped

    def _replay(self, changes: NDArray[np.void]) -> None:
        queue_offsets = changes["queue_offset"].astype(np.int64)
        states = changes["state"].astype(np.int32)
        # Changes of entries that left with the log's head are of no interest any more.
        is_ours = (states != MARK) & (queue_offsets >= self._begin)
        numbers = queue_offsets // self._per_segment
        for number in np.unique(numbers[is_ours]).tolist():
            chosen = np.flatnonzero(is_ours & (numbers == number))
            first, end = int(queue_offsets[chosen].min()), int(queue_offsets[chosen].max()) + 1
            entries = np.zeros(end - first, dtype=_STATE_TYPE)
            if first < self._settled_end:
                known = self._stored(first, end)
                entries[: len(known)] = known
            # An entry is made before it changes, so all are made first; of several changes the last one stays.
            made = chosen[states[chosen] == _PREPARED]
            places = queue_offsets[made] - first
            for field in ("log_offset", "timestamp_ms", "group_hash"):
                entries[field][places] = changes[field][made]
            entries["size"][places] = changes["detail"][made]
            entries["state"][queue_offsets[chosen] - first] = states[chosen]
            copied = chosen[np.isin(states[chosen], _COPIED)]
            entries["distance"][queue_offsets[copied] - first] = changes["detail"][copied]
            self._write_run(first, entries.tobytes())
            self._settled_end = max(self._settled_end, end)

    # Keeping it on disk and in step with the log

    def collect_dirty(self) -> list[File]:
        """Files that must be synced for everything taken in to survive; all of them before the next call."""
        self._write_states()
        if self._needs_mark and self._seen_log_offset >= 0:
            first = self.pending(1)
            first_pending = first[0].queue_offset if first else self._end
            self._redo.append([Change(self._seen_log_offset, first_pending, self._end, 0, 0, MARK)])
            self._end_log_offset = self._seen_log_offset
            self._needs_mark = False
        dirty = [*self._redo.collect_dirty(), *self._dirty]
        self._dirty = {}
        return dirty

    def truncate(self, log_offset: int) -> None:
        """Forget what records at and behind this log offset said; durable but for the table, which is made anew."""
        self._min_log_offset = min(self._min_log_offset, log_offset)
        if self._redo.truncate(log_offset):
            self._rebuild()
        self._seen_log_offset = min(self._seen_log_offset, self._end_log_offset)

    def drop_before(self, log_offset: int) -> None:
        """Forget half records before this log offset: they have left the log."""
        self._min_log_offset = max(self._min_log_offset, log_offset)
        self._forget_head()
        self._redo.drop_before(log_offset)

    def _forget_head(self) -> None:
        self._write_states()
        run = range(self._begin, self._end)
        begin = self._begin + bisect_left(run, self._min_log_offset, key=self._log_offset)
        if begin == self._begin:
            return
        self._begin = begin
        self._first_pending = max(self._first_pending, begin)
        self._count_from(self._first_pending)
        self._forget_keys()
        for path in self._states.drop_head(begin * STATE_SIZE):
            self._dirty = {file: None for file in self._dirty if file.path != path}


def _number(text: bytes | None) -> int | None:
    """A number as Java writes one; None for anything else."""
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else None
