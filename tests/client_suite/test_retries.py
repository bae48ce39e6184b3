"""What fails is tried again, and in the end put aside."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

import fusee
from fusee import ConsumeResult
from tests.client_suite.inbox import Inbox, bodies
from tests.client_suite.stage import DELAYS_S, Stage, scene


@pytest.mark.quick
@scene
async def test_listener_when_it_raises_gets_the_message_again_later(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    inbox = Inbox(fails=lambda message: message.body == b"bad" and message.reconsume_times == 0)
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take):
        for body in bodies(6):
            await stage.mq.send(topic, body)
        await stage.mq.send(topic, b"bad", tag="t", key="k", properties={"p": "v"})
        await inbox.until("it comes again", lambda: len(inbox.of(b"bad")) == 2)
        await inbox.holds(bodies(6))
        await stage.await_consumed(group, topic)
    assert Counter(inbox.bodies) == Counter([*bodies(6), b"bad", b"bad"])
    first, second = inbox.of(b"bad")
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert second.topic == topic
    assert second.queue.topic == f"%RETRY%{group}"
    assert second.message_id == first.message_id
    assert (second.tag, second.keys, second.properties["p"]) == ("t", ("k",), "v")
    assert second.store_timestamp_ms - first.store_timestamp_ms >= DELAYS_S[2] * 1000 - 20


@scene
async def test_listener_when_it_answers_retry_later_gets_the_message_again(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    inbox = Inbox()
    answers: Iterator[ConsumeResult | bool] = iter([ConsumeResult.RETRY_LATER, False, ConsumeResult.SUCCESS])

    async def listener(message: fusee.ReceivedMessage) -> ConsumeResult | bool:
        await inbox.take(message)
        return next(answers)

    await stage.mq.send(topic, b"x")
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=listener):
        await inbox.until("three tries", lambda: len(inbox.messages) == 3)
    assert [message.reconsume_times for message in inbox.messages] == [0, 1, 2]


@scene
async def test_message_when_tries_are_used_up_is_a_dead_letter(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    inbox = Inbox(fails=lambda message: message.body == b"bad")
    sent = await stage.mq.send(topic, b"bad", tag="t", key="k", properties={"p": "v"})
    await stage.mq.send(topic, b"good")
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take, max_reconsume_times=1):
        [letter] = await stage.eventually("it is a dead letter", lambda: stage.stored_if_any(f"%DLQ%{group}"))
        await stage.await_consumed(group, topic)
    assert Counter(inbox.bodies) == Counter([b"bad", b"bad", b"good"])
    assert letter.body == b"bad"
    assert (letter.tag, letter.keys, letter.properties["p"]) == ("t", ("k",), "v")
    assert letter.properties["RETRY_TOPIC"] == topic
    assert letter.properties["ORIGIN_MESSAGE_ID"] == sent.offset_id
    assert letter.message_id == sent.message_id


@scene
async def test_message_when_listener_gives_it_up_is_a_dead_letter_at_once(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    inbox = Inbox()

    async def listener(message: fusee.ReceivedMessage) -> ConsumeResult:
        await inbox.take(message)
        return ConsumeResult.DEAD_LETTER

    await stage.mq.send(topic, b"hopeless")
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=listener):
        [letter] = await stage.eventually("it is a dead letter", lambda: stage.stored_if_any(f"%DLQ%{group}"))
        await stage.await_consumed(group, topic)
    assert letter.body == b"hopeless"
    assert inbox.bodies == [b"hopeless"]


@scene
async def test_iterator_when_its_block_raises_sends_the_message_back(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    await stage.mq.send(topic, b"x")

    async def fail() -> None:
        async with stage.mq.consumer(topic, group=group, consume_from="first") as messages:
            async for message in messages:
                assert message.reconsume_times == 0
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with stage.mq.consumer(topic, group=group, consume_from="first") as messages:
        async for message in messages:
            assert message.body == b"x"
            assert message.topic == topic
            assert message.reconsume_times == 1
            break


@scene
async def test_delay_level_when_consumer_sets_it_decides_the_next_try(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    inbox = Inbox(fails=lambda message: message.reconsume_times == 0)
    await stage.mq.send(topic, b"x")
    async with stage.mq.consumer(
        topic, group=group, consume_from="first", listener=inbox.take, delay_level_when_next_consume=2
    ):
        await inbox.until("it comes again", lambda: len(inbox.messages) == 2)
    first, second = inbox.messages
    assert second.store_timestamp_ms - first.store_timestamp_ms >= DELAYS_S[1] * 1000 - 20


@scene
async def test_retries_when_many_fail_lose_none(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    wanted = bodies(60)
    failing = set(wanted[::3])
    inbox = Inbox(fails=lambda message: message.body in failing and message.reconsume_times == 0)
    await asyncio.gather(*(stage.mq.send(topic, body) for body in wanted))
    async with stage.mq.consumer(topic, group=group, consume_from="first", listener=inbox.take):
        await inbox.until("all are done", lambda: len(inbox.messages) == 80)
        await stage.await_consumed(group, topic)
    assert Counter(inbox.bodies) == Counter([*wanted, *failing])
