"""A master's end of the log stream, seen from slaves on a network in memory and from a real Broker."""

from __future__ import annotations

import asyncio
from typing import Any

from fusee.replication import PrimarySettings
from fusee.replication.frames import (
    HELLO,
    NO_RECORD,
    TransferDecoder,
    decode_facts,
    decode_record_facts,
    encode_identity,
    encode_question,
    encode_report,
    facts_of,
)
from tests.broker.world import HOST, BrokerWorld, play

HA_PORT = 10912


class Slave(asyncio.Protocol):
    """Reports when told, and keeps what it gets."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.decoder = TransferDecoder()
        self.log = bytearray()
        self.heartbeats = 0
        self.last_offset = 0
        self.sizes: list[int] = []
        self.answers: list[tuple[int, bytes]] = []
        self.start: int | None = None
        self.is_closed = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for log_offset, piece in self.decoder.feed(data):
            if log_offset < 0:
                self.answers.append((log_offset, piece))
                continue
            self.last_offset = log_offset
            self.sizes.append(len(piece))
            if not piece:
                self.heartbeats += 1
                continue
            if self.start is None:
                self.start = log_offset
            assert log_offset == self.start + len(self.log)
            self.log += piece

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True

    def report(self, log_offset: int) -> None:
        self.transport.write(encode_report(log_offset))


async def joined(world: BrokerWorld, host: str = "10.0.0.7") -> Slave:
    slave = Slave()
    await world.network.host(host).connect(lambda: slave, HOST, HA_PORT)  # type: ignore[arg-type, return-value]
    await world.settle()
    return slave


def log_of(world: BrokerWorld, start: int = 0) -> bytes:
    log, pieces = world.broker.store.log, []
    while start < log.written_offset:
        piece = log.chunk(start, 1 << 20)
        pieces.append(bytes(piece))
        start += len(piece)
    return b"".join(pieces)


def test_slave_gets_the_log_from_where_it_says_and_what_is_written_later() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for number in range(5):
            await peer.send(b"%d" % number * 100)
        slave = await joined(world)
        assert not slave.log, "nothing before it has reported"
        slave.report(0)
        await world.settle()
        assert bytes(slave.log) == log_of(world)
        await peer.send(b"later")
        await world.settle()
        assert bytes(slave.log) == log_of(world)
        assert world.broker.primary is not None
        assert list(world.broker.primary.slaves.values()) == [0]
        slave.report(len(slave.log))
        await world.settle()
        assert list(world.broker.primary.slaves.values()) == [world.broker.store.written_offset]
        second = await joined(world, "10.0.0.8")
        place = len(slave.log) // 2
        second.report(place)
        await world.settle()
        assert second.start == place
        assert bytes(second.log) == log_of(world, place)

    play(scene)


def test_idle_slave_hears_a_heartbeat_and_a_silent_one_is_cut() -> None:
    async def scene(world: BrokerWorld) -> None:
        await world.peer().send(b"x")
        slave = await joined(world)
        slave.report(0)
        await world.advance(6.0)
        assert slave.heartbeats == 1
        slave.report(len(slave.log))
        await world.advance(15.0)
        assert slave.heartbeats >= 3
        assert not slave.is_closed
        await world.advance(10.0)
        assert world.broker.primary is not None
        assert len(world.broker.primary.slaves) == 0
        assert slave.is_closed

    play(scene)


def test_slave_that_is_ahead_of_its_master_hears_where_the_log_ends() -> None:
    async def scene(world: BrokerWorld) -> None:
        await world.peer().send(b"x")
        ahead = await joined(world)
        ahead.report(1 << 40)
        await world.settle()
        assert ahead.is_closed
        assert not ahead.log
        assert ahead.heartbeats == 1
        assert ahead.last_offset == world.broker.store.written_offset
        assert world.broker.primary is not None
        assert not world.broker.primary.slaves

    play(scene)


def test_slave_that_speaks_nonsense_is_cut() -> None:
    async def scene(world: BrokerWorld) -> None:
        await world.peer().send(b"x")
        for words in (b"\xff" * 7 + b"\xf0", b"\x80" + b"\0" * 7, b"GET / HTTP/1.1\r\n"):
            stranger = await joined(world)
            stranger.transport.write(words)
            await world.settle()
            assert stranger.is_closed
            assert not stranger.log
        assert (await world.peer().send(b"goes on")).code == 0

    play(scene)


def test_slave_that_reports_more_than_it_was_sent_is_cut() -> None:
    async def scene(world: BrokerWorld) -> None:
        await world.peer().send(b"x")
        liar = await joined(world)
        liar.report(0)
        await world.settle()
        liar.report(len(liar.log) + 1)
        await world.settle()
        assert liar.is_closed
        assert world.broker.primary is not None
        assert not world.broker.primary.slaves

    play(scene)


def test_slave_of_ours_hears_of_the_log_and_of_records_before_it_reports() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for number in range(100):
            await peer.send(b"%d" % number * 100)
        store = world.broker.store
        slave = await joined(world)
        slave.report(HELLO)
        slave.transport.write(encode_question(0) + encode_question(3) + encode_identity(9))
        await world.settle()
        (_, facts), (_, first), (_, none) = slave.answers
        assert decode_facts(facts) == (0, store.written_offset, store.log.segment_size)
        assert decode_record_facts(first) == facts_of(store.record_at(0))
        assert decode_record_facts(none) == NO_RECORD
        assert not slave.log
        slave.report(0)
        await world.settle()
        assert slave.start == 0, "0 is meant literally"
        assert bytes(slave.log) == log_of(world)
        assert world.broker.primary is not None
        (progress,) = world.broker.primary.progress.slaves.values()
        assert progress.broker_id == 9

    play(scene)


def test_questions_without_a_greeting_or_without_end_are_refused() -> None:
    async def scene(world: BrokerWorld) -> None:
        rude = await joined(world)
        rude.transport.write(encode_question(0))
        await world.settle()
        assert rude.is_closed
        endless = await joined(world)
        endless.report(HELLO)
        endless.transport.write(encode_question(0) * 5000)
        await world.settle()
        assert endless.is_closed

    play(scene)


def test_broker_that_comes_again_replaces_its_old_connection() -> None:
    async def scene(world: BrokerWorld) -> None:
        await world.peer().send(b"x")
        old, new = await joined(world), await joined(world)
        for slave in (old, new):
            slave.report(HELLO)
            slave.transport.write(encode_identity(1))
            slave.report(0)
            await world.settle()
        assert old.is_closed
        assert not new.is_closed
        assert world.broker.primary is not None
        assert len(world.broker.primary.slaves) == 1

    play(scene)


def test_slave_whose_place_has_expired_is_cut_unless_it_is_new() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for number in range(100):
            await peer.send(b"%d" % number * 300)
        log = world.broker.store.log
        log.drop_head(2 * log.segment_size)
        old = await joined(world)
        old.report(100)
        new = await joined(world, "10.0.0.8")
        new.report(HELLO)
        new.report(0)
        await world.settle()
        assert old.is_closed
        assert new.start == log.min_offset == 2 * log.segment_size

    play(scene)


def test_slave_over_the_limit_is_cut() -> None:
    async def scene(world: BrokerWorld) -> None:
        primary = world.broker.primary
        assert primary is not None
        primary.settings = PrimarySettings(slaves_max=2)
        slaves = [await joined(world) for _ in range(3)]
        await world.settle()
        assert [slave.is_closed for slave in slaves] == [False, False, True]

    play(scene)


def test_slave_that_does_not_read_gets_no_more_until_it_does() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        slave = await joined(world)
        slave.report(0)
        await world.settle()
        slave.transport.pause_reading()
        for _ in range(300):
            await peer.send(b"x" * 7000)
        await world.advance(0.01)
        assert world.broker.primary is not None
        (progress,) = world.broker.primary.progress.slaves.values()
        assert progress.next_offset < world.broker.store.written_offset
        slave.transport.resume_reading()
        await world.settle()
        assert bytes(slave.log) == log_of(world)

    play(scene)


def test_transfers_have_the_size_that_is_set() -> None:
    async def scene(world: BrokerWorld) -> None:
        await world.peer().send(b"x" * 5000)
        slave = await joined(world)
        slave.report(0)
        await world.settle()
        assert max(slave.sizes) == 1000
        assert bytes(slave.log) == log_of(world)

    play(scene, ha_transfer_batch_size=1000)


def test_stop_of_the_master_ends_the_stream() -> None:
    async def scene(world: BrokerWorld) -> None:
        slave = await joined(world)
        slave.report(0)
        await world.stop()
        await world.settle()
        assert slave.is_closed

    play(scene)


def test_what_nobody_waits_for_goes_together_when_it_comes_fast() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        slave = await joined(world)
        slave.report(0)
        await world.advance(1.0)
        await peer.send(b"first")
        await world.settle()
        assert bytes(slave.log) == log_of(world), "the first goes at once"
        for number in range(5):
            await peer.send(b"%d" % number)
            slave.report(len(slave.log))
        await world.settle()
        assert len(slave.sizes) == 1
        await world.advance(0.002)
        assert bytes(slave.log) == log_of(world)
        assert len(slave.sizes) == 2

    play(scene)


def test_what_is_waited_for_goes_at_once() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        slave = await joined(world)
        slave.report(0)
        await world.settle()
        sends = [asyncio.ensure_future(peer.send(b"%d" % number)) for number in range(3)]
        for _ in range(3):
            await world.settle()
            slave.report(len(slave.log))
        await world.settle()
        assert all(each.done() for each in sends)
        assert bytes(slave.log) == log_of(world)

    play(scene, broker_role="SYNC_MASTER")
