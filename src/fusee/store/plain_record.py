"""The record of a usual message: IPv4 hosts, a topic of at most 127 bytes, parts whose sizes were looked at before.

`fusee.message.record` gives the layout, and its `pack_record` packs every record. The compiled form is
`plain_record.pyx`, a twin of this module written for C: each part is copied once.
"""

from __future__ import annotations

from struct import error as StructError  # noqa: N812  the module's own class has a lower-case name

from fusee.errors import MessageError
from fusee.message.record_layout import LENGTHS, MAGIC_V1, PACK_HEAD, RECORD_SIZE_MIN, body_crc


def pack_plain_record(
    topic: bytes,
    body: bytes,
    properties: bytes,
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
) -> bytes:
    """The record; `topic` stands behind its length. Raises MessageError when a number does not fit its field."""
    try:
        head = PACK_HEAD(
            RECORD_SIZE_MIN - 1 + len(body) + len(topic) + len(properties),
            MAGIC_V1,
            body_crc(body),
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
    return b"".join((head, body, topic, LENGTHS[len(properties)], properties))
