from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop

from fusee.clock import SystemClock
from fusee.errors import ClientStateError, ConfigError, RemoteError, StoreError
from fusee.in_process import EmbeddedServer, embedded
from fusee.transport.client import Client
from fusee.transport.tcp import TcpNetwork
from fusee.wire.bodies.route import decode_route
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.namesrv import GetRouteInfo
from tests.broker.world import bodies_in, pull_header, send_header

LEVEL_OF_TEN_MINUTES = "14"
MORNING = datetime(2026, 1, 1, 6, tzinfo=UTC)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    def play(main: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(main())

    return play


class Caller:
    """A bare client that shares the server's clock."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        time = server._time
        self.client = Client(
            network=server._traffic or TcpNetwork(),
            clock=server.clock,
            timers=time or asyncio.get_running_loop(),
        )

    async def send(self, body: bytes, **header: Any) -> Command:
        request = Command.request(RequestCode.SEND_MESSAGE_V2, send_header(**header), body=body)
        answer = await self.client.request(self.server.broker_address, request)
        assert answer.code == ResponseCode.SUCCESS
        return answer

    async def pull(self, **header: Any) -> Command:
        request = Command.request(RequestCode.PULL_MESSAGE, pull_header(**header))
        return await self.client.request(self.server.broker_address, request, timeout=60.0)

    async def route(self, topic: str) -> Command:
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic))
        return await self.client.request(self.server.name_server, request)

    async def watch(self, seen: list[tuple[datetime, bytes]]) -> None:
        """Pull queue 0 of `orders` for ever; when each message came."""
        queue_offset = 0
        while True:
            answer = await self.pull(queue_offset=queue_offset, hold_ms=15_000)
            if answer.code == ResponseCode.SUCCESS:
                seen += [(self.server.now, body) for body in bodies_in(answer)]
                queue_offset = len(seen)


@asynccontextmanager
async def stage(**options: Any) -> AsyncIterator[tuple[EmbeddedServer, Caller]]:
    async with embedded(**options) as server:
        caller = Caller(server)
        try:
            yield server, caller
        finally:
            await caller.client.close()


# Start and stop


@pytest.mark.parametrize("clock", ["system", "manual"])
def test_server_takes_messages_and_gives_them_back(run: Any, clock: Any) -> None:
    async def main() -> None:
        async with stage(topics=["orders"], clock=clock) as (_, caller):
            await caller.send(b"hello")
            assert bodies_in(await caller.pull()) == [b"hello"]

    run(main)


def test_topics_of_the_start_are_known_to_the_name_server(run: Any) -> None:
    async def main() -> None:
        narrow = TopicConfig(topic_name="narrow", read_queue_nums=1, write_queue_nums=2)
        async with stage(topics=["orders", narrow]) as (server, caller):
            await server.create_topics({"wide": 9})
            found = {}
            for topic in ("orders", "narrow", "wide"):
                queue = decode_route((await caller.route(topic)).body).queue_datas[0]
                found[topic] = (queue.read_queue_nums, queue.write_queue_nums)
            assert found == {"orders": (4, 4), "narrow": (1, 2), "wide": (9, 9)}

    run(main)


def test_topic_that_the_broker_refuses_fails_the_start(run: Any) -> None:
    async def main() -> None:
        with pytest.raises(RemoteError, match="illegal"):
            async with embedded(topics=["not a topic"]):
                pass

    run(main)


@pytest.mark.parametrize("clock", ["system", "manual"])
def test_first_message_is_taken_within_200_ms_of_the_start(clock: Any) -> None:
    now = SystemClock().monotonic

    async def main() -> float:
        began = now()
        async with stage(topics=["orders"], clock=clock) as (_, caller):
            await caller.send(b"first")
            return now() - began

    # The best of a few: what is measured is the work, not the load of the machine.
    assert min(asyncio.run(main()) for _ in range(5)) < 0.2


@pytest.mark.parametrize("clock", ["system", "manual"])
def test_stop_leaves_no_task_no_open_file_and_no_folder(run: Any, clock: Any) -> None:
    async def main() -> None:
        async with embedded():
            pass  # a loop keeps a file or two of its own from its first server on
        loop_files = open_files()
        async with stage(topics=["orders"], clock=clock) as (server, caller):
            await caller.send(b"hello", properties={"KEYS": "k"})
            held = asyncio.ensure_future(caller.pull(queue_offset=1, hold_ms=20_000))
            folder = server.store_path
            assert folder.is_dir()
        await asyncio.gather(held, return_exceptions=True)
        assert not folder.exists()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert open_files() == loop_files
        with pytest.raises(ClientStateError, match="not running"):
            _ = server.name_server

    run(main)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_start_that_fails_leaves_nothing(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with embedded(store=tmp_path, clock="manual"):
            before = open_files()
            with pytest.raises(StoreError, match="open already"):
                await embedded(store=tmp_path, clock="manual").start()
            assert len(asyncio.all_tasks()) == 1
            assert open_files() == before

    run(main)


def test_start_twice_is_refused(run: Any) -> None:
    async def main() -> None:
        async with embedded() as server:
            with pytest.raises(ClientStateError, match="running already"):
                await server.start()

    run(main)


def test_messages_in_a_folder_of_ones_own_outlive_the_server(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(store=tmp_path, topics=["orders"]) as (_, caller):
            await caller.send(b"kept")
        async with stage(store=tmp_path) as (_, caller):
            assert bodies_in(await caller.pull()) == [b"kept"]

    run(main)


@pytest.mark.parametrize("clock", ["system", "manual"])
def test_broker_can_be_stopped_and_comes_back_where_it_was(run: Any, clock: Any) -> None:
    async def main() -> None:
        async with stage(topics=["orders"], clock=clock) as (server, caller):
            await caller.send(b"before")
            address = server.broker_address
            await server.stop_broker()
            assert (await caller.route("orders")).code == ResponseCode.TOPIC_NOT_EXIST
            with pytest.raises(ClientStateError, match="not running"):
                _ = server.broker
            await server.start_broker()
            assert server.broker_address == address
            assert bodies_in(await caller.pull()) == [b"before"]
            with pytest.raises(ClientStateError, match="stop_broker"):
                await server.start_broker()

    run(main)


def test_two_servers_run_beside_each_other(run: Any) -> None:
    async def main() -> None:
        async with stage(topics=["orders"], clock="manual") as one, stage(topics=["orders"], clock="manual") as two:
            await one[1].send(b"one")
            await two[1].send(b"two")
            await one[0].advance(3600)
            assert bodies_in(await one[1].pull()) == [b"one"]
            assert bodies_in(await two[1].pull()) == [b"two"]
            assert one[0].now - two[0].now > timedelta(minutes=59)

    run(main)


# Options


def test_settings_of_broker_and_store_are_passed_on(run: Any) -> None:
    async def main() -> None:
        async with stage(topics=["orders"], broker_name="b", max_message_size=1000) as (server, caller):
            assert server.broker.config.broker_name == "b"
            with pytest.raises(AssertionError):
                await caller.send(b"x" * 2000)

    run(main)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"broker_nam": "b"}, "is it broker_name?"),
        ({"colour": "red"}, "no setting"),
        ({"namesrv_addr": "other:9876"}, "not free"),
        ({"clock": "sundial"}, "'system' or 'manual'"),
        ({"topics": "orders"}, "a list of names"),
        ({"start_at": MORNING}, "clock='manual'"),
        ({"clock": "manual", "tls_server_cert_path": "cert.pem"}, "clock='system'"),
    ],
)
def test_wrong_options_are_refused_before_the_start(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        embedded(**options)


# The clock


def test_delayed_message_comes_exactly_when_its_time_has_come(run: Any) -> None:
    async def main() -> None:
        async with stage(topics=["orders"], clock="manual", start_at=MORNING) as (server, caller):
            seen: list[tuple[datetime, bytes]] = []
            watching = asyncio.ensure_future(caller.watch(seen))
            await caller.send(b"late", properties={"DELAY": LEVEL_OF_TEN_MINUTES})
            await server.advance(599.9)
            assert seen == []
            await server.advance(timedelta(seconds=0.2))
            assert seen == [(MORNING + timedelta(minutes=10), b"late")]
            watching.cancel()

    run(main)


def test_advance_is_the_same_each_time(run: Any) -> None:
    async def story() -> list[tuple[datetime, bytes]]:
        async with stage(topics=["orders"], clock="manual", start_at=MORNING) as (server, caller):
            seen: list[tuple[datetime, bytes]] = []
            watching = asyncio.ensure_future(caller.watch(seen))
            for number in range(30):
                await caller.send(b"%d" % number, properties={"DELAY": str(1 + number % 9)})
                await server.advance(1.7)
            await server.advance(300)
            watching.cancel()
            return seen

    first = run(story)
    assert len(first) == 30
    assert run(story) == first


def test_many_sends_at_once_reach_a_waiting_pull_without_advance(run: Any) -> None:
    async def main() -> None:
        async with stage(topics=["orders"], clock="manual") as (_, caller):
            seen: list[tuple[datetime, bytes]] = []
            watching = asyncio.ensure_future(caller.watch(seen))
            await asyncio.gather(*(caller.send(b"%d" % number) for number in range(100)))
            async with asyncio.timeout(10):
                while len(seen) < 100:
                    await caller.pull()
            watching.cancel()

    run(main)


def test_clock_stands_still_by_itself(run: Any) -> None:
    async def main() -> None:
        async with stage(topics=["orders"], clock="manual", start_at=MORNING) as (server, caller):
            await caller.send(b"hello")
            await server.settle()
            assert server.now == MORNING

    run(main)


def test_clock_without_a_start_begins_in_the_present(run: Any) -> None:
    async def main() -> None:
        async with embedded(clock="manual") as server:
            assert abs(server.clock.time_ms() - SystemClock().time_ms()) < 60_000

    run(main)


def test_advance_needs_a_manual_clock_and_goes_forward(run: Any) -> None:
    async def main() -> None:
        async with embedded() as server:
            with pytest.raises(ClientStateError, match="clock='manual'"):
                await server.advance(1)
        async with embedded(clock="manual") as server:
            with pytest.raises(ConfigError, match="forward"):
                await server.advance(-1)

    run(main)


def test_nothing_expires_by_a_clock_that_is_not_the_files_own(run: Any) -> None:
    async def main() -> None:
        async with embedded(clock="manual") as server:
            years = server.broker.store_config.file_reserved_time / 24 / 365
            assert years >= 100
        async with embedded(clock="manual", file_reserved_time=72) as server:
            assert server.broker.store_config.file_reserved_time == 72

    run(main)
