from __future__ import annotations

import pytest

from fusee.broker.send_checks import FAQ
from fusee.errors import StoreError
from fusee.message.topics import SCHEDULE_TOPIC
from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.send import ConsumerSendMessageBack
from tests.broker.log_world import ROOT, STORE_HOST, LogWorld, message


@pytest.fixture
def world() -> LogWorld:
    world = LogWorld()
    world.delay.start()
    return world


def give_back(
    world: LogWorld,
    log_offset: int,
    *,
    level: int = 0,
    tries_most: int | None = None,
    unit_mode: bool = False,
    version: int = 513,
    oneway: bool = False,
) -> Command | None:
    header = ConsumerSendMessageBack(
        log_offset=log_offset,
        group="g",
        delay_level=level,
        origin_msg_id="ID-x",
        origin_topic="orders",
        unit_mode=unit_mode,
        max_reconsume_times=tries_most,
    )
    return world.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header, version=version, oneway=oneway)


def check(answer: Command | None, code: ResponseCode, remark: str | None = None) -> None:
    assert answer is not None
    assert (answer.code, answer.remark) == (code, remark)


def test_message_given_back_comes_again_after_ten_seconds(world: LogWorld) -> None:
    sent = world.put(message(b"x"))
    check(give_back(world, sent.log_offset), ResponseCode.SUCCESS)
    (waiting,) = world.messages(SCHEDULE_TOPIC)
    assert (waiting.queue_id, waiting.reconsume_times, waiting.store_host_bytes) == (2, 1, STORE_HOST)
    assert waiting.properties["REAL_TOPIC"] == "%RETRY%g"
    assert world.bodies("%RETRY%g") == []
    world.run(10.1)
    assert world.bodies("%RETRY%g") == [b"x"]
    made = world.topics.get("%RETRY%g")
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums, made.perm, made.topic_sys_flag) == (1, 1, 6, 0)


def test_message_given_back_again_waits_longer_and_longer(world: LogWorld) -> None:
    sent = world.put(message(b"x"))
    log_offset = sent.log_offset
    for tries, level in enumerate((3, 4, 4)):  # the highest level of this world is the fourth
        give_back(world, log_offset)
        waiting = world.messages(SCHEDULE_TOPIC)[-1]
        assert (waiting.queue_id, waiting.reconsume_times) == (level - 1, tries + 1)
        world.run(31)
        log_offset = world.messages("%RETRY%g")[-1].log_offset
    assert [found.properties["ORIGIN_MESSAGE_ID"] for found in world.messages("%RETRY%g")] == [
        world.messages("orders")[0].offset_id
    ] * 3
    assert {found.properties["RETRY_TOPIC"] for found in world.messages("%RETRY%g")} == {"orders"}


def test_message_given_back_with_a_level_waits_for_that(world: LogWorld) -> None:
    sent = world.put(message(b"x"))
    give_back(world, sent.log_offset, level=1)
    world.run(1.1)
    assert world.bodies("%RETRY%g") == [b"x"]


@pytest.mark.parametrize(
    ("tries", "level", "tries_most", "version", "is_dead"),
    [
        (15, 0, None, 513, False),
        (16, 0, None, 513, True),
        (0, -1, None, 513, True),
        (1, 0, 2, 513, False),
        (2, 0, 2, 513, True),
        (2, 0, 2, 120, False),
        (20, 1, 30, 513, False),
    ],
)
def test_message_given_back_too_often_goes_to_the_dead_letters(
    world: LogWorld, tries: int, level: int, tries_most: int | None, version: int, is_dead: bool
) -> None:
    record = message(b"x", DELAY="7")
    record.reconsume_times = tries
    sent = world.put(record)
    answer = give_back(world, sent.log_offset, level=level, tries_most=tries_most, version=version)
    check(answer, ResponseCode.SUCCESS)
    assert world.bodies("%DLQ%g") == ([b"x"] if is_dead else [])
    if is_dead:
        (dead,) = world.messages("%DLQ%g")
        assert (dead.properties["DELAY"], dead.reconsume_times) == ("0", tries + 1)
        made = world.topics.get("%DLQ%g")
        assert made is not None
        assert (made.read_queue_nums, made.perm) == (1, 6)


