"""Sending: what brokers see, what the caller gets, and what happens when things go wrong."""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from fusee.client.hooks import MessageType, SendContext
from fusee.client.producer import Producer
from fusee.client.results import Durability, SendResult, SendStatus
from fusee.client.selection import place_of_key
from fusee.errors import (
    ClientStateError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    FuseeError,
    InvalidRequestError,
    MessageError,
    PayloadError,
    ProtocolError,
    RequestTimeoutError,
    SendFailedError,
    SystemBusyError,
    TooManyRequestsError,
    TopicNotFoundError,
)
from fusee.message.batch import split_batch
from fusee.message.compression import decompress
from fusee.message.flags import CompressionType
from fusee.message.model import Message, MessageQueue
from fusee.message.properties import decode_properties
from fusee.wire.codes import ResponseCode
from fusee.wire.command import Command
from tests.client.scripted import ScriptedCluster, Sent, play
from tests.client.world import ClusterWorld
from tests.client.world import play as play_real
from tests.golden import frames

RETRY_CODES = [17, 14, 1, 2, 16, 204, 205]


# What travels


def test_send_says_the_same_as_java() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("Golden", 4)
        producer = await cluster.producer(group="PG_send")
        await cluster.within(1.0, producer.send("Golden", b"hello"))
        (sent,) = cluster.sends
        ours = dict(sent.request.all_fields())
        theirs = next(dict(frame.header.ext_fields or {}) for frame in frames("producer") if frame.header.code == 310)
        for fields in (ours, theirs):
            fields["i"] = ",".join(sorted(decode_properties(fields["i"].encode())))
            for name in ("e", "g", "n"):
                assert fields.pop(name)
        assert ours == theirs
        assert sent.properties["WAIT"] == "true"
        assert sent.header.born_timestamp_ms == cluster.clock.time_ms()

    play(scene)


def test_result_has_ids_place_and_region() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        result = await cluster.within(1.0, producer.send("orders", b"hello", tag="paid", key="42"))
        (sent,) = cluster.sends
        assert result == SendResult(
            SendStatus.SEND_OK,
            sent.properties["UNIQ_KEY"],
            f"{0:032X}",
            MessageQueue("orders", "broker-a", 0),
            0,
            sent.properties["UNIQ_KEY"],
            "r",
            True,
            Durability.MEMORY,
        )
        assert (sent.properties["TAGS"], sent.properties["KEYS"]) == ("paid", "42")
        assert len(result.message_id) == 32

    play(scene)


def test_queue_that_the_broker_chose_is_told() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()

        def elsewhere(sent: Sent) -> Command:
            answer = sent.success(5)
            (answer.ext_fields or {})["queueId"] = "7"
            return answer

        cluster.broker.answers.append(elsewhere)
        result = await cluster.within(1.0, producer.send("orders", b"hello"))
        assert result.queue == MessageQueue("orders", "broker-a", 7)

    play(scene)


@pytest.mark.parametrize(
    ("body", "expected"),
    [("größe", "größe".encode()), (bytearray(b"ab"), b"ab"), (memoryview(b"ab"), b"ab"), ({"a": 1}, b'{"a":1}')],
)
def test_body_may_be_text_or_any_value_with_a_json_form(body: object, expected: bytes) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", body))
        assert cluster.broker.bodies == [expected]

    play(scene)


def test_message_object_is_sent_as_it_is() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        message = Message.of("orders", b"x", tag="t", properties={"a": "b"}, flag=9, wait_stored=False)
        result = await cluster.within(1.0, producer.send(message, order_by="k"))
        (sent,) = cluster.sends
        assert sent.properties == {
            "TAGS": "t", "a": "b", "WAIT": "false", "UNIQ_KEY": result.message_id, "__SHARDINGKEY": "k",
        }  # fmt: skip
        assert sent.header.flag == 9

    play(scene)


def test_message_that_has_its_id_keeps_it() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        result = await cluster.within(1.0, producer.send(Message("orders", b"x", {"UNIQ_KEY": "MINE"})))
        assert result.message_id == "MINE"
        assert cluster.sends[0].properties["UNIQ_KEY"] == "MINE"

    play(scene)


def test_half_message_has_its_bit_and_retried_one_its_counts_in_the_header() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        cluster.route("%RETRY%g")
        producer = await cluster.producer()
        half = Message("orders", b"x", {"TRAN_MSG": "true", "PGROUP": "FUSEE_PRODUCER"})
        await cluster.within(1.0, producer.send(half))
        again = Message("%RETRY%g", b"x", {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "DELAY": "6"})
        await cluster.within(1.0, producer.send(again))
        first, second = cluster.sends
        assert first.header.sys_flag == 0x4
        assert (second.header.reconsume_times, second.header.max_reconsume_times) == (3, 16)
        assert set(second.properties) == {"DELAY", "UNIQ_KEY", "WAIT"}
        assert (first.header.reconsume_times, first.header.max_reconsume_times) == (0, None)

    play(scene)


@pytest.mark.parametrize("options", [{}, {"properties": {"a": "b"}}])
def test_large_body_travels_compressed(options: dict[str, Any]) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer(compress_type="LZ4")
        body = b"abcdefgh" * 1000
        await cluster.within(1.0, producer.send("orders", body, **options))
        (sent,) = cluster.sends
        assert sent.header.sys_flag == 0x1 | CompressionType.LZ4.flag
        assert decompress(sent.body, CompressionType.LZ4) == body

    play(scene)


def test_delays_reach_the_broker_as_properties() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"x", delay_level=3))
        await cluster.within(1.0, producer.send("orders", b"x", deliver_in=600))
        first, second = cluster.sends
        assert first.properties["DELAY"] == "3"
        assert second.properties["TIMER_DELAY_MS"] == "600000"

    play(scene)


