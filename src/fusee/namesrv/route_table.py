"""Who serves what: brokers, clusters, topics and liveness, as pure state (Java: RouteInfoManager).

No clock, no socket, no loop: time comes in as `now_ms`, a connection is any hashable object, and what
must happen outside (close a connection, tell brokers of a change) goes out as data. Nothing here is
saved: brokers announce themselves again after a restart.

State
    groups      broker name -> group: cluster, zone, acting-master switch, members by broker id (0: master)
    live        (cluster, address) -> member; the same objects as in the groups
    channels    connection -> members that registered over it
    clusters    cluster -> broker names
    topics      topic -> broker name -> queues and permission
    mappings    topic -> broker name -> queues of a static topic

Invariants
    a member is in one group under its id, in `live` under its address, in `channels` under its connection
    a group has at least one member, and is in the clusters of its members; a cluster has at least one group
    a topic has at least one broker; every broker of a topic or mapping is a group
    `version` grows with every change that can alter an answer of `route`

Registration
    refused   the broker id is new and the body has exactly one topic: single topics are announced only by
              brokers that have announced all of theirs. Nothing changes.
    ignored   another address holds the broker id with a larger state version. The rejected address leaves.
    accepted  otherwise. An address that had another id or name moves; an id that had another address is
              taken over. The master, or the smallest id of a group of 5.x brokers ("prime slave"), may
              change topics: all of them at its first registration or when its data version changed, else
              those that are missing. A prime slave with the acting-master switch announces its topics
              without write permission.

A member leaves when it says so, when its connection ends, or when it is silent for longer than its
time-out. With the last member the group and its topics go. When a group with the acting-master switch
loses its master, its topics lose their write permission until a master registers.

Where Java does otherwise: a refused registration leaves an empty group behind; an address whose id was
taken over stays in the live table for ever; of several brokers on one connection only one is removed when
it ends; mappings are never removed; unregistration is queued and may overtake a later registration.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.errors import FuseeError
from fusee.namesrv.config import RouteLimits
from fusee.wire.bodies.route import (
    MASTER_ID,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from fusee.wire.bodies.topic import (
    PERM_READ,
    PERM_WRITE,
    UNIT_FLAG,
    UNIT_SUBSCRIPTION_FLAG,
    DataVersion,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicQueueMappingInfo,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BROKER_TIMEOUT_MS: Final = 120_000
"""Silence after which a broker is removed when its registration does not say."""

# The route of this topic shows who is in the group, so its members are never renumbered.
_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"

Channel = Hashable
LiveKey = tuple[str, str]


class RouteError(FuseeError):
    """A change of the route table that breaks a limit."""


class UnknownBrokerError(RouteError):
    """A topic of a broker that is not registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A broker's announcement of itself."""

    cluster: str
    address: str
    broker_name: str
    broker_id: int
    ha_address: str
    channel: Channel
    topics: TopicConfigTable
    filter_servers: list[str] | None = None
    """None leaves the known ones."""
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    """None is a broker before 5.0, which knows nothing of it."""


class Outcome(Enum):
    """What became of a registration."""

    ACCEPTED = "accepted"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class MinBrokerChange:
    """The smallest broker id of a group is another one now, and these addresses should hear of it."""

    broker_name: str
    min_broker_id: int
    min_broker_address: str
    offline_address: str | None
    ha_address: str | None
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterResult:
    """The answer to a registration. A slave learns of its master here."""

    outcome: Outcome
    master_address: str | None = None
    master_ha_address: str | None = None
    min_broker_change: MinBrokerChange | None = None


@dataclass(slots=True)
class Departures:
    """Brokers that left, and what follows from it."""

    removed: list[LiveKey] = field(default_factory=list)
    to_close: list[Channel] = field(default_factory=list)
    min_broker_changes: list[MinBrokerChange] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Member:
    cluster: str
    address: str
    broker_name: str
    broker_id: int
    ha_address: str
    channel: Channel
    data_version: DataVersion
    last_update_ms: int
    timeout_ms: int
    filter_servers: list[str] = field(default_factory=list)

    @property
    def key(self) -> LiveKey:
        return self.cluster, self.address


@dataclass(slots=True, eq=False)
class _Group:
    name: str
    cluster: str
    acting_master: bool = False
    zone: str | None = None
    members: dict[int, _Member] = field(default_factory=dict)

    def addresses(self) -> dict[int, str]:
        return {broker_id: self.members[broker_id].address for broker_id in sorted(self.members)}

    def to_broker_data(self) -> BrokerData:
        return BrokerData(
            broker_addrs=self.addresses(),
            broker_name=self.name,
            cluster=self.cluster,
            enable_acting_master=self.acting_master,
            zone_name=self.zone,
        )


