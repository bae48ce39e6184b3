"""The same without an event loop: `fusee.sync` has every call, blocking, for any number of threads.

    python examples/blocking.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import fusee.sync

TOPIC = "example-blocking"


def main(name_servers: str) -> None:
    with fusee.sync.connect(name_servers) as mq:
        mq.admin.create_topic(TOPIC)
        sent = mq.send(TOPIC, "order 0", tag="paid")
        print("stored in queue", sent.queue.queue_id)
        soon = [mq.send_soon(TOPIC, f"order {number}") for number in range(1, 10)]  # futures: all under way at once
        print(len([future.result() for future in soon]), "more")
        with ThreadPoolExecutor() as threads:
            threads.map(lambda number: mq.send(TOPIC, f"order {number}"), range(10, 20))

        count = 0
        with mq.consumer(TOPIC, group="example-blocking", consume_from="first") as messages:
            for _ in messages:
                count += 1
                if count == 20:
                    break
        print(count, "consumed,", mq.admin.lag("example-blocking", TOPIC).total, "left")


if __name__ == "__main__":
    main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server)
