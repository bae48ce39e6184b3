"""Headers of POP consumption, of lite topics, and of who consumes how."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Header, Int32, Int64, RpcHeader, TopicHeader


class PopMessage(TopicHeader, kw_only=True):
    """Code 200050; queue id -1 is any queue (Java: PopMessageRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_messages: Int32 = msgspec.field(name="maxMsgNums")
    invisible_time_ms: Int64 = msgspec.field(name="invisibleTime")
    poll_time_ms: Int64 = msgspec.field(name="pollTime")
    born_timestamp_ms: Int64 = msgspec.field(name="bornTime")
    init_mode: Int32
    expression_type: str | None = msgspec.field(default=None, name="expType")
    expression: str | None = msgspec.field(default=None, name="exp")
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponse(Header, kw_only=True):
    """Also the answer to a peek (Java: PopMessageResponseHeader)."""

    pop_timestamp_ms: Int64 = msgspec.field(name="popTime")
    invisible_time_ms: Int64 = msgspec.field(name="invisibleTime")
    revive_queue_id: Int32 = msgspec.field(name="reviveQid")
    rest_messages: Int64 = msgspec.field(name="restNum")
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessage(TopicHeader, kw_only=True):
    """Code 200052 (Java: PeekMessageRequestHeader)."""

    topic: str
    queue_id: Int32
    max_messages: Int32 = msgspec.field(name="maxMsgNums")
    consumer_group: str


class AckMessage(TopicHeader, kw_only=True):
    """Code 200051; `extra_info` is the message's POP_CK (Java: AckMessageRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    queue_offset: Int64 = msgspec.field(name="offset")
    lite_topic: str | None = None


class ChangeInvisibleTime(TopicHeader, kw_only=True):
    """Code 200053 (Java: ChangeInvisibleTimeRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    queue_offset: Int64 = msgspec.field(name="offset")
    invisible_time_ms: Int64 = msgspec.field(name="invisibleTime")
    lite_topic: str | None = None
    suspend: bool = False


class ChangeInvisibleTimeResponse(Header, kw_only=True):
    """Java: ChangeInvisibleTimeResponseHeader."""

    pop_timestamp_ms: Int64 = msgspec.field(name="popTime")
    invisible_time_ms: Int64 = msgspec.field(name="invisibleTime")
    revive_queue_id: Int32 = msgspec.field(name="reviveQid")


class Notification(TopicHeader, kw_only=True):
    """Code 200054: a long poll that only tells if there is something (Java: NotificationRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time_ms: Int64 = msgspec.field(name="pollTime")
    born_timestamp_ms: Int64 = msgspec.field(name="bornTime")
    order: bool = False
    attempt_id: str | None = None
    expression_type: str | None = msgspec.field(default=None, name="expType")
    expression: str | None = msgspec.field(default=None, name="exp")


class NotificationResponse(Header, kw_only=True):
    """Java: NotificationResponseHeader."""

    has_message: bool = msgspec.field(default=False, name="hasMsg")
    polling_full: bool = False


class PollingInfo(TopicHeader, kw_only=True):
    """Code 200055 (Java: PollingInfoRequestHeader)."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponse(Header, kw_only=True):
    """Java: PollingInfoResponseHeader."""

    polls: Int32 = msgspec.field(name="pollingNum")


class PopLiteMessage(RpcHeader, kw_only=True):
    """Code 200070 (Java: PopLiteMessageRequestHeader)."""

    client_id: str
    consumer_group: str
    topic: str
    max_messages: Int32 = msgspec.field(name="maxMsgNum")
    invisible_time_ms: Int64 = msgspec.field(name="invisibleTime")
    poll_time_ms: Int64 = msgspec.field(name="pollTime")
    born_timestamp_ms: Int64 = msgspec.field(name="bornTime")
    attempt_id: str | None = None


class PopLiteMessageResponse(Header, kw_only=True):
    """Java: PopLiteMessageResponseHeader."""

    pop_timestamp_ms: Int64 = msgspec.field(name="popTime")
    invisible_time_ms: Int64 = msgspec.field(name="invisibleTime")
    revive_queue_id: Int32 = msgspec.field(name="reviveQid")
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class LiteSubscriptionControl(RpcHeader, kw_only=True):
    """Code 200071 (Java: LiteSubscriptionCtlRequestHeader)."""


class NotifyUnsubscribeLite(RpcHeader, kw_only=True):
    """Code 200073 (Java: NotifyUnsubscribeLiteRequestHeader)."""

    lite_topic: str
    consumer_group: str
    client_id: str


class GetParentTopicInfo(Header, kw_only=True):
    """Code 200075 (Java: GetParentTopicInfoRequestHeader)."""

    topic: str


class GetLiteTopicInfo(Header, kw_only=True):
    """Code 200076 (Java: GetLiteTopicInfoRequestHeader)."""

    parent_topic: str | None = None
    lite_topic: str | None = None


class GetLiteClientInfo(Header, kw_only=True):
    """Code 200077 (Java: GetLiteClientInfoRequestHeader)."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: Int32 = 0


class GetLiteGroupInfo(Header, kw_only=True):
    """Code 200078 (Java: GetLiteGroupInfoRequestHeader)."""

    group: str
    lite_topic: str | None = None
    top_k: Int32 = 0


class TriggerLiteDispatch(Header, kw_only=True):
    """Code 200079 (Java: TriggerLiteDispatchRequestHeader)."""

    group: str
    client_id: str | None = None
