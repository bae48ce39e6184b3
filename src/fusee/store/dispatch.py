"""Reads the log behind the writer and tells everyone who derives something from it (Java: ReputMessageService).

`LogScanner` takes records out of the written log in order and turns each into a `Dispatched`; `Dispatcher` hands them
in batches to the sinks (consume queues, index, transaction table, arrival listeners), in log order, in that order. It
owns `dispatched_offset`: what lies before it is visible to consumers. Restarted from an earlier offset it tells
everything again, so sinks ignore what they have.

Few records and many go different ways. Arrays pay from about fifty records on; a single message that a consumer waits
for is read by itself in a tenth of the time. The index, which nobody waits for and which only arrays make cheap, may
then stay behind: `index_offset` follows when it is asked for, flushed, or far enough behind.

Of a batch that was packed at once everything is known before it is written (`packed_batch`). Such *notes* are kept, in
the order of the log, until their turn comes; they spare reading what was written a moment ago. The log has the last
word: a note that does not begin exactly where dispatching has come to is not used.

A record that cannot be read ends the scan with StoreCorruptError naming file and position: nothing is skipped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from fusee.errors import RecordError, StoreCorruptError
from fusee.message.record_layout import FRAME, MAGIC_BLANK
from fusee.store.dispatch_batch import DispatchBatch, read_dispatched
from fusee.store.record_scan import find_records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.store.commit_log import CommitLog
    from fusee.store.packed_batch import PackedBatch
    from fusee.store.results import Dispatched

# What one batch reads of the log: long enough for arrays to pay, short enough for the processor's cache.
_BATCH_BYTES: Final = 2048 * 1024
_BATCH_RECORDS_MAX: Final = 2048
# Less than this is read record by record.
_FEW_BYTES: Final = 48 * 1024
# Batches that are known before they are written; of more, the log tells.
_NOTES_MAX: Final = 64
# How far the index may stay behind.
_INDEX_LAG_BYTES: Final = 1024 * 1024


class DispatchSink(Protocol):
    """Derives something from records."""

    def accept(self, batch: Sequence[Dispatched]) -> None:
        """Take these, in log order; those already taken may come again."""


class LogScanner:
    """Takes records out of the log."""

    def __init__(self, log: CommitLog, delay_ms_of: Callable[[int], int | None] | None = None) -> None:
        """`delay_ms_of` gives the delay of a level, for the delivery time of delayed messages."""
        self._log = log
        self._record_size_max = log.record_size_max
        self._delay_ms_of = delay_ms_of or (lambda level: None)

    @property
    def written_offset(self) -> int:
        return self._log.written_offset

    def scan(self, log_offset: int, end_offset: int | None = None) -> tuple[DispatchBatch | None, int]:
        """The next batch of records from here, and where to go on: the same offset when nothing is written there.

        A record that does not end at or before `end_offset` is left for later.
        """
        log = self._log
        while True:
            size = _BATCH_BYTES + self._record_size_max
            if end_offset is not None:
                size = min(size, end_offset - log_offset)
                if size <= 0:
                    return None, log_offset
            view = log.chunk(log_offset, size)
            positions, stop = find_records(view, size_max=_BATCH_BYTES)
            if len(positions) > _BATCH_RECORDS_MAX:
                stop = int(positions[_BATCH_RECORDS_MAX])
                positions = positions[:_BATCH_RECORDS_MAX]
            if len(positions) and FRAME.unpack_from(view, int(positions[-1]))[1] == MAGIC_BLANK:
                positions = positions[:-1]
                stop = log.next_segment(log_offset) - log_offset
            elif stop == 0 and len(view) >= 8 and FRAME.unpack_from(view)[1] == MAGIC_BLANK:
                stop = log.next_segment(log_offset) - log_offset
            if not len(positions):
                if stop == 0:
                    if end_offset is None or end_offset >= log.written_offset:
                        self._check_nothing(view, log_offset)
                    return None, log_offset
                log_offset += stop  # only the blank was left of this segment
                continue
            try:
                return DispatchBatch(view, positions, log_offset, self._delay_ms_of), log_offset + stop
            except RecordError as error:
                raise StoreCorruptError(
                    f"{log.folder}: a record behind log offset {log_offset} is damaged: {error}"
                ) from error

    def scan_few(self, log_offset: int, end_offset: int | None = None) -> tuple[list[Dispatched], int]:
        """The records from here on one by one, when they are few; empty, and the same offset, when `scan` is better."""
        log = self._log
        written_offset = log.written_offset
        size = (written_offset if end_offset is None else min(end_offset, written_offset)) - log_offset
        if not 0 < size <= _FEW_BYTES:
            return [], log_offset
        view = log.chunk(log_offset, size)
        records: list[Dispatched] = []
        position, end = 0, len(view)
        if end < size:
            return [], log_offset  # goes on in the next segment
        try:
            while position < end:
                record = read_dispatched(view, position, end, log_offset, self._delay_ms_of)
                records.append(record)
                position += record.size
        except RecordError:
            return [], log_offset  # a blank, or damage: `scan` knows which
        return records, log_offset + position

    def _check_nothing(self, view: memoryview, log_offset: int) -> None:
        if len(view):
            raise StoreCorruptError(f"{self._log.folder}: no whole record at log offset {log_offset}, which is written")


class Dispatcher:
    """Keeps the sinks level with the log."""

    def __init__(self, scanner: LogScanner, sinks: Sequence[DispatchSink], index: DispatchSink | None = None) -> None:
        """`sinks` are told at once, `index` when it pays."""
        self._scanner = scanner
        self._sinks = sinks
        self._index = index
        self.dispatched_offset = 0
        self.dispatched_timestamp_ms = 0
        self.index_offset = 0
        self._notes: deque[PackedBatch] = deque()

    def start_at(self, log_offset: int) -> None:
        """Everything before this has been told."""
        self.dispatched_offset = self.index_offset = log_offset
        self._notes.clear()

    def note(self, batch: PackedBatch) -> None:
        """What will stand in the log behind everything noted before."""
        if len(self._notes) < _NOTES_MAX:
            self._notes.append(batch)

    def forget_notes(self, log_offset: int) -> None:
        """Nothing that ends behind this will be written as it was noted."""
        while self._notes and self._notes[-1].end_offset > log_offset:
            self._notes.pop()

    def cut(self, log_offset: int, timestamp_ms: int) -> None:
        """The log ends here now, with a record of this time."""
        self.dispatched_offset = min(self.dispatched_offset, log_offset)
        self.dispatched_timestamp_ms = min(self.dispatched_timestamp_ms, timestamp_ms)
        self.index_offset = min(self.index_offset, log_offset)
        self._notes.clear()

    def run(self, batches_max: int | None = None, end_offset: int | None = None) -> int:
        """Dispatch what is written and ends at or before `end_offset`, at most this many batches; how many records."""
        scanner = self._scanner
        records: Sequence[Dispatched] = ()
        if not self._notes:
            records, next_offset = scanner.scan_few(self.dispatched_offset, end_offset)
        if records:
            for sink in self._sinks:
                sink.accept(records)
            self.dispatched_timestamp_ms = records[-1].store_timestamp_ms
            self.dispatched_offset = next_offset
            if next_offset - self.index_offset > _INDEX_LAG_BYTES:
                self.run_index()
            return len(records)
        count = 0
        rounds = 0
        while batches_max is None or rounds < batches_max:
            batch, next_offset = self._next(end_offset)
            if next_offset == self.dispatched_offset:
                break
            if self.index_offset < self.dispatched_offset:
                self.run_index()
            if batch is not None:
                for sink in self._sinks:
                    sink.accept(batch)
                if self._index is not None:
                    self._index.accept(batch)
                self.dispatched_timestamp_ms = batch.last_timestamp_ms
                count += len(batch)
            self.dispatched_offset = self.index_offset = next_offset
            rounds += 1
        return count

    def _next(self, end_offset: int | None) -> tuple[DispatchBatch | None, int]:
        """The next batch and where it ends: as it was noted, or else from the log up to the next note."""
        notes, here = self._notes, self.dispatched_offset
        limit = self._scanner.written_offset if end_offset is None else min(end_offset, self._scanner.written_offset)
        while notes and notes[0].first_log_offset < here:
            notes.popleft()
        if notes and notes[0].end_offset <= limit:
            if notes[0].first_log_offset == here:
                note = notes.popleft()
                return note, note.end_offset
            end_offset = notes[0].first_log_offset
        return self._scanner.scan(here, end_offset)

    def run_index(self) -> None:
        """Bring the index level with the rest."""
        while self.index_offset < self.dispatched_offset:
            batch, next_offset = self._scanner.scan(self.index_offset, self.dispatched_offset)
            if batch is not None and self._index is not None:
                self._index.accept(batch)
            if next_offset == self.index_offset:
                break
            self.index_offset = next_offset


class Arrivals:
    """The last sink: tells listeners what has become visible, now or when `tell` says so."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Sequence[Dispatched]], object]] = []
        self.is_held = False
        self._untold: list[Sequence[Dispatched]] = []

    def accept(self, batch: Sequence[Dispatched]) -> None:
        if self.is_held:
            self._untold.append(batch)
            return
        for listener in self.listeners:
            listener(batch)

    def tell(self) -> None:
        """Hold nothing any more, and tell what was held."""
        self.is_held = False
        untold, self._untold = self._untold, []
        for batch in untold:
            self.accept(batch)
