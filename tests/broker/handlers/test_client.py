"""Heartbeats, farewells, members, locks: answers, what follows for others, and what floods cost."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec
import pytest

from fusee.broker.config import BrokerConfig
from fusee.broker.consumers import ConsumerGroup, ConsumerTable
from fusee.broker.handlers import client as client_module
from fusee.broker.handlers.client import GroupNotices
from fusee.clock import ManualClock
from fusee.transport.link import Link
from fusee.wire.bodies.group import ConsumerConnection, ProducerConnection, SubscriptionGroupConfig
from fusee.wire.bodies.heartbeat import (
    CheckClientRequest,
    ConsumerData,
    ConsumerIds,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    decode_heartbeat,
)
from fusee.wire.bodies.locks import LockBatchRequest, LockBatchResponse
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.topic import PERM_READ, PERM_WRITE, UNIT_SUBSCRIPTION_FLAG, TopicConfig
from fusee.wire.codes import LanguageCode, RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.fields import Header
from fusee.wire.framing import FrameDecoder
from fusee.wire.headers.admin import GetConsumerConnections, GetProducerConnections
from fusee.wire.headers.client import GetConsumerListByGroup, UnregisterClient
from fusee.wire.lenient_json import decode_json, dumps_fastjson
from tests.broker.client_world import ClientWorld, Terminal, play
from tests.golden import GoldenFrame, frames

CHANGED = int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
CODES = {34, 35, 38, 41, 42, 46, 203, 204, 328}


def consumer(group: str = "g", *topics: str, version: int = 1, **more: Any) -> ConsumerData:
    wanted = [SubscriptionData(topic=topic, sub_version=version) for topic in topics or ("t",)]
    return ConsumerData(group_name=group, subscription_data_set=wanted, **more)


def heartbeat(client_id: str, *consumers: ConsumerData, producers: tuple[str, ...] = (), **more: Any) -> bytes:
    return dumps_fastjson(
        HeartbeatData(
            client_id=client_id,
            consumer_data_set=list(consumers),
            producer_data_set=[ProducerData(group_name=name) for name in producers],
            **more,
        )
    )


async def beat(terminal: Terminal, body: bytes, **more: Any) -> Command:
    return await terminal.ask(RequestCode.HEART_BEAT, body=body, **more)


def success(answer: Command) -> dict[str, str]:
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    return answer.all_fields()


def test_every_code_of_client_management_has_a_handler() -> None:
    async def scene(world: ClientWorld) -> None:
        assert {int(code) for code in world.handlers.routes()} == CODES

    play(scene)


# Heartbeats


def test_heartbeat_registers_consumer_and_producer_and_makes_group_and_retry_topic() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        answer = await beat(terminal, heartbeat("c1", consumer("g", "t"), producers=("p",)), version=501)
        assert success(answer) == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        link = world.link_from("10.0.0.2")
        group = world.consumers.group("g")
        assert group is not None
        member = group.members[link]
        assert (member.client_id, member.language, member.version) == ("c1", LanguageCode.JAVA, 501)
        assert world.producers.link_of("c1") is link
        assert world.groups.get("g") is not None
        retry = world.topics.get("%RETRY%g")
        assert retry is not None
        assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, PERM_READ | PERM_WRITE)
        assert (retry.order, retry.topic_sys_flag) == (False, 0)

    play(scene)


def test_heartbeat_makes_retry_topic_as_group_and_topics_say() -> None:
    async def scene(world: ClientWorld) -> None:
        world.groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=3))
        world.topics.put(TopicConfig(topic_name="ordered", order=True))
        terminal = world.terminal("10.0.0.2")
        await beat(terminal, heartbeat("c1", consumer("g", "ordered", unit_mode=True)))
        retry = world.topics.get("%RETRY%g")
        assert retry is not None
        assert (retry.read_queue_nums, retry.order, retry.topic_sys_flag) == (3, True, UNIT_SUBSCRIPTION_FLAG)
        await beat(terminal, heartbeat("c1", consumer("g"), heartbeat_fingerprint=1, without_sub=True))
        assert world.topics.get("%RETRY%g") is retry

    play(scene)


@pytest.mark.parametrize("name", ["bad name", "", "x" * 300])
def test_heartbeat_when_group_is_illegal_skips_it_alone(name: str) -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        success(await beat(terminal, heartbeat("c1", consumer(name), consumer("g"), producers=("p",))))
        assert set(world.consumers.all()) == {"g"}
        assert set(world.producers.all()) == {"p"}

    play(scene)


def test_heartbeat_when_groups_are_not_made_by_clients_waits_for_the_administrator() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        body = heartbeat("c1", consumer("g"))
        success(await beat(terminal, body))
        assert world.consumers.group("g") is None
        world.groups.put(SubscriptionGroupConfig(group_name="g"))
        success(await beat(terminal, body))
        assert world.consumers.group("g") is not None

    play(scene, auto_create_subscription_group=False)


def test_heartbeat_when_pull_consumers_are_rejected_skips_them() -> None:
    async def scene(world: ClientWorld) -> None:
        body = heartbeat("c1", consumer("g", consume_type="CONSUME_ACTIVELY"), consumer("h"))
        success(await beat(world.terminal("10.0.0.2"), body))
        assert set(world.consumers.all()) == {"h"}

    play(scene, reject_pull_consumer_enable=True)


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"{}", b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":"X"}]}']
)
def test_heartbeat_when_body_is_no_heartbeat_is_an_error(body: bytes) -> None:
    async def scene(world: ClientWorld) -> None:
        answer = await beat(world.terminal("10.0.0.2"), body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark

    play(scene)


def test_heartbeat_when_identical_renews_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: ClientWorld) -> None:
        read: list[bytes] = []

        def counted(body: bytes) -> HeartbeatData:
            read.append(body)
            return decode_heartbeat(body)

        monkeypatch.setattr(client_module, "decode_heartbeat", counted)
        terminal = world.terminal("10.0.0.2")
        # Java writes its sets in any order.
        forms = [heartbeat("c1", consumer("g"), producers=order) for order in (("p", "q"), ("q", "p"))]
        for form in forms:
            success(await beat(terminal, form))
        assert len(read) == 2
        await world.network.advance(100.0)
        for form in forms:
            assert success(await beat(terminal, form)) == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        assert len(read) == 2
        await world.network.advance(100.0)
        world.handlers.expire()
        assert set(world.producers.all()) == {"p", "q"}
        assert world.consumers.group("g") is not None

    play(scene)


def test_heartbeat_when_identical_but_long_is_recognised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: ClientWorld) -> None:
        read: list[bytes] = []

        def counted(body: bytes) -> HeartbeatData:
            read.append(body)
            return decode_heartbeat(body)

        monkeypatch.setattr(client_module, "decode_heartbeat", counted)
        terminal = world.terminal("10.0.0.2")
        body = heartbeat("c1", consumer("g", *(f"topic-{n}" for n in range(100))))
        assert len(body) > 1024
        for _ in range(3):
            success(await beat(terminal, body))
        assert len(read) == 1

    play(scene)


def test_heartbeat_when_identical_after_something_ended_registers_again() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal, other = world.terminal("10.0.0.2"), world.terminal("10.0.0.3")
        body = heartbeat("c1", consumer("g", "t"), producers=("p",))
        await beat(terminal, body)

        await terminal.ask(
            RequestCode.UNREGISTER_CLIENT, UnregisterClient(client_id="c1", consumer_group="g", producer_group="p")
        )
        assert world.consumers.group("g") is None
        await beat(terminal, body)
        assert world.consumers.group("g") is not None
        assert world.producers.members("p") is not None

        world.groups.delete("g")
        world.topics.delete("%RETRY%g")
        await beat(terminal, body)
        assert world.groups.get("g") is not None
        assert world.topics.get("%RETRY%g") is not None

        await beat(other, heartbeat("c2", consumer("g", "u")))
        assert world.consumers.subscription("g", "t") is None
        await beat(terminal, body)
        assert world.consumers.subscription("g", "t") is not None
        assert world.consumers.subscription("g", "u") is None

        world.topics.put(TopicConfig(topic_name="t", order=True))
        await world.network.advance(301.0)
        await beat(terminal, body)
        retry = world.topics.get("%RETRY%g")
        assert retry is not None
        assert retry.order

    play(scene)


def test_heartbeat_when_settings_change_is_read_again() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        body = heartbeat("c1", consumer("g", consume_type="CONSUME_ACTIVELY"))
        await beat(terminal, body)
        await terminal.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClient(client_id="c1", consumer_group="g"))
        world.handlers.config = BrokerConfig(reject_pull_consumer_enable=True)
        await beat(terminal, body)
        assert world.consumers.group("g") is None

    play(scene)


def test_heartbeat_of_second_form_says_when_all_must_be_sent() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal, other = world.terminal("10.0.0.2"), world.terminal("10.0.0.3")
        full = heartbeat("c1", consumer("g", "t"), heartbeat_fingerprint=7)
        short = heartbeat("c1", ConsumerData(group_name="g"), heartbeat_fingerprint=7, without_sub=True)

        async def changed(who: Terminal, body: bytes) -> bool:
            fields = success(await beat(who, body))
            assert fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
            return fields["IS_SUB_CHANGE"] == "true"

        # A broker that was started anew knows nothing and says so until it is told.
        assert await changed(terminal, short)
        assert await changed(terminal, short)
        assert not await changed(terminal, full)
        for _ in range(3):
            assert not await changed(terminal, short)
        assert world.consumers.subscription("g", "t") is not None
        # A member with another fingerprint.
        other_full = heartbeat("c2", consumer("g", "t", "u", version=2), heartbeat_fingerprint=8)
        assert await changed(other, other_full)
        assert not await changed(other, other_full)
        assert await changed(terminal, short)
        assert not await changed(terminal, short)
        assert await changed(other, other_full)

    play(scene)


@pytest.mark.parametrize(
    ("settings", "body", "code", "words"),
    [
        ({"clients_per_group_max": 1}, heartbeat("c2", consumer("g")), ResponseCode.SYSTEM_BUSY, "clientsPerGroupMax"),
        (
            {"subscriptions_per_group_max": 1},
            heartbeat("c2", consumer("g", "t", "u")),
            ResponseCode.INVALID_PARAMETER,
            "subscriptionsPerGroupMax",
        ),
        (
            {"groups_max": 20},
            heartbeat("c2", *map(consumer, "hijklmnopqrstuvwxyz")),
            ResponseCode.SYSTEM_ERROR,
            "groupsMax",
        ),
        ({}, heartbeat("c" * 1025), ResponseCode.INVALID_PARAMETER, "characters"),
        ({}, heartbeat("c2", producers=("p" * 256,)), ResponseCode.INVALID_PARAMETER, "producer group"),
        ({}, heartbeat("c2", producers=("p",) * 10_001), ResponseCode.INVALID_PARAMETER, "10001 groups"),
    ],
)
def test_heartbeat_when_over_a_limit_is_refused_with_the_reason(
    settings: dict[str, Any], body: bytes, code: ResponseCode, words: str
) -> None:
    async def scene(world: ClientWorld) -> None:
        success(await beat(world.terminal("10.0.0.2"), heartbeat("c1", consumer("g"))))
        answer = await beat(world.terminal("10.0.0.3"), body)
        assert answer.code == code
        assert words in (answer.remark or "")

    play(scene, **settings)


def test_heartbeat_when_one_group_is_refused_registers_the_others() -> None:
    async def scene(world: ClientWorld) -> None:
        await beat(world.terminal("10.0.0.2"), heartbeat("c1", consumer("g")))
        answer = await beat(world.terminal("10.0.0.3"), heartbeat("c2", consumer("g"), consumer("h"), producers=("p",)))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert world.consumers.group("h") is not None
        assert world.producers.link_of("c2") is not None

    play(scene, clients_per_group_max=1)


# Who is told


def test_members_are_told_when_one_comes_subscribes_otherwise_and_goes() -> None:
    async def scene(world: ClientWorld) -> None:
        a, b = world.terminal("10.0.0.2"), world.terminal("10.0.0.3")
        await beat(a, heartbeat("a", consumer("g", "t")))
        await world.network.settle()
        assert [request.all_fields() for request in a.pushed] == [{"consumerGroup": "g"}]
        assert a.pushed[0].is_oneway
        assert a.codes() == [CHANGED]
        await beat(b, heartbeat("b", consumer("g", "t")))
        await world.network.advance(1.0)
        assert (a.codes(), b.codes()) == ([CHANGED], [CHANGED])
        await beat(a, heartbeat("a", consumer("g", "t", "u", version=2)))
        await world.network.advance(1.0)
        assert (a.codes(), b.codes()) == ([CHANGED], [CHANGED])
        await beat(a, heartbeat("a", consumer("g", "t", "u", version=3)))
        await world.network.advance(1.0)
        assert (a.codes(), b.codes()) == ([], [])
        await a.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClient(client_id="a", consumer_group="g"))
        await world.network.advance(1.0)
        assert (a.codes(), b.codes()) == ([], [CHANGED])
        await beat(a, heartbeat("a", consumer("g", "t", "u", version=3)))
        await world.network.advance(1.0)
        b.codes()
        world.network.cut("10.0.0.1", "10.0.0.2")
        await world.network.advance(1.0)
        assert b.codes() == [CHANGED]

    play(scene)


def test_members_are_not_told_when_broadcasting_or_disabled() -> None:
    async def scene(world: ClientWorld) -> None:
        world.groups.put(SubscriptionGroupConfig(group_name="quiet", notify_consumer_ids_changed_enable=False))
        a, b = world.terminal("10.0.0.2"), world.terminal("10.0.0.3")
        for terminal, client_id in ((a, "a"), (b, "b")):
            await beat(terminal, heartbeat(client_id, consumer("quiet"), consumer("all", message_model="BROADCASTING")))
        world.network.cut("10.0.0.1", "10.0.0.2")
        await world.network.advance(1.0)
        assert (a.codes(), b.codes()) == ([], [])

    play(scene)


def test_members_are_not_told_when_the_broker_tells_nobody() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        await beat(terminal, heartbeat("a", consumer("g")))
        await world.network.advance(1.0)
        assert terminal.codes() == []

    play(scene, notify_consumer_ids_changed_enable=False)


def test_members_are_told_though_one_does_not_read() -> None:
    async def scene(world: ClientWorld) -> None:
        slow, quick = world.terminal("10.0.0.2"), world.terminal("10.0.0.3")
        await beat(slow, heartbeat("slow", consumer("g")))
        await world.network.advance(1.0)
        slow.codes()
        world.network.weather("10.0.0.1", "10.0.0.2").held = True
        world.link_from("10.0.0.2").send(b"." * 2_000_000)
        await beat(quick, heartbeat("quick", consumer("g")))
        await world.network.advance(1.0)
        assert quick.codes() == [CHANGED]
        assert slow.codes() == []

    play(scene)


class ToldLink(Link):
    """A connection that keeps who was told something."""

    told: ClassVar[list[Link]] = []

    def send_oneway(self, command: Command) -> None:
        self.told.append(self)


def a_group(size: int) -> ConsumerGroup:
    clock = ManualClock()
    table = ConsumerTable(config=BrokerConfig())
    for number in range(size):
        table.register(
            consumer("g"),
            ToldLink(clock=clock, timers=clock),
            client_id=str(number),
            language=LanguageCode.JAVA,
            version=513,
            now_ms=0,
        )
    group = table.group("g")
    assert group is not None
    return group


def test_notices_when_many_change_at_once_come_in_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Link] = []
    monkeypatch.setattr(ToldLink, "told", told)
    clock = ManualClock()
    notices = GroupNotices(clock)
    group = a_group(3000)
    for _ in range(3000):
        notices.group_changed(group)
    assert told == []
    clock.advance(0.0)
    assert told == list(group.members)
    # While the group rests, changes gather for one more round.
    for _ in range(100):
        notices.group_changed(group)
    clock.advance(0.29)
    assert len(told) == 3000
    clock.advance(0.02)
    assert len(told) == 6000
    clock.advance(10.0)
    assert len(told) == 6000
    notices.group_changed(group)
    notices.stop()
    notices.group_changed(group)
    clock.advance(10.0)
    assert len(told) == 6000


# Silence and loss


def test_expire_when_silent_closes_the_link_and_forgets_the_client() -> None:
    async def scene(world: ClientWorld) -> None:
        silent, busy = world.terminal("10.0.0.2"), world.terminal("10.0.0.3")
        await beat(silent, heartbeat("silent", consumer("g"), producers=("p",)))
        await world.network.advance(60.0)
        await beat(busy, heartbeat("busy", consumer("g")))
        await world.network.advance(60.0)
        world.handlers.expire()
        assert world.link_from("10.0.0.2").is_open
        await world.network.advance(0.001)
        # Other traffic is no heartbeat.
        await silent.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroup(consumer_group="g"))
        world.handlers.expire()
        await world.network.advance(1.0)
        assert not world.link_from("10.0.0.2").is_open
        assert world.link_from("10.0.0.3").is_open
        assert world.producers.link_of("silent") is None
        group = world.consumers.group("g")
        assert group is not None
        assert group.client_ids == ["busy"]
        assert CHANGED in busy.codes()

    play(scene)


# Farewells and questions


def test_unregister_answers_success_whoever_asks() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        header = UnregisterClient(client_id="c", producer_group="p", consumer_group="g")
        assert success(await terminal.ask(RequestCode.UNREGISTER_CLIENT, header)) == {}
        await beat(terminal, heartbeat("c", consumer("g"), consumer("h"), producers=("p", "q")))
        success(await terminal.ask(RequestCode.UNREGISTER_CLIENT, header))
        assert set(world.consumers.all()) == {"h"}
        assert set(world.producers.all()) == {"q"}

    play(scene)


def test_consumer_ids_are_those_of_the_moment() -> None:
    async def scene(world: ClientWorld) -> None:
        a, b = world.terminal("10.0.0.2"), world.terminal("10.0.0.3")
        question = GetConsumerListByGroup(consumer_group="g")

        async def ids() -> list[str]:
            answer = await a.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, question)
            return decode_json(answer.body, ConsumerIds).consumer_id_list

        await beat(a, heartbeat("a", consumer("g")))
        assert await ids() == ["a"]
        await beat(b, heartbeat("b", consumer("g")))
        assert sorted(await ids()) == ["a", "b"]
        assert sorted(await ids()) == ["a", "b"]
        await b.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClient(client_id="b", consumer_group="g"))
        assert await ids() == ["a"]

    play(scene)


def test_questions_about_unknown_groups_are_answered_in_the_reference_words() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        cases: list[tuple[RequestCode, Header, ResponseCode, str]] = [
            (
                RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                GetConsumerListByGroup(consumer_group="x"),
                ResponseCode.SYSTEM_ERROR,
                "no consumer for this group, x",
            ),
            (
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                GetConsumerConnections(consumer_group="x"),
                ResponseCode.CONSUMER_NOT_ONLINE,
                "the consumer group[x] not online",
            ),
            (
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                GetProducerConnections(producer_group="x"),
                ResponseCode.SYSTEM_ERROR,
                "the producer group[x] not exist",
            ),
        ]
        for code, header, expected, remark in cases:
            answer = await terminal.ask(code, header)
            assert (answer.code, answer.remark, answer.body) == (expected, remark, b"")
        assert (await terminal.ask(RequestCode.GET_ALL_PRODUCER_INFO)).body == b'{"data":{}}'

    play(scene)


def test_connections_of_groups_name_addresses_languages_and_subscriptions() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        body = heartbeat("c", consumer("g", "t", consume_from_where="CONSUME_FROM_FIRST_OFFSET"), producers=("p",))
        await beat(terminal, body, language=LanguageCode.GO, version=413)
        address = world.link_from("10.0.0.2").remote_address
        answer = await terminal.ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnections(consumer_group="g")
        )
        found = decode_json(answer.body, ConsumerConnection)
        assert msgspec.to_builtins(found.connection_set) == [
            {"clientAddr": address, "clientId": "c", "language": "GO", "version": 413}
        ]
        assert (found.consume_from_where, found.consume_type, found.message_model) == (
            "CONSUME_FROM_FIRST_OFFSET",
            "CONSUME_PASSIVELY",
            "CLUSTERING",
        )
        assert found.subscription_table == {"t": SubscriptionData(topic="t", sub_version=1)}
        answer = await terminal.ask(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnections(producer_group="p")
        )
        assert decode_json(answer.body, ProducerConnection).connection_set == found.connection_set
        answer = await terminal.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        assert answer.body.decode() == (
            f'{{"data":{{"p":[{{"clientId":"c","language":"GO","lastUpdateTimestamp":{world.clock.time_ms()},'
            f'"remoteIP":"/{address}","version":413}}]}}}}'
        )

    play(scene)


@pytest.mark.parametrize(
    ("enabled", "kind", "expression", "code", "remark"),
    [
        (False, "TAG", "a", ResponseCode.SUCCESS, None),
        (False, None, "a", ResponseCode.SUCCESS, None),
        (
            False,
            "SQL92",
            "a > 5",
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92",
        ),
        (True, "SQL92", "a > 5 AND colour IS NOT NULL", ResponseCode.SUCCESS, None),
        (True, "SQL92", "a >", ResponseCode.SUBSCRIPTION_PARSE_FAILED, ...),
        (True, "OTHER", "a", ResponseCode.SUBSCRIPTION_PARSE_FAILED, ...),
    ],
)
def test_check_subscription(enabled: bool, kind: str | None, expression: str, code: int, remark: Any) -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        data = SubscriptionData(topic="t", expression=expression, expression_type=kind)
        body = dumps_fastjson(CheckClientRequest(client_id="c", group="g", subscription_data=data))
        answer = await terminal.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)
        assert answer.code == code
        assert answer.remark if remark is ... else answer.remark == remark
        success(await terminal.ask(RequestCode.CHECK_CLIENT_CONFIG))

    play(scene, enable_property_filter=enabled)


def test_locks_are_given_to_one_client_at_a_time() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        queues = [QueueRef(broker_name="broker-a", queue_id=n, topic="t") for n in range(2)]

        async def ask(code: RequestCode, client_id: str, wanted: list[QueueRef]) -> list[QueueRef]:
            body = dumps_fastjson(LockBatchRequest(client_id=client_id, consumer_group="g", queues=wanted))
            answer = await terminal.ask(code, body=body)
            assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, None)
            return decode_json(answer.body, LockBatchResponse).locked if answer.body else []

        assert await ask(RequestCode.LOCK_BATCH_MQ, "a", queues[:1]) == queues[:1]
        assert await ask(RequestCode.LOCK_BATCH_MQ, "b", queues) == queues[1:]
        assert await ask(RequestCode.UNLOCK_BATCH_MQ, "b", queues) == []
        assert await ask(RequestCode.LOCK_BATCH_MQ, "c", queues) == queues[1:]
        assert world.locks.holds_live_locks("g")
        await world.network.advance(60.001)
        world.handlers.expire()
        assert len(world.locks) == 0

    play(scene)


# Java's own frames


def exchanges(code: int) -> list[tuple[GoldenFrame, GoldenFrame]]:
    """Requests of Java clients with the Java broker's answers, where it knew nothing beforehand or did not need to."""
    pairs: dict[str, list[GoldenFrame]] = {}
    for frame in frames():
        if (frame.code if frame.role == "request" else frame.request_code) == code:
            pairs.setdefault(frame.pair, []).append(frame)
    return [(found[0], found[1]) for found in pairs.values() if len(found) == 2 and found[0].receiver == "broker"]


