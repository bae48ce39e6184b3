"""Go on while servers come and go: name servers in turn, and a broker that stops and returns.

    python examples/failover.py

It uses a server inside this process, which it stops and starts.
"""

from __future__ import annotations

import asyncio

import fusee
from fusee.errors import FuseeError

TOPIC = "example-failover"


async def main() -> None:
    async with (
        fusee.embedded(topics=[TOPIC]) as server,
        # Nobody listens at the first address: the client moves on to the next.
        fusee.connect(f"127.0.0.1:1;{server.name_server}") as mq,
        mq.consumer(TOPIC, group="example-failover", consume_from="first") as messages,
    ):
        steps = aiter(messages)
        await mq.send(TOPIC, b"before")
        print("consumed:", (await anext(steps)).body.decode())

        await server.stop_broker()
        try:
            await mq.send(TOPIC, b"meanwhile", timeout_ms=1_000)
        except FuseeError as error:
            print(f"{type(error).__name__}, retryable: {error.retryable}")

        await server.start_broker()
        await send_until_stored(mq, b"after")
        print("consumed:", (await anext(steps)).body.decode())


async def send_until_stored(mq: fusee.Connection, body: bytes) -> None:
    """A send tries three times within its time-out. Who has more patience tries again as long as it may help."""
    while True:
        try:
            await mq.send(TOPIC, body)
            return
        except FuseeError as error:
            if not error.retryable:
                raise


if __name__ == "__main__":
    asyncio.run(main())
