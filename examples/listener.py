"""Consume by a listener: a coroutine function on the event loop, or a plain function that may block, in threads.

    python examples/listener.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter

import fusee

TOPIC = "example-listener"
COUNT = 40


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        await asyncio.gather(*(mq.send(TOPIC, f"order {number}", order_by=number % 4) for number in range(COUNT)))

        sums: Counter[str] = Counter()
        loop, complete = asyncio.get_running_loop(), asyncio.Event()

        def note(group: str) -> None:
            sums[group] += 1
            if len(sums) == 3 and all(count == COUNT for count in sums.values()):
                loop.call_soon_threadsafe(complete.set)

        async def bill(message: fusee.ReceivedMessage) -> None:  # up to 20 at a time
            note("billing")

        def pack(message: fusee.ReceivedMessage) -> None:  # may block: heartbeats go on meanwhile
            assert threading.current_thread() is not threading.main_thread()
            note("packing")

        async def ship(message: fusee.ReceivedMessage) -> None:  # one after another in each queue
            note("shipping")

        async with (
            mq.consumer(TOPIC, group="example-billing", consume_from="first", listener=bill),
            mq.consumer(TOPIC, group="example-packing", consume_from="first", listener=pack, concurrency=4),
            mq.consumer(TOPIC, group="example-shipping", consume_from="first", listener=ship, ordered=True),
        ):
            await complete.wait()
        print(*(f"{group}: {count}" for group, count in sorted(sums.items())), sep=", ")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
