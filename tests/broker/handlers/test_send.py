"""Sends through a whole broker: what is answered, what is stored, what is refused, and when the answer comes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.message.batch import BatchElement, join_batch
from fusee.message.flags import SysFlag, TransactionType
from fusee.message.ids import decode_offset_id
from fusee.message.model import StoredMessage
from fusee.message.properties import encode_properties
from fusee.message.topics import HALF_TOPIC, SCHEDULE_TOPIC
from fusee.store.config import FlushDiskType
from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder
from fusee.wire.headers.send import SendMessageV1, SendMessageV2
from fusee.wire.headers.transaction import EndTransaction
from tests.broker.log_world import messages_of
from tests.broker.world import (
    CLUSTER,
    HOST,
    BrokerWorld,
    Peer,
    bodies_in,
    play,
    pull_header,
    send_header,
    send_header_v1,
)
from tests.golden import GoldenFrame, frames

SYNC = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout": 5000}
ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": CLUSTER}
REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def stored(world: BrokerWorld, topic: str | None = None) -> list[StoredMessage]:
    """The messages in the log, or those of a topic."""
    world.broker.writer.make_visible()
    return [message for message in messages_of(world.broker.store) if topic in (None, message.topic)]


def success(answer: Command) -> dict[str, str]:
    assert (answer.code, answer.remark, answer.body) == (0, None, b"")
    return answer.all_fields()


def batch(*bodies: bytes, **properties: str) -> bytes:
    return join_batch([BatchElement(0, body, encode_properties(properties)) for body in bodies])


async def send_batch(peer: Peer, body: bytes, **header: Any) -> Command:
    return await peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True, **header), body=body)


# Success


@pytest.mark.parametrize("form", ["long", "short"])
def test_send_is_answered_with_the_place_of_the_message(form: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for number in range(2):
            header = send_header(queue_id=3, properties={"UNIQ_KEY": f"ID{number}"})
            if form == "long":
                answer = await peer.ask(RequestCode.SEND_MESSAGE, send_header_v1(header), body=b"hello")
            else:
                answer = await peer.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"hello")
            fields = success(answer)
            message = stored(world)[number]
            place = decode_offset_id(fields.pop("msgId"))
            assert (place.address, place.log_offset) == (f"{HOST}:10911", message.log_offset)
            assert fields == {"queueId": "3", "queueOffset": str(number), "transactionId": f"ID{number}", **REGION}
            assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 3, number)

    play(scene)


def test_message_is_stored_as_it_was_sent() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer("10.7.7.7")
        compressed = SysFlag.COMPRESSED | 0x300
        properties = {"UNIQ_KEY": "U", "TAGS": "paid", "KEYS": "a b", "mine": "é"}
        success(await peer.send(b"body", flag=17, sys_flag=compressed, reconsume_times=2, properties=properties))
        [message] = messages_of(world.broker.store)
        assert message.body == b"body"
        assert (message.flag, message.sys_flag, message.reconsume_times) == (17, compressed, 2)
        assert message.born_timestamp_ms == 1_699_999_999_000
        assert message.store_timestamp_ms == world.clock.time_ms()
        assert message.born_host.startswith("10.7.7.7:")
        assert message.store_host == f"{HOST}:10911"
        assert dict(message.properties) == {"WAIT": "true", **properties, **ADDED}

    play(scene)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("UNIQ_KEY\x01U\x02", {"UNIQ_KEY": "U"}),
        ("TAGS\x01TagV1\x02UNIQ_KEY\x01U\x02KEYS\x01k-v1", {"TAGS": "TagV1", "UNIQ_KEY": "U", "KEYS": "k-v1"}),
        ("UNIQ_KEY\x01U\x02POP_CK\x01spoof\x02a\x01b\x02", {"UNIQ_KEY": "U", "a": "b"}),
        ("MSG_REGION\x01elsewhere\x02UNIQ_KEY\x01U\x02TRACE_ON\x01false\x02", {"UNIQ_KEY": "U"}),
        ("CLUSTER\x01other\x02UNIQ_KEY\x01U\x02", {"UNIQ_KEY": "U"}),
    ],
    ids=["whole", "without an end", "reserved", "sent again", "from another cluster"],
)
def test_properties_are_kept_and_the_broker_s_own_added(given: str, kept: dict[str, str]) -> None:
    async def scene(world: BrokerWorld) -> None:
        assert success(await world.peer().send(properties=given))["transactionId"] == "U"
        [message] = stored(world)
        assert dict(message.properties) == {**kept, **ADDED}

    play(scene)


@pytest.mark.parametrize("given", ["TAGS\x01a\x02", "", "UNIQ_KEY\x01\x02"])
def test_message_without_an_id_of_its_own_gets_one(given: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        made = [success(await peer.send(properties=given))["transactionId"] for _ in range(2)]
        assert made == [message.unique_id for message in stored(world)]
        assert len(set(made)) == 2
        assert all(re.fullmatch("[0-9A-F]{32}", each) for each in made)

    play(scene)


def test_message_without_properties_at_all_is_taken() -> None:
    async def scene(world: BrokerWorld) -> None:
        header = send_header()
        header.properties = None
        success(await world.peer().ask(RequestCode.SEND_MESSAGE_V2, header, body=b""))
        [message] = stored(world)
        assert message.body == b""
        assert set(message.properties) == {"UNIQ_KEY", *ADDED}

    play(scene)


def test_negative_queue_leaves_the_choice_to_the_broker() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        chosen = [int(success(await peer.send(queue_id=-1))["queueId"]) for _ in range(40)]
        assert set(chosen) == {0, 1, 2, 3}
        assert [message.queue_id for message in stored(world)] == chosen

    play(scene)


def test_oneway_is_stored_and_not_answered_however_it_ends() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await peer.oneway(RequestCode.SEND_MESSAGE_V2, send_header(), body=b"fire")
        await peer.oneway(RequestCode.SEND_MESSAGE_V2, send_header(topic="bad topic!"), body=b"and forget")
        await peer.oneway(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), body=batch(b"a", b"b"))
        await world.advance(1.0)
        assert [message.body for message in stored(world)] == [b"fire", b"a", b"b"]
        assert world.broker.gate.waiting == 0
        success(await peer.send())

    play(scene)


def test_message_is_visible_to_whoever_asks_after_the_answer() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for number in range(3):
            success(await peer.send(b"%d" % number))
            # No time passes between the answer and the pull.
            found = await peer.pull(queue_offset=number)
            assert bodies_in(found) == [b"%d" % number]

    play(scene)


def test_sends_that_arrive_together_are_one_write() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(b"first"))
        writes = sum(step.kind == "write" and step.path.parent.name == "commitlog" for step in world.disk.operations)
        sends = [peer.begin_send(b"%d" % number) for number in range(10)]
        await world.settle()
        assert [success(send.result())["queueOffset"] for send in sends] == [str(number) for number in range(1, 11)]
        after = sum(step.kind == "write" and step.path.parent.name == "commitlog" for step in world.disk.operations)
        assert after - writes == 1

    play(scene)


@pytest.mark.parametrize("host", ["fd00::1", HOST])
def test_hosts_of_ipv6_are_stored_as_such(host: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer("fd00::9", address=world.broker.address)
        # A producer's word on the length of the host fields is never taken.
        answer = await peer.send(sys_flag=SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
        place = decode_offset_id(success(answer)["msgId"])
        [message] = stored(world)
        assert place.address == message.store_host == world.broker.address
        assert message.born_host.startswith("[fd00::9]:")
        assert bool(message.sys_flag & SysFlag.STORE_HOST_V6) == (host != HOST)
        assert message.sys_flag & SysFlag.BORN_HOST_V6
        assert bodies_in(await peer.pull()) == [b"hello"]

    play(scene, bind_address=host)


def test_false_host_flags_are_taken_away() -> None:
    async def scene(world: BrokerWorld) -> None:
        success(await world.peer().send(sys_flag=SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6))
        [message] = stored(world)
        assert (message.sys_flag, message.store_host) == (0, f"{HOST}:10911")

    play(scene)


def test_topic_of_several_tags_marks_its_messages() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders", topic_filter_type="MULTI_TAG"))
        peer = world.peer()
        success(await peer.send())
        success(await send_batch(peer, batch(b"a")))
        assert [message.sys_flag for message in stored(world)] == [SysFlag.MULTI_TAGS] * 2

    play(scene)


NAMES = (
    "UNIQ_KEY", "MY_UNIQ_KEY", "TAGS", "KEYS", "WAIT", "DELAY", "DELAYED", "TRAN_MSG", "PGROUP", "MSG_REGION",
    "CLUSTER", "TRACE_ON", "POP_CK", "INNER_NUM", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "mine", "RECONSUME_TIME",
)  # fmt: skip
ENTRIES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["true", "false", "FALSE", "1", "0", "-1", "3x", "", "\u00e9"])),
    max_size=6,
    unique_by=lambda entry: entry[0],
)
USUAL = st.lists(
    st.tuples(
        st.sampled_from(["WAIT", "TAGS", "MY_UNIQ_KEY", "mine", "TRACE_ON"]), st.sampled_from(["true", "FALSE", "x"])
    ),
    max_size=3,
    unique_by=lambda entry: entry[0],
).map(lambda entries: [*entries[:1], ("UNIQ_KEY", "U1"), *entries[1:]])


@given(
    ENTRIES | USUAL,
    st.sampled_from(["\x02", ""]),
    st.sampled_from([0, 0, 1, 4, 8, 12, 0x10, 0x300, 0x40, 0x80]),
    st.integers(0, 5),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
    st.sampled_from([2, 5]),
)
@settings(max_examples=150)
def test_short_way_and_long_way_of_a_send_lead_to_the_same(
    entries: list[tuple[str, str]],
    end: str,
    sys_flag: int,
    queue_id: int,
    reconsume_times: int | None,
    has_properties: bool,
    read_queues: int,
) -> None:
    """The long form of the header takes the long way always, the short one where nothing is unusual."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in entries) + (end if entries else "")
    header = send_header(queue_id=queue_id, sys_flag=sys_flag, reconsume_times=reconsume_times, properties=text, flag=3)
    if not has_properties:
        header.properties = None
    seen: list[Any] = []

    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=read_queues, write_queue_nums=3))
        peer = world.peer()
        assert (await peer.send(b"first")).code == 0
        for form in ("long", "short"):
            count = len(stored(world))
            world.log_thread.is_held = True
            sending = (
                peer.begin(RequestCode.SEND_MESSAGE, send_header_v1(header), body=b"body")
                if form == "long"
                else peer.begin(RequestCode.SEND_MESSAGE_V2, header, body=b"body")
            )
            await world.settle()
            is_held = not sending.done()
            world.log_thread.stop()
            await world.settle()
            answer = sending.result()
            fields = answer.all_fields()
            messages = stored(world)[count:]
            made = [message.unique_id or "" for message in messages]
            seen.append(
                (
                    *(is_held, answer.code, answer.remark, fields.keys(), fields.get("queueId")),
                    fields.get("transactionId") in made if messages else None,
                    [
                        (
                            *(message.topic, message.queue_id, message.body, message.flag, message.sys_flag),
                            message.reconsume_times,
                            {
                                name: value
                                for name, value in message.properties.items()
                                if name not in ("UNIQ_KEY", "__transactionId__")
                            },
                        )
                        for message in messages
                    ],
                )
            )

    play(scene, store=SYNC)
    assert seen[0] == seen[1]


