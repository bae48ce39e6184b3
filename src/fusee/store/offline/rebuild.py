"""Consume queues and index of a log, made again in pieces that need not know each other.

A segment holds whole records, so segments can be scanned on their own (`scan_segment`): what comes out are rows for
consume queues and for the index, in log order. Whoever has all rows of a queue in log order writes that queue
(`QueueWriter`); whoever has all entries of one index file writes that file (`write_index_file`). Both go through the
code by which the broker itself writes them, so that the bytes are the broker's. How rows travel between is the caller's
business: by a shuffle of Spark, or in a loop.

An index file takes a fixed number of entries, so which file an entry belongs to follows from its number in the whole
log. Two things in a broker's own files are a matter of chance, and may differ: the mark in the unused entry 0, which
says what had been synced at some time and here says that all is; and whether a full file says that records without
keys behind its last entry were looked at too.
"""

from __future__ import annotations

import time
from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fusee.errors import RecordError, StoreCorruptError
from fusee.message.properties import find_tag
from fusee.store.consume_queue import ENTRY_DTYPE, ConsumeQueue
from fusee.store.dispatch_batch import DispatchBatch
from fusee.store.filesystem import OsFileSystem
from fusee.store.index import tag_key
from fusee.store.index_file import IndexFile, IndexShape
from fusee.store.key_hash import index_hashes, joined_hashes, topic_prefix_hash
from fusee.store.layout import StorePaths
from fusee.store.offline.files import Descriptors, SegmentRow
from fusee.store.queue_table import QueueTable
from fusee.store.record_scan import check_stop, find_records, locate_parts
from fusee.store.results import Dispatched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fusee.store.config import StoreConfig

_CHUNK: Final = 2 << 20
_RECORDS_MAX: Final = 2048
_TRANSACTION_TYPE: Final = 0xC
_COMMIT: Final = 0x8
_ROLLBACK: Final = 0xC


class QueueRows(NamedTuple):
    """Records that stand in a consume queue, in log order."""

    topics: list[str]
    queue_ids: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    log_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    tags_codes: NDArray[np.int64]
    store_timestamps_ms: NDArray[np.int64]
    batch_counts: NDArray[np.int64]


class IndexRows(NamedTuple):
    """Entries of the index, in the order in which they are entered."""

    hashes: NDArray[np.int64]
    log_offsets: NDArray[np.int64]
    store_timestamps_ms: NDArray[np.int64]


class Scanned(NamedTuple):
    """A run of records of one segment: rows for both, and the first and last record."""

    queues: QueueRows
    keys: IndexRows
    first: tuple[int, int]
    """Log offset and store time of the first record."""
    last: tuple[int, int]
    """The same of the last one."""


def segments(store: Path) -> list[tuple[Path, int]]:
    """The files of the log and the log offset at which each begins, in order."""
    descriptors = Descriptors()
    try:
        row = SegmentRow(StorePaths(store).commit_log, descriptors)
        return [(segment.path, segment.base_offset) for segment in row.segments]
    finally:
        descriptors.close()


def scan_segment(path: Path, base_offset: int, config: StoreConfig, *, is_last: bool = False) -> Iterator[Scanned]:
    """The records of one file of the log, run after run. Raises StoreCorruptError where something is no record.

    In the last file that is where the log ends: a crash may have torn what was being written.
    """
    with path.open("rb") as file:
        # Never closed by hand: arrays that point into it live as long as they are used.
        view = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
    position = 0
    while position < len(view):
        found, stop = find_records(view, position, from_log=True, size_max=_CHUNK)
        if is_last and (good := _whole_records(view, found)) < len(found):
            found, stop = found[:good], position
        try:
            for start in range(0, len(found), _RECORDS_MAX):
                yield _scanned(view, found[start : start + _RECORDS_MAX], base_offset, config)
            if stop < position + _CHUNK:
                if is_last:
                    return
                check_stop(view, stop, from_log=True)
        except RecordError as error:
            raise StoreCorruptError(f"{path}: {error}; `fusee store verify` tells more") from error
        if stop == position:
            return
        position = stop


def _whole_records(view: memoryview, positions: NDArray[np.int64]) -> int:
    """How many of these places, from the first on, hold a record that holds together."""
    try:
        locate_parts(view, positions)
    except RecordError:
        for number in range(len(positions)):
            try:
                locate_parts(view, positions[number : number + 1])
            except RecordError:
                return number
    return len(positions)


def _scanned(view: memoryview, positions: NDArray[np.int64], base_offset: int, config: StoreConfig) -> Scanned:
    # A view of these records alone: what a batch looks at begins at 0.
    first = int(positions[0])
    batch = DispatchBatch(view[first:], positions - first, base_offset + first, config.delay_ms_of)
    ends = (
        (int(batch.log_offsets[0]), int(batch.store_timestamps_ms[0])),
        (batch.last_log_offset, batch.last_timestamp_ms),
    )
    if batch.is_plain:
        hashes, rows = batch.index_keys()
        index = IndexRows(hashes, batch.log_offsets[rows], batch.store_timestamps_ms[rows])
        return Scanned(_plain_rows(batch), index, *ends)
    return Scanned(_rows_of(batch.objects), _index_of(batch.objects), *ends)


