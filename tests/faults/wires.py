"""Wires between clients and nodes, and from slaves to masters, that can be held, cut and slowed.

A wire is a door on this machine behind which every connection leads to one address. A partition is thus made without
any privilege; it parts those that go through wires, and nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fusee.transport.link import format_address
from fusee.transport.tcp import TcpNetwork

if TYPE_CHECKING:
    from fusee.transport.interfaces import Listening
    from fusee.transport.link import Link

_CHUNK_SIZE: Final = 64 * 1024


class Wire:
    """One address, reached through us."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._flows: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self.is_cut = False
        self.delay_s = 0.0
        self.address = ("", 0)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._drop()

    def hold(self) -> None:
        """Nothing passes, and nobody is told."""
        self._passes.clear()

    async def cut(self) -> None:
        """Connections break, and new ones break at once."""
        self.is_cut = True
        await self._drop()

    def mend(self) -> None:
        """Everything passes, at once; what was held too."""
        self.is_cut = False
        self.delay_s = 0.0
        self._passes.set()

    async def _drop(self) -> None:
        flows = list(self._flows)
        for flow in flows:
            flow.cancel()
        await asyncio.gather(*flows, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        flow = asyncio.get_running_loop().create_task(self._join(reader, writer))
        self._flows.add(flow)
        flow.add_done_callback(self._flows.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            await self._passes.wait()
            far_reader, far = await asyncio.open_connection(*self._target)
            ways = [
                asyncio.ensure_future(self._copy(reader, far)),
                asyncio.ensure_future(self._copy(far_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the node is not there; whoever came finds the connection closed
        finally:
            for each in (writer, far):
                if each is not None:
                    each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_SIZE):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._passes.wait()
                writer.write(data)
                await writer.drain()


class WiredNetwork:
    """TCP whose connections go through wires, where there are some."""

    def __init__(self) -> None:
        self._tcp = TcpNetwork()
        self.wires: dict[str, Wire] = {}
        """By the address that they lead to."""

    async def listen(self, link_factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Listening:
        return await self._tcp.listen(link_factory, host, port)

    async def connect(self, link_factory: Callable[[], Link], host: str, port: int) -> Link:
        wire = self.wires.get(format_address((host, port)))
        return await self._tcp.connect(link_factory, *((host, port) if wire is None else wire.address))
