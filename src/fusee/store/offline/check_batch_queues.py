"""Queues of inner batches against the log: each batch has one 46-byte unit, in log order.

`batch_consume_queue` gives the layout. Units do not stand at a place that follows from the queue offset, because a
batch takes as many queue offsets as it has messages. So they are read in step with the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fusee.message import properties as names
from fusee.store.batch_consume_queue import BATCH_ENTRY_DTYPE
from fusee.store.layout import BATCH_CONSUME_ENTRY_SIZE
from fusee.store.offline.rows import check_row, usual_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.store.offline.columns import Columns, Topics
    from fusee.store.offline.files import OfflineStore, QueueFiles
    from fusee.store.offline.findings import Findings
    from fusee.store.offline.log_facts import LogFacts

_BLOCK_UNITS: Final = 8192


class _Cursor:
    """Goes through the units of one queue in order."""

    def __init__(self, files: QueueFiles) -> None:
        self.files = files
        self.next_offset: int | None = None
        self._offset = files.row.min_offset
        self._units: NDArray[Any] = np.empty(0, BATCH_ENTRY_DTYPE)
        self._index = 0

    def peek(self) -> Any:
        """The present unit; None when no more are written."""
        if self._index >= len(self._units):
            self._offset += len(self._units) * BATCH_CONSUME_ENTRY_SIZE
            data = self.files.row.read(self._offset, _BLOCK_UNITS * BATCH_CONSUME_ENTRY_SIZE)
            self._units = np.frombuffer(data, BATCH_ENTRY_DTYPE, len(data) // BATCH_CONSUME_ENTRY_SIZE)
            self._index = 0
            if not len(self._units):
                return None
        unit = self._units[self._index]
        return unit if unit["size"] != 0 or unit["log_offset"] != 0 else None

    @property
    def place(self) -> int:
        """Where the present unit stands in the row."""
        return self._offset + self._index * BATCH_CONSUME_ENTRY_SIZE

    def step(self) -> None:
        self._index += 1


class BatchQueueCheck:
    """Checks all queues of inner batches."""

    def __init__(self, store: OfflineStore, findings: Findings, facts: LogFacts, topics: Topics) -> None:
        self._store = store
        self._findings = findings
        self._facts = facts
        self._topics = topics
        self._cursors = {(files.topic, files.queue_id): _Cursor(files) for files in store.batch_queues()}
        self._batch_topics = {topic for topic, _ in self._cursors}
        self._dropped = 0
        self.units = 0

    @property
    def queues(self) -> frozenset[tuple[str, int]]:
        """Topic and number of each such queue."""
        return frozenset(self._cursors)

    def accept(self, columns: Columns) -> None:
        """Compare the units of these records, as far as they stand in such queues."""
        if not self._cursors:
            return
        numbers = {number for number, name in enumerate(self._topics.names) if name in self._batch_topics}
        for row in np.flatnonzero(np.isin(columns.topic, list(numbers)) & columns.is_queued).tolist():
            topic = self._topics.names[int(columns.topic[row])]
            cursor = self._cursors.get((topic, int(columns.queue_id[row])))
            if cursor is not None:
                self._check(cursor, columns, row)

    def _check(self, cursor: _Cursor, columns: Columns, row: int) -> None:
        log_offset = int(columns.log_offset[row])
        unit = cursor.peek()
        while unit is not None and unit["log_offset"] < log_offset:
            self._pass_over(cursor, unit)
            unit = cursor.peek()
        number = columns.properties_of(row).get(names.INNER_NUM, "1")
        expected = (
            log_offset,
            int(columns.size[row]),
            int(columns.tags_code[row]),
            int(columns.store_timestamp_ms[row]),
            int(columns.queue_offset[row]),
            int(number) if number.isdecimal() else 1,
        )
        found = None if unit is None else tuple(unit.tolist()[:6])
        if found == expected:
            self.units += 1
            cursor.step()
            return
        file, position = self._file(cursor)
        name = f"{cursor.files.topic} queue {cursor.files.queue_id}"
        what = "(log offset, size, tags code, store time, first queue offset, messages)"
        if found is None or found[0] != log_offset:
            if not columns.is_batch[row]:
                self._dropped += 1
                return
            text = f"{name}: the batch {what} = {expected} has no unit"
            if found is None and self._facts.is_unclean:
                self._findings.note("batch-unit-missing", file, f"{text}; recovery makes it anew", position, log_offset)
            else:
                self._findings.error("batch-unit-missing", file, text, position, log_offset)
            return
        self.units += 1
        cursor.step()
        self._findings.error(
            "batch-unit-wrong", file, f"{name}: the unit {what} = {found} is not {expected}", position, log_offset
        )

    def _pass_over(self, cursor: _Cursor, unit: Any) -> None:
        """A unit that points before the present record: expired, or astray."""
        self.units += 1
        log_offset = int(unit["log_offset"])
        if log_offset >= self._facts.min_offset and not self._facts.in_damage(np.array([log_offset]))[0]:
            file, position = self._file(cursor)
            self._findings.error(
                "batch-unit-astray",
                file,
                f"{cursor.files.topic} queue {cursor.files.queue_id}: no batch of it is at log offset {log_offset}",
                position,
                log_offset,
            )
        cursor.step()

    def finish(self) -> None:
        """Look at the units behind the last record, and at the files."""
        if self._dropped:
            self._findings.note(
                "batch-queue-single",
                self._store.relative(self._store.paths.batch_consume_queues),
                f"{self._dropped} single messages of topics with queues of batches are in no queue, as in RocketMQ",
            )
        size = usual_size(cursor.files.row for cursor in self._cursors.values())
        for cursor in self._cursors.values():
            check_row(self._store, self._findings, cursor.files.row, "batch-queue", size, BATCH_CONSUME_ENTRY_SIZE)
            beyond = 0
            while (unit := cursor.peek()) is not None:
                if unit["log_offset"] < self._facts.end_offset:
                    self._pass_over(cursor, unit)
                else:
                    beyond += 1
                    cursor.step()
            if beyond:
                name = f"{cursor.files.topic} queue {cursor.files.queue_id}"
                self._facts.tell_beyond(self._findings, "batch-beyond-log", cursor.files.row.folder, name, beyond)

    def _file(self, cursor: _Cursor) -> tuple[str, int]:
        row = cursor.files.row
        segment = row.locate(cursor.place)
        if segment is None:
            return self._store.relative(row.folder), cursor.place
        return self._store.relative(segment.path), cursor.place - segment.base_offset
