"""What is in a store, told without reading all of it: the end of the log, the limits of queues, headers, counts.

The end of the log is searched from the last record that a consume queue knows, so it costs a few reads however long the
log is. Records are counted in small logs, and estimated from samples in others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from fusee.message.record_layout import TIMESTAMP, store_timestamp_position
from fusee.store.layout import TRANSACTION_REDO, TRANSACTION_STATES
from fusee.store.offline.check_side_files import CHECKPOINT_FIELDS
from fusee.store.offline.check_timer import TIMER_SLOT, TIMER_UNIT
from fusee.store.offline.check_transactions import STATE
from fusee.store.offline.configuration import Configuration
from fusee.store.offline.files import TIMER_LOG, TIMER_WHEEL, names_in
from fusee.store.offline.index_files import open_index
from fusee.store.offline.queue_ends import batch_queue_span, queue_span
from fusee.store.offline.rows import entry_blocks
from fusee.store.offline.state import state_of
from fusee.store.offline.walk import Chunk, Damage, read_record, walk
from fusee.store.transaction_table import TransactionState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusee.store.offline.files import OfflineStore

COUNTED_MAX: Final = 64 << 20
"""Bytes of log up to which records are counted."""
_SAMPLES: Final = 16
_SAMPLE_SIZE: Final = 1 << 20
_WALK_SIZE: Final = 1 << 20


class LogView(msgspec.Struct, frozen=True, rename="camel"):
    """The commit log."""

    segments: int
    segment_size: int
    min_offset: int
    end_offset: int
    size: int
    """Bytes that the files seem to have."""
    allocated: int
    """Bytes that they take on disk."""
    records: int
    records_estimated: bool
    first_store_time_ms: int | None
    last_store_time_ms: int | None
    problem: str
    """What was seen of damage on the way; `verify` looks for all of it."""


class QueueView(msgspec.Struct, frozen=True, rename="camel"):
    """One consume queue."""

    topic: str
    queue_id: int
    kind: str
    """plain, or batch."""
    min_offset: int
    max_offset: int
    files: int
    allocated: int

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


class TopicView(msgspec.Struct, frozen=True, rename="camel"):
    """The queues of a topic together."""

    topic: str
    kind: str
    queues: int
    messages: int
    allocated: int
    groups: int
    """Groups that have committed an offset in it."""
    lag_max: int | None
    """Of the group that is furthest behind."""


class GroupView(msgspec.Struct, frozen=True, rename="camel"):
    """A consumer group in one queue."""

    group: str
    topic: str
    queue_id: int
    committed_offset: int
    max_offset: int | None
    """End of the queue; None when there is no such queue."""
    lag: int | None


class IndexFileView(msgspec.Struct, frozen=True, rename="camel"):
    """One index file."""

    name: str
    size: int
    allocated: int
    slots: int | None
    """None when the shape of the file cannot be told."""
    slots_used: int
    capacity: int | None
    entries: int
    begin_log_offset: int
    end_log_offset: int
    begin_time_ms: int
    end_time_ms: int
    problem: str = ""


class CheckpointView(msgspec.Struct, frozen=True, rename="camel"):
    """The checkpoint."""

    log_time_ms: int
    queues_time_ms: int
    index_time_ms: int
    master_flushed_offset: int
    confirmed_offset: int


class ConfigView(msgspec.Struct, frozen=True, rename="camel"):
    """One file of the broker's configuration."""

    name: str
    size: int
    count: int | None
    """Topics, groups, ... in it."""
    problem: str


class TimerView(msgspec.Struct, frozen=True, rename="camel"):
    """Timer wheel and timer log."""

    wheel_size: int
    wheel_allocated: int
    slots: int
    slots_used: int
    messages: int
    """As the slots in use count them."""
    last_time_ms: int | None
    """The latest second that a slot stands for, if slots are seconds."""
    log_segments: int
    log_units: int
    log_allocated: int


class TransactionView(msgspec.Struct, frozen=True, rename="camel"):
    """The transaction table."""

    states: dict[str, int]
    """How many transactions are in each state."""
    segments: int
    redo_segments: int
    allocated: int


class Overview(msgspec.Struct, frozen=True, rename="camel"):
    """Everything at a glance."""

    path: str
    state: str
    holder_pid: int | None
    writer: str
    """Who seems to have written it."""
    size: int
    allocated: int
    log: LogView
    topics: list[TopicView]
    queues: list[QueueView]
    groups: list[GroupView]
    index: list[IndexFileView]
    checkpoint: CheckpointView | None
    config: list[ConfigView]
    timer: TimerView | None
    transactions: TransactionView | None


