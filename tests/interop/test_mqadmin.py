"""The real mqadmin through the name servers under test, its answers beside those of the real name server."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.harness import probe
from tests.interop.harness.servers import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.harness.cluster import Cluster
    from tests.interop.harness.programs import AdminRun, MqAdmin

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

QUERY_NOT_FOUND = 22


class Desk:
    """mqadmin at the cluster: runs that must succeed, answers that must agree.

    `resident` does what is not on trial: it prepares, tidies up and asks the oracle.
    """

    def __init__(self, cluster: Cluster, mqadmin: MqAdmin, resident: MqAdmin) -> None:
        self.cluster = cluster
        self.mqadmin = mqadmin
        self.resident = resident
        # A virtual machine per command is dear, and the resident run has asked both already.
        self.asked = cluster.subjects if mqadmin is resident else [cluster.second]
        assert cluster.oracle is not None
        self.oracle = cluster.oracle
        self.everyone = ";".join(server.address for server in cluster.name_servers)

    def run(self, name_servers: str, *arguments: str) -> AdminRun:
        run = self.mqadmin.run(name_servers, *arguments)
        assert not run.failed, str(run)
        return run

    def agree(self, view: Callable[[AdminRun], Any], *arguments: str) -> Any:
        """Asks name servers one by one; `view` must see the same in every answer as in the oracle's."""
        expected = view(self.resident.run(self.oracle.address, *arguments))
        for subject in self.asked:
            run = self.run(subject.address, *arguments)
            assert view(run) == expected, f"{subject.name} and the oracle differ:\n{run}"
        return expected

    def asks(self, *arguments: str) -> list[AdminRun]:
        """The oracle's answer, then those of the name servers under test, whether they succeed or not."""
        runs = [self.mqadmin.run(subject.address, *arguments) for subject in self.asked]
        return [self.resident.run(self.oracle.address, *arguments), *runs]

    def create_topic(self, admin: MqAdmin, topic: str, queues: int) -> None:
        counts = ("-r", str(queues), "-w", str(queues))
        run = admin.run(self.cluster.addresses, "updateTopic", "-c", CLUSTER, "-t", topic, *counts)
        assert not run.failed, str(run)
        assert f"create topic to {self.cluster.broker.address} success." in run.out
        for server in self.cluster.name_servers:
            server.await_topic(topic)


@pytest.fixture
def desk(cluster: Cluster, mqadmin: MqAdmin, resident_mqadmin: MqAdmin) -> Desk:
    return Desk(cluster, mqadmin, resident_mqadmin)


@pytest.fixture
def topic(desk: Desk) -> Iterator[str]:
    """A topic known everywhere, deleted everywhere afterwards."""
    desk.create_topic(desk.resident, "interop_desk", queues=4)
    yield "interop_desk"
    desk.resident.run(desk.everyone, "deleteTopic", "-c", CLUSTER, "-t", "interop_desk")


def words_sorted(run: AdminRun) -> list[list[str]]:
    return sorted(run.rows)


def as_json(run: AdminRun) -> Any:
    return json.loads(re.sub(r"(\s)(\d+):", r'\1"\2":', run.out))


def settings_by_server(run: AdminRun) -> dict[str, dict[str, str]]:
    """`getNamesrvConfig` prints `====host:port====` and then `key = value` lines."""
    servers: dict[str, dict[str, str]] = {}
    for line in run.out.splitlines():
        if heading := re.fullmatch(r"=+([\d.:]+)=+", line.strip()):
            settings = servers[heading.group(1)] = {}
        elif "=" in line:
            key, _, value = line.partition("=")
            settings[key.strip()] = value.strip()
    return servers


def test_cluster_list_shows_the_broker(desk: Desk) -> None:
    rows = desk.agree(lambda run: [[*row[:5], row[-1]] for row in run.rows], "clusterList")
    assert rows == [[CLUSTER, "broker-a", "0", desk.cluster.broker.address, "V5_5_0", "true"]]


def test_topic_list_equals_oracle(desk: Desk, topic: str) -> None:
    rows = desk.agree(words_sorted, "topicList")
    assert [topic] in rows
    assert ["TBW102"] in rows
    rows = desk.agree(words_sorted, "topicList", "-c")
    assert [CLUSTER, topic] in rows


def test_topic_route_equals_oracle(desk: Desk, topic: str) -> None:
    route = desk.agree(as_json, "topicRoute", "-t", topic)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": desk.cluster.broker.address}
    assert [queue["writeQueueNums"] for queue in route["queueDatas"]] == [4]
    desk.agree(lambda run: run.out, "topicRoute", "-t", topic, "-l")


def test_topic_route_when_topic_unknown_fails_as_with_oracle(desk: Desk) -> None:
    complaint = "CODE: 17  DESC: No topic route info in name server for the topic: interop_unknown"
    for run in desk.asks("topicRoute", "-t", "interop_unknown"):
        assert complaint in run.err, str(run)


