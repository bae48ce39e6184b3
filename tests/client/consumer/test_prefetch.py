"""Fetching ahead from brokers that answer oddly: how soon it asks again, and what the application hears."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from fusee.client.consumer.assigned_queues import AssignedQueue
from fusee.client.consumer.offsets import BrokerOffsets
from fusee.client.consumer.prefetch import Prefetch
from fusee.client.consumer.pull_options import PullOptions
from fusee.client.consumer.queue_reader import QueueReader
from fusee.client.routes import topic_route
from fusee.client.session import Session
from fusee.client.subscriptions import subscription
from fusee.errors import FuseeError, RecordError
from fusee.message.model import MessageQueue, StoredMessage
from fusee.message.record import encode_record
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.transport.server import Server
from fusee.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.pull import PullMessage, PullMessageResponse
from tests.client.world import ClusterWorld, play

QUEUE = MessageQueue("odd", "odd-broker", 0)
EVERYTHING = subscription("odd", version_ms=1)


def record(queue_offset: int) -> bytes:
    return encode_record(
        StoredMessage(
            topic="odd",
            queue_id=0,
            queue_offset=queue_offset,
            log_offset=queue_offset * 100,
            body=b"x",
            properties_bytes=b"",
            flag=0,
            sys_flag=0,
            born_timestamp_ms=1,
            born_host_bytes=bytes(8),
            store_timestamp_ms=1,
            store_host_bytes=bytes(8),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
        )
    )


class OddBroker:
    """Answers pulls as it is told, in turn, and holds those that come after."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.answers: deque[tuple[int, int, int, bytes]] = deque()
        self.asked: list[tuple[float, int]] = []

    def will(self, code: int, *, next_offset: int = 0, suggests: int = 0, body: bytes = b"") -> None:
        self.answers.append((code, next_offset, suggests, body))

    async def start(self) -> Session:
        router = Router()
        lane = router.lane("all", 100)
        router.add(RequestCode.PULL_MESSAGE, self._pull, lane)
        router.add(RequestCode.LITE_PULL_MESSAGE, self._pull, lane)
        world = self.world
        server = Server(network=world.network.host("10.0.5.1"), router=router, clock=world.clock, timers=world.clock)
        await server.start("10.0.5.1", 10911)
        session = await world.session()
        route = TopicRouteData(
            broker_datas=[BrokerData(broker_name="odd-broker", broker_addrs={0: "10.0.5.1:10911"})],
            queue_datas=[QueueData(broker_name="odd-broker", read_queue_nums=1, write_queue_nums=1, perm=6)],
        )
        session.routes.put(topic_route("odd", route))
        return session

    def _pull(self, command: Command, link: Link) -> Command | None:
        self.asked.append((round(self.world.clock.monotonic(), 3), command.read(PullMessage).queue_offset))
        if not self.answers:
            return None
        code, next_offset, suggests, body = self.answers.popleft()
        header = PullMessageResponse(suggested_broker_id=suggests, next_offset=next_offset, min_offset=0, max_offset=9)
        return command.reply(code, header, body=body)


def perform(scene: Callable[[OddBroker, Prefetch, AssignedQueue], Any], at: int = 0) -> None:
    async def prepared(world: ClusterWorld) -> None:
        broker = OddBroker(world)
        session = await broker.start()
        prefetch = Prefetch(
            session,
            "g",
            PullOptions(pull_time_delay_ms_when_exception=700),
            reader=QueueReader(session, "g"),
            offsets=BrokerOffsets(session, "g"),
            on_messages=lambda: None,
        )
        prefetch.add(QUEUE, EVERYTHING)
        held = prefetch.queues.get(QUEUE)
        assert held is not None
        held.move(at)
        await scene(broker, prefetch, held)
        await world.do(prefetch.stop())

    play(prepared)


def test_fetch_when_broker_slows_us_down_asks_again_soon() -> None:
    async def scene(broker: OddBroker, prefetch: Prefetch, held: AssignedQueue) -> None:
        broker.will(ResponseCode.FLOW_CONTROL)
        broker.will(ResponseCode.FLOW_CONTROL)
        prefetch.start()
        await broker.world.advance(5.0)
        assert broker.asked == [(0.0, 0), (0.02, 0), (0.04, 0)]
        prefetch.raise_fault()

    perform(scene)


