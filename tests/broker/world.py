"""A whole broker on a network in memory, a simulated disk and a manual clock, and programs that talk to it.

Everything above the three seams is real: sockets are bytes in memory, the disk is `SimulatedDisk`, and time passes
only in `advance`. `stopped`, `killed` and `crashed` give the world that the next process finds. `HeldWorker` stands for
a disk that is slow to sync: jobs wait until they are let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fusee.broker import Broker, BrokerConfig
from fusee.broker.worker import InlineWorker, Worker
from fusee.clock import ManualClock
from fusee.message.model import StoredMessage
from fusee.message.properties import encode_properties
from fusee.message.record import iterate_records
from fusee.store.config import StoreConfig
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.client import Client, ClientSettings
from fusee.transport.link import Link
from fusee.transport.memory import MemoryNetwork
from fusee.transport.router import Router
from fusee.transport.server import Server
from fusee.wire.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from fusee.wire.codes import LanguageCode, RequestCode
from fusee.wire.command import Command
from fusee.wire.fields import Header, write_fields
from fusee.wire.headers.pull import PullMessage
from fusee.wire.headers.send import SendMessageV1, SendMessageV2
from fusee.wire.lenient_json import dumps_fastjson
from tests.broker.log_world import small_store

HOST = "10.0.0.1"
ADDRESS = f"{HOST}:10911"
FAST_ADDRESS = f"{HOST}:10909"
NAME = "broker-a"
CLUSTER = "C"
ROOT = Path("/store")
OLD_VERSION = 300
"""Of a client that does not know GO_AWAY."""

T = TypeVar("T")


class HeldWorker:
    """A thread that does its jobs when it is told to."""

    def __init__(self) -> None:
        self.is_held = False
        self.waiting: list[Callable[[], None]] = []
        self._inline = InlineWorker()

    def run(self, job: Callable[[], T], done: Callable[[T], object], failed: Callable[[Exception], object]) -> None:
        if self.is_held:
            self.waiting.append(lambda: self._inline.run(job, done, failed))
        else:
            self._inline.run(job, done, failed)

    def release(self) -> int:
        """Do the jobs that wait now; how many. What they lead to waits in turn."""
        jobs, self.waiting = self.waiting, []
        for job in jobs:
            job()
        return len(jobs)

    def stop(self) -> None:
        """As a thread is stopped: what it was given is done first."""
        self.is_held = False
        while self.release():
            pass


class _WorldBroker(Broker):
    """A broker whose threads are given."""

    threads: tuple[HeldWorker, HeldWorker]

    def _make_workers(self) -> tuple[Worker, Worker]:
        self._workers = list(self.threads)
        return self.threads


def send_header(
    topic: str = "orders",
    queue_id: int = 0,
    *,
    group: str = "producers",
    sys_flag: int = 0,
    properties: str | dict[str, str] | None = None,
    **more: Any,
) -> SendMessageV2:
    """The header of a send in the short form."""
    if properties is None or isinstance(properties, dict):
        text = encode_properties({"UNIQ_KEY": "ID1", "WAIT": "true", **(properties or {})}).decode()
    else:
        text = properties
    values: dict[str, Any] = {
        "producer_group": group,
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": sys_flag,
        "born_timestamp_ms": 1_699_999_999_000,
        "flag": 0,
        "properties": text,
        "reconsume_times": 0,
        "unit_mode": False,
        "batch": False,
        **more,
    }
    return SendMessageV2(**values)


def send_header_v1(header: SendMessageV2) -> SendMessageV1:
    """The same in the long form."""
    values = msgspec.structs.asdict(header)
    return SendMessageV1(**{name: values[name] for name in SendMessageV1.__struct_fields__ if name in values})


def pull_header(
    topic: str = "orders",
    queue_id: int = 0,
    queue_offset: int = 0,
    *,
    group: str = "consumers",
    hold_ms: int | None = None,
    subscription: str | None = "*",
    **more: Any,
) -> PullMessage:
    """The header of a pull; with `hold_ms` it may be held, without `subscription` heartbeats say what is wanted."""
    sys_flag = (2 if hold_ms is not None else 0) | (4 if subscription is not None else 0)
    values: dict[str, Any] = {
        "consumer_group": group,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "max_messages": 32,
        "sys_flag": sys_flag,
        "commit_offset": 0,
        "suspend_timeout_ms": hold_ms or 0,
        "subscription": subscription,
        "sub_version": 0,
        "expression_type": "TAG",
        **more,
    }
    return PullMessage(**values)


def heartbeat_body(
    client_id: str = "client-1",
    *,
    group: str | None = None,
    producer_group: str | None = None,
    wants: dict[str, str] | None = None,
    expression_type: str = "TAG",
    version: int = 1,
    **consumer: Any,
) -> bytes:
    """A heartbeat of a consumer of `wants` (expression by topic), of a producer, or of both."""
    subscriptions = [
        SubscriptionData(
            topic=topic,
            expression=expression,
            expression_type=expression_type,
            sub_version=version,
            tags_set=[] if expression == "*" or expression_type != "TAG" else expression.split("||"),
        )
        for topic, expression in (wants or {}).items()
    ]
    return dumps_fastjson(
        HeartbeatData(
            client_id=client_id,
            consumer_data_set=[ConsumerData(group_name=group, subscription_data_set=subscriptions, **consumer)]
            if group
            else [],
            producer_data_set=[ProducerData(group_name=producer_group)] if producer_group else [],
        )
    )


def messages_in(answer: Command) -> list[StoredMessage]:
    """The messages of a pull's answer."""
    return list(iterate_records(answer.body))


