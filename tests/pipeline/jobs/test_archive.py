"""Archives: everything once, whatever is interrupted; goes on where it was; small files become large ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.errors import ConfigError, FuseeError
from fusee.pipeline.jobs import archive as archive_module
from fusee.pipeline.jobs.archive import archive, catalog_outcome, compact, read_archive
from fusee.pipeline.jobs.catalog import Catalog
from fusee.pipeline.jobs.folders import Folder

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
