"""Asking by message and waiting for the reply."""

from __future__ import annotations

import asyncio

import pytest

import fusee
from fusee.errors import MessageError, RequestTimeoutError
from tests.client_suite.inbox import Inbox
from tests.client_suite.stage import Stage, scene


@pytest.mark.quick
@scene
async def test_request_when_answered_returns_the_reply(stage: Stage) -> None:
    topic = await stage.topic()
    server = await stage.connect(instance_name=stage.name("server"))

    async def answer(message: fusee.ReceivedMessage) -> None:
        await server.reply(message, b"re: " + message.body, properties={"seen": message.tag or ""})

    async with server.consumer(topic, group=stage.group(), consume_from="first", listener=answer):
        replies = await asyncio.gather(
            *(stage.mq.request(topic, f"question {i}", tag=f"t{i}", timeout_ms=30_000) for i in range(10))
        )
    assert [reply.body for reply in replies] == [f"re: question {i}".encode() for i in range(10)]
    assert [reply.properties["seen"] for reply in replies] == [f"t{i}" for i in range(10)]
    assert len({reply.properties["CORRELATION_ID"] for reply in replies}) == 10


@scene
async def test_request_when_nobody_answers_times_out(stage: Stage) -> None:
    topic = await stage.topic()
    with pytest.raises(RequestTimeoutError, match="no reply") as failure:
        await stage.mq.request(topic, b"anybody?", timeout_ms=1_000)
    assert failure.value.topic == topic
    assert [message.body for message in await stage.stored(topic, 1)] == [b"anybody?"]


@scene
async def test_reply_when_message_is_no_request_is_refused(stage: Stage) -> None:
    topic = await stage.topic()
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=stage.group(), consume_from="first", listener=inbox.take):
        await stage.mq.send(topic, b"a plain message")
        await inbox.holds([b"a plain message"])
        with pytest.raises(MessageError, match="no request"):
            await stage.mq.reply(inbox.messages[0], b"re")
