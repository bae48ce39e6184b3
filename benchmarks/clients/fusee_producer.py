"""This project's producer as a benchmark program: so many sends under way, each followed by the next.

By default coroutines send and await; with `--callback` the callback of one send makes the next.
"""

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

            send_async = producer.send_async

            def next_one(result: fusee.SendResult | None, error: Exception | None) -> None:
                if error is None:
                    tally.done += 1
                else:
                    tally.failed += 1
                send_async(topic, body, callback=next_one)

            async with asyncio.TaskGroup() as group:
                for _ in range(arguments.workers):
                    if arguments.callback:
                        send_async(topic, body, callback=next_one)
                    else:
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
    parser.add_argument("--callback", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    run(main(parsed()))
