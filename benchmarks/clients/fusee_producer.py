"""This project's producer as a benchmark program: some coroutines that each send and await, again and again."""

from __future__ import annotations

import argparse
import asyncio
import gc

import fusee
from benchmarks.clients.reporting import REPORT_EVERY_S, Tally
from fusee.service import run


async def main(arguments: argparse.Namespace) -> None:
    tally = Tally("Send")
    body = bytes(ord("a") + number % 26 for number in range(arguments.size))
    async with fusee.connect(arguments.name_server) as mq:
        producer = mq.producer(
            "benchmark_producer",
            auto_batch=arguments.auto_batch,
            back_pressure_for_async_send_num=100_000,
        )
        async with producer:
            send, topic = producer.send, arguments.topic

            async def one_at_a_time() -> None:
                while True:
                    try:
                        await send(topic, body)
                    except fusee.FuseeError:
                        tally.failed += 1
                    else:
                        tally.done += 1

            async with asyncio.TaskGroup() as group:
                for _ in range(arguments.workers):
                    group.create_task(one_at_a_time())
                gc.freeze()
                while True:
                    await asyncio.sleep(REPORT_EVERY_S)
                    tally.report()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--name-server", required=True)
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-w", "--workers", type=int, default=64)
    parser.add_argument("-s", "--size", type=int, default=1024)
    parser.add_argument("--auto-batch", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    run(main(parsed()))
