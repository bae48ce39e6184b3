"""What a SYNC_MASTER promises to senders, and shows to readers: real brokers in memory."""

from __future__ import annotations

import pytest

from fusee.store.config import FlushDiskType
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.pull import ViewMessage
from tests.broker.world import HeldWorker, bodies_in, pull_header
from tests.replication.world import HOSTS, MASTER, SLAVE, GroupWorld, log_of, play

SYNC = {"broker_role": "SYNC_MASTER"}
SYNC_FLUSH = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
WAITS_NOT = {"WAIT": "false"}


def hold(world: GroupWorld, name: str = SLAVE, held: bool = True) -> None:
    """Keep everything back between the master and this slave, or let it go."""
    world.network.weather(HOSTS[MASTER], HOSTS[name]).held = held
    if not held:
        world.network.release(HOSTS[MASTER], HOSTS[name])


def test_success_means_that_the_slave_has_the_message() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        hold(world)
        sending = world.begin_send(b"a")
        await world.advance(2.0)
        assert not sending.done()
        hold(world, held=False)
        await world.settle()
        assert sending.result().code == 0
        assert log_of(world.slave) == log_of(world.master)

    play(scene, **SYNC)


def test_success_with_a_slave_that_flushes_at_once_means_that_it_is_on_its_disk() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE, store=SYNC_FLUSH)
        await world.send(b"first")
        disk = HeldWorker()
        disk.is_held = True
        world.slave.writer._log_worker = disk
        sending = world.begin_send(b"a")
        await world.advance(1.0)
        assert not sending.done()
        disk.release()
        await world.settle()
        assert sending.result().code == 0
        whole = log_of(world.master)
        world.crash(SLAVE, 3)
        await world.start(SLAVE, ha_master_address="10.9.9.9:1", store=SYNC_FLUSH)
        assert log_of(world.slave) == whole

    play(scene, **SYNC)


def test_nothing_acknowledged_is_lost_with_the_masters_disk() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        sending = [world.begin_send(b"%d" % number * 50) for number in range(40)]
        await world.settle()
        hold(world)
        sending += [world.begin_send(b"%d" % number * 50) for number in range(40, 50)]
        await world.settle()
        acknowledged = [number for number, task in enumerate(sending) if task.done() and task.result().code == 0]
        assert acknowledged == list(range(40))
        world.lose_disk(MASTER)
        await world.advance(1.0)
        world.slave.topics.put(TopicConfig(topic_name="orders"))
        bodies: list[bytes] = []
        while len(bodies) < 40:
            got = bodies_in(await world.pull(SLAVE, queue_offset=len(bodies)))
            assert got
            bodies += got
        assert bodies == [b"%d" % number * 50 for number in range(40)]

    play(scene, **SYNC, slave_read_enable=True)


def test_master_without_a_slave_says_so_and_a_slave_that_comes_changes_that() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        assert await world.send(b"a") == ResponseCode.SLAVE_NOT_AVAILABLE
        assert await world.send(b"b", properties=WAITS_NOT) == 0
        await world.start(SLAVE)
        await world.in_step()
        assert await world.send(b"c") == 0
        world.kill(SLAVE)
        await world.settle()
        assert await world.send(b"d") == ResponseCode.SLAVE_NOT_AVAILABLE

    play(scene, **SYNC)


def test_sender_that_waits_when_the_slave_dies_is_answered_at_once() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        hold(world)
        sending = world.begin_send(b"a")
        await world.advance(0.5)
        assert not sending.done()
        world.kill(SLAVE)
        await world.settle()
        assert sending.result().code == ResponseCode.SLAVE_NOT_AVAILABLE

    play(scene, **SYNC)


def test_slave_that_does_not_answer_in_time_is_told_by_its_code() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        hold(world)
        sending = world.begin_send(b"a")
        oneway = world.begin_send(b"b", properties=WAITS_NOT)
        await world.advance(2.9)
        assert oneway.result().code == 0
        assert not sending.done()
        await world.advance(0.3)
        assert sending.result().code == ResponseCode.FLUSH_SLAVE_TIMEOUT

    play(scene, **SYNC)


def test_slave_far_behind_does_not_count() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start(max_ha_transfer_byte_in_second=2_000, ha_flow_control_enable=True)
        for _ in range(20):
            assert await world.send(b"x" * 500) == ResponseCode.SLAVE_NOT_AVAILABLE
        await world.start(SLAVE)
        await world.advance(0.5)
        assert world.replica.is_connected
        assert await world.send(b"behind") == ResponseCode.SLAVE_NOT_AVAILABLE
        await world.in_step()
        assert await world.send(b"in sync", seconds=2.0) == 0

    play(scene, **SYNC, ha_max_gap_not_in_sync=4_000)


