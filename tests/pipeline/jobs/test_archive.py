"""Archives: everything once, whatever is interrupted; goes on where it was; small files become large ones."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.clock import ManualClock
from fusee.errors import ConfigError, FuseeError
from fusee.pipeline.jobs import archive as archive_module
from fusee.pipeline.jobs.archive import archive, catalog_outcome, compact, read_archive
from fusee.pipeline.jobs.catalog import ArchivedFile, Catalog, Entry
from fusee.pipeline.jobs.folders import Folder
from fusee.sync import embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.sync import EmbeddedServer


def fill(server: EmbeddedServer, topic: str, start: int, stop: int) -> None:
    with server.connect() as mq:
        for number in range(start, stop):
            mq.send(
                topic, b"body %d" % number, key=f"k{number % 7}", tag="ab"[number % 2], properties={"n": str(number)}
            )


def bodies(spark: SparkSession, path: Path) -> list[bytes]:
    return sorted(bytes(row[0]) for row in read_archive(spark, str(path)).select("body").collect())


def expected(stop: int) -> list[bytes]:
    return sorted(b"body %d" % number for number in range(stop))


def test_archive_has_every_message_once_and_goes_on_where_it_was(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    source, to = {"nameServer": server.name_server}, tmp_path / "archive"
    with server.connect() as mq:
        mq.admin.create_topic("orders")
    fill(server, "orders", 0, 120)
    first = archive(spark, to=str(to), topics=["orders"], source=source, rows_per_batch=50)
    assert first.facts["new rows"] == 120
    assert bodies(spark, to) == expected(120)

    fill(server, "orders", 120, 150)
    second = archive(spark, to=str(to), topics=["orders"], source=source)
    assert second.facts["new rows"] == 30
    assert second.facts["rows"] == 150
    assert bodies(spark, to) == expected(150)
    assert archive(spark, to=str(to), topics=["orders"], source=source).facts["new rows"] == 0

    row = read_archive(spark, str(to)).where("properties['n'] = '3'").first()
    assert row is not None
    assert (row.topic, row.keys, row.tags, row.brokerName) == ("orders", "k3", "b", "embedded")
    assert row.date == row.storeTimestamp.strftime("%Y-%m-%d")
    assert row.hour == row.storeTimestamp.hour
    # Any reader of Parquet sees the same.
    assert spark.read.parquet(str(to)).count() == 150


def test_archive_without_its_checkpoint_goes_on_behind_what_is_archived(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    source, to = {"nameServer": server.name_server}, tmp_path / "archive"
    fill(server, "orders", 0, 20)
    archive(spark, to=str(to), topics=["orders"], source=source)
    shutil.rmtree(to / "_checkpoint")
    fill(server, "orders", 20, 30)
    archive(spark, to=str(to), topics=["orders"], source=source)
    assert bodies(spark, to) == expected(30)


@pytest.mark.parametrize("step", ["before the entry", "after the entry"])
def test_archive_when_it_dies_on_the_way_has_everything_once_in_the_end(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    source, to = {"nameServer": server.name_server}, tmp_path / "archive"
    fill(server, "orders", 0, 60)
    commit = Catalog.commit
    deaths = iter([False, True])

    def dying(self: Catalog, entry: object) -> None:
        if not next(deaths, False):
            commit(self, entry)  # type: ignore[arg-type]
            return
        if step == "after the entry":
            monkeypatch.setattr(Catalog, "_apply", lambda *_: None)
            commit(self, entry)  # type: ignore[arg-type]
        raise RuntimeError("died")

    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "commit", dying)
        with pytest.raises(FuseeError, match="died"):
            archive(spark, to=str(to), topics=["orders"], source=source, rows_per_batch=20)
    monkeypatch.undo()
    seen_by_catalog = bodies(spark, to)
    assert seen_by_catalog == expected(60)[:0] or len(seen_by_catalog) in (20, 40)
    archive(spark, to=str(to), topics=["orders"], source=source, rows_per_batch=20)
    assert bodies(spark, to) == expected(60)
    assert spark.read.parquet(str(to)).count() == 60
    assert not (to / "_staged").exists()


def test_compact_puts_small_files_together_and_loses_nothing(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    source, to = {"nameServer": server.name_server}, tmp_path / "archive"
    for turn in range(3):
        fill(server, "orders", turn * 10, turn * 10 + 10)
        archive(spark, to=str(to), topics=["orders"], source=source, compact_after=False)
    before = Catalog(Folder(spark, str(to)))
    hours = {one.partition for one in before.files()}
    outcome = compact(spark, archive_path=str(to))
    after = Catalog(Folder(spark, str(to)))
    assert len(before.files()) > len(after.files()) == len(hours)
    assert outcome.facts["rows"] == 30
    assert bodies(spark, to) == expected(30)
    assert spark.read.parquet(str(to)).count() == 30
    assert compact(spark, archive_path=str(to)).facts["changes"] == 0


def test_archive_that_goes_on_puts_files_of_past_hours_together_while_it_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    with embedded(clock="manual", start_at=datetime(2024, 1, 1, 5, 30, tzinfo=UTC), topics={"orders": 1}) as server:
        source = {"nameServer": server.name_server}
        for turn in range(2):
            fill(server, "orders", turn * 5, turn * 5 + 5)
            archive(spark, to=str(to), topics=["orders"], source=source, compact_after=False)
        assert hours_of(spark, to) == {5: "bb"}
        server.advance(3600)
        fill(server, "orders", 10, 15)
        seen: list[dict[int, str]] = []

        def is_stopped() -> bool:
            seen.append(hours_of(spark, to))
            return seen[-1] == {5: "c", 6: "b"} or len(seen) > 60

        outcome = archive(
            spark, to=str(to), topics=["orders"], source=source, continuous=True, every_s=0.1, is_stopped=is_stopped
        )
    assert seen[-1] == {5: "c", 6: "b"}
    assert [row[1:] for row in outcome.tables[2].rows] == [(2, 1)]
    assert bodies(spark, to) == expected(15)
    assert spark.read.parquet(str(to)).count() == 15


def hours_of(spark: SparkSession, to: Path) -> dict[int, str]:
    """The kinds of files that each hour has: b of a batch, c of a compaction."""
    found: dict[int, str] = {}
    for one in Catalog(Folder(spark, str(to))).files():
        found[one.hour] = found.get(one.hour, "") + one.path.rpartition("/")[2][0]
    return found


@pytest.mark.parametrize(("now", "closed"), [("05:59", set()), ("06:00", set()), ("07:00", {6}), ("08:30", {6, 7})])
def test_hours_are_put_together_when_they_are_over_and_the_last_batch_had_nothing_of_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: str, closed: set[int]
) -> None:
    folder = Folder(spark, str(tmp_path / "archive"))
    catalog = Catalog(folder)
    files = [ArchivedFile(f"hour={hour}/b", 1, 1, "orders", "2024-01-01", hour) for hour in (5, 6, 7, 5)]
    for number, one in enumerate(files):
        entry = Entry(number=number, kind="batch", added=(replace(one, path=f"hour={one.hour}/b{number}"),))
        folder.publish(f"{entry.staged}/{entry.added[0].path}", "rows")
        catalog.commit(entry)
    at = datetime.fromisoformat(f"2024-01-01T{now}+00:00")
    monkeypatch.setattr(archive_module, "_clock", ManualClock(int(at.timestamp() * 1000)))
    assert {one.hour for one in files if archive_module._is_closed(catalog)(one)} == closed


def test_archive_of_topics_with_odd_names_keeps_the_names(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    source, to = {"nameServer": server.name_server}, tmp_path / "archive"
    fill(server, "a-b_c%DLQ%x", 0, 3)
    archive(spark, to=str(to), topics=["a-b_c%DLQ%x"], source=source)
    assert {row.topic for row in read_archive(spark, str(to)).collect()} == {"a-b_c%DLQ%x"}
    outcome = catalog_outcome(spark, str(to))
    assert {row[0] for row in outcome.tables[1].rows} == {"a-b_c%DLQ%x"}
    assert sum(int(str(row[3])) for row in outcome.tables[1].rows) == 3


def test_archive_that_is_not_there_says_how_to_make_one(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FuseeError, match="fusee pipeline archive --to"):
        read_archive(spark, str(tmp_path / "nothing"))


def test_archive_refuses_options_that_leave_columns_out(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="every column"):
        archive(
            spark,
            to=str(tmp_path / "a"),
            topics=["orders"],
            source={"nameServer": "127.0.0.1:1", "includeProperties": "false"},
        )


def test_hours_are_of_utc_whatever_the_session_says(spark: SparkSession) -> None:
    rows = spark.sql("select timestamp_seconds(1767225599) as storeTimestamp")  # a second before 2026 in UTC
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        found = archive_module._by_hour(rows).select("date", "hour").first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found is not None
    assert tuple(found) == ("2025-12-31", 23)
