"""A slave that acts for its master: name servers, two broker groups and clients in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fusee.broker import Broker, BrokerConfig
from fusee.broker.acting import Acting
from fusee.message.record import iterate_records
from fusee.namesrv import NameServer, NameServerConfig
from fusee.store.simulated_disk import SimulatedDisk
from fusee.wire.bodies.locks import LockBatchRequest, LockBatchResponse
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.route import TopicRouteData, decode_route
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.headers.namesrv import GetRouteInfo
from fusee.wire.headers.replication import NotifyMinBrokerIdChange
from fusee.wire.lenient_json import decode_json, dumps_fastjson
from tests.broker.log_world import small_store
from tests.broker.world import CLUSTER, ROOT, bodies_in
from tests.client.world import Life
from tests.replication.world import MASTER, SLAVE, GroupWorld

NAME_SERVER = "10.0.1.1"
ELSEWHERE = "10.0.0.9"


class ActingWorld(GroupWorld):
    """A group whose slave may act for its master, and the master of another group."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            enable_slave_acting_master=True,
            enable_remote_escape=True,
            ha_master_address="",
            namesrv_addr=f"{NAME_SERVER}:9876",
            **settings,
        )
        self.elsewhere: Broker | None = None

    async def start_all(self) -> None:
        await self.start_names()
        await self.start()
        await self.start(SLAVE)
        self.master.topics.put(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4))
        await self.in_step()
        await self.advance(2.0)

    async def start_names(self, **settings: Any) -> None:
        config = NameServerConfig(
            bind_address=NAME_SERVER,
            listen_port=9876,
            kv_config_path="",
            support_acting_master=True,
            **settings,
        )
        self._name_server = NameServer(
            config, network=self.network.host(NAME_SERVER), clock=self.clock, timers=self.clock
        )
        await self.within(5.0, asyncio.ensure_future(self._name_server.start()))

    async def start_elsewhere(self, topic: str = "orders") -> Broker:
        life = Life(self, ELSEWHERE)
        self.elsewhere = Broker(
            BrokerConfig(
                broker_name="broker-b",
                broker_cluster_name=CLUSTER,
                bind_address=ELSEWHERE,
                listen_port=10911,
                namesrv_addr=f"{NAME_SERVER}:9876",
            ),
            small_store(),
            store_path=ROOT,
            network=life,
            files=SimulatedDisk(self.clock),
            clock=self.clock,
            timers=life,
            seed=8,
        )
        await self.within(30.0, asyncio.ensure_future(self.elsewhere.start()))
        self.elsewhere.topics.put(TopicConfig(topic_name=topic, read_queue_nums=2, write_queue_nums=2))
        await self.settle()
        return self.elsewhere

    async def close(self) -> None:
        if self.elsewhere is not None:
            await self.within(60.0, asyncio.ensure_future(self.elsewhere.stop()))
        await super().close()

    async def route(self, topic: str = "orders") -> TopicRouteData:
        client = self.client()
        header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
        command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        answer = await self.within(1.0, asyncio.ensure_future(client.request(f"{NAME_SERVER}:9876", command)))
        return decode_route(answer.body)

    @property
    def acting(self) -> Acting:
        part = self.slave.slave
        assert part is not None
        return part.acting

    async def is_acting(self, seconds: float = 15.0) -> None:
        await self.until(lambda: self.acting.is_acting, seconds, "the slave acts")

    async def delay(self, *bodies: bytes, level: int = 1) -> None:
        for body in bodies:
            assert await self.send(body, properties={"DELAY": str(level), "KEYS": body.decode()}) == 0