def bodies_in(answer: Command) -> list[bytes]:
    """The bodies of the messages of a pull's answer."""
    return [message.body for message in messages_in(answer)]


class Peer:
    """A program elsewhere: one connection to the broker, and what the broker asked of it."""

    def __init__(self, world: BrokerWorld, host: str, address: str) -> None:
        self.world = world
        self._address = address
        self.host = host
        self.asked: list[Command] = []
        router = Router()
        lane = router.lane("all", 1000)
        for code in (RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED):
            router.add(code, self._take, lane)
        self.client = Client(
            network=world.network.host(host),
            clock=world.clock,
            timers=world.clock,
            router=router,
            settings=ClientSettings(idle_timeout=1e6, frame_timeout=1e6, request_timeout=1e5),
        )

    def _take(self, request: Command, link: Link) -> None:
        self.asked.append(request)

    def begin(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        version: int = 513,
    ) -> asyncio.Task[Command]:
        """Ask, without waiting for the answer."""
        command = Command(
            code,
            language=LanguageCode.JAVA,
            version=version,
            ext_fields=None if header is None else write_fields(header),
            body=body,
        )
        return self.world.keep(asyncio.ensure_future(self.client.request(self._address, command)))

    async def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        version: int = 513,
        seconds: float = 0.0,
    ) -> Command:
        """The answer, which must come while so much time passes."""
        return await self.world.within(seconds, self.begin(code, header, body=body, version=version))

    def begin_send(self, body: bytes = b"hello", **header: Any) -> asyncio.Task[Command]:
        return self.begin(RequestCode.SEND_MESSAGE_V2, send_header(**header), body=body)

    async def send(self, body: bytes = b"hello", **header: Any) -> Command:
        return await self.world.within(0.0, self.begin_send(body, **header))

    def begin_pull(self, *, version: int = 513, **header: Any) -> asyncio.Task[Command]:
        return self.begin(RequestCode.PULL_MESSAGE, pull_header(**header), version=version)

    async def pull(self, **header: Any) -> Command:
        return await self.world.within(0.0, self.begin_pull(**header))

    async def beat(self, **data: Any) -> Command:
        return await self.ask(RequestCode.HEART_BEAT, body=heartbeat_body(**data))

    async def oneway(self, code: RequestCode, header: Header, *, body: bytes = b"") -> None:
        request = Command.request(code, header, body=body)
        await self.world.within(0.0, asyncio.ensure_future(self.client.oneway(self._address, request)))


