"""A broker that is killed in the middle of its work: part of `make demo`.

Starts a name server and a broker as real processes. Sends and consumes, delays, retries into the dead letters, runs
transactions; then kills the broker with SIGKILL while four producers send and a consumer consumes, starts it again on
the same store, lets everybody go on, and counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

import fusee
from fusee.errors import FuseeError
from fusee.service import run

QUEUES = 4
MESSAGES = 2_000
ROUNDS = 150
IN_FLIGHT = 8
PATIENCE = 60.0

SETTINGS = """\
fastListenPort=0
haListenPort=0
messageDelayLevel=1s 2s 3s
transactionTimeOut=500
transactionCheckInterval=300
mappedFileSizeCommitLog=16777216
"""

out = Console(highlight=False)


def done(text: str) -> None:
    out.print(f"[green]✓[/] {text}")


class Server:
    """A `fusee` process."""

    def __init__(self, *arguments: str) -> None:
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fusee", *arguments, "--log-level", "error"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"listening on ([\d.:]+)", line)
        if found is None:
            raise SystemExit(f"{arguments[0]} did not start: {line!r}")
        self.address = found[1]
        self.seconds = time.perf_counter() - begun

    def end(self, *, kill: bool = False) -> None:
        with self.process:
            if kill:
                self.process.kill()
            else:
                self.process.terminate()


async def send_and_consume(mq: fusee.Connection) -> None:
    begun = time.perf_counter()
    await asyncio.gather(*(mq.send("orders", f"order {n}", tag="paid" if n % 2 else "open") for n in range(MESSAGES)))
    took = time.perf_counter() - begun
    done(f"{MESSAGES:,} orders sent, each acknowledged: {MESSAGES / took:,.0f} a second")
    begun = time.perf_counter()
    assert await count(mq, MESSAGES, group="archive") == MESSAGES
    assert await count(mq, MESSAGES // 2, group="billing", tags="paid") == MESSAGES // 2
    took = time.perf_counter() - begun
    done(f"all consumed by one group, and the paid ones by another, by their tag: {took * 1000:.0f} ms")


async def count(mq: fusee.Connection, expected: int, *, group: str, tags: str = "*") -> int:
    """How many different messages a group finds in the orders, until there are as many as expected."""
    ids: set[str] = set()
    async with mq.consumer("orders", group=group, tags=tags, consume_from="first") as messages:
        async for batch in messages.batches(256):
            ids.update(message.message_id for message in batch)
            if len(ids) >= expected:
                break
    return len(ids)


async def delay(mq: fusee.Connection, reminders: asyncio.Queue[str]) -> None:
    await mq.send("reminders", "pay, please", delay_level=1)
    begun = time.perf_counter()
    body = await reminders.get()
    done(f"delayed by level 1 (1 s here): {body!r} came after {time.perf_counter() - begun:.2f} s")


async def retry_into_dead_letters(mq: fusee.Connection) -> None:
    tries: list[int] = []

    async def deliver(message: fusee.ReceivedMessage) -> fusee.ConsumeResult:
        tries.append(message.reconsume_times)
        return fusee.ConsumeResult.RETRY_LATER

    await mq.send("parcels", "a parcel without address")
    async with (
        mq.consumer(
            "parcels",
            group="delivery",
            consume_from="first",
            listener=deliver,
            max_reconsume_times=2,
            delay_level_when_next_consume=1,
        ),
        mq.consumer("%DLQ%delivery", group="undertaker", consume_from="first") as letters,
    ):
        dead = await anext(aiter(letters))
    done(f"tried {len(tries)} times in vain, now in {dead.topic}: {dead.body.decode()!r}")


class Bookkeeper:
    """Makes transactions, and is asked about those whose end it did not tell."""

    def __init__(self, mq: fusee.Connection) -> None:
        self.mq = mq
        self.asked: list[str] = []

    def check(self, message: fusee.ReceivedMessage) -> bool:
        self.asked.append(message.body.decode())
        return True

    async def pay(self, what: str) -> None:
        async with self.mq.transaction("payments", what, check=self.check) as tx:
            if what == "rolled back":
                tx.rollback()
            elif what != "committed":
                tx.leave_open()


async def transact(bookkeeper: Bookkeeper, payments: asyncio.Queue[str]) -> None:
    for what in ("committed", "rolled back", "forgotten"):
        await bookkeeper.pay(what)
    assert {await payments.get(), await payments.get()} == {"committed", "forgotten"}
    assert bookkeeper.asked == ["forgotten"]
    done("transactions: one committed, one rolled back, one forgotten and asked about")


class Load:
    """Four producers and a consumer that go on whatever happens to the broker."""

    def __init__(self, mq: fusee.Connection) -> None:
        self.mq = mq
        self.acknowledged: set[str] = set()
        self.failures = 0
        self.deliveries: list[tuple[int, int]] = []
        self.first_seen: dict[str, None] = {}
        self.half_way = asyncio.Event()
        self.complete = asyncio.Event()

    async def run(self) -> None:
        async with (
            self.mq.consumer("ledger", group="auditor", ordered=True, consume_from="first", listener=self.consume),
            asyncio.timeout(PATIENCE),
        ):
            await asyncio.gather(*(self.produce(number) for number in range(QUEUES)))
            await self.complete.wait()

    async def produce(self, number: int) -> None:
        """Send to one queue, several at a time, and what failed again until it is acknowledged."""
        queue = fusee.MessageQueue("ledger", "broker-a", number)
        for turn in range(ROUNDS):
            bodies = [f"{number}-{turn}-{part}" for part in range(IN_FLIGHT)]
            while bodies:
                sends = (self.mq.send(queue.topic, body, queue=queue) for body in bodies)
                results = await asyncio.gather(*sends, return_exceptions=True)
                failed = []
                for body, result in zip(bodies, results, strict=True):
                    if isinstance(result, fusee.SendResult):
                        self.acknowledged.add(body)
                    elif isinstance(result, FuseeError) and result.retryable:
                        failed.append(body)
                    else:
                        raise AssertionError(result)
                self.failures += len(failed)
                bodies = failed
            if turn == ROUNDS // 2:
                self.half_way.set()

    async def consume(self, message: fusee.ReceivedMessage) -> None:
        self.deliveries.append((message.queue_id, message.queue_offset))
        self.first_seen.setdefault(message.body.decode())
        if len(self.first_seen) == ROUNDS * IN_FLIGHT * QUEUES:
            self.complete.set()

    @property
    def is_in_order(self) -> bool:
        turns = [[int(part) for part in body.split("-")] for body in self.first_seen]
        return all(
            earlier <= later
            for producer in range(QUEUES)
            for earlier, later in pairwise(turn for number, turn, _ in turns if number == producer)
        )


def report(load: Load, in_doubt: int, late: int) -> None:
    found = load.acknowledged & load.first_seen.keys()
    stored = len(set(load.deliveries))
    table = Table(title="in the end", title_justify="left")
    for column in ("", "sent", "found"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("acknowledged messages", f"{len(load.acknowledged):,}", f"{len(found):,}")
    table.add_row("  of these out of order", "", "0" if load.is_in_order else "some")
    table.add_row("delayed message that was under way", "1", str(late))
    table.add_row("undecided transaction: asked about, committed", "1", str(in_doubt))
    out.print(table)
    twice = stored - len(load.first_seen), len(load.deliveries) - stored
    out.print(
        f"  [dim]{load.failures} sends failed and were made again; stored twice, because only the answer was lost: "
        f"{twice[0]}; delivered twice: {twice[1]}[/]"
    )
    assert found == load.acknowledged
    assert load.is_in_order
    assert (in_doubt, late) == (1, 1)
    done("nothing is lost")


async def play(folder: Path, servers: list[Server]) -> None:
    (folder / "broker.properties").write_text(SETTINGS)
    name_server = Server("namesrv", "--listen", "127.0.0.1:0", "--kv-path", "")
    servers.append(name_server)

    def start_broker(listen: str) -> Server:
        arguments = ["broker", "-n", name_server.address, "--listen", listen, "--name", "broker-a"]
        broker = Server(*arguments, "--store", str(folder / "store"), "-c", str(folder / "broker.properties"))
        servers.append(broker)
        return broker

    broker = start_broker("127.0.0.1:0")
    done(f"name server on {name_server.address}, broker on {broker.address}, started in {broker.seconds:.2f} s")
    async with fusee.connect(name_server.address) as mq:
        for topic in ("orders", "ledger"):
            await mq.admin.create_topic(topic, queues=QUEUES)
        for topic in ("parcels", "payments", "reminders", "%DLQ%delivery"):
            await mq.admin.create_topic(topic, queues=1)
        await send_and_consume(mq)

        payments: asyncio.Queue[str] = asyncio.Queue()
        reminders: asyncio.Queue[str] = asyncio.Queue()

        async def note_payment(message: fusee.ReceivedMessage) -> None:
            payments.put_nowait(message.body.decode())

        async def note_reminder(message: fusee.ReceivedMessage) -> None:
            reminders.put_nowait(message.body.decode())

        bookkeeper = Bookkeeper(mq)
        async with (
            mq.consumer("payments", group="accounts", consume_from="first", listener=note_payment),
            mq.consumer("reminders", group="mailer", consume_from="first", listener=note_reminder),
        ):
            with out.status("delays, retries, transactions"):
                await asyncio.gather(delay(mq, reminders), retry_into_dead_letters(mq), transact(bookkeeper, payments))

            await bookkeeper.pay("in doubt")
            await mq.send("reminders", "second reminder", delay_level=2)
            load = Load(mq)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(load.run())
                await load.half_way.wait()
                broker.end(kill=True)
                servers.remove(broker)
                acknowledged = len(load.acknowledged)
                out.print(f"[yellow]✗[/] kill -9 while {QUEUES} producers send; {acknowledged:,} are acknowledged")
                with out.status("starting again"):
                    broker = await asyncio.to_thread(start_broker, broker.address)
                done(f"the broker is back on the same store after {broker.seconds:.2f} s; the clients go on")
            in_doubt, late = await payments.get(), await reminders.get()
            assert (in_doubt, late) == ("in doubt", "second reminder")
            report(load, 1 + payments.qsize(), 1 + reminders.qsize())


def main() -> None:
    # What a client says in its log while a broker is away would be in the way here.
    logging.getLogger("fusee").setLevel(logging.CRITICAL)
    servers: list[Server] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(play(Path(folder), servers))
        finally:
            for server in servers:
                server.end()


if __name__ == "__main__":
    main()
