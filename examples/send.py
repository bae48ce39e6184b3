"""Send messages: awaited, many at once, with a callback, and oneway.

    python examples/send.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-send"


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        sent = await mq.send(TOPIC, b"order 1", tag="paid", key="1", properties={"region": "eu"})
        print(f"{sent.message_id} is in queue {sent.queue.queue_id}; it survives: {sent.durability.value}")

        # A send is under way before it is awaited, so these travel together.
        results = await asyncio.gather(*(mq.send(TOPIC, f"order {number}", key=str(number)) for number in range(100)))
        print(f"{len(results)} more, {len({result.queue for result in results})} queues")

        answered = asyncio.Event()

        def called_back(result: fusee.SendResult | None, error: Exception | None) -> None:
            print("called back:", error or "stored")
            answered.set()

        mq.send_async(TOPIC, {"order": 101, "total": 9.5}, callback=called_back)  # a value becomes JSON
        await answered.wait()

        await mq.send_oneway(TOPIC, b"order 102")  # no answer: it may be lost
        print("oneway: on its way")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
