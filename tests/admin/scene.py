"""An operator in a cluster in memory: real name servers and brokers, members of groups that do what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from fusee.admin import Admin
from fusee.client.session import Session
from fusee.message.model import MessageQueue, StoredMessage
from fusee.namesrv import NameServer, NameServerConfig
from fusee.transport.link import Link
from fusee.wire.bodies.heartbeat import ConsumerData, SubscriptionData
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.stats import ConsumeDirectlyResult, ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.headers.send import SendMessageResponse
from fusee.wire.headers.transaction import CheckTransactionState
from tests.broker.world import send_header
from tests.client.world import ClusterWorld

T = TypeVar("T")


class AdminWorld(ClusterWorld):
    """A cluster whose name servers keep in memory what operators write there."""

    async def start_name_server(self, host: str) -> None:
        config = NameServerConfig(bind_address=host, listen_port=9876, kv_config_path="")
        server = NameServer(config, network=self.network.host(host), clock=self.clock, timers=self.clock)
        self.name_servers[host] = server
        await self.do(server.start())


class Member:
    """A consumer that owns the queues it is given, and remembers what brokers told it."""

    def __init__(self, group: str, wants: Mapping[str, str], queues: Iterable[MessageQueue], **data: Any) -> None:
        self.group = group
        self.wants = wants
        self.queues = list(queues)
        self.data = data
        self.consumed: list[StoredMessage] = []
        self.resets: list[dict[MessageQueue, int]] = []
        self.answers = True

    def heartbeat(self) -> ConsumerData:
        wanted = [
            SubscriptionData(topic=topic, expression=tags, tags_set=[] if tags == "*" else tags.split("||"))
            for topic, tags in self.wants.items()
        ]
        return ConsumerData(group_name=self.group, subscription_data_set=wanted, **self.data)

    def subscribed_topics(self) -> Iterable[str]:
        return self.wants

    def members_changed(self) -> None:
        pass

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.resets.append(offsets)

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: 7 for queue in self.queues if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        if not self.answers:
            raise ValueError("the application does not say")
        return ConsumerRunningInfo(
            properties={"PROP_CONSUMEORDERLY": "false"},
            queues={
                QueueRef(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id): ProcessQueueInfo(
                    commit_offset=3, cached_msg_count=2, last_pull_timestamp=11
                )
                for queue in self.queues
            },
            status_table={topic: ConsumeStatus(consume_ok_tps=2.5) for topic in self.wants},
            subscription_set=[SubscriptionData(topic=topic) for topic in self.wants],
        )

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        self.consumed.append(message)
        return ConsumeDirectlyResult(consume_result="CR_SUCCESS", spent_time_ms=4)

    async def persist_offsets(self) -> None:
        pass


class Publisher:
    """A producer that only shows itself."""

    def published_topics(self) -> Iterable[str]:
        return ()

    def check_transaction(self, address: str, header: CheckTransactionState, message: StoredMessage) -> None:
        raise AssertionError("no transaction here")


class Scene:
    """A cluster and its operator."""

    def __init__(self, world: ClusterWorld, session: Session) -> None:
        self.world = world
        self.session = session
        self.admin = Admin(session)

    async def do(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        return await self.world.do(work, seconds)

    async def lose(self, broker: str) -> None:
        """The operator cannot reach this broker any more; name servers and others can."""
        host = self.world.broker_hosts[broker]
        self.world.network.close_door((host, 10911))
        self.world.network.cut(self.session.ip, host)
        await self.world.settle()

    async def send(
        self, topic: str, body: bytes = b"hello", queue_id: int = 0, *, broker: str = "broker-a", **properties: str
    ) -> str:
        """Store a message; its offset id."""
        answer = await self.do(
            self.session.calls.request(
                self.world.address(broker),
                RequestCode.SEND_MESSAGE_V2,
                send_header(topic, queue_id, properties=properties),
                body=body,
            )
        )
        return answer.read(SendMessageResponse).msg_id

    async def commit(self, group: str, queue: MessageQueue, at: int) -> None:
        address = self.world.address(queue.broker_name)
        await self.do(self.session.calls.update_offset(address, group, queue.topic, queue.queue_id, at))

    async def member(
        self, group: str, wants: Mapping[str, str], queues: Iterable[MessageQueue] = (), **data: Any
    ) -> tuple[Member, str]:
        """A member of a group on a host of its own that every broker knows, and its client id."""
        session = await self.world.session()
        member = Member(group, wants, queues, **data)
        session.register_consumer(group, member)
        for name in self.world.brokers:
            await self.do(session.heartbeat(self.world.address(name)))
        await self.world.settle()
        return member, session.client_id


def play(scene: Callable[[Scene], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene in a cluster of its own."""

    async def run() -> None:
        world = AdminWorld(**settings)
        await world.start()
        try:
            await scene(Scene(world, await world.session()))
        finally:
            await world.close()

    asyncio.run(run())


def queue(topic: str = "orders", queue_id: int = 0, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic, broker, queue_id)


class ScriptedServer:
    """A server that answers what it is told to, and remembers what it was asked: for what no Fusee server serves."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked: list[Command] = []
        self._answers: dict[int, list[Callable[[Command], Command]]] = {}

    def answer(self, code: RequestCode, *replies: Callable[[Command], Command]) -> None:
        """Answer this code so; the last answer stays."""
        self._answers[code] = list(replies)

    def handle(self, command: Command, link: Link) -> Command:
        self.asked.append(command)
        replies = self._answers[command.code]
        return (replies.pop(0) if len(replies) > 1 else replies[0])(command)

    def last(self) -> Command:
        return self.asked[-1]


async def scripted(scene: Scene, codes: Iterable[RequestCode], host: str = "10.0.2.1") -> ScriptedServer:
    """Such a server, on port 9876 of a host."""
    server = ScriptedServer(f"{host}:9876")
    running = await scene.world.name_server(host, dict.fromkeys(codes, server.handle))
    scene.world._dead.append(running)
    return server