# Batches


def test_batch_is_stored_as_its_messages_and_answered_with_all_ids() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(b"before", queue_id=1))
        answer = await send_batch(peer, batch(b"a", b"b", b"c", TAGS="t"), queue_id=1)
        fields = success(answer)
        messages = stored(world)[1:]
        assert [message.body for message in messages] == [b"a", b"b", b"c"]
        assert [message.queue_offset for message in messages] == [1, 2, 3]
        assert [dict(message.properties) for message in messages] == [{"TAGS": "t"}] * 3
        assert fields.pop("msgId").split(",") == [message.offset_id for message in messages]
        assert fields == {"queueId": "1", "queueOffset": "1", "transactionId": "ID1", **REGION}
        assert bodies_in(await peer.pull(queue_id=1)) == [b"before", b"a", b"b", b"c"]

    play(scene)


def test_batch_flag_in_a_plain_send_makes_it_a_batch() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(batch(b"a", b"b"), batch=True))
        success(await peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(), body=b"a plain message"))
        assert [message.body for message in stored(world)] == [b"a", b"b", b"a plain message"]

    play(scene)


def test_batch_chooses_a_queue_when_told_to() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        chosen = {success(await send_batch(peer, batch(b"a"), queue_id=-1))["queueId"] for _ in range(30)}
        assert chosen == {"0", "1", "2", "3"}

    play(scene)


