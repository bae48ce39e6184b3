"""Bodies that tell how things are: of queues, of consumption, of a broker, of one consumer.

Fields are declared in the alphabetical order of their wire names: the order in which Java writes them.
"""

from __future__ import annotations

import msgspec

from fusee.wire.bodies.heartbeat import SubscriptionData
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.fields import Int32, Int64


class TopicOffset(msgspec.Struct, rename="camel", kw_only=True):
    """How far one queue is written."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class TopicStats(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 202 (Java: TopicStatsTable)."""

    offset_table: dict[QueueRef, TopicOffset] = {}
    topic_put_tps: float = 0.0


class ConsumeProgress(msgspec.Struct, rename="camel", kw_only=True):
    """How far one group is in one queue (Java: OffsetWrapper)."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 = 0


class ConsumeStats(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 208."""

    consume_tps: float = 0.0
    offset_table: dict[QueueRef, ConsumeProgress] = {}


class ConsumeStatsList(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 317: one map of one group after the other."""

    broker_address: str | None = msgspec.field(default=None, name="brokerAddr")
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class QueueTimeSpan(msgspec.Struct, rename="camel", kw_only=True):
    """Ages of one queue; times in milliseconds."""

    consume_timestamp: Int64 = msgspec.field(default=0, name="consumeTimeStamp")
    delay_time: Int64 = 0
    max_timestamp: Int64 = msgspec.field(default=0, name="maxTimeStamp")
    message_queue: QueueRef
    min_timestamp: Int64 = msgspec.field(default=0, name="minTimeStamp")


class ConsumeTimeSpans(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 303 (Java: QueryConsumeTimeSpanBody)."""

    consume_time_span_set: list[QueueTimeSpan] = []


class BrokerStatsItem(msgspec.Struct, rename="camel", kw_only=True):
    """One number over one span of time."""

    avgpt: float = 0.0
    sum: Int64 = 0
    tps: float = 0.0


class BrokerStatsData(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 315."""

    stats_day: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)


class ConsumeQueueEntry(msgspec.Struct, rename="camel", kw_only=True):
    """One entry of a consume queue (Java: ConsumeQueueData)."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    log_offset: Int64 = msgspec.field(default=0, name="physicOffset")
    size: Int32 = msgspec.field(default=0, name="physicSize")
    tags_code: Int64 = 0


class ConsumeQueueSlice(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 321 (Java: QueryConsumeQueueResponseBody)."""

    filter_data: str | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    queue_data: list[ConsumeQueueEntry] = []
    subscription_data: SubscriptionData | None = None


class ProcessQueueInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One queue as its push consumer sees it. `droped` is Java's spelling."""

    cached_msg_count: Int32 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: Int64 = 0
    dropped: bool = msgspec.field(default=False, name="droped")
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int32 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class PopProcessQueueInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One queue as its popping consumer sees it."""

    dropped: bool = msgspec.field(default=False, name="droped")
    last_pop_timestamp: Int64 = 0
    wait_ack_count: Int32 = 0


class ConsumeStatus(msgspec.Struct, rename="camel", kw_only=True):
    """Rates of one topic in one consumer."""

    consume_failed_messages: Int64 = msgspec.field(default=0, name="consumeFailedMsgs")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_rt_ms: float = msgspec.field(default=0.0, name="consumeRT")
    pull_rt_ms: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 307."""

    jstack: str | None = None
    pop_queues: dict[QueueRef, PopProcessQueueInfo] = msgspec.field(default_factory=dict, name="mqPopTable")
    queues: dict[QueueRef, ProcessQueueInfo] = msgspec.field(default_factory=dict, name="mqTable")
    properties: dict[str, str] = {}
    status_table: dict[str, ConsumeStatus] = {}
    subscription_set: list[SubscriptionData] = []
    user_consumer_info: dict[str, str] = {}


class ConsumeDirectlyResult(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 309 (Java: ConsumeMessageDirectlyResult)."""

    auto_commit: bool = True
    consume_result: str | None = None
    order: bool = False
    remark: str | None = None
    spent_time_ms: Int64 = msgspec.field(default=0, name="spentTimeMills")
