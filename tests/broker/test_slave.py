"""What a slave serves beside its master, instead of it, and after it is back: whole brokers in memory."""

from __future__ import annotations

from typing import Any

from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.bodies.replication import HaRuntimeInfo
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.offset import QueryConsumerOffset, QueryConsumerOffsetResponse, UpdateConsumerOffset
from fusee.wire.headers.pull import PullMessageResponse, QueryMessage, ViewMessage
from fusee.wire.lenient_json import decode_json
from tests.broker.world import bodies_in, pull_header
from tests.replication.world import MASTER, SLAVE, GroupWorld, play

BUSY = ResponseCode.SYSTEM_BUSY
RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY


async def group(world: GroupWorld, messages: int = 5, **settings: Any) -> None:
    """A master with some messages, and a slave that has them."""
    await world.start()
    for number in range(messages):
        assert await world.send(b"m%d" % number) == 0
    await world.start(SLAVE, **settings)
    await world.in_step()
    await world.advance(1.5)


async def ask(world: GroupWorld, name: str, code: RequestCode, header: Any = None) -> Command:
    return await world.within(0.0, world.begin(name, code, header))


def suggested(answer: Command) -> int:
    return answer.read(PullMessageResponse).suggested_broker_id


async def commit(world: GroupWorld, name: str, queue_offset: int) -> int:
    header = UpdateConsumerOffset(consumer_group="consumers", topic="orders", queue_id=0, commit_offset=queue_offset)
    return (await ask(world, name, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code


async def committed(world: GroupWorld, name: str) -> int:
    header = QueryConsumerOffset(consumer_group="consumers", topic="orders", queue_id=0)
    answer = await ask(world, name, RequestCode.QUERY_CONSUMER_OFFSET, header)
    return answer.read(QueryConsumerOffsetResponse).committed_offset


# Beside the master


def test_slave_refuses_pulls_as_long_as_its_master_is_there() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        answer = await world.pull(SLAVE)
        assert (answer.code, answer.remark) == (BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
        world.kill(MASTER)
        await world.settle()
        assert bodies_in(await world.pull(SLAVE)) == [b"m0", b"m1", b"m2", b"m3", b"m4"]

    play(scene)


def test_slave_that_may_be_read_sends_readers_on_to_its_master() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world, slave_read_enable=True)
        answer = await world.pull(SLAVE, queue_offset=2)
        assert bodies_in(answer) == [b"m2", b"m3", b"m4"]
        assert suggested(answer) == 0
        for queue_offset in (5, 77):
            answer = await world.pull(SLAVE, queue_offset=queue_offset, hold_ms=15_000)
            assert (answer.code, suggested(answer)) == (RETRY, 0)
            assert answer.read(PullMessageResponse).next_offset == queue_offset

    play(scene)


def test_reader_of_what_left_the_memory_is_sent_to_the_slave_and_stays_there() -> None:
    async def scene(world: GroupWorld) -> None:
        # Nothing counts as being in memory.
        await group(world, slave_read_enable=True)
        assert suggested(await world.pull(MASTER)) == 1
        assert suggested(await world.pull(SLAVE)) == 1
        answer = await world.pull(SLAVE, queue_offset=5)
        assert (answer.code, suggested(answer)) == (RETRY, 0)

    play(scene, slave_read_enable=True, store={"access_message_in_memory_max_ratio": 0})


def test_master_whose_slaves_may_not_be_read_suggests_itself() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        assert suggested(await world.pull(MASTER)) == 0

    play(scene, store={"access_message_in_memory_max_ratio": 0})


def test_slave_takes_no_messages() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        assert await world.send(b"x", name=SLAVE) == BUSY
        world.kill(MASTER)
        await world.settle()
        assert await world.send(b"x", name=SLAVE) == BUSY

    play(scene)


def test_both_say_how_replication_goes() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        end = world.master.store.end_offset
        of_master = decode_json((await ask(world, MASTER, RequestCode.GET_BROKER_HA_STATUS)).body, HaRuntimeInfo)
        assert of_master.master
        assert of_master.master_commit_log_max_offset == end
        assert of_master.in_sync_slave_nums == 1
        [slave] = of_master.ha_connection_info
        assert (slave.slave_ack_offset, slave.diff, slave.in_sync) == (end, 0, True)
        assert slave.transfer_from_where == end
        of_slave = decode_json((await ask(world, SLAVE, RequestCode.GET_BROKER_HA_STATUS)).body, HaRuntimeInfo)
        assert not of_slave.master
        client = of_slave.ha_client_runtime_info
        assert (client.master_address, client.max_log_offset) == ("10.0.0.1:10912", end)
        assert client.last_read_timestamp > 0
        assert client.last_write_timestamp > 0

    play(scene)


# Tables


def test_slave_has_topics_groups_and_offsets_of_its_master() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        world.master.topics.put(TopicConfig(topic_name="payments", read_queue_nums=2))
        world.master.groups.put(SubscriptionGroupConfig(group_name="consumers", retry_max_times=3))
        assert await commit(world, MASTER, 4) == 0
        await world.advance(1.5)
        slave = world.slave
        assert dict(slave.topics.all()) == dict(world.master.topics.all())
        assert dict(slave.groups.all()) == dict(world.master.groups.all())
        assert await committed(world, SLAVE) == 4

    play(scene)


def test_tables_of_a_slave_outlive_its_restart_without_a_master() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        world.master.groups.put(SubscriptionGroupConfig(group_name="consumers", retry_max_times=3))
        assert await commit(world, MASTER, 4) == 0
        await world.advance(7.0)
        world.kill(MASTER)
        world.kill(SLAVE)
        slave = await world.start(SLAVE)
        found = slave.groups.get("consumers")
        assert found is not None
        assert found.retry_max_times == 3
        assert slave.topics.get("orders") is not None
        assert await committed(world, SLAVE) == 4
        assert bodies_in(await world.pull(SLAVE, queue_offset=4)) == [b"m4"]

    play(scene)


def test_topic_of_which_a_message_comes_is_copied_at_once() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        assert await world.send(b"first", topic="young", queue_id=2) == 0
        await world.until(lambda: world.slave.topics.get("young") is not None, 0.1)
        assert world.slave.topics.get("young") == world.master.topics.get("young")

    play(scene)


def test_topic_that_came_with_the_last_messages_only_can_be_read() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        # The port for clients does not answer the slave any more, the log stream is still there.
        part = world.slave.slave
        assert part is not None
        part.metadata.stop()
        assert await world.send(b"last", topic="young", queue_id=2) == 0
        await world.in_step()
        assert world.slave.topics.get("young") is None
        world.kill(MASTER)
        await world.advance(0.3)
        assert bodies_in(await world.pull(SLAVE, topic="young", queue_id=2)) == [b"last"]

    play(scene)


def test_topic_of_a_master_that_came_and_went_between_two_looks_can_be_read() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        assert await world.send(b"last", topic="young", queue_id=2) == 0
        await world.start(SLAVE)
        part = world.slave.slave
        assert part is not None
        part.metadata.stop()
        await world.until(lambda: world.slave.store.written_offset == world.master.store.written_offset > 0, 0.15)
        assert not part._had_master
        world.kill(MASTER)
        await world.advance(0.5)
        assert bodies_in(await world.pull(SLAVE, topic="young", queue_id=2)) == [b"last"]

    play(scene)


# Instead of the master


def test_pull_is_held_while_the_master_is_away_and_answered_when_it_is_back() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        world.kill(MASTER)
        await world.settle()
        # At the end, and behind it: the master has what this slave has not.
        pulls = [
            world.begin(SLAVE, RequestCode.PULL_MESSAGE, pull_header(queue_offset=queue_offset, hold_ms=30_000))
            for queue_offset in (5, 7)
        ]
        await world.advance(3.0)
        assert not any(pull.done() for pull in pulls)
        await world.start(MASTER)
        await world.until(lambda: all(pull.done() for pull in pulls), 10.0)
        for pull, queue_offset in zip(pulls, (5, 7), strict=True):
            answer = pull.result()
            assert (answer.code, suggested(answer)) == (RETRY, 0)
            assert answer.read(PullMessageResponse).next_offset == queue_offset

    play(scene)


def test_held_pull_outside_of_the_slave_s_queue_moves_nobody_when_its_time_is_over() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        world.kill(MASTER)
        await world.settle()
        for topic, queue_offset in (("orders", 7), ("TBW102", 3)):
            header = pull_header(topic, queue_offset=queue_offset, hold_ms=1_000)
            answer = await world.within(2.0, world.begin(SLAVE, RequestCode.PULL_MESSAGE, header))
            assert answer.code == RETRY
            assert answer.read(PullMessageResponse).next_offset == queue_offset

    play(scene)


def test_pull_that_may_not_be_held_is_answered_at_once() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        world.kill(MASTER)
        await world.settle()
        assert (await world.pull(SLAVE, queue_offset=5)).code == ResponseCode.PULL_NOT_FOUND
        answer = await world.pull(SLAVE, queue_offset=9)
        assert (answer.code, answer.read(PullMessageResponse).next_offset) == (RETRY, 9)

    play(scene)


def test_slave_answers_queries_when_its_master_is_away() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world, messages=0)
        await world.send(b"keyed", properties={"KEYS": "k1"})
        await world.in_step()
        world.kill(MASTER)
        await world.advance(1.0)
        header = QueryMessage(topic="orders", key="k1", max_messages=10, begin_timestamp_ms=0, end_timestamp_ms=2**62)
        assert bodies_in(await ask(world, SLAVE, RequestCode.QUERY_MESSAGE, header)) == [b"keyed"]
        assert bodies_in(await ask(world, SLAVE, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(log_offset=0))) == [
            b"keyed"
        ]

    play(scene)


def test_offset_committed_while_the_master_is_away_is_the_master_s_when_it_is_back() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world)
        world.master.groups.put(SubscriptionGroupConfig(group_name="consumers"))
        assert await commit(world, MASTER, 2) == 0
        await world.advance(6.0)
        world.kill(MASTER)
        await world.settle()
        assert await committed(world, SLAVE) == 2
        assert await commit(world, SLAVE, 4) == 0
        assert await committed(world, SLAVE) == 4
        await world.start(MASTER)
        assert await committed(world, MASTER) == 2
        await world.in_step()
        await world.advance(1.5)
        assert await committed(world, MASTER) == 4
        assert await committed(world, SLAVE) == 4
        # From now on the master decides again.
        assert await commit(world, MASTER, 1) == 0
        await world.advance(1.5)
        assert await committed(world, SLAVE) == 1

    play(scene)


