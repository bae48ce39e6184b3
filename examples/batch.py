"""Send many messages in few requests: a batch of your own, and automatic batching.

    python examples/batch.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os
import time

import fusee

TOPIC = "example-batch"
COUNT = 5_000


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        # One request, one queue, consecutive offsets, all or none.
        batch = [fusee.Message.of(TOPIC, b"order %d" % number, keys=str(number)) for number in range(3)]
        sent = await mq.send_batch(batch)
        print(f"a batch of {len(sent.message_ids)} begins at offset {sent.queue_offset}")

        # Messages sent at about the same time travel together; each send has its own result.
        async with mq.producer("example-batch", auto_batch=True, batch_linger_ms=5, batch_max_bytes=64 * 1024) as shop:
            begun = time.perf_counter()
            results = await asyncio.gather(*(shop.send(TOPIC, b"order %d" % number) for number in range(COUNT)))
            took = time.perf_counter() - begun
        print(f"{len({result.message_id for result in results})} results, {COUNT / took:,.0f} messages a second")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
