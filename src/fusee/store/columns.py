"""Records to columns: a buffer of stored records becomes an Arrow RecordBatch, without a Python loop per message.

Theory of operation
-------------------
`record_scan` finds the records and the places of their parts; fields of the head are gathered and turned to the
machine's byte order by NumPy. Parts of varying length (bodies, topics, hosts, properties) are copied end to end
(`record_parts`). One property alone is found in the raw strings; only who wants the map of all has them taken apart
(`property_table`).

What comes out owns its memory. Nothing of the given buffer is kept, so a mapped segment can be dropped, and a log that
is cut cannot pull the ground from under a reader.

* Strictness is that of `decode_record`: whatever is not a whole record is a RecordError that names the position. Text
  of a topic must be UTF-8; in properties malformed UTF-8 reads as U+FFFD. A column that is not asked for is not looked
  into: bounds are checked always, the text of a topic only when it is wanted.
* Few records are decoded one by one: below `ROWS_VECTORISED_MIN` the fixed price of the array operations is more than
  that of a loop (measured: they meet at 38 to 41 rows, whichever columns are asked for). Both give equal batches.
* A batch has a fixed price of some 0.3 ms, and its arrays should stay in the processor's cache: between one and eight
  mebibytes of records are best, and four are what `iterate_columns` takes at a time.

pyarrow is an optional dependency (`pip install 'fusee[arrow]'`) and loaded at the first call.
"""

from __future__ import annotations

from functools import cache, cached_property
from itertools import accumulate
from mmap import mmap
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fusee.errors import FuseeError, MessageError, RecordError
from fusee.message.compression import BODY_SIZE_MAX, decompress_message
from fusee.message.compression import decompress as decompress_body
from fusee.message.flags import SysFlag, compression_type
from fusee.message.hosts import HOST_V4_SIZE, host_text
from fusee.message.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY
from fusee.message.record import decode_record
from fusee.message.record_layout import BORN_HOST_POSITION, MAGIC_V1
from fusee.store.arrow_parts import text_bytes
from fusee.store.property_table import PropertyTable
from fusee.store.record_parts import SIZE_MAX, copy_parts, find_values
from fusee.store.record_scan import check_stop, find_records, locate_parts, out_of_order, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from fusee.message.model import StoredMessage
    from fusee.message.record_layout import Buffer
    from fusee.store.record_scan import RecordParts

COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "log_offset",
    "store_size",
    "version",
    "flag",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_crc",
    "body",
    "tag",
    "keys",
    "unique_id",
    "properties",
)
"""The names of all columns, in the order of the schema."""

ROWS_VECTORISED_MIN: Final = 40
BATCH_SIZE: Final = 4 << 20
BYTES_MAX: Final = SIZE_MAX
"""An Arrow binary column holds no more: neither may the records of one batch, nor its bodies once decompressed."""


