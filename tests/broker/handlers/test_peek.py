"""Looking at messages without taking them."""

from __future__ import annotations

from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.offset import UpdateConsumerOffset
from fusee.wire.headers.pop import PeekMessage
from tests.broker.world import BrokerWorld, bodies_in, play


def peek(topic: str = "orders", queue_id: int = 0, count: int = 32, group: str = "G") -> PeekMessage:
    return PeekMessage(topic=topic, queue_id=queue_id, max_messages=count, consumer_group=group)


def test_peek_shows_messages_from_the_committed_offset_on_and_moves_nothing() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        for number in range(5):
            await client.send(b"%d" % number, topic="orders", queue_id=0)
        for _ in range(2):
            answer = await client.ask(RequestCode.PEEK_MESSAGE, peek(count=2))
            assert answer.code == ResponseCode.SUCCESS
            assert answer.remark == "FOUND"
            assert bodies_in(answer) == [b"0", b"1"]
            assert (answer.ext_fields or {})["restNum"] == "5"
        header = UpdateConsumerOffset(consumer_group="G", topic="orders", queue_id=0, commit_offset=3)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        answer = await client.ask(RequestCode.PEEK_MESSAGE, peek())
        assert bodies_in(answer) == [b"3", b"4"]
        assert (answer.ext_fields or {})["restNum"] == "2"

    play(scene)


def test_peek_of_every_queue_finds_what_is_in_any() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        for queue_id in range(3):
            await client.send(b"q%d" % queue_id, topic="orders", queue_id=queue_id)
        answer = await client.ask(RequestCode.PEEK_MESSAGE, peek(queue_id=-1))
        assert sorted(bodies_in(answer)) == [b"q0", b"q1", b"q2"]

    play(scene)


def test_peek_when_there_is_nothing_or_no_topic_or_queue() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        await client.send(b"x", topic="orders", queue_id=0)
        answer = await client.ask(RequestCode.PEEK_MESSAGE, peek(queue_id=1))
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
        answer = await client.ask(RequestCode.PEEK_MESSAGE, peek(topic="nowhere"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        answer = await client.ask(RequestCode.PEEK_MESSAGE, peek(queue_id=99))
        assert answer.code == ResponseCode.INVALID_PARAMETER

    play(scene)
