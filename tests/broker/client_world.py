"""A broker's client side on a network in memory: real tables, real store on a simulated disk, real connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from fusee.broker.ack_gate import AckGate
from fusee.broker.config import BrokerConfig
from fusee.broker.consumers import ConsumerTable
from fusee.broker.groups import GroupTable
from fusee.broker.handlers.client import ClientHandlers
from fusee.broker.handlers.relay import RelayHandlers
from fusee.broker.handlers.reply import ReplyHandlers
from fusee.broker.log_writer import LogWriter
from fusee.broker.offsets import OffsetTable
from fusee.broker.producers import ProducerTable
from fusee.broker.queue_locks import QueueLocks
from fusee.broker.send_checks import SendChecks
from fusee.broker.statistics import Statistics
from fusee.broker.topics import TopicTable
from fusee.broker.worker import InlineWorker
from fusee.clock import ManualClock
from fusee.message.hosts import pack_host
from fusee.store import MessageStore, StoreConfig
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.client import Client, ClientSettings
from fusee.transport.link import Link
from fusee.transport.memory import MemoryNetwork
from fusee.transport.router import Router
from fusee.transport.server import Server, ServerSettings
from fusee.wire.codes import LanguageCode, RequestCode
from fusee.wire.command import Command
from fusee.wire.fields import Header, write_fields

BROKER = "10.0.0.1"
ADDRESS = f"{BROKER}:10911"
CLUSTER = "C"
NAME = "broker-a"
STORE_HOST = pack_host(BROKER, 10911)

# Nothing falls idle here: silence is told apart from a missing heartbeat.
PATIENT = 1e6


class Terminal:
    """A client program: one connection to the broker, what was pushed to it, and how it answers."""

    def __init__(self, world: ClientWorld, host: str) -> None:
        self._world = world
        self.pushed: list[Command] = []
        self.answer: Callable[[Command], Command | None] = lambda request: request.reply()
        self.router = Router()
        lane = self.router.lane("all", 1000)
        for code in (
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        ):
            self.router.add(code, self._take, lane)
        self.host = host
        self.client = Client(
            network=world.network.host(host),
            clock=world.clock,
            timers=world.clock,
            router=self.router,
            settings=ClientSettings(idle_timeout=PATIENT, request_timeout=60.0),
        )

    def _take(self, request: Command, link: Link) -> Command | None:
        self.pushed.append(request)
        return self.answer(request)

    async def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        language: LanguageCode = LanguageCode.JAVA,
        version: int = 513,
        seconds: float = 0.0,
    ) -> Command:
        """The broker's answer, while this much time passes."""
        fields = None if header is None else write_fields(header)
        request = Command(code, language=language, version=version, ext_fields=fields, body=body)
        return await self._world.during(self.client.request(ADDRESS, request), seconds)

    @property
    def questions(self) -> list[Command]:
        """What was pushed beside notices of changes in a group."""
        return [request for request in self.pushed if request.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]

    def codes(self) -> list[int]:
        """The codes of what was pushed, forgetting it."""
        found = [request.code for request in self.pushed]
        self.pushed.clear()
        return found


class ClientWorld:
    """A broker that knows clients, and nothing else of a broker."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock, seed=1)
        self.config = BrokerConfig(broker_name=NAME, broker_cluster_name=CLUSTER, **settings)
        self.disk = SimulatedDisk(self.clock)
        folder = Path("/store/config")
        tables: dict[str, Any] = {"config": self.config, "folder": folder, "files": self.disk, "clock": self.clock}
        self.topics = TopicTable(**tables)
        self.groups = GroupTable(**tables)
        self.offsets = OffsetTable(**tables)
        self.store = MessageStore(
            Path("/store"),
            StoreConfig(mapped_file_size_commit_log=1024 * 1024, mapped_file_size_consume_queue=20_000),
            files=self.disk,
            clock=self.clock,
        )
        self.router = Router()
        self.lane = self.router.lane("clients", 1000)
        self.worker = InlineWorker()
        self.consumers = ConsumerTable(config=self.config)
        self.producers = ProducerTable(config=self.config)
        self.locks = QueueLocks(self.clock)
        self._links: list[Link] = []

    async def start(self) -> None:
        self.store.open()
        self.writer = LogWriter(
            store=self.store,
            gate=AckGate(waits_for_flush=False, timeout=5.0, lane=self.lane, amend=lambda frame, status: frame),
            log_worker=self.worker,
            worker=self.worker,
            clock=self.clock,
            timers=self.clock,
            soon=asyncio.get_running_loop().call_soon,
            is_awaited=lambda topic, queue_id: False,
            on_written=lambda count, seconds: None,
            on_failure=lambda error: None,
        )
        self.statistics = Statistics(self.clock, CLUSTER)
        self.handlers = ClientHandlers(
            config=self.config,
            consumers=self.consumers,
            producers=self.producers,
            locks=self.locks,
            topics=self.topics,
            groups=self.groups,
            clock=self.clock,
            timers=self.clock,
        )
        self.replies = ReplyHandlers(
            config=self.config,
            checks=SendChecks(config=self.config, topics=self.topics, clock=self.clock),
            producers=self.producers,
            writer=self.writer,
            statistics=self.statistics,
            store_host=STORE_HOST,
            clock=self.clock,
            random=Random(7),
        )
        self.relay = RelayHandlers(
            config=self.config,
            consumers=self.consumers,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            writer=self.writer,
        )
        for part in (self.handlers, self.replies, self.relay):
            self.router.add_all(part.routes(), self.lane)
        self.router.add(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self.relay.reset_by_clients, self.lane)
        self.server = Server(
            network=self.network.host(BROKER),
            router=self.router,
            clock=self.clock,
            timers=self.clock,
            settings=ServerSettings(idle_timeout=PATIENT),
            listeners=[self],
        )
        await self.server.start(BROKER, 10911)

    async def stop(self) -> None:
        self.handlers.stop()
        stopping = asyncio.ensure_future(self.server.stop())
        await self.network.advance(20.0)
        await stopping
        self.writer.stop()
        self.store.close()

    def terminal(self, host: str) -> Terminal:
        return Terminal(self, host)

    def link_from(self, host: str) -> Link:
        """The broker's end of the connection from this host."""
        return next(link for link in reversed(self._links) if link.remote_address.startswith(f"{host}:"))

    async def during(self, work: Coroutine[Any, Any, Command], seconds: float) -> Command:
        task = asyncio.ensure_future(work)
        await self.network.advance(seconds)
        assert task.done(), f"still waiting after {seconds} s"
        return task.result()

    # LinkListener

    def on_connect(self, link: Link) -> None:
        self._links.append(link)

    def on_close(self, link: Link) -> None:
        self.handlers.link_lost(link)

    def on_exception(self, link: Link, error: Exception) -> None:
        self.handlers.link_lost(link)

    def on_idle(self, link: Link) -> None:
        self.handlers.link_lost(link)


def play(scene: Callable[[ClientWorld], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene in a world of its own."""

    async def run() -> None:
        world = ClientWorld(**settings)
        await world.start()
        try:
            await scene(world)
        finally:
            await world.stop()

    asyncio.run(run())
