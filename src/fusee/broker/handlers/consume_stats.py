"""What groups have consumed and what they have not: counts and ages (Java: AdminBrokerProcessor's consume statistics).

A group that is online is asked only about topics that it subscribes to: offsets of others are left from earlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.broker.store_times import earliest_store_time, store_time_of
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.stats import ConsumeProgress, ConsumeStats, ConsumeStatsList, ConsumeTimeSpans, QueueTimeSpan
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.admin import GetBrokerConsumeStats, GetConsumeStats, QueryConsumeTimeSpan
from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.broker.config import BrokerConfig
    from fusee.broker.consumers import ConsumerTable
    from fusee.broker.groups import GroupTable
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.clock import Clock
    from fusee.store.engine import MessageStore
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command


class ConsumeStatsHandlers:
    """Codes 208, 303 and 317. `config` may be replaced at any time.

    `address` gives the address that this broker tells to clients; `make_visible` brings the store's consume queues
    level with what was put.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        statistics: Statistics,
        store: MessageStore,
        clock: Clock,
        make_visible: Callable[[], object],
        address: Callable[[], str],
    ) -> None:
        self.config = config
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._statistics = statistics
        self._store = store
        self._clock = clock
        self._make_visible = make_visible
        self._address = address

    def routes(self) -> dict[RequestCode, Handler]:
        """What is served here."""
        return {
            RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.get_broker_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.query_time_span,
        }

    def get_consume_stats(self, command: Command, link: Link) -> Command:
        """208: how far a group is, in the topics named, in one, or in all of which it has offsets."""
        header = command.read(GetConsumeStats)
        group = header.consumer_group
        topics = [topic for topic in (header.topics or "").split(";") if topic]
        if not topics or not (header.topics or "").strip():
            named = header.topic or ""
            topics = [named] if named.strip() else sorted(self._offsets.topics_of(group))
            topics = [topic for topic in topics if self._is_of_interest(group, topic)]
        self._make_visible()
        stats = ConsumeStats(offset_table={})
        for topic in dict.fromkeys(topics):
            config = self._topics.get(topic)
            if config is None:
                continue
            for queue_id in range(config.read_queue_nums):
                progress = self._progress(group, topic, queue_id)
                pulled = self._offsets.query_pull_offset(group, topic, queue_id)
                progress.pull_offset = max(progress.consumer_offset, pulled)
                stats.offset_table[self._queue(topic, queue_id)] = progress
            stats.consume_tps += self._statistics.group_get_tps(group, topic)
        return command.reply(body=dumps_fastjson(stats))

    def get_broker_consume_stats(self, command: Command, link: Link) -> Command:
        """317: the same for every group and every topic, or every ordered one. Where pulls are is not told."""
        header = command.read(GetBrokerConsumeStats)
        self._make_visible()
        answer = ConsumeStatsList(broker_address=self._address(), consume_stats_list=[])
        for group in list(self._groups.all()):
            of_group: list[ConsumeStats] = []
            for topic in sorted(self._offsets.topics_of(group)):
                config = self._topics.get(topic)
                if config is None or (header.is_order and not config.order) or not self._is_of_interest(group, topic):
                    continue
                stats = ConsumeStats(consume_tps=self._statistics.group_get_tps(group, topic), offset_table={})
                for queue_id in range(config.write_queue_nums):
                    progress = self._progress(group, topic, queue_id)
                    stats.offset_table[self._queue(topic, queue_id)] = progress
                    answer.total_diff += progress.broker_offset - progress.consumer_offset
                    answer.total_inflight_diff += progress.pull_offset - progress.consumer_offset
                of_group.append(stats)
            answer.consume_stats_list.append({group: of_group})
        return command.reply(body=dumps_fastjson(answer))

    def query_time_span(self, command: Command, link: Link) -> Command:
        """303: from when to when the messages of each queue are, and how old the next one of a group is."""
        header = command.read(QueryConsumeTimeSpan)
        topic, store = header.topic, self._store
        config = self._topics.get(topic)
        if config is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist")
        self._make_visible()
        now_ms = self._clock.time_ms()
        spans: list[QueueTimeSpan] = []
        for queue_id in range(config.write_queue_nums):
            first_ms = earliest_store_time(store, topic, queue_id)
            next_offset = store.max_offset(topic, queue_id)
            consumer_offset = self._offsets.query(header.group, topic, queue_id)
            consumed_ms = (
                store_time_of(store, topic, queue_id, consumer_offset - 1) if consumer_offset > 0 else first_ms
            )
            delay_ms = 0
            # A group that has not begun is where the queue begins; the reference tells the age of no message then.
            waiting_offset = max(consumer_offset, store.min_offset(topic, queue_id))
            if waiting_offset < next_offset:
                delay_ms = now_ms - store_time_of(store, topic, queue_id, waiting_offset)
            spans.append(
                QueueTimeSpan(
                    consume_timestamp=consumed_ms,
                    delay_time=delay_ms,
                    max_timestamp=store_time_of(store, topic, queue_id, next_offset - 1),
                    message_queue=self._queue(topic, queue_id),
                    min_timestamp=first_ms,
                )
            )
        return command.reply(body=dumps_fastjson(ConsumeTimeSpans(consume_time_span_set=spans)))

    def _queue(self, topic: str, queue_id: int) -> QueueRef:
        return QueueRef(broker_name=self.config.broker_name, queue_id=queue_id, topic=topic)

    def _is_of_interest(self, group: str, topic: str) -> bool:
        online = self._consumers.group(group)
        if online is None or not online.subscriptions:
            return True
        return self._consumers.known_subscription(group, topic) is not None

    def _progress(self, group: str, topic: str, queue_id: int) -> ConsumeProgress:
        store = self._store
        consumer_offset = max(self._offsets.query(group, topic, queue_id), 0)
        last_ms = store_time_of(store, topic, queue_id, consumer_offset - 1) if consumer_offset > 0 else 0
        return ConsumeProgress(
            broker_offset=store.max_offset(topic, queue_id),
            consumer_offset=consumer_offset,
            last_timestamp=max(last_ms, 0),
        )
