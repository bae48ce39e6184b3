"""Administer a cluster: topics, lag with its owners, messages by key and time, offsets moved back.

    python examples/admin.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee
from fusee.errors import TopicNotFoundError

TOPIC = "example-admin"
GROUP = "example-admin"


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        admin = mq.admin
        await admin.create_topic(TOPIC, queues=2)
        for number in range(10):
            await mq.send(TOPIC, f"order {number}", key=f"order-{number}")
        async with mq.consumer(TOPIC, group=GROUP, consume_from="first") as messages:
            steps = aiter(messages)
            for _ in range(10):
                await anext(steps)
            (member,) = (await admin.consumers(GROUP)).clients
            print(f"{GROUP} has a member at {member.address.split(':')[0]}, in {member.language}")

        for cluster in await admin.clusters():
            for entry in cluster.brokers:
                print(f"broker {entry.broker.broker_name} of {cluster.cluster} at {entry.broker.address}")
        for queue in (await admin.lag(GROUP, TOPIC)).queues:
            print(f"queue {queue.queue.queue_id}: {queue.lag} of {queue.broker_offset} left")
        (found,) = await admin.messages_by_key(TOPIC, "order-3", limit=1)
        print(f"by key: {found.body.decode()}, id {found.message_id}")
        print("browsed:", [message.keys[0] async for message in admin.browse(TOPIC, limit=3)])

        moved = await admin.reset_offsets(GROUP, TOPIC, "first", dry_run=True)
        print("a reset would go from", [change.before for change in moved.changes], "to 0")
        await admin.delete_topic(TOPIC)
        try:
            await admin.topic_route(TOPIC)
        except TopicNotFoundError:
            print("deleted")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
