from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from fusee.clock import SystemClock
from fusee.in_process.traffic import Traffic
from fusee.transport.link import Link
from fusee.transport.tcp import TcpNetwork

HOST = "127.0.0.1"


class Sink(asyncio.Protocol):
    """Takes what comes, and keeps its transport."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = b""
        self.is_lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class Scene:
    """A door and what came through it."""

    def __init__(self) -> None:
        self.traffic = Traffic(TcpNetwork())
        self.accepted: list[Sink] = []
        self.door: Any = None

    async def open(self) -> None:
        self.door = await self.traffic.listen(self._accept, HOST, 0)

    def _accept(self) -> Sink:
        self.accepted.append(Sink())
        return self.accepted[-1]

    async def call(self) -> Link:
        loop = asyncio.get_running_loop()
        return await self.traffic.connect(lambda: Link(clock=SystemClock(), timers=loop), *self.door.address)

    async def arrived(self) -> None:
        await turn_until(lambda: not self.traffic.is_under_way)


async def turn_until(happened: Callable[[], object]) -> None:
    for _ in range(1_000_000):
        if happened():
            return
        await asyncio.sleep(0)
    pytest.fail("it did not happen")


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], None]:
    def run(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            stage = Scene()
            await stage.open()
            try:
                await scene(stage)
            finally:
                stage.door.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


def test_bytes_are_under_way_until_the_other_end_has_them(play: Any) -> None:
    async def scene(stage: Scene) -> None:
        link = await stage.call()
        await stage.arrived()
        size = 3_000_000  # more than the kernel's buffers hold
        link.send(b"x" * size)
        assert stage.traffic.is_under_way
        await stage.arrived()
        assert len(stage.accepted[0].received) == size
        link.close()
        await stage.arrived()

    play(scene)


def test_an_accept_is_under_way_until_the_server_has_taken_it(play: Any) -> None:
    async def scene(stage: Scene) -> None:
        calling = asyncio.ensure_future(stage.call())
        await asyncio.sleep(0)
        assert stage.traffic.is_under_way
        link = await calling
        await stage.arrived()
        assert len(stage.accepted) == 1
        link.close()
        await stage.arrived()

    play(scene)


def test_an_end_is_under_way_until_both_sides_know(play: Any) -> None:
    async def scene(stage: Scene) -> None:
        link = await stage.call()
        await stage.arrived()
        link.close()
        assert stage.traffic.is_under_way
        await stage.arrived()
        assert stage.accepted[0].is_lost
        assert not link.is_open
        assert stage.traffic.connections == 0

    play(scene)


def test_a_reader_that_pauses_is_not_waited_for(play: Any) -> None:
    async def scene(stage: Scene) -> None:
        link = await stage.call()
        await stage.arrived()
        reader = stage.accepted[0].transport
        reader.pause_reading()
        link.send(b"hello")
        was_waited_for = stage.traffic.is_under_way
        reader.resume_reading()
        assert stage.traffic.is_under_way
        assert not was_waited_for
        await stage.arrived()
        assert stage.accepted[0].received == b"hello"
        link.close()
        await stage.arrived()

    play(scene)


def test_a_caller_from_elsewhere_is_not_waited_for(play: Any) -> None:
    async def scene(stage: Scene) -> None:
        with socket.create_connection(stage.door.address):
            await turn_until(lambda: stage.accepted and stage.accepted[0].transport)
            stage.accepted[0].transport.write(b"hello")
            assert not stage.traffic.is_under_way
        await turn_until(lambda: stage.accepted[0].is_lost)
        assert stage.traffic.connections == 0

    play(scene)


def test_connection_that_nobody_will_accept_is_forgotten(play: Any) -> None:
    async def scene(stage: Scene) -> None:
        with socket.create_server((HOST, 0)) as deaf:  # its backlog accepts, nobody else does
            traffic = Traffic(_Standing(deaf))
            door = await traffic.listen(Sink, *deaf.getsockname())
            loop = asyncio.get_running_loop()
            link = await traffic.connect(lambda: Link(clock=SystemClock(), timers=loop), *deaf.getsockname())
            was_waited_for = traffic.is_under_way
            door.close()
            assert was_waited_for
            assert not traffic.is_under_way
            link.close()
            await turn_until(lambda: not link.is_open)

    play(scene)


class _Standing(TcpNetwork):
    """Does not open doors, but says so."""

    def __init__(self, door: socket.socket) -> None:
        super().__init__()
        self.address = door.getsockname()

    async def listen(self, link_factory: Any, host: str, port: int) -> Any:
        return self

    def close(self) -> None:
        """Nothing is open."""
