r"""THE stored record: the same bytes in the commit log, in a pull answer and on the replication stream.

Theory of operation
-------------------
A record is written once by a master and never altered; slaves and consumers get the very bytes. All integers
are big-endian and signed.

    position  size   field
           0     4   TOTALSIZE, of the whole record
           4     4   MAGICCODE: DAA320A7 version 1, DAA320AB version 2, CBD43194 blank
           8     4   BODYCRC: CRC-32 of the stored body without the highest bit
          12     4   QUEUEID
          16     4   FLAG, the application's own
          20     8   QUEUEOFFSET: number in its queue; of an inner batch, that of its first message
          28     8   PHYSICALOFFSET: position of the record's first byte in the log (here: log offset)
          36     4   SYSFLAG, see `flags`
          40     8   BORNTIMESTAMP, ms, the producer's clock
          48  8|20   BORNHOST: IP 4 or 16 bytes (SYSFLAG bit 4), port 4
       56|68     8   STORETIMESTAMP, ms, the broker's clock
           .  8|20   STOREHOST, the same with SYSFLAG bit 5
           .     4   RECONSUMETIMES
           .     8   PREPAREDTRANSACTIONOFFSET
           .     4   body size, then the BODY
           .   1|2   topic size (version 1: one byte, at most 127; version 2: two), then the TOPIC
           .     2   properties size (at most 32767), then the PROPERTIES, see `properties`

Shortest with IPv4 hosts: 91 bytes. Version 2 exists for retry and dead-letter topics over 127 bytes and is
used for nothing else; a log mixes both.

Records never cross a log file. A record that does not leave 8 bytes behind it goes to the next file, and the
rest of the present one becomes a *blank*: remaining size, blank magic, anything. Eight zero bytes mean that
nothing was written here yet.

Checksums. BODYCRC covers the body only: damage elsewhere shows when lengths do not add up, or not at all. The
optional record checksum covers everything: the properties end in a tail of fixed size, `__CRC32#` 01 *ten
digits* 02, holding the CRC-32 of all bytes before the tail without the highest bit, as decimal digits with
the *least significant first*. It can only be computed when offsets and store time are final, so a store
encodes with an empty tail (`with_crc_tail`), patches the fields below, and seals (`seal_record`).

What a store patches at append: QUEUE_OFFSET_POSITION and LOG_OFFSET_POSITION, which are neighbours, and the
store time at `store_timestamp_position(sys_flag)`.

Reading is strict. Bytes come from disks after crashes and from the network: every length is checked against
the total and the total against the buffer before anything is read or copied, and whatever is wrong becomes a
RecordError that names the position. (Java's client decoder trusts the parts and skips the rest of an answer
without a word.) What must not be here: I/O, and any knowledge of files; `store` walks them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from fusee.errors import MessageError, RecordError
from fusee.message.model import StoredMessage
from fusee.message.properties import join_properties, remove_property
from fusee.message.record_layout import (
    BLANK_SIZE_MIN,
    BODY_CRC_POSITION,
    BORN_HOST_POSITION,
    BORN_TIMESTAMP_POSITION,
    FLAG_POSITION,
    FRAME,
    HEADS,
    LOG_OFFSET_POSITION,
    MAGIC_BLANK,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    OFFSETS,
    PROPERTIES_SIZE_MAX,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    SYS_FLAG_POSITION,
    TIMESTAMP,
    TOPIC_SIZE_MAX_V1,
    TOTAL_SIZE_POSITION,
    Buffer,
    body_crc,
    pack_record,
    record_bounds,
    record_size,
    store_timestamp_position,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BLANK_SIZE_MIN",
    "BODY_CRC_POSITION",
    "BORN_HOST_POSITION",
    "BORN_TIMESTAMP_POSITION",
    "CRC_TAIL_SIZE",
    "FLAG_POSITION",
    "LOG_OFFSET_POSITION",
    "MAGIC_BLANK",
    "MAGIC_POSITION",
    "MAGIC_V1",
    "MAGIC_V2",
    "PROPERTIES_SIZE_MAX",
    "QUEUE_ID_POSITION",
    "QUEUE_OFFSET_POSITION",
    "RECORD_SIZE_MIN",
    "SYS_FLAG_POSITION",
    "TOPIC_SIZE_MAX_V1",
    "TOTAL_SIZE_POSITION",
    "Buffer",
    "body_crc",
    "check_body_crc",
    "check_record_crc",
    "decode_record",
    "encode_blank",
    "encode_record",
    "iterate_records",
    "pack_record",
    "patch_record",
    "read_frame",
    "record_bounds",
    "record_size",
    "seal_record",
    "store_timestamp_position",
    "with_crc_tail",
]

CRC_TAIL_SIZE: Final = 20
_CRC_TAIL_START: Final = b"__CRC32#\x01"
_CRC_TAIL_EMPTY: Final = b"__CRC32#\x010000000000\x02"
_UNPACK_V4: Final = HEADS[0].unpack_from


def encode_record(message: StoredMessage) -> bytes:
    """The record of this message; one read from a record gives the same bytes again.

    The body checksum is taken as it is. Raises MessageError when a part does not fit.
    """
    try:
        topic = message.topic.encode()
    except UnicodeEncodeError as error:
        raise MessageError(f"topic {message.topic!r} is not text that can be encoded: {error}") from error
    return pack_record(
        topic,
        message.body,
        message.properties_bytes,
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.log_offset,
        message.sys_flag,
        message.born_timestamp_ms,
        message.born_host_bytes,
        message.store_timestamp_ms,
        message.store_host_bytes,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.version,
    )


def decode_record(data: Buffer, position: int = 0, end: int | None = None) -> StoredMessage:
    """The message of the record at `position`, which must lie before `end` (default: the end of the data).

    Checks the layout but not the checksums. Raises RecordError naming the position.
    """
    body_start, body_end, topic_start, properties_start, record_end = record_bounds(
        data, position, len(data) if end is None else end
    )
    families = data[position + 39] >> 4 & 3
    (
        total,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        log_offset,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        _,
    ) = (HEADS[families].unpack_from if families else _UNPACK_V4)(data, position)
    try:
        topic = str(data[topic_start : properties_start - 2], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"record at {position}: the topic is not UTF-8: {error}") from error
    return StoredMessage(
        topic,
        queue_id,
        queue_offset,
        log_offset,
        bytes(data[body_start:body_end]),
        bytes(data[properties_start:record_end]),
        flag,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        crc,
        1 if magic == MAGIC_V1 else 2,
        total,
    )


def iterate_records(data: Buffer, position: int = 0, end: int | None = None) -> Iterator[StoredMessage]:
    """The messages of records that lie end to end, such as the body of a pull answer.

    Raises RecordError, after the messages before it, at the first byte that is not part of a whole record.
    """
    if end is None:
        end = len(data)
    while position < end:
        message = decode_record(data, position, end)
        yield message
        position += message.store_size


def read_frame(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Total size and magic at `position`, for walking a log file: MAGIC_V1, MAGIC_V2, MAGIC_BLANK, or (0, 0).

    (0, 0) means that nothing was written here: zero bytes, or less than a blank left. Raises RecordError when
    the magic is unknown or the size runs past `end`; the parts of a record are not looked at.
    """
    if position < 0 or end > len(data) or position > end:
        raise RecordError(f"record at {position}: outside the {len(data)} bytes given, which end at {end}")
    if end - position < BLANK_SIZE_MIN:
        return 0, 0
    total: int
    magic: int
    total, magic = FRAME.unpack_from(data, position)
    if total == 0 and magic == 0:
        return 0, 0
    if magic in (MAGIC_V1, MAGIC_V2):
        shortest = RECORD_SIZE_MIN
    elif magic == MAGIC_BLANK:
        shortest = BLANK_SIZE_MIN
    else:
        raise RecordError(f"record at {position}: unknown magic {magic:#010x}")
    if not shortest <= total <= end - position:
        raise RecordError(f"record at {position}: total size {total} is outside {shortest}..{end - position}")
    return total, magic


