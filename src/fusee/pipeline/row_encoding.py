r"""Rows of a table as messages: Arrow columns become the body of a batch send, without a loop per row.

A message of a batch is `total size 4 | 0 4 | 0 4 | flag 4 | body size 4 | body | properties size 2 | properties`
(`fusee.message.batch`). Each of these is a column of bytes here, made by arithmetic on whole arrays; one join of the
columns gives every message, end to end in one buffer. Rows of one place go together: `taken` brings them side by side,
and a slice of the buffer is then the body of a request.

Properties are text `name \x01 value \x02`, so the two bytes cannot stand in a name or value; rows that have them are
refused. Where a column gives a property that the map has as well, the column wins. Properties of the map that brokers
set or read for themselves are left out: a row may have come from a topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fusee.errors import MessageError
from fusee.message import properties as names
from fusee.message.hashing import java_string_hash
from fusee.message.properties import PROPERTIES_SIZE_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

IDEMPOTENCE_KEY: Final = "IDEMPOTENCE_KEY"
"""Property `query/batch/partition/row`: the same for a row that is written again."""

_HEAD_SIZE: Final = 20
_ELEMENT_EXTRA: Final = 22
_TIMERS: Final = (names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS)
# What the broker puts into messages by itself, or acts upon: it would be wrong in a new message.
_LEFT_OUT: Final = frozenset(
    {
        names.UNIQ_KEY,
        names.CRC32,
        names.INNER_BASE,
        names.INNER_NUM,
        names.DELAY,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.TRANSACTION_PREPARED,
        names.TRANSACTION_ID,
        names.TRANSACTION_CHECK_TIMES,
        names.PRODUCER_GROUP,
        names.WAIT,
        "CLUSTER",
        "TRACE_ON",
        "MSG_REGION",
        "MIN_OFFSET",
        "MAX_OFFSET",
        *_TIMERS,
        IDEMPOTENCE_KEY,
    }
)
_EMPTY: Final = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table that make a message, by what they are for; None for one that is not there."""

    body: pa.Array
    topic: pa.Array | None = None
    keys: pa.Array | None = None
    tags: pa.Array | None = None
    properties: pa.Array | None = None
    order_by: pa.Array | None = None
    flag: pa.Array | None = None
    delay_level: pa.Array | None = None
    deliver_at_ms: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Messages end to end: `offsets` has where each begins, and where the last ends.

    `rows` numbers them as they were in the table. `delayed` says which of them cannot be sent in a batch.
    """

    data: memoryview
    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    delayed: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def body(self, first: int, end: int) -> memoryview:
        """The body of a batch of these messages."""
        return self.data[int(self.offsets[first]) : int(self.offsets[end])]

    def taken(self, order: NDArray[np.int64]) -> EncodedRows:
        """The same in this order, or some of them."""
        array = _binary(self.offsets, pa.py_buffer(self.data)).take(pa.array(order))
        return EncodedRows(
            memoryview(array.buffers()[2] or b""),
            _offsets(array),
            self.rows[order],
            None if self.delayed is None else self.delayed[order],
        )

    def cuts(self, size_max: int, count_max: int) -> list[tuple[int, int]]:
        """(first, end) of runs that have at most this many bytes and messages, or a single message."""
        cuts: list[tuple[int, int]] = []
        first, count = 0, len(self)
        while first < count:
            limit = int(self.offsets[first]) + size_max
            end = int(np.searchsorted(self.offsets, limit, side="right")) - 1
            end = min(max(end, first + 1), first + count_max, count)
            cuts.append((first, end))
            first = end
        return cuts


def encode_rows(columns: Columns, *, first_row: int, key_prefix: str | None = None) -> EncodedRows:
    """The messages of these rows.

    With `key_prefix` each gets the property IDEMPOTENCE_KEY, `<prefix>/<row>`, where rows count from `first_row`.
    Raises MessageError for a row that no message can have, naming it.
    """
    body = _bytes(columns.body)
    count = len(body)
    if body.null_count:
        body = pc.fill_null(body, b"")
    rows = np.arange(first_row, first_row + count, dtype=np.int64)
    delayed, delays = _delays(columns, count)
    taken = [
        name
        for name, column in (
            (names.KEYS, columns.keys),
            (names.TAGS, columns.tags),
            (names.SHARDING_KEY, columns.order_by),
        )
        if column is not None
    ]
    entries = [
        _entry(names.KEYS, _joined_keys(columns.keys)),
        _entry(names.TAGS, columns.tags),
        _entry(names.SHARDING_KEY, columns.order_by),
        *delays,
        _map_entries(columns.properties, {*taken, *_LEFT_OUT}),
    ]
    parts = [entry for entry in entries if entry is not None]
    for part in parts[: len(parts) - (columns.properties is not None)]:
        _check_text(part, first_row)
    if key_prefix is not None:
        numbers = pa.array(rows).cast(pa.string()).cast(pa.binary())
        parts.append(_join(pa.scalar(f"{IDEMPOTENCE_KEY}\x01{key_prefix}/".encode()), numbers, pa.scalar(b"\x02")))
    properties = _join(*parts) if parts else _repeat(b"", count)
    body_sizes = np.diff(_offsets(body))
    property_sizes = np.diff(_offsets(properties))
    if count and int(property_sizes.max()) > PROPERTIES_SIZE_MAX:
        row = int(property_sizes.argmax())
        raise MessageError(
            f"row {first_row + row} has {property_sizes[row]} bytes of keys, tags and properties, limit "
            f"{PROPERTIES_SIZE_MAX}"
        )
    head = np.zeros((count, 5), dtype=">i4")
    head[:, 0] = body_sizes + property_sizes + _ELEMENT_EXTRA
    head[:, 3] = 0 if columns.flag is None else _numbers(columns.flag)
    head[:, 4] = body_sizes
    lengths = property_sizes.astype(">i2")
    joined = _join(_fixed(head, _HEAD_SIZE), body, _fixed(lengths, 2), properties)
    return EncodedRows(memoryview(joined.buffers()[2] or b""), _offsets(joined), rows, delayed)


def queue_hashes(column: pa.Array) -> NDArray[np.int64]:
    """Java's hash of each key as a positive number, as SelectMessageQueueByHash takes it; nulls count as empty text."""
    encoded = pc.fill_null(_text(column), "").dictionary_encode()
    hashes = np.abs(np.asarray([java_string_hash(key) for key in encoded.dictionary.to_pylist()], dtype=np.int64))
    indexes: NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False)
    return hashes[indexes]


