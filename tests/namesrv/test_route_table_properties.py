"""Whatever happens in whatever order, the invariants of the route table hold.

The machine drives a real table and looks inside it after every step. Names are few, so that brokers
collide: the same address under two names, the same id at two addresses, one connection for several
brokers.
"""

from __future__ import annotations

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fusee.namesrv.route_table import Outcome, RouteTable, UnknownBrokerError
from fusee.wire.bodies.route import QueueData, TopicRouteData, encode_route
from fusee.wire.bodies.topic import TopicQueueMappingInfo
from tests.namesrv.brokers import broker, topics

CLUSTERS = st.sampled_from(["c1", "c2"])
NAMES = st.sampled_from(["a", "b"])
ADDRESSES = st.sampled_from(["x:1", "y:1", "z:1", "w:1"])
CHANNELS = st.sampled_from([1, 2, 3])
TOPIC_NAMES = ["t1", "t2", "t3", "rmq_sys_SYNC_BROKER_MEMBER_a"]
TOPIC_SETS = st.lists(st.sampled_from(TOPIC_NAMES), unique=True)


class RouteTableMachine(RuleBasedStateMachine):
    """Random life of a name server."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_ms = 0
        self.version = 0
        self.answers: dict[tuple[str, bool], TopicRouteData | None] = {}

    # What can happen

    @rule(
        name=NAMES,
        broker_id=st.integers(0, 2),
        address=ADDRESSES,
        cluster=CLUSTERS,
        channel=CHANNELS,
        names=TOPIC_SETS,
        counter=st.integers(0, 2),
        state_version=st.integers(0, 1),
        perm=st.sampled_from([2, 4, 6, 7]),
        queues=st.sampled_from([1, 4]),
        acting_master=st.sampled_from([None, False, True]),
        zone=st.sampled_from([None, "near"]),
        filter_servers=st.sampled_from([None, [], ["f:1"]]),
        timeout_ms=st.sampled_from([None, 10]),
        drop_missing=st.booleans(),
        static=st.booleans(),
    )
    def register(
        self,
        name: str,
        broker_id: int,
        address: str,
        cluster: str,
        channel: int,
        names: list[str],
        counter: int,
        state_version: int,
        perm: int,
        queues: int,
        acting_master: bool | None,
        zone: str | None,
        filter_servers: list[str] | None,
        timeout_ms: int | None,
        drop_missing: bool,
        static: bool,
    ) -> None:
        mappings = {topic: TopicQueueMappingInfo(bname=name, topic=topic, epoch=counter) for topic in names[:1]}
        registration = broker(
            name,
            broker_id,
            address=address,
            cluster=cluster,
            channel=channel,
            table=topics(
                names,
                counter=counter,
                state_version=state_version,
                perm=perm,
                queues=queues,
                mappings=mappings if static else None,
            ),
            acting_master=acting_master,
            zone=zone,
            filter_servers=filter_servers,
            timeout_ms=timeout_ms,
        )
        before = copy.deepcopy(self.table)
        known = self.table.member_group(cluster, name).broker_addrs
        result = self.table.register(registration, self.now_ms, drop_missing_topics=drop_missing)
        after = self.table.member_group(cluster, name).broker_addrs
        if result.outcome is Outcome.ACCEPTED:
            assert after[broker_id] == address
            assert self.table.data_version(cluster, address) == registration.topics.data_version
            assert list(after.values()).count(address) == 1
        elif result.outcome is Outcome.REFUSED:
            assert broker_id not in known
            assert len(names) == 1
            assert self.table.cluster_info() == before.cluster_info()
            assert self.table.version == before.version
        else:
            assert known[broker_id] != address
            assert after[broker_id] == known[broker_id]
            assert self.table.data_version(cluster, address) is None

    @rule(cluster=CLUSTERS, address=ADDRESSES, name=NAMES)
    def unregister(self, cluster: str, address: str, name: str) -> None:
        gone = self.table.unregister([(cluster, address, name)])
        assert len(gone.removed) <= 1

    @rule(channel=CHANNELS)
    def lose_channel(self, channel: int) -> None:
        self.table.channel_lost(channel)
        assert channel not in self.table._channels

    @rule(passed_ms=st.sampled_from([1, 11, 130_000]))
    def pass_time_and_expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        gone = self.table.expire(self.now_ms)
        assert bool(gone.removed) == bool(gone.to_close)
        for member in self.table._live.values():
            assert member.last_update_ms + member.timeout_ms >= self.now_ms

    @rule(cluster=CLUSTERS, address=ADDRESSES)
    def touch(self, cluster: str, address: str) -> None:
        alive = self.table.data_version(cluster, address) is not None
        assert self.table.touch(cluster, address, self.now_ms) == alive

    @rule(name=NAMES)
    def wipe_write_permission(self, name: str) -> None:
        count = self.table.wipe_write_permission(name)
        assert count == sum(name in queues for queues in self.table._topics.values())

    @rule(name=NAMES)
    def add_write_permission(self, name: str) -> None:
        self.table.add_write_permission(name)
        assert all(queues[name].perm == 6 for queues in self.table._topics.values() if name in queues)

    @rule(topic=st.sampled_from(TOPIC_NAMES), cluster=st.sampled_from([None, "c1", "c2"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)
        assert cluster is not None or self.table.route(topic) is None

    @rule(topic=st.sampled_from(TOPIC_NAMES), names=st.lists(NAMES, unique=True, min_size=1))
    def register_topic(self, topic: str, names: list[str]) -> None:
        queues = [QueueData(broker_name=name, perm=6, read_queue_nums=2, write_queue_nums=2) for name in names]
        try:
            self.table.register_topic(topic, queues)
        except UnknownBrokerError:
            assert any(name not in self.table._groups for name in names)

    @precondition(lambda self: self.table._groups)
    @rule(data=st.data())
    def lose_every_member_of_a_group(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.table._groups)))
        members = list(self.table._groups[name].members.values())
        self.table.unregister([(*member.key, name) for member in members])
        assert name not in self.table._groups

    # What must hold

    @invariant()
    def members_are_where_they_belong(self) -> None:
        table = self.table
        members = [member for group in table._groups.values() for member in group.members.values()]
        assert {id(member) for member in members} == {id(member) for member in table._live.values()}
        assert len(members) == len(table._live)
        for name, group in table._groups.items():
            assert group.members
            assert group.cluster in {member.cluster for member in group.members.values()}
            addresses = [member.address for member in group.members.values()]
            assert len(addresses) == len(set(addresses))
            for broker_id, member in group.members.items():
                assert (member.broker_name, member.broker_id) == (name, broker_id)
                assert table._live[member.cluster, member.address] is member
                assert member.key in table._channels[member.channel]
        assert sum(map(len, table._channels.values())) == len(table._live)
        assert all(table._channels.values())

    @invariant()
    def clusters_are_those_of_the_members(self) -> None:
        expected: dict[str, set[str]] = {}
        for member in self.table._live.values():
            expected.setdefault(member.cluster, set()).add(member.broker_name)
        assert self.table._clusters == expected

    @invariant()
    def topics_belong_to_groups(self) -> None:
        for topic, queues in self.table._topics.items():
            assert queues
            for name, queue in queues.items():
                assert queue.broker_name == name
                assert name in self.table._groups
            assert set(self.table._mappings.get(topic, ())) <= set(queues)
        assert all(self.table._mappings.values())
        assert set(self.table._mappings) <= set(self.table._topics)

    @invariant()
    def route_agrees_with_groups(self) -> None:
        for topic in self.table._topics:
            route = self.table.route(topic, acting_master=True)
            assert route is not None
            for data, queue in zip(route.broker_datas, route.queue_datas, strict=True):
                assert data.broker_name == queue.broker_name
                assert set(data.broker_addrs.values()) == set(
                    self.table.member_group(data.cluster, data.broker_name).broker_addrs.values()
                )

    @invariant()
    def version_grows_when_an_answer_changes(self) -> None:
        answers = {
            (topic, acting_master): self.table.route(topic, acting_master=acting_master)
            for topic in TOPIC_NAMES
            for acting_master in (False, True)
        }
        assert self.table.version >= self.version
        if answers != self.answers:
            assert self.table.version > self.version or not self.answers
        for route in answers.values():
            if route is not None:
                encode_route(route, standard_json=True)
        self.answers = answers
        self.version = self.table.version


RouteTableMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRouteTable = RouteTableMachine.TestCase
