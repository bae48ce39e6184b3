"""The records of one batch as arrays, known since they were packed: dispatching them need not read the log again.

Such a batch is of one topic, one queue and one moment, its queue offsets follow each other, and its keys were hashed
while the bytes were at hand. It says what a `DispatchBatch` that reads the same records from the log would say (tests
hold it to that). Whoever wants the records as objects has them read from the log after all.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from fusee.message.topics import SCHEDULE_TOPIC
from fusee.store.dispatch_batch import ENTRY, DispatchBatch, QueueRun, key_prefixes, read_dispatched

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from numpy.typing import NDArray

    from fusee.store.batch_body import PackedKeys
    from fusee.store.commit_log import CommitLog
    from fusee.store.new_batch import Packed
    from fusee.store.new_record import NewRecord
    from fusee.store.results import Dispatched

# Transactions and inner batches: dispatching them is another matter.
_UNUSUAL: Final = 0xC | 0x80


def note_batch(
    log: CommitLog,
    packed: Packed,
    record: NewRecord,
    queue_offset: int,
    log_offset: int,
    timestamp_ms: int,
    delay_ms_of: Callable[[int], int | None],
) -> PackedBatch | None:
    """What is to be dispatched of these records, which have this in common; None when only the log tells."""
    if packed.keys is None:
        return None
    return PackedBatch(log, packed.starts, packed.keys, record, queue_offset, log_offset, timestamp_ms, delay_ms_of)


def note_prefixes(record: NewRecord) -> tuple[int, int] | None:
    """The hashes of what stands before keys and tags of these records; None when only the log tells of them."""
    if record.sys_flag & _UNUSUAL or record.topic == SCHEDULE_TOPIC:
        return None
    return key_prefixes(record.topic)


class PackedBatch(DispatchBatch):
    """Records that were packed together."""

    def __init__(
        self,
        log: CommitLog,
        starts: NDArray[np.int64],
        keys: PackedKeys,
        record: NewRecord,
        queue_offset: int,
        log_offset: int,
        timestamp_ms: int,
        delay_ms_of: Callable[[int], int | None],
    ) -> None:
        count = len(starts) - 1
        self._log = log
        self._topic = record.topic
        self._queue_id = record.queue_id
        self._queue_offset = queue_offset
        self._sys_flag = record.sys_flag
        self._timestamp_ms = timestamp_ms
        self._delay_ms_of = delay_ms_of
        self.first_log_offset = log_offset
        self.end_offset = log_offset + int(starts[-1])
        places = starts + log_offset
        self.log_offsets = places[:-1]
        self.sizes = starts[1:] - starts[:-1]
        entries = np.empty(count, ENTRY)
        entries["log_offset"] = self.log_offsets
        entries["size"] = self.sizes
        self._tags_codes, hashes, rows = keys
        entries["tags_code"] = self._tags_codes
        self._entries = entries
        self._index_keys = hashes, rows
        self.store_timestamps_ms = np.full(count, timestamp_ms, np.int64)

    @property
    def last_timestamp_ms(self) -> int:
        return self._timestamp_ms

    @cached_property
    def objects(self) -> list[Dispatched]:
        view = self._log.chunk(self.first_log_offset, self.end_offset - self.first_log_offset)
        base, end = self.first_log_offset, len(view)
        return [
            read_dispatched(view, position - base, end, base, self._delay_ms_of)
            for position in self.log_offsets.tolist()
        ]

    def concerns(self, topics: Collection[str], sys_flag_mask: int, sys_flag: int) -> bool:
        return self._topic in topics or self._sys_flag & sys_flag_mask == sys_flag

    @cached_property
    def topics(self) -> list[str]:
        return [self._topic]

    @property
    def topic_ids(self) -> NDArray[np.intp]:
        return np.zeros(len(self), np.intp)

    @cached_property
    def is_plain(self) -> bool:
        return True

    @property
    def tags_codes(self) -> NDArray[np.int64]:
        return self._tags_codes

    def groups(self) -> Iterator[QueueRun]:
        rows = np.arange(len(self))
        yield QueueRun(self._topic, self._queue_id, self._queue_offset, True, rows, self._entries)

    def index_keys(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        return self._index_keys