@pytest.mark.parametrize("body", [b"", b"garbage", batch(b"a", b"b")[:-1], batch(b"x" * 4000, b"x" * 80_000)])
def test_batch_that_is_none_or_too_large_is_refused_as_a_whole(body: bytes) -> None:
    async def scene(world: BrokerWorld) -> None:
        answer = await send_batch(world.peer(), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "the message is illegal" in (answer.remark or "")
        assert answer.all_fields() == REGION
        assert stored(world) == []

    play(scene)


@pytest.mark.parametrize(
    "header",
    [
        {"properties": {"DELAY": "1"}},
        {"sys_flag": TransactionType.PREPARED},
        {"sys_flag": TransactionType.COMMIT},
        {"sys_flag": TransactionType.ROLLBACK},
    ],
)
def test_batch_that_is_delayed_or_transactional_is_refused_and_takes_no_place(header: dict[str, Any]) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(b"first"))
        answer = await send_batch(peer, batch(b"a", b"b"), **header)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.all_fields() == REGION
        assert success(await peer.send(b"second"))["queueOffset"] == "1"
        assert bodies_in(await peer.pull(queue_offset=1)) == [b"second"]

    play(scene)


def test_batch_without_an_id_of_its_own_is_told_none() -> None:
    async def scene(world: BrokerWorld) -> None:
        fields = success(await send_batch(world.peer(), batch(b"a"), properties="WAIT\x01true\x02"))
        assert "transactionId" not in fields
        assert fields["queueOffset"] == "0"

    play(scene)