def test_slave_that_was_there_first_finds_its_master_within_seconds() -> None:
    async def scene(world: GroupWorld) -> None:
        name_server = await world.start_name_server()
        world.settings = {"namesrv_addr": name_server}
        await world.start(SLAVE, ha_master_address="")
        await world.advance(5.0)
        assert not world.replica.is_connected
        await world.start(MASTER)
        await world.until(lambda: world.replica.is_connected, 3.0)
        assert world.replica.master_address == "10.0.0.1:10911"

    play(scene)


def test_what_was_committed_of_a_tail_that_the_master_lost_skips_nothing_that_came_in_its_place() -> None:
    async def scene(world: GroupWorld) -> None:
        await group(world, messages=2)
        await world.stop(MASTER)
        backup = world.disks[MASTER].kill()
        await world.start(MASTER)
        world.master.groups.put(SubscriptionGroupConfig(group_name="consumers"))
        await world.until(lambda: world.replica.is_connected, 10.0)
        for number in range(3):
            assert await world.send(b"lost%d" % number) == 0
        await world.in_step()
        await world.advance(6.0)
        world.kill(MASTER)
        await world.settle()
        assert await commit(world, SLAVE, 5) == 0
        await world.advance(6.0)
        world.kill(SLAVE)
        world.disks[MASTER] = backup
        await world.start(MASTER)
        world.master.groups.put(SubscriptionGroupConfig(group_name="consumers"))
        for number in range(4):
            assert await world.send(b"new%d" % number) == 0
        await world.start(SLAVE)
        await world.in_step()
        await world.advance(3.0)
        assert world.replica.truncations == 1
        assert await committed(world, MASTER) == 2
        assert await committed(world, SLAVE) == 2

    play(scene)


def test_slave_whose_master_was_long_away_follows_it_soon_after_name_servers_know_it_again() -> None:
    async def scene(world: GroupWorld) -> None:
        name_server = await world.start_name_server()
        world.settings = {"namesrv_addr": name_server}
        await world.start(MASTER)
        await world.start(SLAVE, ha_master_address="")
        await world.until(lambda: world.replica.is_connected, 3.0)
        world.kill(MASTER)
        for seconds in (0.0, 1.3, 2.4, 3.6, 4.9):  # whatever is left of the pause between two attempts
            await world.advance(seconds)
            await world.start(MASTER)
            await world.until(lambda: world.replica.is_connected, 1.5)
            world.kill(MASTER)
            await world.advance(41.0)

    play(scene)
