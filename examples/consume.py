"""Consume by looping: the next step says that the message before is done, and an exception has it come again.

    python examples/consume.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-consume"


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        for number in range(100):
            await mq.send(TOPIC, f"order {number}", tag="paid", key=str(number))

        async with mq.consumer(TOPIC, group="example-consume", consume_from="first") as messages:
            async for message in messages:
                print(message.body.decode(), message.tag, message.keys, message.stored_at.date(), sep=", ")
                break  # leaving the block in peace acknowledges this one too

        # The group goes on where it stopped. Lists of messages are the fastest way.
        count = 1
        async with mq.consumer(TOPIC, group="example-consume") as messages:
            async for batch in messages.batches(32):
                count += len(batch)
                if count == 100:
                    break
        lag = await mq.admin.lag("example-consume", TOPIC)
        print(f"{count} consumed, {lag.total} left")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
