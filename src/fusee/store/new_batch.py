"""The records of a batch, which lie end to end, and where each begins: packed by the shortest way that is right."""

from __future__ import annotations

from struct import error as StructError  # noqa: N812  the module's own class has a lower-case name
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fusee.errors import MessageError
from fusee.message.properties import PROPERTIES_SIZE_MAX
from fusee.message.record import seal_record, with_crc_tail
from fusee.message.record_layout import (
    LENGTHS,
    MAGIC_V1,
    PACK_HEAD,
    RECORD_SIZE_MIN,
    TOPIC_SIZE_MAX_V1,
    body_crc,
    pack_record,
)
from fusee.store.batch_body import BatchBody

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fusee.message.batch import BatchElement
    from fusee.store.batch_body import PackedKeys
    from fusee.store.new_record import NewRecord


_HOST_FAMILIES: Final = 0x30


class Packed(NamedTuple):
    """Records end to end: where each begins and the last ends, and their keys, if those were looked for."""

    data: bytes
    starts: NDArray[np.int64]
    keys: PackedKeys | None


def prepare_batch(
    record: NewRecord,
    batch: Sequence[BatchElement] | BatchBody,
    topic: bytes,
    *,
    seals: bool,
    body_size_max: int,
    checked: Callable[[int, int], int],
    key_prefixes: tuple[int, int] | None,
) -> tuple[int, Callable[[int, int, int], Packed]]:
    """The size of all records, and a function that makes them.

    That function takes the first queue offset, the first log offset and the store time. `topic` stands behind its
    length; `seals` asks for a checksum of each record, which those with zero bytes in their properties have always;
    `checked` is that of `batch_sizes`, `key_prefixes` are those of `BatchBody.pack`. Both may raise MessageError.
    """
    is_plain = not record.sys_flag & _HOST_FAMILIES and is_plain_batch(record, len(topic) - 1)
    if isinstance(batch, BatchBody):
        body = batch
        if is_plain and not seals and not body.has_zero_properties and body.body_size_largest <= body_size_max:

            def pack_body(queue_offset: int, log_offset: int, now_ms: int) -> Packed:
                return Packed(
                    *body.pack(
                        topic,
                        record.queue_id,
                        queue_offset,
                        log_offset,
                        record.sys_flag,
                        record.born_timestamp_ms,
                        record.born_host,
                        now_ms,
                        record.store_host,
                        record.reconsume_times,
                        record.prepared_transaction_offset,
                        key_prefixes,
                    )
                )

            return body.packed_size(len(topic) - 1), pack_body
        batch = body.elements
    elements = batch
    sealing = seals or any(b"\0" in element.properties_bytes for element in elements)
    is_plain = is_plain and not sealing
    fixed_size = RECORD_SIZE_MIN + len(topic) - 1 if is_plain else None
    sizes = batch_sizes(elements, fixed_size, body_size_max=body_size_max, checked=checked, seals=sealing)

    def pack(queue_offset: int, log_offset: int, now_ms: int) -> Packed:
        if is_plain:
            parts, log_offsets = pack_plain_batch(record, elements, sizes, topic, queue_offset, log_offset, now_ms)
        else:
            parts, log_offsets = pack_batch(record, elements, queue_offset, log_offset, now_ms, seals=sealing)
        data = b"".join(parts)
        return Packed(data, np.array([*log_offsets, log_offset + len(data)], np.int64) - log_offset, None)

    return sum(sizes), pack


def is_plain_batch(record: NewRecord, topic_size: int) -> bool:
    """Whether `pack_plain_batch` can pack records of this topic between these hosts."""
    return topic_size <= TOPIC_SIZE_MAX_V1 and len(record.born_host) == 8 and len(record.store_host) == 8


def batch_sizes(
    elements: Sequence[BatchElement],
    fixed_size: int | None,
    *,
    body_size_max: int,
    checked: Callable[[int, int], int],
    seals: bool,
) -> list[int]:
    """The size of each record; `fixed_size` is what body and properties add to in a plain batch.

    `checked(body size, properties size)` gives the size of every other one, or raises MessageError.
    """
    sizes: list[int] = []
    properties_size_max = PROPERTIES_SIZE_MAX
    for element in elements:
        body_size, properties_size = len(element.body), len(element.properties_bytes)
        if fixed_size is not None and body_size <= body_size_max and properties_size <= properties_size_max:
            sizes.append(fixed_size + body_size + properties_size)
            continue
        if seals:
            properties_size = len(with_crc_tail(element.properties_bytes))
        sizes.append(checked(body_size, properties_size))
    return sizes


def pack_plain_batch(
    record: NewRecord,
    elements: Sequence[BatchElement],
    sizes: Sequence[int],
    topic: bytes,
    queue_offset: int,
    log_offset: int,
    now_ms: int,
) -> tuple[list[bytes], list[int]]:
    """The same as `pack_batch`, in a third of the time, for IPv4 hosts and short topics.

    `sizes` are those of the records, `topic` stands behind its length. Raises MessageError.
    """
    parts: list[bytes] = []
    log_offsets: list[int] = []
    queue_id, sys_flag, born_timestamp_ms = record.queue_id, record.sys_flag, record.born_timestamp_ms
    born_host, store_host = record.born_host, record.store_host
    reconsume_times, prepared = record.reconsume_times, record.prepared_transaction_offset
    try:
        for element, size in zip(elements, sizes, strict=True):
            body = element.body
            properties = element.properties_bytes
            head = PACK_HEAD(
                size,
                MAGIC_V1,
                body_crc(body),
                queue_id,
                element.flag,
                queue_offset,
                log_offset,
                sys_flag,
                born_timestamp_ms,
                born_host,
                now_ms,
                store_host,
                reconsume_times,
                prepared,
                len(body),
            )
            parts += (head, body, topic, LENGTHS[len(properties)], properties)
            log_offsets.append(log_offset)
            log_offset += size
            queue_offset += 1
    except StructError as error:
        raise MessageError(f"a number does not fit its field of the record: {error}") from error
    return parts, log_offsets


def pack_batch(
    record: NewRecord,
    elements: Sequence[BatchElement],
    queue_offset: int,
    log_offset: int,
    now_ms: int,
    *,
    seals: bool,
) -> tuple[list[bytes], list[int]]:
    """The records of these elements from a log offset on. Raises MessageError when a part does not fit its field."""
    parts: list[bytes] = []
    log_offsets: list[int] = []
    topic = record.topic.encode()
    for number, element in enumerate(elements):
        body = element.body
        data = pack_record(
            topic,
            body,
            with_crc_tail(element.properties_bytes) if seals else element.properties_bytes,
            body_crc(body),
            record.queue_id,
            element.flag,
            queue_offset + number,
            log_offset,
            record.sys_flag,
            record.born_timestamp_ms,
            record.born_host,
            now_ms,
            record.store_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
        )
        parts.append(seal_record(data) if seals else data)
        log_offsets.append(log_offset)
        log_offset += len(data)
    return parts, log_offsets
