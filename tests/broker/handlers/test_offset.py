"""Offsets of consumers and of queues: answers, refusals and their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import ONEWAY_FLAG, Command
from fusee.wire.framing import encode_frame
from fusee.wire.headers.offset import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    QueryCorrectionOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from fusee.wire.hot_encode import query_offset_request, update_offset_request
from tests.broker.admin_desk import DELAY_OFFSETS, AdminDesk, refusal, told


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminDesk]:
    desk = AdminDesk(tmp_path)
    desk.topic("T")
    desk.group("G")
    yield desk
    desk.close()


def commit(desk: AdminDesk, queue_offset: int, *, group: str = "G", topic: str = "T", queue_id: int = 0) -> Command:
    header = UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=queue_offset)
    return desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def query(
    desk: AdminDesk, *, group: str = "G", topic: str = "T", queue_id: int = 0, zero: bool | None = None
) -> Command:
    header = QueryConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=zero)
    return desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)


# Commit


def test_commit_is_kept_and_told(desk: AdminDesk) -> None:
    assert refusal(commit(desk, 41)) == (ResponseCode.SUCCESS, None)
    assert query(desk).ext_fields == {"offset": "41"}


def test_commit_below_the_committed_offset_is_taken(desk: AdminDesk) -> None:
    commit(desk, 41)
    assert commit(desk, 7).code == ResponseCode.SUCCESS
    assert query(desk).ext_fields == {"offset": "7"}


def test_commit_oneway_is_not_answered(desk: AdminDesk) -> None:
    header = UpdateConsumerOffset(consumer_group="G", topic="T", queue_id=1, commit_offset=3)
    assert desk.tell(update_offset_request(9, header, flag=ONEWAY_FLAG)) is None
    assert desk.offsets.query("G", "T", 1) == 3


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"consumerGroup": "X", "topic": "Y"}, 26, "Group X not exist!"),
        ({"consumerGroup": "G", "topic": "Y"}, 17, "Topic Y not exist!"),
        ({"consumerGroup": "G", "topic": "T", "queueId": None}, 29, "QueueId is null, topic is T"),
        ({"consumerGroup": "G", "topic": "T", "commitOffset": None}, 29, "Offset is null, topic is T"),
        ({"consumerGroup": "G", "topic": "T", "queueId": "-1"}, 29, "QueueId is -1, topic is T"),
        ({"consumerGroup": "G", "topic": "T", "commitOffset": "-5"}, 29, "Offset is -5, topic is T"),
        ({"consumerGroup": None, "topic": "T"}, 26, "Group null not exist!"),
        ({"consumerGroup": "G", "topic": "T", "queueId": "one"}, 29, "QueueId is null, topic is T"),
        ({"consumerGroup": "G", "topic": "T", "queueId": "3000000000"}, 29, "QueueId is null, topic is T"),
        ({"consumerGroup": "G", "topic": "T", "commitOffset": "1.5"}, 29, "Offset is null, topic is T"),
    ],
)
def test_commit_refused_says_why_and_keeps_nothing(
    desk: AdminDesk, fields: dict[str, str | None], code: int, remark: str
) -> None:
    whole: dict[str, str | None] = {"queueId": "0", "commitOffset": "4", **fields}
    answer = desk.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET, {name: value for name, value in whole.items() if value is not None}
    )
    assert refusal(answer) == (code, remark)
    assert answer.ext_fields == {}
    assert len(desk.offsets) == 0


def test_commit_without_a_topic_is_an_error(desk: AdminDesk) -> None:
    answer = desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "G", "queueId": "0", "commitOffset": "4"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "topic" in answer.remark


def test_commit_while_a_reset_waits_is_ignored(desk: AdminDesk) -> None:
    desk.offsets.set_reset("T", "G", 0, 2)
    assert refusal(commit(desk, 41)) == (ResponseCode.SUCCESS, "Offset has been previously reset")
    assert query(desk).ext_fields == {"offset": "2"}
    assert desk.offsets.take_reset("T", "G", 0) == 2
    commit(desk, 41)
    assert query(desk).ext_fields == {"offset": "41"}


# Query


def test_query_by_the_short_way_and_the_long_way_answers_alike(desk: AdminDesk) -> None:
    commit(desk, 12)
    header = QueryConsumerOffset(consumer_group="G", topic="T", queue_id=0)
    short = desk.answer(query_offset_request(5, header))
    # A client that writes the code last is read by the general decoder.
    long = desk.answer(encode_frame(Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)))
    assert short.ext_fields == long.ext_fields == {"offset": "12"}


def test_query_of_nothing_gives_zero_while_the_first_message_is_at_hand(desk: AdminDesk) -> None:
    desk.put("T")
    assert query(desk).ext_fields == {"offset": "0"}


def test_query_of_nothing_without_zero_is_not_found(desk: AdminDesk) -> None:
    desk.put("T")
    answer = query(desk, zero=False)
    assert refusal(answer) == (22, "Not found, do not set to zero, maybe this group boot first")
    assert answer.ext_fields == {}


def test_query_of_nothing_in_an_empty_queue_is_not_found(desk: AdminDesk) -> None:
    expected = (22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
    assert refusal(query(desk)) == expected
    assert refusal(query(desk, topic="nowhere", group="nobody")) == expected


def test_query_of_nothing_when_the_first_message_has_expired_is_not_found(desk: AdminDesk) -> None:
    for _ in range(12):
        desk.put("T", body=bytes(3000))
    desk.expire_log()
    assert query(desk).code == ResponseCode.QUERY_NOT_FOUND


# Of queues


def test_max_and_min_offset(desk: AdminDesk) -> None:
    for _ in range(3):
        desk.put("T", 1)
    most = desk.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic="T", queue_id=1))
    assert (refusal(most), most.ext_fields) == ((0, None), {"offset": "3"})
    least = desk.ask(RequestCode.GET_MIN_OFFSET, GetMinOffset(topic="T", queue_id=1))
    assert (refusal(least), least.ext_fields) == ((0, ""), {"offset": "0"})


@pytest.mark.parametrize("code", [RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET])
def test_max_and_min_offset_of_an_unknown_queue_are_zero(desk: AdminDesk, code: RequestCode) -> None:
    assert desk.ask(code, {"topic": "nowhere", "queueId": "9"}).ext_fields == {"offset": "0"}


@pytest.mark.parametrize(
    ("after_ms", "boundary", "expected"),
    [
        (-1, None, 0),
        (0, "LOWER", 0),
        (1, None, 2),
        (100, "lower", 2),
        (101, "LOWER", 4),
        (100, "UPPER", 3),
        (150, "upper", 3),
        (-1, "UPPER", 0),
        (5_000, "UPPER", 3),
        (5_000, "neither", 4),
    ],
)
def test_search_by_time(desk: AdminDesk, after_ms: int, boundary: str | None, expected: int) -> None:
    start_ms = desk.clock.time_ms()
    desk.put("T")
    desk.put("T")
    desk.clock.advance(0.1)
    desk.put("T")
    desk.put("T")
    header = SearchOffset(topic="T", queue_id=0, timestamp_ms=start_ms + after_ms, boundary_type=boundary)
    answer = desk.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    assert answer.ext_fields == {"offset": str(expected)}


def test_earliest_store_time(desk: AdminDesk) -> None:
    desk.put("T")
    start_ms = desk.clock.time_ms()
    desk.clock.advance(1)
    desk.put("T")
    found = desk.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestStoreTime(topic="T", queue_id=0))
    assert found.ext_fields == {"timestamp": str(start_ms)}
    none = desk.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestStoreTime(topic="T", queue_id=1))
    assert none.ext_fields == {"timestamp": "-1"}


# For administrators and slaves


def test_correction_is_the_least_of_the_others_or_none_for_who_is_behind(desk: AdminDesk) -> None:
    for group, committed in (("A", [5, 9, 4]), ("B", [7, 3, 8]), ("C", [1, 1, 1]), ("behind", [4, 4, 4])):
        for queue_id, queue_offset in enumerate(committed):
            desk.offsets.commit(group, "T", queue_id, queue_offset)
    header = QueryCorrectionOffset(topic="T", compare_group="behind", filter_groups="C,behind")
    answer = desk.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)
    assert told(answer) == {"correctionOffsets": {0: 2**63 - 1, 1: 3, 2: 4}}
    assert desk.offsets.query("C", "T", 0) == 1


def test_correction_leaves_out_offsets_of_messages_that_are_gone(desk: AdminDesk) -> None:
    for _ in range(12):
        desk.put("T", body=bytes(3000))
    desk.expire_log()
    desk.offsets.commit("A", "T", 0, 0)
    desk.offsets.commit("B", "T", 0, 12)
    header = QueryCorrectionOffset(topic="T", compare_group="A")
    assert told(desk.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)) == {"correctionOffsets": {0: 2**63 - 1}}


def test_correction_of_a_topic_without_offsets_is_empty(desk: AdminDesk) -> None:
    header = QueryCorrectionOffset(topic="T", compare_group="G")
    assert told(desk.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)) == {"correctionOffsets": {}}


def test_all_offsets_are_told_to_a_slave(desk: AdminDesk) -> None:
    commit(desk, 41)
    body = told(desk.ask(RequestCode.GET_ALL_CONSUMER_OFFSET))
    assert body["offsetTable"] == {"T@G": {0: 41}}
    assert desk.ask(RequestCode.GET_ALL_DELAY_OFFSET).body == DELAY_OFFSETS
