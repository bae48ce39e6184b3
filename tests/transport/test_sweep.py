"""Connections that are closed because nothing comes of them, over real sockets, where a close can wait for the peer."""

from __future__ import annotations

import asyncio
import socket

from fusee.clock import SystemClock
from fusee.service import run
from fusee.transport.link import Link, parse_address
from fusee.transport.router import Router
from fusee.transport.server import Server, ServerSettings
from fusee.transport.tcp import TcpNetwork
from fusee.wire.framing import encode_frame
from tests.transport.world import ECHO, echo


class Farewell:
    """Hears why a connection ended."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.reasons: list[str] = []

    def on_connect(self, link: Link) -> None: ...

    def on_close(self, link: Link) -> None:
        self.ended.set()

    def on_exception(self, link: Link, error: Exception) -> None:
        self.reasons.append(str(error))

    def on_idle(self, link: Link) -> None: ...


def test_peer_that_never_reads_is_cut_though_answers_wait_for_it() -> None:
    async def scenario() -> None:
        farewell = Farewell()
        router = Router()
        router.add(ECHO, lambda request, link: request.reply(body=bytes(8 * 1024 * 1024)), router.lane("echo", 100))
        server = Server(
            network=TcpNetwork(),
            router=router,
            clock=SystemClock(),
            timers=asyncio.get_running_loop(),
            settings=ServerSettings(idle_timeout=0.2),
            listeners=[farewell],
        )
        address = await server.start("127.0.0.1", 0)
        with socket.create_connection(parse_address(address)) as deaf:
            deaf.sendall(encode_frame(echo()) * 4)
            await asyncio.wait_for(farewell.ended.wait(), 20)
            assert "bytes unread for 0.2 s" in farewell.reasons[0]
            assert not server.links
        await server.stop()

    run(scenario())
