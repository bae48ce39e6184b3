"""What groups have consumed: counts, ages, and which topics are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.admin import GetBrokerConsumeStats, GetConsumeStats, QueryConsumeTimeSpan
from tests.broker.admin_desk import ADDRESS, AdminDesk, refusal, told


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminDesk]:
    """Topics T and U; five messages a second apart in the first queue of T, two in U. G is at 3 in T and at 1 in U."""
    desk = AdminDesk(tmp_path)
    desk.topic("T", 2)
    desk.topic("U", 1, order=True)
    desk.group("G")
    for _ in range(5):
        desk.put("T", 0)
        desk.clock.advance(1)
    desk.put("U", 0)
    desk.put("U", 0)
    desk.offsets.commit("G", "T", 0, 3)
    desk.offsets.commit("G", "U", 0, 1)
    desk.offsets.commit("G", "gone", 0, 1)
    yield desk
    desk.close()


def stats(desk: AdminDesk, **header: Any) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """(broker offset, consumer offset, pull offset, last timestamp) by topic and queue."""
    answer = told(desk.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStats(consumer_group="G", **header)))
    return {(queue["topic"], queue["queueId"]): _progress(entry) for queue, entry in answer["offsetTable"].items()}


def _progress(entry: dict[str, int]) -> tuple[int, int, int, int]:
    return entry["brokerOffset"], entry["consumerOffset"], entry["pullOffset"], entry["lastTimestamp"]


def test_stats_of_all_topics_with_offsets(desk: AdminDesk) -> None:
    now_ms = desk.clock.time_ms()
    assert stats(desk) == {
        ("T", 0): (5, 3, 3, now_ms - 3000),
        ("T", 1): (0, 0, 0, 0),
        ("U", 0): (2, 1, 1, now_ms),
    }


def test_stats_tell_how_far_pulls_are(desk: AdminDesk) -> None:
    desk.offsets.set_pull_offset("G", "T", 0, 5)
    desk.offsets.set_pull_offset("G", "U", 0, 0)
    found = stats(desk)
    assert (found["T", 0][2], found["U", 0][2]) == (5, 1)


def test_stats_of_one_topic_or_of_several(desk: AdminDesk) -> None:
    assert {topic for topic, _ in stats(desk, topic="U")} == {"U"}
    assert {topic for topic, _ in stats(desk, topic="U", topics="T;")} == {"T"}
    assert {topic for topic, _ in stats(desk, topics="T;U;gone")} == {"T", "U"}
    assert {topic for topic, _ in stats(desk, topic=" ", topics=" ")} == {"T", "U"}
    assert stats(desk, topic="gone") == {}


def test_stats_of_a_group_online_leave_out_what_it_does_not_subscribe_to(desk: AdminDesk) -> None:
    desk.online("G", "U")
    assert {topic for topic, _ in stats(desk)} == {"U"}
    assert stats(desk, topic="T") == {}
    assert {topic for topic, _ in stats(desk, topics="T")} == {"T"}


def test_stats_sum_the_rates_of_their_topics(desk: AdminDesk) -> None:
    assert told(desk.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"}))["consumeTps"] == 0.0
    desk.statistics.sample()
    for _ in range(6):
        desk.statistics.got("G", "T", 0, 20, 2000, False)
        desk.statistics.got("G", "U", 0, 10, 1000, False)
        desk.clock.advance(10)
        desk.statistics.sample()
    rate = told(desk.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"}))["consumeTps"]
    parts = [desk.statistics.group_get_tps("G", topic) for topic in ("T", "U")]
    assert min(parts) > 0
    assert rate == pytest.approx(sum(parts))


def test_stats_of_the_broker_tell_every_group_and_sums(desk: AdminDesk) -> None:
    answer = told(desk.ask(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStats(is_order=False)))
    assert answer["brokerAddr"] == ADDRESS
    groups = {name: found for entry in answer["consumeStatsList"] for name, found in entry.items()}
    assert set(groups) == set(desk.groups.all())
    assert groups["TOOLS_CONSUMER"] == []
    now_ms = desk.clock.time_ms()
    in_topics = [
        {(queue["topic"], queue["queueId"]): _progress(entry) for queue, entry in found["offsetTable"].items()}
        for found in groups["G"]
    ]
    assert in_topics == [
        {("T", 0): (5, 3, 0, now_ms - 3000), ("T", 1): (0, 0, 0, 0)},
        {("U", 0): (2, 1, 0, now_ms)},
    ]
    assert (answer["totalDiff"], answer["totalInflightDiff"]) == (3, -4)


def test_stats_of_the_broker_for_ordered_topics(desk: AdminDesk) -> None:
    answer = told(desk.ask(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStats(is_order=True)))
    groups = {name: found for entry in answer["consumeStatsList"] for name, found in entry.items()}
    assert [queue["topic"] for found in groups["G"] for queue in found["offsetTable"]] == ["U"]
    assert answer["totalDiff"] == 1


def test_stats_of_the_broker_leave_out_what_a_group_online_does_not_subscribe_to(desk: AdminDesk) -> None:
    desk.online("G", "U")
    answer = told(desk.ask(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStats(is_order=False)))
    assert answer["totalDiff"] == 1


# Ages


def spans(desk: AdminDesk, group: str = "G", topic: str = "T") -> list[tuple[int, int, int, int, int]]:
    """(queue, first, last, consumed: before now; delay) in milliseconds, -1 for no time."""
    header = QueryConsumeTimeSpan(topic=topic, group=group)
    answer = told(desk.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, header))
    now_ms = desk.clock.time_ms()

    def ago(timestamp_ms: int) -> int:
        return timestamp_ms if timestamp_ms < 0 else now_ms - timestamp_ms

    return [
        (
            span["messageQueue"]["queueId"],
            ago(span["minTimeStamp"]),
            ago(span["maxTimeStamp"]),
            ago(span["consumeTimeStamp"]),
            span["delayTime"],
        )
        for span in answer["consumeTimeSpanSet"]
    ]


def test_time_span_of_every_queue(desk: AdminDesk) -> None:
    assert spans(desk) == [(0, 5000, 1000, 3000, 2000), (1, -1, -1, -1, 0)]


def test_time_span_of_a_group_that_has_consumed_all_has_no_delay(desk: AdminDesk) -> None:
    desk.offsets.commit("G", "T", 0, 5)
    assert spans(desk)[0] == (0, 5000, 1000, 1000, 0)


def test_time_span_of_a_group_that_has_not_begun_counts_from_the_first_message(desk: AdminDesk) -> None:
    assert spans(desk, "new")[0] == (0, 5000, 1000, 5000, 5000)


def test_time_span_goes_by_write_queues(desk: AdminDesk) -> None:
    desk.topics.put(TopicConfig(topic_name="V", read_queue_nums=1, write_queue_nums=3))
    assert [queue_id for queue_id, *_ in spans(desk, topic="V")] == [0, 1, 2]


def test_time_span_of_an_unknown_topic(desk: AdminDesk) -> None:
    answer = desk.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan(topic="none", group="G"))
    assert refusal(answer) == (ResponseCode.TOPIC_NOT_EXIST, "topic[none] not exist")
