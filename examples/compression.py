"""Compress large bodies on the way and on disk; every client of RocketMQ reads them.

    python examples/compression.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-compression"
REPORT = b"a line that is much like the next one\n" * 10_000


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        for codec in ("ZLIB", "LZ4", "ZSTD"):
            # ZLIB is the default, from 4 KiB on; old clients of RocketMQ read only that.
            async with mq.producer(
                f"example-{codec}", compress_type=codec, compress_msg_body_over_howmuch=1024
            ) as shop:
                await shop.send(TOPIC, REPORT, tag=codec)
        async with mq.consumer(TOPIC, group="example-compression", consume_from="first") as messages:
            steps = aiter(messages)
            for message in sorted([await anext(steps) for _ in range(3)], key=lambda message: message.tag or ""):
                assert message.body == REPORT
                print(f"{message.tag}: {len(message.body):,} bytes, stored in {message.store_size:,}")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
