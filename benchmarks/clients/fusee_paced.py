"""This project's producer at a steady rate, in batches as they come up: the traffic that a stream is measured under."""

from __future__ import annotations

import argparse
import asyncio
import time

import fusee
from fusee.service import run

TICK_S = 0.002


async def main(arguments: argparse.Namespace) -> None:
    body = bytes(ord("a") + number % 26 for number in range(arguments.size))
    total = arguments.per_second * arguments.seconds
    failed = 0

    def acknowledged(sent: asyncio.Future[fusee.SendResult]) -> None:
        nonlocal failed
        failed += sent.cancelled() or sent.exception() is not None

    async with (
        fusee.connect(arguments.name_server) as mq,
        mq.producer("benchmark_paced", auto_batch=True, back_pressure_for_async_send_num=100_000) as producer,
    ):
        begin, done = time.monotonic(), 0
        while done < total:
            due = min(int((time.monotonic() - begin) * arguments.per_second), total)
            for _ in range(due - done):
                producer.send(arguments.topic, body, key="order-100000").add_done_callback(acknowledged)
            done = due
            await asyncio.sleep(TICK_S)
    if failed:
        raise SystemExit(f"{failed} sends failed")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--name-server", required=True)
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-s", "--size", type=int, default=1024)
    parser.add_argument("--per-second", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=30)
    return parser.parse_args()


if __name__ == "__main__":
    run(main(parsed()))
