"""Consume queues against the log: every record has its entry, and every entry its record.

The log is walked once, by the caller. For each chunk the entries where its records say they stand are read and
compared: log offset, size, tags code. Which queue offsets were claimed by records is remembered as ranges, nearly
always one per queue; afterwards each queue is read once for entries that nobody claimed. Those may point before the
log's first record (expired), behind its end (an unclean stop), into damage that was reported already, or be the blanks
with which RocketMQ fills the front of a queue that starts late. The rest is astray.

A topic that was deleted and made anew counts from 0 again. Its old records are still in the log, without entries or
with entries of newer records in their place; so what seems wrong with a queue is told only at the end, and as a note
when a second beginning was met.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from fusee.message.topics import SCHEDULE_TOPIC
from fusee.store.layout import CONSUME_ENTRY_SIZE, segment_name
from fusee.store.offline.files import CONSUME_QUEUE_EXT
from fusee.store.offline.findings import Finding, Severity
from fusee.store.offline.rows import check_row, entry_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fusee.store.offline.columns import Columns, Topics
    from fusee.store.offline.files import OfflineStore, QueueFiles, SegmentRow
    from fusee.store.offline.findings import Findings
    from fusee.store.offline.log_facts import LogFacts

ENTRY: Final = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
EXT_ADDRESS_MAX: Final = -0x80000001
"""A tags code up to this is no hash: it says where in the extension queue the hash is."""
_EXT_UNIT: Final = Struct(">hqqh")
_RANGES_MAX: Final = 65_536
_PENDING_MAX: Final = 64
_WAITING_MAX: Final = 1 << 18


class Expected(NamedTuple):
    """What consume queues should say, one row per record."""

    topic: NDArray[np.int64]
    """Numbers of `Topics`."""
    queue_id: NDArray[np.int64]
    queue_offset: NDArray[np.int64]
    log_offset: NDArray[np.int64]
    size: NDArray[np.int64]
    tags_code: NDArray[np.int64]
    store_timestamp_ms: NDArray[np.int64]

    def rows(self, chosen: NDArray[np.int64] | slice) -> Expected:
        return Expected(*(column[chosen] for column in self))


class ClaimedRanges:
    """Queue offsets that records have claimed; when the ranges become too many, gaps are forgotten."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        if self._ends and self._starts[-1] <= start <= self._ends[-1]:
            self._ends[-1] = max(self._ends[-1], end)
        elif self._ends and len(self._ends) >= _RANGES_MAX:
            self._starts[-1] = min(self._starts[-1], start)
            self._ends[-1] = max(self._ends[-1], end)
        else:
            self._starts.append(start)
            self._ends.append(end)

    def contains(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these are claimed."""
        claimed = np.zeros(len(places), bool)
        if not self._starts:
            return claimed
        order = np.argsort(self._starts)
        starts = np.array(self._starts)[order]
        # Ranges may overlap after a second beginning: the furthest end so far decides.
        ends = np.maximum.accumulate(np.array(self._ends)[order])
        slot = np.searchsorted(starts, places, side="right") - 1
        found = slot >= 0
        claimed[found] = places[found] < ends[slot[found]]
        return claimed


class _Queue:
    """What is known of one queue while the log is walked."""

    __slots__ = (
        "claimed",
        "delay_ms",
        "missing",
        "missing_first",
        "next_offset",
        "pending",
        "pending_more",
        "restarts",
        "row",
    )

    def __init__(self, row: SegmentRow) -> None:
        self.row = row
        self.next_offset: int | None = None
        self.claimed = ClaimedRanges()
        self.pending: list[Finding] = []
        self.pending_more = 0
        self.restarts = 0
        self.missing = 0
        self.missing_first: int | None = None
        self.delay_ms: int | None = None


class QueueCheck:
    """Checks all consume queues of 20-byte entries."""

    def __init__(
        self,
        store: OfflineStore,
        findings: Findings,
        facts: LogFacts,
        topics: Topics,
        batch_queues: frozenset[tuple[str, int]],
    ) -> None:
        """`batch_queues` are those that have units of batches instead of entries."""
        self._store = store
        self._findings = findings
        self._facts = facts
        self._topics = topics
        self._batch_queues = batch_queues
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._without_entries: dict[tuple[str, int], int] = {}
        self._rows = {(files.topic, files.queue_id): files.row for files in store.queues()}
        self._waiting: list[Expected] = []
        self._waiting_count = 0
        self.entries = 0
        self.queues = 0

    def accept(self, columns: Columns) -> None:
        """Compare the entries of these records, or keep them until there are enough to make it worth while."""
        rows = np.flatnonzero(columns.is_queued & (columns.queue_id >= 0) & (columns.queue_offset >= 0))
        expected = Expected(
            columns.topic[rows],
            columns.queue_id[rows],
            columns.queue_offset[rows],
            columns.log_offset[rows],
            columns.size[rows],
            columns.tags_code[rows],
            columns.store_timestamp_ms[rows],
        )
        self._waiting.append(expected)
        self._waiting_count += len(rows)
        if columns.dispatches:
            copied = np.array([row for row, _, _ in columns.dispatches])
            self._waiting.append(
                Expected(
                    np.array([self._topics.number(topic.encode()) for _, topic, _ in columns.dispatches]),
                    np.zeros(len(copied), np.int64),
                    np.array([queue_offset for _, _, queue_offset in columns.dispatches]),
                    columns.log_offset[copied],
                    columns.size[copied],
                    columns.tags_code[copied],
                    columns.store_timestamp_ms[copied],
                )
            )
        if self._waiting_count >= _WAITING_MAX:
            self.flush()

    def flush(self) -> None:
        """Compare the entries of all records that were kept."""
        if not self._waiting:
            return
        expected = Expected(*(np.concatenate(column) for column in zip(*self._waiting, strict=True)))
        self._waiting.clear()
        self._waiting_count = 0
        key = expected.topic << 32 | expected.queue_id
        order = np.argsort(key, kind="stable")
        expected, key = expected.rows(order), key[order]
        bounds = [0, *(np.flatnonzero(key[1:] != key[:-1]) + 1).tolist(), len(key)]
        for start, end in pairwise(bounds):
            if start < end:
                topic = self._topics.names[int(expected.topic[start])]
                self._check_group(topic, int(expected.queue_id[start]), expected.rows(slice(start, end)))

    def _check_group(self, topic: str, queue_id: int, expected: Expected) -> None:
        """Compare the entries of records of one queue."""
        if (topic, queue_id) in self._batch_queues:
            return
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            row = self._rows.get((topic, queue_id)) or self._store.queue(topic, queue_id)
            queue = self._queues[topic, queue_id] = _Queue(row)
        if not queue.row:
            count = self._without_entries.get((topic, queue_id), 0)
            self._without_entries[topic, queue_id] = count + len(expected.size)
            return
        breaks = np.flatnonzero(np.diff(expected.queue_offset) != 1) + 1
        for start, end in pairwise([0, *breaks.tolist(), len(expected.size)]):
            run = expected.rows(slice(start, end))
            first = int(run.queue_offset[0])
            self._follow(queue, topic, queue_id, first, int(run.log_offset[0]))
            queue.next_offset = first + len(run.size)
            queue.claimed.add(first, queue.next_offset)
            self._check_run(queue, topic, queue_id, run, first)

    def _follow(self, queue: _Queue, topic: str, queue_id: int, start: int, log_offset: int) -> None:
        """Does this record follow the one before it in its queue?"""
        expected = queue.next_offset
        if expected is None or start == expected:
            return
        if start == 0:
            queue.restarts += 1
            return
        if start > expected and self._facts.damages:
            return  # those between were in the damaged place
        what = "repeats" if start < expected else "skips"
        file, position = self._facts.place(log_offset)
        self._hold(
            queue,
            Finding(
                Severity.ERROR,
                "queue-offset",
                file,
                f"the record {what} queue offsets: it is number {start} of {topic} queue {queue_id}, where {expected} "
                "was to follow",
                position,
                log_offset,
            ),
        )

    def _check_run(self, queue: _Queue, topic: str, queue_id: int, expected: Expected, start: int) -> None:
        """Compare the entries of records that follow each other in a queue."""
        count = len(expected.size)
        if self._facts.is_unclean and (start + count) * CONSUME_ENTRY_SIZE > queue.row.end_offset:
            queue.row = self._store.queue(topic, queue_id)  # it may have grown
        data = queue.row.read_past_gaps(start * CONSUME_ENTRY_SIZE, count * CONSUME_ENTRY_SIZE)
        entries: NDArray[Any] = np.frombuffer(data, ENTRY, len(data) // CONSUME_ENTRY_SIZE)
        if len(entries) < count:
            padded = np.zeros(count, ENTRY)
            padded[: len(entries)] = entries
            entries = padded
        log_offsets, sizes, codes = expected.log_offset, expected.size, expected.tags_code
        if topic == SCHEDULE_TOPIC:
            codes = self._delivery_times(
                queue, expected.store_timestamp_ms, entries["tags_code"].astype(np.int64), codes
            )
        same_place = (entries["log_offset"] == log_offsets) & (entries["size"] == sizes)
        same_code = entries["tags_code"] == codes
        if same_place.all() and same_code.all():
            return
        written = entries["size"] != 0
        for index in np.flatnonzero(~(same_place & same_code)).tolist():
            entry = entries[index]
            place = start + index
            log_offset, size, code = int(log_offsets[index]), int(sizes[index]), int(codes[index])
            if same_place[index] and self._has_extension(topic, queue_id, int(entry["tags_code"]), code):
                continue
            file, position = self._place(queue.row, place)
            if not written[index] and entry["log_offset"] == 0:
                if self._facts.is_unclean:
                    queue.missing += 1
                    queue.missing_first = place if queue.missing_first is None else min(queue.missing_first, place)
                    continue
                kind = "queue-entry-missing"
                what = "there is no entry"
            else:
                kind = "queue-entry-wrong"
                what = (
                    f"the entry says log offset {entry['log_offset']}, {entry['size']} bytes, tags code "
                    f"{entry['tags_code']}"
                )
            text = (
                f"{topic} queue {queue_id} at {place}: {what}; the record is at log offset {log_offset} with {size} "
                f"bytes and tags code {code}"
            )
            self._hold(queue, Finding(Severity.ERROR, kind, file, text, position, log_offset))

    def _delivery_times(
        self,
        queue: _Queue,
        stored_ms: NDArray[np.int64],
        found: NDArray[np.int64],
        codes: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """The codes that delayed messages should have: store time plus the delay of their level, which is their queue.

        The delays are a setting of the broker, so the one that most entries show is believed.
        """
        if queue.delay_ms is None:
            seen = np.sort((found - stored_ms)[found != 0])
            if not len(seen):
                return codes
            queue.delay_ms = int(seen[len(seen) // 2])
        if queue.delay_ms < 0:
            return codes  # no times at all: hashes, as a store without delay levels writes them
        return stored_ms + queue.delay_ms

    def _has_extension(self, topic: str, queue_id: int, address_code: int, code: int) -> bool:
        """Whether the code is an address in the extension queue, and the tags code there is the right one."""
        if address_code > EXT_ADDRESS_MAX:
            return False
        row = self._store.row(f"{CONSUME_QUEUE_EXT}/{topic}/{queue_id}")
        unit = row.read(address_code + (1 << 63), _EXT_UNIT.size)
        return len(unit) == _EXT_UNIT.size and _EXT_UNIT.unpack(unit)[1] == code

    def _hold(self, queue: _Queue, finding: Finding) -> None:
        if len(queue.pending) < _PENDING_MAX:
            queue.pending.append(finding)
        else:
            queue.pending_more += 1

    def _place(self, row: SegmentRow, queue_offset: int) -> tuple[str, int]:
        offset = queue_offset * CONSUME_ENTRY_SIZE
        size = row.segment_size or 1
        return self._store.relative(row.folder / segment_name(offset - offset % size)), offset % size

    def finish(self, known_topics: frozenset[str] | None, progress: Callable[[str, int, int], object] | None) -> None:
        """Tell what was held back, and read every queue for entries that no record claims.

        `known_topics` are those of the broker's configuration, if it is there.
        """
        self.flush()
        for (topic, queue_id), queue in self._queues.items():
            self._tell_pending(topic, queue_id, queue)
        for (topic, queue_id), count in self._without_entries.items():
            self._tell_without_entries(topic, queue_id, count, known_topics)
        total = 0
        sizes: Counter[int] = Counter()
        for files in self._store.queues():
            sizes.update(segment.size for segment in files.row.segments)
            total += files.row.allocated
        size = max(sizes, key=lambda size: (sizes[size], size), default=0)
        done = 0
        for files in self._store.queues():
            self.queues += 1
            check_row(self._store, self._findings, files.row, "queue", size, CONSUME_ENTRY_SIZE)
            self._check_unclaimed(files)
            done += files.row.allocated
            if progress is not None:
                progress("queues", min(done, total), total)

    def _tell_pending(self, topic: str, queue_id: int, queue: _Queue) -> None:
        if queue.missing_first is not None:
            file, position = self._place(queue.row, queue.missing_first)
            self._findings.note(
                "queue-entry-missing",
                file,
                f"{queue.missing} records of {topic} queue {queue_id}, from {queue.missing_first} on, have no entry; "
                "recovery makes them",
                position,
            )
        if queue.restarts and queue.pending:
            self._findings.note(
                "queue-anew",
                self._store.relative(queue.row.folder),
                f"{topic} queue {queue_id} was made anew {queue.restarts} times; "
                f"{len(queue.pending) + queue.pending_more} of its older records in the log have no entry",
            )
            return
        for finding in queue.pending:
            self._findings.add(finding)
        if queue.pending_more:
            last = queue.pending[-1]
            self._findings.add_more(last.severity, last.kind, queue.pending_more)

    def _tell_without_entries(self, topic: str, queue_id: int, count: int, known_topics: frozenset[str] | None) -> None:
        file = self._store.relative(self._store.paths.consume_queue(topic, queue_id))
        if known_topics is not None and topic not in known_topics:
            self._findings.note(
                "queue-deleted", file, f"{count} records of {topic} queue {queue_id}: the topic was deleted"
            )
        elif self._facts.is_unclean:
            self._findings.note(
                "queue-missing", file, f"{count} records of {topic} queue {queue_id} have no queue; recovery makes it"
            )
        else:
            self._findings.error("queue-missing", file, f"{count} records of {topic} queue {queue_id} have no queue")

    def _check_unclaimed(self, files: QueueFiles) -> None:
        queue = self._queues.get((files.topic, files.queue_id))
        claimed = queue.claimed if queue is not None else ClaimedRanges()
        sums = _UnclaimedSums()
        for segment in files.row.segments:
            for position, entries in entry_blocks(files.row, segment, ENTRY):
                first = (segment.base_offset + position) // CONSUME_ENTRY_SIZE
                self._check_block(files, claimed, entries, first, sums)
        name = f"{files.topic} queue {files.queue_id}"
        if sums.blanks:
            self._findings.note(
                "queue-pre-blank",
                self._store.relative(files.row.folder),
                f"{name} begins with {sums.blanks} blank entries: it was made for a queue that started late",
            )
        if sums.beyond:
            self._facts.tell_beyond(self._findings, "queue-beyond-log", files.row.folder, name, sums.beyond)
        if sums.damaged:
            self._findings.note(
                "queue-into-damage",
                self._store.relative(files.row.folder),
                f"{sums.damaged} entries of {name} point to records in the damaged places of the log",
            )

    def _check_block(
        self, files: QueueFiles, claimed: ClaimedRanges, entries: NDArray[Any], first: int, sums: _UnclaimedSums
    ) -> None:
        log_offset = entries["log_offset"].astype(np.int64)
        size = entries["size"].astype(np.int64)
        written = (log_offset != 0) | (size != 0) | (entries["tags_code"] != 0)
        self.entries += int(written.sum())
        places = np.arange(first, first + len(entries))
        left = written & ~claimed.contains(places)
        is_blank = left & (log_offset == 0) & (size == PRE_BLANK_SIZE)
        sums.blanks += int(is_blank.sum())
        left &= ~is_blank & ~((size > 0) & (log_offset >= 0) & (log_offset < self._facts.min_offset))
        beyond = left & (log_offset >= self._facts.end_offset) & (size > 0)
        sums.beyond += int(beyond.sum())
        damaged = left & self._facts.in_damage(log_offset)
        sums.damaged += int(damaged.sum())
        left &= ~beyond & ~damaged

        def astray(index: int) -> tuple[str, str, int, int]:
            file, position = self._place(files.row, first + index)
            text = (
                f"{files.topic} queue {files.queue_id} at {first + index}: no record of this queue is at log offset "
                f"{log_offset[index]} with {size[index]} bytes"
            )
            return file, text, position, int(log_offset[index])

        self._findings.add_each(Severity.ERROR, "queue-entry-astray", np.flatnonzero(left).tolist(), astray)


class _UnclaimedSums:
    __slots__ = ("beyond", "blanks", "damaged")

    def __init__(self) -> None:
        self.beyond = 0
        self.blanks = 0
        self.damaged = 0