def inspect(store: OfflineStore) -> Overview:
    """Look at everything."""
    configuration = Configuration(store)
    queues = _queues(store)
    groups = _groups(configuration, queues)
    index = _index(store)
    timer = _timer(store)
    transactions = _transactions(store)
    log = _log(store)
    extents = [
        (store.log.size, store.log.allocated),
        *((files.row.size, files.row.allocated) for files in (*store.queues(), *store.batch_queues())),
        *((view.size, view.allocated) for view in index),
        *((row.size, row.allocated) for row in map(store.row, (TIMER_LOG, TRANSACTION_STATES, TRANSACTION_REDO))),
    ]
    if timer is not None:
        extents.append((timer.wheel_size, timer.wheel_allocated))
    return Overview(
        path=str(store.root),
        state=state_of(store),
        holder_pid=store.holder(),
        writer=_writer(store),
        size=sum(size for size, _ in extents),
        allocated=sum(allocated for _, allocated in extents),
        log=log,
        topics=_topics(queues, groups),
        queues=queues,
        groups=groups,
        index=index,
        checkpoint=_checkpoint(store),
        config=[ConfigView(name, file.size, file.held, file.problem) for name, file in configuration.files.items()],
        timer=timer,
        transactions=transactions,
    )


def _writer(store: OfflineStore) -> str:
    names = set(names_in(store.root))
    if "transaction" in names:
        return "Fusee"
    if names & {"abort.bak", "rocksdbstore"}:
        return "Apache RocketMQ 5.5 or newer"
    if names & {TIMER_WHEEL, "compaction", "timerlog"}:
        return "Apache RocketMQ 5"
    return "Apache RocketMQ, or Fusee" if store.log else "nobody yet"


def log_end(store: OfflineStore) -> tuple[int, int | None, str]:
    """(end of the log, store time of its last record, what is wrong there), found from what queues know."""
    log = store.log
    known = max(
        (
            span.last_log_offset
            for files in store.queues()
            if log.locate((span := queue_span(files.row, log.min_offset)).last_log_offset) is not None
        ),
        default=-1,
    )
    start = known if known >= 0 and read_record(log, known) is not None else None
    if start is None:
        filled = [segment for segment in log.segments if log.last_written(segment, 0)]
        start = filled[-1].base_offset if filled else log.min_offset
    last_time_ms: int | None = None
    problem = ""
    for event in walk(log, start, _WALK_SIZE):
        if isinstance(event, Chunk):
            last_time_ms = int(event.store_timestamps[-1])
        elif isinstance(event, Damage):
            problem = problem or f"no record at log offset {event.log_offset}: {event.reason}"
        else:
            return event.log_offset, last_time_ms, problem or event.reason
    return log.end_offset, last_time_ms, problem


def _log(store: OfflineStore) -> LogView:
    log = store.log
    end_offset, last_time_ms, problem = log_end(store) if log else (0, None, "")
    first = read_record(log, log.min_offset) if log else None
    written = end_offset - log.min_offset
    is_counted = written <= COUNTED_MAX
    records, seen_problem = _count(store) if is_counted else (_estimate(store, written), "")
    return LogView(
        segments=len(log.segments),
        segment_size=log.segment_size,
        min_offset=log.min_offset,
        end_offset=end_offset,
        size=log.size,
        allocated=log.allocated,
        records=records,
        records_estimated=not is_counted,
        first_store_time_ms=None if first is None else _store_time(first),
        last_store_time_ms=last_time_ms,
        problem=problem or seen_problem,
    )


def _store_time(record: bytes) -> int:
    time_ms: int = TIMESTAMP.unpack_from(record, store_timestamp_position(record[39]))[0]
    return time_ms


def _count(store: OfflineStore) -> tuple[int, str]:
    count = 0
    problem = ""
    for event in walk(store.log):
        if isinstance(event, Chunk):
            count += len(event.parts.positions)
        elif isinstance(event, Damage):
            problem = problem or f"no record at log offset {event.log_offset}: {event.reason}"
        else:
            problem = problem or event.reason
    return count, problem


