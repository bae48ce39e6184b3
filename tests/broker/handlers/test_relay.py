"""Questions passed on to clients: their answers, their silence, their age."""

from __future__ import annotations

from typing import Any

import pytest

from fusee.broker.handlers.relay import version_name
from fusee.message.ids import encode_offset_id
from fusee.store.new_record import NewRecord
from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from fusee.wire.bodies.offsets import ConsumerStatus, QueueOffsetEntry, QueueOffsets, QueueOffsetsForCpp
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import LanguageCode, RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder
from fusee.wire.headers.client import ConsumeMessageDirectly, GetConsumerRunningInfo
from fusee.wire.headers.offset import GetConsumerStatus, ResetOffset
from fusee.wire.lenient_json import decode_json, dumps_fastjson
from tests.broker.client_world import NAME, STORE_HOST, ClientWorld, Terminal, play
from tests.golden import frames

RUNNING = GetConsumerRunningInfo(consumer_group="g", client_id="c", stack_wanted=False)


async def consumer(
    world: ClientWorld,
    client_id: str = "c",
    host: str = "10.0.0.2",
    *,
    group: str = "g",
    version: int = 513,
    language: LanguageCode = LanguageCode.JAVA,
) -> Terminal:
    terminal = world.terminal(host)
    data = ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic="t")])
    body = dumps_fastjson(HeartbeatData(client_id=client_id, consumer_data_set=[data]))
    await terminal.ask(RequestCode.HEART_BEAT, body=body, version=version, language=language)
    return terminal


def admin(world: ClientWorld) -> Terminal:
    return world.terminal("10.0.0.9")


def queue(queue_id: int, topic: str = "t") -> QueueRef:
    return QueueRef(broker_name=NAME, queue_id=queue_id, topic=topic)


# 307 and 309


def test_running_info_is_asked_of_the_client_and_passed_back() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = await consumer(world)

        def answer(request: Command) -> Command:
            response = request.reply(remark="not set any response code", body=b'{"jstack":"..."}')
            response.language, response.version = LanguageCode.GO, 401
            return response

        terminal.answer = answer
        found = await admin(world).ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
        assert (found.code, found.remark) == (ResponseCode.SUCCESS, "not set any response code")
        assert found.body == b'{"jstack":"..."}'
        assert (found.language, found.version, found.ext_fields) == (LanguageCode.GO, 401, None)
        (asked,) = terminal.questions
        assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        assert asked.all_fields() == {"consumerGroup": "g", "clientId": "c", "jstackEnable": "false"}

    play(scene)


def test_running_info_is_passed_on_and_back_as_java_does() -> None:
    found = [frame for frame in frames() if frame.name == "push.running_info" and frame.form == "json"]
    asked = next(frame for frame in found if frame.role == "request" and frame.receiver == "broker")
    passed = next(frame for frame in found if frame.role == "request" and frame.sender == "broker")
    given = next(frame for frame in found if frame.role == "response" and frame.pair == passed.pair)
    answered = next(frame for frame in found if frame.role == "response" and frame.pair == asked.pair)
    names = asked.header.ext_fields or {}

    async def scene(world: ClientWorld) -> None:
        terminal = await consumer(world, names["clientId"], group=names["consumerGroup"])
        (response,) = FrameDecoder().feed(given.frame)

        def answer(request: Command) -> Command:
            response.opaque = request.opaque
            return response

        terminal.answer = answer
        (request,) = FrameDecoder().feed(asked.frame)
        ours = await world.during(admin(world).client.request("10.0.0.1:10911", request), 0.0)
        assert terminal.questions[0].all_fields() == passed.header.ext_fields
        assert (ours.code, ours.remark, ours.ext_fields, ours.body) == (
            answered.header.code,
            answered.header.remark,
            answered.header.ext_fields,
            answered.body_bytes,
        )
        assert (ours.language.name, ours.version) == (answered.header.language, answered.header.version)

    play(scene)


