"""Replies: pushed to the requester, stored, and what the replier hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from fusee.message.flags import SysFlag
from fusee.message.ids import decode_offset_id
from fusee.message.model import StoredMessage
from fusee.message.properties import PROPERTIES_SIZE_MAX, decode_properties, encode_properties
from fusee.message.record import decode_record
from fusee.wire.bodies.heartbeat import HeartbeatData, ProducerData
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.fields import Header
from fusee.wire.framing import FrameDecoder
from fusee.wire.headers.send import PushReplyMessage, SendMessageResponse, SendMessageV1, SendMessageV2
from fusee.wire.lenient_json import dumps_fastjson
from tests.broker.client_world import CLUSTER, ClientWorld, Terminal, play
from tests.golden import frames

REPLY_TOPIC = f"{CLUSTER}_REPLY_TOPIC"
REQUESTER = "10.0.0.2@requester"
PROPERTIES = {
    "MSG_TYPE": "reply",
    "REPLY_TO_CLIENT": REQUESTER,
    "UNIQ_KEY": "0A000003000000000000000000000001",
    "CORRELATION_ID": "42",
    "TTL": "3000",
}


def reply_header(kind: type[SendMessageV1] | type[SendMessageV2] = SendMessageV2, **more: Any) -> Header:
    fields: dict[str, Any] = {
        "producer_group": "replier",
        "topic": REPLY_TOPIC,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp_ms": 1_700_000_000_123,
        "flag": 5,
        "properties": encode_properties(PROPERTIES).decode(),
        "reconsume_times": 0,
        "unit_mode": False,
    }
    return kind(**{**fields, **more})


async def requester(world: ClientWorld) -> Terminal:
    terminal = world.terminal("10.0.0.2")
    body = dumps_fastjson(HeartbeatData(client_id=REQUESTER, producer_data_set=[ProducerData(group_name="p")]))
    await terminal.ask(RequestCode.HEART_BEAT, body=body)
    return terminal


async def send_reply(world: ClientWorld, header: Header | None = None, *, seconds: float = 0.0) -> Command:
    header = header or reply_header()
    code = RequestCode.SEND_REPLY_MESSAGE_V2
    if isinstance(header, SendMessageV1):
        code = RequestCode.SEND_REPLY_MESSAGE
    return await world.terminal("10.0.0.3").ask(code, header, body=b"the answer", seconds=seconds)


def stored(world: ClientWorld) -> list[StoredMessage]:
    world.writer.make_visible()
    found = world.store.get(REPLY_TOPIC, 0, 0, 32)
    return [decode_record(record) for record in found.slices]


@pytest.mark.parametrize("kind", [SendMessageV1, SendMessageV2])
def test_reply_is_pushed_stored_and_answered(kind: type[SendMessageV1] | type[SendMessageV2]) -> None:
    async def scene(world: ClientWorld) -> None:
        asker = await requester(world)
        answer = await send_reply(world, reply_header(kind))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)

        (push,) = asker.pushed
        assert push.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        assert not push.is_oneway
        assert push.body == b"the answer"
        pushed = push.read(PushReplyMessage)
        now_ms = world.clock.time_ms()
        added = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert decode_properties((pushed.properties or "").encode()) == {
            **PROPERTIES,
            **added,
            "PUSH_REPLY_TIME": str(now_ms),
        }
        assert pushed.born_host == world.link_from("10.0.0.3").remote_address
        assert (pushed.store_host, pushed.store_timestamp_ms) == ("10.0.0.1:10911", now_ms)
        assert (pushed.producer_group, pushed.topic, pushed.queue_id) == ("replier", REPLY_TOPIC, 0)
        assert (pushed.born_timestamp_ms, pushed.flag, pushed.sys_flag) == (1_700_000_000_123, 5, 0)

        (message,) = stored(world)
        assert (message.body, message.flag, message.born_timestamp_ms) == (b"the answer", 5, 1_700_000_000_123)
        assert message.properties == {**PROPERTIES, **added}
        header = answer.read(SendMessageResponse)
        assert header.msg_id == message.offset_id
        assert decode_offset_id(header.msg_id).address == "10.0.0.1:10911"
        assert (header.queue_id, header.queue_offset) == (0, 0)
        assert answer.all_fields().items() >= added.items()
        assert (await send_reply(world)).read(SendMessageResponse).queue_offset == 1

    play(scene)


def test_reply_when_not_to_be_stored_is_answered_with_zeros() -> None:
    async def scene(world: ClientWorld) -> None:
        await requester(world)
        header = (await send_reply(world)).read(SendMessageResponse)
        assert (header.msg_id, header.queue_id, header.queue_offset) == ("0", 0, 0)
        assert stored(world) == []

    play(scene, store_reply_message_enable=False)


def test_reply_when_requester_is_unknown_is_stored_and_an_error() -> None:
    async def scene(world: ClientWorld) -> None:
        answer = await send_reply(world)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"push reply message fail, channel of <{REQUESTER}> not found."
        (message,) = stored(world)
        assert answer.read(SendMessageResponse).msg_id == message.offset_id

    play(scene)


def test_reply_when_it_names_no_requester_is_an_error() -> None:
    async def scene(world: ClientWorld) -> None:
        answer = await send_reply(world, reply_header(properties=None))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"
        assert answer.all_fields() == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}

    play(scene, store_reply_message_enable=False)


def test_reply_when_requester_refuses_it_is_an_error() -> None:
    async def scene(world: ClientWorld) -> None:
        asker = await requester(world)
        asker.answer = lambda request: request.reply(ResponseCode.SYSTEM_ERROR, remark="no")
        answer = await send_reply(world)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"push reply message to {REQUESTER}fail.")
        assert len(stored(world)) == 1

    play(scene)


def test_reply_when_requester_does_not_answer_fails_after_ten_seconds() -> None:
    async def scene(world: ClientWorld) -> None:
        asker = await requester(world)
        asker.answer = lambda request: None
        before = world.clock.monotonic()
        answer = await send_reply(world, seconds=10.0)
        assert world.clock.monotonic() - before == 10.0
        assert answer.remark == f"push reply message to {REQUESTER}fail."
        assert world.lane.in_flight == 0

    play(scene)


def test_reply_when_requester_goes_meanwhile_fails_at_once() -> None:
    async def scene(world: ClientWorld) -> None:
        asker = await requester(world)

        def leave(request: Command) -> None:
            world.network.cut("10.0.0.1", "10.0.0.2")

        asker.answer = leave
        answer = await send_reply(world)
        assert answer.remark == f"push reply message to {REQUESTER}fail."
        again = await send_reply(world)
        assert again.remark == f"push reply message fail, channel of <{REQUESTER}> not found."

    play(scene)


def test_reply_when_link_is_closing_fails_at_once() -> None:
    async def scene(world: ClientWorld) -> None:
        await requester(world)
        world.link_from("10.0.0.2").close()
        link = world.terminal("10.0.0.3")
        answer = await link.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_header(), body=b"x")
        assert answer.code == ResponseCode.SYSTEM_ERROR

    play(scene)


def test_reply_when_queue_is_left_open_gets_one() -> None:
    async def scene(world: ClientWorld) -> None:
        asker = await requester(world)
        answer = await send_reply(world, reply_header(queue_id=-1))
        assert answer.read(SendMessageResponse).queue_id == 0
        assert asker.pushed[0].read(PushReplyMessage).queue_id == -1

    play(scene)


def test_reply_when_compressed_says_so_in_the_store() -> None:
    async def scene(world: ClientWorld) -> None:
        await requester(world)
        flag = SysFlag.COMPRESSED | 0x300 | 0x4 | SysFlag.BORN_HOST_V6
        await send_reply(world, reply_header(sys_flag=flag))
        world.writer.make_visible()
        (record,) = world.store.get(REPLY_TOPIC, 0, 0, 32).slices
        assert int.from_bytes(bytes(record[36:40]), "big") == SysFlag.COMPRESSED | 0x300

    play(scene)


def test_reply_when_it_cannot_be_stored_is_still_delivered() -> None:
    async def scene(world: ClientWorld) -> None:
        asker = await requester(world)
        # Just within the limit, but for what the broker adds.
        room = PROPERTIES_SIZE_MAX - len(encode_properties(PROPERTIES)) - len("x\x01\x02")
        long = encode_properties({**PROPERTIES, "x": "y" * room}).decode()
        answer = await send_reply(world, reply_header(properties=long))
        assert answer.code == ResponseCode.SUCCESS
        assert answer.read(SendMessageResponse).msg_id == "0"
        assert len(asker.pushed) == 1
        assert stored(world) == []

    play(scene)


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"topic": "bad topic"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"topic": "none", "default_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "apply first please"),
        ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER, "request queueId[9] is illegal"),
    ],
)
def test_reply_when_a_check_fails_is_neither_pushed_nor_stored(
    fields: dict[str, Any], code: ResponseCode, words: str
) -> None:
    async def scene(world: ClientWorld) -> None:
        asker = await requester(world)
        answer = await send_reply(world, reply_header(**fields))
        assert answer.code == code
        assert words in (answer.remark or "")
        assert answer.all_fields() == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert asker.pushed == []
        assert stored(world) == []

    play(scene)


def test_push_and_answer_have_the_fields_of_java() -> None:
    golden = [frame for frame in frames("rpc") if frame.form == "json"]
    (asked,) = [f for f in golden if f.role == "request" and f.code == 325]
    (pushed,) = [f for f in golden if f.role == "request" and f.code == 326 and f.pair == "rpc.request_reply#6"]
    (answered,) = [f for f in golden if f.role == "response" and f.pair == asked.pair]

    async def scene(world: ClientWorld) -> None:
        (request,) = FrameDecoder().feed(asked.frame)
        client_id = decode_properties((asked.header.ext_fields or {})["i"].encode())["REPLY_TO_CLIENT"]
        terminal = world.terminal("10.0.0.2")
        body = dumps_fastjson(HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name="p")]))
        await terminal.ask(RequestCode.HEART_BEAT, body=body)
        answer = await world.during(world.terminal("10.0.0.3").client.request("10.0.0.1:10911", request), 0.0)
        assert (answer.code, answer.remark) == (answered.header.code, answered.header.remark)
        expected = answered.header.ext_fields or {}
        assert {**answer.all_fields(), "msgId": ""} == {**expected, "msgId": ""}
        (push,) = terminal.pushed
        theirs, ours = dict(pushed.header.ext_fields or {}), dict(push.all_fields())
        assert theirs.keys() == ours.keys()
        times_and_places = {"bornHost", "storeHost", "storeTimestamp", "properties"}
        assert {k: v for k, v in ours.items() if k not in times_and_places} == {
            k: v for k, v in theirs.items() if k not in times_and_places
        }
        our_properties = decode_properties(ours["properties"].encode())
        their_properties = decode_properties(theirs["properties"].encode())
        assert {**our_properties, "PUSH_REPLY_TIME": ""} == {**their_properties, "PUSH_REPLY_TIME": ""}
        assert push.body == pushed.body_bytes

    play(scene)