def _delays(columns: Columns, count: int) -> tuple[NDArray[np.bool_] | None, list[pa.Array]]:
    """Which messages wait, and the properties that say how long."""
    entries: list[pa.Array] = []
    delayed: NDArray[np.bool_] | None = None
    for name, column in ((names.DELAY, columns.delay_level), (names.TIMER_DELIVER_MS, columns.deliver_at_ms)):
        if column is None:
            continue
        values = column.cast(pa.int64())
        waits = pc.fill_null(pc.greater(values, 0), False)
        mask = waits.to_numpy(zero_copy_only=False)
        if mask.any():
            entries.append(_entry(name, pc.if_else(waits, values, pa.scalar(None, pa.int64()))))
            delayed = mask if delayed is None else delayed | mask
    return delayed, entries


def _joined_keys(column: pa.Array | None) -> pa.Array | None:
    """Several keys of one message are text with spaces between them."""
    if column is not None and (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return pc.binary_join(column.cast(pa.list_(pa.string())), " ")
    return column


def _entry(name: str, column: pa.Array | None) -> pa.Array | None:
    r"""`name \x01 value \x02` where there is a value, else nothing."""
    if column is None:
        return None
    values = _bytes(column)
    joined = pc.binary_join_element_wise(pa.scalar(name.encode() + b"\x01"), values, pa.scalar(b"\x02"), b"")
    there = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
    return pc.if_else(there, joined, _EMPTY)


def _map_entries(column: pa.Array | None, left_out: set[str]) -> pa.Array | None:
    """All entries of each map, one after the other."""
    if column is None:
        return None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    bounds = np.asarray(column.offsets, dtype=np.int64)
    first = int(bounds[0])
    keys, values = column.keys, column.items
    # `keys` and `items` of a slice are those of the whole array; its offsets tell which are its own.
    own = int(bounds[-1]) - first
    keys, values = _bytes(keys.slice(first, own)), _bytes(values.slice(first, own))
    bounds = bounds - first
    keep = pc.and_(
        pc.invert(pc.is_in(keys, pa.array(sorted(name.encode() for name in left_out), pa.binary()))),
        pc.fill_null(pc.greater(pc.binary_length(values), 0), False),
    )
    keep = pc.and_(keep, pc.greater(pc.binary_length(keys), 0))
    mask = keep.to_numpy(zero_copy_only=False)
    if column.null_count:
        # What stands under a null is not there.
        mask = mask & np.repeat(np.asarray(column.is_valid()), np.diff(bounds))
    for what, texts in (("name", keys), ("value", values)):
        _check_separators(texts.filter(pa.array(mask)), what)
    joined = _join(keys, pa.scalar(b"\x01"), values, pa.scalar(b"\x02"))
    joined = pc.if_else(pa.array(mask), joined, _EMPTY)
    # The entries of a row lie end to end, so a row is a span of the same bytes.
    spans = _offsets(joined)[bounds]
    return _binary(spans, joined.buffers()[2] or pa.py_buffer(b""))


def _check_text(entries: pa.Array, first_row: int) -> None:
    r"""Each entry has one \x01 and one \x02, its own."""
    for mark in (b"\x01", b"\x02"):
        counts = pc.count_substring(entries, mark)
        worst = pc.max(counts).as_py()
        if worst is not None and worst > 1:
            row = int(np.argmax(counts.to_numpy(zero_copy_only=False)))
            raise MessageError(
                f"row {first_row + row}: keys, tags and orderBy cannot have the characters \\x01 and \\x02, which "
                f"divide properties: {entries[row].as_py()[:80]!r}"
            )


def _check_separators(texts: pa.Array, what: str) -> None:
    for mark in (b"\x01", b"\x02"):
        found = pc.match_substring(texts, mark)
        if pc.any(found).as_py():
            text = texts.filter(found)[0].as_py()
            raise MessageError(
                f"the {what} of a property cannot have the characters \\x01 and \\x02, which divide properties: "
                f"{text[:80]!r}"
            )


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b""), null_handling="replace", null_replacement="")


def _bytes(column: pa.Array) -> pa.Array:
    """A column as bytes with 32-bit offsets."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_binary(column.type):
        return column
    return _text(column).cast(pa.binary()) if not pa.types.is_large_binary(column.type) else column.cast(pa.binary())


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.string())
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _numbers(column: pa.Array) -> NDArray[Any]:
    numbers: NDArray[Any] = pc.fill_null(column.cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
    return numbers


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    """Where each value begins in the bytes of the array, and where the last ends."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int32, count=len(array) + 1, offset=4 * array.offset).astype(np.int64)


def _binary(offsets: NDArray[np.int64], data: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), data])


def _fixed(values: NDArray[Any], size: int) -> pa.Array:
    """Each row of numbers as bytes."""
    data = np.ascontiguousarray(values).tobytes()
    return _binary(np.arange(0, len(data) + 1, size, dtype=np.int64), pa.py_buffer(data))


def _repeat(value: bytes, count: int) -> pa.Array:
    return pa.array([value], pa.binary()).take(pa.array(np.zeros(count, dtype=np.int64)))
