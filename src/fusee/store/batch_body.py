"""The body of a batch on its way into the log: looked over once, then written as records that lie end to end.

`fusee.message.batch` gives the form of the body, `fusee.message.record` that of a record. A plain batch has IPv4 hosts
and a topic of at most 127 bytes, and its records carry no checksum of their own; `pack` is for those alone.

The body may lie in memory that its sender can still write to (`fusee.broker.handovers`): sizes that were looked over
are those that are packed, whatever becomes of it meanwhile.

The compiled form is `batch_body.pyx`, a twin of this module written for C: it copies each body once, from the request
to its place, and sums it on the way; keys are hashed while their bytes are at hand.
"""

from __future__ import annotations

from functools import cached_property
from struct import error as StructError  # noqa: N812  the module's own class has a lower-case name
from typing import TYPE_CHECKING

import numpy as np

from fusee.errors import MessageError
from fusee.message.batch import BATCH_COUNT_MAX, ELEMENT_SIZE_MIN, split_batch
from fusee.message.record_layout import LENGTHS, MAGIC_V1, PACK_HEAD, RECORD_SIZE_MIN, body_crc
from fusee.store.record_keys import find_keys_of

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from fusee.message.batch import BatchElement

    PackedKeys: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.intp]]
    """The hash of each record's tag, and of all keys as an index stores them, each with the number of its record."""


class BatchBody:
    """The messages of a batch, as they came."""

    def __init__(self, data: bytes | memoryview, count_max: int = BATCH_COUNT_MAX) -> None:
        """Raises MessageError, naming the position, when it is malformed or has too many messages."""
        self._data = bytes(data)
        self._elements = split_batch(self._data, count_max=count_max)
        self.count = len(self._elements)

    def __len__(self) -> int:
        return self.count

    @property
    def elements(self) -> list[BatchElement]:
        """Every message by itself."""
        return self._elements

    @cached_property
    def body_size_largest(self) -> int:
        """The size of the largest body."""
        return max((len(element.body) for element in self._elements), default=0)

    @cached_property
    def has_zero_properties(self) -> bool:
        """Whether there is a zero byte in the properties of any message."""
        return any(b"\0" in element.properties_bytes for element in self._elements)

    def has_in_properties(self, mark: bytes) -> bool:
        """Whether these bytes stand in the properties of any message."""
        return any(mark in element.properties_bytes for element in self._elements)

    def packed_size(self, topic_size: int) -> int:
        """What the records of a plain batch take, for a topic of this many bytes."""
        return len(self._data) + self.count * (RECORD_SIZE_MIN + topic_size - ELEMENT_SIZE_MIN)

    def pack(
        self,
        topic: bytes,
        queue_id: int,
        queue_offset: int,
        log_offset: int,
        sys_flag: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_timestamp_ms: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        key_prefixes: tuple[int, int] | None = None,
    ) -> tuple[bytes, NDArray[np.int64], PackedKeys | None]:
        """The records of a plain batch from these offsets on, end to end, where they lie, and their keys.

        The array has where each record begins in the bytes, and where the last ends. `topic` stands behind its length,
        `key_prefixes` are the hashes of what stands before its keys, and before its tags; without them no keys are
        looked for, nor are there any when properties are not ASCII. Raises MessageError when a number does not fit
        its field.
        """
        parts: list[bytes] = []
        starts: list[int] = [0]
        properties_starts: list[int] = []
        fixed_size = RECORD_SIZE_MIN - 1 + len(topic)
        try:
            for element in self._elements:
                body = element.body
                properties = element.properties_bytes
                size = fixed_size + len(body) + len(properties)
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
                    store_timestamp_ms,
                    store_host,
                    reconsume_times,
                    prepared_transaction_offset,
                    len(body),
                )
                parts += (head, body, topic, LENGTHS[len(properties)], properties)
                starts.append(starts[-1] + size)
                properties_starts.append(starts[-1] - len(properties))
                log_offset += size
                queue_offset += 1
        except StructError as error:
            raise MessageError(f"a number does not fit its field of the record: {error}") from error
        packed, bounds = b"".join(parts), np.array(starts, np.int64)
        if key_prefixes is None:
            return packed, bounds, None
        found = find_keys_of(memoryview(packed), np.array(properties_starts, np.int64), bounds[1:])
        if found is None:
            return packed, bounds, None
        prefixes = np.array([key_prefixes], np.uint32)
        hashes, rows = found.index_keys(prefixes, np.zeros(self.count, np.intp), np.ones(self.count, np.bool_))
        return packed, bounds, (found.tags_codes, hashes, rows)
