"""A get: from a queue's entries to slices of the log (Java: DefaultMessageStore.getMessage).

A get walks over the entries of one file of a queue from an offset on, leaves out what the filter does not want and
what is not in the log any more, and stops at the first entry that would break a limit; that entry is where the next
get begins. The first message found is given whatever its size. Limits, besides those of the caller:

    in memory     records near the end of the log           256 KiB, 32 messages
    on disk       records further back than the machine's   64 KiB, 8 messages
                  memory times access_message_in_memory_max_ratio
    looked at     entries, wanted or not                    16,000 bytes of them, or as many as the caller wants

The limits hold for every entry on the way, also for one that the filter leaves out. An offset outside of the queue
is answered with the offset to go on from; a replica that does not check offsets leaves it as it is.

Records that lie next to each other in the log become one slice, so 32 messages of a busy queue are one memoryview
from the page cache to the socket. There are three ways through, with the same results: entries of which all are
wanted (one unpack, no loop per message when they are adjacent); entries filtered by tag (NumPy over all that may be
looked at); and everything else, one entry after the other.
"""

from __future__ import annotations

import os
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from fusee.errors import RecordError, StoreCorruptError
from fusee.message.record_layout import record_bounds
from fusee.store.consume_queue import BLANK_SIZE, EXTENSION_ADDRESS_MAX, ConsumeQueue, matches_tags
from fusee.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fusee.store.config import StoreConfig
    from fusee.store.queue_table import Queue, QueueTable

    Predicate = Callable[[bytes], bool]
    """Whether a record is wanted, by its raw properties."""

BYTES_MAX: Final = 64 * 1024 * 1024
BYTES_MIN: Final = 100
_UNPACKED_MAX: Final = 64
_FILTERED_MAX: Final = 16_384
_INT32_MAX: Final = 2_147_483_647


class Log(Protocol):
    """What a get asks of the log."""

    @property
    def end_offset(self) -> int: ...

    def slice(self, log_offset: int, size: int) -> memoryview | None: ...


def read_messages(
    log: Log,
    queues: QueueTable,
    config: StoreConfig,
    topic: str,
    queue_id: int,
    queue_offset: int,
    max_count: int,
    max_bytes: int | None = None,
    *,
    tags_codes: frozenset[int] | None = None,
    predicate: Predicate | None = None,
    memory_size: int | None = None,
    correct_offset: bool = True,
) -> GetResult:
    """Messages of a queue from an offset on.

    `tags_codes` and `predicate` say which are wanted; None means all. `memory_size` is how much of the end of the log
    counts as being in memory. `correct_offset` is False on a replica without offsetCheckInSlave.
    """
    queue = queues.get(topic, queue_id)
    if queue is None:
        next_offset = 0 if correct_offset else queue_offset
        return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, next_offset, 0, 0)
    min_offset, max_offset = queue.min_offset, queue.next_offset
    if not min_offset <= queue_offset < max_offset:
        return _outside(queue_offset, min_offset, max_offset, correct_offset=correct_offset)
    if memory_size is None:
        memory_size = in_memory_size(config)
    get = _Get(log, config, queue, queue_offset, max_count, max_bytes, memory_size)
    if not (
        isinstance(queue, ConsumeQueue)
        and predicate is None
        and (get.take_all(queue, tags_codes) or (tags_codes is not None and get.take_tagged(queue, tags_codes)))
    ):
        get.take_each(tags_codes, predicate, correct_offset=correct_offset)
    return get.result()


def _outside(queue_offset: int, min_offset: int, max_offset: int, *, correct_offset: bool) -> GetResult:
    if max_offset == 0:
        status, next_offset = GetStatus.NO_MESSAGE_IN_QUEUE, 0
    elif queue_offset < min_offset:
        status, next_offset = GetStatus.OFFSET_TOO_SMALL, min_offset
    elif queue_offset == max_offset:
        status, next_offset = GetStatus.OFFSET_OVERFLOW_ONE, queue_offset
    else:
        status, next_offset = GetStatus.OFFSET_OVERFLOW_BADLY, max_offset
    return GetResult(status, next_offset if correct_offset else queue_offset, min_offset, max_offset)


