"""Send a message that is delivered later.

    python examples/delay.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-delay"


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        # Brokers have 18 levels: 1 is one second, 14 ten minutes, 18 two hours. Brokers that keep messages for any time
        # also take deliver_in=90 and deliver_at=datetime(...); the broker of Fusee refuses those so far.
        await mq.send(TOPIC, b"pay, please", delay_level=1)
        async with mq.consumer(TOPIC, group="example-delay", consume_from="first") as messages:
            async for message in messages:
                waited = message.stored_at - message.born_at
                print(f"{message.body.decode()!r} was delivered {waited.total_seconds():.0f} s after it was sent")
                break


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
