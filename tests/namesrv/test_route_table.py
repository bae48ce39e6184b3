"""The rules of registration, departure, topics and answers, one by one."""

from __future__ import annotations

import pytest

from fusee.namesrv.config import RouteLimits
from fusee.namesrv.route_table import (
    BROKER_TIMEOUT_MS,
    MinBrokerChange,
    Outcome,
    RouteError,
    RouteTable,
    UnknownBrokerError,
    filter_by_zone,
)
from fusee.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from fusee.wire.bodies.topic import DataVersion, TopicQueueMappingInfo
from tests.namesrv.brokers import CLUSTER, broker, topics


def route_of(table: RouteTable, topic: str = "t1", *, acting_master: bool = False) -> TopicRouteData:
    route = table.route(topic, acting_master=acting_master)
    assert route is not None
    return route


def addresses_of(table: RouteTable, name: str = "a") -> dict[int, str]:
    return table.member_group(CLUSTER, name).broker_addrs


def perm_of(table: RouteTable, topic: str = "t1", name: str = "a") -> int:
    return next(queue.perm for queue in route_of(table, topic).queue_datas if queue.broker_name == name)


# Registration


def test_register_makes_route() -> None:
    table = RouteTable()
    result = table.register(broker(), 0)
    assert result.outcome is Outcome.ACCEPTED
    assert (result.master_address, result.master_ha_address) == (None, None)
    assert route_of(table) == TopicRouteData(
        broker_datas=[BrokerData(broker_addrs={0: "a:0"}, broker_name="a", cluster=CLUSTER)],
        queue_datas=[QueueData(broker_name="a", perm=6, read_queue_nums=4, topic_sys_flag=0, write_queue_nums=4)],
    )
    assert table.route("unknown") is None


def test_register_when_unchanged_keeps_version() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    version = table.version
    table.register(broker(), 1_000)
    assert table.version == version


def test_register_slave_is_told_its_master() -> None:
    table = RouteTable()
    assert table.register(broker("a", 1), 0).master_address is None
    table.register(broker("a", 0), 0)
    result = table.register(broker("a", 1), 0)
    assert (result.master_address, result.master_ha_address) == ("a:0", "ha-a:0")


def test_register_when_id_is_new_and_one_topic_is_refused_without_trace() -> None:
    table = RouteTable()
    assert table.register(broker(table=topics(["t1"])), 0).outcome is Outcome.REFUSED
    assert table.cluster_info() == ClusterInfo()
    assert table.version == 0
    table.register(broker("a", 0), 0)
    assert table.register(broker("a", 1, table=topics(["t1"])), 0).outcome is Outcome.REFUSED
    assert addresses_of(table) == {0: "a:0"}


def test_register_without_topics_is_accepted() -> None:
    table = RouteTable()
    assert table.register(broker(table=topics([])), 0).outcome is Outcome.ACCEPTED
    assert addresses_of(table) == {0: "a:0"}


def test_register_one_topic_of_known_broker_is_added() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    assert table.register(broker(table=topics(["t3"], counter=1)), 0).outcome is Outcome.ACCEPTED
    assert table.all_topics().topic_list == ["t1", "t2", "t3"]


def test_register_when_version_is_same_changes_no_known_topic() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    table.register(broker(table=topics(["t1", "t3"], queues=8)), 0)
    assert route_of(table, "t1").queue_datas[0].read_queue_nums == 4
    assert route_of(table, "t3").queue_datas[0].read_queue_nums == 8


def test_register_when_version_differs_changes_topics() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    version = table.version
    table.register(broker(table=topics(queues=8, counter=1)), 0)
    assert route_of(table).queue_datas[0].write_queue_nums == 8
    assert table.version > version


def test_register_missing_topics_are_dropped_only_on_wish() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    table.register(broker(table=topics(["t1", "t3"], counter=1)), 0)
    assert table.route("t2") is not None
    table.register(broker(table=topics(["t1", "t3"], counter=2)), 0, drop_missing_topics=True)
    assert table.route("t2") is None
    static = {"t4": TopicQueueMappingInfo(bname="a", topic="t4")}
    table.register(broker(table=topics(["t4", "t5"], mappings=static)), 0, drop_missing_topics=True)
    assert table.route("t1") is not None, "static topics are announced apart, so nothing may be concluded"


