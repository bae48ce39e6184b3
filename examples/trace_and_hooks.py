"""Watch what happens to messages: hooks in this process, and the trace that RocketMQ's tools read.

    python examples/trace_and_hooks.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process. The broker must have
traceTopicEnable=true.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import fusee

if TYPE_CHECKING:
    from fusee.client.hooks import ConsumeContext, SendContext

TOPIC = "example-trace"


class Stopwatch:
    """A hook for sending and for consuming. It runs inside of the call it watches, so it must be quick."""

    def before_send(self, context: SendContext) -> None:
        pass

    def after_send(self, context: SendContext) -> None:
        print(f"sent to {context.queue.broker_name}: {context.error or 'stored'}")

    def before_consume(self, context: ConsumeContext) -> None:
        pass

    def after_consume(self, context: ConsumeContext) -> None:
        print(f"{context.group} consumed {len(context.messages)}: {context.status}")


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers, enable_trace=True) as mq:
        await mq.admin.create_topic(TOPIC)
        async with mq.producer("example-shop", hooks=[Stopwatch()]) as shop:
            sent = await shop.send(TOPIC, b"order 1", key="1")
        async with mq.consumer(TOPIC, group="example-trace", consume_from="first", hooks=[Stopwatch()]) as messages:
            async for _ in messages:
                break

    async with fusee.connect(name_servers) as mq:  # closing the connection has sent the rest of the trace
        for record in await mq.admin.trace(sent.message_id):
            print(f"trace: {record.kind.value} by {record.group}, success: {record.success}")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
