"""Clients that share the clock of an embedded server: hours of retries and delays, in the time that messages take."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
import uvloop

import fusee
from fusee.client.config import ServiceState
from fusee.client.received import ReceivedMessage
from fusee.in_process import EmbeddedServer

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR = 60, 3600
LADDER = [10, 30, *(minutes * MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)), HOUR, 2 * HOUR]
"""Seconds that a broker waits before each new try."""


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    def play(main: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(main())

    return play


def seconds_since_start(server: EmbeddedServer) -> int:
    return round((server.now - START).total_seconds())


def test_message_that_always_fails_goes_down_the_whole_ladder_to_the_dead_letters() -> None:
    async def main() -> None:
        tries: list[int] = []

        async def listener(message: ReceivedMessage) -> None:
            tries.append(seconds_since_start(server) - sent_at)
            assert message.reconsume_times == len(tries) - 1
            raise ValueError("never")

        async with (
            fusee.embedded(clock="manual", topics={"orders": 1}, start_at=START) as server,
            server.connect() as mq,
            mq.consumer("orders", group="g", listener=listener, consume_from="first"),
        ):
            await server.advance(10)
            sent_at = seconds_since_start(server)
            await mq.send("orders", b"x")
            await server.advance(sum(LADDER) + MINUTE)
            assert tries == [0, *accumulate(LADDER)]
            dead = await mq.admin.dead_letters("g")
            assert [letter.body for letter in dead] == [b"x"]

    asyncio.run(main())


def test_plain_listener_in_threads_is_waited_for_at_each_step(run: Any) -> None:
    async def main() -> None:
        tries: list[int] = []

        def listener(message: ReceivedMessage) -> bool:
            threading.Event().wait(0.02)  # it takes real time, which the clock waits for
            tries.append(seconds_since_start(server))
            return len(tries) > 3

        async with (
            fusee.embedded(clock="manual", topics=["orders"], start_at=START) as server,
            server.connect() as mq,
            mq.consumer("orders", group="g", listener=listener, consume_from="first"),
        ):
            await mq.send("orders", b"x")
            await server.advance(HOUR)
        assert tries == [0, 10, 40, 100]

    run(main)


def test_delays_come_to_a_loop_on_time(run: Any) -> None:
    async def main() -> None:
        arrived: dict[bytes, int] = {}

        async def consume() -> None:
            async with mq.consumer("orders", group="g", consume_from="first") as messages:
                async for message in messages:
                    arrived[message.body] = seconds_since_start(server)

        async with fusee.embedded(clock="manual", topics=["orders"], start_at=START) as server, server.connect() as mq:
            consuming = asyncio.ensure_future(consume())
            await server.settle()
            for level, body in ((1, b"1"), (5, b"60"), (14, b"600")):
                await mq.send("orders", body, delay_level=level)
            await server.advance(timedelta(minutes=15))
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
        assert {body: int(body) for body in arrived} == arrived
        assert len(arrived) == 3

    run(main)


def test_connection_that_was_left_open_is_closed_with_the_server(run: Any) -> None:
    async def main() -> None:
        for clock in ("system", "manual"):
            async with fusee.embedded(clock=clock, topics=["orders"]) as server:
                mq = await server.connect()
                consumer = mq.consumer("orders", group="g")
                await consumer.start()
                await mq.send("orders", b"x")
            assert mq.state is ServiceState.SHUTDOWN_ALREADY
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main)


def test_client_goes_on_when_the_broker_comes_back(run: Any) -> None:
    async def main() -> None:
        async with (
            fusee.embedded(clock="manual", topics=["orders"]) as server,
            server.connect() as mq,
            mq.consumer("orders", group="g", consume_from="first") as messages,
        ):
            await mq.send("orders", b"before")
            assert (await anext(aiter(messages))).body == b"before"
            await server.stop_broker()
            await server.advance(MINUTE)
            await server.start_broker()
            await server.advance(2 * MINUTE)
            await mq.send("orders", b"after")
            assert (await anext(aiter(messages))).body == b"after"

    run(main)


def test_clients_share_the_time_of_the_server(run: Any) -> None:
    async def main() -> None:
        async with fusee.embedded(clock="manual", topics=["orders"], start_at=START) as server, server.connect() as mq:
            await server.advance(HOUR)
            await mq.send("orders", b"x")
            async with mq.consumer("orders", group="g", consume_from="first") as messages:
                message = await anext(aiter(messages))
                assert message.born_at == message.stored_at == START + timedelta(hours=1)

    run(main)
