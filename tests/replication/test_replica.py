"""A slave that follows its master: real brokers in memory."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Any, cast

import pytest

from fusee.errors import DivergedError, StoreError
from fusee.replication import ReplicaState
from fusee.replication.frames import ReportDecoder, encode_transfer
from fusee.replication.replica import _Stream
from fusee.store.config import FlushDiskType
from fusee.store.simulated_disk import Outcome, SimulatedCrash
from fusee.transport.interfaces import Listening
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.replication import ExchangeHaInfo, ExchangeHaInfoResponse
from tests.broker.world import HeldWorker, bodies_in, pull_header
from tests.replication.world import HA_ADDRESS, HOSTS, MASTER, SLAVE, GroupWorld, log_of, play

SYNC_FLUSH = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}


# Catching up


def test_new_slave_gets_the_whole_log_and_what_is_written_later() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.fill(200)
        assert len(world.master.store.log.segments()) > 3
        await world.start(SLAVE)
        await world.in_step()
        assert world.slave.store.log.min_offset == 0
        await world.fill(60)
        await world.in_step()
        assert world.replica.is_connected
        assert world.replica.lag_bytes == 0
        world.slave.writer.make_visible()
        assert world.slave.store.max_offset("orders", 0) == 260

    play(scene)


def test_new_slave_begins_with_the_last_segment_when_that_is_wished() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.fill(200)
        await world.start(SLAVE, sync_from_last_file=True)
        await world.in_step()
        log = world.master.store.log
        assert world.slave.store.log.min_offset == log.written_offset - log.written_offset % log.segment_size > 0
        world.slave.writer.make_visible()
        assert world.slave.store.min_offset("orders", 0) > 0
        assert world.slave.store.max_offset("orders", 0) == 200

    play(scene)


def test_new_slave_begins_where_a_master_begins_whose_first_segments_have_expired() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.fill(200)
        log = world.master.store.log
        log.drop_head(3 * log.segment_size)
        await world.start(SLAVE)
        await world.in_step()
        assert world.slave.store.log.min_offset == log.min_offset == 3 * log.segment_size

    play(scene)


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("later", [1, 7, 120])
def test_slave_that_comes_back_goes_on_where_it_was(how: str, later: int) -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.fill(90)
        await world.in_step()
        if how == "stop":
            await world.stop(SLAVE)
        else:
            world.kill(SLAVE)
        await world.fill(later)
        await world.start(SLAVE)
        await world.in_step()
        assert world.replica.truncations == 0
        world.slave.writer.make_visible()
        assert world.slave.store.max_offset("orders", 0) == 90 + later

    play(scene)


@pytest.mark.parametrize("seed", range(12))
def test_slave_whose_machine_failed_gets_again_what_it_lost(seed: int) -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.fill(60)
        await world.advance(11.0)  # flushed
        await world.fill(60)
        await world.in_step()
        world.crash(SLAVE, seed)
        await world.fill(5)
        await world.start(SLAVE)
        await world.in_step()
        assert world.replica.truncations == 0

    play(scene)


def test_slave_whose_log_ended_before_the_masters_begins_starts_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.fill(30)
        await world.in_step()
        await world.stop(SLAVE)
        await world.fill(200)
        log = world.master.store.log
        log.drop_head(4 * log.segment_size)
        await world.start(SLAVE)
        await world.in_step()
        assert world.slave.store.log.min_offset == 4 * log.segment_size
        assert world.replica.truncations == 1
        world.slave.writer.make_visible()
        assert world.slave.store.max_offset("orders", 0) == 230
        assert world.slave.store.min_offset("orders", 0) > 30

    play(scene)
    assert "begins anew" in caplog.text


def test_slave_of_other_segments_says_so_and_takes_nothing() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.fill(100)
        await world.start(SLAVE, store={"mapped_file_size_commit_log": 24 * 1024})
        await world.advance(3.0)
        assert isinstance(world.replica.failure, StoreError)
        assert "mappedFileSizeCommitLog" in str(world.replica.failure)
        assert world.replica.state is not ReplicaState.FOLLOWING
        await world.advance(60.0)
        assert world.slave.store.written_offset <= 24 * 1024

    play(scene)


def test_bytes_arriving_in_any_pieces_make_the_same_log() -> None:
    async def scene(world: GroupWorld) -> None:
        world.network.weather(HOSTS[MASTER], HOSTS[SLAVE]).chunk_max = 97
        await world.start()
        await world.fill(100)
        await world.start(SLAVE)
        await world.in_step()
        await world.send(b"x" * 7000)
        await world.in_step()

    play(scene)


def test_log_of_a_slave_never_ends_inside_a_record() -> None:
    async def scene(world: GroupWorld) -> None:
        world.network.weather(HOSTS[MASTER], HOSTS[SLAVE]).chunk_max = 61
        await world.start(ha_transfer_batch_size=100)
        ends = {0}
        await world.start(SLAVE)
        await world.in_step()
        store, seen = world.slave.store, []
        replica = world.replica
        append = replica._append

        def watched(data: bytes, log_offset: int) -> int:
            size = append(data, log_offset)
            seen.append(store.written_offset)
            return size

        replica._append = watched
        for number in range(40):
            await world.send(b"%d" % number * 50)
            ends.add(world.master.store.written_offset)
        await world.in_step()
        assert len(seen) > 40
        assert set(seen) <= ends | {end - end % store.log.segment_size for end in seen}

    play(scene)


# Connections


def test_slave_pauses_longer_and_longer_while_there_is_no_master() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start(SLAVE)
        tries: list[float] = []
        connect = world.replica._connect

        async def counted(address: str) -> Any:
            tries.append(world.clock.monotonic())
            return await connect(address)

        world.replica._connect = counted  # type: ignore[method-assign]
        await world.advance(60.0)
        pauses = [round(after - before, 1) for before, after in itertools.pairwise(tries)]
        assert pauses[:6] == [0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
        assert world.replica.state is ReplicaState.WAITING
        assert world.replica.lag_bytes is None
        await world.start()
        await world.fill(3)
        await world.in_step(seconds=6.0)

    play(scene)


def test_slave_comes_back_at_once_when_a_connection_breaks() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.fill(3)
        await world.advance(10.0)
        world.network.cut(HOSTS[MASTER], HOSTS[SLAVE])
        await world.settle()
        assert not world.replica.is_connected
        await world.fill(3)
        await world.in_step(seconds=0.5)

    play(scene)


def test_master_that_is_not_heard_of_is_given_up_and_found_again() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.fill(3)
        await world.in_step()
        weather = world.network.weather(HOSTS[MASTER], HOSTS[SLAVE])
        weather.lossy = True
        await world.advance(19.0)
        assert world.follows()
        await world.advance(3.0)
        assert not world.follows()
        assert world.master.primary is not None
        assert not world.master.primary.slaves
        weather.lossy = False
        await world.fill(3)
        await world.in_step(seconds=8.0)

    play(scene)


def test_idle_master_and_slave_keep_their_connection() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.fill(1)
        await world.advance(300.0)
        assert world.replica.is_connected
        assert world.replica.failure is None

    play(scene)


def test_slave_finds_its_master_through_a_name_server_and_follows_it_to_another_address() -> None:
    async def scene(world: GroupWorld) -> None:
        address = await world.start_name_server()
        await world.start(SLAVE, ha_master_address="", namesrv_addr=address)
        assert world.replica.state is ReplicaState.IDLE
        await world.start(namesrv_addr=address)
        await world.fill(3)
        await world.in_step(seconds=31.0)
        assert world.replica.master_address == f"{HOSTS[MASTER]}:10911"
        await world.stop(MASTER)
        await world.start(namesrv_addr=address, ha_listen_port=12345)
        await world.fill(3)
        await world.in_step(seconds=31.0)
        assert world.replica.ha_address == f"{HOSTS[MASTER]}:12345"

    play(scene)


def test_slave_without_a_master_is_told_by_an_administrator() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE, ha_master_address="")
        asked = await world.within(0.0, world.begin(MASTER, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHaInfo()))
        known = asked.read(ExchangeHaInfoResponse)
        assert (known.master_ha_address, known.master_address) == (HA_ADDRESS, f"{HOSTS[MASTER]}:10911")
        told = ExchangeHaInfo(master_ha_address=known.master_ha_address, master_address=known.master_address)
        await world.within(0.0, world.begin(SLAVE, RequestCode.EXCHANGE_BROKER_HA_INFO, told))
        await world.fill(3)
        await world.in_step()
        assert world.replica.master_address == known.master_address

    play(scene)


def test_transfer_limit_spreads_the_log_over_seconds() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start(ha_flow_control_enable=True, max_ha_transfer_byte_in_second=10_000)
        await world.fill(100)
        size = world.master.store.written_offset
        await world.start(SLAVE)
        began = world.clock.monotonic()
        await world.in_step(seconds=size / 10_000 + 3)
        assert world.clock.monotonic() - began >= size // 10_000 - 1
        assert world.master.primary is not None
        (slave,) = world.master.primary.progress.slaves.values()
        assert 0 < slave.bytes_per_second <= 10_000
        assert world.replica.bytes_per_second > 0

    play(scene)


# Reports


def test_slave_reports_what_is_written_and_with_sync_flush_only_what_is_on_its_disk() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE, store=SYNC_FLUSH)
        await world.fill(1)
        await world.in_step()
        disk = HeldWorker()
        disk.is_held = True
        world.slave.writer._log_worker = disk
        before = world.master.store.written_offset
        await world.fill(3)
        await world.advance(0.002)
        assert world.slave.store.written_offset == world.master.store.written_offset
        assert world.master.primary is not None
        assert list(world.master.primary.slaves.values()) == [before]
        disk.release()
        await world.settle()
        while disk.release():
            await world.settle()
        assert list(world.master.primary.slaves.values()) == [world.master.store.written_offset]

    play(scene)


def test_slave_that_flushes_at_once_reports_nothing_on_a_new_connection_before_it_is_on_disk() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE, store=SYNC_FLUSH)
        await world.fill(1)
        await world.in_step()
        disk = HeldWorker()
        disk.is_held = True
        world.slave.writer._log_worker = disk
        await world.fill(3)
        await world.advance(6.0)
        world.network.cut(HOSTS[MASTER], HOSTS[SLAVE])
        await world.advance(3.0)
        assert world.master.primary is not None
        assert not world.master.primary.slaves
        for _ in range(3):
            disk.release()
            await world.settle()
        assert list(world.master.primary.slaves.values()) == [world.master.store.written_offset]

    play(scene)


def test_pull_held_on_a_slave_is_answered_when_its_master_comes_back_and_sends() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.fill(1)
        await world.start(SLAVE)
        await world.in_step()
        world.slave.topics.put(TopicConfig(topic_name="orders"))
        await world.stop(MASTER)
        held = world.begin(SLAVE, RequestCode.PULL_MESSAGE, pull_header(queue_offset=1, hold_ms=15_000))
        await world.settle()
        assert not held.done()
        await world.start()
        await world.send(b"new")
        await world.in_step()
        await world.settle()
        assert bodies_in(held.result()) == [b"new"]

    play(scene, slave_read_enable=True)


def test_slave_takes_no_messages_itself() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        assert await world.send(name=SLAVE) == ResponseCode.SYSTEM_BUSY
        assert world.slave.store.end_offset == 0

    play(scene)


# Masters that cannot be trusted


class OddMaster(asyncio.Protocol):
    """Sends what it is told to, to whoever reports."""

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames
        self._decoder = ReportDecoder()
        self.reports: list[int] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for word in self._decoder.feed(data):
            self.reports.append(word)
            if word >= 0 and self._frames:
                for frame in self._frames:
                    self.transport.write(frame)
                self._frames = []

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing."""


