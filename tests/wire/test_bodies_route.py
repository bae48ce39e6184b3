"""Route bodies: equal to Java's bytes in both dialects, and readable in either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import ProtocolError
from fusee.wire.bodies.route import (
    STANDARD_JSON_VERSION,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicRouteData,
    decode_cluster_info,
    decode_member_group,
    decode_route,
    encode_cluster_info,
    encode_member_group,
    encode_route,
)
from fusee.wire.bodies.topic import TopicQueueMappingInfo
from fusee.wire.codes import RequestCode
from tests.golden import GoldenFrame, frames

if TYPE_CHECKING:
    from collections.abc import Iterator


def answers(code: RequestCode) -> Iterator[GoldenFrame]:
    for frame in frames():
        if frame.role == "response" and frame.request_code == code and frame.code == 0:
            yield frame


def test_route_bodies_of_java_read_and_write_back_to_the_same_bytes() -> None:
    versions = {f.pair: f.header.version for f in frames() if f.role == "request"}
    seen: set[bool] = set()
    for frame in answers(RequestCode.GET_ROUTEINFO_BY_TOPIC):
        standard_json = versions[frame.pair] >= STANDARD_JSON_VERSION
        route = decode_route(frame.body_bytes)
        assert route.broker_datas
        assert route.queue_datas
        assert encode_route(route, standard_json=standard_json) == frame.body_bytes, frame.id
        seen.add(standard_json)
    assert seen == {True, False}


def test_cluster_bodies_of_java_read_and_write_back_to_the_same_bytes() -> None:
    bodies = [frame.body_bytes for frame in answers(RequestCode.GET_BROKER_CLUSTER_INFO)]
    assert len(bodies) > 5
    for body in bodies:
        assert encode_cluster_info(decode_cluster_info(body)) == body


def test_member_group_bodies_of_java_read_and_write_back_to_the_same_bytes() -> None:
    bodies = [frame.body_bytes for frame in answers(RequestCode.GET_BROKER_MEMBER_GROUP)]
    assert len(bodies) == 4
    for body in bodies:
        assert encode_member_group(decode_member_group(body)) == body


FULL_ROUTE = TopicRouteData(
    broker_datas=[
        BrokerData(
            broker_addrs={1: "h:2", 0: "h:1"},
            broker_name="ä",
            cluster="c/d",
            enable_acting_master=True,
            zone_name="z",
        )
    ],
    filter_server_table={"h:2": ["f"], "h:1": []},
    order_topic_conf="ä:4",
    queue_datas=[QueueData(broker_name="ä", perm=6, read_queue_nums=1, topic_sys_flag=2, write_queue_nums=3)],
    topic_queue_mapping_by_broker={"ä": TopicQueueMappingInfo(bname="ä", curr_id_map={0: 1}, topic="t")},
)


def test_encode_route_in_standard_json_sorts_quotes_and_escapes() -> None:
    assert encode_route(FULL_ROUTE, standard_json=True) == (
        rb'{"brokerDatas":[{"brokerAddrs":{"0":"h:1","1":"h:2"},"brokerName":"\u00E4","cluster":"c\/d",'
        rb'"enableActingMaster":true,"zoneName":"z"}],"filterServerTable":{"h:1":[],"h:2":["f"]},'
        rb'"orderTopicConf":"\u00E4:4","queueDatas":[{"brokerName":"\u00E4","perm":6,"readQueueNums":1,'
        rb'"topicSysFlag":2,"writeQueueNums":3}],"topicQueueMappingByBroker":{"\u00E4":{"bname":"\u00E4",'
        rb'"currIdMap":{"0":1},"dirty":false,"epoch":0,"scope":"__global__","topic":"t","totalQueues":0}}}'
    )


def test_encode_route_in_fastjson_keeps_order_and_bare_keys() -> None:
    body = encode_route(FULL_ROUTE, standard_json=False).decode()
    assert '"brokerAddrs":{1:"h:2",0:"h:1"}' in body
    assert '"brokerName":"ä"' in body
    assert '"currIdMap":{0:1}' in body


NAMES = st.text(min_size=1, max_size=8)
ADDRESSES = st.dictionaries(st.integers(0, 9), NAMES, max_size=3)
ROUTES = st.builds(
    TopicRouteData,
    broker_datas=st.lists(
        st.builds(
            BrokerData,
            broker_addrs=ADDRESSES,
            broker_name=NAMES,
            cluster=NAMES,
            enable_acting_master=st.booleans(),
            zone_name=st.none() | NAMES,
        ),
        max_size=3,
    ),
    filter_server_table=st.dictionaries(NAMES, st.lists(NAMES, max_size=2), max_size=2),
    order_topic_conf=st.none() | NAMES,
    queue_datas=st.lists(st.builds(QueueData, broker_name=NAMES, perm=st.integers(0, 7)), max_size=3),
)


@given(ROUTES, st.booleans())
def test_route_reads_back_in_both_dialects(route: TopicRouteData, standard_json: bool) -> None:
    assert decode_route(encode_route(route, standard_json=standard_json)) == route


@given(st.dictionaries(NAMES, st.builds(BrokerData, broker_addrs=ADDRESSES, broker_name=NAMES)))
def test_cluster_info_reads_back(brokers: dict[str, BrokerData]) -> None:
    info = ClusterInfo(broker_addr_table=brokers, cluster_addr_table={"c": list(brokers)})
    assert decode_cluster_info(encode_cluster_info(info)) == info


@given(ADDRESSES)
def test_member_group_reads_back(addresses: dict[int, str]) -> None:
    group = BrokerMemberGroup(broker_addrs=addresses, broker_name="b", cluster="c")
    assert decode_member_group(encode_member_group(group)) == group


def test_decode_route_takes_nulls_and_missing_fields() -> None:
    route = decode_route(b'{"queueDatas":[{"brokerName":"b"}],"brokerDatas":null,"unknown":1}')
    assert route == TopicRouteData(queue_datas=[QueueData(broker_name="b")])


@pytest.mark.parametrize("body", [b"", b"[]", b'{"queueDatas":[1]}', b'{"queueDatas":[{"perm":"much"}]}'])
def test_decode_route_of_something_else_is_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_route(body)