def test_register_same_address_under_other_id_moves_it() -> None:
    table = RouteTable()
    table.register(broker("a", 0), 0)
    table.register(broker("a", 1, address="x"), 0)
    table.unregister([(CLUSTER, "a:0", "a")])
    table.register(broker("a", 0, address="x"), 0)
    assert addresses_of(table) == {0: "x"}


def test_register_same_address_under_other_name_leaves_the_old_group() -> None:
    table = RouteTable()
    table.register(broker("a", 0, address="x"), 0)
    table.register(broker("b", 0, address="x", table=topics(["t3", "t4"])), 0)
    assert table.cluster_info().cluster_addr_table == {CLUSTER: ["b"]}
    assert table.route("t1") is None
    assert addresses_of(table, "b") == {0: "x"}


def test_register_id_of_other_address_takes_it_over() -> None:
    table = RouteTable()
    table.register(broker(address="old"), 0)
    result = table.register(broker(address="new", table=topics(["t1"])), 0)
    assert result.outcome is Outcome.ACCEPTED
    assert addresses_of(table) == {0: "new"}
    assert table.data_version(CLUSTER, "old") is None
    assert table.expire(BROKER_TIMEOUT_MS + 1).removed == [(CLUSTER, "new")]


def test_register_id_of_other_address_when_state_is_older_is_ignored() -> None:
    table = RouteTable()
    table.register(broker("a", 0, address="old", table=topics(state_version=2)), 0)
    table.register(broker("a", 1, address="new"), 0)
    result = table.register(broker("a", 0, address="new", table=topics(state_version=1)), 0)
    assert result.outcome is Outcome.IGNORED
    assert addresses_of(table) == {0: "old"}
    assert table.data_version(CLUSTER, "new") is None


def test_register_same_name_in_two_clusters_is_listed_in_both_until_it_leaves() -> None:
    table = RouteTable()
    table.register(broker("a", 0, cluster="c1"), 0)
    table.register(broker("a", 1, cluster="c2"), 0)
    assert table.cluster_info().cluster_addr_table == {"c1": ["a"], "c2": ["a"]}
    table.unregister([("c1", "a:0", "a")])
    assert table.cluster_info().cluster_addr_table == {"c2": ["a"]}
    assert table.cluster_info().broker_addr_table["a"].cluster == "c2"


def test_register_same_address_in_other_cluster_moves_it() -> None:
    table = RouteTable()
    table.register(broker("a", 1, address="x", cluster="c1"), 0)
    table.register(broker("a", 0, address="x", cluster="c2"), 0)
    assert addresses_of(table) == {0: "x"}
    assert table.cluster_info().cluster_addr_table == {"c2": ["a"]}
    assert table.data_version("c1", "x") is None


def test_register_slave_changes_no_topic_while_master_lives() -> None:
    table = RouteTable()
    table.register(broker("a", 0), 0)
    table.register(broker("a", 1, table=topics(queues=9, counter=5)), 0)
    assert route_of(table).queue_datas[0].read_queue_nums == 4


def test_register_old_slave_without_master_changes_no_topic() -> None:
    table = RouteTable()
    table.register(broker("a", 1, acting_master=None), 0)
    assert table.route("t1") is None


def test_register_prime_slave_announces_topics() -> None:
    table = RouteTable()
    table.register(broker("a", 1), 0)
    table.register(broker("a", 2, table=topics(["t3", "t4"])), 0)
    assert perm_of(table) == 6
    assert table.route("t3") is None


def test_register_prime_slave_with_acting_master_announces_read_only() -> None:
    table = RouteTable()
    table.register(broker("a", 1, acting_master=True), 0)
    assert perm_of(table) == 4
    table.register(broker("a", 0, acting_master=True), 0)
    assert perm_of(table) == 6


def test_register_zone_and_filter_servers_show_in_route() -> None:
    table = RouteTable()
    table.register(broker(zone="z", filter_servers=["f:1"]), 0)
    route = route_of(table)
    assert route.broker_datas[0].zone_name == "z"
    assert route.filter_server_table == {"a:0": ["f:1"]}
    version = table.version
    table.register(broker(zone="z", filter_servers=None), 0)
    assert route_of(table).filter_server_table == {"a:0": ["f:1"]}
    assert table.version == version
    table.register(broker(zone="z", filter_servers=[]), 0)
    assert route_of(table).filter_server_table == {}
    assert table.version > version


