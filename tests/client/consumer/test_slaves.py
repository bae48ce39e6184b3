"""Consumers whose master goes away and comes back: they read its slave meanwhile, and nothing is lost or skipped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fusee.broker import Broker, BrokerConfig
from fusee.client.consumer.pull import PullConsumer
from fusee.errors import TransportError
from fusee.store.simulated_disk import SimulatedDisk
from tests.broker.log_world import small_store
from tests.client.consumer.stage import GROUP, TOPIC, Notes, Stage, queue
from tests.client.world import CLUSTER, ROOT, ClusterWorld, Life

SLAVE_HOST = "10.0.0.101"
READABLE = {"slave_read_enable": True}


class SlaveStage(Stage):
    """A stage whose broker has a slave."""

    def __init__(self, world: ClusterWorld) -> None:
        super().__init__(world)
        self.slave_disk = SimulatedDisk(world.clock)
        self.slave: Broker

    async def start_slave(self, **settings: Any) -> None:
        world = self.world
        life = Life(world, SLAVE_HOST)
        self.slave = Broker(
            BrokerConfig(
                **{
                    "broker_name": "broker-a",
                    "broker_cluster_name": CLUSTER,
                    "broker_id": 1,
                    "broker_role": "SLAVE",
                    "bind_address": SLAVE_HOST,
                    "listen_port": 10911,
                    "namesrv_addr": world.name_server_text,
                    **world.settings,
                    **settings,
                }
            ),
            small_store(),
            store_path=ROOT,
            network=life,
            files=self.slave_disk,
            clock=world.clock,
            timers=life,
            seed=9,
        )
        await world.do(self.slave.start())
        await world.advance(3.0)
        replica = self.slave.replica
        assert replica is not None
        assert replica.is_connected


def stage(scene: Callable[[SlaveStage], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def run() -> None:
        world = ClusterWorld(**settings)
        await world.start()
        on = SlaveStage(world)
        on.sender = await world.session()
        world.create_topic(TOPIC, 1)
        await on.start_slave()
        try:
            await scene(on)
        finally:
            for consumer in on.consumers:
                await world.do(consumer.close())
            await world.do(on.slave.stop())
            await world.close()

    asyncio.run(run())


def test_master_killed_then_slave_is_read_within_a_second() -> None:
    async def scene(on: SlaveStage) -> None:
        await on.send(*"abc")
        await on.world.advance(1.0)
        on.world.kill("broker-a")
        await on.world.settle()
        notes = Notes()
        # It finds out by itself that nobody is where the name servers say.
        await on.consumer(notes)
        await on.world.advance(1.0)
        assert notes.bodies == ["a", "b", "c"]

    stage(scene)


def test_reader_at_the_end_goes_to_the_slave_and_back_and_misses_nothing() -> None:
    async def scene(on: SlaveStage) -> None:
        notes = Notes()
        consumer = await on.consumer(notes)
        await on.send(*"abc")
        await on.world.advance(6.0)
        assert notes.bodies == ["a", "b", "c"]
        on.world.kill("broker-a")
        await on.world.advance(1.0)
        assert not consumer.faults, "its pull is held by the slave"
        await on.world.advance(20.0)
        await on.world.start_broker("broker-a")
        await on.send("d")
        await on.world.advance(5.0)
        assert notes.bodies == ["a", "b", "c", "d"]
        await on.world.advance(6.0)
        assert on.committed() == 4
        assert not consumer.faults

    stage(scene)


def test_what_was_consumed_from_the_slave_is_not_consumed_again_when_the_master_is_back() -> None:
    async def scene(on: SlaveStage) -> None:
        await on.send(*"abcd")
        await on.world.advance(2.0)
        on.world.kill("broker-a")
        await on.world.settle()
        first = Notes()
        consumer = await on.consumer(first)
        await on.world.advance(2.0)
        assert first.bodies == ["a", "b", "c", "d"]
        await on.world.do(consumer.close())
        on.consumers.remove(consumer)
        assert on.slave.offsets.query(GROUP, TOPIC, 0) == 4
        await on.world.start_broker("broker-a")
        await on.world.advance(10.0)
        assert on.committed() == 4
        second = Notes()
        await on.consumer(second)
        await on.send("e")
        await on.world.advance(2.0)
        assert second.bodies == ["e"]

    stage(scene)


def test_reader_far_behind_is_sent_to_the_slave() -> None:
    async def scene(on: SlaveStage) -> None:
        # Nothing counts as being in the master's memory.
        on.world.broker.store.reconfigure(small_store(access_message_in_memory_max_ratio=0))
        on.slave.store.reconfigure(small_store(access_message_in_memory_max_ratio=0))
        await on.send(*(f"m{number}" for number in range(40)))
        await on.world.advance(1.0)
        notes = Notes()
        await on.consumer(notes, pull_batch_size=8)
        await on.world.advance(2.0)
        assert notes.bodies == [f"m{number}" for number in range(40)]
        on.slave.statistics.sample()
        assert on.slave.statistics.days.got.now >= 24

    stage(scene, **READABLE)


def test_connection_to_the_master_cut_and_made_again_changes_nothing() -> None:
    async def scene(on: SlaveStage) -> None:
        notes = Notes()
        consumer = await on.consumer(notes)
        await on.send("a")
        await on.world.advance(1.0)
        for _ in range(3):
            on.world.network.cut(consumer._session.ip, "10.0.0.1")
            await on.world.advance(1.0)
        await on.send("b")
        await on.world.advance(1.0)
        assert notes.bodies == ["a", "b"]
        assert not consumer.faults

    stage(scene)
    stage(scene, **READABLE)


def test_pull_consumer_goes_to_the_slave_and_back() -> None:
    async def scene(on: SlaveStage) -> None:
        session = await on.world.session()
        consumer = PullConsumer(session, TOPIC, group=GROUP, consume_from="first", auto_commit=False)
        await on.world.do(consumer.start())
        await on.send("a", "b")
        await on.world.advance(2.0)
        polled = await on.world.do(consumer.poll(timeout_ms=1_000))
        assert [message.body for message in polled] == [b"a", b"b"]
        on.world.kill("broker-a")
        await on.world.advance(3.0)
        await on.world.do(consumer.seek(queue(), 1))
        polled = await on.world.do(consumer.poll(timeout_ms=1_000))
        assert [message.body for message in polled] == [b"b"]
        await on.world.do(consumer.commit())
        assert on.slave.offsets.query(GROUP, TOPIC, 0) == 2
        await on.world.start_broker("broker-a")
        await on.world.advance(5.0)
        await on.send("c")
        await on.world.advance(3.0)
        polled = await on.world.do(consumer.poll(timeout_ms=1_000))
        assert [message.body for message in polled] == [b"c"]
        assert on.committed() == 2
        await on.world.do(consumer.close())

    stage(scene)


def test_queue_read_by_hand_is_read_from_the_slave_when_its_master_is_gone() -> None:
    async def scene(on: SlaveStage) -> None:
        session = await on.world.session()
        consumer = PullConsumer(session, group=GROUP)
        await on.world.do(consumer.start())
        await on.send("a")
        await on.world.advance(1.0)
        assert len((await on.world.do(consumer.pull(queue(), 0, 32))).messages) == 1
        on.world.kill("broker-a")
        await on.world.settle()
        found = await on.world.do(consumer.pull(queue(), 0, 32))
        assert [message.body for message in found.messages] == [b"a"]
        await on.world.do(consumer.close())

    stage(scene)


def test_queue_read_by_hand_tells_why_when_neither_master_nor_slave_serves() -> None:
    async def scene(on: SlaveStage) -> None:
        session = await on.world.session()
        consumer = PullConsumer(session, group=GROUP)
        await on.world.do(consumer.start())
        await on.send("a")
        await on.world.do(consumer.pull(queue(), 0, 32))
        # Only this client does not reach the master: the slave, which does, refuses.
        on.world.network.weather(session.ip, "10.0.0.1").held = True
        with pytest.raises(TransportError):
            await on.world.do(consumer.pull(queue(), 0, 32))
        on.world.network.release(session.ip, "10.0.0.1")
        await on.world.do(consumer.close())

    stage(scene)