def columns_schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of these columns in this order; of all, when None.

    Raises MessageError when a name is unknown or given twice, or when there is none; FuseeError without pyarrow.
    """
    return _schema(COLUMNS if columns is None else tuple(columns))


def decode_columns(
    data: Buffer | Sequence[Buffer],
    *,
    columns: Sequence[str] | None = None,
    positions: Sequence[int] | NDArray[np.int64] | None = None,
    from_log: bool = False,
    decompress: bool = False,
    body_size_max: int = BODY_SIZE_MAX,
) -> pa.RecordBatch:
    """One row per record: all records of the data, or those at `positions` (ascending, for example of a consume queue).

    `data` is a buffer, or several, which are joined: a pull answer, the slices of a GetResult, a mapped file. With
    `from_log` blanks at the ends of log files are skipped, and zero bytes to the end of the data are an end. With
    `decompress` bodies are plain and the COMPRESSED bit of `sys_flag` is cleared, as `decompress_message` does;
    `body_size_max` limits each. Asking for few `columns` is many times faster than asking for all.

    Raises RecordError, naming a position in the (joined) data, for anything that is not a whole record or whose body
    cannot be decompressed; MessageError when a column is unknown; FuseeError without pyarrow.
    """
    schema = columns_schema(columns)
    buffer = data if isinstance(data, (bytes, bytearray, memoryview, mmap)) else b"".join(data)
    if positions is None:
        found, stop = find_records(buffer, from_log=from_log)
    else:
        found, stop = np.asarray(positions, np.int64), len(buffer)
    if stop < len(buffer):
        if len(found):
            locate_parts(buffer, found)  # of two bad records the first one is named
        check_stop(buffer, stop, from_log=from_log)
    return _decode(buffer, found, schema, body_size_max if decompress else None)


def iterate_columns(
    data: Buffer,
    *,
    batch_size: int = BATCH_SIZE,
    columns: Sequence[str] | None = None,
    from_log: bool = False,
    decompress: bool = False,
    body_size_max: int = BODY_SIZE_MAX,
) -> Iterator[pa.RecordBatch]:
    """The records of a large buffer in batches that take about `batch_size` bytes of it; else like `decode_columns`.

    A RecordError comes behind the batches in front of the one it concerns.
    """
    schema = columns_schema(columns)
    batch_size = max(batch_size, 1)
    position = 0
    while position < len(data):
        found, stop = find_records(data, position, from_log=from_log, size_max=batch_size)
        if len(found):
            yield _decode(data, found, schema, body_size_max if decompress else None)
        if stop < position + batch_size:
            check_stop(data, stop, from_log=from_log)
        position = stop


@cache
def _arrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise FuseeError(
            "decoding records to columns needs pyarrow, which is not installed; run: pip install 'fusee[arrow]'"
        ) from error
    return pa


@cache
def _types() -> dict[str, Any]:
    arrow = _arrow()
    text, int32, int64, time = arrow.string(), arrow.int32(), arrow.int64(), arrow.timestamp("ms", tz="UTC")
    return {
        "topic": text,
        "queue_id": int32,
        "queue_offset": int64,
        "log_offset": int64,
        "store_size": int32,
        "version": arrow.int8(),
        "flag": int32,
        "sys_flag": int32,
        "born_timestamp": time,
        "born_host": text,
        "store_timestamp": time,
        "store_host": text,
        "reconsume_times": int32,
        "prepared_transaction_offset": int64,
        "body_crc": int32,
        "body": arrow.binary(),
        "tag": text,
        "keys": arrow.list_(text),
        "unique_id": text,
        "properties": arrow.map_(text, text),
    }


@cache
def _all_fields() -> dict[str, Any]:
    return {name: _arrow().field(name, kind) for name, kind in _types().items()}


def _schema(columns: tuple[str, ...]) -> Any:
    fields = _all_fields()
    unknown = [name for name in columns if name not in fields]
    if unknown or not columns or len(set(columns)) < len(columns):
        fault = f"no column is called {unknown[0]!r}" if unknown else f"columns {columns!r} are none or repeat"
        raise MessageError(f"{fault}; choose from {', '.join(COLUMNS)}, each at most once")
    return _arrow().schema([fields[name] for name in columns])


def _decode(
    buffer: Buffer, positions: NDArray[np.int64], schema: pa.Schema, plain_size_max: int | None
) -> pa.RecordBatch:
    names: list[str] = schema.names
    if len(positions) < ROWS_VECTORISED_MIN:
        messages = _messages(buffer, positions.tolist(), plain_size_max)
        arrays = [
            _property_maps(messages)
            if name == "properties"
            else _arrow().array(list(map(_FIELDS[name], messages)), _types()[name])
            for name in names
        ]
    else:
        decoder = RecordColumns(
            buffer, locate_parts(buffer, positions), plain_size_max=plain_size_max, has_maps="properties" in names
        )
        arrays = list(map(decoder.column, names))
    return _arrow().RecordBatch.from_arrays(arrays, schema=schema)


def _messages(buffer: Buffer, positions: list[int], plain_size_max: int | None) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    before_end = size = 0
    for position in positions:
        message = decode_record(buffer, position)
        if position < before_end:
            raise out_of_order(position, before_end)
        before_end = position + message.store_size
        if plain_size_max is not None and message.sys_flag & SysFlag.COMPRESSED:
            try:
                message = decompress_message(message, size_max=plain_size_max)
            except MessageError as error:
                raise RecordError(f"record at {position}: {error}") from error
        size += len(message.body)
        if size > BYTES_MAX:
            raise _too_much(position, "bodies")
        messages.append(message)
    return messages


def _too_much(position: int, what: str) -> RecordError:
    return RecordError(
        f"record at {position}: the {what} of the batch up to here take more than {BYTES_MAX} bytes, the limit of a "
        "column; decode fewer records at once, for example with iterate_columns"
    )


def _property_maps(messages: list[StoredMessage]) -> Any:
    # from flat lists, which Arrow reads several times faster than a list of pairs per row
    arrow = _arrow()
    maps = [message.properties for message in messages]
    offsets = arrow.array([0, *accumulate(map(len, maps))], arrow.int32())
    names = arrow.array([name for properties in maps for name in properties], arrow.string())
    values = arrow.array([value for properties in maps for value in properties.values()], arrow.string())
    return arrow.MapArray.from_arrays(offsets, names, values)


class RecordColumns:
    """The columns of some records, each made when it is asked for; at least one record."""

    def __init__(
        self, buffer: Buffer, parts: RecordParts, *, plain_size_max: int | None = None, has_maps: bool = False
    ) -> None:
        """`plain_size_max` is what a body may become, None leaves them compressed; `has_maps` that maps will be asked.

        Raises RecordError when the records are too many for a column, FuseeError without pyarrow.
        """
        span = int(parts.record_end[-1]) - int(parts.positions[0])
        if span > BYTES_MAX:
            raise _too_much(int(parts.record_end[-1]), "records")
        self._parts = parts
        self.count = len(parts.positions)
        self._plain_size_max = plain_size_max
        self._has_maps = has_maps
        self._view = np.frombuffer(buffer, np.uint8)

    def column(self, name: str) -> Any:
        """One of COLUMNS."""
        return _BUILDERS[name](self, name)

    def property(self, name: str) -> Any:
        """The values of one property, null where a row has none."""
        if self._has_maps:
            return self._properties.values_of(name)
        arrow = _arrow()
        starts, ends = find_values(self._view, self._parts.properties_start, self._parts.record_end, name.encode())
        is_there = starts >= 0
        absent = self.count - int(np.count_nonzero(is_there))
        if absent == self.count:
            return arrow.nulls(self.count, arrow.string())
        validity = None
        if absent:
            starts[~is_there] = ends[~is_there] = 0
            validity = arrow.py_buffer(np.packbits(is_there, bitorder="little"))
        offsets, data = copy_parts(self._view, starts, ends)
        buffers = [validity, arrow.py_buffer(offsets), arrow.py_buffer(data)]
        values = arrow.Array.from_buffers(arrow.string(), self.count, buffers, absent)
        if data.max(initial=0) < 0x80 or _is_utf8(values):
            return values
        texts = [
            None if raw is None else raw.decode("utf-8", "replace") for raw in values.cast(arrow.binary()).to_pylist()
        ]
        return arrow.array(texts, arrow.string())

    def head_field(self, name: str) -> Any:
        return self._numbers(name, self._parts.head[name])

    def tail_field(self, name: str) -> Any:
        return self._numbers(name, self._parts.tail[name])

    def store_timestamp(self, name: str) -> Any:
        return self._numbers(name, windows(self._view, ">i8")[self._parts.store_timestamp_start])

    def version(self, name: str) -> Any:
        return self._numbers(name, np.where(self._parts.head["magic"] == MAGIC_V1, 1, 2))

    def sys_flag(self, name: str) -> Any:
        flags = self._parts.head["sys_flag"]
        return self._numbers(name, flags if self._plain_size_max is None else flags & ~SysFlag.COMPRESSED)

    def _numbers(self, name: str, values: NDArray[Any]) -> Any:
        kind = _types()[name]
        native = values.astype(f"i{kind.bit_width // 8}")
        return _arrow().Array.from_buffers(kind, self.count, [None, _arrow().py_buffer(native)])

    def topic(self, _: str) -> Any:
        topics = self._part(self._parts.topic_start, self._parts.topic_end, _arrow().string())
        if not _is_ascii(topics) and not _is_utf8(topics):
            for position, topic in zip(
                self._parts.positions.tolist(), topics.cast(_arrow().binary()).to_pylist(), strict=True
            ):
                try:
                    topic.decode()
                except UnicodeDecodeError as error:
                    raise RecordError(f"record at {position}: the topic is not UTF-8: {error}") from error
        return topics

    def born_host(self, _: str) -> Any:
        return self._hosts(self._parts.positions + BORN_HOST_POSITION, self._parts.store_timestamp_start)

    def store_host(self, _: str) -> Any:
        # between the store time and the 16 bytes in front of the body
        return self._hosts(self._parts.store_timestamp_start + 8, self._parts.body_start - 16)

    def _hosts(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Any:
        arrow = _arrow()
        if (ends - starts == HOST_V4_SIZE).all():
            packed = windows(self._view, "<u8")[starts]
            if (packed == packed[0]).all():
                # one host: a broker has one address, and most answers come from one producer
                text = host_text(packed[:1].tobytes()).encode()
                offsets = np.arange(0, (self.count + 1) * len(text), len(text), dtype=np.int32)
                return arrow.Array.from_buffers(
                    arrow.string(), self.count, [None, arrow.py_buffer(offsets), arrow.py_buffer(text * self.count)]
                )
        encoded = self._part(starts, ends, arrow.binary()).dictionary_encode()
        texts = arrow.array(list(map(host_text, encoded.dictionary.to_pylist())), arrow.string())
        return texts.take(encoded.indices)

    def body(self, _: str) -> Any:
        arrow = _arrow()
        bodies = self._part(self._parts.body_start, self._parts.body_end, arrow.binary())
        if self._plain_size_max is None:
            return bodies
        packed = np.flatnonzero(self._parts.head["sys_flag"] & SysFlag.COMPRESSED)
        if not len(packed):
            return bodies
        plain = arrow.array(self._decompressed(packed.tolist(), bodies, self._plain_size_max), arrow.binary())
        source = np.arange(self.count)
        source[packed] = self.count + np.arange(len(packed))
        return arrow.concat_arrays([bodies, plain]).take(arrow.array(source))

    def _decompressed(self, rows: list[int], bodies: Any, size_max: int) -> list[bytes]:
        plain: list[bytes] = []
        size = bodies.nbytes
        for row in rows:
            try:
                kind = compression_type(int(self._parts.head["sys_flag"][row]))
                body = decompress_body(bodies[row].as_py(), kind, size_max=size_max)
            except MessageError as error:
                raise RecordError(f"record at {self._parts.positions[row]}: {error}") from error
            size += len(body)
            if size > BYTES_MAX:
                raise _too_much(int(self._parts.positions[row]), "bodies")
            plain.append(body)
        return plain

    def properties(self, _: str) -> Any:
        return self._properties.maps()

    def tag(self, _: str) -> Any:
        return self.property(TAGS)

    def unique_id(self, _: str) -> Any:
        return self.property(UNIQ_KEY)

    def keys(self, _: str) -> Any:
        arrow = _arrow()
        keys = self.property(KEYS)
        counts = np.ones(self.count, np.int32)
        if keys.null_count:
            counts[np.asarray(keys.is_null())] = 0
            keys = keys.drop_null()
        if (text_bytes(keys) == ord(KEY_SEPARATOR)).any():
            import pyarrow.compute as pc  # takes long to load, and few need it

            split = pc.split_pattern(keys, KEY_SEPARATOR)
            keys = split.flatten()
            kept = np.asarray(pc.binary_length(keys)) > 0
            rows = np.asarray(pc.list_parent_indices(split))
            counts[counts > 0] = np.bincount(rows[kept], minlength=len(split))
            keys = keys.filter(arrow.array(kept))
        offsets = np.zeros(self.count + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        return arrow.ListArray.from_arrays(arrow.array(offsets), keys)

    @cached_property
    def _properties(self) -> PropertyTable:
        arrow = _arrow()
        strings = self._part(self._parts.properties_start, self._parts.record_end, arrow.string())
        if not _is_ascii(strings) and not _is_utf8(strings):
            texts = [raw.decode("utf-8", "replace").encode() for raw in strings.cast(arrow.binary()).to_pylist()]
            if sum(map(len, texts)) > BYTES_MAX:
                raise _too_much(int(self._parts.positions[-1]), "properties")
            strings = arrow.array(texts, arrow.string())
        return PropertyTable(arrow, strings)

    def _part(self, starts: NDArray[np.int64], ends: NDArray[np.int64], kind: Any) -> Any:
        arrow = _arrow()
        offsets, data = copy_parts(self._view, starts, ends)
        return arrow.Array.from_buffers(kind, self.count, [None, arrow.py_buffer(offsets), arrow.py_buffer(data)])


def _is_ascii(strings: Any) -> bool:
    data = text_bytes(strings)
    return not len(data) or bool(data.max() < 0x80)


def _is_utf8(strings: Any) -> bool:
    arrow = _arrow()
    try:
        strings.cast(arrow.binary()).cast(arrow.string())
    except arrow.ArrowInvalid:
        return False
    return True


_BUILDERS: Final[dict[str, Callable[[RecordColumns, str], Any]]] = {
    "topic": RecordColumns.topic,
    "queue_id": RecordColumns.head_field,
    "queue_offset": RecordColumns.head_field,
    "log_offset": RecordColumns.head_field,
    "store_size": RecordColumns.head_field,
    "version": RecordColumns.version,
    "flag": RecordColumns.head_field,
    "sys_flag": RecordColumns.sys_flag,
    "born_timestamp": RecordColumns.head_field,
    "born_host": RecordColumns.born_host,
    "store_timestamp": RecordColumns.store_timestamp,
    "store_host": RecordColumns.store_host,
    "reconsume_times": RecordColumns.tail_field,
    "prepared_transaction_offset": RecordColumns.tail_field,
    "body_crc": RecordColumns.head_field,
    "body": RecordColumns.body,
    "tag": RecordColumns.tag,
    "keys": RecordColumns.keys,
    "unique_id": RecordColumns.unique_id,
    "properties": RecordColumns.properties,
}
_FIELDS: Final[dict[str, Callable[[StoredMessage], object]]] = {
    **{name: attrgetter(name) for name in COLUMNS},
    "born_timestamp": attrgetter("born_timestamp_ms"),
    "store_timestamp": attrgetter("store_timestamp_ms"),
    # the decoded properties are remembered, so that all four columns need them once
    "tag": lambda message: message.properties.get(TAGS),
    "keys": lambda message: [key for key in message.properties.get(KEYS, "").split(KEY_SEPARATOR) if key],
    "unique_id": lambda message: message.properties.get(UNIQ_KEY),
}