def test_register_static_topic_mapping_shows_in_route_until_the_broker_leaves() -> None:
    table = RouteTable()
    mapping = TopicQueueMappingInfo(bname="a", topic="t1", total_queues=2, curr_id_map={0: 0})
    foreign = TopicQueueMappingInfo(bname="b", topic="t2")
    table.register(broker(table=topics(mappings={"t1": mapping, "t2": foreign})), 0)
    assert route_of(table, "t1").topic_queue_mapping_by_broker == {"a": mapping}
    assert route_of(table, "t2").topic_queue_mapping_by_broker is None
    table.channel_lost("a:0")
    table.register(broker(), 0)
    assert route_of(table, "t1").topic_queue_mapping_by_broker is None


def test_register_when_smallest_id_changes_tells_the_others() -> None:
    table = RouteTable()
    assert table.register(broker("a", 2), 0).min_broker_change is None
    assert table.register(broker("a", 3), 0).min_broker_change is None
    assert table.register(broker("a", 1), 0).min_broker_change == MinBrokerChange(
        broker_name="a",
        min_broker_id=1,
        min_broker_address="a:1",
        offline_address=None,
        ha_address="ha-a:1",
        recipients=("a:2", "a:3"),
    )


@pytest.mark.parametrize(
    ("limits", "registration", "words"),
    [
        (RouteLimits(name_length_max=3), broker("long-name"), "nameLengthMax=3"),
        (RouteLimits(name_length_max=3), broker(address="1.1.1.1:1"), "nameLengthMax=3"),
        (RouteLimits(name_length_max=4), broker(zone="far away"), "nameLengthMax=4"),
        (RouteLimits(name_length_max=6), broker(table=topics(["topic-7", "t"])), "topic 'topic-7'"),
        (RouteLimits(topics_per_registration_max=1), broker(), "topicsPerRegistrationMax=1"),
        (RouteLimits(topics_max=1), broker(), "topicsMax=1"),
        (RouteLimits(filter_servers_per_broker_max=1), broker(filter_servers=["f", "g"]), "filter servers"),
        (RouteLimits(), broker(""), "a broker without a name"),
        (RouteLimits(), broker(cluster=""), "a cluster without a name"),
    ],
)
def test_register_over_limit_is_an_error_and_no_change(limits: RouteLimits, registration: object, words: str) -> None:
    table = RouteTable(limits=limits)
    with pytest.raises(RouteError, match=words):
        table.register(registration, 0)  # type: ignore[arg-type]
    assert table.cluster_info() == ClusterInfo()
    assert table.version == 0


def test_register_when_table_is_full_known_brokers_and_topics_are_still_served() -> None:
    table = RouteTable(limits=RouteLimits(brokers_max=1, topics_max=2))
    table.register(broker(), 0)
    table.register(broker(table=topics(counter=1, queues=8)), 0)
    table.register(broker(address="other"), 0)
    with pytest.raises(RouteError, match="brokersMax=1"):
        table.register(broker("b"), 0)
    with pytest.raises(RouteError, match="no room for 1 new topics"):
        table.register(broker(address="other", table=topics(["t1", "t3"], counter=2)), 0)


# Departure


def test_unregister_last_member_removes_group_cluster_and_topics() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    assert table.unregister([(CLUSTER, "a:0", "a")]).removed == [(CLUSTER, "a:0")]
    assert table.cluster_info() == ClusterInfo()
    assert table.all_topics().topic_list == []
    assert table.system_topics().broker_addr is None


@pytest.mark.parametrize("who", [("other", "a:0", "a"), (CLUSTER, "x", "a"), (CLUSTER, "a:0", "b")])
def test_unregister_when_unknown_changes_nothing(who: tuple[str, str, str]) -> None:
    table = RouteTable()
    table.register(broker(), 0)
    assert table.unregister([who]).removed == []
    assert addresses_of(table) == {0: "a:0"}


def test_unregister_many_at_once() -> None:
    table = RouteTable()
    for broker_id in range(3):
        table.register(broker("a", broker_id, acting_master=True), 0)
    gone = table.unregister([(CLUSTER, "a:0", "a"), (CLUSTER, "a:1", "a"), (CLUSTER, "a:1", "a")])
    assert gone.removed == [(CLUSTER, "a:0"), (CLUSTER, "a:1")]
    assert gone.min_broker_changes == [
        MinBrokerChange(
            broker_name="a",
            min_broker_id=2,
            min_broker_address="a:2",
            offline_address="a:1",
            ha_address=None,
            recipients=("a:2",),
        )
    ]


