"""Administration of consumer groups: configuration, permission, reset and copy of offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.admin import DeleteSubscriptionGroup, GetAllSubscriptionGroups, UpdateGroupForbidden
from fusee.wire.headers.offset import CloneGroupOffset, ResetOffset
from fusee.wire.lenient_json import dumps_fastjson
from tests.broker.admin_desk import BROKER, AdminDesk, refusal, told


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminDesk]:
    desk = AdminDesk(tmp_path)
    yield desk
    desk.close()


def create(desk: AdminDesk, group: str = "G", **more: Any) -> Command:
    body = dumps_fastjson(SubscriptionGroupConfig(group_name=group, **more))
    return desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def create_list(desk: AdminDesk, *groups: SubscriptionGroupConfig) -> Command:
    body = dumps_fastjson({"groupConfigList": list(groups)})
    return desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)


# Configuration


def test_create_makes_and_changes_a_group(desk: AdminDesk) -> None:
    assert refusal(create(desk, retry_max_times=3)) == (ResponseCode.SUCCESS, None)
    assert refusal(create(desk, retry_max_times=5, attributes={"+priority.factor": "7"})) == (0, None)
    group = desk.groups.get("G")
    assert group is not None
    assert (group.retry_max_times, group.attributes) == (5, {"priority.factor": "7"})


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"{}", 29, "The specified group is blank."),
        (b'{"groupName":" "}', 29, "The specified group is blank."),
        (
            b'{"groupName":"a b"}',
            29,
            "The specified group: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (b'{"groupName":"G","retryQueueNums":-1}', 29, "group G with -1 retry queues: it has 0 to 65536"),
    ],
)
def test_create_refused_says_why(desk: AdminDesk, body: bytes, code: int, remark: str) -> None:
    before = dict(desk.groups.all())
    answer = desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert refusal(answer) == (code, remark)
    assert dict(desk.groups.all()) == before


def test_create_with_a_bad_attribute_or_body_is_an_error(desk: AdminDesk) -> None:
    answer = create(desk, attributes={"+no": "1"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "unsupported key: no" in answer.remark
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert desk.ask(code, body=b'{"groupName":"G","retryMaxTimes":"many"}').code == ResponseCode.SYSTEM_ERROR
    assert desk.ask(code, body=b"[]").code == ResponseCode.SYSTEM_ERROR
    assert desk.groups.get("G") is None


def test_create_of_nothing_is_no_error(desk: AdminDesk) -> None:
    assert refusal(desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)) == (ResponseCode.SUCCESS, None)


def test_create_list_makes_all_or_none(desk: AdminDesk) -> None:
    first = SubscriptionGroupConfig(group_name="A")
    assert create_list(desk, first, SubscriptionGroupConfig(group_name="a b")).code == ResponseCode.INVALID_PARAMETER
    assert desk.groups.get("A") is None
    assert refusal(create_list(desk, first, SubscriptionGroupConfig(group_name="B"))) == (ResponseCode.SUCCESS, None)
    assert {"A", "B"} <= set(desk.groups.all())


def test_all_groups_at_once(desk: AdminDesk) -> None:
    create(desk)
    desk.groups.set_readable("G", "T", readable=False)
    answer = desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    body = told(answer)
    assert set(body) == {"dataVersion", "forbiddenTable", "subscriptionGroupTable"}
    assert set(body["subscriptionGroupTable"]) == set(desk.groups.all())
    assert body["subscriptionGroupTable"]["G"]["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert "subscriptionDataSet" not in body["subscriptionGroupTable"]["G"]
    assert body["forbiddenTable"] == {"G": {"T": 4}}
    assert answer.ext_fields == {"totalGroupNum": str(len(desk.groups))}


def test_all_groups_in_pages_are_each_group_once(desk: AdminDesk) -> None:
    for number in range(9):
        create(desk, f"G{number}")
        desk.groups.set_readable(f"G{number}", "T", readable=False)
    version = dumps_fastjson(desk.groups.version).decode()
    found: list[str] = []
    while len(found) < len(desk.groups):
        header = GetAllSubscriptionGroups(group_seq=len(found), data_version=version, max_groups=4)
        body = told(desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header))
        page = list(body["subscriptionGroupTable"])
        assert set(body["forbiddenTable"]) == {name for name in page if name.startswith("G")}
        found += page
    assert found == sorted(desk.groups.all())
    stale = GetAllSubscriptionGroups(group_seq=5, data_version="  ", max_groups=2)
    body = told(desk.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, stale))
    assert list(body["subscriptionGroupTable"]) == found[:2]


def test_one_group_is_made_by_being_asked_for_where_groups_are_made_by_use(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path / "open")
    assert told(desk.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"}))["groupName"] == "G"
    desk.close()
    desk = AdminDesk(tmp_path / "strict", auto_create_subscription_group=False)
    answer = desk.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"})
    assert refusal(answer) == (26, "No group in this broker")
    desk.close()


@pytest.mark.parametrize(("clean", "left"), [(False, 5), (True, -1)])
def test_delete_group_with_and_without_its_offsets(desk: AdminDesk, clean: bool, left: int) -> None:
    create(desk)
    desk.offsets.commit("G", "T", 0, 5)
    header = DeleteSubscriptionGroup(group="G", clean_offset=clean)
    assert refusal(desk.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)) == (ResponseCode.SUCCESS, None)
    assert desk.groups.get("G") is None
    assert desk.offsets.query("G", "T", 0) == left


def test_delete_of_an_unknown_group_is_no_error(desk: AdminDesk) -> None:
    assert desk.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroup(group="G")).code == 0


def test_forbidden_is_set_asked_for_and_taken_back(desk: AdminDesk) -> None:
    def forbid(readable: bool | None) -> Any:
        header = UpdateGroupForbidden(group="G", topic="T", readable=readable)
        answer = desk.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        assert answer.remark == ""
        return told(answer)

    assert forbid(None) == {"group": "G", "readable": True, "topic": "T"}
    assert forbid(False) == {"group": "G", "readable": False, "topic": "T"}
    assert forbid(None)["readable"] is False
    assert desk.groups.forbidden("G", "T") == 4
    assert forbid(True)["readable"] is True


def test_subscription_of_a_group(desk: AdminDesk) -> None:
    fields = {"group": "G", "topic": "T"}
    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    assert told(desk.ask(code, fields)) == fields
    desk.online("G", "T", expression="red || blue")
    answer = told(desk.ask(code, fields))
    assert answer["subscriptionData"]["subString"] == "red || blue"
    assert answer["subscriptionData"]["topic"] == "T"
    assert told(desk.ask(code, {"group": "G"})) == {"group": "G"}


# Reset


def reset(desk: AdminDesk, **more: Any) -> Command:
    header = ResetOffset(**{"group": "G", "topic": "T", "timestamp_ms": -1, "is_force": True, **more})
    return desk.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def offsets_in(answer: Command) -> dict[int, int]:
    table = told(answer)["offsetTable"]
    assert {(queue["brokerName"], queue["topic"]) for queue in table} == {(BROKER, "T")}
    return {queue["queueId"]: queue_offset for queue, queue_offset in table.items()}


@pytest.fixture
def filled(desk: AdminDesk) -> AdminDesk:
    """Queue 0 with three messages a second apart, queue 1 with one, queue 2 with none; the group is at 2."""
    desk.topic("T", 3)
    create(desk)
    for _ in range(3):
        desk.put("T", 0)
        desk.clock.advance(1)
    desk.put("T", 1)
    desk.offsets.commit("G", "T", 0, 2)
    return desk


def test_reset_to_the_end_in_all_queues(filled: AdminDesk) -> None:
    assert offsets_in(reset(filled)) == {0: 3, 1: 1, 2: 0}
    assert [filled.offsets.query("G", "T", queue_id) for queue_id in range(3)] == [3, 1, 0]
    assert filled.offsets.pending_reset("T", "G", 0) == 3


def test_reset_to_a_time_in_all_queues(filled: AdminDesk) -> None:
    start_ms = filled.clock.time_ms() - 3000
    assert offsets_in(reset(filled, timestamp_ms=start_ms + 500)) == {0: 1, 1: 0, 2: 0}
    assert offsets_in(reset(filled, timestamp_ms=0)) == {0: 0, 1: 0, 2: 0}


def test_reset_of_one_queue_by_offset_and_by_time(filled: AdminDesk) -> None:
    assert offsets_in(reset(filled, queue_id=0, queue_offset=1)) == {0: 1}
    assert offsets_in(reset(filled, queue_id=0, queue_offset=4)) == {0: 4}
    assert offsets_in(reset(filled, queue_id=0, queue_offset=-1)) == {0: 3}
    assert offsets_in(reset(filled, queue_id=0, timestamp_ms=0)) == {0: 0}
    assert filled.offsets.pending_reset("T", "G", 1) is None


@pytest.mark.parametrize("queue_offset", [-2, 5, 100])
def test_reset_to_an_offset_that_is_not_there_is_refused(filled: AdminDesk, queue_offset: int) -> None:
    answer = reset(filled, queue_id=0, queue_offset=queue_offset)
    assert refusal(answer) == (1, f"Target offset {queue_offset} not in consume queue range [0-3]")
    assert filled.offsets.query("G", "T", 0) == 2


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "U"}, 17, "Topic U does not exist"),
        ({"topic": "U", "group": "H"}, 17, "Topic U does not exist"),
        ({"group": "H"}, 26, "Group H does not exist"),
        ({"topic": "empty"}, 1, "No queues to reset."),
    ],
)
def test_reset_refused_says_why(filled: AdminDesk, more: dict[str, Any], code: int, remark: str) -> None:
    filled.topic("empty", 0)
    assert refusal(reset(filled, **more)) == (code, remark)


def test_reset_on_a_slave_is_refused(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path, broker_id=1, broker_role="SLAVE")
    assert refusal(reset(desk)) == (1, "Can not reset offset in slave broker")
    desk.close()


def test_reset_by_clients_is_left_to_them(tmp_path: Path) -> None:
    desk = AdminDesk(tmp_path, use_server_side_reset_offset=False)
    assert reset(desk).remark == "pushed"
    assert [command.code for command in desk.pushed] == [RequestCode.INVOKE_BROKER_TO_RESET_OFFSET]
    desk.close()


# Clone


def clone(desk: AdminDesk, *, topic: str | None = None, offline: bool = False) -> Command:
    header = CloneGroupOffset(source_group="A", target_group="B", topic=topic, offline=offline)
    return desk.ask(RequestCode.CLONE_GROUP_OFFSET, header)


@pytest.fixture
def copied(desk: AdminDesk) -> AdminDesk:
    """Group A has offsets in topics T and U, and in one that is gone."""
    desk.topic("T")
    desk.topic("U")
    for topic in ("T", "U", "gone"):
        desk.offsets.commit("A", topic, 0, 5)
        desk.offsets.commit("A", topic, 1, 6)
    return desk


def test_clone_copies_the_topic_named(copied: AdminDesk) -> None:
    assert refusal(clone(copied, topic="T")) == (ResponseCode.SUCCESS, None)
    assert copied.offsets.query_all("B", "T") == {0: 5, 1: 6}
    assert copied.offsets.topics_of("B") == {"T"}


def test_clone_without_a_topic_copies_all_that_there_are(copied: AdminDesk) -> None:
    clone(copied)
    assert copied.offsets.topics_of("B") == {"T", "U"}


@pytest.mark.parametrize(("offline", "topics"), [(False, {"U"}), (True, {"T", "U"})])
def test_clone_leaves_out_what_the_group_does_not_subscribe_to(
    copied: AdminDesk, offline: bool, topics: set[str]
) -> None:
    copied.online("A", "U")
    clone(copied, offline=offline)
    assert copied.offsets.topics_of("B") == topics
