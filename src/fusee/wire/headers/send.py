"""Headers of sending: plain, short-named, batch, reply and send-back.

The short form (letters `a` to `n`) and the long form say the same; their attributes have the same names, so a
handler takes either as `SendMessage`. The letters stay in this file.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from fusee.wire.fields import Header, Int32, Int64, RpcHeader, TopicHeader


class SendMessageV1(TopicHeader, kw_only=True):
    """Codes 10 and 324 (Java: SendMessageRequestHeader)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp_ms: Int64 = msgspec.field(name="bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


class SendMessageV2(TopicHeader, kw_only=True):
    """Codes 310, 320 and 325 (Java: SendMessageRequestHeaderV2); `n` stands in for `bname`."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp_ms: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(default=None, name="i")
    reconsume_times: Int32 | None = msgspec.field(default=None, name="j")
    unit_mode: bool | None = msgspec.field(default=None, name="k")
    max_reconsume_times: Int32 | None = msgspec.field(default=None, name="l")
    batch: bool | None = msgspec.field(default=None, name="m")
    broker_name: str | None = msgspec.field(default=None, name="n")


SendMessage: TypeAlias = SendMessageV1 | SendMessageV2


class SendMessageResponse(Header, kw_only=True):
    """The answer to every send; `msg_id` is comma-joined for a batch (Java: SendMessageResponseHeader)."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class ConsumerSendMessageBack(RpcHeader, kw_only=True):
    """Code 36: try this message again later (Java: ConsumerSendMsgBackRequestHeader)."""

    log_offset: Int64 = msgspec.field(name="offset")
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class PushReplyMessage(TopicHeader, kw_only=True):
    """Code 326: a reply on its way to the requester (Java: ReplyMessageRequestHeader)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp_ms: Int64 = msgspec.field(name="bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp_ms: Int64 = msgspec.field(name="storeTimestamp")


class RecallMessage(TopicHeader, kw_only=True):
    """Code 370: take back a delayed message (Java: RecallMessageRequestHeader)."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponse(Header, kw_only=True):
    """Java: RecallMessageResponseHeader."""

    msg_id: str
