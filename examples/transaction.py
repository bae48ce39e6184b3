"""Send a message exactly if something else succeeds: a transaction as a block.

    python examples/transaction.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee

TOPIC = "example-transaction"
accounts = {"ada": 100, "bob": 100}
booked: set[str] = set()  # in a real program: a table, written in the same database transaction as the accounts


def check(message: fusee.ReceivedMessage) -> bool:
    """The broker was not told and asks: was it booked? It may ask another process, so look at what is durable."""
    return message.message_id in booked


async def transfer(mq: fusee.Connection, amount: int) -> None:
    note = {"from": "ada", "to": "bob", "amount": amount}
    async with mq.transaction(TOPIC, note, check=check) as tx:  # nobody sees the message yet
        if accounts["ada"] < amount:
            raise ValueError("ada has not enough")
        accounts["ada"] -= amount
        accounts["bob"] += amount
        booked.add(tx.transaction_id)
    # Leaving the block has committed: now consumers get it. An exception would have rolled back.


async def main(name_servers: str) -> None:
    async with fusee.connect(name_servers) as mq:
        await mq.admin.create_topic(TOPIC)
        await transfer(mq, 30)
        try:
            await transfer(mq, 500)
        except ValueError as error:
            print(f"rolled back: {error}")
        await transfer(mq, 20)
        async with mq.consumer(TOPIC, group="example-transaction", consume_from="first") as messages:
            steps = aiter(messages)
            print("delivered:", *sorted([(await anext(steps)).body.decode() for _ in range(2)]))
        print("accounts:", accounts)


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server))