# What is refused before anything travels


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (("orders", b""), {}, "empty body"),
        (("orders", b"x" * 101), {}, "max_message_size is 100"),
        (("orders", b"x"), {"properties": {"UNIQ_KEY": "a"}}, "reserved"),
        (("orders", b"x"), {"flag": 1 << 31}, "32-bit"),
        (("bad topic", b"x"), {}, "illegal characters"),
        (("SCHEDULE_TOPIC_XXXX", b"x"), {}, "belongs to the broker"),
        (("orders", b"x"), {"order_by": "a", "queue": MessageQueue("orders", "b", 0)}, "only one of"),
        (("orders", b"x"), {"order_by": "a", "selector": lambda *_: None}, "only one of"),
        (("orders", b"x"), {"timeout_ms": 0}, "must be positive"),
        ((Message("orders", b"x"), b"y"), {}, "leave out body"),
        ((Message("orders", b"x"),), {"tag": "a"}, "leave out tag"),
        ((Message("orders", b"x"),), {"wait_stored": False}, "leave out wait_stored"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_once(arguments: tuple[Any, ...], options: dict[str, Any], said: str) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        producer = await cluster.producer(max_message_size=100)
        with pytest.raises(MessageError, match=said):
            producer.send(*arguments, **options)
        assert producer.in_flight == 0

    play(scene)


def test_value_without_a_json_form_is_refused() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        producer = await cluster.producer()
        with pytest.raises(PayloadError):
            producer.send("orders", object())
        with pytest.raises(PayloadError):
            producer.send("orders", None)

    play(scene)


@pytest.mark.parametrize(
    "options",
    [
        {"send_msg_timeout_ms": 0},
        {"retry_times_when_send_failed": -1},
        {"back_pressure_for_async_send_num": 0},
        {"compress_type": "RAR"},
        {"auto_batch": True, "batch_linger_ms": 0},
        {"auto_batch": True, "batch_max_bytes": 3 << 20},
        {"auto_batch": True, "total_batch_max_bytes": 1},
    ],
)
def test_option_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        with pytest.raises(ConfigError):
            Producer(await cluster.session(), **options)

    play(scene)


def test_producer_is_used_between_start_and_close_only() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        session = await cluster.session()
        producer = Producer(session)
        with pytest.raises(ClientStateError, match="created, not started"):
            producer.send("orders", b"x")
        async with producer:
            assert session.has_producer("FUSEE_PRODUCER")
            with pytest.raises(ClientStateError, match="started once"):
                await producer.start()
            with pytest.raises(ConfigError, match="FUSEE_PRODUCER"):
                await Producer(session).start()
        assert not session.has_producer("FUSEE_PRODUCER")
        with pytest.raises(ClientStateError, match="closed"):
            producer.send("orders", b"x")
        with pytest.raises(ClientStateError, match="closed"):
            await producer.send_oneway("orders", b"x")
        await producer.close()
        second = Producer(session)
        await second.start()
        await cluster.do(second.close())

    play(scene)


# Which queue


def test_queues_take_turns_over_all_brokers() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 3)
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"first"))
        await cluster.within(1.0, producer.send("orders", b"second"))  # the other broker's connection is made now
        await cluster.settle()
        results = [await cluster.within(1.0, producer.send("orders", b"x")) for _ in range(12)]
        counts = {queue: [result.queue for result in results].count(queue) for queue in {r.queue for r in results}}
        assert len(counts) == 6
        assert set(counts.values()) == {2}

    play(scene, brokers=2)


@pytest.mark.parametrize("key", ["customer-7", 7, "订单"])
def test_messages_of_one_key_go_to_its_queue_in_order(key: object) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 5)
        producer = await cluster.producer()
        sent = [producer.send("orders", b"%d" % number, order_by=key) for number in range(20)]
        results = await cluster.within(1.0, asyncio.gather(*sent))
        assert {result.queue.queue_id for result in results} == {place_of_key(key, 5)}
        assert cluster.broker.bodies == [b"%d" % number for number in range(20)]
        assert {each.properties["__SHARDINGKEY"] for each in cluster.sends} == {str(key)}

    play(scene)


def test_message_of_a_key_waits_for_the_one_before_and_others_do_not() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"warm"))
        cluster.broker.sends.clear()
        cluster.broker.answers.append(ResponseCode.SYSTEM_BUSY)
        sends = [producer.send("orders", b"a%d" % number, order_by="a") for number in range(3)]
        sends.append(producer.send(Message("orders", b"a3"), order_by="a"))
        sends.append(producer.send("orders", b"b0", order_by="b"))
        sends.append(producer.send_batch([Message("orders", b"x"), Message("orders", b"y")], order_by="a"))
        producer.send_async("orders", b"a4", order_by="a", callback=lambda result, error: None)
        await cluster.settle()
        assert cluster.broker.bodies == [b"a0", b"b0"]
        await cluster.within(3.0, asyncio.gather(*sends))
        await cluster.settle()
        bodies = [sent.body for sent in cluster.broker.sends if not sent.header.batch]
        assert bodies == [b"a0", b"b0", b"a0", b"a1", b"a2", b"a3", b"a4"]
        assert [sent.header.batch for sent in cluster.broker.sends][-2:] == [True, False]

    play(scene)


def test_line_of_a_key_goes_on_behind_sends_that_fail_are_cancelled_or_too_late() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"warm"))
        cluster.broker.answers.extend([None, ResponseCode.MESSAGE_ILLEGAL])
        first = producer.send("orders", b"0", order_by="k")
        late = producer.send("orders", b"1", order_by="k", timeout_ms=100)
        cancelled = producer.send("orders", b"2", order_by="k")
        refused = producer.send("orders", b"3", order_by="k")
        last = producer.send("orders", b"4", order_by="k")
        cancelled.cancel()
        await cluster.advance(0.2)
        assert isinstance(late.exception(), RequestTimeoutError)
        assert "of the same order key before it" in str(late.exception())
        cluster.broker.release(1)
        await cluster.within(1.0, last)
        assert first.done()
        assert isinstance(refused.exception(), InvalidRequestError)
        assert cluster.broker.bodies == [b"warm", b"0", b"3", b"4"]
        await cluster.within(1.0, producer.send("orders", b"5", order_by="k"))

    play(scene)


def test_long_line_of_failures_ends() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(retry_times_when_send_failed=0)
        await cluster.within(1.0, producer.send("orders", b"warm"))
        cluster.broker.answers.append(None)
        sends = [producer.send("orders", b"x", order_by="k") for _ in range(3_000)]
        await cluster.settle()
        await cluster.do(producer.session.close())
        await cluster.settle()
        errors = await cluster.within(5.0, asyncio.gather(*sends, return_exceptions=True))
        assert all(isinstance(error, FuseeError) for error in errors)

    play(scene)


def test_queue_is_the_one_given() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 4)
        producer = await cluster.producer()
        queues = await cluster.do(producer.queues("orders"))
        assert len(queues) == 8
        for queue in queues:
            assert (await cluster.within(1.0, producer.send("orders", b"x", queue=queue))).queue == queue
        with pytest.raises(MessageError, match="cannot go to a queue of topic 'others'"):
            await cluster.within(1.0, producer.send("orders", b"x", queue=MessageQueue("others", "broker-a", 0)))
        assert producer.in_flight == 0

    play(scene, brokers=2)


