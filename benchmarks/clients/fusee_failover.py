"""This project's clients with their defaults, one message at a time, telling when each send was accepted and each
message read: the twin of peers/Failover.java.
"""

from __future__ import annotations

import asyncio
import sys
import time

import fusee
from fusee.errors import FuseeError
from fusee.service import run

PAUSE_S = 0.005


def tell(what: str, who: str, number: int) -> None:
    sys.stdout.write(f"{what} {time.time_ns()} {who} {number}\n")
    sys.stdout.flush()


async def main(name_server: str, topic: str, group: str) -> None:
    async def listen(message: fusee.ReceivedMessage) -> None:
        tell("read", message.queue.broker_name, message.queue_offset)
        await asyncio.sleep(PAUSE_S)

    async with (
        fusee.connect(name_server) as mq,
        mq.consumer(
            topic,
            group=group,
            consume_from="first",
            listener=listen,
            # Nothing is kept in store, so what is read after a death was fetched after it.
            pull_batch_size=1,
            pull_threshold_for_queue=1,
            consume_thread_max=1,
        ),
    ):
        while True:
            began_ns = time.time_ns()
            try:
                result = await mq.send(topic, bytes(100))
            except FuseeError:
                tell("failed", "-", began_ns)
            else:
                tell("sent", result.queue.broker_name, began_ns)
            await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
