"""Stored records to the batches that Spark takes: exactly its Arrow types, and only the columns that are wanted.

Theory of operation
-------------------
`store.columns` makes columns of a buffer of records; here these become the columns of the table (`pipeline.schema`).
Most are the same arrays under another name. Times are multiplied from milliseconds to microseconds, the name of the
broker group repeats one text, and what is a property (keys, delay, transaction) is found for all rows at once. The
message id is the unique id of the producer where there is one, else the id that says where the record lies.

Spark takes batches of about a mebibyte best, while decoding has a price per call and is best done for several at once:
`RecordBatches` gathers small answers, decodes `DECODED_SIZE` bytes at a time and cuts what comes out.

A record may hold an inner batch (a topic whose queues are of the batch kind): its messages become rows of their own.
Brokers filter by hashes of tags, so rows whose tag only has the same hash are left out here.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from fusee.errors import MessageError, RecordError
from fusee.message import properties as names
from fusee.message.batch import unwrap_message
from fusee.message.flags import SysFlag, is_inner_batch
from fusee.message.record import decode_record, encode_record
from fusee.message.record_layout import record_bounds
from fusee.pipeline.schema import arrow_schema
from fusee.store.columns import RecordColumns
from fusee.store.record_scan import HEAD, check_stop, find_records, locate_parts, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fusee.message.record_layout import Buffer
    from fusee.store.record_scan import RecordParts

BATCH_SIZE: Final = 1 << 20
DECODED_SIZE: Final = 4 << 20
DECOMPRESSED_SIZE_MAX: Final = 64 * 1024 * 1024
"""What a compressed body may become, as for consumers."""
_INNER_BATCH: Final = SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
_FLAG_BYTE: Final = 39  # the last byte of the system flag
_LOG_APPEND_TIME: Final = 1  # Kafka's timestampType


class RecordBatches:
    """Makes batches of one broker group's records, as they come."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        broker_name: str,
        batch_size: int = BATCH_SIZE,
        tags: Collection[str] = (),
    ) -> None:
        """`tags` are those that are wanted, by name; none means that all are."""
        self._table = _Table(columns, broker_name, tags)
        self._batch_size = max(batch_size, 1)
        self._decoded_size = max(batch_size, DECODED_SIZE)
        self._waiting: list[Buffer] = []
        self._waiting_size = 0

    def add_placed(
        self, records: Buffer, positions: NDArray[np.int64], parts: RecordParts | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The batches of these records, all of them, where it is known where each begins; nothing is kept.

        `parts` are those of the records, where they are known too.
        """
        yield from self.flush()
        if not len(positions):
            return
        pieces = -(-len(records) // self._decoded_size)
        if pieces == 1:
            yield from self._cut(self._table.batch(records, positions, parts), len(records))
            return
        borders = np.arange(1, pieces) * (len(records) / pieces)
        for piece in np.split(positions, np.searchsorted(positions, borders)):
            if len(piece):
                yield from self._cut(self._table.batch(records, piece), len(records) // pieces)

    def add(self, records: Buffer) -> Iterator[pa.RecordBatch]:
        """The batches that are full with these records. Raises RecordError for what is no record."""
        size = len(records)
        if self._waiting_size + size > self._decoded_size:
            yield from self.flush()
        if size <= self._decoded_size:
            if size:
                self._waiting.append(records)
                self._waiting_size += size
            return
        position = 0
        while position < size:
            found, stop = find_records(records, position, size_max=self._decoded_size)
            if len(found):
                yield from self._cut(self._table.batch(records, found), stop - position)
            if stop < min(position + self._decoded_size, size):
                check_stop(records, stop)
            position = stop

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The batch of what is left."""
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        if waiting:
            data = waiting[0] if len(waiting) == 1 else b"".join(waiting)
            found, stop = find_records(data)
            check_stop(data, stop)
            yield from self._cut(self._table.batch(data, found), len(data))

    def _cut(self, batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
        """A batch that was made of so many bytes in pieces of about the size that is wanted."""
        count = batch.num_rows
        pieces = min(-(-size // self._batch_size), count)
        for piece in range(pieces):
            start = count * piece // pieces
            yield batch.slice(start, count * (piece + 1) // pieces - start) if pieces > 1 else batch


def record_batches(
    buffers: Iterable[Buffer],
    columns: Sequence[str],
    *,
    broker_name: str,
    batch_size: int = BATCH_SIZE,
    tags: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """The records of all these buffers in batches of about this many bytes; each buffer has whole records."""
    batches = RecordBatches(columns, broker_name=broker_name, batch_size=batch_size, tags=tags)
    for buffer in buffers:
        yield from batches.add(buffer)
    yield from batches.flush()


def cut_records(records: Buffer, start_offset: int, end_offset: int) -> Buffer:
    """Those records of a queue whose offsets are in this range, of records in the order of the queue.

    Inner batches that reach into the range are unwrapped, so that no message outside of it stays.
    """
    found, stop = find_records(records)
    check_stop(records, stop)
    if not len(found):
        return b""
    plain = unwrapped(records, found)
    if plain is not None:
        records = plain
        found, stop = find_records(records)
    view = np.frombuffer(records, np.uint8)
    queue_offsets = windows(view, ">i8")[found + HEAD.fields["queue_offset"][1]]  # type: ignore[index]
    borders = np.append(found, stop)
    first, last = np.searchsorted(queue_offsets, (start_offset, end_offset))
    return memoryview(records)[borders[first] : borders[last]]


def unwrapped(records: Buffer, positions: NDArray[np.int64]) -> bytes | None:
    """The records at these positions with each inner batch replaced by its messages; None when there is none."""
    view = np.frombuffer(records, np.uint8)
    if not len(positions) or positions[-1] > len(view) - HEAD.itemsize:
        return None  # no whole record, which the decoder says
    flag_bytes = view[positions + _FLAG_BYTE]
    if not (flag_bytes & _INNER_BATCH == _INNER_BATCH).any():
        return None
    parts: list[Buffer] = []
    for position, sys_flag in zip(positions.tolist(), flag_bytes.tolist(), strict=True):
        *_, end = record_bounds(records, position, len(records))
        if is_inner_batch(sys_flag):
            try:
                messages = unwrap_message(decode_record(records, position, end), size_max=DECOMPRESSED_SIZE_MAX)
            except MessageError as error:
                raise RecordError(f"record at {position}: {error}") from error
            parts.extend(map(encode_record, messages))
        else:
            parts.append(memoryview(records)[position:end])
    return b"".join(parts)


class _Table:
    """The columns of the table, made of columns of records."""

    def __init__(self, columns: Sequence[str], broker_name: str, tags: Collection[str]) -> None:
        self._schema = arrow_schema(columns)
        self._makers = [_COLUMNS[name] for name in columns]
        self._broker_name = broker_name.encode()
        self._tags = pa.array(sorted(tags), pa.string()) if tags else None
        self._has_maps = not _OF_ALL_PROPERTIES.isdisjoint(columns)

    def batch(self, data: Buffer, positions: NDArray[np.int64], parts: RecordParts | None = None) -> pa.RecordBatch:
        if not len(positions):
            return pa.RecordBatch.from_pylist([], self._schema)
        plain = unwrapped(data, positions)
        if plain is not None:
            data, parts = plain, None
            positions, _ = find_records(plain)
        columns = RecordColumns(
            data,
            locate_parts(data, positions) if parts is None else parts,
            plain_size_max=DECOMPRESSED_SIZE_MAX,
            has_maps=self._has_maps,
        )
        rows = _Rows(columns, self._broker_name)
        batch = pa.RecordBatch.from_arrays([make(rows) for make in self._makers], schema=self._schema)
        if self._tags is not None:
            pc = _compute()
            is_wanted = pc.is_in(rows.property(names.TAGS), value_set=self._tags)
            if not pc.all(is_wanted).as_py():
                batch = batch.filter(is_wanted)
        return batch


class _Rows:
    """The rows of one batch."""

    def __init__(self, columns: RecordColumns, broker_name: bytes) -> None:
        self.column = columns.column
        self.property = columns.property
        self.count = columns.count
        self._broker_name = broker_name

    def time(self, name: str) -> Any:
        return _fixed(_TIME, _numbers(self.column(name), np.int64) * 1000)

    def broker_name(self) -> Any:
        size = len(self._broker_name)
        ends = np.arange(0, (self.count + 1) * size, size, dtype=np.int32) if size else np.zeros(self.count + 1, "i4")
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self._broker_name * self.count)]
        return pa.Array.from_buffers(pa.string(), self.count, buffers)

    def constant(self, value: int) -> Any:
        return _fixed(pa.int32(), np.full(self.count, value, np.int32))

    def message_id(self) -> Any:
        unique_ids = self.property(names.UNIQ_KEY)
        if not unique_ids.null_count:
            return unique_ids
        ids = unique_ids.to_pylist()
        hosts, log_offsets = self.column("store_host"), self.column("log_offset")
        for row, known in enumerate(ids):
            if known is None:
                ids[row] = _offset_id(hosts[row].as_py(), log_offsets[row].as_py())
        return pa.array(ids, pa.string())

    def number(self, name: str, kind: Any) -> Any:
        """The values of a property that is a number; null also where it is none."""
        texts = self.property(name)
        if texts.null_count == self.count:
            return pa.nulls(self.count, kind)
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            return pa.array(list(map(_int_or_none, texts.to_pylist())), pa.int64()).cast(kind, safe=False)

    def transaction_id(self) -> Any:
        given = self.property(names.TRANSACTION_ID)
        in_transaction = _numbers(self.column("sys_flag"), np.int32) & SysFlag.TRANSACTION_MASK != 0
        if not in_transaction.any():
            return given
        unique_ids = self.property(names.UNIQ_KEY)
        pc = _compute()
        return pc.coalesce(given, pc.if_else(pa.array(in_transaction), unique_ids, pa.scalar(None, pa.string())))

    def deliver_at(self) -> Any:
        asked = self.number(names.TIMER_DELIVER_MS, pa.int64())
        due = self.number(names.TIMER_OUT_MS, pa.int64())
        if asked.null_count == due.null_count == self.count:
            return pa.nulls(self.count, _TIME)
        pc = _compute()
        times = pc.coalesce(asked, due)
        return pc.multiply(times, 1000).cast(_TIME)

    def headers(self) -> Any:
        maps = self.column("properties")
        entries = pa.StructArray.from_arrays([maps.keys, maps.items.view(pa.binary())], names=["key", "value"])
        return pa.ListArray.from_arrays(maps.offsets, entries)


_TIME: Final = pa.timestamp("us", tz="UTC")


def _compute() -> Any:
    """Arrow's functions, which take long to load and are seldom needed here."""
    import pyarrow.compute as pc

    return pc


def _numbers(column: Any, kind: type[np.integer[Any]]) -> NDArray[Any]:
    """The numbers of a column without nulls that begins at the start of its buffer.

    `np.asarray` would do, and have Arrow load pandas in every worker.
    """
    return np.frombuffer(column.buffers()[1], kind, len(column))


def _fixed(kind: Any, values: NDArray[Any]) -> Any:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _int_or_none(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _offset_id(store_host: str, log_offset: int) -> str:
    """The id of a record's place, also of a record with numbers that no broker writes."""
    return f"{_host_digits(store_host)}{log_offset & 0xFFFFFFFFFFFFFFFF:016X}"


@lru_cache(maxsize=256)
def _host_digits(store_host: str) -> str:
    ip, _, port = store_host.rpartition(":")
    return f"{ip_address(ip.strip('[]')).packed.hex().upper()}{int(port):08X}"


def _same(name: str) -> Callable[[_Rows], Any]:
    return lambda rows: rows.column(name)


def _time(name: str) -> Callable[[_Rows], Any]:
    return lambda rows: rows.time(name)


_COLUMNS: Final[dict[str, Callable[[_Rows], Any]]] = {
    "topic": _same("topic"),
    "brokerName": _Rows.broker_name,
    "queueId": _same("queue_id"),
    "queueOffset": _same("queue_offset"),
    "logOffset": _same("log_offset"),
    "keys": lambda rows: rows.property(names.KEYS),
    "tags": lambda rows: rows.property(names.TAGS),
    "body": _same("body"),
    "properties": _same("properties"),
    "bornTimestamp": _time("born_timestamp"),
    "storeTimestamp": _time("store_timestamp"),
    "bornHost": _same("born_host"),
    "storeHost": _same("store_host"),
    "reconsumeTimes": _same("reconsume_times"),
    "sysFlag": _same("sys_flag"),
    "flag": _same("flag"),
    "msgId": _Rows.message_id,
    "preparedTransactionOffset": _same("prepared_transaction_offset"),
    "transactionId": _Rows.transaction_id,
    "delayLevel": lambda rows: rows.number(names.DELAY, pa.int32()),
    "deliverAt": _Rows.deliver_at,
    "key": lambda rows: rows.property(names.KEYS).view(pa.binary()),
    "value": _same("body"),
    "partition": _same("queue_id"),
    "offset": _same("queue_offset"),
    "timestamp": _time("store_timestamp"),
    "timestampType": lambda rows: rows.constant(_LOG_APPEND_TIME),
    "headers": _Rows.headers,
}
"""How each column is made of those of the records."""
_OF_ALL_PROPERTIES: Final = frozenset({"properties", "headers"})
