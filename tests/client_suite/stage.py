"""Where a scene of the suite plays: a cluster of some make, and what the scene opens there.

Every test of the suite is a scene: a coroutine that is given a `Stage`. The same scenes play on servers of this
process, whose time is under control, and on real servers of either make, in real time; a scene cannot tell which. It
therefore never sleeps: it waits for what is to happen, with a limit. On a manual clock, time passes by itself whenever
everything has come to rest, so that a delay of an hour takes as long as the messages that move in it.

Topics and groups have names of their own in every scene, so that real servers can be shared by all of them.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import fusee
from fusee.errors import TopicNotFoundError

if TYPE_CHECKING:
    from fusee.admin import Admin

T = TypeVar("T")

# Levels 1 and 2 are for delayed messages; consumers retry from level 3 on.
DELAYS_S: Final = (1, 2, *[1] * 16)
QUEUES: Final = 4
# Real time. Much more than anything here takes: a machine may be busy, a virtual machine cold.
WAIT_S: Final = 45.0

# For clients, so that what happens at intervals happens soon.
CLIENT_OPTIONS: Final[dict[str, Any]] = {
    "mq_client_api_timeout_ms": 10_000,
    "poll_name_server_interval_ms": 1_000,
    "heartbeat_broker_interval_ms": 1_000,
    "persist_consumer_offset_interval_ms": 1_000,
}
SEND_TIMEOUT_MS: Final = 20_000

_NAME_SIZE_MAX: Final = 60


class LateError(AssertionError):
    """Something that had to happen did not within its limit."""


class Stage(ABC):
    """What a scene is given. Everything that it opens here is closed at its end."""

    make: str
    """Who made the broker: `fusee` or `java`."""
    has_timer_wheel: bool
    """Whether the broker delivers at any time, not only after the delays of its levels."""
    limit_s = 110.0
    """Real time that a scene may take."""

    def __init__(self, name_server: str, title: str, number: int) -> None:
        self.name_server = name_server
        self._title = f"{number}-{title}"[:_NAME_SIZE_MAX]
        self._names = itertools.count(1)
        self._stack = AsyncExitStack()
        self._mq: fusee.Connection | None = None
        self._reading: fusee.PullConsumer | None = None

    # What there is

    @property
    def mq(self) -> fusee.Connection:
        """The scene's own connection."""
        assert self._mq is not None
        return self._mq

    @property
    def admin(self) -> Admin:
        return self.mq.admin

    async def connect(self, **options: Any) -> fusee.Connection:
        """Another connection, to be set apart from the first by its `instance_name`."""
        return await self._stack.enter_async_context(self._connection({**CLIENT_OPTIONS, **options}))

    def name(self, role: str = "name") -> str:
        """A name that nothing else has."""
        return f"{role}-{self._title}-{next(self._names)}"

    def group(self) -> str:
        """A group that nobody is in."""
        return self.name("GID")

    async def topic(self, *, queues: int = QUEUES) -> str:
        """A new topic that clients can use."""
        topic = self.name("topic")
        await self.admin.create_topic(topic, queues=queues)
        return topic

    async def queues(self, topic: str) -> list[fusee.MessageQueue]:
        """The queues of a topic, sorted."""
        return sorted(await (await self._reader()).queues(topic))

    async def owns(self, consumer: fusee.Consumer | fusee.PullConsumer, topic: str, count: int) -> None:
        """Wait until a member of a group owns so many queues of a topic."""
        await self.until(f"{count} queues of {topic} are owned", lambda: len(owned(consumer, topic)) == count)

    async def stored_if_any(self, topic: str) -> list[fusee.ReceivedMessage]:
        """What a topic holds now, queue by queue; nothing where the topic does not exist yet."""
        reader = await self._reader()
        found: list[fusee.ReceivedMessage] = []
        try:
            queues = await self.queues(topic)
        except TopicNotFoundError:
            return found
        for queue in queues:
            next_offset, end = await reader.min_offset(queue), await reader.max_offset(queue)
            while next_offset < end:
                result = await reader.pull(queue, next_offset)
                found += result.messages
                next_offset = result.next_offset
        return found

    async def stored(self, topic: str, count: int) -> list[fusee.ReceivedMessage]:
        """What a topic holds, queue by queue, as soon as that is so many messages; there must never be more."""
        found: list[fusee.ReceivedMessage] = []

        async def is_there() -> bool:
            found[:] = await self.stored_if_any(topic)
            return len(found) >= count

        await self.eventually(f"{topic} holds {count} messages", is_there)
        assert len(found) == count, [message.body[:80] for message in found]
        return found

    async def committed(self, group: str, topic: str) -> dict[int, int | None]:
        """How far a group is in a topic, by queue id."""
        offsets = await self.admin.committed_offsets(group, topic)
        return {each.queue.queue_id: each.committed_offset for each in offsets}

    async def await_consumed(self, group: str, topic: str) -> None:
        """Wait until a group has committed all of a topic."""
        reader = await self._reader()
        ends = {queue.queue_id: await reader.max_offset(queue) for queue in await self.queues(topic)}

        async def is_done() -> bool:
            committed = await self.committed(group, topic)
            return all(committed.get(queue_id) == end for queue_id, end in ends.items() if end)

        await self.eventually(f"{group} has committed all of {topic}", is_done)

    async def _reader(self) -> fusee.PullConsumer:
        if self._reading is None:
            self._reading = await self._stack.enter_async_context(self.mq.pull_consumer(group=self.name("reader")))
        return self._reading

    # Time

    @abstractmethod
    def now(self) -> datetime:
        """The time that brokers and clients have."""

    @abstractmethod
    async def tick(self) -> None:
        """Let a moment pass."""

    async def until(self, what: str, check: Callable[[], object]) -> None:
        """Wait until this is so."""

        async def look() -> object:
            return check()

        await self.eventually(what, look)

    async def eventually(self, what: str, look: Callable[[], Awaitable[T]]) -> T:
        """The first true answer to a question that is put again and again."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + WAIT_S
        while not (answer := await look()):
            if loop.time() > limit:
                raise LateError(f"{what}: not within {WAIT_S:g} s; last seen: {answer!r}")
            await self.tick()
        return answer

    async def within(self, awaitable: Awaitable[T], what: str) -> T:
        """What this comes to."""
        try:
            async with asyncio.timeout(WAIT_S):
                return await awaitable
        except TimeoutError:
            raise LateError(f"{what}: not within {WAIT_S:g} s") from None

    async def apart(self) -> datetime:
        """A time that lies after everything stored so far and before everything stored from now on."""
        for _ in range(4):
            await self.tick()
        between = self.now()
        for _ in range(4):
            await self.tick()
        return between

    # Play

    async def play(self, scene: Callable[[Stage], Awaitable[None]]) -> None:
        """The scene, from the opening of its connection to the end of all that it opened."""
        async with asyncio.timeout(self.limit_s), self._stack:
            self._mq = await self.connect()
            await scene(self)

    @abstractmethod
    def _connection(self, options: dict[str, Any]) -> fusee.Connection:
        """A connection that is not open yet."""


class Cluster(ABC):
    """Servers that scenes can be played on."""

    @abstractmethod
    def play(self, title: str, scene: Callable[[Stage], Awaitable[None]]) -> None:
        """Play one scene on an event loop of its own."""

    @abstractmethod
    def serving(self) -> AbstractContextManager[str]:
        """The address of a name server that runs in real time, for clients without a loop of their own."""


class RealStage(Stage):
    """On servers in processes of their own."""

    def __init__(self, make: str, name_server: str, title: str, number: int) -> None:
        super().__init__(name_server, title, number)
        self.make = make
        self.has_timer_wheel = make == "java"

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def tick(self) -> None:
        await asyncio.sleep(0.02)

    def _connection(self, options: dict[str, Any]) -> fusee.Connection:
        return fusee.connect(self.name_server, **options)


class RealCluster(Cluster):
    """A name server and a broker that run already, for all scenes."""

    def __init__(self, make: str, name_server: str) -> None:
        self.make = make
        self.name_server = name_server
        self._numbers = itertools.count(1)

    def play(self, title: str, scene: Callable[[Stage], Awaitable[None]]) -> None:
        stage = RealStage(self.make, self.name_server, title, next(self._numbers))
        asyncio.run(stage.play(scene))

    @contextmanager
    def serving(self) -> Iterator[str]:
        yield self.name_server


class EmbeddedStage(Stage):
    """On servers in this process, made for this scene alone."""

    make = "fusee"
    has_timer_wheel = False
    limit_s = 20.0

    def __init__(self, server: fusee.EmbeddedServer, title: str) -> None:
        super().__init__(server.name_server, title, 1)
        self._server = server

    def now(self) -> datetime:
        return self._server.now

    async def tick(self) -> None:
        await self._server.advance(0.02)

    def _connection(self, options: dict[str, Any]) -> fusee.Connection:
        return self._server.connect(**options)

    async def play(self, scene: Callable[[Stage], Awaitable[None]]) -> None:
        time = asyncio.create_task(self._let_time_pass())
        work = asyncio.create_task(self._play(scene))
        await asyncio.wait({time, work}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, time):
            task.cancel()
        await asyncio.wait({time, work})
        if not work.cancelled():
            work.result()
        elif not time.cancelled():
            time.result()

    async def _play(self, scene: Callable[[Stage], Awaitable[None]]) -> None:
        await super().play(scene)

    async def _let_time_pass(self) -> None:
        while True:
            await self._server.advance(0.1)


class EmbeddedCluster(Cluster):
    """A name server and a broker in this process for each scene, with a clock that runs when all is at rest."""

    SETTINGS: Final[dict[str, Any]] = {
        "message_delay_level": " ".join(f"{delay_s}s" for delay_s in DELAYS_S),
        "transaction_time_out": 1_000,
        "transaction_check_interval": 1_000,
        "transaction_op_batch_interval": 100,
    }

    def play(self, title: str, scene: Callable[[Stage], Awaitable[None]]) -> None:
        async def run() -> None:
            before = asyncio.all_tasks()
            async with fusee.embedded(clock="manual", **self.SETTINGS) as server:
                await EmbeddedStage(server, title).play(scene)
            left = asyncio.all_tasks() - before
            assert not left, f"tasks were left running: {left}"

        asyncio.run(run())

    @contextmanager
    def serving(self) -> Iterator[str]:
        with fusee.sync.embedded(**self.SETTINGS) as server:
            yield server.name_server


def owned(consumer: fusee.Consumer | fusee.PullConsumer, topic: str) -> set[fusee.MessageQueue]:
    """The queues of a topic that are a member's; those of its retries are not among them."""
    return {queue for queue in consumer.assignment if queue.topic == topic}


def scene(play: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of this scene: its stage is set on the fixture `cluster`, other fixtures are handed on."""
    title = play.__name__.removeprefix("test_").replace("_when_", "_")

    @functools.wraps(play)
    def test(cluster: Cluster, **fixtures: Any) -> None:
        cluster.play(title, lambda stage: play(stage, **fixtures))

    _, *others = inspect.signature(play).parameters.values()
    first = inspect.Parameter("cluster", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(test)["__signature__"] = inspect.Signature([first, *others])
    return test