def test_queue_that_the_route_lacks_is_tried_all_the_same() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(retry_times_when_send_failed=0)
        beyond = MessageQueue("orders", "broker-a", 9)
        assert (await cluster.within(1.0, producer.send("orders", b"x", queue=beyond))).queue == beyond
        nowhere = MessageQueue("orders", "broker-z", 0)
        with pytest.raises(ConnectError, match="'broker-z' has no master") as caught:
            await cluster.within(1.0, producer.send("orders", b"x", queue=nowhere))
        assert caught.value.topic == "orders"

    play(scene)


def test_selector_gets_queues_message_and_argument() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 4)
        producer = await cluster.producer()
        seen: list[tuple[Sequence[MessageQueue], Message, object]] = []

        def last(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
            seen.append((queues, message, argument))
            return queues[-1]

        result = await cluster.within(1.0, producer.send("orders", b"x", tag="t", selector=last, selector_argument=5))
        assert result.queue.queue_id == 3
        ((queues, message, argument),) = seen
        assert (len(queues), message.tag, message.body, argument) == (4, "t", b"x", 5)

    play(scene)


def test_selector_that_fails_or_gives_no_queue_is_named() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 4)
        producer = await cluster.producer()

        def broken(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
            raise ZeroDivisionError("oh")

        with pytest.raises(MessageError, match="selector failed for topic 'orders': ZeroDivisionError"):
            await cluster.within(1.0, producer.send("orders", b"x", selector=broken))
        with pytest.raises(MessageError, match="selector gave None"):
            await cluster.within(1.0, producer.send("orders", b"x", selector=lambda *_: None))  # type: ignore[arg-type]
        assert producer.in_flight == 0

    play(scene)


# Routes


def test_sends_before_the_route_is_known_leave_in_order_after_one_question() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        sends = [producer.send("orders", b"%d" % number) for number in range(50)]
        results = await cluster.within(1.0, asyncio.gather(*sends))
        assert cluster.broker.bodies == [b"%d" % number for number in range(50)]
        assert [result.queue_offset for result in results] == list(range(50))
        assert cluster.route_questions.count("orders") == 1
        assert producer.published_topics() == ["orders"]

    play(scene)


def test_topic_that_does_not_exist_fails_every_send_with_an_error_of_its_own() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        producer = await cluster.producer()
        sends = [producer.send("nowhere", b"x") for _ in range(3)]
        errors = await cluster.within(1.0, asyncio.gather(*sends, return_exceptions=True))
        assert all(isinstance(error, TopicNotFoundError) and error.topic == "nowhere" for error in errors)
        assert len(set(map(id, errors))) == 3
        assert producer.in_flight == 0
        cluster.route("nowhere")
        result = await cluster.within(1.0, producer.send("nowhere", b"x"))
        assert result.topic == "nowhere"

    play(scene)


def test_topic_that_the_first_send_makes_uses_the_queues_of_the_default_topic() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("TBW102", 8)
        producer = await cluster.producer(default_topic_queue_nums=3)
        queues = await cluster.do(producer.queues("fresh"))
        assert len(queues) == 3
        await cluster.within(1.0, producer.send("fresh", b"x"))
        assert cluster.sends[0].header.default_topic_queue_nums == 3

    play(scene)


def test_new_queues_are_used_when_the_route_changes() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1, brokers=("broker-a",))
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"x"))
        cluster.route("orders", 1)
        await cluster.advance(31.0)
        for _ in range(4):
            await cluster.within(1.0, producer.send("orders", b"x"))
            await cluster.settle()
        assert cluster.brokers["broker-b"].sends

    play(scene, brokers=2)


def test_broker_that_moved_is_followed() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1, brokers=("broker-a",))
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"x"))
        cluster.routes["orders"].broker_datas[0].broker_addrs[0] = cluster.brokers["broker-b"].address
        await cluster.advance(31.0)
        await cluster.within(1.0, producer.send("orders", b"y"))
        assert cluster.brokers["broker-b"].bodies == [b"y"]

    play(scene, brokers=2)


# Another try


@pytest.mark.parametrize("code", RETRY_CODES)
def test_code_that_another_broker_may_not_give_leads_there(code: int) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.append(code)
        results = [await cluster.within(3.0, producer.send("orders", b"%d" % number)) for number in range(4)]
        refused = cluster.broker.sends[0]
        (taken,) = [sent for sent in cluster.brokers["broker-b"].sends if sent.body == refused.body]
        assert taken.properties == refused.properties
        assert refused.properties["UNIQ_KEY"] in {result.message_id for result in results}
        assert len(cluster.sends) == 5

    play(scene, brokers=2)


def test_broker_that_refused_is_avoided_only_by_the_next_try() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        for broker in cluster.brokers.values():
            broker.answers.extend([ResponseCode.SYSTEM_BUSY] * 2)
        with pytest.raises(SendFailedError) as caught:
            await cluster.within(3.0, producer.send("orders", b"x"))
        addresses = [error.address for error in caught.value.attempts if isinstance(error, FuseeError)]
        assert len(addresses) == 3
        assert addresses[0] == addresses[2] != addresses[1]
        assert cluster.clock.monotonic() == 0.0

    play(scene, brokers=2)


def test_refusal_that_every_broker_would_give_is_final() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.append(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(InvalidRequestError, match="as the test says") as caught:
            await cluster.within(1.0, producer.send("orders", b"x"))
        assert (caught.value.code, caught.value.topic, caught.value.address, caught.value.retryable) == (
            13, "orders", cluster.broker.address, False,
        )  # fmt: skip
        assert len(cluster.sends) == 1
        assert producer.in_flight == 0

    play(scene)


def test_all_tries_failed_names_each_cause() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.extend([ResponseCode.SYSTEM_BUSY] * 9)
        with pytest.raises(SendFailedError, match=r"sent 3 times in vain: \(1\) .*; \(3\) ") as caught:
            await cluster.within(3.0, producer.send("orders", b"x"))
        assert len(cluster.sends) == 3
        assert len({sent.properties["UNIQ_KEY"] for sent in cluster.sends}) == 1
        assert (caught.value.code, caught.value.topic, caught.value.retryable) == (2, "orders", True)
        assert all(isinstance(error, SystemBusyError) for error in caught.value.attempts)

    play(scene)


def test_only_broker_gets_a_moment_before_it_is_asked_again() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"warm"))
        times: list[float] = []

        def busy(sent: Sent) -> Command:
            times.append(cluster.clock.monotonic())
            return sent.request.reply(ResponseCode.SYSTEM_BUSY)

        cluster.broker.answers.extend([busy] * 3)
        with pytest.raises(SendFailedError):
            await cluster.within(3.0, producer.send("orders", b"x"))
        assert [round(later - earlier, 3) for earlier, later in pairwise(times)] == [0.1, 0.2]

    play(scene)