def test_running_info_when_consumer_is_offline() -> None:
    async def scene(world: ClientWorld) -> None:
        await consumer(world, "other")
        answer = await admin(world).ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The Consumer <g> <c> not online")

    play(scene)


def test_running_info_when_consumer_is_too_old() -> None:
    async def scene(world: ClientWorld) -> None:
        await consumer(world, version=61)
        answer = await admin(world).ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == (
            "The Consumer <c> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
        )

    play(scene)


def test_running_info_when_consumer_does_not_answer_times_out_after_ten_seconds() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = await consumer(world)
        terminal.answer = lambda request: None
        answer = await admin(world).ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING, seconds=10.0)
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert (answer.remark or "").startswith("consumer <g> <c> Timeout: ")
        assert world.lane.in_flight == 0

    play(scene)


def test_running_info_when_consumer_goes_meanwhile_is_an_error() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = await consumer(world)

        def leave(request: Command) -> None:
            world.network.cut("10.0.0.1", "10.0.0.2")

        terminal.answer = leave
        answer = await admin(world).ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("invoke consumer <g> <c> Exception: ")

    play(scene)


def test_running_info_when_link_is_closing_is_an_error() -> None:
    async def scene(world: ClientWorld) -> None:
        await consumer(world)
        world.link_from("10.0.0.2").close()
        request = Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING)
        asked = admin(world)
        await asked.client.link("10.0.0.1:10911")
        world.router.dispatch(request, world.link_from("10.0.0.9"))
        assert world.lane.in_flight == 0

    play(scene)


def put(world: ClientWorld, topic: str = "t", queue_id: int = 0, body: bytes = b"hello") -> int:
    record = NewRecord(topic=topic, queue_id=queue_id, body=body, store_host=STORE_HOST)
    return world.writer.put(record).log_offset


def test_consume_directly_hands_the_message_to_the_client() -> None:
    async def scene(world: ClientWorld) -> None:
        world.topics.put(TopicConfig(topic_name="t", topic_sys_flag=1))
        world.groups.put(SubscriptionGroupConfig(group_name="g", group_sys_flag=2))
        put(world)
        log_offset = put(world, body=b"this one")
        terminal = await consumer(world)
        terminal.answer = lambda request: request.reply(body=b'{"consumeResult":"CR_SUCCESS"}')
        header = ConsumeMessageDirectly(
            consumer_group="g", client_id="c", msg_id=encode_offset_id(STORE_HOST, log_offset), topic="t"
        )
        answer = await admin(world).ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b'{"consumeResult":"CR_SUCCESS"}')
        (asked,) = terminal.questions
        assert asked.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
        assert asked.all_fields() == {
            "consumerGroup": "g",
            "clientId": "c",
            "msgId": header.msg_id,
            "topic": "t",
            "brokerName": NAME,
            "topicSysFlag": "1",
            "groupSysFlag": "2",
        }
        record = world.store.record_at(log_offset)
        assert record is not None
        assert asked.body == bytes(record)
        assert b"this one" in asked.body

    play(scene)


@pytest.mark.parametrize(
    ("msg_id", "words"),
    [
        (None, "is not a offset message id"),
        ("xyz", "is not a offset message id"),
        (encode_offset_id(STORE_HOST, 1_000_000), "10.0.0.1:10911"),
    ],
)
def test_consume_directly_when_there_is_no_such_message(msg_id: str | None, words: str) -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = await consumer(world)
        header = ConsumeMessageDirectly(consumer_group="g", client_id="c", msg_id=msg_id)
        answer = await admin(world).ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert words in (answer.remark or "")
        assert terminal.questions == []

    play(scene)


# 223


async def ask_status(world: ClientWorld, client_id: str | None = None, seconds: float = 0.0) -> Command:
    header = GetConsumerStatus(topic="t", group="g", client_address=client_id)
    return await admin(world).ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header, seconds=seconds)


