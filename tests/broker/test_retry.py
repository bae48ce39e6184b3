from __future__ import annotations

from pathlib import Path

import pytest

from fusee.broker.retry import group_of_retry_topic, retry_record, tries_max
from fusee.message.model import StoredMessage
from fusee.message.properties import decode_properties
from fusee.message.topics import SCHEDULE_TOPIC
from fusee.store.engine import MessageStore
from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.send import SendMessageV2
from tests.broker.log_world import STORE_HOST, LogWorld, message, messages_of
from tests.golden.store import CONFIG, unpack


def stored(world: LogWorld, body: bytes = b"x", **properties: str) -> StoredMessage:
    world.put(message(body, "orders", 0, **properties))
    return world.messages("orders")[-1]


# The next try


def test_retry_record_says_where_the_message_came_from_and_counts() -> None:
    found = stored(LogWorld(), TAGS="A")
    record = retry_record(found, "%RETRY%g", 0, 3, STORE_HOST)
    assert decode_properties(record.properties) == {
        "UNIQ_KEY": "ID-x",
        "TAGS": "A",
        "RETRY_TOPIC": "orders",
        "WAIT": "false",
        "DELAY": "3",
        "ORIGIN_MESSAGE_ID": found.offset_id,
    }
    assert (record.topic, record.queue_id, record.reconsume_times) == ("%RETRY%g", 0, 1)
    assert (record.body, record.born_timestamp_ms) == (found.body, found.born_timestamp_ms)


def test_retry_record_of_a_retry_keeps_the_first_topic_and_id() -> None:
    found = stored(LogWorld(), RETRY_TOPIC="first", ORIGIN_MESSAGE_ID="FF", DELAY="3")
    record = retry_record(found, "%RETRY%g", 0, 4, STORE_HOST)
    properties = decode_properties(record.properties)
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"], properties["DELAY"]) == ("first", "FF", "4")


def test_retry_record_of_a_broker_with_another_address_family_fits_its_flag() -> None:
    found = stored(LogWorld())
    record = retry_record(found, "%RETRY%g", 0, 3, bytes(16) + STORE_HOST[4:])
    world = LogWorld()
    world.put(record)
    assert world.messages()[0].store_host_bytes == bytes(16) + STORE_HOST[4:]


def test_retry_records_of_java_are_what_we_would_store(tmp_path: Path) -> None:
    store = MessageStore(unpack("clean", tmp_path), CONFIG)
    store.open()
    records = messages_of(store)
    sent = {found.unique_id: found for found in records if found.topic == "StoreRetry"}
    tried = {found.unique_id: found for found in records if found.topic == "%RETRY%CG_store_retry"}
    compared = 0
    for found in records:
        is_dead = found.topic == "%DLQ%CG_store_retry"
        if not is_dead and not (found.topic == SCHEDULE_TOPIC and found.unique_id in sent):
            continue
        origin = (tried if is_dead else sent)[found.unique_id]
        ours = retry_record(origin, found.topic, 0, 0 if is_dead else 1, found.store_host_bytes)
        theirs = dict(found.properties)
        if not is_dead:
            del theirs["REAL_TOPIC"], theirs["REAL_QID"]
        assert decode_properties(ours.properties) == theirs
        assert (ours.reconsume_times, ours.sys_flag, ours.body) == (found.reconsume_times, found.sys_flag, found.body)
        compared += 1
    store.close()
    assert compared == 6


def test_tries_max_is_the_client_s_if_it_is_new_enough_to_say() -> None:
    group = SubscriptionGroupConfig(group_name="g", retry_max_times=5)
    command = Command(36)
    assert tries_max(command, group, 2) == 2
    assert tries_max(command, group, None) == 5
    command.version = 120
    assert tries_max(command, group, 2) == 5
    command.version = 121
    assert tries_max(command, group, 2) == 2


@pytest.mark.parametrize(
    ("topic", "group"), [("%RETRY%g", "g"), ("%RETRY%g+t", "g"), ("%RETRY%g_t", "g_t"), ("%RETRY%a+b+c", "a+b+c")]
)
def test_group_of_retry_topic(topic: str, group: str) -> None:
    assert group_of_retry_topic(topic) == group


# A copy that a client sends itself


def send(
    world: LogWorld, *, tries: int | None = 1, tries_most: int | None = None, version: int = 513
) -> tuple[Command | None, str, int, dict[str, str]]:
    """(answer, topic, queue id, properties) of a copy sent to the retry topic of group g."""
    header = SendMessageV2(
        producer_group="p",
        topic="%RETRY%g",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp_ms=0,
        flag=0,
        reconsume_times=tries,
        max_reconsume_times=tries_most,
    )
    command = Command.request(RequestCode.SEND_MESSAGE_V2, header)
    command.version = version
    record = message(b"x", "%RETRY%g", 3, DELAY="5")
    answer = world.retry.apply(command, header, record)
    return answer, record.topic, record.queue_id, decode_properties(record.properties)


def test_sent_copy_goes_on_to_its_retry_topic() -> None:
    assert send(LogWorld(), tries=16) == (None, "%RETRY%g", 3, {"UNIQ_KEY": "ID-x", "DELAY": "5"})
    assert send(LogWorld(), tries=None)[1] == "%RETRY%g"


def test_sent_copy_tried_too_often_goes_to_the_dead_letters() -> None:
    world = LogWorld()
    assert send(world, tries=17) == (None, "%DLQ%g", 0, {"UNIQ_KEY": "ID-x", "DELAY": "-1"})
    made = world.topics.get("%DLQ%g")
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (1, 1, 6)


def test_sent_copy_of_a_client_with_its_own_limit() -> None:
    assert send(LogWorld(), tries=2, tries_most=2)[1] == "%RETRY%g"
    assert send(LogWorld(), tries=3, tries_most=2)[1] == "%DLQ%g"
    assert send(LogWorld(), tries=3, tries_most=2, version=120)[1] == "%RETRY%g"


def test_sent_copy_of_a_group_that_consumes_in_order_goes_to_the_dead_letters() -> None:
    world = LogWorld()
    world.locks.lock("g", "c1", [QueueRef(broker_name="b", queue_id=0, topic="orders")])
    assert send(world, tries=0)[1] == "%DLQ%g"
    world.run(61)
    assert send(world, tries=0)[1] == "%RETRY%g"


def test_sent_copy_of_an_unknown_group_is_refused() -> None:
    world = LogWorld(auto_create_subscription_group=False)
    answer = send(world)[0]
    assert answer is not None
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert answer.remark == (
        "subscription group not exist, g \nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )
