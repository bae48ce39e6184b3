"""Stop and go on while consuming, and read a queue again from an offset or from a time.

    python examples/pause_and_seek.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-pause-and-seek"


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC, queues=1)
        sent = await mq.send(TOPIC, b"order 0")
        inbox: asyncio.Queue[bytes] = asyncio.Queue()

        async def on_message(message: fusee.ReceivedMessage) -> None:
            inbox.put_nowait(message.body)

        async with mq.consumer(TOPIC, group="example-pause", listener=on_message, consume_from="first") as consumer:
            print("first", await inbox.get())

            consumer.pause(TOPIC)  # or one queue, or everything
            await mq.send(TOPIC, b"order 1")
            print("paused:", inbox.empty())
            consumer.resume(TOPIC)
            print("resumed", await inbox.get())

            await consumer.seek(sent.queue, sent.queue_offset)  # or "first", "last", or a datetime
            print("again", await inbox.get(), await inbox.get())


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