def test_without_retries_the_error_is_that_of_the_one_try() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer(retry_times_when_send_failed=0)
        cluster.broker.answers.append(ResponseCode.SYSTEM_BUSY)
        with pytest.raises(SystemBusyError):
            await cluster.within(1.0, producer.send("orders", b"x"))

    play(scene)


def test_fixed_queue_is_tried_again_where_it_is() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.append(ResponseCode.SYSTEM_BUSY)
        queue = MessageQueue("orders", "broker-a", 1)
        result = await cluster.within(3.0, producer.send("orders", b"x", queue=queue))
        assert result.queue == queue
        assert [sent.header.queue_id for sent in cluster.broker.sends] == [1, 1]
        assert not cluster.brokers["broker-b"].sends

    play(scene, brokers=2)


def test_connection_lost_in_flight_leads_to_the_other_broker() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        for broker in cluster.brokers.values():
            await cluster.within(1.0, producer.send("orders", b"warm", queue=MessageQueue("orders", broker.name, 0)))
            broker.sends.clear()
        cluster.broker.answers.extend([None] * 10)
        sends = [producer.send("orders", b"%d" % number) for number in range(4)]
        await cluster.settle()
        assert len(cluster.broker.sends) == 2
        cluster.network.cut("10.0.9.1", cluster.broker.host)
        results = await cluster.within(1.0, asyncio.gather(*sends))
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        assert sorted(cluster.brokers["broker-b"].bodies) == [b"0", b"1", b"2", b"3"]

    play(scene, brokers=2)


def test_no_answer_in_time_is_told_with_the_time() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.append(None)
        before = cluster.clock.monotonic()
        with pytest.raises(RequestTimeoutError, match="within 0.5 s") as caught:
            await cluster.within(3.0, producer.send("orders", b"x", timeout_ms=500))
        assert cluster.clock.monotonic() - before == pytest.approx(0.5)
        assert (caught.value.topic, caught.value.address) == ("orders", cluster.broker.address)
        cluster.broker.release(0)
        await cluster.settle()
        assert producer.in_flight == 0

    play(scene)


def test_bounded_try_leaves_time_for_another_broker() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer(send_msg_max_timeout_per_request_ms=400)
        cluster.broker.answers.extend([None] * 3)
        sends = [producer.send("orders", b"%d" % number) for number in range(3)]
        results = await cluster.within(3.0, asyncio.gather(*sends))
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        assert 0.4 <= cluster.clock.monotonic() < 1.0

    play(scene, brokers=2)


def test_answer_that_cannot_be_read_is_an_error_and_not_a_hang() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.append(lambda sent: sent.request.reply())
        with pytest.raises(ProtocolError, match="no msgId") as caught:
            await cluster.within(1.0, producer.send("orders", b"x"))
        assert caught.value.address == cluster.broker.address
        assert producer.in_flight == 0

    play(scene)


def test_broker_that_says_go_away_is_asked_on_a_new_connection() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"x"))
        cluster.broker.answers.append(ResponseCode.GO_AWAY)
        await cluster.within(3.0, producer.send("orders", b"y"))
        assert cluster.broker.bodies == [b"x", b"y", b"y"]
        assert cluster.broker.sends[1].link is not cluster.broker.sends[2].link

    play(scene)


def test_broker_that_is_away_is_passed_over_and_its_route_doubted() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        await cluster.stop_broker("broker-a")
        for number in range(12):
            result = await cluster.within(3.0, producer.send("orders", b"%d" % number))
            assert result.queue.broker_name == "broker-b"
            await cluster.advance(0.6)
        assert cluster.route_questions.count("orders") == 2
        assert len(cluster.brokers["broker-b"].sends) == 12

    play(scene, brokers=2)


def test_broker_that_returns_is_used_again() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        await cluster.stop_broker("broker-a")
        for _ in range(4):
            await cluster.within(3.0, producer.send("orders", b"x"))
        await cluster.start_broker(cluster.broker)
        await cluster.advance(10.0)
        for _ in range(8):
            await cluster.within(3.0, producer.send("orders", b"x"))
            await cluster.advance(0.1)
        assert len(cluster.broker.sends) >= 3

    play(scene, brokers=2)


def test_nobody_listens_is_told_with_address_and_cause() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        await cluster.stop_broker("broker-a")
        with pytest.raises(SendFailedError, match="cannot connect to 10.0.2.1:10911") as caught:
            await cluster.within(3.0, producer.send("orders", b"x"))
        assert all(isinstance(error, ConnectError) for error in caught.value.attempts)
        assert (caught.value.address, caught.value.topic) == ("10.0.2.1:10911", "orders")

    play(scene)


# Stored, but not as safely as wished


def test_status_of_a_stored_message_is_told() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.append(ResponseCode.FLUSH_DISK_TIMEOUT)
        result = await cluster.within(1.0, producer.send("orders", b"x"))
        assert (result.status, result.durability) == (SendStatus.FLUSH_DISK_TIMEOUT, Durability.MEMORY)
        assert len(cluster.sends) == 1

    play(scene, settings="flushDiskType=SYNC_FLUSH\n")


def test_unsafe_answer_counts_as_failure_on_request_and_is_better_than_none() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer(retry_another_broker_when_not_store_ok=True)
        cluster.broker.answers.extend([ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SUCCESS])
        assert (await cluster.within(3.0, producer.send("orders", b"x"))).status is SendStatus.SEND_OK
        cluster.broker.answers.extend([ResponseCode.SLAVE_NOT_AVAILABLE] * 3)
        result = await cluster.within(3.0, producer.send("orders", b"y"))
        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        cluster.broker.answers.extend([ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.MESSAGE_ILLEGAL])
        result = await cluster.within(3.0, producer.send("orders", b"z"))
        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert [cluster.broker.bodies.count(body) for body in (b"x", b"y", b"z")] == [2, 3, 2]

    play(scene)