def _plain_rows(batch: DispatchBatch) -> QueueRows:
    kind = batch.sys_flags & _TRANSACTION_TYPE
    rows = np.flatnonzero((kind == 0) | (kind == _COMMIT))
    topics, ids = batch.topics, batch.topic_ids[rows]
    return QueueRows(
        [topics[number] for number in ids.tolist()],
        batch.queue_ids[rows],
        batch.queue_offsets[rows],
        batch.log_offsets[rows],
        batch.sizes[rows],
        batch.tags_codes[rows],
        batch.store_timestamps_ms[rows],
        np.zeros(len(rows), np.int64),
    )


def _rows_of(records: Sequence[Dispatched]) -> QueueRows:
    kept = [one for one in records if one.sys_flag & _TRANSACTION_TYPE in (0, _COMMIT)]
    return QueueRows(
        [one.topic for one in kept],
        np.array([one.queue_id for one in kept], np.int64),
        np.array([one.queue_offset for one in kept], np.int64),
        np.array([one.log_offset for one in kept], np.int64),
        np.array([one.size for one in kept], np.int64),
        np.array([one.tags_code for one in kept], np.int64),
        np.array([one.store_timestamp_ms for one in kept], np.int64),
        np.array([one.batch_count for one in kept], np.int64),
    )


def _index_of(records: Sequence[Dispatched]) -> IndexRows:
    prefixes: list[int] = []
    keys: list[str] = []
    places: list[Dispatched] = []
    for one in records:
        if one.sys_flag & _TRANSACTION_TYPE == _ROLLBACK:
            continue
        tokens = (one.unique_key, *one.keys) if one.unique_key else one.keys
        tag = find_tag(one.properties)
        if tag is not None:
            tokens = (*tokens, tag_key(tag.decode("utf-8", "replace")))
        prefixes += [topic_prefix_hash(one.topic)] * len(tokens)
        keys += tokens
        places += [one] * len(tokens)
    hashes = index_hashes(joined_hashes(prefixes, keys)) if keys else np.zeros(0, np.int64)
    return IndexRows(
        hashes,
        np.array([one.log_offset for one in places], np.int64),
        np.array([one.store_timestamp_ms for one in places], np.int64),
    )


class QueueWriter:
    """Writes consume queues below a folder; rows of one queue come in log order."""

    def __init__(self, target: Path, config: StoreConfig) -> None:
        self._table = QueueTable(StorePaths(target), config, OsFileSystem())

    def write(self, topic: str, queue_id: int, rows: QueueRows) -> None:
        """Adds these rows, all of this queue."""
        queue = self._table.get(topic, queue_id)
        consecutive = len(rows.queue_offsets) < 2 or bool((np.diff(rows.queue_offsets) == 1).all())
        if isinstance(queue, ConsumeQueue) and consecutive and not rows.batch_counts.any():
            entries = np.empty(len(rows.log_offsets), ENTRY_DTYPE)
            entries["log_offset"], entries["size"] = rows.log_offsets, rows.sizes
            entries["tags_code"] = rows.tags_codes
            if queue.append_packed(int(rows.queue_offsets[0]), entries):
                return
        self._table.accept(
            [
                Dispatched(
                    topic, queue_id, queue_offset, log_offset, size, tags_code, stored_ms, 0, 0, "", (), b"", count
                )
                for queue_offset, log_offset, size, tags_code, stored_ms, count in zip(
                    *(column.tolist() for column in rows[2:]), strict=True
                )
            ]
        )

    def close(self) -> None:
        """Everything is on disk."""
        for file in self._table.collect_dirty():
            file.sync()
        self._table.close()


def index_shape(config: StoreConfig) -> IndexShape:
    """Slots and entries of each file."""
    return IndexShape(config.max_hash_slot_num, config.max_index_num)


def entries_per_file(shape: IndexShape) -> int:
    """How many entries a file takes; its first one is never used."""
    return shape.entries - 1


def index_name(store_timestamp_ms: int, number: int) -> str:
    """A name for a file that begins with a record of this time; names of files in a row must be in order."""
    local = time.strftime("%Y%m%d%H%M%S", time.localtime(store_timestamp_ms // 1000))
    return f"{int(f'{local}{store_timestamp_ms % 1000:03d}') + number:017d}"


def write_index_file(
    path: Path,
    config: StoreConfig,
    pieces: Iterator[IndexRows],
    *,
    begin: tuple[int, int] | None,
    end: tuple[int, int] | None,
) -> int:
    """Makes one file of these entries, in order; how many. On disk when this returns.

    `begin` is the record that the file begins with, its first entry's when None; `end` the last record that was
    looked at, its last entry's when None.
    """
    files = OsFileSystem()
    files.make_folder(path.parent)
    made: IndexFile | None = None
    count = 0
    for rows in pieces:
        if not len(rows.hashes):
            continue
        if made is None:
            log_offset, timestamp_ms = begin or (int(rows.log_offsets[0]), int(rows.store_timestamps_ms[0]))
            made = IndexFile.create(path, index_shape(config), files, log_offset=log_offset, timestamp_ms=timestamp_ms)
        made.append(rows.hashes, rows.log_offsets, rows.store_timestamps_ms)
        count += len(rows.hashes)
    if made is None and begin is not None:
        made = IndexFile.create(path, index_shape(config), files, log_offset=begin[0], timestamp_ms=begin[1])
    if made is None:
        return 0
    if end is not None:
        made.cover(*end)
    # What is on disk, and then the mark that says so.
    for _ in range(2):
        file = made.collect(thorough=True)
        if file is not None:
            file.sync()
    made.release()
    files.sync_folder(path.parent)
    return count
