"""What consume queues and index must hold for the records of a chunk, computed for all of them at once.

Hashes are Java's `String.hashCode`, h = 31 h + unit. Of many strings that lie in one array of bytes they are had
without a loop: 31 is odd and so has an inverse modulo 2**32; with c the running sum of byte[i] * 31**-i, the hash of
[start, end) is (c[end] - c[start]) * 31**(end - 1). That holds for ASCII, where a byte is a unit; the few
strings that are not ASCII are hashed one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fusee.message import properties as names
from fusee.message.flags import SysFlag, TransactionType
from fusee.message.hashing import java_string_hash
from fusee.message.properties import decode_properties
from fusee.store.key_hash import index_hashes, topic_prefix_hash
from fusee.store.property_entries import PropertyEntries, split_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.store.offline.walk import Chunk

_INVERSE_31: Final = pow(31, -1, 1 << 32)
_SPACE: Final = 0x20


class Topics:
    """Numbers for the topics met so far."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._key_hashes: list[int] = []
        self._tag_hashes: list[int] = []

    def number(self, raw: bytes) -> int:
        number = self._numbers.get(raw)
        if number is None:
            number = self._numbers[raw] = len(self.names)
            text = raw.decode("utf-8", "replace")
            self.names.append(text)
            self._key_hashes.append(topic_prefix_hash(text))
            self._tag_hashes.append(topic_prefix_hash(f"{text}#T"))
        return number

    def key_hashes(self) -> NDArray[np.uint32]:
        """Of each topic, the hash of the text that stands before a key in the index."""
        return np.array(self._key_hashes, np.uint32)

    def tag_hashes(self) -> NDArray[np.uint32]:
        """Of each topic, the hash of the text that stands before a tag in the index of RocketMQ 5.5."""
        return np.array(self._tag_hashes, np.uint32)


class Columns(NamedTuple):
    """One row per record, in log order."""

    log_offset: NDArray[np.int64]
    size: NDArray[np.int64]
    topic: NDArray[np.int64]
    """Numbers of `Topics`."""
    queue_id: NDArray[np.int64]
    queue_offset: NDArray[np.int64]
    sys_flag: NDArray[np.int64]
    store_timestamp_ms: NDArray[np.int64]
    tags_code: NDArray[np.int64]
    key_row: NDArray[np.int64]
    """Of each key, the row of its record."""
    key_hash: NDArray[np.int64]
    """Of each key, as the index has it."""
    tag_row: NDArray[np.int64]
    """Of each record with a tag, its row."""
    tag_hash: NDArray[np.int64]
    """Of each tag, as RocketMQ 5.5 enters it into the index, beside the keys; others do not."""
    untidy_rows: NDArray[np.int64]
    """Rows whose property string is not just entries of name and value."""
    dispatches: list[tuple[int, str, int]]
    """Further queues that a record stands in: its row, the queue's topic, the queue offset there."""
    properties: NDArray[np.uint8]
    properties_offsets: NDArray[np.int32]

    @property
    def is_queued(self) -> NDArray[np.bool_]:
        """Whether a record stands in its queue: prepared and rolled back messages do not."""
        kind = self.sys_flag & SysFlag.TRANSACTION_MASK
        queued: NDArray[np.bool_] = (kind == TransactionType.NOT) | (kind == TransactionType.COMMIT)
        return queued

    @property
    def is_batch(self) -> NDArray[np.bool_]:
        batched: NDArray[np.bool_] = (self.sys_flag & SysFlag.INNER_BATCH) != 0
        return batched

    def properties_of(self, row: int) -> dict[str, str]:
        start, end = self.properties_offsets[row : row + 2].tolist()
        return decode_properties(self.properties[start:end].tobytes())


def columns_of(chunk: Chunk, topics: Topics) -> Columns:
    """The columns of a chunk; they stay valid when the chunk is read over."""
    parts, data = chunk.parts, chunk.data
    number = topics.number
    topic = np.array(
        [number(bytes(data[a:b])) for a, b in zip(parts.topic_start.tolist(), parts.topic_end.tolist(), strict=True)],
        np.int64,
    )
    raw = b"".join([data[a:b] for a, b in zip(parts.properties_start.tolist(), parts.record_end.tolist(), strict=True)])
    offsets = np.zeros(len(topic) + 1, np.int32)
    np.cumsum(parts.record_end - parts.properties_start, out=offsets[1:])
    strings = np.frombuffer(raw, np.uint8)
    entries = split_entries(strings, offsets)
    rows = np.repeat(np.arange(len(topic)), np.diff(entries.row_offsets))
    hashes = SliceHashes(raw, strings)
    named = _Named(raw, strings, entries, rows)
    sys_flag = parts.head["sys_flag"].astype(np.int64)

    tags_code = np.zeros(len(topic), np.int64)
    tag_row, starts, ends = named.slices(names.TAGS)
    tags_code[tag_row] = hashes.of(starts, ends).view(np.int32)
    tag_hash = _index_hashes(hashes, topics.tag_hashes()[topic[tag_row]], starts, ends)

    unique_rows, unique_starts, unique_ends = named.slices(names.UNIQ_KEY)
    rows_of_keys, starts, ends = _split_at_spaces(strings, *named.slices(names.KEYS))
    key_row = np.concatenate((unique_rows, rows_of_keys))
    key_hash = _index_hashes(
        hashes,
        topics.key_hashes()[topic[key_row]],
        np.concatenate((unique_starts, starts)),
        np.concatenate((unique_ends, ends)),
    )
    kept = (sys_flag[key_row] & SysFlag.TRANSACTION_MASK) != TransactionType.ROLLBACK
    return Columns(
        chunk.log_offsets,
        parts.head["store_size"].astype(np.int64),
        topic,
        parts.head["queue_id"].astype(np.int64),
        parts.head["queue_offset"].astype(np.int64),
        sys_flag,
        chunk.store_timestamps,
        tags_code,
        key_row[kept],
        key_hash[kept],
        tag_row,
        tag_hash,
        _untidy_rows(strings, offsets, entries),
        _dispatches(raw, offsets, named),
        strings,
        offsets,
    )


