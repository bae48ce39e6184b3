"""Files with tables: Java's text, jobs that write only what changed, and what is left after a failure."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.documents import TableDocument, next_version, pretty
from fusee.clock import ManualClock
from fusee.errors import StoreBusyError, StoreCorruptError, StoreFullError
from fusee.store.filesystem import FileSystem, OsFileSystem
from fusee.store.simulated_disk import SimulatedDisk
from fusee.wire.bodies.group import SubscriptionGroupTable
from fusee.wire.bodies.offsets import ConsumerOffsetTable
from fusee.wire.bodies.topic import DataVersion, TopicConfig
from fusee.wire.lenient_json import decode_json, loads
from tests.golden.store import unpack

PATH = Path("/store/config/table.json")


class Document(msgspec.Struct, rename="camel"):
    data_version: DataVersion = DataVersion()
    table: dict[str, dict[int, int]] = {}


class TopicsFile(msgspec.Struct, rename="camel"):
    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig]


def document(files: FileSystem, path: Path = PATH) -> TableDocument[Document]:
    return TableDocument(path, files, document_type=Document, texts={"table": lambda value: pretty(value, 2)})


def save(saved: TableDocument[Document], counter: int, **values: Any) -> None:
    saved.changed_all("table", values)
    saved.save(DataVersion(counter=counter))


@pytest.mark.parametrize("name", ["clean", "killed"])
@pytest.mark.parametrize(
    ("file", "value_type"),
    [
        ("topics.json", TopicsFile),
        ("subscriptionGroup.json", SubscriptionGroupTable),
        ("consumerOffset.json", ConsumerOffsetTable),
    ],
)
def test_pretty_writes_the_very_bytes_of_java(tmp_path: Path, name: str, file: str, value_type: type[Any]) -> None:
    content = (unpack(name, tmp_path) / "config" / file).read_bytes()
    assert pretty(decode_json(content, value_type), 0).encode() == content


def test_next_version_counts_and_tells_the_time() -> None:
    clock = ManualClock()
    first = next_version(DataVersion(counter=4, state_version=1, timestamp=5), clock)
    assert first == DataVersion(counter=5, state_version=0, timestamp=clock.time_ms())
    clock.advance(2)
    second = next_version(first, clock, 7)
    assert second == DataVersion(counter=6, state_version=7, timestamp=first.timestamp + 2000)


def test_document_without_a_file_loads_nothing_and_has_nothing_to_save() -> None:
    saved = document(SimulatedDisk())
    assert saved.load() is None
    assert not saved.is_dirty
    assert saved.begin(DataVersion()) is None


def test_save_writes_all_entries_of_which_few_were_told() -> None:
    disk = SimulatedDisk()
    save(document(disk), 1, a={0: 1, 1: 2}, b={0: 3}, c={})
    saved = document(disk)
    loaded = saved.load()
    assert loaded == Document(DataVersion(counter=1), {"a": {0: 1, 1: 2}, "b": {0: 3}, "c": {}})
    for key, value in loaded.table.items():
        saved.loaded("table", key, value)
    assert not saved.is_dirty
    save(saved, 2, b=None, d={7: 7})
    assert document(disk).load() == Document(DataVersion(counter=2), {"a": {0: 1, 1: 2}, "c": {}, "d": {7: 7}})
    assert b"\t\t\t1:2\n\t\t}" in disk.read_file(PATH)


def test_job_takes_what_was_noted_and_leaves_what_comes_later() -> None:
    disk = SimulatedDisk()
    saved = document(disk)
    saved.changed("table", "a", {0: 1})
    job = saved.begin(DataVersion(counter=1))
    assert job is not None
    assert (saved.is_saving, saved.is_dirty) == (True, False)
    saved.changed("table", "b", {0: 2})
    assert saved.begin(DataVersion(counter=2)) is None
    with pytest.raises(StoreBusyError, match="table.json is being written"):
        saved.save(DataVersion(counter=2))
    job()
    assert document(disk).load() == Document(DataVersion(counter=1), {"a": {0: 1}})
    assert saved.is_dirty
    saved.save(DataVersion(counter=2))
    assert document(disk).load() == Document(DataVersion(counter=2), {"a": {0: 1}, "b": {0: 2}})


def test_job_that_failed_is_begun_again() -> None:
    disk = SimulatedDisk()
    saved = document(disk)
    save(saved, 1, a={0: 1})
    saved.changed("table", "a", {0: 2})
    job = saved.begin(DataVersion(counter=2))
    assert job is not None
    disk.fail_write(code=errno.ENOSPC, tear_at=2)
    with pytest.raises(StoreFullError):
        job()
    assert saved.is_dirty
    assert document(disk).load() == Document(DataVersion(counter=1), {"a": {0: 1}})
    saved.save(DataVersion(counter=3))
    assert document(disk).load() == Document(DataVersion(counter=3), {"a": {0: 2}})
    assert not saved.is_dirty


def test_on_dirty_is_called_once_until_a_job_takes_the_changes() -> None:
    saved = document(SimulatedDisk())
    calls: list[int] = []
    saved.on_dirty = lambda: calls.append(1)
    saved.changed("table", "a", {})
    saved.changed("table", "b", {})
    saved.changed_all("table", {})
    assert len(calls) == 1
    saved.save(DataVersion())
    saved.changed_all("table", {})
    assert len(calls) == 1
    saved.changed("table", "a", None)
    assert len(calls) == 2


@pytest.mark.parametrize("damage", [b"", b'{"table":{"a":{0:', b"[]", b'{"table":7}', b"\xff\xfe"])
def test_damaged_file_gives_way_to_its_backup_and_never_becomes_one(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "table.json"
    save(saved := document(OsFileSystem(), path), 1, a={0: 1})
    save(saved, 2, a={0: 2})
    path.write_bytes(damage)
    assert document(OsFileSystem(), path).load() == Document(DataVersion(counter=1), {"a": {0: 1}})
    save(saved, 3, a={0: 3})
    assert document(OsFileSystem(), path).load() == Document(DataVersion(counter=3), {"a": {0: 3}})
    path.write_bytes(damage)
    assert document(OsFileSystem(), path).load() == Document(DataVersion(counter=1), {"a": {0: 1}})


def test_nothing_readable_is_an_error_that_names_the_files(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b"{")
    with pytest.raises(StoreCorruptError, match=r"table\.json"):
        document(OsFileSystem(), path).load()


def test_references_of_fastjson_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b'{"table":{"a":{0:1,2:3},"b":{"$ref":"$.table.a"}}}')
    loaded = document(OsFileSystem(), path).load()
    assert loaded is not None
    assert loaded.table == {"a": {0: 1, 2: 3}, "b": {0: 1, 2: 3}}


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
AWKWARD_KEYS = st.sampled_from(["x,1:y", "{2:", 'a":{1:2}', "\\", "$ref"])


@given(
    st.dictionaries(
        KEYS | AWKWARD_KEYS,
        st.dictionaries(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1), max_size=3),
        max_size=4,
    )
)
def test_any_table_reads_back_as_it_was(table: dict[str, dict[int, int]]) -> None:
    disk = SimulatedDisk()
    saved = document(disk)
    saved.changed_all("table", table)
    saved.changed("table", "last", {})
    saved.save(DataVersion())
    loaded = document(disk).load()
    assert loaded is not None
    assert loaded.table == {**table, "last": {}}
    assert set(loads(disk.read_file(PATH))) == {"dataVersion", "table"}
