"""Offsets of a group: on brokers that come and go, and in a file."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusee.client.consumer.offsets import BrokerOffsets, LocalOffsets, OffsetStore, broker_address, local_offsets_path
from fusee.client.session import Session
from fusee.clock import ManualClock
from fusee.errors import ConfigError, ConnectError, StoreCorruptError, StoreFullError, TransportError
from fusee.message.model import MessageQueue
from fusee.store.simulated_disk import SimulatedDisk
from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.lenient_json import loads
from tests.client.world import ClusterWorld, play

GROUP = "consumers"
Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
GOLDEN = Path(__file__).parents[2] / "golden" / "client" / "offsets.json"


async def reader(world: ClusterWorld) -> Session:
    """A client that knows the topic, of a group that the brokers know."""
    if not world.sessions:
        world.create_topic("orders")
        for broker in world.brokers.values():
            broker.groups.put(SubscriptionGroupConfig(group_name=GROUP))
    await world.settle()
    session = await world.session()
    await world.do(session.read_route("orders"))
    return session


def committed(world: ClusterWorld, queue: MessageQueue = Q0) -> int:
    return world.brokers[queue.broker_name].offsets.query(GROUP, queue.topic, queue.queue_id)


# In memory, the same for both


@pytest.fixture(params=["broker", "local"])
def table(request: pytest.FixtureRequest) -> OffsetStore:
    if request.param == "local":
        return LocalOffsets(Path("/offsets.json"))
    nobody: Any = None
    return BrokerOffsets(nobody, GROUP)


def test_update_is_seen_in_memory(table: OffsetStore) -> None:
    assert table.cached(Q0) is None
    table.update(Q0, 7)
    table.update(Q1, 1)
    table.update(MessageQueue("bills", "broker-a", 0), 3)
    assert table.cached(Q0) == 7
    assert table.snapshot("orders") == {Q0: 7, Q1: 1}
    assert len(table.snapshot()) == 3


def test_update_when_increase_only_ignores_a_smaller_offset(table: OffsetStore) -> None:
    table.update(Q0, 7, increase_only=True)
    table.update(Q0, 5, increase_only=True)
    assert table.cached(Q0) == 7
    table.update(Q0, 5)
    assert table.cached(Q0) == 5


def test_update_when_frozen_changes_nothing(table: OffsetStore) -> None:
    table.update(Q0, 7)
    table.freeze(Q0, 3)
    table.update(Q0, 9)
    table.update(Q0, 1)
    table.update(Q0, 8, increase_only=True)
    assert table.cached(Q0) == 3


def test_remove_forgets_the_offset_and_the_frost(table: OffsetStore) -> None:
    table.freeze(Q0, 3)
    table.remove(Q0)
    assert table.cached(Q0) is None
    table.update(Q0, 9)
    assert table.cached(Q0) == 9
    table.remove(Q1)


# On brokers


def test_load_when_nothing_committed_is_none() -> None:
    async def scene(world: ClusterWorld) -> None:
        offsets = BrokerOffsets(await reader(world), GROUP)
        assert await world.do(offsets.load(Q0)) is None
        assert offsets.cached(Q0) is None

    play(scene)


def test_persist_then_load_elsewhere() -> None:
    async def scene(world: ClusterWorld) -> None:
        offsets = BrokerOffsets(await reader(world), GROUP)
        offsets.update(Q0, 12)
        offsets.update(Q1, 5)
        assert await world.do(offsets.persist([Q0])) == {}
        other = BrokerOffsets(await reader(world), GROUP)
        assert await world.do(other.load(Q0)) == 12
        assert other.cached(Q0) == 12
        assert committed(world, Q1) == -1

    play(scene)


def test_persist_when_another_member_is_ahead_keeps_the_group_there() -> None:
    async def scene(world: ClusterWorld) -> None:
        slow, fast = BrokerOffsets(await reader(world), GROUP), BrokerOffsets(await reader(world), GROUP)
        slow.update(Q0, 10)
        fast.update(Q0, 50)
        await world.do(fast.persist([Q0]))
        assert await world.do(slow.persist([Q0])) == {}
        assert committed(world) == 50
        slow.update(Q0, 60, increase_only=True)
        await world.do(slow.persist([Q0]))
        assert committed(world) == 60

    play(scene)


@pytest.mark.parametrize("lower", [lambda offsets: offsets.update(Q0, 4), lambda offsets: offsets.freeze(Q0, 4)])
def test_persist_when_lowered_on_purpose_takes_the_group_back(lower: Callable[[OffsetStore], None]) -> None:
    async def scene(world: ClusterWorld) -> None:
        offsets = BrokerOffsets(await reader(world), GROUP)
        offsets.update(Q0, 10)
        await world.do(offsets.persist([Q0]))
        lower(offsets)
        await world.do(offsets.persist([Q0]))
        assert committed(world) == 4

    play(scene)


def test_persist_when_lowered_takes_the_group_back_once() -> None:
    async def scene(world: ClusterWorld) -> None:
        mine, other = BrokerOffsets(await reader(world), GROUP), BrokerOffsets(await reader(world), GROUP)
        mine.update(Q0, 10)
        mine.update(Q0, 4)
        await world.do(mine.persist([Q0]))
        other.update(Q0, 20)
        await world.do(other.persist([Q0]))
        await world.do(mine.persist([Q0]))
        assert committed(world) == 20

    play(scene)


def test_persist_when_broker_lost_its_offsets_tells_them_again() -> None:
    async def scene(world: ClusterWorld) -> None:
        offsets = BrokerOffsets(await reader(world), GROUP)
        offsets.update(Q0, 10)
        await world.do(offsets.persist([Q0]))
        world.kill("broker-a")
        await world.start_broker("broker-a")
        assert committed(world) == -1
        await world.advance(1.0)
        await world.do(offsets.persist([Q0]))
        assert committed(world) == 10

    # The table of groups survives a kill only once it was saved.
    play(scene, auto_create_subscription_group=True)


def test_persist_when_one_broker_is_away_writes_to_the_other() -> None:
    async def scene(world: ClusterWorld) -> None:
        offsets = BrokerOffsets(await reader(world), GROUP)
        there, there2, here = Q0, Q1, MessageQueue("orders", "broker-b", 0)
        for queue in (there, there2, here):
            offsets.update(queue, 9)
        world.kill("broker-a")
        failed = await world.do(offsets.persist([there, here, there2]))
        assert set(failed) == {there, there2}
        assert all(isinstance(error, TransportError) for error in failed.values())
        assert committed(world, here) == 9
        assert offsets.cached(there) == 9

    play(scene, brokers=2)


def test_persist_when_group_is_unknown_names_the_cause() -> None:
    async def scene(world: ClusterWorld) -> None:
        offsets = BrokerOffsets(await reader(world), "strangers")
        offsets.update(Q0, 9)
        failed = await world.do(offsets.persist([Q0]))
        assert "strangers" in str(failed[Q0])

    play(scene, auto_create_subscription_group=False)


def test_load_when_broker_does_not_answer_raises() -> None:
    async def scene(world: ClusterWorld) -> None:
        offsets = BrokerOffsets(await reader(world), GROUP)
        world.kill("broker-a")
        with pytest.raises(TransportError):
            await world.do(offsets.load(Q0))

    play(scene)


def test_load_when_broker_is_not_known_asks_for_the_route() -> None:
    async def scene(world: ClusterWorld) -> None:
        await reader(world)
        session = await world.session()
        assert await world.do(broker_address(session, Q0)) == world.address()
        with pytest.raises(ConnectError, match="broker-z"):
            await world.do(broker_address(session, MessageQueue("orders", "broker-z", 0)))

    play(scene)


def test_pull_carries_an_offset_only_while_nobody_is_ahead() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await reader(world)
        mine, other = BrokerOffsets(session, GROUP), BrokerOffsets(await reader(world), GROUP)
        assert mine.pull_commit(Q0) is None
        mine.update(Q0, 5)
        assert mine.pull_commit(Q0) is None
        await world.do(mine.persist([Q0]))
        assert mine.pull_commit(Q0) == 5
        mine.update(Q0, 6)
        assert mine.pull_commit(Q0) == 6
        other.update(Q0, 30)
        await world.do(other.persist([Q0]))
        await world.do(mine.persist([Q0]))
        assert mine.pull_commit(Q0) is None

    play(scene)


def test_pull_carries_no_offset_after_the_connection_was_lost() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await reader(world)
        offsets = BrokerOffsets(session, GROUP)
        offsets.update(Q0, 5)
        await world.do(offsets.persist([Q0]))
        session.transport.disconnect(world.address())
        await world.settle()
        assert offsets.pull_commit(Q0) is None
        await world.do(offsets.persist([Q0]))
        assert offsets.pull_commit(Q0) == 5
        await offsets.close()
        assert offsets.pull_commit(Q0) is None

    play(scene)


# In a file


async def inline(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


def local(path: Path, disk: SimulatedDisk) -> LocalOffsets:
    return LocalOffsets(path, files=disk, offload=inline)


PATH = Path("/offsets/g/offsets.json")


def test_local_offsets_survive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "offsets.json"

    async def first() -> None:
        offsets = LocalOffsets(path)
        assert await offsets.load(Q0) is None
        offsets.update(Q0, 12)
        offsets.update(Q1, 5)
        assert offsets.pull_commit(Q0) is None
        assert await offsets.persist([Q0]) == {}
        await offsets.close()

    async def second() -> None:
        offsets = LocalOffsets(path)
        assert await offsets.load(Q0) == 12
        assert offsets.cached(Q0) == 12
        assert await offsets.load(Q1) is None
        await offsets.close()

    asyncio.run(first())
    asyncio.run(second())


def test_local_offset_that_is_said_while_the_file_is_read_stays(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(GOLDEN.read_bytes())

    async def scene() -> None:
        offsets = LocalOffsets(path)
        loading = asyncio.create_task(offsets.load(Q0))
        await asyncio.sleep(0)  # it has begun
        offsets.update(Q0, 50)
        assert await loading == 42
        assert offsets.cached(Q0) == 50
        await offsets.close()

    asyncio.run(scene())


def test_local_offsets_are_read_as_java_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(GOLDEN.read_bytes())

    async def scene() -> None:
        offsets = LocalOffsets(path)
        assert await offsets.load(Q0) == 42
        assert await offsets.load(Q1) == 0
        strange = MessageQueue("%RETRY%g", '中"x', 3)
        assert await offsets.load(strange) == 2**63 - 1
        offsets.update(Q1, 1)
        await offsets.persist([Q1])
        await offsets.close()

    asyncio.run(scene())
    written = loads(path.read_bytes())
    expected = loads(GOLDEN.read_bytes())
    assert set(written) == {"offsetTable"}
    keys = {tuple(sorted(key.items())): value for key, value in written["offsetTable"].items()}
    expected_keys = {tuple(sorted(key.items())): value for key, value in expected["offsetTable"].items()}
    assert expected_keys[("brokerName", "broker-a"), ("queueId", 1), ("topic", "orders")] == 0
    expected_keys[("brokerName", "broker-a"), ("queueId", 1), ("topic", "orders")] = 1
    assert keys == expected_keys


def test_local_offsets_when_file_is_damaged_come_from_the_one_before() -> None:
    async def scene() -> None:
        disk = SimulatedDisk(ManualClock())
        offsets = local(PATH, disk)
        for next_offset in (1, 2):
            offsets.update(Q0, next_offset)
            await offsets.persist([Q0])
        await offsets.close()
        file = disk.open(PATH)
        file.write(b"\0" * 20, 0)
        again = local(PATH, disk)
        assert await again.load(Q0) == 1
        await again.close()

    asyncio.run(scene())


def test_local_offsets_when_no_copy_can_be_read_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text("not json")

    async def scene() -> None:
        offsets = LocalOffsets(path)
        with pytest.raises(StoreCorruptError, match="offsets.json"):
            await offsets.load(Q0)
        path.unlink()
        assert await offsets.load(Q0) is None, "the lock was let go"
        await offsets.close()

    asyncio.run(scene())


@pytest.mark.parametrize("seed", range(8))
def test_local_offsets_when_power_fails_are_the_last_or_the_one_before(seed: int) -> None:
    async def scene() -> None:
        disk = SimulatedDisk(ManualClock())
        offsets = local(PATH, disk)
        for next_offset in (1, 2, 3):
            offsets.update(Q0, next_offset)
            assert await offsets.persist([Q0]) == {}
        again = local(PATH, disk.crash(seed))
        assert await again.load(Q0) == 3

    asyncio.run(scene())


def test_local_offsets_when_file_is_in_use_say_how_to_share(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"

    async def scene() -> None:
        first, second = LocalOffsets(path), LocalOffsets(path)
        await first.load(Q0)
        with pytest.raises(ConfigError, match="instance_name"):
            await second.load(Q0)
        await first.close()
        assert await second.load(Q0) is None
        await second.close()

    asyncio.run(scene())


def test_local_offsets_when_disk_is_full_keep_what_was_saved() -> None:
    async def scene() -> None:
        disk = SimulatedDisk(ManualClock())
        offsets = local(PATH, disk)
        offsets.update(Q0, 1)
        await offsets.persist([Q0])
        offsets.update(Q0, 2)
        disk.fail_write(code=errno.ENOSPC)
        failed = await offsets.persist([Q0])
        assert isinstance(failed[Q0], StoreFullError)
        assert await offsets.persist([Q0]) == {}
        await offsets.close()
        again = local(PATH, disk)
        assert await again.load(Q0) == 2

    asyncio.run(scene())


def test_local_offsets_when_nothing_changed_touch_no_file(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"

    async def scene() -> None:
        offsets = LocalOffsets(path)
        assert await offsets.persist([Q0]) == {}
        assert not path.exists()
        offsets.update(Q0, 1)
        await offsets.persist([Q0])
        before = path.stat().st_ino
        await offsets.persist([Q0, Q1])
        assert path.stat().st_ino == before
        await offsets.close()

    asyncio.run(scene())


def test_local_offsets_when_persist_is_cancelled_is_written_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"

    async def scene() -> None:
        gate = asyncio.Event()

        async def slow(work: Callable[..., Any], *arguments: Any) -> Any:
            await gate.wait()
            return work(*arguments)

        offsets = LocalOffsets(path, offload=slow)
        offsets.update(Q0, 1)
        persisting = asyncio.ensure_future(offsets.persist([Q0]))
        await asyncio.sleep(0)
        persisting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await persisting
        gate.set()
        offsets.update(Q0, 2)
        await offsets.persist([Q0])
        await offsets.close()
        again = LocalOffsets(path)
        assert await again.load(Q0) == 2
        await again.close()

    asyncio.run(scene())


def test_local_offsets_lie_below_the_current_folder() -> None:
    assert local_offsets_path("g") == Path(".fusee/offsets/g/offsets.json")
    assert local_offsets_path("g", "second") == Path(".fusee/offsets/g/second/offsets.json")
