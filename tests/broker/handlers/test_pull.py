"""Pulls through a whole broker: every code and the order of checks, filters, and pulls that are held."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fusee.message.batch import BatchElement, join_batch
from fusee.message.flags import TransactionType
from fusee.message.ids import decode_offset_id
from fusee.store.config import FlushDiskType
from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.bodies.topic import PERM_READ, PERM_WRITE, TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder
from fusee.wire.headers.pull import PullMessage
from fusee.wire.headers.transaction import EndTransaction
from tests.broker.world import (
    HOST,
    OLD_VERSION,
    BrokerWorld,
    Peer,
    bodies_in,
    messages_in,
    play,
    pull_header,
    send_header,
)
from tests.golden import GoldenFrame, frames

NOT_FOUND = ResponseCode.PULL_NOT_FOUND
RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED


async def fill(peer: Peer, *bodies: bytes, **header: Any) -> None:
    for body in bodies:
        assert (await peer.send(body, **header)).code == 0


def place(answer: Command) -> tuple[int, int, int]:
    """(next offset, min offset, max offset)."""
    fields = answer.all_fields()
    return int(fields["nextBeginOffset"]), int(fields["minOffset"]), int(fields["maxOffset"])


def outcome(answer: Command) -> tuple[int, str | None, int]:
    """(code, remark, next offset)."""
    return answer.code, answer.remark, place(answer)[0]


# What is found


def test_pull_gives_the_messages_as_they_lie_in_the_log() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a", b"b", b"c", queue_id=1, properties={"TAGS": "t"})
        answer = await peer.pull(queue_id=1, queue_offset=1)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert bodies_in(answer) == [b"b", b"c"]
        assert [message.queue_offset for message in messages_in(answer)] == [1, 2]
        assert place(answer) == (3, 0, 3)
        assert answer.all_fields() == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "3",
            "minOffset": "0",
            "maxOffset": "3",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }

    play(scene)


@pytest.mark.parametrize("queue_offset", [0, 1])
def test_flags_of_topic_and_group_are_told_with_messages_and_without(queue_offset: int) -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders", topic_sys_flag=3))
        world.broker.groups.put(SubscriptionGroupConfig(group_name="consumers", group_sys_flag=5))
        peer = world.peer()
        await fill(peer, b"a")
        fields = (await peer.pull(queue_offset=queue_offset)).all_fields()
        assert (fields["topicSysFlag"], fields["groupSysFlag"]) == ("3", "5")

    play(scene)


def test_pull_takes_no_more_than_it_is_allowed() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, *(b"%02d" % number for number in range(40)))
        assert len(bodies_in(await peer.pull())) == 32
        assert len(bodies_in(await peer.pull(max_messages=100))) == 32
        assert len(bodies_in(await peer.pull(max_messages=3))) == 3
        answer = await peer.pull(max_bytes=1000)
        assert 1 < len(bodies_in(answer)) < 8
        assert len(answer.body) <= 1000
        assert len(bodies_in(await peer.pull(max_bytes=1))) == 1, "the first one always comes"
        assert len(bodies_in(await peer.pull(queue_offset=32))) == 8

    play(scene, store={"mapped_file_size_consume_queue": 20 * 100})


def test_messages_of_several_segments_come_in_one_answer() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        bodies = [b"%d" % number * 4000 for number in range(6)]
        await fill(peer, *bodies)
        assert len(world.broker.store.log.segments()) > 1
        answer = await peer.pull()
        assert bodies_in(answer) == bodies

    play(scene)


def test_lite_pull_is_served_as_a_pull() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a")
        answer = await peer.ask(RequestCode.LITE_PULL_MESSAGE, pull_header())
        assert bodies_in(answer) == [b"a"]

    play(scene)


# What is not found


def test_offset_outside_of_the_queue_is_answered_with_where_to_go_on() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a", b"b")
        assert outcome(await peer.pull(queue_offset=2)) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 2)
        assert outcome(await peer.pull(queue_offset=3)) == (MOVED, "OFFSET_OVERFLOW_BADLY", 2)
        assert outcome(await peer.pull(queue_id=1)) == (NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", 0)
        assert outcome(await peer.pull(queue_id=1, queue_offset=7)) == (MOVED, "NO_MATCHED_LOGIC_QUEUE", 0)
        assert outcome(await peer.pull(queue_offset=-1)) == (MOVED, "OFFSET_TOO_SMALL", 0)

    play(scene)


def test_offset_that_has_expired_moves_to_the_first_that_is_there() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for number in range(25):
            await fill(peer, b"%d" % number * 1500)
        await world.advance(2.0)
        world.clock.jump_wall(100 * 3_600_000)
        world.broker.store.retention.delete_by_hand()
        await world.advance(10.0)
        first = world.broker.store.min_offset("orders", 0)
        assert first > 0
        assert outcome(await peer.pull()) == (MOVED, "OFFSET_TOO_SMALL", first)
        assert (await peer.pull(queue_offset=first)).code == 0

    play(scene)


def test_filter_that_wants_nothing_says_how_far_it_looked() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a", b"b", properties={"TAGS": "red"})
        assert outcome(await peer.pull(subscription="blue")) == (RETRY, "NO_MATCHED_MESSAGE", 2)

    play(scene)


def test_slave_never_moves_a_consumer() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        world.broker.groups.put(SubscriptionGroupConfig(group_name="consumers", broker_id=2))
        answer = await world.peer().pull(queue_offset=7)
        assert answer.code == RETRY
        assert answer.all_fields()["suggestWhichBrokerId"] == "2"

    play(scene, broker_id=1, broker_role="SLAVE")


@pytest.mark.parametrize(("ratio", "suggested"), [(40, "7"), (0, "9")])
def test_consumer_that_is_far_behind_is_sent_to_a_slave_where_that_is_allowed(ratio: int, suggested: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        group = SubscriptionGroupConfig(group_name="consumers", broker_id=7, which_broker_when_consume_slowly=9)
        world.broker.groups.put(group)
        peer = world.peer()
        await fill(peer, b"a")
        assert (await peer.pull()).all_fields()["suggestWhichBrokerId"] == "0"
        await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"slaveReadEnable=true")
        assert (await peer.pull()).all_fields()["suggestWhichBrokerId"] == suggested

    play(scene, store={"access_message_in_memory_max_ratio": ratio})


# Checks


def pullings() -> list[GoldenFrame]:
    return [
        frame
        for frame in frames("raw")
        # Where the reference gives everything to an expression that it cannot read, this says so.
        if frame.name.startswith("raw.pull_") and frame.name != "raw.pull_bad_sql"
    ]


@pytest.mark.parametrize("pair", sorted({frame.pair for frame in pullings()}))
def test_answer_is_the_reference_s(pair: str) -> None:
    request, expected = (frame for frame in pullings() if frame.pair == pair)
    [command] = FrameDecoder().feed(request.frame)

    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for name in ("Golden", "GoldenBin", "GoldenBinB"):
            world.broker.topics.put(TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4))
            count = int((expected.header.ext_fields or {}).get("maxOffset", 0))
            await fill(peer, *[b"x"] * count, topic=name)
        answer = await peer.ask(RequestCode(command.code), command.read(PullMessage))
        assert answer.code == expected.header.code
        address = re.compile(r"consumer:\[/[0-9.:]+\]")
        assert address.sub("", answer.remark or "") == address.sub("", expected.header.remark or "")
        assert answer.all_fields() == (expected.header.ext_fields or {})

    play(scene)


def forbidden(answer: Command) -> str:
    """Why a pull is forbidden, by the reference's number."""
    assert answer.code == ResponseCode.NO_PERMISSION
    return answer.all_fields()["forbiddenType"]


