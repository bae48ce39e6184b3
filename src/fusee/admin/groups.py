"""Consumer groups: make, change, delete, list, and which topics they may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import msgspec

from fusee.admin.fan_out import ask_all
from fusee.admin.topics import TopicCalls
from fusee.admin.views import ExponentialRetry, GroupSettings, SubscriptionView
from fusee.errors import ConfigError, GroupNotFoundError, TopicNotFoundError
from fusee.message.topics import (
    PREDEFINED_GROUPS,
    dlq_topic,
    is_system_group,
    retry_topic,
    validate_group,
)
from fusee.wire.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupForbidden,
    GroupRetryPolicy,
    QuerySubscriptionResponse,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from fusee.wire.bodies.pop import MessageRequestMode
from fusee.wire.bodies.topic import decode_topic_list
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.admin import (
    DeleteSubscriptionGroup,
    QuerySubscriptionByConsumer,
    QueryTopicsByConsumer,
    UpdateGroupForbidden,
)
from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fusee.admin.views import BrokerAddress
    from fusee.wire.bodies.heartbeat import SubscriptionData


class GroupOptions(TypedDict, total=False):
    """What can be set of a group, by RocketMQ's names; `retry_delays_ms` and `retry_backoff` exclude each other."""

    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int
    retry_delays_ms: Sequence[int]
    retry_backoff: ExponentialRetry | None
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool
    consume_timeout_minutes: int
    attributes: Mapping[str, str]


