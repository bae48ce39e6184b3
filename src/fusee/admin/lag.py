"""How far groups are behind: per queue with its owner, per group, per broker, and in time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fusee.admin.connections import ConnectionCalls
from fusee.admin.fan_out import ask_all, failure_of
from fusee.admin.reach import queue_of
from fusee.admin.views import (
    BrokerAddress,
    Failure,
    GroupLag,
    GroupSummary,
    QueueAge,
    QueueLag,
    StatItem,
    StatView,
    TopicTraffic,
)
from fusee.errors import ConsumerOfflineError, FuseeError, GroupNotFoundError, RemoteFailureError, TopicNotFoundError
from fusee.wire.bodies.stats import BrokerStatsData, ConsumeStats, ConsumeStatsList, ConsumeTimeSpans
from fusee.wire.codes import RequestCode
from fusee.wire.headers.admin import GetBrokerConsumeStats, GetConsumeStats, QueryConsumeTimeSpan, ViewBrokerStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fusee.admin.views import ConsumerGroupView
    from fusee.message.model import MessageQueue
    from fusee.wire.bodies.stats import BrokerStatsItem


class LagCalls(ConnectionCalls):
    """Progress of consumer groups."""

    async def lag(self, group: str, topic: str | None = None, *, owners: bool = True) -> GroupLag:
        """How far a group is in every queue, or in those of one topic, and which client owns each queue.

        (mqadmin consumerProgress -g.) The retry topic is among the queues. With `owners`, the members that are online
        are asked which queues they have; those that do not answer are `failures`, and their queues have no owner.
        A group without offsets, e.g. a broadcasting one, has no queues. Raises GroupNotFoundError when nobody knows
        the group, TopicNotFoundError when there is no such topic.
        """
        answers = await self._ask_brokers_json(
            await self._brokers_of_group(group, topic),
            RequestCode.GET_CONSUME_STATS,
            ConsumeStats,
            GetConsumeStats(consumer_group=group, topic=topic),
            timeout_ms=self._timeout_ms * 3,
        )
        answers = answers.some(f"tell the progress of group {group!r}")
        failures = answers.failures
        owner_of: Mapping[MessageQueue, str] = {}
        if not any(answer.offset_table for answer in answers.values):
            await self.group_settings(group)
        elif owners:
            owner_of, more = await self._owners(group)
            failures += more
        return GroupLag(
            group=group,
            queues=_queue_lags(answers.values, owner_of),
            consume_tps=sum(answer.consume_tps for answer in answers.values),
            failures=failures,
        )

    async def group_summaries(self, *, cluster: str | None = None) -> tuple[GroupSummary, ...]:
        """One line per group: members, rate, lag (mqadmin consumerProgress). Failures stand with their group."""
        groups = await self.list_groups(cluster=cluster)
        places = [BrokerAddress(broker_name=group, address="") for group in groups]
        answers = await ask_all(places, lambda place: self.group_summary(place.broker_name), at_once=8)
        summaries = {summary.group: summary for summary in answers.values}
        for failure in answers.failures:
            name = failure.broker_name
            summaries[name] = GroupSummary(group=name, members=0, failures=(failure,))
        return tuple(summaries[group] for group in groups)

    async def group_summary(self, group: str) -> GroupSummary:
        """Members, rate and lag of one group."""
        progress = await self.lag(group, owners=False)
        online: ConsumerGroupView | None = None
        with suppress(ConsumerOfflineError):
            online = await self.consumers(group)
        return GroupSummary(
            group=group,
            members=len(online.clients) if online else 0,
            lowest_version=min((client.version for client in online.clients), default=0) if online else 0,
            consume_type=online.consume_type if online else "",
            message_model=online.message_model if online else "",
            consume_tps=progress.consume_tps,
            lag=progress.total,
            failures=progress.failures + (online.failures if online else ()),
        )

    async def broker_lags(self, broker: str, *, ordered_only: bool = False) -> tuple[GroupLag, ...]:
        """Every group and topic of one broker (mqadmin brokerConsumeStats), groups sorted; owners are not asked for."""
        place = await self._one_broker(broker)
        found = await self._ask_json(
            place.address,
            RequestCode.GET_BROKER_CONSUME_STATS,
            ConsumeStatsList,
            GetBrokerConsumeStats(is_order=ordered_only),
            timeout_ms=self._timeout_ms * 3,
        )
        by_group: dict[str, list[ConsumeStats]] = {}
        for table in found.consume_stats_list:
            for group, stats in table.items():
                by_group.setdefault(group, []).extend(stats)
        return tuple(
            GroupLag(
                group=group,
                queues=_queue_lags(by_group[group], {}),
                consume_tps=sum(stats.consume_tps for stats in by_group[group]),
            )
            for group in sorted(by_group)
        )

    async def queue_ages(self, group: str, topic: str) -> tuple[QueueAge, ...]:
        """How old the messages are that a group has consumed, and the next that waits, queue by queue.

        Raises when a broker does not tell.
        """
        answers = await self._ask_brokers_json(
            await self._brokers_of(topic),
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            ConsumeTimeSpans,
            QueryConsumeTimeSpan(topic=topic, group=group),
        )
        answers.complete(f"tell the ages of topic {topic!r}", topic=topic)
        ages = [
            QueueAge(
                queue=queue_of(span.message_queue),
                min_store_ms=span.min_timestamp,
                max_store_ms=span.max_timestamp,
                consumed_ms=span.consume_timestamp,
                delay_ms=span.delay_time,
            )
            for answer in answers.values
            for span in answer.consume_time_span_set
        ]
        return tuple(sorted(ages, key=lambda each: each.queue))

    # Statistics

    async def broker_stat(self, broker: str, name: str, key: str) -> StatView:
        """One statistic of a broker over minute, hour and day, e.g. `TOPIC_PUT_NUMS` and a topic, `GROUP_GET_NUMS` and
        `topic@group`. Raises RemoteFailureError when the broker has not counted such a thing yet.
        """
        place = await self._one_broker(broker)
        return await self._stat(place, name, key)

    async def traffic(self, topic: str) -> tuple[TopicTraffic, ...]:
        """What goes in and out of a topic, and the lag, one line per group (mqadmin statsAll)."""
        brokers = await self._brokers_of(topic)
        in_tps, in_day = await self._sum_of_stat(brokers, "TOPIC_PUT_NUMS", topic)
        groups = await self.topic_groups(topic)
        lines: list[TopicTraffic] = []
        for group in groups:
            out_tps, out_day = await self._sum_of_stat(brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
            try:
                behind = (await self.lag(group, topic, owners=False)).total
            except (GroupNotFoundError, TopicNotFoundError):
                behind = 0  # offsets of a group that was deleted
            lines.append(
                TopicTraffic(
                    topic=topic,
                    group=group,
                    lag=behind,
                    in_tps=in_tps,
                    out_tps=out_tps,
                    in_day=in_day,
                    out_day=out_day,
                )
            )
        if not lines:
            lines.append(
                TopicTraffic(topic=topic, group="", lag=0, in_tps=in_tps, out_tps=0.0, in_day=in_day, out_day=0)
            )
        return tuple(lines)

    # Within

    async def _owners(self, group: str) -> tuple[dict[MessageQueue, str], tuple[Failure, ...]]:
        try:
            at_work = await self.consumers_at_work(group)
        except ConsumerOfflineError:
            return {}, ()
        except FuseeError as error:
            return {}, (failure_of(BrokerAddress(address=error.address), error),)
        return at_work.owners, at_work.failures

    async def _stat(self, place: BrokerAddress, name: str, key: str) -> StatView:
        data = await self._ask_json(
            place.address,
            RequestCode.VIEW_BROKER_STATS_DATA,
            BrokerStatsData,
            ViewBrokerStats(stats_name=name, stats_key=key),
        )
        return StatView(
            name=name,
            key=key,
            minute=_item(data.stats_minute),
            hour=_item(data.stats_hour),
            day=_item(data.stats_day),
        )

    async def _sum_of_stat(self, brokers: Iterable[BrokerAddress], name: str, key: str) -> tuple[float, int]:
        """Rate of the last minute and number of the last day over several brokers; one that has not counted adds 0."""
        answers = await ask_all(brokers, lambda place: self._stat(place, name, key))
        if not all(isinstance(error, RemoteFailureError) for error in answers.errors):
            answers.complete(f"tell {name} of {key}")
        tps = sum(stat.minute.tps for stat in answers.values)
        day = sum(stat.day.total or stat.hour.total or stat.minute.total for stat in answers.values)
        return tps, day


def _queue_lags(stats: Iterable[ConsumeStats], owner_of: Mapping[MessageQueue, str]) -> tuple[QueueLag, ...]:
    found: dict[MessageQueue, QueueLag] = {}
    for each in stats:
        for ref, progress in each.offset_table.items():
            queue = queue_of(ref)
            found[queue] = QueueLag(
                queue=queue,
                broker_offset=progress.broker_offset,
                committed_offset=progress.consumer_offset,
                pulled_offset=progress.pull_offset,
                last_consumed_ms=max(progress.last_timestamp, 0),
                owner=owner_of.get(queue, ""),
            )
    return tuple(found[queue] for queue in sorted(found))


def _item(item: BrokerStatsItem) -> StatItem:
    return StatItem(total=item.sum, tps=item.tps, average=item.avgpt)
