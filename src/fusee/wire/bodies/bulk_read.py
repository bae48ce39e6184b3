"""Bodies of a bulk read, Fusee's own request: ranges of queues out, records in log order back.

    request:   for each range    int32 queue id | int64 start offset | int64 end offset
    response:  for each range    int32 queue id | int64 next offset | int64 min offset | int64 max offset
               for each record   int32 size
               the records, end to end; or, when the response header names a file of the log,
               for each record   int64 position in that file

The response header says how many ranges and records there are. All numbers are big-endian.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from fusee.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RANGES_MAX: Final = 1024
"""Ranges in one request."""

_RANGE: Final = Struct(">iqq")
_READ: Final = Struct(">iqqq")
_SIZE: Final = 4


class ReadTo(NamedTuple):
    """How far a range was read, and what its queue has."""

    queue_id: int
    next_offset: int
    min_offset: int
    max_offset: int


class BulkAnswer(NamedTuple):
    """The parts of a response body."""

    reads: list[ReadTo]
    sizes: memoryview
    """int32, big-endian, for each record."""
    records: memoryview
    """Or, of an answer that names a file, int64 for each record."""


def encode_ranges(ranges: Iterable[tuple[int, int, int]]) -> bytes:
    """Queue id, start and end offset of each range."""
    return b"".join([_RANGE.pack(*each) for each in ranges])


def decode_ranges(body: bytes) -> list[tuple[int, int, int]]:
    """The same. Raises ProtocolError unless the body is 1 to RANGES_MAX whole ranges."""
    count, rest = divmod(len(body), _RANGE.size)
    if rest or not 1 <= count <= RANGES_MAX:
        raise ProtocolError(
            f"a bulk read has 1 to {RANGES_MAX} ranges of {_RANGE.size} bytes, not a body of {len(body)} bytes"
        )
    return list(_RANGE.iter_unpack(body))


def encode_reads(reads: Sequence[tuple[int, int, int, int]]) -> bytes:
    """The first part of a response body; sizes and records follow it."""
    return b"".join([_READ.pack(*each) for each in reads])


def decode_answer(body: memoryview, range_count: int, record_count: int) -> BulkAnswer:
    """The parts of a response body. Raises ProtocolError when it is too short."""
    sizes_start = range_count * _READ.size
    records_start = sizes_start + record_count * _SIZE
    if range_count < 0 or record_count < 0 or records_start > len(body):
        raise ProtocolError(
            f"a bulk answer of {len(body)} bytes cannot have {range_count} ranges and {record_count} records"
        )
    reads = [ReadTo(*fields) for fields in _READ.iter_unpack(body[:sizes_start])]
    return BulkAnswer(reads, body[sizes_start:records_start], body[records_start:])