def test_first_result_names_the_durability_of_its_broker() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        first = await cluster.within(1.0, producer.send("orders", b"x"))
        hasty = await cluster.within(1.0, producer.send("orders", b"x", wait_stored=False))
        assert (first.durability, hasty.durability) == (Durability.REPLICA, Durability.MEMORY)
        assert cluster.sends[1].properties["WAIT"] == "false"
        assert cluster.broker.is_asked == 1

    play(scene, settings="brokerRole=SYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n")


# Cancelled


def test_cancelled_send_is_forgotten_and_not_tried_again() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.append(None)
        sent = producer.send("orders", b"x")
        await cluster.settle()
        assert producer.in_flight == 1
        link = producer.session.transport.open_link(cluster.broker.address)
        assert link is not None
        assert link.in_flight == 1
        assert sent.cancel()
        assert (producer.in_flight, link.in_flight) == (0, 0)
        cluster.broker.release(0)
        cluster.network.cut("10.0.9.1", cluster.broker.host)
        await cluster.advance(5.0)
        assert len(cluster.sends) == 1

    play(scene)


def test_hook_that_cancels_others_while_a_connection_breaks_does_no_harm() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        sends: list[asyncio.Future[SendResult]] = []

        class Hook:
            def before_send(self, context: SendContext) -> None: ...

            def after_send(self, context: SendContext) -> None:
                for sent in sends:
                    sent.cancel()

        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"warm"))
        producer.add_hook(Hook())
        cluster.broker.answers.extend([None] * 3)
        sends += [producer.send("orders", b"x") for _ in range(3)]
        await cluster.settle()
        cluster.network.cut("10.0.9.1", cluster.broker.host)
        await cluster.settle()
        assert all(sent.cancelled() for sent in sends)
        assert producer.in_flight == 0
        sends.clear()
        await cluster.within(1.0, producer.send("orders", b"y"))
        link = producer.session.transport.open_link(cluster.broker.address)
        assert link is not None
        last = producer.send("orders", b"z")
        assert link.unsent_bytes > 0  # nothing is thought to be under way
        await cluster.within(1.0, last)

    play(scene)


def test_send_leaves_at_once_when_nothing_is_under_way_and_together_with_others_otherwise() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        for _ in range(3):
            await cluster.within(1.0, asyncio.gather(*(producer.send("orders", b"x") for _ in range(3))))
        link = producer.session.transport.open_link(cluster.broker.address)
        assert link is not None
        assert link.unsent_bytes == 0
        first = producer.send("orders", b"x")
        size = link.unsent_bytes
        assert size > 0
        others = [producer.send("orders", b"x") for _ in range(3)]
        assert link.unsent_bytes == size
        await cluster.within(1.0, asyncio.gather(first, *others))

    play(scene)


def test_cancelled_task_that_waits_for_a_send_cancels_it() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.append(None)

        async def wait() -> None:
            await producer.send("orders", b"x")

        task = asyncio.ensure_future(wait())
        await cluster.settle()
        task.cancel()
        await cluster.settle()
        assert task.cancelled()
        assert producer.in_flight == 0

    play(scene)


def test_send_cancelled_before_it_left_never_leaves() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(back_pressure_for_async_send_num=2)
        sends = [producer.send("orders", b"%d" % number) for number in range(4)]
        sends[1].cancel()  # waits for the route
        sends[2].cancel()  # waits for a place
        await cluster.within(1.0, asyncio.gather(sends[0], sends[3]))
        assert cluster.broker.bodies == [b"0", b"3"]

    play(scene)


def test_send_cancelled_during_the_pause_before_its_retry_ends_there() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer()
        cluster.broker.answers.append(ResponseCode.SYSTEM_BUSY)
        sent = producer.send("orders", b"x")
        await cluster.settle()
        sent.cancel()
        await cluster.advance(1.0)
        assert len(cluster.sends) == 1
        assert producer.in_flight == 0

    play(scene)


# Too much at once


def test_sends_beyond_the_limit_wait_for_a_place_in_order() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(back_pressure_for_async_send_num=2)
        cluster.broker.answers.extend([None] * 6)
        sends = [producer.send("orders", b"%d" % number) for number in range(6)]
        for answered in range(6):
            await cluster.settle()
            assert len(cluster.broker.sends) == min(answered + 2, 6)
            cluster.broker.release(answered)
        await cluster.within(1.0, asyncio.gather(*sends))
        assert cluster.broker.bodies == [b"%d" % number for number in range(6)]

    play(scene)


def test_bytes_beyond_the_limit_wait_but_one_message_always_goes() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(back_pressure_for_async_send_size=100)
        cluster.broker.answers.extend([None] * 4)
        sends = [producer.send("orders", bytes([number]) * size) for number, size in enumerate((300, 60, 60, 40))]
        await cluster.settle()
        assert len(cluster.broker.sends) == 1
        cluster.broker.release(0)
        await cluster.settle()
        assert len(cluster.broker.sends) == 2
        cluster.broker.release(1)
        await cluster.settle()
        assert len(cluster.broker.sends) == 4
        cluster.broker.release(2)
        cluster.broker.release(3)
        await cluster.within(1.0, asyncio.gather(*sends))

    play(scene)


def test_place_that_does_not_come_in_time_is_an_error_that_says_what_to_do() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(back_pressure_for_async_send_num=1)
        cluster.broker.answers.append(None)
        first = producer.send("orders", b"x")
        with pytest.raises(TooManyRequestsError, match="await some of them, or raise back_pressure_for_async_send_num"):
            await cluster.within(3.0, producer.send("orders", b"y", timeout_ms=100))
        cluster.broker.release(0)
        await cluster.within(1.0, first)
        assert len(cluster.sends) == 1

    play(scene)


def test_sends_that_may_wait_for_their_key_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusee.client.dispatch.WAITING_MAX", 3)

    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        sends = [producer.send("orders", b"x", order_by="k") for _ in range(5)]
        with pytest.raises(TooManyRequestsError, match="await some before sending more"):
            await sends[4]
        sends[2].cancel()
        await cluster.within(1.0, asyncio.gather(sends[0], sends[1], sends[3]))
        sends = [producer.send("orders", b"x", order_by="k") for _ in range(4)]
        await cluster.within(1.0, asyncio.gather(*sends))

    play(scene)


def test_sends_that_may_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusee.client.dispatch.WAITING_MAX", 3)

    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(back_pressure_for_async_send_num=1)
        sends = [producer.send("orders", b"x") for _ in range(5)]
        with pytest.raises(TooManyRequestsError, match="await some before sending more"):
            await sends[4]
        await cluster.within(1.0, asyncio.gather(*sends[:4]))

    play(scene)


