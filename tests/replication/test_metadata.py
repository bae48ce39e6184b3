"""A slave's tables beside a whole master: what the master has, the slave has soon after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from fusee.broker.config import BrokerConfig
from fusee.broker.delay import DelayDelivery
from fusee.broker.delay_progress import DelayOffsets, delay_document
from fusee.broker.groups import GroupTable
from fusee.broker.offsets import OffsetTable
from fusee.broker.slave_tables import SlaveTables
from fusee.broker.topics import TopicTable
from fusee.replication import metadata
from fusee.replication.metadata import WHOLE_INTERVAL, ChangesTold, CommitAside, MetadataCopy
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.client import Client, ClientSettings
from fusee.transport.link import Link
from fusee.wire.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from fusee.wire.bodies.offsets import ConsumerOffsetTable
from fusee.wire.bodies.topic import DataVersion, TopicConfig, TopicConfigTable
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.headers.admin import GetAllTopicConfigResponse
from fusee.wire.headers.offset import GetMaxOffsetResponse, UpdateConsumerOffset
from fusee.wire.lenient_json import dumps_fastjson
from tests.broker.log_world import LogWorld
from tests.broker.world import ADDRESS, BrokerWorld, MemoryWorld

FOLDER = Path("/slave/config")


class SlaveSide:
    """The tables of a slave on a host of its own, and the copy that fills them."""

    def __init__(self, world: MemoryWorld, address: str | None = ADDRESS) -> None:
        config = BrokerConfig(broker_name="broker-a", broker_id=1, broker_role="SLAVE")
        files = SimulatedDisk(world.clock)
        parts: dict[str, Any] = {"config": config, "folder": FOLDER, "files": files, "clock": world.clock}
        self.topics = TopicTable(**parts)
        self.groups = GroupTable(**parts)
        self.offsets = OffsetTable(**parts)
        log_world = LogWorld()
        self.store = log_world.store
        self.document = delay_document(FOLDER / "delayOffset.json", files)
        self.delay = DelayDelivery(
            writer=log_world.writer,
            document=self.document,
            config=config,
            clock=world.clock,
            timers=world.clock,
            worker=log_world.worker,
        )
        self.client = Client(
            network=world.network.host("10.0.0.2"),
            clock=world.clock,
            timers=world.clock,
            settings=ClientSettings(idle_timeout=1e6),
        )
        self.master = address
        self.copy = MetadataCopy(
            tables=SlaveTables(
                topics=self.topics, groups=self.groups, offsets=self.offsets, delay=self.delay, store=self.store
            ),
            master=lambda: self.master,
            client=self.client,
            clock=world.clock,
            timers=world.clock,
        )

    def has_failed(self) -> bool:
        return self.copy.failure is not None


def play(scene: Callable[[BrokerWorld, SlaveSide], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene with a master and a slave's tables."""

    async def run() -> None:
        world = await BrokerWorld(**settings).start()
        slave = SlaveSide(world)
        try:
            await scene(world, slave)
        finally:
            slave.copy.stop()
            await slave.client.close()
            await world.stop()

    asyncio.run(run())


def offsets_of(table: OffsetTable) -> dict[tuple[str, str], dict[int, int]]:
    return {(group, topic): dict(queues) for group, topic, queues in table.entries()}


def test_first_round_copies_everything() -> None:
    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        broker = world.broker
        broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=3))
        broker.groups.put(SubscriptionGroupConfig(group_name="readers", retry_max_times=2))
        broker.groups.set_readable("readers", "orders", False)
        broker.offsets.commit("readers", "orders", 0, 5)
        slave.copy.start()
        await world.settle()
        assert dict(slave.topics.all()) == dict(broker.topics.all())
        assert slave.topics.version == broker.topics.version
        assert dict(slave.groups.all()) == dict(broker.groups.all())
        assert not slave.groups.is_readable("readers", "orders")
        assert offsets_of(slave.offsets) == offsets_of(broker.offsets)
        assert slave.copy.failure is None
        assert slave.copy.copied_at is not None

    play(scene)


def test_tables_are_copied_page_by_page() -> None:
    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        broker = world.broker
        for number in range(50):
            broker.topics.put(TopicConfig(topic_name=f"topic-{number}"))
            broker.groups.put(SubscriptionGroupConfig(group_name=f"group-{number}"))
            broker.groups.set_readable(f"group-{number}", "orders", False)
        slave.copy.start()
        await world.settle()
        assert dict(slave.topics.all()) == dict(broker.topics.all())
        assert dict(slave.groups.all()) == dict(broker.groups.all())
        assert dict(slave.groups.forbidden_table) == dict(broker.groups.forbidden_table)

    play(scene, split_metadata_size=7)


