"""Wires pass everything, nothing, or late; and the connections of a cut one break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.faults.wires import Wire

PATIENCE_S = 20.0


@asynccontextmanager
async def _wire_to_echo() -> AsyncIterator[Wire]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    wire = Wire(*server.sockets[0].getsockname()[:2])
    await wire.open()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield wire
    finally:
        await wire.close()
        server.close()


def test_wire_that_is_held_passes_what_was_written_when_it_is_mended() -> None:
    async def scenario() -> None:
        async with _wire_to_echo() as wire:
            reader, writer = await asyncio.open_connection(*wire.address)
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            wire.hold()
            writer.write(b"two")
            answer = asyncio.ensure_future(reader.readexactly(3))
            done, _ = await asyncio.wait([answer], timeout=0.05)
            assert not done
            wire.mend()
            assert await answer == b"two"
            writer.close()

    asyncio.run(scenario())


def test_wire_that_is_cut_ends_connections_old_and_new_until_it_is_mended() -> None:
    async def scenario() -> None:
        async with _wire_to_echo() as wire:
            reader, writer = await asyncio.open_connection(*wire.address)
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            await wire.cut()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            again, other = await asyncio.open_connection(*wire.address)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await again.readexactly(1)
            wire.mend()
            fresh, third = await asyncio.open_connection(*wire.address)
            third.write(b"two")
            assert await fresh.readexactly(3) == b"two"
            for each in (writer, other, third):
                each.close()

    asyncio.run(scenario())
