"""Ask for messages when you want them: poll as a member of a group, or read queues by hand.

    python examples/pull_consumer.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-pull-consumer"


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        for number in range(20):
            await mq.send(TOPIC, f"order {number}")

        # A member of a group: it gets its share of the queues, and says itself how far it is.
        async with mq.pull_consumer(TOPIC, group="example-poll", consume_from="first", auto_commit=False) as consumer:
            count = 0
            while count < 20:
                messages = await consumer.poll(timeout_ms=5_000, max_messages=8)
                count += len(messages)
                await consumer.commit()
            print(f"{count} polled and committed")

        # Queues by hand: no share, no group to be a member of; seek and read.
        async with mq.pull_consumer(group="example-reader") as reader:
            queues = sorted(await reader.queues(TOPIC))
            await reader.assign(queues)
            for queue in queues:
                await reader.seek_to_begin(queue)
            print("first again:", (await reader.poll(max_messages=1))[0].body.decode())

            # One request for one place.
            found = await reader.pull(queues[0], 0, max_messages=2)
            print(f"queue {queues[0].queue_id}: {len(found.messages)} messages, the next offset is {found.next_offset}")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