def test_change_is_copied_within_a_second() -> None:
    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        broker = world.broker
        broker.topics.put(TopicConfig(topic_name="doomed"))
        broker.offsets.commit("readers", "doomed", 0, 5)
        slave.copy.start()
        await world.settle()
        broker.topics.delete("doomed")
        broker.offsets.remove_topic("doomed")
        broker.topics.put(TopicConfig(topic_name="orders"))
        broker.groups.put(SubscriptionGroupConfig(group_name="readers"))
        broker.offsets.commit("readers", "orders", 1, 9)
        await world.advance(1.0)
        assert slave.topics.get("doomed") is None
        assert slave.topics.get("orders") is not None
        assert slave.groups.get("readers") is not None
        assert offsets_of(slave.offsets) == {("readers", "orders"): {1: 9}}

    play(scene)


def test_what_a_slave_made_by_itself_goes() -> None:
    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        slave.copy.start()
        await world.settle()
        slave.topics.put(TopicConfig(topic_name="own"))
        slave.groups.put(SubscriptionGroupConfig(group_name="own"))
        await world.advance(1.0)
        assert slave.topics.get("own") is None
        assert slave.groups.get("own") is None

    play(scene)


def test_master_away_leaves_the_tables_as_they_were() -> None:
    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        slave.copy.start()
        await world.settle()
        slave.master = "10.0.0.77:10911"
        await world.advance(10.0)
        assert slave.has_failed()
        assert slave.topics.get("orders") is not None
        slave.master = None
        await world.advance(2.0)
        slave.master = ADDRESS
        world.broker.topics.put(TopicConfig(topic_name="payments"))
        await world.advance(2.0)
        assert not slave.has_failed()
        assert slave.topics.get("payments") is not None

    play(scene)


def test_offsets_committed_on_the_slave_are_told_to_the_master() -> None:
    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        broker = world.broker
        broker.groups.put(SubscriptionGroupConfig(group_name="readers"))
        peer = world.peer()
        for _ in range(10):
            await peer.send(topic="orders", queue_id=0)
            await peer.send(topic="orders", queue_id=1)
        broker.offsets.commit("readers", "orders", 0, 3)
        broker.offsets.commit("readers", "orders", 1, 3)
        slave.copy.start()
        await world.settle()
        slave.master = None
        slave.offsets.commit("readers", "orders", 0, 8)
        slave.offsets.commit("readers", "orders", 1, 2)
        slave.offsets.commit("readers", "orders", 2, 0)
        await world.advance(5.0)
        assert broker.offsets.query("readers", "orders", 0) == 3
        slave.master = ADDRESS
        await world.advance(2.0)
        assert offsets_of(broker.offsets) == {("readers", "orders"): {0: 8, 1: 3, 2: 0}}
        assert offsets_of(slave.offsets) == offsets_of(broker.offsets)
        assert slave.offsets.own_commits == 0

    play(scene)


def test_offset_beyond_the_end_of_the_master_s_queue_is_not_told() -> None:
    """The master has lost messages that the slave has served: what comes in their place must not be skipped."""

    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        broker = world.broker
        broker.groups.put(SubscriptionGroupConfig(group_name="readers"))
        await world.peer().send(topic="orders", queue_id=0)
        slave.offsets.commit("readers", "orders", 0, 8)
        slave.copy.start()
        await world.settle()
        assert broker.offsets.query("readers", "orders", 0) == 1
        assert slave.offsets.query("readers", "orders", 0) == 1
        assert slave.offsets.own_commits == 0

    play(scene)