def test_broker_that_does_not_read_holds_sends_back_in_order() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(compress_msg_body_over_howmuch=1 << 30)
        await cluster.within(1.0, producer.send("orders", b"warm"))
        cluster.network.weather("10.0.9.1", cluster.broker.host).held = True
        sends = [producer.send("orders", bytes([number]) * 400_000) for number in range(8)]
        await cluster.settle()
        link = producer.session.transport.open_link(cluster.broker.address)
        assert link is not None
        assert link.is_write_paused
        sends.append(producer.send("orders", b"last"))
        cluster.network.release("10.0.9.1", cluster.broker.host)
        await cluster.within(2.0, asyncio.gather(*sends))
        assert [body[:1] for body in cluster.broker.bodies] == [b"w", *(bytes([number]) for number in range(8)), b"l"]

    play(scene)


# By callback and oneway


def test_callback_gets_result_or_error_once() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer(retry_times_when_send_failed=0, retry_times_when_send_async_failed=1)
        told: list[tuple[SendResult | None, Exception | None]] = []
        producer.send_async("orders", b"x", tag="t", callback=lambda result, error: told.append((result, error)))
        await cluster.settle()
        cluster.broker.answers.extend([ResponseCode.SYSTEM_BUSY] * 2)
        producer.send_async(Message("orders", b"y"), callback=lambda result, error: told.append((result, error)))
        await cluster.advance(1.0)
        (good, none), (nothing, bad) = told
        assert (none, nothing) == (None, None)
        assert good is not None
        assert good.status is SendStatus.SEND_OK
        assert isinstance(bad, SendFailedError)
        assert cluster.broker.bodies == [b"x", b"y", b"y"]

    play(scene)


def test_callbacks_of_automatic_batches_get_their_own_results_and_may_send_on() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(auto_batch=True)
        told: list[tuple[SendResult | None, Exception | None]] = []

        def next_one(result: SendResult | None, error: Exception | None) -> None:
            told.append((result, error))
            if len(told) <= 40:
                producer.send_async("orders", b"%d" % (19 + len(told)), tag="t", callback=next_one)

        for number in range(20):
            producer.send_async("orders", b"%d" % number, tag="t", key=f"k{number}", callback=next_one)
        await cluster.settle()
        assert [error for _, error in told] == [None] * 60
        elements = [element for sent in cluster.broker.sends if sent.header.batch for element in split_batch(sent.body)]
        assert [element.body for element in elements] == [b"%d" % number for number in range(60)]
        assert all(b"TAGS\x01t" in element.properties_bytes for element in elements)
        ids = [result.message_id for result, _ in told if result is not None]
        assert len(set(ids)) == 60
        assert len(cluster.broker.sends) < 20
        producer.send_async("orders", b"late", delay_level=3, callback=next_one)
        producer.send_async(Message("orders", b"as a message"), callback=next_one)
        await cluster.settle()
        assert len(told) == 62

    play(scene)


def test_callback_that_sends_on_after_every_error_is_not_called_from_inside_its_send() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(auto_batch=True, retry_times_when_send_failed=0)
        depth = deepest = failures = 0

        def again(result: SendResult | None, error: Exception | None) -> None:
            nonlocal depth, deepest, failures
            depth += 1
            deepest = max(deepest, depth)
            failures += error is not None
            if failures <= 50:
                producer.send_async("orders", b"x", callback=again)
            depth -= 1

        cluster.broker.answers.extend([ResponseCode.MESSAGE_ILLEGAL] * 51)
        producer.send_async("orders", b"x", callback=again)
        await cluster.settle()
        assert (failures, deepest) == (51, 1)

    play(scene)


@pytest.mark.parametrize("options", [{}, {"tag": "a\x01b"}, {"key": ""}])
def test_callback_form_refuses_what_the_awaited_form_refuses(options: dict[str, Any]) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(auto_batch=True, max_message_size=100)
        body = b"" if not options else b"x"
        outcomes = []
        for call in (
            lambda: producer.send("orders", body, **options),
            lambda: producer.send_async("orders", body, callback=lambda result, error: None, **options),
        ):
            try:
                call()
                outcomes.append("taken")
            except MessageError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        await cluster.settle()
        with pytest.raises(MessageError):
            producer.send_async("orders", b"x" * 101, callback=lambda result, error: None)
        await producer.close()
        with pytest.raises(ClientStateError):
            producer.send_async("orders", b"x", callback=lambda result, error: None)

    play(scene)


@pytest.mark.parametrize("auto_batch", [False, True])
def test_callback_that_fails_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture, auto_batch: bool) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer(auto_batch=auto_batch)

        def broken(result: SendResult | None, error: Exception | None) -> None:
            raise ZeroDivisionError("oh")

        with caplog.at_level(logging.ERROR):
            producer.send_async("orders", b"x", callback=broken)
            await cluster.settle()
        assert "the callback of a send failed" in caplog.text
        await cluster.within(1.0, producer.send("orders", b"y"))

    play(scene)


def test_oneway_asks_for_no_answer() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 4)
        producer = await cluster.producer()
        await cluster.do(producer.send_oneway("orders", b"x", tag="t", order_by="k"))
        await cluster.settle()
        (sent,) = cluster.sends
        assert sent.request.is_oneway
        assert sent.properties["TAGS"] == "t"
        assert sent.header.queue_id == place_of_key("k", 4)
        assert producer.in_flight == 0

    play(scene)


def test_oneway_without_route_or_connection_raises() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        producer = await cluster.producer()
        with pytest.raises(TopicNotFoundError):
            await cluster.do(producer.send_oneway("nowhere", b"x"))
        cluster.route("orders")
        await cluster.stop_broker("broker-a")
        with pytest.raises(ConnectError):
            await cluster.do(producer.send_oneway("orders", b"x"))

    play(scene)


# Batches


def test_batch_is_one_request_with_consecutive_offsets() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        messages = [
            Message.of("orders", b"%d" % number, tag="t", keys=f"k{number}", flag=number) for number in range(3)
        ]
        result = await cluster.within(1.0, producer.send_batch(messages))
        (sent,) = cluster.sends
        assert (sent.request.code, sent.header.batch) == (320, True)
        assert [(element.body, element.flag, element.properties["KEYS"]) for element in sent.elements] == [
            (b"0", 0, "k0"), (b"1", 1, "k1"), (b"2", 2, "k2"),
        ]  # fmt: skip
        assert result.message_ids == tuple(element.properties["UNIQ_KEY"] for element in sent.elements)
        assert len(set(result.message_ids)) == 3
        assert result.offset_ids == tuple(f"{place:032X}" for place in range(3))
        assert set(sent.properties) == {"UNIQ_KEY", "WAIT"}

    play(scene)