def test_batch_to_a_retry_topic_is_refused() -> None:
    async def scene(world: BrokerWorld) -> None:
        answer = await send_batch(world.peer(), batch(b"a"), topic="%RETRY%g")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark == "batch request does not support retry group %RETRY%g"

    play(scene)


def test_batch_to_a_batch_topic_is_one_record_of_many_offsets() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders", attributes={"+queue.type": "BatchCQ"}))
        peer = world.peer()
        fields = success(await send_batch(peer, batch(b"a", b"b", b"c")))
        assert (fields["queueOffset"], fields["batchUniqId"], fields["transactionId"]) == ("0", "ID1", "ID1")
        assert success(await send_batch(peer, batch(b"d")))["queueOffset"] == "3"
        first, second = stored(world)
        assert first.sys_flag & SysFlag.INNER_BATCH
        assert first.properties["INNER_NUM"] == "3"
        assert (second.queue_offset, second.properties["INNER_NUM"]) == (3, "1")

    play(scene)


# Refusals


def sendings() -> list[GoldenFrame]:
    return [frame for frame in frames("raw") if frame.name.startswith("raw.send_")]


@pytest.mark.parametrize(
    "pair", sorted({frame.pair for frame in sendings() if frame.name != "raw.send_missing_header"})
)
def test_answer_is_the_reference_s(pair: str) -> None:
    request, expected = (frame for frame in sendings() if frame.pair == pair)
    [command] = FrameDecoder().feed(request.frame)

    async def scene(world: BrokerWorld) -> None:
        for name in ("Golden", "GoldenBin", "GoldenBinB"):
            world.broker.topics.put(TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4))
        header = command.read(SendMessageV1 if command.code == RequestCode.SEND_MESSAGE else SendMessageV2)
        answer = await world.peer().ask(RequestCode(command.code), header, body=command.body)
        assert answer.code == expected.header.code
        peer_address = re.compile(r"Producer: [0-9.:]+")
        assert peer_address.sub("", answer.remark or "") == peer_address.sub("", expected.header.remark or "")
        fields, theirs = answer.all_fields(), dict(expected.header.ext_fields or {})
        assert fields.keys() == theirs.keys()
        assert {name: fields[name] for name in REGION} == {name: theirs[name] for name in REGION}

    limit = re.search("msg body length limit ([0-9]+)B", expected.header.remark or "")
    play(scene, store={"max_message_size": int(limit[1]) if limit else 32_768})


