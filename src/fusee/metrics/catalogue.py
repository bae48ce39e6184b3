"""Every metric that is exported: its name, its kind, its labels, what it says. docs/metrics.md is made from this table.

Names that begin with `rocketmq_` are those of RocketMQ 5, with its labels; those that begin with `fusee_` have no
counterpart there. Every metric has the labels `cluster`, `node_type` and `node_id` besides its own.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

COMMON_LABELS: Final = ("cluster", "node_type", "node_id")


class Kind(Enum):
    """What may be done with its values: a counter grows, a gauge is what it is now, a histogram counts by ranges."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


_TOPIC = ("topic", "is_system")
_GROUP = ("consumer_group", "topic", "is_retry", "is_system")
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

BROKER: Final = (
    Metric("rocketmq_broker_permission", _G, "Permission bits of the broker: 4 read, 2 write"),
    Metric("rocketmq_topic_number", _G, "Topics on the broker"),
    Metric("rocketmq_consumer_group_number", _G, "Consumer groups on the broker"),
    Metric(
        "rocketmq_topic_create_execution_time",
        _H,
        "Milliseconds that requests took to make or change topics",
        ("invocation_status", "is_system"),
    ),
    Metric(
        "rocketmq_consumer_group_create_execution_time",
        _H,
        "Milliseconds that requests took to make or change groups",
        ("invocation_status",),
    ),
    Metric("rocketmq_processor_watermark", _G, "Requests that wait, by processor", ("processor",)),
    Metric("rocketmq_messages_in_total", _C, "Messages stored", _TOPIC),
    Metric("rocketmq_throughput_in_total", _C, "Bytes stored", _TOPIC),
    Metric("rocketmq_message_size", _H, "Bytes of messages stored"),
    Metric("rocketmq_messages_out_total", _C, "Messages delivered", _GROUP),
    Metric("rocketmq_throughput_out_total", _C, "Bytes delivered", _GROUP),
    Metric("rocketmq_producer_connections", _G, "Producers that are connected", ("language", "version")),
    Metric(
        "rocketmq_consumer_connections",
        _G,
        "Consumers that are connected",
        ("consumer_group", "language", "version", "consume_mode"),
    ),
    Metric("rocketmq_consumer_lag_messages", _G, "Messages not consumed yet, delivered ones included", _GROUP),
    Metric("rocketmq_consumer_lag_latency", _G, "Milliseconds since the oldest of these was stored", _GROUP),
    Metric("rocketmq_consumer_inflight_messages", _G, "Messages delivered and not committed yet", _GROUP),
    Metric("rocketmq_consumer_ready_messages", _G, "Messages not delivered yet", _GROUP),
    Metric("rocketmq_consumer_queueing_latency", _G, "Milliseconds since the oldest of these was stored", _GROUP),
    Metric("rocketmq_send_to_dlq_messages_total", _C, "Messages moved to dead letters", _GROUP),
    Metric("rocketmq_commit_messages_total", _C, "Transactions committed"),
    Metric("rocketmq_rollback_messages_total", _C, "Transactions rolled back"),
    Metric("rocketmq_finish_message_latency", _H, "Seconds from the making of a transaction's message to its commit"),
    Metric("rocketmq_half_messages", _G, "Transactions that wait for a decision"),
    Metric("rocketmq_storage_size", _G, "Bytes of the commit log"),
    Metric("rocketmq_storage_flush_behind_bytes", _G, "Bytes written and not flushed to disk"),
    Metric("rocketmq_storage_dispatch_behind_bytes", _G, "Bytes written that consume queues do not have yet"),
    Metric("rocketmq_storage_message_reserve_time", _G, "Milliseconds since the oldest message was stored"),
    Metric(
        "fusee_consumer_queue_lag_messages",
        _G,
        "Messages of one queue not consumed yet, and which client owns the queue",
        ("consumer_group", "topic", "queue_id", "owner"),
    ),
    Metric("fusee_retried_messages_total", _C, "Messages given back by consumers, to be tried again", _GROUP),
    Metric("fusee_delayed_messages", _G, "Messages that wait for their time, by delay level", ("level",)),
    Metric("fusee_puts_failed_total", _C, "Records that could not be stored"),
    Metric("fusee_held_pulls", _G, "Pulls that wait for messages"),
    Metric("fusee_replication_behind_bytes", _G, "Bytes of the log that a slave does not have yet", ("slave",)),
    Metric("fusee_storage_disk_used_ratio", _G, "Share of the disk of the store that is in use"),
    Metric("fusee_broker_up", _G, "1 while messages are accepted, 0 after the disk has failed"),
)

NAME_SERVER: Final = (
    Metric("fusee_namesrv_up", _G, "1 while the name server answers"),
    Metric("fusee_namesrv_brokers", _G, "Brokers that are registered"),
    Metric("fusee_namesrv_topics", _G, "Topics that lead somewhere"),
)

SCRAPE: Final = (
    Metric("fusee_scrape_folded_series", _G, "Series beyond the limit, told together under the label (others)"),
    Metric("fusee_scrape_unknown_owners", _G, "Consumers that did not tell which queues they own"),
)

ALL: Final = (*BROKER, *NAME_SERVER, *SCRAPE)
