"""Finding single records: by key, by unique key, by tag, by where they lie (Java: the queryMessage family).

The index knows hashes and seconds; here each record that it names is read and compared: topic, the text of the key, and
the store time to the millisecond. So an answer holds only records that carry the key, and records with an equal hash
take no places from it. (The reference answers with both and leaves the comparison to its clients.) Records that have
left the log since they were indexed are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from fusee.message.ids import decode_offset_id
from fusee.message.properties import KEY_SEPARATOR, find_keys, find_tag, find_unique_id
from fusee.message.record_layout import TIMESTAMP, record_bounds, store_timestamp_position
from fusee.store.index import tag_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.store.index import Index

TIME_MS_MAX: Final = (1 << 63) - 1
_SYS_FLAG_LOW_BYTE: Final = 39


class RecordSource(Protocol):
    """The log as a query sees it."""

    @property
    def min_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def slice(self, log_offset: int, size: int) -> memoryview | None: ...

    def record_at(self, log_offset: int) -> memoryview | None:
        """The whole record that begins here, checked; None when there is none."""


class FoundRecords(msgspec.Struct, frozen=True):
    """The records that a query found, in log order, and how far the index was."""

    log_offsets: tuple[int, ...]
    records: tuple[memoryview, ...]
    last_update_timestamp_ms: int
    last_update_log_offset: int
    is_complete: bool = True
    """Whether the search came to its end: False when too many records share the hash, so older ones may be missing."""

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return sum(map(len, self.records))


class RecordQuery:
    """Answers queries from an index and the log that it was made from."""

    def __init__(self, log: RecordSource, index: Index) -> None:
        self._log = log
        self._index = index

    def by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int = 0, end_ms: int = TIME_MS_MAX
    ) -> FoundRecords:
        """The newest records of the topic that carry this key, as one of KEYS or as UNIQ_KEY.

        At most `max_count` and `max_msgs_num_batch`, stored from `begin_ms` to `end_ms` inclusive.
        """
        return self._find(topic, key, max_count, begin_ms, end_ms, lambda properties: _has_key(properties, key))

    def by_unique_key(
        self, topic: str, unique_key: str, max_count: int = 32, begin_ms: int = 0, end_ms: int = TIME_MS_MAX
    ) -> FoundRecords:
        """The newest records of the topic with this UNIQ_KEY: several when a producer has sent one again."""
        return self._find(
            topic, unique_key, max_count, begin_ms, end_ms, lambda properties: _has_unique_key(properties, unique_key)
        )

    def by_tag(
        self, topic: str, tag: str, max_count: int, begin_ms: int = 0, end_ms: int = TIME_MS_MAX
    ) -> FoundRecords:
        """The newest records of the topic with this tag."""
        return self._find(
            topic, tag_key(tag), max_count, begin_ms, end_ms, lambda properties: _has_tag(properties, tag)
        )

    def by_log_offset(self, log_offset: int) -> memoryview | None:
        """The record that begins at this log offset."""
        if not self._log.min_offset <= log_offset < self._log.end_offset:
            return None
        return self._log.record_at(log_offset)

    def by_offset_id(self, offset_id: str) -> memoryview | None:
        """The record with this offset message id. Raises MessageError when the text is no such id.

        The address in the id is where to ask, which has happened already; it is not compared, because a slave answers
        for its master.
        """
        return self.by_log_offset(decode_offset_id(offset_id).log_offset)

    def _find(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, matches: Callable[[bytes], bool]
    ) -> FoundRecords:
        wanted = min(max_count, self._index.answers_max)
        candidates = self._index.candidates(topic, key, begin_ms, end_ms)
        found: list[tuple[int, memoryview]] = []
        if wanted > 0:
            raw_topic = topic.encode("utf-8", "surrogatepass")
            for log_offset in candidates:
                record = self.by_log_offset(log_offset)
                if record is None or not begin_ms <= _store_timestamp_ms(record) <= end_ms:
                    continue
                if _topic_and_properties(record, raw_topic, matches):
                    found.append((log_offset, record))
                    if len(found) >= wanted:
                        break
        found.reverse()
        return FoundRecords(
            tuple([log_offset for log_offset, _ in found]),
            tuple([record for _, record in found]),
            self._index.last_update_timestamp_ms,
            self._index.last_update_log_offset,
            candidates.is_complete,
        )


def _store_timestamp_ms(record: memoryview) -> int:
    timestamp_ms: int = TIMESTAMP.unpack_from(record, store_timestamp_position(record[_SYS_FLAG_LOW_BYTE]))[0]
    return timestamp_ms


def _topic_and_properties(record: memoryview, raw_topic: bytes, matches: Callable[[bytes], bool]) -> bool:
    _, _, topic_start, properties_start, end = record_bounds(record, 0, len(record))
    return record[topic_start : properties_start - 2] == raw_topic and matches(bytes(record[properties_start:end]))


def _has_unique_key(properties: bytes, unique_key: str) -> bool:
    found = find_unique_id(properties)
    return found is not None and found.decode("utf-8", "replace") == unique_key


def _has_key(properties: bytes, key: str) -> bool:
    if _has_unique_key(properties, key):
        return True
    keys = find_keys(properties)
    return bool(key) and keys is not None and key in keys.decode("utf-8", "replace").split(KEY_SEPARATOR)


def _has_tag(properties: bytes, tag: str) -> bool:
    found = find_tag(properties)
    return found is not None and found.decode("utf-8", "replace") == tag