def test_send_without_its_fields_is_an_error_and_the_connection_lives() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
            answer = await peer.ask(code, body=b"x")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark
        success(await peer.send())

    play(scene)


@pytest.mark.parametrize("size", [8 * 1024, 8 * 1024 + 1])
def test_body_over_the_limit_is_refused_with_the_limit(size: int) -> None:
    async def scene(world: BrokerWorld) -> None:
        answer = await world.peer().send(b"x" * size)
        if size == 8 * 1024:
            success(answer)
        else:
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "msg body length limit 8192B" in (answer.remark or "")
            assert stored(world) == []

    play(scene)


@pytest.mark.parametrize(
    ("properties", "sys_flag"), [({"INNER_NUM": "3"}, 0), ({}, SysFlag.INNER_BATCH), ({"INNER_NUM": "3"}, 0x80)]
)
def test_message_that_claims_to_be_a_batch_is_refused(properties: dict[str, str], sys_flag: int) -> None:
    async def scene(world: BrokerWorld) -> None:
        answer = await world.peer().send(properties=properties, sys_flag=sys_flag)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.all_fields() == REGION
        assert stored(world) == []

    play(scene)


def test_inner_batch_of_a_client_is_taken_where_the_topic_holds_batches() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders", attributes={"+queue.type": "BatchCQ"}))
        peer = world.peer()
        flags = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
        success(await peer.send(batch(b"a", b"b"), properties={"INNER_NUM": "2"}, sys_flag=flags))
        assert success(await peer.send(b"plain"))["queueOffset"] == "2"

    play(scene)