def tells(offsets: dict[QueueRef, int]) -> Any:
    return lambda request: request.reply(body=dumps_fastjson(ConsumerStatus(message_queue_table=offsets)))


def test_status_gathers_what_all_clients_tell() -> None:
    async def scene(world: ClientWorld) -> None:
        a, b = await consumer(world, "a", "10.0.0.2"), await consumer(world, "b", "10.0.0.3")
        world.network.weather("10.0.0.1", "10.0.0.2").latency = 1.0
        a.answer, b.answer = tells({queue(0): 5}), tells({queue(1): 7})
        answer = await ask_status(world, seconds=2.0)
        assert answer.code == ResponseCode.SUCCESS
        found = decode_json(answer.body, ConsumerStatus)
        assert found.consumer_table == {"a": {queue(0): 5}, "b": {queue(1): 7}}
        assert found.message_queue_table == {}
        (asked,) = a.questions
        assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert asked.all_fields() == {"topic": "t", "group": "g"}

    play(scene)


def test_status_when_one_client_is_named_asks_only_it() -> None:
    async def scene(world: ClientWorld) -> None:
        a, b = await consumer(world, "a", "10.0.0.2"), await consumer(world, "b", "10.0.0.3")
        a.answer, b.answer = tells({queue(0): 5}), tells({queue(1): 7})
        answer = await ask_status(world, "b")
        assert decode_json(answer.body, ConsumerStatus).consumer_table == {"b": {queue(1): 7}}
        assert a.questions == []
        nobody = await ask_status(world, "x")
        assert (nobody.code, nobody.body) == (ResponseCode.SUCCESS, b'{"consumerTable":{},"messageQueueTable":{}}')

    play(scene)


@pytest.mark.parametrize("bad", ["silent", "error", "nonsense", "nothing", "gone"])
def test_status_when_a_client_is_of_no_help_tells_of_the_others(bad: str) -> None:
    async def scene(world: ClientWorld) -> None:
        a, b = await consumer(world, "a", "10.0.0.2"), await consumer(world, "b", "10.0.0.3")
        b.answer = tells({queue(1): 7})

        def answer(request: Command) -> Command | None:
            if bad == "gone":
                world.network.cut("10.0.0.1", "10.0.0.2")
            if bad in ("silent", "gone"):
                return None
            code = ResponseCode.SYSTEM_ERROR if bad == "error" else ResponseCode.SUCCESS
            return request.reply(code, body=b"nonsense" if bad == "nonsense" else b"")

        a.answer = answer
        found = await ask_status(world, seconds=5.0)
        assert found.code == ResponseCode.SUCCESS
        assert decode_json(found.body, ConsumerStatus).consumer_table == {"b": {queue(1): 7}}

    play(scene)


def test_status_when_nobody_is_online_or_a_client_is_too_old() -> None:
    async def scene(world: ClientWorld) -> None:
        answer = await ask_status(world)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "No Any Consumer online in the consumer group: [g]",
        )
        await consumer(world, version=27)
        answer = await ask_status(world)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "the client does not support this feature. version=V3_0_6",
        )

    play(scene)


# 222 by way of 220


async def ask_reset(world: ClientWorld, timestamp_ms: int, *, is_force: bool = True, topic: str = "t") -> Command:
    header = ResetOffset(group="g", topic=topic, timestamp_ms=timestamp_ms, is_force=is_force)
    return await admin(world).ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def prepare(world: ClientWorld) -> int:
    """Two queues of three messages, one second apart; the time of the second. The group has consumed 2 and 1."""
    world.topics.put(TopicConfig(topic_name="t", read_queue_nums=2, write_queue_nums=2))
    second_ms = 0
    for number in range(3):
        if number == 1:
            second_ms = world.clock.time_ms()
        for queue_id in range(2):
            put(world, queue_id=queue_id)
        world.writer.make_visible()
        world.clock.advance(1.0)
    world.offsets.commit("g", "t", 0, 2)
    world.offsets.commit("g", "t", 1, 1)
    return second_ms


