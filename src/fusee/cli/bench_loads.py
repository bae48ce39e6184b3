"""The loads of `fusee bench`: ordinary requests by the ordinary client, against any RocketMQ server.

Every load runs until its time is over, its count is reached, or it is cancelled, and notes what it measures as it goes.
Messages begin with the moment at which they were due to be sent, by this process's clock, so that whoever receives one
here knows how long it was on its way.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from fusee.admin.delays import level_delays_ms
from fusee.connection import connect
from fusee.errors import ConfigError, FuseeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fusee.cli.bench_measure import Measured
    from fusee.client.received import ReceivedMessage
    from fusee.connection import Connection

_STAMP: Final = Struct(">d")
SIZE_MIN: Final = _STAMP.size
_ASSIGNED_WITHIN: Final = 30.0
_QUIET_AFTER: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done."""

    name_servers: str
    topic: str
    size: int
    connections: int
    in_flight: int
    duration: float = 0.0
    count: int | None = None
    rate: float | None = None
    queues: int = 8
    is_own_topic: bool = True


class _Pace:
    """When the next message is due."""

    def __init__(self, measured: Measured, rate: float | None) -> None:
        self._now = measured.now
        self._gap = 0.0 if rate is None else 1 / rate
        self._due = measured.now()

    async def next(self) -> float:
        if not self._gap:
            return self._now()
        due = self._due
        self._due += self._gap
        wait = due - self._now()
        if wait > 0.001:  # below that a timer costs more than it gains; the message goes a little early
            await asyncio.sleep(wait)
        return min(due, self._now()) if wait > 0 else due


class _Quota:
    """How long to go on."""

    def __init__(self, measured: Measured, plan: Plan) -> None:
        self._now = measured.now
        self._end = measured.now() + plan.duration
        self._left = plan.count

    def take(self) -> bool:
        if self._left is not None:
            self._left -= 1
            return self._left >= 0
        return self._now() < self._end


@asynccontextmanager
async def prepared(plan: Plan) -> AsyncIterator[list[Connection]]:
    """Connections, and the topic; a topic that was made for the run is deleted after it, also on ^C."""
    async with AsyncExitStack() as stack:
        pid = os.getpid()
        found = [
            await stack.enter_async_context(connect(plan.name_servers, instance_name=f"bench-{pid}-{number}"))
            for number in range(plan.connections)
        ]
        admin = found[0].admin
        if plan.is_own_topic:
            await admin.create_topic(plan.topic, queues=plan.queues)
            stack.push_async_callback(admin.delete_topic, plan.topic)
        else:
            await admin.topic_route(plan.topic)
        yield found


async def produce(plan: Plan, measured: Measured) -> None:
    """Send; a latency is from the send to the broker's answer."""
    async with prepared(plan) as connections:
        measured.begin()
        await _send_all(plan, measured, connections)


async def end_to_end(plan: Plan, measured: Measured, *, delay_level: int = 0) -> None:
    """Send and consume at once; a latency is from the send to the listener, or from the moment it was due."""
    async with prepared(plan) as connections:
        late_by = 0.0
        options: dict[str, Any] = {}
        if delay_level:
            late_by = await _delay_of(connections[0], delay_level)
            options["delay_level"] = delay_level
        sent = _Sent(measured)

        async def receive(message: ReceivedMessage) -> None:
            body = message.body
            measured.success(_STAMP.unpack_from(body)[0] + late_by, len(body))

        async with _consumer(plan, receive):
            measured.begin()
            await _send_all(plan, sent, connections, **options)
            await _until(lambda: measured.done >= sent.done, measured, late_by + _QUIET_AFTER)
        missing = sent.done - measured.done
        if missing > 0:
            measured.failure(ConfigError(f"{missing:,} messages that were sent did not arrive within the time"))


async def consume(plan: Plan, measured: Measured, filled: Callable[[int], object]) -> None:
    """Consume what was sent before; the rate is from the first message to the last."""
    async with prepared(plan) as connections:
        wanted = plan.count or 0
        if plan.is_own_topic:
            sent = _Sent(measured, filled)
            await _send_all(plan, sent, connections)
            wanted = sent.done

        async def receive(message: ReceivedMessage) -> None:
            measured.success(None, len(message.body))

        async with _consumer(plan, receive, wait=False):
            await _until(lambda: measured.done >= wanted, measured, _QUIET_AFTER)