def test_compacted_topic_needs_keys() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders", attributes={"+cleanup.policy": "COMPACTION"}))
        peer = world.peer()
        answer = await peer.send()
        assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        success(await peer.send(properties={"KEYS": "k"}))

    play(scene)


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
def test_arbitrary_delivery_time_is_refused_and_never_delivered_at_once(name: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        answer = await peer.send(properties={name: "10"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "timer message is not enabled" in (answer.remark or "")
        assert stored(world) == []
        # A delay level goes before it, as in the reference.
        success(await peer.send(properties={name: "10", "DELAY": "1"}))
        [message] = stored(world)
        assert message.topic == SCHEDULE_TOPIC
        assert name not in message.properties

    play(scene)


def test_settings_that_change_are_seen_by_the_next_send() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders", order=True))
        peer = world.peer()
        for _ in range(2):
            success(await peer.send())
        for change, code in (
            (b"brokerPermission=4", ResponseCode.NO_PERMISSION),
            (b"brokerPermission=6", ResponseCode.SUCCESS),
            (b"startAcceptSendRequestTimeStamp=1900000000000", ResponseCode.SYSTEM_ERROR),
            (b"startAcceptSendRequestTimeStamp=0", ResponseCode.SUCCESS),
        ):
            assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change)).code == 0
            assert (await peer.send()).code == code
            assert (await peer.send()).code == code

    play(scene)


def test_topic_that_changes_is_seen_by_the_next_send() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for _ in range(2):
            success(await peer.send(queue_id=3))
        world.broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=3, write_queue_nums=3))
        assert (await peer.send(queue_id=3)).code == ResponseCode.INVALID_PARAMETER
        success(await peer.send(queue_id=2))
        assert (await peer.send(queue_id=3)).code == ResponseCode.INVALID_PARAMETER
        world.broker.topics.put(TopicConfig(topic_name="orders", topic_filter_type="MULTI_TAG"))
        success(await peer.send())
        assert stored(world)[-1].sys_flag == SysFlag.MULTI_TAGS
        world.broker.topics.delete("orders")
        assert (await peer.send(default_topic="none")).code == ResponseCode.TOPIC_NOT_EXIST

    play(scene)


def test_slave_refuses_and_stores_nothing() -> None:
    async def scene(world: BrokerWorld) -> None:
        answer = await world.peer().send()
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert stored(world) == []

    play(scene, broker_id=1, broker_role="SLAVE")


# When the answer comes


def test_sync_flush_answers_when_the_disk_has_it() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer, other = world.peer(), world.peer("10.0.0.8")
        world.log_thread.is_held = True
        first = peer.begin_send(b"a")
        await world.settle()
        rest = [peer.begin_send(b"b"), other.begin_send(b"c")]
        await world.advance(1.0)
        assert not first.done()
        world.log_thread.release()
        await world.settle()
        success(first.result())
        assert not any(send.done() for send in rest)
        assert world.log_thread.release() == 1, "one sync for all that came meanwhile"
        await world.settle()
        for send in rest:
            success(send.result())

    play(scene, store=SYNC)


def test_message_that_does_not_wait_is_not_held_up_by_the_disk() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        world.log_thread.is_held = True
        success(await peer.send(properties={"WAIT": "false"}))
        success(await peer.send(properties={"WAIT": "FALSE"}))
        success(await send_batch(peer, batch(b"a"), properties={"WAIT": "FALSE"}))
        held = [peer.begin_send(properties={"WAIT": value}) for value in ("true", "TRUE")]
        held.append(peer.begin_send(properties="UNIQ_KEY\x01U\x02"))
        await world.settle()
        assert not any(send.done() for send in held)

    play(scene, store=SYNC)


def test_disk_that_does_not_answer_is_told_by_code_10() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        world.log_thread.is_held = True
        sending = peer.begin_send()
        await world.advance(4.9)
        assert not sending.done()
        await world.advance(0.3)
        answer = sending.result()
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert answer.all_fields()["queueOffset"] == "0"
        assert bodies_in(await peer.pull()) == [b"hello"], "stored, though not known to be on the disk"

    play(scene, store=SYNC)


def test_sends_over_the_limit_are_refused_at_once() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        world.log_thread.is_held = True
        waiting = [peer.begin_send() for _ in range(3)]
        await world.settle()
        refused = await peer.send()
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "lane send is full: 3 requests unfinished, limit 3" in (refused.remark or "")
        assert (await peer.pull()).code == 0
        world.log_thread.is_held = False
        world.log_thread.release()
        await world.settle()
        for send in waiting:
            success(send.result())
        success(await peer.send())

    play(scene, store=SYNC, send_thread_pool_queue_capacity=3)


