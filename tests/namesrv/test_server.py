"""The name server put together, over a network in memory and manual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fusee.clock import ManualClock
from fusee.errors import ConfigError
from fusee.namesrv import NameServer, NameServerConfig
from fusee.transport.client import Client, ClientSettings
from fusee.transport.memory import MemoryNetwork
from fusee.transport.router import Router
from fusee.transport.server import Server
from fusee.transport.tcp import server_tls
from fusee.wire.bodies.route import decode_route
from fusee.wire.bodies.topic import RegisterBrokerBody, TopicConfig, TopicConfigTable, encode_register_body
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.namesrv import BrokerHeartbeat, GetRouteInfo, PutKeyValue, RegisterBroker
from tests.transport.world import run


def registration(broker_id: int = 0, address: str = "b:10911", timeout_ms: int | None = None) -> Command:
    topics = {name: TopicConfig(topic_name=name) for name in ("orders", "payments")}
    body = RegisterBrokerBody(topic_config_serialize_wrapper=TopicConfigTable(topic_config_table=topics))
    header = RegisterBroker(
        cluster_name="C",
        broker_name="a",
        broker_id=broker_id,
        broker_address=address,
        ha_server_address="b:10912",
        heartbeat_timeout_ms=timeout_ms,
        enable_acting_master=True,
    )
    return Command.request(RequestCode.REGISTER_BROKER, header, body=encode_register_body(body))


def route(topic: str = "orders") -> Command:
    return Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic))


class World:
    def __init__(self, config: NameServerConfig | None = None) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock)
        self.server = NameServer(
            config or NameServerConfig(bind_address="n", listen_port=9876, kv_config_path=""),
            network=self.network.host("n"),
            clock=self.clock,
            timers=self.clock,
        )

    def client(self, name: str, router: Router | None = None) -> Client:
        return Client(
            network=self.network.host(name),
            clock=self.clock,
            timers=self.clock,
            router=router,
            settings=ClientSettings(idle_timeout=1e6, frame_timeout=1e6),
        )

    async def ask(self, client: Client, command: Command) -> Command:
        task = asyncio.ensure_future(client.request("n:9876", command))
        await self.network.settle()
        return task.result()


def test_registered_broker_is_found_and_gone_at_once_with_its_connection() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start()
        broker, user = world.client("b"), world.client("u")
        assert (await world.ask(user, route())).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await world.ask(broker, registration())).code == 0
        answer = await world.ask(user, route())
        assert decode_route(answer.body).broker_datas[0].broker_addrs == {0: "b:10911"}
        world.network.cut("b", "n")
        await world.network.settle()
        assert (await world.ask(user, route())).code == ResponseCode.TOPIC_NOT_EXIST
        stopping = asyncio.ensure_future(world.server.stop())
        await world.network.advance(1)
        assert stopping.done()

    run(scenario)


def test_connection_of_a_user_that_ends_removes_no_broker() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start()
        broker, user = world.client("b"), world.client("u")
        await world.ask(broker, registration())
        await world.ask(user, route())
        world.network.cut("u", "n")
        await world.network.settle()
        assert (await world.ask(user, route())).code == 0

    run(scenario)


def test_silent_broker_expires_after_its_timeout_and_a_living_one_does_not() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start()
        silent, living, user = world.client("silent"), world.client("living"), world.client("u")
        await world.ask(silent, registration(0, "silent:10911", timeout_ms=20_000))
        await world.ask(living, registration(1, "living:10911", timeout_ms=20_000))
        heartbeat = BrokerHeartbeat(cluster_name="C", broker_address="living:10911", broker_name="a", broker_id=1)
        for _ in range(4):
            await world.network.advance(6)
            await world.ask(living, Command.request(RequestCode.BROKER_HEARTBEAT, heartbeat))
        await world.network.advance(2)
        answer = await world.ask(user, route())
        assert decode_route(answer.body).broker_datas[0].broker_addrs == {1: "living:10911"}

    run(scenario)


def test_idle_broker_connection_removes_the_broker() -> None:
    async def scenario() -> None:
        config = NameServerConfig(
            bind_address="n", listen_port=9876, kv_config_path="", server_channel_max_idle_time_seconds=40
        )
        world = World(config)
        await world.server.start()
        broker, user = world.client("b"), world.client("u")
        await world.ask(broker, registration())
        await world.network.advance(51)
        assert (await world.ask(user, route())).code == ResponseCode.TOPIC_NOT_EXIST

    run(scenario)


def test_slave_is_told_when_its_master_is_gone() -> None:
    async def scenario() -> None:
        config = NameServerConfig(
            bind_address="n", listen_port=9876, kv_config_path="", notify_min_broker_id_changed=True
        )
        world = World(config)
        await world.server.start()
        told: list[Command] = []
        door = Router()
        door.add(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, lambda request, link: told.append(request), door.lane("x", 9))
        listening = Server(network=world.network.host("slave"), router=door, clock=world.clock, timers=world.clock)
        await listening.start("slave", 10911)
        master, slave = world.client("master"), world.client("slave")
        await world.ask(master, registration(0, "master:10911"))
        await world.ask(slave, registration(1, "slave:10911"))
        told.clear()
        world.network.cut("master", "n")
        await world.network.settle()
        assert [command.all_fields()["minBrokerId"] for command in told] == ["1"]
        assert told[0].is_oneway

    run(scenario)


def test_kv_configuration_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = NameServerConfig(bind_address="n", listen_port=9876, kv_config_path=str(tmp_path / "deep" / "kv.json"))
        put = Command.request(RequestCode.PUT_KV_CONFIG, PutKeyValue(namespace="ns", key="k", value="v"))
        world = World(config)
        await world.server.start()
        assert (await world.ask(world.client("u"), put)).code == 0
        again = World(config)
        await again.server.start()
        assert again.server.kv_table.get("ns", "k") == "v"

    run(scenario)


def test_settings_changed_over_the_wire_take_effect() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start()
        user = world.client("u")
        update = Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableAllTopicList=false\n")
        assert (await world.ask(user, update)).code == 0
        assert world.server.config.enable_all_topic_list is False
        answer = await world.ask(user, Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario)


def test_unknown_code_and_missing_field_are_answered_and_the_connection_lives() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start()
        user = world.client("u")
        assert (await world.ask(user, Command(9999))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        missing = await world.ask(user, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC))
        assert missing.code == ResponseCode.SYSTEM_ERROR
        assert "topic" in (missing.remark or "")
        garbage = await world.ask(user, Command(RequestCode.REGISTER_BROKER, body=b"{", ext_fields={}))
        assert garbage.code == ResponseCode.SYSTEM_ERROR
        assert len(user.addresses) == 1

    run(scenario)


def test_enforcing_tls_without_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="tls_server_cert_path"):
        server_tls("enforcing", "", "", first_byte_timeout=1.0)
    with pytest.raises(ConfigError, match="write disabled, permissive or enforcing"):
        NameServerConfig(tls_server_mode="maybe")
    assert server_tls("permissive", "", "", first_byte_timeout=1.0) is None
