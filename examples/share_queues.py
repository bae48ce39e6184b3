"""Share the work: the members of a group divide the queues of a topic, anew whenever one comes or goes.

    python examples/share_queues.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-share-queues"
GROUP = "example-share-queues"


class Member:
    """One member of the group, and what it owns."""

    def __init__(self, mq: fusee.Connection, name: str) -> None:
        self.name = name
        self.changed = asyncio.Event()
        self.queues: list[int] = []
        # Strategies: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, and others; all members of a group use the same.
        self.consumer = mq.consumer(
            TOPIC, group=GROUP, strategy="AVG", listener=lambda message: None, on_assigned=self.assigned
        )

    def assigned(self, topic: str, queues: frozenset[fusee.MessageQueue]) -> None:
        if topic == TOPIC:
            self.queues = sorted(queue.queue_id for queue in queues)
            self.changed.set()

    async def owns(self, count: int) -> None:
        while len(self.queues) != count:
            await self.changed.wait()
            self.changed.clear()
        print(f"{self.name} has queues {self.queues}")


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC, queues=8)
        ada, bob = Member(mq, "ada"), Member(mq, "bob")
        async with ada.consumer:
            await ada.owns(8)
            async with bob.consumer:
                await asyncio.gather(ada.owns(4), bob.owns(4))
            await ada.owns(8)


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
