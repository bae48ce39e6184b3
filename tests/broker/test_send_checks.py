"""What is checked of a message before it is stored: names, permissions, topics that are made, queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fusee.broker.config import BrokerConfig
from fusee.broker.send_checks import SendChecks, describe_topic, group_fault, remote_host, topic_fault
from fusee.broker.topics import TopicTable
from fusee.clock import ManualClock
from fusee.message.hosts import pack_host
from fusee.message.topics import UNSENDABLE_TOPICS
from fusee.store.simulated_disk import SimulatedDisk
from fusee.transport.link import Link
from fusee.wire.bodies.topic import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    UNIT_FLAG,
    UNIT_SUBSCRIPTION_FLAG,
    TopicConfig,
)
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from tests.broker.log_world import Wire
from tests.broker.world import send_header

REQUEST = Command(RequestCode.SEND_MESSAGE_V2, opaque=5)


class Desk:
    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.config = BrokerConfig(broker_name="b", broker_cluster_name="C", broker_ip1="10.0.0.1", **settings)
        self.topics = TopicTable(
            config=self.config, folder=Path("/config"), files=SimulatedDisk(self.clock), clock=self.clock
        )
        self.checks = SendChecks(config=self.config, topics=self.topics, clock=self.clock)
        self.link = Link(clock=self.clock, timers=self.clock)
        self.link.connection_made(Wire())

    def refuse(self, **header: Any) -> tuple[int, str]:
        found = self.checks.check(REQUEST, send_header(**header), self.link)
        assert isinstance(found, Command)
        assert found.opaque == 5
        return found.code, found.remark or ""

    def accept(self, **header: Any) -> TopicConfig:
        found = self.checks.check(REQUEST, send_header(**header), self.link)
        assert isinstance(found, TopicConfig), found.remark
        return found


# Names


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("orders", None),
        ("a|b-c_d%E9", None),
        ("x" * 127, None),
        ("%RETRY%" + "x" * 248, None),
        ("%DLQ%" + "x" * 250, None),
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        (
            "bad topic!",
            "The specified topic: bad topic!, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("t\xe9", "The specified topic: t\xe9, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, f"The specified topic: {'x' * 128}, is longer than topic max length: 127"),
        (
            "%RETRY%" + "x" * 249,
            (
                f"The specified topic is DLQ or Retry topic: %RETRY%{'x' * 249}, and it's longer than topic max "
                "length: 255"
            ),
        ),
    ],
)
def test_topic_is_judged_in_the_reference_s_words(topic: str, fault: str | None) -> None:
    assert topic_fault(topic) == fault


@pytest.mark.parametrize(
    ("group", "fault"),
    [
        ("orders-app", None),
        ("x" * 120, None),
        ("", "The specified group is blank."),
        ("a b", "The specified group: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 121, f"The specified group: {'x' * 121}, is longer than group max length: 120"),
    ],
)
def test_group_is_judged_in_the_reference_s_words(group: str, fault: str | None) -> None:
    assert group_fault(group) == fault


def test_topic_is_described_as_the_reference_prints_it() -> None:
    topic = TopicConfig(
        topic_name="Golden", read_queue_nums=4, write_queue_nums=8, attributes={"a": "b", "c": "d"}, order=True
    )
    assert describe_topic(topic) == (
        "TopicConfig [topicName=Golden, readQueueNums=4, writeQueueNums=8, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=true, attributes={a=b, c=d}]"
    )


# Making topics


@pytest.mark.parametrize(("asked", "queues"), [(4, 4), (8, 8), (20, 8), (-3, 0)])
def test_unknown_topic_is_made_after_its_template_with_the_lesser_number_of_queues(asked: int, queues: int) -> None:
    desk = Desk(default_topic_queue_nums=8)
    if queues == 0:
        desk.refuse(default_topic_queue_nums=asked)
    else:
        desk.accept(default_topic_queue_nums=asked)
    made = desk.topics.get("orders")
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (queues, queues, PERM_READ | PERM_WRITE)


def test_template_may_be_any_topic_that_is_inherited_from() -> None:
    desk = Desk()
    perm = PERM_READ | PERM_INHERIT
    desk.topics.put(TopicConfig(topic_name="template", write_queue_nums=2, perm=perm, topic_filter_type="MULTI_TAG"))
    made = desk.accept(default_topic="template")
    assert (made.write_queue_nums, made.perm, made.topic_filter_type) == (2, PERM_READ, "MULTI_TAG")


@pytest.mark.parametrize("template", ["NoSuchTemplate", "plain", ""])
def test_topic_without_a_template_does_not_exist(template: str) -> None:
    desk = Desk()
    desk.topics.put(TopicConfig(topic_name="plain"))
    code, remark = desk.refuse(default_topic=template)
    assert code == ResponseCode.TOPIC_NOT_EXIST
    assert remark.startswith("topic[orders] not exist, apply first please!\nSee https://")
    assert desk.topics.get("orders") is None


def test_no_topic_is_made_where_that_is_switched_off() -> None:
    desk = Desk(auto_create_topic_enable=False)
    assert desk.refuse()[0] == ResponseCode.TOPIC_NOT_EXIST
    desk.topics.put(TopicConfig(topic_name="orders"))
    desk.accept()


def test_retry_topic_is_made_even_then() -> None:
    desk = Desk(auto_create_topic_enable=False)
    made = desk.accept(topic="%RETRY%g")
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (1, 1, PERM_READ | PERM_WRITE)


@pytest.mark.parametrize(
    ("topic", "unit_mode", "flag"),
    [("orders", True, UNIT_FLAG), ("%RETRY%g", True, UNIT_SUBSCRIPTION_FLAG), ("orders", None, 0)],
)
def test_unit_mode_marks_the_topic_that_it_makes(topic: str, unit_mode: bool | None, flag: int) -> None:
    assert Desk().accept(topic=topic, unit_mode=unit_mode).topic_sys_flag == flag


# Refusals


@pytest.mark.parametrize("topic", sorted(UNSENDABLE_TOPICS))
def test_topics_of_the_system_are_forbidden(topic: str) -> None:
    assert Desk().refuse(topic=topic) == (
        ResponseCode.NO_PERMISSION,
        f"Sending message to topic[{topic}] is forbidden.",
    )


def test_queue_must_exist_for_writing_or_for_reading() -> None:
    desk = Desk()
    desk.topics.put(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=2))
    for queue_id in (-1, 0, 3):
        desk.accept(queue_id=queue_id)
    code, remark = desk.refuse(queue_id=4)
    assert code == ResponseCode.INVALID_PARAMETER
    assert remark == (
        "request queueId[4] is illegal, TopicConfig [topicName=orders, readQueueNums=4, writeQueueNums=2, perm=RW-, "
        "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}] Producer: 10.0.0.9:40000"
    )


def test_broker_without_write_permission_refuses_ordered_topics_alone() -> None:
    desk = Desk(broker_permission=PERM_READ)
    desk.topics.put(TopicConfig(topic_name="ordered", order=True))
    assert desk.refuse(topic="ordered") == (
        ResponseCode.NO_PERMISSION,
        "the broker[10.0.0.1] sending message is forbidden",
    )
    desk.accept()


def test_broker_that_is_to_open_later_says_when() -> None:
    desk = Desk()
    opens_ms = desk.clock.time_ms() + 1500
    desk.checks.config = BrokerConfig(start_accept_send_request_time_stamp=opens_ms)
    code, remark = desk.refuse()
    assert code == ResponseCode.SYSTEM_ERROR
    assert remark.startswith("broker unable to service, until 20")
    desk.clock.advance(1.6)
    desk.accept()


def test_slave_takes_no_messages() -> None:
    desk = Desk(broker_id=1, broker_role="SLAVE")
    assert desk.refuse() == (
        ResponseCode.SYSTEM_BUSY,
        "[REJECTREQUEST]system busy, start flow control for a while",
    )


def test_faults_are_told_in_the_reference_s_order() -> None:
    """Each request has this fault and all that follow; mending one brings up the next."""
    desk = Desk(broker_permission=PERM_READ)
    soon_ms = desk.clock.time_ms() + 1
    desk.checks.config = BrokerConfig(
        broker_permission=PERM_READ, start_accept_send_request_time_stamp=soon_ms, broker_ip1="10.0.0.1"
    )
    desk.topics.put(TopicConfig(topic_name="bad name", order=True, write_queue_nums=1, read_queue_nums=1))
    desk.topics.put(TopicConfig(topic_name="SCHEDULE_TOPIC_XXXX", order=True))
    wrong: dict[str, Any] = {"topic": "bad name", "queue_id": 99, "default_topic": "none"}
    assert desk.refuse(**wrong)[0] == ResponseCode.SYSTEM_ERROR
    desk.clock.advance(0.001)
    assert desk.refuse(**wrong)[0] == ResponseCode.NO_PERMISSION
    assert "10.0.0.1" in desk.refuse(**wrong | {"topic": "SCHEDULE_TOPIC_XXXX"})[1]
    desk.checks.config = BrokerConfig()
    assert desk.refuse(**wrong)[0] == ResponseCode.INVALID_PARAMETER
    assert "is forbidden." in desk.refuse(**wrong | {"topic": "SCHEDULE_TOPIC_XXXX"})[1]
    assert desk.refuse(**wrong | {"topic": "unknown"})[0] == ResponseCode.TOPIC_NOT_EXIST
    assert desk.refuse(**wrong | {"topic": "unknown", "default_topic": "TBW102"})[0] == ResponseCode.INVALID_PARAMETER
    desk.accept(topic="unknown", queue_id=3)


# Hosts


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.1.2.3:555", pack_host("10.1.2.3", 555)),
        ("[fd00::7]:555", pack_host("fd00::7", 555)),
        ("somewhere:555", pack_host("127.0.0.1", 555)),
        ("", pack_host("127.0.0.1", 0)),
    ],
)
def test_peer_s_address_is_packed_once_per_connection(address: str, host: bytes) -> None:
    clock = ManualClock()
    link = Link(clock=clock, timers=clock)
    link.remote_address = address
    assert remote_host(link) == host
    link.remote_address = "10.9.9.9:9"
    assert remote_host(link) == host
