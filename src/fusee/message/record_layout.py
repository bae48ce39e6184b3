"""The hot half of the record codec: positions, packing into bytes, and the strict check of bounds.

`fusee.message.record` describes the layout. This module knows nothing of messages: numbers and bytes go in,
bytes and positions come out, so that it can be compiled as it is. Two shapes of head are told apart only by
the lengths of the two hosts, hence four precompiled structs, chosen by the two address-family bits.
"""

from __future__ import annotations

from mmap import mmap
from struct import Struct
from struct import error as StructError  # noqa: N812  the module's own class has a lower-case name
from typing import Final

from fusee.errors import MessageError, RecordError

try:
    from isal.isal_zlib import crc32  # eight times as fast as zlib's on a body of 1 KiB
except ImportError:  # where it has no build
    from zlib import crc32

Buffer = bytes | bytearray | memoryview | mmap

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

TOTAL_SIZE_POSITION: Final = 0
MAGIC_POSITION: Final = 4
BODY_CRC_POSITION: Final = 8
QUEUE_ID_POSITION: Final = 12
FLAG_POSITION: Final = 16
QUEUE_OFFSET_POSITION: Final = 20
LOG_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
BORN_TIMESTAMP_POSITION: Final = 40
BORN_HOST_POSITION: Final = 48

BLANK_SIZE_MIN: Final = 8
RECORD_SIZE_MIN: Final = 91
TOPIC_SIZE_MAX_V1: Final = 127
TOPIC_SIZE_MAX_V2: Final = 32767
PROPERTIES_SIZE_MAX: Final = 32767

