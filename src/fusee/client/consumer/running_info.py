"""What a consumer tells an operator who asks for it (Java: ConsumerRunningInfo)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.stats import ConsumerRunningInfo, ProcessQueueInfo
from fusee.wire.command import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fusee.client.consumer.offsets import OffsetStore
    from fusee.client.consumer.options import ConsumerOptions
    from fusee.client.consumer.process_queue import ProcessQueue
    from fusee.client.consumer.statistics import ConsumeStatistics
    from fusee.client.session import Session
    from fusee.wire.bodies.heartbeat import ConsumerData

_MIB: Final = 1024 * 1024


def running_info(
    session: Session,
    data: ConsumerData,
    *,
    process_queues: Iterable[ProcessQueue],
    offsets: OffsetStore,
    statistics: ConsumeStatistics,
    options: ConsumerOptions,
    is_ordered: bool,
    started_ms: int,
    locked: Mapping[ProcessQueue, bool],
) -> ConsumerRunningInfo:
    """The state of a consumer at this moment."""
    wall_ms, now = session.clock.time_ms(), session.clock.monotonic()

    def wall(moment: float) -> int:
        return wall_ms - round((now - moment) * 1000)

    queues: dict[QueueRef, ProcessQueueInfo] = {}
    for each in process_queues:
        low, high = each.bounds or (0, 0)
        queue = each.queue
        queues[QueueRef(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)] = ProcessQueueInfo(
            cached_msg_count=each.count,
            cached_msg_min_offset=low,
            cached_msg_max_offset=high,
            cached_msg_size_in_mib=each.byte_size // _MIB,
            commit_offset=max(offsets.cached(queue) or 0, each.watermark),
            dropped=each.is_dropped,
            last_consume_timestamp=wall(each.last_consumed_at),
            last_pull_timestamp=wall(each.last_pulled_at),
            last_lock_timestamp=wall(each.last_locked_at),
            locked=locked.get(each, False),
            try_unlock_times=each.unlock_tries,
        )
    subscriptions = sorted(data.subscription_data_set, key=lambda each: each.topic)
    return ConsumerRunningInfo(
        queues=queues,
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(session.name_servers.addresses) + ";",
            "PROP_CONSUME_TYPE": data.consume_type,
            "PROP_CLIENT_VERSION": f"V{PROTOCOL_VERSION}",
            "PROP_CONSUMEORDERLY": "true" if is_ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(options.consume_thread_max),
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
            "consumerGroup": data.group_name,
            "messageModel": data.message_model,
            "consumeFromWhere": data.consume_from_where,
            "consumeMessageBatchMaxSize": str(options.consume_message_batch_max_size),
            "consumeThreadMax": str(options.consume_thread_max),
            "maxReconsumeTimes": str(options.max_reconsume_times),
            "pullBatchSize": str(options.pull_batch_size),
            "pullThresholdForQueue": str(options.pull_threshold_for_queue),
            "clientIP": session.ip,
            "instanceName": session.config.instance_name,
        },
        status_table={each.topic: statistics.status(each.topic) for each in subscriptions},
        subscription_set=subscriptions,
    )
