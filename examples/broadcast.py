"""Broadcast: every member of the group gets every message, and keeps its offsets in a file of its own.

    python examples/broadcast.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

import fusee

TOPIC = "example-broadcast"


async def member(name_servers: str, name: str, ready: asyncio.Event) -> None:
    # The instance name keeps the members of one folder apart: the offsets are in .fusee/offsets/<group>/<instance>.
    async with (
        fusee.connect(name_servers, instance_name=name) as mq,
        mq.consumer(TOPIC, group="example-broadcast", broadcast=True) as messages,
    ):
        ready.set()
        async for message in messages:
            print(f"{name} heard {message.body.decode()!r}")
            break


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        async with asyncio.TaskGroup() as members:
            for name in ("ada", "bob"):
                ready = asyncio.Event()
                members.create_task(member(name_servers, name, ready))
                await ready.wait()
            await mq.send(TOPIC, b"prices have changed")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
        print("offsets:", *sorted(str(path) for path in Path().rglob("offsets.json")))
