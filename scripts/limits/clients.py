"""Clients of a broker under test: raw connections by the thousand, and one ordinary producer among them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from fusee.clock import SystemClock
from fusee.transport import Client, TcpNetwork
from fusee.transport.link import parse_address
from fusee.wire.bodies.heartbeat import HeartbeatData, ProducerData
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.client import Heartbeat
from fusee.wire.headers.pull import PullMessage
from fusee.wire.headers.send import SendMessageV2
from fusee.wire.lenient_json import dumps_fastjson
from scripts.limits.bounds import Bound
from scripts.limits.broker_process import KIB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUEUES: Final = 8
TOPIC: Final = "limits"
PATIENCE_S: Final = 20.0


class Peer(asyncio.Protocol):
    """A raw connection that counts whole answers, and reads nothing into them but whether they are a success."""

    def __init__(self, on_answer: Callable[[Peer], object] | None = None) -> None:
        self._on_answer = on_answer
        self._buffer = b""
        self.transport: asyncio.Transport | None = None
        self.answers = 0
        self.refusals = 0
        self.is_lost = False
        self.sent_at = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data
        while len(buffer) >= 4 and len(buffer) >= (size := 4 + int.from_bytes(buffer[:4], "big")):
            self.answers += 1
            self.refusals += b'"code":0,' not in buffer[:size]
            buffer = buffer[size:]
            if self._on_answer is not None:
                self._on_answer(self)
        self._buffer = buffer

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.sent_at = time.perf_counter()
        self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


async def connect(address: str, count: int, make: Callable[[], Peer] = Peer) -> list[Peer]:
    """So many connections, some hundred at a time."""
    host, port = parse_address(address)
    loop = asyncio.get_running_loop()
    peers: list[Peer] = []
    while len(peers) < count:
        some = range(min(200, count - len(peers)))
        peers += [pair[1] for pair in await asyncio.gather(*(loop.create_connection(make, host, port) for _ in some))]
    return peers


async def until(condition: Callable[[], bool], patience: float = PATIENCE_S) -> float:
    """Wait until this is so; how long it took, or infinity when it did not come to be."""
    begun = time.perf_counter()
    while not condition():
        if time.perf_counter() - begun > patience:
            return float("inf")
        await asyncio.sleep(0.01)
    return time.perf_counter() - begun


def send_request(body: bytes, queue_id: int = 0) -> Command:
    header = SendMessageV2(
        producer_group="limits",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp_ms=1,
        flag=0,
        properties="",
    )
    return Command.request(RequestCode.SEND_MESSAGE_V2, header, body=body)


def pull_request(queue_id: int, queue_offset: int = 0, hold_ms: int = 0) -> Command:
    header = PullMessage(
        consumer_group="limits",
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=queue_offset,
        max_messages=32,
        sys_flag=6 if hold_ms else 4,
        commit_offset=0,
        suspend_timeout_ms=hold_ms,
        subscription="*",
        sub_version=0,
    )
    return Command.request(RequestCode.PULL_MESSAGE, header)


def heartbeat_request(client_id: str) -> Command:
    body = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name="limits")])
    return Command.request(RequestCode.HEART_BEAT, Heartbeat(), body=dumps_fastjson(body))


class Sender:
    """An ordinary producer among the others: what it feels is what the bounds are about."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = Client(network=TcpNetwork(), clock=SystemClock(), timers=asyncio.get_running_loop())
        self.latencies: list[float] = []

    async def send(self, body: bytes = b"x" * KIB, queue_id: int = 0) -> Command:
        begun = time.perf_counter()
        answer = await self.client.request(self.address, send_request(body, queue_id), timeout=PATIENCE_S)
        self.latencies.append(time.perf_counter() - begun)
        return answer

    async def send_safely(self, body: bytes = b"x" * KIB, queue_id: int = 0) -> None:
        """Raises SystemExit when it is refused."""
        answer = await self.send(body, queue_id)
        if answer.code != ResponseCode.SUCCESS:
            raise SystemExit(f"an ordinary send was refused: {answer.code} {answer.remark}")

    async def send_for(self, *, count: int = 0, seconds: float = 0.0) -> None:
        """One message after another."""
        end = time.perf_counter() + seconds
        while count > 0 or time.perf_counter() < end:
            await self.send_safely()
            count -= 1

    async def send_until(self, ends: asyncio.Event) -> None:
        """One message after another, until told to stop."""
        while not ends.is_set():
            await self.send_safely()

    def p99_bound(self, most_ms: float) -> Bound:
        return Bound("p99 of another's sends", percentile(self.latencies, 0.99) * 1000, most_ms, "ms")


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


async def fill(sender: Sender, queue_id: int, count: int, size: int) -> None:
    """So many messages of this size."""
    for _ in range(count):
        await sender.send_safely(b"x" * size, queue_id)