def test_reset_tells_consumers_and_administrator_the_offsets() -> None:
    async def scene(world: ClientWorld) -> None:
        second_ms = prepare(world)
        java = await consumer(world, "j", "10.0.0.2")
        cpp = await consumer(world, "c", "10.0.0.3", language=LanguageCode.CPP)
        answer = await ask_reset(world, second_ms)
        await world.network.settle()
        table = {queue(0): 1, queue(1): 1}
        assert answer.code == ResponseCode.SUCCESS
        assert decode_json(answer.body, QueueOffsets).offset_table == table
        (told,) = java.questions
        assert told.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        assert told.is_oneway
        assert told.all_fields() == {
            "group": "g",
            "topic": "t",
            "queueId": "-1",
            "timestamp": str(second_ms),
            "isForce": "false",
        }
        assert told.body == answer.body
        assert decode_json(cpp.questions[0].body, QueueOffsetsForCpp).offset_table == [
            QueueOffsetEntry(broker_name=NAME, queue_offset=1, queue_id=queue_id, topic="t") for queue_id in range(2)
        ]

    play(scene)


@pytest.mark.parametrize(("is_force", "expected"), [(True, {0: 3, 1: 3}), (False, {0: 2, 1: 1})])
def test_reset_to_the_end_goes_forward_only_by_force(is_force: bool, expected: dict[int, int]) -> None:
    async def scene(world: ClientWorld) -> None:
        prepare(world)
        await consumer(world)
        answer = await ask_reset(world, -1, is_force=is_force)
        assert decode_json(answer.body, QueueOffsets).offset_table == {queue(q): at for q, at in expected.items()}

    play(scene)


def test_reset_when_impossible_says_why() -> None:
    async def scene(world: ClientWorld) -> None:
        answer = await ask_reset(world, 0, topic="none")
        assert (answer.code, answer.remark) == (
            ResponseCode.TOPIC_NOT_EXIST,
            "[reset-offset] reset offset failed, no topic in this broker. topic=none",
        )
        world.topics.put(TopicConfig(topic_name="u"))
        answer = await ask_reset(world, 0, topic="u")
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "THe consumer group <g> not exist")
        prepare(world)
        answer = await ask_reset(world, 0)
        assert (answer.code, answer.remark) == (
            ResponseCode.CONSUMER_NOT_ONLINE,
            "Consumer not online, so can not reset offset, Group: g Topic: t Timestamp: 0",
        )
        await consumer(world, version=27)
        answer = await ask_reset(world, 0)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "the client does not support this feature. version=V3_0_6",
        )

    play(scene)


def test_reset_when_a_consumer_does_not_read_tells_the_others() -> None:
    async def scene(world: ClientWorld) -> None:
        prepare(world)
        slow, quick = await consumer(world, "s", "10.0.0.2"), await consumer(world, "q", "10.0.0.3")
        world.network.weather("10.0.0.1", "10.0.0.2").held = True
        world.link_from("10.0.0.2").send(b"." * 2_000_000)
        answer = await ask_reset(world, 0)
        await world.network.settle()
        assert answer.code == ResponseCode.SUCCESS
        assert (len(slow.questions), len(quick.questions)) == (0, 1)

    play(scene)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (-1, "V3_0_0_SNAPSHOT"),
        (0, "V3_0_0_SNAPSHOT"),
        (1, "V3_0_0_ALPHA1"),
        (15, "V3_0_0_FINAL"),
        (16, "V3_0_1_SNAPSHOT"),
        (17, "V3_0_1"),
        (27, "V3_0_6"),
        (28, "V3_0_7_SNAPSHOT"),
        (45, "V3_0_15"),
        (46, "V3_1_0_SNAPSHOT"),
        (47, "V3_1_0"),
        (61, "V3_1_7"),
    ],
)
def test_version_names_are_those_of_java(version: int, name: str) -> None:
    assert version_name(version) == name