def test_batch_that_the_broker_keeps_whole_has_the_id_of_the_batch() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()

        def whole(sent: Sent) -> Command:
            answer = sent.success(4, batch_uniq_id=sent.properties["UNIQ_KEY"])
            (answer.ext_fields or {})["msgId"] = "ONE"
            return answer

        cluster.broker.answers.append(whole)
        result = await cluster.within(1.0, producer.send_batch([Message("orders", b"a"), Message("orders", b"b")]))
        assert (result.message_id, result.offset_id) == (cluster.sends[0].properties["UNIQ_KEY"], "ONE")

    play(scene)


def test_batch_goes_to_the_queue_of_its_key() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 7)
        producer = await cluster.producer()
        result = await cluster.within(1.0, producer.send_batch([Message("orders", b"a")] * 2, order_by="k"))
        assert result.queue.queue_id == place_of_key("k", 7)
        assert {element.properties["__SHARDINGKEY"] for element in cluster.sends[0].elements} == {"k"}

    play(scene)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "at least one"),
        ([Message("a", b"x"), Message("b", b"x")], "one topic"),
        ([Message("a", b"x", {"DELAY": "3"})], "delayed"),
        ([Message("a", b"")], "empty body"),
        ([Message("a", b"x" * 60)] * 2, "send it in parts"),
    ],
)
def test_batch_that_breaks_a_rule_is_refused(messages: list[Message], said: str) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        producer = await cluster.producer(max_message_size=200)
        with pytest.raises(MessageError, match=said):
            producer.send_batch(messages)
        assert producer.in_flight == 0

    play(scene)


# Slow brokers


def test_slow_broker_is_avoided_for_a_while() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(send_latency_fault_enable=True)
        cluster.network.weather("10.0.9.1", cluster.broker.host).latency = 0.3
        for _ in range(2):
            await cluster.within(5.0, producer.send("orders", b"x"))
        assert len(cluster.broker.sends) == 1
        for _ in range(10):
            await cluster.within(5.0, producer.send("orders", b"x"))
        assert len(cluster.broker.sends) == 1
        await cluster.advance(2.1)
        for _ in range(2):
            await cluster.within(5.0, producer.send("orders", b"x"))
        assert len(cluster.broker.sends) == 2

    play(scene, brokers=2)


def test_failing_broker_is_avoided_until_it_is_found_again() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(
            send_latency_fault_enable=True, start_detector_enable=True, retry_times_when_send_failed=1
        )
        for broker in cluster.brokers.values():
            broker.answers.append(ResponseCode.SYSTEM_BUSY)
        with pytest.raises(SendFailedError):
            await cluster.within(5.0, producer.send("orders", b"x", timeout_ms=50))
        await cluster.advance(3.1)
        assert [broker.checks for broker in cluster.brokers.values()] == [1, 1]
        await cluster.within(5.0, producer.send("orders", b"x"))
        await cluster.advance(7.0)
        assert [broker.checks for broker in cluster.brokers.values()] == [1, 1]

    play(scene, brokers=2)


# Watched


class _Hook:
    def __init__(self) -> None:
        self.before: list[SendContext] = []
        self.after: list[SendContext] = []

    def before_send(self, context: SendContext) -> None:
        assert context.result is None
        self.before.append(context)

    def after_send(self, context: SendContext) -> None:
        self.after.append(context)


def test_hook_sees_every_try() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        hook = _Hook()
        producer = await cluster.producer(group="watched", hooks=[hook])
        cluster.broker.answers.append(ResponseCode.SYSTEM_BUSY)
        result = await cluster.within(3.0, producer.send("orders", b"x", tag="t"))
        first, second = hook.before
        assert hook.after == hook.before
        assert first is not second
        assert (first.group, first.topic, first.queue.queue_id, first.broker_address, first.communication) == (
            "watched", "orders", 0, cluster.broker.address, "sync",
        )  # fmt: skip
        assert isinstance(first.error, SystemBusyError)
        assert first.result is None
        assert (second.error, second.result) == (None, result)
        assert first.message.unique_id == second.message.unique_id == result.message_id
        assert first.message_type is MessageType.NORMAL
        assert second.started_ms - first.started_ms == 100

    play(scene)


def test_hook_is_told_what_kind_of_message_and_how_it_was_sent() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        hook = _Hook()
        producer = await cluster.producer()
        producer.add_hook(hook)
        assert producer.hooks == (hook,)
        await cluster.within(1.0, producer.send("orders", b"x", delay_level=1))
        await cluster.within(1.0, producer.send(Message("orders", b"x", {"TRAN_MSG": "true"})))
        await cluster.do(producer.send_oneway("orders", b"x"))
        producer.send_async("orders", b"x", callback=lambda result, error: None)
        await cluster.within(1.0, producer.send_batch([Message("orders", b"x")]))
        assert [(context.message_type, context.communication) for context in hook.after] == [
            (MessageType.DELAY, "sync"), (MessageType.HALF, "sync"), (MessageType.NORMAL, "oneway"),
            (MessageType.NORMAL, "async"), (MessageType.NORMAL, "sync"),
        ]  # fmt: skip
        assert all(context.error is None for context in hook.after)

    play(scene)


# The end


def test_close_waits_for_what_is_under_way() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(back_pressure_for_async_send_num=1)
        cluster.broker.answers.append(None)
        sends = [producer.send("orders", b"x"), producer.send("orders", b"y")]
        await cluster.settle()
        closing = asyncio.ensure_future(producer.close())
        await cluster.settle()
        assert not closing.done()
        cluster.broker.release(0)
        await cluster.within(1.0, closing)
        assert all(sent.done() and sent.exception() is None for sent in sends)
        await cluster.advance(100.0)

    play(scene)


def test_close_waits_no_longer_than_the_time_out() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        cluster.broker.answers.extend([None] * 2)
        sent, given_up = producer.send("orders", b"x"), producer.send("orders", b"y")
        await cluster.settle()
        given_up.cancel()
        await cluster.within(3.0, asyncio.ensure_future(producer.close()))
        assert isinstance(sent.exception(), RequestTimeoutError)

    play(scene)


