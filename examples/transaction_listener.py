"""Send messages in transactions by a producer with two functions: the local transaction, and the check.

    python examples/transaction_listener.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import asyncio
import os

import fusee
from fusee import TransactionState

TOPIC = "example-transaction-listener"
orders: dict[str, str] = {}  # in a real program: a table of the database


def execute(message: fusee.Message, argument: object) -> TransactionState:
    """The local transaction. A plain function runs in a thread, so it may use a blocking database driver."""
    if argument == "cancel":
        return TransactionState.ROLLBACK
    orders[message.keys[0]] = "paid"
    # The last one is as if the process had died before it could tell.
    return TransactionState.UNKNOWN if argument == "crash" else TransactionState.COMMIT


async def check(message: fusee.ReceivedMessage) -> bool | None:
    """The broker asks about the one it was not told of."""
    print(f"asked about order {message.keys[0]}: {orders.get(message.keys[0])}")
    return orders.get(message.keys[0]) == "paid"


async def main(name_servers: str) -> None:
    async with (
        fusee.connect(name_servers) as mq,
        mq.transaction_producer("example-transaction-listener", check=check, execute=execute) as shop,
    ):
        await mq.admin.create_topic(TOPIC)
        for number, what in enumerate(("pay", "cancel", "crash")):
            done = await shop.send_in_transaction(TOPIC, f"order {number}", what, key=str(number))
            print(f"order {number}: {done.state.name}")
        async with mq.consumer(TOPIC, group="example-transaction-listener", consume_from="first") as messages:
            steps = aiter(messages)
            print("delivered:", *sorted([(await anext(steps)).body.decode() for _ in range(2)]))


if __name__ == "__main__":
    # This server asks sooner than the 6 and 30 seconds that are usual.
    given = os.environ.get("NAMESRV_ADDR")
    asyncio.run(
        main(given or fusee.sync.embedded(transaction_time_out=300, transaction_check_interval=300).name_server)
    )