def test_full_disk_refuses_with_code_14_reads_go_on_and_it_works_again_with_space() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(b"kept"))
        await world.advance(2.0)
        world.disk.capacity = world.disk.used + 4096
        answers = [await peer.send(b"%02d" % number * 1000) for number in range(8)]
        codes = [answer.code for answer in answers]
        assert codes == sorted(codes), "once it is full, everything is refused"
        assert codes[-1] == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "the broker's disk is full" in (answers[-1].remark or "")
        assert answers[-1].all_fields() == REGION
        refused = await send_batch(peer, batch(b"a"))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert bodies_in(await peer.pull()) == [b"kept"]
        assert len(bodies_in(await peer.pull(queue_offset=1))) == codes.count(0) > 0
        world.disk.capacity *= 100
        await world.advance(11.0)
        assert success(await peer.send(b"again"))["queueOffset"] == str(1 + codes.count(0))

    play(scene)


def test_failed_disk_refuses_everything_more() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(b"kept"))
        world.disk.fail_sync(under=world.broker.store.paths.commit_log)
        assert (await peer.send()).code == ResponseCode.FLUSH_DISK_TIMEOUT
        answer = await peer.send()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "restart the broker" in (answer.remark or "")
        assert world.broker.failure is not None
        assert bodies_in(await peer.pull())[0] == b"kept"

    play(scene, store=SYNC)


# Delayed, transactional and retried messages


@pytest.mark.parametrize(("level", "seconds"), [("1", 1.0), ("3", 10.0), ("99", 30.0)])
def test_delayed_message_comes_when_its_time_has_come(level: str, seconds: float) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(properties={"DELAY": level, "TAGS": "t"}, queue_id=2))
        pulling = peer.begin_pull(queue_id=2, hold_ms=100_000)
        await world.advance(seconds - 0.1)
        assert not pulling.done()
        await world.advance(0.2)
        [message] = [message for message in stored(world) if message.topic == "orders"]
        assert bodies_in(pulling.result()) == [b"hello"]
        assert message.properties["TAGS"] == "t"

    play(scene)


@pytest.mark.parametrize("level", ["none", "1.5"])
def test_delay_that_is_no_number_is_refused(level: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        answer = await world.peer().send(properties={"DELAY": level})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert stored(world) == []

    play(scene)


@pytest.mark.parametrize("level", ["0", "-1"])
def test_delay_that_is_none_is_no_delay(level: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(properties={"DELAY": level}))
        assert bodies_in(await peer.pull()) == [b"hello"]

    play(scene)


async def prepare(peer: Peer, **properties: str) -> EndTransaction:
    """Send half a message; the decision about it, still open."""
    answer = await peer.send(
        b"maybe",
        queue_id=1,
        sys_flag=TransactionType.PREPARED,
        properties={"TRAN_MSG": "true", "PGROUP": "producers", **properties},
        born_timestamp_ms=peer.world.clock.time_ms(),
    )
    fields = success(answer)
    return EndTransaction(
        producer_group="producers",
        half_queue_offset=int(fields["queueOffset"]),
        log_offset=decode_offset_id(fields["msgId"]).log_offset,
        commit_or_rollback=0,
        msg_id="ID1",
        transaction_id=fields["transactionId"],
    )


def test_transaction_is_seen_when_it_is_committed_and_never_when_rolled_back() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        kept, dropped = await prepare(peer), await prepare(peer)
        assert [message.topic for message in stored(world)] == [HALF_TOPIC] * 2
        assert (await peer.pull(queue_id=1)).code == ResponseCode.PULL_NOT_FOUND
        kept.commit_or_rollback, dropped.commit_or_rollback = TransactionType.COMMIT, TransactionType.ROLLBACK
        assert (await peer.ask(RequestCode.END_TRANSACTION, kept)).code == 0
        assert (await peer.ask(RequestCode.END_TRANSACTION, dropped)).code == 0
        found = await peer.pull(queue_id=1)
        assert bodies_in(found) == [b"maybe"]
        await world.advance(120.0)
        assert (await peer.pull(queue_id=1, queue_offset=1)).code == ResponseCode.PULL_NOT_FOUND

    play(scene)


def test_producer_is_asked_about_a_transaction_that_it_left_open() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        assert (await peer.beat(producer_group="producers")).code == 0
        decision = await prepare(peer)
        await world.advance(5.0)
        assert peer.asked == []
        await world.advance(60.0)
        assert {request.code for request in peer.asked} == {RequestCode.CHECK_TRANSACTION_STATE}
        asked = peer.asked[0].all_fields()
        decision.half_queue_offset = int(asked["tranStateTableOffset"])
        decision.log_offset = int(asked["commitLogOffset"])
        decision.commit_or_rollback, decision.from_transaction_check = TransactionType.COMMIT, True
        assert (await peer.ask(RequestCode.END_TRANSACTION, decision)).code == 0
        assert bodies_in(await peer.pull(queue_id=1)) == [b"maybe"]
        count = len(peer.asked)
        await world.advance(120.0)
        assert len(peer.asked) == count

    play(scene)


def test_transactions_may_be_switched_off_while_the_broker_runs() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await prepare(peer)
        update = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"rejectTransactionMessage=true")
        assert update.code == 0, update.remark
        answer = await peer.send(properties={"TRAN_MSG": "true", "PGROUP": "p"}, sys_flag=TransactionType.PREPARED)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            f"the broker[{HOST}] sending transaction message is forbidden",
        )
        success(await peer.send())

    play(scene)