def test_fetch_when_broker_does_not_hold_it_rests_a_little() -> None:
    async def scene(broker: OddBroker, prefetch: Prefetch, held: AssignedQueue) -> None:
        broker.will(ResponseCode.PULL_NOT_FOUND, next_offset=0)
        broker.will(ResponseCode.PULL_OFFSET_MOVED, next_offset=0)
        broker.will(ResponseCode.PULL_RETRY_IMMEDIATELY, next_offset=5)
        prefetch.start()
        await broker.world.advance(5.0)
        assert broker.asked == [(0.0, 0), (0.05, 0), (0.1, 0), (0.1, 5)], "at once only when it has moved"

    perform(scene)


def test_fetch_when_refused_rests_longer_and_then_tells() -> None:
    async def scene(broker: OddBroker, prefetch: Prefetch, held: AssignedQueue) -> None:
        for _ in range(3):
            broker.will(ResponseCode.SYSTEM_ERROR)
        prefetch.start()
        await broker.world.advance(1.0)
        prefetch.raise_fault()
        await broker.world.advance(0.5)
        assert [at for at, _ in broker.asked] == [0.0, 0.7, 1.4]
        with pytest.raises(FuseeError):
            prefetch.raise_fault()
        prefetch.raise_fault()

    perform(scene)


def test_fetch_when_answer_is_damaged_tells_and_takes_nothing() -> None:
    async def scene(broker: OddBroker, prefetch: Prefetch, held: AssignedQueue) -> None:
        broker.will(ResponseCode.SUCCESS, next_offset=2, body=record(0) + record(1)[:-3])
        broker.will(ResponseCode.SUCCESS, next_offset=2, body=record(0) + record(1))
        prefetch.start()
        await broker.world.settle()
        with pytest.raises(RecordError):
            prefetch.raise_fault()
        assert not prefetch.queues.has_messages
        await broker.world.advance(1.0)
        assert held.count == 2
        assert [queue_offset for _, queue_offset in broker.asked] == [0, 0, 2]

    perform(scene)


def test_fetch_when_offset_is_within_a_batch_leaves_out_what_was_before() -> None:
    async def scene(broker: OddBroker, prefetch: Prefetch, held: AssignedQueue) -> None:
        broker.will(ResponseCode.SUCCESS, next_offset=4, body=b"".join(map(record, range(4))))
        prefetch.start()
        await broker.world.settle()
        [(_, messages)] = prefetch.queues.take(9)
        assert [message.queue_offset for message in messages] == [2, 3]

    perform(scene, at=2)


def test_move_forgets_the_answer_to_the_question_before() -> None:
    async def scene(broker: OddBroker, prefetch: Prefetch, held: AssignedQueue) -> None:
        prefetch.start()
        await broker.world.settle()
        broker.will(ResponseCode.SUCCESS, next_offset=8, body=record(7))
        prefetch.move(held, 7)
        await broker.world.settle()
        assert [queue_offset for _, queue_offset in broker.asked] == [0, 7, 8]
        assert (held.count, held.fetch_offset) == (1, 8)

    perform(scene)


def test_remove_ends_the_fetching() -> None:
    async def scene(broker: OddBroker, prefetch: Prefetch, held: AssignedQueue) -> None:
        prefetch.start()
        await broker.world.settle()
        before = len(asyncio.all_tasks())
        assert prefetch.remove(QUEUE) is held
        assert prefetch.remove(QUEUE) is None
        await broker.world.settle()
        assert len(asyncio.all_tasks()) == before - 1

    perform(scene)


def test_fetch_when_it_ends_by_a_mistake_is_told_for_ever() -> None:
    async def scene(broker: OddBroker, prefetch: Prefetch, held: AssignedQueue) -> None:
        wrong: Any = object()
        held.subscription = wrong
        prefetch.start()
        await broker.world.settle()
        for _ in range(2):
            with pytest.raises(FuseeError, match="ended with AttributeError"):
                prefetch.raise_fault()

    perform(scene)