def _estimate(store: OfflineStore, written: int) -> int:
    """From the beginnings of some files, evenly spread."""
    segments = store.log.segments
    count = size = 0
    for segment in segments[:: max(len(segments) // _SAMPLES, 1)]:
        event = next(walk(store.log, segment.base_offset, _SAMPLE_SIZE))
        if isinstance(event, Chunk):
            count += len(event.parts.positions)
            size += int(event.parts.record_end[-1])
    return round(written * count / size) if size else 0


def _queues(store: OfflineStore) -> list[QueueView]:
    found: list[QueueView] = []
    log_min_offset = store.log.min_offset
    for kind, span_of, queues in (
        ("plain", queue_span, store.queues()),
        ("batch", batch_queue_span, store.batch_queues()),
    ):
        for files in queues:
            span = span_of(files.row, log_min_offset)
            found.append(
                QueueView(
                    files.topic,
                    files.queue_id,
                    kind,
                    span.min_offset,
                    span.max_offset,
                    len(files.row.segments),
                    files.row.allocated,
                )
            )
    return found


def _topics(queues: Iterable[QueueView], groups: Iterable[GroupView]) -> list[TopicView]:
    lags: dict[str, dict[str, int]] = {}
    for group in groups:
        by_group = lags.setdefault(group.topic, {})
        by_group[group.group] = by_group.get(group.group, 0) + (group.lag or 0)
    of_topic: dict[tuple[str, str], list[QueueView]] = {}
    for queue in queues:
        of_topic.setdefault((queue.topic, queue.kind), []).append(queue)
    return [
        TopicView(
            topic,
            kind,
            len(some),
            sum(queue.messages for queue in some),
            sum(queue.allocated for queue in some),
            len(lags.get(topic, {})),
            max(lags.get(topic, {}).values(), default=None),
        )
        for (topic, kind), some in of_topic.items()
    ]


def _groups(configuration: Configuration, queues: Iterable[QueueView]) -> list[GroupView]:
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in queues}
    found: list[GroupView] = []
    for committed in sorted(configuration.committed_offsets()):
        end = ends.get((committed.topic, committed.queue_id))
        lag = None if end is None else max(end - committed.queue_offset, 0)
        found.append(GroupView(committed.group, committed.topic, committed.queue_id, committed.queue_offset, end, lag))
    return found


def _index(store: OfflineStore) -> list[IndexFileView]:
    views, bad = open_index(store)
    found = [
        IndexFileView(
            name=view.path.name,
            size=view.size,
            allocated=view.allocated,
            slots=view.shape.slots if view.shape is not None else None,
            slots_used=view.header.slots_used,
            capacity=view.shape.entries if view.shape is not None else None,
            entries=max(view.header.next_number - 1, 0),
            begin_log_offset=view.header.begin_log_offset,
            end_log_offset=view.header.end_log_offset,
            begin_time_ms=view.header.begin_timestamp_ms,
            end_time_ms=view.header.end_timestamp_ms,
        )
        for view in views
    ]
    found += [IndexFileView(path.name, 0, 0, None, 0, None, 0, 0, 0, 0, 0, reason) for path, reason in bad]
    return sorted(found, key=lambda view: view.name)


def _checkpoint(store: OfflineStore) -> CheckpointView | None:
    data = store.read_file(store.paths.checkpoint, 1 << 20)
    if data is None or len(data) < CHECKPOINT_FIELDS.size:
        return None
    return CheckpointView(*CHECKPOINT_FIELDS.unpack_from(data))


def _timer(store: OfflineStore) -> TimerView | None:
    path = store.root / TIMER_WHEEL
    row = store.row(TIMER_LOG)
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    used = messages = 0
    last_time: int | None = None
    step = TIMER_SLOT.itemsize
    for start, end in list(store.descriptors.written_ranges(path, 0, stat.st_size)):
        position = start - start % step
        data = store.descriptors.read(path, position, end - position)
        slots = np.frombuffer(data, TIMER_SLOT, len(data) // step)
        chosen = slots[slots["time"] > 0]
        used += len(chosen)
        messages += int(chosen["count"].sum())
        if len(chosen):
            last_time = max(last_time or 0, int(chosen["time"].max()))
    units = 0
    for segment in row.segments:
        for _, entries in entry_blocks(row, segment, TIMER_UNIT):
            units += int((entries["size"] == TIMER_UNIT.itemsize).sum())
    return TimerView(
        wheel_size=stat.st_size,
        wheel_allocated=stat.st_blocks * 512,
        slots=stat.st_size // step,
        slots_used=used,
        messages=messages,
        last_time_ms=None if last_time is None else last_time * 1000,
        log_segments=len(row.segments),
        log_units=units,
        log_allocated=row.allocated,
    )


def _transactions(store: OfflineStore) -> TransactionView | None:
    row = store.row(TRANSACTION_STATES)
    redo = store.row(TRANSACTION_REDO)
    if not row and not redo:
        return None
    states: dict[str, int] = {}
    names: dict[int, str] = {state.value: state.name.lower() for state in TransactionState}
    for segment in row.segments:
        for _, entries in entry_blocks(row, segment, STATE):
            values, counts = np.unique(entries["state"], return_counts=True)
            for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                if value:
                    name = names.get(value, str(value))
                    states[name] = states.get(name, 0) + count
    return TransactionView(states, len(row.segments), len(redo.segments), row.allocated + redo.allocated)
