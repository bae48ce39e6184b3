"""A cluster that loses a master and a name server while everybody works: part of `make demo`.

While producers send and consumers read, kills a master and the name server that the clients use, brings both back, and
draws what the clients saw.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import fusee
from examples.demo_report import out
from fusee.charts import lines
from fusee.errors import FuseeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.demo_report import Chapter
    from fusee.cluster import LocalCluster

TOPIC = "orders"
QUEUES = 2
VICTIM = "broker-a"
OTHER = "broker-b"
BACKLOG = 1_500
PRODUCERS = 4
SEND_PAUSE = 0.01
READ_PAUSE = 0.004
# What a consumer may have in its hands, per queue, when a master dies.
HELD_MAX = 24
# How soon clients hear of a broker that has come back. By default they ask every 30 s.
ROUTE_INTERVAL_MS = 1_000
STEP = 0.5
BAR_WIDTH = 10
CELL_WIDTH = 16
PATIENCE = 60.0


@dataclass
class Sights:
    """What clients saw, and when, in seconds from the beginning."""

    began_at: float = field(default_factory=time.perf_counter)
    accepted: list[tuple[float, str, str, float]] = field(default_factory=list)
    """When, by which broker, which message, and how long it took."""
    read: list[tuple[float, fusee.MessageQueue, int, str]] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    failed: int = 0

    @property
    def now(self) -> float:
        return time.perf_counter() - self.began_at

    def note(self, text: str, at: float | None = None) -> float:
        at = self.now if at is None else at
        self.notes.append((at, text))
        return at


async def produce(mq: fusee.Connection, sights: Sights, number: int, stop: asyncio.Event) -> None:
    """One message after the other, to whichever group has room."""
    count = 0
    while not stop.is_set():
        count += 1
        body, began_at = f"{number}-{count}", sights.now
        try:
            sent = await mq.send(TOPIC, body)
        except FuseeError:
            sights.failed += 1
        else:
            sights.accepted.append((sights.now, sent.queue.broker_name, body, sights.now - began_at))
        await asyncio.sleep(SEND_PAUSE)


async def store_backlog(mq: fusee.Connection) -> None:
    queues = [fusee.MessageQueue(TOPIC, name, queue_id) for name in (VICTIM, OTHER) for queue_id in range(QUEUES)]
    sends = [
        mq.send(TOPIC, f"early-{queue.broker_name}-{queue.queue_id}-{number}", queue=queue)
        for queue in queues
        for number in range(BACKLOG // QUEUES)
    ]
    for sent in await asyncio.gather(*sends):
        assert sent.status.name == "SEND_OK"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - it is about what others do
            await asyncio.sleep(0.01)


async def play(cluster: LocalCluster, chapter: Chapter) -> None:
    async with fusee.connect(
        cluster.name_servers, poll_name_server_interval_ms=ROUTE_INTERVAL_MS, instance_name="faults"
    ) as mq:
        await mq.admin.create_topic(TOPIC, queues=QUEUES)
        sights = Sights()
        await store_backlog(mq)

        async def read(message: fusee.ReceivedMessage) -> None:
            sights.read.append((sights.now, message.queue, message.queue_offset, message.body.decode()))
            await asyncio.sleep(READ_PAUSE)

        consumer = mq.consumer(
            TOPIC,
            group="billing",
            consume_from="first",
            listener=read,
            consume_thread_max=4,
            pull_batch_size=HELD_MAX // 3,
            pull_threshold_for_queue=HELD_MAX // 3,
        )
        async with consumer:
            await until(lambda: {queue.broker_name for _, queue, _, _ in sights.read} == {VICTIM, OTHER})
            sights.began_at = time.perf_counter()
            sights.read = [(0.0, *rest) for _, *rest in sights.read]  # type: ignore[misc]
            stop = asyncio.Event()
            producers = [asyncio.create_task(produce(mq, sights, number, stop)) for number in range(PRODUCERS)]
            with out.status("killing a master and a name server under load"):
                await faults(cluster, mq, sights)
            stop.set()
            await asyncio.gather(*producers)
            wanted = {body for _, _, body, _ in sights.accepted}
            with out.status("reading to the end"):
                await until(lambda: wanted <= {body for _, _, _, body in sights.read})
    report(sights, chapter)


async def faults(cluster: LocalCluster, mq: fusee.Connection, sights: Sights) -> None:
    await asyncio.sleep(2 * STEP)
    ends = {queue: queue_offset for _, queue, queue_offset, _ in sights.read}
    cluster.kill(VICTIM)
    killed_at = sights.note(f"[red]kill -9 {VICTIM}[/], the master of its group")

    def read_from_slave() -> float | None:
        return next(
            (
                at
                for at, queue, queue_offset, _ in sights.read
                if queue.broker_name == VICTIM and at > killed_at and queue_offset > ends[queue] + HELD_MAX
            ),
            None,
        )

    await until(lambda: read_from_slave() is not None)
    at = read_from_slave()
    assert at is not None
    sights.note(f"{VICTIM}'s messages are read from its slave, {(at - killed_at) * 1000:.0f} ms later", at)
    await asyncio.sleep(2 * STEP)
    after = [(at, took) for at, name, _, took in sights.accepted if killed_at < at < killed_at + STEP and name == OTHER]
    longest = max(took for _, took in after)
    sights.note(f"{OTHER} takes all sends; the slowest took {longest * 1000:.0f} ms", after[0][0])
    lost = mq.session.name_servers.current
    name = next(name for name, address in cluster.addresses.items() if address == lost)
    cluster.kill(name)
    sights.note(f"[red]kill -9 {name}[/], which the clients asked")
    await mq.admin.topic_route(TOPIC)
    sights.note(f"the clients ask {mq.session.name_servers.current} instead")
    await asyncio.sleep(2 * STEP)
    for each in (VICTIM, name):
        await asyncio.to_thread(cluster.start_node, each)
    sights.note(f"{VICTIM} and {name} are started again")
    back_at = sights.now

    def taken_again() -> tuple[float, str] | None:
        return next(((at, body) for at, name, body, _ in sights.accepted if at > back_at and name == VICTIM), None)

    def read_again() -> float | None:
        taken = taken_again()
        return next((at for at, _, _, body in sights.read if taken is not None and body == taken[1]), None)

    await until(lambda: read_again() is not None)
    taken = taken_again()
    assert taken is not None
    sights.note(f"{VICTIM} takes messages again", taken[0])
    sights.note(f"and they are read from it, {(read_again() or 0.0) - taken[0]:.2f} s later", read_again())
    await asyncio.sleep(STEP)


def report(sights: Sights, chapter: Chapter) -> None:
    out.print("[bold]what clients saw, every half second[/]")
    out.print("       accepted by                     read of")
    out.print("   s   " + "".join(f"{name:{CELL_WIDTH}}" for name in (VICTIM, OTHER) * 2), style="dim")
    accepted = Counter((int(at / STEP), name) for at, name, *_ in sights.accepted)
    read = Counter((int(at / STEP), queue.broker_name) for at, queue, _, _ in sights.read if at)
    for step in range(max(step for step, _ in accepted) + 1):
        cells = [cell(accepted[step, name], max(accepted.values()), "cyan") for name in (VICTIM, OTHER)]
        cells += [cell(read[step, name], max(read.values()), "magenta") for name in (VICTIM, OTHER)]
        out.print(f"[dim]{step * STEP:4.1f}[/]   " + "".join(cells))
        for at, text in sorted(sights.notes):
            if int(at / STEP) == step:
                out.print(f"[dim]{at:7.2f}[/] {text}")
    wanted = {body for _, _, body, _ in sights.accepted}
    places = Counter((queue, queue_offset) for _, queue, queue_offset, _ in sights.read)
    found = {body for _, _, _, body in sights.read}
    pause = max(later[0] - earlier[0] for earlier, later in pairwise(sights.accepted))
    assert wanted <= found
    chapter.done(
        f"{len(wanted):,} sends were acknowledged, by {VICTIM} only when its slave had them too; all of them were read"
    )
    out.print(
        f"  [dim]longest time without an acknowledgement: {pause * 1000:.0f} ms; sends that failed: {sights.failed}; "
        f"stored twice by a new try: {len(places) - len(found)}; read twice: {sum(places.values()) - len(places)}[/]"
    )
    chapter.fact(f"killed under load: {VICTIM}, a master, and a name server", "2")
    chapter.fact("acknowledged meanwhile, and lost", f"{len(wanted):,}, {len(wanted - found)}")
    chapter.fact("longest time without an acknowledgement", f"{pause * 1000:.0f} ms")
    steps = range(max(step for step, _ in accepted) + 1)
    chapter.charts.append(
        lines(
            f"Messages accepted every half second; {VICTIM} is killed",
            {name: [(step * STEP, float(accepted[step, name])) for step in steps] for name in (VICTIM, OTHER)},
            x_unit="s",
        )
    )
    chapter.charts.append(
        lines(
            "Messages read every half second, by their broker",
            {name: [(step * STEP, float(read[step, name])) for step in steps] for name in (VICTIM, OTHER)},
            x_unit="s",
        )
    )


def cell(count: int, most: int, colour: str) -> str:
    text = f"{'█' * round(BAR_WIDTH * count / most)} {count or '-'}"
    return f"[{colour}]{text:{CELL_WIDTH}}[/]"