async def odd_master(world: GroupWorld, *frames: bytes) -> tuple[list[OddMaster], Listening]:
    masters: list[OddMaster] = []

    def make() -> OddMaster:
        masters.append(OddMaster(list(frames)))
        return masters[-1]

    door = await world.network.host(HOSTS[MASTER]).listen(make, HOSTS[MASTER], 10912)
    return masters, door


@pytest.mark.parametrize(
    "frame",
    [
        encode_transfer(5, b"nonsense that is no record"),
        encode_transfer(0, b"\0" * 100),
        encode_transfer(0, b"\x7f\xff\xff\xff\xda\xa3\x20\xa7" + b"x" * 40),
        encode_transfer(0, b"")[:8] + b"\xff\xff\xff\xff",
        encode_transfer(-77, b"12345678"),
        encode_transfer(4097, b"\0\0\0\x64\xda\xa3\x20\xa7" + b"x" * 92),
    ],
)
def test_master_that_sends_nonsense_is_left_and_nothing_of_it_is_kept(frame: bytes) -> None:
    async def scene(world: GroupWorld) -> None:
        masters, _ = await odd_master(world, frame)
        await world.start(SLAVE)
        await world.advance(4.0)
        assert world.slave.store.end_offset % world.slave.store.log.segment_size == 0
        assert world.slave.store.end_offset == world.slave.store.log.min_offset
        assert len(masters) > 1, "it tries again"
        assert masters[0].reports[:2] == [-1, 0]
        assert world.replica.failure is not None

    play(scene)


