"""Headers of offsets: of consumers, of queues, and moving them."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Header, Int32, Int64, RpcHeader, TopicHeader


class QueryConsumerOffset(TopicHeader, kw_only=True):
    """Code 14 (Java: QueryConsumerOffsetRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponse(Header, kw_only=True):
    """Java: QueryConsumerOffsetResponseHeader."""

    committed_offset: Int64 = msgspec.field(name="offset")


class UpdateConsumerOffset(TopicHeader, kw_only=True):
    """Code 15 (Java: UpdateConsumerOffsetRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class SearchOffset(TopicHeader, kw_only=True):
    """Code 29; `boundary_type` LOWER or UPPER in any case (Java: SearchOffsetRequestHeader)."""

    topic: str
    lite_topic: str | None = None
    queue_id: Int32
    timestamp_ms: Int64 = msgspec.field(name="timestamp")
    boundary_type: str | None = None


class SearchOffsetResponse(Header, kw_only=True):
    """Java: SearchOffsetResponseHeader."""

    queue_offset: Int64 = msgspec.field(name="offset")


class GetMaxOffset(TopicHeader, kw_only=True):
    """Code 30: the offset that will be written next (Java: GetMaxOffsetRequestHeader)."""

    topic: str
    queue_id: Int32
    committed: bool = True


class GetMaxOffsetResponse(Header, kw_only=True):
    """Java: GetMaxOffsetResponseHeader."""

    queue_offset: Int64 = msgspec.field(name="offset")


class GetMinOffset(TopicHeader, kw_only=True):
    """Code 31: the first offset that can still be read (Java: GetMinOffsetRequestHeader)."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponse(Header, kw_only=True):
    """Java: GetMinOffsetResponseHeader."""

    queue_offset: Int64 = msgspec.field(name="offset")


class GetEarliestStoreTime(TopicHeader, kw_only=True):
    """Code 32 (Java: GetEarliestMsgStoretimeRequestHeader)."""

    topic: str
    queue_id: Int32


class GetEarliestStoreTimeResponse(Header, kw_only=True):
    """Java: GetEarliestMsgStoretimeResponseHeader."""

    timestamp_ms: Int64 = msgspec.field(name="timestamp")


class ResetOffset(TopicHeader, kw_only=True):
    """Codes 220 and 222; queue -1 is every queue, timestamp -1 the end (Java: ResetOffsetRequestHeader)."""

    group: str
    topic: str
    queue_id: Int32 = -1
    queue_offset: Int64 | None = msgspec.field(default=None, name="offset")
    timestamp_ms: Int64 = msgspec.field(name="timestamp")
    is_force: bool


class GetConsumerStatus(TopicHeader, kw_only=True):
    """Codes 221 and 223 (Java: GetConsumerStatusRequestHeader)."""

    topic: str
    group: str
    client_address: str | None = msgspec.field(default=None, name="clientAddr")


class CloneGroupOffset(RpcHeader, kw_only=True):
    """Code 314 (Java: CloneGroupOffsetRequestHeader)."""

    source_group: str = msgspec.field(name="srcGroup")
    target_group: str = msgspec.field(name="destGroup")
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffset(TopicHeader, kw_only=True):
    """Code 308 (Java: QueryCorrectionOffsetHeader)."""

    filter_groups: str | None = None
    compare_group: str
    topic: str
