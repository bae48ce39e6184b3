"""A master's end of the log stream, seen from slaves on a network in memory and from a real Broker."""

from __future__ import annotations

import asyncio
from typing import Any

from fusee.replication.frames import TransferDecoder, encode_report
from tests.broker.world import HOST, BrokerWorld, play

HA_PORT = 10912


class Slave(asyncio.Protocol):
    """Reports when told, and keeps what it gets."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.decoder = TransferDecoder()
        self.log = bytearray()
        self.heartbeats = 0
        self.start: int | None = None
        self.is_closed = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for log_offset, piece in self.decoder.feed(data):
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


def test_slave_that_is_ahead_of_its_master_or_speaks_nonsense_is_cut() -> None:
    async def scene(world: BrokerWorld) -> None:
        await world.peer().send(b"x")
        ahead = await joined(world)
        ahead.report(1 << 40)
        await world.settle()
        assert ahead.is_closed
        assert not ahead.log
        stranger = await joined(world)
        stranger.transport.write(b"\xff" * 8)
        await world.settle()
        assert stranger.is_closed
        assert (await world.peer().send(b"goes on")).code == 0

    play(scene)


def test_stop_of_the_master_ends_the_stream() -> None:
    async def scene(world: BrokerWorld) -> None:
        slave = await joined(world)
        slave.report(0)
        await world.stop()
        await world.settle()
        assert slave.is_closed

    play(scene)