def test_faults_are_told_in_the_reference_s_order() -> None:
    """The request has every fault; mending one brings up the next."""

    async def scene(world: BrokerWorld) -> None:
        broker, peer = world.broker, world.peer()
        group = SubscriptionGroupConfig(group_name="consumers", consume_enable=False, consume_broadcast_enable=False)

        async def pull() -> Command:
            header = pull_header(queue_id=9, subscription=None, sub_version=5)
            return await peer.ask(RequestCode.LITE_PULL_MESSAGE, header)

        async def set_to(text: bytes) -> None:
            assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text)).code == 0

        answer = await pull()
        assert forbidden(answer) == "1"
        assert answer.remark == f"the broker[{HOST}] pulling message is forbidden"
        await set_to(b"brokerPermission=6")
        answer = await pull()
        assert forbidden(answer) == "1"
        assert answer.remark == f"the broker[{HOST}] for lite pull consumer is forbidden"
        await set_to(b"litePullMessageEnable=true")
        answer = await pull()
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (answer.remark or "").startswith("subscription group [consumers] does not exist, ")
        broker.groups.put(group)
        answer = await pull()
        assert forbidden(answer) == "2"
        assert answer.remark == "subscription group no permission, consumers"
        group = SubscriptionGroupConfig(group_name="consumers", consume_broadcast_enable=False)
        broker.groups.put(group)
        assert (await pull()).code == ResponseCode.TOPIC_NOT_EXIST
        broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=4, perm=PERM_WRITE))
        answer = await pull()
        assert forbidden(answer) == "3"
        assert answer.remark == "the topic[orders] pulling message is forbidden"
        broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=4, perm=PERM_READ))
        assert (await pull()).code == ResponseCode.INVALID_PARAMETER
        broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=10))
        answer = await pull()
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert (answer.remark or "").startswith("the consumer's group info not exist\nSee ")
        broker.groups.set_readable("consumers", "orders", False)
        await peer.beat(group="consumers", wants={"other": "*"}, message_model="BROADCASTING")
        answer = await pull()
        assert forbidden(answer) == "4"
        assert answer.remark == "the consumer group[consumers] can not consume by broadcast way"
        await peer.beat(group="consumers", wants={"other": "*"})
        answer = await pull()
        assert forbidden(answer) == "5"
        assert answer.remark == "the consumer group[consumers] is forbidden for topic[orders]"
        broker.groups.set_readable("consumers", "orders", True)
        answer = await pull()
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert (answer.remark or "").startswith("the consumer's subscription not exist\nSee ")
        await peer.beat(group="consumers", wants={"orders": "a >"}, expression_type="SQL92", version=4)
        answer = await pull()
        assert (answer.code, answer.remark) == (
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        )
        await peer.beat(group="consumers", wants={"orders": "a >"}, expression_type="SQL92", version=5)
        answer = await pull()
        assert (answer.code, answer.remark) == (
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        )
        await peer.beat(group="consumers", wants={"orders": "a > 1"}, expression_type="SQL92", version=6)
        answer = await pull()
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92",
        )
        await set_to(b"enablePropertyFilter=true")
        assert (await pull()).code == NOT_FOUND

    play(
        scene,
        broker_permission=PERM_WRITE,
        lite_pull_message_enable=False,
        auto_create_subscription_group=False,
    )


