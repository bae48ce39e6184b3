"""A first look at the clients: part of `make demo`.

Starts a server inside this process, sends and consumes, decodes bodies into a dataclass, asks a question and gets the
answer, lets ten minutes pass in a moment, and counts messages a second.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

import fusee
from fusee.service import run

SENDS = 3_000
IN_FLIGHT = 64
BODY = bytes(1024)

PROGRAM = """\
async with fusee.connect("127.0.0.1:9876") as mq:
    await mq.send("orders", Order(7, "ada", 9.5), tag="paid", key="7")

@mq.handler("orders", group="billing", tags="paid || refunded")
async def bill(order: Order) -> None: ...
"""

out = Console(highlight=False)


def done(text: str) -> None:
    out.print(f"[green]✓[/] {text}")


@dataclass
class Order:
    number: int
    customer: str
    total: float


async def first_message(mq: fusee.Connection) -> None:
    out.print(Syntax(PROGRAM, "python", theme="ansi_dark", background_color="default"))
    billed: asyncio.Future[Order] = asyncio.get_running_loop().create_future()

    @mq.handler("orders", group="billing", tags="paid || refunded")
    async def bill(order: Order) -> None:
        billed.set_result(order)

    await mq.start_handlers()
    sent = await mq.send("orders", Order(7, "ada", 9.5), tag="paid", key="7")
    done(f"stored in queue {sent.queue.queue_id} at offset {sent.queue_offset}; it survives: {sent.durability.value}")
    done(f"the handler got {await billed}")


async def question(mq: fusee.Connection) -> None:
    async def answer(message: fusee.ReceivedMessage) -> None:
        await mq.reply(message, "9.50")

    async with mq.consumer("prices", group="shop", listener=answer):
        await mq.request("prices", "a pen")
        begun = time.perf_counter()
        reply = await mq.request("prices", "a book")
        took_ms = (time.perf_counter() - begun) * 1000
    done(f"asked for the price of a book: {reply.body.decode()}, after {took_ms:.1f} ms")


async def ten_minutes() -> None:
    begun = time.perf_counter()
    tries: list[str] = []
    async with fusee.embedded(topics=["reminders"], clock="manual") as server, server.connect() as mq:
        start = server.now

        def remind(message: fusee.ReceivedMessage) -> bool:
            tries.append(str(server.now - start).partition(".")[0])
            return len(tries) == 3

        async with mq.consumer("reminders", group="mailer", listener=remind):
            await mq.send("reminders", b"pay, please", delay_level=14)
            await server.advance(650)
    took = time.perf_counter() - begun
    done(f"a clock that moves when told: ten minutes of delay, two retries ({', '.join(tries)}) in {took:.1f} s")


async def speed(mq: fusee.Connection) -> None:
    table = Table(title="1 KiB messages a second, clients and broker sharing one core", title_justify="left")
    for column in ("one after another", f"{IN_FLIGHT} in flight", "automatic batches", "consumed"):
        table.add_column(column, justify="right")
    rates = []
    begun = time.perf_counter()
    for _ in range(SENDS // 3):
        await mq.send("load", BODY)
    rates.append(SENDS // 3 / (time.perf_counter() - begun))

    begun = time.perf_counter()
    for _ in range(SENDS // IN_FLIGHT):
        await asyncio.gather(*(mq.send("load", BODY) for _ in range(IN_FLIGHT)))
    rates.append(SENDS // IN_FLIGHT * IN_FLIGHT / (time.perf_counter() - begun))

    async with mq.producer("load", auto_batch=True) as producer:
        begun = time.perf_counter()
        await asyncio.gather(*(producer.send("load", BODY) for _ in range(SENDS * 3)))
        rates.append(SENDS * 3 / (time.perf_counter() - begun))

    count, total = 0, SENDS // 3 + SENDS // IN_FLIGHT * IN_FLIGHT + SENDS * 3
    async with mq.consumer("load", group="load", consume_from="first") as messages:
        begun = time.perf_counter()
        async for batch in messages.batches(256):
            count += len(batch)
            if count >= total:
                break
        rates.append(count / (time.perf_counter() - begun))
    table.add_row(*(f"{rate:,.0f}" for rate in rates))
    out.print(table)


async def main() -> None:
    server = fusee.embedded(topics=["orders", "prices", "load"])
    begun = time.perf_counter()
    async with server:
        took_ms = (time.perf_counter() - begun) * 1000
        done(f"name server {server.name_server} and a broker, inside this process, started in {took_ms:.0f} ms")
        async with fusee.connect(server.name_server) as mq:
            await first_message(mq)
            await question(mq)
            await ten_minutes()
            await speed(mq)


if __name__ == "__main__":
    run(main())
