"""The table of topics: what Java's has from the start, how topics come and go, and its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fusee.broker.attributes import InvalidAttributeError
from fusee.broker.config import BrokerConfig
from fusee.broker.documents import TableFullError
from fusee.broker.topics import TopicTable, system_topics
from fusee.clock import ManualClock
from fusee.errors import StoreCorruptError
from fusee.store.filesystem import FileSystem, OsFileSystem
from fusee.store.simulated_disk import SimulatedDisk
from fusee.wire.bodies.topic import DataVersion, TopicConfig
from fusee.wire.lenient_json import loads
from tests.golden.store import unpack

FOLDER = Path("/store/config")


def table(
    files: FileSystem | None = None, *, folder: Path = FOLDER, clock: ManualClock | None = None, **settings: Any
) -> TopicTable:
    settings = {"broker_name": "golden-s", "broker_cluster_name": "GoldenCluster", **settings}
    return TopicTable(
        config=BrokerConfig(**settings), folder=folder, files=files or SimulatedDisk(), clock=clock or ManualClock()
    )


def lines(content: bytes) -> list[str]:
    return sorted(line.rstrip(",") for line in content.decode().splitlines())


def test_system_topics_are_those_of_a_java_broker(tmp_path: Path) -> None:
    written = loads((unpack("killed", tmp_path) / "config" / "topics.json").read_bytes())["topicConfigTable"]
    users = {"StoreBatch", "StoreBcq", "StoreDelay", "StoreNormal", "StoreOrder", "StoreRetry", "StoreTx", "StoreUni"}
    theirs = {name: config for name, config in written.items() if name not in users and "StorePop" not in name}
    ours = {topic.topic_name: msgspec.to_builtins(topic) for topic in system_topics(table().config)}
    assert ours == theirs


@pytest.mark.parametrize(
    ("settings", "topic", "expected"),
    [
        ({"auto_create_topic_enable": False}, "TBW102", None),
        ({"default_topic_queue_nums": 3}, "TBW102", (3, 7)),
        ({"cluster_topic_enable": False}, "GoldenCluster", (16, 1)),
        ({"broker_topic_enable": False}, "golden-s", (1, 1)),
        ({}, "RMQ_SYS_TRACE_TOPIC", None),
        ({"trace_topic_enable": True}, "RMQ_SYS_TRACE_TOPIC", (1, 6)),
        ({"trace_topic_enable": True, "msg_trace_topic_name": "my_trace"}, "my_trace", (1, 6)),
    ],
)
def test_system_topics_follow_the_settings(
    settings: dict[str, Any], topic: str, expected: tuple[int, int] | None
) -> None:
    found = table(**settings).get(topic)
    assert (None if found is None else (found.write_queue_nums, found.perm)) == expected


def test_is_system_knows_names_of_this_broker_and_cluster() -> None:
    topics = table(trace_topic_enable=True, msg_trace_topic_name="my_trace")
    for name in ("TBW102", "golden-s", "GoldenCluster", "GoldenCluster_REPLY_TOPIC", "my_trace", "rmq_sys_anything"):
        assert topics.is_system(name), name
    for name in ("other-broker", "T", "%RETRY%G"):
        assert not topics.is_system(name), name


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_file_of_java_is_loaded_saved_and_loaded_again(tmp_path: Path, name: str) -> None:
    folder = unpack(name, tmp_path) / "config"
    written = (folder / "topics.json").read_bytes()
    topics = table(OsFileSystem(), folder=folder)
    topics.load()
    assert not topics.is_dirty
    assert topics.version.counter == loads(written)["dataVersion"]["counter"]
    bcq = topics.get("StoreBcq")
    assert bcq is not None
    assert bcq.attributes == {"queue.type": "BatchCQ"}
    # The only difference is the version, once something is saved.
    topics.create_for_send_back("%RETRY%new", 1, 6)
    assert topics.delete("%RETRY%new")
    topics.save()
    ours = (folder / "topics.json").read_bytes()
    assert [line for line in lines(ours) if "counter" not in line and "timestamp" not in line] == [
        line for line in lines(written) if "counter" not in line and "timestamp" not in line
    ]
    assert (folder / "topics.json.bak").read_bytes() == written
    again = table(OsFileSystem(), folder=folder)
    again.load()
    assert again.all() == topics.all()
    assert again.version == topics.version


def test_file_of_java_4_9_without_attributes_is_loaded() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    content = (
        b'{\n\t"dataVersion":{\n\t\t"counter":2,\n\t\t"timestamp":1600000000000\n\t},\n\t"topicConfigTable":{\n'
        b'\t\t"Old":{\n\t\t\t"order":true,\n\t\t\t"perm":4,\n\t\t\t"readQueueNums":4,\n'
        b'\t\t\t"topicFilterType":"SINGLE_TAG",\n\t\t\t"topicName":"Old",\n\t\t\t"topicSysFlag":0,\n'
        b'\t\t\t"writeQueueNums":2\n\t\t},\n\t\t"Null":{"attributes":null,"perm":6,"topicName":"Null"}\n\t}\n}'
    )
    disk.open(FOLDER / "topics.json", size=len(content)).write(content, 0)
    topics = table(disk)
    topics.load()
    assert topics.get("Old") == TopicConfig(topic_name="Old", order=True, perm=4, read_queue_nums=4, write_queue_nums=2)
    assert topics.get("Null") == TopicConfig(topic_name="Null")
    assert topics.version == DataVersion(counter=2, timestamp=1_600_000_000_000)
    # The system's topics are not in this file: there is something to save.
    assert topics.get("TBW102") is not None
    assert topics.is_dirty


def test_damaged_file_gives_way_to_its_backup(tmp_path: Path) -> None:
    topics = table(OsFileSystem(), folder=tmp_path)
    topics.create_for_send_back("first", 1, 6)
    topics.save()
    topics.create_for_send_back("second", 1, 6)
    topics.save()
    (tmp_path / "topics.json").write_bytes(b'{"topicConfigTable":{"first":')
    found = table(OsFileSystem(), folder=tmp_path)
    found.load()
    assert found.get("first") is not None
    assert found.get("second") is None
    (tmp_path / "topics.json.bak").write_bytes(b"\0\0")
    with pytest.raises(StoreCorruptError):
        table(OsFileSystem(), folder=tmp_path).load()


def test_loaded_system_topic_goes_before_the_settings() -> None:
    disk = SimulatedDisk()
    topics = table(disk, default_topic_queue_nums=5)
    topics.save()
    later = table(disk, default_topic_queue_nums=9)
    later.load()
    found = later.get("TBW102")
    assert found is not None
    assert found.write_queue_nums == 5


@pytest.mark.parametrize(("asked", "queues"), [(4, 4), (8, 8), (100, 8), (0, 0), (-3, 0)])
def test_create_for_send_takes_queues_and_permission_from_the_pattern(asked: int, queues: int) -> None:
    topics = table()
    made = topics.create_for_send("T", "TBW102", asked, topic_sys_flag=2)
    assert made == TopicConfig(
        topic_name="T", read_queue_nums=queues, write_queue_nums=queues, perm=6, topic_sys_flag=2
    )
    assert topics.get("T") is made
    assert topics.create_for_send("T", "nothing", 1) is made


def test_create_for_send_inherits_from_cluster_and_broker_but_not_from_others() -> None:
    topics = table()
    assert topics.create_for_send("a", "GoldenCluster", 20) is not None
    assert topics.create_for_send("b", "golden-s", 20) is not None
    assert topics.create_for_send("c", "BenchmarkTest", 4) is None
    assert topics.create_for_send("c", "unknown", 4) is None
    assert topics.get("c") is None


def test_create_for_send_when_not_allowed_closes_the_pattern_left_by_a_file() -> None:
    disk = SimulatedDisk()
    table(disk).save()
    topics = table(disk, auto_create_topic_enable=False)
    topics.load()
    version = topics.version
    assert topics.create_for_send("T", "TBW102", 4) is None
    pattern = topics.get("TBW102")
    assert pattern is not None
    assert pattern.perm == 6
    assert topics.version == version
    assert topics.get("T") is None


def test_create_for_send_back_makes_once_and_follows_order() -> None:
    topics = table()
    made = topics.create_for_send_back("%RETRY%G", 1, 6, topic_sys_flag=2)
    assert made == TopicConfig(topic_name="%RETRY%G", read_queue_nums=1, write_queue_nums=1, perm=6, topic_sys_flag=2)
    assert topics.create_for_send_back("%RETRY%G", 9, 4) is made
    ordered = topics.create_for_send_back("%RETRY%G", 9, 4, order=True)
    assert ordered.order
    assert ordered.write_queue_nums == 1
    assert not made.order


def test_put_alters_attributes_and_keeps_the_others() -> None:
    topics = table()
    topics.put(TopicConfig(topic_name="T", attributes={"+queue.type": "BatchCQ", "+message.type": "FIFO"}))
    found = topics.put(TopicConfig(topic_name="T", perm=4, attributes={"-message.type": ""}))
    assert found == TopicConfig(topic_name="T", perm=4, attributes={"queue.type": "BatchCQ"})
    assert topics.get("T") is found


def test_put_when_refused_changes_nothing() -> None:
    topics = table()
    topics.put(TopicConfig(topic_name="T"))
    before, version = dict(topics.all()), topics.version
    with pytest.raises(InvalidAttributeError, match="unsupported key: colour"):
        topics.put_all([TopicConfig(topic_name="U"), TopicConfig(topic_name="T", attributes={"+colour": "red"})])
    assert topics.all() == before
    assert topics.version == version


def test_every_change_makes_a_new_version() -> None:
    clock = ManualClock()
    topics = table(clock=clock)
    assert topics.version == DataVersion(timestamp=clock.time_ms())
    counters = []
    clock.advance(1)
    for change in (
        lambda: topics.create_for_send("a", "TBW102", 4),
        lambda: topics.create_for_send("a", "TBW102", 4),
        lambda: topics.create_for_send_back("b", 1, 6),
        lambda: topics.put_all([TopicConfig(topic_name="c"), TopicConfig(topic_name="d")]),
        lambda: topics.apply_order_topics(["a", "b", "unknown"]),
        lambda: topics.apply_order_topics(["a", "b"]),
        lambda: topics.apply_order_topics(None),
        lambda: topics.delete("a"),
        lambda: topics.delete("a"),
    ):
        change()
        counters.append(topics.version.counter)
    assert counters == [1, 1, 2, 4, 5, 5, 5, 6, 6]
    assert topics.version.timestamp == clock.time_ms()
    topics.state_version = 3
    topics.delete("b")
    assert topics.version == DataVersion(counter=7, state_version=3, timestamp=clock.time_ms())


def test_listeners_are_told_of_what_was_made_or_altered() -> None:
    topics = table()
    told: list[list[str]] = []

    def listen(changed: Sequence[TopicConfig]) -> None:
        assert all(topics.get(topic.topic_name) is topic for topic in changed)
        told.append([topic.topic_name for topic in changed])

    topics.listeners.append(listen)
    topics.create_for_send("a", "TBW102", 4)
    topics.create_for_send("a", "TBW102", 4)
    topics.create_for_send_back("b", 1, 6)
    topics.put_all([TopicConfig(topic_name="c"), TopicConfig(topic_name="d")])
    topics.put_all([])
    topics.apply_order_topics(["a"])
    topics.delete("a")
    assert told == [["a"], ["b"], ["c", "d"]]


def test_order_topics_are_marked_and_saved() -> None:
    disk = SimulatedDisk()
    topics = table(disk)
    topics.create_for_send("a", "TBW102", 4)
    topics.save()
    topics.apply_order_topics({"a": "golden-s:4"})
    assert topics.is_dirty
    topics.save()
    later = table(disk)
    later.load()
    found = later.get("a")
    assert found is not None
    assert found.order


def test_table_when_full_refuses_new_topics_only() -> None:
    topics = table()
    topics = table(topics_max=len(topics) + 1)
    topics.create_for_send("a", "TBW102", 4)
    with pytest.raises(TableFullError, match="no room for topic 'b': topicsMax=.* delete topics"):
        topics.create_for_send("b", "TBW102", 4)
    with pytest.raises(TableFullError):
        topics.put(TopicConfig(topic_name="b"))
    assert topics.put(TopicConfig(topic_name="a", perm=4)).perm == 4
    topics.delete("a")
    assert topics.create_for_send_back("b", 1, 6) is not None


def test_pages_are_in_order_of_name_and_start_anew_when_the_version_changed() -> None:
    topics = table()
    names = sorted(topics.all())
    first = topics.page(None, 5, 4)
    assert list(first) == names[:4]
    assert list(topics.page(topics.version, 4, 1000)) == names[4:]
    assert topics.page(topics.version, 1000, 4) == {}
    known = topics.version
    topics.create_for_send_back("AAA", 1, 6)
    assert list(topics.page(known, 4, 2)) == ["AAA", names[0]]


def test_begin_save_gives_a_job_and_on_dirty_asks_for_one() -> None:
    disk = SimulatedDisk()
    topics = table(disk)
    asked: list[bool] = []
    topics.on_dirty = lambda: asked.append(topics.is_dirty)
    job = topics.begin_save()
    assert job is not None
    job()
    assert topics.begin_save() is None
    topics.create_for_send("a", "TBW102", 4)
    assert asked == [True]
    job = topics.begin_save()
    assert job is not None
    topics.delete("a")
    job()
    later = table(disk)
    later.load()
    assert later.get("a") is not None
    topics.save()
    later = table(disk)
    later.load()
    assert later.get("a") is None
    assert later.version == topics.version


def test_take_over_makes_the_table_the_master_s() -> None:
    disk = SimulatedDisk()
    slave = table(disk, broker_id=1, broker_role="SLAVE")
    slave.put(TopicConfig(topic_name="own"))
    slave.save()
    told: list[str] = []
    slave.listeners.append(lambda topics: told.extend(topic.topic_name for topic in topics))
    kept = slave.get("TBW102")
    assert kept is not None
    theirs = {"TBW102": kept, "new": TopicConfig(topic_name="new", read_queue_nums=3)}
    slave.take_over(theirs, DataVersion(counter=7, timestamp=5))
    assert dict(slave.all()) == theirs
    assert slave.version == DataVersion(counter=7, timestamp=5)
    assert told == ["new"]
    slave.save()
    again = table(disk, broker_id=1, broker_role="SLAVE")
    again.load()
    assert again.get("own") is None
    assert again.get("new") == theirs["new"]
    assert again.version == slave.version


def test_take_over_of_more_than_there_is_room_for_changes_nothing() -> None:
    slave = table(topics_max=1)
    before = dict(slave.all())
    theirs = {name: TopicConfig(topic_name=name) for name in ("a", "b")}
    with pytest.raises(TableFullError, match="topicsMax=1"):
        slave.take_over(theirs, DataVersion(counter=7))
    assert dict(slave.all()) == before