class SliceHashes:
    """Java's hash of any slice of a text in UTF-8."""

    def __init__(self, raw: bytes, view: NDArray[np.uint8]) -> None:
        self._raw = raw
        count = len(view)
        powers = np.full(count + 1, 31, np.uint32)
        powers[:1] = 1
        self._powers = np.cumprod(powers, dtype=np.uint32)
        inverses = np.full(count, _INVERSE_31, np.uint32)
        inverses[:1] = 1
        weighed = view * np.cumprod(inverses, dtype=np.uint32)
        self._sums = np.zeros(count + 1, np.uint32)
        np.cumsum(weighed, dtype=np.uint32, out=self._sums[1:])
        high = view >= 0x80
        self._high_counts = np.zeros(count + 1, np.int64) if high.any() else None
        if self._high_counts is not None:
            np.cumsum(high, out=self._high_counts[1:])

    def of(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The hash of each slice, none of which is empty."""
        codes: NDArray[np.uint32] = (self._sums[ends] - self._sums[starts]) * self._powers[ends - 1]
        for index in self._not_ascii(starts, ends):
            codes[index] = java_string_hash(self._text(starts, ends, index)) & 0xFFFFFFFF
        return codes

    def after(
        self, prefixes: NDArray[np.uint32], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.uint32]:
        """The hash of each slice with a text before it whose hash is given."""
        codes: NDArray[np.uint32] = prefixes * self._powers[ends - starts] + self.of(starts, ends)
        for index in self._not_ascii(starts, ends):
            text = self._text(starts, ends, index)
            units = len(text.encode("utf-16-le", "surrogatepass")) // 2
            code = int(prefixes[index]) * pow(31, units, 1 << 32) + java_string_hash(text)
            codes[index] = code & 0xFFFFFFFF
        return codes

    def _not_ascii(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
        if self._high_counts is None:
            return []
        found: list[int] = np.flatnonzero(self._high_counts[ends] != self._high_counts[starts]).tolist()
        return found

    def _text(self, starts: NDArray[np.int64], ends: NDArray[np.int64], index: int) -> str:
        return self._raw[int(starts[index]) : int(ends[index])].decode("utf-8", "replace")


class _Named:
    """Finds the values of one name among all entries."""

    def __init__(self, raw: bytes, view: NDArray[np.uint8], entries: PropertyEntries, rows: NDArray[np.int64]) -> None:
        self._raw = raw
        self._view = view
        self._entries = entries
        self._rows = rows
        self._name_sizes = entries.name_end - entries.name_start

    def slices(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Rows, starts and ends of the values; of a name that stands twice in a row, the last."""
        wanted = name.encode()
        entries = self._entries
        found = np.flatnonzero(self._name_sizes == len(wanted))
        for place, byte in enumerate(wanted):
            if not len(found):
                break
            found = found[self._view[entries.name_start[found] + place] == byte]
        rows = self._rows[found]
        if len(rows) > 1 and (rows[1:] == rows[:-1]).any():
            found = found[np.append(rows[1:] != rows[:-1], True)]
            rows = self._rows[found]
        return rows, entries.value_start[found], entries.value_end[found]


def _index_hashes(
    hashes: SliceHashes, prefixes: NDArray[np.uint32], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    if not len(starts):
        return np.zeros(0, np.int64)
    return index_hashes(hashes.after(prefixes, starts, ends).view(np.int32))


def _split_at_spaces(
    view: NDArray[np.uint8], rows: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    if not len(rows):
        return rows, starts, ends
    spaces = np.flatnonzero(view == _SPACE)
    slot = np.searchsorted(starts, spaces, side="right") - 1
    inside = spaces[(slot >= 0) & (spaces < ends[slot])]
    token_starts = np.sort(np.concatenate((starts, inside + 1)))
    token_ends = np.sort(np.concatenate((ends, inside)))
    kept = token_ends > token_starts
    token_starts, token_ends = token_starts[kept], token_ends[kept]
    return rows[np.searchsorted(starts, token_starts, side="right") - 1], token_starts, token_ends


def _untidy_rows(view: NDArray[np.uint8], offsets: NDArray[np.int32], entries: PropertyEntries) -> NDArray[np.int64]:
    ends = np.flatnonzero(view == 2)
    between = np.diff(np.searchsorted(ends, offsets))
    has_some = offsets[1:] > offsets[:-1]
    is_open = np.zeros(len(between), bool)
    is_open[has_some] = view[offsets[1:][has_some] - 1] != 2
    return np.flatnonzero(np.diff(entries.row_offsets) != between + is_open)


def _dispatches(raw: bytes, offsets: NDArray[np.int32], named: _Named) -> list[tuple[int, str, int]]:
    found: list[tuple[int, str, int]] = []
    for row in named.slices(names.INNER_MULTI_DISPATCH)[0].tolist():
        properties = decode_properties(raw[int(offsets[row]) : int(offsets[row + 1])])
        queues = properties[names.INNER_MULTI_DISPATCH].split(",")
        places = properties.get(names.INNER_MULTI_QUEUE_OFFSET, "").split(",")
        found += [(row, queue, int(place)) for queue, place in zip(queues, places, strict=False) if place.isdecimal()]
    return found
