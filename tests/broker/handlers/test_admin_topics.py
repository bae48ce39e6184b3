"""Administration of topics: what is made, refused, deleted, told and cleaned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fusee.broker.handlers.admin_topics import QUEUES_MAX
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.admin import CreateTopic, DeleteTopic, GetAllTopicConfig, GetTopicStats
from fusee.wire.lenient_json import dumps_fastjson
from tests.broker.admin_desk import ADDRESS, BROKER, AdminDesk, refusal, told


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminDesk]:
    desk = AdminDesk(tmp_path)
    yield desk
    desk.close()


def create(desk: AdminDesk, topic: str = "T", **more: Any) -> Command:
    header = CreateTopic(
        **{
            "topic": topic,
            "default_topic": "TBW102",
            "read_queue_nums": 4,
            "write_queue_nums": 4,
            "perm": 6,
            "topic_filter_type": "SINGLE_TAG",
            **more,
        }
    )
    return desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def create_list(desk: AdminDesk, *topics: TopicConfig) -> Command:
    body = dumps_fastjson({"topicConfigList": list(topics)})
    return desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


def changes(desk: AdminDesk) -> list[list[str]]:
    """What listeners are told from now on."""
    seen: list[list[str]] = []

    def listen(topics: Sequence[TopicConfig]) -> None:
        seen.append([topic.topic_name for topic in topics])

    desk.topics.listeners.append(listen)
    return seen


# Making


def test_create_makes_the_topic_and_tells_listeners(desk: AdminDesk) -> None:
    seen = changes(desk)
    answer = create(desk, read_queue_nums=3, perm=4, topic_sys_flag=1, order=True, attributes="+message.type=FIFO")
    assert refusal(answer) == (ResponseCode.SUCCESS, None)
    assert desk.topics.get("T") == TopicConfig(
        topic_name="T",
        read_queue_nums=3,
        write_queue_nums=4,
        perm=4,
        topic_sys_flag=1,
        order=True,
        attributes={"message.type": "FIFO"},
    )
    assert seen == [["T"]]


def test_create_of_an_unchanged_topic_changes_nothing(desk: AdminDesk) -> None:
    create(desk)
    version = desk.topics.version
    assert create(desk).code == ResponseCode.SUCCESS
    assert desk.topics.version == version
    create(desk, perm=4)
    assert desk.topics.version != version


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": " "}, 29, "The specified topic is blank."),
        (
            {"topic": "a b"},
            29,
            "The specified topic: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": BROKER}, 29, f"The topic[{BROKER}] is conflict with system topic."),
        ({"topic": "rmq_sys_mine"}, 29, "The topic[rmq_sys_mine] is conflict with system topic."),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "message.type=FIFO"}, 1, "add/alter attribute format is wrong: message.type"),
        ({"attributes": "+nonsense=1"}, 1, "unsupported key: nonsense"),
        ({"topic_filter_type": "NO_TAG"}, 1, "topicFilterType = [NO_TAG] value invalid"),
        ({"read_queue_nums": -1}, 29, f"topic T with -1 queues: a topic has 0 to {QUEUES_MAX}"),
        ({"write_queue_nums": 10**6}, 29, f"topic T with 1000000 queues: a topic has 0 to {QUEUES_MAX}"),
    ],
)
def test_create_refused_says_why_and_makes_nothing(
    desk: AdminDesk, more: dict[str, Any], code: int, remark: str
) -> None:
    before = dict(desk.topics.all())
    assert refusal(create(desk, **more)) == (code, remark)
    assert dict(desk.topics.all()) == before


def test_create_of_a_system_topic_when_that_is_allowed(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path, validate_system_topic_when_update_topic=False)
    assert create(desk, "SELF_TEST_TOPIC", perm=4).code == ResponseCode.SUCCESS
    desk.close()


def test_create_list_makes_all_that_differ(desk: AdminDesk) -> None:
    seen = changes(desk)
    create(desk, "old")
    old = desk.topics.get("old")
    assert old is not None
    answer = create_list(desk, old, TopicConfig(topic_name="new"), TopicConfig(topic_name="newer"))
    assert refusal(answer) == (ResponseCode.SUCCESS, None)
    assert seen == [["old"], ["new", "newer"]]


def test_create_list_with_one_that_is_refused_makes_none(desk: AdminDesk) -> None:
    seen = changes(desk)
    good = TopicConfig(topic_name="good")
    assert create_list(desk, good, TopicConfig(topic_name="a b")).code == ResponseCode.INVALID_PARAMETER
    assert create_list(desk, good, TopicConfig(topic_name="T", attributes={"+no": "1"})).remark == "unsupported key: no"
    assert create_list(desk, good, TopicConfig(topic_name="T", read_queue_nums=-2)).code == 29
    assert seen == []


def test_create_list_without_a_list_is_an_error(desk: AdminDesk) -> None:
    assert desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=b"{}").code == ResponseCode.SYSTEM_ERROR


def test_create_static_topic_is_refused_with_advice(desk: AdminDesk) -> None:
    header = CreateTopic(
        topic="T",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    answer = desk.ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, body=b"{}")
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark is not None
    assert "updateTopic" in answer.remark
    assert desk.topics.get("T") is None


# Deleting


def delete(desk: AdminDesk, topic: str) -> Command:
    return desk.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic=topic))


def test_delete_takes_configuration_offsets_and_queues(desk: AdminDesk) -> None:
    for topic in ("T", "U"):
        desk.topic(topic)
        desk.put(topic)
        desk.offsets.commit("G", topic, 0, 1)
    assert refusal(delete(desk, "T")) == (ResponseCode.SUCCESS, None)
    assert desk.topics.get("T") is None
    assert desk.offsets.query("G", "T", 0) == -1
    assert desk.store.queues.topics() == ["U"]
    assert desk.offsets.query("G", "U", 0) == 1
    desk.topic("T")
    assert desk.put("T").queue_offset == 0


def test_delete_of_an_unknown_topic_is_no_error(desk: AdminDesk) -> None:
    assert refusal(delete(desk, "T")) == (ResponseCode.SUCCESS, None)


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        (" ", "The specified topic is blank."),
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
    ],
)
def test_delete_refused_says_why(desk: AdminDesk, topic: str, remark: str) -> None:
    assert refusal(delete(desk, topic)) == (ResponseCode.INVALID_PARAMETER, remark)
    assert desk.topics.get("TBW102") is not None


@pytest.mark.parametrize(("setting", "left"), [(True, set()), (False, {"%RETRY%G_T", "%RETRY%G+T"})])
def test_delete_takes_pop_retry_topics_along(tmp_path: Path, setting: bool, left: set[str]) -> None:
    desk = AdminDesk(tmp_path, clear_retry_topic_when_delete_topic=setting)
    retry = {"%RETRY%G_T", "%RETRY%G+T"}
    for topic in ("T", *retry, "%RETRY%H_T"):
        desk.topic(topic)
        desk.put(topic)
    desk.offsets.commit("G", "T", 0, 1)
    delete(desk, "T")
    assert {topic for topic in retry if desk.topics.get(topic) is not None} == left
    assert set(desk.store.queues.topics()) == {"%RETRY%H_T", *left}
    desk.close()


# Telling


def all_topics(desk: AdminDesk, **header: Any) -> tuple[list[str], int]:
    answer = desk.ask(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfig(**header))
    assert answer.ext_fields is not None
    return list(told(answer)["topicConfigTable"]), int(answer.ext_fields["totalTopicNum"])


def test_all_topics_at_once(desk: AdminDesk) -> None:
    desk.topic("T", attributes={"+message.type": "FIFO"})
    answer = desk.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    body = told(answer)
    assert set(body) == {
        *("dataVersion", "mappingDataVersion", "topicConfigTable"),
        *("topicQueueMappingDetailMap", "topicQueueMappingInfoMap"),
    }
    assert body["dataVersion"]["counter"] == desk.topics.version.counter
    assert body["topicConfigTable"]["T"]["attributes"] == {"message.type": "FIFO"}
    assert len(body["topicConfigTable"]) == len(desk.topics)
    assert answer.ext_fields == {"totalTopicNum": str(len(desk.topics))}


def test_all_topics_in_pages_are_each_topic_once(desk: AdminDesk) -> None:
    for number in range(30):
        desk.topic(f"T{number}")
    version = dumps_fastjson(desk.topics.version).decode()
    found, total = all_topics(desk, topic_seq=0, data_version="", max_topics=7)
    assert len(found) == 7
    while len(found) < total:
        page, _ = all_topics(desk, topic_seq=len(found), data_version=version, max_topics=7)
        found += page
    assert found == sorted(desk.topics.all())
    assert all_topics(desk, topic_seq=total, data_version=version)[0] == []


def test_all_topics_in_pages_begin_anew_when_topics_changed(desk: AdminDesk) -> None:
    version = dumps_fastjson(desk.topics.version).decode()
    desk.topic("A")
    page, _ = all_topics(desk, topic_seq=3, data_version=version, max_topics=1)
    assert page == ["A"]


def test_all_topics_in_pages_are_bounded_by_the_brokers_own_limit(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path, split_metadata_size=5)
    assert len(all_topics(desk, topic_seq=0)[0]) == 5
    assert len(all_topics(desk, max_topics=1000)[0]) == 5
    assert len(all_topics(desk, max_topics=2)[0]) == 2
    desk.close()


def test_one_topic(desk: AdminDesk) -> None:
    desk.topic("T")
    answer = told(desk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T", "lo": "true"}))
    assert (answer["topicName"], answer["readQueueNums"], answer["attributes"]) == ("T", 4, {})
    unknown = desk.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "U"})
    assert refusal(unknown) == (17, "No topic in this broker. topic: U")


def test_topic_stats_tell_every_queue(desk: AdminDesk) -> None:
    desk.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=3))
    desk.put("T", 1)
    desk.clock.advance(5)
    desk.put("T", 1)
    answer = told(desk.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStats(topic="T")))
    queues = {
        queue["queueId"]: (entry["minOffset"], entry["maxOffset"], entry["lastUpdateTimestamp"])
        for queue, entry in answer["offsetTable"].items()
    }
    assert queues == {0: (0, 0, 0), 1: (0, 2, desk.clock.time_ms()), 2: (0, 0, 0)}
    assert {(queue["brokerName"], queue["topic"]) for queue in answer["offsetTable"]} == {(BROKER, "T")}
    assert answer["topicPutTps"] == 0.0


def test_topic_stats_of_an_unknown_topic(desk: AdminDesk) -> None:
    answer = desk.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStats(topic="T"))
    assert refusal(answer) == (17, "topic[T] not exist")


def test_who_consumes_a_topic_online_or_earlier(desk: AdminDesk) -> None:
    desk.online("now", "T")
    desk.offsets.commit("earlier", "T", 0, 1)
    desk.offsets.commit("now", "T", 0, 1)
    desk.offsets.commit("other", "U", 0, 1)
    assert told(desk.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})) == {"groupList": ["earlier", "now"]}
    assert told(desk.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "none"})) == {"groupList": []}


def test_topics_of_a_group(desk: AdminDesk) -> None:
    desk.offsets.commit("G", "U", 0, 1)
    desk.offsets.commit("G", "T", 0, 1)
    answer = told(desk.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "G"}))
    assert answer == {"brokerAddr": ADDRESS, "topicList": ["T", "U"]}


def test_system_topics_are_those_of_this_broker_too(desk: AdminDesk) -> None:
    desk.topic("T")
    answer = told(desk.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", BROKER, "C", "C_REPLY_TOPIC", "CHECKPOINT_TOPIC"} <= set(
        answer["topicList"]
    )
    assert "T" not in answer["topicList"]
    assert "brokerAddr" not in answer


# Cleaning


def test_clean_unused_topics_removes_queues_of_topics_that_are_gone(desk: AdminDesk) -> None:
    desk.topic("T")
    for topic in ("T", "gone", "rmq_sys_x"):
        desk.put(topic)
    assert refusal(desk.ask(RequestCode.CLEAN_UNUSED_TOPIC)) == (ResponseCode.SUCCESS, None)
    assert desk.store.queues.topics() == ["T", "rmq_sys_x"]


def test_clean_expired_queues_keeps_the_numbers_of_topics_in_use(desk: AdminDesk) -> None:
    desk.topic("T")
    desk.put("T")
    desk.put("gone")
    for _ in range(12):
        desk.put("U", body=bytes(3000))
    desk.topic("U")
    desk.expire_log()
    assert refusal(desk.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)) == (ResponseCode.SUCCESS, None)
    assert desk.store.queues.topics() == ["T", "U"]
    assert desk.put("T").queue_offset == 1


def test_delete_expired_log_acts_at_any_hour(desk: AdminDesk, tmp_path: Path) -> None:
    for _ in range(12):
        desk.put("T", body=bytes(3000))
    desk.make_visible()
    desk.store.flush_derived()
    desk.age_log()
    assert desk.store.expire() == []
    assert refusal(desk.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)) == (ResponseCode.SUCCESS, None)
    assert desk.store.expire()
