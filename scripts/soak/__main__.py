"""`python -m scripts.soak --minutes 30`: producers and consumers at full rate with churn, and what the client holds.

A name server and a broker run as processes of their own. In this process producers send as fast as they are answered
(one message at a time, and by automatic batching), two standing consumers keep up with them, and every few seconds
members join the groups, connections are opened and closed, and connections are cut. At the end everything that was
acknowledged must have been consumed, and memory, tasks, sockets and files must be as they were. Status 1 when not.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import fusee
from fusee.service import run
from scripts.soak.samples import Growth, Sample, growths, sample
from scripts.soak.servers import Servers

TOPIC = "soak"
QUEUES = 8
BODY = bytes(range(256)) * 4
SAMPLE_EVERY_S = 1.0
CHURN_EVERY_S = 2.0
SENDERS = 16
DRAIN_LIMIT_S = 120.0
IN_FLIGHT_MAX = 2_000
BACKLOG_MAX = 20_000
"""Producers wait when consumers are so far behind: the run measures what is held, not how much piles up."""


class Soak:
    """One run."""

    def __init__(self, name_server: str, seconds: float, seed: int) -> None:
        self._name_server = name_server
        self._seconds = seconds
        self._chance = random.Random(seed)
        self._sent: set[int] = set()
        self._number = 0
        self._is_over = False
        self.acknowledged = 0
        self.consumed = 0
        self.again = 0
        self.joined = 0
        self.cut = 0
        self.refused: list[str] = []
        self.samples: list[Sample] = []

    async def play(self, progress: Progress) -> None:
        """Work for the time given, then wait until what was acknowledged is consumed."""
        task = progress.add_task("soak", total=self._seconds, rate="")
        begin = time.monotonic()
        async with fusee.connect(self._name_server) as mq:
            await mq.admin.create_topic(TOPIC, queues=QUEUES)
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                for _ in range(2):
                    await stack.enter_async_context(
                        mq.consumer(TOPIC, group="soak", consume_from="first", listener=self._consume)
                    )
                single = await stack.enter_async_context(mq.producer("soak_single"))
                batching = await stack.enter_async_context(mq.producer("soak_batching", auto_batch=True))
                for _ in range(SENDERS):
                    group.create_task(self._send(single))
                group.create_task(self._send_many(batching))
                group.create_task(self._churn(mq))
                while (elapsed := time.monotonic() - begin) < self._seconds:
                    await asyncio.sleep(SAMPLE_EVERY_S)
                    self.samples.append(sample(elapsed))
                    rate = self.acknowledged / max(elapsed, 1.0)
                    progress.update(task, completed=elapsed, rate=f"{rate:,.0f} sent/s, {len(self._sent)} under way")
                self._is_over = True
            progress.update(task, completed=self._seconds)
            await self._drain(mq)

    async def _drain(self, mq: fusee.Connection) -> None:
        deadline = time.monotonic() + DRAIN_LIMIT_S
        async with mq.consumer(TOPIC, group="soak", consume_from="first", listener=self._consume):
            while self._sent and time.monotonic() < deadline:  # noqa: ASYNC110 - the set is what is waited for
                await asyncio.sleep(0.1)

    @property
    def lost(self) -> int:
        """Messages that were acknowledged and not consumed."""
        return len(self._sent)

    def _next(self) -> tuple[int, bytes]:
        self._number += 1
        return self._number, self._number.to_bytes(8, "big") + BODY

    async def _send(self, producer: fusee.Producer) -> None:
        while not self._is_over:
            if len(self._sent) > BACKLOG_MAX:
                await asyncio.sleep(0.01)
                continue
            number, body = self._next()
            self._sent.add(number)
            await self._settle(number, producer.send(TOPIC, body))

    async def _send_many(self, producer: fusee.Producer) -> None:
        while not self._is_over:
            if len(self._sent) > BACKLOG_MAX:
                await asyncio.sleep(0.01)
                continue
            sends = []
            for _ in range(256):
                number, body = self._next()
                self._sent.add(number)
                sends.append((number, producer.send(TOPIC, body)))
            for number, future in sends:
                await self._settle(number, future)

    async def _settle(self, number: int, future: asyncio.Future[fusee.SendResult]) -> None:
        try:
            await future
        except fusee.FuseeError:
            self._sent.discard(number)  # nothing was promised
        else:
            self.acknowledged += 1

    async def _consume(self, message: fusee.ReceivedMessage) -> None:
        number = int.from_bytes(message.body[:8], "big")
        if number in self._sent:
            self._sent.discard(number)
            self.consumed += 1
        else:
            self.again += 1

    async def _churn(self, mq: fusee.Connection) -> None:
        while not self._is_over:
            await asyncio.sleep(CHURN_EVERY_S)
            try:
                await self._disturb(mq)
            except fusee.FuseeError as error:  # a connection was cut under it, or the machine is too busy
                self.refused.append(str(error))

    async def _disturb(self, mq: fusee.Connection) -> None:
        """One of the things that happen around the steady work."""
        match self._chance.randrange(4):
            case 0:  # a member that works for a moment and leaves
                async with mq.consumer(TOPIC, group="soak", consume_from="first", listener=self._consume):
                    self.joined += 1
                    await asyncio.sleep(CHURN_EVERY_S)
            case 1:  # a program that connects, does something of everything, and ends
                async with fusee.connect(self._name_server, instance_name=f"soak-{self._number}") as other:
                    self.joined += 1
                    await other.send("soak_aside", b"x")
                    async with other.pull_consumer("soak_aside", group="soak_aside", consume_from="first") as pull:
                        await pull.poll(timeout_ms=500)
                    await other.admin.topic_stats("soak_aside")
            case 2:  # a connection that breaks
                for address in mq.session.transport.addresses:
                    mq.session.transport.disconnect(address)
                    self.cut += 1
            case _:  # an iteration that is left in the middle
                async with mq.consumer("soak_aside", group="soak_iterated", consume_from="first") as messages:
                    self.joined += 1
                    await mq.send("soak_aside", b"y")
                    async for _ in messages:
                        break


def main(
    minutes: Annotated[float, typer.Option(help="How long.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Of the churn.")] = 1,
) -> None:
    """Full rate with churn; says what the client holds at the end beside what it held before."""
    out = Console()
    with tempfile.TemporaryDirectory(prefix="fusee-soak-") as folder, Servers(Path(folder)) as servers:
        soak = Soak(servers.name_server, minutes * 60, seed)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[rate]}"),
        )
        with Progress(*columns, console=out, disable=not out.is_terminal) as progress:
            run(soak.play(progress))
    gc.collect()
    found = growths(soak.samples)
    out.print(_table(found, minutes))
    out.print(
        f"{soak.acknowledged:,} acknowledged, {soak.consumed:,} consumed, {soak.again:,} more than once, "
        f"{soak.joined} members and clients came and went ({len(soak.refused)} in vain), {soak.cut} connections cut, "
        f"lost: {soak.lost}"
    )
    for reason in soak.refused[:5]:
        out.print(f"in vain: {reason}")
    sys.exit(0 if soak.lost == 0 and all(each.is_flat for each in found) else 1)


def _table(found: list[Growth], minutes: float) -> Table:
    table = Table(title=f"What the client holds, {minutes:g} minutes")
    for heading in ("", "middle", "end", "allowed", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    for each in found:
        verdict = "[green]flat" if each.is_flat else "[red]GROWS"
        table.add_row(
            each.name.replace("_", " "), f"{each.before:,.1f}", f"{each.after:,.1f}", f"{each.allowed:,.1f}", verdict
        )
    return table


if __name__ == "__main__":
    typer.run(main)