FRAME: Final = Struct(">iI")
OFFSETS: Final = Struct(">qq")
TIMESTAMP: Final = Struct(">q")
# total, magic, crc, queue id, flag, queue offset, log offset, system flag, born time, born host, store time,
# store host, reconsume times, prepared offset, body size; one by address families (system flag >> 4 & 3)
HEADS: Final = tuple(Struct(f">iIiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20)))
_HEAD_V4: Final = HEADS[0]
_PACK_V4: Final = _HEAD_V4.pack
PACK_HEAD: Final = _PACK_V4
"""The head of a record whose hosts are IPv4."""
_TOPIC_LENGTHS: Final = tuple(bytes([size]) for size in range(TOPIC_SIZE_MAX_V1 + 1))
LENGTHS: Final = tuple(size.to_bytes(2, "big") for size in range(PROPERTIES_SIZE_MAX + 1))
"""The length field of properties, by size."""


def body_crc(body: bytes | memoryview) -> int:
    """The checksum stored with a body: CRC-32 without its highest bit, 0 for an empty body."""
    return crc32(body) & 0x7FFFFFFF


def store_timestamp_position(sys_flag: int) -> int:
    """Where STORETIMESTAMP lies: behind the born host, whose length depends on its address family."""
    return 68 if sys_flag & 0x10 else 56


def record_size(sys_flag: int, body_size: int, topic_size: int, properties_size: int, version: int = 1) -> int:
    """Length of the record with these parts (sizes in bytes)."""
    topic_field = topic_size + (2 if version == 2 or topic_size > TOPIC_SIZE_MAX_V1 else 1)
    return HEADS[sys_flag >> 4 & 3].size + body_size + topic_field + 2 + properties_size


def pack_record(
    topic: bytes,
    body: bytes,
    properties: bytes,
    crc: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    log_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    version: int = 1,
) -> bytes:
    """The record of these parts, all already in their wire form. A topic over 127 bytes makes it version 2.

    `crc` is `body_crc(body)`. Raises MessageError when a part does not fit its field, or when the length of a
    host is not the one its bit in `sys_flag` says.
    """
    topic_size = len(topic)
    properties_size = len(properties)
    if topic_size <= 127 and version == 1:
        magic = MAGIC_V1
        topic_length = _TOPIC_LENGTHS[topic_size]
        total = 3 + len(body) + topic_size + properties_size
    else:
        if topic_size > TOPIC_SIZE_MAX_V2 or version not in (1, 2):
            raise MessageError(f"record version {version} with a topic of {topic_size} bytes cannot be written")
        magic = MAGIC_V2
        topic_length = topic_size.to_bytes(2, "big")
        total = 4 + len(body) + topic_size + properties_size
    if properties_size > 32767:
        raise MessageError(f"properties take {properties_size} bytes, the limit of a record is 32767")
    families = sys_flag >> 4 & 3
    try:
        if families == 0:
            if len(born_host) != 8 or len(store_host) != 8:
                raise _host_mismatch(sys_flag, born_host, store_host)
            head = _PACK_V4(
                total + 88,
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
                len(body),
            )
        else:
            if len(born_host) != (20 if families & 1 else 8) or len(store_host) != (20 if families & 2 else 8):
                raise _host_mismatch(sys_flag, born_host, store_host)
            shape = HEADS[families]
            head = shape.pack(
                total + shape.size,
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
                len(body),
            )
    except StructError as error:
        raise MessageError(f"a number does not fit its field of the record: {error}") from error
    return b"".join((head, body, topic_length, topic, LENGTHS[properties_size], properties))


def _host_mismatch(sys_flag: int, born_host: bytes, store_host: bytes) -> MessageError:
    return MessageError(
        f"hosts of {len(born_host)} and {len(store_host)} bytes contradict system flag {sys_flag:#x}; set "
        "its address bits with flags.with_host_families"
    )


def record_bounds(data: Buffer, position: int, end: int) -> tuple[int, int, int, int, int]:
    """Where the parts of the record at `position` lie, checked against each other and against `end`.

    Gives the start of the body, the start of the topic's length field (= end of the body), the start of the
    topic, the start of the properties, and the end of the record. Raises RecordError, naming the position,
    unless every length is inside its limits and they add up to the total exactly.
    """
    if position < 0 or end > len(data) or end - position < RECORD_SIZE_MIN:
        raise _not_a_record(data, position, end)
    total, magic = FRAME.unpack_from(data, position)
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or not RECORD_SIZE_MIN <= total <= end - position:
        raise _not_a_record(data, position, end)
    record_end: int = position + total
    # SYSFLAG is the int32 at 36, its address bits are in the last byte
    body_start = position + (88, 100, 100, 112)[data[position + 39] >> 4 & 3]
    if body_start + 3 > record_end:
        raise RecordError(f"record at {position}: total size {total} is too small for its hosts")
    body_size = int.from_bytes(data[body_start - 4 : body_start], "big", signed=True)
    body_end = body_start + body_size
    topic_start = body_end + (1 if magic == MAGIC_V1 else 2)
    if body_size < 0 or topic_start + 2 > record_end:
        raise RecordError(f"record at {position}: body of {body_size} bytes does not fit total size {total}")
    topic_size = data[body_end]
    if magic == MAGIC_V2:
        topic_size = topic_size << 8 | data[body_end + 1]
    properties_start = topic_start + topic_size + 2
    if topic_size > (127 if magic == MAGIC_V1 else 32767) or properties_start > record_end:
        raise RecordError(f"record at {position}: topic of {topic_size} bytes does not fit")
    properties_size = data[properties_start - 2] << 8 | data[properties_start - 1]
    if properties_size > 32767 or properties_start + properties_size != record_end:
        raise RecordError(
            f"record at {position}: with properties of {properties_size} bytes it would have "
            f"{properties_start + properties_size - position} bytes, but the total size is {total}"
        )
    return body_start, body_end, topic_start, properties_start, record_end


def _not_a_record(data: Buffer, position: int, end: int) -> RecordError:
    if position < 0 or end > len(data) or position > end:
        return RecordError(f"record at {position}: outside the {len(data)} bytes given, which end at {end}")
    left = end - position
    if left < BLANK_SIZE_MIN:
        return RecordError(f"record at {position}: only {left} bytes are left")
    total, magic = FRAME.unpack_from(data, position)
    if magic == MAGIC_BLANK:
        return RecordError(f"record at {position}: this is the blank at the end of a log file, not a message")
    if magic not in (MAGIC_V1, MAGIC_V2):
        return RecordError(f"record at {position}: unknown magic {magic:#010x}")
    return RecordError(f"record at {position}: total size {total} is outside {RECORD_SIZE_MIN}..{left}, the bytes left")
