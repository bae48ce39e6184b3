"""Let a failed message come again, give up on it in the end, and send the dead letter on its way once more.

    python examples/retries.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-retries"
GROUP = "example-retries"
DEAD_LETTERS = f"%DLQ%{GROUP}"


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(DEAD_LETTERS, queues=1)  # the broker would make it with the first dead letter
        await mq.admin.create_topic(TOPIC)
        await mq.send(TOPIC, b"a parcel without address")
        is_address_known = False
        delivered = asyncio.Event()

        async def deliver(message: fusee.ReceivedMessage) -> fusee.ConsumeResult:
            print(f"try {message.reconsume_times + 1}")
            if is_address_known:
                delivered.set()
                return fusee.ConsumeResult.SUCCESS
            return fusee.ConsumeResult.RETRY_LATER  # or raise anything: it comes again

        async with (
            # By default there are 16 more tries, after 10 s, 30 s and on to 2 h; here two more, after 1 s (level 1).
            mq.consumer(
                TOPIC,
                group=GROUP,
                consume_from="first",
                listener=deliver,
                max_reconsume_times=2,
                delay_level_when_next_consume=1,
            ),
            mq.consumer(DEAD_LETTERS, group="example-undertaker", consume_from="first") as letters,
        ):
            dead = await anext(aiter(letters))
            print(f"dead letter: {dead.body.decode()!r}")
            is_address_known = True
            await mq.admin.redeliver(dead, GROUP)
            await delivered.wait()
        print("delivered")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