class RouteTable:
    """The state of a name server and the rules by which it changes."""

    def __init__(self, *, limits: RouteLimits | None = None) -> None:
        self._limits = limits if limits is not None else RouteLimits()
        self._groups: dict[str, _Group] = {}
        self._live: dict[LiveKey, _Member] = {}
        self._channels: dict[Channel, set[LiveKey]] = {}
        self._clusters: dict[str, set[str]] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self.version = 0

    # Brokers that come

    def register(self, registration: Registration, now_ms: int, *, drop_missing_topics: bool = False) -> RegisterResult:
        """Take a broker in, or keep it up to date. Raises RouteError over a limit; then nothing changes."""
        self._check(registration)
        group = self._groups.get(registration.broker_name)
        members = group.members if group is not None else {}
        known = self._live.get((registration.cluster, registration.address))
        holder = members.get(registration.broker_id)
        if holder is not None and holder.address != registration.address:
            if holder.data_version.state_version > registration.topics.data_version.state_version:
                if known is not None:
                    self._detach(known)
                return RegisterResult(outcome=Outcome.IGNORED)
        elif holder is None and len(registration.topics.topic_config_table) == 1:
            return RegisterResult(outcome=Outcome.REFUSED)
        self._check_room(registration, is_new=known is None and holder is None)

        min_before = min(members, default=MASTER_ID)
        topics_may_differ = holder is None or known is None or known.data_version != registration.topics.data_version
        member = self._attach(registration, known, now_ms)
        group = self._groups[registration.broker_name]
        self._announce_topics(registration, group, all_topics=topics_may_differ, drop_missing=drop_missing_topics)

        master = group.members.get(MASTER_ID) if registration.broker_id != MASTER_ID else None
        change = None
        if registration.broker_id < min_before:
            change = self._min_broker_change(group, offline_address=None, ha_address=member.ha_address)
        return RegisterResult(
            outcome=Outcome.ACCEPTED,
            master_address=master.address if master is not None else None,
            master_ha_address=master.ha_address if master is not None else None,
            min_broker_change=change,
        )

    def touch(self, cluster: str, address: str, now_ms: int) -> bool:
        """A sign of life. False when there is no such broker."""
        member = self._live.get((cluster, address))
        if member is None:
            return False
        member.last_update_ms = now_ms
        return True

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The data version this broker registered with, or None when there is no such broker."""
        member = self._live.get((cluster, address))
        return None if member is None else member.data_version

    # Brokers that go

    def unregister(self, brokers: Iterable[tuple[str, str, str]]) -> Departures:
        """Remove brokers given as (cluster, address, broker name); unknown ones are passed over."""
        return self._remove(
            member
            for cluster, address, broker_name in brokers
            if (member := self._live.get((cluster, address))) is not None and member.broker_name == broker_name
        )

    def channel_lost(self, channel: Channel) -> Departures:
        """Remove the brokers whose registration came over this connection."""
        return self._remove([self._live[key] for key in sorted(self._channels.get(channel, ()))])

    def expire(self, now_ms: int) -> Departures:
        """Remove the brokers that have been silent for too long; their connections are to be closed."""
        expired = [member for member in self._live.values() if member.last_update_ms + member.timeout_ms < now_ms]
        departures = self._remove(expired)
        departures.to_close = list(dict.fromkeys(member.channel for member in expired))
        return departures

    # Topics

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Add or replace the queues of a topic on known brokers. Raises RouteError; then nothing changes."""
        self._check_name("topic", topic)
        for queue in queues:
            if queue.broker_name not in self._groups:
                raise UnknownBrokerError(
                    f"topic {topic} names broker {queue.broker_name!r}, which is not registered here; "
                    "a broker must register itself before single topics"
                )
        if queues and topic not in self._topics and len(self._topics) >= self._limits.topics_max:
            raise RouteError(f"no room for topic {topic}: topicsMax={self._limits.topics_max} is reached")
        for queue in queues:
            self._put_queue(topic, queue)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster. A broker that still has it brings it back."""
        brokers = list(self._topics.get(topic, ()))
        for broker_name in brokers:
            if cluster is None or broker_name in self._clusters.get(cluster, ()):
                self._drop_queue(topic, broker_name)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Make all topics of a broker group read-only, and count them."""
        return self._set_permission(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Make all topics of a broker group readable and writable (and no more than that), and count them."""
        return self._set_permission(broker_name, lambda _: PERM_READ | PERM_WRITE)

    # Answers

    def route(self, topic: str, *, acting_master: bool = False) -> TopicRouteData | None:
        """The route of a topic, or None when it is unknown.

        With `acting_master`, a group that allows it, has no master and is read-only shows its smallest id
        as 0.
        """
        queues = self._topics.get(topic)
        if queues is None:
            return None
        brokers: list[BrokerData] = []
        filter_servers: dict[str, list[str]] = {}
        for broker_name in sorted(queues):
            group = self._groups[broker_name]
            brokers.append(group.to_broker_data())
            for member in group.members.values():
                if member.filter_servers:
                    filter_servers[member.address] = list(member.filter_servers)
        mapping = self._mappings.get(topic)
        route = TopicRouteData(
            broker_datas=brokers,
            filter_server_table=filter_servers,
            queue_datas=[queues[broker_name] for broker_name in sorted(queues)],
            topic_queue_mapping_by_broker=dict(mapping) if mapping is not None else None,
        )
        if acting_master and not topic.startswith(_MEMBER_TOPIC_PREFIX):
            for broker in brokers:
                _show_acting_master(broker, queues[broker.broker_name])
        return route

    def cluster_info(self) -> ClusterInfo:
        """All broker groups and clusters."""
        return ClusterInfo(
            broker_addr_table={name: self._groups[name].to_broker_data() for name in sorted(self._groups)},
            cluster_addr_table={cluster: sorted(self._clusters[cluster]) for cluster in sorted(self._clusters)},
        )

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """Who is alive in a broker group; the cluster is repeated as it was asked."""
        group = self._groups.get(broker_name)
        addresses = group.addresses() if group is not None else {}
        return BrokerMemberGroup(broker_addrs=addresses, broker_name=broker_name, cluster=cluster)

    def all_topics(self) -> TopicList:
        """The names of all topics."""
        return TopicList(topic_list=list(self._topics))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """The names of the topics that a broker of this cluster serves."""
        names = self._clusters.get(cluster, set())
        return TopicList(topic_list=[topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)])

    def system_topics(self) -> TopicList:
        """Names of clusters and broker groups, which are topics too, and the address of some broker."""
        names = [name for cluster in sorted(self._clusters) for name in (cluster, *sorted(self._clusters[cluster]))]
        group = self._groups[min(self._groups)] if self._groups else None
        return TopicList(
            topic_list=list(dict.fromkeys(names)),
            broker_addr=group.members[min(group.members)].address if group is not None else None,
        )

    def unit_topics(self) -> TopicList:
        """Topics with the unit flag."""
        return self._flagged(lambda flags: flags & UNIT_FLAG != 0)

    def unit_subscription_topics(self) -> TopicList:
        """Topics with the unit-subscription flag."""
        return self._flagged(lambda flags: flags & UNIT_SUBSCRIPTION_FLAG != 0)

    def unit_subscription_topics_without_unit(self) -> TopicList:
        """Topics with the unit-subscription flag and without the unit flag."""
        return self._flagged(lambda flags: flags & (UNIT_FLAG | UNIT_SUBSCRIPTION_FLAG) == UNIT_SUBSCRIPTION_FLAG)

    def _flagged(self, wanted: Callable[[int], bool]) -> TopicList:
        # Brokers agree on these flags, so any of them speaks for the topic.
        return TopicList(
            topic_list=[
                topic for topic, queues in self._topics.items() if wanted(next(iter(queues.values())).topic_sys_flag)
            ]
        )

    # Changes of membership

    def _attach(self, registration: Registration, known: _Member | None, now_ms: int) -> _Member:
        """Give the registration its place, and take it from whoever had the address or the id."""
        name, broker_id = registration.broker_name, registration.broker_id
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group(name, registration.cluster)
        if group.acting_master != bool(registration.acting_master) or group.zone != registration.zone:
            group.acting_master = bool(registration.acting_master)
            group.zone = registration.zone
            self.version += 1

        member = _Member(
            cluster=registration.cluster,
            address=registration.address,
            broker_name=name,
            broker_id=broker_id,
            ha_address=registration.ha_address,
            channel=registration.channel,
            data_version=registration.topics.data_version,
            last_update_ms=now_ms,
            timeout_ms=BROKER_TIMEOUT_MS if registration.timeout_ms is None else registration.timeout_ms,
            filter_servers=list(known.filter_servers) if known is not None else [],
        )
        if registration.filter_servers is not None:
            member.filter_servers = list(registration.filter_servers)

        holder = group.members.get(broker_id)
        displaced = [other for other in group.members.values() if other is holder or other.address == member.address]
        if known is not None and known not in displaced:
            displaced.append(known)
        group.members[broker_id] = member
        for other in displaced:
            self._forget(other)
            if other is not holder:
                self._leave_group(other)
        self._live[member.key] = member
        self._channels.setdefault(member.channel, set()).add(member.key)
        self._settle_clusters(group)
        if holder is None or holder.address != member.address or holder.filter_servers != member.filter_servers:
            self.version += 1
        return member

    def _detach(self, member: _Member) -> None:
        self._forget(member)
        self._leave_group(member)

    def _forget(self, member: _Member) -> None:
        """Take the member out of the live table and off its connection."""
        del self._live[member.key]
        keys = self._channels[member.channel]
        keys.discard(member.key)
        if not keys:
            del self._channels[member.channel]

    def _leave_group(self, member: _Member) -> None:
        group = self._groups[member.broker_name]
        del group.members[member.broker_id]
        self.version += 1
        if not group.members:
            del self._groups[group.name]
            for topic in [topic for topic, queues in self._topics.items() if group.name in queues]:
                self._drop_queue(topic, group.name)
        elif group.acting_master and min(group.members) > MASTER_ID:
            self._set_permission(group.name, lambda perm: perm & ~PERM_WRITE)
        self._settle_clusters(group)

    def _settle_clusters(self, group: _Group) -> None:
        """List the group under the clusters of its members, and only there."""
        wanted = {member.cluster for member in group.members.values()}
        for cluster in [name for name, groups in self._clusters.items() if group.name in groups]:
            if cluster not in wanted:
                self._clusters[cluster].discard(group.name)
                if not self._clusters[cluster]:
                    del self._clusters[cluster]
        for cluster in wanted:
            self._clusters.setdefault(cluster, set()).add(group.name)
        if wanted and group.cluster not in wanted:
            group.cluster = group.members[min(group.members)].cluster
            self.version += 1

    def _remove(self, leaving: Iterable[_Member]) -> Departures:
        departures = Departures()
        offline: dict[str, str] = {}
        for member in leaving:
            if self._live.get(member.key) is not member:
                continue
            if member.broker_id == min(self._groups[member.broker_name].members):
                offline[member.broker_name] = member.address
            self._detach(member)
            departures.removed.append(member.key)
        for broker_name, address in offline.items():
            group = self._groups.get(broker_name)
            if group is not None and group.acting_master:
                departures.min_broker_changes.append(
                    self._min_broker_change(group, offline_address=address, ha_address=None)
                )
        return departures

    def _min_broker_change(
        self, group: _Group, *, offline_address: str | None, ha_address: str | None
    ) -> MinBrokerChange:
        addresses = group.addresses()
        smallest = min(addresses)
        # Who goes is told to all that remain; who comes and is now the smallest needs not be told itself.
        told = addresses if offline_address is not None or len(addresses) == 1 else addresses.keys() - {smallest}
        return MinBrokerChange(
            broker_name=group.name,
            min_broker_id=smallest,
            min_broker_address=addresses[smallest],
            offline_address=offline_address,
            ha_address=ha_address,
            recipients=tuple(addresses[broker_id] for broker_id in sorted(told)),
        )

    # Changes of topics

    def _announce_topics(
        self, registration: Registration, group: _Group, *, all_topics: bool, drop_missing: bool
    ) -> None:
        is_master = registration.broker_id == MASTER_ID
        is_prime_slave = (
            not is_master and registration.acting_master is not None and registration.broker_id == min(group.members)
        )
        if not is_master and not is_prime_slave:
            return
        table = registration.topics
        topics = {topic.topic_name or name: topic for name, topic in table.topic_config_table.items()}
        if drop_missing and not table.topic_queue_mapping_info_map:
            for topic in [t for t, queues in self._topics.items() if group.name in queues and t not in topics]:
                self._drop_queue(topic, group.name)
        read_only = is_prime_slave and group.acting_master
        for topic, config in topics.items():
            if all_topics or group.name not in self._topics.get(topic, ()):
                self._put_queue(topic, _queue_data(group.name, config, read_only=read_only))
        for topic, mapping in table.topic_queue_mapping_info_map.items():
            if mapping.bname not in {"", group.name} or group.name not in self._topics.get(topic, ()):
                continue
            known = self._mappings.setdefault(topic, {})
            if known.get(group.name) != mapping and (all_topics or group.name not in known):
                known[group.name] = mapping
                self.version += 1

    def _put_queue(self, topic: str, queue: QueueData) -> None:
        queues = self._topics.setdefault(topic, {})
        if queues.get(queue.broker_name) != queue:
            queues[queue.broker_name] = queue
            self.version += 1

    def _drop_queue(self, topic: str, broker_name: str) -> None:
        for table in (self._topics, self._mappings):
            brokers = table.get(topic)
            if brokers is not None and broker_name in brokers:
                del brokers[broker_name]
                self.version += 1
                if not brokers:
                    del table[topic]

    def _set_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for topic, queues in self._topics.items():
            queue = queues.get(broker_name)
            if queue is not None:
                count += 1
                self._put_queue(topic, msgspec.structs.replace(queue, perm=change(queue.perm)))
        return count

    # Limits

    def _check(self, registration: Registration) -> None:
        for what, name in (
            ("cluster", registration.cluster),
            ("broker", registration.broker_name),
            ("broker address", registration.address),
        ):
            self._check_name(what, name)
        for what, text in (("HA address", registration.ha_address), ("zone", registration.zone or "")):
            self._check_length(what, text)
        servers = registration.filter_servers or ()
        if len(servers) > self._limits.filter_servers_per_broker_max:
            raise RouteError(
                f"broker {registration.broker_name} registers {len(servers)} filter servers; the limit is "
                f"filterServersPerBrokerMax={self._limits.filter_servers_per_broker_max}"
            )
        for server in servers:
            self._check_length("filter server", server)
        topics = registration.topics.topic_config_table
        if len(topics) > self._limits.topics_per_registration_max:
            raise RouteError(
                f"broker {registration.broker_name} registers {len(topics)} topics; the limit is "
                f"topicsPerRegistrationMax={self._limits.topics_per_registration_max}"
            )
        for name, topic in topics.items():
            self._check_name("topic", topic.topic_name or name)

    def _check_room(self, registration: Registration, *, is_new: bool) -> None:
        limits = self._limits
        if is_new and len(self._live) >= limits.brokers_max:
            raise RouteError(f"no room for broker {registration.address}: brokersMax={limits.brokers_max} is reached")
        topics = registration.topics.topic_config_table
        if len(self._topics) + len(topics) > limits.topics_max:
            new = sum((topic.topic_name or name) not in self._topics for name, topic in topics.items())
            if new and len(self._topics) + new > limits.topics_max:
                raise RouteError(
                    f"no room for {new} new topics of broker {registration.broker_name} beside the "
                    f"{len(self._topics)} that are known: the limit is topicsMax={limits.topics_max}"
                )

    def _check_name(self, what: str, name: str) -> None:
        if not name:
            raise RouteError(f"a {what} without a name cannot be registered")
        self._check_length(what, name)

    def _check_length(self, what: str, name: str) -> None:
        if len(name) > self._limits.name_length_max:
            raise RouteError(
                f"{what} {name[:60]!r}... has {len(name)} characters; the limit is "
                f"nameLengthMax={self._limits.name_length_max}"
            )


def filter_by_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """The route without the brokers of other zones; a group without master is kept whatever its zone."""
    kept: list[BrokerData] = []
    dropped_names: set[str] = set()
    dropped_addresses: set[str] = set()
    for broker in route.broker_datas:
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower():
            kept.append(broker)
        else:
            dropped_names.add(broker.broker_name)
            dropped_addresses.update(broker.broker_addrs.values())
    return TopicRouteData(
        broker_datas=kept,
        filter_server_table={
            address: servers
            for address, servers in route.filter_server_table.items()
            if address not in dropped_addresses
        },
        order_topic_conf=route.order_topic_conf,
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name not in dropped_names],
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    )


def _queue_data(broker_name: str, topic: TopicConfig, *, read_only: bool) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        perm=topic.perm & ~PERM_WRITE if read_only else topic.perm,
        read_queue_nums=topic.read_queue_nums,
        topic_sys_flag=topic.topic_sys_flag,
        write_queue_nums=topic.write_queue_nums,
    )


def _show_acting_master(broker: BrokerData, queue: QueueData) -> None:
    addresses = broker.broker_addrs
    if MASTER_ID in addresses or not broker.enable_acting_master or queue.perm & PERM_WRITE:
        return
    acting = addresses.pop(min(addresses))
    broker.broker_addrs = {MASTER_ID: acting, **addresses}