def test_queue_must_exist_for_reading() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=8))
        peer = world.peer()
        assert (await peer.pull(queue_id=1)).code == NOT_FOUND
        for queue_id in (-1, 2):
            assert (await peer.pull(queue_id=queue_id)).code == ResponseCode.INVALID_PARAMETER

    play(scene)


@pytest.mark.parametrize(("expression", "kind"), [("a >", "SQL92"), ("a", "XPATH"), ("", "SQL92")])
def test_expression_in_the_request_that_cannot_be_read_is_refused(expression: str, kind: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        answer = await world.peer().pull(subscription=expression, expression_type=kind)
        assert (answer.code, answer.remark) == (
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        )

    play(scene, enable_property_filter=True)


def test_consumer_that_sends_no_heartbeat_may_be_rejected() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a")
        answer = await peer.pull()
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert "pull consumer is rejected by server" in (answer.remark or "")
        assert (await peer.pull(group="CID_RMQ_SYS_TRANS")).code == 0
        await peer.beat(group="consumers", wants={"orders": "*"})
        assert (await peer.pull()).code == 0

    play(scene, reject_pull_consumer_enable=True)


def test_pull_without_its_fields_is_an_error_and_the_connection_lives() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        assert (await peer.ask(RequestCode.PULL_MESSAGE)).code == ResponseCode.SYSTEM_ERROR
        await fill(peer, b"a")
        assert (await peer.pull()).code == 0

    play(scene)


# Filters


def test_tags_of_the_request_filter() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for tag in ("red", "green", "blue", "red"):
            await fill(peer, tag.encode(), properties={"TAGS": tag})
        await fill(peer, b"none")
        assert bodies_in(await peer.pull(subscription="red")) == [b"red", b"red"]
        assert bodies_in(await peer.pull(subscription="red || blue")) == [b"red", b"blue", b"red"]
        answer = await peer.pull(subscription="green")
        assert (bodies_in(answer), place(answer)[0]) == ([b"green"], 5)
        assert len(bodies_in(await peer.pull(subscription=""))) == 5

    play(scene)


def test_heartbeats_say_what_is_wanted_when_the_request_does_not() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for tag in ("red", "green"):
            await fill(peer, tag.encode(), properties={"TAGS": tag})
        await peer.beat(group="consumers", wants={"orders": "green"}, version=1)
        assert bodies_in(await peer.pull(subscription=None)) == [b"green"]
        assert bodies_in(await peer.pull(subscription=None, sub_version=1)) == [b"green"]
        await peer.beat(group="consumers", wants={"orders": "red"}, version=2)
        assert bodies_in(await peer.pull(subscription=None, sub_version=2)) == [b"red"]
        assert bodies_in(await peer.pull(subscription=None, sub_version=1)) == [b"red"], "an older pull is served"

    play(scene)


def test_properties_filter_by_sql() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for number in range(5):
            await fill(peer, b"%d" % number, properties={"n": str(number)})
        sql = {"expression_type": "SQL92"}
        assert bodies_in(await peer.pull(subscription="n > 2", **sql)) == [b"3", b"4"]
        assert outcome(await peer.pull(subscription="n > 7", **sql)) == (RETRY, "NO_MATCHED_MESSAGE", 5)
        await peer.beat(group="consumers", wants={"orders": "n = 1"}, expression_type="SQL92")
        assert bodies_in(await peer.pull(subscription=None)) == [b"1"]
        await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"enablePropertyFilter=false")
        refused = await peer.pull(subscription="n > 2", **sql)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark == "The broker does not support consumer to filter message by SQL92"

    play(scene, enable_property_filter=True)


