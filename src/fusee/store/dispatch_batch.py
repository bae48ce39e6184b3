"""A run of records of the log as arrays: what consume queues and index need, found without a loop per record.

A batch is a sequence of `Dispatched`, made one by one when somebody asks for them; who can, takes the arrays instead,
several times as fast: `groups` for consume queues, `index_keys` for the index. The two ways say the same (tests hold
them to it); where the arrays would not (`is_plain` is False: delayed messages, inner batches, text that is not ASCII,
a name that stands twice in one record's properties), whoever asks falls back to the objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import numpy as np

from fusee.message import properties as names
from fusee.message.hashing import tags_code
from fusee.message.properties import find_keys, find_property, find_tag, find_unique_id
from fusee.message.record_layout import TIMESTAMP, record_bounds, store_timestamp_position
from fusee.message.topics import SCHEDULE_TOPIC
from fusee.store.key_hash import topic_prefix_hash
from fusee.store.record_keys import find_keys_of
from fusee.store.record_places import are_equal
from fusee.store.record_scan import locate_fields, windows
from fusee.store.results import Dispatched

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from fusee.store.record_keys import RecordKeys

_PLACE: Final = Struct(">iiqqi")
_INNER_BATCH: Final = 0x80
_TRANSACTION_TYPE: Final = 0xC
_COMMIT: Final = 0x8
_ROLLBACK: Final = 0xC
_INNER_NUM: Final = names.INNER_NUM.encode()
_DELAY: Final = names.DELAY.encode()

ENTRY: Final = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


@lru_cache(maxsize=65_536)
def topic_text(raw: bytes) -> str:
    """The topic of these bytes, which come back with every message."""
    return raw.decode("utf-8", "replace")


@lru_cache(maxsize=65_536)
def key_prefixes(topic: str) -> tuple[int, int]:
    """Hashes of what stands before the keys of a topic in the index, and before its tags."""
    return topic_prefix_hash(topic), topic_prefix_hash(f"{topic}#T")  # among its keys a tag stands as `T#tag`


class QueueRun(NamedTuple):
    """Records of one queue, in order: their rows in the batch, and their consume queue entries as they are stored."""

    topic: str
    queue_id: int
    first_queue_offset: int
    is_consecutive: bool
    rows: NDArray[np.intp]
    entries: NDArray[Any]


class DispatchBatch(Sequence[Dispatched]):
    """Records that lie end to end in the log."""

    def __init__(
        self,
        view: memoryview,
        positions: NDArray[np.int64],
        log_offset: int,
        delay_ms_of: Callable[[int], int | None],
    ) -> None:
        """Raises RecordError naming the position of a record that does not hold together."""
        self._view = view
        self._fields = fields = locate_fields(view, positions)
        self._delay_ms_of = delay_ms_of
        self._positions = positions
        self._base = log_offset
        self.log_offsets: NDArray[np.int64] = positions + log_offset
        self.sizes = fields.sizes
        self.queue_ids = fields.queue_ids
        self.queue_offsets = fields.queue_offsets
        self.sys_flags = fields.sys_flags
        self.store_timestamps_ms = fields.store_timestamps_ms

    # As a sequence of objects

    def __len__(self) -> int:
        return len(self.log_offsets)

    @overload
    def __getitem__(self, index: int) -> Dispatched: ...

    @overload
    def __getitem__(self, index: slice) -> list[Dispatched]: ...

    def __getitem__(self, index: int | slice) -> Dispatched | list[Dispatched]:
        return self.objects[index]

    def __iter__(self) -> Iterator[Dispatched]:
        return iter(self.objects)

    @property
    def last_log_offset(self) -> int:
        return int(self.log_offsets[-1])

    @property
    def last_timestamp_ms(self) -> int:
        return int(self.store_timestamps_ms[-1])

    @cached_property
    def objects(self) -> list[Dispatched]:
        """Every record by itself."""
        view, delay_ms_of = self._view, self._delay_ms_of
        base, end = self._base, len(view)
        return [read_dispatched(view, position, end, base, delay_ms_of) for position in self._positions.tolist()]

    # As arrays

    def concerns(self, topics: Collection[str], sys_flag_mask: int, sys_flag: int) -> bool:
        """Whether any record has one of these topics, or these bits in its system flag."""
        return any(topic in topics for topic in self.topics) or bool(
            ((self.sys_flags & sys_flag_mask) == sys_flag).any()
        )

    @cached_property
    def topics(self) -> list[str]:
        """The topics that occur, by the numbers in `topic_ids`."""
        return self._topics[0]

    @property
    def topic_ids(self) -> NDArray[np.intp]:
        """Which of `topics` each record has."""
        return self._topics[1]

    @cached_property
    def _topics(self) -> tuple[list[str], NDArray[np.intp]]:
        fields = self._fields
        data = np.frombuffer(self._view, np.uint8)
        if are_equal(data, fields.topic_start, fields.topic_end):
            # most of what arrives together is of one topic
            first = self._view[int(fields.topic_start[0]) : int(fields.topic_end[0])]
            return [topic_text(bytes(first))], np.zeros(len(self), np.intp)
        sizes = fields.topic_end - fields.topic_start
        ids = np.zeros(len(sizes), np.intp)
        topics: list[str] = []
        for size in np.unique(sizes).tolist():
            rows = np.flatnonzero(sizes == size)
            if size == 0:
                ids[rows] = len(topics)
                topics.append("")
                continue
            names_of_size = windows(data, f"V{size}")[fields.topic_start[rows]]
            found, numbers = _unique_rows(names_of_size)
            ids[rows] = numbers + len(topics)
            topics += [topic_text(raw) for raw in found]
        return topics, ids

    @cached_property
    def is_plain(self) -> bool:
        """Whether the arrays say the same as the objects."""
        if (self.sys_flags & _INNER_BATCH).any() or SCHEDULE_TOPIC in self.topics:
            return False
        return self._keys is not None

    @cached_property
    def _keys(self) -> RecordKeys | None:
        return find_keys_of(self._view, self._fields.properties_start, self._fields.record_end)

    @property
    def tags_codes(self) -> NDArray[np.int64]:
        """The tag's hash of each record, 0 without a tag. Only when `is_plain`."""
        assert self._keys is not None
        return self._keys.tags_codes

    def groups(self) -> Iterator[QueueRun]:
        """The records that make consume queue entries, by queue. Only when `is_plain`."""
        kinds = self.sys_flags & _TRANSACTION_TYPE
        entries = np.empty(len(self), ENTRY)
        entries["log_offset"] = self.log_offsets
        entries["size"] = self.sizes
        entries["tags_code"] = self.tags_codes
        width = int(self.queue_ids.max()) + 1
        numbers = self.topic_ids * width + self.queue_ids
        # what came in batches lies in order of its queue already, or all in one
        is_sorted = not (numbers[1:] < numbers[:-1]).any()
        order = np.arange(len(numbers)) if is_sorted else np.argsort(numbers, kind="stable")
        if kinds.any():
            order = order[((kinds == 0) | (kinds == _COMMIT))[order]]
            if not len(order):
                return
        sorted_numbers = numbers[order]
        borders = np.flatnonzero(sorted_numbers[1:] != sorted_numbers[:-1]) + 1
        starts = [0, *borders.tolist()]
        stops = [*borders.tolist(), len(order)]
        ordered = entries[order]
        queue_offsets = self.queue_offsets[order]
        # Within a run the difference to the row number is the same everywhere.
        steps = queue_offsets - np.arange(len(order))
        breaks = np.flatnonzero(steps[1:] != steps[:-1]) + 1
        broken = frozenset(breaks.tolist()) - frozenset(borders.tolist())
        for start, stop in zip(starts, stops, strict=True):
            number = int(sorted_numbers[start])
            consecutive = not broken or not any(start < at < stop for at in broken)
            yield QueueRun(
                self.topics[number // width],
                number % width,
                int(queue_offsets[start]),
                consecutive,
                order[start:stop],
                ordered[start:stop],
            )

    def index_keys(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """(hash as an index stores it, row) of every unique key, key and tag, in order. Only when `is_plain`."""
        assert self._keys is not None
        prefixes = np.array([key_prefixes(topic) for topic in self.topics], np.uint32)
        is_kept = (self.sys_flags & _TRANSACTION_TYPE) != _ROLLBACK
        return self._keys.index_keys(prefixes, self.topic_ids, is_kept)


def read_dispatched(
    view: memoryview, position: int, end: int, base: int, delay_ms_of: Callable[[int], int | None]
) -> Dispatched:
    """The record at this position; `base` is the log offset of the view's start. Raises RecordError."""
    body_start, _, topic_start, properties_start, record_end = record_bounds(view, position, end)
    queue_id, _, queue_offset, _, sys_flag = _PLACE.unpack_from(view, position + 12)
    # Store timestamp, store host, reconsume times and prepared transaction offset stand before the body's length.
    (prepared,) = TIMESTAMP.unpack_from(view, body_start - 12)
    (store_timestamp_ms,) = TIMESTAMP.unpack_from(view, position + store_timestamp_position(sys_flag))
    topic = topic_text(bytes(view[topic_start : properties_start - 2]))
    properties = bytes(view[properties_start:record_end])
    tag = find_tag(properties)
    unique = find_unique_id(properties)
    keys = find_keys(properties)
    code = tags_code(tag) if tag else 0
    count = 0
    if topic == SCHEDULE_TOPIC:
        level = find_property(properties, _DELAY)
        delay_ms = delay_ms_of(int(level)) if level and level.isdigit() else None
        if delay_ms is not None:
            code = store_timestamp_ms + delay_ms
    if sys_flag & _INNER_BATCH:
        number = find_property(properties, _INNER_NUM)
        count = int(number) if number and number.isdigit() else 1
    return Dispatched(
        topic,
        queue_id,
        queue_offset,
        base + position,
        record_end - position,
        code,
        store_timestamp_ms,
        sys_flag,
        prepared,
        unique.decode("utf-8", "replace") if unique else "",
        _tokens(keys.decode("utf-8", "replace")) if keys else (),
        properties,
        count,
    )


def _tokens(keys: str) -> tuple[str, ...]:
    return tuple(token for token in keys.split(" ") if token)


def _unique_rows(rows: NDArray[Any]) -> tuple[list[bytes], NDArray[np.intp]]:
    """The different byte strings of equal size, and which each row is."""
    size = rows.dtype.itemsize
    table = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), size)
    if (table == table[0]).all():
        return [table[0].tobytes()], np.zeros(len(rows), np.intp)
    found: dict[bytes, int] = {}
    numbers = np.fromiter((found.setdefault(raw, len(found)) for raw in rows.tolist()), dtype=np.intp, count=len(rows))
    return list(found), numbers
