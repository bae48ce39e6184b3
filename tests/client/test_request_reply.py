"""Requests and replies through a real broker in memory: answered, too late, to nobody."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fusee.client import request_reply as module
from fusee.client.producer import Producer
from fusee.client.received import ReceivedMessage
from fusee.client.request_reply import Requester, reply_message, reply_table
from fusee.client.results import SendStatus
from fusee.client.session import Session
from fusee.errors import (
    ClientStateError,
    ConnectError,
    FuseeError,
    MessageError,
    RemoteFailureError,
    RequestTimeoutError,
    SendFailedError,
    TooManyRequestsError,
)
from fusee.message import properties as names
from fusee.message.compression import compress
from fusee.message.flags import CompressionType, SysFlag
from fusee.message.model import Message, StoredMessage
from fusee.message.properties import encode_properties
from fusee.transport.link import Link
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.headers.send import PushReplyMessage
from tests.client.world import ClusterWorld, play

REPLY_TOPIC = "C_REPLY_TOPIC"


class _Program:
    """A client with a producer, that asks and answers."""

    def __init__(self, world: ClusterWorld, session: Session, producer: Producer) -> None:
        self.world = world
        self.session = session
        self.producer = producer
        self.requester = Requester(producer)

    def ask(self, topic: str = "questions", body: object = b"why?", **options: Any) -> asyncio.Task[ReceivedMessage]:
        return asyncio.ensure_future(self.requester.request(topic, body, **options))

    async def close(self) -> None:
        await self.world.do(self.requester.close())
        await self.world.do(self.producer.close())


async def _program(world: ClusterWorld, group: str = "asking", host: str = "") -> _Program:
    session = await world.session(host)
    producer = Producer(session, group=group)
    await world.do(producer.start())
    return _Program(world, session, producer)


async def _requests(world: ClusterWorld, broker: str = "broker-a") -> list[ReceivedMessage]:
    await world.advance(0.1)  # what is written becomes readable
    return [ReceivedMessage.of(message, broker) for message in world.stored("questions", broker)]


async def _outcome(world: ClusterWorld, task: asyncio.Task[ReceivedMessage]) -> ReceivedMessage:
    return await world.within(1.0, task)


def test_request_gets_its_reply() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking, answering = await _program(world), await _program(world, "answering")
        asked = asking.ask(tag="t", key="42", timeout_ms=5_000)
        await world.settle()
        (request,) = await _requests(world)
        assert (request.body, request.tag, request.keys) == (b"why?", "t", ("42",))
        assert request.properties[names.REPLY_TO_CLIENT] == asking.session.client_id
        assert request.properties[names.TTL] == "5000"
        assert len(request.properties[names.CORRELATION_ID]) == 36

        sent = await world.do(answering.requester.reply(request, {"because": 1}, properties={"x": "y"}))
        assert (sent.status, sent.topic) == (SendStatus.SEND_OK, REPLY_TOPIC)
        reply = await _outcome(world, asked)
        assert (reply.body, reply.topic, reply.properties["x"]) == (b'{"because":1}', REPLY_TOPIC, "y")
        assert reply.properties[names.MESSAGE_TYPE] == "reply"
        assert reply.properties[names.CORRELATION_ID] == request.properties[names.CORRELATION_ID]
        assert reply.properties[names.TTL] == "5000"
        assert reply.properties[names.ARRIVE_TIME] == str(world.clock.time_ms())
        assert names.PUSH_REPLY_TIME in reply.properties
        assert reply.message_id == sent.message_id
        assert reply.born_host.startswith("10.0.9.2:")
        assert reply.store_host == "10.0.0.1:10911"
        await world.advance(0.1)
        assert [message.body for message in world.stored(REPLY_TOPIC)] == [b'{"because":1}']
        assert len(reply_table(asking.session)) == 0
        for program in (asking, answering):
            await program.close()

    play(scene)


def test_replies_find_their_requests_in_any_order() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking, answering = await _program(world), await _program(world, "answering")
        asked = [asking.ask(body=f"{number}") for number in range(20)]
        await world.settle()
        requests = await _requests(world)
        world.random.shuffle(requests)
        for request in requests:
            await world.do(answering.requester.reply(request, request.body + b"!"))
        assert [(await _outcome(world, each)).body for each in asked] == [f"{number}!".encode() for number in range(20)]
        for program in (asking, answering):
            await program.close()

    play(scene)


def test_large_reply_is_compressed_on_the_way() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking, answering = await _program(world), await _program(world, "answering")
        asked = asking.ask()
        await world.settle()
        await world.do(answering.requester.reply((await _requests(world))[0], b"x" * 50_000))
        reply = await _outcome(world, asked)
        assert reply.body == b"x" * 50_000
        assert reply.sys_flag & SysFlag.COMPRESSED
        assert reply.store_size < 1_000
        for program in (asking, answering):
            await program.close()

    play(scene)


def test_request_without_reply_times_out_and_a_late_reply_does_no_harm() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking, answering = await _program(world), await _program(world, "answering")
        asked = asking.ask(timeout_ms=2_000)
        await world.advance(1.9)
        assert not asked.done()
        await world.advance(0.1)
        with pytest.raises(RequestTimeoutError, match="was stored, but no reply came within 2000 ms") as caught:
            await _outcome(world, asked)
        assert (caught.value.topic, caught.value.retryable) == ("questions", True)
        table = reply_table(asking.session)
        assert len(table) == 0
        sent = await world.do(answering.requester.reply((await _requests(world))[0], b"late"))
        assert sent.status is SendStatus.SEND_OK
        assert table.late == 1
        for program in (asking, answering):
            await program.close()

    play(scene)


def test_request_that_does_not_reach_the_broker_says_so() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking = await _program(world, host="10.0.9.77")
        world.network.weather("10.0.9.77", "10.0.0.1").lossy = True
        asked = asking.ask(timeout_ms=2_500)
        await world.advance(2.5)
        with pytest.raises(FuseeError) as caught:
            await _outcome(world, asked)
        assert "questions" in str(caught.value)
        assert "stored" not in str(caught.value)
        world.network.weather("10.0.9.77", "10.0.0.1").lossy = False
        world.network.cut("10.0.9.77", "10.0.0.1")
        await asking.close()

    play(scene)


def test_request_to_a_topic_that_is_nowhere_fails_at_once() -> None:
    async def scene(world: ClusterWorld) -> None:
        asking = await _program(world)
        with pytest.raises(FuseeError, match="'nowhere' does not exist"):
            await world.do(asking.requester.request("nowhere", b"why?"), seconds=0.1)
        assert len(reply_table(asking.session)) == 0
        await asking.close()

    play(scene, auto_create_topic_enable=False)


@pytest.mark.parametrize("way", ["closed", "died"])
def test_reply_to_a_requester_that_is_gone_fails_and_says_so(way: str) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking, answering = await _program(world, host="10.0.9.77"), await _program(world, "answering")
        asked = asking.ask()
        await world.settle()
        if way == "closed":
            asked.cancel()
            await asking.close()
            await world.do(asking.session.close())
        else:
            world.network.end_host("10.0.9.77")
            world.network.weather("10.0.9.77", "10.0.0.1").lossy = True
        await world.settle()
        with pytest.raises(RemoteFailureError, match=f"channel of <{asking.session.client_id}> not found") as caught:
            await world.do(answering.requester.reply((await _requests(world))[0], b"because"))
        assert (caught.value.topic, caught.value.address) == (REPLY_TOPIC, "10.0.0.1:10911")
        await world.advance(5.0)
        with pytest.raises((RequestTimeoutError, asyncio.CancelledError)):
            await _outcome(world, asked)
        await answering.close()
        if way == "died":
            await asking.close()

    play(scene)


def test_reply_goes_to_another_broker_when_the_first_is_gone() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions", brokers=("broker-a",))
        await world.settle()
        asking, answering = await _program(world), await _program(world, "answering")
        await world.do(answering.session.publish_route(REPLY_TOPIC))
        asked = asking.ask()
        await world.settle()
        (request,) = await _requests(world)
        world.kill("broker-a")
        await world.settle()
        # only the brokers of the reply topic are left, and the requester has greeted them
        sent = await world.do(answering.requester.reply(request, b"because"))
        assert sent.queue.broker_name == "broker-b"
        assert (await _outcome(world, asked)).body == b"because"
        world.kill("broker-b")
        await world.settle()
        with pytest.raises(SendFailedError, match="sent 2 times in vain: 1. .*10.0.0.1.*; 2. .*10.0.0.2") as caught:
            await world.do(answering.requester.reply(request, b"because"))
        assert [type(error) for error in caught.value.attempts] == [ConnectError, ConnectError]
        for program in (asking, answering):
            await program.close()

    play(scene, brokers=2)


def test_reply_begins_with_the_broker_that_had_the_request() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking, answering = await _program(world), await _program(world, "answering")
        for broker in ("broker-b", "broker-c") * 3:
            queues = await world.do(asking.producer.queues("questions"))
            asked = asking.ask(queue=next(each for each in queues if each.broker_name == broker))
            await world.settle()
            sent = await world.do(answering.requester.reply((await _requests(world, broker))[-1], b"because"))
            assert sent.queue.broker_name == broker
            assert (await _outcome(world, asked)).broker_name in ("", broker)
        for program in (asking, answering):
            await program.close()

    play(scene, brokers=3)


def test_broker_that_joins_later_is_greeted_and_may_bring_replies() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions", brokers=("broker-a",))
        await world.stop_broker("broker-b")
        await world.settle()
        asking, answering = await _program(world), await _program(world, "answering")
        first = asking.ask()
        await world.advance(5.0)
        with pytest.raises(RequestTimeoutError):
            await _outcome(world, first)
        await world.start_broker("broker-b")
        await world.advance(40.0)
        second = asking.ask()
        await world.settle()
        request = ReceivedMessage.of((await _requests(world))[-1].stored(), "broker-b")
        sent = await world.do(answering.requester.reply(request, b"because"))
        assert sent.queue.broker_name == "broker-b"
        assert (await _outcome(world, second)).body == b"because"
        for program in (asking, answering):
            await program.close()

    play(scene, brokers=2)


def test_cancelled_request_is_forgotten() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking = await _program(world)
        asked = asking.ask()
        await world.settle()
        asked.cancel()
        await world.settle()
        assert asked.cancelled()
        assert len(reply_table(asking.session)) == 0
        early = asking.ask()
        await asyncio.sleep(0)
        early.cancel()
        await world.settle()
        assert early.cancelled()
        assert len(await _requests(world)) <= 2
        await asking.close()

    play(scene)


def test_close_ends_the_waiting_of_every_request() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking = await _program(world)
        asked = asking.ask()
        await world.settle()
        await asking.close()
        with pytest.raises(ClientStateError, match="closed while the request waited"):
            await _outcome(world, asked)
        with pytest.raises(ClientStateError, match="closed"):
            await _outcome(world, asking.ask())
        with pytest.raises(ClientStateError, match="closed"):
            await world.do(asking.requester.reply((await _requests(world))[0], b"because"))

    play(scene)


def test_waiting_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUESTS_MAX", 2)

    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking = await _program(world)
        asked = [asking.ask() for _ in range(2)]
        await world.settle()
        with pytest.raises(TooManyRequestsError, match="2 requests wait"):
            await _outcome(world, asking.ask())
        await world.advance(3.0)
        for each in asked:
            with pytest.raises(RequestTimeoutError):
                await _outcome(world, each)
        last = asking.ask(timeout_ms=1_000)
        await world.advance(1.0)
        with pytest.raises(RequestTimeoutError):
            await _outcome(world, last)
        await asking.close()

    play(scene)


def test_two_requesters_of_one_session_share_the_table() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking = await _program(world)
        answering = await _program(world, "answering")
        other = Requester(asking.producer)
        asked = [asking.ask(), asyncio.ensure_future(other.request("questions", b"and?"))]
        await world.settle()
        assert len(reply_table(asking.session)) == 2
        for request in await _requests(world):
            await world.do(answering.requester.reply(request, request.body))
        assert sorted([(await _outcome(world, each)).body for each in asked]) == [b"and?", b"why?"]
        for program in (asking, answering):
            await program.close()

    play(scene)


# The forms of others


def _stored(**properties: str) -> ReceivedMessage:
    return ReceivedMessage.of(
        StoredMessage(
            topic="questions",
            queue_id=0,
            queue_offset=0,
            log_offset=0,
            body=b"why?",
            properties_bytes=encode_properties({names.UNIQ_KEY: "ID", **properties}),
            flag=0,
            sys_flag=0,
            born_timestamp_ms=0,
            born_host_bytes=bytes(8),
            store_timestamp_ms=0,
            store_host_bytes=bytes(8),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
        ),
        "broker-a",
    )


def test_reply_message_carries_what_java_carries() -> None:
    request = _stored(CLUSTER="DefaultCluster", CORRELATION_ID="uuid", REPLY_TO_CLIENT="1.2.3.4@77", TTL="3000")
    assert reply_message(request, "because") == Message(
        "DefaultCluster_REPLY_TOPIC",
        b"because",
        {"MSG_TYPE": "reply", "CORRELATION_ID": "uuid", "REPLY_TO_CLIENT": "1.2.3.4@77", "TTL": "3000"},
    )
    without_ttl = _stored(CLUSTER="c", CORRELATION_ID="uuid", REPLY_TO_CLIENT="me")
    assert names.TTL not in reply_message(without_ttl, b"because").properties


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({}, "is no request, it has no property CORRELATION_ID"),
        ({"CORRELATION_ID": "uuid", "CLUSTER": "c"}, "is no request, it has no property REPLY_TO_CLIENT"),
        ({"CORRELATION_ID": "uuid", "REPLY_TO_CLIENT": "me"}, "does not say from which cluster"),
    ],
)
def test_reply_to_what_is_no_request_is_refused(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(MessageError, match=problem):
        reply_message(_stored(**properties), b"because")


@pytest.mark.parametrize(
    ("born_host", "seen"),
    [
        ("/127.0.0.1:4711", "127.0.0.1:4711"),
        ("localhost/127.0.0.1:4711", "127.0.0.1:4711"),
        ("127.0.0.1:4711", "127.0.0.1:4711"),
        ("/[0:0:0:0:0:0:0:1]:4711", "[::1]:4711"),
        ("nonsense", "0.0.0.0:0"),
        ("host.example:80", "0.0.0.0:0"),
    ],
)
def test_push_is_understood_in_the_forms_of_other_brokers(born_host: str, seen: str) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("questions")
        asking = await _program(world)
        asked = asking.ask()
        await world.settle()
        correlation_id = (await _requests(world))[0].properties[names.CORRELATION_ID]
        header = PushReplyMessage(
            producer_group="answering",
            topic=REPLY_TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=3,
            sys_flag=SysFlag.COMPRESSED | CompressionType.LZ4.flag,
            born_timestamp_ms=1,
            flag=9,
            properties=f"CORRELATION_ID\x01{correlation_id}\x02ARRIVE_TIME\x015",
            born_host=born_host,
            store_host="/10.0.0.1:10911",
            store_timestamp_ms=2,
        )
        request = Command.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, body=compress(b"because", CompressionType.LZ4)
        )
        answer = asking.session.router.dispatch(request, cast(Link, None))
        assert isinstance(answer, Command)
        assert answer.code == 0
        reply = await _outcome(world, asked)
        assert (reply.body, reply.born_host, reply.queue_id, reply.flag) == (b"because", seen, 3, 9)
        assert (reply.born_timestamp_ms, reply.store_timestamp_ms, reply.reconsume_times) == (1, 2, 0)
        assert reply.properties[names.ARRIVE_TIME] == str(world.clock.time_ms())
        await asking.close()

    play(scene)


def test_empty_and_oversized_replies_are_refused() -> None:
    async def scene(world: ClusterWorld) -> None:
        asking = await _program(world)
        request = _stored(CLUSTER="C", CORRELATION_ID="uuid", REPLY_TO_CLIENT="me")
        for body in (b"", bytes(asking.producer.max_message_size + 1)):
            with pytest.raises(MessageError, match="cannot be sent"):
                await world.do(asking.requester.reply(request, body))
        await asking.close()

    play(scene)
