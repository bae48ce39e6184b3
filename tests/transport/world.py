"""A server and a client on a network in memory, under a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fusee.clock import ManualClock
from fusee.transport.client import Client, ClientSettings
from fusee.transport.link import Link
from fusee.transport.memory import MemoryNetwork
from fusee.transport.router import Router
from fusee.transport.server import Server, ServerSettings
from fusee.wire.command import Command

ECHO = 9000


class Events:
    """Keeps what listeners are told."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.errors: list[Exception] = []

    def on_connect(self, link: Link) -> None:
        self.seen.append("connect")

    def on_close(self, link: Link) -> None:
        self.seen.append("close")

    def on_exception(self, link: Link, error: Exception) -> None:
        self.seen.append("exception")
        self.errors.append(error)

    def on_idle(self, link: Link) -> None:
        self.seen.append("idle")


class World:
    """One server `s:1`, any number of clients, everything in memory."""

    def __init__(self, settings: ServerSettings | None = None) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock, seed=1)
        self.router = Router()
        self.lane = self.router.lane("echo", 4)
        self.router.add(ECHO, lambda request, link: request.reply(body=request.body), self.lane)
        self.events = Events()
        self.server = Server(
            network=self.network.host("s"),
            router=self.router,
            clock=self.clock,
            timers=self.clock,
            settings=settings,
            listeners=[self.events],
        )

    def client(self, name: str = "c", router: Router | None = None, **settings: Any) -> Client:
        return Client(
            network=self.network.host(name),
            clock=self.clock,
            timers=self.clock,
            router=router,
            settings=ClientSettings(**settings),
        )

    async def during(self, work: Coroutine[Any, Any, Any], seconds: float = 0.0) -> Any:
        """Run this while time passes; its result, or the error it raised."""
        task = asyncio.ensure_future(work)
        await self.network.advance(seconds)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            pytest.fail(f"still waiting after {seconds} s")
        return task.result()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test that is a coroutine."""
    asyncio.run(test())


def echo(body: bytes = b"hi", **fields: Any) -> Command:
    """A request that the server of World answers with its body."""
    return Command(ECHO, body=body, **fields)
