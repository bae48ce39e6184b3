"""The table of consumer groups: those from the start, how they come and go, what they are forbidden, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fusee.broker.attributes import InvalidAttributeError
from fusee.broker.config import BrokerConfig
from fusee.broker.documents import TableFullError
from fusee.broker.groups import TOOL_GROUPS, GroupTable
from fusee.clock import ManualClock
from fusee.store.filesystem import FileSystem, OsFileSystem
from fusee.store.simulated_disk import SimulatedDisk
from fusee.wire.bodies.group import (
    CustomizedRetryPolicy,
    GroupRetryPolicy,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from fusee.wire.bodies.topic import DataVersion
from fusee.wire.lenient_json import loads
from tests.golden import frames
from tests.golden.store import unpack

FOLDER = Path("/store/config")


def table(
    files: FileSystem | None = None, *, folder: Path = FOLDER, clock: ManualClock | None = None, **settings: Any
) -> GroupTable:
    return GroupTable(
        config=BrokerConfig(broker_name="b", **settings),
        folder=folder,
        files=files or SimulatedDisk(),
        clock=clock or ManualClock(),
    )


def test_groups_from_the_start_are_those_of_a_java_broker() -> None:
    answer = next(frame for frame in frames("ha") if frame.role == "response" and frame.request_code == 201)
    theirs = answer.body["subscriptionGroupTable"]
    ours = {}
    for name, group in table().all().items():
        fields = msgspec.to_builtins(group)
        fields["groupRetryPolicy"] = {"type": "CUSTOMIZED"}
        ours[name] = {key: value for key, value in fields.items() if value is not None}
    assert ours == theirs
    assert set(ours) == set(TOOL_GROUPS)


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_file_of_java_is_loaded_saved_and_loaded_again(tmp_path: Path, name: str) -> None:
    folder = unpack(name, tmp_path) / "config"
    written = (folder / "subscriptionGroup.json").read_bytes()
    groups = table(OsFileSystem(), folder=folder)
    groups.load()
    assert not groups.is_dirty
    assert set(groups.all()) == set(loads(written)["subscriptionGroupTable"])
    before = groups.version
    groups.find("one")
    groups.delete("one")
    groups.save()
    ours = (folder / "subscriptionGroup.json").read_text()
    ours = ours.replace(f'"counter":{groups.version.counter}', f'"counter":{before.counter}')
    ours = ours.replace(f'"timestamp":{groups.version.timestamp}', f'"timestamp":{before.timestamp}')
    assert sorted(line.rstrip(",") for line in ours.splitlines()) == sorted(
        line.rstrip(",") for line in written.decode().splitlines()
    )
    again = table(OsFileSystem(), folder=folder)
    again.load()
    assert again.all() == groups.all()
    assert again.version == groups.version


def test_everything_about_a_group_is_saved() -> None:
    disk = SimulatedDisk()
    groups = table(disk)
    groups.put(
        SubscriptionGroupConfig(
            group_name="G",
            consume_message_orderly=True,
            retry_max_times=-1,
            attributes={"+priority.factor": "9"},
            group_retry_policy=GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next_ms=[1000, 2000])),
            subscription_data_set=[
                SimpleSubscriptionData(topic="T", expression='a = "x, 1:2"', expression_type="SQL92")
            ],
        )
    )
    groups.set_readable("G", "T", False)
    groups.save()
    later = table(disk)
    later.load()
    assert later.get("G") == groups.get("G")
    assert later.forbidden_table == {"G": {"T": 4}}
    assert later.all() == groups.all()


def test_damaged_file_gives_way_to_its_backup(tmp_path: Path) -> None:
    groups = table(OsFileSystem(), folder=tmp_path)
    groups.find("first")
    groups.save()
    groups.find("second")
    groups.save()
    (tmp_path / "subscriptionGroup.json").write_bytes(b"")
    found = table(OsFileSystem(), folder=tmp_path)
    found.load()
    assert found.get("first") is not None
    assert found.get("second") is None


def test_find_makes_a_group_when_first_seen() -> None:
    groups = table()
    assert groups.get("G") is None
    made = groups.find("G")
    assert made == SubscriptionGroupConfig(group_name="G")
    assert groups.find("G") is made
    assert groups.get("G") is made
    assert groups.version.counter == 1


@pytest.mark.parametrize("name", ["", "with space", "g" * 121, "a@b"])
def test_find_makes_no_group_of_an_illegal_name(name: str) -> None:
    groups = table()
    assert groups.find(name) is None
    assert groups.version.counter == 0


def test_find_when_not_allowed_makes_only_groups_of_the_system() -> None:
    groups = table(auto_create_subscription_group=False)
    assert groups.find("G") is None
    assert groups.find("CID_RMQ_SYS_REVIVE_GROUP") is not None
    assert groups.find("TOOLS_CONSUMER") is not None


def test_put_alters_attributes_and_keeps_the_others() -> None:
    groups = table()
    groups.put(SubscriptionGroupConfig(group_name="G", attributes={"+priority.factor": "5", "+lite.bind.topic": "t"}))
    found = groups.put(SubscriptionGroupConfig(group_name="G", retry_max_times=3, attributes={"-priority.factor": ""}))
    assert found == SubscriptionGroupConfig(group_name="G", retry_max_times=3, attributes={"lite.bind.topic": "t"})
    version = groups.version
    with pytest.raises(InvalidAttributeError):
        groups.put_all(
            [SubscriptionGroupConfig(group_name="H"), SubscriptionGroupConfig(group_name="G", attributes={"+x": "1"})]
        )
    assert groups.get("H") is None
    assert groups.version == version


def test_every_change_makes_a_new_version() -> None:
    clock = ManualClock()
    groups = table(clock=clock)
    assert groups.version == DataVersion(timestamp=clock.time_ms())
    clock.advance(1)
    counters = []
    for change in (
        lambda: groups.find("a"),
        lambda: groups.find("a"),
        lambda: groups.put_all([SubscriptionGroupConfig(group_name="b"), SubscriptionGroupConfig(group_name="c")]),
        lambda: groups.disable_consume("a"),
        lambda: groups.disable_consume("unknown"),
        lambda: groups.set_readable("a", "T", False),
        lambda: groups.set_readable("a", "T", False),
        lambda: groups.set_readable("a", "T", True),
        lambda: groups.set_readable("a", "T", True),
        lambda: groups.delete("a"),
        lambda: groups.delete("a"),
    ):
        change()
        counters.append(groups.version.counter)
    assert counters == [1, 1, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    assert groups.version.timestamp == clock.time_ms()


def test_disable_consume_replaces_and_lasts() -> None:
    disk = SimulatedDisk()
    groups = table(disk)
    before = groups.find("G")
    groups.disable_consume("G")
    groups.save()
    later = table(disk)
    later.load()
    found = later.get("G")
    assert found is not None
    assert before is not None
    assert not found.consume_enable
    assert before.consume_enable


def test_forbidden_is_by_group_and_topic() -> None:
    groups = table()
    assert groups.is_readable("G", "T")
    groups.set_readable("G", "T", False)
    groups.set_readable("G", "U", False)
    assert groups.forbidden("G", "T") == 4
    assert not groups.is_readable("G", "T")
    assert groups.is_readable("G", "V")
    assert groups.is_readable("H", "T")
    groups.set_readable("G", "T", True)
    assert groups.is_readable("G", "T")
    assert not groups.is_readable("G", "U")
    assert groups.forbidden_table == {"G": {"U": 4}}


def test_forbidden_keeps_other_bits_and_negative_ones_count_as_none(tmp_path: Path) -> None:
    (tmp_path / "subscriptionGroup.json").write_bytes(b'{"forbiddenTable":{"G":{"T":2,"U":-1}}}')
    groups = table(OsFileSystem(), folder=tmp_path)
    groups.load()
    groups.set_readable("G", "T", False)
    assert groups.forbidden("G", "T") == 6
    assert groups.forbidden("G", "U") == 0
    groups.set_readable("G", "T", True)
    assert groups.forbidden("G", "T") == 2


def test_delete_forgets_what_the_group_was_forbidden() -> None:
    disk = SimulatedDisk()
    groups = table(disk)
    groups.find("G")
    groups.set_readable("G", "T", False)
    groups.save()
    assert groups.delete("G")
    assert not groups.delete("G")
    assert groups.is_readable("G", "T")
    groups.save()
    later = table(disk)
    later.load()
    assert later.get("G") is None
    assert later.forbidden_table == {}


def test_table_when_full_refuses_new_groups_only() -> None:
    groups = table(groups_max=len(TOOL_GROUPS) + 1)
    groups.find("a")
    with pytest.raises(TableFullError, match="no room for group 'b': groupsMax=9 is reached"):
        groups.find("b")
    with pytest.raises(TableFullError):
        groups.put(SubscriptionGroupConfig(group_name="b"))
    assert not groups.put(SubscriptionGroupConfig(group_name="a", consume_enable=False)).consume_enable
    groups.delete("a")
    assert groups.find("b") is not None


def test_pages_are_in_order_of_name() -> None:
    groups = table()
    names = sorted(TOOL_GROUPS)
    assert list(groups.page(None, 3, 2)) == names[:2]
    assert list(groups.page(groups.version, 2, 2)) == names[2:4]
    assert groups.page(groups.version, len(names), 2) == {}


def test_begin_save_gives_a_job_of_what_was_there_then() -> None:
    disk = SimulatedDisk()
    groups = table(disk)
    groups.find("a")
    job = groups.begin_save()
    assert job is not None
    groups.find("b")
    job()
    later = table(disk)
    later.load()
    assert later.get("a") is not None
    assert later.get("b") is None
    assert groups.is_dirty


def test_take_over_makes_the_table_the_master_s() -> None:
    disk = SimulatedDisk()
    slave = table(disk)
    slave.put(SubscriptionGroupConfig(group_name="own"))
    slave.set_readable("own", "T", False)
    slave.save()
    theirs = SubscriptionGroupTable(
        data_version=DataVersion(counter=7, timestamp=5),
        forbidden_table={"new": {"U": 4}},
        subscription_group_table={"new": SubscriptionGroupConfig(group_name="new", consume_enable=False)},
    )
    slave.take_over(theirs)
    slave.save()
    again = table(disk)
    again.load()
    for each in (slave, again):
        assert each.get("own") is None
        assert each.is_readable("own", "T")
        assert each.get("new") == theirs.subscription_group_table["new"]
        assert not each.is_readable("new", "U")
        assert each.version == theirs.data_version


def test_take_over_of_more_than_there_is_room_for_changes_nothing() -> None:
    slave = table(groups_max=1)
    before = dict(slave.all())
    theirs = {name: SubscriptionGroupConfig(group_name=name) for name in ("a", "b")}
    with pytest.raises(TableFullError, match="groupsMax=1"):
        slave.take_over(SubscriptionGroupTable(subscription_group_table=theirs))
    assert dict(slave.all()) == before