def test_master_lost_with_acting_master_makes_topics_read_only_until_one_returns() -> None:
    table = RouteTable()
    table.register(broker("a", 0, acting_master=True), 0)
    table.register(broker("a", 1, acting_master=True), 0)
    table.channel_lost("a:0")
    assert perm_of(table) == 4
    table.register(broker("a", 0, acting_master=True), 0)
    assert perm_of(table) == 6


def test_master_lost_without_acting_master_keeps_route_and_permission() -> None:
    table = RouteTable()
    table.register(broker("a", 0), 0)
    table.register(broker("a", 1), 0)
    gone = table.channel_lost("a:0")
    assert gone.min_broker_changes == []
    assert perm_of(table) == 6
    assert route_of(table).broker_datas[0].broker_addrs == {1: "a:1"}


def test_slave_lost_keeps_permission() -> None:
    table = RouteTable()
    table.register(broker("a", 0, acting_master=True), 0)
    table.register(broker("a", 1, acting_master=True), 0)
    assert table.channel_lost("a:1").min_broker_changes == []
    assert perm_of(table) == 6


def test_channel_lost_removes_every_broker_on_it_and_no_other() -> None:
    table = RouteTable()
    table.register(broker("a", channel=1), 0)
    table.register(broker("b", channel=1), 0)
    table.register(broker("d", channel=2), 0)
    assert table.channel_lost(1).removed == [(CLUSTER, "a:0"), (CLUSTER, "b:0")]
    assert table.channel_lost(1).removed == []
    assert table.cluster_info().cluster_addr_table == {CLUSTER: ["d"]}


def test_channel_lost_when_broker_came_again_over_another_keeps_it() -> None:
    table = RouteTable()
    table.register(broker(channel=1), 0)
    table.register(broker(channel=2), 0)
    assert table.channel_lost(1).removed == []
    assert table.channel_lost(2).removed == [(CLUSTER, "a:0")]


def test_expire_goes_by_each_brokers_own_timeout() -> None:
    table = RouteTable()
    table.register(broker("a", channel="slow"), 0)
    table.register(broker("b", channel="quick", timeout_ms=10_000), 0)
    assert table.expire(10_000).removed == []
    gone = table.expire(10_001)
    assert gone.removed == [(CLUSTER, "b:0")]
    assert gone.to_close == ["quick"]
    assert table.expire(BROKER_TIMEOUT_MS).removed == []
    assert table.expire(BROKER_TIMEOUT_MS + 1).to_close == ["slow"]


def test_touch_and_registration_are_signs_of_life() -> None:
    table = RouteTable()
    table.register(broker(timeout_ms=10), 0)
    assert table.touch(CLUSTER, "a:0", 10)
    assert table.expire(20).removed == []
    table.register(broker(timeout_ms=10), 20)
    assert table.expire(30).removed == []
    assert table.expire(31).removed == [(CLUSTER, "a:0")]
    assert not table.touch(CLUSTER, "a:0", 31)


def test_data_version_is_the_registered_one() -> None:
    table = RouteTable()
    assert table.data_version(CLUSTER, "a:0") is None
    table.register(broker(table=topics(counter=3)), 0)
    assert table.data_version(CLUSTER, "a:0") == DataVersion(counter=3, timestamp=1)


# Topics


def test_write_permission_is_wiped_and_added_with_counts() -> None:
    table = RouteTable()
    table.register(broker("a", table=topics(perm=7)), 0)
    table.register(broker("b"), 0)
    assert table.wipe_write_permission("a") == 2
    assert (perm_of(table, name="a"), perm_of(table, name="b")) == (5, 6)
    version = table.version
    assert table.wipe_write_permission("a") == 2
    assert table.version == version
    assert table.add_write_permission("a") == 2
    assert perm_of(table, name="a") == 6, "as Java: read and write, nothing else"
    assert table.wipe_write_permission("unknown") == 0
    assert table.add_write_permission("unknown") == 0


def test_delete_topic_everywhere_and_by_cluster() -> None:
    table = RouteTable()
    table.register(broker("a", cluster="c1"), 0)
    table.register(broker("b", cluster="c2"), 0)
    table.delete_topic("t1", "no-such-cluster")
    assert len(route_of(table).queue_datas) == 2
    table.delete_topic("t1", "c1")
    assert [queue.broker_name for queue in route_of(table).queue_datas] == ["b"]
    table.delete_topic("t1", "c2")
    assert table.route("t1") is None
    table.delete_topic("t2")
    assert table.all_topics().topic_list == []
    table.delete_topic("t2")


