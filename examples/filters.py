"""Get only what you want: by tag, or by an SQL92 expression over the properties; brokers leave out the rest.

    python examples/filters.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process. SQL needs
enablePropertyFilter=true on the broker.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-filters"


async def consume(consumer: fusee.Consumer, count: int) -> list[str]:
    bodies: list[str] = []
    async with consumer as messages:
        async for message in messages:
            bodies.append(message.body.decode())
            if len(bodies) == count:
                break
    return sorted(bodies)


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        for number, (tag, region, total) in enumerate(
            [("paid", "eu", 10), ("open", "eu", 200), ("refunded", "us", 30), ("paid", "us", 400)]
        ):
            await mq.send(TOPIC, f"order {number}", tag=tag, properties={"region": region, "total": str(total)})

        tags = mq.consumer(TOPIC, group="example-tags", tags="paid || refunded", consume_from="first")
        print("by tag:", await consume(tags, 3))
        sql = mq.consumer(
            TOPIC, group="example-sql", sql="total > 100 AND region IN ('eu', 'us')", consume_from="first"
        )
        print("by SQL:", await consume(sql, 2))
        # Several topics, each with its own expression: {"orders": "paid", "refunds": fusee.Sql("total > 100")}


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
