"""What a store says: the outcome of a put and of a get, and what dispatch tells about each record."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec


class PutResult(msgspec.Struct, frozen=True, gc=False):
    """Where a record, or the first of a batch, went. `end_offset` is what must be flushed or replicated."""

    log_offset: int
    queue_offset: int
    end_offset: int
    store_timestamp_ms: int
    count: int = 1
    log_offsets: tuple[int, ...] = ()
    """The log offset of each record of a batch."""


class GetStatus(Enum):
    """How a get ended (Java: GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(msgspec.Struct, gc=False):
    """Records found, as slices of the mapped log merged where they touch, and where to go on."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    slices: Sequence[memoryview] = ()
    count: int = 0
    size: int = 0
    queue_offsets: Sequence[int] = ()
    """The queue offset of each record found."""
    from_disk: bool = False
    """Whether the records lie too far behind the end of the log to be in memory still (suggestPullingFromSlave)."""


class Dispatched(msgspec.Struct, gc=False):
    """One record as dispatch reads it out of the log (Java: DispatchRequest).

    `keys` are the tokens of KEYS, `unique_key` is UNIQ_KEY; either may be empty. `tags_code` is already the value for
    the consume queue: the tag's hash, or the delivery time in the topic of delayed messages. `batch_count` is above 0
    for an inner batch, which takes that many queue offsets.
    """

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    sys_flag: int
    prepared_transaction_offset: int
    unique_key: str
    keys: tuple[str, ...]
    properties: bytes
    batch_count: int = 0
