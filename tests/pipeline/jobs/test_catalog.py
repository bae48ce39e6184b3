"""The catalog of an archive: changes count whole or not at all, whatever is interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.errors import FuseeError
from fusee.message.model import MessageQueue
from fusee.pipeline.jobs.catalog import STAGED, ArchivedFile, Catalog, Entry, written
from fusee.pipeline.jobs.folders import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(spark, str(tmp_path / "archive"))


def stage(folder: Folder, entry: Entry) -> None:
    for one in entry.added:
        folder.publish(f"{entry.staged}/{one.path}", f"rows of {entry.number}")


def entry(number: int, name: str, *, removed: tuple[str, ...] = (), next_offset: int = 0) -> Entry:
    added = ArchivedFile(f"topic=orders/date=2026-01-01/hour=5/{name}", 10, 100, "orders", "2026-01-01", 5)
    positions = written({MessageQueue("orders", "broker-a", 0): next_offset}) if next_offset else {}
    return Entry(
        number=number,
        kind="batch",
        added=(added,),
        removed=removed,
        positions=positions,
        query_id="q",
        batch_id=number,
    )


def test_commit_puts_files_in_place_and_is_read_again(folder: Folder) -> None:
    catalog = Catalog(folder)
    one = entry(0, "b0.parquet", next_offset=7)
    stage(folder, one)
    catalog.commit(one)
    again = Catalog(folder)
    assert again.entries == (one,)
    assert [fact.path for fact in folder.files("topic=orders")] == [one.added[0].path]
    assert again.positions() == {MessageQueue("orders", "broker-a", 0): 7}
    assert again.has_batch("q", 0)
    assert not again.has_batch("other", 0)
    assert not folder.exists(one.staged)


def test_commit_when_interrupted_before_its_files_are_moved_is_finished_by_the_next(folder: Folder) -> None:
    catalog = Catalog(folder)
    first = entry(0, "b0.parquet")
    stage(folder, first)
    catalog.commit(first)
    second = entry(1, "c1.parquet", removed=(first.added[0].path,))
    stage(folder, second)
    assert folder.publish("_catalog/000000000001.json", second.to_json())  # and no further

    reader = Catalog(folder)
    root = folder.uri(second.staged)
    assert reader.resolve() == {root: [f"{root}/{second.added[0].path}"]}
    Catalog(folder).finish()
    assert [fact.path for fact in folder.files("topic=orders")] == [second.added[0].path]
    assert Catalog(folder).resolve() == {folder.root: [folder.uri(second.added[0].path)]}
    Catalog(folder).finish()
    assert [fact.path for fact in folder.files("topic=orders")] == [second.added[0].path]


def test_what_was_staged_and_never_committed_does_not_count(folder: Folder) -> None:
    one = entry(0, "b0.parquet")
    stage(folder, one)
    catalog = Catalog(folder)
    catalog.finish()
    assert catalog.files() == []
    assert not folder.exists(STAGED)


def test_commit_when_another_writer_was_first_changes_nothing(folder: Folder) -> None:
    mine, other = Catalog(folder), Catalog(folder)
    theirs = entry(0, "theirs.parquet")
    stage(folder, theirs)
    other.commit(theirs)
    ours = entry(0, "ours.parquet")
    stage(folder, ours)
    with pytest.raises(FuseeError, match="somebody else writes"):
        mine.commit(ours)
    assert Catalog(folder).entries == (theirs,)


def test_commit_when_another_writer_has_cleared_its_files_changes_nothing(folder: Folder) -> None:
    mine, ours = Catalog(folder), replace(entry(0, "b0.parquet"), attempt="mine")
    stage(folder, ours)
    other, theirs = Catalog(folder), replace(entry(0, "b0.parquet"), attempt="theirs")
    other.finish()
    stage(folder, theirs)
    with pytest.raises(FuseeError, match="files of entry 0 are gone"):
        mine.commit(ours)
    assert Catalog(folder).entries == ()
    other.commit(theirs)
    assert Catalog(folder).entries == (theirs,)
    assert folder.exists(theirs.added[0].path)


def test_catalog_with_a_missing_entry_says_so(folder: Folder) -> None:
    catalog = Catalog(folder)
    for number in range(3):
        one = entry(number, f"b{number}.parquet")
        stage(folder, one)
        catalog.commit(one)
    folder.delete("_catalog/000000000001.json")
    with pytest.raises(FuseeError, match="no entry 1"):
        Catalog(folder)


def test_catalog_with_an_entry_that_is_damaged_names_the_file(folder: Folder) -> None:
    folder.publish("_catalog/000000000000.json", '{"version": 1')
    with pytest.raises(FuseeError, match="000000000000.json is not an entry"):
        Catalog(folder)
