"""Headers between a broker and its clients: liveness, group members, locks, questions to a consumer."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Header, Int32, RpcHeader, TopicHeader


class Heartbeat(RpcHeader, kw_only=True):
    """Code 34 (Java: HeartbeatRequestHeader)."""


class HeartbeatResponse(Header, kw_only=True):
    """What a broker adds to the answer to a heartbeat."""

    supports_v2: bool | None = msgspec.field(default=None, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool | None = msgspec.field(default=None, name="IS_SUB_CHANGE")


class UnregisterClient(RpcHeader, kw_only=True):
    """Code 35 (Java: UnregisterClientRequestHeader)."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroup(RpcHeader, kw_only=True):
    """Code 38 (Java: GetConsumerListByGroupRequestHeader)."""

    consumer_group: str


class NotifyConsumerIdsChanged(RpcHeader, kw_only=True):
    """Code 40, broker to consumer (Java: NotifyConsumerIdsChangedRequestHeader)."""

    consumer_group: str


class LockBatch(RpcHeader, kw_only=True):
    """Code 41 (Java: LockBatchMqRequestHeader)."""


class UnlockBatch(RpcHeader, kw_only=True):
    """Code 42 (Java: UnlockBatchMqRequestHeader)."""


class GetConsumerRunningInfo(RpcHeader, kw_only=True):
    """Code 307, admin to broker and broker to consumer (Java: GetConsumerRunningInfoRequestHeader)."""

    consumer_group: str
    client_id: str
    stack_wanted: bool = msgspec.field(default=False, name="jstackEnable")


class ConsumeMessageDirectly(TopicHeader, kw_only=True):
    """Code 309, admin to broker and broker to consumer (Java: ConsumeMessageDirectlyResultRequestHeader)."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    message_broker_name: str | None = msgspec.field(default=None, name="brokerName")
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