def test_delete_topic_that_the_broker_still_has_comes_back_with_its_mapping() -> None:
    table = RouteTable()
    mapping = TopicQueueMappingInfo(bname="a", topic="t1")
    table.register(broker(table=topics(mappings={"t1": mapping})), 0)
    table.delete_topic("t1")
    table.register(broker(table=topics(mappings={"t1": mapping})), 0)
    assert route_of(table, "t1").topic_queue_mapping_by_broker == {"a": mapping}


def test_register_topic_adds_and_replaces_on_known_brokers() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    queue = QueueData(broker_name="a", perm=6, read_queue_nums=1, write_queue_nums=1)
    table.register_topic("new", [queue])
    table.register_topic("t1", [queue])
    assert route_of(table, "new").queue_datas == [queue]
    assert route_of(table, "t1").queue_datas == [queue]
    version = table.version
    with pytest.raises(UnknownBrokerError, match="broker 'b', which is not registered"):
        table.register_topic("t1", [QueueData(broker_name="a"), QueueData(broker_name="b")])
    table.register_topic("nothing", [])
    assert table.route("nothing") is None
    assert table.version == version


def test_register_topic_when_table_is_full_is_an_error() -> None:
    table = RouteTable(limits=RouteLimits(topics_max=2))
    table.register(broker(), 0)
    with pytest.raises(RouteError, match="topicsMax=2"):
        table.register_topic("t3", [QueueData(broker_name="a")])
    table.register_topic("t1", [QueueData(broker_name="a")])


# Answers


def test_route_shows_acting_master_only_when_asked_and_allowed() -> None:
    table = RouteTable()
    member_topic = "rmq_sys_SYNC_BROKER_MEMBER_a"
    for broker_id in (1, 2):
        registration = broker("a", broker_id, acting_master=True, table=topics(["t1", member_topic]))
        table.register(registration, 0)
    table.register(broker("b", 1, acting_master=False), 0)
    assert [data.broker_addrs for data in route_of(table).broker_datas] == [{1: "a:1", 2: "a:2"}, {1: "b:1"}]
    shown = route_of(table, acting_master=True).broker_datas
    assert [data.broker_addrs for data in shown] == [{0: "a:1", 2: "a:2"}, {1: "b:1"}]
    assert route_of(table, member_topic, acting_master=True).broker_datas[0].broker_addrs[1] == "a:1"
    table.add_write_permission("a")
    assert route_of(table, acting_master=True).broker_datas[0].broker_addrs[1] == "a:1"
    assert addresses_of(table) == {1: "a:1", 2: "a:2"}, "the table itself is not renumbered"


def test_filter_by_zone_keeps_zone_and_groups_without_master() -> None:
    table = RouteTable()
    table.register(broker("a", zone="Near", filter_servers=["f"]), 0)
    table.register(broker("b", zone="far", filter_servers=["g"]), 0)
    table.register(broker("d", 1, zone="far"), 0)
    table.register(broker("e"), 0)
    route = filter_by_zone(route_of(table), "near")
    assert [data.broker_name for data in route.broker_datas] == ["a", "d"]
    assert [data.broker_name for data in route.queue_datas] == ["a", "d"]
    assert route.filter_server_table == {"a:0": ["f"]}


def test_topic_lists() -> None:
    table = RouteTable()
    table.register(broker("a", cluster="c1", table=topics(["unit", "both"], flags=1)), 0)
    table.register_topic("both", [QueueData(broker_name="a", topic_sys_flag=3)])
    table.register_topic("sub", [QueueData(broker_name="a", topic_sys_flag=2)])
    table.register(broker("b", 1, cluster="c2", table=topics(["plain", "other"])), 0)
    assert table.all_topics().topic_list == ["unit", "both", "sub", "plain", "other"]
    assert table.topics_of_cluster("c2").topic_list == ["plain", "other"]
    assert table.topics_of_cluster("unknown").topic_list == []
    assert table.unit_topics().topic_list == ["unit", "both"]
    assert table.unit_subscription_topics().topic_list == ["both", "sub"]
    assert table.unit_subscription_topics_without_unit().topic_list == ["sub"]
    assert table.system_topics().topic_list == ["c1", "a", "c2", "b"]
    assert table.system_topics().broker_addr == "a:0"


def test_member_group_of_unknown_broker_is_empty() -> None:
    group = RouteTable().member_group("any", "a")
    assert (group.cluster, group.broker_name, group.broker_addrs) == ("any", "a", {})