async def transactions(plan: Plan, measured: Measured) -> None:
    """Begin, and commit; a latency is of both together."""
    async with prepared(plan) as connections:
        quota = _Quota(measured, plan)
        rate = None if plan.rate is None else plan.rate / (plan.connections * plan.in_flight)

        async def work(mq: Connection, number: int) -> None:
            pace = _Pace(measured, rate)
            group = f"{plan.topic}_{number}"
            while quota.take():
                begun = await pace.next()
                try:
                    async with mq.transaction(plan.topic, _body(plan, begun), check=_committed, group=group):
                        pass
                except FuseeError as error:
                    measured.failure(error)
                else:
                    measured.success(begun, plan.size)

        measured.begin()
        async with asyncio.TaskGroup() as tasks:
            for number, mq in enumerate(connections):
                for _ in range(plan.in_flight):
                    tasks.create_task(work(mq, number))


# Within


class _Sent:
    """Counts sends that nobody measures; failures are the run's."""

    def __init__(self, measured: Measured, told: Callable[[int], object] | None = None) -> None:
        self.done = 0
        self.now = measured.now
        self.failure = measured.failure
        self._told = told

    def success(self, since: float | None, size_bytes: int) -> None:
        self.done += 1
        if self._told is not None:
            self._told(self.done)


async def _send_all(plan: Plan, measured: Any, connections: list[Connection], **options: Any) -> None:
    quota = _Quota(measured, plan)
    rate = None if plan.rate is None else plan.rate / plan.connections

    async def work(mq: Connection) -> None:
        pace = _Pace(measured, rate)
        turns = asyncio.Semaphore(plan.in_flight)
        while quota.take():
            begun = await pace.next()
            await turns.acquire()
            try:
                future = mq.send(plan.topic, _body(plan, begun), **options)
            except FuseeError as error:
                turns.release()
                measured.failure(error)
                continue
            future.add_done_callback(partial(_settled, measured, turns, begun, plan.size))
        for _ in range(plan.in_flight):
            await turns.acquire()

    async with asyncio.TaskGroup() as tasks:
        for mq in connections:
            tasks.create_task(work(mq))


def _settled(measured: Any, turns: asyncio.Semaphore, begun: float, size: int, future: asyncio.Future[object]) -> None:
    turns.release()
    if future.cancelled():
        return
    error = future.exception()
    if error is None:
        measured.success(begun, size)
    else:
        measured.failure(error)


def _body(plan: Plan, begun: float) -> bytes:
    return _STAMP.pack(begun).ljust(plan.size, b"x")


async def _committed(message: object) -> bool:
    return True


@asynccontextmanager
async def _consumer(plan: Plan, receive: Callable[[ReceivedMessage], Any], *, wait: bool = True) -> AsyncIterator[None]:
    """A member of a group of the run's own; with `wait`, one that has its queues."""
    assigned = asyncio.Event()
    group = f"{plan.topic}_consumer"

    def got(topic: str, queues: frozenset[object]) -> None:
        if queues:
            assigned.set()

    async with connect(plan.name_servers, instance_name=f"bench-{os.getpid()}-consumer") as mq:
        try:
            async with mq.consumer(plan.topic, group=group, listener=receive, consume_from="first", on_assigned=got):
                if wait:
                    async with asyncio.timeout(_ASSIGNED_WITHIN):
                        await assigned.wait()
                yield
        finally:
            await mq.admin.delete_group(group, delete_offsets=True)


async def _until(is_done: Callable[[], bool], measured: Measured, quiet_after: float) -> None:
    """Until it is done, or nothing has come for so long."""
    last_done, last_change = -1, measured.now()
    while not is_done():
        if measured.done != last_done:
            last_done, last_change = measured.done, measured.now()
        elif measured.now() - last_change > quiet_after:
            return
        await asyncio.sleep(0.02)


async def _delay_of(mq: Connection, level: int) -> float:
    place = (await mq.admin.brokers())[0]
    settings = await mq.admin.broker_config(place.address)
    delays = list(level_delays_ms(settings.get("messageDelayLevel", "")))
    if not 1 <= level <= len(delays):
        raise ConfigError(f"there is no delay level {level}: {place} has 1 to {len(delays)}")
    return delays[level - 1] / 1000
