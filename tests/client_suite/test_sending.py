"""Sending: every way of it, every form of a message, and the answer."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import pytest

import fusee
from fusee.client.hooks import SendContext
from fusee.errors import MessageError
from fusee.message.flags import CompressionType, SysFlag, compression_type
from tests.client_suite.inbox import bodies
from tests.client_suite.stage import SEND_TIMEOUT_MS, Stage, scene

FOUR_MIB = 4 * 1024 * 1024


@pytest.mark.quick
@scene
async def test_send_when_awaited_tells_where_the_message_is(stage: Stage) -> None:
    topic = await stage.topic()
    sent = await stage.mq.send(topic, b"hello", tag="paid", key="42", properties={"region": "eu"})
    [message] = await stage.stored(topic, 1)
    assert sent.status is fusee.SendStatus.SEND_OK
    assert sent.durability is fusee.Durability.MEMORY
    assert (sent.queue, sent.queue_offset) == (message.queue, message.queue_offset)
    assert (sent.message_id, sent.offset_id) == (message.message_id, message.offset_id)
    assert message.body == b"hello"
    assert message.tag == "paid"
    assert message.keys == ("42",)
    assert message.properties["region"] == "eu"
    assert message.properties["WAIT"] == "true"
    assert message.reconsume_times == 0


@scene
async def test_send_when_called_back_tells_each_result_once(stage: Stage) -> None:
    topic = await stage.topic()
    wanted = bodies(50)
    answers: list[tuple[fusee.SendResult | None, Exception | None]] = []
    all_there = asyncio.Event()

    def called_back(result: fusee.SendResult | None, error: Exception | None) -> None:
        answers.append((result, error))
        if len(answers) == len(wanted):
            all_there.set()

    for body in wanted:
        stage.mq.send_async(topic, body, callback=called_back, timeout_ms=SEND_TIMEOUT_MS)
    await stage.within(all_there.wait(), "every send is called back")
    messages = await stage.stored(topic, len(wanted))
    assert sorted(message.body for message in messages) == sorted(wanted)
    assert [error for _, error in answers if error is not None] == []
    assert {result.message_id for result, _ in answers if result is not None} == {
        message.message_id for message in messages
    }


@scene
async def test_send_when_oneway_stores_the_message(stage: Stage) -> None:
    topic = await stage.topic()
    wanted = bodies(20)
    for body in wanted:
        await stage.mq.send_oneway(topic, body, tag="t", key="k")
    messages = await stage.stored(topic, len(wanted))
    assert sorted(message.body for message in messages) == sorted(wanted)
    assert {(message.tag, message.keys) for message in messages} == {("t", ("k",))}


@scene
async def test_send_when_many_are_in_flight_stores_each_once(stage: Stage) -> None:
    topic = await stage.topic()
    wanted = bodies(500)
    results = await asyncio.gather(*(stage.mq.send(topic, body, timeout_ms=SEND_TIMEOUT_MS) for body in wanted))
    messages = await stage.stored(topic, len(wanted))
    assert sorted(message.body for message in messages) == sorted(wanted)
    places = {message.message_id: (message.queue, message.queue_offset, message.body) for message in messages}
    for result, body in zip(results, wanted, strict=True):
        assert places[result.message_id] == (result.queue, result.queue_offset, body)
    # Without a wish, the queues take turns.
    assert {len([m for m in messages if m.queue_id == queue_id]) for queue_id in range(4)} == {125}


@scene
async def test_send_when_text_is_unicode_keeps_every_character(stage: Stage) -> None:
    topic = await stage.topic()
    body, tag, key = "Grüße, 世界 🚀 \x01\x02\0", "zahlung-é-消息", "schlüssel-消-🚀"
    await stage.mq.send(topic, body, tag=tag, key=key, properties={"größe-消": "🚀 ñ \t \n"})
    [message] = await stage.stored(topic, 1)
    assert message.body.decode() == body
    assert message.tag == tag
    assert message.keys == (key,)
    assert message.properties["größe-消"] == "🚀 ñ \t \n"


@scene
async def test_send_when_several_keys_are_given_each_finds_the_message(stage: Stage) -> None:
    topic = await stage.topic()
    sent = await stage.mq.send(topic, b"x", keys=["first", "second"])
    [message] = await stage.stored(topic, 1)
    assert message.keys == ("first", "second")
    for key in ("first", "second"):
        [found] = await stage.eventually("the index has it", partial(stage.admin.messages_by_key, topic, key))
        assert found.message_id == sent.message_id


@scene
async def test_send_when_flag_is_given_keeps_it(stage: Stage) -> None:
    topic = await stage.topic()
    await stage.mq.send(topic, b"x", flag=-123456)
    assert (await stage.stored(topic, 1))[0].flag == -123456


@scene
async def test_send_when_body_is_a_value_carries_its_json(stage: Stage) -> None:
    topic = await stage.topic()
    await stage.mq.send(topic, {"amount": 12, "currency": "€"})
    assert (await stage.stored(topic, 1))[0].body == '{"amount":12,"currency":"€"}'.encode()


@scene
async def test_send_when_body_is_empty_is_refused_as_java_does(stage: Stage) -> None:
    topic = await stage.topic()
    with pytest.raises(MessageError, match="body"):
        await stage.mq.send(topic, b"")


@scene
async def test_send_when_message_is_prebuilt_carries_all_of_it(stage: Stage) -> None:
    topic = await stage.topic()
    await stage.mq.send(fusee.Message.of(topic, b"x", tag="t", keys="a b", properties={"p": "v"}, flag=3))
    [message] = await stage.stored(topic, 1)
    assert (message.body, message.tag, message.keys, message.properties["p"], message.flag) == (
        b"x",
        "t",
        ("a", "b"),
        "v",
        3,
    )


@scene
async def test_send_when_body_is_four_mebibytes_arrives_whole(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    # Noise does not shrink, so all of it travels.
    noise = Random(1).randbytes(FOUR_MIB)
    sent = await stage.mq.send(topic, noise, timeout_ms=SEND_TIMEOUT_MS)
    [message] = await stage.stored(topic, 1)
    assert message.message_id == sent.message_id
    assert message.body == noise
    assert not message.sys_flag & SysFlag.COMPRESSED


@scene
async def test_send_when_body_is_over_the_limit_is_refused_before_it_travels(stage: Stage) -> None:
    topic = await stage.topic()
    with pytest.raises(MessageError, match=str(FOUR_MIB)):
        await stage.mq.send(topic, bytes(FOUR_MIB + 1))
    await stage.mq.send(topic, b"the connection is still of use")
    assert [message.body for message in await stage.stored(topic, 1)] == [b"the connection is still of use"]


@pytest.mark.parametrize("codec", ["ZLIB", "LZ4", "ZSTD"])
@scene
async def test_send_when_body_is_large_is_compressed_by_each_codec(stage: Stage, codec: str) -> None:
    topic = await stage.topic()
    body = "0123456789 àéîõü ".encode() * 1000
    async with stage.mq.producer(group=stage.name("PG"), compress_type=codec) as producer:
        await producer.send(topic, body)
        await producer.send(topic, b"small")
    messages = await stage.stored(topic, 2)
    by_size = sorted(messages, key=lambda message: len(message.body))
    assert [message.body for message in by_size] == [b"small", body]
    assert not by_size[0].sys_flag & SysFlag.COMPRESSED
    assert by_size[1].sys_flag & SysFlag.COMPRESSED
    assert compression_type(by_size[1].sys_flag) is CompressionType[codec]
    assert by_size[1].store_size < len(body)


@scene
async def test_send_when_topic_is_new_is_made_by_the_first_message(stage: Stage) -> None:
    topic = stage.name("made-by-send")
    sent = await stage.mq.send(topic, b"first")
    assert sent.queue.topic == topic
    [message] = await stage.eventually("it is stored", lambda: stage.stored_if_any(topic))
    assert message.body == b"first"


@scene
async def test_send_batch_when_sent_lies_side_by_side_in_one_queue(stage: Stage) -> None:
    topic = await stage.topic()
    wanted = bodies(20)
    messages = [fusee.Message.of(topic, body, tag="b", keys=f"k{number}") for number, body in enumerate(wanted)]
    sent = await stage.mq.send_batch(messages)
    stored = sorted(await stage.stored(topic, 20), key=lambda message: message.queue_offset)
    assert [message.body for message in stored] == wanted
    assert {message.queue for message in stored} == {sent.queue}
    assert [message.queue_offset for message in stored] == [sent.queue_offset + i for i in range(20)]
    assert sent.message_ids == tuple(message.message_id for message in stored)
    assert sent.offset_ids == tuple(message.offset_id for message in stored)
    assert [message.keys for message in stored] == [(f"k{number}",) for number in range(20)]


@scene
async def test_send_batch_when_topics_differ_or_a_message_is_delayed_is_refused(stage: Stage) -> None:
    topic = await stage.topic()
    for wrong in (fusee.Message.of(f"{topic}-other", b"x"), fusee.Message.of(topic, b"x", delay_level=1)):
        with pytest.raises(MessageError):
            await stage.mq.send_batch([fusee.Message.of(topic, b"x"), wrong])


@scene
async def test_auto_batch_when_many_are_sent_gives_each_its_own_result(stage: Stage) -> None:
    topic = await stage.topic()
    wanted = bodies(300)
    async with stage.mq.producer(group=stage.name("PG"), auto_batch=True, batch_linger_ms=5) as producer:
        results = await asyncio.gather(
            *(producer.send(topic, body, key=f"k{i}", timeout_ms=SEND_TIMEOUT_MS) for i, body in enumerate(wanted))
        )
    messages = await stage.stored(topic, len(wanted))
    by_id = {message.message_id: message for message in messages}
    assert len(by_id) == len(wanted)
    for number, (result, body) in enumerate(zip(results, wanted, strict=True)):
        message = by_id[result.message_id]
        assert message.body == body
        assert message.keys == (f"k{number}",)
        assert (result.queue, result.queue_offset, result.offset_id) == (
            message.queue,
            message.queue_offset,
            message.offset_id,
        )


@scene
async def test_auto_batch_when_closed_sends_what_was_gathered(stage: Stage) -> None:
    topic = await stage.topic()
    async with stage.mq.producer(group=stage.name("PG"), auto_batch=True, batch_linger_ms=30_000) as producer:
        sent = [producer.send(topic, body) for body in bodies(10)]
    await asyncio.gather(*sent)
    assert len(await stage.stored(topic, 10)) == 10


@scene
async def test_hooks_when_sending_see_every_try_and_its_result(stage: Stage) -> None:
    topic = await stage.topic()
    seen: list[tuple[str, str, fusee.SendResult | None]] = []

    class Watcher:
        def before_send(self, context: SendContext) -> None:
            assert context.result is None
            seen.append(("before", context.topic, None))

        def after_send(self, context: SendContext) -> None:
            seen.append(("after", context.topic, context.result))

    async with stage.mq.producer(group=stage.name("PG"), hooks=[Watcher()]) as producer:
        sent = await producer.send(topic, b"x")
        await producer.send_oneway(topic, b"x")
    assert seen == [("before", topic, None), ("after", topic, sent), ("before", topic, None), ("after", topic, None)]


@scene
async def test_send_when_cancelled_leaves_the_producer_usable(stage: Stage) -> None:
    topic = await stage.topic()
    sends = [stage.mq.send(topic, body) for body in bodies(20)]
    for send in sends[::2]:
        send.cancel()
    results = await asyncio.gather(*sends, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
    assert all(isinstance(result, fusee.SendResult) for result in results[1::2])
    assert (await stage.mq.send(topic, b"after")).status is fusee.SendStatus.SEND_OK