def encode_blank(remaining_size: int) -> bytes:
    """The 8 bytes that turn the rest of a log file into a blank."""
    if not BLANK_SIZE_MIN <= remaining_size < 1 << 31:
        raise MessageError(f"a blank covers {BLANK_SIZE_MIN}..2**31-1 bytes, not {remaining_size}")
    return FRAME.pack(remaining_size, MAGIC_BLANK)


def patch_record(record: bytearray | memoryview, queue_offset: int, log_offset: int, store_timestamp_ms: int) -> None:
    """Fill in what is known only at append. A record checksum must be sealed after this."""
    try:
        OFFSETS.pack_into(record, QUEUE_OFFSET_POSITION, queue_offset, log_offset)
        TIMESTAMP.pack_into(record, 68 if record[39] & 0x10 else 56, store_timestamp_ms)
    except (struct.error, IndexError) as error:
        raise MessageError(f"cannot patch a record of {len(record)} bytes: {error}") from error


def check_body_crc(message: StoredMessage) -> None:
    """Raise RecordError when the body is not the one its checksum was made of.

    An empty body is not checked.
    """
    if message.body and body_crc(message.body) != message.body_crc:
        raise RecordError(
            f"record at log offset {message.log_offset}: the body's checksum is {body_crc(message.body)}, "
            f"the record says {message.body_crc}; the record is damaged"
        )


def with_crc_tail(properties: bytes) -> bytes:
    """The properties with an empty checksum tail, for `seal_record` to fill.

    A checksum already inside is dropped.
    """
    return join_properties(remove_property(properties, b"__CRC32#"), _CRC_TAIL_EMPTY)


def seal_record(record: bytes | bytearray) -> bytes:
    """The record with its checksum tail filled. Raises MessageError when it was encoded without one."""
    body_part = bytes(record[:-CRC_TAIL_SIZE])
    tail = record[-CRC_TAIL_SIZE:]
    if not (tail.startswith(_CRC_TAIL_START) and tail.endswith(b"\x02")) or len(tail) != CRC_TAIL_SIZE:
        raise MessageError("the record has no checksum tail; encode its properties with with_crc_tail")
    return body_part + _CRC_TAIL_START + _crc_digits(body_part) + b"\x02"


def check_record_crc(data: Buffer, position: int = 0, end: int | None = None) -> bool:
    """Whether the record at `position` carries a checksum of all its bytes; it is then right.

    Raises RecordError when it is wrong, or when there is no whole record here.
    """
    *_, properties_start, record_end = record_bounds(data, position, len(data) if end is None else end)
    tail_start = record_end - CRC_TAIL_SIZE
    if tail_start < properties_start:
        return False
    tail = bytes(data[tail_start:record_end])
    digits = tail[len(_CRC_TAIL_START) : -1]
    if not (tail.startswith(_CRC_TAIL_START) and tail.endswith(b"\x02") and digits.isdigit()):
        return False
    if tail_start > properties_start and data[tail_start - 1] != 2:
        return False  # the end of a longer property name, not an entry of its own
    expected = _crc_digits(data[position:tail_start])
    if digits != expected:
        raise RecordError(
            f"record at {position}: its checksum is {int(expected[::-1])}, the record says "
            f"{int(digits[::-1])}; the record is damaged"
        )
    return True


def _crc_digits(data: Buffer) -> bytes:
    # least significant digit first, as Java writes and reads it
    return (b"%010d" % (crc32(data) & 0x7FFFFFFF))[::-1]
