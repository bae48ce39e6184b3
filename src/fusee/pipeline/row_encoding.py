"""Rows of a table as messages: Arrow columns become the body of a batch send, without a loop per row.

Each column is brought into bytes here; `row_messages` joins them to messages, straight into the memory of a request.
Rows of one place go together: `taken` brings them side by side.

Where a column gives a property that the map has as well, the column wins. Properties of the map that brokers set or
read for themselves are left out: a row may have come from a topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fusee.message import properties as names
from fusee.message.hashing import java_string_hash
from fusee.pipeline.byte_columns import MapEntries
from fusee.pipeline.row_messages import join_messages

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.pipeline.row_messages import Messages

IDEMPOTENCE_KEY: Final = "IDEMPOTENCE_KEY"
"""Property `query/batch/partition/row`: the same for a row that is written again."""

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
_LEFT_OUT_BYTES: Final = frozenset(name.encode() for name in _LEFT_OUT)


class Columns(NamedTuple):
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
    """Messages in some order: `offsets` has where each begins when they lie end to end, and where the last ends.

    `rows` numbers them as they are in the table, from 0; None when they are the table. `delayed` says which of them
    cannot be sent in a batch. Nothing is copied before `fill`.
    """

    messages: Messages
    offsets: NDArray[np.int64]
    rows: NDArray[np.int64] | None
    delayed: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def size(self, first: int, end: int) -> int:
        """Bytes of these messages."""
        return int(self.offsets[end] - self.offsets[first])

    def fill(self, first: int, end: int, into: memoryview) -> None:
        """Write the body of a batch of these messages, of exactly this size."""
        if self.rows is None:
            self.messages.fill_run(into, first, end)
        else:
            self.messages.fill(into, self.rows[first:end])

    def body(self, first: int, end: int) -> bytes:
        """The same in memory of its own."""
        data = bytearray(self.size(first, end))
        self.fill(first, end, memoryview(data))
        return bytes(data)

    def taken(self, order: NDArray[np.int64]) -> EncodedRows:
        """The same in this order, or some of them."""
        offsets = np.zeros(len(order) + 1, np.int64)
        np.cumsum(np.diff(self.offsets)[order], out=offsets[1:])
        rows = order if self.rows is None else self.rows[order]
        return EncodedRows(self.messages, offsets, rows, None if self.delayed is None else self.delayed[order])

    def between(self, first: int, end: int) -> EncodedRows:
        """Those from here to there."""
        return EncodedRows(
            self.messages,
            self.offsets[first : end + 1],
            np.arange(first, end) if self.rows is None else self.rows[first:end],
            None if self.delayed is None else self.delayed[first:end],
        )

    def end(self, first: int, size_max: int, count_max: int, *, stored_max: int, stored_extra: int) -> int:
        """Where a run that begins here ends when it has at most this many bytes and messages; `first` if none fits.

        A broker makes each larger by `stored_extra` bytes; then they have at most `stored_max`.
        """
        end = first + min(len(self) - first, count_max)
        size = self.size(first, end)
        if size <= size_max and size + (end - first) * stored_extra <= stored_max:
            return end
        limit = int(self.offsets[first]) + size_max
        end = min(int(np.searchsorted(self.offsets, limit, side="right")) - 1, end)
        if self.size(first, end) + (end - first) * stored_extra > stored_max:
            stored = np.diff(self.offsets[first : end + 1]) + stored_extra
            end = first + int(np.searchsorted(np.cumsum(stored), stored_max, side="right"))
        return end


def encode_rows(columns: Columns, *, first_row: int, key_prefix: str | None = None) -> EncodedRows:
    """The messages of these rows.

    With `key_prefix` each gets the property IDEMPOTENCE_KEY, `<prefix>/<row>`, where rows count from `first_row`.
    Raises MessageError for a row that no message can have, naming it.
    """
    body = _bytes(columns.body)
    delayed, delays = _delays(columns)
    texts = [
        (name.encode(), _bytes(column))
        for name, column in (
            (names.KEYS, _joined_keys(columns.keys)),
            (names.TAGS, columns.tags),
            (names.SHARDING_KEY, columns.order_by),
        )
        if column is not None
    ]
    messages = join_messages(
        body,
        None if columns.flag is None else _numbers(columns.flag),
        [*texts, *delays],
        None if columns.properties is None else _map_entries(columns.properties, {name for name, _ in texts}),
        None if key_prefix is None else f"{IDEMPOTENCE_KEY}\x01{key_prefix}/".encode(),
        first_row,
    )
    return EncodedRows(messages, messages.offsets, None, delayed)


def queue_hashes(column: pa.Array) -> NDArray[np.int64]:
    """Java's hash of each key as a positive number, as SelectMessageQueueByHash takes it; nulls count as empty text."""
    encoded = pc.fill_null(_text(column), "").dictionary_encode()
    hashes = np.abs(np.asarray([java_string_hash(key) for key in encoded.dictionary.to_pylist()], dtype=np.int64))
    indexes: NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False)
    return hashes[indexes]


def _delays(columns: Columns) -> tuple[NDArray[np.bool_] | None, list[tuple[bytes, pa.Array]]]:
    """Which messages wait, and the properties that say how long."""
    entries: list[tuple[bytes, pa.Array]] = []
    delayed: NDArray[np.bool_] | None = None
    for name, column in ((names.DELAY, columns.delay_level), (names.TIMER_DELIVER_MS, columns.deliver_at_ms)):
        if column is None:
            continue
        values = column.cast(pa.int64())
        waits = pc.fill_null(pc.greater(values, 0), False)
        mask = waits.to_numpy(zero_copy_only=False)
        if mask.any():
            times = pc.if_else(waits, values, pa.scalar(None, pa.int64()))
            entries.append((name.encode(), _bytes(times)))
            delayed = mask if delayed is None else delayed | mask
    return delayed, entries


def _joined_keys(column: pa.Array | None) -> pa.Array | None:
    """Several keys of one message are text with spaces between them."""
    if column is not None and (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return pc.binary_join(column.cast(pa.list_(pa.string())), " ")
    return column


def _map_entries(column: pa.Array, given: set[bytes]) -> MapEntries:
    """What is in the maps, but for what is `given` by other columns."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    bounds = np.asarray(column.offsets, dtype=np.int64)
    first = int(bounds[0])
    # `keys` and `items` of a slice are those of the whole array; its offsets tell which are its own.
    own = int(bounds[-1]) - first
    keys, values = column.keys.slice(first, own), column.items.slice(first, own)
    valid = np.asarray(column.is_valid()) if column.null_count else None
    return MapEntries(_bytes(keys), _bytes(values), bounds - first, valid, _LEFT_OUT_BYTES | given)


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