def test_topic_life_from_creation_to_deletion(desk: Desk) -> None:
    topic = "interop_life"
    desk.create_topic(desk.mqadmin, topic, queues=3)
    status = desk.agree(lambda run: run.out, "topicStatus", "-t", topic)
    assert status.count("broker-a") == 3
    assert desk.agree(lambda run: run.rows, "topicClusterList", "-t", topic) == [[CLUSTER]]
    assert desk.agree(lambda run: run.rows, "statsAll", "-t", topic)[0][0] == topic
    run = desk.run(desk.everyone, "deleteTopic", "-c", CLUSTER, "-t", topic)
    assert f"delete topic [{topic}] from NameServer success." in run.out
    for server in desk.cluster.name_servers:
        assert probe.route_of(server.address, topic) is None, server.name


def test_broker_status_is_found_through_the_cluster(desk: Desk) -> None:
    rows = desk.run(desk.cluster.addresses, "brokerStatus", "-c", CLUSTER).rows
    assert {row[0] for row in rows} == {desk.cluster.broker.address}
    assert any(row[1:] == ["brokerVersionDesc", ":", "V5_5_0"] for row in rows)


def test_kv_config_reaches_every_name_server_and_is_deleted(desk: Desk) -> None:
    key = {"namespace": "INTEROP", "key": "colour"}
    run = desk.run(desk.everyone, "updateKvConfig", "-s", "INTEROP", "-k", "colour", "-v", "rouge à lèvres")
    assert "create or update kv config to namespace success." in run.out
    for server in desk.cluster.name_servers:
        answer = probe.ask(server.address, probe.GET_KV_CONFIG, key)
        assert (answer.code, answer.fields) == (0, {"value": "rouge à lèvres"}), server.name
    run = desk.run(desk.everyone, "deleteKvConfig", "-s", "INTEROP", "-k", "colour")
    assert "delete kv config from namespace success." in run.out
    for server in desk.cluster.name_servers:
        assert probe.ask(server.address, probe.GET_KV_CONFIG, key).code == QUERY_NOT_FOUND, server.name


def test_write_permission_is_wiped_and_added_again(desk: Desk, topic: str) -> None:
    def permissions() -> set[int]:
        routes = [probe.route_of(server.address, topic) for server in desk.cluster.name_servers]
        return {queue["perm"] for route in routes if route for queue in route["queueDatas"]}

    def count_by_server(run: AdminRun) -> dict[str, str]:
        return dict(re.findall(r"in name server\[([\d.:]+)\] OK, (\d+)", run.out))

    assert permissions() == {6}
    try:
        counts = count_by_server(desk.run(desk.everyone, "wipeWritePerm", "-b", "broker-a"))
        assert set(counts) == {server.address for server in desk.cluster.name_servers}
        assert len(set(counts.values())) == 1, counts
        assert permissions() == {4}
    finally:
        counts = count_by_server(desk.run(desk.everyone, "addWritePerm", "-b", "broker-a"))
    assert len(set(counts.values())) == 1, counts
    assert permissions() == {6}


def test_namesrv_config_is_told_and_changed(desk: Desk, topic: str) -> None:
    servers = settings_by_server(desk.run(desk.everyone, "getNamesrvConfig"))
    for server in desk.cluster.name_servers:
        settings = servers[server.address]
        assert settings["listenPort"] == str(server.port)
        assert settings["orderMessageEnable"] == "false"
    desk.run(desk.everyone, "updateOrderConf", "-m", "put", "-t", topic, "-v", "broker-a:2")
    run = desk.run(desk.everyone, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert "update name server config success!" in run.out
    try:
        servers = settings_by_server(desk.run(desk.everyone, "getNamesrvConfig"))
        assert {settings["orderMessageEnable"] for settings in servers.values()} == {"true"}
        assert desk.agree(as_json, "topicRoute", "-t", topic)["orderTopicConf"] == "broker-a:2"
        answer = desk.agree(lambda run: run.out, "updateOrderConf", "-m", "get", "-t", topic)
        assert "orderConf=[broker-a:2]" in answer
    finally:
        desk.resident.run(desk.everyone, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
        desk.resident.run(desk.everyone, "updateOrderConf", "-m", "delete", "-t", topic)
    assert "orderTopicConf" not in desk.agree(as_json, "topicRoute", "-t", topic)


def test_namesrv_config_when_key_is_guarded_is_refused_as_by_oracle(desk: Desk) -> None:
    """A remote hand must not move the files of a name server (a published hole of older releases)."""
    for run in desk.asks("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "/tmp/elsewhere"):
        assert "Can not update config in black list." in run.err, str(run)
