"""Bodies that carry offsets: tables a slave copies, answers to a reset, what a consumer has reached.

Fields are declared in the alphabetical order of their wire names: the order in which Java writes them.
"""

from __future__ import annotations

import msgspec

from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.topic import DataVersion
from fusee.wire.fields import Int32, Int64


class ConsumerOffsetTable(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 43: by `topic@group`, then by queue id (Java: ConsumerOffsetSerializeWrapper)."""

    data_version: DataVersion = DataVersion()
    group_topic_map: dict[str, list[str]] | None = None
    offset_table: dict[str, dict[Int32, Int64]] = {}
    pull_offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetTable(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 45: by delay level (Java: DelayOffsetSerializeWrapper)."""

    data_version: DataVersion = DataVersion()
    offset_table: dict[Int32, Int64] = {}


class QueueOffsets(msgspec.Struct, rename="camel", kw_only=True):
    """Code 220 and the answer to 222 (Java: ResetOffsetBody)."""

    offset_table: dict[QueueRef, Int64] = {}


class QueueOffsetEntry(msgspec.Struct, rename="camel", kw_only=True):
    """A queue and its offset side by side (Java: MessageQueueForC)."""

    broker_name: str
    queue_offset: Int64 = msgspec.field(name="offset")
    queue_id: Int32
    topic: str


class QueueOffsetsForCpp(msgspec.Struct, rename="camel", kw_only=True):
    """Code 220 to a C++ client, which knows no objects as keys (Java: ResetOffsetBodyForC)."""

    offset_table: list[QueueOffsetEntry] = []


class ConsumerStatus(msgspec.Struct, rename="camel", kw_only=True):
    """Answers to codes 221, by queue, and 223, by client and queue (Java: GetConsumerStatusBody)."""

    consumer_table: dict[str, dict[QueueRef, Int64]] = {}
    message_queue_table: dict[QueueRef, Int64] = {}


class CorrectionOffsets(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 308: by queue id (Java: QueryCorrectionOffsetBody)."""

    correction_offsets: dict[Int32, Int64] = {}