@pytest.mark.parametrize(("supported", "bodies"), [(False, [b"1", b"2"]), (True, [b"2"])])
def test_sql_filters_retries_only_where_that_is_set(supported: bool, bodies: list[bytes]) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for number in (1, 2):
            await fill(peer, b"%d" % number, topic="%RETRY%consumers", properties={"n": str(number)})
        answer = await peer.pull(topic="%RETRY%consumers", subscription="n = 2", expression_type="SQL92")
        assert bodies_in(answer) == bodies

    play(scene, enable_property_filter=True, filter_support_retry=supported)


# Offsets


def test_pull_commits_the_offset_that_it_carries() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a", b"b", b"c")
        offsets = world.broker.offsets
        await peer.pull(queue_offset=2, commit_offset=2, sys_flag=4)
        assert offsets.query("consumers", "orders", 0) == -1
        await peer.pull(queue_offset=2, commit_offset=2, sys_flag=4 | 1)
        assert offsets.query("consumers", "orders", 0) == 2
        assert offsets.query_pull_offset("consumers", "orders", 0) == 3
        held = peer.begin_pull(queue_offset=3, commit_offset=3, sys_flag=4 | 2 | 1, suspend_timeout_ms=1000)
        await world.settle()
        assert not held.done()
        assert offsets.query("consumers", "orders", 0) == 3

    play(scene)


def test_pull_that_carries_a_smaller_offset_takes_nobody_back() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a", b"b", b"c")
        offsets = world.broker.offsets
        offsets.commit("consumers", "orders", 0, 3)
        await peer.pull(queue_offset=2, commit_offset=2, sys_flag=4 | 1)
        assert offsets.query("consumers", "orders", 0) == 3

    play(scene)


