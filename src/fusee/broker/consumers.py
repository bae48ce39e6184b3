"""Who consumes: the groups that are online, their members and what they subscribe to (Java: ConsumerManager).

A state machine without I/O. Heartbeats, farewells, lost connections and the passing of time come in as calls with the
time; what follows for others goes out to `listeners` (members to be told of each other) and as the result of `expire`
(connections to close).

    group      exists while it has members; topics, model and kind are those of the last full heartbeat of any member
    member     one connection in one group; gone by farewell, by loss of its connection, or silent for too long
    topic      new in a heartbeat: added; higher version: replaced; not in a heartbeat: removed; from a heartbeat
               without subscriptions (second form, by fingerprint) nothing changes

Members of one group are expected to subscribe alike. When they do not, each heartbeat takes away what the other
brought, as in Java, and everybody is told each time.

`ConsumerGroup.revision` counts the changes that make an unchanged heartbeat worth reading again: the handler of
heartbeats compares it and skips the rest.

Otherwise than Java: an expired member's group is told, as with any other departure; a group's topics are forgotten for
`groups_of_topic` when it stops to subscribe and not only when it ends; a heartbeat without subscriptions to a group of
which none are known asks for them, where Java after a restart would leave the group without any.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from fusee.errors import InvalidRequestError, SystemBusyError
from fusee.filter import TAG, declared_subscription
from fusee.wire.bodies.heartbeat import SubscriptionData
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fusee.broker.config import BrokerConfig
    from fusee.filter import Subscription
    from fusee.transport.link import Link
    from fusee.wire.bodies.heartbeat import ConsumerData
    from fusee.wire.codes import LanguageCode

_log = logging.getLogger(__name__)

BROADCASTING: Final = "BROADCASTING"
PULLED_MAX: Final = 100_000
"""Subscriptions that are remembered of consumers that only pull."""


@dataclass(slots=True, eq=False)
class Member:
    """A client in one group on one connection (Java: ClientChannelInfo)."""

    link: Link
    client_id: str
    language: LanguageCode
    version: int
    last_update_ms: int
    is_registered: bool = True
    """False from the moment it leaves its group."""


class GroupSubscription(NamedTuple):
    """What a group wants of a topic: as the client said it, and ready to be used."""

    data: SubscriptionData
    subscription: Subscription


class ConsumerGroup:
    """A group that is online (Java: ConsumerGroupInfo)."""

    __slots__ = (
        "consume_from_where",
        "consume_type",
        "fingerprint",
        "id_list",
        "members",
        "message_model",
        "name",
        "revision",
        "subscriptions",
        "tells_members",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.message_model: str = "CLUSTERING"
        self.consume_type: str = "CONSUME_PASSIVELY"
        self.consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
        self.members: dict[Link, Member] = {}
        self.subscriptions: dict[str, GroupSubscription] = {}
        self.fingerprint: int | None = None
        self.tells_members = True
        self.revision = 0
        # Encoded client ids, kept by whoever answers with them until members change.
        self.id_list: bytes | None = None

    @property
    def client_ids(self) -> list[str]:
        """Each client once, though it may have a new connection while its old one is not known to be lost."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))


class Registered(NamedTuple):
    """What came of a heartbeat in one group; `asks_subscriptions`: the client should send all it has next time."""

    group: ConsumerGroup
    member: Member
    asks_subscriptions: bool


class _Pulled(NamedTuple):
    subscription: Subscription
    noted_ms: int