def test_silent_master_is_taken_for_the_reference_and_asked_on_its_other_port() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.fill(20)
        await world.start(SLAVE)
        await world.in_step()
        await world.stop(SLAVE)
        await world.fill(20)
        answer = world.master.primary
        assert answer is not None
        answer.greeted = lambda slave: None  # type: ignore[method-assign]
        await world.start(SLAVE)
        assert not world.replica.is_connected
        await world.in_step(seconds=8.0)
        assert world.replica.master_address == f"{HOSTS[MASTER]}:10911"
        assert world.replica.truncations == 0

    play(scene)


# Going different ways


async def diverged(world: GroupWorld, lost: int, again: int, *, before: int = 40) -> bytes:
    """A master that has lost what it wrote last, and its slave, which is stopped; the log up to where they agree."""
    await world.start()
    await world.start(SLAVE)
    await world.fill(before)
    await world.in_step()
    common = log_of(world.master)
    world.disks["backup"] = world.disks[MASTER].kill()
    await world.fill(lost, topic="lost")
    await world.in_step()
    await world.stop(SLAVE)
    world.end(MASTER)
    world.disks[MASTER] = world.disks["backup"]
    await world.advance(1.0)
    await world.start()
    await world.fill(again, topic="again")
    return common


@pytest.mark.parametrize(
    ("lost", "again"), [(1, 0), (1, 1), (3, 3), (1, 20), (20, 1), (120, 0), (120, 3), (3, 120), (90, 90)]
)
def test_slave_that_went_another_way_is_cut_to_what_is_common(
    lost: int, again: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: GroupWorld) -> None:
        common = await diverged(world, lost, again)
        await world.start(SLAVE)
        await world.in_step()
        assert world.replica.truncations == 1
        assert world.replica.truncated_bytes > 0
        assert log_of(world.slave)[: len(common)] == common
        world.slave.writer.make_visible()
        assert world.slave.store.max_offset("lost", 0) == 0
        assert world.slave.store.max_offset("again", 0) == again
        await world.fill(30)
        await world.in_step()

    play(scene)
    assert "went different ways" in caplog.text