def test_queue_of_a_try_is_chosen_among_those_of_the_group(world: LogWorld) -> None:
    world.groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=4))
    sent = world.put(message(b"x"))
    for _ in range(40):
        give_back(world, sent.log_offset)
    queues = {found.properties["REAL_QID"] for found in world.messages(SCHEDULE_TOPIC)}
    assert queues == {"0", "1", "2", "3"}
    made = world.topics.get("%RETRY%g")
    assert made is not None
    assert made.write_queue_nums == 4


def test_unit_mode_marks_the_retry_topic(world: LogWorld) -> None:
    give_back(world, world.put(message(b"x")).log_offset, unit_mode=True)
    made = world.topics.get("%RETRY%g")
    assert made is not None
    assert made.topic_sys_flag == 2


def test_group_without_retry_queues_gets_success_and_nothing_else(world: LogWorld) -> None:
    world.groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=0))
    sent = world.put(message(b"x"))
    check(give_back(world, sent.log_offset), ResponseCode.SUCCESS)
    assert len(world.messages()) == 1


def test_unknown_group_is_refused() -> None:
    world = LogWorld(auto_create_subscription_group=False)
    check(
        give_back(world, 0),
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group not exist, g {FAQ}",
    )


def test_broker_that_may_not_be_written_refuses() -> None:
    world = LogWorld(broker_permission=4, broker_ip1="10.0.0.1")
    check(give_back(world, 0), ResponseCode.NO_PERMISSION, "the broker[10.0.0.1] sending message is forbidden")


def test_retry_topic_that_may_not_be_written_refuses(world: LogWorld) -> None:
    world.topics.put(TopicConfig(topic_name="%RETRY%g", perm=4))
    sent = world.put(message(b"x"))
    check(
        give_back(world, sent.log_offset),
        ResponseCode.NO_PERMISSION,
        "the topic[%RETRY%g] sending message is forbidden",
    )


def test_message_that_is_not_there_is_refused(world: LogWorld) -> None:
    check(give_back(world, 99), ResponseCode.SYSTEM_ERROR, "look message by offset failed, 99")


def test_slave_refuses() -> None:
    world = LogWorld(broker_id=1, broker_role="SLAVE")
    check(
        give_back(world, 0),
        ResponseCode.SYSTEM_BUSY,
        "[REJECTREQUEST]system busy, start flow control for a while",
    )


def test_full_disk_is_told_and_nothing_counts(world: LogWorld) -> None:
    sent = world.put(message(b"x"))
    world.disk.fail_write(1, under=ROOT / "commitlog")
    check(give_back(world, sent.log_offset), ResponseCode.SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE")
    assert len(world.messages()) == 1
    check(give_back(world, sent.log_offset), ResponseCode.SUCCESS)


def test_store_that_takes_nothing_is_told(world: LogWorld) -> None:
    sent = world.put(message(b"x"))
    world.disk.fail_sync(1, under=ROOT / "commitlog")
    with pytest.raises(StoreError):
        world.store.flush()
    check(give_back(world, sent.log_offset), ResponseCode.SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE")


def test_oneway_is_done_and_not_answered(world: LogWorld) -> None:
    sent = world.put(message(b"x"))
    assert give_back(world, sent.log_offset, oneway=True) is None
    assert len(world.messages(SCHEDULE_TOPIC)) == 1
    assert world.lane.in_flight == 0


def test_statistics_count_what_came_back(world: LogWorld) -> None:
    sent = world.put(message(b"x"))
    give_back(world, sent.log_offset)
    give_back(world, sent.log_offset, level=-1)
    world.statistics.sample()
    world.run(11)
    world.statistics.sample()
    assert world.statistics.windows("SNDBCK_PUT_NUMS", "orders@g") is not None
    assert world.statistics.windows("DLQ_PUT_NUMS", "orders@g") is not None
