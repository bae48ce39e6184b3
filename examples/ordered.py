"""Keep order: messages of one key go to one queue, and one member of the group consumes them one after another.

    python examples/ordered.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from typing import TYPE_CHECKING

import fusee

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "example-ordered"
STEPS = ("created", "paid", "shipped")


def last_queue(queues: Sequence[fusee.MessageQueue], message: fusee.Message, argument: object) -> fusee.MessageQueue:
    return queues[-1]


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        # All at once, and still in order: of one key, each leaves when the one before is answered.
        customers = ("ada", "bob", "cyd")
        await asyncio.gather(
            *(mq.send(TOPIC, step, key=customer, order_by=customer) for step in STEPS for customer in customers)
        )

        seen = defaultdict(list)
        complete = asyncio.Event()

        async def on_message(message: fusee.ReceivedMessage) -> None:
            seen[message.keys[0]].append(message.body.decode())
            if sum(map(len, seen.values())) == 9:
                complete.set()

        async with mq.consumer(TOPIC, group="example-ordered", ordered=True, consume_from="first", listener=on_message):
            await complete.wait()
        for customer, steps in sorted(seen.items()):
            print(f"{customer}: {', '.join(steps)}")
        assert all(tuple(steps) == STEPS for steps in seen.values())

        # A queue of your own choice: by a function, or named.
        sent = await mq.send("example-chosen", b"to the last queue", selector=last_queue)
        again = await mq.send("example-chosen", b"to the same one", queue=sent.queue)
        print(f"queue {sent.queue.queue_id} has both: {again.queue_offset == sent.queue_offset + 1}")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
