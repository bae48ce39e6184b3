"""How name servers come to know a broker: all at once, each by itself, again and again, and farewell."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fusee.broker.config import BrokerConfig
from fusee.broker.registration import Registration, advertised_ip
from fusee.broker.topics import TopicTable
from fusee.errors import ConfigError
from fusee.namesrv import NameServer, NameServerConfig
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.client import Client
from fusee.transport.link import Link
from fusee.wire.bodies.kv import encode_kv_table
from fusee.wire.bodies.topic import PERM_READ, RegisterBrokerBody, TopicConfig, TopicConfigTable, decode_register_body
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.namesrv import RegisterBroker, RegisterBrokerResponse, UnregisterBroker
from tests.broker.world import ADDRESS, CLUSTER, HOST, NAME, BrokerWorld, MemoryWorld, run

Scene = Callable[[BrokerWorld], Awaitable[None]]
FIRST, SECOND = "10.0.0.21", "10.0.0.22"
ORDERS = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4)


class Registrar:
    """A name server that keeps what it is told and answers as it is set to."""

    def __init__(self) -> None:
        self.told: list[tuple[RegisterBroker, TopicConfigTable]] = []
        self.farewells: list[UnregisterBroker] = []
        self.code = 0
        self.master: str | None = None
        self.order_topics: dict[str, str] = {}
        self.times: list[float] = []
        self.held: list[Command] | None = None
        self.links: list[Link] = []

    async def listen(self, world: MemoryWorld, host: str) -> Registrar:
        self._clock = world.clock
        handlers = {RequestCode.REGISTER_BROKER: self._register, RequestCode.UNREGISTER_BROKER: self._unregister}
        await world.name_server(host, handlers)
        return self

    def _register(self, request: Command, link: Link) -> Command | None:
        assert zlib.crc32(request.body) & 0x7FFFFFFF == int(request.all_fields()["bodyCrc32"])
        header = request.read(RegisterBroker)
        body: RegisterBrokerBody = decode_register_body(request.body, compressed=False, version=request.version)
        self.told.append((header, body.topic_config_serialize_wrapper))
        self.times.append(self._clock.monotonic())
        self.links.append(link)
        if self.held is not None:
            self.held.append(request)
            return None
        return self.answer(request)

    def answer(self, request: Command) -> Command:
        if self.code:
            return request.reply(self.code, remark="not now")
        return request.reply(
            header=RegisterBrokerResponse(master_address=self.master), body=encode_kv_table(self.order_topics)
        )

    def _unregister(self, request: Command, link: Link) -> Command:
        self.farewells.append(request.read(UnregisterBroker))
        return request.reply()

    def topics(self, number: int = -1) -> set[str]:
        return set(self.told[number][1].topic_config_table)


class Announcer(MemoryWorld):
    """The part of a broker that tells name servers, alone: long times pass quickly here."""

    def __init__(self, *hosts: str, **settings: Any) -> None:
        super().__init__()
        self.config = BrokerConfig(
            broker_name=NAME,
            broker_cluster_name=CLUSTER,
            namesrv_addr=";".join(f"{host}:9876" for host in hosts),
            **settings,
        )
        disk = SimulatedDisk(self.clock)
        self.topics = TopicTable(config=self.config, folder=Path("/config"), files=disk, clock=self.clock)
        self.client = Client(network=self.network.host(HOST), clock=self.clock, timers=self.clock)
        self.masters: list[RegisterBrokerResponse] = []
        self.registration = Registration(
            config=self.config,
            topics=self.topics,
            client=self.client,
            timers=self.clock,
            address=ADDRESS,
            ha_address=f"{HOST}:10912",
            on_master=self.masters.append,
        )

    async def start(self) -> None:
        await self.within(30.0, asyncio.ensure_future(self.registration.start()))

    async def stop(self) -> None:
        await self.within(30.0, asyncio.ensure_future(self.registration.stop()))
        await self.client.close()


def known_by(world: BrokerWorld) -> list[str]:
    return list(world.broker.registered)


def world_of(*hosts: str, **settings: Any) -> BrokerWorld:
    return BrokerWorld(namesrv_addr=";".join(f"{host}:9876" for host in hosts), **settings)


def test_every_name_server_is_told_everything_at_start() -> None:
    async def scene() -> None:
        world = world_of(FIRST, SECOND, ha_listen_port=10912, broker_ip2="10.9.9.9")
        registrars = [await Registrar().listen(world, host) for host in (FIRST, SECOND)]
        await world.start()
        assert known_by(world) == [f"{FIRST}:9876", f"{SECOND}:9876"]
        for registrar in registrars:
            [(header, table)] = registrar.told
            assert (header.broker_name, header.cluster_name, header.broker_id) == (NAME, CLUSTER, 0)
            assert (header.broker_address, header.ha_server_address) == (ADDRESS, "10.9.9.9:10912")
            assert set(table.topic_config_table) == set(world.broker.topics.all())
            assert {"TBW102", NAME, CLUSTER} <= set(table.topic_config_table)
            assert table.data_version == world.broker.topics.version
        await world.stop()

    run(scene)


def test_real_name_server_finds_the_broker_until_it_stops() -> None:
    async def scene() -> None:
        world = world_of(FIRST)
        config = NameServerConfig(bind_address=FIRST, listen_port=9876, kv_config_path="")
        server = NameServer(config, network=world.network.host(FIRST), clock=world.clock, timers=world.clock)
        await server.start()
        await world.start()
        await world.peer().send()
        await world.settle()
        route = server.route_table.route("orders")
        assert route is not None
        assert route.broker_datas[0].broker_addrs == {0: ADDRESS}
        assert route.queue_datas[0].write_queue_nums == 4
        await world.stop()
        assert server.route_table.route("orders") is None
        await world.within(30.0, asyncio.ensure_future(server.stop()))

    run(scene)


def test_name_server_that_is_down_hurts_nobody_and_is_told_when_it_comes() -> None:
    async def scene() -> None:
        world = Announcer(SECOND, FIRST)
        first = await Registrar().listen(world, FIRST)
        await world.start()
        assert world.clock.monotonic() == 0.0
        assert list(world.registration.registered) == [f"{FIRST}:9876"]
        world.topics.put(ORDERS)
        await world.settle()
        assert first.topics() == {"orders"}
        second = await Registrar().listen(world, SECOND)
        await world.advance(31.0)
        assert list(world.registration.registered) == [f"{SECOND}:9876", f"{FIRST}:9876"]
        assert {"orders", "TBW102"} <= second.topics(0), "the first word says everything"
        await world.stop()

    run(scene)


def test_name_server_that_hangs_holds_up_nobody_and_its_time_is_bounded() -> None:
    async def scene() -> None:
        world = world_of(FIRST, SECOND, register_broker_timeout_mills=5000)
        hanging, living = await Registrar().listen(world, FIRST), await Registrar().listen(world, SECOND)
        hanging.held = []
        starting = asyncio.ensure_future(world.broker.start())
        await world.advance(4.0)
        assert not starting.done()
        assert len(living.told) == 1
        assert (await world.peer().send()).code == 0, "the doors are open meanwhile"
        await world.advance(1.5)
        assert starting.done()
        assert world.broker.registered == (f"{SECOND}:9876",)
        assert living.topics() == {"orders"}
        stopping = asyncio.ensure_future(world.broker.stop())
        await world.advance(5.0)
        assert stopping.done()
        await world.stop()

    run(scene)


def test_refusal_is_reported_and_tried_again_ever_more_slowly(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        world = Announcer(FIRST)
        registrar = await Registrar().listen(world, FIRST)
        registrar.code = ResponseCode.SYSTEM_ERROR
        await world.start()
        assert list(world.registration.registered) == []
        await world.advance(240.0)
        waits = [later - earlier for earlier, later in zip(registrar.times, registrar.times[1:], strict=False)]
        assert waits[:3] == [1.0, 2.0, 4.0]
        assert len(registrar.times) < 20, "failures do not add up to a flood"
        assert all(wait > 1.0 for wait in waits[1:])
        registrar.code = 0
        await world.advance(31.0)
        assert list(world.registration.registered) == [f"{FIRST}:9876"]
        count = len(registrar.times)
        await world.advance(59.0)
        assert len(registrar.times) - count <= 2
        await world.stop()

    run(scene)
    assert f"registration with name server {FIRST}:9876 failed" in caplog.text
    assert "not now" in caplog.text


def test_changed_topic_is_told_at_once_and_alone() -> None:
    async def scene() -> None:
        world = world_of(FIRST)
        registrar = await Registrar().listen(world, FIRST)
        await world.start()
        world.broker.topics.put(ORDERS)
        await world.settle()
        _, table = registrar.told[-1]
        assert set(table.topic_config_table) == {"orders"}
        assert table.topic_config_table["orders"].write_queue_nums == 4
        assert table.data_version == world.broker.topics.version
        await world.stop()

    run(scene)


def test_changes_made_while_a_name_server_thinks_are_gathered() -> None:
    async def scene() -> None:
        world = Announcer(FIRST)
        registrar = await Registrar().listen(world, FIRST)
        await world.start()
        registrar.held = []
        for name in ("a", "b", "c"):
            world.topics.put(TopicConfig(topic_name=name))
            await world.settle()
        assert len(registrar.told) == 2
        [request], registrar.held = registrar.held, None
        registrar.links[-1].send(registrar.answer(request))
        await world.settle()
        assert [registrar.topics(number) for number in (1, 2)] == [{"a"}, {"b", "c"}]
        await world.stop()

    run(scene)


def test_change_that_a_name_server_refused_is_in_the_next_whole_registration() -> None:
    async def scene() -> None:
        world = Announcer(FIRST)
        registrar = await Registrar().listen(world, FIRST)
        await world.start()
        registrar.code = ResponseCode.SYSTEM_ERROR
        world.topics.put(ORDERS)
        await world.settle()
        registrar.code = 0
        await world.advance(1.1)
        assert {"orders", "TBW102"} <= registrar.topics()
        await world.stop()

    run(scene)


@pytest.mark.parametrize(("period_ms", "seconds"), [(30_000, 30.0), (1, 10.0), (10_000_000, 60.0)])
def test_everything_is_told_again_by_period(period_ms: int, seconds: float) -> None:
    async def scene() -> None:
        world = Announcer(FIRST, register_name_server_period=period_ms)
        registrar = await Registrar().listen(world, FIRST)
        world_start = world.clock.monotonic()
        await world.start()
        world.topics.put(ORDERS)
        world.topics.delete("orders")
        await world.advance(2.5 * seconds)
        whole = [
            when
            for when, (_, table) in zip(registrar.times, registrar.told, strict=True)
            if len(table.topic_config_table) > 1
        ]
        assert whole == pytest.approx([world_start, world_start + seconds, world_start + 2 * seconds])
        assert "orders" not in registrar.topics(), "a deletion goes with it"
        await world.stop()

    run(scene)


def test_period_may_be_changed_while_the_broker_runs() -> None:
    async def scene() -> None:
        world = world_of(FIRST, register_name_server_period=10_000)
        registrar = await Registrar().listen(world, FIRST)
        await world.start()
        answer = await world.peer().ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"registerNameServerPeriod=20000")
        assert answer.code == 0
        await world.advance(10.5)
        count = len(registrar.told)
        await world.advance(19.0)
        assert len(registrar.told) == count
        await world.advance(1.0)
        assert len(registrar.told) == count + 1
        await world.stop()

    run(scene)


def test_permission_of_the_broker_is_told_with_every_topic_and_at_once_when_it_changes() -> None:
    async def scene() -> None:
        world = world_of(FIRST)
        registrar = await Registrar().listen(world, FIRST)
        await world.start()
        assert registrar.told[-1][1].topic_config_table["TBW102"].perm == 7
        answer = await world.peer().ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
        assert answer.code == 0
        await world.settle()
        table = registrar.told[-1][1].topic_config_table
        assert {topic.perm & 6 for topic in table.values()} == {PERM_READ, 0}
        assert world.broker.topics.all()["TBW102"].perm == 7, "the topics themselves are as they were"
        await world.stop()

    run(scene)


def test_order_configuration_of_a_name_server_is_applied() -> None:
    async def scene() -> None:
        world = Announcer(FIRST)
        registrar = await Registrar().listen(world, FIRST)
        await world.start()
        world.topics.put(ORDERS)
        registrar.order_topics = {"orders": "broker-a:4", "elsewhere": "x:1"}
        await world.advance(30.5)
        ordered = world.topics.get("orders")
        assert ordered is not None
        assert ordered.order
        await world.stop()

    run(scene)


def test_stop_says_farewell_to_every_name_server() -> None:
    async def scene() -> None:
        world = world_of(FIRST, SECOND)
        registrars = [await Registrar().listen(world, host) for host in (FIRST, SECOND)]
        await world.start()
        await world.stop()
        for registrar in registrars:
            [farewell] = registrar.farewells
            assert (farewell.broker_name, farewell.broker_address) == (NAME, ADDRESS)
            assert (farewell.cluster_name, farewell.broker_id) == (CLUSTER, 0)
            count = len(registrar.told)
            await world.advance(31.0)
            assert len(registrar.told) == count
        await world.stop()
        assert len(registrars[0].farewells) == 1

    run(scene)


def test_stop_waits_only_a_little_for_a_name_server_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        world = world_of(FIRST, SECOND)
        for host in (FIRST, SECOND):
            await Registrar().listen(world, host)
        await world.start()
        world.network.weather(HOST, FIRST).lossy = True
        began = world.clock.monotonic()
        await world.stop()
        assert world.clock.monotonic() - began < 4.0

    run(scene)
    assert f"name server {FIRST}:9876 was not told" in caplog.text


def test_word_of_a_name_server_on_the_master_is_passed_on() -> None:
    async def scene() -> None:
        world = Announcer(FIRST)
        registrar = await Registrar().listen(world, FIRST)
        registrar.master = ADDRESS
        await world.start()
        assert [word.master_address for word in world.masters] == [ADDRESS]
        await world.stop()

    run(scene)


def test_broker_without_name_servers_runs_alone() -> None:
    async def scene() -> None:
        world = BrokerWorld()
        await world.start()
        assert known_by(world) == []
        await world.stop()

    run(scene)


# The address that is told


def test_advertised_address_is_the_configured_one_before_all() -> None:
    assert advertised_ip(BrokerConfig(broker_ip1="10.1.1.1", bind_address="10.2.2.2")) == "10.1.1.1"
    assert advertised_ip(BrokerConfig(bind_address="10.2.2.2")) == "10.2.2.2"


@pytest.mark.parametrize("bind_address", ["0.0.0.0", "::", ""])
def test_advertised_address_when_all_are_listened_on_is_that_of_the_way_to_the_name_server(bind_address: str) -> None:
    config = BrokerConfig(bind_address=bind_address, namesrv_addr="127.0.0.1:9876;10.0.0.1:9876")
    assert advertised_ip(config) == "127.0.0.1"


def test_advertised_address_without_any_way_out_is_the_machine_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_way(*_: Any, **__: Any) -> Any:
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", no_way)
    assert advertised_ip(BrokerConfig(namesrv_addr="ns.example:9876")) == "127.0.0.1"


def test_name_server_that_is_no_address_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="'localhost' is no address"):
        advertised_ip(BrokerConfig(namesrv_addr="localhost"))


@pytest.mark.parametrize(
    ("ip", "address"),
    [("10.5.5.5", "10.5.5.5:10911"), ("fd00::5", "[fd00::5]:10911"), ("localhost", "localhost:10911")],
)
def test_advertised_address_may_be_any_kind_and_ids_begin_with_numbers(ip: str, address: str) -> None:
    async def scene() -> None:
        world = world_of(FIRST, broker_ip1=ip)
        registrar = await Registrar().listen(world, FIRST)
        await world.start()
        assert world.broker.address == registrar.told[0][0].broker_address == address
        answer = await world.peer().send()
        assert answer.code == 0
        if ip == "localhost":
            assert answer.all_fields()["msgId"].startswith("7F000001")
        await world.stop()

    run(scene)


def test_client_of_a_broker_is_closed_with_it() -> None:
    async def scene() -> None:
        world = world_of(FIRST)
        await Registrar().listen(world, FIRST)
        await world.start()
        client = world.broker._client
        assert isinstance(client, Client)
        assert client.addresses == [f"{FIRST}:9876"]
        await world.stop()
        assert client.addresses == []

    run(scene)