def test_what_was_committed_on_the_slave_moves_nobody_back_who_came_to_the_master_first() -> None:
    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        broker, peer = world.broker, world.peer()
        broker.groups.put(SubscriptionGroupConfig(group_name="readers"))
        await peer.send(topic="orders", queue_id=0)
        broker.offsets.commit("readers", "orders", 0, 9)
        place = {"consumer_group": "readers", "topic": "orders", "queue_id": 0}
        for header, expected in (
            (CommitAside(commit_offset=8, **place), 9),  # type: ignore[arg-type]
            (CommitAside(commit_offset=10, **place), 10),  # type: ignore[arg-type]
            (UpdateConsumerOffset(commit_offset=7, **place), 7),  # type: ignore[arg-type]
        ):
            asked = slave.client.request(ADDRESS, Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
            answer = await world.within(5.0, asyncio.ensure_future(asked))
            assert answer.code == 0
            assert broker.offsets.query("readers", "orders", 0) == expected

    play(scene)


def test_offset_of_a_group_that_the_master_does_not_know_is_given_up() -> None:
    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        slave.offsets.commit("strangers", "nowhere", 0, 8)
        slave.copy.start()
        await world.advance(1.0)
        assert slave.copy.failure is None
        assert slave.offsets.own_commits == 0
        assert offsets_of(world.broker.offsets) == {}

    play(scene)


def test_delay_progress_is_copied_every_ten_seconds() -> None:
    async def scene(world: BrokerWorld, slave: SlaveSide) -> None:
        slave.copy.start()
        await world.settle()
        await world.peer().send(topic="orders", queue_id=0, properties={"DELAY": "1"})
        await world.advance(9.0)
        assert slave.delay.offsets == {}
        await world.advance(25.0)
        # The master's has come further, but with a log that this slave does not have.
        assert world.broker.delay.offsets == {1: (1, 1)}
        assert slave.delay.offsets == {1: (0, 0)}
        slave.store.append_records(bytes(world.broker.store.log.chunk(0, 1 << 20)), 0)
        await world.advance(WHOLE_INTERVAL)
        saved = slave.document.load()
        assert saved is not None
        assert saved.offset_table == {1: 1}
        assert saved.log_offset is not None

    play(scene)


class JavaMaster:
    """Answers as the reference does to a slave: everything, without marks."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.committed: list[UpdateConsumerOffset] = []
        self.topics = {"T": TopicConfig(topic_name="T")}
        self.table: dict[str, dict[int, int]] = {"T@G": {0: 5}}

    def handlers(self) -> dict[RequestCode, Callable[[Command, Link], Any]]:
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.topic_page,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delays,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.commit,
        }

    def topic_page(self, command: Command, link: Link) -> Command:
        body = TopicConfigTable(data_version=DataVersion(counter=3, timestamp=1), topic_config_table=self.topics)
        return command.reply(0, GetAllTopicConfigResponse(), body=dumps_fastjson(body))

    def groups(self, command: Command, link: Link) -> Command:
        table = {"G": SubscriptionGroupConfig(group_name="G")}
        body = SubscriptionGroupTable(data_version=DataVersion(counter=4), subscription_group_table=table)
        return command.reply(body=dumps_fastjson(body))

    def offsets(self, command: Command, link: Link) -> Command:
        self.asked.append(RequestCode.GET_ALL_CONSUMER_OFFSET)
        return command.reply(body=dumps_fastjson(ConsumerOffsetTable(offset_table=self.table)))

    def delays(self, command: Command, link: Link) -> Command:
        return command.reply(body=dumps_fastjson(DelayOffsets(offset_table={3: 4})))

    def max_offset(self, command: Command, link: Link) -> Command:
        return command.reply(0, GetMaxOffsetResponse(queue_offset=100))

    def commit(self, command: Command, link: Link) -> Command:
        self.committed.append(command.read(UpdateConsumerOffset))
        return command.reply()


def test_master_without_marks_is_asked_for_all_offsets_every_ten_seconds() -> None:
    async def run() -> None:
        world = MemoryWorld()
        master = JavaMaster()
        server = await world.name_server("10.0.0.5", master.handlers())
        slave = SlaveSide(world, "10.0.0.5:9876")
        slave.copy.start()
        await world.settle()
        assert dict(slave.topics.all()) == master.topics
        assert set(slave.groups.all()) == {"G"}
        assert offsets_of(slave.offsets) == {("G", "T"): {0: 5}}
        saved = slave.document.load()
        assert saved is not None
        assert saved.offset_table == {3: 4}
        slave.offsets.commit("G", "T", 0, 7)
        master.table["T@G"][0] = 6
        await world.advance(9.0)
        assert len(master.asked) == 1
        await world.advance(2.0)
        assert len(master.asked) == 2
        assert [(each.consumer_group, each.commit_offset) for each in master.committed] == [("G", 7)]
        assert slave.offsets.query("G", "T", 0) == 7
        slave.copy.stop()
        await slave.client.close()
        await world.within(60.0, asyncio.ensure_future(server.stop()))

    asyncio.run(run())


def test_master_whose_offsets_have_no_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "OFFSETS_SIZE_MAX", 10_000)

    class Endless(JavaMaster):
        def offsets(self, command: Command, link: Link) -> Command:
            self.asked.append(RequestCode.GET_ALL_CONSUMER_OFFSET)
            body = dumps_fastjson(ConsumerOffsetTable(offset_table={f"T@G{len(self.asked)}": {0: 1}}))
            return command.reply(0, ChangesTold(mark="m", cursor=len(self.asked), is_whole=True), body=body)

    async def run() -> None:
        world = MemoryWorld()
        master = Endless()
        server = await world.name_server("10.0.0.5", master.handlers())
        slave = SlaveSide(world, "10.0.0.5:9876")
        slave.copy.start()
        await world.settle()
        assert "have more than 10000 bytes" in str(slave.copy.failure)
        assert offsets_of(slave.offsets) == {}
        slave.copy.stop()
        await slave.client.close()
        await world.within(60.0, asyncio.ensure_future(server.stop()))

    asyncio.run(run())
