"""Ask a question by message and wait for the answer.

    python examples/request_reply.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee
from fusee.errors import RequestTimeoutError

TOPIC = "example-request-reply"


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)

        async def answer(message: fusee.ReceivedMessage) -> None:
            if message.body != b"?":
                await mq.reply(message, f"the price of {message.body.decode()} is 9.50")

        async with mq.consumer(TOPIC, group="example-request-reply", listener=answer):
            reply = await mq.request(TOPIC, "a book", timeout_ms=5_000)
            print(reply.body.decode())
            try:
                await mq.request(TOPIC, "?", timeout_ms=300)
            except RequestTimeoutError as error:
                print("no answer:", error)


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