def test_reset_by_the_server_moves_the_next_pull_once() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a", b"b", b"c")
        world.broker.offsets.set_reset("orders", "consumers", 0, 1)
        assert outcome(await peer.pull(queue_offset=3, hold_ms=5000)) == (MOVED, "OFFSET_RESET", 1)
        assert bodies_in(await peer.pull(queue_offset=1)) == [b"b", b"c"]
        assert world.broker.offsets.query("consumers", "orders", 0) == 1

    play(scene)


# Holding


def test_pull_at_the_end_is_held_and_answered_on_arrival() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer, producer = world.peer(), world.peer("10.0.0.8")
        await fill(producer, b"a")
        mine, other = peer.begin_pull(queue_offset=1, hold_ms=15_000), peer.begin_pull(queue_id=1, hold_ms=15_000)
        await world.advance(3.0)
        assert not mine.done()
        assert len(world.broker.holds) == 2
        sent = producer.begin_send(b"b")
        await world.settle()
        assert sent.result().code == 0
        assert bodies_in(mine.result()) == [b"b"]
        assert place(mine.result()) == (2, 0, 2)
        assert not other.done()

    play(scene)


def test_pull_is_held_for_a_topic_without_a_message() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        pulling = peer.begin_pull(hold_ms=15_000)
        moved = await peer.pull(queue_offset=5, hold_ms=15_000)
        assert moved.code == MOVED, "an offset that cannot be is answered at once"
        await fill(peer, b"first")
        assert bodies_in(pulling.result()) == [b"first"]

    play(scene)


def test_pull_that_may_not_be_held_is_answered_at_once() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a")
        assert (await peer.pull(queue_offset=1, suspend_timeout_ms=15_000)).code == NOT_FOUND
        assert len(world.broker.holds) == 0

    play(scene)


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 3.0),
        ({"long_polling_enable": False}, 1.0),
        ({"long_polling_enable": False, "short_polling_time_mills": 500}, 0.5),
        ({"suspend_timeout_max": 2000}, 2.0),
    ],
)
def test_held_pull_is_answered_at_its_deadline(settings: dict[str, Any], seconds: float) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a")
        pulling = peer.begin_pull(queue_offset=1, hold_ms=3000)
        await world.advance(seconds - 0.05)
        assert not pulling.done()
        await world.advance(0.15)
        assert outcome(pulling.result()) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 1)
        assert len(world.broker.holds) == 0

    play(scene, **settings)


@pytest.mark.parametrize(
    ("wanted", "kind"), [("blue", "TAG"), ("TAGS = 'blue'", "SQL92")], ids=["by tag", "by property"]
)
def test_hold_whose_filter_wants_nothing_of_what_came_stays_and_goes_on_from_there(wanted: str, kind: str) -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a")
        want: dict[str, Any] = {"subscription": wanted, "expression_type": kind, "queue_offset": 1}
        first = peer.begin_pull(hold_ms=15_000, **want)
        second = peer.begin_pull(hold_ms=3_000, **want)
        await world.settle()
        await fill(peer, b"b", b"c", properties={"TAGS": "red"})
        await world.settle()
        assert not first.done()
        assert not second.done()
        await world.advance(3.2)
        assert outcome(second.result()) == (RETRY, "NO_MATCHED_MESSAGE", 3), "the client need not look at these again"
        await fill(peer, b"d", properties={"TAGS": "blue"})
        assert bodies_in(first.result()) == [b"d"]
        assert place(first.result())[0] == 4

    play(scene, enable_property_filter=True)


def test_hold_looks_beyond_what_one_look_covers() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        await fill(peer, b"a")
        pulling = peer.begin_pull(queue_offset=1, hold_ms=15_000, subscription="blue", max_messages=1)
        await world.settle()
        await fill(peer, *[b"x"] * 12, properties={"TAGS": "red"})
        await fill(peer, b"wanted", properties={"TAGS": "blue"})
        await world.settle()
        assert bodies_in(pulling.result()) == [b"wanted"]

    # One get looks at three entries of a queue.
    play(scene, store={"max_filter_message_size": 60})


