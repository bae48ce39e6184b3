"""Administration of the real broker, replayed: same requests in, same answers out.

What the recorded answers say about queues (how many messages, when the last consumed one was stored) is put into the
store and the tables first; then the recorded requests are asked. Order of map entries is not defined in Java and not
compared, nor are rates, which hang on the clock. `not set any response code` is what Java leaves in the remark of some
successful answers; ours have none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.lenient_json import loads
from tests.broker.admin_desk import AdminDesk
from tests.golden import GoldenFrame, frames

GOLDEN_BROKER = "golden-a"
LEFT_OVER = "not set any response code"
START_MS = 1_794_820_000_000

Place = tuple[str, int]
"""Topic and queue."""


def exchanges(file: str, code: RequestCode) -> list[tuple[GoldenFrame, GoldenFrame]]:
    """Requests with this code and their responses, of the conversations in JSON."""
    own = [frame for frame in frames(file) if frame.conversation == "json"]
    responses = {frame.pair: frame for frame in own if frame.role == "response"}
    return [(frame, responses[frame.pair]) for frame in own if frame.role == "request" and frame.code == code]


def the_exchange(file: str, pair: str) -> tuple[GoldenFrame, GoldenFrame]:
    request, response = (frame for frame in frames(file) if frame.pair == pair)
    assert (request.role, response.role) == ("request", "response")
    return request, response


def unordered(value: Any) -> Any:
    """Maps with their keys in order, lists of names sorted, rates left out."""
    if isinstance(value, dict):
        kept = {str(sorted(key.items()) if hasattr(key, "items") else key): item for key, item in value.items()}
        return {key: unordered(kept[key]) for key in sorted(kept) if not key.lower().endswith("tps")}
    if isinstance(value, list):
        return sorted((unordered(item) for item in value), key=str)
    return value


def check(desk: AdminDesk, request: GoldenFrame, response: GoldenFrame) -> None:
    answer = desk.answer(request.frame)
    where = response.id
    assert answer.code == response.header.code, f"{where}: {answer.remark}"
    assert answer.ext_fields == response.header.ext_fields, where
    if response.header.remark == LEFT_OVER:
        assert answer.remark is None, where
    else:
        assert answer.remark == response.header.remark, where
    assert bool(answer.body) == bool(response.body_bytes), where
    if answer.body:
        assert unordered(loads(answer.body)) == unordered(loads(response.body_bytes)), where


class Timeline:
    """What recorded answers tell about messages: how many each queue has, and when some were stored."""

    def __init__(self) -> None:
        self._counts: dict[Place, int] = defaultdict(int)
        self._times: dict[Place, dict[int, int]] = defaultdict(dict)

    def learn(self, place: Place, count: int, number: int, timestamp_ms: int) -> None:
        self._counts[place] = max(self._counts[place], count)
        if number >= 0 and timestamp_ms > 0:
            self._times[place][number] = timestamp_ms

    def put_into(self, desk: AdminDesk) -> None:
        messages: list[tuple[int, str, int]] = []
        for (topic, queue_id), count in self._counts.items():
            known = self._times[topic, queue_id]
            timestamp_ms = max(known.values(), default=START_MS)
            # From the end: one of which nothing is known was stored with the next that is known.
            for number in range(count - 1, -1, -1):
                timestamp_ms = known.get(number, timestamp_ms)
                messages.append((timestamp_ms, topic, queue_id))
        for timestamp_ms, topic, queue_id in sorted(messages):
            desk.clock.jump_wall(timestamp_ms - desk.clock.time_ms())
            desk.put(topic, queue_id)
        desk.make_visible()


def place_of(queue: Any) -> Place:
    assert queue["brokerName"] == GOLDEN_BROKER
    return queue["topic"], queue["queueId"]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminDesk]:
    """The recorded broker in the middle of its recording: topics, groups, messages, offsets."""
    desk = AdminDesk(tmp_path, start_ms=START_MS, name=GOLDEN_BROKER)
    timeline = Timeline()
    queues: dict[str, int] = defaultdict(int)
    [(_, of_broker)] = exchanges("mqadmin", RequestCode.GET_BROKER_CONSUME_STATS)
    for entry in loads(of_broker.body_bytes)["consumeStatsList"]:
        for group, stats in entry.items():
            desk.group(group)
            for found in stats:
                for queue, progress in found["offsetTable"].items():
                    topic, queue_id = place_of(queue)
                    queues[topic] = max(queues[topic], queue_id + 1)
                    consumed = progress["consumerOffset"]
                    desk.offsets.commit(group, topic, queue_id, consumed)
                    count = progress["brokerOffset"]
                    timeline.learn((topic, queue_id), count, consumed - 1, progress["lastTimestamp"])
    [(_, of_topic)] = exchanges("mqadmin", RequestCode.GET_TOPIC_STATS_INFO)
    for queue, found in loads(of_topic.body_bytes)["offsetTable"].items():
        count = found["maxOffset"]
        timeline.learn(place_of(queue), count, count - 1, found["lastUpdateTimestamp"])
    for topic, count in queues.items():
        desk.topic(topic, count)
    timeline.put_into(desk)
    yield desk
    desk.close()


# What is told


def test_topic_stats(desk: AdminDesk) -> None:
    [(request, response)] = exchanges("mqadmin", RequestCode.GET_TOPIC_STATS_INFO)
    check(desk, request, response)


def test_topic_config(desk: AdminDesk) -> None:
    found = exchanges("mqadmin", RequestCode.GET_TOPIC_CONFIG)
    assert found
    for request, response in found:
        assert desk.answer(request.frame).body == response.body_bytes


@pytest.mark.parametrize("pair", ["mqadmin.consumerProgress_all#2", "mqadmin.statsAll#5"])
def test_consume_stats(desk: AdminDesk, pair: str) -> None:
    request, response = the_exchange("mqadmin", pair)
    group = (request.header.ext_fields or {})["consumerGroup"]
    for queue, progress in loads(response.body_bytes)["offsetTable"].items():
        topic, queue_id = place_of(queue)
        desk.offsets.commit(group, topic, queue_id, progress["consumerOffset"])
        desk.offsets.set_pull_offset(group, topic, queue_id, progress["pullOffset"])
    check(desk, request, response)


def test_broker_consume_stats_but_for_its_address(desk: AdminDesk) -> None:
    [(request, response)] = exchanges("mqadmin", RequestCode.GET_BROKER_CONSUME_STATS)
    answer, expected = loads(desk.answer(request.frame).body), loads(response.body_bytes)
    for body in (answer, expected):
        assert body.pop("brokerAddr")
        # Groups that were there without having consumed: this broker has tool groups of its own.
        body["consumeStatsList"] = [entry for entry in body["consumeStatsList"] if any(entry.values())]
    assert unordered(answer) == unordered(expected)


def test_consumers_of_a_topic(desk: AdminDesk) -> None:
    request, response = exchanges("mqadmin", RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)[0]
    check(desk, request, response)


def test_all_groups(tmp_path: Path) -> None:
    request, response = exchanges("mqadmin", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)[0]
    desk = AdminDesk(tmp_path)
    expected = loads(response.body_bytes)
    for group in expected["subscriptionGroupTable"].values():
        desk.groups.put(
            SubscriptionGroupConfig(
                group_name=group["groupName"],
                retry_max_times=group["retryMaxTimes"],
                consume_broadcast_enable=group["consumeBroadcastEnable"],
                consume_from_min_enable=group["consumeFromMinEnable"],
            )
        )
    answer = desk.answer(request.frame)
    assert answer.ext_fields == response.header.ext_fields
    body = loads(answer.body)
    for table in (body, expected):
        del table["dataVersion"]
    assert unordered(body) == unordered(expected)
    desk.close()


def test_all_offsets_of_a_broker_without_any(tmp_path: Path) -> None:
    request, response = exchanges("ha", RequestCode.GET_ALL_CONSUMER_OFFSET)[0]
    desk = AdminDesk(tmp_path)
    answer, expected = loads(desk.answer(request.frame).body), loads(response.body_bytes)
    assert set(answer.pop("dataVersion")) == set(expected.pop("dataVersion"))
    assert answer == expected
    desk.close()


# What is changed


@pytest.mark.parametrize("file", ["admin", "mqadmin"])
def test_topics_are_made_and_changed(tmp_path: Path, file: str) -> None:
    desk = AdminDesk(tmp_path)
    found = exchanges(file, RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert found
    for request, response in found:
        check(desk, request, response)
        fields = request.header.ext_fields or {}
        topic = desk.topics.get(fields["topic"])
        assert topic is not None
        assert (topic.perm, topic.read_queue_nums) == (int(fields["perm"]), int(fields["readQueueNums"]))
    desk.close()


def test_topic_made_then_changed_then_deleted(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path)
    for pair in ("mqadmin.updateTopic#1", "mqadmin.updateTopicPerm#1", "mqadmin.deleteTopic#1"):
        check(desk, *the_exchange("mqadmin", pair))
        topic = desk.topics.get("GoldenAdmin")
        if topic is not None:
            assert topic.attributes == {"message.type": "NORMAL"}
    assert desk.topics.get("GoldenAdmin") is None
    desk.close()


def test_group_made_then_deleted(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path)
    check(desk, *the_exchange("mqadmin", "mqadmin.updateSubGroup#1"))
    group = desk.groups.get("CG_made")
    assert group is not None
    assert (group.retry_max_times, group.consume_broadcast_enable) == (5, False)
    check(desk, *the_exchange("mqadmin", "mqadmin.deleteSubGroup#1"))
    assert desk.groups.get("CG_made") is None
    desk.close()


def test_offsets_are_reset(desk: AdminDesk) -> None:
    [(request, response)] = exchanges("mqadmin", RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    check(desk, request, response)
    assert desk.offsets.pending_reset("Golden", "CG_admin", 0) == 0


def test_commit_for_an_unknown_group_is_refused(desk: AdminDesk) -> None:
    request, response = the_exchange("mqadmin", "mqadmin.cloneGroupOffset#3")
    assert response.header.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    check(desk, request, response)


def test_expired_queues_are_cleaned(desk: AdminDesk) -> None:
    [(request, response)] = exchanges("mqadmin", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    check(desk, request, response)


# Offsets and messages of clients


@pytest.mark.parametrize(
    "pair",
    [
        *("raw.query_offset_unknown#1", "raw.query_offset_unknown_zero_allowed#1"),
        *("pull.min_offset#1", "pull.search_offset_zero#1"),
    ],
)
def test_offset_queries(desk: AdminDesk, pair: str) -> None:
    check(desk, *the_exchange(pair.split(".", maxsplit=1)[0], pair))


def test_max_offset_counts_messages(tmp_path: Path) -> None:
    request, response = the_exchange("pull", "pull.max_offset#1")
    desk = AdminDesk(tmp_path)
    for _ in range(int((response.header.ext_fields or {})["offset"])):
        desk.put("Golden")
    check(desk, request, response)
    desk.close()


def test_earliest_store_time(tmp_path: Path) -> None:
    request, response = the_exchange("pull", "pull.earliest_store_time#1")
    desk = AdminDesk(tmp_path, start_ms=int((response.header.ext_fields or {})["timestamp"]))
    desk.put("Golden")
    desk.clock.advance(1)
    desk.put("Golden")
    check(desk, request, response)
    desk.close()


def test_offset_not_found_in_an_empty_queue(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path)
    check(desk, *the_exchange("push", "push.send_back#4"))
    desk.close()


def test_query_by_key_of_nothing(desk: AdminDesk) -> None:
    check(desk, *the_exchange("query", "query.by_key_none#1"))


def test_query_by_key_finds_what_the_reference_found(tmp_path: Path) -> None:
    request, response = the_exchange("query", "query.by_key#1")
    desk = AdminDesk(tmp_path)
    desk.put("Golden", body=b"other", KEYS="other-key")
    desk.put("Golden", body=b"wanted", KEYS="query-key")
    answer: Command = desk.answer(request.frame)
    assert answer.code == response.header.code
    assert set(answer.ext_fields or {}) == set(response.header.ext_fields or {})
    assert b"wanted" in answer.body
    assert b"other" not in answer.body
    desk.close()