class _Get:
    """One get: its limits, and what it has found."""

    __slots__ = (
        "_config",
        "_log",
        "_queue",
        "bytes_max",
        "count",
        "count_max",
        "last_log_offset",
        "log_end",
        "looked_at_max",
        "memory_size",
        "next_offset",
        "queue_offset",
        "queue_offsets",
        "size",
        "slices",
        "status",
    )

    def __init__(
        self,
        log: Log,
        config: StoreConfig,
        queue: Queue,
        queue_offset: int,
        max_count: int,
        max_bytes: int | None,
        memory_size: int,
    ) -> None:
        self._log = log
        self._config = config
        self._queue = queue
        self.queue_offset = queue_offset
        self.count_max = max_count
        self.bytes_max = BYTES_MAX if max_bytes is None else min(max(max_bytes, BYTES_MIN), BYTES_MAX)
        self.memory_size = memory_size
        self.log_end = log.end_offset
        looked_at = max(config.max_filter_message_size, max_count * queue.entry_size)
        self.looked_at_max = -(-looked_at // queue.entry_size)
        self.status = GetStatus.NO_MATCHED_MESSAGE
        self.next_offset = queue_offset
        self.last_log_offset = 0
        self.count = 0
        self.size = 0
        self.slices: list[memoryview] = []
        self.queue_offsets: Sequence[int] = ()

    def result(self) -> GetResult:
        queue = self._queue
        return GetResult(
            self.status,
            self.next_offset,
            queue.min_offset,
            queue.next_offset,
            self.slices,
            self.count,
            self.size,
            self.queue_offsets,
            self.log_end - self.last_log_offset > self.memory_size,
        )

    def _limits(self, *, in_memory: bool) -> tuple[int, int]:
        """(messages, bytes) that may be given."""
        config = self._config
        if in_memory:
            count = config.max_transfer_count_on_message_in_memory
            size = config.max_transfer_bytes_on_message_in_memory
        else:
            count = config.max_transfer_count_on_message_in_disk
            size = config.max_transfer_bytes_on_message_in_disk
        return max(min(self.count_max, count), 1), min(self.bytes_max, size)

    def _is_in_memory(self, first: int, last: int) -> bool | None:
        """Whether the records from one log offset to another are; None when some are and some are not."""
        is_first = self.log_end - first <= self.memory_size
        return is_first if (self.log_end - last <= self.memory_size) == is_first else None

    def take_all(self, queue: ConsumeQueue, tags_codes: frozenset[int] | None) -> bool:
        """Take the next messages when all of them are wanted and there; whether that was so."""
        count_max, bytes_max = self._limits(in_memory=True)
        raw = queue.read(self.queue_offset, min(count_max, _UNPACKED_MAX))
        count = len(raw) // queue.entry_size
        if count == 0 or (count == _UNPACKED_MAX and count < count_max):
            return False
        fields = _entries_struct(count).unpack(raw)
        log_offsets, sizes = fields[0::3], fields[1::3]
        in_memory = self._is_in_memory(log_offsets[0], log_offsets[-1])
        if in_memory is not True:
            disk_count_max, bytes_max = self._limits(in_memory=False)
            if in_memory is None or disk_count_max > count_max:
                return False
            if count > disk_count_max:
                count = disk_count_max
                log_offsets, sizes = log_offsets[:count], sizes[:count]
        if tags_codes is not None and not tags_codes.issuperset(fields[2 : count * 3 : 3]):
            return False
        size = sum(sizes)
        if size > bytes_max and count > 1:
            size = sizes[0]
            count = 1
            while size + sizes[count] <= bytes_max:
                size += sizes[count]
                count += 1
            log_offsets, sizes = log_offsets[:count], sizes[:count]
        if log_offsets[-1] + sizes[-1] - log_offsets[0] == size:
            # Records do not overlap, so their sizes add up to the distance only when there is nothing between them.
            found = self._log.slice(log_offsets[0], size)
            if found is None:
                return False
            self.slices = [found]
        elif not self._slice_runs(log_offsets, sizes):
            return False
        self.status = GetStatus.FOUND
        self.count = count
        self.size = size
        self.queue_offsets = range(self.queue_offset, self.queue_offset + count)
        self.next_offset = self.queue_offset + count
        self.last_log_offset = log_offsets[-1]
        return True

    def take_tagged(self, queue: ConsumeQueue, tags_codes: frozenset[int]) -> bool:
        """Take those of the next messages that have these tags; whether all that came up are there."""
        if self.looked_at_max > _FILTERED_MAX:
            return False
        entries = queue.entries(self.queue_offset, self.looked_at_max)
        all_sizes = entries["size"].astype(np.int64)
        if not len(entries) or int(all_sizes.max()) == BLANK_SIZE:
            return False
        in_memory = self._is_in_memory(int(entries["log_offset"][0]), int(entries["log_offset"][-1]))
        if in_memory is None:
            return False
        count_max, bytes_max = self._limits(in_memory=in_memory)
        wanted = np.flatnonzero(matches_tags(entries["tags_code"], tags_codes))[:count_max]
        taken: list[int] = wanted.tolist()
        sizes: list[int] = all_sizes[wanted].tolist()
        size = sum(sizes)
        stop = taken[-1] + 1 if len(taken) == count_max else len(entries)
        if size + int(all_sizes.max()) > bytes_max:
            stop = _first_over(all_sizes, taken, sizes, bytes_max, stop)
            taken = [index for index in taken if index < stop]
            sizes = sizes[: len(taken)]
            size = sum(sizes)
        if taken:
            log_offsets = entries["log_offset"][taken].tolist()
            if not self._slice_runs(log_offsets, sizes):
                return False
            self.status = GetStatus.FOUND
            self.queue_offsets = [self.queue_offset + index for index in taken]
        self.count = len(taken)
        self.size = size
        self.next_offset = self.queue_offset + stop
        self.last_log_offset = int(entries["log_offset"][stop - 1])
        return True

    def take_each(
        self, tags_codes: frozenset[int] | None, predicate: Predicate | None, *, correct_offset: bool
    ) -> None:
        """Look at one entry after the other."""
        log = self._log
        looked_at = False
        queue_offsets: list[int] = []
        run_start = run_end = -1
        for base_offset, log_offset, size, tags_code, count in self._queue.units(self.queue_offset, self.looked_at_max):
            looked_at = True
            if (base_offset - self.queue_offset) >= self.looked_at_max or self._is_full(log_offset, size, count):
                break
            self.last_log_offset = log_offset
            self.next_offset = base_offset + count
            if tags_codes is not None and not _is_tagged(tags_code, tags_codes):
                self._not_found(GetStatus.NO_MATCHED_MESSAGE)
                continue
            record = None if size == BLANK_SIZE else log.slice(log_offset, size)
            if record is None:
                self._not_found(GetStatus.MESSAGE_WAS_REMOVING)
                continue
            if predicate is not None and not predicate(_properties(record, log_offset)):
                self._not_found(GetStatus.NO_MATCHED_MESSAGE)
                continue
            merged = log.slice(run_start, log_offset + size - run_start) if log_offset == run_end else None
            if merged is not None:
                self.slices[-1] = merged
            else:
                self.slices.append(record)
                run_start = log_offset
            run_end = log_offset + size
            self.status = GetStatus.FOUND
            self.count += count
            self.size += size
            queue_offsets.append(base_offset)
        self.queue_offsets = queue_offsets
        if not looked_at:
            self.status = GetStatus.OFFSET_FOUND_NULL
            if correct_offset:
                self.next_offset = self._queue.next_file(self.queue_offset)

    def _is_full(self, log_offset: int, size: int, count: int) -> bool:
        """Whether an entry would break a limit."""
        if self.size == 0:
            return False
        if self.count + count > self.count_max:
            return True
        config = self._config
        if self.log_end - log_offset <= self.memory_size:
            size_max = config.max_transfer_bytes_on_message_in_memory
            is_enough = self.count >= config.max_transfer_count_on_message_in_memory
        else:
            size_max = config.max_transfer_bytes_on_message_in_disk
            is_enough = self.count >= config.max_transfer_count_on_message_in_disk
        return is_enough or self.size + size > min(size_max, self.bytes_max) or self.size >= self.bytes_max

    def _not_found(self, status: GetStatus) -> None:
        if self.size == 0:
            self.status = status

    def _slice_runs(self, log_offsets: Sequence[int], sizes: Sequence[int]) -> bool:
        """Slice the log once for each run of adjacent records; whether all are there."""
        runs: list[tuple[int, int]] = []
        start = end = log_offsets[0]
        for log_offset, size in zip(log_offsets, sizes, strict=True):
            if log_offset != end:
                runs.append((start, end))
                start = log_offset
            end = log_offset + size
        runs.append((start, end))
        # Slicing a slice is cheaper than asking the log, and they are mostly in one segment.
        first = log_offsets[0]
        whole = self._log.slice(first, end - first)
        if whole is not None:
            self.slices = [whole[start - first : end - first] for start, end in runs]
            return True
        slices = [found for start, end in runs if (found := self._log.slice(start, end - start)) is not None]
        if len(slices) < len(runs):
            return False
        self.slices = slices
        return True


def _first_over(all_sizes: NDArray[np.int64], taken: list[int], sizes: list[int], bytes_max: int, stop: int) -> int:
    """The first entry, wanted or not, that does not fit behind the ones taken before it; `stop` when all fit."""
    size = 0
    for number, index in enumerate(taken):
        size += sizes[number]
        end = taken[number + 1] + 1 if number + 1 < len(taken) else stop
        over = np.flatnonzero(all_sizes[index + 1 : end] > bytes_max - size)
        if len(over):
            return index + 1 + int(over[0])
    return stop


def _is_tagged(tags_code: int, wanted: frozenset[int]) -> bool:
    if tags_code <= EXTENSION_ADDRESS_MAX:
        return True
    return (tags_code + _INT32_MAX + 1 & 0xFFFFFFFF) - _INT32_MAX - 1 in wanted


def _properties(record: memoryview, log_offset: int) -> bytes:
    try:
        _, _, _, properties_start, end = record_bounds(record, 0, len(record))
    except RecordError as error:
        raise StoreCorruptError(f"a queue points to log offset {log_offset}, where no record is: {error}") from error
    return bytes(record[properties_start:end])


@lru_cache(maxsize=_UNPACKED_MAX)
def _entries_struct(count: int) -> Struct:
    return Struct(">" + "qiq" * count)


def in_memory_size(config: StoreConfig) -> int:
    """How much of the end of the log counts as being in memory."""
    return _memory_size(config.access_message_in_memory_max_ratio)


@lru_cache(maxsize=8)
def _memory_size(percent: int) -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * percent // 100