@pytest.mark.parametrize(("lost", "again"), [(1, 0), (3, 3), (90, 90)])
def test_slave_of_the_reference_that_went_another_way_is_cut_as_well(lost: int, again: int) -> None:
    async def scene(world: GroupWorld) -> None:
        await diverged(world, lost, again)
        assert world.master.primary is not None
        world.master.primary.greeted = lambda slave: None  # type: ignore[method-assign]
        await world.start(SLAVE)
        world.replica.master_address = f"{HOSTS[MASTER]}:10911"
        await world.in_step()
        assert world.replica.truncations == 1

    play(scene)


def test_slave_with_nothing_in_common_is_left_alone() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.fill(50)
        await world.in_step()
        kept = log_of(world.slave)
        world.lose_disk(MASTER)
        await world.start()
        await world.advance(20.0)
        assert isinstance(world.replica.failure, DivergedError)
        await world.fill(70, topic="again")
        await world.advance(20.0)
        assert isinstance(world.replica.failure, DivergedError)
        assert log_of(world.slave) == kept
        assert world.replica.truncations == 0
        world.slave.topics.put(TopicConfig(topic_name="orders"))
        assert bodies_in(await world.pull(SLAVE)), "it serves what it has"

    play(scene, slave_read_enable=True)


def test_running_slave_notices_when_its_master_comes_back_with_less() -> None:
    async def scene(world: GroupWorld) -> None:
        await world.start()
        await world.start(SLAVE)
        await world.fill(40)
        await world.in_step()
        old = world.disks[MASTER].kill()
        await world.fill(10, topic="lost")
        await world.in_step()
        world.end(MASTER)
        world.disks[MASTER] = old
        await world.advance(3.0)
        await world.start()
        await world.fill(1, topic="again")
        await world.in_step()
        assert world.replica.truncations == 1

    play(scene)


