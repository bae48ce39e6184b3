"""Where a group begins in a queue, and that no failure is taken for an answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fusee.client.consumer.offsets import BrokerOffsets
from fusee.client.consumer.start_offset import ConsumeFrom, check_consume_from, start_offset
from fusee.client.session import Session
from fusee.errors import ConfigError, RemoteFailureError, TransportError
from fusee.message.model import MessageQueue
from fusee.transport.router import Router
from fusee.transport.server import Server
from fusee.wire.codes import RequestCode
from fusee.wire.headers.offset import GetMaxOffsetResponse
from tests.broker.world import send_header
from tests.client.world import ClusterWorld, play

QUEUE = MessageQueue("orders", "broker-a", 0)
NOWHERE = GetMaxOffsetResponse(queue_offset=-1)
RETRY = MessageQueue("%RETRY%consumers", "broker-a", 0)


async def with_messages(world: ClusterWorld, count: int, topic: str = "orders") -> Session:
    """A client of a topic with messages in queue 0, one a second."""
    world.create_topic("orders")
    world.create_topic(RETRY.topic, 1)
    await world.settle()
    session = await world.session()
    await world.do(session.read_route(topic))
    for _ in range(count):
        await send(world, session, topic)
        await world.advance(1.0)
    return session


async def send(world: ClusterWorld, session: Session, topic: str = "orders") -> None:
    await world.do(
        session.calls.request(
            world.address(), RequestCode.SEND_MESSAGE_V2, send_header(topic, queue_id=0), body=b"hello"
        )
    )


@pytest.mark.parametrize("consume_from", ["first", "last", 0])
def test_start_when_committed_is_there(consume_from: ConsumeFrom) -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await world.session()
        assert await world.do(start_offset(session, QUEUE, committed=77, consume_from=consume_from)) == 77

    play(scene)


def test_start_when_first_is_the_first_message_left() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await with_messages(world, 3)
        assert await world.do(start_offset(session, QUEUE, committed=None, consume_from="first")) == 0
        empty = MessageQueue("orders", "broker-a", 3)
        assert await world.do(start_offset(session, empty, committed=None, consume_from="first")) == 0

    play(scene)


def test_start_when_last_is_behind_the_last_message() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await with_messages(world, 3)
        assert await world.do(start_offset(session, QUEUE, committed=None, consume_from="last")) == 3
        empty = MessageQueue("orders", "broker-a", 3)
        assert await world.do(start_offset(session, empty, committed=None, consume_from="last")) == 0

    play(scene)


def test_start_when_first_message_comes_between_the_questions_skips_nothing() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await with_messages(world, 0)
        offsets = BrokerOffsets(session, "consumers")
        committed = await world.do(offsets.load(QUEUE))
        assert committed is None
        await send(world, session)
        found = await world.do(
            start_offset(session, QUEUE, committed=committed, consume_from="last", reload=offsets.load)
        )
        assert found == 0

    play(scene)


def test_start_when_a_time_is_the_first_message_since() -> None:
    async def scene(world: ClusterWorld) -> None:
        begin = datetime.fromtimestamp(world.clock.time_ms() / 1000, UTC)
        session = await with_messages(world, 5)
        since = begin + timedelta(seconds=1.5)
        assert await world.do(start_offset(session, QUEUE, committed=None, consume_from=since)) == 2
        milliseconds = round(since.timestamp() * 1000)
        assert await world.do(start_offset(session, QUEUE, committed=None, consume_from=milliseconds)) == 2

    play(scene)


@pytest.mark.parametrize("consume_from", ["first", "last", 1_900_000_000_000])
def test_start_when_retry_topic_skips_nothing(consume_from: ConsumeFrom) -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await with_messages(world, 2, RETRY.topic)
        assert await world.do(start_offset(session, RETRY, committed=None, consume_from=consume_from)) == 0

    play(scene)


@pytest.mark.parametrize("consume_from", ["first", "last", 0])
def test_start_when_broker_does_not_answer_raises(consume_from: ConsumeFrom) -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await with_messages(world, 1)
        world.kill("broker-a")
        with pytest.raises(TransportError):
            await world.do(start_offset(session, QUEUE, committed=None, consume_from=consume_from))

    play(scene)


def test_start_when_broker_names_no_offset_raises() -> None:
    async def scene(world: ClusterWorld) -> None:
        session = await with_messages(world, 1)

        world.kill("broker-a")
        router = Router()
        router.add(RequestCode.GET_MAX_OFFSET, lambda request, _: request.reply(header=NOWHERE), router.lane("all", 10))
        host = world.broker_hosts["broker-a"]
        strange = Server(network=world.network.host(host), router=router, clock=world.clock, timers=world.clock)
        await strange.start(host, 10911)
        with pytest.raises(RemoteFailureError, match="-1"):
            await world.do(start_offset(session, QUEUE, committed=None, consume_from="last"))
        await world.do(strange.stop())

    play(scene)


@pytest.mark.parametrize("consume_from", ["first", "last", 0, datetime(2024, 1, 1, tzinfo=UTC)])
def test_consume_from_when_it_is_a_place(consume_from: ConsumeFrom) -> None:
    check_consume_from(consume_from)


@pytest.mark.parametrize("consume_from", ["latest", -1, True, None])
def test_consume_from_when_it_is_no_place_is_refused(consume_from: ConsumeFrom) -> None:
    with pytest.raises(ConfigError, match="consume_from"):
        check_consume_from(consume_from)
