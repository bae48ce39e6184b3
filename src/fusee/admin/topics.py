"""Topics: make, change, delete, list, and how far their queues are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fusee.admin.fan_out import ask_all
from fusee.admin.reach import ORDER_CONFIG_NAMESPACE, parse_perm, queue_of
from fusee.admin.settings import SettingCalls
from fusee.admin.views import ConsumeQueueItem, QueueGroup, QueueState, TopicRouteView, TopicSettings, TopicState
from fusee.errors import TopicNotFoundError
from fusee.message.topics import (
    AUTO_CREATE_TOPIC,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    reply_topic,
    validate_topic,
)
from fusee.wire.bodies.group import GroupList
from fusee.wire.bodies.stats import ConsumeQueueSlice, TopicStats
from fusee.wire.bodies.topic import TopicConfig, TopicConfigTable, decode_topic_list
from fusee.wire.codes import RequestCode
from fusee.wire.headers.admin import (
    CreateTopic,
    DeleteTopic,
    GetTopicConfig,
    GetTopicStats,
    QueryConsumeQueue,
    QueryTopicConsumers,
)
from fusee.wire.headers.namesrv import DeleteTopicFromNameServer, GetTopicsByCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fusee.admin.views import BrokerAddress
    from fusee.message.model import MessageQueue

DEFAULT_QUEUES: Final = 8

_ROUTE_POLL_SECONDS: Final = 0.1
_ROUTE_POLLS_MAX: Final = 30


class TopicCalls(SettingCalls):
    """Topics of brokers and name servers. Names are as brokers have them."""

    # Making and deleting

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = DEFAULT_QUEUES,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | str = "rw",
        ordered: bool = False,
        message_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[BrokerAddress, ...]:
        """Make a topic on one broker, on a cluster, or everywhere, or give it these settings if it exists.

        `queues` is the number on each broker. `message_type` is the attribute NORMAL, FIFO, DELAY, TRANSACTION or
        MIXED. With `ordered`, the queues in use are written to the name servers too. It waits until the name server
        knows the topic, so that it can be used at once; a broker that is slow to register does not make it fail.
        Returns the brokers. Raises MessageError on a bad name, AdminError naming the brokers that refused.
        """
        validate_topic(topic)
        wanted = dict(attributes or {})
        if message_type is not None:
            wanted["message.type"] = message_type.upper()
        settings = TopicSettings(
            topic=topic,
            read_queues=queues if read_queues is None else read_queues,
            write_queues=queues if write_queues is None else write_queues,
            perm=parse_perm(perm),
            is_ordered=ordered,
            attributes=wanted,
        )
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await ask_all(brokers, lambda place: self._put_topic(place, settings))
        done = answers.complete(f"make topic {topic!r}", topic=topic)
        await self._until_routed(topic, done)
        if ordered:
            config = ";".join(f"{place.broker_name}:{settings.write_queues}" for place in done)
            await self.set_order_config(topic, config, replace=broker is None)
        return done

    async def create_topics(
        self, topics: Iterable[TopicSettings], *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Make or change several topics (mqadmin updateTopicList), one after the other on each broker.

        (One request could carry them all, but the reference's broker then stops at the first that is unchanged.)
        """
        wanted = list(topics)
        for settings in wanted:
            validate_topic(settings.topic)
        brokers = await self.brokers(cluster=cluster, broker=broker)

        async def put_all(place: BrokerAddress) -> None:
            for settings in wanted:
                await self._put_topic(place, settings)

        done = (await ask_all(brokers, put_all)).complete(f"make {len(wanted)} topics")
        for settings in wanted:
            await self._until_routed(settings.topic, done)
        return done

    async def update_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | str | None = None,
        ordered: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        remove_attributes: Sequence[str] = (),
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[BrokerAddress, ...]:
        """Change only what is given, on each broker that has the topic; the rest stays as that broker has it.

        Raises TopicNotFoundError where no broker meant has the topic.
        """
        brokers = await self._having(topic, cluster, broker)
        changes: dict[str, object] = {
            "read_queues": queues if read_queues is None else read_queues,
            "write_queues": queues if write_queues is None else write_queues,
            "perm": None if perm is None else parse_perm(perm),
            "is_ordered": ordered,
        }
        changes = {name: value for name, value in changes.items() if value is not None}

        async def change(place: BrokerAddress) -> None:
            present = await self._topic_at(place, topic)
            settings = msgspec.structs.replace(present, attributes=dict(attributes or {}), **changes)
            await self._put_topic(place, settings, remove_attributes)

        return (await ask_all(brokers, change)).complete(f"change topic {topic!r}", topic=topic)

    async def set_topic_permission(
        self, topic: str, perm: int | str, *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Let clients read, write, or both (mqadmin updateTopicPerm)."""
        return await self.update_topic(topic, perm=perm, cluster=cluster, broker=broker)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> tuple[BrokerAddress, ...]:
        """Delete a topic with its messages' queues from every broker, slaves too, and from the name servers.

        The name servers forget it even when a broker failed: that one announces it again if it still has it. The
        queues of an ordered topic are forgotten when no cluster has the topic any more. Raises AdminError naming the
        brokers that still have it; deleting what is not there succeeds.
        """
        brokers = await self.brokers(cluster=cluster, slaves=True)
        answers = await self._ask_brokers(brokers, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic=topic))
        header = DeleteTopicFromNameServer(topic=topic, cluster_name=cluster)
        forgotten = await self._ask_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        done = answers.complete(f"delete topic {topic!r}", topic=topic)
        forgotten.complete(f"forget the route of topic {topic!r}", topic=topic)
        try:
            await self._route(topic)
        except TopicNotFoundError:
            if await self.kv(ORDER_CONFIG_NAMESPACE, topic) is not None:
                await self.delete_order_config(topic)
        return done

    # Telling

    async def list_topics(
        self, *, cluster: str | None = None, system: bool = False, retry: bool = False
    ) -> tuple[str, ...]:
        """Names of topics, sorted (mqadmin topicList); topics of the system, retry and dead letters on demand."""
        if cluster is None:
            answer = await self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            answer = await self._ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByCluster(cluster=cluster))
        names = set(decode_topic_list(answer.body).topic_list)
        if not system:
            names -= await self._names_of_servers()
            names = {name for name in names if not is_system_topic(name)}
        if not retry:
            names = {name for name in names if not is_retry_topic(name) and not is_dlq_topic(name)}
        return tuple(sorted(names))

    async def topic_route(self, topic: str) -> TopicRouteView:
        """Where a topic is served, as the name server tells (mqadmin topicRoute). Raises TopicNotFoundError."""
        route = await self._route(topic)
        places = {group.broker_name: group for group in route.broker_datas}
        groups = [
            QueueGroup(
                broker_name=queues.broker_name,
                cluster=places[queues.broker_name].cluster,
                read_queues=queues.read_queue_nums,
                write_queues=queues.write_queue_nums,
                perm=queues.perm,
                addresses=dict(sorted(places[queues.broker_name].broker_addrs.items())),
            )
            for queues in sorted(route.queue_datas, key=lambda each: each.broker_name)
            if queues.broker_name in places
        ]
        return TopicRouteView(topic=topic, groups=tuple(groups), order_config=route.order_topic_conf)

    async def topic_clusters(self, topic: str) -> tuple[str, ...]:
        """Clusters that hold a topic (mqadmin topicClusterList)."""
        return (await self.topic_route(topic)).clusters

    async def topic_settings(self, topic: str) -> tuple[TopicSettings, ...]:
        """The settings of a topic on each broker that has it."""
        brokers = await self._brokers_of(topic)
        answers = await ask_all(brokers, lambda place: self._topic_at(place, topic))
        return tuple(answers.without(TopicNotFoundError).some(f"tell of topic {topic!r}", topic=topic).values)

    async def topics_of_broker(self, broker: str, *, system: bool = False) -> tuple[TopicSettings, ...]:
        """The settings of every topic of one broker, sorted, e.g. to keep or to move them (mqadmin exportMetadata)."""
        place = await self._one_broker(broker)
        table = await self._ask_json(place.address, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable)
        reserved = set() if system else await self._names_of_servers()
        if not system:
            answer = await self._ask(place.address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            reserved |= set(decode_topic_list(answer.body).topic_list)
        return tuple(
            _settings(config, place)
            for name, config in sorted(table.topic_config_table.items())
            if system or not (name in reserved or is_system_topic(name))
        )

    async def topic_stats(self, topic: str) -> TopicState:
        """First and next offset of every queue, and when it was last written (mqadmin topicStatus)."""
        brokers = await self._brokers_of(topic)
        answers = await self._ask_brokers_json(
            brokers, RequestCode.GET_TOPIC_STATS_INFO, TopicStats, GetTopicStats(topic=topic)
        )
        answers = answers.without(TopicNotFoundError).some(f"tell of topic {topic!r}", topic=topic)
        queues = [
            QueueState(
                queue=queue_of(ref),
                min_offset=state.min_offset,
                max_offset=state.max_offset,
                last_update_ms=state.last_update_timestamp,
            )
            for stats in answers.values
            for ref, state in stats.offset_table.items()
        ]
        return TopicState(
            topic=topic,
            queues=tuple(sorted(queues, key=lambda each: each.queue)),
            put_tps=sum(stats.topic_put_tps for stats in answers.values),
            failures=answers.failures,
        )

    async def topic_groups(self, topic: str) -> tuple[str, ...]:
        """Groups that consume a topic: online, or by the offsets they left. Raises when a broker does not tell."""
        answers = await self._ask_brokers_json(
            await self._brokers_of(topic),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            GroupList,
            QueryTopicConsumers(topic=topic),
        )
        answers.complete(f"tell the groups of topic {topic!r}", topic=topic)
        return tuple(sorted({group for groups in answers.values for group in groups.group_list}))

    async def consume_queue(
        self, queue: MessageQueue, queue_offset: int, *, count: int = 10, group: str | None = None
    ) -> tuple[ConsumeQueueItem, ...]:
        """Entries of a consume queue as they lie on disk (mqadmin queryCq); with `group`, what its filter says."""
        header = QueryConsumeQueue(
            topic=queue.topic, queue_id=queue.queue_id, queue_offset=queue_offset, count=count, consumer_group=group
        )
        place = await self._one_broker(queue.broker_name)
        found = await self._ask_json(place.address, RequestCode.QUERY_CONSUME_QUEUE, ConsumeQueueSlice, header)
        first = max(queue_offset, found.min_queue_index)
        return tuple(
            ConsumeQueueItem(
                queue=queue,
                queue_offset=first + position,
                log_offset=entry.log_offset,
                size=entry.size,
                tags_code=entry.tags_code,
                matches=entry.eval,
                text=entry.msg or "",
            )
            for position, entry in enumerate(found.queue_data)
        )

    # Within

    async def _put_topic(self, place: BrokerAddress, settings: TopicSettings, remove: Sequence[str] = ()) -> None:
        alterations = [f"+{name}={value}" for name, value in settings.attributes.items()]
        alterations += [f"-{name}" for name in remove]
        header = CreateTopic(
            topic=settings.topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=settings.read_queues,
            write_queue_nums=settings.write_queues,
            perm=settings.perm,
            topic_filter_type=settings.filter_type,
            topic_sys_flag=settings.sys_flag,
            order=settings.is_ordered,
            attributes=",".join(alterations) or None,
        )
        await self._ask(place.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def _topic_at(self, place: BrokerAddress, topic: str) -> TopicSettings:
        config = await self._ask_json(
            place.address, RequestCode.GET_TOPIC_CONFIG, TopicConfig, GetTopicConfig(topic=topic)
        )
        return _settings(config, place)

    async def _having(self, topic: str, cluster: str | None, broker: str | None) -> tuple[BrokerAddress, ...]:
        """The brokers meant that serve the topic."""
        if broker is not None:
            return await self.brokers(cluster=cluster, broker=broker)
        serving = {place.broker_name for place in await self._brokers_of(topic)}
        return tuple(place for place in await self.brokers(cluster=cluster) if place.broker_name in serving)

    async def _until_routed(self, topic: str, brokers: tuple[BrokerAddress, ...]) -> None:
        """Wait until the name server knows that these brokers serve the topic, three seconds at most."""
        wanted = {place.broker_name for place in brokers if place.broker_name}
        for _ in range(_ROUTE_POLLS_MAX):
            try:
                route = await self._route(topic)
            except TopicNotFoundError:
                pass
            else:
                if wanted <= {queues.broker_name for queues in route.queue_datas}:
                    if self._session.cached_route(topic) is not None:
                        await self._session.refresh_route(topic)
                    return
            await self._pause(_ROUTE_POLL_SECONDS)

    async def _names_of_servers(self) -> set[str]:
        """Names of clusters and brokers, which are topics too, and the topics for replies."""
        info = await self._topology()
        clusters = set(info.cluster_addr_table)
        return clusters | set(info.broker_addr_table) | {reply_topic(cluster) for cluster in clusters}


def _settings(config: TopicConfig, place: BrokerAddress) -> TopicSettings:
    return TopicSettings(
        topic=config.topic_name,
        broker_name=place.broker_name,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        perm=config.perm,
        is_ordered=config.order,
        attributes=dict(config.attributes),
        sys_flag=config.topic_sys_flag,
        filter_type=config.topic_filter_type,
    )
