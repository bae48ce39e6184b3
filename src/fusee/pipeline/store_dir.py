"""Topics read from store directories, without a broker: of one that is stopped, a copy, or one at work.

Theory of operation
-------------------
A queue's entries say where its messages lie, and what is in a queue is what consumers can see. So the queues are the
cut, as they are at the moment of planning: `store_queues` tells what each has, up to the last message that is whole (a
crash may tear the tail), and nothing that comes later is read. Where the owner removes old files meanwhile, a task
that comes too late fails with an error that says so.

`plan_store` divides the log, not the queues: each task has a stretch of the log and of every queue the part that lies
there, so that all tasks together go over the log once, one after the other in it or side by side. When few topics of
many are wanted, the stretches have gaps, which are not read.

Stores of Apache RocketMQ have the same files. Queues of batches are read too, each by one task.

A directory is given as its path, or as `name=path` to say what `brokerName` is; without a name it is the folder's own
name, or that of the folder above when it is called `store`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError, DataLossError
from fusee.message.record_layout import TIMESTAMP, store_timestamp_position
from fusee.pipeline.batches import BATCH_SIZE, RecordBatches, cut_records
from fusee.pipeline.ranges import QueueRange, StoreRange
from fusee.store.offline.files import OfflineStore
from fusee.store.offline.queue_ends import batch_queue_span, entry_at, queue_span
from fusee.store.offline.queue_log import BatchQueueEntries, QueueEntries, check_placed, read_placed, whole_end

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from fusee.store.offline.files import SegmentRow

PIECE_SIZE: Final = 256 << 20
"""Bytes of the log that are worth a task."""
_DENSE: Final = 0.5  # of what is read, so much must be wanted to decode it where it lies


@dataclass(frozen=True, slots=True)
class StoreQueue:
    """A queue in a store directory and the offsets it has, at the moment it was looked at."""

    directory: str
    broker_name: str
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    is_of_batches: bool = False

    @property
    def range(self) -> QueueRange:
        """All of it."""
        return QueueRange(self.topic, self.broker_name, self.queue_id, self.min_offset, self.max_offset)


def named_directories(directories: Sequence[str]) -> dict[str, str]:
    """Broker names and the directories they stand for. Raises ConfigError when a name stands for two."""
    named: dict[str, str] = {}
    for given in directories:
        name, separator, path = given.partition("=")
        if not separator or "/" in name:
            name, path = "", given
        root = Path(path).absolute()
        name = name or (root.parent.name if root.name == "store" else root.name)
        if named.setdefault(name, str(root)) != str(root):
            raise ConfigError(
                f"{named[name]} and {root} would both be broker {name!r}; name them: first={named[name]},second={root}"
            )
    return named


def store_queues(directories: Sequence[str], *, topics: Collection[str] | None = None) -> list[StoreQueue]:
    """Every queue of these stores, or of these topics, and what it has now.

    Raises StoreError when a directory is no store.
    """
    found: list[StoreQueue] = []
    for broker_name, directory in named_directories(directories).items():
        with OfflineStore(Path(directory)) as store:
            log = store.log
            for topic, queue_id, row in store.queues():
                if topics is None or topic in topics:
                    span = queue_span(row, log.min_offset)
                    end = whole_end(log, row, span.min_offset, span.max_offset)
                    found.append(StoreQueue(directory, broker_name, topic, queue_id, span.min_offset, end))
            for topic, queue_id, row in store.batch_queues():
                if topics is None or topic in topics:
                    span = batch_queue_span(row, log.min_offset)
                    found.append(
                        StoreQueue(directory, broker_name, topic, queue_id, span.min_offset, span.max_offset, True)
                    )
    return found


def offset_by_time(queue: StoreQueue, timestamp_ms: int) -> int:
    """The first offset of a queue that was stored at or after this time; its end when there is none."""
    if queue.is_of_batches:
        raise ConfigError(f"topic {queue.topic!r} has queues of batches, which cannot be searched by time")
    with OfflineStore(Path(queue.directory)) as store:
        row = store.queue(queue.topic, queue.queue_id)
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            if _store_time(store.log, row, middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low


def _store_time(log: SegmentRow, row: SegmentRow, queue_offset: int) -> int:
    entry = entry_at(row, queue_offset)
    head = log.read(entry.log_offset, 96) if entry is not None else b""
    if len(head) < 91:
        return -1  # gone: older than anything that is there
    return int(TIMESTAMP.unpack_from(head, store_timestamp_position(head[39]))[0])


def plan_store(
    directories: Sequence[str],
    ranges: Sequence[QueueRange],
    *,
    min_partitions: int = 1,
    piece_size: int = PIECE_SIZE,
    verify: bool = True,
    fail_on_data_loss: bool = True,
) -> list[StoreRange]:
    """The tasks that read these ranges, each message in exactly one of them.

    Ranges are cut to what the store has; what is missing at their starts or ends is a DataLossError unless
    `fail_on_data_loss` is off. Raises StoreError when a directory is no store.
    """
    named = named_directories(directories)
    wanted = {(each.broker_name, each.topic, each.queue_id) for each in ranges}
    queues = {
        (queue.broker_name, queue.topic, queue.queue_id): queue
        for queue in store_queues(directories, topics={topic for _, topic, _ in wanted})
    }
    pieces: list[StoreRange] = []
    plain: dict[str, list[QueueRange]] = {}
    for asked in ranges:
        queue = queues.get((asked.broker_name, asked.topic, asked.queue_id))
        there = _cut(asked, queue, fail_on_data_loss=fail_on_data_loss)
        if queue is None or there.start_offset >= there.end_offset:
            continue
        if queue.is_of_batches:
            pieces.append(StoreRange(queue.directory, asked.broker_name, (there,), True, verify))
        else:
            plain.setdefault(asked.broker_name, []).append(there)
    share = -(-max(min_partitions - len(pieces), 1) // max(len(plain), 1))
    for broker_name, some in plain.items():
        pieces.extend(
            StoreRange(named[broker_name], broker_name, each, False, verify)
            for each in _by_stretch(named[broker_name], some, share, piece_size)
        )
    return pieces


def _cut(asked: QueueRange, queue: StoreQueue | None, *, fail_on_data_loss: bool) -> QueueRange:
    first, end = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
    start_offset, end_offset = max(asked.start_offset, first), min(asked.end_offset, end)
    is_cut = asked.start_offset < asked.end_offset and (start_offset, end_offset) != (
        asked.start_offset,
        asked.end_offset,
    )
    if is_cut and fail_on_data_loss:
        raise DataLossError(
            f"offsets {asked.start_offset} to {asked.end_offset - 1} of topic {asked.topic!r}, broker "
            f"{asked.broker_name!r}, queue {asked.queue_id} were asked for, the store has {first} to {end - 1}; start "
            "later, or set failOnDataLoss to false to go on with what is there"
        )
    return replace(asked, start_offset=start_offset, end_offset=end_offset)


def _by_stretch(
    directory: str, ranges: Sequence[QueueRange], pieces_least: int, piece_size: int
) -> Iterator[tuple[QueueRange, ...]]:
    """The ranges divided by where their messages lie in the log."""
    with OfflineStore(Path(directory)) as store:
        rows = [store.queue(each.topic, each.queue_id) for each in ranges]
        places = [
            (_log_offset(row, each.start_offset), _log_offset(row, each.end_offset - 1))
            for row, each in zip(rows, ranges, strict=True)
        ]
        start, end = min(first for first, _ in places), max(last for _, last in places) + 1
        count = max(pieces_least, -(-(end - start) // piece_size))
        done = [each.start_offset for each in ranges]
        for number in range(1, count + 1):
            border = start + (end - start) * number // count
            piece: list[QueueRange] = []
            for index, (row, each) in enumerate(zip(rows, ranges, strict=True)):
                stop = each.end_offset if number == count else _first_at(row, border, done[index], each.end_offset)
                if stop > done[index]:
                    piece.append(replace(each, start_offset=done[index], end_offset=stop))
                done[index] = stop
            if piece:
                yield tuple(piece)


def _log_offset(row: SegmentRow, queue_offset: int) -> int:
    entry = entry_at(row, queue_offset)
    return entry.log_offset if entry is not None else 0


def _first_at(row: SegmentRow, log_offset: int, low: int, high: int) -> int:
    """The first entry that points to this place in the log or behind it."""
    while low < high:
        middle = (low + high) // 2
        if _log_offset(row, middle) < log_offset:
            low = middle + 1
        else:
            high = middle
    return low


def read_store(
    piece: StoreRange, columns: Sequence[str], *, batch_size: int = BATCH_SIZE, tags: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The messages of a piece in batches of about this many bytes, each queue in order.

    `tags` are those that are wanted; none means all. Raises StoreCorruptError for damage, and for files that the store
    has removed since the work was planned.
    """
    batches = RecordBatches(columns, broker_name=piece.broker_name, batch_size=batch_size, tags=tags)
    with OfflineStore(Path(piece.directory)) as store:
        if piece.is_of_batches:
            for each in piece.ranges:
                entries = BatchQueueEntries(
                    store.batch_queue(each.topic, each.queue_id), each.start_offset, each.end_offset
                )
                for placed in read_placed(store.log, [entries]):
                    check_placed(placed, bodies=piece.verify)
                    yield from batches.add(cut_records(placed.gathered(), each.start_offset, each.end_offset))
        else:
            queues = [
                QueueEntries(store.queue(each.topic, each.queue_id), each.start_offset, each.end_offset)
                for each in piece.ranges
            ]
            for placed in read_placed(store.log, queues):
                parts = check_placed(placed, bodies=piece.verify)
                if placed.sizes.sum() >= _DENSE * len(placed.data):
                    yield from batches.add_placed(placed.data, placed.positions, parts)
                else:
                    yield from batches.add(placed.gathered())
        yield from batches.flush()
