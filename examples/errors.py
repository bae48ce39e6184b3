"""What can go wrong, and what errors say: cause, fix, and whether trying again can help.

    python examples/errors.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import fusee

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def show(what: str, doing: Awaitable[object]) -> None:
    try:
        await doing
    except fusee.FuseeError as error:
        print(f"{what}\n  {type(error).__name__}, retryable: {error.retryable}, code: {error.code}\n  {error}")


async def main(name_servers: str) -> None:
    async def large() -> None:
        await mq.send("example-errors", b"x" * 5_000_000)

    async def idle() -> None:
        await fusee.connect(name_servers).send("example-errors", b"...")

    await show("no name server there", fusee.connect("127.0.0.1:1", connect_timeout_ms=500).start())
    async with fusee.connect(name_servers) as mq:
        await show("no such topic", mq.consumer("example-missing", group="example-errors").start())
        await show("too large", large())
        await show("not connected", idle())
        await show("no such message", mq.admin.message("0" * 32, "TBW102"))


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
