"""Looking at records and queue entries: by key, by place, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusee.broker.handlers import query
from fusee.message.hashing import java_string_hash
from fusee.message.record import iterate_records
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.fields import write_fields
from fusee.wire.headers.admin import QueryConsumeQueue
from fusee.wire.headers.pull import QueryMessage, ViewMessage
from tests.broker.admin_desk import AdminDesk, refusal, told

INT64_MAX = 2**63 - 1


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminDesk]:
    desk = AdminDesk(tmp_path)
    yield desk
    desk.close()


def find(desk: AdminDesk, key: str, *, count: int = 32, begin: int = 0, end: int = INT64_MAX, **more: str) -> Command:
    header = QueryMessage(topic="T", key=key, max_messages=count, begin_timestamp_ms=begin, end_timestamp_ms=end)
    return desk.ask(RequestCode.QUERY_MESSAGE, write_fields(header) | more)


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [message.body for message in iterate_records(memoryview(answer.body))]


# By key


def test_query_by_key_gives_records_in_log_order_and_how_far_the_index_is(desk: AdminDesk) -> None:
    desk.put("T", 0, body=b"1", KEYS="a b")
    desk.put("T", 1, body=b"2", KEYS="c")
    last = desk.put("T", 2, body=b"3", KEYS="a")
    answer = find(desk, "a")
    assert bodies(answer) == [b"1", b"3"]
    assert answer.ext_fields == {
        "indexLastUpdateTimestamp": str(last.store_timestamp_ms),
        "indexLastUpdatePhyoffset": str(last.log_offset),
    }
    assert answer.remark is None


def test_query_by_key_gives_the_newest_up_to_the_number_asked_for(desk: AdminDesk) -> None:
    for number in range(5):
        desk.put("T", body=b"%d" % number, KEYS="a")
    assert bodies(find(desk, "a", count=2)) == [b"3", b"4"]


@pytest.mark.parametrize("said", ["true", "TRUE"])
def test_query_by_unique_key_asks_for_as_many_as_are_given(desk: AdminDesk, said: str) -> None:
    desk.put("T", body=b"1", UNIQ_KEY="U1")
    assert bodies(find(desk, "U1", count=0, _UNIQUE_KEY_QUERY=said, indexType="U")) == [b"1"]
    assert find(desk, "U1", count=0, _UNIQUE_KEY_QUERY="false", indexType="U").code == ResponseCode.QUERY_NOT_FOUND


def test_query_by_tag(desk: AdminDesk) -> None:
    desk.put("T", body=b"1", TAGS="red")
    desk.put("T", body=b"2", TAGS="blue")
    assert bodies(find(desk, "red", indexType="T")) == [b"1"]
    assert find(desk, "red", indexType="K").code == ResponseCode.QUERY_NOT_FOUND


def test_query_by_key_of_nothing_says_so_with_an_index_of_zero(desk: AdminDesk) -> None:
    desk.put("T", KEYS="a")
    answer = find(desk, "b")
    assert refusal(answer) == (22, "can not find message, maybe time range not correct")
    assert answer.ext_fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


def test_query_by_key_outside_its_time_finds_nothing(desk: AdminDesk) -> None:
    result = desk.put("T", KEYS="a")
    at = result.store_timestamp_ms
    assert len(bodies(find(desk, "a", begin=at, end=at))) == 1
    assert find(desk, "a", begin=at + 1).code == ResponseCode.QUERY_NOT_FOUND


def test_query_by_key_when_records_are_too_large_for_one_answer_gives_the_newest(
    desk: AdminDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        desk.put("T", body=b"%d" % number * 1000, KEYS="a")
    monkeypatch.setattr(query, "RECORDS_SIZE_MAX", 2500)
    assert [body[:1] for body in bodies(find(desk, "a"))] == [b"2", b"3"]
    monkeypatch.setattr(query, "RECORDS_SIZE_MAX", 10)
    assert [body[:1] for body in bodies(find(desk, "a"))] == [b"3"]


# By place


def test_view_gives_the_record_as_it_lies(desk: AdminDesk) -> None:
    result = desk.put("T", body=b"seen", KEYS="a")
    desk.make_visible()
    answer = desk.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(topic="T", log_offset=result.log_offset))
    assert bodies(answer) == [b"seen"]
    assert answer.body == bytes(desk.store.record_at(result.log_offset) or b"")
    assert answer.ext_fields is None


@pytest.mark.parametrize("log_offset", [5, -1, 10**12])
def test_view_where_no_record_begins_says_so(desk: AdminDesk, log_offset: int) -> None:
    desk.put("T")
    desk.make_visible()
    answer = desk.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(log_offset)})
    assert refusal(answer) == (1, f"can not find message by the offset, {log_offset}")


# Entry by entry


def look(desk: AdminDesk, first: int, count: int, group: str | None = None, topic: str = "T") -> Command:
    header = QueryConsumeQueue(topic=topic, queue_id=0, queue_offset=first, count=count, consumer_group=group)
    return desk.ask(RequestCode.QUERY_CONSUME_QUEUE, header)


def test_consume_queue_entries(desk: AdminDesk) -> None:
    results = [desk.put("T", TAGS=tag) for tag in ("red", "green", "blue")]
    answer = told(look(desk, 1, 10))
    assert answer == {
        "maxQueueIndex": 3,
        "minQueueIndex": 0,
        "queueData": [
            {
                "eval": False,
                "physicOffset": result.log_offset,
                "physicSize": result.end_offset - result.log_offset,
                "tagsCode": java_string_hash(tag),
            }
            for result, tag in zip(results[1:], ("green", "blue"), strict=True)
        ],
    }


def test_consume_queue_entries_are_as_many_as_asked_for_and_bounded(
    desk: AdminDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(9):
        desk.put("T")
    assert len(told(look(desk, 0, 4))["queueData"]) == 4
    assert told(look(desk, 0, 0))["queueData"] == []
    monkeypatch.setattr(query, "ENTRIES_MAX", 5)
    assert len(told(look(desk, 0, 2**31 - 1))["queueData"]) == 5


@pytest.mark.parametrize("first", [-1, 3, 99])
def test_consume_queue_outside_of_it_says_so(desk: AdminDesk, first: int) -> None:
    for _ in range(3):
        desk.put("T")
    assert refusal(look(desk, first, 1)) == (0, f"Index {first} of 0@T is not exist!")


def test_consume_queue_that_is_not_there_says_so(desk: AdminDesk) -> None:
    assert refusal(look(desk, 0, 1, topic="nowhere")) == (1, "0@nowhere is not exist!")


def test_consume_queue_for_a_group_tells_its_subscription(desk: AdminDesk) -> None:
    desk.put("T")
    assert told(look(desk, 0, 1, "G"))["filterData"] == "G@T is not online!"
    desk.online("G", "T", expression="red")
    answer = told(look(desk, 0, 1, "G"))
    assert answer["filterData"] == "null"
    assert answer["subscriptionData"]["subString"] == "red"


def test_consume_queue_for_a_group_with_sql_tells_its_filter(desk: AdminDesk) -> None:
    desk.put("T")
    desk.online("G", "T", expression="a > 1", expression_type="SQL92")
    assert '"expression":"a > 1"' in told(look(desk, 0, 1, "G"))["filterData"]
