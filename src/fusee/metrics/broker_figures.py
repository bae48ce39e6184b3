"""A broker in figures: read from its tables when somebody asks; of messages on their way only sizes are counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from fusee.broker.store_times import store_time_of
from fusee.message.topics import RETRY_PREFIX
from fusee.metrics.catalogue import BROKER, SCRAPE
from fusee.metrics.families import Figures

if TYPE_CHECKING:
    from fusee.broker.server import Broker
    from fusee.metrics.owners import Owned
    from fusee.wire.codes import LanguageCode

_NO_OWNER: Final = ""


def broker_figures(broker: Broker, owned: Owned) -> Figures:
    """Everything about a broker that has been started. To be called on its loop; it waits for nothing."""
    broker.writer.make_visible()
    config = broker.config
    common = {"cluster": config.broker_cluster_name, "node_type": "broker", "node_id": config.broker_name}
    figures = Figures((*BROKER, *SCRAPE), common)
    add = figures.add
    add("fusee_broker_up", float(broker.failure is None))
    add("rocketmq_broker_permission", config.broker_permission)
    add("rocketmq_topic_number", len(broker.topics))
    add("rocketmq_consumer_group_number", len(broker.groups))
    add("rocketmq_processor_watermark", broker.gate.waiting, "send")
    add("fusee_held_pulls", len(broker.holds))
    add("fusee_puts_failed_total", broker.statistics.put_failures)
    add("fusee_scrape_unknown_owners", owned.untold)
    _traffic(broker, figures)
    _clients(broker, figures)
    _progress(broker, figures, owned)
    _store(broker, figures)
    _transactions(broker, figures)
    for level, (position, end) in broker.delay.offsets.items():
        add("fusee_delayed_messages", max(end - position, 0), str(level))
    if broker.primary is not None:
        end_offset = broker.store.end_offset
        for slave, log_offset in broker.primary.slaves.items():
            add("fusee_replication_behind_bytes", max(end_offset - log_offset, 0), slave)
    return figures


def _traffic(broker: Broker, figures: Figures) -> None:
    is_system = broker.topics.is_system
    totals = broker.statistics.totals()
    for topic, (count, size) in totals.puts.items():
        labels = (topic, _flag(is_system(topic)))
        figures.add("rocketmq_messages_in_total", count, *labels)
        figures.add("rocketmq_throughput_in_total", size, *labels)
    statistics = broker.statistics
    figures.add_histogram("rocketmq_message_size", statistics.message_sizes())
    for (is_done, is_of_system), found in statistics.topic_creations().items():
        figures.add_histogram("rocketmq_topic_create_execution_time", found, _status(is_done), _flag(is_of_system))
    for is_done, found in statistics.group_creations().items():
        figures.add_histogram("rocketmq_consumer_group_create_execution_time", found, _status(is_done))
    for (group, topic), (count, size) in totals.gets.items():
        labels4 = _labels(broker, group, topic)
        figures.add("rocketmq_messages_out_total", count, *labels4)
        figures.add("rocketmq_throughput_out_total", size, *labels4)
    for name, table in (
        ("fusee_retried_messages_total", totals.sent_back),
        ("rocketmq_send_to_dlq_messages_total", totals.dead),
    ):
        for (group, topic), count in table.items():
            figures.add(name, count, *_labels(broker, group, topic))


def _clients(broker: Broker, figures: Figures) -> None:
    for group in broker.consumers.all().values():
        kinds = Counter((_language(member.language), str(member.version)) for member in group.members.values())
        mode = "pull" if group.consume_type == "CONSUME_ACTIVELY" else "push"
        for (language, version), count in kinds.items():
            figures.add("rocketmq_consumer_connections", count, group.name, language, version, mode)
    producers = {
        link: (_language(member.language), str(member.version))
        for members in broker.producers.all().values()
        for link, member in members.items()
    }
    for (language, version), count in Counter(producers.values()).items():
        figures.add("rocketmq_producer_connections", count, language, version)


def _progress(broker: Broker, figures: Figures, owned: Owned) -> None:
    store, offsets = broker.store, broker.offsets
    now_ms = broker.clock.time_ms()
    for group, topic, queues in list(offsets.entries()):
        config = broker.topics.get(topic)
        if config is None:
            continue
        labels = _labels(broker, group, topic)
        lag = in_flight = oldest_ms = oldest_undelivered_ms = 0
        for queue_id in range(config.read_queue_nums):
            committed = queues.get(queue_id, 0)
            end = store.max_offset(topic, queue_id)
            first = store.min_offset(topic, queue_id)
            waiting = max(end - max(committed, first), 0)
            pulled = max(offsets.query_pull_offset(group, topic, queue_id), committed)
            in_flight += min(pulled - committed, waiting)
            lag += waiting
            figures.add(
                "fusee_consumer_queue_lag_messages",
                waiting,
                group,
                topic,
                str(queue_id),
                owned.owner_of.get((group, topic, queue_id), _NO_OWNER),
            )
            if waiting:
                oldest_ms = max(oldest_ms, _age(broker, topic, queue_id, max(committed, first), now_ms))
            if pulled < end:
                undelivered = _age(broker, topic, queue_id, max(pulled, first), now_ms)
                oldest_undelivered_ms = max(oldest_undelivered_ms, undelivered)
        figures.add("rocketmq_consumer_lag_messages", lag, *labels)
        figures.add("rocketmq_consumer_lag_latency", oldest_ms, *labels)
        figures.add("rocketmq_consumer_inflight_messages", in_flight, *labels)
        figures.add("rocketmq_consumer_ready_messages", lag - in_flight, *labels)
        figures.add("rocketmq_consumer_queueing_latency", oldest_undelivered_ms, *labels)


def _age(broker: Broker, topic: str, queue_id: int, queue_offset: int, now_ms: int) -> int:
    stored_ms = store_time_of(broker.store, topic, queue_id, queue_offset)
    return max(now_ms - stored_ms, 0) if stored_ms >= 0 else 0


def _store(broker: Broker, figures: Figures) -> None:
    store, add = broker.store, figures.add
    add("rocketmq_storage_size", max(store.end_offset - store.log.min_offset, 0))
    add("rocketmq_storage_flush_behind_bytes", max(store.end_offset - store.flushed_offset, 0))
    add("rocketmq_storage_dispatch_behind_bytes", max(store.written_offset - store.dispatched_offset, 0))
    earliest_ms = store.store_time(store.log.min_offset) if store.written_offset else None
    if earliest_ms is not None:
        add("rocketmq_storage_message_reserve_time", max(broker.clock.time_ms() - earliest_ms, 0))
    space = broker.space()
    usable = space.total - space.reserved
    if usable > 0:
        add("fusee_storage_disk_used_ratio", (usable - space.free) / usable)


def _transactions(broker: Broker, figures: Figures) -> None:
    figures.add_histogram("rocketmq_finish_message_latency", broker.statistics.finishes())
    figures.add("rocketmq_half_messages", broker.store.transactions.pending_count)
    figures.add("rocketmq_commit_messages_total", broker.transactions.committed_count)
    figures.add("rocketmq_rollback_messages_total", broker.transactions.rolled_back_count)


def _labels(broker: Broker, group: str, topic: str) -> tuple[str, str, str, str]:
    return group, topic, _flag(topic.startswith(RETRY_PREFIX)), _flag(broker.topics.is_system(topic))


def _status(is_done: bool) -> str:
    return "success" if is_done else "failure"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _language(language: LanguageCode) -> str:
    return language.name.lower()
