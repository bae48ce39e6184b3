"""A cluster whose brokers answer sends as a test tells them to.

The name server and the brokers are real servers on a network in memory with handlers of a few lines; what a broker
answers to the next sends stands in `answers`, everything else it takes and remembers in `sends`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fusee.client.config import ClientConfig
from fusee.client.producer import Producer
from fusee.client.session import Session
from fusee.message.batch import BatchElement, split_batch
from fusee.message.properties import decode_properties
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.transport.server import Server
from fusee.wire.bodies.route import BrokerData, QueueData, TopicRouteData, encode_route
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.namesrv import GetRouteInfo
from fusee.wire.headers.offset import GetMaxOffsetResponse
from fusee.wire.headers.send import RecallMessage, RecallMessageResponse, SendMessageResponse, SendMessageV2
from tests.broker.world import MemoryWorld

T = TypeVar("T")

NAME_SERVER = "10.0.1.1"


@dataclass
class Sent:
    """One send as a broker saw it."""

    request: Command
    header: SendMessageV2
    link: Link

    @property
    def body(self) -> bytes:
        return self.request.body

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties((self.header.properties or "").encode())

    @property
    def elements(self) -> list[BatchElement]:
        """The messages of a batch."""
        return split_batch(self.request.body)

    def success(self, queue_offset: int, **fields: Any) -> Command:
        """The answer that it was stored there."""
        count = len(self.elements) if self.header.batch else 1
        ids = ",".join(f"{queue_offset + place:032X}" for place in range(count))
        header = SendMessageResponse(
            msg_id=ids,
            queue_id=self.header.queue_id,
            queue_offset=queue_offset,
            transaction_id=self.properties.get("UNIQ_KEY"),
            **fields,
        )
        answer = self.request.reply(header=header)
        (answer.ext_fields or {}).update({"MSG_REGION": "r", "TRACE_ON": "true"})
        return answer


@dataclass
class ScriptedBroker:
    """A broker that answers as told: a code, a code with a remark, None for not at all, or a function of the send."""

    name: str
    host: str
    answers: deque[Any] = field(default_factory=deque)
    sends: list[Sent] = field(default_factory=list)
    settings: str = ""
    is_asked: int = 0
    checks: int = 0
    server: Server | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:10911"

    @property
    def bodies(self) -> list[bytes]:
        return [sent.body for sent in self.sends]

    def send(self, request: Command, link: Link) -> Command | None:
        sent = Sent(request, request.read(SendMessageV2), link)
        self.sends.append(sent)
        told = self.answers.popleft() if self.answers else ResponseCode.SUCCESS
        if told is None:
            return None
        if callable(told):
            answer: Command | None = told(sent)
            return answer
        if told == ResponseCode.SUCCESS:
            return sent.success(len(self.sends) - 1)
        if told in (
            ResponseCode.FLUSH_DISK_TIMEOUT,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
            ResponseCode.SLAVE_NOT_AVAILABLE,
        ):
            answer = sent.success(len(self.sends) - 1)
            answer.code = told
            return answer
        return request.reply(told, remark="as the test says")

    def config(self, request: Command, link: Link) -> Command:
        self.is_asked += 1
        return request.reply(body=self.settings.encode())

    def recall(self, request: Command, link: Link) -> Command:
        header = request.read(RecallMessage)
        assert header.recall_handle
        return request.reply(header=RecallMessageResponse(msg_id=f"recalled from {header.topic}"))

    def max_offset(self, request: Command, link: Link) -> Command:
        self.checks += 1
        return request.reply(header=GetMaxOffsetResponse(queue_offset=0))

    def release(self, place: int, **fields: Any) -> None:
        """Answer a send that was not answered yet."""
        sent = self.sends[place]
        sent.link.send(sent.success(place, **fields))


class ScriptedCluster(MemoryWorld):
    """A name server, and brokers by name."""

    def __init__(self, *, brokers: int = 1, seed: int = 1, settings: str = "") -> None:
        super().__init__()
        self.seed = seed
        names = [f"broker-{chr(97 + number)}" for number in range(brokers)]
        self.brokers = {
            name: ScriptedBroker(name, f"10.0.2.{number + 1}", settings=settings) for number, name in enumerate(names)
        }
        self.routes: dict[str, TopicRouteData] = {}
        self.route_questions: list[str] = []
        self._sessions: list[Session] = []
        self._producers: list[Producer] = []
        self._servers: list[Server] = []

    @property
    def broker(self) -> ScriptedBroker:
        """The first broker."""
        return self.brokers["broker-a"]

    @property
    def sends(self) -> list[Sent]:
        """Every send that any broker saw."""
        return [sent for broker in self.brokers.values() for sent in broker.sends]

    def route(self, topic: str, queues: int = 2, *, brokers: tuple[str, ...] | None = None) -> None:
        """Give this topic so many queues on each of these brokers (all)."""
        names = tuple(self.brokers) if brokers is None else brokers
        self.routes[topic] = TopicRouteData(
            broker_datas=[
                BrokerData(broker_name=name, cluster="C", broker_addrs={0: self.brokers[name].address})
                for name in names
            ],
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=queues, write_queue_nums=queues) for name in names
            ],
        )

    async def start(self) -> None:
        self._servers.append(
            await self.name_server(NAME_SERVER, {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._answer_route})
        )
        for broker in self.brokers.values():
            await self.start_broker(broker)

    async def start_broker(self, broker: ScriptedBroker) -> None:
        router = Router()
        lane = router.lane("all", 100_000)
        router.add(RequestCode.SEND_MESSAGE_V2, broker.send, lane)
        router.add(RequestCode.SEND_BATCH_MESSAGE, broker.send, lane)
        router.add(RequestCode.GET_BROKER_CONFIG, broker.config, lane)
        router.add(RequestCode.RECALL_MESSAGE, broker.recall, lane)
        router.add(RequestCode.GET_MAX_OFFSET, broker.max_offset, lane)
        for code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
            router.add(code, lambda request, link: request.reply(), lane)
        server = Server(network=self.network.host(broker.host), router=router, clock=self.clock, timers=self.clock)
        await server.start(broker.host, 10911)
        broker.server = server
        self._servers.append(server)

    async def stop_broker(self, name: str) -> None:
        """Nobody listens there any more, and connections are closed."""
        server = self.brokers[name].server
        assert server is not None
        await self.do(server.stop())

    def _answer_route(self, request: Command, link: Link) -> Command:
        topic = request.read(GetRouteInfo).topic
        self.route_questions.append(topic)
        route = self.routes.get(topic)
        if route is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark="no route")
        return request.reply(body=encode_route(route, standard_json=True))

    async def session(self) -> Session:
        session = Session(
            ClientConfig(name_servers=f"{NAME_SERVER}:9876", client_ip="10.0.9.1"),
            network=self.network.host("10.0.9.1"),
            clock=self.clock,
            timers=self.clock,
            chooser=random.Random(self.seed),
        )
        self._sessions.append(session)
        await self.do(session.start())
        return session

    async def producer(self, **options: Any) -> Producer:
        """A producer of a session of its own, started."""
        producer = Producer(await self.session(), **options)
        await producer.start()
        self._producers.append(producer)
        return producer

    async def do(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        """The outcome of this work, which may take so much time."""
        return await self.within(seconds, asyncio.ensure_future(work))

    async def close(self) -> None:
        for producer in self._producers:
            await self.do(producer.close())
        for session in self._sessions:
            await self.do(session.close())
        for server in self._servers:
            await self.do(server.stop())


def play(scene: Callable[[ScriptedCluster], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene in a cluster of its own, started before and closed after."""

    async def run() -> None:
        cluster = ScriptedCluster(**settings)
        await cluster.start()
        try:
            await scene(cluster)
        finally:
            await cluster.close()
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert not left, left

    asyncio.run(run())