def play(scene: Callable[[ActingWorld], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def run() -> None:
        world = ActingWorld(**settings)
        try:
            await scene(world)
        finally:
            await world.close()

    asyncio.run(run())


def stored(broker: Broker, topic: str = "orders") -> list[bytes]:
    """The bodies of all messages of a topic, queue by queue."""
    broker.writer.make_visible()
    bodies: list[bytes] = []
    for queue_id in range(8):
        at = 0
        while at < broker.store.max_offset(topic, queue_id):
            found = broker.store.get(topic, queue_id, at, 32)
            bodies += [message.body for piece in found.slices for message in iterate_records(bytes(piece))]
            at = max(found.next_offset, at + 1)
    return bodies


def test_name_servers_show_the_slave_as_the_master_of_a_group_that_can_only_be_read() -> None:
    async def scene(world: ActingWorld) -> None:
        await world.start_all()
        [before] = (await world.route()).broker_datas
        assert before.broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
        assert before.enable_acting_master
        world.kill(MASTER)
        await world.is_acting()
        route = await world.route()
        assert route.broker_datas[0].broker_addrs == {0: "10.0.0.2:10911"}
        assert route.queue_datas[0].perm == 4

    play(scene)


def test_silent_master_is_taken_for_gone_after_ten_seconds() -> None:
    async def scene(world: ActingWorld) -> None:
        await world.start_all()
        await world.advance(30.0)
        assert not world.acting.is_acting
        for host in ("10.0.0.2", NAME_SERVER):
            world.network.weather("10.0.0.1", host).held = True
        await world.advance(9.0)
        assert not world.acting.is_acting
        await world.is_acting(25.0)

    play(scene)


def test_word_of_a_name_server_is_enough() -> None:
    async def scene(world: ActingWorld) -> None:
        await world.start_all()
        world.kill(MASTER)
        await world.settle()
        assert not world.acting.is_acting
        header = NotifyMinBrokerIdChange(min_broker_id=1)
        await world.within(0.0, world.begin(SLAVE, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header))
        assert world.acting.is_acting

    play(scene)


def test_slave_does_not_act_while_it_follows_its_master() -> None:
    async def scene(world: ActingWorld) -> None:
        await world.start_all()
        header = NotifyMinBrokerIdChange(min_broker_id=1)
        await world.within(0.0, world.begin(SLAVE, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header))
        assert not world.acting.is_acting

    play(scene)


def test_acting_slave_is_read_and_its_queues_can_be_locked() -> None:
    async def scene(world: ActingWorld) -> None:
        await world.start_all()
        assert await world.send(b"hello") == 0
        await world.in_step()
        world.kill(MASTER)
        await world.is_acting()
        assert bodies_in(await world.pull(SLAVE)) == [b"hello"]
        queue = QueueRef(topic="orders", broker_name="broker-a", queue_id=0)
        body = dumps_fastjson(LockBatchRequest(client_id="me", consumer_group="consumers", queues=[queue]))
        answer = await world.within(0.0, world.begin(SLAVE, RequestCode.LOCK_BATCH_MQ, None, body))
        assert decode_json(answer.body, LockBatchResponse).locked == [queue]

    play(scene)


def test_delayed_messages_are_delivered_elsewhere_once_and_in_order() -> None:
    async def scene(world: ActingWorld) -> None:
        await world.start_all()
        elsewhere = await world.start_elsewhere()
        await world.delay(b"early")
        await world.advance(1.2)
        assert stored(world.master) == [b"early"]
        await world.delay(*(b"d%d" % number for number in range(10)), level=3)
        await world.in_step()
        world.kill(MASTER)
        await world.is_acting()
        await world.advance(20.0)
        assert sorted(stored(elsewhere)) == [b"d%d" % number for number in range(10)]
        message = next(iterate_records(bytes(elsewhere.store.get("orders", 0, 0, 1).slices[0])))
        assert "DELAY" not in message.properties
        assert message.properties["KEYS"] == message.body.decode()
        # Each queue has its share, in order.
        for queue_id in (0, 1):
            found = elsewhere.store.get("orders", queue_id, 0, 32)
            bodies = [each.body for piece in found.slices for each in iterate_records(bytes(piece))]
            assert bodies == sorted(bodies)
            assert len(bodies) == 5

    play(scene)


def test_master_that_comes_back_delivers_only_what_was_not() -> None:
    async def scene(world: ActingWorld) -> None:
        await world.start_all()
        elsewhere = await world.start_elsewhere()
        await world.delay(b"soon", level=3)
        await world.delay(b"late", level=4)
        await world.in_step()
        await world.advance(1.0)
        world.kill(MASTER)
        await world.is_acting()
        await world.advance(12.0)
        assert stored(elsewhere) == [b"soon"]
        await world.start(MASTER)
        assert not world.acting.is_acting
        await world.advance(30.0)
        assert stored(elsewhere) == [b"soon"]
        assert stored(world.master) == [b"late"]

    play(scene)


def test_delayed_message_that_nobody_else_can_take_waits_for_its_master() -> None:
    async def scene(world: ActingWorld) -> None:
        await world.start_all()
        elsewhere = await world.start_elsewhere("payments")
        await world.delay(b"mine", level=1)
        await world.in_step()
        world.kill(MASTER)
        await world.is_acting()
        await world.advance(15.0)
        assert stored(elsewhere) == []
        await world.start(MASTER)
        await world.advance(3.0)
        assert stored(world.master) == [b"mine"]

    play(scene)


def test_slave_without_escape_delivers_nothing() -> None:
    async def scene(world: ActingWorld) -> None:
        world.settings["enable_remote_escape"] = False
        await world.start_all()
        elsewhere = await world.start_elsewhere()
        await world.delay(b"mine", level=1)
        await world.in_step()
        world.kill(MASTER)
        await world.is_acting()
        await world.advance(5.0)
        assert stored(elsewhere) == []

    play(scene)