def test_held_pull_is_woken_by_whatever_brings_a_message() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer, consumer = world.peer(), world.peer("10.0.0.8")
        await fill(peer, b"a")

        def hold(queue_offset: int) -> Any:
            return consumer.begin_pull(queue_offset=queue_offset, hold_ms=60_000)

        pulling = hold(1)
        await world.settle()
        body = join_batch([BatchElement(0, b"one", b""), BatchElement(0, b"two", b"")])
        await peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), body=body)
        assert bodies_in(pulling.result()) == [b"one", b"two"]
        pulling = hold(3)
        await fill(peer, b"delayed", properties={"DELAY": "1"})
        await world.advance(0.9)
        assert not pulling.done()
        await world.advance(0.2)
        assert bodies_in(pulling.result()) == [b"delayed"]
        pulling = hold(4)
        await world.settle()
        half = await peer.send(
            b"transaction", sys_flag=TransactionType.PREPARED, properties={"TRAN_MSG": "true", "PGROUP": "p"}
        )
        assert not pulling.done()
        decision = EndTransaction(
            producer_group="p",
            half_queue_offset=int(half.all_fields()["queueOffset"]),
            log_offset=decode_offset_id(half.all_fields()["msgId"]).log_offset,
            commit_or_rollback=TransactionType.COMMIT,
            msg_id="ID1",
        )
        assert (await peer.ask(RequestCode.END_TRANSACTION, decision)).code == 0
        await world.settle()
        assert bodies_in(pulling.result()) == [b"transaction"]

    play(scene)


def test_many_holds_of_a_queue_are_all_answered_by_one_message() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        peers = [world.peer(f"10.0.1.{number}") for number in range(20)]
        held = [peer.begin_pull(hold_ms=15_000, group=f"g{number}") for number, peer in enumerate(peers)]
        await world.settle()
        await fill(peers[0], b"a")
        await world.settle()
        assert [bodies_in(pull.result()) for pull in held] == [[b"a"]] * 20

    play(scene)


def test_held_pull_sees_a_message_before_the_disk_has_it() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        pulling = peer.begin_pull(hold_ms=15_000)
        await world.settle()
        world.log_thread.is_held = True
        sending = peer.begin_send(b"a")
        await world.settle()
        assert not sending.done()
        assert bodies_in(pulling.result()) == [b"a"]

    play(scene, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})


def test_hold_ends_with_its_connection() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        peer = world.peer()
        pulling = peer.begin_pull(hold_ms=15_000)
        await world.settle()
        assert len(world.broker.holds) == 1
        world.network.cut(peer.host, HOST)
        await world.settle()
        assert len(world.broker.holds) == 0
        assert pulling.done()
        assert pulling.exception() is not None
        await fill(world.peer("10.0.0.8"), b"a")

    play(scene)


def test_pulls_over_the_limit_are_refused_and_sends_are_not() -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        peer = world.peer()
        held = [peer.begin_pull(hold_ms=15_000) for _ in range(3)]
        await world.settle()
        refused = await peer.pull(hold_ms=15_000)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "lane pull is full: 3 requests unfinished, limit 3" in (refused.remark or "")
        await fill(peer, b"a")
        assert [bodies_in(pull.result()) for pull in held] == [[b"a"]] * 3
        assert (await peer.pull()).code == 0

    play(scene, pull_thread_pool_queue_capacity=3)


@pytest.mark.parametrize("version", [513, OLD_VERSION])
def test_stop_answers_held_pulls(version: int) -> None:
    async def scene(world: BrokerWorld) -> None:
        world.broker.topics.put(TopicConfig(topic_name="orders"))
        pulling = world.peer().begin_pull(hold_ms=60_000, version=version)
        await world.settle()
        began = world.clock.monotonic()
        await world.stop()
        assert pulling.result().code == NOT_FOUND
        assert world.clock.monotonic() - began < 1.0

    play(scene)
