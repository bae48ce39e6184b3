"""Every request code: headers, bodies, error codes and remarks, and what follows outside the answer."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from fusee.errors import FieldError, ProtocolError
from fusee.namesrv.config import NameServerConfig
from fusee.namesrv.kv_table import KvError
from fusee.namesrv.route_table import RouteError
from fusee.namesrv.saved_file import OsFileSystem
from fusee.wire.bodies.kv import decode_kv_table
from fusee.wire.bodies.route import (
    QueueData,
    TopicRouteData,
    decode_cluster_info,
    decode_member_group,
    decode_route,
    encode_route,
)
from fusee.wire.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfigTable,
    decode_topic_list,
    encode_data_version,
    encode_register_body,
)
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder, encode_frame
from tests.namesrv.brokers import CLUSTER, FakeLink, NameServerDesk, broker, topics

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.namesrv.route_table import RouteTable

NAME_SERVER_CODES = {
    *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224),
    *(304, 311, 312, 313, 318, 319, 322, 327, 901, 904),
}


def announce(
    desk: NameServerDesk,
    *,
    broker_id: int = 0,
    name: str = "a",
    table: TopicConfigTable | None = None,
    link: FakeLink | None = None,
    more: dict[str, str] | None = None,
) -> Command:
    body = encode_register_body(
        RegisterBrokerBody(filter_server_list=[], topic_config_serialize_wrapper=table or topics())
    )
    fields = {
        "brokerName": name,
        "brokerAddr": f"{name}:{broker_id}",
        "clusterName": CLUSTER,
        "haServerAddr": f"ha-{name}:{broker_id}",
        "brokerId": str(broker_id),
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        **(more or {}),
    }
    return desk.ask(RequestCode.REGISTER_BROKER, fields, body=body, link=link)


def route(
    desk: NameServerDesk, topic: str = "t1", *, version: int = 513, fields: dict[str, str] | None = None
) -> Command:
    return desk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **(fields or {})}, version=version)


def test_every_code_of_a_name_server_has_a_handler() -> None:
    assert {int(code) for code in NameServerDesk().handlers.routes()} == NAME_SERVER_CODES


# Routes


def test_route_of_unknown_topic_says_so_and_what_to_do() -> None:
    answer = route(NameServerDesk(), "nope")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert answer.remark.startswith("No topic route info in name server for the topic: nope\n")
    assert "create it" in answer.remark


@pytest.mark.parametrize(
    ("version", "fields", "standard"),
    [
        (400, {}, False),
        (401, {}, True),
        (399, {"acceptStandardJsonOnly": "true"}, True),
        (399, {"acceptStandardJsonOnly": "false"}, False),
        (0, {}, False),
    ],
)
def test_route_dialect_goes_by_version_and_wish(version: int, fields: dict[str, str], standard: bool) -> None:
    desk = NameServerDesk()
    announce(desk)
    answer = route(desk, version=version, fields=fields)
    key = b'{"0":"a:0"}' if standard else b'{0:"a:0"}'
    assert answer.body.startswith(b'{"brokerDatas":[{"brokerAddrs":' + key)
    assert answer.ext_fields is None


def test_route_follows_every_change_in_spite_of_the_cache() -> None:
    desk = NameServerDesk(NameServerConfig(order_message_enable=True))
    announce(desk)
    assert route(desk).body == route(desk).body
    desk.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
    assert decode_route(route(desk).body).queue_datas[0].perm == 4
    desk.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t1", "value": "a:4"})
    assert decode_route(route(desk).body).order_topic_conf == "a:4"
    desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=false")
    assert decode_route(route(desk).body).order_topic_conf is None
    desk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t1"})
    assert route(desk).code == ResponseCode.TOPIC_NOT_EXIST


def test_route_cache_is_bounded_and_unknown_topics_are_not_kept() -> None:
    desk = NameServerDesk(NameServerConfig(route_cache_entries_max=3))
    announce(desk, table=topics([f"t{number}" for number in range(10)]))
    for number in range(10):
        assert route(desk, f"t{number}").code == ResponseCode.SUCCESS
        route(desk, f"unknown-{number}")
        assert len(desk.handlers._answers) <= 3
        assert all(key[0].startswith("t") for key in desk.handlers._answers)


def test_route_is_served_from_the_cache() -> None:
    desk = NameServerDesk()
    announce(desk)
    first = route(desk).body
    (kept,) = desk.handlers._answers.values()
    assert route(desk).body == first == kept.body
    assert next(iter(desk.handlers._answers.values())) is kept


def test_route_by_zone() -> None:
    desk = NameServerDesk()
    announce(desk, name="a", more={"__ZONE_NAME": "near"})
    announce(desk, name="b", more={"__ZONE_NAME": "far"})

    def names(**fields: str) -> list[str]:
        return [data.broker_name for data in decode_route(route(desk, fields=fields).body).broker_datas]

    assert names() == ["a", "b"]
    assert names(__ZONE_MODE="true", __ZONE_NAME="NEAR") == ["a"]
    assert names(__ZONE_MODE="false", __ZONE_NAME="near") == ["a", "b"]
    assert names(__ZONE_MODE="true", __ZONE_NAME=" ") == ["a", "b"]
    assert names(__ZONE_MODE="true", __ZONE_NAME="nowhere") == []


def test_route_by_zone_of_a_request_decoded_from_the_wire() -> None:
    desk = NameServerDesk()
    announce(desk, name="a", more={"__ZONE_NAME": "near"})
    announce(desk, name="b")
    fields = {"topic": "t1", "__ZONE_MODE": "true", "__ZONE_NAME": "near"}
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, opaque=1, ext_fields=fields)
    (decoded,) = FrameDecoder().feed(encode_frame(request))
    assert [data.broker_name for data in decode_route(desk.answer(decoded).body).broker_datas] == ["a"]


def test_route_while_name_server_is_not_ready() -> None:
    desk = NameServerDesk(NameServerConfig(need_wait_for_service=True, wait_seconds_for_service=45))
    announce(desk)
    answer = route(desk)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("name server not ready")
    desk.clock.advance(44.9)
    assert route(desk).code == ResponseCode.SYSTEM_ERROR
    desk.clock.advance(0.1)
    assert route(desk).code == ResponseCode.SUCCESS


def test_route_with_acting_master_only_when_set() -> None:
    for setting, expected in ((False, {1: "a:1"}), (True, {0: "a:1"})):
        desk = NameServerDesk(NameServerConfig(support_acting_master=setting))
        announce(desk, broker_id=1, more={"enableActingMaster": "true"})
        assert decode_route(route(desk).body).broker_datas[0].broker_addrs == expected


def test_route_without_topic_is_an_error_that_names_the_field() -> None:
    with pytest.raises(FieldError, match="topic"):
        NameServerDesk().ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)


def test_cluster_info_and_member_group() -> None:
    desk = NameServerDesk()
    assert desk.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    announce(desk)
    announce(desk, broker_id=1)
    info = decode_cluster_info(desk.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert info.cluster_addr_table == {CLUSTER: ["a"]}
    assert info.broker_addr_table["a"].broker_addrs == {0: "a:0", 1: "a:1"}
    fields = {"clusterName": CLUSTER, "brokerName": "a"}
    group = decode_member_group(desk.ask(RequestCode.GET_BROKER_MEMBER_GROUP, fields).body)
    assert group.broker_addrs == {0: "a:0", 1: "a:1"}


# Brokers


def test_register_slave_gets_its_master() -> None:
    desk = NameServerDesk()
    assert announce(desk).ext_fields == {}
    answer = announce(desk, broker_id=1)
    assert answer.ext_fields == {"haServerAddr": "ha-a:0", "masterAddr": "a:0"}


def test_register_with_wrong_crc_is_refused() -> None:
    desk = NameServerDesk()
    answer = announce(desk, more={"bodyCrc32": "12345"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
    assert route(desk).code == ResponseCode.TOPIC_NOT_EXIST
    assert announce(desk, more={"bodyCrc32": "0"}).code == ResponseCode.SUCCESS


def test_register_single_topic_of_unknown_broker_is_refused_with_cause() -> None:
    answer = announce(NameServerDesk(), table=topics(["t1"]))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("register broker failed")


def test_register_conflict_is_a_success_without_effect() -> None:
    desk = NameServerDesk()
    announce(desk, table=topics(state_version=5))
    answer = announce(desk, more={"brokerAddr": "intruder:1"})
    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})
    assert decode_route(route(desk).body).broker_datas[0].broker_addrs == {0: "a:0"}


def test_register_returns_order_configuration_unless_switched_off() -> None:
    desk = NameServerDesk()
    assert announce(desk).body == b""
    desk.kv.put("ORDER_TOPIC_CONFIG", "t1", "a:4")
    assert decode_kv_table(announce(desk).body).table == {"t1": "a:4"}
    desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"returnOrderTopicConfigToBroker=false")
    assert announce(desk).body == b""


def test_register_drops_missing_topics_when_set() -> None:
    desk = NameServerDesk(NameServerConfig(delete_topic_with_broker_registration=True))
    announce(desk)
    announce(desk, table=topics(["t2", "t3"], counter=1))
    assert set(desk.routes.all_topics().topic_list) == {"t2", "t3"}


def test_register_with_damaged_body_is_an_error_and_no_change() -> None:
    desk = NameServerDesk()
    fields = {"brokerName": "a", "brokerAddr": "a:0", "clusterName": CLUSTER, "haServerAddr": "", "brokerId": "0"}
    for body in (b"{", b"x", b"\x78\x9cnonsense"):
        with pytest.raises((FieldError, ProtocolError)):
            desk.ask(RequestCode.REGISTER_BROKER, fields, body=body)
    assert desk.routes.cluster_info().broker_addr_table == {}
    assert desk.ask(RequestCode.REGISTER_BROKER, fields).code == ResponseCode.SUCCESS, "no topics, as in Java"


def test_register_over_limit_is_an_error() -> None:
    desk = NameServerDesk()
    with pytest.raises(RouteError, match="nameLengthMax"):
        announce(desk, name="n" * 1000)


def test_unregister_is_done_when_answered() -> None:
    desk = NameServerDesk()
    announce(desk)
    fields = {"brokerName": "a", "brokerAddr": "a:0", "clusterName": CLUSTER, "brokerId": "0"}
    assert desk.ask(RequestCode.UNREGISTER_BROKER, fields).code == ResponseCode.SUCCESS
    assert route(desk).code == ResponseCode.TOPIC_NOT_EXIST
    assert desk.ask(RequestCode.UNREGISTER_BROKER, fields).code == ResponseCode.SUCCESS


def test_query_data_version_tells_and_keeps_alive() -> None:
    desk = NameServerDesk()
    announce(desk, table=topics(counter=3), more={"heartbeatTimeoutMillis": "10000"})
    fields = {"brokerName": "a", "brokerAddr": "a:0", "clusterName": CLUSTER, "brokerId": "0"}
    same = DataVersion(counter=3, timestamp=1)
    desk.clock.advance(9)
    answer = desk.ask(RequestCode.QUERY_DATA_VERSION, fields, body=encode_data_version(same))
    assert (answer.ext_fields, answer.body) == ({"changed": "false"}, encode_data_version(same))
    desk.clock.advance(9)
    desk.handlers.expire_brokers()
    for body in (encode_data_version(DataVersion(counter=4, timestamp=1)), b""):
        answer = desk.ask(RequestCode.QUERY_DATA_VERSION, fields, body=body)
        assert (answer.ext_fields, answer.body) == ({"changed": "true"}, encode_data_version(same))
    unknown = fields | {"brokerAddr": "x:1"}
    answer = desk.ask(RequestCode.QUERY_DATA_VERSION, unknown, body=encode_data_version(same))
    assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")


def test_heartbeat_keeps_alive_and_silence_closes() -> None:
    desk = NameServerDesk()
    link = FakeLink()
    announce(desk, link=link, more={"heartbeatTimeoutMillis": "10000"})
    fields = {"brokerName": "a", "brokerAddr": "a:0", "clusterName": CLUSTER}
    desk.clock.advance(9)
    assert desk.ask(RequestCode.BROKER_HEARTBEAT, fields).code == ResponseCode.SUCCESS
    desk.clock.advance(10)
    desk.handlers.expire_brokers()
    assert link.closings == 0
    desk.clock.advance(0.001)
    desk.handlers.expire_brokers()
    assert link.closings == 1
    assert route(desk).code == ResponseCode.TOPIC_NOT_EXIST


def test_link_lost_removes_its_brokers_only() -> None:
    desk = NameServerDesk()
    first, second = FakeLink(), FakeLink()
    announce(desk, name="a", link=first)
    announce(desk, name="b", link=second)
    desk.handlers.link_lost(first)
    desk.handlers.link_lost(FakeLink())
    assert [data.broker_name for data in decode_route(route(desk).body).broker_datas] == ["b"]


@pytest.mark.parametrize("switched_on", [True, False])
def test_brokers_are_told_of_the_smallest_id_when_set(switched_on: bool) -> None:
    desk = NameServerDesk(NameServerConfig(notify_min_broker_id_changed=switched_on))
    acting = {"enableActingMaster": "true"}
    links = [FakeLink() for _ in range(3)]
    for broker_id in (2, 1, 0):
        announce(desk, broker_id=broker_id, link=links[broker_id], more=acting)
    desk.handlers.link_lost(links[0])
    told = [(address, command.code, command.is_oneway, command.ext_fields) for address, command in desk.sent]
    code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    came = {"minBrokerId": "1", "minBrokerAddr": "a:1", "haBrokerAddr": "ha-a:1"}
    master = {"minBrokerId": "0", "minBrokerAddr": "a:0", "haBrokerAddr": "ha-a:0"}
    went = {"minBrokerId": "1", "minBrokerAddr": "a:1", "offlineBrokerAddr": "a:0"}
    expected = [
        ("a:2", code, True, came),
        ("a:1", code, True, master),
        ("a:2", code, True, master),
        ("a:1", code, True, went),
        ("a:2", code, True, went),
    ]
    assert told == (expected if switched_on else [])


def test_write_permission_counts() -> None:
    desk = NameServerDesk()
    announce(desk)
    fields = {"brokerName": "a"}
    assert desk.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, fields).ext_fields == {"wipeTopicCount": "2"}
    assert desk.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, fields).ext_fields == {"addTopicCount": "2"}
    assert decode_route(route(desk).body).queue_datas[0].perm == 6


# Topics


LISTS = {
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ["unit", "both", "sub"],
    RequestCode.GET_TOPICS_BY_CLUSTER: ["unit", "both", "sub"],
    RequestCode.GET_UNIT_TOPIC_LIST: ["unit", "both"],
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: ["both", "sub"],
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ["sub"],
}


def fill_with_units(table: RouteTable) -> None:
    table.register(broker(table=topics(["unit", "both"], flags=1)), 0)
    table.register_topic("both", [QueueData(broker_name="a", topic_sys_flag=3)])
    table.register_topic("sub", [QueueData(broker_name="a", topic_sys_flag=2)])


@pytest.mark.parametrize("code", LISTS)
def test_topic_lists(code: RequestCode) -> None:
    desk = NameServerDesk()
    fill_with_units(desk.routes)
    answer = desk.ask(code, {"cluster": CLUSTER})
    assert decode_topic_list(answer.body).topic_list == LISTS[code]


@pytest.mark.parametrize("code", LISTS)
def test_topic_lists_when_switched_off(code: RequestCode) -> None:
    desk = NameServerDesk(NameServerConfig(enable_topic_list=False, enable_all_topic_list=False))
    answer = desk.ask(code, {"cluster": CLUSTER})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("disable")
    assert answer.body == b""


def test_system_topics() -> None:
    desk = NameServerDesk()
    assert desk.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body == b'{"topicList":[]}'
    announce(desk)
    answer = desk.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert answer.body == b'{"brokerAddr":"a:0","topicList":["c","a"]}'


def test_delete_topic_with_and_without_cluster() -> None:
    desk = NameServerDesk()
    announce(desk)
    for cluster, code in (
        ("other", ResponseCode.SUCCESS),
        (CLUSTER, ResponseCode.TOPIC_NOT_EXIST),
    ):
        fields = {"topic": "t1", "clusterName": cluster}
        assert desk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields).code == ResponseCode.SUCCESS
        assert route(desk).code == code
    desk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t2", "clusterName": ""})
    assert route(desk, "t2").code == ResponseCode.TOPIC_NOT_EXIST


def test_register_topic_of_known_and_unknown_broker() -> None:
    desk = NameServerDesk()
    announce(desk)
    queues = TopicRouteData(queue_datas=[QueueData(broker_name="a", perm=6, read_queue_nums=1)])
    body = encode_route(queues, standard_json=False)
    assert desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "new"}, body=body).code == 0
    assert decode_route(route(desk, "new").body).queue_datas == queues.queue_datas
    assert desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "empty"}).code == ResponseCode.SUCCESS
    unknown = TopicRouteData(queue_datas=[QueueData(broker_name="b")])
    answer = desk.ask(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "n"}, body=encode_route(unknown, standard_json=True)
    )
    assert answer.code == ResponseCode.BROKER_NOT_EXIST
    assert answer.remark is not None
    assert "'b', which is not registered" in answer.remark


# Key/value configuration


def test_kv_conversation() -> None:
    desk = NameServerDesk()
    entry = {"namespace": "n", "key": "k"}
    missing = desk.ask(RequestCode.GET_KV_CONFIG, entry)
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n Key: k")
    missing = desk.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n")
    assert desk.ask(RequestCode.PUT_KV_CONFIG, entry | {"value": "v"}).code == ResponseCode.SUCCESS
    assert desk.ask(RequestCode.GET_KV_CONFIG, entry).ext_fields == {"value": "v"}
    assert desk.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"}).body == b'{"table":{"k":"v"}}'
    assert desk.ask(RequestCode.DELETE_KV_CONFIG, entry).code == ResponseCode.SUCCESS
    assert desk.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"}).body == b'{"table":{}}'


def test_kv_put_without_namespace_or_over_limit_is_an_error() -> None:
    desk = NameServerDesk()
    with pytest.raises(FieldError, match="namespace"):
        desk.ask(RequestCode.PUT_KV_CONFIG, {"key": "k", "value": "v"})
    with pytest.raises(KvError, match="kvNameLengthMax"):
        desk.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "n" * 5000, "key": "k", "value": "v"})


# Settings


def test_config_is_told() -> None:
    config = NameServerConfig(listen_port=1234)
    assert NameServerDesk(config).ask(RequestCode.GET_NAMESRV_CONFIG).body.decode() == config.to_properties()


def test_config_update_takes_effect_and_is_reported() -> None:
    desk = NameServerDesk()
    answer = desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"# by hand\nenableTopicList : false\nunknown=1\n")
    assert answer.code == ResponseCode.SUCCESS
    assert desk.handlers.config == NameServerConfig(enable_topic_list=False)
    assert desk.configs == [desk.handlers.config]
    assert desk.ask(RequestCode.GET_UNIT_TOPIC_LIST).code == ResponseCode.SYSTEM_ERROR
    assert desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG).code == ResponseCode.SUCCESS, "no body, no change"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"kvConfigPath=/tmp/x", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        (b"rocketmqHome=/tmp/x", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        (b"enableTopicList=false\nconfigStorePath=/x", ResponseCode.NO_PERMISSION, "Can not update config"),
        (b"listenPort=1", ResponseCode.NO_PERMISSION, "takes effect only at start"),
        (b"tlsServerCertPath=/x", ResponseCode.NO_PERMISSION, "takes effect only at start"),
        (b"enableTopicList=maybe", ResponseCode.SYSTEM_ERROR, "must be true or false"),
        (b"\xff=1", ResponseCode.SYSTEM_ERROR, "not UTF-8"),
    ],
)
def test_config_update_that_is_refused_changes_nothing(body: bytes, code: ResponseCode, words: str) -> None:
    desk = NameServerDesk()
    answer = desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    assert answer.code == code
    assert answer.remark is not None
    assert words in answer.remark
    assert desk.handlers.config == NameServerConfig()
    assert desk.configs == []


def test_config_update_is_saved_beside_what_the_file_has(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=9876\nenableTopicList=true\n")
    desk = NameServerDesk(NameServerConfig(config_store_path=str(file)))
    desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enable_topic_list=FALSE\norderMessageEnable=true\nunknown=1")
    assert file.read_text() == "listenPort=9876\nenableTopicList=false\norderMessageEnable=true\n"
    assert (tmp_path / "namesrv.properties.bak").read_text() == "listenPort=9876\nenableTopicList=true\n"


class BrokenFileSystem(OsFileSystem):
    """Takes nothing."""

    def write(self, path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")


def test_config_update_that_cannot_be_saved_is_not_made(tmp_path: Path) -> None:
    config = NameServerConfig(config_store_path=str(tmp_path / "namesrv.properties"))
    desk = NameServerDesk(config, file_system=BrokenFileSystem())
    answer = desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "No space left" in answer.remark
    assert desk.handlers.config == config
