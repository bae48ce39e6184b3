"""A client as brokers and name servers see it: routes, heartbeats, good-bye."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from fusee.client.config import ClientConfig, ServiceState
from fusee.client.results import Durability, SendStatus
from fusee.client.session import UNUSED_ROUTES_MAX, Session, _Promise
from fusee.errors import ClientStateError, ConfigError, ConnectError, TopicNotFoundError
from fusee.message.model import MessageQueue, StoredMessage
from fusee.transport.interfaces import Listening, Network
from fusee.transport.link import Link
from fusee.wire.bodies.heartbeat import ConsumerData
from fusee.wire.bodies.route import TopicRouteData
from fusee.wire.bodies.stats import ConsumeDirectlyResult, ConsumerRunningInfo
from fusee.wire.codes import LanguageCode
from fusee.wire.command import Command
from fusee.wire.headers.transaction import CheckTransactionState
from tests.client.scripted import ScriptedCluster
from tests.client.scripted import play as play_scripted
from tests.client.world import ClusterWorld, play


class _Producer:
    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def published_topics(self) -> Iterable[str]:
        return self.topics

    def check_transaction(self, address: str, header: CheckTransactionState, message: StoredMessage) -> None:
        raise AssertionError("no transaction here")


class _Consumer:
    def __init__(self, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self.changes = 0
        self.persisted = 0

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(group_name=self.group)

    def subscribed_topics(self) -> Iterable[str]:
        return (self.topic,)

    def members_changed(self) -> None:
        self.changes += 1

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        raise AssertionError("nobody resets here")

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo()

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        return ConsumeDirectlyResult()

    async def persist_offsets(self) -> None:
        self.persisted += 1


def test_publish_route_when_topic_unknown_assumes_queues_of_default_topic() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await world.session()
        route = await world.do(session.publish_route("fresh", default_queue_nums=3))
        assert route.is_assumed
        assert [queue.queue_id for queue in route.write_queues] == [0, 1, 2]
        with pytest.raises(
            TopicNotFoundError, match="'fresh' does not exist, says name server 10.0.1.1:9876"
        ) as caught:
            await world.do(session.read_route("fresh"))
        assert (caught.value.topic, caught.value.code, caught.value.retryable) == ("fresh", 17, True)

    play(scene)


def test_read_route_of_a_topic_that_a_send_makes_is_waited_for() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await world.session()
        assert (await world.do(session.publish_route("fresh"))).is_assumed
        reading = asyncio.ensure_future(session.read_route("fresh"))
        await world.advance(0.5)
        assert not reading.done()
        world.create_topic("fresh", 2)
        route = await world.within(1.0, reading)
        assert not route.is_assumed
        assert len(route.read_queues) == 2

    play(scene)


def test_publish_route_when_no_broker_makes_topics_says_what_to_do() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await world.session()
        with pytest.raises(TopicNotFoundError, match="no broker makes topics by itself"):
            await world.do(session.publish_route("fresh"))

    play(scene, auto_create_topic_enable=False)


def test_start_when_no_name_server_answers_fails_and_stays_failed() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = world.new_session(name_servers="10.9.9.9:9876;10.9.9.8:9876")
        with pytest.raises(ConnectError, match="10.9.9.9:9876: cannot connect.*") as caught:
            await world.do(session.start())
        assert "10.9.9.8:9876" in str(caught.value)
        assert session.state is ServiceState.START_FAILED
        with pytest.raises(ClientStateError, match="failed to start"):
            session.check_running()

    play(scene)


def test_route_when_changed_is_followed_and_told() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 2)
        await world.settle()
        session = await world.session()
        session.register_producer("p", _Producer("orders"))
        heard: list[str] = []
        session.route_listeners.append(heard.append)
        assert len((await world.do(session.publish_route("orders"))).write_queues) == 2
        world.create_topic("orders", 5)
        await world.advance(31)
        route = session.cached_route("orders")
        assert route is not None
        assert len(route.write_queues) == 5
        assert heard == ["orders", "orders"]

    play(scene)


def test_route_when_every_name_server_forgot_it_is_kept() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 2)
        await world.settle()
        session = await world.session()
        session.register_producer("p", _Producer("orders"))
        await world.do(session.publish_route("orders"))
        world.broker.topics.delete("orders")
        await world.advance(61)
        assert session.cached_route("orders") is not None

    play(scene)


def test_refresh_when_asked_by_many_at_once_asks_once() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 2)
        await world.settle()
        session = await world.session()
        asked = 0
        request = session.name_servers.request

        async def counted(*args: object) -> object:
            nonlocal asked
            asked += 1
            return await request(*args)  # type: ignore[arg-type]

        session.name_servers.request = counted  # type: ignore[method-assign, assignment]
        routes = await world.do(
            asyncio.wait_for(asyncio.gather(*(session.read_route("orders") for _ in range(9))), None)
        )
        assert len({id(route) for route in routes}) == 1
        assert asked == 1

    play(scene)


def test_heartbeat_reaches_every_broker_and_members_hear_of_each_other() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 2)
        await world.settle()
        members: list[tuple[Session, _Consumer]] = []
        for _ in range(2):
            session = await world.session()
            consumer = _Consumer("billing", "orders")
            session.register_consumer("billing", consumer)
            await world.do(session.read_route("orders"))
            await world.do(session.heartbeat_all())
            await world.settle()
            members.append((session, consumer))
        for broker in world.brokers.values():
            group = broker.consumers.group("billing")
            assert group is not None
            assert {member.client_id for member in group.members.values()} == {s.client_id for s, _ in members}
        (first, watching), (second, _) = members
        heard = watching.changes
        assert heard > 0
        ids = await world.do(first.calls.consumer_ids(world.address(), "billing"))
        assert sorted(ids) == sorted([first.client_id, second.client_id])
        await world.do(second.close())
        await world.advance(1)
        assert watching.changes > heard
        assert await world.do(first.calls.consumer_ids(world.address(), "billing")) == [first.client_id]

    play(scene, brokers=2)


def test_connection_when_made_again_is_greeted_with_a_heartbeat() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 2)
        await world.settle()
        session = await world.session()
        session.register_consumer("billing", _Consumer("billing", "orders"))
        await world.do(session.read_route("orders"))
        await world.do(session.heartbeat_all())
        world.kill("broker-a")
        await world.advance(1)
        await world.start_broker("broker-a")
        assert world.broker.consumers.group("billing") is None
        await world.do(session.calls.max_offset(world.address(), "orders", 0))
        await world.settle()
        assert world.broker.consumers.group("billing") is not None

    play(scene)


def test_register_when_group_is_taken_says_how_to_have_two() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await world.session()
        session.register_consumer("billing", _Consumer("billing", "orders"))
        with pytest.raises(ConfigError, match="instance_name"):
            session.register_consumer("billing", _Consumer("billing", "orders"))

    play(scene)


def test_offsets_are_persisted_every_interval() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await world.session(persist_consumer_offset_interval_ms=1_000)
        consumer = _Consumer("billing", "orders")
        session.register_consumer("billing", consumer)
        await world.advance(3.5)
        assert consumer.persisted == 3

    play(scene)


@pytest.mark.parametrize(
    ("status", "wait", "promised"),
    [
        (SendStatus.SEND_OK, True, Durability.DISK),
        (SendStatus.FLUSH_DISK_TIMEOUT, True, Durability.MEMORY),
        (SendStatus.SEND_OK, False, Durability.MEMORY),
    ],
)
def test_durability_is_learnt_from_the_broker(status: SendStatus, wait: bool, promised: Durability) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 2)
        await world.settle()
        session = await world.session()
        await world.do(session.read_route("orders"))
        assert session.durability("broker-a", SendStatus.SEND_OK) is Durability.MEMORY
        await world.do(session.learn("broker-a"))
        session._promises["broker-a"].flushes = True
        assert session.durability("broker-a", status, wait) is promised

    play(scene)


@pytest.mark.parametrize(
    ("language", "settings", "promised"),
    [
        (LanguageCode.PYTHON, "inSyncReplicas=1", Durability.REPLICA),
        (LanguageCode.JAVA, "inSyncReplicas=1", Durability.DISK),
        (LanguageCode.JAVA, "inSyncReplicas=2", Durability.REPLICA),
        (LanguageCode.JAVA, "", Durability.REPLICA),
        (LanguageCode.JAVA, "inSyncReplicas=2\nenableControllerMode=true\nminInSyncReplicas=1", Durability.REPLICA),
        (
            LanguageCode.JAVA,
            "inSyncReplicas=2\nenableControllerMode=true\nallAckInSyncStateSet=true\nminInSyncReplicas=1",
            Durability.DISK,
        ),
        (
            LanguageCode.JAVA,
            "inSyncReplicas=3\nenableSlaveActingMaster=true\nenableAutoInSyncReplicas=true\nminInSyncReplicas=2",
            Durability.REPLICA,
        ),
    ],
)
def test_durability_of_a_sync_master_is_what_its_kind_of_broker_does(
    language: LanguageCode, settings: str, promised: Durability
) -> None:
    """Since 5.0 a SYNC_MASTER of RocketMQ waits for no slave unless inSyncReplicas is more than 1; ours does."""

    async def scene(world: ClusterWorld) -> None:
        session = await world.session()
        body = f"brokerRole=SYNC_MASTER\nflushDiskType=SYNC_FLUSH\n{settings}\n".encode()
        session._promises["broker-a"] = _Promise.of(Command(0, language=language, body=body))
        assert session.durability("broker-a", SendStatus.SEND_OK) is promised
        assert session.durability("broker-a", SendStatus.SLAVE_NOT_AVAILABLE) is Durability.DISK

    play(scene)


def test_name_server_given_by_its_host_name_is_not_greeted_as_a_broker() -> None:
    class Resolving:
        """A network that knows a host by another name, as a resolver does."""

        def __init__(self, network: Network) -> None:
            self._network = network

        async def listen(self, link_factory: Any, host: str, port: int) -> Listening:
            return await self._network.listen(link_factory, host, port)

        async def connect(self, link_factory: Callable[[], Link], host: str, port: int) -> Link:
            return await self._network.connect(link_factory, "10.0.1.1" if host == "names" else host, port)

    async def scene(world: ClusterWorld) -> None:
        config = ClientConfig(name_servers="names:9876", client_ip="10.0.9.1")
        session = Session(
            config, network=Resolving(world.network.host("10.0.9.1")), clock=world.clock, timers=world.clock
        )
        await world.do(session.start())
        session.register_producer("group", _Producer("orders"))
        world.network.cut("10.0.9.1", "10.0.1.1")
        await world.settle()
        await world.do(session.publish_route("orders"))
        link = session.transport.open_link("names:9876")
        assert link is not None
        assert link.remote_address == "10.0.1.1:9876"
        assert "greeting" not in link.attachments
        await world.do(session.close())

    play(scene)


def test_routes_when_one_topic_cannot_be_told_are_followed_for_the_others() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        for topic in ("a", "b"):
            cluster.route(topic, 1)
        session = await cluster.session()
        session.register_producer("group", _Producer("a", "b"))
        await cluster.do(session.publish_route("a"))
        await cluster.do(session.publish_route("b"))
        cluster.routes["a"] = cast("TopicRouteData", {"no": "route"})
        cluster.route("b", 2)
        await cluster.advance(31)
        route = session.cached_route("b")
        assert route is not None
        assert len(route.write_queues) == 2

    play_scripted(scene)


def test_routes_that_nobody_needs_are_not_kept_without_end() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("needed", 1)
        session = await cluster.session()
        session.register_producer("group", _Producer("needed"))
        await cluster.do(session.publish_route("needed"))
        for number in range(UNUSED_ROUTES_MAX + 10):
            cluster.route(f"other-{number}", 1)
            await cluster.do(session.refresh_route(f"other-{number}"))
        await cluster.advance(31)
        assert session.cached_route("needed") is not None
        assert session.cached_route("other-9") is None
        assert session.cached_route("other-10") is not None
        assert len(session.routes.topics) == UNUSED_ROUTES_MAX + 1

    play_scripted(scene)


def test_client_id_has_the_form_of_java() -> None:
    async def scene(world: ClusterWorld) -> None:
        plain = await world.session("10.0.9.77")
        ip, _, instance = plain.client_id.partition("@")
        assert ip == "10.0.9.77"
        assert instance.count("#") == 1
        named = await world.session("10.0.9.78", instance_name="worker", unit_name="u1")
        assert named.client_id == "10.0.9.78@worker@u1"

    play(scene)


@pytest.mark.parametrize(
    "options", [{"instance_name": "a@b"}, {"instance_name": ""}, {"heartbeat_broker_interval_ms": 0}]
)
def test_config_when_senseless_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ClientConfig(name_servers="127.0.0.1:9876", **options)  # type: ignore[arg-type]