class GroupCalls(TopicCalls):
    """Consumer groups of brokers."""

    # Making and deleting

    async def create_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **options: Unpack[GroupOptions],
    ) -> tuple[BrokerAddress, ...]:
        """Make a consumer group, or give it these settings if it exists (mqadmin updateSubGroup).

        What is not given gets its default, also in a group that exists; `update_group` keeps the rest. Raises
        MessageError on a bad name, AdminError naming the brokers that refused.
        """
        settings = _with_options(GroupSettings(group=group), options)
        return await self.create_groups([settings], cluster=cluster, broker=broker)

    async def create_groups(
        self, groups: Iterable[GroupSettings], *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[BrokerAddress, ...]:
        """Make or change several groups (mqadmin updateSubGroupList), one after the other on each broker."""
        wanted = list(groups)
        for settings in wanted:
            validate_group(settings.group)
        brokers = await self.brokers(cluster=cluster, broker=broker)

        async def put_all(place: BrokerAddress) -> None:
            for settings in wanted:
                await self._put_group(place, settings)

        what = f"make group {wanted[0].group!r}" if len(wanted) == 1 else f"make {len(wanted)} groups"
        return (await ask_all(brokers, put_all)).complete(what)

    async def update_group(
        self,
        group: str,
        *,
        remove_attributes: Sequence[str] = (),
        cluster: str | None = None,
        broker: str | None = None,
        **options: Unpack[GroupOptions],
    ) -> tuple[BrokerAddress, ...]:
        """Change only what is given, on each broker meant that has the group. Raises GroupNotFoundError."""
        present = {settings.broker_name: settings for settings in await self.group_settings(group)}
        brokers = [
            place for place in await self.brokers(cluster=cluster, broker=broker) if place.broker_name in present
        ]
        if not brokers:
            raise _no_such_group(group)

        async def change(place: BrokerAddress) -> None:
            kept = msgspec.structs.replace(present[place.broker_name], attributes={})
            await self._put_group(place, _with_options(kept, options), remove_attributes)

        return (await ask_all(brokers, change)).complete(f"change group {group!r}")

    async def delete_group(
        self,
        group: str,
        *,
        delete_offsets: bool = False,
        delete_dead_letters: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[BrokerAddress, ...]:
        """Delete a group (mqadmin deleteSubGroup), and unless one broker is named its retry topic.

        Dead letters are kept unless `delete_dead_letters`; the reference's tool deletes them without a word. Deleting
        what is not there succeeds.
        """
        brokers = await self.brokers(cluster=cluster, broker=broker)
        header = DeleteSubscriptionGroup(group=group, clean_offset=delete_offsets)
        answers = await self._ask_brokers(brokers, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        done = answers.complete(f"delete group {group!r}")
        if broker is None:
            await self.delete_topic(retry_topic(group), cluster=cluster)
            if delete_dead_letters:
                await self.delete_topic(dlq_topic(group), cluster=cluster)
        return done

    # Telling

    async def list_groups(self, *, cluster: str | None = None, system: bool = False) -> tuple[str, ...]:
        """Names of the groups that some broker knows, sorted. Raises when a broker does not tell."""
        tables = await self._group_tables(await self.brokers(cluster=cluster))
        return tuple(
            sorted(
                {
                    name
                    for _, table in tables
                    for name in table.subscription_group_table
                    if system or not (is_system_group(name) or name in PREDEFINED_GROUPS)
                }
            )
        )

    async def group_settings(self, group: str) -> tuple[GroupSettings, ...]:
        """The settings of a group on each broker that has it (mqadmin getConsumerConfig). Raises GroupNotFoundError.

        Asking for one group would make it where brokers make groups by themselves; so all are asked for.
        """
        tables = await self._group_tables(await self.brokers())
        found = [
            _settings(table.subscription_group_table[group], place)
            for place, table in tables
            if group in table.subscription_group_table
        ]
        if not found:
            raise _no_such_group(group)
        return tuple(found)

    async def groups_of_broker(self, broker: str, *, system: bool = False) -> tuple[GroupSettings, ...]:
        """The settings of every group of one broker, sorted, e.g. to keep or to move them (mqadmin exportMetadata)."""
        place = await self._one_broker(broker)
        ((_, table),) = await self._group_tables([place])
        return tuple(
            _settings(config, place)
            for name, config in sorted(table.subscription_group_table.items())
            if system or not (is_system_group(name) or name in PREDEFINED_GROUPS)
        )

    async def group_topics(self, group: str) -> tuple[str, ...]:
        """Topics of which a group has offsets, sorted. Raises when a broker does not tell."""
        answers = await self._ask_brokers(
            await self._brokers_of_group(group),
            RequestCode.QUERY_TOPICS_BY_CONSUMER,
            QueryTopicsByConsumer(group=group),
        )
        answers.complete(f"tell the topics of group {group!r}")
        return tuple(
            sorted({topic for answer in answers.values for topic in decode_topic_list(answer.body).topic_list})
        )

    async def subscription(self, group: str, topic: str) -> SubscriptionView | None:
        """What the members of a group that are online want of a topic; None when nobody is, or it is not wanted."""
        answers = await self._ask_brokers_json(
            await self._brokers_of(topic),
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            QuerySubscriptionResponse,
            QuerySubscriptionByConsumer(group=group, topic=topic),
        )
        for answer in answers.some(f"tell the subscription of group {group!r}", topic=topic).values:
            if answer.subscription_data is not None:
                return subscription_view(answer.subscription_data)
        return None

    # What a group may read, and how

    async def is_readable(self, group: str, topic: str) -> bool:
        """Whether a group may read a topic, on every broker that serves it."""
        return await self._readable(group, topic, None)

    async def set_readable(self, group: str, topic: str, readable: bool) -> bool:
        """Let a group read a topic or stop it, on every broker that serves the topic; how it is now."""
        return await self._readable(group, topic, readable)

    async def set_consume_mode(
        self,
        group: str,
        topic: str,
        mode: Literal["PULL", "POP"],
        *,
        pop_share_queue_num: int = 0,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[BrokerAddress, ...]:
        """Let the members of a group pull or pop a topic (mqadmin setConsumeMode)."""
        wanted = MessageRequestMode(
            consumer_group=group, topic=topic, mode=mode, pop_share_queue_num=pop_share_queue_num
        )
        answers = await self._ask_brokers(
            await self.brokers(cluster=cluster, broker=broker),
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            body=dumps_fastjson(wanted),
        )
        return answers.complete(f"set the mode of group {group!r}", topic=topic)

    # Within

    async def _put_group(self, place: BrokerAddress, settings: GroupSettings, remove: Sequence[str] = ()) -> None:
        config = SubscriptionGroupConfig(
            attributes={f"+{name}": value for name, value in settings.attributes.items()}
            | {f"-{name}": "" for name in remove},
            broker_id=settings.broker_id,
            consume_broadcast_enable=settings.consume_broadcast_enable,
            consume_enable=settings.consume_enable,
            consume_from_min_enable=settings.consume_from_min_enable,
            consume_message_orderly=settings.consume_message_orderly,
            consume_timeout_minutes=settings.consume_timeout_minutes,
            group_name=settings.group,
            group_retry_policy=_policy(settings),
            group_sys_flag=settings.sys_flag,
            notify_consumer_ids_changed_enable=settings.notify_consumer_ids_changed_enable,
            retry_max_times=settings.retry_max_times,
            retry_queue_nums=settings.retry_queue_nums,
            which_broker_when_consume_slowly=settings.which_broker_when_consume_slowly,
        )
        await self._ask(place.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps_fastjson(config))

    async def _group_tables(
        self, brokers: Iterable[BrokerAddress]
    ) -> tuple[tuple[BrokerAddress, SubscriptionGroupTable], ...]:
        answers = await self._ask_brokers_json(
            brokers, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupTable
        )
        answers.complete("tell the groups")
        return answers.answers

    async def _readable(self, group: str, topic: str, readable: bool | None) -> bool:
        answers = await self._ask_brokers_json(
            await self._brokers_of(topic),
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            GroupForbidden,
            UpdateGroupForbidden(group=group, topic=topic, readable=readable),
        )
        answers.complete(f"say whether group {group!r} may read", topic=topic)
        return all(answer.readable is not False for answer in answers.values)

    async def _brokers_of_group(self, group: str, topic: str | None = None) -> tuple[BrokerAddress, ...]:
        """One broker of each group that may know something of a consumer group: those that have its retry topic or
        serve the topic; all, for a group that has no retry topic. Raises TopicNotFoundError when there is no topic.
        """
        found: dict[str, BrokerAddress] = {}
        for name in (retry_topic(group), topic) if topic is not None else (retry_topic(group),):
            try:
                found |= {place.broker_name: place for place in await self._brokers_of(name)}
            except TopicNotFoundError:
                if name == topic:
                    raise
        return tuple(found[name] for name in sorted(found)) or await self.brokers()


def subscription_view(data: SubscriptionData) -> SubscriptionView:
    """A subscription as people see it."""
    return SubscriptionView(
        topic=data.topic,
        expression=data.expression or "*",
        expression_type=data.expression_type or "TAG",
        version_ms=data.sub_version,
    )


def _with_options(settings: GroupSettings, options: GroupOptions) -> GroupSettings:
    changes: dict[str, object] = dict(options)
    if "retry_delays_ms" in options:
        changes["retry_delays_ms"] = tuple(options["retry_delays_ms"])
        changes.setdefault("retry_backoff", None)
    elif options.get("retry_backoff") is not None:
        changes["retry_delays_ms"] = ()
    if "attributes" in options:
        changes["attributes"] = dict(options["attributes"])
    changed = msgspec.structs.replace(settings, **changes)
    if changed.retry_delays_ms and changed.retry_backoff is not None:
        raise ConfigError(f"group {settings.group!r}: give retry_delays_ms or retry_backoff, not both")
    return changed


def _policy(settings: GroupSettings) -> GroupRetryPolicy:
    if settings.retry_backoff is not None:
        backoff = settings.retry_backoff
        return GroupRetryPolicy(
            type="EXPONENTIAL",
            exponential_retry_policy=ExponentialRetryPolicy(
                initial_ms=backoff.initial_ms, max_ms=backoff.max_ms, multiplier=backoff.multiplier
            ),
        )
    if settings.retry_delays_ms:
        return GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next_ms=list(settings.retry_delays_ms)))
    return GroupRetryPolicy()


def _settings(config: SubscriptionGroupConfig, place: BrokerAddress) -> GroupSettings:
    policy = config.group_retry_policy
    delays: tuple[int, ...] = ()
    backoff: ExponentialRetry | None = None
    if policy.type == "EXPONENTIAL":
        wire = policy.exponential_retry_policy or ExponentialRetryPolicy()
        backoff = ExponentialRetry(initial_ms=wire.initial_ms, max_ms=wire.max_ms, multiplier=wire.multiplier)
    elif policy.customized_retry_policy is not None:
        delays = tuple(policy.customized_retry_policy.next_ms)
    return GroupSettings(
        group=config.group_name,
        broker_name=place.broker_name,
        consume_enable=config.consume_enable,
        consume_from_min_enable=config.consume_from_min_enable,
        consume_broadcast_enable=config.consume_broadcast_enable,
        consume_message_orderly=config.consume_message_orderly,
        retry_queue_nums=config.retry_queue_nums,
        retry_max_times=config.retry_max_times,
        retry_delays_ms=delays,
        retry_backoff=backoff,
        broker_id=config.broker_id,
        which_broker_when_consume_slowly=config.which_broker_when_consume_slowly,
        notify_consumer_ids_changed_enable=config.notify_consumer_ids_changed_enable,
        consume_timeout_minutes=config.consume_timeout_minutes,
        sys_flag=config.group_sys_flag,
        attributes=dict(config.attributes),
    )


def _no_such_group(group: str) -> GroupNotFoundError:
    return GroupNotFoundError(
        f"no broker knows group {group!r}; create it (admin.create_group), or check its name",
        code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    )