def test_half_flag_alone_makes_a_message_that_nobody_sees_and_wakes_nobody() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(b"first"))
        pulling = peer.begin_pull(queue_offset=1, hold_ms=5000)
        await world.settle()
        success(await peer.send(sys_flag=TransactionType.PREPARED))
        await world.advance(1.0)
        assert not pulling.done()
        success(await peer.send(b"second"))
        await world.settle()
        assert bodies_in(pulling.result()) == [b"second"]

    play(scene)


@pytest.mark.parametrize(
    ("tries", "most", "topic"),
    [(3, None, "%RETRY%g"), (16, None, "%RETRY%g"), (17, None, "%DLQ%g"), (3, 2, "%DLQ%g"), (2, 2, "%RETRY%g")],
)
def test_message_that_was_tried_too_often_goes_to_the_dead_letters(tries: int, most: int | None, topic: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=16))
        answer = await world.peer().send(topic="%RETRY%g", reconsume_times=tries, max_reconsume_times=most)
        success(answer)
        [message] = stored(world)
        assert (message.topic, message.reconsume_times) == (topic, tries)
        made = world.broker.topics.get(topic)
        assert made is not None
        assert made.write_queue_nums == (1 if topic == "%DLQ%g" else 4)

    play(scene)


def test_message_of_a_group_in_order_goes_to_the_dead_letters_at_once() -> None:
    async def scene(world: BrokerWorld) -> None:
        queue = QueueRef(broker_name="broker-a", queue_id=0, topic="orders")
        world.broker.locks.lock("g", "client", [queue])
        success(await world.peer().send(topic="%RETRY%g", reconsume_times=1))
        [message] = stored(world)
        assert message.topic == "%DLQ%g"

    play(scene)


def test_unknown_group_has_no_retries() -> None:
    async def scene(world: BrokerWorld) -> None:
        answer = await world.peer().send(topic="%RETRY%g")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "subscription group not exist, g" in (answer.remark or "")
        assert answer.all_fields() == REGION

    play(scene, auto_create_subscription_group=False)


def test_retry_with_a_delay_waits_and_then_comes_to_its_group() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        success(await peer.send(b"again", topic="%RETRY%g", reconsume_times=1, properties={"DELAY": "2"}))
        assert (await peer.pull(topic="%RETRY%g", group="g")).code == ResponseCode.PULL_NOT_FOUND
        await world.advance(5.1)
        header = pull_header(topic="%RETRY%g", group="g")
        assert bodies_in(await peer.ask(RequestCode.PULL_MESSAGE, header)) == [b"again"]

    play(scene)
