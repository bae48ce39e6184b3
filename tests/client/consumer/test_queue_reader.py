"""Pulls say what Java's pull consumers say, and find their broker."""

from __future__ import annotations

import asyncio
import lzma
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fusee.client.broker_calls import PullStatus
from fusee.client.consumer.queue_reader import QueueReader
from fusee.client.routes import topic_route
from fusee.client.session import Session
from fusee.client.subscriptions import Sql, subscription
from fusee.errors import ConnectError
from fusee.message.model import MessageQueue
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.transport.server import Server
from fusee.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.fields import write_fields
from fusee.wire.headers.pull import PullMessage, PullMessageResponse
from tests.client.world import ClusterWorld, play

GOLDEN = Path(__file__).parents[2] / "golden" / "wire"


class Exchange(msgspec.Struct):
    """A line of the golden files, as far as it is a pull."""

    code: int
    role: str
    header: dict[str, Any]


def pulls_of_java(name: str, code: RequestCode) -> list[dict[str, str]]:
    lines = lzma.decompress((GOLDEN / f"{name}.jsonl.xz").read_bytes()).splitlines()
    exchanges = (msgspec.json.decode(line, type=Exchange) for line in lines)
    fields = [each.header["extFields"] for each in exchanges if each.code == code and each.role == "request"]
    return [each for each in fields if each["bname"] == "golden-a"]


class Brokers:
    """A master and a slave that note pulls and find nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pulls: list[tuple[str, dict[str, str]]] = []

    async def start(self, world: ClusterWorld) -> Session:
        for host in ("10.0.5.1", "10.0.5.2"):
            router = Router()
            router.add(RequestCode.PULL_MESSAGE, self._pull, router.lane("all", 10))
            router.add(RequestCode.LITE_PULL_MESSAGE, self._pull, router.lane("lite", 10))
            server = Server(network=world.network.host(host), router=router, clock=world.clock, timers=world.clock)
            await server.start(host, 10911)
        session = await world.session()
        route = TopicRouteData(
            broker_datas=[
                BrokerData(
                    cluster="C",
                    broker_name=self.name,
                    broker_addrs={0: "10.0.5.1:10911", 1: "10.0.5.2:10911"},
                )
            ],
            queue_datas=[QueueData(broker_name=self.name, read_queue_nums=4, write_queue_nums=4, perm=6)],
        )
        session.routes.put(topic_route("Golden", route))
        return session

    def _pull(self, command: Command, link: Link) -> Command:
        self.pulls.append((link.local_address, write_fields(command.read(PullMessage))))
        header = PullMessageResponse(suggested_broker_id=0, next_offset=7, min_offset=1, max_offset=9)
        return command.reply(ResponseCode.PULL_NOT_FOUND, header)


@pytest.mark.parametrize(
    ("name", "code"), [("lite", RequestCode.LITE_PULL_MESSAGE), ("pull", RequestCode.PULL_MESSAGE)]
)
def test_pull_is_written_as_java_writes_it(name: str, code: RequestCode) -> None:
    golden = pulls_of_java(name, code)
    assert golden

    async def scene(world: ClusterWorld) -> None:
        brokers = Brokers("golden-a")
        session = await brokers.start(world)
        for fields in golden:
            reader = QueueReader(session, fields["consumerGroup"])
            expression: Any = fields["subscription"]
            if fields["expressionType"] == "SQL92":
                expression = Sql(expression)
            is_held = int(fields["sysFlag"]) & 2
            answer = await world.do(
                reader.pull(
                    MessageQueue(fields["topic"], "golden-a", int(fields["queueId"])),
                    subscription(fields["topic"], expression, version_ms=int(fields["subVersion"])),
                    int(fields["queueOffset"]),
                    int(fields["maxMsgNums"]),
                    hold_ms=int(fields["suspendTimeoutMillis"]) if is_held else 0,
                    timeout_ms=1_000,
                    is_lite=code is RequestCode.LITE_PULL_MESSAGE,
                )
            )
            assert (answer.status, answer.next_offset) == (PullStatus.NO_NEW_MESSAGE, 7)
            written = brokers.pulls.pop()[1]
            # The kind of client, which only a proxy reads; and how long to hold what must not be held.
            expected = {key: value for key, value in fields.items() if key != "ReqT"}
            if not is_held:
                expected["suspendTimeoutMillis"] = "0"
            assert written == expected

    play(scene)


def test_pull_asks_the_broker_that_was_suggested() -> None:
    async def scene(world: ClusterWorld) -> None:
        brokers = Brokers("b")
        reader = QueueReader(await brokers.start(world), "g")
        everything = subscription("Golden", version_ms=1)
        for broker_id in (0, 1, 0):
            await world.do(
                reader.pull(MessageQueue("Golden", "b", 0), everything, 0, 1, timeout_ms=1_000, broker_id=broker_id)
            )
        assert [address for address, _ in brokers.pulls] == ["10.0.5.1:10911", "10.0.5.2:10911", "10.0.5.1:10911"]

    play(scene)


def test_pull_when_broker_is_unknown_asks_for_the_route_first() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 1)
        await world.settle()
        session = await world.session()
        reader = QueueReader(session, "g")
        assert await world.do(reader.max_offset(MessageQueue("orders", "broker-a", 0))) == 0
        other = await world.session()
        with pytest.raises(ConnectError, match="'broker-z'"):
            await world.do(QueueReader(other, "g").min_offset(MessageQueue("orders", "broker-z", 0)))

    play(scene)


def test_pull_when_cancelled_is_forgotten() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 1)
        await world.settle()
        session = await world.session()
        await world.do(session.read_route("orders"))
        reader = QueueReader(session, "g")
        everything = subscription("orders", version_ms=1)
        pulling = asyncio.ensure_future(
            reader.pull(MessageQueue("orders", "broker-a", 0), everything, 0, 1, hold_ms=20_000, timeout_ms=30_000)
        )
        await world.settle()
        link = session.transport.open_link(world.address())
        assert link is not None
        assert link.in_flight == 1
        pulling.cancel()
        await world.settle()
        assert link.in_flight == 0

    play(scene)