class MemoryWorld:
    """A network in memory and a clock that stands still."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.network = MemoryNetwork(self.clock, seed=1)

    async def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        await self.network.advance(seconds)

    async def settle(self) -> None:
        """Let everything happen that is due now."""
        await self.network.settle()

    async def within(self, seconds: float, work: asyncio.Future[T]) -> T:
        """The outcome, which must be there while so much time passes."""
        end = self.clock.monotonic() + seconds
        await self.settle()
        while not work.done() and self.clock.monotonic() < end:
            due = self.clock.next_due
            await self.advance((end if due is None else min(due, end)) - self.clock.monotonic())
        assert work.done(), f"still waiting after {seconds} s"
        return work.result()

    async def name_server(self, host: str, handlers: Mapping[RequestCode, Callable[[Command, Link], Any]]) -> Server:
        """Something that answers on port 9876 of a host."""
        router = Router()
        lane = router.lane("all", 1000)
        for code, handler in handlers.items():
            router.add(code, handler, lane)
        server = Server(network=self.network.host(host), router=router, clock=self.clock, timers=self.clock)
        await server.start(host, 9876)
        return server


class BrokerWorld(MemoryWorld):
    """One broker process, its disk and its network."""

    def __init__(
        self,
        *,
        disk: SimulatedDisk | None = None,
        clock: ManualClock | None = None,
        store: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(clock)
        self.disk = disk or SimulatedDisk(self.clock)
        self.settings: dict[str, Any] = {
            "broker_name": NAME,
            "broker_cluster_name": CLUSTER,
            "bind_address": HOST,
            "listen_port": 10911,
            **settings,
        }
        self.store_settings = store or {}
        self.log_thread, self.file_thread = HeldWorker(), HeldWorker()
        self.broker = _WorldBroker(
            BrokerConfig(**self.settings),
            self.store_config,
            store_path=ROOT,
            network=self.network.host(HOST),
            files=self.disk,
            clock=self.clock,
            timers=self.clock,
            seed=7,
        )
        self.broker.threads = (self.log_thread, self.file_thread)
        self._tasks: set[asyncio.Task[Command]] = set()

    @property
    def store_config(self) -> StoreConfig:
        return small_store(**self.store_settings)

    # Life

    async def start(self, seconds: float = 5.0) -> BrokerWorld:
        """Start the broker, which must be done while so much time passes."""
        await self.within(seconds, asyncio.ensure_future(self.broker.start()))
        return self

    async def stop(self) -> None:
        """An orderly stop, in the time that it takes; held disks are let go."""
        for thread in (self.log_thread, self.file_thread):
            thread.stop()
        await self.within(60.0, asyncio.ensure_future(self.broker.stop()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stopped(self, **changes: Any) -> BrokerWorld:
        """The next process after an orderly stop, started."""
        await self.stop()
        return await self._next(self.disk, **changes)

    async def killed(self, **changes: Any) -> BrokerWorld:
        """The next process after the end of this one without warning, started."""
        return await self._next(self.disk.kill(), **changes)

    async def crashed(self, seed: int, **changes: Any) -> BrokerWorld:
        """The next process after the power failed, started."""
        return await self._next(self.disk.crash(seed), **changes)

    async def _next(self, disk: SimulatedDisk, **changes: Any) -> BrokerWorld:
        clock = ManualClock(self.clock.time_ms())
        disk.clock = clock
        store = changes.pop("store", self.store_settings)
        world = BrokerWorld(disk=disk, clock=clock, store=store, **{**self.settings, **changes})
        return await world.start()

    # Others

    def keep(self, task: asyncio.Task[Command]) -> asyncio.Task[Command]:
        """Remember a request, to end it with the world."""
        self._tasks.add(task)
        return task

    def peer(self, host: str = "10.0.0.9", address: str = ADDRESS) -> Peer:
        return Peer(self, host, address)


def play(scene: Callable[[BrokerWorld], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene in a world of its own, whose broker is started before and stopped after."""

    async def run() -> None:
        world = BrokerWorld(**settings)
        await world.start()
        try:
            await scene(world)
        finally:
            await world.stop()

    asyncio.run(run())


def run(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene that makes its own worlds."""

    async def main() -> None:
        await scene()

    asyncio.run(main())
