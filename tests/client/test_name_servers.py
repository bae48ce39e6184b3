"""A client stays with one name server and moves on when it fails."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from fusee.client.name_servers import NameServers
from fusee.errors import ConfigError, ConnectError
from fusee.transport.router import Router
from fusee.transport.server import Server
from fusee.wire.command import Command
from tests.transport.world import ECHO, World, echo, run


class Trio:
    """Three servers that answer with their own name."""

    def __init__(self) -> None:
        self.world = World()
        self.client = self.world.client()
        self.servers: dict[str, Server] = {}
        self.asked: list[str] = []

    async def start(self, *names: str) -> None:
        for name in names:
            router = Router()

            def answer(request: Command, link: Any, name: str = name) -> Command:
                self.asked.append(name)
                return request.reply(17, body=name.encode())

            router.add(ECHO, answer, router.lane("all", 10))
            server = Server(
                network=self.world.network.host(name),
                router=router,
                clock=self.world.clock,
                timers=self.world.clock,
            )
            await server.start(name, 9876)
            self.servers[name] = server

    def name_servers(self, seed: int = 0) -> NameServers:
        return NameServers(self.client, "n0:9876;n1:9876; n2:9876 ", chooser=random.Random(seed))

    async def ask(self, servers: NameServers, seconds: float = 0.0) -> Command:
        answer: Command = await self.world.during(servers.request(echo()), seconds)
        return answer


def test_client_stays_with_one_that_answers_even_with_an_error_code() -> None:
    async def scenario() -> None:
        trio = Trio()
        await trio.start("n0", "n1", "n2")
        servers = trio.name_servers()
        assert [(await trio.ask(servers)).code for _ in range(5)] == [17] * 5
        assert len(set(trio.asked)) == 1

    run(scenario)


def test_start_is_spread_over_all() -> None:
    async def scenario() -> None:
        trio = Trio()
        assert {trio.name_servers(seed).current for seed in range(30)} == {"n0:9876", "n1:9876", "n2:9876"}

    run(scenario)


def test_client_moves_round_robin_when_one_fails_and_stays_there() -> None:
    async def scenario() -> None:
        trio = Trio()
        await trio.start("n0", "n1", "n2")
        servers = trio.name_servers()
        first = (await trio.ask(servers)).body.decode()
        await trio.world.during(trio.servers[first].stop(), seconds=1)
        second = (await trio.ask(servers)).body.decode()
        assert int(second[1]) == (int(first[1]) + 1) % 3
        await trio.start(first)
        assert (await trio.ask(servers)).body.decode() == second

    run(scenario)


def test_client_moves_on_when_no_answer_comes() -> None:
    async def scenario() -> None:
        trio = Trio()
        await trio.start("n0", "n1", "n2")
        servers = trio.name_servers()
        first = (await trio.ask(servers)).body.decode()
        trio.world.network.weather("c", first).lossy = True
        answer = await trio.ask(servers, seconds=3.1)
        assert answer.body.decode() != first

    run(scenario)


def test_none_reachable_names_every_address_and_cause() -> None:
    async def scenario() -> None:
        trio = Trio()
        with pytest.raises(ConnectError) as raised:
            await trio.ask(trio.name_servers())
        for name in ("n0:9876", "n1:9876", "n2:9876"):
            assert name in str(raised.value)

    run(scenario)


def test_callers_that_fail_together_move_one_step_only() -> None:
    async def scenario() -> None:
        trio = Trio()
        await trio.start("n0", "n1", "n2")
        servers = trio.name_servers()
        first = (await trio.ask(servers)).body.decode()
        await trio.world.during(trio.servers[first].stop(), seconds=1)
        tasks = [asyncio.ensure_future(servers.request(echo())) for _ in range(10)]
        await trio.world.network.settle()
        assert len({task.result().body for task in tasks}) == 1

    run(scenario)


@pytest.mark.parametrize("addresses", ["", " ; ", []])
def test_no_address_is_refused_with_the_fix(addresses: str | list[str]) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
            NameServers(World().client(), addresses)

    run(scenario)


def test_malformed_address_is_refused_at_once() -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match="HOST:PORT"):
            NameServers(World().client(), "localhost")

    run(scenario)
