"""What goes wrong says so at once: the error's kind, its code, its topic, and what may help."""

from __future__ import annotations

import socket

import pytest

import fusee
from fusee.client.subscriptions import Expression
from fusee.errors import (
    ClientStateError,
    ConfigError,
    ConnectError,
    FilterError,
    InvalidRequestError,
    MessageError,
    NotFoundError,
    TopicNotFoundError,
)
from fusee.wire.codes import ResponseCode
from tests.client_suite.stage import Stage, scene


@scene
async def test_consumer_when_topic_is_missing_fails_at_its_start(stage: Stage) -> None:
    topic = stage.name("missing")
    for consumer in (
        stage.mq.consumer(topic, group=stage.group()),
        stage.mq.pull_consumer(topic, group=stage.group()),
    ):
        with pytest.raises(TopicNotFoundError, match=topic) as failure:
            await consumer.start()
        assert failure.value.code == ResponseCode.TOPIC_NOT_EXIST
        assert failure.value.topic == topic
        assert failure.value.address == stage.name_server
        assert "create it" in str(failure.value)


@scene
async def test_consumer_when_told_to_wait_takes_up_a_topic_that_comes_later(stage: Stage) -> None:
    topic = stage.name("later")
    async with stage.mq.consumer(topic, group=stage.group(), consume_from="first", missing_topic="wait") as messages:
        await stage.admin.create_topic(topic, queues=2)
        await stage.mq.send(topic, b"x")
        async for message in messages:
            assert message.body == b"x"
            break


@scene
async def test_connect_when_no_name_server_answers_names_each(stage: Stage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectError, match=address):
            async with fusee.connect(address, connect_timeout_ms=1_000):
                pass


@scene
async def test_connect_when_one_name_server_is_dead_uses_the_other(stage: Stage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
        topic = await stage.topic()
        async with fusee.connect(f"{dead};{stage.name_server}", instance_name=stage.name("two")) as mq:
            assert (await mq.send(topic, b"x")).status is fusee.SendStatus.SEND_OK


@scene
async def test_send_when_broker_refuses_the_size_tells_the_code(stage: Stage) -> None:
    topic = await stage.topic()
    too_large = 4 * 1024 * 1024 + 10
    async with stage.mq.producer(
        stage.name("PG"), max_message_size=too_large, compress_msg_body_over_howmuch=too_large + 1
    ) as producer:
        with pytest.raises(InvalidRequestError) as failure:
            await producer.send(topic, bytes(too_large), timeout_ms=20_000)
        assert failure.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert failure.value.topic == topic
        assert failure.value.retryable is False
        assert (await producer.send(topic, b"the connection is still of use")).status is fusee.SendStatus.SEND_OK


@scene
async def test_subscription_when_expression_is_wrong_fails_before_anything_is_sent(stage: Stage) -> None:
    topic = await stage.topic()
    expressions: list[Expression] = [fusee.Sql("amount >"), fusee.Sql(""), "   ", []]
    for wrong in expressions:
        with pytest.raises(FilterError):
            stage.mq.consumer({topic: wrong}, group=stage.group())
    with pytest.raises(ConfigError, match="not both"):
        stage.mq.consumer(topic, group=stage.group(), tags="a", sql="b = 1")


@scene
async def test_names_when_wrong_are_refused_before_anything_is_sent(stage: Stage) -> None:
    for topic in ("", "a b", "x" * 128, "RMQ_SYS_TRANS_HALF_TOPIC"):
        with pytest.raises(MessageError):
            await stage.mq.send(topic, b"x")
    with pytest.raises(MessageError):
        stage.mq.producer("no such / group")
    with pytest.raises(MessageError):
        await stage.mq.send(await stage.topic(), b"x", properties={"TAGS": "reserved"})


@scene
async def test_use_when_closed_says_so(stage: Stage) -> None:
    topic = await stage.topic()
    mq = await stage.connect(instance_name=stage.name("closed"))
    producer = mq.producer(stage.name("PG"))
    with pytest.raises(ClientStateError):
        await producer.send(topic, b"not started")
    await producer.start()
    await producer.close()
    with pytest.raises(ClientStateError):
        await producer.send(topic, b"closed")
    await mq.close()
    with pytest.raises(ClientStateError):
        await mq.send(topic, b"closed")


@scene
async def test_admin_when_nothing_is_there_raises_not_found(stage: Stage) -> None:
    topic = await stage.topic()
    with pytest.raises(TopicNotFoundError):
        await stage.admin.topic_route(stage.name("missing"))
    [queue, *_] = await stage.queues(topic)
    with pytest.raises(NotFoundError):
        await stage.admin.message_at(queue, 10)
    sent = await stage.mq.send(topic, b"x")
    beyond = f"{sent.offset_id[:16]}{(1 << 40):016X}"
    with pytest.raises(NotFoundError):
        await stage.admin.message_by_offset_id(beyond)
