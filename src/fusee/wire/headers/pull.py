"""Headers of reading messages: pull, by key, by log offset."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Header, Int32, Int64, TopicHeader


class PullMessage(TopicHeader, kw_only=True):
    """Codes 11 and 361 (Java: PullMessageRequestHeader)."""

    consumer_group: str
    topic: str
    lite_topic: str | None = None
    queue_id: Int32
    queue_offset: Int64
    max_messages: Int32 = msgspec.field(name="maxMsgNums")
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_ms: Int64 = msgspec.field(name="suspendTimeoutMillis")
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_bytes: Int32 | None = msgspec.field(default=None, name="maxMsgBytes")
    request_source: Int32 | None = None
    proxy_forward_client_id: str | None = msgspec.field(default=None, name="proxyFrowardClientId")


class PullMessageResponse(Header, kw_only=True):
    """Java: PullMessageResponseHeader."""

    suggested_broker_id: Int64 = msgspec.field(name="suggestWhichBrokerId")
    next_offset: Int64 = msgspec.field(name="nextBeginOffset")
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryMessage(TopicHeader, kw_only=True):
    """Code 12: by key; `index_type` K by key, U by unique key (Java: QueryMessageRequestHeader)."""

    topic: str
    key: str
    max_messages: Int32 = msgspec.field(name="maxNum")
    begin_timestamp_ms: Int64 = msgspec.field(name="beginTimestamp")
    end_timestamp_ms: Int64 = msgspec.field(name="endTimestamp")
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponse(Header, kw_only=True):
    """Java: QueryMessageResponseHeader."""

    index_timestamp_ms: Int64 = msgspec.field(name="indexLastUpdateTimestamp")
    index_log_offset: Int64 = msgspec.field(name="indexLastUpdatePhyoffset")


class ViewMessage(Header, kw_only=True):
    """Code 33: by physical offset (Java: ViewMessageRequestHeader)."""

    topic: str | None = None
    log_offset: Int64 = msgspec.field(name="offset")
