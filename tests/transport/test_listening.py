"""The door of a server over TCP: how quickly those who wait before it get in, and what they find."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest

from fusee.service import run
from fusee.transport.tcp import TcpNetwork


class Guest(asyncio.Protocol):
    """Keeps the transports of those who came in."""

    inside: list[asyncio.BaseTransport]

    def __init__(self, inside: list[asyncio.BaseTransport]) -> None:
        self.inside = inside

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.inside.append(transport)


@pytest.mark.parametrize("on_a_loop", [run, asyncio.run], ids=["uvloop", "asyncio"])
def test_crowd_before_the_door_comes_in_within_a_few_turns_of_the_loop(
    on_a_loop: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def scenario() -> None:
        inside: list[asyncio.BaseTransport] = []
        listening = await TcpNetwork().listen(lambda: Guest(inside), "127.0.0.1", 0)
        with ExitStack() as crowd:
            for _ in range(200):
                crowd.enter_context(socket.create_connection(listening.address))
            turns = 0
            while len(inside) < 200 and turns < 50:
                turns += 1
                await asyncio.sleep(0)
            assert len(inside) == 200
            assert inside[0].get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for transport in inside:
                transport.close()
            await asyncio.sleep(0)
        listening.close()

    on_a_loop(scenario())