class ConsumerTable:
    """The groups that are online.

    `listeners` are called with a group when its members or topics changed and its members want to know: not for
    broadcasting groups, nor where the group's configuration says no. The group may be empty by then.
    `config` may be replaced at any time.
    """

    def __init__(self, *, config: BrokerConfig) -> None:
        self.config = config
        self.listeners: list[Callable[[ConsumerGroup], object]] = []
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of_link: dict[Link, dict[str, ConsumerGroup]] = {}
        self._groups_of_topic: dict[str, set[str]] = {}
        self._pulled: dict[tuple[str, str], _Pulled] = {}

    # Looking

    def group(self, name: str) -> ConsumerGroup | None:
        return self._groups.get(name)

    def all(self) -> Mapping[str, ConsumerGroup]:
        return self._groups

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What the group's heartbeats say about the topic; its `fault` says what is wrong with the expression."""
        known = self._groups.get(group)
        if known is None:
            return None
        entry = known.subscriptions.get(topic)
        return None if entry is None else entry.subscription

    def known_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group wants of the topic by its heartbeats or else by its pulls: for administrators."""
        known = self._groups.get(group)
        if known is not None and (entry := known.subscriptions.get(topic)) is not None:
            return entry.data
        pulled = self._pulled.get((group, topic))
        return None if pulled is None else _as_data(pulled.subscription, pulled.noted_ms)

    def groups_of_topic(self, topic: str) -> set[str]:
        """Groups online that subscribe to the topic."""
        return set(self._groups_of_topic.get(topic, ()))

    def member(self, group: str, client_id: str) -> Member | None:
        """The client's membership; the latest where it has several connections. Looks through the whole group."""
        known = self._groups.get(group)
        if known is None:
            return None
        found = [member for member in known.members.values() if member.client_id == client_id]
        return max(found, key=lambda member: (member.link.is_open, member.last_update_ms), default=None)

    # What happens

    def register(
        self,
        data: ConsumerData,
        link: Link,
        *,
        client_id: str,
        language: LanguageCode,
        version: int,
        now_ms: int,
        fingerprint: int = 0,
        without_sub: bool = False,
        notify: bool = True,
    ) -> Registered:
        """A heartbeat for one group. Raises SystemBusyError or InvalidRequestError at a limit, changing nothing."""
        name = data.group_name
        group = self._groups.get(name)
        self._check_limits(group, data, link)
        if group is None:
            group = self._groups[name] = ConsumerGroup(name)
        group.tells_members = notify
        asks_subscriptions = False
        if fingerprint:
            known = group.fingerprint
            asks_subscriptions = (known is not None and known != fingerprint) or (
                without_sub and not group.subscriptions
            )
        if group.fingerprint != fingerprint:
            group.fingerprint = fingerprint
            group.revision += 1
        member, is_new = self._join(group, link, client_id, language, version, now_ms)
        kind = (data.message_model, data.consume_type, data.consume_from_where)
        if kind != (group.message_model, group.consume_type, group.consume_from_where):
            group.message_model, group.consume_type, group.consume_from_where = kind
            group.revision += 1
        topics_changed = not without_sub and self._subscribe(group, data.subscription_data_set)
        if is_new or topics_changed:
            self._tell(group)
        return Registered(group, member, asks_subscriptions)

    def unregister(self, group: str, link: Link, *, notify: bool = True) -> bool:
        """A farewell; whether the connection was a member."""
        known = self._groups.get(group)
        if known is None:
            return False
        known.tells_members = notify
        return self._leave(known, link)

    def link_lost(self, link: Link) -> None:
        """The connection ended: its memberships are over. Harmless for one that had none."""
        for group in list(self._groups_of_link.get(link, {}).values()):
            self._leave(group, link)

    def expire(self, now_ms: int) -> list[Link]:
        """Remove members that have been silent for too long; their connections, to be closed."""
        oldest_ms = now_ms - self.config.channel_expired_timeout
        silent = [
            (group, link)
            for group in self._groups.values()
            for link, member in group.members.items()
            if member.last_update_ms < oldest_ms
        ]
        for group, link in silent:
            _log.warning(
                "consumer %s of group %s is removed: no heartbeat for too long", link.remote_address, group.name
            )
            self._leave(group, link)
        oldest_ms = now_ms - self.config.subscription_expired_timeout
        for key in [key for key, pulled in self._pulled.items() if pulled.noted_ms < oldest_ms]:
            del self._pulled[key]
        return list(dict.fromkeys(link for _, link in silent))

    def note_pull(self, group: str, topic: str, subscription: Subscription, now_ms: int) -> None:
        """Remember what a pull brought as its subscription, for consumers that send no heartbeat (Java: compensate)."""
        key = (group, topic)
        if key in self._pulled or len(self._pulled) < PULLED_MAX:
            self._pulled[key] = _Pulled(subscription, now_ms)

    # Inside

    def _check_limits(self, group: ConsumerGroup | None, data: ConsumerData, link: Link) -> None:
        config = self.config
        count = len(data.subscription_data_set)
        if count > config.subscriptions_per_group_max:
            raise InvalidRequestError(
                f"consumer group {data.group_name} subscribes to {count} topics, the limit is "
                f"{config.subscriptions_per_group_max}; divide it, or raise subscriptionsPerGroupMax of the broker",
                code=ResponseCode.INVALID_PARAMETER,
            )
        if group is not None and link not in group.members and len(group.members) >= config.clients_per_group_max:
            raise SystemBusyError(
                f"consumer group {data.group_name} has {len(group.members)} members, the limit; try again when some "
                "have left, or raise clientsPerGroupMax of the broker",
                code=ResponseCode.SYSTEM_BUSY,
            )

    def _join(
        self, group: ConsumerGroup, link: Link, client_id: str, language: LanguageCode, version: int, now_ms: int
    ) -> tuple[Member, bool]:
        member = group.members.get(link)
        if member is not None and member.client_id == client_id:
            member.last_update_ms = now_ms
            return member, False
        is_new = member is None
        if member is not None:
            _log.warning(
                "%s is known as %s in group %s and now says it is %s",
                *(link.remote_address, member.client_id, group.name, client_id),
            )
            member.is_registered = False
        member = group.members[link] = Member(link, client_id, language, version, now_ms)
        group.id_list = None
        self._groups_of_link.setdefault(link, {})[group.name] = group
        return member, is_new

    def _leave(self, group: ConsumerGroup, link: Link) -> bool:
        member = group.members.pop(link, None)
        if member is None:
            return False
        member.is_registered = False
        group.id_list = None
        memberships = self._groups_of_link[link]
        del memberships[group.name]
        if not memberships:
            del self._groups_of_link[link]
        if not group.members:
            del self._groups[group.name]
            for topic in group.subscriptions:
                self._forget_topic(topic, group.name)
        self._tell(group)
        return True

    def _subscribe(self, group: ConsumerGroup, wanted: Sequence[SubscriptionData]) -> bool:
        """Make these the group's subscriptions; whether topics came or went."""
        subscriptions = group.subscriptions
        topics_changed = False
        for data in wanted:
            known = subscriptions.get(data.topic)
            if known is not None and data.sub_version <= known.data.sub_version:
                continue
            subscription = _declared(data)
            if subscription.fault:
                # A heartbeat is never refused for it; the consumer learns of it when it pulls.
                _log.warning("group %s subscribes to %s in vain: %s", group.name, data.topic, subscription.fault)
            subscriptions[data.topic] = GroupSubscription(data, subscription)
            group.revision += 1
            if known is None:
                topics_changed = True
                self._groups_of_topic.setdefault(data.topic, set()).add(group.name)
        kept = {data.topic for data in wanted}
        if len(kept) != len(subscriptions):
            for topic in [topic for topic in subscriptions if topic not in kept]:
                del subscriptions[topic]
                self._forget_topic(topic, group.name)
            group.revision += 1
            topics_changed = True
        return topics_changed

    def _forget_topic(self, topic: str, group: str) -> None:
        groups = self._groups_of_topic.get(topic)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._groups_of_topic[topic]

    def _tell(self, group: ConsumerGroup) -> None:
        if group.tells_members and group.message_model != BROADCASTING:
            for listener in self.listeners:
                listener(group)


def _declared(data: SubscriptionData) -> Subscription:
    return declared_subscription(
        data.topic,
        data.expression,
        data.expression_type or TAG,
        tags=data.tags_set,
        codes=data.code_set or None,
        version=data.sub_version,
        class_filter_mode=data.class_filter_mode,
    )


def _as_data(subscription: Subscription, version: int) -> SubscriptionData:
    return SubscriptionData(
        code_set=sorted(subscription.tags_codes or ()),
        expression_type=subscription.expression_type,
        expression=subscription.expression,
        sub_version=version,
        tags_set=sorted(subscription.tags),
        topic=subscription.topic,
    )