def test_session_that_closes_first_fails_what_is_under_way() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        await cluster.within(1.0, producer.send("orders", b"warm"))
        cluster.broker.answers.append(None)
        in_flight = producer.send("orders", b"x")
        await cluster.settle()
        asking = producer.send("others", b"x")
        await cluster.do(producer.session.close())
        assert isinstance(in_flight.exception(), ConnectionLostError)
        assert isinstance(asking.exception(), FuseeError)
        assert producer.in_flight == 0

    play(scene)


# Taking back


def test_delayed_message_is_taken_back_by_its_handle() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        handle = base64.urlsafe_b64encode(b"v1 orders broker-a 1893456000000 ID1").decode()
        cluster.broker.answers.append(lambda sent: sent.success(0, recall_handle=handle))
        result = await cluster.within(1.0, producer.send("orders", b"x", deliver_in=3600))
        assert result.recall_handle == handle
        assert await cluster.do(producer.recall("orders", result.recall_handle)) == "recalled from orders"
        with pytest.raises(MessageError, match="of topic 'orders', not of 'others'"):
            await cluster.do(producer.recall("others", handle))
        away = base64.urlsafe_b64encode(b"v1 orders broker-z 1893456000000 ID1").decode()
        with pytest.raises(ConnectError, match="broker-z"):
            await cluster.do(producer.recall("orders", away))

    play(scene)


# With real brokers


def test_real_broker_stores_what_was_sent() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 2)
        await world.settle()
        producer = Producer(await world.session())
        await producer.start()
        one = await world.within(5.0, producer.send("orders", b"one", tag="t", key="k", properties={"a": "b"}))
        large = b"abcdefgh" * 1000
        two = await world.within(5.0, producer.send("orders", large, queue=one.queue))
        batch = await world.within(
            5.0, producer.send_batch([Message("orders", b"x"), Message("orders", b"y")], queue=one.queue)
        )
        await world.do(producer.send_oneway("orders", b"oneway", queue=one.queue))
        await world.advance(1.0)
        stored = {message.unique_id: message for message in world.stored("orders")}
        assert len(stored) == 5
        first = stored[one.message_id]
        assert (first.offset_id, first.queue_offset, first.queue_id) == (
            one.offset_id, one.queue_offset, one.queue.queue_id,
        )  # fmt: skip
        assert (first.body, first.tag, first.keys, first.properties["a"]) == (b"one", "t", ("k",), "b")
        assert decompress(stored[two.message_id].body, CompressionType.ZLIB) == large
        assert [stored[unique_id].body for unique_id in batch.message_ids] == [b"x", b"y"]
        assert [stored[unique_id].offset_id for unique_id in batch.message_ids] == list(batch.offset_ids)
        assert two.queue_offset == one.queue_offset + 1
        assert batch.queue_offset == two.queue_offset + 1
        await world.do(producer.close())

    play_real(scene)


def test_broker_killed_under_load_loses_no_acknowledged_message() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 2)
        await world.settle()
        producer = Producer(await world.session())
        await producer.start()
        results: list[SendResult] = []
        for round_ in range(20):
            sends = [producer.send("orders", b"%d-%d" % (round_, number)) for number in range(10)]
            if round_ == 10:
                world.kill("broker-b")
            taken = await world.within(30.0, asyncio.gather(*sends))
            results.extend(taken)
        await world.advance(1.0)
        held = {message.unique_id for message in world.stored("orders")}
        assert len({result.message_id for result in results}) == 200
        assert any(result.queue.broker_name == "broker-b" for result in results[:100])
        assert not any(result.queue.broker_name == "broker-b" for result in results[100:])
        assert {result.message_id for result in results if result.queue.broker_name == "broker-a"} <= held
        await world.do(producer.close())

    play_real(scene, brokers=2)


@pytest.mark.parametrize("auto_batch", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_send_ends_and_leaves_nothing(seed: int, auto_batch: bool) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        chance = random.Random(seed)
        cluster.route("orders", 2)
        cluster.route("others", 1, brokers=("broker-a",))
        producer = await cluster.producer(
            auto_batch=auto_batch,
            batch_max_bytes=300,
            back_pressure_for_async_send_num=8,
            send_msg_max_timeout_per_request_ms=chance.choice([-1, 700]),
            send_latency_fault_enable=chance.random() < 0.3,
        )
        outcomes = [0, 0, 0, 0, None, 2, 14, 13, 10, 1500, 17]
        sends: list[asyncio.Future[SendResult]] = []
        for _ in range(150):
            for broker in cluster.brokers.values():
                if chance.random() < 0.2:
                    broker.answers.append(chance.choice(outcomes))
            for _ in range(chance.randrange(4)):
                topic = chance.choice(["orders", "orders", "others", "nowhere"])
                order_by = chance.choice([None, None, "k", 7])
                timeout_ms = chance.choice([None, 50, 900])
                sends.append(producer.send(topic, b"x" * 50, order_by=order_by, timeout_ms=timeout_ms))
            if sends and chance.random() < 0.1:
                chance.choice(sends).cancel()
            if chance.random() < 0.05:
                cluster.network.cut("10.0.9.1", chance.choice(list(cluster.brokers.values())).host)
            weather = cluster.network.weather("10.0.9.1", cluster.broker.host)
            if chance.random() < 0.05:
                weather.held = not weather.held
                if not weather.held:
                    cluster.network.release("10.0.9.1", cluster.broker.host)
            await cluster.advance(chance.choice([0.0, 0.0, 0.01, 0.3]))
        cluster.network.release("10.0.9.1", cluster.broker.host)
        await cluster.advance(4.0)
        assert all(sent.done() for sent in sends)
        assert producer.in_flight == 0
        stored = {sent.properties.get("UNIQ_KEY") for sent in cluster.sends if not sent.header.batch}
        stored |= {
            element.properties["UNIQ_KEY"] for sent in cluster.sends if sent.header.batch for element in sent.elements
        }
        results = [sent.result() for sent in sends if not sent.cancelled() and sent.exception() is None]
        assert len(results) > 20
        assert {result.message_id for result in results} <= stored
        assert len({result.message_id for result in results}) == len(results)
        for broker in cluster.brokers.values():
            broker.answers.clear()
        for topic in ("orders", "others"):
            await cluster.within(5.0, producer.send(topic, b"x", order_by="k"))
        await cluster.within(0.1, asyncio.ensure_future(producer.close()))

    play(scene, brokers=2)
