"""A cluster with the topic `orders`, messages in it, and consumers of the group `billing` on hosts of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fusee.client.consumer.process_queue import ProcessQueue
from fusee.client.consumer.push import Consumer
from fusee.client.received import ReceivedMessage
from fusee.client.session import Session
from fusee.message.model import MessageQueue
from fusee.wire.codes import RequestCode
from tests.broker.world import send_header
from tests.client.world import ClusterWorld, play

TOPIC = "orders"
GROUP = "billing"
RETRIES = f"%RETRY%{GROUP}"
DEAD = f"%DLQ%{GROUP}"


def queue(queue_id: int = 0, *, broker: str = "broker-a", topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, broker, queue_id)


def held(consumer: Consumer, of: MessageQueue | None = None) -> ProcessQueue:
    """What a consumer has of a queue."""
    fetch = consumer._held.fetch_of(of or queue())
    assert fetch is not None
    return fetch.process_queue


class Notes:
    """A listener that remembers what it was given, and does what it is told with some of it."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.at_work = 0
        self.at_work_max = 0
        self.answers: dict[str, list[Any]] = {}
        """What to do with a body the next times: an exception is raised, a future awaited, anything else returned."""

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.messages]

    async def __call__(self, message: ReceivedMessage) -> Any:
        self.messages.append(message)
        self.at_work += 1
        self.at_work_max = max(self.at_work, self.at_work_max)
        try:
            plan = self.answers.get(message.body.decode())
            answer = plan.pop(0) if plan else None
            if isinstance(answer, Exception):
                raise answer
            return await answer if isinstance(answer, asyncio.Future) else answer
        finally:
            self.at_work -= 1

    def hold(self, body: str) -> asyncio.Future[Any]:
        """Keep the listener busy with this body until the future is set."""
        gate: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answers.setdefault(body, []).append(gate)
        return gate


class Stage:
    """The cluster, a client that sends, and consumers."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.sender: Session
        self.consumers: list[Consumer] = []

    async def send(self, *bodies: str, to: MessageQueue | None = None, **properties: str) -> None:
        """Store messages in one queue."""
        to = to or queue()
        for body in bodies:
            header = send_header(to.topic, to.queue_id, properties={"UNIQ_KEY": f"ID-{body}", **properties})
            await self.world.do(
                self.sender.calls.request(
                    self.world.address(to.broker_name), RequestCode.SEND_MESSAGE_V2, header, body=body.encode()
                )
            )

    async def consumer(self, listener: Any = None, *, session: Session | None = None, **options: Any) -> Consumer:
        """A member of the group in a client of its own, started, with what it found at the start consumed."""
        made = await self.new_consumer(listener, session=session, **options)
        await self.world.do(made.start())
        await self.world.settle()
        return made

    async def new_consumer(self, listener: Any = None, *, session: Session | None = None, **options: Any) -> Consumer:
        """The same, not started."""
        session = session or await self.world.session()
        values: dict[str, Any] = {"group": GROUP, "consume_from": "first", "listener": listener, **options}
        made = Consumer(session, values.pop("topics", TOPIC), **values)
        self.consumers.append(made)
        return made

    def committed(self, of: MessageQueue | None = None, *, group: str = GROUP) -> int:
        """How far the group has committed, -1 for not at all."""
        of = of or queue()
        return self.world.brokers[of.broker_name].offsets.query(group, of.topic, of.queue_id)

    def dead_letters(self) -> list[str]:
        """The bodies among the dead letters, of all brokers."""
        return [message.body.decode() for name in self.world.brokers for message in self.world.stored(DEAD, name)]

    def sent_back(self) -> int:
        """How many messages wait, or have waited, for another try."""
        return sum(
            broker.store.max_offset("SCHEDULE_TOPIC_XXXX", level)
            for broker in self.world.brokers.values()
            for level in range(18)
        )

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.ensure_future(work)

    async def ask_consumer(self, session: Session, code: RequestCode, header: Any, body: bytes = b"") -> Any:
        """Ask through the broker, as an operator does."""
        return await self.world.do(
            self.sender.calls.request(self.world.address(), code, header, body=body, timeout_ms=10_000)
        )


def stage(scene: Callable[[Stage], Coroutine[Any, Any, None]], *, queues: int = 1, **settings: Any) -> None:
    """Play a scene; consumers that it left open are closed."""

    async def run(world: ClusterWorld) -> None:
        made = Stage(world)
        world.create_topic(TOPIC, queues)
        await world.settle()
        made.sender = await world.session()
        await world.do(made.sender.read_route(TOPIC))
        try:
            await scene(made)
        finally:
            for consumer in made.consumers:
                if consumer._session in world.sessions:
                    await world.do(consumer.close(0.0))

    play(run, **settings)