@pytest.mark.parametrize("shard", range(4))
def test_slave_that_crashes_anywhere_on_its_way_back_to_the_master_gets_there(shard: int) -> None:
    """Its machine fails at a step of the cut, or of what follows; the next process finds what the disk kept."""

    async def scene(world: GroupWorld) -> None:
        common = await diverged(world, 30, 20)
        before = world.disks[SLAVE]
        counted = world.disks[SLAVE] = before.crash(0, Outcome.EVERYTHING)
        begun = counted.steps
        await world.start(SLAVE)
        await world.in_step()
        steps = counted.steps - begun
        assert world.replica.truncations == 1
        world.end(SLAVE)
        assert steps > 20
        for step in range(1 + shard, steps + 1, 4):
            disk = world.disks[SLAVE] = before.crash(0, Outcome.EVERYTHING)
            disk.stop_at(disk.steps + step, tear_at=step % 7)
            with suppress(SimulatedCrash, AssertionError):  # a crash in a task of its own shows as time that passes
                await world.start(SLAVE)
                await world.until(lambda: log_of(world.slave) == log_of(world.master), 1.0)
            world.end(SLAVE)
            world.disks[SLAVE] = disk.crash(step)
            await world.start(SLAVE)
            await world.in_step()
            assert log_of(world.slave)[: len(common)] == common
            world.slave.writer.make_visible()
            assert world.slave.store.max_offset("lost", 0) == 0
            assert world.slave.store.max_offset("again", 0) == 20
            world.end(SLAVE)

    play(scene)


class _ClosedTransport:
    """As uvloop's: what is closing refuses to write."""

    def is_closing(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")


def test_stream_that_broke_before_the_greeting_is_not_written_to() -> None:
    async def scene() -> None:
        stream = _Stream(cast("Any", None))
        stream.connection_made(_ClosedTransport())
        stream.send(b"hello")
        stream.connection_lost(None)
        assert stream.closed.done()

    asyncio.run(scene())
