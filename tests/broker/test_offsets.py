"""The table of offsets: against a model that does everything the slow way, and its file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fusee.broker.config import BrokerConfig
from fusee.broker.documents import TableFullError, decode_document
from fusee.broker.offsets import VERSION_STEP, OffsetChanges, OffsetTable
from fusee.clock import ManualClock
from fusee.replication.metadata import OwnCommit
from fusee.store.filesystem import FileSystem, OsFileSystem
from fusee.store.simulated_disk import SimulatedDisk
from fusee.wire.bodies.offsets import ConsumerOffsetTable
from fusee.wire.bodies.topic import DataVersion
from fusee.wire.lenient_json import decode_json, loads
from tests.golden import frames
from tests.golden.store import lines, unpack

FOLDER = Path("/store/config")
FILE = FOLDER / "consumerOffset.json"


def table(
    files: FileSystem | None = None, *, folder: Path = FOLDER, clock: ManualClock | None = None, **settings: Any
) -> OffsetTable:
    return OffsetTable(
        config=BrokerConfig(broker_name="b", **settings),
        folder=folder,
        files=files or SimulatedDisk(),
        clock=clock or ManualClock(),
    )


def loaded(files: FileSystem, folder: Path = FOLDER) -> OffsetTable:
    found = table(files, folder=folder)
    found.load()
    return found


def content(offsets: OffsetTable) -> dict[tuple[str, str], dict[int, int]]:
    return {(group, topic): dict(queues) for group, topic, queues in offsets.entries()}


def test_commit_is_what_query_says() -> None:
    offsets = table()
    assert offsets.query("G", "T", 0) == -1
    assert offsets.commit("G", "T", 0, 5)
    assert offsets.commit("G", "T", 1, 0)
    assert offsets.query("G", "T", 0) == 5
    assert offsets.query("G", "T", 1) == 0
    assert offsets.query("G", "T", 2) == -1
    assert offsets.query("G", "U", 0) == -1
    assert offsets.query_all("G", "T") == {0: 5, 1: 0}
    assert offsets.query_all("G", "U") == {}
    assert len(offsets) == 2


def test_commit_below_is_taken_and_told(caplog: pytest.LogCaptureFixture) -> None:
    offsets = table()
    offsets.commit("G", "T", 3, 50)
    with caplog.at_level(logging.WARNING):
        offsets.commit("G", "T", 3, 50, client_address="10.0.0.1:5")
        assert not caplog.records
        offsets.commit("G", "T", 3, 49, client_address="10.0.0.1:5")
    assert caplog.messages == ["consumer 10.0.0.1:5 of group G moves back in T queue 3: from 50 to 49"]
    assert offsets.query("G", "T", 3) == 49


def test_version_changes_with_every_so_many_commits() -> None:
    clock = ManualClock()
    offsets = table(clock=clock)
    first = DataVersion(timestamp=clock.time_ms())
    clock.advance(1)
    for number in range(VERSION_STEP - 1):
        offsets.commit("G", "T", number % 3, number)
    offsets.set_reset("T", "H", 0, 5)
    offsets.clone("G", "I", "T")
    offsets.remove_group("I")
    assert offsets.version == first
    offsets.commit("G", "T", 0, 1)
    assert offsets.version == DataVersion(counter=1, timestamp=clock.time_ms())


def test_reset_blocks_commits_until_a_pull_takes_it() -> None:
    offsets = table()
    offsets.commit("G", "T", 0, 100)
    offsets.commit("G", "T", 1, 100)
    assert offsets.set_reset("T", "G", 0, 7)
    assert offsets.query("G", "T", 0) == 7
    assert offsets.query_all("G", "T") == {0: 7, 1: 100}
    assert not offsets.commit("G", "T", 0, 101)
    assert offsets.commit("G", "T", 1, 101)
    assert offsets.commit("H", "T", 0, 1)
    assert offsets.pending_reset("T", "G", 0) == 7
    assert offsets.pending_reset("T", "G", 1) is None
    assert offsets.take_reset("T", "G", 0) == 7
    assert offsets.take_reset("T", "G", 0) is None
    assert offsets.query("G", "T", 0) == 7
    assert offsets.commit("G", "T", 0, 8)
    assert offsets.query("G", "T", 0) == 8


@pytest.mark.parametrize("where", [("", "G", 0, 1), ("T", "", 0, 1), ("T", "G", -1, 1), ("T", "G", 0, -1)])
def test_reset_to_no_place_is_refused(where: tuple[str, str, int, int]) -> None:
    offsets = table()
    assert not offsets.set_reset(*where)
    assert not content(offsets)
    assert offsets.pending_reset(*where[:3]) is None


def test_reset_when_not_done_by_the_broker_only_commits() -> None:
    offsets = table(use_server_side_reset_offset=False)
    offsets.set_reset("T", "G", 0, 7)
    assert offsets.query("G", "T", 0) == 7
    assert offsets.commit("G", "T", 0, 9)
    assert offsets.query("G", "T", 0) == 9
    assert offsets.take_reset("T", "G", 0) is None


def test_reset_is_committed_and_outlives_a_restart() -> None:
    disk = SimulatedDisk()
    offsets = table(disk)
    offsets.commit("G", "T", 0, 100)
    offsets.set_reset("T", "G", 0, 7)
    offsets.save()
    later = loaded(disk)
    assert later.query("G", "T", 0) == 7
    assert later.pending_reset("T", "G", 0) is None


def test_clone_replaces_what_the_target_had() -> None:
    offsets = table()
    offsets.commit("G", "T", 0, 5)
    offsets.commit("G", "T", 1, 6)
    offsets.commit("H", "T", 1, 1)
    offsets.commit("H", "T", 2, 1)
    offsets.clone("G", "H", "T")
    assert offsets.query_all("H", "T") == {0: 5, 1: 6}
    offsets.commit("G", "T", 0, 50)
    assert offsets.query("H", "T", 0) == 5
    offsets.clone("nobody", "H", "T")
    assert offsets.query_all("H", "T") == {0: 5, 1: 6}
    assert len(offsets) == 4


def test_min_offsets_are_those_of_the_slowest_group() -> None:
    offsets = table()
    for group, first, second in (("G", 5, 60), ("H", 7, 50), ("I", 2, 40)):
        offsets.commit(group, "T", 0, first)
        offsets.commit(group, "T", 1, second)
    offsets.commit("G", "U", 0, 0)
    assert offsets.min_offsets_of("T") == {0: 2, 1: 40}
    assert offsets.min_offsets_of("T", {"I"}) == {0: 5, 1: 50}
    assert offsets.min_offsets_of("T", queue_min=lambda queue_id: (3, 70)[queue_id]) == {0: 5}
    assert offsets.min_offsets_of("nothing") == {}
    # The excluded ones are still there.
    assert offsets.query("I", "T", 0) == 2


def test_removal_of_a_topic_or_group_forgets_everything_about_it() -> None:
    offsets = table()
    for group in ("G", "H"):
        for topic in ("T", "U"):
            offsets.commit(group, topic, 0, 5)
            offsets.set_reset(topic, group, 0, 1)
            offsets.set_pull_offset(group, topic, 0, 9)
    offsets.remove_topic("T")
    assert offsets.topics_of("G") == {"U"}
    assert offsets.groups_of("T") == set()
    assert offsets.pending_reset("T", "G", 0) is None
    assert offsets.query_pull_offset("H", "T", 0) == -1
    offsets.remove_group("G")
    assert offsets.topics_of("G") == set()
    assert offsets.groups_of("U") == {"H"}
    assert offsets.query_pull_offset("G", "U", 0) == -1
    assert offsets.commit("G", "U", 0, 3)
    assert offsets.pending_reset("U", "H", 0) == 1
    assert offsets.query_pull_offset("H", "U", 0) == 9
    assert len(offsets) == 2


def test_pull_offset_falls_back_to_the_committed_one() -> None:
    offsets = table()
    assert offsets.query_pull_offset("G", "T", 0) == -1
    offsets.commit("G", "T", 0, 5)
    assert offsets.query_pull_offset("G", "T", 0) == 5
    offsets.set_pull_offset("G", "T", 0, 9)
    assert offsets.query_pull_offset("G", "T", 0) == 9
    assert offsets.query("G", "T", 0) == 5
    offsets.clear_pull_offsets("G", "T")
    offsets.clear_pull_offsets("G", "T")
    assert offsets.query_pull_offset("G", "T", 0) == 5


def test_table_when_full_refuses_new_queues_only() -> None:
    offsets = table(offsets_max=3)
    for queue_id in range(3):
        offsets.commit("G", "T", queue_id, 1)
    words = "no room for an offset of group 'H' in topic 'T': offsetsMax=3 is reached; delete groups"
    with pytest.raises(TableFullError, match=words):
        offsets.commit("H", "T", 0, 1)
    with pytest.raises(TableFullError):
        offsets.set_reset("T", "G", 3, 1)
    with pytest.raises(TableFullError):
        offsets.clone("G", "H", "T")
    assert offsets.pending_reset("T", "G", 3) is None
    assert content(offsets) == {("G", "T"): {0: 1, 1: 1, 2: 1}}
    assert offsets.commit("G", "T", 2, 2)
    for queue_id in range(4):
        offsets.set_pull_offset("G", "T", queue_id, 1)
    offsets.set_pull_offset("G", "T", 2, 8)
    assert [offsets.query_pull_offset("G", "T", queue_id) for queue_id in range(4)] == [1, 1, 8, -1]
    offsets.remove_group("G")
    assert offsets.commit("H", "T", 0, 1)


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_file_of_java_is_loaded_saved_and_loaded_again(tmp_path: Path, name: str) -> None:
    folder = unpack(name, tmp_path) / "config"
    file = folder / "consumerOffset.json"
    written = loads(file.read_bytes())
    offsets = loaded(OsFileSystem(), folder)
    assert not offsets.is_dirty
    (said,) = lines(name, "consumerOffsets")
    assert {f"{topic}@{group}": queues for (group, topic), queues in content(offsets).items()} == decode_json(
        said["text"].encode(), ConsumerOffsetTable
    ).offset_table
    offsets.commit("new", "T", 0, 1)
    offsets.remove_group("new")
    offsets.save()
    ours = loads(file.read_bytes())
    assert ours.pop("pullOffsetTable") == {}
    written.pop("pullOffsetTable")
    for document in (written, ours):
        document["groupTopicMap"] = {group: set(topics) for group, topics in document["groupTopicMap"].items()}
    assert ours == written
    again = loaded(OsFileSystem(), folder)
    assert content(again) == content(offsets)
    assert again.version == offsets.version


def test_file_has_javas_form() -> None:
    disk = SimulatedDisk()
    offsets = table(disk)
    offsets.commit("G", "T", 0, 5)
    offsets.commit("G", "T", 10, 2**62)
    offsets.commit("G", "%RETRY%G", 0, 0)
    offsets.set_pull_offset("G", "T", 0, 9)
    offsets.save()
    time_ms = str(offsets.version.timestamp)
    assert disk.read_file(FILE).decode().replace(time_ms, "TIME") == (
        '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":TIME\n\t},\n'
        '\t"groupTopicMap":{\n\t\t"G":[\n\t\t\t"T",\n\t\t\t"%RETRY%G"\n\t\t]\n\t},\n'
        '\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t0:5,\n\t\t\t10:4611686018427387904\n\t\t},\n'
        '\t\t"%RETRY%G@G":{\n\t\t\t0:0\n\t\t}\n\t},\n\t"pullOffsetTable":{}\n}'
    )


def test_encode_is_the_answer_to_code_43() -> None:
    answer = next(frame for frame in frames("ha") if frame.role == "response" and frame.request_code == 43)
    assert list(loads(table().encode())) == list(answer.body)
    offsets = table()
    offsets.commit("G", "T", 0, 5)
    offsets.commit("G", "T", 1, 6)
    offsets.commit("H", "T", 0, 7)
    offsets.set_pull_offset("G", "T", 0, 9)
    encoded = offsets.encode()
    assert encoded.decode().replace(str(offsets.version.timestamp), "TIME") == (
        '{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":TIME},"groupTopicMap":{"G":["T"],"H":["T"]},'
        '"offsetTable":{"T@G":{0:5,1:6},"T@H":{0:7}},"pullOffsetTable":{"T@G":{"0":9}}}'
    )
    assert decode_json(encoded, ConsumerOffsetTable).offset_table == {"T@G": {0: 5, 1: 6}, "T@H": {0: 7}}


def test_damaged_file_gives_way_to_its_backup(tmp_path: Path) -> None:
    offsets = table(OsFileSystem(), folder=tmp_path)
    offsets.commit("G", "T", 0, 5)
    offsets.save()
    offsets.commit("G", "T", 0, 6)
    offsets.save()
    (tmp_path / "consumerOffset.json").write_bytes(b'{"offsetTable":{"T@G":{0:6')
    assert loaded(OsFileSystem(), tmp_path).query("G", "T", 0) == 5


def test_key_without_a_group_is_not_taken_and_more_than_one_at_is(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(b'{"offsetTable":{"T":{0:1},"T@a@b":{0:2}}}')
    offsets = loaded(OsFileSystem(), tmp_path)
    assert content(offsets) == {("a@b", "T"): {0: 2}}


def test_commits_while_a_job_waits_are_not_in_its_file() -> None:
    disk = SimulatedDisk()
    offsets = table(disk)
    offsets.commit("G", "T", 0, 5)
    offsets.commit("G", "U", 0, 5)
    job = offsets.begin_save()
    assert job is not None
    offsets.commit("G", "T", 0, 6)
    offsets.commit("H", "T", 0, 6)
    offsets.remove_topic("U")
    assert offsets.begin_save() is None
    assert offsets.is_dirty
    job()
    assert content(loaded(disk)) == {("G", "T"): {0: 5}, ("G", "U"): {0: 5}}
    job = offsets.begin_save()
    assert job is not None
    job()
    assert content(loaded(disk)) == {("G", "T"): {0: 6}, ("H", "T"): {0: 6}}
    assert offsets.begin_save() is None


def test_same_commit_again_is_nothing_to_save() -> None:
    offsets = table()
    offsets.commit("G", "T", 0, 5)
    offsets.save()
    offsets.commit("G", "T", 0, 5)
    assert not offsets.is_dirty
    assert offsets.begin_save() is None


GROUPS = st.sampled_from(["G", "H", "I"])
TOPICS = st.sampled_from(["T", "U", "%RETRY%G"])
QUEUES = st.integers(0, 2)
POSITIONS = st.integers(0, 5)
LIMIT = 12


class Offsets(RuleBasedStateMachine):
    """Random calls, side by side with one flat dict; jobs end at random times; restarts come at any time."""

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("fusee.broker.offsets").disabled = True
        self.disk = SimulatedDisk()
        self.table = table(self.disk, offsets_max=LIMIT)
        self.model: dict[tuple[str, str, int], int] = {}
        self.resets: dict[tuple[str, str, int], int] = {}
        self.saved: dict[tuple[str, str, int], int] = {}
        self.job: tuple[Any, dict[tuple[str, str, int], int]] | None = None

    def teardown(self) -> None:
        logging.getLogger("fusee.broker.offsets").disabled = False

    @rule(group=GROUPS, topic=TOPICS, queue_id=QUEUES, position=POSITIONS)
    def commit(self, group: str, topic: str, queue_id: int, position: int) -> None:
        key = (group, topic, queue_id)
        if key in self.resets:
            assert not self.table.commit(group, topic, queue_id, position)
        elif key not in self.model and len(self.model) >= LIMIT:
            with pytest.raises(TableFullError):
                self.table.commit(group, topic, queue_id, position)
        else:
            assert self.table.commit(group, topic, queue_id, position)
            self.model[key] = position

    @rule(group=GROUPS, topic=TOPICS, queue_id=QUEUES, position=POSITIONS)
    def reset(self, group: str, topic: str, queue_id: int, position: int) -> None:
        key = (group, topic, queue_id)
        if key not in self.model and len(self.model) >= LIMIT:
            with pytest.raises(TableFullError):
                self.table.set_reset(topic, group, queue_id, position)
        else:
            assert self.table.set_reset(topic, group, queue_id, position)
            self.model[key] = self.resets[key] = position

    @rule(group=GROUPS, topic=TOPICS, queue_id=QUEUES)
    def take_reset(self, group: str, topic: str, queue_id: int) -> None:
        assert self.table.take_reset(topic, group, queue_id) == self.resets.pop((group, topic, queue_id), None)

    @rule(source=GROUPS, group=GROUPS, topic=TOPICS)
    def clone(self, source: str, group: str, topic: str) -> None:
        theirs = {key[2]: position for key, position in self.model.items() if key[:2] == (source, topic)}
        after = {key: position for key, position in self.model.items() if not theirs or key[:2] != (group, topic)}
        after |= {(group, topic, queue_id): position for queue_id, position in theirs.items()}
        if len(after) > max(LIMIT, len(self.model)):
            with pytest.raises(TableFullError):
                self.table.clone(source, group, topic)
        else:
            self.table.clone(source, group, topic)
            self.model = after

    @rule(group=GROUPS)
    def remove_group(self, group: str) -> None:
        self.table.remove_group(group)
        self.model = {key: position for key, position in self.model.items() if key[0] != group}
        self.resets = {key: position for key, position in self.resets.items() if key[0] != group}

    @rule(topic=TOPICS)
    def remove_topic(self, topic: str) -> None:
        self.table.remove_topic(topic)
        self.model = {key: position for key, position in self.model.items() if key[1] != topic}
        self.resets = {key: position for key, position in self.resets.items() if key[1] != topic}

    @precondition(lambda self: self.job is None)
    @rule()
    def begin_save(self) -> None:
        job = self.table.begin_save()
        if job is None:
            assert self.saved == self.model
        else:
            self.job = (job, dict(self.model))

    @precondition(lambda self: self.job is not None)
    @rule()
    def end_save(self) -> None:
        assert self.job is not None
        job, then = self.job
        job()
        self.job = None
        self.saved = then
        assert self.flat(loaded(self.disk)) == then

    @precondition(lambda self: self.job is None)
    @rule()
    def restart(self) -> None:
        self.table = table(self.disk, offsets_max=LIMIT)
        self.table.load()
        self.model = dict(self.saved)
        self.resets = {}

    @invariant()
    def agrees(self) -> None:
        assert self.flat(self.table) == self.model
        assert len(self.table) == len(self.model)
        for group in ("G", "H", "I"):
            assert self.table.topics_of(group) == {key[1] for key in self.model if key[0] == group}
            for queue_id in range(3):
                key = (group, "T", queue_id)
                assert self.table.query(*key) == self.resets.get(key, self.model.get(key, -1))
                assert self.table.pending_reset("T", group, queue_id) == self.resets.get(key)
        assert self.table.groups_of("T") == {key[0] for key in self.model if key[1] == "T"}
        document = decode_json(self.table.encode(), ConsumerOffsetTable)
        assert sum(len(queues) for queues in document.offset_table.values()) == len(self.model)

    @staticmethod
    def flat(offsets: OffsetTable) -> dict[tuple[str, str, int], int]:
        return {
            (group, topic, queue_id): position
            for group, topic, queues in offsets.entries()
            for queue_id, position in queues.items()
        }


TestOffsets = Offsets.TestCase
TestOffsets.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


# Copies


def slave_table(files: FileSystem | None = None, **settings: Any) -> OffsetTable:
    return table(files, broker_id=1, broker_role="SLAVE", **settings)


def copy(source: OffsetTable, target: OffsetTable, mark: str, *, parts_min: int = 1) -> tuple[str, list[OwnCommit]]:
    """What one round of a slave does with offsets; the mark for the next one."""
    parts: list[OffsetChanges] = []
    cursor = 0
    while True:
        part = source.changes_since(mark, cursor)
        if part.mark != mark:
            parts.clear()
        parts.append(part)
        mark = part.mark
        if part.cursor is None:
            break
        cursor = part.cursor
    assert len(parts) >= parts_min
    told: dict[str, dict[int, int]] = {}
    for part in parts:
        told.update(decode_document(part.body, ConsumerOffsetTable).offset_table)
    return mark, target.take_over(told, source.version, is_whole=parts[-1].is_whole)


def test_changes_since_nothing_are_everything() -> None:
    master, slave = table(), slave_table()
    master.commit("G", "T", 0, 5)
    master.commit("H", "T", 1, 7)
    slave.take_over({"X@Y": {0: 1}}, DataVersion(), is_whole=True)
    copy(master, slave, "")
    assert content(slave) == content(master)
    assert slave.version == master.version


def test_changes_since_a_mark_are_only_those() -> None:
    master = table()
    master.commit("G", "T", 0, 5)
    master.commit("H", "T", 1, 7)
    mark = master.changes_since("").mark
    master.save()
    mark = master.changes_since(mark).mark
    master.commit("H", "T", 1, 8)
    for _ in range(2):  # before a save and after it
        changes = master.changes_since(mark)
        assert not changes.is_whole
        assert decode_document(changes.body, ConsumerOffsetTable).offset_table == {"T@H": {1: 8}}
        master.save()
    last = master.changes_since(changes.mark)
    assert decode_document(last.body, ConsumerOffsetTable).offset_table == {}


def test_changes_since_a_mark_of_another_run_are_everything() -> None:
    disk = SimulatedDisk()
    master = table(disk)
    master.commit("G", "T", 0, 5)
    mark = master.changes_since("").mark
    master.save()
    again = table(disk, clock=ManualClock(5))
    again.load()
    assert again.changes_since(mark).is_whole
    assert again.changes_since("no mark").is_whole
    assert again.changes_since("1.2").is_whole


def test_large_table_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusee.broker.offsets.CHANGES_MAX", 3)
    master, slave = table(), slave_table()
    for number in range(5):
        for queue_id in range(2):
            master.commit(f"G{number}", "T", queue_id, number)
    mark, _ = copy(master, slave, "", parts_min=3)
    assert content(slave) == content(master)
    assert not master.changes_since(mark).is_whole


def test_own_commit_ahead_of_the_master_stays_until_it_is_told() -> None:
    slave = slave_table()
    slave.take_over({"T@G": {0: 5, 1: 5}}, DataVersion(), is_whole=True)
    slave.commit("G", "T", 0, 9)
    slave.commit("G", "T", 1, 3)
    slave.commit("N", "T", 0, 1)
    assert slave.own_commits == 3
    ahead = slave.take_over({"T@G": {0: 6, 1: 5}}, DataVersion(), is_whole=True)
    assert ahead == [OwnCommit("G", "T", 0, 9, 6), OwnCommit("N", "T", 0, 1, -1)]
    assert content(slave) == {("G", "T"): {0: 9, 1: 5}, ("N", "T"): {0: 1}}
    slave.told(ahead[0], 8)
    slave.told(ahead[1], 1)
    assert slave.own_commits == 0
    assert content(slave) == {("G", "T"): {0: 8, 1: 5}, ("N", "T"): {0: 1}}
    assert slave.take_over({"T@G": {0: 7}}, DataVersion(), is_whole=True) == []
    assert content(slave) == {("G", "T"): {0: 7}}


def test_own_commit_that_the_master_does_not_speak_of_is_compared_with_what_it_had() -> None:
    slave = slave_table()
    slave.take_over({"T@G": {0: 5, 1: 5}}, DataVersion(), is_whole=True)
    slave.commit("G", "T", 0, 9)
    slave.commit("G", "T", 1, 2)
    assert slave.take_over({}, DataVersion(), is_whole=False) == [OwnCommit("G", "T", 0, 9, 5)]
    assert content(slave) == {("G", "T"): {0: 9, 1: 5}}


def test_commit_while_the_one_before_is_told_stays_own() -> None:
    slave = slave_table()
    slave.commit("G", "T", 0, 9)
    [ahead] = slave.take_over({}, DataVersion(), is_whole=True)
    slave.commit("G", "T", 0, 12)
    slave.told(ahead, 9)
    assert slave.take_over({"T@G": {0: 9}}, DataVersion(), is_whole=True) == [OwnCommit("G", "T", 0, 12, 9)]


def test_own_commits_outlive_a_restart_of_the_slave() -> None:
    disk = SimulatedDisk()
    slave = slave_table(disk)
    slave.take_over({"T@G": {0: 5}}, DataVersion(), is_whole=True)
    slave.commit("G", "T", 0, 9)
    slave.save()
    assert b'"slaveCommits"' in disk.read_file(FILE)
    again = slave_table(disk)
    again.load()
    assert again.take_over({"T@G": {0: 5}}, DataVersion(), is_whole=True) == [OwnCommit("G", "T", 0, 9, 5)]
    again.told(OwnCommit("G", "T", 0, 9, 5), 9)
    assert again.is_dirty
    again.save()
    last = slave_table(disk)
    last.load()
    assert last.own_commits == 0
    assert content(last) == {("G", "T"): {0: 9}}


def test_file_of_a_master_has_no_own_commits() -> None:
    disk = SimulatedDisk()
    master = table(disk)
    master.commit("G", "T", 0, 9)
    master.save()
    assert b"slaveCommits" not in disk.read_file(FILE)


class Copies(RuleBasedStateMachine):
    """A master's table and a slave that copies it now and then: after a copy they are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.master, self.slave = table(), slave_table()
        self.mark = ""

    @rule(group=GROUPS, topic=TOPICS, queue_id=st.integers(0, 2), position=st.integers(0, 9))
    def commit(self, group: str, topic: str, queue_id: int, position: int) -> None:
        self.master.commit(group, topic, queue_id, position)

    @rule(group=GROUPS)
    def remove_group(self, group: str) -> None:
        self.master.remove_group(group)

    @rule(topic=TOPICS)
    def remove_topic(self, topic: str) -> None:
        self.master.remove_topic(topic)

    @rule()
    def save(self) -> None:
        self.master.save()

    @rule()
    def copy(self) -> None:
        self.mark, ahead = copy(self.master, self.slave, self.mark)
        assert content(self.slave) == content(self.master)
        assert len(self.slave) == len(self.master)
        assert not ahead


TestCopies = Copies.TestCase
TestCopies.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
