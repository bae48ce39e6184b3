"""Messages sent, consumed, delayed, retried and in transactions, on a cluster: part of `make demo`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import fusee
from fusee.charts import columns

if TYPE_CHECKING:
    from examples.demo_report import Chapter

MESSAGES = 2_000
QUEUES = 2
BUCKETS = 24

# Delays that a demo can wait for, and a broker that asks soon about transactions.
SETTINGS = {"messageDelayLevel": "1s 2s 3s", "transactionTimeOut": "500", "transactionCheckInterval": "300"}


async def play(mq: fusee.Connection, chapter: Chapter) -> None:
    await mq.admin.create_topic("purchases", queues=QUEUES)
    for topic in ("parcels", "payments", "reminders", "%DLQ%delivery"):
        await mq.admin.create_topic(topic, queues=1)
    await send_and_consume(mq, chapter)
    await asyncio.gather(delay(mq, chapter), retry_into_dead_letters(mq, chapter), transact(mq, chapter))


async def send_and_consume(mq: fusee.Connection, chapter: Chapter) -> None:
    took_ms: list[float] = []

    async def send(number: int) -> fusee.SendResult:
        begun = time.perf_counter()
        sent = await mq.send("purchases", f"purchase {number}", tag="paid" if number % 2 else "open")
        took_ms.append((time.perf_counter() - begun) * 1000)
        return sent

    begun = time.perf_counter()
    results = await asyncio.gather(*(send(number) for number in range(MESSAGES)))
    took = time.perf_counter() - begun
    on_two = sum(sent.durability is fusee.Durability.REPLICA for sent in results)
    chapter.done(f"{MESSAGES:,} sent, each acknowledged, {on_two:,} by a slave too: {MESSAGES / took:,.0f} a second")
    chapter.fact("sent and acknowledged", f"{len(results):,}")
    chapter.fact("  of these on two disks", f"{on_two:,}")
    chapter.charts.append(columns("Time from send to acknowledgement, all at once", histogram(took_ms), x_unit="ms"))

    begun = time.perf_counter()
    everything = await count(mq, MESSAGES, group="books")
    paid = await count(mq, MESSAGES // 2, group="billing", tags="paid")
    assert (everything, paid) == (MESSAGES, MESSAGES // 2)
    took = time.perf_counter() - begun
    chapter.done(f"all consumed by one group, and the paid ones by another, by their tag: {took * 1000:.0f} ms")
    chapter.fact("consumed, and by tag", f"{everything:,}, {paid:,}")


def histogram(values: list[float]) -> list[tuple[str, float]]:
    """How many values are in each of some ranges of the same width."""
    low, width = min(values), (max(values) - min(values)) / BUCKETS or 1.0
    counts = [0] * BUCKETS
    for value in values:
        counts[min(int((value - low) / width), BUCKETS - 1)] += 1
    return [(f"{low + number * width:.0f}", float(count)) for number, count in enumerate(counts)]


async def count(mq: fusee.Connection, expected: int, *, group: str, tags: str = "*") -> int:
    """How many different messages a group finds, until there are as many as expected."""
    bodies: set[bytes] = set()
    async with mq.consumer("purchases", group=group, tags=tags, consume_from="first") as messages:
        async for batch in messages.batches(256):
            bodies.update(message.body for message in batch)
            if len(bodies) >= expected:
                break
    return len(bodies)


async def delay(mq: fusee.Connection, chapter: Chapter) -> None:
    async with mq.consumer("reminders", group="mailer", consume_from="first") as messages:
        begun = time.perf_counter()
        await mq.send("reminders", "pay, please", delay_level=2)
        message = await anext(aiter(messages))
        took = time.perf_counter() - begun
    chapter.done(f"delayed by level 2 (2 s here): {message.body.decode()!r} came after {took:.2f} s")
    chapter.fact("delayed by 2 s, delivered after", f"{took:.2f} s")


async def retry_into_dead_letters(mq: fusee.Connection, chapter: Chapter) -> None:
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
    chapter.done(f"tried {len(tries)} times in vain, now in {dead.topic}: {dead.body.decode()!r}")
    chapter.fact("given up after tries, now a dead letter", str(len(tries)))


async def transact(mq: fusee.Connection, chapter: Chapter) -> None:
    asked: list[str] = []

    def check(message: fusee.ReceivedMessage) -> bool:
        asked.append(message.body.decode())
        return True

    for what in ("committed", "rolled back", "forgotten"):
        async with mq.transaction("payments", what, check=check) as transaction:
            if what == "rolled back":
                transaction.rollback()
            elif what == "forgotten":
                transaction.leave_open()
    async with mq.consumer("payments", group="accounts", consume_from="first") as messages:
        each = aiter(messages)
        delivered = {(await anext(each)).body.decode(), (await anext(each)).body.decode()}
    assert delivered == {"committed", "forgotten"}
    assert set(asked) == {"forgotten"}
    chapter.done("transactions: one committed, one rolled back, one forgotten and asked about")
    chapter.fact("transactions: committed, rolled back, asked about", "1, 1, 1")
