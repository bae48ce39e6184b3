"""This project's consumer as a benchmark program: the iterator form, or a listener."""

from __future__ import annotations

import argparse
import asyncio
import gc

import fusee
from benchmarks.clients.reporting import REPORT_EVERY_S, Tally
from fusee.service import run


async def main(arguments: argparse.Namespace) -> None:
    tally = Tally("Consume")
    touched = 0

    async def listen(message: fusee.ReceivedMessage) -> None:
        nonlocal touched
        touched += len(message.body)
        tally.done += 1

    async def report() -> None:
        gc.freeze()
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            tally.report()

    async with (
        fusee.connect(arguments.name_server) as mq,
        mq.consumer(
            arguments.topic,
            group=arguments.group,
            consume_from="first",
            listener=listen if arguments.listener else None,
        ) as messages,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(report())
        if arguments.listener:
            return
        async for message in messages:
            touched += len(message.body)
            tally.done += 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--name-server", required=True)
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-g", "--group", required=True)
    parser.add_argument("--listener", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    run(main(parsed()))
