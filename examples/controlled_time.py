"""A whole server inside this process, and a clock that moves when told: minutes of delays and retries in a moment.

    python examples/controlled_time.py

It needs no server.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import fusee

TOPIC = "reminders"


async def main() -> None:
    begun = time.perf_counter()
    async with fusee.embedded(topics=[TOPIC], clock="manual") as server, server.connect() as mq:
        start = server.now

        async def remind(message: fusee.ReceivedMessage) -> bool:
            print(f"{server.now - start}: {message.body.decode()}, try {message.reconsume_times + 1}")
            return message.reconsume_times == 2  # False, like an exception: it failed, and comes again

        async with mq.consumer(TOPIC, group="mailer", listener=remind):
            await mq.send(TOPIC, b"pay, please", delay_level=14)
            await server.advance(timedelta(minutes=11))
        print(f"{server.now - start} have passed in {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    asyncio.run(main())