def test_more_replicas_when_asked_for_must_all_have_it() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        assert await world.send(b"a") == ResponseCode.SLAVE_NOT_AVAILABLE
        await world.start("other")
        await world.in_step("other")
        assert await world.send(b"b") == 0
        hold(world, "other")
        sending = world.begin_send(b"c")
        await world.advance(1.0)
        assert not sending.done()
        hold(world, "other", held=False)
        await world.settle()
        assert sending.result().code == 0

    play(scene, **SYNC, in_sync_replicas=3)


def test_slave_with_two_connections_counts_once() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.in_step()
        weather = world.network.weather(HOSTS[MASTER], HOSTS[SLAVE])
        weather.lossy = True
        await world.advance(1.0)
        world.replica._forget_stream()  # as the slave sees it; the master has not noticed
        weather.lossy = False
        world.replica.stop()
        world.replica.start()
        await world.advance(2.0)
        assert world.master.primary is not None
        assert len(world.master.primary.slaves) == 1
        assert await world.send(b"a") == ResponseCode.SLAVE_NOT_AVAILABLE

    play(scene, **SYNC, in_sync_replicas=3)


def test_too_few_replicas_refuse_messages_when_that_is_asked_for() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        refused = await world.within(0.0, world.begin_send(b"a"))
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        assert world.master.store.end_offset == 0
        await world.start(SLAVE)
        await world.advance(1.0)
        assert await world.send(b"b") == 0
        world.kill(SLAVE)
        await world.settle()
        assert await world.send(b"c") == ResponseCode.SYSTEM_ERROR

    play(scene, **SYNC, min_in_sync_replicas=2)


def test_async_master_waits_for_nobody() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        assert await world.send(b"a") == 0
        await world.start(SLAVE)
        await world.in_step()
        hold(world)
        assert await world.send(b"b") == 0
        assert bodies_in(await world.pull(MASTER)) == [b"a", b"b"]

    play(scene)


# Readers


def test_nothing_is_read_before_the_slave_has_it() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        assert await world.send(b"a") == 0
        held = world.begin(MASTER, RequestCode.PULL_MESSAGE, pull_header(queue_offset=1, hold_ms=15_000))
        hold(world)
        sending = world.begin_send(b"b")
        await world.advance(1.0)
        assert not sending.done()
        assert not held.done()
        assert bodies_in(await world.pull(MASTER)) == [b"a"]
        store = world.master.store
        assert store.confirmed_offset < store.written_offset
        assert store.max_offset("orders", 0) == 1
        view = ViewMessage(log_offset=store.confirmed_offset)
        seen = await world.within(0.0, world.begin(MASTER, RequestCode.VIEW_MESSAGE_BY_ID, view))
        assert seen.code == ResponseCode.SYSTEM_ERROR, "not by its id either"
        hold(world, held=False)
        await world.settle()
        assert sending.result().code == 0
        assert bodies_in(held.result()) == [b"b"]
        seen = await world.within(0.0, world.begin(MASTER, RequestCode.VIEW_MESSAGE_BY_ID, view))
        assert bodies_in(seen) == [b"b"]

    play(scene, **SYNC)


@pytest.mark.parametrize("properties", [{}, WAITS_NOT])
def test_readers_go_on_when_the_slave_takes_too_long_or_is_gone(properties: dict[str, str]) -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        assert await world.send(b"a") == 0
        hold(world)
        world.begin_send(b"b", properties=properties)
        await world.advance(2.0)
        assert bodies_in(await world.pull(MASTER)) == [b"a"]
        await world.advance(1.3)
        assert bodies_in(await world.pull(MASTER)) == [b"a", b"b"]
        world.begin_send(b"c", properties=properties)
        await world.advance(0.5)
        assert bodies_in(await world.pull(MASTER, queue_offset=2)) == []
        world.kill(SLAVE)
        await world.settle()
        assert bodies_in(await world.pull(MASTER, queue_offset=2)) == [b"c"]

    play(scene, **SYNC)


def test_master_that_starts_again_shows_what_it_has_and_then_waits_for_slaves() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.fill(30)
        hold(world)
        world.begin_send(b"unseen")
        await world.settle()
        world.kill(MASTER)
        hold(world, held=False)
        await world.start()
        assert world.master.store.max_offset("orders", 0) == 31
        await world.in_step()
        assert await world.send(b"after") == 0

    play(scene, **SYNC)


def test_slave_gets_what_a_master_with_a_transient_pool_commits() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        sending = world.begin_send(b"a")
        await world.settle()
        assert not sending.done(), "only memory has it"
        await world.advance(0.5)
        assert sending.result().code == 0
        assert log_of(world.slave) == log_of(world.master)
        assert bodies_in(await world.pull(MASTER)) == [b"a"]

    play(scene, **SYNC, store={"transient_store_pool_enable": True})