@pytest.mark.parametrize("code", [34, 35, 41, 42, 46])
def test_answers_equal_those_of_java(code: int) -> None:
    found = exchanges(code)
    assert found

    async def scene(world: ClientWorld) -> None:
        for asked, answered in found:
            clock = ManualClock()
            link = Link(clock=clock, timers=clock, router=world.router)
            (request,) = FrameDecoder().feed(asked.frame)
            world.locks.expire()
            answer: Any = world.router.dispatch(request, link)
            if isinstance(answer, bytes):
                (answer,) = FrameDecoder().feed(answer)
            assert (answer.code, answer.remark, answer.opaque) == (
                answered.header.code,
                answered.header.remark,
                asked.header.opaque,
            )
            # An empty map of fields does not exist in the binary form of a header.
            assert (answer.ext_fields or {}) == (answered.header.ext_fields or {})
            if answered.form == "json":
                assert (answer.ext_fields is None) == (answered.header.ext_fields is None)
            assert (msgspec.json.decode(answer.body) if answer.body else None) == answered.body
            world.clock.advance(61.0)

    play(scene, enable_property_filter=True)


def test_a_flood_of_identical_heartbeats_is_answered_in_one_write() -> None:
    async def scene(world: ClientWorld) -> None:
        terminal = world.terminal("10.0.0.2")
        body = heartbeat("c1", consumer("g"), producers=("p",))
        await beat(terminal, body)
        link = await terminal.client.link("10.0.0.1:10911")
        answers = [
            asyncio.ensure_future(link.request(Command(RequestCode.HEART_BEAT, body=body), 5.0)) for _ in range(500)
        ]
        await world.network.settle()
        assert all(success(answer.result()) for answer in answers)

    play(scene)
