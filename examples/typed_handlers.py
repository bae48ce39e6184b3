"""Declare functions that consume: the annotation says what the body becomes, the decorator how to try again.

    python examples/typed_handlers.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import fusee

TOPIC = "example-typed-handlers"
DEAD_LETTERS = "%DLQ%example-typed"


@dataclass
class Order:
    number: int
    total: float
    customer: str = "nobody"


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        await mq.admin.create_topic(DEAD_LETTERS, queues=1)  # the broker would make it with the first dead letter
        loop, billed, buried = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        # Dataclasses, msgspec Structs, pydantic models, TypedDicts, dict, str, bytes.
        @mq.handler(TOPIC, group="example-typed", concurrency=4, retry=fusee.RetryPolicy.backoff(1, max_attempts=5))
        async def bill(order: Order, message: fusee.ReceivedMessage) -> None:
            print(
                f"bill {order.customer} for order {order.number}: {order.total:.2f} (try {message.reconsume_times + 1})"
            )
            billed.set()

        @mq.handler(DEAD_LETTERS, group="example-typed-dead", consume_from="first")
        def bury(body: str) -> None:  # a plain function runs in a thread
            print(f"no order: {body!r}")
            loop.call_soon_threadsafe(buried.set)

        await mq.start_handlers()  # a service would `await mq.run()`
        await mq.send(TOPIC, Order(7, 9.5, "ada"))
        await mq.send(TOPIC, '{"number": "seven"}')  # will never be an Order, so it is a dead letter at once
        await asyncio.gather(billed.wait(), buried.wait())


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
